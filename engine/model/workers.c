/* workers.c - hands out work by one word: the number of units that are not claimed yet.
 *
 *     ticket      units left to claim; claimed by compare-and-swap to one less. Sleepers wait
 *                 while it is 0; WORKERS_STOP ends the threads
 *     unfinished  units claimed or not that are not done; the caller waits until it is 0
 *
 * The loop's description (fn, arg, units) is plain memory: it is written while ticket and
 * unfinished are 0, published by the store to ticket, and read only by a thread that has
 * claimed a unit: the loop cannot end before that unit is done. A claim that read the ticket of an
 * older loop and succeeds on that of a newer one is a claim of the newer one, as it should be.
 *
 * Rejected: a fixed share a thread with a barrier. On shared cores one descheduled thread then
 * holds up all (measured elsewhere at a factor of 20); with claims it holds up one unit. */
#include "engine/model/workers.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORKERS_STOP UINT32_MAX
#define SPINS 2000 /* pauses of 10 to 40 ns: less than a wake-up costs (about 50 us) */

struct worker {
    struct workers *all;
    uint32_t thread;
    pthread_t id;
};

struct workers {
    _Alignas(64) _Atomic uint32_t ticket;
    _Alignas(64) _Atomic uint32_t unfinished;
    _Alignas(64) _Atomic uint32_t sleepers; /* workers in, or on their way into, futex_wait */
    _Atomic uint32_t caller_sleeps;
    worker_fn fn;
    void *arg;
    uint32_t units;
    uint32_t threads;
    uint32_t started; /* worker threads that run */
    struct worker *worker;
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t while_value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static bool claim(struct workers *w, uint32_t *ret_unit)
{
    uint32_t left = atomic_load_explicit(&w->ticket, memory_order_relaxed);
    while (left != 0 && left != WORKERS_STOP) {
        if (!atomic_compare_exchange_weak_explicit(&w->ticket, &left, left - 1,
                                                   memory_order_acquire, memory_order_relaxed))
            continue;
        *ret_unit = w->units - left; /* ascending: the first units are the first done */
        return true;
    }
    return false;
}

static void work(struct workers *w, uint32_t thread)
{
    uint32_t unit;
    while (claim(w, &unit)) {
        w->fn(w->arg, unit, thread);
        if (atomic_fetch_sub(&w->unfinished, 1) == 1 && atomic_load(&w->caller_sleeps))
            futex_wake(&w->unfinished, 1);
    }
}

static uint32_t ticket_wait(struct workers *w)
{
    uint32_t ticket;
    for (uint32_t i = 0; i < SPINS; i++) {
        ticket = atomic_load_explicit(&w->ticket, memory_order_relaxed);
        if (ticket != 0) return ticket;
        pause_cpu();
    }
    atomic_fetch_add(&w->sleepers, 1);
    while ((ticket = atomic_load(&w->ticket)) == 0)
        futex_wait(&w->ticket, 0);
    atomic_fetch_sub(&w->sleepers, 1);
    return ticket;
}

static void *worker_main(void *arg)
{
    struct worker *me = arg;
    sigset_t all;
    sigfillset(&all); /* signals belong to the process's own threads */
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    while (ticket_wait(me->all) != WORKERS_STOP)
        work(me->all, me->thread);
    return NULL;
}

static void unfinished_wait(struct workers *w)
{
    for (uint32_t i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&w->unfinished, memory_order_acquire) == 0) return;
        pause_cpu();
    }
    atomic_store(&w->caller_sleeps, 1);
    uint32_t left;
    while ((left = atomic_load(&w->unfinished)) != 0)
        futex_wait(&w->unfinished, left);
    atomic_store(&w->caller_sleeps, 0);
}

void workers_run(struct workers *w, uint32_t units, worker_fn fn, void *arg)
{
    if (w->threads == 1 || units <= 1) {
        for (uint32_t i = 0; i < units; i++)
            fn(arg, i, 0);
        return;
    }
    must(units != WORKERS_STOP);
    w->fn = fn, w->arg = arg, w->units = units;
    atomic_store(&w->unfinished, units);
    atomic_store(&w->ticket, units);
    if (atomic_load(&w->sleepers) > 0) futex_wake(&w->ticket, INT_MAX);
    work(w, 0);
    unfinished_wait(w);
}

int workers_new(uint32_t threads, struct workers **ret, struct err *err)
{
    CLEANUP(workers_freep) struct workers *w = NULL;
    threads = threads == 0 ? 1 : threads;
    void *memory = NULL;
    if (posix_memalign(&memory, _Alignof(struct workers), sizeof *w) != 0)
        return err_set(err, -ENOMEM, "no memory for %u threads", threads);
    w = memset(memory, 0, sizeof *w);
    w->threads = threads;
    w->worker = calloc(threads, sizeof *w->worker);
    if (!w->worker) return err_set(err, -ENOMEM, "no memory for %u threads", threads);
    for (uint32_t i = 1; i < threads; i++) {
        struct worker *worker = &w->worker[i];
        *worker = (struct worker){ .all = w, .thread = i };
        int rc = pthread_create(&worker->id, NULL, worker_main, worker);
        if (rc != 0)
            return err_set(err, -rc, "starting thread %u of %u: %s", i + 1, threads, strerror(rc));
        w->started++;
    }
    *ret = TAKE(w);
    return 0;
}

void workers_free(struct workers *w)
{
    if (!w) return;
    atomic_store(&w->ticket, WORKERS_STOP);
    futex_wake(&w->ticket, INT_MAX);
    for (uint32_t i = 1; i <= w->started; i++)
        pthread_join(w->worker[i].id, NULL);
    free(w->worker);
    free(w);
}

uint32_t workers_threads(const struct workers *w)
{
    return w->threads;
}
