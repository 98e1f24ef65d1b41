/* t_tokenizer.c - tests text to tokens and back: words, merges, markers, streams, prompts. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/core/work.h"
#include "base/text/detok.h"
#include "base/text/encode.h"
#include "base/text/pretokenizer.h"
#include "base/text/tokenizer.h"
#include "tests/unit/text/small_vocab.h"
#include "tests/unit/unit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- the hand-written rules against the words that a regex engine makes ----
 *
 * tests/vectors/tokenizer/make.py has the expressions and wrote the words. */

#define RECORDS_MIN 600

/* Appends a word with a bar behind it; none of the texts has a bar. */
static int put_word(void *arg, struct str word)
{
    buf_str(arg, word);
    return buf_byte(arg, '|');
}

static int check_line(struct str line)
{
    CLEANUP(buf_fini) struct buf pre = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf want = { 0 };
    CLEANUP(buf_fini) struct buf got = { 0 };
    struct json_reader r;
    json_reader_init(&r, line);
    assert_int_equal(json_next(&r), JSON_OBJECT);
    while (json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "pre")) {
            json_next(&r);
            json_text(&r, &pre);
            continue;
        }
        assert_int_equal(json_next(&r), JSON_ARRAY);
        while (json_next(&r) == JSON_STRING) {
            json_text(&r, &text);
            json_text(&r, &want);
            buf_byte(&want, '|');
        }
    }
    const struct pretokenizer *p = pretokenizer_find(buf_view(&pre));
    assert_non_null(p);
    assert_int_equal(pretokenizer_run(p, buf_view(&text), put_word, &got), 0);
    if (str_eq(buf_view(&got), buf_view(&want))) return 0;
    fprintf(stderr, "%s\n  want %.*s\n  got  %.*s\n", pre.data, STR_ARG(buf_view(&want)),
            STR_ARG(buf_view(&got)));
    return 1;
}

static void test_words_of_regex_engine(void **state)
{
    (void)state;
    FILE *f = fopen("tests/vectors/tokenizer/words.ndjson", "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int records = 0, differ = 0;
    for (; (len = getline(&line, &cap, f)) > 0; records++)
        differ += check_line(str_of(line, (size_t)len - 1));
    free(line);
    fclose(f);
    assert_int_equal(differ, 0);
    assert_true(records >= RECORDS_MIN);
}

static int stop_at_second(void *arg, struct str word)
{
    (void)word;
    int *left = arg;
    return --*left == 0 ? -7 : 0;
}

static int take_first(void *arg, struct str word)
{
    struct str *first = arg;
    if (!first->data) *first = word;
    return 0;
}

/* Letters are found eight at a time; a run ends before any other byte, at any place. */
static void test_runs_of_letters(void **state)
{
    (void)state;
    const struct pretokenizer *p = pretokenizer_find(STR("gpt-2"));
    for (size_t letters = 1; letters < 40; letters++) {
        for (int byte = 0; byte < 128; byte++) {
            char text[64];
            for (size_t i = 0; i < sizeof text; i++)
                text[i] = (char)((i % 3 ? 'a' : 'A') + (int)((i * 7 + letters) % 26));
            text[letters] = (char)byte;
            bool letter = (byte | 32) >= 'a' && (byte | 32) <= 'z';
            size_t want = letter ? letters + 1 + letters % 3 : letters;
            struct str first = { 0 };
            struct str all = str_of(text, letters + 1 + letters % 3);
            assert_int_equal(pretokenizer_run(p, all, take_first, &first), 0);
            assert_int_equal(first.len, want);
        }
    }
}

static void test_stops_when_told(void **state)
{
    (void)state;
    int left = 2;
    const struct pretokenizer *p = pretokenizer_find(STR("falcon"));
    assert_int_equal(pretokenizer_run(p, STR("a b c d"), stop_at_second, &left), -7);
    assert_int_equal(left, 0);
}

/* Every listed name is found, and no other. */
static void test_names(void **state)
{
    (void)state;
    size_t count = 0;
    for (; pretokenizer_name(count); count++)
        assert_non_null(pretokenizer_find(str_from(pretokenizer_name(count))));
    assert_true(count >= 9);
    assert_null(pretokenizer_find(STR("gpt-9")));
    assert_null(pretokenizer_find((struct str){ 0 }));
}

static int pretokenizer_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_of_regex_engine),
        cmocka_unit_test(test_runs_of_letters),
        cmocka_unit_test(test_stops_when_told),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("pretokenizer", tests, NULL, NULL);
}

/* ---- merging against a slow reference, markers, and text that a user cannot write ---- */

#define MERGES_MAX 64

struct merge {
    uint32_t left, right, joined;
};

/* Reads the merges in the file's order, best first. */
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

/* Follows the definition, slow and plain: finds the best pair from the left, joins it, and
 * repeats. */
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
        /* The second time the word may come from the cache. */
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

