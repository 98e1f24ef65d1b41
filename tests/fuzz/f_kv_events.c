/* f_kv_events.c - reads any bytes as a ZMTP connection or as a batch of KV events; the first byte selects which.
 *
 * A connection gives the same messages however its bytes are cut, and ends with a sentence where it is refused. Batches
 * go into a view of a few blocks: a follower that applies its changes has the keys that a walk over it gives. A value
 * that is skipped and one that is read as bytes end at the same place. */
#include "agent/core/kv_view.h"
#include "agent/core/zmtp.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "tests/fuzz/fuzz.h"

#define BLOCKS_MAX 32

/* ---- a connection ---- */

struct session {
    int rc;
    enum zmtp_state state;
    uint32_t messages;
    uint64_t hash; /* of all parts */
    size_t sent;
};

static void take_message(struct session *s, const struct zmtp_message *m)
{
    must(m->part_count >= 1 && m->part_count <= ZMTP_PARTS_MAX);
    s->messages++;
    for (uint32_t i = 0; i < m->part_count; i++)
        s->hash = hash64(m->part[i].data, m->part[i].len, s->hash + i);
}

static struct session run_session(enum zmtp_role role, struct str bytes, size_t step)
{
    CLEANUP(buf_fini) struct buf in = { 0 }, out = { 0 };
    struct session s = { 0 };
    struct zmtp z;
    struct err err = { "" };
    zmtp_begin(&z, role, &out);
    for (size_t at = 0; at < bytes.len && s.rc >= 0; at += step) {
        must(buf_append(&in, bytes.data + at, bytes.len - at < step ? bytes.len - at : step) == 0);
        for (bool more = true; more && s.rc >= 0;) {
            struct zmtp_message m;
            size_t used;
            s.rc = zmtp_take(&z, buf_view(&in), STR("t"), &used, &m, &out, &err);
            if (s.rc < 0) break;
            must(used <= in.len);
            if (s.rc > 0) take_message(&s, &m);
            buf_consume(&in, used);
            more = s.rc > 0 || used > 0;
        }
    }
    must(s.rc >= 0 || err.text[0]);
    s.rc = s.rc < 0 ? s.rc : 0;
    s.state = z.state;
    s.sent = out.len;
    return s;
}

static void read_connection(enum zmtp_role role, struct str bytes, size_t step)
{
    struct session whole = run_session(role, bytes, bytes.len + 1);
    struct session cut = run_session(role, bytes, step);
    must(whole.rc == cut.rc && whole.state == cut.state && whole.sent == cut.sent);
    must(whole.messages == cut.messages && whole.hash == cut.hash);
}

/* ---- batches ---- */

static uint64_t mark_of(struct block_key k)
{
    return hash64(&k, sizeof k, 5);
}

/* Follows the view from *seq on; `mark` is the exclusive or of the keys' marks. */
static void follow(const struct kv_view *v, uint64_t *seq, uint64_t *mark, uint32_t *count)
{
    struct kv_change change[64];
    int n;
    while ((n = kv_view_since(v, *seq, change, 64)) > 0) {
        for (int i = 0; i < n; i++) {
            *mark ^= mark_of(change[i].key);
            *count += change[i].add ? 1 : UINT32_MAX;
        }
        *seq += (uint64_t)n;
    }
    if (n == 0) return;
    *mark = 0; /* behind the ring, or cleared: a snapshot */
    *count = 0;
    size_t cursor = 0;
    for (struct block_key k; kv_view_next(v, &cursor, &k); ++*count)
        *mark ^= mark_of(k);
    *seq = kv_view_seq(v);
}

static void check_view(const struct kv_view *v, uint64_t mark, uint32_t count)
{
    struct kv_view_counts c;
    uint64_t walked = 0;
    uint32_t keys = 0;
    size_t cursor = 0;
    for (struct block_key k; kv_view_next(v, &cursor, &k); keys++)
        walked ^= mark_of(k);
    kv_view_counts(v, &c);
    must(c.blocks <= BLOCKS_MAX && c.keys == keys);
    must(count == keys && mark == walked);
}

static void apply_batch(struct kv_view *v, struct str payload)
{
    struct engine_kv_batch batch;
    struct engine_kv_event ev;
    struct err err = { "" };
    int rc = engine_kv_batch_begin(&batch, payload, &err);
    must(rc == 0 || (rc == -EINVAL && err.text[0]));
    while (rc == 0 && (rc = engine_kv_batch_next(&batch, &ev, &err)) > 0)
        rc = kv_view_apply(v, &ev);
    must(rc == 0 || rc == -EINVAL);
    if (rc < 0) kv_view_clear(v);
}

static void read_value(struct str bytes)
{
    struct msgpack_reader skips, takes;
    struct str raw = { 0 };
    msgpack_reader_init(&skips, bytes);
    msgpack_reader_init(&takes, bytes);
    int rc = msgpack_skip(&skips);
    must(rc == msgpack_raw(&takes, &raw));
    must(rc < 0 || (skips.pos == takes.pos && raw.len == skips.pos && raw.len <= bytes.len));
}

/* Reads batches that follow each other, each behind its length. */
static void read_batches(struct fuzz_choices *c)
{
    struct kv_view *v;
    uint64_t seq = 0, mark = 0;
    uint32_t count = 0;
    must(kv_view_new(3, STR("d"), BLOCKS_MAX, &v, NULL) == 0);
    while (c->len > 0) {
        struct str payload = fuzz_bytes(c, fuzz_u16(c));
        read_value(payload);
        apply_batch(v, payload);
        follow(v, &seq, &mark, &count);
        check_view(v, mark, count);
    }
    kv_view_free(v);
}

const struct fuzz_cost fuzz_cost = { 200000, 4000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct fuzz_choices c = { data, len };
    uint32_t what = fuzz_below(&c, 3);
    if (what == 0) {
        read_batches(&c);
        return;
    }
    size_t step = 1 + fuzz_below(&c, 200);
    read_connection(what == 1 ? ZMTP_SUB : ZMTP_DEALER, str_of(c.data, c.len), step);
}
