/* t_adapter.c - tests LoRA adapters against what PEFT computes with them (tests/vectors/lora): from its folders and
 * from GGUF, beside others in one batch, in every split; and files that are refused. */
#include "base/core/fault.h"
#include "base/core/own.h"
#include "engine/kernels/op.h"
#include "engine/model/adapter.h"
#include "engine/model/model.h"
#include "tests/unit/engine/arch_case.h"
#include "tests/unit/engine/hf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/engine/model_rig.h"
#include "tests/unit/read_file.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define OFF_MAX 1e-3 /* of the largest logit */
#define IDS_MAX 128
#define VOCAB_MAX 512
#define SEQ_PAGES 10 /* of each of the sequences of a batch */
#define RANK_MAX 8u

static const struct {
    const char *name, *base;
    bool gguf, same_bits; /* as the folder's, which has the same type of numbers */
} cases[] = {
    { "llama", "llama", true, true },       { "llama_small", "llama", false, false },
    { "qwen2", "qwen2", true, false },      { "qwen3moe", "qwen3moe", false, false },
    { "phi3", "phi3", false, false },       { "gemma3", "gemma3", false, false },
    { "gpt_oss", "gpt_oss", false, false },
};

/* Makes the model of a case of tests/vectors/arch. */
static void rig_of(struct model_rig *r, const char *base, const char *kernels)
{
    CLEANUP(case_fini) struct arch_case c;
    case_load(&c, base);
    case_gguf(&c, "m.gguf", NULL);
    model_rig_init(r, folder_at("m.gguf"), kernels, KV_F32);
    model_rig_runner(r, 16, 1, RANK_MAX);
}

static struct adapter *load(const struct model_rig *r, const char *name, const char *file)
{
    char path[128];
    struct adapter *a = NULL;
    struct err err = { { 0 } };
    snprintf(path, sizeof path, "tests/vectors/lora/%s%s", name, file);
    if (adapter_load(path, r->model, RANK_MAX, &a, &err) < 0) fail_msg("%s", err.text);
    return a;
}

static uint32_t read_ids(const struct arch_case *c, const char *word, uint32_t *ids)
{
    uint32_t count = 0, at = 0;
    char *text = (char *)(uintptr_t)case_next(c, word, &at);
    must(text);
    for (; *text; count++) {
        must(count < IDS_MAX);
        ids[count] = (uint32_t)strtoul(text, &text, 10);
    }
    return count;
}

/* ---- against PEFT */

static void check_logits(const struct arch_case *c, const float *logits, uint32_t vocab,
                         const char *what)
{
    float stored[VOCAB_MAX];
    double off = 0;
    must(vocab <= VOCAB_MAX && vocab * sizeof *stored <= c->bin.len);
    memcpy(stored, c->bin.data, vocab * sizeof *stored);
    for (uint32_t i = 0; i < vocab; i++)
        off = fmax(off, fabs((double)logits[i] - (double)stored[i]));
    if (!(off <= OFF_MAX * largest_of(stored, vocab)))
        fail_msg("%s, %s: off by %g of %g", c->name, what, off, largest_of(stored, vocab));
}

/* Compares the tokens that PEFT chose, wherever its best logit was beyond doubt. */
static void check_greedy(const struct arch_case *c, struct model_rig *r, const struct adapter *a,
                         uint32_t *ids, uint32_t count, float *logits)
{
    uint32_t best[IDS_MAX], n = read_ids(c, "greedy", best), at = 0, sure = 0;
    const uint32_t vocab = model_info(r->model)->vocab_size;
    char *gaps = (char *)(uintptr_t)case_next(c, "gaps", &at);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = 0;
        for (uint32_t k = 1; k < vocab; k++)
            if (logits[k] > logits[first]) first = k;
        bool is_sure = strtod(gaps, &gaps) > 2 * OFF_MAX * largest_of(logits, vocab);
        if (is_sure && first != best[i])
            fail_msg("%s: token %u is %u, not %u", c->name, i, first, best[i]);
        sure += is_sure;
        ids[count + i] = best[i];
        model_rig_feed(r, a, ids, count + i, count + i + 1, 1, logits);
    }
    if (sure < n / 2) fail_msg("%s: only %u tokens are beyond doubt", c->name, sure);
}

