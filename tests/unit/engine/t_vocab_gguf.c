/* t_vocab_gguf.c - tests vocabularies of GGUF files: each kind with its switches, and what is refused. */
#include "base/text/tokenizer.h"
#include "engine/files/vocab_gguf.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/unit.h"

#include <string.h>

/* ---- refusals, each with its message ---- */

static void put_texts(struct gguf_make *m, const char *key, const char *a, const char *b)
{
    make_key(m, key, GGUF_ARRAY), make_u32_raw(&m->values, GGUF_STRING);
    make_u64_raw(&m->values, 2);
    make_u64_raw(&m->values, strlen(a)), buf_text(&m->values, a);
    make_u64_raw(&m->values, strlen(b)), buf_text(&m->values, b);
}

static void put_types(struct gguf_make *m, uint32_t first, uint32_t count)
{
    make_key(m, "tokenizer.ggml.token_type", GGUF_ARRAY), make_u32_raw(&m->values, GGUF_I32);
    make_u64_raw(&m->values, count);
    for (uint32_t i = 0; i < count; i++)
        make_u32_raw(&m->values, i == 0 ? first : 1);
}

static void vocab_no_kind(struct gguf_make *m)
{
    put_texts(m, "tokenizer.ggml.tokens", "a", "b");
}

static void vocab_no_tokens(struct gguf_make *m)
{
    make_str(m, "tokenizer.ggml.model", "gpt2");
}

static void vocab_tokens_numbers(struct gguf_make *m)
{
    make_str(m, "tokenizer.ggml.model", "gpt2");
    make_u32(m, "tokenizer.ggml.tokens", 2);
}

static void put_vocab(struct gguf_make *m)
{
    make_str(m, "tokenizer.ggml.model", "gpt2");
    make_str(m, "tokenizer.ggml.pre", "gpt-2");
    put_texts(m, "tokenizer.ggml.tokens", "a", "b");
}

static void vocab_type_seven(struct gguf_make *m)
{
    put_vocab(m), put_types(m, 7, 2);
}

static void vocab_type_negative(struct gguf_make *m)
{
    put_vocab(m), put_types(m, (uint32_t)-1, 2);
}

static void vocab_types_many(struct gguf_make *m)
{
    put_vocab(m), put_types(m, 1, 3);
}

static void vocab_merges_text(struct gguf_make *m)
{
    put_vocab(m), make_str(m, "tokenizer.ggml.merges", "a b");
}

static void vocab_end_beyond(struct gguf_make *m)
{
    put_vocab(m), make_u32(m, "tokenizer.ggml.eos_token_id", 2);
}

static void vocab_bos_text(struct gguf_make *m)
{
    put_vocab(m), make_str(m, "tokenizer.ggml.bos_token_id", "<s>");
}

static void vocab_add_number(struct gguf_make *m)
{
    put_vocab(m), make_u32(m, "tokenizer.ggml.add_bos_token", 1);
}

static void vocab_charsmap_text(struct gguf_make *m)
{
    put_vocab(m), make_str(m, "tokenizer.ggml.precompiled_charsmap", "map");
}

static void vocab_llama_without_scores(struct gguf_make *m)
{
    make_str(m, "tokenizer.ggml.model", "llama");
    make_u32(m, "tokenizer.ggml.eos_token_id", 1);
    put_texts(m, "tokenizer.ggml.tokens", "a", "b");
}

/* clang-format off */
static const struct {
    void (*put)(struct gguf_make *m);
    const char *says;
} bad_vocabs[] = {
    { vocab_no_kind,        "key 'tokenizer.ggml.model' is missing" },
    { vocab_no_tokens,      "key 'tokenizer.ggml.tokens' is missing" },
    { vocab_tokens_numbers, "key 'tokenizer.ggml.tokens' must be an array of string" },
    { vocab_type_seven,     "key 'tokenizer.ggml.token_type': token 0 has type 7, 1 to 6 exist" },
    { vocab_type_negative,  "token 0 has type -1" },
    { vocab_types_many,     "vocabulary: 3 token types for 2 tokens" },
    { vocab_merges_text,    "key 'tokenizer.ggml.merges' must be an array of string" },
    { vocab_end_beyond,     "vocabulary: " },
    { vocab_bos_text,       "key 'tokenizer.ggml.bos_token_id' is a string, it must be an integer" },
    { vocab_add_number,     "key 'tokenizer.ggml.add_bos_token' is a u32, it must be a bool" },
    { vocab_charsmap_text,  "key 'tokenizer.ggml.precompiled_charsmap' is no array of bytes" },
    { vocab_llama_without_scores, "vocabulary: a vocabulary of kind llama needs scores" },
};

/* clang-format on */

static void a_wrong_vocabulary_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_vocabs); i++) {
        CLEANUP(make_fini) struct gguf_make m;
        CLEANUP(buf_fini) struct buf file = { 0 };
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        struct vocab *vocab = NULL;
        struct err err = { { 0 } };
        make_init(&m);
        bad_vocabs[i].put(&m);
        make_finish(&m, &file);
        assert_int_equal(parse_memory(buf_view(&file), &g, &err), 0);
        int rc = vocab_from_gguf(g, &vocab, &err);
        if (rc != -EINVAL || vocab || !strstr(err.text, bad_vocabs[i].says))
            fail_msg("row %zu: %d \"%s\", expected \"%s\"", i, rc, err.text, bad_vocabs[i].says);
        assert_memory_equal(err.text, "test.gguf: ", 11);
    }
}

