/* wires.h - what the router's loops and their connections have counted, as metrics.
 *
 * Layer:    router (base/io)
 * Threads:  the thread of the loop it was given; the loops, clients and servers it reads belong to others,
 *           whose counts may be read from anywhere (base/io/count.h)
 * Lifetime: ends before the loops, clients and servers that were added
 */
#pragma once
#include "base/io/http_client.h"
#include "base/io/http_server.h"
#include "router/metrics.h"

#define WIRES_MAX 65 /* byte loops and the decision thread's */

struct wire {
    const struct loop *loop;
    const struct http_client *client;
    const struct http_server *server; /* NULL: nobody calls there */
};

struct wires {
    struct metrics *metrics;
    struct wire wire[WIRES_MAX];
    uint32_t count;
    struct loop *own;
    struct loop_timer timer;
    struct loop_counts loops; /* summed when last told, as are the next; of gauges nothing counts */
    struct http_client_counts calls;
    struct http_server_counts served;
};

void wires_add(struct wires *w, const struct wire *wire);

/* Adds what was counted since the last time to the metrics. */
void wires_tell(struct wires *w);

/* Tells once a second from now on, as a timer of `own`. -ENOSPC, -ENOMEM. */
int wires_start(struct wires *w, struct loop *own);
