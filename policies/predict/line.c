/* line.c - log length = a + b log number, with PRIOR samples on the diagonal. */
#include "policies/predict/line.h"

#include <math.h>

#define KEEP 0.999 /* of the sums, an end: half gone after 700 */
#define PRIOR 8.0  /* samples that say b = 1/2, between "the same" and "nothing" */
#define SLOPE_PRIOR 0.5
#define SLOPE_MAX 1.0  /* more would stretch the largest numbers beyond what was seen */
#define NONE_MAX 256.0 /* ends without the number that their mean remembers */

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
