/* tunnels.c - hands connections and new streams to the thread that moves the bytes of all tunnels.
 *
 * A stream is a pair of sockets: the caller's end is like a connection to the engine, the other is the tunnel's. The
 * pair costs a descriptor and two system calls more than a stream within the caller's loop would, and spares both
 * sides any knowledge of the other's thread. */
#include "router/tunnels.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "router/metrics.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define COUNT_US 1000000 /* between two counts of the streams */

struct slot { /* the place of one instance's tunnel */
    struct tunnels *owner;
    char instance[DISPATCH_NAME_MAX]; /* under the lock; empty: free */
    bool joined;                      /* under the lock: it can be dialled */
    struct tunnel *tunnel;            /* the thread's; NULL: its order waits */
};

struct order { /* what the thread is to do next */
    struct list node;
    struct slot *slot;
    bool takes; /* a connection; else: opens a stream */
    struct conn conn;
    int fd;
    uint16_t port;
};

struct tunnels {
    struct loop *loop;
    struct metrics *metrics;
    struct lock lock;
    struct list free, waiting; /* struct order; under the lock */
    uint32_t count_max;
    int64_t silence_us;
    bool stopped; /* under the lock: nothing is taken any more */
    struct slot *slot;
    struct order *order;
    struct loop_timer timer;
    void (*on_change)(void *arg);
    void *arg;
    pthread_t thread;
    bool running;
};

/* ---- any thread ---- */

static struct slot *find(struct tunnels *t, struct str instance)
{
    lock_assert_held(&t->lock);
    for (uint32_t i = 0; i < t->count_max; i++)
        if (str_eq(str_from(t->slot[i].instance), instance)) return &t->slot[i];
    return NULL;
}

/* Returns the slot of the instance, or a free one; NULL: all are taken, or its name is too long. */
static struct slot *place_of(struct tunnels *t, struct str instance)
{
    if (instance.len == 0 || instance.len >= DISPATCH_NAME_MAX) return NULL;
    struct slot *s = find(t, instance);
    return s ? s : find(t, (struct str){ 0 });
}

bool tunnels_is_full(struct tunnels *t, struct str instance)
{
    lock_take(&t->lock);
    bool full = t->stopped || !place_of(t, instance) || list_empty(&t->free);
    lock_drop(&t->lock);
    return full;
}

bool tunnels_has(struct tunnels *t, struct str instance)
{
    lock_take(&t->lock);
    const struct slot *s = instance.len > 0 ? find(t, instance) : NULL;
    bool has = s && s->joined;
    lock_drop(&t->lock);
    return has;
}

static void on_orders(void *arg);

/* Queues an order and wakes the thread for the first. The lock is held. */
static int queue(struct tunnels *t, const struct order *what)
{
    if (t->stopped || list_empty(&t->free)) return -ENOSPC;
    bool first = list_empty(&t->waiting);
    if (first && loop_post(t->loop, on_orders, t) < 0) return -ENOSPC;
    struct order *o = CONTAINER_OF(t->free.next, struct order, node);
    list_remove(&o->node);
    *o = *what;
    list_push_back(&t->waiting, &o->node);
    return 0;
}

int tunnels_take(struct tunnels *t, struct str instance, struct conn *conn)
{
    lock_take(&t->lock);
    struct slot *s = place_of(t, instance);
    const struct order o = { .slot = s, .takes = true, .conn = *conn };
    int rc = s ? queue(t, &o) : -ENOSPC;
    if (rc == 0) {
        memcpy(s->instance, instance.data, instance.len);
        s->instance[instance.len] = 0;
        *conn = (struct conn){ .fd = -1 };
    }
    lock_drop(&t->lock);
    return rc;
}

int tunnels_dial(void *tunnels, struct str host, uint16_t port)
{
    struct tunnels *t = tunnels;
    int pair[2];
    if (!tunnels_has(t, tunnel_name(host))) return -EHOSTUNREACH;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) return -errno;
    lock_take(&t->lock);
    struct slot *s = find(t, tunnel_name(host));
    const struct order o = { .slot = s, .fd = pair[1], .port = port };
    int rc = s ? queue(t, &o) : -EHOSTUNREACH;
    lock_drop(&t->lock);
    if (rc == 0) return pair[0];
    close(pair[0]);
    close(pair[1]);
    return rc;
}

/* ---- the thread ---- */

static void set_gauges(struct tunnels *t)
{
    uint32_t tunnels = 0, streams = 0;
    for (uint32_t i = 0; i < t->count_max; i++) {
        tunnels += t->slot[i].tunnel != NULL;
        if (t->slot[i].tunnel) streams += tunnel_streams(t->slot[i].tunnel);
    }
    metric_set(metric_of(t->metrics, RM_TUNNELS), tunnels);
    metric_set(metric_of(t->metrics, RM_TUNNEL_STREAMS), streams);
    if (tunnels > 0 && !loop_timer_is_set(&t->timer))
        (void)loop_timer_set(t->loop, &t->timer, loop_now_us(t->loop) + COUNT_US);
}

static void on_timer(void *arg)
{
    set_gauges(arg);
}

static void changed(struct tunnels *t)
{
    set_gauges(t);
    if (t->on_change) t->on_change(t->arg);
}

