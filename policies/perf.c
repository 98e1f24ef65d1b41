/* perf.c - the table of performance rows, and what they share. */
#include "base/core/bits.h"
#include "policies/perf_row.h"

#include <math.h>

#define RATIO_RATE 0.02 /* step of the running quantile, relative */
#define RATIO_QUANTILE 0.9

extern const struct perf_policy perf_roofline_residual, perf_roofline, perf_linear_row, perf_grid;

const struct perf_policy *const perf_table[] = { &perf_roofline_residual, &perf_roofline,
                                                 &perf_linear_row, &perf_grid };
const uint32_t perf_count = COUNT_OF(perf_table);

const struct perf_policy *perf_find(struct str name)
{
    for (uint32_t i = 0; i < perf_count; i++) {
        if (str_eq(str_from(perf_table[i]->name), name)) return perf_table[i];
    }
    return NULL;
}

struct perf_coef perf_at_clock(const struct perf_coef *full, double clock)
{
    struct perf_coef ret = *full;
    ret.a /= clock;
    ret.b /= clock;
    ret.c /= clock;
    ret.d /= clock;
    ret.e /= clock;
    return ret;
}

bool perf_coef_valid(const struct perf_coef *coef)
{
    const double v[] = { coef->a, coef->b, coef->c, coef->d, coef->e };
    double sum = 0;
    for (size_t i = 0; i < COUNT_OF(v); i++) {
        if (!isfinite(v[i]) || v[i] < 0) return false;
        sum += v[i];
    }
    return sum > 0 && isfinite(sum) && isfinite(coef->samples) && coef->samples >= 0;
}

void perf_surrogate(double (*step_s)(const void *state, const struct perf_shape *shape),
                    const void *state, struct roofline_point at, struct perf_coef *ret)
{
    uint64_t seqs = at.decoding_seqs, n = at.chunk_tokens, context = at.context_tokens;
    struct perf_shape one = { .decoding_seqs = 1, .kv_tokens_read = 1, .kv_tokens_decoding = 1 };
    struct perf_shape many = { .decoding_seqs = at.decoding_seqs,
                               .kv_tokens_read = seqs,
                               .kv_tokens_decoding = seqs };
    struct perf_shape full = many, mixed, later;
    full.kv_tokens_read = full.kv_tokens_decoding = seqs * (1 + context);
    mixed = full; /* a chunk slows the reading beside it: part of what it costs */
    mixed.prefill_tokens = at.chunk_tokens;
    mixed.prefill_chunks = 1;
    mixed.kv_tokens_read += n * (n + 1) / 2;
    later = mixed;
    later.kv_tokens_read += n * context;

    double one_s = step_s(state, &one), many_s = step_s(state, &many);
    double full_s = step_s(state, &full), mixed_s = step_s(state, &mixed);
    double later_s = step_s(state, &later), read = (double)(seqs * context);
    *ret = (struct perf_coef){ .ratio_p90 = 1 };
    if (context) ret->d = fmax(0, (full_s - many_s) / read);
    if (seqs > 1) ret->c = fmax(0, (many_s - one_s) / (double)(seqs - 1) - ret->d);
    ret->a = fmax(0, one_s - ret->c - ret->d);
    if (context) ret->e = fmax(0, (later_s - mixed_s) / (double)(n * context));
    ret->b = fmax(0, (mixed_s - full_s) / (double)n - ret->e * (double)(n + 1) / 2);
}

void perf_track_p90(double *p90, double ratio)
{
    *p90 *= 1 + RATIO_RATE * (ratio > *p90 ? RATIO_QUANTILE : RATIO_QUANTILE - 1);
}
