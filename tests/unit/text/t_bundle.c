/* t_bundle.c - the tokenizer bundle: round trip, digests, and bytes from a hostile peer. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/rng.h"
#include "base/text/bundle.h"
#include "base/text/tokenizer.h"
#include "base/text/vocab_tables.h"
#include "tests/unit/text/small_vocab.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char source[] = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";

static void encode(bool with_template, struct buf *out, char digest[SHA256_HEX + 1])
{
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("qwen2");
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;
    if (with_template) assert_int_equal(chat_template_compile(str_from(source), &t, NULL), 0);
    assert_int_equal(bundle_encode(v, t, out, digest, NULL), 0);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (int with_template = 0; with_template < 2; with_template++) {
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        CLEANUP(bundle_fini) struct bundle b = { 0 };
        char digest[SHA256_HEX + 1];
        encode(with_template, &bytes, digest);
        assert_int_equal(bundle_decode(buf_view(&bytes), digest, &b, NULL), 0);
        assert_string_equal(b.digest, digest);
        CLEANUP(vocab_freep) struct vocab *v = small_vocab("qwen2");
        CLEANUP(buf_fini) struct buf decoded = { 0 };
        CLEANUP(buf_fini) struct buf built = { 0 };
        assert_int_equal(vocab_write(b.vocab, &decoded), 0);
        assert_int_equal(vocab_write(v, &built), 0);
        assert_true(str_eq(buf_view(&decoded), buf_view(&built)));
        assert_int_equal(b.chat_template != NULL, with_template);
        if (with_template)
            assert_true(str_eq(chat_template_source(b.chat_template), str_from(source)));
        static const struct str text = STR("hello the <think>\xC3\xBC 123<|end|>");
        CLEANUP(ids_fini) struct ids x = { 0 };
        CLEANUP(ids_fini) struct ids y = { 0 };
        assert_int_equal(tokenizer_encode(v, text, true, &x, NULL), 0);
        assert_int_equal(tokenizer_encode(b.vocab, text, true, &y, NULL), 0);
        assert_int_equal(x.count, y.count);
        assert_memory_equal(x.data, y.data, x.count * sizeof *x.data);
    }
}

static void test_template_changes_the_digest(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf a = { 0 };
    CLEANUP(buf_fini) struct buf b = { 0 };
    char with[SHA256_HEX + 1], without[SHA256_HEX + 1];
    encode(true, &a, with);
    encode(false, &b, without);
    assert_string_not_equal(with, without);
}

static void sign(struct buf *bytes)
{
    uint8_t digest[SHA256_BYTES];
    sha256(bytes->data, bytes->len - SHA256_BYTES, digest);
    memcpy(bytes->data + bytes->len - SHA256_BYTES, digest, SHA256_BYTES);
}

static void test_refusals(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    struct bundle b = { 0 };
    struct err err = { 0 };
    char digest[SHA256_HEX + 1], other[SHA256_HEX + 1];
    encode(true, &bytes, digest);
    memcpy(other, digest, sizeof other);
    other[0] = other[0] == '0' ? '1' : '0';
    assert_int_equal(bundle_decode(buf_view(&bytes), other, &b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "expected"));
    for (size_t len = 0; len < bytes.len; len += 1 + len / 8)
        assert_int_equal(bundle_decode(str_of(bytes.data, len), NULL, &b, &err), -EINVAL);
    bytes.data[20] ^= 1;
    assert_int_equal(bundle_decode(buf_view(&bytes), NULL, &b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "checksum"));
    bytes.data[20] ^= 1;
    bytes.data[8] = 9;
    sign(&bytes);
    assert_int_equal(bundle_decode(buf_view(&bytes), NULL, &b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "version 9"));
    assert_null(b.vocab);
}

/* With a right checksum, so that everything behind it is reached. */
static void test_hostile_bytes(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf good = { 0 };
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    char digest[SHA256_HEX + 1];
    unsigned refused = 0, rounds = 3000;
    struct rng rng;
    rng_seed(&rng, 3);
    encode(true, &good, digest);
    for (unsigned round = 0; round < rounds; round++) {
        CLEANUP(bundle_fini) struct bundle b = { 0 };
        struct err err = { 0 };
        buf_clear(&bytes);
        buf_append(&bytes, good.data, good.len);
        size_t at = rng_below(&rng, bytes.len - SHA256_BYTES - 4);
        if (round % 2)
            store_u32(bytes.data + at, (uint32_t)(rng_u64(&rng) >> rng_below(&rng, 64)));
        else
            bytes.data[at] = (char)rng_below(&rng, 256);
        sign(&bytes);
        int rc = bundle_decode(buf_view(&bytes), NULL, &b, &err);
        if (rc < 0) assert_true(err.text[0] != '\0');
        refused += rc < 0;
    }
    assert_true(refused > rounds / 2);
}

/* Fails each allocation in turn: what a peer sends must never end a process. */
static void test_out_of_memory(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    char digest[SHA256_HEX + 1];
    encode(true, &bytes, digest);
    uint64_t failures = 0;
    int rc = -ENOMEM;
    for (; rc < 0 && failures < 10000; failures++) {
        CLEANUP(bundle_fini) struct bundle b = { 0 };
        struct err err = { 0 };
        fault_arm(NULL, failures + 1);
        rc = bundle_decode(buf_view(&bytes), NULL, &b, &err);
        fault_disarm();
        if (rc < 0) assert_int_equal(rc, -ENOMEM);
        if (rc < 0) assert_true(err.text[0] != '\0');
    }
    assert_int_equal(rc, 0);
    assert_true(failures > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_template_changes_the_digest),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
