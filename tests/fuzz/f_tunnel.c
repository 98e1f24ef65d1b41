/* f_tunnel.c - feeds any bytes to one end of a tunnel, and any sequence of operations to two honest ends.
 *
 * Besides not crashing it must hold that (1) where the bytes are cut changes nothing; (2) an end that has failed
 * says why and writes nothing more; (3) two ends that keep the rules never fail each other, lose, reorder or add
 * no byte, and hold no more of a stream than its window. */
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/tunnel/tunnel_core.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define STREAMS 4
#define CUTS_MAX 1024 /* of what one end sends at once: more single bytes show no more */

struct side {
    struct tunnel_core core;
    struct buf out;
    size_t sent;
    struct tunnel_stream stream[STREAMS];
    uint32_t used;
    uint64_t log; /* of all events; data as if it came byte by byte */
    /* honest ends */
    struct side *peer;
    uint8_t wrote[STREAMS], read[STREAMS]; /* the next byte of each stream */
    uint32_t held[STREAMS];                /* received and not consumed */
};

static void note(struct side *s, uint64_t what)
{
    s->log = (s->log ^ what) * 0x9e3779b97f4a7c15u;
    s->log ^= s->log >> 29;
}

static size_t at(const struct side *s, const struct tunnel_stream *t)
{
    return (size_t)(t - s->stream);
}

static struct tunnel_stream *on_open(void *arg, uint16_t port, enum tunnel_reset *ret_why)
{
    struct side *s = arg;
    note(s, 0x10000u + port);
    *ret_why = TUNNEL_RESET_REFUSED;
    return s->used < STREAMS ? &s->stream[s->used++] : NULL;
}

static void on_data(void *arg, struct tunnel_stream *t, struct str data)
{
    struct side *s = arg;
    size_t i = at(s, t);
    for (size_t k = 0; k < data.len; k++) {
        note(s, 0x20000u + i * 256 + (uint8_t)data.data[k]);
        if (s->peer) must((uint8_t)data.data[k] == s->read[i]++);
    }
    s->held[i] += (uint32_t)data.len;
    must(s->held[i] <= TUNNEL_WINDOW);
}

static void on_credit(void *arg, struct tunnel_stream *t)
{
    note(arg, 0x30000u + at(arg, t));
}

static void on_end(void *arg, struct tunnel_stream *t)
{
    note(arg, 0x40000u + at(arg, t));
}

static void on_reset(void *arg, struct tunnel_stream *t, enum tunnel_reset why)
{
    must(t->id == 0);
    note(arg, 0x50000u + at(arg, t) * 16 + why);
}

static const struct tunnel_events events = { on_open, on_data, on_credit, on_end, on_reset };

static void begin(struct side *s, bool opens, struct side *peer)
{
    *s = (struct side){ .peer = peer };
    tunnel_core_init(&s->core, &events, s, opens, STREAMS, &s->out, &s->sent);
}

static void finish(struct side *s)
{
    tunnel_core_fini(&s->core);
    buf_fini(&s->out);
}

/* ---- any bytes ---- */

static void feed(struct side *s, struct str in, size_t step, bool opens)
{
    begin(s, opens, NULL);
    if (opens) {
        must(tunnel_core_open(&s->core, &s->stream[s->used++], 8200) == 0);
        must(tunnel_core_open(&s->core, &s->stream[s->used++], 8200) == 0);
    }
    int rc = 0;
    for (size_t pos = 0; rc == 0 && pos < in.len; pos += step) {
        size_t n = step < in.len - pos ? step : in.len - pos;
        rc = tunnel_core_feed(&s->core, str_of(in.data + pos, n));
    }
    must(rc == s->core.rc && (rc == 0) == (s->core.why == NULL));
    size_t before = s->out.len;
    if (rc < 0) {
        tunnel_core_ping(&s->core);
        must(tunnel_core_feed(&s->core, in) == rc && s->out.len == before);
    }
}

static void any_bytes(struct str in, size_t step, bool opens)
{
    struct side whole, cut;
    feed(&whole, in, in.len + 1, opens);
    feed(&cut, in, step, opens);
    must(whole.core.rc == cut.core.rc && whole.log == cut.log && whole.used == cut.used);
    must(str_eq(buf_view(&whole.out), buf_view(&cut.out)));
    finish(&whole);
    finish(&cut);
}

/* ---- two honest ends ---- */

static void carry(struct side *from, struct side *to, size_t step)
{
    CLEANUP(buf_fini) struct buf way = from->out;
    from->out = (struct buf){ 0 };
    from->sent = 0;
    if (way.len / step > CUTS_MAX) step = way.len / CUTS_MAX + 1;
    for (size_t pos = 0; pos < way.len; pos += step) {
        size_t n = step < way.len - pos ? step : way.len - pos;
        must(tunnel_core_feed(&to->core, str_of(way.data + pos, n)) == 0);
    }
}

static void write_some(struct side *s, size_t i, size_t bytes)
{
    size_t room;
    char *to = tunnel_core_data_begin(&s->core, &s->stream[i], &room);
    if (!to) return;
    if (bytes > room) bytes = room;
    for (size_t k = 0; k < bytes; k++)
        to[k] = (char)s->wrote[i]++;
    tunnel_core_data_end(&s->core, &s->stream[i], bytes);
}

static void operate(struct side *s, struct fuzz_choices *c)
{
    uint8_t what = fuzz_u8(c);
    size_t i = what >> 4 & 3;
    struct tunnel_stream *t = &s->stream[i];
    uint32_t bytes;
    switch (what & 7) {
    case 0:
        if (s->core.opens && s->used < STREAMS)
            must(tunnel_core_open(&s->core, &s->stream[s->used++], 8200) == 0);
        break;
    case 1:
        if (!s->core.opens && t->id && !t->accepted) tunnel_core_accept(&s->core, t);
        break;
    case 2:
    case 3:
        write_some(s, i, fuzz_u16(c) >> 2);
        break;
    case 4:
        bytes = s->held[i];
        if (what & 8) bytes /= 2;
        s->held[i] -= bytes;
        tunnel_core_consumed(&s->core, t, bytes);
        break;
    case 5:
        tunnel_core_end(&s->core, t);
        break;
    case 6:
        tunnel_core_reset(&s->core, t, TUNNEL_RESET_CUT);
        break;
    default:
        carry(s, s->peer, 1 + (what >> 3) * 97u);
    }
}

static void honest(struct fuzz_choices *c)
{
    struct side a, b;
    begin(&a, true, &b);
    begin(&b, false, &a);
    while (c->len > 0) {
        struct side *s = fuzz_u8(c) & 1 ? &a : &b;
        operate(s, c);
        must(a.core.rc == 0 && b.core.rc == 0);
    }
    for (int i = 0; i < 4; i++) {
        carry(&a, &b, 4096);
        carry(&b, &a, 4096);
    }
    /* All that was sent has come, or its stream was reset. */
    for (size_t i = 0; i < a.used; i++) {
        if (a.stream[i].id && !a.stream[i].peer_ended) must(a.read[i] == b.wrote[i]);
        if (b.stream[i].id && !b.stream[i].peer_ended) must(b.read[i] == a.wrote[i]);
    }
    finish(&a);
    finish(&b);
}

const struct fuzz_cost fuzz_cost = { 40000, 120000 };

void fuzz_one(const uint8_t *data, size_t size)
{
    if (size < 2) return;
    struct fuzz_choices c = { data + 1, size - 1 };
    if (data[0] & 1)
        honest(&c);
    else
        any_bytes(str_of(data + 1, size - 1), 1 + data[0] % 61, data[0] & 2);
}
