/* t_kv_wire.c - tests the messages by which engines ask each other for K and V, and the head of the
 * reply. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/wire/kv_wire.h"
#include "tests/unit/unit.h"

#define DIGEST "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static const uint32_t ids[] = { 1, 2, UINT32_MAX };

static void requests_there_and_back(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, 1 << 16);
    const struct kv_read_request read = { ids, COUNT_OF(ids), STR("t"), 32 };
    assert_int_equal(kv_read_request_encode(&read, &text), 0);
    assert_string_equal(text.data,
                        "{\"v\":1,\"ids\":[1,2,4294967295],\"tenant\":\"t\",\"from\":32}");
    struct kv_read_request r;
    assert_int_equal(kv_read_request_decode(buf_view(&text), &arena, &r, NULL), 0);
    assert_int_equal(r.id_count, COUNT_OF(ids));
    assert_memory_equal(r.ids, ids, sizeof ids);
    assert_true(str_eq(r.tenant, STR("t")) && r.from == 32);

    const struct kv_fetch_request fetch = { ids,  COUNT_OF(ids),   STR("t"),    STR("h"),
                                            8200, STR("ticket/1"), STR("00ff"), true };
    buf_clear(&text);
    assert_int_equal(kv_fetch_request_encode(&fetch, &text), 0);
    assert_string_equal(text.data, "{\"v\":1,\"ids\":[1,2,4294967295],\"tenant\":\"t\","
                                   "\"host\":\"h\",\"port\":8200,"
                                   "\"ticket\":\"ticket/1\",\"key\":\"00ff\",\"tls\":true}");
    struct kv_fetch_request p;
    assert_int_equal(kv_fetch_request_decode(buf_view(&text), &arena, &p, NULL), 0);
    assert_memory_equal(p.ids, ids, sizeof ids);
    assert_true(str_eq(p.tenant, STR("t")) && str_eq(p.host, STR("h")) && p.port == 8200);
    assert_true(str_eq(p.ticket, STR("ticket/1")) && str_eq(p.key, STR("00ff")) && p.tls);

    const struct kv_fetch_reply reply = { 64, 48 };
    buf_clear(&text);
    assert_int_equal(kv_fetch_reply_encode(&reply, &text), 0);
    assert_string_equal(text.data, "{\"v\":1,\"tokens\":64,\"pulled\":48}");
    struct kv_fetch_reply back;
    assert_int_equal(kv_fetch_reply_decode(buf_view(&text), &arena, &back, NULL), 0);
    assert_true(back.tokens == 64 && back.pulled == 48);
    /* A reply of zero tokens is valid. */
    buf_clear(&text);
    assert_int_equal(kv_fetch_reply_encode(&(struct kv_fetch_reply){ 0 }, &text), 0);
    assert_int_equal(kv_fetch_reply_decode(buf_view(&text), &arena, &back, NULL), 0);
    assert_true(back.tokens == 0 && back.pulled == 0);
}

enum which { READ, FETCH, REPLY };

static int decode(enum which which, struct str text, struct arena *arena, struct err *err)
{
    struct kv_read_request r;
    struct kv_fetch_request p;
    struct kv_fetch_reply reply;
    if (which == READ) return kv_read_request_decode(text, arena, &r, err);
    if (which == FETCH) return kv_fetch_request_decode(text, arena, &p, err);
    return kv_fetch_reply_decode(text, arena, &reply, err);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        enum which which;
        const char *text, *says;
    } rows[] = {
        { READ, "[]", "kv read: must be an object" },
        { READ, "{\"ids\":[1]}", "kv read: \"v\" is missing" },
        { READ, "{\"v\":1}", "\"ids\" is missing" },
        { READ, "{\"v\":1,\"ids\":[]}", "ids: may not be empty" },
        { READ, "{\"v\":1,\"ids\":[1],\"from\":-1}", "from: -1 is outside" },
        { READ, "{\"v\":1,\"ids\":[1],\"from\":1048577}", "from: 1048577 is outside" },
        { FETCH, "{\"v\":1,\"ids\":[1],\"port\":1}", "kv fetch: \"host\" is missing" },
        { FETCH, "{\"v\":1,\"ids\":[1],\"host\":\"h\"}", "\"port\" is missing" },
        { FETCH, "{\"v\":1,\"ids\":[1],\"host\":\"\",\"port\":1}", "host: 0 bytes are outside" },
        { FETCH, "{\"v\":1,\"ids\":[1],\"host\":\"h\",\"port\":0}", "port: 0 is outside" },
        { FETCH, "{\"v\":1,\"ids\":[1],\"host\":\"h\",\"port\":65536}", "port: 65536 is outside" },
        { REPLY, "{\"v\":1,\"tokens\":1}", "\"pulled\" is missing" },
        { REPLY, "{\"v\":1,\"tokens\":16,\"pulled\":17}", "17 tokens pulled, but only 16" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(arena_fini) struct arena arena = { 0 };
        struct err err = { "" };
        arena_init(&arena, 1 << 16);
        int rc = decode(rows[i].which, str_from(rows[i].text), &arena, &err);
        if (rc != -EINVAL || !strstr(err.text, rows[i].says))
            fail_msg("%s\nsays %d: %s", rows[i].text, rc, err.text);
    }
}

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    const struct kv_fetch_request fetch = { ids,  COUNT_OF(ids),   STR("t"),    STR("h"),
                                            8200, STR("ticket/1"), STR("00ff"), true };
    kv_fetch_request_encode(&fetch, &text);
    uint64_t reached = 0;
    for (uint64_t n = 1;; n++) {
        CLEANUP(arena_fini) struct arena arena = { 0 };
        arena_init(&arena, 1 << 16);
        fault_arm("arena.alloc", n);
        int rc = decode(FETCH, buf_view(&text), &arena, NULL);
        bool hit = fault_hits() >= n;
        fault_disarm();
        assert_int_equal(rc, hit ? -ENOMEM : 0);
        if (!hit) break;
        reached++;
    }
    assert_true(reached >= 3); /* ids, tenant, host */
}

