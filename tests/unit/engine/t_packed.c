/* t_packed.c - tests folders with weights of few bits against what the formats' own packages and transformers compute
 * from them (tests/vectors/packed), and damaged ones against their sentences. */
#include "base/core/own.h"
#include "engine/files/hf_folder.h"
#include "engine/files/hf_model.h"
#include "engine/kernels/half.h"
#include "engine/kernels/op.h"
#include "engine/model/model.h"
#include "engine/model/rewrite_model.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/hf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/engine/model_rig.h"
#include "tests/unit/engine/stored.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VECTORS "tests/vectors/packed/"
#define VOCAB 64
#define ROW_MAX 256
#define OFF_MAX 1e-3         /* of the largest logit */
#define ROUNDED_OFF_MAX 5e-2 /* with activations rounded to int8 */
#define PROMPT 24
#define GREEDY 24
#define STEP 7 /* between stored rows of Llamas */

/* clang-format off */
static const struct {
    const char *name, *packing;
    enum weight_type_id type;
    double rows;   /* largest error of a weight, of the row's largest; 0: bits are equal */
    double logits; /* largest error, of the largest logit, against the package's weights */
} cases[] = {
    { "gptq_sym_32",  "GPTQ, 4 bits", WEIGHT_Q4_0, 0, 1e-3 },
    { "gptq_whole",   "GPTQ, 4 bits", WEIGHT_Q4_0, 0, 1e-3 },
    { "gptq_asym_64", "GPTQ, 4 bits", WEIGHT_Q4_1, 1e-3, 1e-2 },
    { "gptq_zero_64", "GPTQ, 4 bits", WEIGHT_Q4_1, 1e-3, 1e-2 },
    { "gptq_v2_128",  "GPTQ, 4 bits", WEIGHT_Q4_1, 1e-3, 1e-2 },
    { "gptq_act",     "GPTQ, 4 bits", WEIGHT_Q8_0, 5e-3, 3e-2 },
    { "awq_32",       "AWQ, 4 bits", WEIGHT_Q4_1, 1e-3, 1e-2 },
    { "awq_128",      "AWQ, 4 bits", WEIGHT_Q4_1, 1e-3, 1e-2 },
    { "ct_sym_32",    "compressed-tensors, 4 bits", WEIGHT_Q4_0, 0, 1e-3 },
    { "ct_asym_64",   "compressed-tensors, 4 bits", WEIGHT_Q4_1, 1e-3, 1e-2 },
    { "ct_channel",   "compressed-tensors, 4 bits", WEIGHT_Q4_0, 0, 1e-3 },
    { "ct_int8",      "compressed-tensors, 8 bits", WEIGHT_Q8_0, 0, 1e-3 },
    { "ct_float8",    "F8_E4M3 with scales", WEIGHT_F16, 5e-4, 5e-3 },
    { "ct_block",     "F8_E4M3 with scales", WEIGHT_F16, 5e-4, 5e-3 },
    { "gpt_oss",      "MXFP4", WEIGHT_MXFP4, 0, 1e-3 },
};
/* clang-format on */

/* ---- rows */

/* Returns where row `row` of Q or K is in a GGUF file of a Llama. */
static uint64_t paired(uint64_t row, uint64_t head_rows)
{
    uint64_t in = row % head_rows, half = head_rows / 2;
    return row - in + in % half * 2 + in / half;
}

static void read_row(const struct hf_model *hf, const struct gguf_tensor *t, uint64_t row,
                     float *to)
{
    char raw[ROW_MAX * 4];
    struct err err = { { 0 } };
    size_t bytes = weight_row_bytes(t->type, (uint32_t)t->dims[0]);
    must(t->dims[0] <= ROW_MAX);
    if (hf->source->read(hf->source->ctx, t->offset + row * bytes, raw, bytes, &err) < 0)
        fail_msg("%s", err.text);
    weight_types[t->type].to_f32(raw, (uint32_t)t->dims[0], to);
}

