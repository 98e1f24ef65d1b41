/* fuzz_net.h - puts sockets and a clock that the input controls under the real loop, server and client.
 *
 * Layer:   tests; fuzz_net.c, linked into targets that WRAP the functions named there
 * Threads: one
 * Use:     call net_begin; from then on listening and connecting give ends of socket pairs. The
 *          target's peer connects with net_connect, and takes a connection that the code under
 *          test opened with net_accept. Nothing leaves the process and no port is taken.
 * Rules:   (1) time passes only in net_sleep
 *          (2) in one turn of the loop send takes at most `send_room` bytes, and a recv gives at
 *              most `recv_most`: short writes and torn reads at any byte. The longer a turn reads,
 *              the more a recv gives, so that a run's cost follows its bytes, not its tears
 */
#pragma once
#include "base/io/loop/loop.h"
#include "base/io/net/addr.h"

#define NET_PORT 8080
#define NET_QUEUE_MAX 16 /* connections not accepted yet */

struct net {
    int64_t now_us;
    size_t send_room, recv_most;
    uint32_t recvs;             /* in this turn */
    bool refuses;               /* conn_connect fails at once */
    int listener;               /* of the code under test; -1: none */
    int waiting[NET_QUEUE_MAX]; /* ends for accept4 (server) or net_accept (client) */
    uint8_t host[NET_QUEUE_MAX];
    uint32_t waiting_count;
};
extern struct net net;

void net_begin(void);
void net_end(void); /* closes what waits */
void net_sleep(int64_t us);

/* Runs one turn of the loop, without waiting, with these bounds. */
void net_turn(struct loop *l, size_t send_room, size_t recv_most);

/* Connects to the listener from 10.0.0.HOST, or loopback for 0. Returns the peer's end; -1: none. */
int net_connect(uint8_t host);

/* Returns the peer's end of the oldest connection that conn_connect has made; -1: none. */
int net_accept(void);

/* Send or receive as much as fits at a peer's end; both return the bytes. */
size_t net_give(int fd, struct str data);
size_t net_take(int fd, void *to, size_t most, bool *ret_ended);
