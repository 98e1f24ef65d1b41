/* http_server.c - listens and accepts, refuses beyond the bound, counts and drains.
 *
 * When descriptors run out, the connection that has been without a request for longest is closed. When
 * all have requests, the listener stays readable, which must not become a busy loop: one spare descriptor
 * is given up to accept and close the waiting connection, and when even that fails, the listener rests
 * for ACCEPT_REST_US. */
#include "base/core/bits.h"
#include "base/io/http/http_serve.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define ACCEPT_AT_ONCE 64
#define ACCEPT_REST_US 100000

static const struct http_limits default_limits = {
    .line_bytes_max = 8 << 10,
    .head_bytes_max = 32 << 10,
    .headers_max = HTTP_HEADERS_MAX,
    .body_bytes_max = 8 << 20,
    .held_bytes_max = 256 << 20,
    .head_us = 10000000,
    .body_us = 30000000,
    .idle_us = 75000000,
    .unsent_bytes_max = 256 << 10,
    .unsent_us = 30000000,
    .connections_max = 10000,
};

#define OR_DEFAULT(field)                                   \
    do {                                                    \
        if (l->field == 0) l->field = default_limits.field; \
    } while (0)

static void fill_limits(struct http_limits *l)
{
    OR_DEFAULT(line_bytes_max);
    OR_DEFAULT(head_bytes_max);
    OR_DEFAULT(headers_max);
    OR_DEFAULT(body_bytes_max);
    OR_DEFAULT(held_bytes_max);
    OR_DEFAULT(head_us);
    OR_DEFAULT(body_us);
    OR_DEFAULT(idle_us);
    OR_DEFAULT(unsent_bytes_max);
    OR_DEFAULT(unsent_us);
    OR_DEFAULT(connections_max);
    if (l->connections_address_max == 0)
        l->connections_address_max = max_u32(l->connections_max / 4, 1);
    if (l->connections_trusted_max == 0) l->connections_trusted_max = l->connections_max;
    l->headers_max = min_u32(l->headers_max, HTTP_HEADERS_MAX);
}

/* ---- counting ---- */

static void count_reason(struct http_server *s, uint32_t metric, const char *reason)
{
    struct str label = str_from(reason);
    if (s->meters.metrics) metric_inc(metric_series(s->meters.metrics, metric, &label));
}

static void count_connection(struct http_server *s, double by)
{
    if (s->meters.metrics) metric_add(metric_of(s->meters.metrics, s->meters.connections), by);
}

void server_refused(struct http_server *s, enum http_fault fault)
{
    count_add(&s->counts.refused[fault], 1);
    count_reason(s, s->meters.refused, http_fault_info(fault)->name);
}

static void accept_failed(struct http_server *s, const char *reason)
{
    count_add(&s->counts.accept_failed, 1);
    count_reason(s, s->meters.refused, reason);
}

void server_cut(struct http_server *s, enum http_abort why)
{
    static const char *const reasons[HTTP_ABORT_COUNT] = {
        [HTTP_ABORT_CLIENT_LEFT] = "client_left",
        [HTTP_ABORT_SLOW_READER] = "slow_reader",
        [HTTP_ABORT_SERVER] = "server",
        [HTTP_ABORT_MEMORY] = "memory",
    };
    count_add(&s->counts.aborted[why], 1);
    count_reason(s, s->meters.cut, reasons[why]);
}

void server_closed(struct http_server *s, uint64_t *count, const char *reason)
{
    count_add(count, 1);
    count_reason(s, s->meters.closed, reason);
}

/* ---- accepting ---- */

/* Refuses a connection without an exchange. The answer is lost if bytes of the client are still unread at
 * close. */
static void refuse_socket(struct http_server *s, int fd, enum http_fault fault)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    char unread[2048];
    server_refused(s, fault);
    if (s->config.tls) { /* not worth a handshake */
        close(fd);
        return;
    }
    refusal_render(s, fault, &out);
    (void)!recv(fd, unread, sizeof unread, 0);
    (void)!send(fd, out.data, out.len, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    close(fd);
}

