/* t_kv_view.c - tests the way from an engine's bytes to our block keys: ZMTP frames, KV events, the view.
 *
 * The bytes of a real session are vLLM 0.32's own (tests/vectors/engines): its greeting, its READY and what it
 * published for three chats, one of them with a cache salt, two long prompts that evict blocks, and two
 * resets of the cache. */
#include "agent/core/kv_view.h"
#include "agent/core/zmtp.h"
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define SESSION "tests/vectors/engines/vllm-0.32-kv-events.zmtp"
#define SEED 7
#define DIGEST STR("0123456789abcdef")

static struct str read_session(struct buf *text)
{
    FILE *f = fopen(SESSION, "rb");
    char piece[4096];
    if (!f) fail_msg("%s is not here", SESSION);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_append(text, piece, n);
    fclose(f);
    assert_int_equal(text->rc, 0);
    return buf_view(text);
}

/* ---- frames ---- */

/* Feeds bytes in pieces of `step`, as a connection does; calls fn for each message. */
static int feed(struct zmtp *z, struct str bytes, size_t step, struct buf *sent,
                int (*fn)(void *arg, const struct zmtp_message *m), void *arg, struct err *err)
{
    CLEANUP(buf_fini) struct buf in = { 0 };
    for (size_t at = 0; at < bytes.len; at += step) {
        buf_append(&in, bytes.data + at, min_size(step, bytes.len - at));
        for (;;) {
            struct zmtp_message m;
            size_t used;
            int rc = zmtp_take(z, buf_view(&in), STR("kv"), &used, &m, sent, err);
            if (rc > 0 && fn) rc = fn(arg, &m) < 0 ? -1 : 1;
            if (rc < 0) return rc;
            buf_consume(&in, used);
            if (rc == 0 && used == 0) break;
        }
    }
    return 0;
}

static int count_message(void *arg, const struct zmtp_message *m)
{
    uint32_t *count = arg;
    assert_int_equal(m->part_count, 3);
    assert_true(str_eq(m->part[0], STR("kv")));
    assert_int_equal(m->part[1].len, 8);
    ++*count;
    return 0;
}

static void a_real_session_is_read_in_pieces_of_any_size(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str all = read_session(&text);
    static const size_t steps[] = { 1, 2, 3, 7, 64, 65, 100, 1000, 100000 };
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        CLEANUP(buf_fini) struct buf sent = { 0 };
        struct zmtp z;
        struct err err = { "" };
        uint32_t count = 0;
        zmtp_begin(&z, ZMTP_SUB, &sent);
        if (feed(&z, all, steps[i], &sent, count_message, &count, &err) < 0)
            fail_msg("in pieces of %zu: %s", steps[i], err.text);
        assert_int_equal(count, 7);
        assert_int_equal(z.state, ZMTP_OPEN);
        /* our greeting, READY with our type, and the subscription as a message of version 3.0 */
        assert_int_equal(sent.len, 64 + 27 + 5);
        assert_memory_equal(sent.data + 64, "\x04\x19\x05READY\x0bSocket-Type\0\0\0\3SUB", 27);
        assert_memory_equal(sent.data + 91, "\x00\x03\x01kv", 5);
    }
}

#define GREETING                                                                                 \
    "\xff\0\0\0\0\0\0\0\0\x7f\3\1NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" \
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define READY_PUB "\x04\x19\x05READY\x0bSocket-Type\0\0\0\3PUB"
#define BYTES(text)                  \
    {                                \
        "" text, sizeof("" text) - 1 \
    }