static void check_row(size_t n, const struct hf_model *hf, const char *name, uint64_t row,
                      const float *expected)
{
    const struct gguf_tensor *t = gguf_tensor_find(hf->gguf, str_from(name));
    float got[ROW_MAX];
    double top = 0;
    if (!t || t->type != cases[n].type) fail_msg("%s: %s has another type", cases[n].name, name);
    read_row(hf, t, row, got);
    for (uint32_t i = 0; i < t->dims[0]; i++)
        top = fmax(top, fabs((double)expected[i]));
    for (uint32_t i = 0; i < t->dims[0]; i++) {
        double off = fabs((double)got[i] - (double)expected[i]);
        if (!(off <= cases[n].rows * top))
            fail_msg("%s: %s row %llu, column %u is %g, not %g (largest %g)", cases[n].name, name,
                     (unsigned long long)row, i, (double)got[i], (double)expected[i], top);
    }
}

static uint32_t check_rows_of(size_t n, const struct hf_model *hf, const struct stored *s)
{
    static const char *const names[][2] = {
        { "self_attn.q_proj", "attn_q" }, { "self_attn.k_proj", "attn_k" },
        { "self_attn.v_proj", "attn_v" }, { "self_attn.o_proj", "attn_output" },
        { "mlp.gate_proj", "ffn_gate" },  { "mlp.up_proj", "ffn_up" },
        { "mlp.down_proj", "ffn_down" },
    };
    uint32_t checked = 0;
    for (size_t i = 0; i < COUNT_OF(names) * 2; i++) {
        char from[128], to[64];
        snprintf(from, sizeof from, "rows.model.layers.%zu.%s.weight", i / COUNT_OF(names),
                 names[i % COUNT_OF(names)][0]);
        snprintf(to, sizeof to, "blk.%zu.%s.weight", i / COUNT_OF(names),
                 names[i % COUNT_OF(names)][1]);
        const struct safetensor *t = safetensors_find(s->table, str_from(from));
        if (!t) continue;
        float *values = malloc((size_t)t->bytes);
        must(values);
        stored_read(s, from, values, (size_t)t->bytes);
        const struct gguf_tensor *g = gguf_tensor_find(hf->gguf, str_from(to));
        must(g && t->dims[0] == (g->dims[1] + STEP - 1) / STEP);
        uint32_t heads = i % COUNT_OF(names) == 0 ? 4 : i % COUNT_OF(names) == 1 ? 2 : 0;
        for (uint64_t r = 0; r < t->dims[0]; r++)
            check_row(n, hf, to, heads ? paired(r * STEP, g->dims[1] / heads) : r * STEP,
                      values + r * t->dims[1]);
        free(values);
        checked++;
    }
    return checked;
}

/* Rows of gate and up take turns in the files, and so in what is stored. */
static uint32_t check_experts(size_t n, const struct hf_model *hf, const struct stored *s)
{
    float both[4 * 64 * 64], down[4 * 64 * 32];
    stored_read(s, "rows.model.layers.0.mlp.experts.gate_up_proj", both, sizeof both);
    stored_read(s, "rows.model.layers.0.mlp.experts.down_proj", down, sizeof down);
    for (uint32_t e = 0; e < 4; e++) {
        for (uint32_t r = 0; r < 32; r++) {
            const float *pair = both + ((size_t)e * 64 + 2 * (size_t)r) * 64;
            check_row(n, hf, "blk.0.ffn_gate_exps.weight", e * 32 + r, pair);
            check_row(n, hf, "blk.0.ffn_up_exps.weight", e * 32 + r, pair + 64);
        }
        for (uint32_t r = 0; r < 64; r++)
            check_row(n, hf, "blk.0.ffn_down_exps.weight", e * 64 + r,
                      down + ((size_t)e * 64 + r) * 32);
    }
    return 7;
}

