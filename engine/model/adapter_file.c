/* adapter_file.c - turns names of tensors into layers, targets and halves (A or B).
 *
 *     base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight      PEFT
 *     blk.3.attn_q.weight.lora_a                                          GGUF
 */
#include "engine/model/adapter_file.h"

#include "base/core/bits.h"
#include "engine/files/safetensors.h"
#include "engine/model/arch.h"

/* clang-format off */
static const struct adapter_target targets[] = {
    { "self_attn.q_proj",    "attn_q",      false, ADAPTER_Q,    1 },
    { "self_attn.k_proj",    "attn_k",      false, ADAPTER_K,    1 },
    { "self_attn.v_proj",    "attn_v",      false, ADAPTER_V,    1 },
    { "self_attn.o_proj",    "attn_output", false, ADAPTER_OUT,  1 },
    { "mlp.gate_proj",       "ffn_gate",    false, ADAPTER_GATE, 1 },
    { "mlp.up_proj",         "ffn_up",      false, ADAPTER_UP,   1 },
    { "mlp.down_proj",       "ffn_down",    false, ADAPTER_DOWN, 1 },
    { "self_attn.qkv_proj",  "attn_qkv",    true,  ADAPTER_Q,    3 },
    { "mlp.gate_up_proj",    "ffn_up",      true,  ADAPTER_GATE, 2 },
};
/* clang-format on */

#define COMPUTED "computed are the q, k, v, o, gate, up and down matrices of layers"

/* Cuts a layer's number off the front, up to the next dot. */
static bool take_layer(struct str *rest, uint32_t *ret)
{
    uint64_t number;
    struct str digits = str_cut(rest, '.');
    if (str_to_u64(digits, &number) < 0 || number >= MODEL_LAYERS_MAX) return false;
    if (digits.len > 1 && digits.data[0] == '0') return false;
    *ret = (uint32_t)number;
    return true;
}

static bool cut_end(struct str *s, struct str end)
{
    if (!str_ends(*s, end)) return false;
    s->len -= end.len;
    return true;
}

static bool cut_start(struct str *s, struct str start)
{
    if (!str_starts(*s, start)) return false;
    s->data += start.len, s->len -= start.len;
    return true;
}

static bool name_hf(struct str name, struct adapter_tensor *t)
{
    t->is_b = str_ends(name, STR(".lora_B.weight"));
    if (!t->is_b && !str_ends(name, STR(".lora_A.weight"))) return false;
    name.len -= STR(".lora_A.weight").len;
    if (!cut_start(&name, STR("base_model.model.model.layers."))) return false;
    if (!take_layer(&name, &t->layer)) return false;
    for (size_t i = 0; i < COUNT_OF(targets); i++)
        if (str_eq(name, str_from(targets[i].hf))) t->target = &targets[i];
    return t->target != NULL;
}

static bool name_gguf(struct str name, bool fused, struct adapter_tensor *t)
{
    t->is_b = cut_end(&name, STR(".weight.lora_b"));
    if (!t->is_b && !cut_end(&name, STR(".weight.lora_a"))) return false;
    if (!cut_start(&name, STR("blk.")) || !take_layer(&name, &t->layer)) return false;
    /* One name stands for up alone, or for gate and up in one. */
    for (size_t i = 0; i < COUNT_OF(targets); i++)
        if (str_eq(name, str_from(targets[i].gguf)) && (!t->target || targets[i].fused == fused))
            t->target = &targets[i];
    return t->target != NULL;
}

static int begin(struct adapter_file *f, const struct gguf_source *source, uint32_t count,
                 struct adapter_tensor **ret, struct err *err)
{
    *f = (struct adapter_file){ .source = source, .count = count };
    arena_init(&f->arena, ADAPTER_FILE_MEMORY_MAX);
    if (count == 0) return err_set(err, -EINVAL, "%s: no tensors", source->name);
    *ret = arena_array(&f->arena, count, sizeof **ret);
    f->tensors = *ret;
    return *ret ? 0 : err_set(err, -ENOMEM, "%s: no memory for %u tensors", source->name, count);
}

static int keep_name(struct adapter_file *f, struct str name, struct adapter_tensor *t,
                     struct err *err)
{
    t->name = arena_str(&f->arena, name);
    return t->name.data ? 0 : err_set(err, -ENOMEM, "%s: no memory", f->source->name);
}

static int list_safetensor(struct adapter_file *f, const struct safetensor *from,
                           struct adapter_tensor *to, struct err *err)
{
    static const int types[] = { [SAFETENSOR_F32] = WEIGHT_F32,
                                 [SAFETENSOR_F16] = WEIGHT_F16,
                                 [SAFETENSOR_BF16] = WEIGHT_BF16 };
    const char *file = f->source->name;
    const bool plain = from->type == SAFETENSOR_F32 || from->type == SAFETENSOR_F16 ||
                       from->type == SAFETENSOR_BF16;
    if (!name_hf(from->name, to))
        return err_set(err, -ENOTSUP,
                       "%s: tensor '" STR_FMT
                       "' is of no matrix that adapters may change; " COMPUTED,
                       file, STR_ARG(from->name));
    if (!plain || from->n_dims != 2)
        return err_set(err, -ENOTSUP, "%s: tensor '" STR_FMT "' is no matrix of F32, F16 or BF16",
                       file, STR_ARG(from->name));
    to->type = (enum weight_type_id)types[from->type];
    to->rows = from->dims[0], to->cols = from->dims[1];
    to->offset = from->offset, to->bytes = from->bytes;
    return keep_name(f, from->name, to, err);
}