/* ---- the head --------------------------------------------------------------------------------- */

static const struct kv_head head = {
    .kv_type = 1,
    .layers = 2,
    .kv_heads = 3,
    .head_dim = 64,
    .page_tokens = 16,
    .first = 32,
    .tokens = 48,
    .whole_from = 64,
    .digest = DIGEST,
    .numerics = "x86-64 avx2 1",
};

static void the_head_there_and_back(void **state)
{
    (void)state;
    uint8_t bytes[KV_HEAD_BYTES];
    struct kv_head back;
    kv_head_encode(&head, bytes);
    assert_memory_equal(bytes, "musterKV\x02\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x40\0\0\0", 28);
    assert_int_equal(kv_head_decode(str_of(bytes, sizeof bytes), &back, NULL), 0);
    assert_memory_equal(&back, &head, offsetof(struct kv_head, digest));
    assert_string_equal(back.digest, head.digest);
    assert_string_equal(back.numerics, head.numerics);
    /* Numerics that fill their field are cut, because pages follow them. */
    struct kv_head long_head = head;
    memset(long_head.numerics, 'n', sizeof long_head.numerics);
    kv_head_encode(&long_head, bytes);
    assert_int_equal(kv_head_decode(str_of(bytes, sizeof bytes), &back, NULL), 0);
    assert_int_equal(strlen(back.numerics), KV_NUMERICS_BYTES - 1);
}

static void what_is_no_head(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } rows[] = {
        { 0, 'M', "that are none" },
        { 8, 3, "version 3, not 2" },
        { 28, 0, "no whole pages of 0" },
        { 28, 7, "no whole pages of 7" },
        { 32, 33, "no whole pages of 16" },
        { 36, 49, "no whole pages of 16" },
        { 34, 0xff, "at most 1048576" },
        { 39, 0xff, "at most 1048576" },
        { 40, 16, "whole from token 16 on, of 32 and 48 more" },
        { 40, 65, "whole from token 65 on" },
        { 40, 96, "whole from token 96 on" },
        { 44, 'G', "digest is not hexadecimal" },
        { 107, 0, "digest is not hexadecimal" },
        { 108, '\n', "numerics is no text" },
        { KV_HEAD_BYTES - 1, 'x', "numerics is no text" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint8_t bytes[KV_HEAD_BYTES];
        struct kv_head back = { .first = 7 };
        struct err err = { "" };
        kv_head_encode(&head, bytes);
        bytes[rows[i].at] = rows[i].value;
        int rc = kv_head_decode(str_of(bytes, sizeof bytes), &back, &err);
        if (rc != -EINVAL || !strstr(err.text, rows[i].says))
            fail_msg("byte %zu: %d %s", rows[i].at, rc, err.text);
        assert_int_equal(back.first, 7); /* unchanged */
    }
    uint8_t bytes[KV_HEAD_BYTES];
    struct kv_head back;
    kv_head_encode(&head, bytes);
    for (size_t len = 0; len < sizeof bytes; len++)
        assert_int_equal(kv_head_decode(str_of(bytes, len), &back, NULL), -EINVAL);
}

/* An accepted head is encoded again to the same bytes. */
static void mutilated_heads(void **state)
{
    (void)state;
    struct rng rng;
    uint32_t taken = 0;
    rng_seed(&rng, 19);
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[KV_HEAD_BYTES], again[KV_HEAD_BYTES];
        struct kv_head back;
        kv_head_encode(&head, bytes);
        for (uint64_t n = 1 + rng_below(&rng, 3); n > 0; n--)
            bytes[rng_below(&rng, sizeof bytes)] ^= (uint8_t)(1u << rng_below(&rng, 8));
        if (kv_head_decode(str_of(bytes, sizeof bytes), &back, NULL) < 0) continue;
        taken++;
        kv_head_encode(&back, again);
        assert_memory_equal(bytes, again, sizeof bytes);
        assert_true(back.page_tokens > 0 && back.tokens % back.page_tokens == 0);
    }
    assert_true(taken > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_there_and_back), cmocka_unit_test(refusals),
        cmocka_unit_test(memory_may_end_anywhere), cmocka_unit_test(the_head_there_and_back),
        cmocka_unit_test(what_is_no_head),         cmocka_unit_test(mutilated_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
