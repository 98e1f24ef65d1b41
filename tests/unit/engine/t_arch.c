/* t_arch.c - tests every architecture against what transformers computes with the same weights
 * (tests/vectors/arch): from the checkpoint's own form and from GGUF, in every split, and damaged. */
#include "base/core/own.h"
#include "engine/kernels/op.h"
#include "engine/model/model.h"
#include "engine/model/rewrite_model.h"
#include "tests/unit/engine/arch_case.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/engine/model_rig.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OFF_MAX 1e-3        /* of the largest logit */
#define ROUNDED_OFF_MAX 0.1 /* with activations rounded to int8 */
#define IDS_MAX 128
#define VOCAB_MAX 512
#define STATE_MAX 64
#define GREEDY 64

static const char *const names[] = {
    "llama",  "mistral",  "mixtral",     "smollm3",          "qwen2",
    "qwen3",  "qwen3moe", "phi3",        "phi3_short",       "gemma2",
    "gemma3", "gpt_oss",  "deepseek_v2", "deepseek_v2_lite", "deepseek_v3"
};

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

/* Half of the ids, whose pages then go to another store, and come back to other places. */
static void check_paging(const struct arch_case *c, struct model_rig *r, const uint32_t *ids,
                         uint32_t count, const float *expected)
{
    CLEANUP(kv_store_freep) struct kv_store *swap = NULL;
    uint32_t table[RIG_PAGES], vocab = model_info(r->model)->vocab_size;
    float logits[VOCAB_MAX];
    struct err err = { { 0 } };
    model_rig_feed(r, NULL, ids, 0, count / 2, 300, logits);
    if (kv_store_new(r->model, RIG_PAGES, 16, &swap, &err) < 0) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        kv_store_copy_page(swap, i, r->kv, i);
    kv_store_drop(r->kv);
    memcpy(table, r->table, sizeof table);
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        r->table[i] = RIG_PAGES - 1 - table[i];
    for (uint32_t i = 0; i < RIG_PAGES; i++) /* as bytes, as a peer's come */
        kv_store_write_page(r->kv, r->table[i], kv_store_page(swap, table[i]));
    model_rig_feed(r, NULL, ids, count / 2, count, 300, logits);
    same(c, logits, expected, vocab, "pages out and in", RIG_PAGES);
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
    check_paging(c, &r, ids, count, expected);
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

/* ---- latent attention */

static const char *const latent_names[] = { "deepseek_v2", "deepseek_v2_lite", "deepseek_v3" };

static void a_latent_is_stored_once_in_any_type(void **state)
{
    (void)state;
    /* 4 layers; 32 numbers and 16 that turn. Q8 and Q4 have two scales. */
    static const size_t bytes[KV_TYPE_COUNT] = { [KV_F16] = 4 * 48 * 2,
                                                 [KV_F32] = 4 * 48 * 4,
                                                 [KV_Q8] = 4 * (48 + 2 * 2),
                                                 [KV_Q4] = 4 * (64 / 2 + 2 * 2) };
    for (size_t n = 0; n < COUNT_OF(latent_names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        case_load(&c, latent_names[n]);
        case_gguf(&c, "m.gguf", NULL);
        for (uint32_t type = 0; type < KV_TYPE_COUNT; type++) {
            CLEANUP(model_rig_fini) struct model_rig r;
            char id[64];
            model_rig_init(&r, folder_at("m.gguf"), NULL, (enum kv_type)type);
            assert_int_equal(model_info(r.model)->kv_bytes_per_token, bytes[type]);
            snprintf(id, sizeof id, "+kv-%s-latent", kv_type_name((enum kv_type)type));
            assert_non_null(strstr(model_info(r.model)->numerics, id));
            check_splits(&c, (enum kv_type)type);
        }
    }
}

static void remove_cache(const char *folder)
{
    DIR *dir = opendir(folder);
    must(dir);
    for (const struct dirent *e; (e = readdir(dir));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') must(unlink(path) == 0);
    }
    closedir(dir);
    must(rmdir(folder) == 0);
}

/* Weights that are packed into the cache, and those that are found there, give the same bits. */
static void check_cache(const struct arch_case *c, const char *file, const uint32_t *ids,
                        uint32_t count, const float *expected)
{
    char cache[96];
    snprintf(cache, sizeof cache, "%s", folder_at("cache"));
    const struct model_load_options opt = { .kv_type = KV_F32,
                                            .kernels = "ref",
                                            .weight_cache = cache,
                                            .weight_cache_bytes_max = 1 << 30 };
    for (uint32_t i = 0; i < 2; i++) {
        CLEANUP(model_rig_fini) struct model_rig r = { 0 };
        float logits[VOCAB_MAX];
        struct err err = { { 0 } };
        if (model_load(file, &opt, &r.model, &err) < 0) fail_msg("%s", err.text);
        assert_true(model_info(r.model)->weights_mapped);
        assert_int_equal(model_info(r.model)->weights_found, i == 1);
        model_rig_runner(&r, 16, 1, 0);
        for (uint32_t k = 0; k < RIG_PAGES; k++)
            r.table[k] = k;
        model_rig_feed(&r, NULL, ids, 0, count, 300, logits);
        same(c, logits, expected, model_info(r.model)->vocab_size, "the cache", i);
    }
    remove_cache(cache);
}

/* With activations rounded to int8: a head's queries and sums lie apart from those of others then, too. */
static void check_close(const struct arch_case *c, const char *file, const uint32_t *ids,
                        uint32_t count, const float *expected)
{
    for (const struct ops *const *row = ops_table; *row; row++) {
        if (!(*row)->supported() || *row == &op_ref) continue;
        CLEANUP(model_rig_fini) struct model_rig r = { 0 };
        float logits[VOCAB_MAX];
        double off = 0;
        model_rig_init(&r, file, (*row)->name, KV_F32);
        model_rig_feed(&r, NULL, ids, 0, count, 300, logits);
        for (uint32_t i = 0; i < model_info(r.model)->vocab_size; i++)
            off = fmax(off, fabs((double)logits[i] - (double)expected[i]));
        if (!(off <= ROUNDED_OFF_MAX * largest_of(expected, model_info(r.model)->vocab_size)))
            fail_msg("%s, %s: quantised, logits are off by %g", c->name, (*row)->name, off);
    }
}

/* Quantised, with the heads' matrices in one tensor or two. Where activations are not rounded, the same numbers in F32
 * give the same bits: the one tensor is unpacked exactly, though it is transposed. */
static void quantised_heads_are_those_of_the_file(void **state)
{
    (void)state;
    char small[96], large[96];
    snprintf(small, sizeof small, "%s", folder_at("small.gguf"));
    snprintf(large, sizeof large, "%s", folder_at("large.gguf"));
    for (size_t n = 0; n < COUNT_OF(latent_names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        CLEANUP(model_rig_fini) struct model_rig a = { 0 }, b = { 0 };
        uint32_t ids[IDS_MAX], prompt;
        float logits[VOCAB_MAX], expected[VOCAB_MAX];
        struct quantise_result result;
        struct err err = { { 0 } };
        case_load(&c, latent_names[n]);
        read_ids(&c, ids, &prompt);
        case_gguf(&c, "m.gguf", NULL);
        const struct quantise_ask to_small = { .type = WEIGHT_Q8_0 };
        const struct quantise_ask to_large = { .type = WEIGHT_F32, .again = true };
        if (quantise_model(folder_at("m.gguf"), small, &to_small, &result, &err) < 0 ||
            quantise_model(small, large, &to_large, &result, &err) < 0)
            fail_msg("%s", err.text);
        model_rig_init(&a, small, "ref", KV_F32);
        model_rig_init(&b, large, "ref", KV_F32);
        model_rig_feed(&a, NULL, ids, 0, prompt, 300, logits);
        model_rig_feed(&b, NULL, ids, 0, prompt, 300, expected);
        same(&c, logits, expected, model_info(a.model)->vocab_size, "weights of type", WEIGHT_Q8_0);
        check_cache(&c, small, ids, prompt, expected);
        check_close(&c, small, ids, prompt, expected);
        if (rename(small, folder_at("m.gguf")) < 0) fail_msg("rename");
        check_splits(&c, KV_F16);
        unlink(large);
    }
}

/* Rounding to eight bits changes the logits by little: both parts of the vector have scales of their own. Four bits
 * may flip the choice of an expert, as in other models with experts. */
static void rounding_a_latent_changes_little(void **state)
{
    (void)state;
    static const double most[] = { [KV_F32] = 0, [KV_F16] = 5e-3, [KV_Q8] = 0.1 };
    for (size_t n = 0; n < COUNT_OF(latent_names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        CLEANUP(model_rig_fini) struct model_rig f32 = { 0 };
        uint32_t ids[IDS_MAX], prompt;
        float exact[VOCAB_MAX], logits[VOCAB_MAX];
        case_load(&c, latent_names[n]);
        read_ids(&c, ids, &prompt);
        case_gguf(&c, "m.gguf", NULL);
        model_rig_init(&f32, folder_at("m.gguf"), NULL, KV_F32);
        model_rig_feed(&f32, NULL, ids, 0, prompt, 300, exact);
        for (uint32_t type = 0; type < COUNT_OF(most); type++) {
            CLEANUP(model_rig_fini) struct model_rig r = { 0 };
            double off = 0, top = largest_of(exact, model_info(f32.model)->vocab_size);
            model_rig_init(&r, folder_at("m.gguf"), NULL, (enum kv_type)type);
            model_rig_feed(&r, NULL, ids, 0, prompt, 300, logits);
            for (uint32_t i = 0; i < model_info(r.model)->vocab_size; i++)
                off = fmax(off, fabs((double)logits[i] - (double)exact[i]));
            if (!(off <= most[type] * top))
                fail_msg("%s, %s: logits are off by %g of %g", c.name,
                         kv_type_name((enum kv_type)type), off, top);
        }
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

#define LATENT "u32 deepseek2"

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
    { "deepseek_v2", LATENT ".attention.kv_lora_rank", LATENT ".attention.kv_lora_rank 0", "is 0, it must be 1 to 576" },
    { "deepseek_v2", LATENT ".attention.kv_lora_rank", "none", "kv_lora_rank' is missing" },
    { "deepseek_v2", LATENT ".attention.kv_lora_rank", LATENT ".attention.kv_lora_rank 40", "kv_lora_rank is 40; multiples of 16" },
    { "deepseek_v2", LATENT ".attention.kv_lora_rank", LATENT ".attention.kv_lora_rank 576", "576 + 16 numbers are stored" },
    { "deepseek_v2", LATENT ".attention.kv_lora_rank", LATENT ".attention.kv_lora_rank 64", "attn_kv_a_mqa.weight" },
    { "deepseek_v2", LATENT ".attention.q_lora_rank", LATENT ".attention.q_lora_rank 0", "is 0, it must be 1 to" },
    { "deepseek_v2", LATENT ".attention.q_lora_rank", "none", "attn_q.weight' is missing" },
    { "deepseek_v2", LATENT ".rope.dimension_count", "none", "rope.dimension_count' is missing" },
    { "deepseek_v2", LATENT ".rope.dimension_count", LATENT ".rope.dimension_count 80", "keys of 80, of which 80 turn" },
    { "deepseek_v2", LATENT ".rope.dimension_count", LATENT ".rope.dimension_count 24", "rope.dimension_count is 24; multiples" },
    { "deepseek_v2", LATENT ".attention.key_length", "none", "attention.key_length' is missing" },
    { "deepseek_v2", LATENT ".attention.value_length", LATENT ".attention.value_length 24", "a head's value is 24; multiples" },
    { "deepseek_v2", LATENT ".attention.head_count_kv", LATENT ".attention.head_count_kv 2", "with latent attention it is 1 or 4" },
    { "deepseek_v2_lite", LATENT ".attention.value_length_mla", "none", "value_length_mla' is missing" },
    { "deepseek_v2_lite", LATENT ".attention.key_length ", LATENT ".attention.key_length 80", "they are what is stored, 48 and 32" },
    { "deepseek_v2", LATENT ".expert_group_count", LATENT ".expert_group_count 3", "8 experts cannot form 3 groups" },
    { "deepseek_v2", LATENT ".expert_group_count", LATENT ".expert_group_count 9", "it must be 1 to 8" },
    { "deepseek_v2", LATENT ".expert_group_used_count", LATENT ".expert_group_used_count 5", "it must be 1 to 4" },
    { "deepseek_v2", LATENT ".expert_group_used_count", "none", "expert_group_used_count' is missing" },
    { "deepseek_v2", LATENT ".expert_group_used_count", LATENT ".expert_group_used_count 1", "1 groups of 2 have only 2" },
    { "deepseek_v3", LATENT ".expert_group_count", LATENT ".expert_group_count 8", "at least 2, by whose sum" },
    { "deepseek_v3", LATENT ".expert_gating_func", LATENT ".expert_gating_func 3", "it must be 1 to 2" },
    { "deepseek_v3", LATENT ".expert_gating_func", LATENT ".expert_gating_func 1", "exp_probs_b.bias' is not one that" },
    { "deepseek_v3", LATENT ".expert_shared_count", LATENT ".expert_shared_count 2", "ffn_gate_shexp.weight" },
    { "deepseek_v3", LATENT ".expert_shared_count", LATENT ".expert_shared_count 4000000000", "it must be 0 to" },
    { "deepseek_v3", LATENT ".leading_dense", LATENT ".leading_dense_block_count 5", "it must be 0 to 4" },
    { "deepseek_v3", LATENT ".leading_dense", LATENT ".leading_dense_block_count 2", "blk.1.ffn_" },
    { "deepseek_v3", LATENT ".expert_count", "none", "expert_used_count' is 3, it must be 0 to 0" },
    { "deepseek_v3", "f32 deepseek2.expert_weights", "f32 deepseek2.expert_weights_scale 0", "it must be above 0" },
    { "deepseek_v3", "bool deepseek2.expert", "u32 deepseek2.expert_weights_norm 1", "a bool" },
    { "deepseek_v3", "f32 deepseek2.rope.scaling.yarn", "f32 deepseek2.rope.scaling.yarn_log_multiplier 2", "must lie within 0 and 1" },
    { "deepseek_v3", LATENT ".vocab_size", LATENT ".nextn_predict_layers 1", "nextn_predict_layers' asks for something" },
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

/* clang-format off */
static const struct {
    const char *name, *from, *to, *says; /* what of config.json is replaced */
} wrong_configs[] = {
    { "deepseek_v2", "\"kv_lora_rank\":32", "\"kv_lora_rank\":0", "is 0, it must be 1 to 576" },
    { "deepseek_v2", "\"qk_nope_head_dim\":64,", "", "'qk_nope_head_dim' is missing or 0" },
    { "deepseek_v2", "\"qk_rope_head_dim\":16", "\"qk_rope_head_dim\":5000", "'qk_rope_head_dim' is missing or 5000" },
    { "deepseek_v2", "\"v_head_dim\":16", "\"v_head_dim\":20", "a head's value is 20; multiples of 16" },
    { "deepseek_v2", "\"norm_topk_prob\":false", "\"norm_topk_prob\":true", "'norm_topk_prob' is true" },
    { "deepseek_v2", "\"topk_method\":\"group_limited_greedy\"", "\"topk_method\":\"noaux_tc\"",
      "'topk_method' is 'noaux_tc'; computed for deepseek_v2 is group_limited_greedy and greedy" },
    { "deepseek_v2", "\"topk_group\":2", "\"topk_group\":1", "1 groups of 2 have only 2" },
    { "deepseek_v2", "\"n_group\":4", "\"n_group\":5", "8 experts cannot form 5 groups" },
    { "deepseek_v2", "\"mscale\":0.707", "\"mscale\":-1", "mscale and mscale_all_dim are -1" },
    { "deepseek_v2", "\"attention_bias\":false", "\"attention_bias\":true", "'attention_bias' asks for" },
    { "deepseek_v2", "\"rms_norm_eps\":1e-06", "\"rms_norm_eps\":1e-06,\"moe_layer_freq\":2", "'moe_layer_freq' asks for" },
    { "deepseek_v3", "\"n_group\":4", "\"n_group\":4,\"scoring_func\":\"softmax\"",
      "'scoring_func' is 'softmax'; computed for deepseek_v3 is sigmoid" },
    { "deepseek_v3", "\"n_group\":4", "\"n_group\":4,\"topk_method\":\"greedy\"", "computed for deepseek_v3 is noaux_tc" },
    { "deepseek_v3", "\"rope_interleave\":true", "\"rope_interleave\":false", "'rope_interleave' asks for" },
    { "qwen3", "\"rope_type\":\"yarn\"", "\"rope_type\":\"yarn\",\"mscale\":1", "mscale and mscale_all_dim of YaRN" },
};
/* clang-format on */

/* Replaces a part of the case's config.json by another. */
static void case_config(struct arch_case *c, struct buf *line, const char *from, const char *to)
{
    uint32_t at = 0;
    const char *text = case_next(c, "config", &at), *part = strstr(text, from);
    if (!part) fail_msg("%s: no %s in config.json", c->name, from);
    buf_printf(line, "config %.*s%s%s", (int)(part - text), text, to, part + strlen(from));
    buf_byte(line, 0);
    c->lines[at - 1] = line->data;
}

static void wrong_configs_have_their_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong_configs); i++) {
        CLEANUP(case_fini) struct arch_case c;
        CLEANUP(buf_fini) struct buf line = { 0 };
        case_load(&c, wrong_configs[i].name);
        case_config(&c, &line, wrong_configs[i].from, wrong_configs[i].to);
        case_folder(&c, NULL);
        refused(&c, model_folder, wrong_configs[i].says);
    }
}

/* A layer behind the last predicts a further token; without num_nextn_predict_layers it is one too many. */
static void layers_of_further_tokens_are_passed_over(void **state)
{
    (void)state;
    static const char *const further = "model.layers.4.shared_head.norm.weight";
    CLEANUP(case_fini) struct arch_case c;
    CLEANUP(buf_fini) struct buf line = { 0 };
    CLEANUP(model_freep) struct model *m = NULL;
    struct err err = { { 0 } };
    case_load(&c, "deepseek_v3");
    case_folder(&c, &(struct case_damage){ .more = further });
    refused(&c, model_folder, further);
    case_config(&c, &line, "\"num_nextn_predict_layers\":0", "\"num_nextn_predict_layers\":1");
    case_folder(&c, &(struct case_damage){ .more = further });
    if (model_load(model_folder, NULL, &m, &err) < 0) fail_msg("%s", err.text);
    case_folder(&c, &(struct case_damage){ .more = "model.layers.5.shared_head.norm.weight" });
    refused(&c, model_folder, "model.layers.5.shared_head");
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
        cmocka_unit_test(a_latent_is_stored_once_in_any_type),
        cmocka_unit_test(quantised_heads_are_those_of_the_file),
        cmocka_unit_test(rounding_a_latent_changes_little),
        cmocka_unit_test(damaged_files_are_refused_by_name),
        cmocka_unit_test(wrong_keys_and_factors_have_their_sentence),
        cmocka_unit_test(wrong_configs_have_their_sentence),
        cmocka_unit_test(layers_of_further_tokens_are_passed_over),
        cmocka_unit_test(damaged_folders_are_refused),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_remove);
}
