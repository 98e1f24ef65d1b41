/* http_client.h - makes HTTP/1.1 calls on a loop over pooled keep-alive connections.
 *
 * Layer:   base/io (loop, http1, resolver)
 * Threads: the loop's
 * Life:    a call lives from http_call_start until on_end returns or http_call_cancel is called.
 *          No callback comes from inside http_call_start, pause, resume or cancel. Callbacks may
 *          cancel, pause or resume their call and start others.
 * Retry:   a POOLED connection that dies within HTTP_STALE_US of being reused, before one byte of
 *          a reply, is taken as stale: the call goes once to a fresh connection. Nothing else is
 *          retried here. When the fresh connection cannot be made, the end is RESET_BEFORE_HEAD,
 *          because the peer may have died of the request.
 * Short:   without a descriptor, a local port, memory or room under connections_max the call ends
 *          HTTP_END_LOCAL: nothing was sent on a fresh connection
 * Names:   a host name is resolved beside the loop (resolver.h). A known name needs no new answer of
 *          the resolver, so its pooled connections are used at once. When a first answer does not
 *          come within connect_us, the call ends HTTP_END_NAME.
 * Tunnels: a host that begins with TUNNEL_HOST is reached by config.dial, not by a network address; in plain
 * Flow:    while a call is paused nothing is read from its socket, so TCP holds the peer back
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/http/http1.h"
#include "base/io/loop/loop.h"
#include "base/io/net/resolver.h"

#define HTTP_STALE_US 1000000

struct conn;
struct http_client;
struct http_call;

enum http_end {
    HTTP_END_OK,                /* the reply is whole, whatever its status */
    HTTP_END_CONNECT_FAILED,    /* refused, unreachable, or not within connect_us */
    HTTP_END_NAME,              /* the host's name is unknown, or the resolver does not answer */
    HTTP_END_TLS,               /* no handshake, or a certificate that is not accepted */
    HTTP_END_LOCAL,             /* this side ran short (see Short): says nothing of the peer */
    HTTP_END_RESET_BEFORE_HEAD, /* nothing of the reply's head is known */
    HTTP_END_RESET_AFTER_HEAD,  /* the body is cut short */
    HTTP_END_TIMEOUT,           /* deadline_us passed */
    HTTP_END_MALFORMED,         /* the peer does not speak HTTP/1.1, or its head is too long */
    HTTP_END_UNTRUSTED,         /* the signature of the reply does not hold (signed_call.h) */
    HTTP_END_CANCELLED,         /* http_client_free; http_call_cancel calls nothing */
    HTTP_END_COUNT
};
const char *http_end_text(enum http_end end);

/* Connects to a host that is written TUNNEL_HOST NAME (tunnel.h). Returns a socket, on which TUNNEL_READY comes
 * before anything is sent, or a negative errno. Any thread. */
typedef int http_dial_fn(void *arg, struct str host, uint16_t port);

struct http_client_config { /* 0: the default */
    http_dial_fn *dial;     /* NULL: there are no such hosts */
    void *dial_arg;
    struct tls *tls;            /* for calls with `tls`; borrowed */
    struct name_book *names;    /* shared with other clients; NULL: none */
    int64_t connect_us;         /* 2 s */
    int64_t idle_us;            /* 30 s in the pool; below the 75 s of our servers */
    uint32_t idle_per_host_max; /* 64; more are closed after their reply */
    uint32_t connections_max;   /* 10,000; HTTP_END_LOCAL beyond */
    size_t head_bytes_max;      /* 32 KiB of a reply */
};

struct http_client_counts {
    uint64_t calls;
    uint64_t connections; /* open now, pooled ones included */
    uint64_t idle;        /* pooled now */
    uint64_t connects;
    uint64_t reused;
    uint64_t stale_retried;
    uint64_t refused; /* connections_max; in ended[HTTP_END_LOCAL] too */
    uint64_t ended[HTTP_END_COUNT];
    struct resolver_counts names;
};

struct http_call_request {
    struct str host; /* address or name */
    uint16_t port;
    bool tls;
    struct str method;                 /* empty: GET, or POST when there is a body */
    struct str path;                   /* the target, starts with '/' */
    const struct http_header *headers; /* besides host, content-length and connection */
    size_t header_count;
    struct str bearer;   /* an API key or token: authorization: Bearer; empty: none */
    struct str body;     /* copied */
    bool json;           /* content-type: application/json is written, with or without a body */
    int64_t deadline_us; /* on the loop's clock, for the whole call; 0: none */
    /* A protocol to speak instead (RFC 9110, 7.8), static: it is asked for, and on_upgrade called, after on_head,
     * if the reply is 101. It may take *conn over and leave { .fd = -1 }; the call then ends HTTP_END_OK. */
    struct str upgrade;
    void (*on_upgrade)(void *arg, struct conn *conn);

    void (*on_head)(void *arg, const struct http_response *head); /* optional */
    void (*on_data)(void *arg, struct str data);                  /* optional */
    void (*on_end)(void *arg, enum http_end end);
    void *arg;
};

int http_client_new(struct loop *l, const struct http_client_config *config,
                    struct http_client **ret, struct err *err);
void http_client_free(struct http_client *c); /* ends open calls with HTTP_END_CANCELLED */
CLEANUP_FREEP(http_client, struct http_client)
void http_client_counts_get(const struct http_client *c,
                            struct http_client_counts *ret); /* any thread */

/* Starts a call. Everything in `req` is copied. NULL and err: bad host, path or header, or out of
 * memory. */
struct http_call *http_call_start(struct http_client *c, const struct http_call_request *req,
                                  struct err *err);
void http_call_cancel(struct http_call *call);

/* Returns, in on_end, why TLS failed, in a sentence; empty otherwise. Lives as long as the call. */
const char *http_call_problem(const struct http_call *call);
void http_call_pause(struct http_call *call);
void http_call_resume(struct http_call *call);
