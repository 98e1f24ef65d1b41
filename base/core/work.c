/* work.c - the counter itself. */
#include "base/core/work.h"

_Thread_local uint64_t work_units;
