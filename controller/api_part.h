/* api_part.h - what the files of the controller's HTTP face share: one call, its answers, its guard.
 *
 * Layer:   controller; api*.c only
 * Threads: the loop's
 */
#pragma once
#include "base/core/list.h"
#include "base/io/log.h"
#include "controller/api.h"

#define API_VIEW_BYTES_MAX ((size_t)16 << 20) /* a thousand instances are under 2 MiB */

struct api {
    struct loop *loop;
    struct api_config config;
    struct http_server *server;
    struct control *control;
    struct auth_gate gate;
    struct arena arena;  /* of one request */
    struct buf out;      /* of one answer */
    struct list streams; /* open ones, api_stream.c */
    uint32_t stream_count;
    struct log_limit refused_limit;
};

enum guard {
    GUARD_NONE,   /* /health */
    GUARD_READ,   /* beyond loopback, or where it is asked for: a person's credential */
    GUARD_WRITE,  /* that always: other users of this machine reach loopback too */
    GUARD_AGENT,  /* the agent of an instance, by whatever name it reaches us; never a web page */
    GUARD_ROUTER, /* likewise */
};

struct call {
    struct api *api;
    struct http_exchange *x;
    const struct http_request *req;
    struct str part; /* what stood at '*' in the path */
    int arg;         /* of the route */
};

/* Answers: exactly one of these ends a call that is not a stream. */
void api_answer(struct call *k, int status, const struct buf *body);
void api_refuse(struct call *k, int status, const char *reason, const char *message);
void api_refuse_rc(struct call *k, int rc, const struct err *err); /* an errno of the control */
void api_done(struct call *k);
void api_tell_urgent(struct api *a);

/* True when the call may go on; else it is answered. */
bool api_pass(struct call *k, enum guard guard);

/* True when the caller may speak for that instance; else it is answered. */
bool api_is_agent_of(struct call *k, struct str instance);

static inline int64_t api_now(const struct api *a) /* fleet time */
{
    return fleet_clock_now(a->config.clock);
}

/* What writes: api_orders.c. */
void api_pause_service(struct call *k);
void api_scale_service(struct call *k);
void api_add_tenant(struct call *k);
void api_remove_tenant(struct call *k);
void api_open_keys(struct call *k);
void api_clear_quarantine(struct call *k);
void api_add_token(struct call *k);
void api_remove_token(struct call *k);

void api_open_stream(struct call *k);
