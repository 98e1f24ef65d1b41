/* t_encoder.c - tests encoders against what transformers computes with the same weights
 * (tests/vectors/arch), alone and in company, from both forms of files, and damaged. */
#include "base/core/own.h"
#include "engine/kernels/op.h"
#include "engine/kernels/op_encoder.h"
#include "engine/model/model.h"
#include "tests/unit/engine/arch_case.h"
#include "tests/unit/engine/hf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define OFF_MAX 1e-3 /* of the largest state */
#define TOKENS 37    /* of a case's text */
#define WIDTH 64
#define VOCAB 300
#define ITEMS 4

static const char *const names[] = { "bert",        "bert_cross",   "xlm_roberta", "roberta_cross",
                                     "modern_bert", "modern_cross", "nomic_bert" };

struct rig {
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
};

static void rig_fini(struct rig *r)
{
    model_runner_free(r->runner);
    kv_store_free(r->kv);
    model_free(r->model);
}

static void rig_init(struct rig *r, const char *path, const char *kernels, uint32_t threads)
{
    const struct model_load_options opt = { .kernels = kernels };
    const struct model_runner_options step = { .tokens_max = 130,
                                               .seqs_max = ITEMS,
                                               .threads = threads };
    struct err err = { { 0 } };
    *r = (struct rig){ 0 };
    if (model_load(path, &opt, &r->model, &err) < 0 ||
        kv_store_new(r->model, 8, 16, &r->kv, &err) < 0 ||
        model_runner_new(r->model, r->kv, &step, &r->runner, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(model_info(r->model)->kv_bytes_per_token, 0);
}

static void read_ids(const struct arch_case *c, uint32_t ids[TOKENS])
{
    uint32_t at = 0, count = 0;
    for (char *text = (char *)(uintptr_t)case_next(c, "ids", &at); *text; count++) {
        must(count < TOKENS);
        ids[count] = (uint32_t)strtoul(text, &text, 10);
    }
    must(count == TOKENS);
}

/* Returns the number behind `word`, or 0 where the case has none. */
static uint32_t number_of(const struct arch_case *c, const char *word)
{
    uint32_t at = 0;
    const char *line = case_next(c, word, &at);
    return line ? (uint32_t)strtoul(line, NULL, 10) : 0;
}

static void step(struct rig *r, const struct batch_item *items, uint32_t count)
{
    struct err err = { { 0 } };
    if (model_step(r->runner, items, count, &err) < 0) fail_msg("%s", err.text);
}

/* Computes the state of every token, one step for each, and the score of a case with a head. */
static void compute(const struct arch_case *c, struct rig *r, double states[TOKENS][WIDTH],
                    float *score)
{
    uint32_t ids[TOKENS];
    read_ids(c, ids);
    memset(states, 0, TOKENS * sizeof *states);
    for (uint32_t t = 0; t < TOKENS; t++) {
        const struct batch_item item = { .ids = ids,
                                         .count = TOKENS,
                                         .second_from = number_of(c, "second"),
                                         .state_sum = states[t],
                                         .state_from = t,
                                         .state_to = t + 1,
                                         .score = number_of(c, "score") ? score : NULL };
        step(r, &item, 1);
    }
}

static void check(const struct arch_case *c, struct rig *r, const char *what)
{
    double states[TOKENS][WIDTH], off = 0, top = 0;
    float stored[TOKENS][WIDTH], score = 0, expected;
    must(c->bin.len >= sizeof stored);
    memcpy(stored, c->bin.data, sizeof stored);
    compute(c, r, states, &score);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t d = 0; d < WIDTH; d++) {
            top = fmax(top, fabs((double)stored[t][d]));
            off = fmax(off, fabs(states[t][d] - (double)stored[t][d]));
        }
    if (!(off <= OFF_MAX * top))
        fail_msg("%s, %s: states are off by %g of %g", c->name, what, off, top);
    const uint32_t at = number_of(c, "score");
    if (at == 0) return;
    memcpy(&expected, c->bin.data + at, sizeof expected);
    if (!(fabsf(score - expected) <= 1e-3f))
        fail_msg("%s, %s: the score is %g, expected %g", c->name, what, (double)score,
                 (double)expected);
}

static void states_and_scores_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        case_load(&c, names[n]);
        case_gguf(&c, "m.gguf", NULL);
        case_folder(&c, NULL);
        const bool head = number_of(&c, "score") > 0;
        for (const struct ops *const *row = ops_table; *row; row++) {
            if (!(*row)->supported()) continue;
            CLEANUP(rig_fini) struct rig gguf = { 0 }, folder = { 0 };
            double a[TOKENS][WIDTH], b[TOKENS][WIDTH];
            float x = 0, y = 0;
            rig_init(&gguf, folder_at("m.gguf"), (*row)->name, 1);
            rig_init(&folder, model_folder, (*row)->name, 1);
            check(&c, &gguf, (*row)->name);
            compute(&c, &gguf, a, &x);
            compute(&c, &folder, b, &y);
            assert_memory_equal(a, b, sizeof a);
            assert_memory_equal(&x, &y, sizeof x);
            assert_int_equal(model_info(gguf.model)->task, head ? MODEL_SCORE : MODEL_EMBED);
            assert_int_equal(model_info(gguf.model)->parameters,
                             model_info(folder.model)->parameters);
        }
    }
}

