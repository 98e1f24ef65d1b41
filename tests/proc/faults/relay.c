/* relay.c - carries bytes between pairs of sockets, in a loop and thread of its own.
 *
 *     the caller   ── near ┐ forth: near -> far, the queue of far
 *                          │
 *     the callee   ── far  ┘ back:  far -> near, the queue of near
 *
 * A side is read only while the other side's queue has room and no cut is in the way; the bytes read wait
 * in that queue until the other side takes them. Cuts are words of the shared table, which is read every
 * LOOK_US. */
#include "tests/proc/faults/relay.h"

#include "base/core/bits.h"
#include "base/core/list.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/loop.h"
#include "tests/proc/rig/rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_US 10000
#define CHUNK_BYTES 16384
#define QUEUE_CHUNKS 16 /* a side's queue; more bytes stay in the kernel's buffers */

struct chunk {
    uint32_t from, to; /* bytes [from, to) are still to be sent; to 0: the end of the stream */
    uint8_t bytes[CHUNK_BYTES];
};

struct side {
    struct loop_watch watch;
    struct link *link;
    struct side *other;
    bool ended, broken; /* read to its end; reset or gone */
    uint32_t first, count;
    struct chunk *queue; /* QUEUE_CHUNKS chunks to be sent to this side */
};

struct link {
    struct list node;
    enum part from, to;
    uint16_t port;
    struct side near, far;
    struct loop_task free_task;
    bool closing;
};

static struct {
    struct reroute_table *table;
    struct loop *loop;
    struct loop_watch listener;
    struct loop_timer look;
    struct list links;
    pthread_t thread;
    int hole, closed, plug[8]; /* full queue; bound, never listening; connections in the queue */
} relay;

/* ---- links ---- */

static void link_free(void *arg)
{
    struct link *l = arg;
    list_remove(&l->node);
    for (struct side *s = &l->near; s; s = s == &l->near ? &l->far : NULL) {
        loop_watch_del(relay.loop, &s->watch);
        if (s->watch.fd >= 0) close(s->watch.fd);
        free(s->queue);
    }
    free(l);
}

