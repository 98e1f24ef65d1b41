/* scale_shape.h - when the fleet may follow its signal: up at once, down after a quiet window.
 *
 * Layer: policies (base/core)
 * Rules: (1) up: at once, at most up_step_max instances a decision and pool
 *        (2) down: to the most that was asked for within the last down_window_s, at most
 *            down_step_max instances a decision and pool
 *        (3) without a whole window of history nothing goes down: a restarted controller with an
 *            empty store must not shrink a fleet it has only just met
 *
 * The window is a ring of SHAPE_BUCKETS maxima, so that its state has a fixed size; a maximum
 * therefore lives up to one bucket longer than the window. The rule is the HPA's stabilisation
 * window (the *maximum* on the way down; a peer that took the minimum flapped).
 */
#pragma once
#include "policies/scale.h"

#define SHAPE_BUCKETS 32

struct scale_shape_config {
    double down_window_s;
    uint32_t up_step_max, down_step_max; /* 0: no limit */
};
#define SCALE_SHAPE_DEFAULT \
    ((struct scale_shape_config){ .down_window_s = 60, .up_step_max = 0, .down_step_max = 1 })

struct scale_shape {
    int64_t first_us; /* of the unbroken history; 0: none yet */
    int64_t last_us;
    int64_t slot[SHAPE_BUCKETS]; /* number + 1 of the bucket that most[] holds; 0: unused */
    uint16_t most[SHAPE_BUCKETS][SCALE_POOLS_MAX];
};

struct scale_shaped {
    uint32_t target[SCALE_POOLS_MAX];
    bool limited;      /* the signal asked for something else */
    const char *limit; /* static: why; NULL when not limited */
    double hold_s;     /* until the window would allow less; 0 when nothing is held up */
};

/* Records `want` at now_us and says what the fleet should have. `have` is what the pool holds and
 * keeps (ready and starting). */
void scale_shape(struct scale_shape *s, const struct scale_shape_config *config,
                 uint32_t pool_count, const uint32_t want[SCALE_POOLS_MAX],
                 const uint32_t have[SCALE_POOLS_MAX], int64_t now_us, struct scale_shaped *ret);