static void peers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        struct str bytes;
        const char *says;
    } rows[] = {
        { "an HTTP server",
          BYTES("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n....."),
          "the peer does not speak ZMTP" },
        { "ZMTP 2",
          BYTES("\xff\0\0\0\0\0\0\0\1\x7f\1\1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                "aaa"),
          "the peer speaks ZMTP 1; want 3" },
        { "a password",
          BYTES("\xff\0\0\0\0\0\0\0\1\x7f\3\1PLAIN\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                "\0\0\0\0\0\0\0"
                "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
          "the peer asks for authentication; want the mechanism NULL" },
        { "another socket", BYTES(GREETING "\x04\x1a\x05READY\x0bSocket-Type\0\0\0\4PULL"),
          "the peer's socket is no PUB" },
        { "READY without a type", BYTES(GREETING "\x04\x06\x05READY"),
          "the peer's socket is no PUB" },
        { "a property that is cut",
          BYTES(GREETING "\x04\x1b\x05READY\x0bSocket-Type\0\0\0\3PUB\x01x"),
          "the peer's socket is no PUB" },
        { "ERROR",
          BYTES(GREETING "\x04\x0a\x05"
                         "ERROR\x03why"),
          "the peer refuses the connection" },
        { "a message first", BYTES(GREETING "\x00\x01x"), "a message before READY" },
        { "unknown flags", BYTES(GREETING READY_PUB "\x08\x01x"),
          "a frame with unknown flags 0x08" },
        { "a frame of 1 TiB", BYTES(GREETING READY_PUB "\x02\0\0\1\0\0\0\0\0"),
          "a frame of more than 8388608 bytes" },
        { "a command within a message", BYTES(GREETING READY_PUB "\x01\x01x\x04\x05\x04PING"),
          "a command within a message" },
        { "nine parts", BYTES(GREETING READY_PUB "\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0"),
          "a message of more than 8 parts" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf sent = { 0 };
        struct zmtp z;
        struct err err = { "" };
        zmtp_begin(&z, ZMTP_SUB, &sent);
        if (feed(&z, rows[i].bytes, 1, &sent, NULL, NULL, &err) != -EPROTO)
            fail_msg("%s: accepted", rows[i].why);
        if (strcmp(err.text, rows[i].says) != 0) fail_msg("%s: '%s'", rows[i].why, err.text);
    }
}

static void pings_are_answered(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf sent = { 0 };
    struct zmtp z;
    struct err err = { "" };
    zmtp_begin(&z, ZMTP_SUB, &sent);
    struct str bytes = BYTES(GREETING READY_PUB "\x04\x09\x04PING\0\x0a"
                                                "ab"
                                                "\x04\x06\x05OTHER");
    assert_int_equal(feed(&z, bytes, 3, &sent, NULL, NULL, &err), 0);
    assert_int_equal(sent.len, 64 + 27 + 5 + 9); /* and nothing for a command that we do not know */
    assert_memory_equal(sent.data + 96, "\x04\x07\x04PONGab", 9);
}

/* ---- events ---- */

/* A batch is written here by hand: MessagePack of the few forms that are needed. */
static void put(struct buf *out, const char *text)
{
    buf_byte(out, (char)(0xa0 | strlen(text)));
    buf_text(out, text);
}

static void put_number(struct buf *out, uint64_t v)
{
    buf_byte(out, (char)0xcf);
    for (int shift = 56; shift >= 0; shift -= 8)
        buf_byte(out, (char)(v >> shift));
}

static void put_list(struct buf *out, uint32_t count)
{
    buf_byte(out, (char)0xdc);
    buf_byte(out, (char)(count >> 8));
    buf_byte(out, (char)count);
}

static void put_numbers(struct buf *out, const uint64_t *v, uint32_t count)
{
    put_list(out, count);
    for (uint32_t i = 0; i < count; i++)
        put_number(out, v[i]);
}

/* One BlockStored in either form. */
struct stored {
    bool array;
    const uint64_t *hash;
    uint32_t count;
    uint64_t parent; /* 0: none */
    const uint32_t *token;
    uint32_t block_tokens;
    const char *medium, *lora, *salt; /* NULL: nil */
    uint32_t group;
    bool image; /* the first block's hash covers one */
};

static void put_or_nil(struct buf *out, const char *text)
{
    if (text)
        put(out, text);
    else
        buf_byte(out, (char)0xc0);
}

static void key(struct buf *out, const struct stored *s, const char *name)
{
    if (!s->array) put(out, name);
}

static void put_extras(struct buf *out, const struct stored *s)
{
    put_list(out, s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        if (i > 0 || (!s->salt && !s->image)) {
            buf_byte(out, (char)0xc0);
            continue;
        }
        buf_byte(out, (char)(s->image ? 0x92 : 0x91));
        if (s->image) {
            put(out, "image");
            buf_byte(out, 5);
        } else {
            put(out, s->salt);
        }
    }
}

static void put_stored(struct buf *out, const struct stored *s)
{
    buf_byte(out, (char)(s->array ? 0x9a : 0x8a));
    if (!s->array) put(out, "type");
    put(out, "BlockStored");
    key(out, s, "block_hashes");
    put_numbers(out, s->hash, s->count);
    key(out, s, "parent_block_hash");
    if (s->parent)
        put_number(out, s->parent);
    else
        buf_byte(out, (char)0xc0);
    key(out, s, "token_ids");
    put_list(out, s->count * s->block_tokens);
    for (uint32_t i = 0; i < s->count * s->block_tokens; i++)
        put_number(out, s->token[i]);
    key(out, s, "block_size");
    put_number(out, s->block_tokens);
    key(out, s, "lora_id");
    buf_byte(out, (char)0xc0);
    key(out, s, "medium");
    put_or_nil(out, s->medium);
    key(out, s, "lora_name");
    put_or_nil(out, s->lora);
    key(out, s, "extra_keys");
    put_extras(out, s);
    key(out, s, "group_idx");
    put_number(out, s->group);
}

static void put_removed(struct buf *out, bool array, uint64_t hash)
{
    buf_byte(out, (char)(array ? 0x92 : 0x82));
    if (!array) put(out, "type");
    put(out, "BlockRemoved");
    if (!array) put(out, "block_hashes");
    put_numbers(out, &hash, 1);
}

static int apply(struct kv_view *v, struct str payload, struct err *err)
{
    struct engine_kv_batch batch;
    struct engine_kv_event ev;
    int rc = engine_kv_batch_begin(&batch, payload, err);
    while (rc == 0 && (rc = engine_kv_batch_next(&batch, &ev, err)) > 0)
        rc = kv_view_apply(v, &ev);
    return rc;
}

/* Applies one event in a batch of either form. */
static int apply_event(struct kv_view *v, bool map, struct str event, struct err *err)
{
    CLEANUP(buf_fini) struct buf batch = { 0 };
    buf_byte(&batch, (char)(map ? 0x83 : 0x93));
    if (map) put(&batch, "ts");
    buf_append(&batch, "\xcb\x41\xda\xc1\x60\0\0\0\0", 9);
    if (map) put(&batch, "events");
    buf_byte(&batch, (char)0x91);
    buf_str(&batch, event);
    if (map) put(&batch, "data_parallel_rank");
    buf_byte(&batch, 0);
    return apply(v, buf_view(&batch), err);
}

static struct kv_view *view_new(uint32_t blocks_max)
{
    struct kv_view *v;
    assert_int_equal(kv_view_new(SEED, DIGEST, blocks_max, &v, NULL), 0);
    return v;
}

static bool has(const struct kv_view *v, struct block_key key)
{
    struct block_key k;
    for (size_t cursor = 0; kv_view_next(v, &cursor, &k);)
        if (block_key_eq(k, key)) return true;
    return false;
}

static uint32_t key_count(const struct kv_view *v)
{
    struct kv_view_counts c;
    kv_view_counts(v, &c);
    return c.keys;
}

/* Returns how many keys of this prompt the view has from its beginning on. */
static uint32_t hit_blocks(const struct kv_view *v, const char *tenant, const uint32_t *ids,
                           uint32_t count)
{
    struct block_key keys[512];
    struct str none = { 0 };
    uint32_t n = block_keys(SEED, block_salt(SEED, DIGEST, none, str_from(tenant)), ids, count,
                            keys, COUNT_OF(keys));
    uint32_t hit = 0;
    while (hit < n && has(v, keys[hit]))
        hit++;
    return hit;
}

static void ids_of(uint32_t *ret, uint32_t count, uint32_t from)
{
    for (uint32_t i = 0; i < count; i++)
        ret[i] = from + i;
}

/* ---- the view: sizes of blocks, forms, chains ---- */

static void store(struct kv_view *v, const struct stored *s, bool map)
{
    CLEANUP(buf_fini) struct buf event = { 0 };
    struct err err = { "" };
    put_stored(&event, s);
    int rc = apply_event(v, map, buf_view(&event), &err);
    if (rc < 0) fail_msg("%d %s", rc, err.text);
}

static void drop(struct kv_view *v, bool array, uint64_t hash)
{
    CLEANUP(buf_fini) struct buf event = { 0 };
    put_removed(&event, array, hash);
    assert_int_equal(apply_event(v, !array, buf_view(&event), NULL), 0);
}

/* An engine's blocks of any size make the keys that a router chains from the same tokens. */
static void blocks_of_any_size_make_our_keys(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 1, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256 };
    uint32_t ids[768];
    ids_of(ids, COUNT_OF(ids), 3);
    for (size_t i = 0; i < COUNT_OF(sizes) * 2; i++) {
        const uint32_t size = sizes[i / 2], blocks = COUNT_OF(ids) / size;
        struct kv_view *v = view_new(10000);
        uint64_t hash[768];
        for (uint32_t b = 0; b < blocks; b++)
            hash[b] = 1000 + b;
        uint32_t first = blocks / 2 + 1; /* in two events, the second on the first one's end */
        struct stored s = {
            .array = i % 2, .hash = hash, .count = first, .token = ids, .block_tokens = size
        };
        store(v, &s, i % 2);
        if (hit_blocks(v, "", ids, COUNT_OF(ids)) != first * size / BLOCK_TOKENS)
            fail_msg("blocks of %u: %u keys of the first %u", size,
                     hit_blocks(v, "", ids, COUNT_OF(ids)), first);
        s = (struct stored){ .array = i % 2,
                             .hash = hash + first,
                             .count = blocks - first,
                             .parent = hash[first - 1],
                             .token = ids + first * size,
                             .block_tokens = size };
        if (s.count > 0) store(v, &s, i % 2);
        if (hit_blocks(v, "", ids, COUNT_OF(ids)) != blocks * size / BLOCK_TOKENS)
            fail_msg("blocks of %u: %u keys of all", size, hit_blocks(v, "", ids, COUNT_OF(ids)));
        for (uint32_t b = blocks; b-- > 0;)
            drop(v, i % 2, hash[b]);
        assert_int_equal(key_count(v), 0);
        kv_view_free(v);
    }
}

static void repeated_blocks_are_copies(void **state)
{
    (void)state;
    struct kv_view *v = view_new(100);
    uint32_t ids[64];
    uint64_t hash[] = { 1, 2 };
    ids_of(ids, 64, 0);
    const struct stored s = { .hash = hash, .count = 2, .token = ids, .block_tokens = 32 };
    store(v, &s, false);
    uint64_t seq = kv_view_seq(v);
    store(v, &s, false);
    assert_int_equal(kv_view_seq(v), seq); /* nothing that a router would be told */
    drop(v, false, 2);
    assert_int_equal(hit_blocks(v, "", ids, 64), 4); /* its other copy is there */
    drop(v, false, 2);
    assert_int_equal(hit_blocks(v, "", ids, 64), 2);
    drop(v, false, 2); /* unknown by now */
    drop(v, false, 1);
    drop(v, false, 1);
    assert_int_equal(key_count(v), 0);
    kv_view_free(v);
}

static void tenants_have_caches_of_their_own(void **state)
{
    (void)state;
    struct kv_view *v = view_new(100);
    uint32_t ids[32];
    uint64_t a = 1, b = 2;
    ids_of(ids, 32, 9);
    store(v,
          &(struct stored){ .hash = &a, .count = 1, .token = ids, .block_tokens = 32, .salt = "t" },
          0);
    assert_int_equal(hit_blocks(v, "t", ids, 32), 2);
    assert_int_equal(hit_blocks(v, "", ids, 32), 0);
    store(v, &(struct stored){ .hash = &b, .count = 1, .token = ids, .block_tokens = 32 }, 0);
    assert_int_equal(hit_blocks(v, "", ids, 32), 2);
    drop(v, false, a);
    assert_int_equal(hit_blocks(v, "t", ids, 32), 0);
    assert_int_equal(hit_blocks(v, "", ids, 32), 2);
    kv_view_free(v);
}

static void what_no_router_asks_for_is_left_out(void **state)
{
    (void)state;
    uint32_t ids[32];
    uint64_t hash = 1;
    ids_of(ids, 32, 0);
    const struct stored plain = { .hash = &hash, .count = 1, .token = ids, .block_tokens = 32 };
    struct {
        const char *why;
        struct stored s;
        bool taken;
    } rows[] = {
        { "the device is called GPU", plain, true },
        { "or device", plain, true },
        { "host memory", plain, false },
        { "an adapter", plain, false },
        { "another group of layers", plain, false },
        { "an image", plain, false },
        { "an unknown parent", plain, false },
    };
    rows[0].s.medium = "GPU";
    rows[1].s.medium = "device";
    rows[2].s.medium = "CPU";
    rows[3].s.lora = "tl";
    rows[4].s.group = 1;
    rows[5].s.image = true;
    rows[6].s.parent = 77;
    for (size_t i = 0; i < COUNT_OF(rows) * 2; i++) {
        struct kv_view *v = view_new(100);
        struct kv_view_counts c;
        rows[i / 2].s.array = i % 2;
        store(v, &rows[i / 2].s, i % 2);
        kv_view_counts(v, &c);
        if ((c.keys > 0) != rows[i / 2].taken) fail_msg("%s: %u keys", rows[i / 2].why, c.keys);
        if (!rows[i / 2].taken && c.orphans + c.unsupported != 1)
            fail_msg("%s: not counted", rows[i / 2].why);
        kv_view_free(v);
    }
}

static void the_bound_is_kept(void **state)
{
    (void)state;
    struct kv_view *v = view_new(3);
    struct kv_view_counts c;
    uint32_t ids[5 * 16];
    uint64_t hash[] = { 1, 2, 3, 4, 5 };
    ids_of(ids, COUNT_OF(ids), 0);
    store(v, &(struct stored){ .hash = hash, .count = 5, .token = ids, .block_tokens = 16 }, 0);
    kv_view_counts(v, &c);
    assert_int_equal(c.blocks, 3);
    assert_int_equal(c.full, 2);
    assert_int_equal(hit_blocks(v, "", ids, COUNT_OF(ids)), 3);
    kv_view_free(v);
}

/* ---- followers ---- */

static void a_follower_sees_every_change_or_needs_a_snapshot(void **state)
{
    (void)state;
    struct kv_view *v = view_new(KV_VIEW_RING * 2);
    struct kv_change change[8];
    uint32_t ids[16];
    uint64_t start = kv_view_seq(v);
    ids_of(ids, 16, 0);
    for (uint64_t h = 1; h <= 3; h++) {
        ids[0] = (uint32_t)h;
        store(v, &(struct stored){ .hash = &h, .count = 1, .token = ids, .block_tokens = 16 }, 0);
    }
    drop(v, false, 2);
    assert_int_equal(kv_view_since(v, start, change, 8), 4);
    assert_true(change[0].add && change[1].add && change[2].add && !change[3].add);
    assert_true(block_key_eq(change[3].key, change[1].key));
    assert_int_equal(kv_view_since(v, start, change, 2), 2);
    assert_int_equal(kv_view_since(v, start + 4, change, 8), 0);
    assert_int_equal(kv_view_since(v, start + 5, change, 8), -ENOENT); /* of another life */
    for (uint64_t h = 10; h < 10 + KV_VIEW_RING; h++) {
        ids[0] = (uint32_t)h;
        store(v, &(struct stored){ .hash = &h, .count = 1, .token = ids, .block_tokens = 16 }, 0);
    }
    assert_int_equal(kv_view_since(v, start + 3, change, 8), -ENOENT); /* fell out of the ring */
    assert_int_equal(kv_view_since(v, start + 4, change, 8), 8);
    uint64_t before = kv_view_seq(v);
    kv_view_clear(v);
    assert_int_equal(kv_view_since(v, before, change, 8), -ENOENT);
    assert_int_equal(key_count(v), 0);
    kv_view_free(v);
}

/* ---- the real session, and damage to it ---- */

struct session {
    struct kv_view *view;
    uint64_t next;
    uint32_t count;
};

static int apply_message(void *arg, const struct zmtp_message *m)
{
    struct session *s = arg;
    struct err err = { "" };
    int rc = apply(s->view, m->part[2], &err);
    if (rc < 0) fail_msg("message %u: %s", s->count, err.text);
    s->count++;
    return 0;
}

/* After the session the cache holds one block of 32 tokens: what came after the last reset. */
static void the_real_session_ends_as_vllm_did(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 }, sent = { 0 };
    struct session s = { .view = view_new(1000) };
    struct kv_view_counts c;
    struct zmtp z;
    struct err err = { "" };
    zmtp_begin(&z, ZMTP_SUB, &sent);
    assert_int_equal(feed(&z, read_session(&text), 100, &sent, apply_message, &s, &err), 0);
    kv_view_counts(s.view, &c);
    assert_int_equal(s.count, 7);
    assert_int_equal(c.blocks, 1);
    assert_int_equal(c.keys, 2);
    assert_int_equal(c.repeated, 1); /* the second of two equal chats */
    assert_int_equal(c.stored, 2 + 1 + 2 + 50 + 49 + 1);
    assert_int_equal(c.orphans + c.unsupported + c.full, 0);
    /* the first tokens of its chat: <|begin|> <|user|> Once upon a ... */
    static const uint32_t ids[16] = { 0,   3,   1489, 560, 263,  566, 471, 327,
                                      263, 836, 1255, 453, 1254, 302, 267, 3666 };
    assert_int_equal(hit_blocks(s.view, "", ids, 16), 1);
    kv_view_free(s.view);
}

