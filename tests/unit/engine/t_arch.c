/* t_arch.c - tests every architecture against what transformers computes with the same weights
 * (tests/vectors/arch): from the checkpoint's own form and from GGUF, in every split, and damaged. */
#include "base/core/own.h"
#include "engine/kernels/op.h"
#include "engine/model/model.h"
#include "tests/unit/engine/arch_case.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/engine/model_rig.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OFF_MAX 1e-3 /* of the largest logit */
#define IDS_MAX 128
#define VOCAB_MAX 512
#define STATE_MAX 64
#define GREEDY 64

static const char *const names[] = { "llama",      "mistral", "mixtral",  "smollm3",
                                     "qwen2",      "qwen3",   "qwen3moe", "phi3",
                                     "phi3_short", "gemma2",  "gemma3",   "gpt_oss",
                                     "deepseek_v2", "deepseek_v2_lite", "deepseek_v3" };

/* The ids of the prompt, then those that transformers chose. */
static uint32_t read_ids(const struct arch_case *c, uint32_t *ids, uint32_t *ret_prompt)
{
    uint32_t count = 0, at = 0;
    const char *const words[] = { "ids", "greedy" };
    for (size_t w = 0; w < COUNT_OF(words); w++) {
        at = 0;
        char *text = (char *)(uintptr_t)case_next(c, words[w], &at);
        must(text);
        for (; *text; count++) {
            must(count < IDS_MAX);
            ids[count] = (uint32_t)strtoul(text, &text, 10);
        }
        if (w == 0) *ret_prompt = count;
    }
    return count;
}

/* ---- against transformers */

static void check_logits(const struct arch_case *c, struct model_rig *r, const uint32_t *ids,
                         const char *what)
{
    uint32_t vocab = model_info(r->model)->vocab_size, at = 0, checked = 0;
    for (const char *line; (line = case_next(c, "logits", &at)); checked++) {
        char *rest;
        uint32_t position = (uint32_t)strtoul(line, &rest, 10);
        size_t offset = strtoul(rest, NULL, 10);
        float logits[VOCAB_MAX], stored[VOCAB_MAX];
        double off = 0;
        must(offset + vocab * sizeof *stored <= c->bin.len);
        memcpy(stored, c->bin.data + offset, vocab * sizeof *stored);
        model_rig_feed(r, NULL, ids, 0, position + 1, 300, logits);
        for (uint32_t i = 0; i < vocab; i++)
            off = fmax(off, fabs((double)logits[i] - (double)stored[i]));
        if (!(off <= OFF_MAX * largest_of(stored, vocab)))
            fail_msg("%s, %s: logits at %u are off by %g of %g", c->name, what, position, off,
                     largest_of(stored, vocab));
    }
    assert_true(checked >= 2);
}

/* The states of the prompt's tokens are added up, in chunks, beside logits and without them. */
static void check_states(const struct arch_case *c, struct model_rig *r, const uint32_t *ids,
                         uint32_t prompt, const char *what)
{
    uint32_t width = model_info(r->model)->n_embd, at = 0;
    const char *line = case_next(c, "states", &at);
    float stored[2 * STATE_MAX], logits[VOCAB_MAX], expected[VOCAB_MAX];
    struct err err = { { 0 } };
    must(line && width <= STATE_MAX);
    size_t offset = strtoul(line, NULL, 10);
    must(offset + 2 * width * sizeof *stored <= c->bin.len);
    memcpy(stored, c->bin.data + offset, 2 * width * sizeof *stored);
    model_rig_feed(r, NULL, ids, 0, prompt, 300, expected);
    for (uint32_t k = 0; k < 4; k++) {
        double sum[STATE_MAX] = { 0 }, off = 0, top = largest_of(stored + k % 2 * width, width);
        for (uint32_t from = 0, chunk = k < 2 ? 300 : 7; from < prompt; from += chunk) {
            uint32_t n = min_u32(chunk, prompt - from);
            const struct batch_item item = { .ids = ids + from,
                                             .count = n,
                                             .position = from,
                                             .page_table = r->table,
                                             .pages = RIG_PAGES,
                                             .want_logits = k >= 2 && from + n == prompt,
                                             .logits = logits,
                                             .state_sum = sum,
                                             .state_from = k % 2 == 0 ? prompt - 1 : 0 };
            if (model_step(r->runner, &item, 1, &err) < 0) fail_msg("%s", err.text);
        }
        for (uint32_t i = 0; i < width; i++)
            off =
                fmax(off, fabs(sum[i] / (k % 2 ? prompt : 1) - (double)stored[k % 2 * width + i]));
        if (!(off <= OFF_MAX * top))
            fail_msg("%s, %s: states %u are off by %g of %g", c->name, what, k, off, top);
    }
    assert_memory_equal(logits, expected, model_info(r->model)->vocab_size * sizeof *logits);
}