/* ---- kinds of vocabulary, with the switches that a file gives instead of rules ---- */

static void put_list(struct gguf_make *m, const char *key, uint32_t type, uint64_t count)
{
    make_key(m, key, GGUF_ARRAY), make_u32_raw(&m->values, type);
    make_u64_raw(&m->values, count);
}

static void put_bert_bare(struct gguf_make *m)
{
    static const char *const tokens[] = { "[UNK]", "[CLS]", "[SEP]", "\xE2\x96\x81\x61", "b" };
    make_str(m, "tokenizer.ggml.model", "bert");
    put_list(m, "tokenizer.ggml.tokens", GGUF_STRING, COUNT_OF(tokens));
    for (size_t i = 0; i < COUNT_OF(tokens); i++)
        make_u64_raw(&m->values, strlen(tokens[i])), buf_text(&m->values, tokens[i]);
    make_u32(m, "tokenizer.ggml.unknown_token_id", 0);
}

static void put_bert(struct gguf_make *m)
{
    put_bert_bare(m);
    make_u32(m, "tokenizer.ggml.cls_token_id", 1);
    make_u32(m, "tokenizer.ggml.seperator_token_id", 2);
}

/* As the package gguf writes it today. */
static void put_bert_begin(struct gguf_make *m)
{
    put_bert_bare(m);
    make_u32(m, "tokenizer.ggml.bos_token_id", 1);
    make_u32(m, "tokenizer.ggml.seperator_token_id", 2);
    make_bool(m, "tokenizer.ggml.add_bos_token", 1);
}

/* Tokens <unk>, <s>, </s>, a, ab, b, U+2581 and U+2581 a, all with scores; begin and unknown token are not
 * named, as the kind has them. */
static void put_llama(struct gguf_make *m)
{
    static const char *const tokens[] = { "<unk>", "<s>", "</s>",         "a",
                                          "ab",    "b",   "\xE2\x96\x81", "\xE2\x96\x81\x61" };
    static const float scores[] = { 0, 0, 0, -9, -1, -9, -9, -2 };
    make_str(m, "tokenizer.ggml.model", "llama");
    put_list(m, "tokenizer.ggml.tokens", GGUF_STRING, COUNT_OF(tokens));
    for (size_t i = 0; i < COUNT_OF(tokens); i++)
        make_u64_raw(&m->values, strlen(tokens[i])), buf_text(&m->values, tokens[i]);
    put_list(m, "tokenizer.ggml.scores", GGUF_F32, COUNT_OF(tokens));
    buf_append(&m->values, scores, sizeof scores);
}

static void put_llama_bare(struct gguf_make *m)
{
    put_llama(m), make_bool(m, "tokenizer.ggml.add_space_prefix", 0);
}

static void put_suffix(struct gguf_make *m)
{
    put_llama(m), make_bool(m, "tokenizer.ggml.treat_whitespace_as_suffix", 1);
}

static void kinds_follow_their_switches(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        void (*put)(struct gguf_make *m);
        const char *text;
        uint32_t ids[8];
        size_t count; /* 0: refused */
    } rows[] = {
        { "BERT: between its two tokens, without case and accents",
          put_bert,
          "\xC3\x81\x62 A",
          { 1, 3, 4, 3, 2 },
          5 },
        { "BERT: the begin token is its first", put_bert_begin, "ab", { 1, 3, 4, 2 }, 4 },
        { "BERT: its two tokens by their names", put_bert_bare, "ab", { 1, 3, 4, 2 }, 4 },
        { "the best score first: ab, though U+2581 a comes before",
          put_llama,
          "ab",
          { 1, 6, 4 },
          3 },
        { "a blank is a token, and an unknown character the unknown one",
          put_llama,
          "a x",
          { 1, 7, 6, 0 },
          4 },
        { "no blank in front", put_llama_bare, "ab", { 1, 4 }, 2 },
        { "a switch that we do not have", put_suffix, "", { 0 }, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(make_fini) struct gguf_make m;
        CLEANUP(buf_fini) struct buf file = { 0 };
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        CLEANUP(vocab_freep) struct vocab *vocab = NULL;
        CLEANUP(ids_fini) struct ids ids = { 0 };
        make_init(&m);
        rows[i].put(&m);
        make_finish(&m, &file);
        print_message("%s\n", rows[i].why);
        assert_int_equal(parse_memory(buf_view(&file), &g, NULL), 0);
        int rc = vocab_from_gguf(g, &vocab, NULL);
        assert_int_equal(rc, rows[i].count ? 0 : -ENOTSUP);
        if (rc < 0) continue;
        assert_int_equal(tokenizer_encode_prompt(vocab, str_from(rows[i].text), &ids, NULL), 0);
        assert_int_equal(ids.count, rows[i].count);
        assert_memory_equal(ids.data, rows[i].ids, ids.count * sizeof *ids.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_vocabulary_is_refused),
        cmocka_unit_test(kinds_follow_their_switches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
