/* loop.c - runs a loop with epoll, a timer heap, a ring of posts and a list of deferred tasks.
 *
 * Watches are level-triggered, because a handler that leaves bytes behind is then called again instead
 * of hanging for ever. Waits are rounded up to a millisecond: no timer of ours is finer, and a
 * timer that fires early would spin.
 *
 * Rule 1 (no call after loop_watch_del) costs a walk over the rest of the current batch, at most
 * LOOP_EVENTS_MAX pointers, once per closed descriptor. The alternative, generations in the event's
 * data, would make every owner keep an indirection.
 *
 * Posts use a mutex and not a lock-free ring: a post is a pointer pair, the lock is held for
 * nanoseconds, and the eventfd is written only when the loop may be asleep. */
#include "base/io/loop/loop.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/count.h"
#include "base/io/loop/lock.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define POSTS_AT_ONCE 64 /* copied out under one lock */
#define SIGNALS_MAX 65   /* Linux numbers them 1..64 */

struct post {
    void (*fn)(void *arg);
    void *arg;
};

struct signal_slot {
    void (*fn)(void *arg, int signo);
    void *arg;
};

struct loop {
    int epoll_fd;
    struct owner owner; /* the thread inside loop_run */
    bool stopping;      /* atomic */
    int64_t now_us;
    struct heap timers;
    struct list tasks;
    struct list task_mark; /* on the list while tasks run: end of this turn's tasks */
    struct list last;      /* tasks that run after those */

    struct epoll_event events[LOOP_EVENTS_MAX];
    int event_pos, event_count; /* the batch being handed out */

    struct loop_watch wake; /* eventfd */
    struct lock lock;       /* over the four below */
    struct post *posts;     /* ring of LOOP_POSTS_MAX */
    uint32_t post_first, post_count;
    bool woken; /* the eventfd was written and not read since */

    struct loop_watch signals; /* signalfd; fd -1 before the first loop_signal */
    sigset_t signal_set;
    struct signal_slot signal_slots[SIGNALS_MAX];

    struct loop_counts counts; /* turns: the loop's; the others: under the lock */
};

/* Does nothing: the posts are run later in the turn, and the eventfd's count is not read, because it is
 * watched edge-triggered and each write wakes once. */
static void on_wake(void *arg, uint32_t events)
{
    (void)arg, (void)events;
}

static void on_signals(void *arg, uint32_t events)
{
    (void)events;
    struct loop *l = arg;
    struct signalfd_siginfo info;
    while (read(l->signals.fd, &info, sizeof info) == (ssize_t)sizeof info) {
        must(info.ssi_signo < SIGNALS_MAX);
        struct signal_slot slot = l->signal_slots[info.ssi_signo];
        if (slot.fn) slot.fn(slot.arg, (int)info.ssi_signo);
    }
}

int loop_new(struct loop **ret, struct err *err)
{
    CLEANUP(loop_freep) struct loop *l = calloc(1, sizeof *l);
    if (!l) return err_set(err, -ENOMEM, "event loop: out of memory");
    l->epoll_fd = -1;
    l->wake = (struct loop_watch){ .fd = -1, .fn = on_wake, .arg = l };
    l->signals = (struct loop_watch){ .fd = -1, .fn = on_signals, .arg = l };
    heap_init(&l->timers, LOOP_TIMERS_MAX);
    list_init(&l->tasks);
    list_init(&l->last);
    lock_init(&l->lock);
    sigemptyset(&l->signal_set);
    l->now_us = clock_mono_us();

    l->posts = calloc(LOOP_POSTS_MAX, sizeof *l->posts);
    if (!l->posts) return err_set(err, -ENOMEM, "event loop: out of memory");
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll_fd < 0) return err_set(err, -errno, "epoll_create1: %s", strerror(errno));
    l->wake.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (l->wake.fd < 0) return err_set(err, -errno, "eventfd: %s", strerror(errno));
    int rc = loop_watch_add(l, &l->wake, EPOLLIN | EPOLLET);
    if (rc < 0) return err_set(err, rc, "epoll_ctl: %s", strerror(-rc));
    *ret = TAKE(l);
    return 0;
}

void loop_free(struct loop *l)
{
    if (!l) return;
    if (l->signals.fd >= 0) close(l->signals.fd);
    if (l->wake.fd >= 0) close(l->wake.fd);
    if (l->epoll_fd >= 0) close(l->epoll_fd);
    heap_fini(&l->timers);
    lock_fini(&l->lock);
    free(l->posts);
    free(l);
}

