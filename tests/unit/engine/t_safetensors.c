/* t_safetensors.c - tests the safetensors reader against damaged headers, and that a folder of them gives
 * the same model as the GGUF file it was made from. */
#include "base/core/own.h"
#include "engine/files/hf_folder.h"
#include "engine/files/hf_model.h"
#include "engine/files/safetensors.h"
#include "engine/kernels/half.h"
#include "engine/model/make_model.h"
#include "engine/model/model.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/hf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- headers */

#define ONE(name, type, shape, from, to)                                                          \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to \
    "]}"

/* clang-format off */
static const struct {
    const char *header;
    size_t data;      /* bytes behind it */
    int64_t lie;      /* added to the header's length */
    int rc;
    const char *says; /* NULL: it reads */
} headers[] = {
    { "{" ONE("a", "F32", "2,3", 0, 24) "," ONE("b", "F8_E4M3", "4", 24, 28) "}", 28, 0, 0, NULL },
    { "{\"__metadata__\":{\"format\":\"pt\"}," ONE("a", "BF16", "2", 0, 4) "}  ", 4, 0, 0, NULL },
    { "{" ONE("a", "F16", "2", 4, 8) "," ONE("b", "F32", "1", 0, 4) "}", 8, 0, 0, NULL },
    { "{}", 0, 0, 0, NULL },
    { "{" ONE("a", "F32", "2", 0, 8) "}", 8, 1 << 20, -EINVAL, "a header of" },
    { "{" ONE("a", "F32", "2", 0, 8) "}", 8, INT64_MIN, -EINVAL, "a header of 92233720368547758" },
    { "{" ONE("a", "F32", "2", 0, 8) "}", 8, -1, -EINVAL, "the header" },
    { " {" ONE("a", "F32", "2", 0, 8) "}", 8, 0, -EINVAL, "does not start with '{'" },
    { "", 0, 0, -EINVAL, "does not start with '{'" },
    { "[]", 0, 0, -EINVAL, "does not start with '{'" },
    { "{" ONE("a", "F32", "2", 0, 8) "} x", 8, 0, -EINVAL, "the header" },
    { "{" ONE("a", "F32", "2", 0, 8), 8, 0, -EINVAL, "the header" },
    { "{\"a\":7}", 0, 0, -EINVAL, "tensor 'a': no object" },
    { "{\"a\":{}}", 0, 0, -EINVAL, "dtype, shape and two data_offsets are needed" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, 0, -EINVAL, "data_offsets are needed" },
    { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4, 0, -EINVAL, "unknown or there twice" },
    { "{\"a\":{\"extra\":1}}", 4, 0, -EINVAL, "unknown or there twice" },
    { "{\"a\":{\"dtype\":5}}", 4, 0, -EINVAL, "its dtype is no text" },
    { "{\"a\":{\"shape\":5}}", 4, 0, -EINVAL, "is no list" },
    { "{" ONE("a", "F32", "", 0, 0) "}", 0, 0, -EINVAL, "an empty shape" },
    { "{" ONE("a", "F32", "1,1,1,1,1", 0, 4) "}", 4, 0, -EINVAL, "a list of more than 4" },
    { "{" ONE("a", "F32", "-1", 0, 4) "}", 4, 0, -EINVAL, "no number from 0" },
    { "{" ONE("a", "F32", "1.5", 0, 4) "}", 4, 0, -EINVAL, "no number from 0" },
    { "{" ONE("a", "F32", "[1]", 0, 4) "}", 4, 0, -EINVAL, "no number from 0" },
    { "{" ONE("a", "F32", "99999999999999999999", 0, 4) "}", 4, 0, -EINVAL, "no number from 0" },
    { "{" ONE("a", "F32", "1,0", 0, 0) "}", 0, 0, -EINVAL, "dimension 1 is 0" },
    { "{" ONE("a", "F32", "4294967296,4294967296", 0, 0) "}", 0, 0, -EINVAL, "multiply to more than 2^64" },
    { "{" ONE("a", "F32", "4611686018427387904", 0, 0) "}", 0, 0, -EINVAL, "more than 2^64 bytes" },
    { "{" ONE("a", "I16", "1", 0, 2) "}", 2, 0, -ENOTSUP, "type I16; read are F32, F16, BF16, F8_E4M3, U8, I8, I32 and I64" },
    { "{" ONE("a", "F32", "2", 0, 4) "}", 4, 0, -EINVAL, "data_offsets 0 to 4, its shape has 8 bytes" },
    { "{" ONE("a", "F32", "1", 8, 4) "}", 8, 0, -EINVAL, "data_offsets 8 to 4" },
    { "{" ONE("a", "F32", "1", 18446744073709551612, 0) "}", 8, 0, -EINVAL, "data_offsets 1844674407370955" },
    { "{" ONE("a", "F32", "2", 0, 8) "}", 4, 0, -EINVAL, "tensor 'a' reaches beyond the end" },
    { "{" ONE("a", "F32", "1", 4, 8) "}", 8, 0, -EINVAL, "tensor 'a' starts at 4 of the data" },
    { "{" ONE("a", "F32", "1", 0, 4) "," ONE("b", "F32", "1", 8, 12) "}", 12, 0, -EINVAL, "tensor 'b' starts at 8" },
    { "{" ONE("a", "F32", "2", 0, 8) "," ONE("b", "F32", "1", 4, 8) "}", 8, 0, -EINVAL, "tensor 'b' starts at 4" },
    { "{" ONE("a", "F32", "1", 0, 4) "," ONE("a", "F32", "1", 4, 8) "}", 8, 0, -EINVAL, "tensor 'a' is there twice" },
    { "{" ONE("a", "F32", "1", 0, 4) "}", 5, 0, -EINVAL, "1 bytes behind the last tensor" },
};
/* clang-format on */