static void weights_are_those_of_the_packages(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        CLEANUP(stored_fini) struct stored s;
        CLEANUP(hf_model_freep) struct hf_model *hf = NULL;
        char path[128];
        struct err err = { { 0 } };
        snprintf(path, sizeof path, VECTORS "%s.safetensors", cases[n].name);
        stored_open(&s, path);
        snprintf(path, sizeof path, VECTORS "%s", cases[n].name);
        if (hf_model_open(path, &hf, &err) < 0) fail_msg("%s", err.text);
        assert_string_equal(hf->packing, cases[n].packing);
        uint32_t checked =
            cases[n].type == WEIGHT_MXFP4 ? check_experts(n, hf, &s) : check_rows_of(n, hf, &s);
        assert_true(checked >= 7);
    }
}

/* ---- logits */

/* Compares the logits behind two tokens of the prompt. */
static void check_prompt(size_t n, struct model_rig *r, const struct stored *s, const char *name,
                         const uint32_t *ids, double tolerance)
{
    float stored[2][VOCAB], logits[VOCAB];
    stored_read(s, name, stored, sizeof stored);
    for (uint32_t k = 0; k < 2; k++) {
        double off = 0, top = largest_of(stored[k], VOCAB);
        model_rig_feed(r, NULL, ids, 0, k ? PROMPT : PROMPT / 2 + 1, PROMPT, logits);
        for (uint32_t i = 0; i < VOCAB; i++)
            off = fmax(off, fabs((double)logits[i] - (double)stored[k][i]));
        if (!(off <= tolerance * top))
            fail_msg("%s: %s are off by %g of %g", cases[n].name, name, off, top);
    }
}

/* `tolerance`: against the weights that our blocks hold. */
static void check_logits(size_t n, struct model_rig *r, const struct stored *s, double tolerance)
{
    uint32_t ids[PROMPT + GREEDY], *greedy = ids + PROMPT, sure = 0;
    float gaps[GREEDY], logits[VOCAB];
    stored_read(s, "ids", ids, PROMPT * sizeof *ids);
    stored_read(s, "greedy", greedy, GREEDY * sizeof *ids);
    stored_read(s, "gaps", gaps, sizeof gaps);
    check_prompt(n, r, s, "logits_package", ids, fmax(tolerance, cases[n].logits));
    check_prompt(n, r, s, "logits", ids, tolerance);
    model_rig_feed(r, NULL, ids, 0, PROMPT, PROMPT, logits);
    for (uint32_t i = 0; i < GREEDY; i++) {
        uint32_t best = 0;
        for (uint32_t k = 1; k < VOCAB; k++)
            if (logits[k] > logits[best]) best = k;
        bool is_sure = (double)gaps[i] > 2 * tolerance * largest_of(logits, VOCAB);
        if (is_sure && best != greedy[i])
            fail_msg("%s: token %u is %u, not %u", cases[n].name, i, best, greedy[i]);
        sure += is_sure;
        model_rig_feed(r, NULL, ids, PROMPT + i, PROMPT + i + 1, 1, logits);
    }
    if (tolerance <= OFF_MAX && sure < GREEDY * 3 / 4)
        fail_msg("%s: only %u tokens are beyond doubt", cases[n].name, sure);
}

/* Without rounded activations, then with them; and from the GGUF file that the folder converts to. */
static void logits_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        CLEANUP(stored_fini) struct stored s;
        CLEANUP(model_rig_fini) struct model_rig plain = { 0 }, fast = { 0 }, file = { 0 };
        struct quantise_result result;
        struct err err = { { 0 } };
        char path[128];
        const uint32_t ids[5] = { 3, 1, 4, 1, 5 };
        float a[VOCAB], b[VOCAB];
        snprintf(path, sizeof path, VECTORS "%s.safetensors", cases[n].name);
        stored_open(&s, path);
        snprintf(path, sizeof path, VECTORS "%s", cases[n].name);
        model_rig_init(&plain, path, op_ref.name, KV_F32);
        check_logits(n, &plain, &s, OFF_MAX);
        model_rig_init(&fast, path, NULL, KV_F32);
        check_logits(n, &fast, &s, ROUNDED_OFF_MAX);
        if (convert_model(path, folder_at("m.gguf"), WEIGHT_TYPE_COUNT, NULL, &result, &err) < 0)
            fail_msg("%s", err.text);
        model_rig_init(&file, folder_at("m.gguf"), NULL, KV_F32);
        model_rig_feed(&fast, NULL, ids, 0, 5, 5, a);
        model_rig_feed(&file, NULL, ids, 0, 5, 5, b);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* ---- damaged */