/* Frees the slot's tunnel. Its name stays for a moment if a new connection of the instance waits already. */
static void leave(struct slot *s)
{
    struct tunnels *t = s->owner;
    bool comes = false;
    tunnel_free(s->tunnel);
    s->tunnel = NULL;
    lock_take(&t->lock);
    LIST_EACH (&t->waiting, node) {
        const struct order *o = CONTAINER_OF(node, struct order, node);
        comes |= o->takes && o->slot == s;
    }
    s->joined = false;
    if (!comes) s->instance[0] = 0;
    lock_drop(&t->lock);
}

static void on_lost(void *arg, const char *why)
{
    struct slot *s = arg;
    struct tunnels *t = s->owner;
    log_event(LOG_WARN, "tunnel_lost", "instance=%s streams=%u why=%s", s->instance,
              tunnel_streams(s->tunnel), why);
    metric_inc(metric_of(t->metrics, RM_TUNNELS_LOST));
    leave(s);
    changed(t);
}

static void join(struct slot *s, struct conn *conn)
{
    struct tunnels *t = s->owner;
    struct err err = { 0 };
    const struct tunnel_config config = { .loop = t->loop,
                                          .opens = true,
                                          .streams_max = TUNNELS_STREAMS_MAX,
                                          .ping_us = t->silence_us / 3,
                                          .silence_us = t->silence_us,
                                          .on_lost = on_lost,
                                          .arg = s };
    if (s->tunnel) log_event(LOG_INFO, "tunnel_replaced", "instance=%s", s->instance);
    tunnel_free(s->tunnel);
    s->tunnel = NULL;
    int rc = tunnel_new(&config, conn, &s->tunnel, &err);
    if (rc < 0) {
        log_event(LOG_WARN, "tunnel_refused", "instance=%s error=%s", s->instance, err.text);
        conn_close(conn);
        leave(s);
    } else {
        log_event(LOG_INFO, "tunnel_joined", "instance=%s", s->instance);
        lock_take(&t->lock);
        s->joined = true;
        lock_drop(&t->lock);
    }
    changed(t);
}

static void carry_out(struct order *o)
{
    if (o->takes)
        join(o->slot, &o->conn);
    else if (!o->slot->tunnel)
        close(o->fd); /* lost meanwhile: the caller's end is closed without TUNNEL_READY */
    else
        (void)tunnel_open(o->slot->tunnel, o->port, o->fd); /* the same, where there is no room */
}

static void on_orders(void *arg)
{
    struct tunnels *t = arg;
    lock_take(&t->lock);
    while (!list_empty(&t->waiting)) {
        struct order *first = CONTAINER_OF(t->waiting.next, struct order, node);
        struct order o = *first;
        list_remove(&first->node);
        list_push_front(&t->free, &first->node);
        lock_drop(&t->lock);
        carry_out(&o);
        lock_take(&t->lock);
    }
    lock_drop(&t->lock);
}

static void *run(void *arg)
{
    struct tunnels *t = arg;
    int rc = loop_run(t->loop);
    if (rc < 0) log_event(LOG_ERROR, "tunnels_failed", "error=%s", err_text(NULL, rc));
    return NULL;
}

/* ---- life ---- */

int tunnels_new(uint32_t count_max, int64_t silence_us, struct metrics *metrics,
                struct tunnels **ret, struct err *err)
{
    struct tunnels *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "router: no memory");
    lock_init(&t->lock);
    list_init(&t->free);
    list_init(&t->waiting);
    t->metrics = metrics;
    t->count_max = count_max;
    t->silence_us = silence_us;
    t->timer = (struct loop_timer){ .fn = on_timer, .arg = t };
    t->slot = calloc((size_t)count_max + 1, sizeof *t->slot);
    t->order = calloc(TUNNELS_ORDERS_MAX, sizeof *t->order);
    int rc = loop_new(&t->loop, err);
    if (rc == 0 && (!t->slot || !t->order)) rc = err_set(err, -ENOMEM, "router: no memory");
    if (rc < 0) {
        tunnels_free(t);
        return rc;
    }
    for (uint32_t i = 0; i < count_max; i++)
        t->slot[i].owner = t;
    for (uint32_t i = 0; i < TUNNELS_ORDERS_MAX; i++)
        list_push_back(&t->free, &t->order[i].node);
    *ret = t;
    return 0;
}

int tunnels_start(struct tunnels *t, void (*on_change)(void *arg), void *arg, struct err *err)
{
    t->on_change = on_change;
    t->arg = arg;
    int rc = pthread_create(&t->thread, NULL, run, t);
    if (rc != 0) return err_set(err, -rc, "router: cannot start a thread");
    t->running = true;
    return 0;
}

void tunnels_stop(struct tunnels *t)
{
    if (!t || !t->running) return;
    loop_stop(t->loop);
    pthread_join(t->thread, NULL);
    t->running = false;
    lock_take(&t->lock);
    t->stopped = true;
    lock_drop(&t->lock);
    for (uint32_t i = 0; i < t->count_max; i++) {
        tunnel_free(t->slot[i].tunnel);
        t->slot[i].tunnel = NULL;
    }
    LIST_EACH_SAFE (&t->waiting, node) {
        struct order *o = CONTAINER_OF(node, struct order, node);
        if (o->takes)
            conn_close(&o->conn);
        else
            close(o->fd);
    }
    list_init(&t->waiting);
}

void tunnels_free(struct tunnels *t)
{
    if (!t) return;
    tunnels_stop(t);
    loop_free(t->loop);
    free(t->slot);
    free(t->order);
    lock_fini(&t->lock);
    free(t);
}

struct loop *tunnels_loop(const struct tunnels *t)
{
    return t->loop;
}
