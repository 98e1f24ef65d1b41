/* perf.c - scales the coefficients of the step-time model by a clock, and checks them. */
#include "base/perf/perf.h"

#include "base/core/bits.h"

#include <math.h>

struct perf_coef perf_at_clock(const struct perf_coef *full, double clock)
{
    struct perf_coef ret = *full;
    ret.step_s /= clock;
    ret.prefill_token_s /= clock;
    ret.decode_seq_s /= clock;
    ret.kv_read_s /= clock;
    ret.attend_s /= clock;
    return ret;
}

bool perf_coef_valid(const struct perf_coef *coef)
{
    const double v[] = { coef->step_s, coef->prefill_token_s, coef->decode_seq_s, coef->kv_read_s,
                         coef->attend_s };
    double sum = 0;
    for (size_t i = 0; i < COUNT_OF(v); i++) {
        if (!isfinite(v[i]) || v[i] < 0) return false;
        sum += v[i];
    }
    return sum > 0 && isfinite(sum) && isfinite(coef->samples) && coef->samples >= 0;
}

/* The names of the roles, as configuration and API write them. */

const char *const role_names[ROLE_COUNT + 1] = {
    [ROLE_BOTH] = "both",
    [ROLE_PREFILL] = "prefill",
    [ROLE_DECODE] = "decode",
};
