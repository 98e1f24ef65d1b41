/* loop.h - one thread that waits for everything at once: descriptors, timers, posts, signals.
 *
 * Layer:   base/io (base/core)
 * Threads: everything belongs to the thread that runs the loop, except loop_post and loop_stop,
 *          which any thread may call. While loop_run runs, debug, ASan and TSan builds abort when
 *          another thread sets a timer, a watch or a task
 * Turn:    wait -> watches -> timers that are due -> posts -> deferred tasks -> last tasks.
 *          loop_now_us is read once a turn.
 * Rules:   (1) after loop_watch_del, loop_timer_clear or loop_defer_clear returns, fn is not
 *              called again, not even for an event that the kernel had already reported in this
 *              turn: the object may be freed
 *          (2) an object that is somewhere on the caller's stack is freed from a deferred task
 *          (3) watches are level-triggered
 * Bounds:  LOOP_POSTS_MAX, LOOP_TIMERS_MAX, LOOP_EVENTS_MAX a turn
 */
#pragma once
#include "base/core/err.h"
#include "base/core/heap.h"
#include "base/core/list.h"
#include "base/core/own.h"
#include "base/core/owner.h"

#include <stdint.h>
#include <sys/epoll.h> /* EPOLLIN, EPOLLOUT, EPOLLRDHUP for watches */

#define LOOP_POSTS_MAX 16384    /* 256 KiB a loop: one post a token of 9,000 streams fits */
#define LOOP_TIMERS_MAX 1048576 /* memory grows with use, 8 bytes a timer */
#define LOOP_EVENTS_MAX 256     /* reported by one wait; the rest come in the next turn */

struct loop;

struct loop_counts {
    uint64_t turns;
    uint64_t posts;
    uint64_t posts_refused; /* loop_post answered -EAGAIN */
};

int loop_new(struct loop **ret, struct err *err);
void loop_free(struct loop *l); /* watches and timers of others are forgotten, not closed */
CLEANUP_FREEP(loop, struct loop)

/* Runs turns until loop_stop. 0, or the errno of a wait that failed. */
int loop_run(struct loop *l);

/* One turn that waits at most wait_us (0: not at all; negative: until something happens). */
int loop_turn(struct loop *l, int64_t wait_us);

void loop_stop(struct loop *l); /* any thread; ends loop_run after the current turn */

/* Checks that this thread runs the loop, for structs that belong to the loop's thread. Aborts otherwise,
 * in debug, ASan and TSan builds; passes while no thread runs the loop. */
#define loop_assert_owner(l) owner_assert(loop_owner(l))
const struct owner *loop_owner(const struct loop *l);

int64_t loop_now_us(const struct loop *l); /* clock_mono_us, read once a turn */
void loop_counts_get(const struct loop *l, struct loop_counts *ret); /* any thread */

/* A timer. The owner fills { .fn, .arg }; setting it again moves it. -ENOSPC, -ENOMEM. */
struct loop_timer {
    struct heap_node node;
    void (*fn)(void *arg);
    void *arg;
};
int loop_timer_set(struct loop *l, struct loop_timer *t, int64_t at_us);
void loop_timer_clear(struct loop *l, struct loop_timer *t); /* may be clear already */

static inline bool loop_timer_is_set(const struct loop_timer *t)
{
    return heap_has(&t->node);
}

/* A watched descriptor. The owner fills { .fd, .fn, .arg }, and closes fd after loop_watch_del. EPOLLERR
 * and EPOLLHUP are always reported. */
struct loop_watch {
    int fd;
    uint32_t events; /* as last added or modified */
    bool added;
    void (*fn)(void *arg, uint32_t events);
    void *arg;
};
int loop_watch_add(struct loop *l, struct loop_watch *w, uint32_t events);
int loop_watch_mod(struct loop *l, struct loop_watch *w, uint32_t events); /* no-op when equal */
void loop_watch_del(struct loop *l, struct loop_watch *w);                 /* may be out already */

/* A task that runs once, at the end of the current turn (or of the next one, when set by another
 * deferred task). Setting a task that is set already changes nothing. */
struct loop_task {
    struct list node;
    void (*fn)(void *arg);
    void *arg;
};
void loop_defer(struct loop *l, struct loop_task *t);
void loop_defer_last(struct loop *l, struct loop_task *t); /* after all of these, in this turn */
void loop_defer_clear(struct loop *l, struct loop_task *t);

/* Calls fn(arg) on the loop's thread, in the order of the posts of one thread. -EAGAIN when
 * LOOP_POSTS_MAX are waiting: the caller keeps the work and tries again later. */
int loop_post(struct loop *l, void (*fn)(void *arg), void *arg);

/* Calls fn on the loop's thread for each arrival of signo, which is blocked in the calling thread
 * from now on: call before other threads start, so that they inherit the mask. Only one loop of the
 * process may have a signal. -EEXIST when this loop has signo already. */
int loop_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo), void *arg,
                struct err *err);