/* ---- the same bits in any company */

struct text {
    uint32_t ids[TOKENS], count;
    double sum[WIDTH];
    float score;
};

static struct batch_item item_of(struct text *t, bool head)
{
    memset(t->sum, 0, sizeof t->sum);
    return (struct batch_item){ .ids = t->ids,
                                .count = t->count,
                                .second_from = t->count / 2,
                                .state_sum = t->sum,
                                .score = head ? &t->score : NULL };
}

static void texts_do_not_see_each_other(void **state)
{
    (void)state;
    static const uint32_t lengths[ITEMS] = { 37, 1, 16, 17 };
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        CLEANUP(rig_fini) struct rig one, three;
        struct text alone[ITEMS] = { 0 }, together[ITEMS];
        struct batch_item items[ITEMS];
        case_load(&c, names[n]);
        case_gguf(&c, "m.gguf", NULL);
        const bool head = number_of(&c, "score") > 0;
        rig_init(&one, folder_at("m.gguf"), NULL, 1);
        rig_init(&three, folder_at("m.gguf"), NULL, 3);
        for (uint32_t i = 0; i < ITEMS; i++) {
            alone[i].count = lengths[i];
            for (uint32_t t = 0; t < lengths[i]; t++)
                alone[i].ids[t] = (t * 29 + i * 71 + 5) % VOCAB;
            const struct batch_item item = item_of(&alone[i], head);
            step(&one, &item, 1);
        }
        for (uint32_t turn = 0; turn < ITEMS; turn++) { /* in every order of a circle */
            memcpy(together, alone, sizeof alone);
            for (uint32_t i = 0; i < ITEMS; i++)
                items[(i + turn) % ITEMS] = item_of(&together[i], head);
            step(turn % 2 ? &three : &one, items, ITEMS);
            assert_memory_equal(together, alone, sizeof alone);
        }
    }
}

static void what_is_no_whole_text_is_refused(void **state)
{
    (void)state;
    CLEANUP(case_fini) struct arch_case c;
    CLEANUP(rig_fini) struct rig r;
    struct text t = { .count = TOKENS };
    float logits[VOCAB];
    case_load(&c, "bert");
    case_gguf(&c, "m.gguf", NULL);
    rig_init(&r, folder_at("m.gguf"), NULL, 1);
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const says[] = { "computes whole texts", "cannot generate",
                                            "the model has no head", "token 300" };
        struct err err = { { 0 } };
        struct batch_item item = item_of(&t, i == 2);
        if (i == 0) item.position = 1;
        if (i == 1) item.want_logits = true, item.logits = logits;
        t.ids[5] = i == 3 ? VOCAB : 7;
        assert_true(model_step(r.runner, &item, 1, &err) < 0);
        assert_non_null(strstr(err.text, says[i]));
    }
}

