/* tunnel_core.c - reads and writes the frames of a tunnel, and keeps the streams and their credit.
 *
 * Data is handed over in the pieces in which it comes: a frame that is cut by a read is not put together first, so
 * that nothing is copied and a frame costs no memory. */
#include "base/io/tunnel/tunnel_core.h"

#include "base/core/bits.h"
#include "base/core/err.h"

#include <errno.h>
#include <string.h>

void tunnel_core_init(struct tunnel_core *c, const struct tunnel_events *events, void *arg,
                      bool opens, uint32_t streams_max, struct buf *out, const size_t *sent)
{
    *c = (struct tunnel_core){
        .events = events, .arg = arg, .out = out, .sent = sent, .opens = opens
    };
    map_init(&c->streams, sizeof(uint64_t), sizeof(struct tunnel_stream *), streams_max,
             MAP_FOREIGN);
    list_init(&c->waiting);
}

void tunnel_core_fini(struct tunnel_core *c)
{
    map_fini(&c->streams);
}

static void fail(struct tunnel_core *c, int rc, const char *why)
{
    if (c->rc < 0) return;
    c->rc = rc;
    c->why = why;
}

/* ---- writing ---- */

static void put_le(uint8_t *to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_le(const uint8_t *from, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | from[i];
    return value;
}

static void put_head(uint8_t *to, enum tunnel_kind kind, uint64_t id, uint32_t number)
{
    memset(to, 0, TUNNEL_FRAME_BYTES);
    to[0] = (uint8_t)kind;
    put_le(to + 4, number, 4);
    put_le(to + 8, id, 8);
}

static void put_frame(struct tunnel_core *c, enum tunnel_kind kind, uint64_t id, uint32_t number)
{
    uint8_t head[TUNNEL_FRAME_BYTES];
    put_head(head, kind, id, number);
    if (c->rc == 0 && tunnel_core_unsent(c) + sizeof head > TUNNEL_OUT_BYTES_MAX)
        fail(c, -E2BIG, "the peer sends and does not read");
    if (c->rc == 0 && buf_append(c->out, head, sizeof head) < 0)
        fail(c, c->out->rc, "no memory for what is to be sent");
}

/* ---- streams ---- */

static struct tunnel_stream *find(const struct tunnel_core *c, uint64_t id)
{
    struct tunnel_stream **at = map_get(&c->streams, &id);
    return at ? *at : NULL;
}

static int keep(struct tunnel_core *c, struct tunnel_stream *s, uint64_t id)
{
    if (c->streams.count >= c->streams.count_max) return -ENOSPC;
    struct tunnel_stream **at = map_put(&c->streams, &id, NULL);
    if (!at) return -ENOMEM;
    *at = s;
    *s = (struct tunnel_stream){ .id = id, .may_come = TUNNEL_WINDOW };
    return 0;
}

static void forget(struct tunnel_core *c, struct tunnel_stream *s)
{
    if (list_linked(&s->wait)) list_remove(&s->wait);
    map_remove(&c->streams, &s->id);
    s->id = 0;
}

int tunnel_core_open(struct tunnel_core *c, struct tunnel_stream *s, uint16_t port)
{
    must(c->opens);
    if (c->rc < 0) return c->rc;
    int rc = keep(c, s, c->last_id + 1);
    if (rc < 0) return rc;
    c->last_id++;
    put_frame(c, TUNNEL_OPEN, s->id, port);
    return c->rc;
}

void tunnel_core_accept(struct tunnel_core *c, struct tunnel_stream *s)
{
    must(!c->opens && s->id && !s->accepted);
    s->accepted = true;
    s->may_send = TUNNEL_WINDOW;
    put_frame(c, TUNNEL_ACCEPT, s->id, 0);
}

char *tunnel_core_data_begin(struct tunnel_core *c, struct tunnel_stream *s, size_t *ret_bytes)
{
    if (c->rc < 0 || s->id == 0 || s->ended || s->may_send == 0) return NULL;
    if (tunnel_core_unsent(c) >= TUNNEL_OUT_BYTES) {
        if (!list_linked(&s->wait)) list_push_back(&c->waiting, &s->wait);
        return NULL;
    }
    size_t bytes = s->may_send < TUNNEL_DATA_MAX ? s->may_send : TUNNEL_DATA_MAX;
    if (buf_reserve(c->out, TUNNEL_FRAME_BYTES + bytes) < 0) {
        fail(c, c->out->rc, "no memory for what is to be sent");
        return NULL;
    }
    *ret_bytes = bytes;
    return c->out->data + c->out->len + TUNNEL_FRAME_BYTES;
}

void tunnel_core_data_end(struct tunnel_core *c, struct tunnel_stream *s, size_t bytes)
{
    must(bytes <= s->may_send && bytes <= TUNNEL_DATA_MAX);
    if (bytes == 0) return;
    put_head((uint8_t *)c->out->data + c->out->len, TUNNEL_DATA, s->id, (uint32_t)bytes);
    c->out->len += TUNNEL_FRAME_BYTES + bytes;
    c->out->data[c->out->len] = 0;
    s->may_send -= (uint32_t)bytes;
}

/* Grants half a window at once, so that a stream of small pieces does not cost a frame back for each. */
void tunnel_core_consumed(struct tunnel_core *c, struct tunnel_stream *s, size_t bytes)
{
    if (s->id == 0 || s->peer_ended) return;
    s->consumed += (uint32_t)bytes;
    if (s->consumed < TUNNEL_WINDOW / 2) return;
    s->may_come += s->consumed;
    put_frame(c, TUNNEL_WINDOW_MORE, s->id, s->consumed);
    s->consumed = 0;
}

void tunnel_core_end(struct tunnel_core *c, struct tunnel_stream *s)
{
    if (s->id == 0 || s->ended) return;
    s->ended = true;
    if (list_linked(&s->wait)) list_remove(&s->wait);
    put_frame(c, TUNNEL_END, s->id, 0);
    if (s->peer_ended) forget(c, s);
}

void tunnel_core_reset(struct tunnel_core *c, struct tunnel_stream *s, enum tunnel_reset why)
{
    if (s->id == 0) return;
    put_frame(c, TUNNEL_RESET, s->id, why);
    forget(c, s);
}

void tunnel_core_ping(struct tunnel_core *c)
{
    c->pinged = true;
    put_frame(c, TUNNEL_PING, 0, 0);
}

/* One that finds no room again waits behind the others. */
void tunnel_core_sent(struct tunnel_core *c)
{
    size_t most = c->streams.count; /* each gets one turn, whatever on_credit does */
    while (most-- > 0 && !list_empty(&c->waiting) && tunnel_core_unsent(c) < TUNNEL_OUT_BYTES) {
        struct list *node = list_pop_front(&c->waiting);
        c->events->on_credit(c->arg, CONTAINER_OF(node, struct tunnel_stream, wait));
    }
}

/* ---- reading ---- */

static void take_open(struct tunnel_core *c, uint64_t id, uint32_t port)
{
    enum tunnel_reset why = TUNNEL_RESET_FULL;
    if (c->opens || id <= c->last_id || port > UINT16_MAX) {
        fail(c, -EPROTO, "the peer opened a stream that it may not open");
        return;
    }
    c->last_id = id;
    struct tunnel_stream *s = NULL;
    if (c->streams.count < c->streams.count_max)
        s = c->events->on_open(c->arg, (uint16_t)port, &why);
    if (s && keep(c, s, id) < 0) {
        c->events->on_reset(c->arg, s, TUNNEL_RESET_FULL);
        s = NULL;
    }
    if (!s) put_frame(c, TUNNEL_RESET, id, why);
}

static void take_accept(struct tunnel_core *c, struct tunnel_stream *s)
{
    if (!c->opens || s->accepted) {
        fail(c, -EPROTO, "the peer accepted a stream that it may not accept");
        return;
    }
    s->accepted = true;
    s->may_send = TUNNEL_WINDOW;
    c->events->on_credit(c->arg, s);
}

static void take_data_head(struct tunnel_core *c, struct tunnel_stream *s, uint64_t id,
                           uint32_t bytes)
{
    if (bytes == 0 || bytes > TUNNEL_DATA_MAX) {
        fail(c, -EPROTO, "the peer sent a frame of a length that it may not have");
        return;
    }
    if (s && (!s->accepted || s->peer_ended || bytes > s->may_come)) {
        fail(c, -EPROTO, "the peer sent more of a stream than it may");
        return;
    }
    if (s) s->may_come -= bytes;
    c->data_id = id;
    c->data_left = bytes;
}

static void take_window(struct tunnel_core *c, struct tunnel_stream *s, uint32_t bytes)
{
    if (bytes == 0 || !s->accepted || bytes > TUNNEL_WINDOW - s->may_send) {
        fail(c, -EPROTO, "the peer granted more than it has room for");
        return;
    }
    s->may_send += bytes;
    if (!s->ended) c->events->on_credit(c->arg, s);
}

static void take_end(struct tunnel_core *c, struct tunnel_stream *s)
{
    if (s->peer_ended) {
        fail(c, -EPROTO, "the peer ended a stream twice");
        return;
    }
    s->peer_ended = true;
    c->events->on_end(c->arg, s);
    if (s->id && s->ended) forget(c, s);
}

static void take_reset(struct tunnel_core *c, struct tunnel_stream *s, uint32_t why)
{
    forget(c, s);
    c->events->on_reset(c->arg, s,
                        why < TUNNEL_RESET_COUNT ? (enum tunnel_reset)why : TUNNEL_RESET_CUT);
}

static void take_of_stream(struct tunnel_core *c, enum tunnel_kind kind, uint64_t id,
                           uint32_t number)
{
    struct tunnel_stream *s = find(c, id);
    if (id == 0 || id > c->last_id)
        fail(c, -EPROTO, "the peer speaks of a stream that nobody opened");
    else if (kind == TUNNEL_DATA)
        take_data_head(c, s, id, number);
    else if (!s)
        return; /* it was under way when the stream went */
    else if (kind == TUNNEL_ACCEPT)
        take_accept(c, s);
    else if (kind == TUNNEL_WINDOW_MORE)
        take_window(c, s, number);
    else if (kind == TUNNEL_END)
        take_end(c, s);
    else
        take_reset(c, s, number);
}

static void take_frame(struct tunnel_core *c)
{
    const uint8_t *h = c->head;
    const uint32_t number = (uint32_t)get_le(h + 4, 4);
    const uint64_t id = get_le(h + 8, 8);
    if (h[0] == 0 || h[0] >= TUNNEL_KIND_END || h[1] || h[2] || h[3])
        fail(c, -EPROTO, "the peer sent what is no frame of a tunnel");
    else if (h[0] == TUNNEL_OPEN)
        take_open(c, id, number);
    else if (h[0] == TUNNEL_PING)
        put_frame(c, TUNNEL_PONG, 0, number);
    else if (h[0] == TUNNEL_PONG)
        c->pinged = false;
    else
        take_of_stream(c, (enum tunnel_kind)h[0], id, number);
}

int tunnel_core_feed(struct tunnel_core *c, struct str in)
{
    while (c->rc == 0 && in.len > 0) {
        size_t n;
        if (c->data_left > 0) {
            n = min_size(c->data_left, in.len);
            c->data_left -= (uint32_t)n;
            struct tunnel_stream *s = find(c, c->data_id);
            if (s) c->events->on_data(c->arg, s, str_of(in.data, n));
        } else {
            n = min_size(TUNNEL_FRAME_BYTES - c->head_len, in.len);
            memcpy(c->head + c->head_len, in.data, n);
            c->head_len += (uint32_t)n;
            if (c->head_len == TUNNEL_FRAME_BYTES) {
                c->head_len = 0;
                take_frame(c);
            }
        }
        in = str_of(in.data + n, in.len - n);
    }
    return c->rc;
}