void loop_counts_get(const struct loop *l, struct loop_counts *ret)
{
    ret->turns = count_get(&l->counts.turns);
    ret->posts = count_get(&l->counts.posts);
    ret->posts_refused = count_get(&l->counts.posts_refused);
}

const struct owner *loop_owner(const struct loop *l)
{
    return &l->owner;
}

int64_t loop_now_us(const struct loop *l)
{
    return l->now_us;
}

/* ---- descriptors ---- */

static int watch_ctl(struct loop *l, int op, struct loop_watch *w, uint32_t events)
{
    loop_assert_owner(l);
    struct epoll_event ev = { .events = events, .data.ptr = w };
    if (FAULT("loop.watch")) return -ENOMEM;
    if (epoll_ctl(l->epoll_fd, op, w->fd, &ev) < 0) return -errno;
    w->events = events;
    return 0;
}

int loop_watch_add(struct loop *l, struct loop_watch *w, uint32_t events)
{
    must(!w->added && w->fn);
    int rc = watch_ctl(l, EPOLL_CTL_ADD, w, events);
    if (rc == 0) w->added = true;
    return rc;
}

int loop_watch_mod(struct loop *l, struct loop_watch *w, uint32_t events)
{
    must(w->added);
    if (w->events == events) return 0;
    return watch_ctl(l, EPOLL_CTL_MOD, w, events);
}

void loop_watch_del(struct loop *l, struct loop_watch *w)
{
    loop_assert_owner(l);
    if (!w->added) return;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    w->added = false;
    for (int i = l->event_pos; i < l->event_count; i++)
        if (l->events[i].data.ptr == w) l->events[i].data.ptr = NULL;
}

/* ---- timers ---- */

int loop_timer_set(struct loop *l, struct loop_timer *t, int64_t at_us)
{
    loop_timer_clear(l, t);
    return heap_push(&l->timers, &t->node, at_us);
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
    loop_assert_owner(l);
    if (heap_has(&t->node)) heap_remove(&l->timers, &t->node);
}

/* A timer that sets itself into the past runs again in the next turn, not in this one. */
static void run_timers(struct loop *l)
{
    for (size_t left = l->timers.count; left > 0; left--) {
        struct heap_node *n = heap_peek(&l->timers);
        if (!n || n->key > l->now_us) return;
        heap_pop(&l->timers);
        struct loop_timer *t = CONTAINER_OF(n, struct loop_timer, node);
        t->fn(t->arg);
    }
}

/* ---- tasks ---- */

void loop_defer(struct loop *l, struct loop_task *t)
{
    loop_assert_owner(l);
    if (!list_linked(&t->node)) list_push_back(&l->tasks, &t->node);
}

void loop_defer_last(struct loop *l, struct loop_task *t)
{
    loop_assert_owner(l);
    if (!list_linked(&t->node)) list_push_back(&l->last, &t->node);
}

void loop_defer_clear(struct loop *l, struct loop_task *t)
{
    loop_assert_owner(l);
    if (list_linked(&t->node)) list_remove(&t->node);
}

/* Runs the tasks that are waiting now; tasks that they defer run in the next turn. The mark is where the
 * list ended, so that a task which clears another one disturbs nothing. */
static void run_tasks(struct loop *l, struct list *tasks)
{
    list_push_back(tasks, &l->task_mark);
    struct list *node;
    while ((node = list_pop_front(tasks)) && node != &l->task_mark) {
        struct loop_task *t = CONTAINER_OF(node, struct loop_task, node);
        t->fn(t->arg);
    }
}

/* ---- posts ---- */

static void wake(struct loop *l)
{
    uint64_t one = 1;
    (void)!write(l->wake.fd, &one, sizeof one); /* at most 2^64 - 2 of them: never full */
}

int loop_post(struct loop *l, void (*fn)(void *arg), void *arg)
{
    lock_take(&l->lock);
    bool full = l->post_count == LOOP_POSTS_MAX;
    bool sleeping = false;
    if (full) {
        count_add(&l->counts.posts_refused, 1);
    } else {
        l->posts[(l->post_first + l->post_count) % LOOP_POSTS_MAX] = (struct post){ fn, arg };
        l->post_count++;
        sleeping = !l->woken;
        l->woken = true;
        count_add(&l->counts.posts, 1);
    }
    lock_drop(&l->lock);
    if (sleeping) wake(l);
    return full ? -EAGAIN : 0;
}

