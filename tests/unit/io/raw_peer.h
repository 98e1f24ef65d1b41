/* raw_peer.h - offers sockets without any HTTP, for tests that write every byte themselves.
 *
 * Everything runs on one thread: a test sends, turns the loop, and reads what has come. Waiting is
 * always for a condition, with a bound of PEER_WAIT_US. */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/loop.h"
#include "base/io/net/addr.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define PEER_WAIT_US 60000000

struct peer {
    int fd;
    struct buf got;
    bool closed; /* the other side has closed, cleanly or not */
    bool reset;
};

static inline struct peer peer_connect(uint16_t port)
{
    struct addr a;
    struct sockaddr_storage ss;
    assert_int_equal(addr_from_literal(&a, STR("127.0.0.1"), port), 0);
    socklen_t len = addr_to_sock(&a, &ss);
    struct peer p = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    assert_true(p.fd >= 0);
    assert_int_equal(connect(p.fd, (struct sockaddr *)&ss, len), 0);
    assert_int_equal(fcntl(p.fd, F_SETFL, O_NONBLOCK), 0);
    return p;
}

/* Listens on any free port of this machine. */
static inline int peer_listen(uint16_t *ret_port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *ret_port = ntohs(in.sin_port);
    return fd;
}

static inline void peer_close(struct peer *p)
{
    if (p->fd >= 0) close(p->fd);
    buf_fini(&p->got);
    p->fd = -1;
}

static inline void peer_reset(struct peer *p)
{
    struct linger hard = { .l_onoff = 1 };
    setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    peer_close(p);
}

/* Reads what has come so far, without waiting. */
static inline void peer_read(struct peer *p)
{
    char bytes[65536];
    for (;;) {
        ssize_t count = recv(p->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count > 0) {
            buf_append(&p->got, bytes, (size_t)count);
            continue;
        }
        if (count == 0 || errno != EAGAIN) p->closed = true;
        if (count < 0 && errno != EAGAIN) p->reset = true;
        return;
    }
}

/* Sends all bytes; turns the loop while the socket is full. A reset ends it. */
static inline void peer_send(struct loop *l, struct peer *p, struct str bytes)
{
    int64_t until = clock_mono_us() + PEER_WAIT_US;
    while (bytes.len > 0 && clock_mono_us() < until) {
        ssize_t count = send(p->fd, bytes.data, bytes.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno != EAGAIN) return;
        if (count > 0) bytes = str_of(bytes.data + count, bytes.len - (size_t)count);
        if (bytes.len > 0) loop_turn(l, 1000);
    }
    assert_int_equal(bytes.len, 0);
}

static inline bool peer_has(const struct peer *p, const char *text)
{
    return str_find(buf_view(&p->got), str_from(text)) != SIZE_MAX;
}

static inline size_t peer_count(const struct peer *p, const char *text)
{
    struct str rest = buf_view(&p->got);
    struct str wanted = str_from(text);
    size_t count = 0, at;
    while ((at = str_find(rest, wanted)) != SIZE_MAX) {
        rest = str_of(rest.data + at + wanted.len, rest.len - at - wanted.len);
        count++;
    }
    return count;
}

/* Turns the loop until `condition` holds; fails the test when it does not within PEER_WAIT_US. */
#define TURN_UNTIL(loop, condition)                                                            \
    do {                                                                                       \
        int64_t turn_until_ = clock_mono_us() + PEER_WAIT_US;                                  \
        while (!(condition)) {                                                                 \
            if (clock_mono_us() > turn_until_) fail_msg("waited in vain for: %s", #condition); \
            assert_int_equal(loop_turn((loop), 2000), 0);                                      \
        }                                                                                      \
    } while (0)

static inline bool peer_accept_now(int listener, struct peer *ret)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) *ret = (struct peer){ .fd = fd };
    return fd >= 0;
}

/* Waits for the next connection of `listener`. */
#define PEER_ACCEPT(loop, listener, peer) TURN_UNTIL(loop, peer_accept_now(listener, peer))

/* Waits until `condition` holds for what the peer has received. */
#define PEER_UNTIL(loop, peer, condition) TURN_UNTIL(loop, (peer_read(peer), (condition)))