/* ---- kernels beside their definitions */

static void rows_are_normalised_and_activated(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 70; n += n < 20 ? 1 : 11) {
        float x[70], y[70], w[70], b[70];
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < n; i++) {
            x[i] = (float)sin(i * 1.7 + n) * 3 + 2;
            w[i] = 1 + 0.01f * (float)i;
            b[i] = 0.1f * (float)i;
            mean += (double)x[i] / n;
        }
        for (uint32_t i = 0; i < n; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
        layer_norm(x, w, b, 1e-5f, n, y);
        for (uint32_t i = 0; i < n; i++) {
            double want =
                ((double)x[i] - mean) / sqrt(variance + 1e-5) * (double)w[i] + (double)b[i];
            if (n > 1 && !(fabs((double)y[i] - want) <= 1e-5))
                fail_msg("norm of %u: %g, expected %g", n, (double)y[i], want);
        }
    }
    for (int i = -60000; i <= 60000; i++) {
        const float bias = 0.25f;
        float x = (float)i * 0.0002f - bias;
        const double at = (double)(x + bias);
        gelu_erf_bias(&x, &bias, 1);
        double want = at * (1 + erf(at / sqrt(2))) / 2;
        if (!(fabs((double)x - want) <= 3e-7 * fmax(1, fabs(at))))
            fail_msg("gelu(%g) is %g, expected %g", at, (double)x, want);
    }
}

/* ---- damaged */

static void refused(const char *path, const char *says)
{
    struct model *m = NULL;
    struct err err = { { 0 } };
    int rc = model_load(path, NULL, &m, &err);
    if (rc >= 0 || !strstr(err.text, says))
        fail_msg("%d \"%s\", expected \"%s\"", rc, err.text, says);
    assert_null(m);
}

static void damaged_tensors_are_refused_by_name(void **state)
{
    (void)state;
    char name[96];
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        CLEANUP(case_fini) struct arch_case c;
        uint32_t at = 0, tested = 0;
        case_load(&c, names[n]);
        for (const char *line; (line = case_next(&c, "gguf", &at)); tested++) {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(line, " "), line);
            const bool may_lack = strcmp(name, "token_types.weight") == 0 ||
                                  strcmp(name, "cls.output.weight") == 0 ||
                                  strcmp(name, "cls.weight") == 0;
            case_gguf(&c, "m.gguf", &(struct case_damage){ .without = name });
            if (!may_lack) refused(folder_at("m.gguf"), name);
            case_gguf(&c, "m.gguf", &(struct case_damage){ .longer = name });
            if (strcmp(name, "token_types.weight") != 0)
                refused(folder_at("m.gguf"),
                        strcmp(name, "cls.output.weight") ? name : "of 2 labels");
        }
        assert_true(tested >= 20);
        case_gguf(&c, "m.gguf", &(struct case_damage){ .more = "blk.0.extra.weight" });
        refused(folder_at("m.gguf"), "tensor 'blk.0.extra.weight' is not one that");
        const char *const arch = strncmp(names[n], "modern", 6) == 0  ? "modern-bert"
                                 : strncmp(names[n], "nomic", 5) == 0 ? "nomic-bert"
                                                                      : "bert";
        snprintf(name, sizeof name, "%s.unheard_of", arch);
        case_gguf(&c, "m.gguf", &(struct case_damage){ .key = name });
        refused(folder_at("m.gguf"), "unheard_of' is unknown to architecture");
        case_folder(&c, &(struct case_damage){ .more = "encoder.layer.0.extra.weight" });
        refused(model_folder, "tensor 'encoder.layer.0.extra.weight' is not one that a");
    }
}

