/* hpa.c - limit the fleet by windows and rates in both directions: Kubernetes' horizontal pod autoscaler.
 *
 *     want  = least count wanted within up_window_s,     when it is above the present count
 *             largest count wanted within down_window_s, when it is below
 *     up:   at most max(start * (1 + up_share), start + up_count) in up_period_s, where
 *             start = present count - instances added in the last up_period_s
 *     down: at least min(start * (1 - down_share), start - down_count) in down_period_s, alike
 *
 * Published numbers (autoscaling/v2): up +100 % or +4 each 15 s, window 0; down -100 % each 15 s,
 * window 300 s. Deviations: additions are known from the last SHAPE_MOVES targets given, and nothing
 * goes down before a whole window has been seen, where the original seeds its window with the current
 * count. Its tolerance of a tenth belongs to the signals, which know the ratio that it applies to; pods
 * that are not ready are counted as the signal counts them. */
#include "base/core/bits.h"
#include "policies/scale/shape/shape.h"

#include <math.h>

#define SHAPE_MOVES 64

struct move {
    int64_t at_us;
    int16_t by;
    uint16_t pool;
};

struct hpa {
    struct shape_ring ring;
    struct move move[SHAPE_MOVES];
    uint32_t next;
};
_Static_assert(sizeof(struct hpa) <= SHAPE_STATE_BYTES_MAX, "state of hpa");

/* Returns the instances added (sign 1) or taken (sign -1) within the period. */
static uint32_t moved(const struct hpa *h, uint32_t pool, int sign, double period_s, int64_t now_us)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < SHAPE_MOVES; i++) {
        const struct move *m = &h->move[i];
        if (m->by == 0 || m->pool != pool || m->by * sign < 0) continue;
        if (m->at_us > now_us) continue; /* the wall clock went back */
        if ((double)(now_us - m->at_us) / 1e6 < period_s) sum += (uint32_t)(m->by * sign);
    }
    return sum;
}

static uint32_t up_limit(const struct hpa *h, const struct scale_shape_config *c, uint32_t pool,
                         uint32_t have, int64_t now_us)
{
    if (c->up_period_s <= 0) return UINT32_MAX;
    uint32_t added = moved(h, pool, 1, c->up_period_s, now_us);
    double start = have > added ? have - added : 0;
    return (uint32_t)fmax(ceil(start * (1 + c->up_share)), start + c->up_count);
}

static uint32_t down_limit(const struct hpa *h, const struct scale_shape_config *c, uint32_t pool,
                           uint32_t have, int64_t now_us)
{
    if (c->down_period_s <= 0) return 0;
    double start = have + moved(h, pool, -1, c->down_period_s, now_us);
    double low = fmin(floor(start * (1 - c->down_share)), start - c->down_count);
    return (uint32_t)fmax(low, 0);
}

static uint32_t target(struct hpa *h, const struct scale_shape_config *c,
                       const struct scale_shape_ask *ask, uint32_t pool, int64_t now_us)
{
    double window_s = fmax(c->up_window_s, c->down_window_s);
    uint32_t have = ask->have[pool], want = ask->want[pool];
    uint32_t least =
        c->up_window_s > 0 ? shape_least(&h->ring, window_s, c->up_window_s, pool) : want;
    uint32_t most =
        c->down_window_s > 0 ? shape_most(&h->ring, window_s, c->down_window_s, pool) : want;
    if (least > have) return min_u32(least, up_limit(h, c, pool, have, now_us));
    if (most < have) return max_u32(most, min_u32(have, down_limit(h, c, pool, have, now_us)));
    return have;
}

static void shape(void *state, const struct scale_shape_config *config,
                  const struct scale_shape_ask *ask, int64_t now_us, struct scale_shaped *ret)
{
    struct hpa *h = state;
    double window_s = fmax(config->up_window_s, config->down_window_s);
    bool warm = shape_remember(&h->ring, window_s, ask, now_us);
    struct scale_shaped r = { 0 };
    for (uint32_t i = 0; i < ask->pool_count; i++) {
        uint32_t to = target(h, config, ask, i, now_us);
        if (to < ask->have[i] && !warm) to = ask->have[i];
        r.target[i] = to;
        int by = (int)to - (int)ask->have[i];
        if (by != 0)
            h->move[h->next++ % SHAPE_MOVES] =
                (struct move){ .at_us = now_us, .by = (int16_t)by, .pool = (uint16_t)i };
        if (to == ask->want[i]) continue;
        r.limited = true;
        r.limit = warm ? "its windows and rates allow no more yet"
                       : "no whole stabilisation window has passed yet";
    }
    if (r.limited && !warm) r.hold_s = window_s - (double)(now_us - h->ring.first_us) / 1e6;
    *ret = r;
}

const struct scale_shaper scale_shape_hpa = {
    .name = "hpa",
    .about = "windows and rates in both directions: +100 % or 4 each 15 s, down after 300 s",
    .source = "Kubernetes horizontal pod autoscaler v2",
    .state_size = sizeof(struct hpa),
    .published = { .down_window_s = 300,
                   .up_share = 1,
                   .up_count = 4,
                   .up_period_s = 15,
                   .down_share = 1,
                   .down_period_s = 15 },
    .shape = shape,
};