static void headers_read_or_have_their_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(headers); i++) {
        CLEANUP(buf_fini) struct buf file = { 0 };
        CLEANUP(safetensors_freep) struct safetensors *s = NULL;
        struct err err = { { 0 } };
        make_u64_raw(&file, strlen(headers[i].header) + (uint64_t)headers[i].lie);
        buf_text(&file, headers[i].header);
        for (size_t j = 0; j < headers[i].data; j++)
            buf_byte(&file, 1);
        struct str view = buf_view(&file);
        struct gguf_source source = memory_source(&view);
        int rc = safetensors_parse(&source, &s, &err);
        if (rc != headers[i].rc || (rc < 0 && !strstr(err.text, headers[i].says)))
            fail_msg("row %zu: %d \"%s\", expected %d \"%s\"", i, rc, err.text, headers[i].rc,
                     headers[i].says ? headers[i].says : "");
        for (uint32_t t = 0; rc == 0 && t < s->count; t++) {
            assert_true(s->tensors[t].offset + s->tensors[t].bytes <= file.len);
            assert_ptr_equal(safetensors_find(s, s->tensors[t].name), &s->tensors[t]);
        }
    }
    CLEANUP(safetensors_freep) struct safetensors *s = NULL;
    struct str torn = STR("1234567");
    struct gguf_source source = memory_source(&torn);
    assert_int_equal(safetensors_parse(&source, &s, NULL), -EINVAL);
}

/* ---- folders */

static void write_file(const char *name, struct str text)
{
    hf_make_file(model_folder, name, text);
}

static void write_config(const char *more)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(
        &text,
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"model_type\":\"llama\","
        "\"num_hidden_layers\":2,\"intermediate_size\":96,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"max_position_embeddings\":64,\"vocab_size\":40,"
        "\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\",\"rope_scaling\":null%s}",
        more);
    write_file("config.json", buf_view(&text));
}