static int collect_payload(void *arg, const struct zmtp_message *m)
{
    struct buf *list = arg; /* length and bytes of each */
    buf_u32(list, (uint32_t)m->part[2].len);
    buf_str(list, m->part[2]);
    return 0;
}

/* Every batch cut at every byte is refused with a sentence, and no read goes beyond the cut. */
static void every_cut_of_a_real_batch_is_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 }, sent = { 0 }, list = { 0 };
    struct zmtp z;
    struct err err = { "" };
    zmtp_begin(&z, ZMTP_SUB, &sent);
    assert_int_equal(feed(&z, read_session(&text), 4096, &sent, collect_payload, &list, &err), 0);
    for (size_t at = 0; at < list.len;) {
        uint32_t len = load_u32(list.data + at);
        const char *bytes = list.data + at + 4;
        for (uint32_t cut = 0; cut < len; cut += cut < 600 || len - cut < 600 ? 1 : 37) {
            char *copy = malloc(cut + 1);
            assert_non_null(copy);
            memcpy(copy, bytes, cut);
            struct kv_view *v = view_new(1000);
            err.text[0] = 0;
            if (apply(v, str_of(copy, cut), &err) == 0)
                fail_msg("cut at %u of %u: accepted", cut, len);
            assert_true(err.text[0] != 0);
            kv_view_free(v);
            free(copy);
        }
        at += 4 + len;
    }
}

