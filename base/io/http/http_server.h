/* http_server.h - serves HTTP/1.1 on a loop, strictly: whole requests in, whole or streamed replies out.
 *
 * Layer:    base/io (loop, http1)
 * Threads:  the loop's. Several servers on loops of their own may share a port (reuse_port).
 *           http_server_counts_get may be called from any thread.
 * Life:     the handler is called once per request, when its body is whole. The caller answers the
 *           exchange, now or later. The exchange is GONE when http_reply, http_stream_end or
 *           http_exchange_abort returns, or when on_abort was called. To answer later, set
 *           http_exchange_watch before returning from the handler.
 * Head:     on_head, where there is one, sees every request before its body is read and before
 *           100 Continue is sent: credentials, path and size are checked there, so that a stranger
 *           cannot make the server hold a body. It may answer with http_reply: a body that has not
 *           arrived with the head is then never read, and the connection is closed (RFC 9112, 9.3).
 * Refusals: a request that is malformed, too large or too late never reaches the handler: one
 *           answer, and the connection is closed
 * Leaving:  on_abort is called in the same turn when a client closes, half-closes or resets while an
 *           exchange is open
 * Writes:   are gathered and sent once a turn
 * Full:     at connections_max, and when the process is out of descriptors, the connection that has
 *           been without a request for longest is closed for the new one; never one whose request
 *           is being read or answered
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/http/http1.h"
#include "base/io/http/http_peers.h"
#include "base/io/loop/loop.h"
#include "base/io/metrics.h"

struct http_limits {         /* 0: the default */
    size_t line_bytes_max;   /* 8 KiB; 414 beyond */
    size_t head_bytes_max;   /* 32 KiB; 431 beyond */
    uint32_t headers_max;    /* HTTP_HEADERS_MAX; 431 beyond */
    size_t body_bytes_max;   /* 8 MiB; 413 beyond */
    size_t held_bytes_max;   /* 256 MiB of requests and replies over all connections: http_held.c */
    int64_t head_us;         /* 10 s from a request's first byte to the end of its head; 408 */
    int64_t body_us;         /* 30 s from the end of the head to the end of the body; 408 */
    int64_t idle_us;         /* 75 s between requests, then closed */
    size_t unsent_bytes_max; /* 256 KiB of a stream that the client has not taken */
    int64_t unsent_us;       /* 30 s for the client to take what is unsent, at most that much */
    uint32_t connections_max;         /* 10,000; 503 and closed beyond */
    uint32_t connections_address_max; /* of one address: a quarter of connections_max; 429 beyond */
    uint32_t connections_trusted_max; /* the same for loopback and proxies: connections_max */
};

struct conn;
struct http_server;
struct http_exchange; /* one request and its reply */

enum http_abort {
    HTTP_ABORT_CLIENT_LEFT, /* closed, half-closed or reset */
    HTTP_ABORT_SLOW_READER, /* did not take its bytes within unsent_us */
    HTTP_ABORT_SERVER,      /* http_server_free, or out of memory; counted: http_exchange_abort */
    HTTP_ABORT_MEMORY,      /* took a large reply slowly while memory was short */
    HTTP_ABORT_COUNT
};

#define HTTP_NOTE_BYTES 64 /* see http_exchange_note */

typedef void http_request_fn(void *ctx, struct http_exchange *x);

/* Called before the head of every reply of a handler is written; may add headers. `body` NULL: a stream;
 * otherwise the body that the client will get, empty for a status that has none. */
typedef void http_reply_fn(void *ctx, struct http_exchange *x, int status, const struct str *body);

/* Writes the body of a refusal and returns its content type; the default is one line of text. */
typedef struct str http_refusal_fn(void *ctx, const struct http_fault_info *why, struct buf *body);

struct http_server_config {
    const char *host; /* IPv4 or IPv6 address, or localhost */
    uint16_t port;    /* 0: any free one, see http_server_port */
    bool reuse_port;
    struct http_limits limits;
    struct tls *tls;                /* every connection speaks it; borrowed; NULL: plain */
    const struct http_net *proxies; /* borrowed for http_server_new */
    uint32_t proxy_count;           /* at most HTTP_PROXIES_MAX */
    http_request_fn *on_head; /* optional; may reply whole, never later and never as a stream */
    http_request_fn *on_request;
    http_reply_fn *on_reply;         /* optional */
    http_refusal_fn *render_refusal; /* optional */
    void *ctx;
};