/* Expected tokens are separated by blanks; Ġ (C4 A0) is the blank in a token. */
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

/* Some vocabularies leave out bytes that valid text never contains. */
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

/* An endless word is the classic attack: quadratic merging would cost its length again for each byte. */
#define UNITS_A_BYTE 150 /* measured: 72 at most; 64 KiB squared would be 65,536 */

static void encode_cheaply(const struct vocab *v, struct str text, bool special, struct ids *ids)
{
    work_units = 0;
    assert_int_equal(tokenizer_encode(v, text, special, ids, NULL), 0);
    if (work_units > text.len * UNITS_A_BYTE)
        fail_msg("%zu bytes of %02x: %.1f units a byte", text.len, (uint8_t)text.data[0],
                 (double)work_units / (double)text.len);
}

static void test_long_word_costs_little_a_byte(void **state)
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
            encode_cheaply(other, str_of(text, (1 << 16) + 1), true, &ids);
        }
    }
    memset(text, 'a', len);
    CLEANUP(ids_fini) struct ids ids = { 0 };
    encode_cheaply(v, str_of(text, len), false, &ids);
    assert_int_equal(ids.count, len / 8); /* aaaaaaaa is the longest token */
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

static int tokenizer_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_equal_reference),
        cmocka_unit_test(test_markers),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_prompt_adds_begin),
        cmocka_unit_test(test_round_trip_of_any_bytes),
        cmocka_unit_test(test_missing_byte_becomes_replacement),
        cmocka_unit_test(test_long_word_costs_little_a_byte),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}

/* ---- streamed decoding: never half a character, whatever the tokens ---- */

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
    push_bytes(&d, STR("\x80"), &out); /* E0 80 never becomes a character */
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

/* A stream of any bytes, in tokens of one and of many bytes, gives what decoding at once gives. */
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

static int detok_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_holds_back_only_what_may_complete),
        cmocka_unit_test(test_control_is_silent),
        cmocka_unit_test(test_split_does_not_matter),
    };
    return cmocka_run_group_tests_name("detok", tests, NULL, NULL);
}

/* ---- prompts within a model's context, and the bodies of /tokenize and /detokenize ---- */

#define LONG ((size_t)4 << 20)

static struct vocab *vocab;
static struct chat_template *template;
static char *long_text; /* LONG letters */

static struct encode_model model(void)
{
    return (struct encode_model){ vocab, template };
}

static int setup(void **state)
{
    (void)state;
    vocab = small_vocab("gpt-2");
    long_text = malloc(LONG);
    if (!long_text) return -1;
    for (size_t i = 0; i < LONG; i++)
        long_text[i] = "xyz "[i % 4];
    return chat_template_compile(STR("{% for m in messages %}{{ m.content }}{% endfor %}"),
                                 &template, NULL);
}

static int teardown(void **state)
{
    (void)state;
    vocab_free(vocab);
    chat_template_free(template);
    free(long_text);
    return 0;
}

static void as_many_as_fit_and_no_more(void **state)
{
    (void)state;
    struct encode_model m = model();
    struct err err = { "" };
    CLEANUP(ids_fini) struct ids ids = { 0 };
    assert_int_equal(encode_text(&m, STR("xyzxyz"), true, 7, &ids, &err), 0); /* and <|begin|> */
    assert_int_equal(ids.count, 7);
    ids_clear(&ids);
    assert_int_equal(encode_text(&m, STR("xyzxyz"), true, 6, &ids, &err), -EFBIG);
    assert_string_equal(err.text, "more than 6 tokens");
    ids_clear(&ids);
    assert_int_equal(encode_text(&m, STR("xyzxyz"), false, 6, &ids, &err), 0);
    ids_clear(&ids);
    struct encode_chat chat = { .messages = STR("[{\"role\":\"user\",\"content\":\"xyz\"}]") };
    assert_int_equal(encode_chat(&m, &chat, 3, &ids, &err), 0);
    assert_int_equal(ids_push(&ids, 7), 0); /* the bound was the prompt's; output follows */
    ids_clear(&ids);
    assert_int_equal(encode_chat(&m, &chat, 2, &ids, &err), -EFBIG);
    ids_clear(&ids);
    const uint32_t given[] = { 1, 2, 100000 };
    assert_int_equal(encode_ids(&m, given, 2, 2, &ids, &err), 0);
    assert_int_equal(encode_ids(&m, given, 2, 1, &ids, &err), -EFBIG);
    assert_int_equal(encode_ids(&m, given, 3, 3, &ids, &err), -EPROTO);
    assert_string_equal(err.text, "item 2: the model has no token 100000");
    m.chat_template = NULL;
    assert_int_equal(encode_chat(&m, &chat, 3, &ids, &err), -EPROTO);
}

