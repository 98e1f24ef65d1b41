/* http_link.c - makes, pools and closes the client's connections.
 *
 * Pooled connections stay watched, so one that the peer closes leaves the pool in the same turn;
 * only the race between its close and our next request is left to the retry of http_call.c. */
#include "base/io/http/http_call.h"
#include "base/io/tunnel/tunnel.h"

#include <stdlib.h>
#include <sys/socket.h>

#define UPSTREAMS_MAX 4096         /* addresses with a connection at one time */
#define READ_BEYOND_HEAD_MAX 65536 /* body bytes that may wait behind a head or a pause */

/* ---- upstreams ---- */

static struct upstream *upstream_get(struct http_client *c, const struct upstream_key *key)
{
    struct upstream **slot = map_get(&c->upstreams, key);
    return slot ? *slot : NULL;
}

static struct upstream *upstream_make(struct http_client *c, const struct upstream_key *key)
{
    struct upstream *up = upstream_get(c, key);
    if (up) return up;
    if (c->upstreams.count >= UPSTREAMS_MAX) return NULL;
    up = calloc(1, sizeof *up);
    struct upstream **slot = up ? map_put(&c->upstreams, key, NULL) : NULL;
    if (!slot) {
        free(up);
        return NULL;
    }
    up->key = *key;
    list_init(&up->idle);
    *slot = up;
    return up;
}

static void upstream_drop(struct http_client *c, struct upstream *up)
{
    if (up->link_count > 0) return;
    struct upstream_key key = up->key;
    map_remove(&c->upstreams, &key);
    free(up);
}

/* ---- the pool ---- */

static void leave_pool(struct http_link *l)
{
    if (!list_linked(&l->idle_node)) return;
    list_remove(&l->idle_node);
    list_remove(&l->lru_node);
    l->upstream->idle_count--;
    count_sub(&l->client->counts.idle, 1);
    loop_timer_clear(l->client->loop, &l->timer);
}

struct http_link *link_take_idle(struct http_client *c, const struct upstream_key *to)
{
    struct upstream *up = upstream_get(c, to);
    if (!up || list_empty(&up->idle)) return NULL;
    struct http_link *l = CONTAINER_OF(up->idle.next, struct http_link, idle_node);
    leave_pool(l);
    l->reused = true;
    l->begun_us = loop_now_us(c->loop);
    count_add(&c->counts.reused, 1);
    return l;
}

void link_give_back(struct http_link *l)
{
    struct http_client *c = l->client;
    l->call = NULL;
    buf_clear(&l->conn.in);
    conn_trim(&l->conn);
    if (l->upstream->idle_count >= c->config.idle_per_host_max ||
        loop_timer_set(c->loop, &l->timer, loop_now_us(c->loop) + c->config.idle_us) < 0) {
        link_close(l);
        return;
    }
    list_push_front(&l->upstream->idle, &l->idle_node);
    list_push_back(&c->idle, &l->lru_node);
    l->upstream->idle_count++;
    count_add(&c->counts.idle, 1);
    link_update(l);
}

/* ---- life ---- */

/* Gives the descriptor back at once. The memory stays: a caller further up may hold `l`, or a slice of
 * its receive buffer. */
static void hang_up(struct http_link *l)
{
    leave_pool(l);
    l->dead = true;
    l->call = NULL;
    loop_watch_del(l->client->loop, &l->watch);
    loop_timer_clear(l->client->loop, &l->timer);
    loop_defer_clear(l->client->loop, &l->read_task);
    conn_hang_up(&l->conn);
    count_sub(&l->client->counts.connections, 1);
    l->upstream->link_count--;
    upstream_drop(l->client, l->upstream);
    l->upstream = NULL;
}

void link_free(struct http_link *l)
{
    struct http_client *c = l->client;
    if (!l->dead) hang_up(l);
    loop_defer_clear(c->loop, &l->free_task);
    conn_close(&l->conn);
    list_remove(&l->node);
    free(l);
}

static void on_free_task(void *arg)
{
    link_free(arg);
}

void link_close(struct http_link *l)
{
    if (l->dead) return;
    hang_up(l);
    loop_defer(l->client->loop, &l->free_task);
}

/* ---- events ---- */

void link_send(struct http_link *l)
{
    int rc = conn_flush(&l->conn);
    if (rc == 0 || rc == -EAGAIN) return;
    /* The peer takes no more, but may have replied: that reply is still to be read. */
    l->send_failed = true;
    buf_clear(&l->conn.out);
    l->conn.out_pos = 0;
}

static void connected(struct http_link *l)
{
    l->connecting = false;
    loop_timer_clear(l->client->loop, &l->timer);
    if (l->call->begun) call_connected(l->call); /* else its task does, later in this turn */
}

static void shake(struct http_link *l)
{
    int rc = conn_handshake(&l->conn);
    if (rc == 0) connected(l);
    if (rc < 0 && rc != -EAGAIN) call_tls_failed(l->call, tls_problem(l->conn.tls));
}

/* The byte says that the other end of the tunnel is connected; an end without it, that it is not. */
static void finish_dial(struct http_link *l)
{
    char ready = 0;
    ssize_t count = conn_receive(&l->conn, &ready, 1);
    if (count == 1 && ready == TUNNEL_READY)
        connected(l);
    else if (count != -EAGAIN)
        call_connect_failed(l->call, -ECONNREFUSED);
}

