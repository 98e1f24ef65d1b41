/* conn.c - reads and writes sockets, plain or by TLS, and sets their options; knows nothing of HTTP. */
#include "base/io/net/conn.h"

#include "base/core/bits.h"
#include "base/core/fault.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#define LISTEN_BACKLOG 4096 /* the kernel lowers it to net.core.somaxconn */

/* A peer that vanished without closing is found after 30 + 3 * 10 seconds of silence. */
#define KEEPALIVE_IDLE_S 30
#define KEEPALIVE_EVERY_S 10
#define KEEPALIVE_PROBES 3

#define READ_BYTES_MIN 4095 /* and the NUL: the first allocation of a buffer is 4 KiB */

/* Bytes the kernel may hold that are not on the wire yet. The bound keeps a slow reader's backlog with
 * us, where it is bounded and counted, instead of in megabytes of socket buffer. */
#define UNSENT_IN_KERNEL 65536

void conn_init(struct conn *c, int fd, size_t in_bytes_max, size_t out_bytes_max)
{
    *c = (struct conn){ .fd = fd };
    buf_init(&c->in, in_bytes_max);
    buf_init(&c->out, out_bytes_max);
}

void conn_drop_tls(struct conn *c)
{
    tls_stream_free(c->tls);
    c->tls = NULL;
}

int conn_handshake(struct conn *c)
{
    return c->tls ? tls_handshake(c->tls) : 0;
}

void conn_end(struct conn *c)
{
    if (c->tls) tls_end(c->tls);
    shutdown(c->fd, SHUT_WR);
}

void conn_hang_up(struct conn *c)
{
    conn_drop_tls(c); /* without a close alert: conn_end has sent it where the end is regular */
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

void conn_close(struct conn *c)
{
    conn_hang_up(c);
    buf_fini(&c->in);
    buf_fini(&c->out);
    c->out_pos = 0;
}

ssize_t conn_receive(struct conn *c, void *to, size_t bytes_max)
{
    if (FAULT("conn.read")) return -ECONNRESET;
    if (c->tls) return tls_read(c->tls, to, bytes_max);
    ssize_t count;
    do {
        count = recv(c->fd, to, bytes_max, 0);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

static ssize_t transmit(struct conn *c, const void *from, size_t bytes)
{
    if (c->tls) return tls_write(c->tls, from, bytes);
    ssize_t count;
    do {
        count = send(c->fd, from, bytes, MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

ssize_t conn_read(struct conn *c, size_t bytes_max)
{
    /* Free room is used first; a buffer that is nearly full doubles. So small requests stay in
     * READ_BYTES_MIN and a body of megabytes takes few calls. */
    size_t room = c->in.cap > c->in.len + 1 ? c->in.cap - c->in.len - 1 : 0;
    if (room < CONN_READ_MIN && room < bytes_max) {
        room = min_size(READ_BYTES_MIN > c->in.len ? READ_BYTES_MIN : c->in.len,
                        c->in.max - c->in.len);
        if (room == 0) return -E2BIG;
        int rc = buf_reserve(&c->in, room);
        if (rc < 0) return rc;
    }
    bytes_max = min_size(bytes_max, room);
    ssize_t count = conn_receive(c, c->in.data + c->in.len, bytes_max);
    if (count < 0) return count;
    c->in.len += (size_t)count;
    c->in.data[c->in.len] = 0;
    return count;
}

int conn_flush(struct conn *c)
{
    while (conn_unsent(c) > 0) {
        if (FAULT("conn.send")) return -EPIPE;
        ssize_t count = transmit(c, c->out.data + c->out_pos, conn_unsent(c));
        if (count < 0 && count != -EAGAIN) return (int)count;
        if (count < 0) break;
        c->out_pos += (size_t)count;
        c->sent += (uint64_t)count;
    }
    if (conn_unsent(c) == 0) {
        c->out.len = c->out_pos = 0;
        return 0;
    }
    /* Move only when the hole is the larger part: each byte is moved at most once on average. */
    if (c->out_pos > c->out.len / 2) {
        buf_consume(&c->out, c->out_pos);
        c->out_pos = 0;
    }
    return -EAGAIN;
}

void conn_trim(struct conn *c)
{
    if (c->in.len == 0 && c->in.cap > CONN_KEEP_BYTES) buf_fini(&c->in);
    if (c->out.len == 0 && c->out.cap > CONN_KEEP_BYTES) buf_fini(&c->out);
}

static void set_int(int fd, int level, int option, int value)
{
    /* All of these only make things better: a kernel without one still serves. */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static void set_options(int fd)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1); /* we gather writes ourselves */
    set_int(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

static int close_with(int fd, int errnum)
{
    close(fd);
    return -errnum;
}

int conn_connect(const struct addr *to)
{
    struct sockaddr_storage ss;
    socklen_t len = addr_to_sock(to, &ss);
    int fd = socket(to->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    set_options(fd);
    if (connect(fd, (struct sockaddr *)&ss, len) < 0 && errno != EINPROGRESS)
        return close_with(fd, errno);
    return fd;
}

int conn_listen(const struct addr *at, bool reuse_port)
{
    struct sockaddr_storage ss;
    socklen_t len = addr_to_sock(at, &ss);
    int fd = socket(at->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (at->family == AF_INET6) set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    int one = 1;
    if (reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) < 0)
        return close_with(fd, errno);
    set_options(fd);
    if (bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
        return close_with(fd, errno);
    return fd;
}
