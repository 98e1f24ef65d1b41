/* t_detok.c - streamed decoding: never half a character, whatever the tokens. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/text/detok.h"
#include "tests/unit/text/small_vocab.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void push_bytes(struct detok *d, struct str bytes, struct buf *out)
{
    for (size_t i = 0; i < bytes.len; i++)
        detok_push(d, SMALL_BYTE0 + (unsigned char)bytes.data[i], out);
}

static void test_bad_bytes(void **state)
{
    (void)state;
#define BAD "\xEF\xBF\xBD"
    static const struct {
        const char *why, *bytes, *want;
    } rows[] = {
        { "text is text", "abc", "abc" },
        { "a character in pieces", "\xF0\x9F\xA6\x99", "\xF0\x9F\xA6\x99" },
        { "one bad part, not three", "\xF0\x9F\xA6 x", BAD " x" },
        { "a byte that leads nothing",
          "\xFF"
          "a",
          BAD "a" },
        { "lone continuations, each by itself", "\x80\x80", BAD BAD },
        { "an overlong form is bad from its first byte on", "\xC0\xAF", BAD BAD },
        { "a surrogate", "\xED\xA0\x80", BAD BAD BAD },
        { "beyond the last code point", "\xF4\x90\x80\x80", BAD BAD BAD BAD },
        { "a new character ends an unfinished one", "\xE2\x82\xE2\x82\xAC", BAD "\xE2\x82\xAC" },
        { "unfinished at the end", "a\xE2\x82", "a" BAD },
    };
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct detok d;
        detok_init(&d, v, false);
        push_bytes(&d, str_from(rows[i].bytes), &out);
        detok_flush(&d, &out);
        print_message("%s\n", rows[i].why);
        assert_string_equal(out.data, rows[i].want);
    }
}

static void test_holds_back_only_what_may_complete(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct detok d;
    detok_init(&d, v, false);
    push_bytes(&d, STR("a\xF0\x9F\xA6"), &out);
    assert_int_equal(out.len, 1);
    push_bytes(&d, STR("\x99"), &out);
    assert_int_equal(out.len, 5);
    push_bytes(&d, STR("\xE0"), &out);
    assert_int_equal(out.len, 5);
    push_bytes(&d, STR("\x80"), &out); /* E0 80 can never become a character */
    assert_int_equal(out.len, 5 + 6);
    assert_int_equal(d.held_len, 0);
}

static void test_control_is_silent(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    static const uint32_t ids[] = { SMALL_BEGIN, SMALL_BYTE0 + 'a', SMALL_THINK, SMALL_END, 99999 };
    for (int skip = 0; skip < 2; skip++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        CLEANUP(buf_fini) struct buf whole = { 0 };
        struct detok d;
        detok_init(&d, v, skip);
        for (size_t i = 0; i < COUNT_OF(ids); i++)
            detok_push(&d, ids[i], &out);
        detok_bytes(v, ids, COUNT_OF(ids), skip, &whole);
        assert_string_equal(out.data, skip ? "a<think>" : "<|begin|>a<think><|end|>");
        assert_string_equal(whole.data, out.data);
    }
}

/* Any bytes, tokens of one and of many bytes: the stream is what decoding at once gives. */
static void test_split_does_not_matter(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    struct rng rng;
    rng_seed(&rng, 11);
    for (int round = 0; round < 2000; round++) {
        CLEANUP(buf_fini) struct buf a = { 0 };
        CLEANUP(buf_fini) struct buf b = { 0 };
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        struct detok d, e;
        detok_init(&d, v, false);
        detok_init(&e, v, false);
        for (size_t i = 0; i < 1 + rng_below(&rng, 20); i++) {
            uint32_t id = rng_below(&rng, 3) ? SMALL_BYTE0 + 0xC0 + (uint32_t)rng_below(&rng, 64)
                                             : (uint32_t)rng_below(&rng, vocab_count(v));
            if (rng_below(&rng, 3) == 0) id = SMALL_BYTE0 + 0x80 + (uint32_t)rng_below(&rng, 64);
            size_t before = a.len;
            detok_push(&d, id, &a);
            assert_true(str_utf8_valid(str_of(a.data + before, a.len - before)));
            buf_str(&bytes, vocab_bytes(v, id));
        }
        push_bytes(&e, buf_view(&bytes), &b);
        detok_flush(&d, &a);
        detok_flush(&e, &b);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.data, b.data, a.len);
        if (str_utf8_valid(buf_view(&bytes))) assert_memory_equal(a.data, bytes.data, bytes.len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_holds_back_only_what_may_complete),
        cmocka_unit_test(test_control_is_silent),
        cmocka_unit_test(test_split_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