/* clang-format off */
static const struct {
    const char *name, *line, *instead, *says; /* the line that begins so is replaced; in a folder: its text */
} wrong_lines[] = {
    { "bert", "u32 bert.attention.head_count", "u32 bert.attention.head_count 3", "cannot share 64 numbers" },
    { "bert", "u32 bert.attention.head_count", "u32 bert.attention.head_count 8", "heads of 8; multiples of 16" },
    { "bert", "u32 bert.context_length", "u32 bert.context_length 49", "'position_embd.weight' is [64, 48]" },
    { "bert", "u32 bert.context_length", "none", "'bert.context_length' is missing" },
    { "bert", "f32 bert.attention.layer_norm", "none", "layer_norm_epsilon' is missing" },
    { "bert", "f32 bert.attention.layer_norm", "f32 bert.attention.layer_norm_epsilon 0", "must lie between 0 and 1" },
    { "bert", "u32 bert.pooling_type", "u32 bert.pooling_type 4", "says that it ranks, but" },
    { "bert", "u32 bert.pooling_type", "u32 bert.pooling_type 5", "it must be 0 to 4" },
    { "bert", "u32 bert.pooling_type", "u32 bert.attention.causal 1", "only 0 is read" },
    { "bert", "u32 bert.pooling_type", "str bert.classifier.activation ReLU", "scores by 'ReLU'" },
    { "bert_cross", "gguf cls.output.bias", "none", "'cls.output.bias' is missing" },
    { "bert_cross", "gguf cls.bias", "none", "'cls.bias' is missing" },
    { "bert_cross", "gguf cls.output.weight", "none", "says that it ranks, but" },
    { "modern_bert", "u32 modern-bert.attention.sliding_window ", "u32 modern-bert.attention.sliding_window 1", "is 1, at least 2" },
    { "modern_bert", "u32 modern-bert.attention.sliding_window_pattern", "u32 modern-bert.attention.sliding_window_pattern 0", "it must be 1 to" },
    { "modern_bert", "f32 modern-bert.rope.freq_base ", "f32 modern-bert.rope.freq_base 1", "it must be above 1" },
    { "modern_bert", "u32 modern-bert.pooling_type", "str modern-bert.hidden_activation relu", "gelu and silu are computed" },
    { "modern_bert", "u32 modern-bert.pooling_type", "str modern-bert.rope.scaling.type yarn", "computed without scaling" },
    { "modern_bert", "u32 modern-bert.feed_forward_length", "u32 modern-bert.feed_forward_length 90", "multiples of 16 are read" },
    { "modern_cross", "u32 modern-bert.classifier.pooling_type", "u32 modern-bert.classifier.pooling_type 3", "the mean (1) or the" },
    { "modern_cross", "gguf cls.norm.weight", "none", "'cls.norm.weight' is missing" },
    { "nomic_bert", "gguf token_embd_norm.bias", "none", "'token_embd_norm.bias' is missing" },
}, wrong_configs[] = {
    { "bert", "\"hidden_act\":\"gelu\"", "\"hidden_act\":\"relu\"", "'relu'; computed is 'gelu'" },
    { "bert", "\"is_decoder\":false", "\"is_decoder\":true ", "key 'is_decoder'" },
    { "bert", "\"is_decoder\":false", "\"position_embedding_type\":\"relative_key\"", "'position_embedding_type'" },
    { "bert", "\"is_decoder\":false", "\"sbert_ce_default_activation_function\":\"a.Tanh\"", "scores by 'Tanh'" },
    { "bert", "\"is_decoder\":false", "\"sentence_transformers\":{\"activation_fn\":\"Tanh\"}", "scores by 'Tanh'" },
    { "bert", "\"layer_norm_eps\":1e-12", "\"layer_norm_eps\":\"x\"", "'layer_norm_eps' is no number" },
    { "bert", "\"layer_norm_eps\":1e-12,", "", "layer_norm_epsilon' is missing" },
    { "bert", "\"model_type\":\"bert\"", "\"model_type\":\"bart\"", "bert, roberta, xlm-roberta" },
    { "xlm_roberta", "\"pad_token_id\":1", "\"pad_token_id\":49", "positions begin behind pad_token_id, 49" },
    { "xlm_roberta", "\"pad_token_id\":1", "\"pad_token_id\":[1]", "'pad_token_id' is no number" },
    { "modern_bert", "\"norm_bias\":false", "\"norm_bias\":true", "key 'norm_bias'" },
    { "modern_bert", "\"hidden_activation\":\"gelu\"", "\"hidden_activation\":\"relu\"", "'relu'; computed is 'gelu'" },
    { "modern_bert", "[\"full_attention\"", "[\"sliding_attention\"", "key 'layer_types': layer 0" },
    { "modern_bert", "\"rope_type\":\"default\"", "\"rope_type\":\"linear\",\"factor\":2", "that are not scaled" },
    { "modern_bert", "\"local_attention\":8", "\"local_attention\":\"x\"", "'local_attention' is no number" },
    { "modern_bert", "\"num_attention_heads\":4,", "", "'num_attention_heads' is missing" },
    { "modern_cross", "\"classifier_pooling\":\"mean\"", "\"classifier_pooling\":\"max\"", "neither cls nor mean" },
    { "modern_cross", "\"classifier_activation\":\"gelu\"", "\"classifier_activation\":\"relu\"", "'classifier_activation'" },
    { "nomic_bert", "\"hidden_act\":\"silu\"", "\"hidden_act\":\"relu\"", "'relu'; computed is 'silu'" },
};
/* clang-format on */

