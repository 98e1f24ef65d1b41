/* scale_pace.h - what an instance of each pool does, averaged over minutes.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * Engines report the coefficients of their last seconds: those follow every burst, and a line that
 * is fitted to a few hundred steps differs by some percent from the next. A fleet is sized for
 * minutes, so it is sized with their mean. What an offer claims is forgotten as soon as an instance
 * has measured.
 */
#pragma once
#include "policies/scale_view.h"

struct pace {
    int64_t read_us; /* 0: never */
    struct pace_mean {
        double seen_s;
        bool learned;          /* by instances; else what an offer claims */
        struct perf_coef perf; /* a to e only */
    } pool[SCALE_POOLS_MAX];
};

/* Takes the pools' speeds as they are reported now. */
void pace_observe(struct pace *p, const struct scale_view *view, int64_t now_us);
