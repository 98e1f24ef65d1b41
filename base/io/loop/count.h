/* count.h - a counter that its owner's thread writes and any thread reads.
 *
 * Layer:   base/io (libc)
 * Threads: one writer; a relaxed load and store each, so no locked instruction on the token path
 */
#pragma once
#include <stdint.h>

static inline uint64_t count_get(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void count_add(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, count_get(counter) + n, __ATOMIC_RELAXED);
}

static inline void count_sub(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, count_get(counter) - n, __ATOMIC_RELAXED);
}