static void outputs_are_those_of_peft(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        CLEANUP(case_fini) struct arch_case c;
        char name[64];
        uint32_t ids[IDS_MAX];
        float logits[VOCAB_MAX], other[VOCAB_MAX];
        snprintf(name, sizeof name, "../lora/%s", cases[n].name);
        case_load(&c, name);
        const uint32_t count = read_ids(&c, "ids", ids);
        for (const struct ops *const *row = ops_table; *row; row++) {
            if (!(*row)->supported()) continue;
            CLEANUP(model_rig_fini) struct model_rig r = { 0 };
            rig_of(&r, cases[n].base, (*row)->name);
            CLEANUP(adapter_freep) struct adapter *folder = load(&r, cases[n].name, "");
            const uint32_t vocab = model_info(r.model)->vocab_size;
            model_rig_feed(&r, folder, ids, 0, count, 300, logits);
            check_logits(&c, logits, vocab, (*row)->name);
            check_greedy(&c, &r, folder, ids, count, logits);
            if (!cases[n].gguf) continue;
            CLEANUP(adapter_freep) struct adapter *gguf = load(&r, cases[n].name, "/adapter.gguf");
            model_rig_feed(&r, folder, ids, 0, count, 300, logits);
            model_rig_feed(&r, gguf, ids, 0, count, 300, other);
            check_logits(&c, other, vocab, "GGUF");
            assert_true(!cases[n].same_bits || memcmp(logits, other, vocab * sizeof *other) == 0);
            assert_int_equal(folder->rank, gguf->rank);
            assert_int_equal(folder->matrices, gguf->matrices);
            assert_string_not_equal(folder->digest, gguf->digest);
        }
    }
}

static void memory_is_within_its_bound(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        CLEANUP(model_rig_fini) struct model_rig r = { 0 };
        rig_of(&r, cases[n].base, NULL);
        CLEANUP(adapter_freep) struct adapter *a = load(&r, cases[n].name, "");
        assert_true(a->memory_bytes > 0 && a->memory_bytes <= adapter_bytes_max(r.model, a->rank));
    }
}

/* ---- the same bits in every company and every split */

static void same(const float *a, const float *b, uint32_t vocab, const char *what, uint32_t n)
{
    if (memcmp(a, b, vocab * sizeof *a) != 0) fail_msg("%s %u changes bits", what, n);
}

/* Runs four sequences in one step after the other, `chunk` tokens of each at once, and compares the logits
 * behind the last tokens with those that each has alone. */
static void check_batch(struct model_rig *r, const struct adapter *const adapters[4],
                        const uint32_t *ids, uint32_t count, uint32_t chunk,
                        float alone[4][VOCAB_MAX])
{
    float logits[4][VOCAB_MAX];
    struct err err = { { 0 } };
    const uint32_t vocab = model_info(r->model)->vocab_size;
    for (uint32_t at = 0; at < count; at += chunk) {
        struct batch_item items[4];
        for (uint32_t i = 0; i < 4; i++)
            items[i] = (struct batch_item){ .ids = ids + i + at,
                                            .count = min_u32(chunk, count - at),
                                            .position = at,
                                            .page_table = r->table + (size_t)i * SEQ_PAGES,
                                            .pages = SEQ_PAGES,
                                            .want_logits = true,
                                            .logits = logits[i],
                                            .adapter = adapters[i] };
        if (model_step(r->runner, items, 4, &err) < 0) fail_msg("%s", err.text);
    }
    for (uint32_t i = 0; i < 4; i++)
        same(logits[i], alone[i], vocab, "company of chunks of", chunk);
}

