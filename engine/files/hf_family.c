/* hf_family.c - one row a model_type; one table of tensors for all, and one for what some have beside it. */
#include "engine/files/hf_family.h"

#include "engine/files/hf_encoder.h"

#include <stdio.h>

/* clang-format off */
static const struct hf_row top_rows[] = {
    { "model.embed_tokens.weight", "token_embd.weight" },
    { "model.norm.weight", "output_norm.weight" },
    { "lm_head.weight", "output.weight" },
}, layer_rows[] = {
    { "input_layernorm.weight", "attn_norm.weight" },
    { "self_attn.q_proj.weight", "attn_q.weight" },
    { "self_attn.k_proj.weight", "attn_k.weight" },
    { "self_attn.v_proj.weight", "attn_v.weight" },
    { "self_attn.o_proj.weight", "attn_output.weight" },
    { "post_attention_layernorm.weight", "ffn_norm.weight" },
    { "mlp.gate_proj.weight", "ffn_gate.weight" },
    { "mlp.up_proj.weight", "ffn_up.weight" },
    { "mlp.down_proj.weight", "ffn_down.weight" },
    { NULL, NULL },
}, no_rows[] = {
    { NULL, NULL },
}, mixtral_rows[] = {
    { "block_sparse_moe.gate.weight", "ffn_gate_inp.weight" },
    { "block_sparse_moe.experts.*.w1.weight", "ffn_gate_exps.weight" },
    { "block_sparse_moe.experts.*.w2.weight", "ffn_down_exps.weight" },
    { "block_sparse_moe.experts.*.w3.weight", "ffn_up_exps.weight" },
    { NULL, NULL },
}, qwen2_rows[] = {
    { "self_attn.q_proj.bias", "attn_q.bias" },
    { "self_attn.k_proj.bias", "attn_k.bias" },
    { "self_attn.v_proj.bias", "attn_v.bias" },
    { NULL, NULL },
}, qwen3_rows[] = {
    { "self_attn.q_norm.weight", "attn_q_norm.weight" },
    { "self_attn.k_norm.weight", "attn_k_norm.weight" },
    { "mlp.gate.weight", "ffn_gate_inp.weight" },
    { "mlp.experts.*.gate_proj.weight", "ffn_gate_exps.weight" },
    { "mlp.experts.*.up_proj.weight", "ffn_up_exps.weight" },
    { "mlp.experts.*.down_proj.weight", "ffn_down_exps.weight" },
    { NULL, NULL },
}, phi3_rows[] = {
    { "self_attn.qkv_proj.weight", "attn_qkv.weight" },
    { "mlp.gate_up_proj.weight", "ffn_up.weight" },
    { NULL, NULL },
}, gemma_rows[] = {
    { "self_attn.q_norm.weight", "attn_q_norm.weight" },
    { "self_attn.k_norm.weight", "attn_k_norm.weight" },
    { "post_attention_layernorm.weight", "post_attention_norm.weight" },
    { "pre_feedforward_layernorm.weight", "ffn_norm.weight" },
    { "post_feedforward_layernorm.weight", "post_ffw_norm.weight" },
    { NULL, NULL },
}, deepseek_rows[] = {
    { "self_attn.q_a_proj.weight", "attn_q_a.weight" },
    { "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight" },
    { "self_attn.q_b_proj.weight", "attn_q_b.weight" },
    { "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight" },
    { "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight" },
    { "self_attn.kv_b_proj.weight", "attn_kv_b.weight" },
    { "mlp.gate.weight", "ffn_gate_inp.weight" },
    { "mlp.gate.e_score_correction_bias", "exp_probs_b.bias" },
    { "mlp.experts.*.gate_proj.weight", "ffn_gate_exps.weight" },
    { "mlp.experts.*.up_proj.weight", "ffn_up_exps.weight" },
    { "mlp.experts.*.down_proj.weight", "ffn_down_exps.weight" },
    { "mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight" },
    { "mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight" },
    { "mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight" },
    { NULL, NULL },
}, gpt_oss_rows[] = {
    { "post_attention_layernorm.weight", "post_attention_norm.weight" },
    { "self_attn.q_proj.bias", "attn_q.bias" },
    { "self_attn.k_proj.bias", "attn_k.bias" },
    { "self_attn.v_proj.bias", "attn_v.bias" },
    { "self_attn.o_proj.bias", "attn_output.bias" },
    { "self_attn.sinks", "attn_sinks.weight" },
    { "mlp.router.weight", "ffn_gate_inp.weight" },
    { "mlp.router.bias", "ffn_gate_inp.bias" },
    { NULL, NULL },
};

/* Rows of gate and up take turns. */
static const struct hf_stack_row gpt_oss_stacks[] = {
    { "mlp.experts.gate_up_proj", "ffn_gate_exps", 0, 2 },
    { "mlp.experts.gate_up_proj", "ffn_up_exps", 1, 2 },
    { "mlp.experts.down_proj", "ffn_down_exps", 0, 1 },
    { NULL, NULL, 0, 0 },
};

