/* window.c - let the fleet grow at once and shrink after a quiet window, one step at a time.
 *
 *     up:   at once, at most up_step_max instances a decision and pool
 *     down: to the largest count wanted within down_window_s, at most down_step_max instances a
 *           decision and pool
 *
 * This is the default shaper: the stabilisation window of the HPA without its rates. It takes the
 * *maximum* on the way down; aibrix_apa, which takes the minimum, flaps. */
#include "base/core/bits.h"
#include "policies/scale/shape/shape.h"

_Static_assert(sizeof(struct shape_ring) <= SHAPE_STATE_BYTES_MAX, "state of window");

static uint32_t step(uint32_t from, uint32_t to, const struct scale_shape_config *config)
{
    if (to > from && config->up_step_max) return min_u32(to, from + config->up_step_max);
    if (to < from && config->down_step_max && from - to > config->down_step_max)
        return from - config->down_step_max;
    return to;
}

static void shape(void *state, const struct scale_shape_config *config,
                  const struct scale_shape_ask *ask, int64_t now_us, struct scale_shaped *ret)
{
    struct shape_ring *ring = state;
    double window_s = config->down_window_s;
    bool warm = shape_remember(ring, window_s, ask, now_us);
    struct scale_shaped r = { 0 };
    for (uint32_t i = 0; i < ask->pool_count; i++) {
        uint32_t want = ask->want[i], have = ask->have[i], to = want;
        if (to < have) {
            uint32_t most = max_u32(to, shape_most(ring, window_s, window_s, i));
            to = warm ? min_u32(most, have) : have;
            if (to > want)
                r.limit = warm ? "more was asked for within the stabilisation window"
                               : "no whole stabilisation window has passed yet";
        }
        r.target[i] = step(have, to, config);
        if (r.target[i] != to && !r.limit) r.limit = "one step at a time";
        if (r.target[i] != want) r.limited = true;
    }
    if (r.limited && !warm) r.hold_s = window_s - (double)(now_us - ring->first_us) / 1e6;
    *ret = r;
}

const struct scale_shaper scale_shape_window = {
    .name = "window",
    .about = "up at once, down to the most asked for within a window, step by step",
    .source = "this project; the HPA's stabilisation window",
    .state_size = sizeof(struct shape_ring),
    .published = { .down_window_s = 60, .down_step_max = 1 },
    .shape = shape,
};
