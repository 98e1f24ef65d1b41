/* fuzz_net.h - sockets and a clock that the input rules, under the real loop, server and client.
 *
 * Layer:   tests; fuzz_net.c, linked into targets that WRAP the functions named there
 * Threads: one
 * Use:     net_begin, then what listens and connects gets ends of socket pairs: a peer of the target
 *          connects with net_connect, and what the code under test connects to comes out of
 *          net_accept. Nothing leaves the process and no port is taken.
 * Rules:   (1) time stands still but for net_sleep
 *          (2) in one turn of the loop at most `send_room` bytes are taken by send, and a recv gives
 *              at most `recv_most`: short writes and torn reads at any byte. The longer a turn
 *              reads the more a recv gives, so that a run's cost is its bytes', not its tearing's
 */
#pragma once
#include "base/io/loop/loop.h"
#include "base/io/net/addr.h"

#define NET_PORT 8080
#define NET_QUEUE_MAX 16 /* connections that nobody has accepted yet */

struct net {
    int64_t now_us;
    size_t send_room, recv_most;
    uint32_t recvs;             /* in this turn */
    bool refuses;               /* conn_connect fails at once */
    int listener;               /* of the code under test; -1: none */
    int waiting[NET_QUEUE_MAX]; /* for accept4; or, of conn_connect, for net_accept */
    uint8_t host[NET_QUEUE_MAX];
    uint32_t waiting_count;
};
extern struct net net;

void net_begin(void);
void net_end(void); /* closes what waits */
void net_sleep(int64_t us);

/* One turn that does not wait, with so much room. */
void net_turn(struct loop *l, size_t send_room, size_t recv_most);

/* A peer's end of a connection to the listener, from 10.0.0.HOST, or loopback for 0. -1: none. */
int net_connect(uint8_t host);

/* The peer's end of the oldest connection that conn_connect has made; -1: none. */
int net_accept(void);

/* What a peer does with its end: as much as fits. */
size_t net_give(int fd, struct str data);
size_t net_take(int fd, void *to, size_t most, bool *ret_ended);
