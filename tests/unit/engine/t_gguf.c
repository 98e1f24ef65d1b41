/* t_gguf.c - tests the GGUF reader: good files read back, damaged files are refused. */
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "engine/model/model_sampling.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/unit.h"

#include <string.h>
#include <unistd.h>

static void good_put(struct gguf_make *m)
{
    static const float weights[64] = { [0] = 1.5f, [63] = -2.0f };
    static const uint64_t vector[1] = { 64 }, matrix[2] = { 32, 2 };
    make_str(m, "general.architecture", "llama");
    make_u32(m, "a.u32", 7);
    make_f32(m, "a.f32", 0.25f);
    make_bool(m, "a.bool", 1);
    make_key(m, "a.i8", GGUF_I8), buf_byte(&m->values, (char)-3);
    make_key(m, "a.u64", GGUF_U64), make_u64_raw(&m->values, UINT64_MAX);
    make_key(m, "a.i64", GGUF_I64), make_u64_raw(&m->values, 5);
    make_key(m, "a.texts", GGUF_ARRAY), make_u32_raw(&m->values, GGUF_STRING);
    make_u64_raw(&m->values, 2);
    make_u64_raw(&m->values, 0);
    make_u64_raw(&m->values, 3), buf_text(&m->values, "abc");
    make_key(m, "a.ints", GGUF_ARRAY), make_u32_raw(&m->values, GGUF_I32);
    make_u64_raw(&m->values, 1), make_u32_raw(&m->values, (uint32_t)-9);
    make_tensor(m, "vector", 1, vector, 0, weights, sizeof weights);
    make_tensor(m, "matrix", 2, matrix, 8, weights, 68);
}

static void good_file(struct buf *ret)
{
    CLEANUP(make_fini) struct gguf_make m;
    make_init(&m);
    good_put(&m);
    make_finish(&m, ret);
}

/* Parses memory as the file "test.gguf". */
/* ---- good files: values and tensors read back, the getters' messages, files on disk, digests ---- */