enum harm { NONE, REMOVE, TYPE, SHORTER, POKE, RENAME };

/* Copies the tensors of a case into model_folder, but for one that is harmed. */
static void copy_harmed(const char *name, const char *tensor, enum harm harm, uint32_t at,
                        const char *text)
{
    CLEANUP(stored_fini) struct stored s;
    CLEANUP(buf_fini) struct buf header = { 0 }, data = { 0 };
    char path[128];
    uint32_t harmed = 0;
    snprintf(path, sizeof path, VECTORS "%s/model.safetensors", name);
    stored_open(&s, path);
    for (uint32_t i = 0; i < s.table->count; i++) {
        struct safetensor t = s.table->tensors[i];
        bool it = tensor && str_eq(t.name, str_from(tensor));
        enum harm how = it ? harm : NONE;
        harmed += it;
        if (how == REMOVE) continue;
        char *raw = stored_raw(&s, &t);
        size_t bytes = (size_t)t.bytes;
        if (how == POKE) memcpy(raw + at, text, 4);
        if (how == SHORTER) bytes -= bytes / (size_t)t.dims[0], t.dims[0]--;
        if (how == RENAME) t.name = str_from(text);
        stored_put(&t, how == TYPE ? text : safetensor_type_name(t.type), raw, bytes, &header,
                   &data);
        free(raw);
    }
    if (tensor && harmed != 1) fail_msg("%s: no tensor '%s'", name, tensor);
    stored_write("model.safetensors", &header, &data);
}

/* Copies config.json with a text in it replaced. */
static void copy_config(const char *name, const char *old, const char *with)
{
    CLEANUP(buf_fini) struct buf text = { 0 }, out = { 0 };
    char path[128];
    snprintf(path, sizeof path, VECTORS "%s", name);
    must(hf_folder_read(path, "config.json", 1 << 20, &text, NULL) == 0);
    struct str all = buf_view(&text);
    size_t at = old ? str_find(all, str_from(old)) : 0, len = old ? strlen(old) : 0;
    if (old && at >= all.len) fail_msg("%s: config.json has no '%s'", name, old);
    buf_append(&out, all.data, at);
    if (old) buf_text(&out, with);
    buf_append(&out, all.data + at + len, all.len - at - len);
    hf_make_file(model_folder, "config.json", buf_view(&out));
}

static void refused(const char *says, const char *what)
{
    CLEANUP(model_freep) struct model *m = NULL;
    struct err err = { { 0 } };
    int rc = model_load(model_folder, NULL, &m, &err);
    if (rc >= 0 || !strstr(err.text, says))
        fail_msg("%s: %d \"%s\", expected \"%s\"", what, rc, err.text, says);
}

#define Q "model.layers.0.self_attn.v_proj."
#define X "model.layers.1.mlp.experts.gate_up_proj"