/* Every token that transformers chose by more than the tolerance is chosen here, too. */
static void check_greedy(const struct arch_case *c, struct model_rig *r, const uint32_t *ids,
                         uint32_t prompt, const char *what)
{
    uint32_t vocab = model_info(r->model)->vocab_size, at = 0, sure = 0;
    char *gaps = (char *)(uintptr_t)case_next(c, "gaps", &at);
    float logits[VOCAB_MAX];
    model_rig_feed(r, NULL, ids, 0, prompt, 300, logits);
    for (uint32_t i = 0; i < GREEDY; i++) {
        uint32_t best = 0;
        for (uint32_t k = 1; k < vocab; k++)
            if (logits[k] > logits[best]) best = k;
        double gap = strtod(gaps, &gaps);
        bool is_sure = gap > 2 * OFF_MAX * largest_of(logits, vocab);
        if (is_sure && best != ids[prompt + i])
            fail_msg("%s, %s: token %u is %u, not %u", c->name, what, i, best, ids[prompt + i]);
        sure += is_sure;
        model_rig_feed(r, NULL, ids, prompt + i, prompt + i + 1, 1, logits);
    }
    if (sure < GREEDY * 3 / 4) fail_msg("%s: only %u tokens are beyond doubt", c->name, sure);
}

static void logits_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        uint32_t ids[IDS_MAX], prompt, count;
        float a[VOCAB_MAX], b[VOCAB_MAX];
        case_load(&c, names[n]);
        count = read_ids(&c, ids, &prompt);
        case_gguf(&c, "m.gguf", NULL);
        case_folder(&c, NULL);
        for (const struct ops *const *row = ops_table; *row; row++) {
            if (!(*row)->supported()) continue;
            CLEANUP(model_rig_fini) struct model_rig gguf = { 0 }, folder = { 0 };
            model_rig_init(&gguf, folder_at("m.gguf"), (*row)->name, KV_F32);
            check_logits(&c, &gguf, ids, (*row)->name);
            check_states(&c, &gguf, ids, prompt, (*row)->name);
            if (*row != &op_ref) check_greedy(&c, &gguf, ids, prompt, (*row)->name);
            model_rig_init(&folder, model_folder, (*row)->name, KV_F32);
            model_rig_feed(&gguf, NULL, ids, 0, count, 300, a);
            model_rig_feed(&folder, NULL, ids, 0, count, 300, b);
            if (memcmp(a, b, model_info(gguf.model)->vocab_size * sizeof *a) != 0)
                fail_msg("%s, %s: the folder's logits differ from the GGUF file's", c.name,
                         (*row)->name);
            assert_int_equal(model_info(gguf.model)->parameters,
                             model_info(folder.model)->parameters);
        }
    }
}

/* ---- the same bits in every split */

static void same(const struct arch_case *c, const float *a, const float *b, uint32_t vocab,
                 const char *what, uint32_t n)
{
    if (memcmp(a, b, vocab * sizeof *a) != 0) fail_msg("%s: %s %u changes bits", c->name, what, n);
}

static void check_splits(const struct arch_case *c, enum kv_type kv_type)
{
    CLEANUP(model_rig_fini) struct model_rig r;
    uint32_t ids[IDS_MAX], prompt, count = read_ids(c, ids, &prompt), other[RIG_PAGES / 2];
    static const uint32_t chunks[] = { 1, 3, 16, 17, 50 };
    float expected[VOCAB_MAX], logits[VOCAB_MAX], theirs[VOCAB_MAX];
    struct err err = { { 0 } };
    model_rig_init(&r, folder_at("m.gguf"), NULL, kv_type);
    uint32_t vocab = model_info(r.model)->vocab_size;
    model_rig_feed(&r, NULL, ids, 0, count, 300, expected);
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        model_rig_feed(&r, NULL, ids, 0, count, chunks[i], logits);
        same(c, logits, expected, vocab, "chunks of", chunks[i]);
    }
    for (uint32_t i = 0; i < RIG_PAGES / 2; i++)
        other[i] = r.table[RIG_PAGES / 2 + i];
    for (uint32_t at = 0; at < count; at += 26) { /* beside another sequence */
        const uint32_t n = min_u32(26, count - at);
        const struct batch_item items[2] = {
            { .ids = ids + 7,
              .count = at / 26 + 9,
              .page_table = other,
              .pages = RIG_PAGES / 2,
              .want_logits = true,
              .logits = theirs },
            { .ids = ids + at,
              .count = n,
              .position = at,
              .page_table = r.table,
              .pages = RIG_PAGES / 2,
              .want_logits = true,
              .logits = logits },
        };
        if (model_step(r.runner, items, 2, &err) < 0) fail_msg("%s", err.text);
    }
    same(c, logits, expected, vocab, "company of", 1);
    model_rig_runner(&r, 48, 3, 0);
    model_rig_feed(&r, NULL, ids, 0, count, 37, logits);
    same(c, logits, expected, vocab, "threads", 3);
}