static void a_good_file_reads_back(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct err err = { { 0 } };
    good_file(&file);
    assert_int_equal(parse_memory(buf_view(&file), &g, &err), 0);

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
    assert_int_equal(parse_memory(buf_view(&file), &g, &err), 0);

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
    assert_int_equal(ftruncate(fd, 40), 0); /* cut while open */
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

/* The names and types of the keys are those that the package gguf writes. */
static void sampling_defaults_are_read_and_bound(void **state)
{
    (void)state;
    static const struct {
        float temp, top_p;
        const char *says; /* NULL: it is read */
    } rows[] = { { 0.5f, 0.875f, NULL },
                 { 2.5f, 0.875f, "'general.sampling.temp' is 2.5, requests may have 0 to 2" },
                 { 0.5f, -1.0f, "'general.sampling.top_p' is -1" } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(make_fini) struct gguf_make m;
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        char text[MODEL_SAMPLING_TEXT];
        struct sampling s = { 0 };
        struct err err = { "" };
        make_init(&m);
        make_f32(&m, "general.sampling.temp", rows[i].temp);
        make_f32(&m, "general.sampling.top_p", rows[i].top_p);
        make_u32(&m, "general.sampling.top_k", 40);
        make_finish(&m, &bytes);
        const struct str view = buf_view(&bytes);
        const struct gguf_source source = memory_source(&view);
        if (gguf_parse(&source, &g, &err) < 0) fail_msg("%s", err.text);
        int rc = model_sampling_gguf(g, &s, &err);
        assert_int_equal(rc, rows[i].says ? -EINVAL : 0);
        if (rows[i].says) {
            assert_non_null(strstr(err.text, rows[i].says));
            continue;
        }
        assert_true(s.temperature == 0.5 && s.top_p == 0.875 && s.top_k == 40);
        assert_int_equal(s.unnamed, SAMPLING_MIN_P | SAMPLING_REPETITION_PENALTY);
        model_sampling_text(&s, text);
        assert_string_equal(text, "temperature:0.5,top_p:0.875,top_k:40");
    }
}

/* ---- wrong files: one fault each, cut or flipped anywhere, and failing allocations ---- */

static const uint64_t dims_1[1] = { 64 };

static void bad_magic(struct gguf_make *m)
{
    m->magic = "GGUX";
}

static void bad_version(struct gguf_make *m)
{
    m->version = 2;
}

static void bad_endian(struct gguf_make *m)
{
    m->version = __builtin_bswap32(3);
}

static void values_huge(struct gguf_make *m)
{
    m->value_count = UINT64_MAX / 2;
}

static void values_one_more(struct gguf_make *m)
{
    m->value_count++; /* the tensor table is then read as a value */
}

static void tensors_huge(struct gguf_make *m)
{
    m->tensor_count = UINT64_C(1) << 61;
}

static void tensors_one_more(struct gguf_make *m)
{
    m->tensor_count++;
}

static void key_long(struct gguf_make *m)
{
    make_u64_raw(&m->values, UINT64_MAX), m->value_count++;
}

static void key_over_bound(struct gguf_make *m)
{
    make_u64_raw(&m->values, GGUF_KEY_BYTES_MAX + 1), m->value_count++;
    for (uint32_t i = 0; i <= GGUF_KEY_BYTES_MAX; i++)
        buf_byte(&m->values, 'k');
    make_u32_raw(&m->values, GGUF_BOOL), buf_byte(&m->values, 1);
}

static void key_empty(struct gguf_make *m)
{
    make_bool(m, "", 1);
}

static void key_twice(struct gguf_make *m)
{
    make_u32(m, "a.u32", 8);
}

static void value_type(struct gguf_make *m)
{
    make_key(m, "x", 13), make_u64_raw(&m->values, 0);
}

static void value_bool(struct gguf_make *m)
{
    make_bool(m, "x", 2);
}

static void string_long(struct gguf_make *m)
{
    make_key(m, "x", GGUF_STRING), make_u64_raw(&m->values, 1 << 20);
}

static void array_huge(struct gguf_make *m)
{
    make_key(m, "x", GGUF_ARRAY), make_u32_raw(&m->values, GGUF_U64);
    make_u64_raw(&m->values, UINT64_C(1) << 62);
}

static void array_strings(struct gguf_make *m)
{
    make_key(m, "x", GGUF_ARRAY), make_u32_raw(&m->values, GGUF_STRING);
    make_u64_raw(&m->values, 30); /* 8 bytes each would fit, but the rest is no strings */
}

static void array_type(struct gguf_make *m)
{
    make_key(m, "x", GGUF_ARRAY), make_u32_raw(&m->values, 99), make_u64_raw(&m->values, 1);
}

static void array_nested(struct gguf_make *m)
{
    make_key(m, "x", GGUF_ARRAY), make_u32_raw(&m->values, GGUF_ARRAY);
    make_u64_raw(&m->values, 1);
}

static void alignment_zero(struct gguf_make *m)
{
    make_u32(m, "general.alignment", 0);
}

static void alignment_odd(struct gguf_make *m)
{
    make_u32(m, "general.alignment", 48);
}

static void alignment_large(struct gguf_make *m)
{
    make_u32(m, "general.alignment", 1u << 31);
}

static void alignment_type(struct gguf_make *m)
{
    make_key(m, "general.alignment", GGUF_U64), make_u64_raw(&m->values, 32);
}

static void tensor_name_empty(struct gguf_make *m)
{
    make_tensor_row(m, "", 1, dims_1, 0, 1024);
}

static void tensor_name_long(struct gguf_make *m)
{
    make_tensor_row(m, "0123456789012345678901234567890123456789012345678901234567890123x", 1,
                    dims_1, 0, 0);
}

static void tensor_twice(struct gguf_make *m)
{
    static const float weights[64];
    make_tensor(m, "vector", 1, dims_1, 0, weights, sizeof weights);
}

static void tensor_dims_none(struct gguf_make *m)
{
    make_tensor_row(m, "x", 0, dims_1, 0, 0);
}

static void tensor_dims_five(struct gguf_make *m)
{
    static const uint64_t dims[5] = { 1, 1, 1, 1, 1 };
    make_tensor_row(m, "x", 5, dims, 0, 0);
}

static void tensor_dim_zero(struct gguf_make *m)
{
    static const uint64_t dims[2] = { 32, 0 };
    make_tensor_row(m, "x", 2, dims, 0, 0);
}

static void tensor_dims_wrap(struct gguf_make *m)
{
    static const uint64_t dims[2] = { UINT64_C(1) << 33, UINT64_C(1) << 33 };
    make_tensor_row(m, "x", 2, dims, 0, 0);
}

static void tensor_bytes_wrap(struct gguf_make *m)
{
    static const uint64_t dims[1] = { UINT64_C(1) << 63 };
    make_tensor_row(m, "x", 1, dims, 0, 0);
}

static void tensor_block(struct gguf_make *m)
{
    static const uint64_t dims[2] = { 33, 32 };
    make_tensor_row(m, "x", 2, dims, 8, 0);
}

static void tensor_type_known(struct gguf_make *m)
{
    make_tensor_row(m, "x", 1, dims_1, 17, 0);
}

static void tensor_type_unknown(struct gguf_make *m)
{
    make_tensor_row(m, "x", 1, dims_1, 4000, 0);
}

static void tensor_misplaced(struct gguf_make *m)
{
    make_tensor_row(m, "x", 1, dims_1, 0, 8);
}

static void tensor_beyond(struct gguf_make *m)
{
    make_tensor_row(m, "x", 1, dims_1, 0, 256);
}

static void tensor_offset_wraps(struct gguf_make *m)
{
    make_tensor_row(m, "x", 1, dims_1, 0, UINT64_MAX - 31);
}

static void tensor_overlaps(struct gguf_make *m)
{
    static const uint64_t dims[1] = { 16 };
    make_tensor_row(m, "x", 1, dims, 0, 64); /* inside 'vector' */
}

/* clang-format off */
static const struct {
    void (*damage)(struct gguf_make *m);
    int rc;
    const char *says;
} bad_files[] = {
    { bad_magic,           -EINVAL,  "does not start with 'GGUF'" },
    { bad_version,         -ENOTSUP, "GGUF version 2; version 3 is read" },
    { bad_endian,          -ENOTSUP, "big-endian" },
    { values_huge,         -EINVAL,  "values cannot fit" },
    { values_one_more,     -EINVAL,  "an empty name" },
    { tensors_huge,        -EINVAL,  "tensors cannot fit" },
    { tensors_one_more,    -EINVAL,  "an empty name" },
    { key_long,            -EINVAL,  "a key at byte" },
    { key_over_bound,      -E2BIG,   "at most 65535 are read" },
    { key_empty,           -EINVAL,  "an empty key" },
    { key_twice,           -EINVAL,  "key 'a.u32' is there twice" },
    { value_type,          -EINVAL,  "key 'x': type 13" },
    { value_bool,          -EINVAL,  "key 'x': a bool of 2" },
    { string_long,         -EINVAL,  "key 'x': a string" },
    { array_huge,          -EINVAL,  "key 'x': an array of 4611686018427387904 items" },
    { array_strings,       -EINVAL,  "key 'x': a string of an array" },
    { array_type,          -EINVAL,  "key 'x': an array of type 99" },
    { array_nested,        -ENOTSUP, "key 'x': an array of arrays" },
    { alignment_zero,      -EINVAL,  "'general.alignment' is 0" },
    { alignment_odd,       -EINVAL,  "'general.alignment' is 48" },
    { alignment_large,     -EINVAL,  "'general.alignment' is 2147483648" },
    { alignment_type,      -EINVAL,  "'general.alignment' is a u64" },
    { tensor_name_empty,   -EINVAL,  "an empty name" },
    { tensor_name_long,    -E2BIG,   "a tensor's name" },
    { tensor_twice,        -EINVAL,  "tensor 'vector' is there twice" },
    { tensor_dims_none,    -EINVAL,  "tensor 'x': 0 dimensions" },
    { tensor_dims_five,    -EINVAL,  "tensor 'x': 5 dimensions" },
    { tensor_dim_zero,     -EINVAL,  "tensor 'x': dimension 1 is 0" },
    { tensor_dims_wrap,    -EINVAL,  "tensor 'x': its dimensions multiply" },
    { tensor_bytes_wrap,   -EINVAL,  "tensor 'x': more than 2^64 bytes" },
    { tensor_block,        -EINVAL,  "tensor 'x': a row of 33 elements; Q8_0 comes in blocks of 32" },
    { tensor_type_known,   -ENOTSUP, "tensor 'x': type IQ2_XS; this engine reads F32, F16, BF16, Q8_0" },
    { tensor_type_unknown, -ENOTSUP, "tensor 'x': type 4000, unknown" },
    { tensor_misplaced,    -EINVAL,  "tensor 'x': offset 8 (256 bytes; alignment 32) is not a multiple" },
    { tensor_beyond,       -EINVAL,  "tensor 'x': offset 256 (256 bytes; alignment 32) reaches beyond" },
    { tensor_offset_wraps, -EINVAL,  "reaches beyond the end" },
    { tensor_overlaps,     -EINVAL,  "overlap in the file" },
};

/* clang-format on */

static void every_damage_has_its_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_files); i++) {
        CLEANUP(make_fini) struct gguf_make m;
        CLEANUP(buf_fini) struct buf file = { 0 };
        struct gguf *g = NULL;
        struct err err = { { 0 } };
        make_init(&m);
        good_put(&m);
        bad_files[i].damage(&m);
        make_finish(&m, &file);
        int rc = parse_memory(buf_view(&file), &g, &err);
        if (rc != bad_files[i].rc || !strstr(err.text, bad_files[i].says) || g)
            fail_msg("row %zu: %d \"%s\", expected %d \"%s\"", i, rc, err.text, bad_files[i].rc,
                     bad_files[i].says);
        assert_memory_equal(err.text, "test.gguf: ", 11);
    }
}

