/* http_server.h - a strict HTTP/1.1 server on a loop: whole requests in, whole or streamed replies.
 *
 * Layer:    base/io (loop, http1)
 * Threads:  the loop's. Several servers on loops of their own may share a port (reuse_port).
 *           http_server_counts_get may be called from any thread.
 * Life:     the handler is called once a request, when its body is whole. The exchange is the
 *           caller's to answer, now or later, and is GONE when http_reply, http_stream_end or
 *           http_exchange_abort returns, or when on_abort was called. Who answers later sets
 *           http_exchange_watch before returning from the handler.
 * Refusals: a request that is malformed, too large or too late never reaches the handler: one
 *           answer, and the connection is closed
 * Leaving:  a client that closes, half-closes or resets while an exchange is open makes on_abort
 *           be called in the same turn
 * Writes:   are gathered and sent once a turn
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/http1.h"
#include "base/io/loop.h"
#include "base/io/metrics.h"

struct http_limits {          /* 0: the default */
    size_t line_bytes_max;    /* 8 KiB; 414 beyond */
    size_t head_bytes_max;    /* 32 KiB; 431 beyond */
    uint32_t headers_max;     /* HTTP_HEADERS_MAX; 431 beyond */
    size_t body_bytes_max;    /* 8 MiB; 413 beyond */
    size_t held_bytes_max;    /* 256 MiB of request bytes over all connections; 503 beyond */
    int64_t head_us;          /* 10 s from a request's first byte to the end of its head; 408 */
    int64_t body_us;          /* 30 s from the end of the head to the end of the body; 408 */
    int64_t idle_us;          /* 75 s between requests, then closed */
    size_t unsent_bytes_max;  /* 256 KiB of a stream that the client has not taken */
    int64_t unsent_us;        /* 30 s for the client to take what is unsent, at most that much */
    uint32_t connections_max; /* 10,000; 503 and closed beyond */
};

struct http_server;
struct http_exchange; /* one request and its reply */

enum http_abort {
    HTTP_ABORT_CLIENT_LEFT, /* closed, half-closed or reset */
    HTTP_ABORT_SLOW_READER, /* did not take its bytes within unsent_us */
    HTTP_ABORT_SERVER,      /* http_server_free, or out of memory; counted: http_exchange_abort */
    HTTP_ABORT_COUNT
};

typedef void http_request_fn(void *ctx, struct http_exchange *x);

/* Writes the body of a refusal and returns its content type; the default is one line of text. */
typedef struct str http_refusal_fn(void *ctx, const struct http_fault_info *why, struct buf *body);

struct http_server_config {
    const char *host; /* IPv4 or IPv6 address, or localhost */
    uint16_t port;    /* 0: any free one, see http_server_port */
    bool reuse_port;
    struct http_limits limits;
    http_request_fn *on_request;
    http_refusal_fn *render_refusal; /* optional */
    void *ctx;
};

struct http_server_counts {
    uint64_t connections; /* open now */
    uint64_t accepted;
    uint64_t accept_failed; /* out of descriptors */
    uint64_t requests;      /* handed to the handler */
    uint64_t refused[HTTP_FAULT_COUNT];
    uint64_t aborted[HTTP_ABORT_COUNT];
    uint64_t idle_closed;
    uint64_t bytes_in, bytes_out;
    uint64_t held_bytes; /* of requests, now */
};

/* Listens at once; requests come when the loop runs. */
int http_server_new(struct loop *l, const struct http_server_config *config,
                    struct http_server **ret, struct err *err);

/* Cuts what is open (on_abort is called). */
void http_server_free(struct http_server *s);
CLEANUP_FREEP(http_server, struct http_server)

uint16_t http_server_port(const struct http_server *s);
void http_server_counts_get(const struct http_server *s, struct http_server_counts *ret);

/* The metrics that hear of the same, beside the counts: how many connections are open (a gauge), what
 * was refused and cut (counters with one label, the reason). */
struct http_server_meters {
    struct metrics *metrics; /* borrowed for the server's life; several servers may share them */
    uint32_t connections, refused, cut;
};
void http_server_meters_set(struct http_server *s, const struct http_server_meters *m);

/* Stops accepting, closes idle connections, answers what is under way with `connection: close`,
 * and calls on_empty(arg) once the last connection is gone, never before this returns. An exchange
 * that nobody answers holds it up: the caller has a deadline and http_server_free. */
void http_server_drain(struct http_server *s, void (*on_empty)(void *arg), void *arg);

/* Borrowed for the exchange's life. */
const struct http_request *http_exchange_request(const struct http_exchange *x);

/* `on_abort` as above; `on_drain` when a stream that was full has room again. Both optional, NULL
 * to leave out. May be called again to change them. */
void http_exchange_watch(struct http_exchange *x, void (*on_abort)(void *arg, enum http_abort why),
                         void (*on_drain)(void *arg), void *arg);

/* Cuts the connection without ending the reply: the client sees that it is incomplete. on_abort
 * is not called. The exchange is gone. */
void http_exchange_abort(struct http_exchange *x);

/* Adds a header to the coming reply; not for content-type, content-length, transfer-encoding,
 * connection and date, which the server writes. -EINVAL when it would break the head. */
int http_reply_header(struct http_exchange *x, const char *name, struct str value);

/* Answers whole. The body of a reply to HEAD is counted and not sent. The exchange is gone,
 * whatever is returned: 0, or -ENOMEM (the connection was cut). An empty content_type leaves the
 * header out. */
int http_reply(struct http_exchange *x, int status, struct str content_type, struct str body);

/* Begins a streamed reply: chunked, or until the end of the connection for HTTP/1.0. On failure
 * (-ENOMEM) the exchange stands and nothing was sent. */
int http_stream_begin(struct http_exchange *x, int status, struct str content_type);

/* Takes all of data, or none: -EAGAIN when unsent_bytes_max are waiting already (on_drain tells
 * when to go on; check http_stream_full to pause before that), -ENOMEM. */
int http_stream_write(struct http_exchange *x, const void *data, size_t len);
bool http_stream_full(const struct http_exchange *x);

/* Ends the body. The exchange is gone, whatever is returned: 0, or -ENOMEM (cut). */
int http_stream_end(struct http_exchange *x);