/* Bytes changed at random never do more than be refused, or change the view within its bounds. */
static void damaged_batches_do_no_harm(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 }, sent = { 0 }, list = { 0 };
    struct zmtp z;
    struct rng rng;
    struct err err = { "" };
    zmtp_begin(&z, ZMTP_SUB, &sent);
    assert_int_equal(feed(&z, read_session(&text), 4096, &sent, collect_payload, &list, &err), 0);
    rng_seed(&rng, 16);
    struct kv_view *v = view_new(64);
    for (uint32_t round = 0; round < 3000; round++) {
        size_t at = 0;
        for (uint64_t skip = rng_below(&rng, 7); skip > 0; skip--)
            at += 4 + load_u32(list.data + at);
        uint32_t len = load_u32(list.data + at);
        char *copy = malloc(len);
        assert_non_null(copy);
        memcpy(copy, list.data + at + 4, len);
        for (uint64_t n = 1 + rng_below(&rng, 4); n > 0; n--)
            copy[(uint32_t)rng_below(&rng, len)] = (char)rng_u64(&rng);
        if (apply(v, str_of(copy, len), &err) < 0) kv_view_clear(v);
        struct kv_view_counts c;
        kv_view_counts(v, &c);
        assert_true(c.blocks <= 64 && c.keys <= 128);
        free(copy);
    }
    kv_view_free(v);
}

