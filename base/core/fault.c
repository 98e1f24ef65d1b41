/* fault.c - implements the instruments of tests: points that fail (fault.h), and a count of work (work.h).
 *
 * One point is armed at a time. The release store of fault_armed publishes its name and number, which
 * are read behind an acquire load. */
#include "base/core/fault.h"

#include "base/core/work.h"

#include <string.h>

_Thread_local uint64_t work_units;

bool fault_armed;

static const char *armed_point; /* borrowed until fault_disarm */
static uint64_t armed_nth;
static uint64_t hits;

void fault_arm(const char *point, uint64_t nth)
{
    fault_disarm();
    armed_point = point;
    armed_nth = nth;
    __atomic_store_n(&hits, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&fault_armed, true, __ATOMIC_RELEASE);
}

void fault_disarm(void)
{
    __atomic_store_n(&fault_armed, false, __ATOMIC_RELEASE);
}

uint64_t fault_hits(void)
{
    return __atomic_load_n(&hits, __ATOMIC_RELAXED);
}

bool fault_hit(const char *point)
{
    if (!__atomic_load_n(&fault_armed, __ATOMIC_ACQUIRE)) return false;
    if (armed_point && strcmp(armed_point, point) != 0) return false;
    return __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED) == armed_nth;
}
