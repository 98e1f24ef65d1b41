/* lengths.c - histograms of lengths, calibrated bounds, and a regression on one number.
 *
 *     log length = a + b log number, with PRIOR samples on the diagonal */

#include "policies/predict/lengths.h"

#include <math.h>

#define OFFSET_STEP 0.02 /* of the logarithm, an output: 39 above P90 in a row double it */
#define OFFSET_BOUND 2.0 /* an offset stays within exp(+-2) */
#define P90_FIRST 0.69   /* log 2: before any output ended, P90 is twice the estimate */

static double bin_start(uint32_t b)
{
    /* LENGTH_GROWTH^b as a table, because a quantile is read for every request. */
    static const double start[LENGTH_BINS + 1] = {
        1.0,
        1.75,
        3.0625,
        5.359375,
        9.37890625,
        16.4130859375,
        28.722900390625,
        50.26507568359375,
        87.96388244628906,
        153.93679428100586,
        269.38938999176025,
        471.43143248558044,
        825.0050068497658,
        1443.75876198709,
        2526.577833477408,
        4421.511208585464,
        7737.644615024561,
    };
    return start[b];
}

static uint32_t bin_of(double tokens)
{
    uint32_t b = 0;
    while (b + 1 < LENGTH_BINS && tokens >= bin_start(b + 1))
        b++;
    return b;
}

void length_learn(struct length_hist *h, double tokens)
{
    if ((double)h->count >= LENGTH_COUNT_MAX) {
        float keep = (float)((LENGTH_COUNT_MAX - 1) / LENGTH_COUNT_MAX);
        h->count *= keep;
        for (uint32_t b = 0; b < LENGTH_BINS; b++)
            h->bin[b] *= keep;
    }
    h->count += 1;
    h->mean += ((float)tokens - h->mean) / h->count;
    h->bin[bin_of(tokens)] += 1;
}

void length_merge(struct length_hist *h, const struct length_hist *other)
{
    float count = h->count + other->count;
    if (count <= 0) return;
    h->mean = (h->mean * h->count + other->mean * other->count) / count;
    /* Together they may exceed the count that one key may remember. */
    float keep = count > (float)LENGTH_COUNT_MAX ? (float)LENGTH_COUNT_MAX / count : 1;
    h->count = count * keep;
    for (uint32_t b = 0; b < LENGTH_BINS; b++)
        h->bin[b] = (h->bin[b] + other->bin[b]) * keep;
}

/* Spreads lengths evenly over the bins up to twice the first guess. */
void length_prior(struct length_estimate *e)
{
    *e = (struct length_estimate){ .mean = LENGTH_FIRST_GUESS };
    uint32_t top = bin_of(2 * LENGTH_FIRST_GUESS);
    for (uint32_t b = 0; b <= top; b++)
        e->bin[b] = 1.0 / (double)(top + 1);
}

void length_shrink(struct length_estimate *e, const struct length_hist *own)
{
    double n = (double)own->count, all = n + LENGTH_SHRINK;
    e->mean = (n * (double)own->mean + LENGTH_SHRINK * e->mean) / all;
    for (uint32_t b = 0; b < LENGTH_BINS; b++)
        e->bin[b] = ((double)own->bin[b] + LENGTH_SHRINK * e->bin[b]) / all;
    e->samples = n;
}

/* Returns a quantile; log-linear within a bin. */
static double quantile(const struct length_estimate *e, double q)
{
    double below = 0;
    for (uint32_t b = 0; b < LENGTH_BINS; b++) {
        if (below + e->bin[b] >= q && e->bin[b] > 0) {
            return bin_start(b) * pow(LENGTH_GROWTH, (q - below) / e->bin[b]);
        }
        below += e->bin[b];
    }
    return bin_start(LENGTH_BINS);
}

double length_clamp(double tokens, uint32_t output_max)
{
    if (!(tokens >= 1)) return 1;
    return tokens < (double)output_max ? tokens : (double)output_max;
}

void length_tail(const double bin[LENGTH_BINS], double above, double *ret_share, double *ret_mean)
{
    double mass = 0, sum = 0;
    for (uint32_t b = 0; b < LENGTH_BINS; b++) {
        double from = bin_start(b), to = bin_start(b + 1), share = 1;
        if (to <= above) continue;
        if (from < above) {
            share = log(to / above) / log(LENGTH_GROWTH);
            from = above;
        }
        mass += share * bin[b];
        sum += share * bin[b] * sqrt(from * to); /* the geometric middle stands for a bin */
    }
    *ret_share = mass;
    *ret_mean = mass > 0 ? sum / mass : above;
}

double length_left(const struct length_estimate *e, uint32_t output_max, uint32_t generated)
{
    double share, mean;
    length_tail(e->bin, (double)generated, &share, &mean);
    if (share < 1e-6) mean = (double)generated * LENGTH_GROWTH;
    double left = length_clamp(mean, output_max) - (double)generated;
    return left > 1 ? left : 1;
}

