/* api_call.h - a call of the controller's API on its way from the route to its reply.
 *
 * Layer:   controller, private to api.c, api_call.c, api_stream.c and api_orders.c
 * Threads: the loop's
 */
#pragma once
#include "base/core/list.h"
#include "base/io/auth/auth_gate.h"
#include "base/io/log.h"
#include "controller/access.h"
#include "controller/api.h"

#define CALL_VIEW_BYTES_MAX ((size_t)16 << 20) /* a thousand instances are under 2 MiB */
#define BODY_BYTES_MAX ((size_t)8 << 20)       /* a sync of a thousand endpoints is under 1 MiB */

enum call_guard {
    GUARD_NONE,   /* /health */
    GUARD_SCRAPE, /* as GUARD_READ, or a scraper's key */
    GUARD_READ,   /* a person's credential, beyond loopback or where it is required */
    GUARD_WRITE,  /* the same, always: other users of this machine reach loopback too */
    GUARD_AGENT,  /* the agent of an instance, under any Host; never a web page */
    GUARD_ROUTER, /* a router, likewise */
    GUARD_JOIN,   /* anybody, likewise: the body proves who asks */
};

struct api {
    struct loop *loop;
    struct api_config config;
    struct http_server *server;
    struct control *control; /* NULL: it starts, or stands by */
    struct metrics *metrics; /* NULL: of the first controller that is attached */
    struct tokens tokens;    /* valid while there is no controller */
    struct auth_gate gate;
    struct arena arena;  /* of one request */
    struct buf out;      /* of one reply */
    struct list streams; /* open ones */
    uint32_t stream_count;
    struct log_limit refused_limit;
};

enum { BY_BYTES = NAME_BYTES + 16 };

struct call {
    struct api *api;
    struct http_exchange *x;
    const struct http_request *req;
    struct str part; /* of the path at '*'; decoded when the route is called */
    int arg;         /* of the route */
};

static inline int64_t api_now(const struct api *a) /* fleet time */
{
    return fleet_clock_now(a->config.clock);
}

/* Returns true if this process leads, at this moment. */
bool api_leads(const struct api *a);
struct str api_leader(const struct api *a); /* empty: unknown */

/* Returns true if the guard admits the caller, and this controller leads or `always` serves the path; else the call is
 * refused. */
bool call_pass(struct call *k, enum call_guard guard, bool always);
/* Returns true if the caller may speak for the instance; else the call is refused. */
bool call_is_agent_of(struct call *k, struct str instance);

/* Each ends the call. */
void call_answer(struct call *k, int status, const struct buf *body);
void call_refuse(struct call *k, int status, const char *reason, const char *message);
void call_refuse_rc(struct call *k, int rc, const struct err *err);
/* Names the leader, in the form of struct standby_reply. Not logged: each part of the fleet comes here after the
 * leader has changed. */
void call_refuse_standby(struct call *k);
void call_done(struct call *k);

/* Has a tick come soon where the order should not wait for the next. */
void call_tell_urgent(struct api *a);

/* Names the caller for the record of orders, and tells what its credential may do. */
const char *call_by(const struct call *k, char ret_by[BY_BYTES]);

/* ---- api_stream.c ---- */

void call_open_stream(struct call *k);
void api_streams_end(struct api *a); /* their clients come again, and find the leader */

void agents_join(struct call *k); /* joins.c */

/* The routes of api_orders.c. */
void order_pause(struct call *k);
void order_scale(struct call *k);
void order_drain(struct call *k);
void order_gc(struct call *k);
void order_show_config(struct call *k);
void order_apply_config(struct call *k);
void order_add_tenant(struct call *k);
void order_remove_tenant(struct call *k);
void order_open_keys(struct call *k);
void order_clear_quarantine(struct call *k);
void order_add_token(struct call *k);
void order_remove_token(struct call *k);
