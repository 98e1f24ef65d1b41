/* clock.h - reads the two clocks: one never jumps, the other tells the date.
 *
 * Layer:   base/io (libc)
 * Threads: any
 * Rules:   (1) every interval, timer, deadline, age and back-off uses clock_mono_us: it counts from
 *              the machine's boot, runs on while the machine is suspended, and no step of the date
 *              moves it
 *          (2) clock_wall_us only names records and is shown to people. It may step by hours, so a
 *              difference of two of its values is never a duration. A duration that must outlive the
 *              process is stored with the boot that it was measured in (controller/core/fleet_time.h)
 */
#pragma once
#include <stdint.h>

int64_t clock_mono_us(void);
int64_t clock_wall_us(void); /* since 1970-01-01 UTC */