static const struct hf_family families[] = {
    { "llama", "llama", "silu", .pairs = true, .rows = no_rows },
    { "mistral", "llama", "silu", .pairs = true, .rows = no_rows },
    { "mixtral", "llama", "silu", .pairs = true, .rows = mixtral_rows },
    { "smollm3", "smollm3", "silu", .pairs = true, .windows_by_switch = true, .rows = no_rows },
    { "qwen2", "qwen2", "silu", .windows_by_switch = true, .rows = qwen2_rows },
    { "qwen3", "qwen3", "silu", .windows_by_switch = true, .rows = qwen3_rows },
    { "qwen3_moe", "qwen3moe", "silu", .windows_by_switch = true, .rows = qwen3_rows },
    { "phi3", "phi3", "silu", .rows = phi3_rows },
    { "gemma2", "gemma2", "gelu_pytorch_tanh", .one_plus = true, .rows = gemma_rows },
    { "gemma3_text", "gemma3", "gelu_pytorch_tanh", .one_plus = true, .rows = gemma_rows },
    { "gpt_oss", "gpt-oss", "silu", .biased = true, .yarn_exact = true, .expert_ff = true,
      .stacks = gpt_oss_stacks, .rows = gpt_oss_rows },
    { "deepseek_v2", "deepseek2", "silu", .latent = true, .rows = deepseek_rows },
    { "deepseek_v3", "deepseek2", "silu", .latent = true, .sigmoid = true, .rows = deepseek_rows },
    { "bert", "bert", "gelu", .encoder = true, .rows = no_rows },
    { "roberta", "bert", "gelu", .encoder = true, .padded_positions = true, .rows = no_rows },
    { "xlm-roberta", "bert", "gelu", .encoder = true, .padded_positions = true, .rows = no_rows },
    { "modernbert", "modern-bert", "gelu", .encoder = true, .rows = no_rows },
    { "nomic_bert", "nomic-bert", "silu", .encoder = true, .rows = no_rows },
};
/* clang-format on */

const struct hf_family *hf_family_of(struct str model_type)
{
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (str_eq(model_type, str_from(families[i].model_type))) return &families[i];
    return NULL;
}

void hf_family_names(char ret[HF_FAMILY_NAMES_BYTES])
{
    size_t len = 0;
    ret[0] = 0;
    for (size_t i = 0; i < COUNT_OF(families) && len < HF_FAMILY_NAMES_BYTES; i++)
        len += (size_t)snprintf(ret + len, HF_FAMILY_NAMES_BYTES - len, "%s%s", i > 0 ? ", " : "",
                                families[i].model_type);
}

/* Compares a name with a row's; *ret_expert is the number at '*'. */
static bool matches(struct str name, const char *from, uint32_t *ret_expert)
{
    struct str before = str_from(from), after = before;
    uint64_t expert = 0;
    *ret_expert = HF_NO_EXPERT;
    if (!memchr(from, '*', before.len)) return str_eq(name, before);
    before = str_cut(&after, '*');
    if (!str_starts(name, before) || !str_ends(name, after) || name.len <= before.len + after.len)
        return false;
    struct str digits = { name.data + before.len, name.len - before.len - after.len };
    if (str_to_u64(digits, &expert) < 0 || expert >= HF_NO_EXPERT) return false;
    *ret_expert = (uint32_t)expert;
    return true;
}

static const char *find_row(const struct hf_row *rows, struct str name, uint32_t *ret_expert)
{
    for (; rows->from; rows++)
        if (matches(name, rows->from, ret_expert)) return rows->to;
    return NULL;
}

/* Cuts "model.layers.N." off a name. */
static bool cut_layer(struct str *name, uint32_t *ret)
{
    struct str rest = *name, prefix = STR("model.layers.");
    if (!str_starts(rest, prefix)) return false;
    rest = (struct str){ rest.data + prefix.len, rest.len - prefix.len };
    struct str digits = str_cut(&rest, '.');
    uint64_t layer = 0;
    if (str_to_u64(digits, &layer) < 0 || layer > UINT32_MAX) return false;
    *ret = (uint32_t)layer;
    *name = rest;
    return true;
}

bool hf_family_layer(struct str name, uint32_t *ret)
{
    return cut_layer(&name, ret);
}

const struct hf_stack_row *hf_family_stack(const struct hf_family *f, struct str name,
                                           uint32_t index, char ret[GGUF_NAME_BYTES_MAX + 1],
                                           struct str *ret_end)
{
    uint32_t layer = 0;
    if (!f->stacks || !cut_layer(&name, &layer)) return NULL;
    for (const struct hf_stack_row *row = f->stacks; row->from; row++) {
        struct str from = str_from(row->from);
        if (!str_starts(name, from) || index-- > 0) continue;
        snprintf(ret, GGUF_NAME_BYTES_MAX + 1, "blk.%u.%s", layer, row->to);
        *ret_end = (struct str){ name.data + from.len, name.len - from.len };
        return row;
    }
    return NULL;
}

bool hf_family_tensor(const struct hf_family *f, struct str name, char ret[GGUF_NAME_BYTES_MAX + 1],
                      uint32_t *ret_expert)
{
    *ret_expert = HF_NO_EXPERT;
    if (f->encoder) return hf_encoder_tensor(f, name, ret);
    for (size_t i = 0; i < COUNT_OF(top_rows); i++) {
        if (!str_eq(name, str_from(top_rows[i].from))) continue;
        snprintf(ret, GGUF_NAME_BYTES_MAX + 1, "%s", top_rows[i].to);
        return true;
    }
    struct str rest = name;
    uint32_t layer = 0;
    if (!cut_layer(&rest, &layer)) return false;
    const char *to = find_row(f->rows, rest, ret_expert);
    if (!to) to = find_row(layer_rows, rest, ret_expert);
    if (to) snprintf(ret, GGUF_NAME_BYTES_MAX + 1, "blk.%u.%s", layer, to);
    return to != NULL;
}
