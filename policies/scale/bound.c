/* bound.c - computes the instances that a planner with known requests needs, second by second. */
#include "policies/scale/bound.h"

#include "base/core/bits.h"
#include "policies/scale/capacity.h"

#include <math.h>

/* Returns the index of the first request at or after t_us. */
static uint32_t first_at(const struct scale_future *f, int64_t t_us)
{
    uint32_t low = 0, high = f->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (f->at_us[mid] < t_us)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

double scale_bound_need(const struct scale_future *f, const struct scale_pool *pool,
                        double ttft_slo_s, double tpot_slo_s, int64_t t_us, double half_s)
{
    int64_t half_us = (int64_t)(half_s * 1e6);
    int64_t from = t_us > half_us ? t_us - half_us : 0, to = t_us + half_us;
    struct lengths l = { 0 };
    for (uint32_t i = first_at(f, from); i < f->count && f->at_us[i] < to; i++)
        lengths_add(&l, f->prompt_tokens[i], f->output_tokens[i], 1);
    if (l.count <= 0) return 0;
    double rate = l.count / ((double)(to - from) / 1e6);
    lengths_mean(&l);
    struct scale_load load;
    scale_load_of(pool, &l, &load);
    double each = scale_load_rate(&load, ttft_slo_s, tpot_slo_s, 1);
    return each > 0 ? rate / each : HUGE_VAL;
}

/* Raises the seconds between two that need more, when they are at most `gap` apart. It goes by
 * levels, highest first, so that only the seconds of a level have to be looked at. */
static void fill_gaps(uint16_t *need, uint32_t seconds, uint32_t gap)
{
    uint16_t top = 0;
    for (uint32_t i = 0; i < seconds; i++)
        top = (uint16_t)max_u32(top, need[i]);
    for (uint16_t level = top; level > 0; level--) {
        uint32_t last = UINT32_MAX;
        for (uint32_t i = 0; i < seconds; i++) {
            if (need[i] < level) continue;
            if (last != UINT32_MAX && i - last <= gap)
                for (uint32_t k = last + 1; k < i; k++)
                    need[k] = (uint16_t)max_u32(need[k], level);
            last = i;
        }
    }
}

void scale_bound_plan(uint16_t *need, uint32_t seconds, double lead_s)
{
    uint32_t lead = (uint32_t)ceil(lead_s);
    fill_gaps(need, seconds, lead);
    for (uint32_t i = 0; i < seconds; i++) {
        uint32_t end = min_u32(seconds - 1, i + lead);
        for (uint32_t k = i + 1; k <= end; k++)
            need[i] = (uint16_t)max_u32(need[i], need[k]);
    }
}
