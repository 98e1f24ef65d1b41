/* fault.h - makes named points in the code fail when a test asks for it.
 *
 * Layer:   base/core (libc)
 * Use:     if (FAULT("pages.take")) return -ENOMEM;
 * Cost:    one relaxed load while no fault is armed
 * Threads: arm from one thread; points may be hit from any
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* From now on the `nth` (1-based) hit of `point` fails, once. NULL point: every point counts. */
void fault_arm(const char *point, uint64_t nth);
void fault_disarm(void);
uint64_t fault_hits(void); /* hits since fault_arm; below `nth`, nothing failed */

extern bool fault_armed; /* read by the macro only */
bool fault_hit(const char *point);

#define FAULT(point) \
    (__builtin_expect(__atomic_load_n(&fault_armed, __ATOMIC_RELAXED), 0) && fault_hit(point))
