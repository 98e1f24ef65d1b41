/* t_tokenizer.c - merging against a slow reference, markers, and what a user cannot write. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/text/detok.h"
#include "base/text/tokenizer.h"
#include "tests/unit/text/small_vocab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define MERGES_MAX 64

struct merge {
    uint32_t left, right, joined;
};

/* The merges as the file has them, best first. */
static uint32_t read_merges(const struct vocab *v, struct merge ret[MERGES_MAX])
{
    struct vocab_parts parts = small_vocab_parts("gpt-2");
    assert_true(parts.merge_count <= MERGES_MAX);
    for (uint32_t i = 0; i < parts.merge_count; i++) {
        char joined[64];
        struct str right = parts.merges[i], left = str_cut(&right, ' ');
        snprintf(joined, sizeof joined, STR_FMT STR_FMT, STR_ARG(left), STR_ARG(right));
        ret[i] = (struct merge){ vocab_find(v, left), vocab_find(v, right),
                                 vocab_find(v, str_from(joined)) };
    }
    return (uint32_t)parts.merge_count;
}

/* The definition, quadratic and plain: find the best pair from the left, join, repeat. */
static void reference_word(const struct vocab *v, const struct merge *merge, uint32_t merge_count,
                           struct str word, struct ids *out)
{
    uint32_t ids[256];
    size_t count = 0;
    for (size_t i = 0; i < word.len; i++)
        ids[count++] = SMALL_BYTE0 + (unsigned char)word.data[i];
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++)
            for (uint32_t rank = 0; rank < merge_count && rank < best; rank++) {
                const struct merge *m = &merge[rank];
                if (m->left != ids[i] || m->right != ids[i + 1]) continue;
                if (vocab_type(v, m->joined) != TOKEN_NORMAL) continue;
                best = rank, at = i;
            }
        if (best == UINT32_MAX) break;
        ids[at] = merge[best].joined;
        memmove(&ids[at + 1], &ids[at + 2], (count - at - 2) * sizeof *ids);
        count--;
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids_push(out, ids[i]), 0);
}

static void test_merges_equal_reference(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    struct merge merge[MERGES_MAX];
    uint32_t merge_count = read_merges(v, merge);
    struct rng rng;
    rng_seed(&rng, 20261121);
    static const char letters[] = "helotwabing";
    for (int round = 0; round < 3000; round++) {
        char word[200];
        size_t len = 1 + rng_below(&rng, round % 10 == 0 ? sizeof word : 12);
        for (size_t i = 0; i < len; i++)
            word[i] = letters[rng_below(&rng, round % 3 == 0 ? 3 : sizeof letters - 1)];
        CLEANUP(ids_fini) struct ids fast = { 0 };
        CLEANUP(ids_fini) struct ids slow = { 0 };
        assert_int_equal(tokenizer_encode(v, str_of(word, len), false, &fast, NULL), 0);
        reference_word(v, merge, merge_count, str_of(word, len), &slow);
        assert_int_equal(fast.count, slow.count);
        assert_memory_equal(fast.data, slow.data, fast.count * sizeof *fast.data);
        /* From the second time on the word may be looked up. */
        ids_clear(&fast);
        assert_int_equal(tokenizer_encode(v, str_of(word, len), false, &fast, NULL), 0);
        assert_int_equal(fast.count, slow.count);
        assert_memory_equal(fast.data, slow.data, fast.count * sizeof *fast.data);
    }
}

static void expect_ids(const struct vocab *v, const struct ids *got, const char *want)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    for (size_t i = 0; i < got->count; i++) {
        buf_text(&text, i ? " " : "");
        buf_str(&text, vocab_text(v, got->data[i]));
    }
    assert_string_equal(text.data ? text.data : "", want);
}

/* Texts of the tokens, blanks between; Ġ (C4 A0) is the blank in a token. */
static void test_markers(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        bool special;
        const char *want;
    } rows[] = {
        { "a trusted marker is one id", "<|user|>he<|end|>", true, "<|user|> he <|end|>" },
        { "an untrusted one is letters", "<|user|>he", false, "<| u s e r |> he" },
        { "merges that lead to a control token stop before it", "<|end|>", false, "<| end |>" },
        { "user-defined tokens are text", "he<think>he", false, "he <think> he" },
        { "a marker cut short", "<|use", true, "<| u s e" },
        { "nothing", "", true, "" },
        { "one directly behind the other", "<|end|><|end|>", true, "<|end|> <|end|>" },
        { "words do not join over a marker", "h<|end|>e", true, "h <|end|> e" },
    };
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(ids_fini) struct ids ids = { 0 };
        struct str text = str_from(rows[i].text);
        print_message("%s\n", rows[i].why);
        assert_int_equal(tokenizer_encode(v, text, rows[i].special, &ids, NULL), 0);
        expect_ids(v, &ids, rows[i].want);
    }
}

