/* pace.h - keeps a process at its share of a core and at its clock, and tells whether the device thread
 * makes progress.
 *
 * Layer:   engine/serve (base/core)
 * Threads: the caller's; pure: times are arguments
 *
 * The throttle is a token bucket in CPU seconds: it fills at `rate` a second of wall time and
 * drains by the CPU time that the process used. Debt is slept off after each step, so that on
 * average over some steps the process gets no more than its rate; credit is capped, so that an idle
 * process cannot save up.
 *
 * A clock below 1 is idle injection: the process computes as fast as ever for that share of the
 * time and sleeps the rest. Unlike a slower device clock this slows reading memory too.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define THROTTLE_SHARE_MIN 0.05
#define THROTTLE_BURST_S 0.02 /* CPU seconds that may be saved up */

struct throttle {
    double share; /* cores; 0: no limit */
    double cores; /* that compute; the clock is a share of them where there is no `share` */
    double clock; /* share of the full speed, (0, 1]; 0 counts as 1 */
    double credit_s;
    int64_t cpu_us, wall_us; /* at the last call */
    bool begun;
};

/* Returns the cores that the process may use on average; 0: no limit. */
double throttle_rate(const struct throttle *t);

/* Returns how long to sleep now, given CPU and wall time so far; 0: there is no debt. */
int64_t throttle_wait_us(struct throttle *t, int64_t cpu_us, int64_t wall_us);

/* A pulse tells another thread whether the device thread makes progress.
 *
 * Threads:  pulse_work from any thread; turn, step, rest and idle from the device thread; stalled
 *           from the loop's. Times are of one monotonic clock and come as arguments
 * Lifetime: { 0 } is an idle device; embedded
 * Rules:    (1) a device that holds no work is well, however long it waits
 *           (2) a device that holds work has stalled when it has made no step for PULSE_MIN_US and
 *               for PULSE_STEPS times the predicted length of the step that it began
 *           (3) sleeping on purpose (a CPU share, a low clock) is no stall
 */

#define PULSE_MIN_US 5000000
#define PULSE_STEPS 20 /* the estimate is right within a factor of three before the first step */

struct pulse {
    _Atomic int64_t owed_us;  /* since when a step is owed; 0: nothing is */
    _Atomic int64_t grant_us; /* how long that step may take; 0: PULSE_MIN_US */
};

void pulse_work(struct pulse *p, int64_t now_us); /* work came: owed from now on, if not already */
void pulse_turn(struct pulse *p, int64_t now_us); /* progress; more is owed */
void pulse_step(struct pulse *p, int64_t now_us, double predicted_s); /* a step begins */
void pulse_rest(struct pulse *p, int64_t until_us); /* sleeps; a step is owed from then on */
void pulse_idle(struct pulse *p);

/* Returns the microseconds since the last progress if the device has stalled, else 0. Time before
 * `excused_us` does not count: the reader itself did not run then. */
int64_t pulse_stalled_us(const struct pulse *p, int64_t excused_us, int64_t now_us);