static void clean(void)
{
    static const char *const names[] = { "config.json",
                                         "model.safetensors",
                                         "part-1.safetensors",
                                         "part-2.safetensors",
                                         "model.safetensors.index.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "chat_template.jinja",
                                         "generation_config.json" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        unlink(folder_at(names[i]));
}

/* Makes a random llama as GGUF and as a folder of `parts` files. */
static void write_both(enum weight_type_id type, bool tied, uint32_t parts)
{
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    CLEANUP(buf_fini) struct buf index = { 0 };
    clean();
    folder_llama("m.gguf", type, tied, 7);
    must(gguf_file_open(folder_at("m.gguf"), &file, NULL) == 0);
    must(gguf_parse(&file.source, &g, NULL) == 0);
    const struct hf_made made = { g, &file.source, model_folder, .heads = 4, .kv_heads = 2 };
    write_config(tied ? ",\"tie_word_embeddings\":true"
                      : ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000}");
    if (parts == 1) {
        hf_make_part(&made, 0, 1, "model.safetensors", &index);
        return;
    }
    hf_make_part(&made, 0, 2, "part-1.safetensors", &index);
    hf_make_part(&made, 1, 2, "part-2.safetensors", &index);
    hf_make_index(model_folder, buf_view(&index));
}

static void folders_give_the_model_of_the_gguf_file(void **state)
{
    (void)state;
    static const enum weight_type_id types[] = { WEIGHT_F32, WEIGHT_F16, WEIGHT_BF16 };
    for (size_t i = 0; i < 2 * COUNT_OF(types); i++) {
        CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        CLEANUP(hf_model_freep) struct hf_model *hf = NULL;
        CLEANUP(model_freep) struct model *a = NULL, *b = NULL;
        struct err err = { { 0 } };
        write_both(types[i / 2], i % 2 == 0, (uint32_t)(1 + i % 2));
        assert_int_equal(gguf_file_open(folder_at("m.gguf"), &file, NULL), 0);
        assert_int_equal(gguf_parse(&file.source, &g, NULL), 0);
        assert_true(hf_model_is(model_folder));
        if (hf_model_open(model_folder, &hf, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(hf->gguf->tensor_count, g->tensor_count);
        for (uint32_t t = 0; t < g->tensor_count; t++) {
            const struct gguf_tensor *u = &g->tensors[t], *v = &hf->gguf->tensors[t];
            assert_true(str_eq(u->name, v->name) && u->type == v->type && u->bytes == v->bytes);
            assert_memory_equal(u->dims, v->dims, sizeof u->dims);
            char *x = malloc((size_t)u->bytes), *y = malloc((size_t)u->bytes);
            must(x && y);
            must(file.source.read(file.source.ctx, u->offset, x, (size_t)u->bytes, NULL) == 0);
            /* in odd pieces too: a digest's do not end at rows */
            for (size_t k = 0; k < u->bytes; k += 100)
                must(hf->source->read(hf->source->ctx, v->offset + k, y + k,
                                      min_size(100, (size_t)u->bytes - k), NULL) == 0);
            assert_memory_equal(x, y, u->bytes);
            free(x), free(y);
        }
        if (model_load(model_folder, NULL, &a, &err) < 0) fail_msg("%s", err.text);
        if (model_load(folder_at("m.gguf"), NULL, &b, &err) < 0) fail_msg("%s", err.text);
        const struct model_info *p = model_info(a), *q = model_info(b);
        assert_true(p->n_layers == q->n_layers && p->parameters == q->parameters &&
                    p->context_length == q->context_length && p->head_dim == q->head_dim &&
                    p->vocab_size == q->vocab_size);
        assert_string_not_equal(p->digest, q->digest);
    }
}

#define LLAMA3(factor, low, high, original)                                   \
    "\"rope_type\":\"llama3\",\"factor\":" factor ",\"low_freq_factor\":" low \
    ",\"high_freq_factor\":" high ",\"original_max_position_embeddings\":" original

/* The divisors for heads of 16, base 500 and 64 positions, from a program in Python with the rule as `transformers`
 * writes it: it scales frequencies by the length of their wave. */
static const float llama3_factors[] = {
    1.0f, 1.29916935f, 3.05847498f, 8.0f, 8.0f, 8.0f, 8.0f, 8.0f
};

static void llama3_rope_becomes_the_tensor_of_gguf(void **state)
{
    (void)state;
    CLEANUP(hf_model_freep) struct hf_model *hf = NULL;
    CLEANUP(model_freep) struct model *m = NULL;
    struct err err = { { 0 } };
    float got[COUNT_OF(llama3_factors)];
    write_both(WEIGHT_F32, true, 1);
    write_config(",\"tie_word_embeddings\":true,\"rope_parameters\":{\"rope_theta\":500.0," LLAMA3(
        "8.0", "1.0", "6.0", "64") "}");
    if (hf_model_open(model_folder, &hf, &err) < 0) fail_msg("%s", err.text);
    const struct gguf_tensor *t = gguf_tensor_find(hf->gguf, STR("rope_freqs.weight"));
    assert_non_null(t);
    assert_true(t->type == WEIGHT_F32 && t->n_dims == 1 && t->bytes == sizeof got);
    assert_int_equal(hf->source->read(hf->source->ctx, t->offset, got, sizeof got, &err), 0);
    for (size_t i = 0; i < COUNT_OF(got); i++)
        if (fabsf(got[i] / llama3_factors[i] - 1) > 1e-6f)
            fail_msg("pair %zu: %.9g, not %.9g", i, (double)got[i], (double)llama3_factors[i]);
    if (model_load(model_folder, NULL, &m, &err) < 0) fail_msg("%s", err.text);
}

/* Every value of E4M3 (OCP 8-bit floating point, table 2) as F16. */
static void f8_is_read_exactly(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf all = { 0 }, header = { 0 };
    CLEANUP(hf_model_freep) struct hf_model *hf = NULL;
    struct err err = { { 0 } };
    uint16_t got[256];
    clean();
    write_config(",\"tie_word_embeddings\":true");
    buf_text(&header, "{" ONE("model.embed_tokens.weight", "F8_E4M3", "4,64", 0, 256) "}");
    make_u64_raw(&all, header.len);
    buf_str(&all, buf_view(&header));
    for (int i = 0; i < 256; i++)
        buf_byte(&all, (char)i);
    write_file("model.safetensors", buf_view(&all));
    if (hf_model_open(folder_at("model.safetensors"), &hf, &err) < 0) fail_msg("%s", err.text);
    const struct gguf_tensor *t = gguf_tensor_find(hf->gguf, STR("token_embd.weight"));
    assert_int_equal(t->type, WEIGHT_F16);
    assert_int_equal(t->bytes, sizeof got);
    assert_int_equal(hf->source->read(hf->source->ctx, t->offset, got, sizeof got, &err), 0);
    for (int i = 0; i < 256; i++) {
        int e = i >> 3 & 15, m = i & 7;
        double v = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
        double f = (double)f16_to_f32(got[i]);
        if ((i & 127) == 127)
            assert_true(isnan(f));
        else if (f != (i < 128 ? v : -v) || (!signbit(f)) != (i < 128))
            fail_msg("%02x is %g, not %g", (unsigned)i, f, i < 128 ? v : -v);
    }
}

static void expect_refused(const char *says)
{
    CLEANUP(model_freep) struct model *m = NULL;
    struct err err = { { 0 } };
    int rc = model_load(model_folder, NULL, &m, &err);
    if (rc >= 0 || !strstr(err.text, says))
        fail_msg("%d \"%s\", expected \"%s\"", rc, err.text, says);
}

/* ---- tokenizers beside the tensors */

/* As many tokens as write_both has rows, but for `missing`; the last is the end. */
static void write_tokenizer(uint32_t missing)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text,
             "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{"
             "\"type\":\"WordLevel\",\"unk_token\":\"w0\",\"vocab\":{");
    for (uint32_t i = 0; i < 40 - missing; i++)
        buf_printf(&text, "%s\"w%u\":%u", i ? "," : "", i, i);
    buf_text(&text, "}}}");
    write_file("tokenizer.json", buf_view(&text));
}

static void folders_bring_their_tokenizer(void **state)
{
    (void)state;
    CLEANUP(model_freep) struct model *a = NULL, *b = NULL, *c = NULL;
    char digest[SHA256_HEX + 1];
    struct err err = { { 0 } };
    write_both(WEIGHT_F16, true, 2);
    if (model_load(model_folder, NULL, &a, &err) < 0) fail_msg("%s", err.text);
    assert_null(model_info(a)->vocab);
    write_tokenizer(3); /* vocab_size of config.json adds the rest */
    write_file("tokenizer_config.json", STR("{\"bos_token\":\"w1\",\"chat_template\":\"old\"}"));
    write_file("chat_template.jinja", STR("{{ bos_token }}"));
    write_file(
        "generation_config.json",
        STR("{\"bos_token_id\":9,\"eos_token_id\":[7,8],\"do_sample\":true,\"temperature\":0.6,"
            "\"top_k\":20,\"top_p\":0.95,\"min_p\":null,\"transformers_version\":\"5\"}"));
    if (model_load(model_folder, NULL, &b, &err) < 0) fail_msg("%s", err.text);
    const struct model_info *info = model_info(b);
    const uint32_t *ends;
    assert_non_null(info->vocab);
    assert_int_equal(vocab_count(info->vocab), 40);
    assert_int_equal(vocab_type(info->vocab, 36), TOKEN_NORMAL);
    assert_int_equal(vocab_type(info->vocab, 37), TOKEN_UNUSED);
    assert_int_equal(vocab_special(info->vocab)->bos, 1);
    assert_int_equal(vocab_ends(info->vocab, &ends), 2);
    assert_true(ends[0] == 7 && ends[1] == 8);
    const struct sampling *s = &info->sampling;
    assert_true(s->temperature == 0.6 && s->top_k == 20 && s->top_p == 0.95);
    assert_int_equal(s->unnamed, SAMPLING_MIN_P | SAMPLING_REPETITION_PENALTY);
    assert_int_equal(model_info(a)->sampling.unnamed, SAMPLING_ALL);
    assert_true(str_eq(info->template_source, STR("{{ bos_token }}")));
    /* One digest for engine and router, of what is computed with: tensors and config.json. */
    assert_int_equal(hf_folder_digest(model_folder, NULL, digest, &err), 0);
    assert_string_equal(info->digest, digest);
    assert_string_equal(info->digest, model_info(a)->digest);
    write_config(",\"tie_word_embeddings\":true,\"rope_theta\":9000");
    if (model_load(folder_at("part-1.safetensors"), NULL, &c, &err) < 0) fail_msg("%s", err.text);
    assert_string_not_equal(model_info(c)->digest, digest);
}

static void tokenizers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    char digest[SHA256_HEX + 1];
    struct err err = { { 0 } };
    write_both(WEIGHT_F16, true, 1);
    write_file("tokenizer.json", STR("{"));
    expect_refused("tokenizer.json: ");
    write_file("tokenizer.json", STR("{\"model\":{\"type\":\"Nope\",\"vocab\":{}}}"));
    expect_refused("type \"Nope\" is not supported");
    write_tokenizer(0);
    write_file("generation_config.json", STR("{\"eos_token_id\":40}"));
    expect_refused(
        "generation_config.json: a special token has the id 40, but there are 40 tokens");
    write_file("generation_config.json", STR("{\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}"));
    expect_refused("key 'eos_token_id' has more than 8 ids");
    write_file("generation_config.json", STR("{\"eos_token_id\":\"w1\"}"));
    expect_refused("generation_config.json: key 'eos_token_id' is no token id from 0");
    write_file("generation_config.json", STR("{\"bos_token_id\":-1}"));
    expect_refused("key 'bos_token_id' is no token id");
    write_file("generation_config.json", STR("[]"));
    expect_refused("generation_config.json: the file");
    write_file("generation_config.json", STR("{\"eos_token_id\":[1,"));
    expect_refused("generation_config.json: ");
    write_file("generation_config.json", STR("{\"temperature\":3}"));
    expect_refused("generation_config.json: 'temperature' is 3, requests may have 0 to 2");
    write_file("generation_config.json", STR("{\"top_k\":1.5}"));
    expect_refused("'top_k' is 1.5, requests may have 0 to 2147483647, whole");
    write_file("generation_config.json", STR("{\"top_p\":\"1\"}"));
    expect_refused("generation_config.json: key 'top_p' is no number");
    unlink(folder_at("generation_config.json"));
    write_tokenizer(UINT32_MAX); /* one token more than rows */
    expect_refused(
        "41 tokens (tokenizer.json, with those that vocab_size of config.json adds), but 40");
    clean();
    assert_int_equal(hf_folder_digest(model_folder, NULL, digest, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no *.safetensors, whose digest names the model"));
}

/* What a config.json ends with, and the sentence that it gets. */
static const char *const configs[][2] = {
    { ",\"rope_scaling\":{\"type\":\"yarn\"}", "key 'rope_scaling' is there twice" },
    { ",\"attention_bias\":true", "key 'attention_bias' asks for something" },
    { ",\"mlp_bias\":true", "key 'mlp_bias' asks for something" },
    { ",\"quantization_config\":{\"bits\":4}", "key 'quantization_config': quant_method is ''" },
    { ",\"rope_parameters\":{\"rope_type\":\"dynamic\"}",
      "key 'rope_parameters' is 'dynamic'; computed are default, linear" },
    { ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2}",
      "lacks one of factor, original_max_position_embeddings" },
    { ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2,"
      "\"original_max_position_embeddings\":32,\"truncate\":false}",
      "truncate: false of YaRN is not computed for llama" },
    { ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":0.5}", "has factor 0.5" },
    { ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"beta_fast\":1}",
      "scales positions in a way that is not computed" },
    { ",\"rope_parameters\":{\"rope_type\":\"longrope\",\"short_factor\":[1],"
      "\"long_factor\":[1]}",
      "longrope is computed for phi3 only" },
    { ",\"rope_parameters\":{\"rope_type\":\"longrope\",\"short_factor\":[1],"
      "\"long_factor\":1}",
      "long_factor is no list" },
    { ",\"rope_parameters\":{\"factor\":8,\"factor\":8}", "has a member twice" },
    { ",\"rope_parameters\":{\"full_attention\":{},\"full_attention\":{}}", "has a member twice" },
    { ",\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_type\":\"linear\","
      "\"factor\":2}}",
      "sliding_attention scales positions; computed is default" },
    { ",\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_theta\":9}}",
      "key 'llama.rope.freq_base_swa' is unknown" },
    { ",\"sliding_window\":8,\"layer_types\":[\"sliding_attention\"]",
      "key 'layer_types' has 1 items, there are 2 layers" },
    { ",\"layer_types\":[\"linear_attention\"]", "that is not computed at layer 0" },
    { ",\"layer_types\":{}", "key 'layer_types' is no list" },
    { ",\"partial_rotary_factor\":1.5", "'partial_rotary_factor' is 1.5" },
    { ",\"num_experts\":4", "key 'llama.expert_used_count' is missing" },
    { ",\"num_experts\":4,\"num_local_experts\":4", "two keys mean 'llama.expert_count'" },
    { ",\"num_experts\":4,\"norm_topk_prob\":false", "key 'norm_topk_prob' asks for" },
    { ",\"mlp_only_layers\":[1]", "key 'mlp_only_layers' asks for" },
    { ",\"decoder_sparse_step\":2", "key 'decoder_sparse_step' asks for" },
    { ",\"no_rope_layers\":[1,0]", "key 'no_rope_layers' is 0 at layer 1" },
    { ",\"query_pre_attn_scalar\":0", "key 'query_pre_attn_scalar' is 0" },
    { ",\"query_pre_attn_scalar\":16", "key 'llama.attention.scale' is unknown" },
    { ",\"use_bidirectional_attention\":true", "'use_bidirectional_attention' asks for" },
    { ",\"rope_parameters\":{\"factor\":8.0}", "scales positions in a way that is not computed" },
    { ",\"rope_parameters\":{\"rope_type\":\"default\",\"low_freq_factor\":1.0}",
      "scales positions in a way that is not computed" },
    { ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8.0}",
      "lacks one of factor, low_freq_factor" },
    { ",\"rope_parameters\":{\"unheard_of\":1}", "has a member that is not known" },
    { ",\"rope_parameters\":{\"mscale\":1}", "not computed for 'default'" },
    { ",\"rope_parameters\":{\"factor\":\"8\"}", "factor is no number" },
    { ",\"rope_parameters\":{" LLAMA3("0.5", "1.0", "4.0", "64") "}", "has factor 0.5, low" },
    { ",\"rope_parameters\":{" LLAMA3("8.0", "4.0", "4.0", "64") "}", "which is above 0" },
    { ",\"rope_parameters\":{" LLAMA3("8.0", "0", "4.0", "64") "}", "which is above 0" },
    { ",\"rope_parameters\":{" LLAMA3("8.0", "1", "4.0", "0") "}", "positions are at least 1" },
    { ",\"rope_parameters\":[]", "key 'rope_parameters' is no object" },
    { ",\"rope_parameters\":{\"rope_theta\":[]}", "rope_theta is no number, or there twice" },
    { ",\"rope_theta\":1,\"rope_parameters\":{\"rope_theta\":1}", "or there twice" },
    { ",\"rope_parameters\":{\"rope_theta\":1},\"rope_theta\":1", "rope_theta is there twice" },
    { ",\"head_dim\":-1", "key 'head_dim' is no number from 0" },
    { ",\"head_dim\":32", "expected [64, 128]" },
    { ",\"rope_theta\":\"x\"", "key 'rope_theta' is no number" },
    { ",\"tie_word_embeddings\":1", "is neither true nor false" },
    { ",\"vocab_size\":41", "is there twice" },
    { ",", "the configuration" },
};