/* A cut file is refused: its last byte belongs to a tensor, so no prefix is a valid file. */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    good_file(&file);
    for (size_t len = 0; len < file.len; len++) {
        struct gguf *g = NULL;
        struct err err = { { 0 } };
        int rc = parse_memory(str_of(file.data, len), &g, &err);
        if (rc != -EINVAL || g || err.text[0] == 0)
            fail_msg("prefix %zu: %d %s", len, rc, err.text);
    }
}

/* Any changed byte gives a valid struct or a message, never a crash. The asan build makes this test
 * strict. */
static void every_flipped_byte_is_survived(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    static const uint8_t masks[] = { 0x01, 0x80, 0xff };
    good_file(&file);
    for (size_t at = 0; at < file.len; at++) {
        for (size_t i = 0; i < COUNT_OF(masks); i++) {
            CLEANUP(gguf_freep) struct gguf *g = NULL;
            struct err err = { { 0 } };
            file.data[at] = (char)(file.data[at] ^ masks[i]);
            int rc = parse_memory(buf_view(&file), &g, &err);
            file.data[at] = (char)(file.data[at] ^ masks[i]);
            assert_true(rc == 0 ? g != NULL : g == NULL && err.text[0] != 0);
        }
    }
}

static void no_memory_is_an_answer(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    good_file(&file);
    for (uint64_t nth = 1;; nth++) {
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        struct err err = { { 0 } };
        fault_arm("arena.alloc", nth);
        int rc = parse_memory(buf_view(&file), &g, &err);
        bool reached = fault_hits() >= nth;
        fault_disarm();
        if (!reached) {
            assert_int_equal(rc, 0);
            assert_true(nth > 10);
            break;
        }
        assert_int_equal(rc, -ENOMEM);
        assert_null(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_reads_back),
        cmocka_unit_test(getters_refuse_with_a_sentence),
        cmocka_unit_test(files_are_refused_or_read),
        cmocka_unit_test(the_digest_is_that_of_the_pieces),
        cmocka_unit_test(sampling_defaults_are_read_and_bound),
        cmocka_unit_test(every_damage_has_its_sentence),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_flipped_byte_is_survived),
        cmocka_unit_test(no_memory_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