struct http_server_counts {
    uint64_t connections; /* open now */
    uint64_t accepted;
    uint64_t accept_failed; /* out of descriptors */
    uint64_t requests;      /* handed to on_request */
    uint64_t head_replies;  /* answered by on_head */
    uint64_t refused[HTTP_FAULT_COUNT];
    uint64_t aborted[HTTP_ABORT_COUNT];
    uint64_t idle_closed; /* without a request for idle_us */
    uint64_t room_closed; /* without a request, for a new connection */
    uint64_t bytes_in, bytes_out;
    uint64_t held_bytes; /* of requests and replies, now */
};

/* Listens at once; requests come when the loop runs. */
int http_server_new(struct loop *l, const struct http_server_config *config,
                    struct http_server **ret, struct err *err);

/* Cuts open exchanges (on_abort is called) and frees the server. */
void http_server_free(struct http_server *s);
CLEANUP_FREEP(http_server, struct http_server)

uint16_t http_server_port(const struct http_server *s);
void http_server_counts_get(const struct http_server *s, struct http_server_counts *ret);

/* Metrics beside the counts: open connections (a gauge); connections refused, cut, and closed without
 * a request (counters with one label, the reason). */
struct http_server_meters {
    struct metrics *metrics; /* borrowed for the server's life; several servers may share them */
    uint32_t connections, refused, cut, closed;
};
void http_server_meters_set(struct http_server *s, const struct http_server_meters *m);

/* Stops accepting, closes idle connections, answers what is under way with `connection: close`,
 * and calls on_empty(arg) once the last connection is gone, never before this returns. An exchange
 * that is never answered delays it: the caller sets a deadline and then calls http_server_free. */
void http_server_drain(struct http_server *s, void (*on_empty)(void *arg), void *arg);

/* Returns the request, which lives as long as the exchange. */
const struct http_request *http_exchange_request(const struct http_exchange *x);

/* Returns HTTP_NOTE_BYTES for the handler, kept from on_head to the end of the exchange; zero at first. */
void *http_exchange_note(struct http_exchange *x);

/* Lowers body_bytes_max for this request; called in on_head. */
void http_exchange_body_max(struct http_exchange *x, size_t bytes);

/* Sets the callbacks of an open exchange: `on_abort` as above; `on_drain` when a stream that was full has
 * room again. Either may be NULL. May be called again to change them. */
void http_exchange_watch(struct http_exchange *x, void (*on_abort)(void *arg, enum http_abort why),
                         void (*on_drain)(void *arg), void *arg);

/* Keeps head and body readable for another thread until http_exchange_unpin is called on this one, even
 * if the client leaves meanwhile and the exchange is gone for its owner. Not past http_server_free. */
void http_exchange_pin(struct http_exchange *x);
void http_exchange_unpin(struct http_exchange *x);

/* Cuts the connection without ending the reply: the client sees that it is incomplete. on_abort
 * is not called. The exchange is gone. */
void http_exchange_abort(struct http_exchange *x);

/* Adds a header to the coming reply; not for content-type, content-length, transfer-encoding,
 * connection and date, which the server writes. -EINVAL when it would break the head. */
int http_reply_header(struct http_exchange *x, const char *name, struct str value);

/* Sends a whole reply. The body of a reply to HEAD is counted and not sent. The exchange is gone,
 * whatever is returned: 0, or -ENOMEM (503 was answered instead, or the connection was cut). An empty
 * content_type leaves the header out. */
int http_reply(struct http_exchange *x, int status, struct str content_type, struct str body);

/* Returns true if the request asks for its connection to speak `protocol` from here on (RFC 9110, 7.8). */
bool http_upgrade_asked(const struct http_request *req, struct str protocol);

/* Grants that: the reply is 101 and *ret gets the connection, with what it has received and still has to send
 * (the reply, at first). The exchange is gone, unless -ENOMEM is returned: then nothing was done. */
int http_upgrade(struct http_exchange *x, struct str protocol, struct conn *ret);

/* Begins a streamed reply: chunked, or until the end of the connection for HTTP/1.0. On failure
 * (-ENOMEM) the exchange stays open and nothing was sent. */
int http_stream_begin(struct http_exchange *x, int status, struct str content_type);

/* Takes all of data, or none: -EAGAIN when unsent_bytes_max are waiting already (on_drain tells
 * when to go on; check http_stream_full to pause before that), -ENOMEM. */
int http_stream_write(struct http_exchange *x, const void *data, size_t len);
bool http_stream_full(const struct http_exchange *x);

/* Ends the body. The exchange is gone, whatever is returned: 0, or -ENOMEM (cut). */
int http_stream_end(struct http_exchange *x);