static void test_spans(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text, *content; /* x marks a byte of content */
        const char *want;
    } rows[] = {
        { "the template's markers count, the user's do not", "<|user|>he<|end|>z<|end|>",
          "        xxxxxxxxxx       ", "<|user|> he <| end |> z <|end|>" },
        { "words join over the border of content", "<|user|>hello", "        xx   ",
          "<|user|> hello" },
        { "a marker half from the user is none", "<|user|>", "      xx", "<| u s e r |>" },
        { "nor one whose middle is the user's", "<|user|>", "  xxxx  ", "<| u s e r |>" },
        { "user-defined tokens are text here too", "he<think>", "xxxxxxxxx", "he <think>" },
        { "a marker between two contents", "he<|end|>he", "xx       xx", "he <|end|> he" },
        { "no content at all", "<|end|>", "       ", "<|end|>" },
    };
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(ids_fini) struct ids ids = { 0 };
        CLEANUP(text_spans_fini) struct text_spans content = { 0 };
        struct str text = str_from(rows[i].text);
        assert_int_equal(strlen(rows[i].content), text.len);
        for (size_t k = 0; k < text.len; k++)
            if (rows[i].content[k] == 'x') assert_int_equal(text_spans_add(&content, k, 1), 0);
        print_message("%s\n", rows[i].why);
        assert_int_equal(tokenizer_encode_spans(v, text, &content, &ids, NULL), 0);
        expect_ids(v, &ids, rows[i].want);
    }
}

static void test_prompt_adds_begin(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    CLEANUP(ids_fini) struct ids ids = { 0 };
    assert_int_equal(tokenizer_encode_prompt(v, STR("he<|end|>"), &ids, NULL), 0);
    expect_ids(v, &ids, "<|begin|> he <| end |>");
}

static void test_round_trip_of_any_bytes(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    for (size_t p = 0; vocab_pre_name(p); p++) {
        CLEANUP(vocab_freep) struct vocab *v = small_vocab(vocab_pre_name(p));
        for (int round = 0; round < 100; round++) {
            char text[300];
            size_t len = rng_below(&rng, sizeof text);
            for (size_t i = 0; i < len; i++)
                text[i] =
                    round % 2 ? (char)rng_below(&rng, 256) : " \n\r\tab1'.<"[rng_below(&rng, 10)];
            CLEANUP(ids_fini) struct ids ids = { 0 };
            CLEANUP(buf_fini) struct buf back = { 0 };
            assert_int_equal(tokenizer_encode(v, str_of(text, len), round % 4 > 1, &ids, NULL), 0);
            assert_int_equal(detok_bytes(v, ids.data, ids.count, false, &back), 0);
            assert_int_equal(back.len, len);
            if (len > 0) assert_memory_equal(back.data, text, len);
        }
    }
}

/* Some vocabularies leave out bytes that valid text never holds. */
static void test_missing_byte_becomes_replacement(void **state)
{
    (void)state;
    struct vocab_parts parts = small_vocab_parts("gpt-2");
    uint8_t types[1024];
    memcpy(types, parts.types, parts.type_count);
    types[SMALL_BYTE0 + 0xFF] = TOKEN_UNUSED;
    types[SMALL_BYTE0 + 0x03] = TOKEN_CONTROL;
    parts.types = types;
    struct vocab *v = NULL;
    assert_int_equal(vocab_build(&parts, &v, NULL), 0);
    CLEANUP(ids_fini) struct ids ids = { 0 };
    CLEANUP(buf_fini) struct buf back = { 0 };
    assert_int_equal(tokenizer_encode(v,
                                      STR("a\xFF"
                                          "b\x03"),
                                      false, &ids, NULL),
                     0);
    detok_bytes(v, ids.data, ids.count, false, &back);
    assert_string_equal(back.data, "a\xEF\xBF\xBD"
                                   "b\xEF\xBF\xBD");
    vocab_free(v);
}

/* The classic attack: one endless word. Quadratic merging would need minutes. */
static void test_long_word_is_quick(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    static const char fills[] = { 'a', ' ', '\n', '<', '1', '\xCC' };
    size_t len = 1 << 20;
    char *text = malloc(len + 1);
    assert_non_null(text);
    for (size_t p = 0; vocab_pre_name(p) && p < 40; p++) {
        CLEANUP(vocab_freep) struct vocab *other = small_vocab(vocab_pre_name(p));
        for (size_t i = 0; i < COUNT_OF(fills); i++) {
            memset(text, fills[i], 1 << 16);
            text[1 << 16] = 'x';
            CLEANUP(ids_fini) struct ids ids = { 0 };
            clock_t start = clock();
            assert_int_equal(tokenizer_encode(other, str_of(text, (1 << 16) + 1), true, &ids, NULL),
                             0);
            if ((double)(clock() - start) / CLOCKS_PER_SEC > 2.0)
                fail_msg("%s: 64 KiB of %02x is slow", vocab_pre_name(p), (unsigned char)fills[i]);
        }
    }
    memset(text, 'a', len);
    CLEANUP(ids_fini) struct ids ids = { 0 };
    clock_t start = clock();
    assert_int_equal(tokenizer_encode(v, str_of(text, len), false, &ids, NULL), 0);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 5.0);
    assert_int_equal(ids.count, len / 8); /* aaaaaaaa is the longest */
    free(text);
}

static void test_bounds(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    CLEANUP(ids_fini) struct ids ids = { .max = 3 };
    struct err err = { 0 };
    assert_int_equal(tokenizer_encode(v, STR("x x x x"), false, &ids, &err), -E2BIG);
    assert_non_null(strstr(err.text, "more than 3 tokens"));
    assert_int_equal(ids.count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_equal_reference),
        cmocka_unit_test(test_markers),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_prompt_adds_begin),
        cmocka_unit_test(test_round_trip_of_any_bytes),
        cmocka_unit_test(test_missing_byte_becomes_replacement),
        cmocka_unit_test(test_long_word_is_quick),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