/* Work is bounded by the context, not by the text. */
static void a_text_that_cannot_fit_is_not_read(void **state)
{
    (void)state;
    struct encode_model m = model();
    struct err err = { "" };
    struct str text = { long_text, LONG };
    CLEANUP(ids_fini) struct ids ids = { 0 };
    work_units = 0;
    assert_int_equal(encode_text(&m, text, true, 1000, &ids, &err), -EFBIG);
    assert_int_equal(work_units, 0);
    /* If all tokens were of the longest kind the text would fit, so it is read up to the first id
     * too many. */
    size_t ids_max = LONG / vocab_token_bytes_max(vocab) + 1;
    ids_clear(&ids);
    assert_int_equal(encode_text(&m, text, true, ids_max, &ids, &err), -EFBIG);
    uint64_t partly = work_units;
    ids_clear(&ids);
    work_units = 0;
    assert_int_equal(encode_text(&m, text, true, 2 * LONG, &ids, &err), 0);
    assert_true(partly < work_units * 3 / 4);
}

struct row {
    enum token_ask_kind kind;
    const char *body;
    int rc;
    const char *says; /* the reply, or a part of the message */
};

static void check(const struct row *row)
{
    struct encode_model m = model();
    struct token_ask ask;
    struct err err = { "" };
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = token_ask_read(row->kind, str_from(row->body), &ask, &err);
    if (rc == 0) rc = token_ask_answer(&ask, &m, row->rc == 0 ? 99 : 0, &out, &err);
    token_ask_fini(&ask);
    const char *got = rc == 0 ? out.data : err.text;
    if (rc != row->rc || !strstr(got, row->says)) fail_msg("%.80s: %d %.200s", row->body, rc, got);
}

static void bodies(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { TOKEN_ASK_TOKENIZE, "{\"prompt\":\"x\"}", 0,
          "{\"count\":2,\"max_model_len\":99,\"tokens\":[0,126]}" },
        { TOKEN_ASK_TOKENIZE, "{\"content\":\"x\",\"add_special_tokens\":false,\"more\":[{}]}", 0,
          "\"tokens\":[126]" },
        { TOKEN_ASK_TOKENIZE, "{\"messages\":[{\"role\":\"user\",\"content\":\"xx\"}]}", 0,
          "\"tokens\":[126,126]" },
        { TOKEN_ASK_TOKENIZE, "{\"prompt\":7}", -EINVAL, "the request" },
        { TOKEN_ASK_TOKENIZE, "{\"prompt\":\"x\",\"messages\":[]}", -EINVAL, "give either" },
        { TOKEN_ASK_TOKENIZE, "{}", -EINVAL, "give either" },
        { TOKEN_ASK_TOKENIZE, "[]", -EINVAL, "the request" },
        { TOKEN_ASK_TOKENIZE, "{\"prompt\":\"x\"", -EINVAL, "the request" },
        { TOKEN_ASK_TOKENIZE, "{\"messages\":7}", -EINVAL, "messages must be an array" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[126,127],\"model\":\"m\"}", 0,
          "{\"prompt\":\"xy\"}" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[]}", 0, "{\"prompt\":\"\"}" },
        { TOKEN_ASK_DETOKENIZE, "{}", -EINVAL, "missing" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":\"x\"}", -EINVAL, "want a list" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[-1]}", -EINVAL, "want a list" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[1", -EINVAL, "want a list" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[100000]}", -EPROTO, "no token 100000" },
        { TOKEN_ASK_DETOKENIZE, "{\"tokens\":[1]}x", -EINVAL, "the request" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check(&rows[i]);
}

static void long_bodies(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 };
    for (int over = 0; over < 2; over++) {
        buf_clear(&body);
        buf_text(&body, "{\"tokens\":[126");
        for (uint32_t i = 1; i < TOKEN_ASK_IDS_MAX + (uint32_t)over; i++)
            buf_text(&body, ",126");
        buf_text(&body, "]}");
        check(&(struct row){ TOKEN_ASK_DETOKENIZE, body.data, over ? -EFBIG : 0,
                             over ? "more than 131072" : "xxxx" });
        buf_clear(&body);
        buf_text(&body, "{\"add_special\":false,\"prompt\":\"");
        for (uint32_t i = 0; i < TOKEN_ASK_IDS_MAX + (uint32_t)over; i++)
            buf_byte(&body, 'x');
        buf_text(&body, "\"}");
        check(&(struct row){ TOKEN_ASK_TOKENIZE, body.data, over ? -EFBIG : 0,
                             over ? "more than 131072" : "\"count\":131072" });
    }
}

static int encode_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_as_fit_and_no_more),
        cmocka_unit_test(a_text_that_cannot_fit_is_not_read),
        cmocka_unit_test(bodies),
        cmocka_unit_test(long_bodies),
    };
    return cmocka_run_group_tests_name("encode", tests, setup, teardown);
}

int main(void)
{
    return pretokenizer_tests() + tokenizer_tests() + detok_tests() + encode_tests();
}
