/* pulse.h - whether the device thread makes progress, as it is seen from another thread.
 *
 * Layer:    engine/serve (libc)
 * Threads:  pulse_work from any thread; turn, step, rest and idle from the device thread; stalled
 *           from the loop's. Times are of one monotonic clock and come as arguments
 * Lifetime: { 0 } is an idle device; embedded
 * Rules:    (1) a device that holds no work is well, however long it waits
 *           (2) a device that holds work has stalled when it has made no step for PULSE_MIN_US and
 *               for PULSE_STEPS times the predicted length of the step that it began
 *           (3) what is slept on purpose (a CPU share, a low clock) is no stall
 */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

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

/* Microseconds since the last progress when the device has stalled, else 0. What lies before
 * `excused_us` does not count: the reader itself was not there. */
int64_t pulse_stalled_us(const struct pulse *p, int64_t excused_us, int64_t now_us);
