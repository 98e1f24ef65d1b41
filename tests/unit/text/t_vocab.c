/* t_vocab.c - what vocab_build accepts, what it refuses and how it says so. */
#include "base/core/bits.h"
#include "base/text/vocab_tables.h"
#include "tests/unit/text/small_vocab.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_contents(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *v = small_vocab("gpt-2");
    assert_int_equal(vocab_find(v, STR("<|user|>")), SMALL_USER);
    assert_int_equal(vocab_find(v, STR("nowhere")), VOCAB_NONE);
    assert_int_equal(vocab_type(v, SMALL_USER), TOKEN_CONTROL);
    assert_int_equal(vocab_type(v, SMALL_THINK), TOKEN_USER_DEFINED);
    assert_int_equal(vocab_type(v, vocab_count(v)), TOKEN_UNUSED);
    assert_true(str_eq(vocab_bytes(v, SMALL_BYTE0 + ' '), STR(" ")));
    assert_true(str_eq(vocab_text(v, SMALL_BYTE0 + ' '), STR("\xC4\xA0")));
    assert_true(str_eq(vocab_bytes(v, vocab_find(v, STR("\xC4\xA0the"))), STR(" the")));
    assert_int_equal(vocab_bytes(v, vocab_count(v)).len, 0);
    for (unsigned b = 0; b < 256; b++) {
        struct str bytes = vocab_bytes(v, SMALL_BYTE0 + b);
        assert_int_equal(bytes.len, 1);
        assert_int_equal((unsigned char)bytes.data[0], b);
    }
}

/* A file that names only the end of text still ends its turns. */
static void test_end_of_turn_by_name(void **state)
{
    (void)state;
    struct vocab_parts parts = small_vocab_parts("gpt-2");
    parts.special.eos = SMALL_BEGIN;
    struct vocab *v = NULL;
    assert_int_equal(vocab_build(&parts, &v, NULL), 0);
    assert_int_equal(vocab_special(v)->eot, SMALL_END);
    vocab_free(v);
}

static void test_mislabelled_marker_is_control(void **state)
{
    (void)state;
    struct vocab_parts parts = small_vocab_parts("gpt-2");
    uint8_t types[1024];
    memcpy(types, parts.types, parts.type_count);
    types[SMALL_USER] = TOKEN_USER_DEFINED;
    parts.types = types;
    struct vocab *v = NULL;
    assert_int_equal(vocab_build(&parts, &v, NULL), 0);
    assert_int_equal(vocab_type(v, SMALL_USER), TOKEN_CONTROL);
    vocab_free(v);
}

static bool same_contents(const struct vocab *a, const struct vocab *b)
{
    CLEANUP(buf_fini) struct buf of_a = { 0 };
    CLEANUP(buf_fini) struct buf of_b = { 0 };
    assert_int_equal(vocab_write(a, &of_a), 0);
    assert_int_equal(vocab_write(b, &of_b), 0);
    assert_true(of_a.len > 1000); /* all of it is written */
    return str_eq(buf_view(&of_a), buf_view(&of_b));
}

static void test_equal_contents(void **state)
{
    (void)state;
    CLEANUP(vocab_freep) struct vocab *a = small_vocab("gpt-2");
    CLEANUP(vocab_freep) struct vocab *b = small_vocab("gpt-2");
    CLEANUP(vocab_freep) struct vocab *c = small_vocab("qwen2");
    assert_true(same_contents(a, b));
    assert_false(same_contents(a, c));
    struct vocab_parts parts = small_vocab_parts("gpt-2");
    parts.special.add_bos = false;
    CLEANUP(vocab_freep) struct vocab *d = NULL;
    assert_int_equal(vocab_build(&parts, &d, NULL), 0);
    assert_false(same_contents(a, d));
}

static struct str broken_tokens[1024], broken_merges[64];
static uint8_t broken_types[1024];
static uint32_t broken_ids[] = { 6, 100000 };