/* Takes up to POSTS_AT_ONCE of the `left` posts that this turn still has to run. */
static uint32_t take_posts(struct loop *l, struct post *ret, uint32_t *left)
{
    lock_take(&l->lock);
    if (*left == UINT32_MAX) {
        *left = l->post_count;
        l->woken = false; /* posts from here on write the eventfd again */
    }
    uint32_t count = min_u32(min_u32(POSTS_AT_ONCE, *left), l->post_count);
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = l->posts[l->post_first];
        l->post_first = (l->post_first + 1) % LOOP_POSTS_MAX;
    }
    l->post_count -= count;
    /* Start again at the front: the ring's memory is touched no further than it was ever full. */
    if (l->post_count == 0) l->post_first = 0;
    *left -= count;
    lock_drop(&l->lock);
    return count;
}

static void run_posts(struct loop *l)
{
    struct post batch[POSTS_AT_ONCE];
    uint32_t left = UINT32_MAX; /* not known yet */
    for (;;) {
        uint32_t count = take_posts(l, batch, &left);
        for (uint32_t i = 0; i < count; i++)
            batch[i].fn(batch[i].arg);
        if (count == 0 || left == 0) return;
    }
}

/* ---- turns ---- */

static int wait_ms(const struct loop *l, int64_t wait_us)
{
    if (!list_empty(&l->tasks) || !list_empty(&l->last)) return 0;
    const struct heap_node *n = heap_peek(&l->timers);
    if (n) {
        int64_t due_us = max_i64(0, n->key - clock_mono_us());
        if (wait_us < 0 || due_us < wait_us) wait_us = due_us;
    }
    if (wait_us < 0) return -1;
    int64_t ms = wait_us / 1000 + (wait_us % 1000 != 0);
    return (int)min_i64(ms, INT_MAX);
}

int loop_turn(struct loop *l, int64_t wait_us)
{
    loop_assert_owner(l);
    int count = epoll_wait(l->epoll_fd, l->events, LOOP_EVENTS_MAX, wait_ms(l, wait_us));
    if (count < 0 && errno != EINTR) return -errno;
    l->now_us = clock_mono_us();
    count_add(&l->counts.turns, 1);

    l->event_count = count < 0 ? 0 : count;
    for (l->event_pos = 0; l->event_pos < l->event_count;) {
        const struct epoll_event *ev = &l->events[l->event_pos++];
        struct loop_watch *w = ev->data.ptr;
        if (w) w->fn(w->arg, ev->events);
    }
    l->event_pos = l->event_count = 0;
    run_timers(l);
    run_posts(l);
    run_tasks(l, &l->tasks);
    run_tasks(l, &l->last);
    return 0;
}

int loop_run(struct loop *l)
{
    int rc = 0;
    owner_claim(&l->owner);
    while (rc == 0 && !__atomic_load_n(&l->stopping, __ATOMIC_ACQUIRE))
        rc = loop_turn(l, -1);
    if (rc == 0) __atomic_store_n(&l->stopping, false, __ATOMIC_RELAXED); /* may be run again */
    owner_release(&l->owner);
    return rc;
}

void loop_stop(struct loop *l)
{
    __atomic_store_n(&l->stopping, true, __ATOMIC_RELEASE);
    wake(l);
}

/* ---- signals ---- */

int loop_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo), void *arg,
                struct err *err)
{
    must(signo > 0 && signo < SIGNALS_MAX && fn);
    if (l->signal_slots[signo].fn)
        return err_set(err, -EEXIST, "signal %d is handled by this loop already", signo);

    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signo);
    sigaddset(&l->signal_set, signo);
    int rc = -pthread_sigmask(SIG_BLOCK, &one, NULL);
    if (rc < 0) return err_set(err, rc, "cannot block signal %d: %s", signo, strerror(-rc));
    int fd = signalfd(l->signals.fd, &l->signal_set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) return err_set(err, -errno, "signalfd: %s", strerror(errno));
    l->signals.fd = fd;
    if (!l->signals.added) {
        rc = loop_watch_add(l, &l->signals, EPOLLIN);
        if (rc < 0) return err_set(err, rc, "epoll_ctl: %s", strerror(-rc));
    }
    l->signal_slots[signo] = (struct signal_slot){ fn, arg };
    return 0;
}
