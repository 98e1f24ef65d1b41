/* gguf_good.c - see gguf_good.h. */
#include "tests/unit/engine/gguf_good.h"

void good_put(struct gguf_make *m)
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

void good_file(struct buf *ret)
{
    CLEANUP(make_fini) struct gguf_make m;
    make_init(&m);
    good_put(&m);
    make_finish(&m, ret);
}

int good_parse(struct str file, struct gguf **ret, struct err *err)
{
    struct gguf_source source = memory_source(&file);
    return gguf_parse(&source, ret, err);
}
