/* scale_shape.c - the shaper behind every scaling signal. */
#include "policies/scale_shape.h"

#include "base/core/bits.h"

#include <string.h>

/* History older than this many windows without a decision is no history: the clock jumped, or
 * the controller was away. */
#define GAP_WINDOWS 1

static int64_t bucket_us(const struct scale_shape_config *config)
{
    int64_t us = (int64_t)(config->down_window_s * 1e6) / (SHAPE_BUCKETS - 1);
    return us > 0 ? us : 1;
}

static void remember(struct scale_shape *s, int64_t slot, uint32_t pool_count,
                     const uint32_t want[SCALE_POOLS_MAX])
{
    uint32_t at = (uint32_t)((uint64_t)slot % SHAPE_BUCKETS);
    if (s->slot[at] != slot + 1) {
        s->slot[at] = slot + 1;
        memset(s->most[at], 0, sizeof s->most[at]);
    }
    for (uint32_t i = 0; i < pool_count; i++) {
        uint16_t w = (uint16_t)min_u32(want[i], UINT16_MAX);
        if (w > s->most[at][i]) s->most[at][i] = w;
    }
}

static uint32_t most_in_window(const struct scale_shape *s, int64_t slot, uint32_t pool)
{
    uint32_t most = 0;
    for (uint32_t b = 0; b < SHAPE_BUCKETS; b++) {
        if (s->slot[b] == 0) continue;
        int64_t age = slot - (s->slot[b] - 1);
        if (age < 0 || age >= SHAPE_BUCKETS) continue;
        most = max_u32(most, s->most[b][pool]);
    }
    return most;
}

static uint32_t step(uint32_t from, uint32_t to, const struct scale_shape_config *config)
{
    if (to > from && config->up_step_max) return min_u32(to, from + config->up_step_max);
    if (to < from && config->down_step_max && from - to > config->down_step_max)
        return from - config->down_step_max;
    return to;
}

void scale_shape(struct scale_shape *s, const struct scale_shape_config *config,
                 uint32_t pool_count, const uint32_t want[SCALE_POOLS_MAX],
                 const uint32_t have[SCALE_POOLS_MAX], int64_t now_us, struct scale_shaped *ret)
{
    int64_t window_us = (int64_t)(config->down_window_s * 1e6);
    if (s->first_us == 0 || now_us < s->last_us || now_us - s->last_us > GAP_WINDOWS * window_us)
        *s = (struct scale_shape){ .first_us = now_us };
    s->last_us = now_us;
    int64_t slot = now_us / bucket_us(config);
    remember(s, slot, pool_count, want);

    struct scale_shaped r = { 0 };
    bool warm = now_us - s->first_us >= window_us;
    for (uint32_t i = 0; i < pool_count; i++) {
        uint32_t to = want[i];
        if (to < have[i]) {
            uint32_t most = max_u32(to, most_in_window(s, slot, i));
            to = warm ? min_u32(most, have[i]) : have[i];
            if (to > want[i])
                r.limit = warm ? "more was asked for within the stabilisation window"
                               : "no whole stabilisation window has passed yet";
        }
        r.target[i] = step(have[i], to, config);
        if (r.target[i] != to && !r.limit) r.limit = "one step at a time";
        if (r.target[i] != want[i]) r.limited = true;
    }
    if (r.limited && !warm) r.hold_s = (double)(s->first_us + window_us - now_us) / 1e6;
    *ret = r;
}
