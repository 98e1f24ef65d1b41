/* fuzz_net.c - replaces the system calls of conn.c, http_server.c and clock.c, on socket pairs. */
#include "tests/fuzz/fuzz_net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_BYTES 8192 /* so that a reply of a few KiB does not fit */
#define RECV_MAX ((size_t)1 << 20)
#define TORN_RECVS 64 /* recvs of one turn after which recv_most doubles */

struct net net;

int64_t __wrap_clock_mono_us(void);
int __wrap_conn_listen(const struct addr *at, bool reuse_port);
int __wrap_conn_connect(const struct addr *to);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags);
int __wrap_getsockname(int fd, struct sockaddr *at, socklen_t *len);
int __wrap_close(int fd);
ssize_t __wrap_send(int fd, const void *data, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t len, int flags);
int __real_close(int fd);
ssize_t __real_send(int fd, const void *data, size_t len, int flags);
ssize_t __real_recv(int fd, void *to, size_t len, int flags);

int64_t __wrap_clock_mono_us(void)
{
    return net.now_us;
}

void net_begin(void)
{
    net = (struct net){ .now_us = 1000000000, .listener = -1 };
}

void net_end(void)
{
    while (net.waiting_count > 0)
        __real_close(net.waiting[--net.waiting_count]);
}

void net_sleep(int64_t us)
{
    net.now_us += us;
}

void net_turn(struct loop *l, size_t send_room, size_t recv_most)
{
    net.send_room = send_room;
    net.recv_most = recv_most < RECV_MAX ? recv_most : RECV_MAX;
    net.recvs = 0;
    must(loop_turn(l, 0) == 0);
}

/* ---- connections ---- */

static int take_waiting(void)
{
    if (net.waiting_count == 0) return -1;
    int fd = net.waiting[0];
    net.waiting_count--;
    memmove(net.waiting, net.waiting + 1, net.waiting_count * sizeof *net.waiting);
    memmove(net.host, net.host + 1, net.waiting_count);
    return fd;
}

/* Makes a socket pair: one end is queued, the other is returned. */
static int make_pair(uint8_t host)
{
    int fd[2], bytes = SOCKET_BYTES;
    if (net.waiting_count == NET_QUEUE_MAX) return -1;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
    for (int i = 0; i < 2; i++)
        must(setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
    net.host[net.waiting_count] = host;
    net.waiting[net.waiting_count++] = fd[0];
    return fd[1];
}

/* Returns an eventfd as listener: it is readable while a connection is queued. */
int __wrap_conn_listen(const struct addr *at, bool reuse_port)
{
    (void)at, (void)reuse_port;
    must(net.listener < 0);
    net.listener = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    must(net.listener >= 0);
    return net.listener;
}

int net_connect(uint8_t host)
{
    int fd = net.listener < 0 ? -1 : make_pair(host);
    const uint64_t one = 1;
    if (fd >= 0) must(write(net.listener, &one, sizeof one) == sizeof one);
    return fd;
}

static void put_address(struct sockaddr *to, socklen_t *len, uint8_t host)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(NET_PORT) };
    in.sin_addr.s_addr = htonl(host ? 0x0a000000u + host : INADDR_LOOPBACK);
    if (to) memcpy(to, &in, sizeof in);
    if (len) *len = sizeof in;
}

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    (void)flags;
    must(fd == net.listener);
    uint8_t host = net.host[0];
    int got = take_waiting();
    if (got < 0) {
        uint64_t count;
        (void)!read(fd, &count, sizeof count);
        errno = EAGAIN;
        return -1;
    }
    put_address(from, len, host);
    return got;
}

int __wrap_getsockname(int fd, struct sockaddr *at, socklen_t *len)
{
    (void)fd;
    put_address(at, len, 0);
    return 0;
}

int __wrap_close(int fd)
{
    if (fd == net.listener) net.listener = -1;
    return __real_close(fd);
}

int __wrap_conn_connect(const struct addr *to)
{
    (void)to;
    int fd = net.refuses ? -1 : make_pair(0);
    return fd < 0 ? -ECONNREFUSED : fd;
}

int net_accept(void)
{
    return take_waiting();
}

/* ---- bytes ---- */

ssize_t __wrap_send(int fd, const void *data, size_t len, int flags)
{
    if (net.send_room == 0) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t sent = __real_send(fd, data, len < net.send_room ? len : net.send_room, flags);
    if (sent > 0) net.send_room -= (size_t)sent;
    return sent;
}

ssize_t __wrap_recv(int fd, void *to, size_t len, int flags)
{
    if (++net.recvs % TORN_RECVS == 0 && net.recv_most < RECV_MAX) net.recv_most *= 2;
    return __real_recv(fd, to, len < net.recv_most ? len : net.recv_most, flags);
}

size_t net_give(int fd, struct str data)
{
    ssize_t sent = data.len > 0 ? __real_send(fd, data.data, data.len, MSG_NOSIGNAL) : 0;
    return sent > 0 ? (size_t)sent : 0;
}

size_t net_take(int fd, void *to, size_t most, bool *ret_ended)
{
    ssize_t got = __real_recv(fd, to, most, 0);
    *ret_ended = got == 0 || (got < 0 && errno != EAGAIN);
    return got > 0 ? (size_t)got : 0;
}
