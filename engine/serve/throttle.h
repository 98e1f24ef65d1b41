/* throttle.h - keep a process at its share of a core.
 *
 * Layer:   engine/serve (base/core)
 * Threads: the caller's; pure: clocks are arguments
 *
 * A token bucket in CPU seconds: it fills at `share` a second of wall time and is drained by what
 * the process used. Debt is slept off after each step, so that on average over some steps the
 * process gets no more than its share; credit is capped, so that an idle process cannot save up.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define THROTTLE_SHARE_MIN 0.05
#define THROTTLE_BURST_S 0.02 /* CPU seconds that may be saved up */

struct throttle {
    double share; /* cores; 0: no limit */
    double credit_s;
    int64_t cpu_us, wall_us; /* at the last call */
    bool begun;
};

/* How long to sleep now, given the clocks; 0 when there is nothing to sleep off. */
int64_t throttle_wait_us(struct throttle *t, int64_t cpu_us, int64_t wall_us);