/* clang-format off */
static const struct {
    const char *name, *tensor;
    enum harm harm;
    uint32_t at;
    const char *text, *says;
} harms[] = {
    { "gptq_sym_32", Q "scales", REMOVE, 0, NULL, "tensor '" Q "scales' is missing" },
    { "gptq_sym_32", Q "qzeros", REMOVE, 0, NULL, "tensor '" Q "qzeros' is missing" },
    { "gptq_sym_32", Q "qweight", REMOVE, 0, NULL, "has no '" Q "qweight' of type I32 beside it" },
    { "gptq_sym_32", Q "qweight", TYPE, 0, "F32", "has no '" Q "qweight' of type I32 beside it" },
    { "gptq_sym_32", Q "qweight", SHORTER, 0, NULL, "has rows of 56; multiples of 32 are read" },
    { "gptq_sym_32", Q "qzeros", SHORTER, 0, NULL, "qzeros' is I32 [1, 4] in 2 dimensions, expected I32 [2, 4]" },
    { "gptq_sym_32", Q "scales", SHORTER, 0, NULL, "has groups of 64 columns, config.json says group_size: 32" },
    { "gptq_sym_32", Q "g_idx", SHORTER, 0, NULL, "g_idx' is I32 [63, 1]" },
    { "gptq_sym_32", Q "g_idx", POKE, 8, "\2\0\0\0", "g_idx': column 2 is of group 2, there are 2" },
    { "gptq_sym_32", Q "g_idx", POKE, 8, "\377\377\377\377", "g_idx': column 2 is of group -1, there are 2" },
    { "gptq_sym_32", Q "qzeros", POKE, 0, "\x77\x77\x77\x76", "zero point of row 6, group 0 is 7, but config.json says" },
    { "gptq_sym_32", Q "scales", POKE, 4, "\0\x7c\0\0", "the scale of row 2, group 0 is inf" },
    { "gptq_sym_32", Q "scales", POKE, 4, "\0\x7e\0\0", "the scale of row 2, group 0 is nan" },
    { "gptq_asym_64", Q "scales", POKE, 4, "\0\x70\0\0", "15 of it must be in F16's range" },
    { "gptq_sym_32", "model.norm.weight", TYPE, 0, "I16", "type I16; read are" },
    { "gptq_sym_32", "model.norm.weight", RENAME, 0, "model.norm.qweight", "expected I32 in 2" },
    { "gptq_sym_32", "model.norm.weight", RENAME, 0, Q "bias", "is not one that a llama has here" },
    { "gptq_sym_32", Q "g_idx", RENAME, 0, "model.layers.0.self_attn.w_proj.g_idx", "has no 'model.layers.0.self_attn.w_" },
    { "awq_32", Q "scales", REMOVE, 0, NULL, "tensor '" Q "scales' is missing" },
    { "awq_32", Q "qweight", SHORTER, 0, NULL, "has rows of 63" },
    { "awq_32", Q "scales", POKE, 0, "\0\xfc\0\0", "the scale of row 0, group 0 is -inf" },
    { "ct_sym_32", Q "weight_scale", REMOVE, 0, NULL, "tensor '" Q "weight_scale' is missing" },
    { "ct_sym_32", Q "weight_shape", REMOVE, 0, NULL, "tensor '" Q "weight_shape' is missing" },
    { "ct_sym_32", Q "weight_shape", POKE, 8, "\77\0\0\0", "weight_shape' says [32, 63], the packed weights have [32, 64]" },
    { "ct_sym_32", Q "weight_packed", SHORTER, 0, NULL, "weight_shape' says [32, 64], the packed weights have [31, 64]" },
    { "ct_sym_32", Q "weight_scale", SHORTER, 0, NULL, "weight_scale' is F16 [31, 2]" },
    { "ct_sym_32", Q "weight_scale", POKE, 0, "\0\x7c\0\0", "the scale of row 0, group 0 is inf" },
    { "ct_asym_64", Q "weight_zero_point", SHORTER, 0, NULL, "weight_zero_point' is I32 [3, 1]" },
    { "ct_int8", Q "weight_scale", REMOVE, 0, NULL, "tensor '" Q "weight_scale' is missing" },
    { "ct_int8", Q "weight_scale", SHORTER, 0, NULL, "is [31, 1] for a matrix [32, 64]; read are one scale" },
    { "ct_int8", Q "weight", TYPE, 0, "U8", "weight' is U8, which is read of weights that" },
    { "ct_float8", Q "weight_scale", POKE, 0, "\xc0\x7f\0\0", "the scale of row 0, group 0 is nan" },
    { "ct_block", Q "weight_scale", SHORTER, 0, NULL, "dimension 0 is 0" },
    { "gpt_oss", X "_scales", REMOVE, 0, NULL, "tensor '" X "_scales' is missing" },
    { "gpt_oss", X "_blocks", REMOVE, 0, NULL, "has no '" X "_blocks' beside it" },
    { "gpt_oss", X "_blocks", SHORTER, 0, NULL, X "_scales' is U8 [4, 64] in 3 dimensions, expected U8 [3, 64]" },
    { "gpt_oss", X "_blocks", TYPE, 0, "I8", "which is no form of experts that is read" },
    { "gpt_oss", X "_bias", SHORTER, 0, NULL, "is of 3 experts, config.json says 4" },
    { "gpt_oss", X "_bias", REMOVE, 0, NULL, "blk.1.ffn_gate_exps.bias' is missing" },
    { "gpt_oss", X "_bias", RENAME, 0, X "_other", "which is no form of experts that is read" },
    { "gpt_oss", X "_scales", POKE, 0, "\377\377\377\377", "the scale of row 0, block 0 is NaN" },
    { "gpt_oss", "model.layers.1.self_attn.sinks", REMOVE, 0, NULL, "blk.1.attn_sinks.weight' is missing" },
};

