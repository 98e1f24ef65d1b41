/* cloud_thread.c - runs a backend on a thread of its own.
 *
 *     loop:   submit ──► waiting ──► thread: cloud_perform_kept ──► done ──► next :loop
 *                                                   └── watch fn, which wakes the loop
 *
 * `waiting` and `done` together never hold more than CLOUD_CALLS_MAX calls: a call gives its place
 * up when its event is taken. A call whose term is over when its turn comes is not made. The thread holds the lock
 * only while it takes a call and while it puts an event, so that the loop never waits for a provider.
 *
 * Rejected: a thread for each call. Providers limit the rate of calls, and calls about one instance
 * have to be made in their order. */
#include "controller/cloud/cloud_thread.h"

#include "base/core/bits.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/lock.h"
#include "controller/cloud/cloud_call.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct cloud_thread {
    const struct cloud_backend *backend;
    void *ctx;
    struct cloud_driver driver; /* ours, under the backend's name */
    const struct cloud_fence *fence;
    pthread_t thread;
    struct lock lock; /* the members below */
    pthread_cond_t wake;
    bool stopping;
    struct cloud_kept waiting[CLOUD_CALLS_MAX]; /* a ring */
    struct cloud_event done[CLOUD_CALLS_MAX];   /* a ring */
    uint32_t waiting_first, waiting_count, done_first, done_count;
    uint32_t running; /* 1 while the thread makes a call */
    void (*fn)(void *arg);
    void *arg;

    /* The thread writes; the loop reads until its next listing. */
    struct listed room[CLOUD_LIST_MAX];
};

/* ---- the thread ---- */

static bool take(struct cloud_thread *t, struct cloud_kept *ret)
{
    lock_take(&t->lock);
    while (!t->stopping && t->waiting_count == 0)
        lock_wait(&t->lock, &t->wake);
    bool go = !t->stopping;
    if (go) {
        *ret = t->waiting[t->waiting_first];
        t->waiting_first = (t->waiting_first + 1) % CLOUD_CALLS_MAX;
        t->waiting_count--;
        t->running = 1;
    }
    lock_drop(&t->lock);
    return go;
}

static void put(struct cloud_thread *t, const struct cloud_event *e)
{
    lock_take(&t->lock);
    t->done[(t->done_first + t->done_count++) % CLOUD_CALLS_MAX] = *e;
    t->running = 0;
    if (t->fn) t->fn(t->arg);
    lock_drop(&t->lock);
}

static void *run(void *arg)
{
    struct cloud_thread *t = arg;
    struct cloud_event *event = calloc(1, sizeof *event);
    must(event);
    struct cloud_kept k;
    while (take(t, &k)) {
        /* Fleet time goes on while a call waits, and so does the term. */
        int64_t waited_us = clock_mono_us() - k.mono_us;
        if (cloud_fence_holds(t->fence, k.epoch, k.mono_us + waited_us))
            cloud_perform_kept(t->backend, t->ctx, &k, k.asked_us + waited_us, t->room, event);
        else
            cloud_refuse(k.op, k.id, event);
        cloud_kept_fini(&k);
        put(t, event);
    }
    free(event);
    return NULL;
}

/* ---- the driver ---- */

static int submit(void *ctx, const struct cloud_call *call, int64_t now_us, struct err *err)
{
    struct cloud_thread *t = ctx;
    struct cloud_kept k;
    int rc = cloud_keep(call, now_us, &k, err);
    if (rc < 0) return rc;
    k.mono_us = clock_mono_us();
    lock_take(&t->lock);
    bool full = t->waiting_count + t->running + t->done_count == CLOUD_CALLS_MAX;
    if (!full) {
        t->waiting[(t->waiting_first + t->waiting_count++) % CLOUD_CALLS_MAX] = k;
        pthread_cond_signal(&t->wake);
    }
    lock_drop(&t->lock);
    if (!full) return 0;
    cloud_kept_fini(&k);
    return err_set(err, -EBUSY, "%d calls to %s are under way", CLOUD_CALLS_MAX, t->driver.name);
}

static bool next(void *ctx, int64_t now_us, struct cloud_event *ret)
{
    struct cloud_thread *t = ctx;
    (void)now_us;
    lock_take(&t->lock);
    bool some = t->done_count > 0;
    if (some) {
        *ret = t->done[t->done_first];
        t->done_first = (t->done_first + 1) % CLOUD_CALLS_MAX;
        t->done_count--;
    }
    lock_drop(&t->lock);
    return some;
}

static void watch(void *ctx, void (*fn)(void *arg), void *arg)
{
    struct cloud_thread *t = ctx;
    lock_take(&t->lock);
    t->fn = fn;
    t->arg = arg;
    lock_drop(&t->lock);
}

/* Offers never change, so they are read without the thread. */
static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    struct cloud_thread *t = ctx;
    return t->backend->offers(t->ctx, ret, max, ret_count, err);
}

/* Reads files beside the thread's calls; the backend says what it leaves alone. */
static int leftovers(void *ctx, bool remove, cloud_leftover_fn fn, void *arg, struct err *err)
{
    struct cloud_thread *t = ctx;
    return t->backend->leftovers(t->ctx, remove, fn, arg, err);
}

static void free_thread(struct cloud_thread *t)
{
    for (; t->waiting_count > 0; t->waiting_count--) {
        cloud_kept_fini(&t->waiting[t->waiting_first]);
        t->waiting_first = (t->waiting_first + 1) % CLOUD_CALLS_MAX;
    }
    lock_fini(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t);
}

static void close_thread(void *ctx)
{
    struct cloud_thread *t = ctx;
    lock_take(&t->lock);
    t->stopping = true;
    t->fn = NULL;
    pthread_cond_signal(&t->wake);
    lock_drop(&t->lock);
    pthread_join(t->thread, NULL);
    t->backend->close(t->ctx);
    free_thread(t);
}

/* Starts the thread with all signals blocked: they belong to the loop's thread. */
static int start(struct cloud_thread *t)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->thread, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

int cloud_thread_new(const struct cloud_backend *backend, void *ctx_owned, const struct cloud *pace,
                     struct cloud *ret, struct err *err)
{
    struct cloud_thread *t = calloc(1, sizeof *t);
    must(t);
    t->backend = backend;
    t->ctx = ctx_owned;
    t->fence = pace->fence;
    t->driver = (struct cloud_driver){ .name = backend->name,
                                       .about = backend->about,
                                       .close = close_thread,
                                       .offers = offers,
                                       .submit = submit,
                                       .next = next,
                                       .watch = watch,
                                       .leftovers = backend->leftovers ? leftovers : NULL };
    lock_init(&t->lock);
    pthread_cond_init(&t->wake, NULL);
    int rc = start(t);
    if (rc < 0) {
        backend->close(ctx_owned);
        free_thread(t);
        return err_set(err, rc, "the thread of cloud %s cannot be started", backend->name);
    }
    *ret = *pace;
    ret->driver = &t->driver;
    ret->ctx = t;
    return 0;
}