static void take_socket(struct http_server *s, int fd, const struct addr *peer)
{
    if (s->counts.connections >= s->limits.connections_max && !serve_make_room(s)) {
        refuse_socket(s, fd, HTTP_FAULT_CONNECTIONS);
        return;
    }
    int rc = http_peers_enter(&s->peers, peer);
    if (rc == -EDQUOT) {
        refuse_socket(s, fd, HTTP_FAULT_ADDRESS);
        return;
    }
    struct http_exchange *x = rc == 0 ? serve_new(s, fd, peer) : NULL;
    if (!x) { /* no memory */
        if (rc == 0) http_peers_leave(&s->peers, peer);
        close(fd);
        accept_failed(s, "no_memory");
        return;
    }
    count_add(&s->counts.connections, 1);
    count_connection(s, 1);
    count_add(&s->counts.accepted, 1);
}

static bool out_of_descriptors(int errnum)
{
    return errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM;
}

static void accept_without_descriptors(struct http_server *s)
{
    accept_failed(s, "no_descriptors");
    if (s->spare_fd >= 0) {
        close(s->spare_fd);
        int fd = accept4(s->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) close(fd);
        s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && s->spare_fd >= 0) return;
    }
    loop_watch_del(s->loop, &s->listener);
    (void)loop_timer_set(s->loop, &s->accept_timer, loop_now_us(s->loop) + ACCEPT_REST_US);
}

static void on_accept_rested(void *arg)
{
    struct http_server *s = arg;
    if (loop_watch_add(s->loop, &s->listener, EPOLLIN) < 0)
        (void)loop_timer_set(s->loop, &s->accept_timer, loop_now_us(s->loop) + ACCEPT_REST_US);
}

/* Returns true if a connection waits. accept4 reports a lack of descriptors before it looks for one. */
static bool somebody_waits(const struct http_server *s)
{
    struct pollfd p = { .fd = s->listener.fd, .events = POLLIN };
    return poll(&p, 1, 0) != 0;
}

/* Returns true if a place becomes free at the end of this turn: a connection that has ended holds its
 * place until then, and a new one waits for it. One that a worker still reads does not count. */
static bool room_is_coming(const struct http_server *s)
{
    if (s->counts.connections < s->limits.connections_max) return false;
    LIST_EACH (&s->stage[SERVE_DEAD], node)
        if (!CONTAINER_OF(node, struct http_exchange, node)->pinned) return true;
    return false;
}

/* Accepts some connections. Returns false when no more wait, or those that do must wait longer. */
static bool accept_some(struct http_server *s)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        if (room_is_coming(s)) return false;
        struct sockaddr_storage ss = { 0 };
        socklen_t len = sizeof ss;
        int fd =
            accept4(s->listener.fd, (struct sockaddr *)&ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && out_of_descriptors(errno)) {
            if (!somebody_waits(s)) return false;
            if (serve_make_room(s)) continue;
            accept_without_descriptors(s);
            return false;
        }
        if (fd < 0 && errno == ECONNABORTED) continue; /* it left while it waited */
        if (fd < 0) return false;
        struct addr peer;
        addr_from_sock(&peer, &ss);
        take_socket(s, fd, &peer);
    }
    return true;
}

static void on_listener(void *arg, uint32_t events)
{
    (void)events;
    (void)accept_some(arg);
}

/* ---- life ---- */

static void on_empty_task(void *arg)
{
    struct http_server *s = arg;
    void (*fn)(void *) = TAKE(s->on_empty);
    if (fn) fn(s->on_empty_arg); /* may free s */
}

static bool has_connections(const struct http_server *s)
{
    return count_get(&s->counts.connections) > 0;
}

void server_conn_gone(struct http_server *s, const struct addr *from)
{
    http_peers_leave(&s->peers, from);
    count_sub(&s->counts.connections, 1);
    count_connection(s, -1);
    if (s->draining && !has_connections(s)) loop_defer(s->loop, &s->empty_task);
}