static const struct { const char *name, *old, *with, *says; } configs[] = {
    { "gptq_sym_32", "\"bits\": 4", "\"bits\": 3", "'quantization_config': bits is 3; read are 4" },
    { "gptq_sym_32", "\"bits\": 4", "\"bits\": 8", "bits is 8; read are 4" },
    { "gptq_sym_32", "\"bits\": 4", "\"bits\": null", "bits is 0; read are 4" },
    { "gptq_sym_32", "\"bits\": 4", "\"bits\": \"4\"", "bits is no whole number" },
    { "gptq_sym_32", "\"bits\": 4", "\"bits\": 4, \"bits\": 4", "bits is there twice" },
    { "gptq_sym_32", "\"group_size\": 32", "\"group_size\": 64", "has groups of 32 columns, config.json says group_size: 64" },
    { "gptq_sym_32", "\"group_size\": 32", "\"group_size\": -1", "config.json says group_size: -1" },
    { "gptq_sym_32", "\"group_size\": 32", "\"group_size\": -2", "group_size is -2" },
    { "gptq_sym_32", "\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"marlin\"",
      "checkpoint_format is 'marlin'; read are gptq, gptq_v2" },
    { "gptq_sym_32", "\"damp_percent\"", "\"pack_dtype\": \"int64\", \"damp_percent\"", "pack_dtype is 'int64'; read are int32" },
    { "gptq_sym_32", "\"damp_percent\"", "\"dynamic\": {\"a\": {\"bits\": 8}}, \"damp_percent\"", "dynamic asks for something" },
    { "gptq_sym_32", "\"quant_method\": \"gptq\"", "\"quant_method\": \"bitsandbytes\"", "quant_method is 'bitsandbytes'; read are gptq" },
    { "gptq_sym_32", "\"quant_method\": \"gptq\"", "\"quant_method\": 7", "quant_method is no text" },
    { "gptq_sym_32", "\"quant_method\": \"gptq\"", "\"quant_method\": \"mxfp4\"", "mxfp4 is read for gpt_oss only" },
    { "gptq_sym_32", "\"quantization_config\"", "\"unknown\"", "is I32, which is read of weights that quantization_config" },
    { "gptq_asym_64", "\"sym\": false", "\"sym\": true", "but config.json says sym: true" },
    { "gptq_asym_64", "\"sym\": false", "\"sym\": 0", "sym is neither true nor false" },
    { "awq_32", "\"version\": \"gemm\"", "\"version\": \"gemv\"", "version is 'gemv'; read are gemm" },
    { "awq_32", "\"zero_point\": true", "\"zero_point\": false", "zero_point is not true" },
    { "awq_32", "\"modules_to_not_convert\": null", "\"modules_to_not_convert\": 3", "modules_to_not_convert is no list" },
    { "ct_sym_32", "\"num_bits\": 4", "\"num_bits\": 8", "num_bits is 8; read are 4" },
    { "ct_sym_32", "\"type\": \"int\"", "\"type\": \"float\"", "format is pack-quantized, but the weights' type is 'float'" },
    { "ct_sym_32", "\"pack-quantized\"", "\"marlin-24\"", "format is 'marlin-24'; read are pack-quantized" },
    { "ct_sym_32", "\"config_groups\"", "\"config_group\"", "config_groups is missing" },
    { "ct_sym_32", "\"kv_cache_scheme\": null", "\"kv_cache_scheme\": {\"num_bits\": 8}", "kv_cache_scheme asks for" },
    { "ct_sym_32", "\"kv_cache_scheme\": null", "\"transform_config\": {\"r\": 1}", "transform_config asks for" },
    { "ct_int8", "\"symmetric\": true", "\"symmetric\": false", "symmetric is false; read for int-quantized is true" },
    { "ct_block", "48", "0", "block_structure is no list of two numbers from 1 on" },
    { "gpt_oss", "\"swiglu_limit\": 7.0", "\"swiglu_limit\": 6.0", "key 'swiglu_limit' is 6; computed is 7" },
    { "gpt_oss", "\"truncate\": false", "\"truncate\": true", "truncate: true of YaRN is not computed for gpt_oss" },
    { "gpt_oss", "\"num_local_experts\": 4", "\"num_local_experts\": 5", "experts" },
};
/* clang-format on */

