/* owner.h - checks that a struct is used by the thread that owns it.
 *
 * Layer:   base/core (libc)
 * Threads: claim, release and assert may be called from any thread
 * Rules:   (1) debug, ASan and TSan builds check; other builds compile the calls to nothing
 *          (2) an unclaimed struct has no owner and passes: it is being set up before its
 *              thread starts, or taken down after its thread was joined
 *          (3) the layout of struct owner is the same in every build
 */
#pragma once
#include "base/core/err.h"

#include <stdint.h>

struct owner {
    uintptr_t thread; /* owner_here() of the owning thread; 0 when unclaimed */
};

/* Returns a number that differs between all live threads: the address of the thread's errno. */
static inline uintptr_t owner_here(void)
{
    return (uintptr_t)&errno;
}

/* Returns true if the calling thread has claimed the struct. */
static inline bool owner_is_here(const struct owner *o)
{
    return __atomic_load_n(&o->thread, __ATOMIC_RELAXED) == owner_here();
}

static inline bool owner_is_nobody(const struct owner *o)
{
    return __atomic_load_n(&o->thread, __ATOMIC_RELAXED) == 0;
}

static inline void owner_set(struct owner *o, uintptr_t thread)
{
    __atomic_store_n(&o->thread, thread, __ATOMIC_RELAXED);
}

#ifdef MUSTER_DEBUG
#    define OWNER_CHECK(condition) must(condition)
#    define OWNER_SET(o, thread) owner_set(o, thread)
#else
#    define OWNER_CHECK(condition) ((void)sizeof(condition))
#    define OWNER_SET(o, thread) ((void)(o))
#endif

/* Aborts, naming file and line, when another thread owns the struct. */
#define owner_assert(o) OWNER_CHECK(owner_is_nobody(o) || owner_is_here(o))

/* Makes the calling thread the owner; the struct must have none yet. */
#define owner_claim(o)                   \
    do {                                 \
        OWNER_CHECK(owner_is_nobody(o)); \
        OWNER_SET(o, owner_here());      \
    } while (0)

/* Gives the struct up, so that another thread may claim it. */
#define owner_release(o)               \
    do {                               \
        OWNER_CHECK(owner_is_here(o)); \
        OWNER_SET(o, 0);               \
    } while (0)