static void a_sequence_has_the_same_bits_in_any_company(void **state)
{
    (void)state;
    CLEANUP(model_rig_fini) struct model_rig r = { 0 };
    CLEANUP(case_fini) struct arch_case c;
    static const uint32_t chunks[] = { 1, 3, 17, 66 };
    static float alone[4][VOCAB_MAX];
    float logits[VOCAB_MAX];
    uint32_t ids[IDS_MAX], vocab, count = 66; /* more than a piece of rows, and not whole */
    rig_of(&r, "llama", NULL);
    vocab = model_info(r.model)->vocab_size;
    case_load(&c, "llama");
    must(read_ids(&c, "ids", ids) + read_ids(&c, "greedy", ids + 40) >= count + 4);
    CLEANUP(adapter_freep) struct adapter *full = load(&r, "llama", "");
    CLEANUP(adapter_freep) struct adapter *small = load(&r, "llama_small", "");
    const struct adapter *const mixed[4] = { full, NULL, small, full };
    const struct adapter *const none[4] = { NULL };
    for (uint32_t i = 0; i < 4; i++)
        model_rig_feed(&r, mixed[i], ids + i, 0, count, 300, alone[i]);
    assert_true(memcmp(alone[0], alone[2], vocab * sizeof(float)) != 0);
    for (size_t k = 0; k < COUNT_OF(chunks); k++) {
        model_rig_feed(&r, full, ids, 0, count, chunks[k], logits);
        same(logits, alone[0], vocab, "chunks of", chunks[k]);
        check_batch(&r, mixed, ids, count, chunks[k], alone);
    }
    model_rig_runner(&r, 16, 3, RANK_MAX);
    check_batch(&r, mixed, ids, count, 17, alone);
    for (uint32_t i = 0; i < 4; i++)
        model_rig_feed(&r, NULL, ids + i, 0, count, 300, alone[i]);
    model_rig_runner(&r, 16, 2, 0); /* made for no adapters */
    check_batch(&r, none, ids, count, 66, alone);
}

static void a_runner_refuses_adapters_that_it_was_not_made_for(void **state)
{
    (void)state;
    CLEANUP(model_rig_fini) struct model_rig r = { 0 };
    struct err err = { { 0 } };
    const uint32_t id = 1;
    float logits[VOCAB_MAX];
    rig_of(&r, "llama", NULL);
    CLEANUP(adapter_freep) struct adapter *a = load(&r, "llama", "");
    const struct batch_item item = { .ids = &id,
                                     .count = 1,
                                     .page_table = r.table,
                                     .pages = 1,
                                     .want_logits = true,
                                     .logits = logits,
                                     .adapter = a };
    model_rig_runner(&r, 16, 1, a->rank - 1);
    assert_int_equal(model_step(r.runner, &item, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "has an adapter of rank 4 and 4 layers"));
    a->layers++;
    model_rig_runner(&r, 16, 1, RANK_MAX);
    assert_int_equal(model_step(r.runner, &item, 1, &err), -EINVAL);
}

/* ---- refused */

static void refused(const struct model_rig *r, const char *path, uint32_t rank_max, int code,
                    const char *says)
{
    struct adapter *a = NULL;
    struct err err = { { 0 } };
    int rc = adapter_load(path, r->model, rank_max, &a, &err);
    if (rc >= 0 || (code < 0 && rc != code) || !strstr(err.text, says))
        fail_msg("%s: %d \"%s\", expected %d \"%s\"", path, rc, err.text, code, says);
    assert_null(a);
}

