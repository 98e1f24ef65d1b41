/* http_serve.h - what the files of the HTTP server share: the server and one of its connections.
 *
 * Layer:   base/io; included by http_server.c, http_serve.c and http_reply.c only
 * Files:   http_server.c listens, accepts, counts and drains; http_serve.c reads requests and
 *          keeps deadlines; http_reply.c writes replies
 */
#pragma once
#include "base/io/conn.h"
#include "base/io/count.h"
#include "base/io/http_server.h"

#define HTTP_DATE_MAX 40 /* "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n" and the NUL */

struct http_server {
    struct loop *loop;
    struct http_server_config config;
    struct http_limits limits; /* defaults filled in */
    struct http1_limits head_limits;
    struct loop_watch listener;
    struct loop_task empty_task;
    struct loop_timer accept_timer; /* tries again after running out of descriptors */
    struct list conns;              /* struct http_exchange */
    int spare_fd;                   /* given up to accept and refuse when descriptors run out */
    uint16_t port;
    bool draining;
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    char date[HTTP_DATE_MAX];
    int64_t date_s; /* wall second that `date` says */
    struct http_server_counts counts;
    struct http_server_meters meters; /* metrics NULL: nobody hears */
};

/*     IDLE --byte--> HEAD --blank line--> BODY --whole--> OPEN --reply ended--> SENDING --sent--+
 *      ^                                                                           |            |
 *      +---------------------------------- kept alive -----------------------------|------------+
 *                                            else: shut down, then wait a little   +--> LINGER
 *     any --error, abort--> DEAD: freed by a deferred task */
enum serve_stage {
    SERVE_IDLE,
    SERVE_HEAD,
    SERVE_BODY,
    SERVE_OPEN,
    SERVE_SENDING,
    SERVE_LINGER,
    SERVE_DEAD,
};

struct http_exchange { /* the connection: it has one exchange at a time */
    struct http_server *server;
    struct list node;
    struct conn conn;
    struct loop_watch watch;
    struct loop_timer timer; /* fires at or before deadline_us: moving later costs nothing */
    struct loop_task task;   /* sends, goes on, or frees, once a turn */
    enum serve_stage stage;
    int64_t deadline_us;
    size_t held; /* bytes of conn.in that counts.held_bytes knows */
    bool peer_closed;
    bool input_waits; /* bytes that nobody reads while an exchange is open */

    /* the request */
    struct http1_scan scan;
    struct http1_body body;
    size_t head_len;
    size_t body_len;       /* bytes of body at in.data + head_len */
    size_t body_pos;       /* first byte of in.data not looked at by `body` */
    const char *parsed_at; /* in.data when the request was parsed; moves when the buffer grows */
    struct http_request request;

    /* the reply */
    struct buf headers; /* extra lines, from http_reply_header */
    bool keep_alive;
    bool streaming, chunked;
    bool was_full;
    uint64_t mark;   /* conn.sent that the client must reach */
    int64_t mark_us; /* by then; 0: nothing unsent */
    void (*on_abort)(void *arg, enum http_abort why);
    void (*on_drain)(void *arg);
    void *arg;
    char peer[ADDR_TEXT_MAX];
};

/* http_serve.c */
struct http_exchange *serve_new(struct http_server *s, int fd, const struct addr *peer);
void serve_free(struct http_exchange *x);                       /* at once; on_abort not called */
void serve_abort(struct http_exchange *x, enum http_abort why); /* calls on_abort when open */
void serve_touch(struct http_exchange *x); /* something is to be done at the end of the turn */
void serve_drain(struct http_exchange *x); /* the server stops: close if idle */

/* http_reply.c */
void reply_refusal(struct http_exchange *x, enum http_fault fault);
void refusal_render(struct http_server *s, enum http_fault fault, struct buf *out);

/* http_server.c */
/* Counts what never came to a handler, and replies that did not come to their end. */
void server_refused(struct http_server *s, enum http_fault fault);
void server_cut(struct http_server *s, enum http_abort why);
void server_conn_gone(struct http_server *s); /* after a connection has left the list */