static void finish_connect(struct http_link *l)
{
    int problem = 0;
    socklen_t len = sizeof problem;
    if (getsockopt(l->conn.fd, SOL_SOCKET, SO_ERROR, &problem, &len) < 0) problem = errno;
    if (problem != 0) {
        call_connect_failed(l->call, -problem);
        return;
    }
    if (l->conn.tls) {
        l->shaking = true;
        shake(l);
    } else {
        connected(l);
    }
}

static void on_event(void *arg, uint32_t events)
{
    struct http_link *l = arg;
    if (!l->call) {
        /* Pooled: the peer closed it or sent unasked bytes. Only TLS may send some of its own. */
        if (!l->conn.tls || conn_read(&l->conn, 1) != -EAGAIN) link_close(l);
        return;
    }
    if (l->shaking && l->connecting) {
        shake(l);
    } else if (l->connecting && l->dialled) {
        finish_dial(l);
    } else if (l->connecting) {
        finish_connect(l);
    } else {
        if (events & EPOLLOUT) link_send(l);
        bool tells = events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
        if (tells || conn_read_waits_to_write(&l->conn)) call_readable(l->call);
    }
    link_update(l);
}

static void on_read_task(void *arg)
{
    struct http_link *l = arg;
    if (l->call && l->call->begun) call_readable(l->call);
    link_update(l);
}

static void on_timer(void *arg)
{
    struct http_link *l = arg;
    if (l->call && l->shaking)
        call_tls_failed(l->call, "the peer did not end the handshake in time");
    else if (l->call)
        call_connect_failed(l->call, -ETIMEDOUT);
    else
        link_close(l);
}

void link_update(struct http_link *l)
{
    if (l->dead) return;
    uint32_t events = 0;
    bool reads = l->connecting ? l->shaking || l->dialled : !(l->call && l->call->paused);
    bool writes = conn_unsent(&l->conn) > 0 || (l->connecting && !reads);
    if (reads && conn_read_waits_to_write(&l->conn)) {
        reads = false;
        writes = true;
    }
    if (writes) events |= EPOLLOUT;
    if (reads) events |= EPOLLIN | EPOLLRDHUP;
    if (reads && conn_pending(&l->conn)) loop_defer(l->client->loop, &l->read_task);
    int rc = 0;
    if (events == 0) /* not even hang-ups, which would be reported again and again */
        loop_watch_del(l->client->loop, &l->watch);
    else if (l->watch.added)
        rc = loop_watch_mod(l->client->loop, &l->watch, events);
    else
        rc = loop_watch_add(l->client->loop, &l->watch, events);
    if (rc == 0) return;
    if (l->call)
        call_end(l->call,
                 l->call->head_seen ? HTTP_END_RESET_AFTER_HEAD : HTTP_END_RESET_BEFORE_HEAD);
    else
        link_close(l);
}

/* Makes room for one more connection, if need be by closing the one that was idle longest. A caller
 * further up may have just pooled that one: it is freed at the end of the turn. */
static bool make_room(struct http_client *c)
{
    if (c->counts.connections < c->config.connections_max) return true;
    if (list_empty(&c->idle)) return false;
    link_close(CONTAINER_OF(c->idle.next, struct http_link, lru_node));
    return true;
}

static int link_open(struct http_link *l, const struct addr *to, struct str host)
{
    struct http_client *c = l->client;
    l->dialled = to->family == AF_UNSPEC;
    int fd = l->dialled ? c->config.dial(c->config.dial_arg, host, to->port) : conn_connect(to);
    if (fd < 0) return fd;
    conn_init(&l->conn, fd, c->config.head_bytes_max + READ_BEYOND_HEAD_MAX, BUF_BYTES_MAX);
    l->watch = (struct loop_watch){ .fd = fd, .fn = on_event, .arg = l };
    l->timer = (struct loop_timer){ .fn = on_timer, .arg = l };
    l->free_task = (struct loop_task){ .fn = on_free_task, .arg = l };
    l->read_task = (struct loop_task){ .fn = on_read_task, .arg = l };
    l->connecting = true;
    int rc = host.len && !l->dialled ? tls_connect(c->config.tls, fd, host, &l->conn.tls) : 0;
    if (rc == 0)
        rc = loop_timer_set(c->loop, &l->timer, loop_now_us(c->loop) + c->config.connect_us);
    if (rc == 0) rc = loop_watch_add(c->loop, &l->watch, l->dialled ? EPOLLIN : EPOLLOUT);
    if (rc == 0) return 0;
    loop_timer_clear(c->loop, &l->timer);
    conn_close(&l->conn);
    return rc;
}

int link_connect(struct http_client *c, const struct upstream_key *to, struct str host,
                 struct http_link **ret)
{
    if (!make_room(c)) {
        count_add(&c->counts.refused, 1);
        return -EMFILE;
    }
    struct upstream *up = upstream_make(c, to);
    if (!up) return -ENOMEM;
    struct http_link *l = calloc(1, sizeof *l);
    int rc = -ENOMEM;
    if (l) {
        l->client = c;
        l->upstream = up;
        rc = link_open(l, &to->addr, host);
    }
    if (rc < 0) {
        free(l);
        upstream_drop(c, up);
        return rc;
    }
    up->link_count++;
    list_push_back(&c->links, &l->node);
    count_add(&c->counts.connections, 1);
    count_add(&c->counts.connects, 1);
    l->begun_us = loop_now_us(c->loop);
    *ret = l;
    return 0;
}
