/* speed_average.h - how fast an instance of each pool is, averaged over minutes.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * Engines report the coefficients of their last seconds: those follow every burst, and a line that
 * is fitted to a few hundred steps differs by some percent from the next. A fleet is sized for
 * minutes, so it is sized with their mean: of all readings at first, then fading over PACE_S. What
 * an offer claims is forgotten as soon as an instance has measured.
 */
#pragma once
#include "policies/scale/view.h"

struct pace {
    int64_t read_us; /* the last reading; 0: none */
    struct pace_mean {
        double seen_s;         /* that the mean is of; 0: the pool's speed was never known */
        bool learned;          /* from instances; else what an offer claims */
        struct perf_coef perf; /* a to e; the rest is of the first reading */
    } pool[SCALE_POOLS_MAX];
};

/* Takes the pools' speeds as they are reported now. A pool of unknown speed keeps its mean. */
void pace_observe(struct pace *p, const struct scale_view *view, int64_t now_us);