/* clang-format off */
static const struct { const char *text, *says; } configs[] = {
    { "", "the configuration" },
    { "[]", "the configuration" },
    { "{", "the configuration" },
    { "{} {}", "the configuration" },
    { "{\"r\":4,\"lora_alpha\":6}", "key 'peft_type' is missing" },
    { "{\"peft_type\":\"LORA\",\"lora_alpha\":6}", "key 'r' is missing" },
    { "{\"peft_type\":\"LORA\",\"r\":4}", "key 'lora_alpha' is missing" },
    { "{\"peft_type\":\"IA3\",\"r\":4,\"lora_alpha\":6}", "key 'peft_type' is not \"LORA\"" },
    { "{\"peft_type\":\"LORA\",\"r\":0,\"lora_alpha\":6}", "key 'r' is no number from 1 to 512" },
    { "{\"peft_type\":\"LORA\",\"r\":513,\"lora_alpha\":6}", "key 'r' is no number from 1 to 512" },
    { "{\"peft_type\":\"LORA\",\"r\":\"4\",\"lora_alpha\":6}", "key 'r' is no number" },
    { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":0}", "key 'lora_alpha' is no number above 0" },
    { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":1e7}", "key 'lora_alpha' is no number above 0" },
    { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6,\"use_rslora\":1}", "key 'use_rslora' is neither" },
    { "{\"use_dora\":true}", "key 'use_dora' asks for something" },
    { "{\"use_qalora\":true}", "key 'use_qalora' asks for something" },
    { "{\"fan_in_fan_out\":true}", "key 'fan_in_fan_out' asks for something" },
    { "{\"modules_to_save\":[\"lm_head\"]}", "key 'modules_to_save' asks for something" },
    { "{\"rank_pattern\":{\"q_proj\":8}}", "key 'rank_pattern' asks for something" },
    { "{\"alpha_pattern\":{\"q_proj\":8}}", "key 'alpha_pattern' asks for something" },
    { "{\"layer_replication\":[[0,4],[2,5]]}", "key 'layer_replication' asks for something" },
    { "{\"trainable_token_indices\":[1]}", "key 'trainable_token_indices' asks for something" },
    { "{\"target_parameters\":[\"experts\"]}", "key 'target_parameters' asks for something" },
    { "{\"alora_invocation_tokens\":[1]}", "key 'alora_invocation_tokens' asks for something" },
    { "{\"of_tomorrow\":3}", "key 'of_tomorrow' asks for something" },
    { "{\"bias\":\"all\"}", "key 'bias' is not \"none\"" },
    { "{\"init_lora_weights\":\"pissa\"}", "changes the base model's weights" },
    { "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":6}", "has rank 2, adapter_config.json says 3" },
};
/* clang-format on */

#define SMALL "tests/vectors/lora/llama_small"

static void configurations_are_refused_by_key(void **state)
{
    (void)state;
    CLEANUP(model_rig_fini) struct model_rig r = { 0 };
    CLEANUP(buf_fini) struct buf tensors = { 0 };
    rig_of(&r, "llama", NULL);
    refused(&r, model_folder, RANK_MAX, -ENOENT, "adapter_config.json");
    read_file(SMALL "/adapter_model.safetensors", &tensors);
    hf_make_file(model_folder, "adapter_model.safetensors", buf_view(&tensors));
    for (size_t i = 0; i < COUNT_OF(configs); i++) {
        hf_make_file(model_folder, "adapter_config.json", str_from(configs[i].text));
        refused(&r, model_folder, RANK_MAX, 0, configs[i].says);
    }
}

/* Text of the header that is replaced by another of the same length, at its first place. */
/* clang-format off */
static const struct { const char *from, *to; int code; const char *says; } edits[] = {
    { "layers.1.self_attn.q_proj.lora_A", "layers.1.self_attn.x_proj.lora_A", -ENOTSUP, "x_proj.lora_A.weight' is of no" },
    { "layers.1.self_attn.q_proj.lora_A", "layers.1.self_attn.q_proj.lora_C", -ENOTSUP, "q_proj.lora_C.weight' is of no" },
    { "layers.1.self_attn.q_proj.lora_A", "layers.2.self_attn.q_proj.lora_A", -EINVAL, "has no " },
    { "layers.1.self_attn.q_proj.lora_A", "layers.4.self_attn.q_proj.lora_A", -EINVAL, "the model has 4 layers" },
    { "layers.1.self_attn.q_proj.lora_A", "layers.x.self_attn.q_proj.lora_A", -ENOTSUP, "is of no matrix" },
    { "layers.1.self_attn.q_proj.lora_A", "layers.1.self_attn.q_proj.lora_B", -EINVAL, "twice" },
    { "base_model.model.model.layers.1", "base_model.model.other.layers.1", -ENOTSUP, "is of no matrix" },
    { "[2,64]", "[64,2]", -EINVAL, "columns, the model's matrix 64" },
    { "[64,2]", "[2,64]", -EINVAL, "rows, the model's matrix 64" },
    { "\"BF16\"", "\"I016\"", -ENOTSUP, "I016" },
};
/* clang-format on */

