/* tunnel_core.h - one end of a tunnel, which carries many byte streams over one connection: frames, streams, credit.
 *
 * Layer:   base/io (base/core); pure: no socket, no clock. tunnel.h ties it to a connection
 * Threads: its owner's
 * Frames:  16 bytes, numbers with the least significant byte first, then `number` bytes of data for DATA
 *
 *              0 kind | 1-3 zero | 4-7 number | 8-15 stream
 *
 *              OPEN    number: the port that the stream is for     opener ──► acceptor
 *              ACCEPT  the stream leads there; grants TUNNEL_WINDOW  acceptor ──► opener
 *              DATA    at most TUNNEL_DATA_MAX bytes                 both ways, as the rest
 *              WINDOW  number: bytes more that may be sent
 *              END     no more data comes
 *              RESET   number: enum tunnel_reset; the stream is gone
 *              PING, PONG   stream 0; a PONG repeats the number
 *
 * Rules:   (1) one end opens streams, the other accepts them; ids rise and are not used again
 *          (2) a receiver has room for TUNNEL_WINDOW bytes of each stream, and grants more once its owner has
 *              consumed some: a stream that nobody reads stands still, and the others go on
 *          (3) data waits where it comes from while `out` holds TUNNEL_OUT_BYTES; streams that wait then go on in
 *              turn. Other frames are written at once: what is read is never held up by what is to be sent,
 *              so that two full ends cannot wait for each other
 *          (4) frames of a stream that is gone are skipped: they were under way. A frame that no honest peer
 *              sends fails the tunnel (-EPROTO)
 * Source:  the credit of HTTP/2 (RFC 9113, 5.2), without its window of the whole connection
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/list.h"
#include "base/core/map.h"

#define TUNNEL_FRAME_BYTES 16
#define TUNNEL_DATA_MAX 16384
#define TUNNEL_WINDOW ((uint32_t)262144)
#define TUNNEL_OUT_BYTES ((size_t)262144) /* unsent; more data is not taken */
/* Of other frames too: beyond, the peer reads nothing. */
#define TUNNEL_OUT_BYTES_MAX ((size_t)1 << 20)

enum tunnel_kind {
    TUNNEL_OPEN = 1,
    TUNNEL_ACCEPT,
    TUNNEL_DATA,
    TUNNEL_WINDOW_MORE,
    TUNNEL_END,
    TUNNEL_RESET,
    TUNNEL_PING,
    TUNNEL_PONG,
    TUNNEL_KIND_END
};

enum tunnel_reset {
    TUNNEL_RESET_CUT,     /* the connection at the other end was lost, or closed whole */
    TUNNEL_RESET_REFUSED, /* nothing may be reached at that port, or nothing listens there */
    TUNNEL_RESET_FULL,    /* a bound was reached: streams, or bytes held */
    TUNNEL_RESET_COUNT
};

struct tunnel_stream { /* embedded by its owner; { 0 } is not open */
    struct list wait;
    uint64_t id; /* 0: gone */
    uint32_t may_send, may_come;
    uint32_t consumed; /* and not granted again yet */
    bool accepted, ended, peer_ended;
};

/* Called while bytes are fed, or when there is room again. They may end and reset any stream and send data. */
struct tunnel_events {
    /* A stream to `port` comes. Returns its owner's object, or NULL and why not. tunnel_core_accept accepts it,
     * after this has returned; no data comes before. Acceptor only. */
    struct tunnel_stream *(*on_open)(void *arg, uint16_t port, enum tunnel_reset *ret_why);
    void (*on_data)(void *arg, struct tunnel_stream *s, struct str data);
    void (*on_credit)(void *arg, struct tunnel_stream *s); /* accepted, or it may send again */
    void (*on_end)(void *arg, struct tunnel_stream *s);
    void (*on_reset)(void *arg, struct tunnel_stream *s, enum tunnel_reset why); /* s->id is 0 */
};

struct tunnel_core {
    const struct tunnel_events *events;
    void *arg;
    struct buf *out;    /* the owner's; frames are appended */
    const size_t *sent; /* of its bytes have left */
    bool opens;
    int rc;             /* not 0: the tunnel has failed */
    const char *why;    /* in a sentence */
    struct map streams; /* id -> struct tunnel_stream * */
    struct list waiting;
    uint64_t last_id; /* opened so far */
    bool pinged;      /* a PONG has not come */

    uint8_t head[TUNNEL_FRAME_BYTES]; /* of the frame that is being read */
    uint32_t head_len, data_left;
    uint64_t data_id;
};

/* `out` and `*sent` are read and written until tunnel_core_fini. */
void tunnel_core_init(struct tunnel_core *c, const struct tunnel_events *events, void *arg,
                      bool opens, uint32_t streams_max, struct buf *out, const size_t *sent);
void tunnel_core_fini(struct tunnel_core *c); /* no event is called */

/* Takes all of `in`, however it is cut. -EPROTO, -ENOMEM, -E2BIG: the tunnel has failed, c->why says how. */
int tunnel_core_feed(struct tunnel_core *c, struct str in);

/* Tells that bytes have left `out`: streams that waited for room go on. */
void tunnel_core_sent(struct tunnel_core *c);

int tunnel_core_open(struct tunnel_core *c, struct tunnel_stream *s,
                     uint16_t port); /* -ENOSPC, -ENOMEM */
void tunnel_core_accept(struct tunnel_core *c, struct tunnel_stream *s);

/* Returns room for data of the stream behind a frame's head, *ret_bytes of it, in `out`; NULL: it may send
 * nothing now, and on_credit says when it may. The next call is tunnel_core_data_end. */
char *tunnel_core_data_begin(struct tunnel_core *c, struct tunnel_stream *s, size_t *ret_bytes);
void tunnel_core_data_end(struct tunnel_core *c, struct tunnel_stream *s,
                          size_t bytes); /* 0: none */

void tunnel_core_consumed(struct tunnel_core *c, struct tunnel_stream *s, size_t bytes);
void tunnel_core_end(struct tunnel_core *c, struct tunnel_stream *s);
void tunnel_core_reset(struct tunnel_core *c, struct tunnel_stream *s, enum tunnel_reset why);
void tunnel_core_ping(struct tunnel_core *c);

static inline size_t tunnel_core_unsent(const struct tunnel_core *c)
{
    return c->out->len - *c->sent;
}
