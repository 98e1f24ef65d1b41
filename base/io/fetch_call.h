/* fetch_call.h - defines the members of a client and of its calls.
 *
 * Layer:   base/io, private to fetch.c, fetch_drive.c and fetch_options.c. The only file that includes curl/curl.h
 * Threads: the loop's
 */
#pragma once
#include "base/io/fetch.h"

#include <curl/curl.h>

#define FETCH_METHOD_BYTES 16
#define FETCH_HOST_BYTES 256 /* a DNS name has at most 253 */
#define FETCH_TARGET_BYTES 512

enum fetch_state { FETCH_WAITING, FETCH_FINDING, FETCH_RUNNING, FETCH_ENDED };

struct fetch {
    struct loop *loop;
    struct fetch_config config; /* defaults filled in */
    struct resolver *resolver;
    CURLM *multi;
    struct list waiting, running, ended; /* struct fetch_call */
    struct list sockets;                 /* struct watched */
    struct loop_timer timer;             /* libcurl's */
    struct loop_task poke;               /* in place of the timer, where it cannot be set */
    struct loop_task launch, reap;
    bool inside; /* libcurl is on the stack */
    bool freeing;
    struct fetch_counts counts;
};

struct fetch_endpoint { /* what a call connects to */
    char host[FETCH_HOST_BYTES];
    uint16_t port;
};

struct fetch_call {
    struct fetch *fetch;
    struct list node;
    enum fetch_state state;
    bool added; /* to the multi handle */
    CURL *easy;
    CURLU *url, *next; /* `next`: where a redirect that is being followed leads */
    struct curl_slist *headers, *connect_to;
    struct fetch_endpoint to, proxy; /* proxy.host empty: none */
    char method[FETCH_METHOD_BYTES];
    char target[FETCH_TARGET_BYTES]; /* scheme, host and path, for sentences */
    char tls_name[FETCH_HOST_BYTES];
    char if_range[FETCH_VALIDATOR_BYTES]; /* "": none */
    char curl_error[CURL_ERROR_SIZE];
    struct resolver_use name;
    struct loop_timer deadline, idle, name_timer;
    int64_t idle_us, heard_us;
    struct buf head, body, sends; /* `sends` is the request's body */
    size_t sent_bytes;            /* of `sends`, handed to libcurl */
    size_t body_bytes, body_bytes_max;
    int status;
    uint32_t redirects_left;
    bool head_done, too_large, no_watch;

    void (*on_head)(void *arg, int status);
    void (*on_data)(void *arg, struct str data);
    void (*on_end)(void *arg, const struct fetch_reply *reply);
    void *arg;
};

/* ---- fetch.c ---- */

void fetch_call_done(struct fetch_call *call, CURLcode code); /* libcurl is done with it */

/* ---- fetch_drive.c ---- */

int fetch_drive_init(struct fetch *f); /* -ENOMEM; call fetch_drive_fini also then */
void fetch_drive_fini(struct fetch *f);

/* ---- fetch_options.c ---- */

/* Fills a new call with what the request asks, and makes its handle. -EINVAL, -ENOMEM: the caller frees it. */
int fetch_call_fill(struct fetch_call *call, const struct fetch_request *req, struct err *err);
/* Adds the header lines that are no secrets, which redirects keep. -EINVAL, -ENOMEM. */
int fetch_open_headers(struct fetch_call *call, struct err *err);
/* Takes host and port from a URL; -EINVAL. */
int fetch_endpoint_of(CURLU *url, struct fetch_endpoint *ret);
/* Writes "HOST:PORT" as libcurl wants it. */
void fetch_host_port(const char *host, uint16_t port, char *ret, size_t bytes);
