/* loop_metrics.h - publishes the counters of the router's loops and connections as metrics.
 *
 * Layer:    router (base/io)
 * Threads:  the thread of the loop it was given; the loops, clients and servers it reads belong to others,
 *           whose counts may be read from anywhere (base/io/loop/count.h)
 * Lifetime: ends before the loops, clients and servers that were added
 */
#pragma once
#include "base/io/http/http_client.h"
#include "base/io/http/http_server.h"
#include "router/metrics.h"

#define LOOP_METRICS_MAX 65 /* byte loops and the decision thread's */

struct loop_metrics_source {
    const struct loop *loop;
    const struct http_client *client;
    const struct http_server *server; /* NULL: nobody calls there */
};

struct loop_metrics {
    struct metrics *metrics;
    struct loop_metrics_source wire[LOOP_METRICS_MAX];
    uint32_t count;
    struct loop *own;
    struct loop_timer timer;
    struct loop_counts loops; /* summed when last told, as are the next; of gauges nothing counts */
    struct http_client_counts calls;
    struct http_server_counts served;
};

void loop_metrics_add(struct loop_metrics *w, const struct loop_metrics_source *wire);

/* Adds what was counted since the last time to the metrics. */
void loop_metrics_tell(struct loop_metrics *w);

/* Tells once a second from now on, as a timer of `own`. -ENOSPC, -ENOMEM. */
int loop_metrics_start(struct loop_metrics *w, struct loop *own);