static void wrong_keys_have_their_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong_lines); i++) {
        CLEANUP(case_fini) struct arch_case c;
        uint32_t replaced = 0;
        case_load(&c, wrong_lines[i].name);
        for (uint32_t k = 0; k < c.line_count; k++)
            if (strncmp(c.lines[k], wrong_lines[i].line, strlen(wrong_lines[i].line)) == 0)
                c.lines[k] = wrong_lines[i].instead, replaced++;
        assert_int_equal(replaced, 1);
        case_gguf(&c, "m.gguf", NULL);
        refused(folder_at("m.gguf"), wrong_lines[i].says);
    }
}

/* Writes the case's config.json with a part of it replaced. */
static void write_config(const struct arch_case *c, const char *part, const char *instead)
{
    char text[4096];
    uint32_t at = 0;
    const char *config = case_next(c, "config", &at), *found = strstr(config, part);
    must(found);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(found - config), config, instead,
             found + strlen(part));
    hf_make_file(model_folder, "config.json", str_from(text));
}

static void wrong_configurations_have_their_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong_configs); i++) {
        CLEANUP(case_fini) struct arch_case c;
        case_load(&c, wrong_configs[i].name);
        case_folder(&c, NULL);
        write_config(&c, wrong_configs[i].line, wrong_configs[i].instead);
        refused(model_folder, wrong_configs[i].says);
    }
}

/* ---- what sentence-transformers says */

#define MODULE(type, path)                       \
    "{\"idx\":0,\"name\":\"0\",\"path\":\"" path \
    "\",\"type\":\"sentence_transformers.models." type "\"}"

