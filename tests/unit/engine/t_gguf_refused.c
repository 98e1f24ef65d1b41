/* t_gguf_refused.c - GGUF files that are wrong in one way each, cut anywhere, flipped anywhere, and
 * memory that ends: each row damages a file that is otherwise good. */
#include "base/core/fault.h"
#include "tests/unit/engine/gguf_good.h"
#include "tests/unit/unit.h"

#include <string.h>

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
    m->value_count++; /* the table of tensors is then read as a value */
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
    make_u64_raw(&m->values, 30); /* 8 bytes each would fit, what follows are no strings */
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
    make_tensor_row(m, "x", 1, dims_1, 12, 0);
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
    { tensor_type_known,   -ENOTSUP, "tensor 'x': type Q4_K; this engine reads F32, F16, BF16, Q8_0" },
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
        int rc = good_parse(buf_view(&file), &g, &err);
        if (rc != bad_files[i].rc || !strstr(err.text, bad_files[i].says) || g)
            fail_msg("row %zu: %d \"%s\", expected %d \"%s\"", i, rc, err.text, bad_files[i].rc,
                     bad_files[i].says);
        assert_memory_equal(err.text, "test.gguf: ", 11);
    }
}

/* A file that is cut anywhere is refused: no prefix of a file whose last byte is a tensor's is
 * a file. */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    good_file(&file);
    for (size_t len = 0; len < file.len; len++) {
        struct gguf *g = NULL;
        struct err err = { { 0 } };
        int rc = good_parse(str_of(file.data, len), &g, &err);
        if (rc != -EINVAL || g || err.text[0] == 0)
            fail_msg("prefix %zu: %d %s", len, rc, err.text);
    }
}

/* Any single byte may change: the result is a struct or a sentence, never a crash. The asan
 * build is what gives this its teeth. */
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
            int rc = good_parse(buf_view(&file), &g, &err);
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
        int rc = good_parse(buf_view(&file), &g, &err);
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
        cmocka_unit_test(every_damage_has_its_sentence),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_flipped_byte_is_survived),
        cmocka_unit_test(no_memory_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
