/* clock.h - the two clocks: one that never jumps, one that people read.
 *
 * Layer:   base/io (libc)
 * Threads: any
 * Rules:   durations, timers and deadlines use clock_mono_us; clock_wall_us is for dates shown
 *          to people and for records that outlive the machine's boot
 */
#pragma once
#include <stdint.h>

int64_t clock_mono_us(void);
int64_t clock_wall_us(void); /* since 1970-01-01 UTC */
