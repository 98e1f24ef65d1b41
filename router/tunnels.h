/* tunnels.h - the tunnels that agents have opened to this router, and connections through them.
 *
 * Layer:   router (base/io)
 * Threads: a thread of its own moves the bytes, so that it outlives the byte loops and a drain cuts nothing.
 *          tunnels_dial, _take, _has and _is_full from any thread
 * Use:     a byte loop takes the agent's request (http_routes.c) and hands the connection over by tunnels_take;
 *          the HTTP clients of the router dial hosts that are written TUNNEL_HOST INSTANCE (target.h)
 * Rules:   (1) an instance has one tunnel: a new one, signed with the instance's key, takes the old one's place,
 *              whose streams end like lost connections
 *          (2) an endpoint whose tunnel is not there gets no requests (decide_lists.c)
 * Bounds:  router.tunnels_max; TUNNELS_STREAMS_MAX streams of each; TUNNELS_ORDERS_MAX connections and streams that
 *          the thread has not begun yet
 */
#pragma once
#include "base/io/metrics.h"
#include "base/io/tunnel/tunnel.h"
#include "router/target.h"

#define TUNNELS_MAX 1024
#define TUNNELS_STREAMS_MAX 4096
#define TUNNELS_ORDERS_MAX 1024
#define TUNNELS_PATH "/internal/tunnel"

struct tunnels;

/* `count_max` 0: none is taken. */
int tunnels_new(uint32_t count_max, int64_t silence_us, struct metrics *metrics,
                struct tunnels **ret, struct err *err);

/* Starts the thread. `on_change` is called on it when an instance's tunnel has come or gone. */
int tunnels_start(struct tunnels *t, void (*on_change)(void *arg), void *arg, struct err *err);
void tunnels_stop(struct tunnels *t); /* ends the thread: all tunnels are cut */
void tunnels_free(struct tunnels *t); /* after all that dial have ended */
struct loop *tunnels_loop(const struct tunnels *t);

bool tunnels_is_full(struct tunnels *t, struct str instance); /* no room for one more of it */
bool tunnels_has(struct tunnels *t, struct str instance);

/* Takes over a connection that has been upgraded. -ENOSPC: a bound is reached; *conn is still the caller's. */
int tunnels_take(struct tunnels *t, struct str instance, struct conn *conn);

/* An http_dial_fn. -EHOSTUNREACH: the instance has no tunnel here. */
int tunnels_dial(void *tunnels, struct str host, uint16_t port);
