/* store_redis_conn.c - resolves names, opens sockets, and moves bytes, by TLS or without.
 *
 * The socket does not block: each wait is a poll with what is left of the deadline.
 *
 * Rejected: the connection and the TLS of hiredis. Before 1.0, as in Debian 12, it has no TLS; since then it checks
 * no name in the server's certificate, and says neither what a handshake waits for nor why it failed. */
#include "base/io/store/store_redis_conn.h"

#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/io/net/tls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WHERE_BYTES (REDIS_HOST_BYTES + 8) /* with a port */

void redis_conn_close(struct redis_conn *c)
{
    if (!c->open) return;
    if (c->stream) tls_end(c->stream);
    tls_stream_free(c->stream);
    c->stream = NULL;
    close(c->fd);
    c->open = false;
}

static int fail(struct redis_conn *c, int rc, struct err *err, const char *where, const char *why)
{
    err_set(err, rc, "store: Redis: %s: %s", where, why);
    redis_conn_close(c);
    return rc;
}

/* Waits until the socket can be read or written, or the deadline has passed. */
static int await(struct redis_conn *c, int fd, short events, const char *where, struct err *err)
{
    for (;;) {
        int64_t left_us = c->deadline_us - clock_mono_us();
        struct pollfd p = { .fd = fd, .events = events };
        int n = left_us > 0 ? poll(&p, 1, (int)((left_us + 999) / 1000)) : 0;
        if (n > 0) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(c, -errno, err, where, strerror(errno));
        return fail(c, -ETIMEDOUT, err, where, "no reply in time");
    }
}

/* ---- names ---- */

/* Takes the answer of the system's resolver, if it has come. */
static void take_answer(struct redis_conn *c)
{
    if (!c->asked || gai_error(&c->question) == EAI_INPROGRESS) return;
    if (gai_error(&c->question) == 0 && c->question.ar_result) {
        struct sockaddr_storage from = { 0 };
        memcpy(&from, c->question.ar_result->ai_addr, c->question.ar_result->ai_addrlen);
        addr_from_sock(&c->asked->known, &from);
        freeaddrinfo(c->question.ar_result);
    }
    c->asked = NULL;
}

bool redis_conn_is_resolving(struct redis_conn *c, const struct redis_host *h)
{
    take_answer(c);
    return c->asked == h;
}

static void ask_name(struct redis_conn *c, struct redis_host *h)
{
    static const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct gaicb *list[] = { &c->question };
    if (c->asked) return;
    c->question = (struct gaicb){ .ar_name = h->name, .ar_request = &hints };
    if (getaddrinfo_a(GAI_NOWAIT, list, 1, NULL) == 0) c->asked = h;
}

/* Waits for the address of a host that is not known yet. A known one is asked again beside its use. */
static int find_address(struct redis_conn *c, struct redis_host *h, struct addr *ret,
                        struct err *err)
{
    if (addr_from_literal(ret, str_from(h->name), h->port) == 0) return 0;
    take_answer(c);
    ask_name(c, h);
    while (h->known.family == 0 && c->asked) {
        int64_t left_us = c->deadline_us - clock_mono_us();
        const struct gaicb *const list[] = { &c->question };
        const struct timespec wait = { left_us / 1000000, left_us % 1000000 * 1000 };
        bool other = c->asked != h;
        if (left_us <= 0 || gai_suspend(list, 1, &wait) == EAI_AGAIN)
            return fail(c, -ETIMEDOUT, err, h->name, "the name was not resolved in time");
        take_answer(c);
        if (other) ask_name(c, h);
    }
    if (h->known.family == 0) return fail(c, -ENOENT, err, h->name, "there is no such host");
    *ret = h->known;
    ret->port = h->port;
    return 0;
}

bool redis_conn_fini(struct redis_conn *c)
{
    redis_conn_close(c);
    take_answer(c);
    return !c->asked || gai_cancel(&c->question) != EAI_NOTCANCELED;
}

/* ---- sockets ---- */

static int socket_open(struct redis_conn *c, const struct sockaddr *to, socklen_t bytes,
                       const char *where, int *ret, struct err *err)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fail(c, -errno, err, where, strerror(errno));
    int one = 1, problem = 0;
    socklen_t size = sizeof problem;
    if (to->sa_family != AF_UNIX) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    }
    int rc = connect(fd, to, bytes) == 0 ? 0 : -errno;
    /* -EAGAIN: the listener's queue of a Unix socket is full, as that of a stopped server may be. */
    if (rc == -EINPROGRESS) {
        rc = await(c, fd, POLLOUT, where, err);
        if (rc < 0) {
            close(fd);
            return rc;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) < 0) problem = errno;
        rc = -problem;
    }
    if (rc < 0) {
        close(fd);
        return fail(c, rc == -EAGAIN ? -EBUSY : rc, err, where, strerror(-rc));
    }
    *ret = fd;
    return 0;
}

/* ---- TLS ---- */

