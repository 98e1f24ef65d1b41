/* t_vocab_gguf.c - vocabularies in GGUF files that are refused, each with its sentence. */
#include "engine/model/vocab_gguf.h"
#include "tests/unit/engine/gguf_good.h"
#include "tests/unit/unit.h"

#include <string.h>

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
        assert_int_equal(good_parse(buf_view(&file), &g, &err), 0);
        int rc = vocab_from_gguf(g, &vocab, &err);
        if (rc != -EINVAL || vocab || !strstr(err.text, bad_vocabs[i].says))
            fail_msg("row %zu: %d \"%s\", expected \"%s\"", i, rc, err.text, bad_vocabs[i].says);
        assert_memory_equal(err.text, "test.gguf: ", 11);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_vocabulary_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