/* clang-format off */
static const struct { const char *modules, *pooling, *says; enum pooling want; } poolings[] = {
    { NULL, NULL, NULL, POOLING_MEAN },
    { "[" MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling") "," MODULE("Normalize", "2_Normalize") "]",
      "{\"word_embedding_dimension\":64,\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":false}", NULL, POOLING_CLS },
    { "[" MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode_mean_tokens\":true,\"include_prompt\":true}", NULL, POOLING_MEAN },
    { "[" MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode\":\"lasttoken\"}", NULL, POOLING_LAST },
    { "[" MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode_max_tokens\":true}", "one that is not computed", POOLING_MEAN },
    { "[" MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}", "2 poolings", POOLING_MEAN },
    { "[" MODULE("Pooling", "1_Pooling") "]", "{}", "0 poolings", POOLING_MEAN },
    { "[" MODULE("Pooling", "1_Pooling") "]", "[", "1_Pooling/config.json", POOLING_MEAN },
    { "[" MODULE("Pooling", "../1_Pooling") "]", "{}", "no plain name", POOLING_MEAN },
    { "[" MODULE("Pooling", "absent") "]", "{}", "absent/config.json", POOLING_MEAN },
    { "[" MODULE("Dense", "2_Dense") "]", "{}", "module 'Dense'", POOLING_MEAN },
    { "[{\"type\":3}]", "{}", "is no text", POOLING_MEAN },
    { "[3]", "{}", "is no object", POOLING_MEAN },
    { "{}", "{}", "the list of modules", POOLING_MEAN },
};
/* clang-format on */

static void pooling_is_what_the_folder_says(void **state)
{
    (void)state;
    CLEANUP(case_fini) struct arch_case c;
    case_load(&c, "bert");
    case_folder(&c, NULL);
    char sub[512], file[600];
    snprintf(sub, sizeof sub, "%s/1_Pooling", model_folder);
    snprintf(file, sizeof file, "%s/config.json", sub);
    assert_int_equal(mkdir(sub, 0700), 0);
    for (size_t i = 0; i < COUNT_OF(poolings); i++) {
        if (poolings[i].modules) {
            hf_make_file(model_folder, "modules.json", str_from(poolings[i].modules));
            hf_make_file(sub, "config.json", str_from(poolings[i].pooling));
        }
        if (poolings[i].says) {
            refused(model_folder, poolings[i].says);
            continue;
        }
        CLEANUP(rig_fini) struct rig r;
        rig_init(&r, model_folder, NULL, 1);
        assert_int_equal(model_info(r.model)->pooling, poolings[i].want);
    }
    unlink(file);
    rmdir(sub);
}

/* Causal embedders say it too; the first token alone is no vector of theirs. */
static void decoders_have_their_own_pooling(void **state)
{
    (void)state;
    CLEANUP(case_fini) struct arch_case c;
    struct err err = { { 0 } };
    case_load(&c, "qwen3");
    for (uint32_t i = 0; i < 2; i++) {
        struct model *m = NULL;
        case_gguf(&c, "m.gguf", i ? &(struct case_damage){ .key = "qwen3.pooling_type" } : NULL);
        assert_int_equal(model_load(folder_at("m.gguf"), NULL, &m, &err), 0);
        assert_int_equal(model_info(m)->pooling, i ? POOLING_MEAN : POOLING_LAST); /* 1: mean */
        assert_int_equal(model_info(m)->task, MODEL_GENERATE);
        model_free(m);
    }
    must(c.line_count < CASE_LINES_MAX);
    c.lines[c.line_count++] = "u32 qwen3.pooling_type 2";
    case_gguf(&c, "m.gguf", NULL);
    refused(folder_at("m.gguf"), "'qwen3.pooling_type' is 2; of a decoder, 1 (mean) and 3");
}