static void what_is_not_computed_or_not_whole_is_refused(void **state)
{
    (void)state;
    write_both(WEIGHT_F16, false, 1);
    for (size_t i = 0; i < COUNT_OF(configs); i++) {
        write_config(configs[i][0]);
        expect_refused(configs[i][1]);
    }
    write_file("config.json", STR("{\"model_type\":\"bloom\"}"));
    expect_refused("config.json: key 'model_type' is 'bloom'; computed are llama, mistral, ");
    write_file("config.json", STR("{\"model_type\":null}"));
    expect_refused("config.json: key 'model_type' is missing");
    write_file("config.json", STR("{\"model_type\":\"llama\"}"));
    expect_refused("key 'num_attention_heads' is missing or 0");
    write_file("config.json", STR("{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}"));
    expect_refused("key 'hidden_act' or 'hidden_activation' is 'gelu'; computed is 'silu'");
    unlink(folder_at("config.json"));
    expect_refused("config.json: No such file");
    write_both(WEIGHT_F16, true, 1);
    write_config("");
    expect_refused("tensor 'lm_head.weight' is missing");
    static const char *const indexes[][2] = {
        { "{\"weight_map\":{\"a\":\"../part-1.safetensors\"}}", "that is no plain file name" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "that is no plain file name" },
        { "{\"weight_map\":{\"a\":\"\"}}", "that is no plain file name" },
        { "{\"weight_map\":{\"a\":\"b.safetensors\"}}", "b.safetensors: No such file" },
        { "{\"weight_map\":{\"a\":\"part-1.safetensors\"}}", "tensor 'a' is not in part-1" },
        { "{\"weight_map\":{\"a\":7}}", "holds something that is no file name" },
        { "{\"weight_map\":{\"model.norm.weight\":\"part-2.safetensors\"}}",
          "it lists 1 tensors, its" },
        { "{}", "it has no weight_map" },
        { "{\"weight_map\":[]}", "weight_map" },
        { "{", "the index" },
    };
    write_both(WEIGHT_F16, false, 2);
    for (size_t i = 0; i < COUNT_OF(indexes); i++) {
        write_file("model.safetensors.index.json", str_from(indexes[i][0]));
        expect_refused(indexes[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_read_or_have_their_sentence),
        cmocka_unit_test(folders_give_the_model_of_the_gguf_file),
        cmocka_unit_test(llama3_rope_becomes_the_tensor_of_gguf),
        cmocka_unit_test(f8_is_read_exactly),
        cmocka_unit_test(folders_bring_their_tokenizer),
        cmocka_unit_test(tokenizers_that_do_not_fit_are_refused),
        cmocka_unit_test(what_is_not_computed_or_not_whole_is_refused),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_remove);
}