static void damaged_folders_have_their_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(harms); i++) {
        copy_config(harms[i].name, NULL, NULL);
        copy_harmed(harms[i].name, harms[i].tensor, harms[i].harm, harms[i].at, harms[i].text);
        refused(harms[i].says, harms[i].tensor);
    }
    for (size_t i = 0; i < COUNT_OF(configs); i++) {
        copy_harmed(configs[i].name, NULL, NONE, 0, NULL);
        copy_config(configs[i].name, configs[i].old, configs[i].with);
        refused(configs[i].says, configs[i].with);
    }
}

/* ---- other forms of the same */

static void put_whole(const struct stored *s, const struct safetensor *t, struct buf *header,
                      struct buf *data)
{
    char *raw = stored_raw(s, t);
    stored_put(t, safetensor_type_name(t->type), raw, (size_t)t->bytes, header, data);
    free(raw);
}

static void same_logits(const char *what, const char *expected)
{
    CLEANUP(model_rig_fini) struct model_rig whole = { 0 }, other = { 0 };
    const uint32_t ids[5] = { 3, 1, 4, 1, 5 };
    float a[VOCAB], b[VOCAB];
    model_rig_init(&whole, expected, NULL, KV_F32);
    model_rig_init(&other, model_folder, NULL, KV_F32);
    model_rig_feed(&whole, NULL, ids, 0, 5, 5, a);
    model_rig_feed(&other, NULL, ids, 0, 5, 5, b);
    if (memcmp(a, b, sizeof a) != 0) fail_msg("%s: other logits", what);
}