double length_to_learn(const struct length_estimate *e, double p50, uint32_t tokens, bool censored)
{
    if (!censored) return (double)tokens;
    if ((double)tokens < p50) return 0;
    return (double)tokens + length_left(e, UINT32_MAX, tokens);
}

void length_offset_observe(struct length_offset *o, double q, double bound, double tokens,
                           bool censored)
{
    bool above = tokens > bound;
    if (censored && !above) return; /* a cut output counts only if it had passed the bound */
    double value = (double)o->value + OFFSET_STEP * (above ? q : q - 1);
    o->value = (float)fmax(-OFFSET_BOUND, fmin(OFFSET_BOUND, value));
}

void length_offset_merge(struct length_offset *o, const struct length_offset *other)
{
    o->value = (o->value + other->value) / 2;
}

void length_verdict(const struct length_estimate *e, const struct length_offset *p90,
                    uint32_t output_max, struct predict_verdict *ret)
{
    *ret = (struct predict_verdict){
        .mean = length_clamp(e->mean, output_max),
        .p50 = length_clamp(quantile(e, 0.5), output_max),
        .p90 = length_clamp(quantile(e, 0.9) * exp((double)p90->value), output_max),
        .samples = e->samples,
    };
    if (ret->p90 < ret->p50) ret->p90 = ret->p50;
}

void length_band_init(struct length_band *b)
{
    *b = (struct length_band){ .p90 = { (float)P90_FIRST } };
}

void length_band_verdict(const struct length_band *b, double tokens, uint32_t output_max,
                         struct predict_verdict *ret)
{
    *ret = (struct predict_verdict){
        .mean = length_clamp(tokens, output_max),
        .p50 = length_clamp(tokens * exp((double)b->p50.value), output_max),
        .p90 = length_clamp(tokens * exp((double)b->p90.value), output_max),
    };
    if (ret->p90 < ret->p50) ret->p90 = ret->p50;
}

void length_band_observe(struct length_band *b, double estimate, double tokens, bool censored)
{
    length_offset_observe(&b->p50, 0.5, estimate * exp((double)b->p50.value), tokens, censored);
    length_offset_observe(&b->p90, 0.9, estimate * exp((double)b->p90.value), tokens, censored);
}

void length_band_merge(struct length_band *b, const struct length_band *other)
{
    length_offset_merge(&b->p50, &other->p50);
    length_offset_merge(&b->p90, &other->p90);
}

#define KEEP 0.999 /* of the sums, an output: half gone after 700 */
#define PRIOR 8.0  /* weight, in samples, of b = 1/2, between proportional and constant */
#define SLOPE_PRIOR 0.5
#define SLOPE_MAX 1.0  /* more would extrapolate the largest numbers beyond any seen length */
#define NONE_MAX 256.0 /* outputs without the number that the mean remembers */

void length_line_init(struct length_line *l)
{
    *l = (struct length_line){ .none_log = log(LENGTH_FIRST_GUESS) };
    length_band_init(&l->band);
}

double length_line_at(const struct length_line *l, uint32_t number)
{
    if (number == 0) return exp(l->none_log);
    double x = log((double)number);
    if (l->n < 1) return exp(SLOPE_PRIOR * x + (1 - SLOPE_PRIOR) * l->none_log);
    double mx = l->x / l->n, my = l->y / l->n;
    double b = (l->xy - l->n * mx * my + PRIOR * SLOPE_PRIOR) / (l->xx - l->n * mx * mx + PRIOR);
    b = fmax(0, fmin(SLOPE_MAX, b));
    return exp(my + b * (x - mx));
}

void length_line_observe(struct length_line *l, uint32_t number, uint32_t tokens, bool censored)
{
    if (tokens == 0) return;
    double said = length_line_at(l, number), y = log((double)tokens);
    length_band_observe(&l->band, said, (double)tokens, censored);
    if (censored && (double)tokens < said) return;
    if (number == 0) {
        l->none_n = fmin(l->none_n + 1, NONE_MAX);
        l->none_log += (y - l->none_log) / l->none_n;
        return;
    }
    double x = log((double)number);
    l->n = KEEP * l->n + 1;
    l->x = KEEP * l->x + x;
    l->y = KEEP * l->y + y;
    l->xx = KEEP * l->xx + x * x;
    l->xy = KEEP * l->xy + x * y;
}

void length_line_merge(struct length_line *l, const struct length_line *other)
{
    double none = l->none_n + other->none_n;
    if (none > 0) l->none_log = (l->none_log * l->none_n + other->none_log * other->none_n) / none;
    l->none_n = fmin(none, NONE_MAX);
    l->n += other->n;
    l->x += other->x;
    l->y += other->y;
    l->xx += other->xx;
    l->xy += other->xy;
    length_band_merge(&l->band, &other->band);
}
