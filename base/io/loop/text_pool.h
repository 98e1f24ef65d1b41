/* text_pool.h - runs long text work on worker threads: templates, tokenising, large bodies.
 *
 * Layer:    base/io (loop, mailbox, metrics)
 * Threads:  text_submit, text_cancel and `done` on the desk's loop; `run` on a worker. A job belongs
 *           to the pool from text_submit until `done` is called or text_cancel returns true
 * Lifetime: a job is embedded in its request. Everything that `run` reads must live as long; a
 *           request is pinned (http_exchange_pin), because its client may leave
 * Bound:    bytes of jobs that wait or run; one more is -EAGAIN, which is a 429 to the client. Jobs
 *           above TEXT_LARGE_BYTES share one half of them, so that a few clients with the largest
 *           bodies cannot fill the queue
 * Order:    first come, first served, in each of two queues by size; the large one gets one turn in
 *           four, or more when the other is empty
 * End:      text_pool_stop before the loops are freed: running jobs end, waiting ones are dropped, and
 *           `done` is called for none of them
 *
 *     loop A ── text_submit ──► waiting ──► worker: run ──► mailbox of loop A ──► done
 *                                 │
 *                                 └── text_cancel: the client left before its turn
 */
#pragma once
#include "base/io/loop/mailbox.h"
#include "base/io/metrics.h"

/* Bodies up to this size are handled on the loop: a hop between threads costs more than most of them.
 * It is the largest power of two at which the slowest kind of body takes less than a millisecond, the
 * resolution of a loop's timers: 45 ns a byte (docs/performance.md). */
#define TEXT_INLINE_BYTES ((size_t)16 << 10)
#define TEXT_LARGE_BYTES ((size_t)1 << 20)
#define TEXT_THREADS_MAX 64
#define TEXT_QUEUE_BYTES_MIN ((size_t)16 << 20) /* twice the largest body */

struct text_pool;

struct text_pool_meters {
    struct metrics *metrics;                  /* borrowed; NULL: none */
    uint32_t waiting_bytes, refused, seconds; /* gauge, counter, histogram of wait and work */
};

struct text_pool_config {
    uint32_t threads;
    size_t queue_bytes;
    struct text_pool_meters meters;
};

int text_pool_new(const struct text_pool_config *config, struct text_pool **ret, struct err *err);
void text_pool_stop(struct text_pool *p);
void text_pool_free(struct text_pool *p); /* stops first; NULL is fine */

/* One loop's end of the pool: jobs are submitted and returned here. */
struct text_desk {
    struct text_pool *pool;
    struct mailbox mailbox;
};
void text_desk_init(struct text_desk *d, struct text_pool *p, struct loop *loop);
void text_desk_fini(struct text_desk *d); /* after text_pool_stop; { 0 } is fine */

enum text_state { TEXT_NOT, TEXT_WAITS, TEXT_RUNS };

struct text_job {
    void (*run)(void *arg);
    void (*done)(void *arg);
    void *arg;
    size_t bytes; /* size that counts towards the bound */

    struct text_desk *desk; /* the rest is the pool's */
    struct list link;
    struct mailbox_item item;
    enum text_state state; /* under the pool's lock */
    int64_t submitted_us;
};

int text_submit(struct text_desk *d, struct text_job *job); /* -EAGAIN at the bound */

/* Returns true when the job had not begun; `done` is not called then. */
bool text_cancel(struct text_job *job);
