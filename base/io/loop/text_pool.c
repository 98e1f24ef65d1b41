/* text_pool.c - keeps jobs in two queues under one lock, and returns results over mailboxes.
 *
 * A queue per loop, or work stealing, would save a lock that is taken twice for each body above 16 KB: a
 * few thousand times a second at most, for work of a tenth of a millisecond and more. */
#include "base/io/loop/text_pool.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/lock.h"

#include <stdlib.h>

#define TURNS 4 /* one of them for large jobs */

enum size { MIDDLE, LARGE, SIZES };

struct text_pool {
    struct text_pool_config config;
    struct lock lock;
    pthread_cond_t wake;
    struct list waiting[SIZES]; /* struct text_job.link */
    size_t bytes[SIZES];        /* of jobs that wait or run */
    uint32_t turn;
    bool stopping;
    uint32_t started;
    pthread_t thread[TEXT_THREADS_MAX];
};

static enum size size_of(size_t bytes)
{
    return bytes > TEXT_LARGE_BYTES ? LARGE : MIDDLE;
}

static void count_in(struct text_pool *p, size_t bytes)
{
    lock_assert_held(&p->lock);
    const struct text_pool_meters *m = &p->config.meters;
    p->bytes[size_of(bytes)] += bytes;
    if (m->metrics) metric_add(metric_of(m->metrics, m->waiting_bytes), (double)bytes);
}

static void count_out(struct text_pool *p, size_t bytes)
{
    lock_assert_held(&p->lock);
    const struct text_pool_meters *m = &p->config.meters;
    p->bytes[size_of(bytes)] -= bytes;
    if (m->metrics) metric_add(metric_of(m->metrics, m->waiting_bytes), -(double)bytes);
}

static bool is_full(const struct text_pool *p, size_t more)
{
    lock_assert_held(&p->lock);
    size_t most = p->config.queue_bytes;
    if (p->bytes[MIDDLE] + p->bytes[LARGE] + more > most) return true;
    return size_of(more) == LARGE && p->bytes[LARGE] + more > most / 2;
}

/* Takes the next job off its queue; NULL: none waits. */
static struct text_job *next_job(struct text_pool *p)
{
    lock_assert_held(&p->lock);
    enum size first = p->turn % TURNS == TURNS - 1 ? LARGE : MIDDLE;
    struct list *node = list_pop_front(&p->waiting[first]);
    if (!node) node = list_pop_front(&p->waiting[first == LARGE ? MIDDLE : LARGE]);
    if (!node) return NULL;
    p->turn++;
    return CONTAINER_OF(node, struct text_job, link);
}

static void *work(void *arg)
{
    struct text_pool *p = arg;
    const struct text_pool_meters *m = &p->config.meters;
    lock_take(&p->lock);
    for (;;) {
        struct text_job *job = NULL;
        while (!p->stopping && !(job = next_job(p)))
            lock_wait(&p->lock, &p->wake);
        if (!job) break;
        job->state = TEXT_RUNS;
        lock_drop(&p->lock);

        job->run(job->arg);
        int64_t took_us = clock_mono_us() - job->submitted_us;
        if (m->metrics) metric_observe(metric_of(m->metrics, m->seconds), (double)took_us * 1e-6);
        size_t bytes = job->bytes;
        struct mailbox *mailbox = &job->desk->mailbox;
        mailbox_lock(mailbox);
        mailbox_send(mailbox, &job->item);
        mailbox_unlock(mailbox); /* from here on the job may be gone */

        lock_take(&p->lock);
        count_out(p, bytes);
    }
    lock_drop(&p->lock);
    return NULL;
}

int text_pool_new(const struct text_pool_config *config, struct text_pool **ret, struct err *err)
{
    must(config->threads > 0 && config->threads <= TEXT_THREADS_MAX);
    struct text_pool *p = calloc(1, sizeof *p);
    if (!p) return err_set(err, -ENOMEM, "no memory for the text workers");
    p->config = *config;
    for (int i = 0; i < SIZES; i++)
        list_init(&p->waiting[i]);
    lock_init(&p->lock);
    pthread_cond_init(&p->wake, NULL);
    for (; p->started < config->threads; p->started++) {
        int rc =
            FAULT("text.thread") ? EAGAIN : pthread_create(&p->thread[p->started], NULL, work, p);
        if (rc == 0) continue;
        text_pool_free(p);
        return err_set(err, -rc, "cannot start a text worker");
    }
    *ret = p;
    return 0;
}

void text_pool_stop(struct text_pool *p)
{
    lock_take(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->wake);
    lock_drop(&p->lock);
    for (; p->started > 0; p->started--)
        pthread_join(p->thread[p->started - 1], NULL);
}

void text_pool_free(struct text_pool *p)
{
    if (!p) return;
    text_pool_stop(p);
    lock_fini(&p->lock);
    pthread_cond_destroy(&p->wake);
    free(p);
}

static void deliver(void *arg, struct mailbox_item *item)
{
    (void)arg;
    struct text_job *job = CONTAINER_OF(item, struct text_job, item);
    job->state = TEXT_NOT;
    job->done(job->arg);
}

void text_desk_init(struct text_desk *d, struct text_pool *p, struct loop *loop)
{
    d->pool = p;
    mailbox_init(&d->mailbox, loop, deliver, d);
}

void text_desk_fini(struct text_desk *d)
{
    if (d->pool) mailbox_fini(&d->mailbox);
    d->pool = NULL;
}

int text_submit(struct text_desk *d, struct text_job *job)
{
    struct text_pool *p = d->pool;
    const struct text_pool_meters *m = &p->config.meters;
    must(job->state == TEXT_NOT);
    job->desk = d;
    job->submitted_us = clock_mono_us();
    lock_take(&p->lock);
    bool full = p->stopping || is_full(p, job->bytes);
    if (!full) {
        count_in(p, job->bytes);
        job->state = TEXT_WAITS;
        list_push_back(&p->waiting[size_of(job->bytes)], &job->link);
        pthread_cond_signal(&p->wake);
    }
    lock_drop(&p->lock);
    if (full && m->metrics) metric_inc(metric_of(m->metrics, m->refused));
    return full ? -EAGAIN : 0;
}

bool text_cancel(struct text_job *job)
{
    if (!job->desk) return false;
    struct text_pool *p = job->desk->pool;
    lock_take(&p->lock);
    bool waits = job->state == TEXT_WAITS;
    if (waits) {
        list_remove(&job->link);
        job->state = TEXT_NOT;
        count_out(p, job->bytes);
    }
    lock_drop(&p->lock);
    return waits;
}