static void tensors_are_refused_by_name(void **state)
{
    (void)state;
    CLEANUP(model_rig_fini) struct model_rig r = { 0 };
    CLEANUP(buf_fini) struct buf tensors = { 0 }, config = { 0 };
    rig_of(&r, "llama", NULL);
    read_file(SMALL "/adapter_model.safetensors", &tensors);
    read_file(SMALL "/adapter_config.json", &config);
    hf_make_file(model_folder, "adapter_config.json", buf_view(&config));
    for (size_t i = 0; i < COUNT_OF(edits); i++) {
        CLEANUP(buf_fini) struct buf changed = { 0 };
        buf_str(&changed, buf_view(&tensors));
        size_t at = str_find(buf_view(&changed), str_from(edits[i].from));
        if (at == SIZE_MAX) fail_msg("no %s in the header", edits[i].from);
        must(strlen(edits[i].to) == strlen(edits[i].from));
        memcpy(changed.data + at, edits[i].to, strlen(edits[i].to));
        hf_make_file(model_folder, "adapter_model.safetensors", buf_view(&changed));
        refused(&r, model_folder, RANK_MAX, edits[i].code, edits[i].says);
    }
    hf_make_file(model_folder, "adapter_model.safetensors", str_of(tensors.data, tensors.len - 1));
    refused(&r, model_folder, RANK_MAX, 0, "adapter_model.safetensors");
    memcpy(tensors.data + tensors.len - 2, "\xc0\x7f", 2); /* NaN */
    hf_make_file(model_folder, "adapter_model.safetensors", buf_view(&tensors));
    refused(&r, model_folder, RANK_MAX, -EINVAL,
            "v_proj.lora_B.weight' holds a number that is not finite");
}

/* clang-format off */
static const struct { const char *base, *adapter; uint32_t rank_max; int code; const char *says; } misfits[] = {
    { "llama", "llama", 3, -E2BIG, "has rank 4, at most 3 are taken (--max-lora-rank)" },
    { "mistral", "llama", 8, -EINVAL, "it is an adapter of another model" },
    { "phi3", "llama_small", 8, -EINVAL, "the model has Q, K and V, and gate and up, in one matrix each" },
    { "llama", "phi3", 8, -EINVAL, "in matrices of their own" },
    { "qwen3moe", "llama", 8, -ENOTSUP, "the model's feed-forward networks are experts" },
    { "deepseek_v2", "llama_small", 8, -ENOTSUP, "adapters of models with latent attention (deepseek2)" },
    { "qwen2", "llama/adapter.gguf", 8, -EINVAL, "made for models of architecture 'llama', this one is 'qwen2'" },
    { "llama", "none", 8, -ENOENT, "none" },
};
/* clang-format on */

static void adapters_of_other_models_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(misfits); i++) {
        CLEANUP(model_rig_fini) struct model_rig r = { 0 };
        char path[96];
        snprintf(path, sizeof path, "tests/vectors/lora/%s", misfits[i].adapter);
        rig_of(&r, misfits[i].base, NULL);
        refused(&r, path, misfits[i].rank_max, misfits[i].code, misfits[i].says);
        refused(&r, folder_at("m.gguf"), RANK_MAX, -EINVAL, "no adapter file");
    }
}

static void every_lack_of_memory_is_an_error(void **state)
{
    (void)state;
    CLEANUP(model_rig_fini) struct model_rig r = { 0 };
    rig_of(&r, "llama", NULL);
    static const char *const points[] = { "adapter.map", "adapter.read", "arena.alloc" };
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        fault_arm(points[i], 1);
        refused(&r, SMALL, RANK_MAX, -ENOMEM, "no memory");
        fault_disarm();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_those_of_peft),
        cmocka_unit_test(memory_is_within_its_bound),
        cmocka_unit_test(a_sequence_has_the_same_bits_in_any_company),
        cmocka_unit_test(a_runner_refuses_adapters_that_it_was_not_made_for),
        cmocka_unit_test(configurations_are_refused_by_key),
        cmocka_unit_test(tensors_are_refused_by_name),
        cmocka_unit_test(adapters_of_other_models_are_refused),
        cmocka_unit_test(every_lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_remove);
}