static void tensors_of_training_are_passed_over(void **state)
{
    (void)state;
    static const char *const spare[] = { "embeddings.position_ids", "cls.predictions.bias",
                                         "lm_head.bias", "bert.embeddings.token_type_ids" };
    CLEANUP(case_fini) struct arch_case c;
    case_load(&c, "bert");
    unlink(folder_at("modules.json"));
    for (size_t i = 0; i < COUNT_OF(spare); i++) {
        CLEANUP(rig_fini) struct rig r;
        case_folder(&c, &(struct case_damage){ .more = spare[i] });
        rig_init(&r, model_folder, NULL, 1);
        check(&c, &r, spare[i]);
    }
    CLEANUP(case_fini) struct arch_case cross;
    case_load(&cross, "bert_cross");
    case_folder(&cross, NULL);
    write_config(
        &cross, "\"is_decoder\":false",
        "\"sentence_transformers\":{\"activation_fn\":\"torch.nn.modules.linear.Identity\"}");
    CLEANUP(rig_fini) struct rig r;
    rig_init(&r, model_folder, NULL, 1);
    assert_true(model_info(r.model)->score_is_plain);
}

/* Folders of nomic-embed-text have a configuration in GPT-2's words, and ModernBERT's older ones name the distance of
 * layers that see all tokens: the same bits come of them. */
static void older_configurations_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name, *config;
    } old[] = {
        { "nomic_bert",
          "{\"model_type\":\"nomic_bert\",\"activation_function\":\"swiglu\",\"causal\":false,"
          "\"layer_norm_epsilon\":1e-12,\"max_trained_positions\":48,\"mlp_fc1_bias\":false,"
          "\"mlp_fc2_bias\":false,\"n_embd\":64,\"n_head\":4,\"n_inner\":96,\"n_layer\":3,"
          "\"n_positions\":192,\"parallel_block\":false,\"prenorm\":false,\"qkv_proj_bias\":false,"
          "\"rotary_emb_base\":1000,\"rotary_emb_fraction\":1.0,\"rotary_emb_interleaved\":false,"
          "\"rotary_emb_scale_base\":null,\"rotary_scaling_factor\":null,\"type_vocab_size\":2,"
          "\"use_rms_norm\":false,\"vocab_size\":300}" },
        { "modern_bert", "{\"model_type\":\"modernbert\",\"global_attn_every_n_layers\":3,"
                         "\"global_rope_theta\":160000.0,\"local_rope_theta\":10000.0,\"hidden_"
                         "activation\":\"gelu\","
                         "\"hidden_size\":64,\"intermediate_size\":96,\"local_attention\":8,"
                         "\"max_position_embeddings\":48,\"norm_bias\":false,\"norm_eps\":1e-05,"
                         "\"num_attention_heads\":4,\"num_hidden_layers\":3,\"vocab_size\":300}" },
    };
    for (size_t i = 0; i < COUNT_OF(old); i++) {
        CLEANUP(case_fini) struct arch_case c;
        CLEANUP(rig_fini) struct rig r;
        case_load(&c, old[i].name);
        case_folder(&c, NULL);
        hf_make_file(model_folder, "config.json", str_from(old[i].config));
        rig_init(&r, model_folder, NULL, 1);
        check(&c, &r, "an older configuration");
        assert_int_equal(model_info(r.model)->context_length, 48);
    }
    CLEANUP(case_fini) struct arch_case c;
    case_load(&c, "nomic_bert");
    case_folder(&c, NULL);
    hf_make_file(model_folder, "config.json",
                 STR("{\"model_type\":\"nomic_bert\",\"n_head\":4,\"rotary_emb_fraction\":0.5}"));
    refused(model_folder, "key 'rotary_emb_fraction'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_and_scores_are_those_of_transformers),
        cmocka_unit_test(texts_do_not_see_each_other),
        cmocka_unit_test(what_is_no_whole_text_is_refused),
        cmocka_unit_test(rows_are_normalised_and_activated),
        cmocka_unit_test(damaged_tensors_are_refused_by_name),
        cmocka_unit_test(wrong_keys_have_their_sentence),
        cmocka_unit_test(wrong_configurations_have_their_sentence),
        cmocka_unit_test(pooling_is_what_the_folder_says),
        cmocka_unit_test(decoders_have_their_own_pooling),
        cmocka_unit_test(tensors_of_training_are_passed_over),
        cmocka_unit_test(older_configurations_are_read),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_remove);
}