/* Out of memory at any block: an error, and a view that can be cleared and used again. */
static void memory_fails_at_every_block(void **state)
{
    (void)state;
    uint32_t ids[8 * 16];
    uint64_t hash[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    ids_of(ids, COUNT_OF(ids), 0);
    for (uint64_t nth = 1;; nth++) {
        CLEANUP(buf_fini) struct buf event = { 0 };
        struct kv_view *v = view_new(100);
        put_stored(&event,
                   &(struct stored){ .hash = hash, .count = 8, .token = ids, .block_tokens = 16 });
        fault_arm("kv_view.block", nth);
        int rc = apply_event(v, false, buf_view(&event), NULL);
        bool failed = fault_hits() >= nth;
        fault_disarm();
        if (!failed) {
            assert_int_equal(rc, 0);
            assert_int_equal(nth, 9);
            kv_view_free(v);
            break;
        }
        assert_int_equal(rc, -ENOMEM);
        kv_view_clear(v);
        assert_int_equal(apply_event(v, false, buf_view(&event), NULL), 0);
        assert_int_equal(hit_blocks(v, "", ids, COUNT_OF(ids)), 8);
        kv_view_free(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_session_is_read_in_pieces_of_any_size),
        cmocka_unit_test(peers_that_do_not_fit_are_refused),
        cmocka_unit_test(pings_are_answered),
        cmocka_unit_test(blocks_of_any_size_make_our_keys),
        cmocka_unit_test(repeated_blocks_are_copies),
        cmocka_unit_test(tenants_have_caches_of_their_own),
        cmocka_unit_test(what_no_router_asks_for_is_left_out),
        cmocka_unit_test(the_bound_is_kept),
        cmocka_unit_test(a_follower_sees_every_change_or_needs_a_snapshot),
        cmocka_unit_test(the_real_session_ends_as_vllm_did),
        cmocka_unit_test(every_cut_of_a_real_batch_is_refused),
        cmocka_unit_test(damaged_batches_do_no_harm),
        cmocka_unit_test(memory_fails_at_every_block),
    };
    return cmocka_run_group_tests_name("kv_view", tests, NULL, NULL);
}