static void logits_are_a_function_of_the_ids_alone(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        case_load(&c, names[n]);
        case_gguf(&c, "m.gguf", NULL);
        check_splits(&c, (enum kv_type)(n % KV_TYPE_COUNT));
    }
}

/* ---- damaged */

static void refused(const struct arch_case *c, const char *path, const char *says)
{
    struct model *m = NULL;
    struct err err = { { 0 } };
    int rc = model_load(path, NULL, &m, &err);
    if (rc >= 0 || !strstr(err.text, says))
        fail_msg("%s: %d \"%s\", expected \"%s\"", c->name, rc, err.text, says);
    assert_null(m);
}

/* Returns true for a layer's tensor; `name` gets the line's first word. */
static bool of_layer(const char *line, const char *layer, char name[96])
{
    size_t len = strcspn(line, " ");
    must(len < 96);
    memcpy(name, line, len);
    name[len] = 0;
    return strncmp(name, layer, strlen(layer)) == 0;
}

static void damaged_files_are_refused_by_name(void **state)
{
    (void)state;
    char name[96], key[96];
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        uint32_t at = 0, tested = 0;
        case_load(&c, names[n]);
        for (const char *line; (line = case_next(&c, "gguf", &at));) {
            if (!of_layer(line, "blk.1.", name)) continue;
            case_gguf(&c, "m.gguf", &(struct case_damage){ .without = name });
            refused(&c, folder_at("m.gguf"), name);
            case_gguf(&c, "m.gguf", &(struct case_damage){ .longer = name });
            refused(&c, folder_at("m.gguf"), name);
            tested++;
        }
        assert_true(tested >= 6);
        case_gguf(&c, "m.gguf", &(struct case_damage){ .more = "blk.0.extra.weight" });
        refused(&c, folder_at("m.gguf"), "tensor 'blk.0.extra.weight' is not one that");
        at = 0;
        snprintf(key, sizeof key, "%s.unheard_of",
                 strrchr(case_next(&c, "str", &at), ' ') + 1); /* general.architecture */
        case_gguf(&c, "m.gguf", &(struct case_damage){ .key = key });
        refused(&c, folder_at("m.gguf"), "unheard_of' is unknown to architecture");
    }
}