/* The tensors of each matrix are in two files. */
static void matrices_may_lie_in_two_files(void **state)
{
    (void)state;
    static const char *const files[2] = { "part-1.safetensors", "part-2.safetensors" };
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        CLEANUP(stored_fini) struct stored s;
        CLEANUP(buf_fini) struct buf index = { 0 };
        char path[128];
        snprintf(path, sizeof path, VECTORS "%s/model.safetensors", cases[n].name);
        stored_open(&s, path);
        for (uint32_t f = 0; f < 2; f++) {
            CLEANUP(buf_fini) struct buf header = { 0 }, data = { 0 };
            for (uint32_t i = f; i < s.table->count; i += 2) {
                put_whole(&s, &s.table->tensors[i], &header, &data);
                buf_printf(&index, "%s\"" STR_FMT "\":\"%s\"", index.len ? "," : "",
                           STR_ARG(s.table->tensors[i].name), files[f]);
            }
            stored_write(files[f], &header, &data);
        }
        hf_make_index(model_folder, buf_view(&index));
        copy_config(cases[n].name, NULL, NULL);
        snprintf(path, sizeof path, VECTORS "%s", cases[n].name);
        same_logits(cases[n].name, path);
    }
    unlink(folder_at("model.safetensors.index.json"));
}

/* Here all of g_idx is 0, so that its bytes can stand for a bias; without it columns are in order. */
static void biases_of_zeros_are_left_out(void **state)
{
    (void)state;
    copy_config("gptq_whole", NULL, NULL);
    copy_harmed("gptq_whole", Q "g_idx", RENAME, 0, Q "bias");
    same_logits("a bias of zeros", VECTORS "gptq_whole");
}

/* compressed-tensors names the groups weight_g_idx. Odd columns get the scale of the second half here. */
static void scattered_groups_take_their_own_scales(void **state)
{
    (void)state;
    CLEANUP(stored_fini) struct stored s;
    CLEANUP(buf_fini) struct buf header = { 0 }, data = { 0 };
    CLEANUP(hf_model_freep) struct hf_model *plain = NULL, *hf = NULL;
    float a[64], b[64];
    uint16_t scales[32][2];
    struct err err = { { 0 } };
    stored_open(&s, VECTORS "ct_sym_32/model.safetensors");
    for (uint32_t i = 0; i < s.table->count; i++)
        put_whole(&s, &s.table->tensors[i], &header, &data);
    buf_printf(&header,
               ",\"" Q
               "weight_g_idx\":{\"dtype\":\"I32\",\"shape\":[64],\"data_offsets\":[%zu,%zu]}",
               data.len, data.len + 256);
    for (uint32_t i = 0; i < 64; i++)
        make_u32_raw(&data, i % 2);
    stored_write("model.safetensors", &header, &data);
    copy_config("ct_sym_32", NULL, NULL);
    if (hf_model_open(VECTORS "ct_sym_32", &plain, &err) < 0 ||
        hf_model_open(model_folder, &hf, &err) < 0)
        fail_msg("%s", err.text);
    const struct gguf_tensor *t = gguf_tensor_find(plain->gguf, STR("blk.0.attn_v.weight"));
    const struct gguf_tensor *u = gguf_tensor_find(hf->gguf, STR("blk.0.attn_v.weight"));
    assert_int_equal(u->type, WEIGHT_Q8_0);
    stored_read(&s, Q "weight_scale", scales, sizeof scales);
    for (uint32_t r = 0; r < 32; r++) {
        read_row(plain, t, r, a);
        read_row(hf, u, r, b);
        for (uint32_t i = 0; i < 64; i++)
            a[i] *= f16_to_f32(scales[r][i % 2]) / f16_to_f32(scales[r][i / 32]);
        for (uint32_t i = 0; i < 64; i++)
            if (!(fabs((double)a[i] - (double)b[i]) <= 5e-3 * largest_of(a, 64)))
                fail_msg("row %u, column %u is %g, not %g", r, i, (double)b[i], (double)a[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_packages),
        cmocka_unit_test(logits_are_those_of_transformers),
        cmocka_unit_test(damaged_folders_have_their_sentence),
        cmocka_unit_test(matrices_may_lie_in_two_files),
        cmocka_unit_test(biases_of_zeros_are_left_out),
        cmocka_unit_test(scattered_groups_take_their_own_scales),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_remove);
}
