/* http_serve.h - the types and functions that the files of the HTTP server share: server, connection.
 *
 * Layer:   base/io; included by http_server.c, http_serve.c, http_reply.c and http_held.c only
 * Files:   http_server.c listens, accepts, counts and drains; http_serve.c reads requests and
 *          keeps deadlines; http_reply.c writes replies; http_held.c shares memory out
 */
#pragma once
#include "base/io/http/http_server.h"
#include "base/io/loop/count.h"
#include "base/io/net/conn.h"

#define HTTP_DATE_MAX 40 /* "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n" and the NUL */

/*                           on_head answers ------------------------------+
 *                                  |                                     v
 *     IDLE --byte--> HEAD --> CHECK --> BODY --whole--> OPEN --reply--> SENDING --sent-----------+
 *      ^                                                                           |            |
 *      +---------------------------------- kept alive -----------------------------|------------+
 *                                            else: shut down, then wait a little   +--> LINGER
 *     any --error, abort--> DEAD: freed by a deferred task */
enum serve_stage {
    SERVE_SHAKE, /* TLS handshake */
    SERVE_IDLE,
    SERVE_HEAD,
    SERVE_CHECK, /* while on_head runs */
    SERVE_BODY,
    SERVE_OPEN,
    SERVE_SENDING,
    SERVE_LINGER,
    SERVE_DEAD,
};
#define SERVE_STAGE_COUNT (SERVE_DEAD + 1)

struct http_server {
    struct loop *loop;
    struct http_server_config config;
    struct http_limits limits; /* defaults filled in */
    struct http1_limits head_limits;
    struct loop_watch listener;
    struct loop_task empty_task;
    struct loop_timer accept_timer;       /* tries again after running out of descriptors */
    struct list stage[SERVE_STAGE_COUNT]; /* struct http_exchange, the longest in it first */
    struct list large;                    /* exchanges that hold much memory: http_held.c */
    uint64_t dooming_bytes;               /* of counts.held_bytes, freed at the end of the turn */
    struct http_peers peers;
    int spare_fd; /* given up to accept and refuse when descriptors run out */
    uint16_t port;
    bool draining;
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    char date[HTTP_DATE_MAX];
    int64_t date_s; /* wall second that `date` says */
    struct http_server_counts counts;
    struct http_server_meters meters; /* metrics NULL: none */
};

struct http_exchange { /* the connection: it has one exchange at a time */
    struct http_server *server;
    struct list node;       /* of server->stage[stage] */
    struct list large_node; /* of server->large */
    struct addr from;
    struct conn conn;
    struct loop_watch watch;
    struct loop_timer timer; /* fires at or before deadline_us: moving later costs nothing */
    struct loop_task task;   /* sends, goes on, or frees, once a turn */
    enum serve_stage stage;
    int64_t since_us; /* when it entered the stage */
    int64_t deadline_us;
    int64_t linger_until_us; /* however much the client still sends */
    size_t held;             /* bytes of conn's buffers that are in counts.held_bytes */
    size_t doomed_bytes;     /* > 0: its reply is cut at the end of the turn, to free memory */
    bool peer_closed;
    bool pinned;      /* another thread reads the request */
    bool input_waits; /* bytes have come, which are not read while an exchange is open */

    /* the request */
    struct http1_scan scan;
    struct http1_body body;
    size_t head_len;
    size_t body_max;       /* of this request */
    size_t body_len;       /* bytes of body at in.data + head_len */
    size_t body_pos;       /* first byte of in.data not looked at by `body` */
    const char *parsed_at; /* in.data when the request was parsed; moves when the buffer grows */
    struct http_request request;
    _Alignas(max_align_t) uint8_t note[HTTP_NOTE_BYTES]; /* the handler's */

    /* the reply */
    struct buf headers; /* extra lines, from http_reply_header */
    bool keep_alive;
    bool streaming, chunked;
    bool was_full;
    uint64_t mark;           /* value that conn.sent must reach */
    int64_t mark_us;         /* by then; 0: nothing unsent */
    int64_t unsent_since_us; /* 0: nothing unsent */
    void (*on_abort)(void *arg, enum http_abort why);
    void (*on_drain)(void *arg);
    void *arg;
    char peer[ADDR_TEXT_MAX];
};

/* http_serve.c */
/* Makes a connection. NULL: no memory, and fd is still the caller's. */
struct http_exchange *serve_new(struct http_server *s, int fd, const struct addr *peer);
void serve_hand_over(struct http_exchange *x, struct conn *ret); /* the connection; x is gone */
void serve_free(struct http_exchange *x);                        /* at once; on_abort not called */
void serve_abort(struct http_exchange *x, enum http_abort why);  /* calls on_abort when open */
void serve_enter(struct http_exchange *x, enum serve_stage stage);
void serve_refuse(struct http_exchange *x, enum http_fault fault); /* the request being read */
bool serve_make_room(struct http_server *s); /* closes a connection without a request, at once */
void serve_touch(struct http_exchange *x);   /* runs its task at the end of the turn */
void serve_drain(struct http_exchange *x);   /* the server stops: close if idle */

/* http_held.c */
bool held_count(struct http_exchange *x); /* recounts its buffers; true: they grew */
bool held_fits(struct http_exchange *x);  /* false: there is no room for the bytes just read */
bool held_reply_fits(struct http_server *s, size_t bytes); /* false: no room for such a body */

/* http_reply.c */
void reply_refusal(struct http_exchange *x, enum http_fault fault);
void refusal_render(struct http_server *s, enum http_fault fault, struct buf *out);

/* http_server.c */
/* These count requests that reached no handler, and replies that were cut. */
void server_refused(struct http_server *s, enum http_fault fault);
void server_cut(struct http_server *s, enum http_abort why);
void server_closed(struct http_server *s, uint64_t *count, const char *reason); /* no request */
void server_conn_gone(struct http_server *s, const struct addr *from); /* it has left the lists */