static int listen_at(struct http_server *s, struct err *err)
{
    struct addr at;
    struct str host = str_from(s->config.host);
    if (addr_from_literal(&at, host, s->config.port) < 0)
        return err_set(err, -EINVAL,
                       "cannot listen on \"" STR_FMT "\": write an IPv4 or IPv6 address, or "
                       "localhost",
                       STR_ARG(host));
    char text[ADDR_TEXT_MAX];
    addr_text(&at, text);
    int fd = conn_listen(&at, s->config.reuse_port);
    if (fd < 0) return err_set(err, fd, "cannot listen on %s: %s", text, strerror(-fd));
    s->listener.fd = fd;

    struct sockaddr_storage ss = { 0 };
    socklen_t len = sizeof ss;
    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
        return err_set(err, -errno, "getsockname: %s", strerror(errno));
    addr_from_sock(&at, &ss);
    s->port = at.port;
    int rc = loop_watch_add(s->loop, &s->listener, EPOLLIN);
    return rc < 0 ? err_set(err, rc, "cannot watch %s: %s", text, strerror(-rc)) : 0;
}

int http_server_new(struct loop *l, const struct http_server_config *config,
                    struct http_server **ret, struct err *err)
{
    must(config->on_request && config->host);
    CLEANUP(http_server_freep) struct http_server *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, -ENOMEM, "HTTP server: out of memory");
    s->loop = l;
    s->config = *config;
    s->limits = config->limits;
    fill_limits(&s->limits);
    s->head_limits = (struct http1_limits){ s->limits.line_bytes_max, s->limits.head_bytes_max,
                                            s->limits.headers_max };
    s->listener = (struct loop_watch){ .fd = -1, .fn = on_listener, .arg = s };
    s->empty_task = (struct loop_task){ .fn = on_empty_task, .arg = s };
    s->accept_timer = (struct loop_timer){ .fn = on_accept_rested, .arg = s };
    for (int i = 0; i < SERVE_STAGE_COUNT; i++)
        list_init(&s->stage[i]);
    list_init(&s->large);
    http_peers_init(&s->peers, s->limits.connections_max, s->limits.connections_address_max,
                    s->limits.connections_trusted_max);
    must(config->proxy_count <= HTTP_PROXIES_MAX);
    s->peers.proxy_count = config->proxy_count;
    for (uint32_t i = 0; i < config->proxy_count; i++)
        s->peers.proxies[i] = config->proxies[i];
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int rc = listen_at(s, err);
    if (rc < 0) return rc;
    s->config.host = NULL; /* borrowed for this call only, as the next */
    s->config.proxies = NULL;
    *ret = TAKE(s);
    return 0;
}

static void stop_listening(struct http_server *s)
{
    loop_timer_clear(s->loop, &s->accept_timer);
    loop_watch_del(s->loop, &s->listener);
    if (s->listener.fd >= 0) close(s->listener.fd);
    s->listener.fd = -1;
}

void http_server_free(struct http_server *s)
{
    if (!s) return;
    s->on_empty = NULL;
    stop_listening(s);
    for (int i = 0; i < SERVE_STAGE_COUNT; i++) {
        /* Cut exchanges go to the last list, which is emptied last. */
        while (!list_empty(&s->stage[i])) {
            struct http_exchange *x = CONTAINER_OF(s->stage[i].next, struct http_exchange, node);
            serve_abort(x, HTTP_ABORT_SERVER);
            serve_free(x);
        }
    }
    http_peers_fini(&s->peers);
    loop_defer_clear(s->loop, &s->empty_task);
    if (s->spare_fd >= 0) close(s->spare_fd);
    free(s);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_drain(struct http_server *s, void (*on_empty)(void *arg), void *arg)
{
    s->on_empty = on_empty;
    s->on_empty_arg = arg;
    if (!s->draining) {
        /* The close would reset connections that the kernel has accepted for us already. */
        while (s->listener.added && accept_some(s))
            continue;
        s->draining = true;
        stop_listening(s);
        LIST_EACH_SAFE (&s->stage[SERVE_IDLE], node)
            serve_drain(CONTAINER_OF(node, struct http_exchange, node));
    }
    if (!has_connections(s)) loop_defer(s->loop, &s->empty_task);
}

void http_server_meters_set(struct http_server *s, const struct http_server_meters *m)
{
    s->meters = *m;
}

void http_server_counts_get(const struct http_server *s, struct http_server_counts *ret)
{
    /* All members are 64-bit counters: copied one by one, so that each is read whole. */
    const uint64_t *from = (const uint64_t *)&s->counts;
    uint64_t *to = (uint64_t *)ret;
    for (size_t i = 0; i < sizeof *ret / sizeof *to; i++)
        to[i] = count_get(&from[i]);
}