/* clang-format off */
static const struct {
    const char *name, *line, *instead, *says; /* the line that begins so is replaced */
} wrong_lines[] = {
    { "qwen3moe", "u32 qwen3moe.expert_used_count", "u32 qwen3moe.expert_used_count 7",
      "key 'qwen3moe.expert_used_count' is 7, it must be 1 to 6" },
    { "qwen3moe", "u32 qwen3moe.expert_used_count", "u32 qwen3moe.expert_used_count 0", "is 0, it must be 1 to 6" },
    { "qwen3moe", "u32 qwen3moe.expert_used_count", "none", "expert_used_count' is missing" },
    { "qwen3moe", "u32 qwen3moe.expert_count", "none", "'qwen3moe.expert_used_count' is 3, it must be 0 to 0" },
    { "qwen3moe", "u32 qwen3moe.expert_count", "u32 qwen3moe.expert_count 5", "expected [64, 5]" },
    { "qwen3moe", "u32 qwen3moe.expert_count", "u32 qwen3moe.expert_count 2000", "it must be 0 to 1024" },
    { "qwen3moe", "u32 qwen3moe.expert_feed", "u32 qwen3moe.expert_feed_forward_length 47", "expected [64, 47, 6]" },
    { "qwen3moe", "u32 qwen3moe.expert_feed", "none", "expert_feed_forward_length' is missing" },
    { "mixtral", "u32 llama.expert_count", "none", "'llama.expert_used_count' is 2, it must be 0 to 0" },
    { "qwen2", "bools qwen2.", "bools qwen2.attention.sliding_window_pattern 0 0 1", "has 3 items, there are 4 layers" },
    { "qwen3", "f32 qwen3.rope.scaling.factor", "f32 qwen3.rope.scaling.factor 0.5", "it must be at least 1" },
    { "qwen3", "u32 qwen3.rope.scaling.original", "none", "YaRN needs rope.scaling.original_context_length" },
    { "qwen3", "str qwen3.rope.scaling.type", "str qwen3.rope.scaling.type ntk", "none, linear, yarn and longrope" },
    { "qwen3", "f32 qwen3.rope.freq_base", "f32 qwen3.rope.freq_base 0.5", "the second above 1" },
    { "qwen3", "u32 qwen3.attention.key_length", "u32 qwen3.attention.key_length 24", "keys of 24 and values of 32" },
    { "mistral", "u32 llama.attention.head_count_kv", "u32 llama.attention.head_count_kv 3", "cannot share 3 KV heads" },
    { "phi3", "u32 phi3.rope.dimension_count", "u32 phi3.rope.dimension_count 18", "it must be 2 to 16" },
    { "phi3", "u32 phi3.rope.dimension_count", "u32 phi3.rope.dimension_count 13", "the first must be even" },
    { "phi3", "u32 phi3.rope.dimension_count", "u32 phi3.rope.dimension_count 10", "tensor 'rope_factors_long.weight'" },
    { "phi3", "u32 phi3.rope.scaling.original", "none", "LongRoPE needs the tensors" },
    { "phi3", "gguf rope_factors_long", "none", "LongRoPE needs the tensors" },
    { "phi3", "gguf rope_factors_short", "gguf rope_factors_short.weight values 1 1 1 1 1 0", "has a factor of 0" },
    { "phi3", "f32 phi3.rope.scaling.attn", "f32 phi3.rope.scaling.attn_factor -1", "must lie within 0 and 100" },
    { "phi3", "u32 phi3.feed_forward_length", "u32 phi3.feed_forward_length 90", "multiples of 16 are read" },
    { "gemma2", "f32 gemma2.attn_logit", "f32 gemma2.attn_logit_softcapping -1", "it must be at least 0" },
    { "gemma2", "f32 gemma2.final_logit", "f32 gemma2.final_logit_softcapping nan", "final_logit_softcapping" },
    { "gemma3", "f32 gemma3.rope.freq_base", "f32 gemma3.attn_logit_softcapping 50", "only 0 is read" },
    { "gpt_oss", "u32 gpt-oss.attention.sliding", "u32 gpt-oss.attention.sliding_window 4000000000", "it must be 0 to" },
    { "gpt_oss", "u32 gpt-oss.expert_count", "none", "expert_used_count' is 3, it must be 0 to 0" },
};
/* clang-format on */

static void wrong_keys_and_factors_have_their_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong_lines); i++) {
        CLEANUP(case_fini) struct arch_case c;
        uint32_t replaced = 0;
        case_load(&c, wrong_lines[i].name);
        for (uint32_t k = 0; k < c.line_count; k++) {
            if (strncmp(c.lines[k], wrong_lines[i].line, strlen(wrong_lines[i].line)) != 0)
                continue;
            c.lines[k] = wrong_lines[i].instead;
            replaced++;
        }
        assert_int_equal(replaced, 1);
        case_gguf(&c, "m.gguf", NULL);
        refused(&c, folder_at("m.gguf"), wrong_lines[i].says);
    }
}

static void damaged_folders_are_refused(void **state)
{
    (void)state;
    char name[96];
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        uint32_t at = 0;
        case_load(&c, names[n]);
        for (const char *line; (line = case_next(&c, "tensor", &at));) {
            if (!of_layer(line, "model.layers.1.", name)) continue;
            const char *experts = strstr(name, ".experts.");
            bool all = experts && !strpbrk(experts, "0123456789"), expert = experts && !all;
            case_folder(&c, &(struct case_damage){ .without = name });
            refused(&c, model_folder, expert ? "experts are missing" : "blk.1.");
            case_folder(&c, &(struct case_damage){ .longer = name });
            refused(&c, model_folder,
                    expert                     ? "unlike another expert's"
                    : all                      ? "is of 7 experts, config.json says 6"
                    : strstr(name, "q_proj.w") ? "q"
                    : strstr(name, "k_proj.w") ? "k"
                                               : "blk.1.");
        }
        case_folder(&c, &(struct case_damage){ .more = "model.layers.0.extra.weight" });
        refused(&c, model_folder, "tensor 'model.layers.0.extra.weight' is not one that a");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_transformers),
        cmocka_unit_test(logits_are_a_function_of_the_ids_alone),
        cmocka_unit_test(damaged_files_are_refused_by_name),
        cmocka_unit_test(wrong_keys_and_factors_have_their_sentence),
        cmocka_unit_test(damaged_folders_are_refused),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_remove);
}
