/* t_vocab.c - tests vocabularies: building them, sending them as bundles, and real ones. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/fault.h"
#include "base/core/rng.h"
#include "base/text/bundle.h"
#include "base/text/detok.h"
#include "base/text/tokenizer.h"
#include "base/text/vocab_tables.h"
#include "tests/unit/text/gguf_vocab.h"
#include "tests/unit/text/small_vocab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- vocabularies that vocab_build accepts, and the message of each refusal ---- */

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

/* A file that names only the end of text still gets an end of turn, found by its text. */
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
    assert_true(of_a.len > 1000); /* every id is written */
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
    p->kind = STR("rwkv");
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

static int vocab_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_end_of_turn_by_name),
        cmocka_unit_test(test_mislabelled_marker_is_control),
        cmocka_unit_test(test_equal_contents),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("vocab", tests, NULL, NULL);
}

/* ---- the tokenizer bundle: round trip, digests, and bytes from a hostile peer ---- */

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

static void test_refusals_of_bundles(void **state)
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

/* The checksum is right, so that the reader reaches the rest. */
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

/* Fails each allocation in turn: a peer's bytes must never end a process. */
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

static int bundle_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_template_changes_the_digest),
        cmocka_unit_test(test_refusals_of_bundles),
        cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("bundle", tests, NULL, NULL);
}

/* ---- real vocabularies against the ids of their reference ----
 *
 * Runs where the shared test data lie (MUSTER_SHARED, or ../shared beside the checkout); the
 * vocabularies belong to their models and are not ours to ship. */

static char folder[4096];

static void read_text(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot read %s", path);
    char chunk[65536];
    size_t len;
    while ((len = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(out, chunk, len);
    fclose(f);
}

/* Checks one case: the text up to the separator line, the ids of one line. */
static void check_case(const struct vocab *v, const char *name, int number, struct str text,
                       struct str line, bool exact)
{
    CLEANUP(ids_fini) struct ids ids = { 0 };
    CLEANUP(buf_fini) struct buf got = { 0 };
    CLEANUP(buf_fini) struct buf back = { 0 };
    assert_int_equal(tokenizer_encode(v, text, false, &ids, NULL), 0);
    for (size_t i = 0; i < ids.count; i++)
        buf_printf(&got, " %u", ids.data[i]);
    if (!str_eq(buf_view(&got), line))
        fail_msg("%s case %d: got" STR_FMT ", expected" STR_FMT, name, number,
                 STR_ARG(buf_view(&got)), STR_ARG(line));
    detok_bytes(v, ids.data, ids.count, false, &back);
    if (exact) assert_true(str_eq(buf_view(&back), text));
}

static void check_vocab(const char *name, bool exact)
{
    char path[sizeof folder + 64];
    snprintf(path, sizeof path, "%s/data/vocab/%s.gguf", folder, name);
    CLEANUP(vocab_freep) struct vocab *v = gguf_vocab_load(path);
    if (!v) fail_msg("%s cannot be loaded", path);
    CLEANUP(buf_fini) struct buf cases = { 0 };
    CLEANUP(buf_fini) struct buf ids = { 0 };
    snprintf(path, sizeof path, "%s/data/vocab/cases.txt", folder);
    read_text(path, &cases);
    snprintf(path, sizeof path, "%s/data/vocab/%s.expected-ids.txt", folder, name);
    read_text(path, &ids);
    struct str rest = buf_view(&cases), lines = buf_view(&ids);
    static const struct str separator = STR("\n__ggml_vocab_test__\n");
    int number = 0;
    while (rest.data) {
        size_t len = str_find(rest, separator);
        struct str text = len == SIZE_MAX ? rest : str_of(rest.data, len);
        rest = len == SIZE_MAX
                   ? (struct str){ 0 }
                   : str_of(rest.data + len + separator.len, rest.len - len - separator.len);
        if (!rest.data && text.len > 0) text.len--; /* the file's own last line end */
        check_case(v, name, number++, text, str_cut(&lines, '\n'), exact);
    }
    print_message("%s: %d cases\n", name, number);
    assert_true(number >= 46);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_vocab("gpt-2", true);
}

static void test_starcoder(void **state)
{
    (void)state;
    check_vocab("starcoder", true);
}

static void test_falcon(void **state)
{
    (void)state;
    check_vocab("falcon", true);
}

static void test_deepseek_coder(void **state)
{
    (void)state;
    check_vocab("deepseek-coder", true);
}

static void test_llama_spm(void **state)
{
    (void)state;
    check_vocab("llama-spm", true);
}

static void test_phi3(void **state)
{
    (void)state;
    check_vocab("phi-3", true);
}

/* BERT's normalisation loses case, accents and blanks. */
static void test_bert_bge(void **state)
{
    (void)state;
    check_vocab("bert-bge", false);
}

static int tokenizer_files_tests(void)
{
    const char *shared = getenv("MUSTER_SHARED");
    snprintf(folder, sizeof folder, "%s", shared ? shared : "../shared");
    char path[sizeof folder + 64];
    snprintf(path, sizeof path, "%s/data/vocab/cases.txt", folder);
    if (access(path, R_OK) != 0) {
        print_message("skipped: %s is not here (set MUSTER_SHARED)\n", path);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),      cmocka_unit_test(test_starcoder),
        cmocka_unit_test(test_falcon),    cmocka_unit_test(test_deepseek_coder),
        cmocka_unit_test(test_llama_spm), cmocka_unit_test(test_phi3),
        cmocka_unit_test(test_bert_bge),
    };
    return cmocka_run_group_tests_name("tokenizer_files", tests, NULL, NULL);
}

int main(void)
{
    return vocab_tests() + bundle_tests() + tokenizer_files_tests();
}
