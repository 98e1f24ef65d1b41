/* lengths.c - keeps moments and a coarse histogram of request lengths.
 *
 * Means alone understate the work: the tokens that a session reads while it decodes grow with the square
 * of its output and with prompt times output, so both second moments and the cross moment are kept
 * exactly. The bins, a factor of two wide, describe the tails. */
#include "base/perf/lengths.h"

#include <math.h>

#define FIRST_END 32.0 /* tokens; each further bin is twice as wide */

static uint32_t bin_of(double tokens)
{
    if (!(tokens >= FIRST_END)) return 0;
    return (uint32_t)fmin(floor(log2(tokens / (FIRST_END / 2))), LENGTH_BINS - 1);
}

void lengths_add(struct lengths *l, double prompt, double output, double weight)
{
    l->count += weight;
    l->prompt += weight * prompt;
    l->output += weight * output;
    l->prompt_sq += weight * prompt * prompt;
    l->output_sq += weight * output * output;
    l->cross += weight * prompt * output;
    l->bin[bin_of(prompt)][bin_of(output)] += (float)weight;
}

void lengths_mean(struct lengths *l)
{
    if (l->count <= 0) return;
    l->prompt /= l->count;
    l->output /= l->count;
    l->prompt_sq /= l->count;
    l->output_sq /= l->count;
    l->cross /= l->count;
}

void lengths_join(const struct lengths *a, const struct lengths *b, struct lengths *ret)
{
    double n = a->count + b->count;
    struct lengths r = { .count = n };
    r.age_s = a->count <= 0 ? b->age_s : b->count <= 0 ? a->age_s : fmin(a->age_s, b->age_s);
    if (n > 0) {
        double x = a->count / n, y = b->count / n;
        r.prompt = x * a->prompt + y * b->prompt;
        r.output = x * a->output + y * b->output;
        r.prompt_sq = x * a->prompt_sq + y * b->prompt_sq;
        r.output_sq = x * a->output_sq + y * b->output_sq;
        r.cross = x * a->cross + y * b->cross;
    }
    for (uint32_t i = 0; i < LENGTH_BINS; i++)
        for (uint32_t k = 0; k < LENGTH_BINS; k++)
            r.bin[i][k] = a->bin[i][k] + b->bin[i][k];
    *ret = r;
}

/* Finds the bin of the share q and interpolates in it; returns a length. */
static double quantile(const float sum[LENGTH_BINS], double count, double q)
{
    double left = q * count;
    for (uint32_t k = 0; k < LENGTH_BINS; k++) {
        if ((double)sum[k] <= 0) continue;
        if (left <= (double)sum[k]) {
            double low = k == 0 ? 1 : ldexp(FIRST_END, (int)k - 1);
            return low + (ldexp(FIRST_END, (int)k) - low) * left / (double)sum[k];
        }
        left -= (double)sum[k];
    }
    return ldexp(FIRST_END, LENGTH_BINS - 1);
}

double lengths_prompt_quantile(const struct lengths *l, double q)
{
    float sum[LENGTH_BINS] = { 0 };
    for (uint32_t i = 0; i < LENGTH_BINS; i++)
        for (uint32_t k = 0; k < LENGTH_BINS; k++)
            sum[i] += l->bin[i][k];
    return l->count > 0 ? quantile(sum, l->count, q) : 0;
}

double lengths_output_quantile(const struct lengths *l, double q)
{
    float sum[LENGTH_BINS] = { 0 };
    for (uint32_t i = 0; i < LENGTH_BINS; i++)
        for (uint32_t k = 0; k < LENGTH_BINS; k++)
            sum[k] += l->bin[i][k];
    return l->count > 0 ? quantile(sum, l->count, q) : 0;
}
