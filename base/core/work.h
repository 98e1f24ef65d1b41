/* work.h - counts the operations of a thread's parsers and tables, so that cost can be tested without a clock.
 *
 * Layer:   base/core
 * Threads: each thread has a counter, which only it reads and resets
 * Unit:    one elementary operation, a nanosecond or a few: a byte looked at, a table place probed,
 *          a heap entry moved. Dearer operations charge more (WORK_STEP for a step of a template).
 * Use:     always compiled in: a charge is one addition to a thread's variable, made once a token,
 *          word or lookup and never once a byte. A fuzz target or test sets it to 0, runs, and
 *          compares it with the bytes of its input:
 *
 *     work_units = 0;
 *     parse(data, len);
 *     must(work_units <= WORK_BASE + len * WORK_A_BYTE);    // the target's own line
 */
#pragma once
#include <stdint.h>

#define WORK_STEP 16 /* units of one step of a chat template */

extern _Thread_local uint64_t work_units;

static inline void work_add(uint64_t units)
{
    work_units += units;
}
