/* scale_shape_kpa.c - rates of Knative's pod autoscaler.
 *
 *     floor(ready / 2) <= target <= ceil(1000 * ready),  ready at least 1
 *
 * max-scale-down-rate 2 and max-scale-up-rate 1000, by pool; without scale-down delay, as shipped.
 * Its stable and panic windows belong to the signal (scale_kpa.c). */
#include "base/core/bits.h"
#include "policies/scale_shape.h"

#define UP_RATE_MAX 1000
#define DOWN_RATE_MAX 2

static void shape(void *state, const struct scale_shape_config *config,
                  const struct scale_shape_ask *ask, int64_t now_us, struct scale_shaped *ret)
{
    (void)state, (void)config, (void)now_us;
    struct scale_shaped r = { 0 };
    for (uint32_t i = 0; i < ask->pool_count; i++) {
        uint32_t base = max_u32(ask->ready[i], 1);
        uint32_t low = ask->ready[i] / DOWN_RATE_MAX;
        r.target[i] = min_u32(max_u32(ask->want[i], low), base * UP_RATE_MAX);
        if (r.target[i] == ask->want[i]) continue;
        r.limited = true;
        r.limit = "at most half of the ready instances go at once";
    }
    *ret = r;
}

const struct scale_shaper scale_shape_kpa = {
    .name = "kpa",
    .about = "at most half down and a thousandfold up at once",
    .source = "Knative pod autoscaler",
    .shape = shape,
};
