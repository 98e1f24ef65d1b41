/* hf_make.c - undoes what a GGUF file's names and orders of rows did to a Llama. */
#include "tests/unit/engine/hf_make.h"

#include "base/core/own.h"
#include "engine/kernels/weight.h"
#include "tests/unit/engine/gguf_make.h"

#include <stdio.h>
#include <stdlib.h>

void hf_make_file(const char *folder, const char *name, struct str text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    must(f && fwrite(text.data, 1, text.len, f) == text.len && fclose(f) == 0);
}

/* The name in a Hugging Face file of the GGUF tensor. */
static void hf_name(struct str name, char to[128])
{
    static const char *const names[][2] = {
        { "attn_norm", "input_layernorm" },    { "attn_q", "self_attn.q_proj" },
        { "attn_k", "self_attn.k_proj" },      { "attn_v", "self_attn.v_proj" },
        { "attn_output", "self_attn.o_proj" }, { "ffn_norm", "post_attention_layernorm" },
        { "ffn_gate", "mlp.gate_proj" },       { "ffn_up", "mlp.up_proj" },
        { "ffn_down", "mlp.down_proj" },
    };
    if (str_eq(name, STR("token_embd.weight"))) snprintf(to, 128, "model.embed_tokens.weight");
    if (str_eq(name, STR("output_norm.weight"))) snprintf(to, 128, "model.norm.weight");
    if (str_eq(name, STR("output.weight"))) snprintf(to, 128, "lm_head.weight");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char mine[64];
        for (unsigned layer = 0; layer < HF_MAKE_LAYERS; layer++) {
            snprintf(mine, sizeof mine, "blk.%u.%s.weight", layer, names[i][0]);
            if (str_eq(name, str_from(mine)))
                snprintf(to, 128, "model.layers.%u.%s.weight", layer, names[i][1]);
        }
    }
}

/* Undoes GGUF's order of rows: row 2j + b of a head goes to row b * half + j. */
static void put_rows(const struct hf_made *m, struct buf *out, const char *data,
                     const struct gguf_tensor *t)
{
    bool q = str_ends(t->name, STR("attn_q.weight"));
    bool turned = q || str_ends(t->name, STR("attn_k.weight"));
    uint32_t heads = q ? m->heads : m->kv_heads;
    size_t row = (size_t)(t->bytes / t->dims[1]);
    if (!turned) {
        buf_append(out, data, (size_t)t->bytes);
        return;
    }
    uint32_t size = (uint32_t)t->dims[1] / heads;
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t b = 0; b < 2; b++)
            for (uint32_t j = 0; j < size / 2; j++)
                buf_append(out, data + ((size_t)h * size + 2 * j + b) * row, row);
}

void hf_make_part(const struct hf_made *m, uint32_t part, uint32_t parts, const char *file,
                  struct buf *index)
{
    const struct gguf *g = m->gguf;
    const struct gguf_source *source = m->source;
    CLEANUP(buf_fini) struct buf header = { 0 }, data = { 0 }, all = { 0 };
    buf_text(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = part; i < g->tensor_count; i += parts) {
        const struct gguf_tensor *t = &g->tensors[i];
        char name[128] = "", *raw = malloc((size_t)t->bytes);
        hf_name(t->name, name);
        must(name[0] && raw &&
             source->read(source->ctx, t->offset, raw, (size_t)t->bytes, NULL) == 0);
        buf_printf(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name,
                   weight_types[t->type].name);
        if (t->n_dims == 2) buf_printf(&header, "%llu,", (unsigned long long)t->dims[1]);
        buf_printf(&header, "%llu],\"data_offsets\":[%zu,%zu]}", (unsigned long long)t->dims[0],
                   data.len, data.len + (size_t)t->bytes);
        put_rows(m, &data, raw, t);
        free(raw);
        buf_printf(index, "%s\"%s\":\"%s\"", index->len > 0 ? "," : "", name, file);
    }
    buf_byte(&header, '}');
    make_u64_raw(&all, header.len);
    buf_str(&all, buf_view(&header));
    buf_str(&all, buf_view(&data));
    must(all.rc == 0);
    hf_make_file(m->folder, file, buf_view(&all));
}

void hf_make_index(const char *folder, struct str lines)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    buf_str(&text, lines);
    buf_text(&text, "}}");
    hf_make_file(folder, "model.safetensors.index.json", buf_view(&text));
}
