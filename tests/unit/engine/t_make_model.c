/* t_make_model.c - tests that made files read back: random models, and weights rounded to each type. */
#include "base/core/fault.h"
#include "base/core/own.h"
#include "engine/files/gguf_write.h"
#include "engine/model/make_model.h"
#include "engine/model/model.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Rows of 256 elements, the blocks of the K types, and few of them: rounding each to each type is what these tests compute. */
static void make_layers(const char *name, enum weight_type_id type, bool tied, uint32_t layers,
                        uint32_t idle)
{
    const struct random_model m = { .arch = "llama",
                                    .width = 256,
                                    .layers = layers,
                                    .idle_layers = idle,
                                    .ff = 256,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .vocab = 64,
                                    .context = 128,
                                    .type = type,
                                    .tied = tied,
                                    .seed = 5 };
    struct err err = { { 0 } };
    if (random_model_write(&m, folder_at(name), NULL, &err) < 0) fail_msg("%s", err.text);
}

static void make(const char *name, enum weight_type_id type, bool tied)
{
    make_layers(name, type, tied, 2, 0);
}

static float *values_of(const struct gguf_file *f, const struct gguf_tensor *t)
{
    char *raw = calloc(1, (size_t)t->bytes);
    float *x = calloc((size_t)t->elements, sizeof *x);
    must(raw && x && f->source.read(f->source.ctx, t->offset, raw, (size_t)t->bytes, NULL) == 0);
    weight_types[t->type].to_f32(raw, (uint32_t)t->elements, x);
    free(raw);
    return x;
}

/* Rows are unequal, and their variance is that which keeps a width's sums near one. */
static void random_models_load_and_look_random(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        CLEANUP(model_freep) struct model *model = NULL;
        CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
        struct err err = { { 0 } };
        make("random.gguf", type, type % 2 == 0);
        if (model_load(folder_at("random.gguf"), NULL, &model, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(model_info(model)->vocab_size, 64);
        assert_null(model_info(model)->vocab);
        CLEANUP(gguf_freep) struct gguf *g = folder_open("random.gguf", &file);
        const struct gguf_tensor *t = gguf_tensor_find(g, STR("blk.1.ffn_down.weight"));
        assert_non_null(t);
        assert_int_equal(t->type, type);
        float *x = values_of(&file, t);
        double sum = 0, squares = 0;
        for (uint64_t i = 0; i < t->elements; i++)
            sum += (double)x[i], squares += (double)x[i] * (double)x[i];
        double n = (double)t->elements, variance = squares / n * (double)t->dims[0];
        if (!(fabs(sum / n) < 0.01 && variance > 0.9 && variance < 1.1))
            fail_msg("%s: mean %g, variance %g", weight_types[type].name, sum / n, variance);
        assert_memory_not_equal(x, x + t->dims[0], t->dims[0] * sizeof *x);
        free(x);
    }
}

static void one_seed_gives_one_file(void **state)
{
    (void)state;
    char digest[2][SHA256_HEX + 1];
    for (int i = 0; i < 2; i++) {
        CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
        make(i ? "b.gguf" : "a.gguf", WEIGHT_Q4_0, false);
        assert_int_equal(gguf_file_open(folder_at(i ? "b.gguf" : "a.gguf"), &file, NULL), 0);
        assert_int_equal(gguf_digest(&file.source, digest[i], NULL), 0);
    }
    assert_string_equal(digest[0], digest[1]);
}

/* Rounds a file of the folder, or at a path, to to.gguf. */
static int quantise(const char *path, enum weight_type_id type, struct quantise_result *ret,
                    struct err *err)
{
    const struct quantise_ask ask = { .type = type };
    return quantise_model(path, folder_at("to.gguf"), &ask, ret, err);
}

/* The model without its idle layers is the same to the bit, and what those add is zero. */
static void idle_layers_add_nothing(void **state)
{
    (void)state;
    static const char *const same[] = { "token_embd.weight", "blk.0.attn_q.weight",
                                        "blk.0.attn_output.weight", "blk.0.ffn_down.weight" };
    static const char *const zero[] = { "blk.1.attn_output.weight", "blk.2.ffn_down.weight" };
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        CLEANUP(gguf_file_close) struct gguf_file small = { .fd = -1 }, large = { .fd = -1 };
        make_layers("small.gguf", type, true, 1, 0);
        make_layers("large.gguf", type, true, 3, 2);
        CLEANUP(gguf_freep) struct gguf *a = folder_open("small.gguf", &small);
        CLEANUP(gguf_freep) struct gguf *b = folder_open("large.gguf", &large);
        for (size_t i = 0; i < COUNT_OF(same); i++) {
            const struct gguf_tensor *t = gguf_tensor_find(a, str_from(same[i]));
            float *x = values_of(&small, t);
            float *y = values_of(&large, gguf_tensor_find(b, str_from(same[i])));
            assert_memory_equal(x, y, t->elements * sizeof *x);
            free(x), free(y);
        }
        for (size_t i = 0; i < COUNT_OF(zero); i++) {
            const struct gguf_tensor *t = gguf_tensor_find(b, str_from(zero[i]));
            float *x = values_of(&large, t);
            for (uint64_t k = 0; k < t->elements; k++)
                assert_true(fabsf(x[k]) <= 0);
            free(x);
        }
    }
}

