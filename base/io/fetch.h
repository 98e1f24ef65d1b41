/* fetch.h - makes HTTP calls to servers of others (cloud and cluster APIs) on a loop, through libcurl.
 *
 * Layer:   base/io (base/core, loop, resolver; libcurl by fetch_call.h only). Parts of a fleet call each other
 *          by http/http_client.h
 * Threads: the loop's
 * Life:    a call lives from fetch_start until on_end returns, or until fetch_cancel. No callback comes
 *          from inside fetch_start or fetch_cancel. Callbacks may cancel calls and start others, and may
 *          not call fetch_free
 * Blocks:  never. Names are resolved by net/resolver.h, because libcurl waits for its own resolver's
 *          thread when such a call is cancelled
 * Bounds:  running_max calls under way, waiting_max behind them (-EAGAIN beyond); body_bytes_max of a
 *          reply, FETCH_HEAD_BYTES_MAX of its head; one deadline over waiting, connecting and reading
 * Retry:   a request with a body is sent once. One without may be sent again by libcurl, when a pooled
 *          connection turns out to be closed before a byte of the reply
 * TLS:     1.2 and later; names are verified; where CAs are given, only those are trusted
 * Signals: the process ignores SIGPIPE
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/loop/loop.h"
#include "base/io/net/resolver.h"

#define FETCH_HEAD_BYTES_MAX ((size_t)64 << 10)
#define FETCH_BODY_BYTES ((size_t)8 << 20) /* of a reply, where the request names no bound */
#define FETCH_PROBLEM_BYTES 1024
#define FETCH_REDIRECTS_MAX 8
#define FETCH_VALIDATOR_BYTES 256 /* with its NUL */

struct fetch;
struct fetch_call;

enum fetch_end {
    FETCH_OK,        /* the reply is whole, whatever its status */
    FETCH_NAME,      /* the host's name is unknown, or the resolver does not answer */
    FETCH_CONNECT,   /* refused, unreachable, or not within connect_us */
    FETCH_TLS,       /* no handshake, or a certificate that is not accepted */
    FETCH_CUT,       /* the connection ended before the reply did */
    FETCH_TIMEOUT,   /* deadline_us passed, or no byte came for idle_us */
    FETCH_LARGE,     /* the reply is above its bound */
    FETCH_MALFORMED, /* the reply is not HTTP */
    FETCH_LOCAL,     /* this side ran short of memory or descriptors, or a file of `tls` is bad */
    FETCH_CANCELLED, /* fetch_free; fetch_cancel calls nothing */
    FETCH_END_COUNT
};
const char *fetch_end_name(enum fetch_end end); /* one word, for metrics and logs */

struct fetch_config {           /* 0: the default */
    uint32_t running_max;       /* 64 */
    uint32_t waiting_max;       /* 256 */
    int64_t connect_us;         /* 10 s, for the name, the connection and the handshake */
    const char *const *environ; /* NAME=value; proxies are taken from https_proxy, http_proxy and
                                 * no_proxy there; borrowed. NULL: no proxy */
    struct name_book *names;    /* shared with other clients; NULL: none */
};

struct fetch_counts {
    uint64_t calls;
    uint64_t refused;          /* waiting_max */
    uint64_t running, waiting; /* now */
    uint64_t connects;         /* connections that calls had to open */
    uint64_t ended[FETCH_END_COUNT];
};

/* PEM texts come before files; everything is copied. { 0 } trusts the system's CAs. */
struct fetch_tls {
    struct str ca, certificate, key;
    struct str ca_file, certificate_file, key_file;
    struct str name; /* the name to ask for and verify, where that is not the URL's host */
    bool insecure;   /* the certificate is not verified */
};

struct fetch_header {
    struct str name, value;
};

struct fetch_reply {
    enum fetch_end end;
    int status;          /* 0: no head came */
    bool sent;           /* some of the request was sent, so that it may have been carried out */
    const char *problem; /* a sentence unless end is FETCH_OK; else empty */
    const char *why;     /* the end of it, behind method and URL */
    struct str body;     /* without on_data; until on_end returns */
};

struct fetch_request {
    struct str method; /* empty: GET, or POST when there is a body */
    struct str url;    /* https:// or http://, without user and password */
    const struct fetch_header *headers;
    size_t header_count;
    struct str bearer; /* authorization: Bearer ...; empty: none */
    struct str body;   /* copied */
    struct str content_type;
    const struct fetch_tls *tls; /* NULL: { 0 } */
    struct str proxy;            /* http://[user:password@]host[:port]; empty: see environ */
    size_t body_bytes_max;  /* of the reply; 0: FETCH_BODY_BYTES; SIZE_MAX: a stream without end */
    int64_t deadline_us;    /* on the loop's clock; 0: none */
    int64_t idle_us;        /* the longest silence once the request is under way; 0: any */
    uint32_t redirects_max; /* GET and HEAD; another origin gets none of the headers. 0: none */
    uint64_t range_from;    /* above 0: asks for the body from this byte on; redirects keep it */
    uint64_t range_to;      /* above 0: up to this byte, itself included */
    struct str if_range;    /* with it: a validator, of which the part must be; redirects keep it */
    bool fresh;             /* on a new connection */
    bool http2;             /* where the server speaks it; else HTTP/1.1 */

    void (*on_head)(void *arg, int status);      /* optional; the last head, after redirects */
    void (*on_data)(void *arg, struct str data); /* optional: the body as it comes */
    void (*on_end)(void *arg, const struct fetch_reply *reply);
    void *arg;
};

int fetch_new(struct loop *l, const struct fetch_config *config, struct fetch **ret,
              struct err *err);
void fetch_free(struct fetch *f); /* ends open calls with FETCH_CANCELLED */
CLEANUP_FREEP(fetch, struct fetch)
void fetch_counts_get(const struct fetch *f, struct fetch_counts *ret);

/* Starts a call. -EAGAIN at waiting_max; -EINVAL for a bad URL, method, header or proxy; -ENOMEM. */
int fetch_start(struct fetch *f, const struct fetch_request *req, struct fetch_call **ret,
                struct err *err);
void fetch_cancel(struct fetch_call *call);

/* Returns the value of a header of the reply, empty when absent. From on_head until on_end returns. */
struct str fetch_header(const struct fetch_call *call, const char *name);
