/* lock.h - a mutex that knows which thread holds it.
 *
 * Layer:   base/io (base/core)
 * Threads: any
 * Rules:   (1) `{ 0 }` is a lock that is free; lock_fini gives its memory back
 *          (2) a function that expects a lock to be held says so with lock_assert_held
 *          (3) debug, ASan and TSan builds check the holder (base/core/owner.h): taking a lock
 *              twice, dropping one of another thread, or waiting without it aborts. Other builds
 *              have a plain mutex
 */
#pragma once
#include "base/core/owner.h"

#include <pthread.h>

struct lock {
    pthread_mutex_t mutex;
    struct owner holder;
};

#define LOCK_INIT                          \
    {                                      \
        .mutex = PTHREAD_MUTEX_INITIALIZER \
    }

#define lock_assert_held(l) OWNER_CHECK(owner_is_here(&(l)->holder))

static inline void lock_init(struct lock *l)
{
    *l = (struct lock)LOCK_INIT;
}

static inline void lock_fini(struct lock *l)
{
    OWNER_CHECK(owner_is_nobody(&l->holder));
    pthread_mutex_destroy(&l->mutex);
}

static inline void lock_take(struct lock *l)
{
    OWNER_CHECK(!owner_is_here(&l->holder));
    pthread_mutex_lock(&l->mutex);
    OWNER_SET(&l->holder, owner_here());
}

/* Takes the lock if it is free; returns false when another thread holds it. */
static inline bool lock_try(struct lock *l)
{
    OWNER_CHECK(!owner_is_here(&l->holder));
    if (pthread_mutex_trylock(&l->mutex) != 0) return false;
    OWNER_SET(&l->holder, owner_here());
    return true;
}

static inline void lock_drop(struct lock *l)
{
    lock_assert_held(l);
    OWNER_SET(&l->holder, 0);
    pthread_mutex_unlock(&l->mutex);
}

/* Waits for the condition; the lock is free meanwhile and held again on return. */
static inline void lock_wait(struct lock *l, pthread_cond_t *condition)
{
    lock_assert_held(l);
    OWNER_SET(&l->holder, 0);
    pthread_cond_wait(condition, &l->mutex);
    OWNER_SET(&l->holder, owner_here());
}

/* Waits for the condition until `at`, on the clock that the condition was made with. */
static inline void lock_wait_until(struct lock *l, pthread_cond_t *condition,
                                   const struct timespec *at)
{
    lock_assert_held(l);
    OWNER_SET(&l->holder, 0);
    pthread_cond_timedwait(condition, &l->mutex, at);
    OWNER_SET(&l->holder, owner_here());
}
