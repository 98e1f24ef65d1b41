/* t_gguf.c - the GGUF reader over good files: each value and tensor read back, the getters'
 * sentences, files on disk and their digest. */
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "engine/model/vocab_gguf.h"
#include "tests/unit/engine/gguf_good.h"
#include "tests/unit/unit.h"

#include <string.h>
#include <unistd.h>

static void a_good_file_reads_back(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct err err = { { 0 } };
    good_file(&file);
    assert_int_equal(good_parse(buf_view(&file), &g, &err), 0);

    struct str text;
    uint32_t u;
    float f;
    bool b;
    const struct gguf_value *v;
    assert_int_equal(gguf_get_str(g, "general.architecture", &text, &err), 0);
    assert_true(str_eq(text, STR("llama")));
    assert_int_equal(gguf_get_u32(g, "a.u32", &u, &err), 0);
    assert_int_equal(u, 7);
    assert_int_equal(gguf_get_u32(g, "a.i64", &u, &err), 0);
    assert_int_equal(u, 5);
    assert_int_equal(gguf_get_f32(g, "a.f32", &f, &err), 0);
    assert_true(f == 0.25f);
    assert_int_equal(gguf_get_bool(g, "a.bool", &b, &err), 0);
    assert_true(b);
    assert_int_equal(gguf_get_array(g, "a.texts", GGUF_STRING, &v, &err), 0);
    assert_int_equal(v->array.count, 2);
    assert_int_equal(v->array.texts[0].len, 0);
    assert_true(str_eq(v->array.texts[1], STR("abc")));
    assert_int_equal(gguf_get_array(g, "a.ints", GGUF_I32, &v, &err), 0);
    assert_int_equal((int32_t)load_u32(v->array.items), -9);

    const struct gguf_tensor *t = gguf_tensor_find(g, STR("matrix"));
    assert_non_null(t);
    assert_int_equal(t->type, WEIGHT_Q8_0);
    assert_int_equal(t->elements, 64);
    assert_int_equal(t->bytes, 68);
    assert_int_equal(t->offset % 32, 0);
    assert_int_equal(t->offset + t->bytes, file.len);
    t = gguf_tensor_find(g, STR("vector"));
    assert_int_equal(load_u32(file.data + t->offset), 0x3fc00000); /* 1.5 */
    assert_null(gguf_tensor_find(g, STR("vecto")));
    assert_null(gguf_find(g, STR("a")));
}

static void getters_refuse_with_a_sentence(void **state)
{
    (void)state;
    CLEANUP(make_fini) struct gguf_make m;
    CLEANUP(buf_fini) struct buf file = { 0 };
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct err err = { { 0 } };
    make_init(&m);
    good_put(&m);
    make_f32(&m, "a.nan", __builtin_nanf(""));
    make_finish(&m, &file);
    assert_int_equal(good_parse(buf_view(&file), &g, &err), 0);

    struct str text;
    uint32_t u;
    float f;
    bool b;
    const struct gguf_value *v;
    assert_int_equal(gguf_get_u32(g, "absent", &u, &err), -ENOENT);
    assert_string_equal(err.text, "test.gguf: key 'absent' is missing");
    assert_int_equal(gguf_get_u32(g, "a.i8", &u, &err), -EINVAL); /* negative */
    assert_int_equal(gguf_get_u32(g, "a.u64", &u, &err), -EINVAL);
    assert_string_equal(err.text, "test.gguf: key 'a.u64' is out of range (0 to 4294967295)");
    assert_int_equal(gguf_get_u32(g, "a.f32", &u, &err), -EINVAL);
    assert_string_equal(err.text, "test.gguf: key 'a.f32' is a f32, it must be an integer");
    assert_int_equal(gguf_get_f32(g, "a.nan", &f, &err), -EINVAL);
    assert_int_equal(gguf_get_f32(g, "a.u32", &f, &err), -EINVAL);
    assert_int_equal(gguf_get_bool(g, "a.u32", &b, &err), -EINVAL);
    assert_int_equal(gguf_get_str(g, "a.u32", &text, &err), -EINVAL);
    assert_int_equal(gguf_get_array(g, "a.ints", GGUF_STRING, &v, &err), -EINVAL);
    assert_string_equal(err.text, "test.gguf: key 'a.ints' must be an array of string");
    assert_int_equal(gguf_get_array(g, "a.u32", GGUF_I32, &v, &err), -EINVAL);
}

static void files_are_refused_or_read(void **state)
{
    (void)state;
    struct gguf_file f;
    struct err err = { { 0 } };
    assert_int_equal(gguf_file_open("/nonexistent/model.gguf", &f, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/model.gguf: "));
    assert_int_equal(gguf_file_open("/tmp", &f, &err), -EINVAL);
    assert_string_equal(err.text, "/tmp: not a regular file");

    CLEANUP(make_fini) struct gguf_make m;
    make_init(&m);
    good_put(&m);
    char path[64];
    int fd = make_path(&m, path);
    assert_int_equal(gguf_file_open(path, &f, &err), 0);
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    assert_int_equal(gguf_parse(&f.source, &g, &err), 0);
    fault_arm("gguf.read", 1);
    struct gguf *none = NULL;
    assert_int_equal(gguf_parse(&f.source, &none, &err), -EIO);
    fault_disarm();
    assert_int_equal(ftruncate(fd, 40), 0); /* cut while it is open */
    assert_int_equal(gguf_parse(&f.source, &none, &err), -EIO);
    assert_non_null(strstr(err.text, "it was cut"));
    gguf_file_close(&f);
    close(fd);
}

static void the_digest_is_that_of_the_pieces(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    size_t mib = (size_t)1 << 20;
    assert_int_equal(buf_reserve(&file, mib + 5), 0);
    for (size_t i = 0; i < mib + 5; i++)
        buf_byte(&file, (char)(i * 31));
    uint8_t list[64], digest[32];
    char expected[SHA256_HEX + 1], got[SHA256_HEX + 1];
    sha256(file.data, mib, list);
    sha256(file.data + mib, 5, list + 32);
    sha256(list, sizeof list, digest);
    hex_from(digest, sizeof digest, expected);
    struct str view = buf_view(&file);
    struct gguf_source source = memory_source(&view);
    assert_int_equal(gguf_digest(&source, got, NULL), 0);
    assert_string_equal(got, expected);
}

/* Vocabularies in GGUF files that are refused, each with its sentence. */

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
        cmocka_unit_test(a_good_file_reads_back),
        cmocka_unit_test(getters_refuse_with_a_sentence),
        cmocka_unit_test(files_are_refused_or_read),
        cmocka_unit_test(the_digest_is_that_of_the_pieces),
        cmocka_unit_test(a_wrong_vocabulary_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
