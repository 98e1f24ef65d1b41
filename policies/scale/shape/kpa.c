/* kpa.c - limit the fleet by the rates of Knative's pod autoscaler.
 *
 *     each 2 s: low = floor(ready / 2)
 *     low <= target <= ceil(1000 * ready),  ready at least 1
 *
 * These are max-scale-down-rate 2 and max-scale-up-rate 1000, by pool and tick, without a scale-down
 * delay, as shipped. Its stable and panic windows belong to the signal (policies/scale/kpa.c).
 * Deviation: between two ticks a pool may still grow. */
#include "base/core/bits.h"
#include "policies/scale/shape/shape.h"

#define UP_RATE_MAX 1000
#define DOWN_RATE_MAX 2
#define TICK_US ((int64_t)2000000)

struct kpa {
    int64_t tick_us; /* the next one */
    uint32_t low[SCALE_POOLS_MAX];
};
_Static_assert(sizeof(struct kpa) <= SHAPE_STATE_BYTES_MAX, "state of kpa");

static void shape(void *state, const struct scale_shape_config *config,
                  const struct scale_shape_ask *ask, int64_t now_us, struct scale_shaped *ret)
{
    (void)config;
    struct kpa *k = state;
    if (now_us >= k->tick_us || k->tick_us - now_us > TICK_US) { /* or the wall clock went back */
        k->tick_us = now_us + TICK_US;
        for (uint32_t i = 0; i < ask->pool_count; i++)
            k->low[i] = ask->ready[i] / DOWN_RATE_MAX;
    }
    struct scale_shaped r = { 0 };
    for (uint32_t i = 0; i < ask->pool_count; i++) {
        uint32_t base = max_u32(ask->ready[i], 1);
        r.target[i] = min_u32(max_u32(ask->want[i], k->low[i]), base * UP_RATE_MAX);
        if (r.target[i] == ask->want[i]) continue;
        r.limited = true;
        r.limit = "at most half of the ready instances go at once";
    }
    *ret = r;
}

const struct scale_shaper scale_shape_kpa = {
    .name = "kpa",
    .about = "at most half down each 2 s, a thousandfold up",
    .source = "Knative pod autoscaler",
    .state_size = sizeof(struct kpa),
    .shape = shape,
};