int adapter_file_peft(const struct gguf_source *source, const struct adapter_config *config,
                      struct adapter_file *ret, struct err *err)
{
    CLEANUP(safetensors_freep) struct safetensors *s = NULL;
    struct adapter_tensor *list = NULL;
    int rc = safetensors_parse(source, &s, err);
    if (rc < 0) return rc;
    rc = begin(ret, source, s->count, &list, err);
    for (uint32_t i = 0; i < s->count && rc == 0; i++)
        rc = list_safetensor(ret, &s->tensors[i], &list[i], err);
    ret->hf_rows = true;
    ret->scale = config->scale;
    ret->rank = config->rank;
    if (rc < 0) adapter_file_fini(ret);
    return rc;
}

/* Refuses a file of another kind, of another architecture, or with a key of adapters that is not known. */
static int check_keys(const struct gguf *g, const char *arch, float *ret_alpha, struct err *err)
{
    struct str text = { "", 0 };
    int rc = gguf_get_str(g, "general.type", &text, err);
    if (rc < 0 || !str_eq(text, STR("adapter")))
        return err_set(err, -EINVAL,
                       STR_FMT ": key 'general.type' is not 'adapter': no adapter file",
                       STR_ARG(g->file));
    rc = gguf_get_str(g, "adapter.type", &text, err);
    if (rc < 0 || !str_eq(text, STR("lora")))
        return err_set(err, -ENOTSUP, STR_FMT ": key 'adapter.type' is not 'lora'",
                       STR_ARG(g->file));
    rc = gguf_get_str(g, "general.architecture", &text, err);
    if (rc < 0) return rc == -ENOENT ? -EINVAL : rc;
    if (!str_eq(text, str_from(arch)))
        return err_set(err, -EINVAL,
                       STR_FMT ": made for models of architecture '" STR_FMT "', this one is '%s'",
                       STR_ARG(g->file), STR_ARG(text), arch);
    for (uint32_t i = 0; i < g->value_count; i++) {
        struct str key = g->values[i].key;
        if (!str_starts(key, STR("adapter.")) || str_eq(key, STR("adapter.type")) ||
            str_eq(key, STR("adapter.lora.alpha")))
            continue;
        return err_set(err, -ENOTSUP,
                       STR_FMT ": key '" STR_FMT "' asks for something that is not computed",
                       STR_ARG(g->file), STR_ARG(key));
    }
    rc = gguf_get_f32(g, "adapter.lora.alpha", ret_alpha, err);
    if (rc < 0) return rc == -ENOENT ? -EINVAL : rc;
    if (*ret_alpha >= 0 && *ret_alpha <= 1e6f) return 0;
    return err_set(err, -EINVAL, STR_FMT ": key 'adapter.lora.alpha' is %g, it must be 0 to 1e6",
                   STR_ARG(g->file), (double)*ret_alpha);
}

static int list_gguf(struct adapter_file *f, const struct gguf_tensor *from, bool fused,
                     struct adapter_tensor *to, struct err *err)
{
    const char *file = f->source->name;
    if (!name_gguf(from->name, fused, to))
        return err_set(err, -ENOTSUP,
                       "%s: tensor '" STR_FMT
                       "' is of no matrix that adapters may change; " COMPUTED,
                       file, STR_ARG(from->name));
    if (from->n_dims != 2)
        return err_set(err, -ENOTSUP, "%s: tensor '" STR_FMT "' is no matrix", file,
                       STR_ARG(from->name));
    to->type = from->type;
    to->cols = from->dims[0], to->rows = from->dims[1];
    to->offset = from->offset, to->bytes = from->bytes;
    return keep_name(f, from->name, to, err);
}

int adapter_file_gguf(const struct gguf_source *source, const char *arch, bool fused,
                      struct adapter_file *ret, struct err *err)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct adapter_tensor *list = NULL;
    float alpha = 0;
    int rc = gguf_parse(source, &g, err);
    if (rc == 0) rc = check_keys(g, arch, &alpha, err);
    if (rc < 0) return rc;
    rc = begin(ret, source, g->tensor_count, &list, err);
    for (uint32_t i = 0; i < g->tensor_count && rc == 0; i++)
        rc = list_gguf(ret, &g->tensors[i], fused, &list[i], err);
    ret->alpha = alpha;
    if (rc < 0) adapter_file_fini(ret);
    return rc;
}

void adapter_file_fini(struct adapter_file *f)
{
    arena_fini(&f->arena);
    *f = (struct adapter_file){ 0 };
}
