/* t_llama_refused.c - tests steps, sizes and files that a model refuses, and loads that fail half
 * way. */
#include "base/core/fault.h"
#include "tests/unit/engine/llama_bench.h"
#include "tests/unit/unit.h"

#include <unistd.h>

/* ---- steps that are refused */

static void wrong_steps_are_refused(void **state)
{
    (void)state;
    CLEANUP(bench_fini) struct bench b;
    bench_init(&b, &bench_shapes[0], NULL, KV_F16);
    uint32_t ids[TOKENS], bad_id = 50, bad_page[1] = { PAGES };
    float logits[128];
    bench_ids(1, 50, ids, TOKENS);
    const struct batch_item good = { .ids = ids,
                                     .count = 1,
                                     .page_table = bench_table_up(),
                                     .pages = 1,
                                     .want_logits = true,
                                     .logits = logits };
    struct batch_item i[9];
    for (uint32_t n = 0; n < 9; n++)
        i[n] = good;
    bench_step(&b, &good, 1);
    bench_step(&b, NULL, 0); /* an empty step is valid */

    struct err err = { { 0 } };
    assert_int_equal(model_step(b.runner, i, 9, &err), -EINVAL);
    assert_non_null(strstr(err.text, "9 items"));
    i[0].count = 301;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0].count = 0;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0].count = 17; /* one page holds 16 */
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "its 1 pages hold 16"));
    i[0] = good, i[0].position = 128, i[0].pages = PAGES;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "context is 128"));
    i[0] = good, i[0].position = UINT32_MAX;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0] = good, i[0].ids = &bad_id;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    assert_string_equal(err.text, "item 0 of the batch has token 50, the vocabulary ends at 50");
    i[0] = good, i[0].page_table = bad_page;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0] = good, i[0].drafted = 1;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    assert_string_equal(err.text, "item 0 of the batch has 1 drafted tokens of 1");
    i[0] = good, i[0].count = 2, i[0].drafted = 1, i[0].want_logits = false;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0] = good, i[0].logits = NULL;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    CLEANUP(bench_fini) struct bench b;
    bench_init(&b, &bench_shapes[0], NULL, KV_F16);
    struct err err = { { 0 } };
    struct kv_store *kv = NULL;
    static const uint32_t sizes[] = { 0, 8, 24, 2048 };
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        assert_int_equal(kv_store_new(b.model, 4, sizes[i], &kv, &err), -EINVAL);
    assert_int_equal(kv_store_new(b.model, 0, 16, &kv, &err), -EINVAL);
    fault_arm("kv_store.map", 1);
    assert_int_equal(kv_store_new(b.model, 4, 16, &kv, &err), -ENOMEM);
    fault_disarm();
    assert_null(kv);

    struct model_runner *runner = NULL;
    struct model_runner_options opt = { .tokens_max = 4, .seqs_max = 8 };
    assert_int_equal(model_runner_new(b.model, b.kv, &opt, &runner, &err), -EINVAL);
    opt = (struct model_runner_options){ .tokens_max = 8, .seqs_max = 8, .threads = 257 };
    assert_int_equal(model_runner_new(b.model, b.kv, &opt, &runner, &err), -EINVAL);
    opt = (struct model_runner_options){ 0 };
    assert_int_equal(model_runner_new(b.model, b.kv, &opt, &runner, &err), -EINVAL);
    assert_null(runner);
}

/* ---- files that are refused */

static void more_string(struct gguf_make *m, const char *key, const char *value)
{
    make_str(m, key, value);
}

static void unknown_key(struct gguf_make *m)
{
    make_f32(m, "llama.attention.clamp_kqv", 8);
}

static void experts(struct gguf_make *m)
{
    make_u32(m, "llama.expert_count", 8);
}

static void yarn(struct gguf_make *m)
{
    more_string(m, "llama.rope.scaling.type", "yarn");
}

static void ntk(struct gguf_make *m)
{
    more_string(m, "llama.rope.scaling.type", "ntk");
}

static void linear_half(struct gguf_make *m)
{
    more_string(m, "llama.rope.scaling.type", "linear");
    make_f32(m, "llama.rope.scaling.factor", 0.5f);
}

static void rope_odd(struct gguf_make *m)
{
    make_u32(m, "llama.rope.dimension_count", 5);
}

static void more_tensor(struct gguf_make *m)
{
    struct rng rng;
    rng_seed(&rng, 1);
    make_random(m, "blk.0.attn_q.bias", WEIGHT_F32, 1, 64, 1, &rng);
}

static void factors_long(struct gguf_make *m)
{
    static const uint64_t dims[1] = { 9 };
    static const float factors[9];
    make_tensor(m, "rope_freqs.weight", 1, dims, 0, factors, sizeof factors);
}

static void factors_zero(struct gguf_make *m)
{
    static const uint64_t dims[1] = { 8 };
    static const float factors[8];
    make_tensor(m, "rope_freqs.weight", 1, dims, 0, factors, sizeof factors);
}

static void output_narrow(struct gguf_make *m)
{
    struct rng rng;
    rng_seed(&rng, 1);
    make_random(m, "output.weight", WEIGHT_F32, 49, 64, 1, &rng);
}

static void template_number(struct gguf_make *m)
{
    make_u32(m, "tokenizer.chat_template", 1);
}

static void tokens_differ(struct gguf_make *m)
{
    make_key(m, "tokenizer.ggml.tokens", GGUF_ARRAY);
    make_u32_raw(&m->values, GGUF_STRING);
    make_u64_raw(&m->values, 3);
    for (int i = 0; i < 3; i++)
        make_u64_raw(&m->values, 0);
}