static void link_close(struct link *l, bool reset)
{
    struct linger hard = { .l_onoff = 1 };
    if (l->closing) return;
    l->closing = true;
    for (struct side *s = &l->near; reset && s; s = s == &l->near ? &l->far : NULL)
        (void)setsockopt(s->watch.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    loop_defer(relay.loop, &l->free_task);
}

/* Returns true if the cut stops bytes from this side to the other. */
static bool is_cut(const struct side *s, enum cut cut)
{
    return cut == CUT_BOTH || cut == (s == &s->link->near ? CUT_FORTH : CUT_BACK);
}

static void side_watch(struct side *s, enum cut cut)
{
    struct side *o = s->other;
    bool due = s->count > 0;
    uint32_t events = (!s->ended && !is_cut(s, cut) && o->count < QUEUE_CHUNKS ? EPOLLIN : 0) |
                      (due ? EPOLLOUT : 0);
    if (s->broken) return; /* not watched: the kernel would report it at every turn */
    must(loop_watch_mod(relay.loop, &s->watch, events) == 0);
}

/* Reads the available bytes into the other side's queue. */
static void side_read(struct side *s)
{
    struct side *o = s->other;
    while (!s->ended && o->count < QUEUE_CHUNKS) {
        struct chunk *c = &o->queue[(o->first + o->count) % QUEUE_CHUNKS];
        ssize_t n = recv(s->watch.fd, c->bytes, sizeof c->bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0) {
            link_close(s->link, true);
            return;
        }
        s->ended = n == 0;
        c->from = 0;
        c->to = (uint32_t)n;
        o->count++;
    }
}

/* Sends the queued chunks; the end of the other side's stream ends this one. */
static void side_write(struct side *s)
{
    while (s->count) {
        struct chunk *c = &s->queue[s->first];
        ssize_t n =
            send(s->watch.fd, c->bytes + c->from, c->to - c->from, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return;
        if (n < 0) {
            link_close(s->link, true);
            return;
        }
        c->from += (uint32_t)n;
        if (c->from < c->to) return;
        if (c->to == 0) (void)shutdown(s->watch.fd, SHUT_WR);
        s->first = (s->first + 1) % QUEUE_CHUNKS;
        s->count--;
    }
    if (s->ended && s->other->ended && !s->count && !s->other->count) link_close(s->link, false);
}

/* Advances a link: closes it on a reset or a lost side, otherwise watches what cuts and queue room allow. */
static void link_step(struct link *l)
{
    enum cut cut = reroute_cut_of(relay.table, l->from, l->port);
    if (l->closing) return;
    if (cut == CUT_RESET || (cut == CUT_NONE && (l->near.broken || l->far.broken))) {
        link_close(l, true);
        return;
    }
    side_watch(&l->near, cut);
    side_watch(&l->far, cut);
}

static void on_side(void *arg, uint32_t events)
{
    struct side *s = arg;
    struct link *l = s->link;
    if (l->closing) return;
    if (events & EPOLLIN && !is_cut(s, reroute_cut_of(relay.table, l->from, l->port))) side_read(s);
    if (!l->closing && events & EPOLLOUT) side_write(s);
    if (!l->closing && events & (EPOLLERR | EPOLLHUP) && !(events & (EPOLLIN | EPOLLOUT))) {
        s->broken = true; /* the other side learns of it once there is no cut */
        loop_watch_del(relay.loop, &s->watch);
    }
    link_step(l);
}

static void on_look(void *arg)
{
    (void)arg;
    LIST_EACH_SAFE (&relay.links, at)
        link_step(CONTAINER_OF(at, struct link, node));
    must(loop_timer_set(relay.loop, &relay.look, loop_now_us(relay.loop) + LOOK_US) == 0);
}

static bool side_open(struct side *s, struct link *l, struct side *other, int fd)
{
    *s = (struct side){ .link = l,
                        .other = other,
                        .watch = { .fd = fd, .fn = on_side, .arg = s },
                        .queue = malloc(QUEUE_CHUNKS * sizeof *s->queue) };
    return fd >= 0 && s->queue && loop_watch_add(relay.loop, &s->watch, 0) == 0;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&in, sizeof in) < 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

static void on_accept(void *arg, uint32_t events)
{
    (void)arg, (void)events;
    struct sockaddr_in in = { 0 };
    socklen_t len = sizeof in;
    int fd = accept4(relay.listener.fd, (struct sockaddr *)&in, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    uint32_t note = relay.table->note[ntohs(in.sin_port)];
    struct link *l = calloc(1, sizeof *l);
    must(l);
    l->from = (enum part)(note & 0xffff);
    l->port = (uint16_t)(note >> 16);
    l->to = reroute_part_at(relay.table, l->port);
    l->free_task = (struct loop_task){ .fn = link_free, .arg = l };
    list_push_back(&relay.links, &l->node);
    bool opened = side_open(&l->near, l, &l->far, fd);
    if (side_open(&l->far, l, &l->near, connect_to(l->port)) && opened)
        link_step(l);
    else
        link_close(l, true);
}

/* ---- the thread ---- */

static void *relay_run(void *arg)
{
    (void)arg;
    (void)loop_run(relay.loop);
    return NULL;
}

static int bound(uint16_t *ret_port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *ret_port = ntohs(in.sin_port);
    return fd;
}

static void open_table(void)
{
    char path[RIG_PATH];
    snprintf(path, sizeof path, "%s/reroute", rig_folder());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof *relay.table), 0);
    relay.table = mmap(NULL, sizeof *relay.table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(relay.table != MAP_FAILED);
    close(fd);
    assert_int_equal(setenv(REROUTE_ENV, path, 1), 0);
    assert_int_equal(setenv("LD_PRELOAD", getenv("REROUTE_LIB"), 1), 0);
}

void relay_open(void)
{
    open_table();
    list_init(&relay.links);
    assert_int_equal(loop_new(&relay.loop, NULL), 0);
    relay.listener = (struct loop_watch){ .fd = bound(&relay.table->relay_port), .fn = on_accept };
    assert_int_equal(listen(relay.listener.fd, 1024), 0);
    assert_int_equal(loop_watch_add(relay.loop, &relay.listener, EPOLLIN), 0);
    relay.closed = bound(&relay.table->closed_port);
    relay.hole = bound(&relay.table->hole_port);
    assert_int_equal(listen(relay.hole, 0), 0);
    for (uint32_t i = 0; i < COUNT_OF(relay.plug); i++)
        relay.plug[i] = connect_to(relay.table->hole_port);
    relay.look = (struct loop_timer){ .fn = on_look };
    assert_int_equal(loop_timer_set(relay.loop, &relay.look, 0), 0);
    assert_int_equal(pthread_create(&relay.thread, NULL, relay_run, NULL), 0);
}

void relay_close(void)
{
    loop_stop(relay.loop);
    pthread_join(relay.thread, NULL);
    while (!list_empty(&relay.links))
        link_free(CONTAINER_OF(relay.links.next, struct link, node));
    loop_watch_del(relay.loop, &relay.listener);
    loop_timer_clear(relay.loop, &relay.look);
    loop_free(relay.loop);
    close(relay.listener.fd);
    close(relay.closed);
    close(relay.hole);
    for (uint32_t i = 0; i < COUNT_OF(relay.plug); i++)
        close(relay.plug[i]);
    (void)munmap(relay.table, sizeof *relay.table);
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv(REROUTE_ENV);
}

void relay_knows(enum part part, uint16_t port)
{
    relay.table->known[part] = port;
}

void relay_cut(enum part from, enum part to, uint16_t port, enum cut cut)
{
    relay.table->cut[from][to] = (uint32_t)cut | (uint32_t)port << 16;
}