static void no_tokens(struct vocab_parts *p)
{
    p->token_count = 0, p->type_count = 0;
}
static void too_many(struct vocab_parts *p)
{
    p->token_count = VOCAB_TOKENS_MAX + 1u;
}
static void short_types(struct vocab_parts *p)
{
    p->type_count--;
}
static void short_scores(struct vocab_parts *p)
{
    p->score_count = 1;
}
static void wrong_kind(struct vocab_parts *p)
{
    p->kind = STR("bert");
}
static void wrong_pre(struct vocab_parts *p)
{
    p->pre = STR("gpt-9");
}
static void no_pre(struct vocab_parts *p)
{
    p->pre = (struct str){ 0 };
}
static void bad_type(struct vocab_parts *p)
{
    broken_types[7] = 9;
    (void)p;
}
static void twice(struct vocab_parts *p)
{
    broken_tokens[9] = broken_tokens[8];
    (void)p;
}
static void not_utf8(struct vocab_parts *p)
{
    broken_tokens[9] = STR("\xC3(");
    (void)p;
}
static void bad_byte_token(struct vocab_parts *p)
{
    broken_tokens[p->token_count - 1] = STR("<0x-1>");
    broken_types[p->token_count - 1] = TOKEN_BYTE;
    p->merge_count = 0;
}
static void bos_beyond(struct vocab_parts *p)
{
    p->special.bos = (uint32_t)p->token_count;
}
static void bos_missing(struct vocab_parts *p)
{
    p->special.bos = VOCAB_NONE;
}
static void merge_unknown(struct vocab_parts *p)
{
    broken_merges[0] = STR("zz y");
    (void)p;
}
static void merge_joined(struct vocab_parts *p)
{
    broken_merges[0] = STR("z y");
    (void)p;
}
static void merge_no_space(struct vocab_parts *p)
{
    broken_merges[0] = STR("zy");
    (void)p;
}
static void merge_id(struct vocab_parts *p)
{
    p->merge_ids = broken_ids, p->merge_count = 1;
}
static void no_replacement(struct vocab_parts *p)
{
    broken_types[SMALL_BYTE0 + 0xEF] = TOKEN_UNUSED;
    p->merge_count = 0;
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        void (*break_it)(struct vocab_parts *);
        int rc;
        const char *says;
    } rows[] = {
        { "nothing to encode with", no_tokens, -EINVAL, "no tokens" },
        { "a count that no vocabulary has", too_many, -E2BIG, "at most" },
        { "types would be read beyond their end", short_types, -EINVAL, "token types" },
        { "scores would be read beyond their end", short_scores, -EINVAL, "token scores" },
        { "a kind we have no code for", wrong_kind, -ENOTSUP, "known: gpt2" },
        { "a rule we have no code for", wrong_pre, -ENOTSUP, "known: gpt-2, " },
        { "a missing rule is not guessed", no_pre, -ENOTSUP, "known: gpt-2, " },
        { "a type out of range", bad_type, -EINVAL, "token 7 has type 9" },
        { "two ids for one text", twice, -EINVAL, "tokens 8 and 9" },
        { "text that JSON cannot carry", not_utf8, -EINVAL, "token 9" },
        { "a byte token that names no byte", bad_byte_token, -EINVAL, "<0xNN>" },
        { "a special id beyond the tokens", bos_beyond, -EINVAL, "bos token" },
        { "add_bos without bos", bos_missing, -EINVAL, "begin" },
        { "a merge of an unknown token", merge_unknown, -EINVAL, "merge 0" },
        { "a merge into an unknown token", merge_joined, -EINVAL, "merge 0" },
        { "a merge of one token", merge_no_space, -EINVAL, "merge 0" },
        { "a merge id beyond the tokens", merge_id, -EINVAL, "merge 0" },
        { "no way to write a missing byte", no_replacement, -EINVAL, "byte ef" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct vocab_parts parts = small_vocab_parts("gpt-2");
        memcpy(broken_tokens, parts.tokens, parts.token_count * sizeof *parts.tokens);
        memcpy(broken_types, parts.types, parts.type_count);
        memcpy(broken_merges, parts.merges, parts.merge_count * sizeof *parts.merges);
        parts.tokens = broken_tokens, parts.types = broken_types, parts.merges = broken_merges;
        rows[i].break_it(&parts);
        struct vocab *v = NULL;
        struct err err = { 0 };
        int rc = vocab_build(&parts, &v, &err);
        if (rc != rows[i].rc || !strstr(err.text, rows[i].says))
            fail_msg("%s: rc %d, \"%s\"", rows[i].why, rc, err.text);
        assert_null(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_end_of_turn_by_name),
        cmocka_unit_test(test_mislabelled_marker_is_control),
        cmocka_unit_test(test_equal_contents),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
