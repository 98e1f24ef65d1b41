/* throttle.h - keep a process at its share of a core, and at its clock.
 *
 * Layer:   engine/serve (base/core)
 * Threads: the caller's; pure: clocks of time are arguments
 *
 * A token bucket in CPU seconds: it fills at `rate` a second of wall time and is drained by what
 * the process used. Debt is slept off after each step, so that on average over some steps the
 * process gets no more than its rate; credit is capped, so that an idle process cannot save up.
 *
 * A clock below 1 is idle injection: the process computes as fast as ever for that share of the
 * time and sleeps the rest. Unlike a slower device clock this slows reading memory too.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define THROTTLE_SHARE_MIN 0.05
#define THROTTLE_BURST_S 0.02 /* CPU seconds that may be saved up */

struct throttle {
    double share; /* cores; 0: no limit */
    double cores; /* that compute: what a clock is a share of where `share` is none */
    double clock; /* share of the full speed, (0, 1]; 0 counts as 1 */
    double credit_s;
    int64_t cpu_us, wall_us; /* at the last call */
    bool begun;
};

/* Cores that the process may use on average; 0: no limit. */
double throttle_rate(const struct throttle *t);

/* How long to sleep now, given the clocks; 0 when there is nothing to sleep off. */
int64_t throttle_wait_us(struct throttle *t, int64_t cpu_us, int64_t wall_us);