/* Says what a failure of TLS means for the configuration. */
static int tls_fail(struct redis_conn *c, int rc, struct err *err)
{
    char why[TLS_PROBLEM_BYTES + 160];
    const char *reason = tls_problem(c->stream);
    if (rc == -EKEYREJECTED)
        snprintf(
            why, sizeof why,
            "the server's certificate is refused: %s; see controller.store_ca, and the host in "
            "controller.store",
            reason);
    else if (rc == -ENOKEY)
        snprintf(why, sizeof why,
                 "the server does not accept our certificate, or we have none: %s; see "
                 "controller.store_certificate and store_key",
                 reason);
    else
        snprintf(why, sizeof why, "TLS: %s", reason[0] ? reason : strerror(-rc));
    return fail(c, rc, err, c->at, why);
}

static int shake_hands(struct redis_conn *c, struct err *err)
{
    int rc = tls_connect(c->tls, c->fd, str_from(c->at), &c->stream);
    if (rc < 0) return fail(c, rc, err, c->at, "no memory for TLS");
    while ((rc = tls_handshake(c->stream)) == -EAGAIN) {
        short events = tls_wants_write(c->stream) ? POLLOUT : POLLIN;
        rc =
            await(c, c->fd, events, "TLS handshake (does the server speak TLS at this port?)", err);
        if (rc < 0) return rc;
    }
    return rc < 0 ? tls_fail(c, rc, err) : 0;
}

static int join(struct redis_conn *c, int fd, const char *at, struct err *err)
{
    c->fd = fd;
    c->at = at;
    c->open = true;
    return c->tls ? shake_hands(c, err) : 0;
}

int redis_conn_host(struct redis_conn *c, struct redis_host *h, struct err *err)
{
    struct addr at;
    struct sockaddr_storage to;
    char where[WHERE_BYTES];
    must(!c->open);
    int fd, rc = find_address(c, h, &at, err);
    if (rc < 0) return rc;
    snprintf(where, sizeof where, "%s:%u", h->name, h->port);
    socklen_t bytes = addr_to_sock(&at, &to);
    rc = socket_open(c, (const struct sockaddr *)&to, bytes, where, &fd, err);
    return rc < 0 ? rc : join(c, fd, h->name, err);
}

int redis_conn_path(struct redis_conn *c, const char *path, struct err *err)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    must(!c->open && strlen(path) < sizeof to.sun_path);
    memcpy(to.sun_path, path, strlen(path));
    int fd, rc = socket_open(c, (const struct sockaddr *)&to, sizeof to, path, &fd, err);
    return rc < 0 ? rc : join(c, fd, path, err);
}

/* ---- bytes ---- */

/* These return a count, 0 at the end of the stream, or -EAGAIN and other failures. */
static ssize_t some_in(struct redis_conn *c, void *to, size_t bytes_max)
{
    if (c->stream) return tls_read(c->stream, to, bytes_max);
    ssize_t n = recv(c->fd, to, bytes_max, 0);
    return n < 0 ? -errno : n;
}

static ssize_t some_out(struct redis_conn *c, const void *from, size_t bytes)
{
    if (c->stream) return tls_write(c->stream, from, bytes);
    ssize_t n = send(c->fd, from, bytes, MSG_NOSIGNAL);
    return n < 0 ? -errno : n;
}

static int cut(struct redis_conn *c, int rc, struct err *err)
{
    bool told = c->stream && (rc == -ENOKEY || rc == -EPROTO);
    if (told) return tls_fail(c, rc, err);
    return fail(c, -ECONNRESET, err, "the connection was cut",
                rc < 0 && rc != -ECONNRESET ? strerror(-rc) : "the server closed it");
}

/* A server that refuses our certificate says so and closes, which a write may meet first. */
static int write_cut(struct redis_conn *c, int rc, struct err *err)
{
    char byte;
    ssize_t n = c->stream ? tls_read(c->stream, &byte, 1) : 0;
    return cut(c, n == -ENOKEY ? -ENOKEY : rc, err);
}

int redis_conn_write(struct redis_conn *c, const void *from, size_t bytes, struct err *err)
{
    const char *at = from;
    while (bytes > 0) {
        ssize_t n = some_out(c, at, bytes);
        int rc = 0;
        if (n == -EAGAIN)
            rc = await(c, c->fd, POLLOUT, "sending", err);
        else if (n < 0 && n != -EINTR)
            rc = write_cut(c, (int)n, err);
        if (rc < 0) return rc;
        if (n <= 0) continue;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

int redis_conn_read(struct redis_conn *c, void *to, size_t bytes_max, size_t *ret, struct err *err)
{
    for (;;) {
        /* Before any wait: TLS may have bytes already, for which the socket has no event. */
        ssize_t n = some_in(c, to, bytes_max);
        if (n > 0) {
            *ret = (size_t)n;
            return 0;
        }
        if (n == -EINTR) continue;
        if (n != -EAGAIN) return cut(c, (int)n, err);
        bool writes = c->stream && tls_wants_write(c->stream);
        int rc = await(c, c->fd, writes ? POLLOUT : POLLIN, "waiting", err);
        if (rc < 0) return rc;
    }
}

bool redis_conn_was_cut(struct redis_conn *c)
{
    char byte;
    ssize_t n = some_in(c, &byte, 1);
    return n != -EAGAIN && n != -EINTR;
}
