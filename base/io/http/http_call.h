/* http_call.h - the types and functions that the files of the HTTP client share: pool, links, calls.
 *
 * Layer:   base/io; included by http_client.c, http_link.c and http_call.c only
 * Files:   http_client.c starts and frees; http_link.c makes, pools and closes connections;
 *          http_call.c sends a request and reads its reply
 */
#pragma once
#include "base/core/map.h"
#include "base/io/http/http_client.h"
#include "base/io/loop/count.h"
#include "base/io/net/conn.h"

#define UPSTREAM_HOST_BYTES 16 /* of the SHA-256 of the host's name */

struct http_client {
    struct loop *loop;
    struct http_client_config config; /* defaults filled in */
    struct http1_limits head_limits;
    struct map upstreams; /* struct upstream_key -> struct upstream * */
    struct list links;    /* all struct http_link */
    struct list idle;     /* pooled ones, the longest idle first */
    struct list calls;    /* all struct http_call, ended ones until they are freed */
    struct resolver *resolver;
    bool freeing;
    struct http_client_counts counts;
};

struct upstream_key { /* without padding */
    struct addr addr; /* family AF_UNSPEC: by a tunnel; only the port is set */
    uint8_t host
        [UPSTREAM_HOST_BYTES]; /* TLS: name on the certificate; by tunnel: its name; else zero */
};

struct upstream { /* one peer; exists while it has links */
    struct upstream_key key;
    struct list idle; /* struct http_link, the last used first: the least likely to be stale */
    uint32_t idle_count;
    uint32_t link_count;
};

struct http_link { /* one connection; has a call, or is pooled, or is dead */
    struct http_client *client;
    struct upstream *upstream; /* NULL: dead */
    struct list node;
    struct list idle_node; /* of the upstream */
    struct list lru_node;  /* of the client */
    struct conn conn;
    struct loop_watch watch;
    struct loop_timer timer; /* connecting: gives up; pooled: closes */
    struct loop_task free_task;
    struct loop_task read_task; /* for received bytes that no event announces */
    struct http_call *call;
    int64_t begun_us; /* when it got its call */
    bool connecting;  /* TLS handshake included */
    bool dialled;     /* through a tunnel: connected when TUNNEL_READY has come */
    bool shaking;     /* in the TLS handshake */
    bool reused, send_failed, dead;
};

struct http_call {
    struct http_client *client;
    struct list node;
    struct http_link *link; /* NULL: could not be made, or the call has ended */
    struct upstream_key to;
    int connect_rc;               /* the reason for having no link */
    struct resolver_use name;     /* of a host that is no literal */
    struct loop_timer name_timer; /* gives up on the resolver */
    struct buf request;           /* kept until the reply begins, for the one retry */
    struct buf host;              /* TLS: for the handshake; by tunnel: its name */
    char *problem;                /* or NULL */
    struct loop_timer deadline;
    struct loop_task task; /* begins, goes on after a pause, or frees */
    bool finding;          /* waits for the resolver */
    bool to_head, retried, begun, got_bytes, head_seen, paused, ended;

    struct http1_scan scan;
    struct http_response response;
    struct http1_body body;
    uint32_t interims; /* 1xx replies so far */

    void (*on_head)(void *arg, const struct http_response *head);
    void (*on_data)(void *arg, struct str data);
    void (*on_end)(void *arg, enum http_end end);
    struct str upgrade;
    void (*on_upgrade)(void *arg, struct conn *conn);
    void *arg;
};

/* http_link.c */
struct http_link *link_take_idle(struct http_client *c,
                                 const struct upstream_key *to); /* or NULL */
int link_connect(struct http_client *c, const struct upstream_key *to, struct str host,
                 struct http_link **ret); /* host: for TLS, or of a tunnel; empty: plain */
void link_give_back(struct http_link *l); /* to the pool, or closed when that is full */
void link_close(struct http_link *l);     /* freed at the end of the turn */
void link_free(struct http_link *l);      /* at once */
void link_send(struct http_link *l);
void link_update(struct http_link *l); /* sets the events that wake it */

/* http_call.c */
void call_begin(struct http_call *call); /* puts the request on its link */
void call_connected(struct http_call *call);
/* Finds the address of the call's host and takes a link to it, now or later; -EINVAL when `host` is not
 * a host name. */
int call_find(struct http_call *call, struct str host, uint16_t port, struct err *err);
void call_forget_name(struct http_call *call);
void call_connect_failed(struct http_call *call, int rc);
void call_tls_failed(struct http_call *call, const char *problem);
void call_readable(struct http_call *call);
void call_go_on(struct http_call *call); /* with bytes left over from before a pause */
void call_end(struct http_call *call, enum http_end end);
void call_detach(struct http_call *call, bool reusable);
void call_free(struct http_call *call);