static void rounded_files_hold_rounded_rows(void **state)
{
    (void)state;
    make_layers("f32.gguf", WEIGHT_F32, false, 1, 0);
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        CLEANUP(gguf_file_close) struct gguf_file from = { .fd = -1 }, to = { .fd = -1 };
        struct quantise_result result;
        struct err err = { { 0 } };
        if (quantise(folder_at("f32.gguf"), type, &result, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(result.tensors, 9);
        assert_int_equal(result.kept, 3);
        /* Measured of two and three bits, and of MXFP4: 0.26, 0.145, 0.112; of all others at most 0.086. */
        const double error_max = type == WEIGHT_Q2_K    ? 0.28
                                 : type == WEIGHT_Q3_K  ? 0.16
                                 : type == WEIGHT_MXFP4 ? 0.12
                                                        : 0.11;
        if (!(result.fallback == 0 && result.error < error_max))
            fail_msg("%s: error %g", weight_types[type].name, result.error);
        CLEANUP(gguf_freep) struct gguf *a = folder_open("f32.gguf", &from);
        CLEANUP(gguf_freep) struct gguf *b = folder_open("to.gguf", &to);
        assert_int_equal(a->tensor_count, b->tensor_count);
        for (uint32_t i = 0; i < a->tensor_count; i++) {
            const struct gguf_tensor *t = &a->tensors[i], *u = &b->tensors[i];
            assert_true(str_eq(t->name, u->name) && t->elements == u->elements);
            assert_int_equal(u->type, t->n_dims == 1 ? WEIGHT_F32 : type);
            float *x = values_of(&from, t), *got = values_of(&to, u);
            char *raw = calloc(1, (size_t)u->bytes);
            must(raw);
            weight_types[u->type].from_f32(x, (uint32_t)t->elements, raw);
            weight_types[u->type].to_f32(raw, (uint32_t)t->elements, x);
            assert_memory_equal(got, x, t->elements * sizeof *x);
            free(x), free(got), free(raw);
        }
        uint32_t context = 0;
        assert_int_equal(gguf_get_u32(b, "llama.context_length", &context, &err), 0);
        assert_int_equal(context, 128);
    }
}

/* Values of every kind survive being copied. */
static void metadata_is_copied(void **state)
{
    (void)state;
    CLEANUP(make_fini) struct gguf_make m;
    struct rng rng;
    char path[64];
    rng_seed(&rng, 1);
    make_init(&m);
    make_str(&m, "general.architecture", "other");
    make_f32(&m, "a.f32", 0.25f);
    make_bool(&m, "a.bool", 1);
    make_u32(&m, "general.alignment", 64);
    m.alignment = 64;
    make_u32(&m, "split.count", 1);
    make_key(&m, "a.i8", GGUF_I8), buf_byte(&m.values, (char)-3);
    make_key(&m, "a.texts", GGUF_ARRAY), make_u32_raw(&m.values, GGUF_STRING);
    make_u64_raw(&m.values, 1);
    make_u64_raw(&m.values, 3), buf_text(&m.values, "abc");
    make_key(&m, "a.ints", GGUF_ARRAY), make_u32_raw(&m.values, GGUF_I32);
    make_u64_raw(&m.values, 1), make_u32_raw(&m.values, (uint32_t)-9);
    make_random(&m, "odd", WEIGHT_F32, 3, 40, 1, &rng);
    make_random(&m, "small", WEIGHT_F16, 3, 64, 1, &rng);
    int fd = make_path(&m, path);
    struct quantise_result result;
    struct err err = { { 0 } };
    if (quantise(path, WEIGHT_Q4_K, &result, &err) < 0) fail_msg("%s", err.text);
    close(fd);
    assert_int_equal(result.fallback, 2);
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    CLEANUP(gguf_freep) struct gguf *g = folder_open("to.gguf", &file);
    assert_int_equal(gguf_tensor_find(g, STR("odd"))->type, WEIGHT_F16);
    assert_int_equal(gguf_tensor_find(g, STR("small"))->type, WEIGHT_Q8_0);
    assert_null(gguf_find(g, STR("general.alignment")));
    assert_null(gguf_find(g, STR("split.count")));
    assert_int_equal(gguf_find(g, STR("a.i8"))->i, -3);
    assert_int_equal(gguf_find(g, STR("a.bool"))->u, 1);
    assert_true(gguf_find(g, STR("a.f32"))->f == 0.25);
    assert_true(str_eq(gguf_find(g, STR("a.texts"))->array.texts[0], STR("abc")));
    assert_int_equal((int32_t)load_u32(gguf_find(g, STR("a.ints"))->array.items), -9);
}

static void expect_refusal(int rc, int wanted, const struct err *err, const char *says)
{
    if (rc != wanted || !strstr(err->text, says))
        fail_msg("%d \"%s\", expected %d with \"%s\"", rc, err->text, wanted, says);
    if (access(folder_at("to.gguf"), F_OK) == 0 || access(folder_at("to.gguf.partial"), F_OK) == 0)
        fail_msg("a file was left behind");
}

static void what_cannot_be_made_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    struct quantise_result result;
    struct err err = { { 0 } };
    unlink(folder_at("to.gguf"));
    make("q8.gguf", WEIGHT_Q8_0, true);
    make("f32.gguf", WEIGHT_F32, true);
    int rc = quantise(folder_at("q8.gguf"), WEIGHT_Q4_0, &result, &err);
    expect_refusal(rc, -ENOTSUP, &err, "is Q8_0 already");
    for (uint32_t nth = 1; nth < 8; nth += 3) {
        fault_arm("gguf.write", nth);
        rc = quantise(folder_at("f32.gguf"), WEIGHT_Q4_0, &result, &err);
        fault_disarm();
        expect_refusal(rc, -ENOSPC, &err, "cannot write");
    }
    CLEANUP(make_fini) struct gguf_make m;
    char path[64];
    float x[32] = { [7] = NAN };
    uint64_t dims[2] = { 32, 1 };
    make_init(&m);
    make_tensor(&m, "bad", 2, dims, 0, x, sizeof x);
    int fd = make_path(&m, path);
    rc = quantise(path, WEIGHT_Q4_0, &result, &err);
    close(fd);
    expect_refusal(rc, -EINVAL, &err, "tensor 'bad': a weight is infinite, NaN");

    struct random_model shape = { .arch = "llama",
                                  .width = 250,
                                  .layers = 1,
                                  .ff = 32,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .vocab = 8,
                                  .context = 8,
                                  .type = WEIGHT_F32 };
    expect_refusal(random_model_write(&shape, folder_at("to.gguf"), NULL, &err), -EINVAL, &err,
                   "no multiple of 4 heads");
    shape.width = 256, shape.kv_heads = 3;
    expect_refusal(random_model_write(&shape, folder_at("to.gguf"), NULL, &err), -EINVAL, &err,
                   "4 heads cannot share 3 KV heads");
    shape.kv_heads = 2, shape.type = WEIGHT_Q4_K;
    expect_refusal(random_model_write(&shape, folder_at("to.gguf"), NULL, &err), -EINVAL, &err,
                   "rows of 32 elements; Q4_K comes in blocks of 256");
    shape.idle_layers = 1;
    expect_refusal(random_model_write(&shape, folder_at("to.gguf"), NULL, &err), -EINVAL, &err,
                   "1 idle layers of 1: at least one computes something");
    shape.idle_layers = 0, shape.type = WEIGHT_F32, shape.window = 4, shape.window_period = 2;
    expect_refusal(random_model_write(&shape, folder_at("to.gguf"), NULL, &err), -EINVAL, &err,
                   "takes the architecture smollm3 and a window");
    shape.arch = "bert";
    expect_refusal(random_model_write(&shape, folder_at("to.gguf"), NULL, &err), -ENOTSUP, &err,
                   "architecture 'bert' is not made");
}

