/* clock.c - reads the clocks by clock_gettime through the vDSO: about 25 ns, no system call.
 *
 * CLOCK_BOOTTIME rather than CLOCK_MONOTONIC: a lease, an age and a bill go on while the machine is
 * suspended. The kernel's own waits (epoll, condition variables) stand still meanwhile, so a timer
 * may fire late by what was left of it at the suspension; nothing fires early. */
#include "base/io/loop/clock.h"

#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_BOOTTIME);
}

int64_t clock_wall_us(void)
{
    return read_us(CLOCK_REALTIME);
}