/* Each row changes a field of the shape, or adds something to a good file. */
/* clang-format off */
static const struct {
    void (*damage)(struct gguf_make *m);
    struct llama_shape change; /* fields that are not 0 replace the good shape's */
    const char *skip;
    int rc;
    const char *says;
} no_llamas[] = {
    { .damage = unknown_key, .rc = -ENOTSUP, .says = "key 'llama.attention.clamp_kqv' is unknown" },
    { .damage = experts, .rc = -EINVAL, .says = "key 'llama.expert_used_count' is missing" },
    { .damage = yarn, .rc = -EINVAL, .says = "YaRN needs rope.scaling.original_context_length" },
    { .damage = ntk, .rc = -ENOTSUP, .says = "'llama.rope.scaling.type' is 'ntk'; none, linear" },
    { .damage = linear_half, .rc = -EINVAL, .says = "'llama.rope.scaling.factor' is 0.5" },
    { .damage = rope_odd, .rc = -EINVAL, .says = "RoPE over 5 dimensions" },
    { .damage = more_tensor, .rc = -ENOTSUP, .says = "tensor 'blk.0.attn_q.bias' is not one" },
    { .damage = factors_long, .rc = -EINVAL, .says = "tensor 'rope_freqs.weight' is [9, 1] in 1 dimensions, expected [8, 1] in 1" },
    { .damage = factors_zero, .rc = -EINVAL, .says = "has a factor of 0" },
    { .damage = output_narrow, .rc = -EINVAL, .says = "tensor 'output.weight' is [64, 49]" },
    { .damage = template_number, .rc = -EINVAL, .says = "'tokenizer.chat_template' is a u32, it must be a string" },
    { .damage = tokens_differ, .rc = -EINVAL, .says = "'llama.vocab_size' is 50, but there are 3 tokens" },
    { .skip = "blk.1.ffn_down.weight", .rc = -EINVAL, .says = "tensor 'blk.1.ffn_down.weight' is missing" },
    { .change = { .kv_heads = 3 }, .rc = -EINVAL, .says = "4 heads cannot share 3 KV heads" },
    { .change = { .head_dim = 24 }, .rc = -ENOTSUP, .says = "heads of 24; multiples of 16" },
    { .change = { .context = 1u << 30 }, .rc = -EINVAL, .says = "'llama.context_length' is 1073741824" },
    { .change = { .rope_dims = 18 }, .rc = -EINVAL, .says = "'llama.rope.dimension_count' is 18, it must be 2 to 16" },
};
/* clang-format on */

static int load(const struct gguf_make *m, struct model **ret, struct err *err)
{
    char path[64];
    int fd = make_path(m, path);
    int rc = model_load(path, NULL, ret, err);
    close(fd);
    return rc;
}

static void what_is_no_llama_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(no_llamas); i++) {
        CLEANUP(make_fini) struct gguf_make m;
        struct model *model = NULL;
        struct err err = { { 0 } };
        struct llama_shape shape = bench_shapes[0];
        const struct llama_shape *change = &no_llamas[i].change;
        if (change->kv_heads) shape.kv_heads = change->kv_heads;
        if (change->head_dim) shape.head_dim = change->head_dim;
        if (change->context) shape.context = change->context;
        if (change->rope_dims) shape.rope_dims = change->rope_dims;
        make_init(&m);
        make_llama(&m, &shape, 1, no_llamas[i].skip);
        if (no_llamas[i].damage) no_llamas[i].damage(&m);
        int rc = load(&m, &model, &err);
        if (rc != no_llamas[i].rc || !strstr(err.text, no_llamas[i].says) || model)
            fail_msg("row %zu: %d \"%s\", expected %d \"%s\"", i, rc, err.text, no_llamas[i].rc,
                     no_llamas[i].says);
        assert_memory_equal(err.text, "/proc/self/fd/", 14); /* names the file */
    }
}

static void what_is_no_model_is_refused(void **state)
{
    (void)state;
    CLEANUP(make_fini) struct gguf_make m;
    struct model *model = NULL;
    struct err err = { { 0 } };
    make_init(&m);
    make_u32(&m, "x", 1);
    assert_int_equal(load(&m, &model, &err), -EINVAL);
    assert_non_null(strstr(err.text, "key 'general.architecture' is missing"));
    make_str(&m, "general.architecture", "mamba");
    assert_int_equal(load(&m, &model, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "architecture 'mamba' is unknown; there are: llama"));
    assert_int_equal(model_load("/nonexistent", NULL, &model, &err), -ENOENT);
    struct model_load_options opt = { .kernels = "abacus" };
    assert_int_equal(model_load("/nonexistent", &opt, &model, &err), -EINVAL);
    assert_non_null(strstr(err.text, "kernels 'abacus' are unknown; there are: "));
    assert_null(model);
}

/* Each allocation, mapping and read of a load fails once: the load returns an error and leaks
 * nothing. */
static void a_load_that_fails_anywhere_is_an_answer(void **state)
{
    (void)state;
    CLEANUP(make_fini) struct gguf_make m;
    make_init(&m);
    make_llama(&m, &bench_shapes[0], 1, NULL);
    char path[64];
    int fd = make_path(&m, path);
    uint64_t nth = 1;
    for (bool reached = true; reached; nth++) {
        struct model *model = NULL;
        struct err err = { { 0 } };
        fault_arm(NULL, nth);
        int rc = model_load(path, NULL, &model, &err);
        reached = fault_hits() >= nth;
        fault_disarm();
        if (reached && (rc == 0 || model || err.text[0] == 0)) fail_msg("fault %u", (unsigned)nth);
        if (!reached) assert_int_equal(rc, 0);
        model_free(model);
    }
    assert_true(nth > 50);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_steps_are_refused),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(what_is_no_llama_is_refused),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(a_load_that_fails_anywhere_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