/* Windows of all layers, and of all but the last of each three. */
static void windows_are_those_that_were_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        uint32_t window, period, want_window, want_layers;
    } rows[] = {
        { "llama", 0, 0, 0, 0 },     { "llama", 20, 0, 20, 7 },  { "smollm3", 20, 0, 20, 7 },
        { "smollm3", 20, 3, 20, 5 }, { "smollm3", 64, 3, 0, 0 }, /* as long as the context */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(model_freep) struct model *model = NULL;
        struct err err = { { 0 } };
        const struct random_model m = { .arch = rows[i].arch,
                                        .width = 64,
                                        .layers = 7,
                                        .ff = 64,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .vocab = 300,
                                        .context = 64,
                                        .window = rows[i].window,
                                        .window_period = rows[i].period,
                                        .type = WEIGHT_F32 };
        if (random_model_write(&m, folder_at("w.gguf"), NULL, &err) < 0) fail_msg("%s", err.text);
        if (model_load(folder_at("w.gguf"), NULL, &model, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(model_info(model)->kv_window, rows[i].want_window);
        assert_int_equal(model_info(model)->kv_window_layers, rows[i].want_layers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models_load_and_look_random),
        cmocka_unit_test(one_seed_gives_one_file),
        cmocka_unit_test(idle_layers_add_nothing),
        cmocka_unit_test(rounded_files_hold_rounded_rows),
        cmocka_unit_test(metadata_is_copied),
        cmocka_unit_test(windows_are_those_that_were_asked_for),
        cmocka_unit_test(what_cannot_be_made_is_refused_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_remove);
}
