/* hf_model.c - gives a folder of safetensors the shape of a GGUF file, so that loader and architectures
 * know one kind of file.
 *
 * Tensors get offsets in a space of their own (hf_joint.h), each at a multiple of 64. The experts of a layer
 * are one tensor there and one each in the files: the first that is found reserves the place of all. */
#include "engine/files/hf_model.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "engine/files/hf_config.h"
#include "engine/files/hf_encoder.h"
#include "engine/files/hf_folder.h"
#include "engine/files/hf_joint.h"
#include "engine/files/hf_parts.h"
#include "engine/kernels/kv_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define HF_NAME_MAX 255
#define HF_ALIGN 64u
#define HF_NORM_MAX 65536u
#define HF_STACKS_MAX 4096u /* of experts: three a layer */
#define HF_MEMORY_BYTES_MAX ((size_t)256 << 20)

struct hf_all {
    struct hf_model model; /* first: the caller's view */
    struct gguf gguf;
    struct gguf_source source;
    struct arena arena;
    char folder[HF_PATH_MAX];
    struct hf_config config;
    struct hf_joint joint;
    struct gguf_tensor *tensors;
    uint32_t used;                               /* of tensors */
    uint64_t end;                                /* of the joint space so far */
    uint32_t segments_max, tensors_max;          /* room at joint.segments and at tensors */
    uint32_t stacks[HF_STACKS_MAX], stack_count; /* tensors of experts */
};

static struct hf_all *all_of(struct hf_model *m)
{
    return (struct hf_all *)(void *)m;
}

void hf_model_free(struct hf_model *m)
{
    if (!m) return;
    struct hf_all *a = all_of(m);
    hf_joint_fini(&a->joint);
    free(a->tensors);
    arena_fini(&a->arena);
    free(a);
}

bool hf_model_is(const char *path)
{
    struct stat st;
    return str_ends(str_from(path), STR(".safetensors")) ||
           (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

static int read_config(struct hf_all *a, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = hf_folder_read(a->folder, "config.json", HF_CONFIG_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = hf_pooling_read(a->folder, &a->config.pooling_type, err);
    if (rc < 0) return rc;
    rc = hf_config_read(&a->config, buf_view(&text), &a->arena, err);
    return rc < 0 ? err_prefix(err, rc, "%s/config.json", a->folder) : 0;
}

/* ---- tensors */

/* Older files store the rotary frequencies, which follow from rope_theta; with tied embeddings an
 * lm_head is a copy that is not read; layers behind the last predict further tokens. */
static bool is_spare(const struct hf_all *a, struct str name)
{
    if (a->config.family->encoder) return hf_encoder_is_spare(&a->config, name);
    if (hf_latent_is_further(&a->config, name)) return true;
    return str_ends(name, STR(".rotary_emb.inv_freq")) ||
           (a->config.tied && str_eq(name, STR("lm_head.weight")));
}

/* GPTQ files may have a bias of zeros for modules that have none. */
static bool is_empty_bias(const struct hf_all *a, uint32_t file, const struct safetensor *t)
{
    char name[GGUF_NAME_BYTES_MAX + 1];
    uint32_t expert;
    return str_ends(t->name, STR(".bias")) &&
           !hf_family_tensor(a->config.family, t->name, name, &expert) &&
           hf_parts_zeros(&a->joint.files.at[file], t);
}

/* Reserves `bytes` of the joint space; they begin at *ret. */
static int reserve(struct hf_all *a, size_t bytes, uint64_t *ret, struct err *err)
{
    size_t offset;
    if (!align_fits(a->end, HF_ALIGN, &offset) || !add_fits(offset, bytes, &a->end))
        return err_set(err, -EINVAL, "its tensors have more than 2^64 bytes");
    *ret = offset;
    return 0;
}

/* Makes room for one more; the address of earlier ones may change. */
static int grow(void **list, uint32_t used, uint32_t *max, size_t size, struct err *err)
{
    if (used < *max) return 0;
    uint32_t more = *max ? 2 * *max : 256;
    void *p = more <= 64 * GGUF_TENSORS_MAX ? realloc(*list, more * size) : NULL;
    if (!p) return err_set(err, -ENOMEM, "no memory for the tensor table");
    *list = p;
    *max = more;
    return 0;
}

static int add_segment(struct hf_all *a, const struct hf_segment *s, struct err *err)
{
    int rc = grow((void **)(void *)&a->joint.segments, a->joint.segment_count, &a->segments_max,
                  sizeof *s, err);
    if (rc == 0) a->joint.segments[a->joint.segment_count++] = *s;
    return rc;
}

/* Describes a tensor of the files, or a matrix made of several, as a GGUF file has it. */
struct entry {
    struct str name, from; /* from: for messages */
    enum weight_type_id type;
    uint32_t n_dims;
    uint64_t dims[GGUF_DIMS_MAX]; /* fastest first */
    uint64_t elements;
    size_t bytes;
};

/* Adds an entry, or that of a stack of `count` like it. */
static int add_entry(struct hf_all *a, const struct entry *e, uint32_t count,
                     struct gguf_tensor **ret, struct err *err)
{
    int rc = grow((void **)(void *)&a->tensors, a->used, &a->tensors_max, sizeof *a->tensors, err);
    if (rc < 0) return rc;
    if (a->used == GGUF_TENSORS_MAX)
        return err_set(err, -E2BIG, "more than %u tensors", GGUF_TENSORS_MAX);
    struct gguf_tensor *g = &a->tensors[a->used];
    size_t bytes;
    *g = (struct gguf_tensor){ .name = arena_str(&a->arena, e->name),
                               .n_dims = e->n_dims,
                               .type = e->type,
                               .elements = e->elements };
    if (!g->name.data) return err_set(err, -ENOMEM, "no memory for the names");
    if (!mul_fits(e->bytes, count, &bytes) || !mul_fits(e->elements, count, &(size_t){ 0 }))
        return err_set(err, -EINVAL, "its tensors have more than 2^64 bytes");
    memcpy(g->dims, e->dims, sizeof g->dims);
    if (count > 1) {
        if (e->n_dims != 2) return err_set(err, -EINVAL, "an expert's tensor is no matrix");
        g->n_dims = 3;
        g->dims[2] = count;
        g->elements *= count;
    }
    g->bytes = bytes;
    rc = reserve(a, bytes, &g->offset, err);
    if (rc < 0) return rc;
    a->used++;
    *ret = g;
    return 0;
}

/* Finds the stack that an expert's tensor belongs to, or adds it. All of its experts have one shape. */
static int find_stack(struct hf_all *a, const struct entry *e, uint32_t expert,
                      struct gguf_tensor **ret, struct err *err)
{
    uint32_t experts = a->config.experts;
    if (expert >= experts)
        return err_set(err, -EINVAL, "tensor '" STR_FMT "' is of expert %u, there are %u",
                       STR_ARG(e->from), expert, experts);
    for (uint32_t i = a->stack_count; i > 0; i--) { /* the layer's own are the last */
        struct gguf_tensor *g = &a->tensors[a->stacks[i - 1]];
        if (!str_eq(g->name, e->name)) continue;
        if (e->n_dims != 2 || g->dims[0] != e->dims[0] || g->dims[1] != e->dims[1] ||
            g->type != e->type)
            return err_set(err, -EINVAL, "tensor '" STR_FMT "' is unlike another expert's",
                           STR_ARG(e->from));
        *ret = g;
        return 0;
    }
    if (a->stack_count == HF_STACKS_MAX)
        return err_set(err, -E2BIG, "experts in more than %u tensors of layers", HF_STACKS_MAX);
    a->stacks[a->stack_count++] = a->used;
    return add_entry(a, e, experts, ret, err);
}

/* Says which rows move, for GGUF files that have them in another order. */
static int set_order(const struct hf_all *a, const struct entry *e, struct hf_segment *s,
                     struct err *err)
{
    uint32_t heads = str_ends(e->name, STR(".attn_q.weight"))   ? a->config.heads
                     : str_ends(e->name, STR(".attn_k.weight")) ? a->config.kv_heads
                                                                : 0;
    if (heads == 0 || !a->config.family->pairs) return 0;
    const uint64_t rows = e->dims[1];
    if (e->n_dims != 2 || rows % heads != 0 || rows / heads % 2 != 0 || rows / heads > UINT32_MAX)
        return err_set(err, -EINVAL, "tensor '" STR_FMT "' has no rows for %u heads of even size",
                       STR_ARG(e->from), heads);
    s->head_rows = (uint32_t)(rows / heads);
    return 0;
}

/* Reads a norm and stores 1 + w, in F32. */
static int add_one_plus(struct hf_all *a, const struct hf_file *f, const struct safetensor *t,
                        struct gguf_tensor *g, struct hf_segment *s, struct err *err)
{
    if (t->type == SAFETENSOR_F8_E4M3 || t->elements > HF_NORM_MAX)
        return err_set(err, -ENOTSUP, "tensor '" STR_FMT "' is no norm of F32, F16 or BF16",
                       STR_ARG(t->name));
    size_t bytes = (size_t)t->elements * sizeof(float);
    char *raw = arena_alloc(&a->arena, (size_t)t->bytes);
    float *values = arena_array(&a->arena, (size_t)t->elements, sizeof *values);
    if (!raw || !values) return err_set(err, -ENOMEM, "no memory for the norms");
    int rc = f->file.source.read(f->file.source.ctx, t->offset, raw, (size_t)t->bytes, err);
    if (rc < 0) return rc;
    weight_types[g->type].to_f32(raw, (uint32_t)t->elements, values);
    for (uint64_t i = 0; i < t->elements; i++)
        values[i] += 1;
    g->type = WEIGHT_F32;
    g->bytes = bytes;
    *s = (struct hf_segment){ .memory = (const char *)values, .bytes = bytes, .row_bytes = bytes };
    rc = reserve(a, bytes, &g->offset, err);
    s->offset = g->offset;
    return rc;
}

/* Leaves out the rows of positions that no token has. */
static int skip_rows(const struct hf_all *a, const char *name, struct entry *e,
                     struct hf_segment *s, struct err *err)
{
    const uint64_t skip = a->config.position_skip;
    if (skip == 0 || strcmp(name, "position_embd.weight") != 0) return 0;
    if (e->n_dims != 2 || e->dims[1] <= skip)
        return err_set(err, -EINVAL, "tensor '" STR_FMT "' has no more than %llu rows",
                       STR_ARG(e->from), (unsigned long long)skip);
    const size_t row_bytes = e->bytes / (size_t)e->dims[1];
    e->dims[1] -= skip;
    e->elements -= skip * e->dims[0];
    e->bytes -= (size_t)skip * row_bytes;
    s->from += skip * (s->f8 ? row_bytes / 2 : row_bytes);
    return 0;
}

/* Adds an entry and its segment, which `s` describes but for its place. */
static int take_entry(struct hf_all *a, struct entry *e, struct hf_segment *s,
                      const struct safetensor *norm, struct err *err)
{
    char name[GGUF_NAME_BYTES_MAX + 1];
    uint32_t expert;
    struct gguf_tensor *g = NULL;
    if (!hf_family_tensor(a->config.family, e->name, name, &expert))
        return err_set(err, -ENOTSUP, "tensor '" STR_FMT "' is not one that a %s has here",
                       STR_ARG(e->from), a->config.family->model_type);
    e->name = str_from(name);
    int rc = skip_rows(a, name, e, s, err);
    if (rc < 0) return rc;
    rc = expert == HF_NO_EXPERT ? add_entry(a, e, 1, &g, err) : find_stack(a, e, expert, &g, err);
    if (rc < 0) return rc;
    s->offset = g->offset + (expert == HF_NO_EXPERT ? 0 : expert * (uint64_t)e->bytes);
    s->bytes = e->bytes;
    s->row_bytes = e->bytes / (e->elements / e->dims[0]);
    if (a->config.family->one_plus && norm && str_ends(e->name, STR("norm.weight")))
        rc = add_one_plus(a, &a->joint.files.at[s->file], norm, g, s, err);
    else
        rc = set_order(a, e, s, err);
    return rc < 0 ? rc : add_segment(a, s, err);
}

static int take_whole(struct hf_all *a, uint32_t file, const struct safetensor *t, struct err *err)
{
    static const enum weight_type_id types[] = { [SAFETENSOR_F32] = WEIGHT_F32,
                                                 [SAFETENSOR_F16] = WEIGHT_F16,
                                                 [SAFETENSOR_BF16] = WEIGHT_BF16,
                                                 [SAFETENSOR_F8_E4M3] = WEIGHT_F16 };
    const bool f8 = t->type == SAFETENSOR_F8_E4M3;
    struct entry e = {
        .name = t->name, .from = t->name, .n_dims = t->n_dims, .elements = t->elements
    };
    struct hf_segment s = { .from = t->offset, .file = file, .f8 = f8 };
    if (t->type >= COUNT_OF(types))
        return err_set(err, -ENOTSUP,
                       "tensor '" STR_FMT
                       "' is %s, which is read of weights that quantization_config of config.json "
                       "describes",
                       STR_ARG(t->name), safetensor_type_name(t->type));
    e.type = types[t->type];
    if (!mul_fits((size_t)t->bytes, f8 ? 2 : 1, &e.bytes))
        return err_set(err, -EINVAL, "its tensors have more than 2^64 bytes");
    for (uint32_t i = 0; i < GGUF_DIMS_MAX; i++)
        e.dims[i] = i < t->n_dims ? t->dims[t->n_dims - 1 - i] : 1;
    return take_entry(a, &e, &s, t, err);
}

/* Keeps the description of a packed matrix. */
static struct hf_packed *keep(struct hf_all *a, const struct hf_packed *p, struct err *err)
{
    struct hf_packed *kept = arena_alloc(&a->arena, sizeof *kept);
    if (kept) *kept = *p;
    if (!kept) err_set(err, -ENOMEM, "no memory for the packed weights");
    return kept;
}

static struct entry entry_of(const struct hf_packed *p, struct str name)
{
    return (struct entry){ .name = name,
                           .from = p->weights.tensor->name,
                           .type = p->type,
                           .n_dims = 2,
                           .dims = { p->cols, p->rows, 1, 1 },
                           .elements = (uint64_t)p->rows * p->cols,
                           .bytes = hf_packed_bytes(p) };
}

/* Adds what one tensor with the weights of all experts is in a GGUF file: a stack, or two that take turns. */
static int take_stack(struct hf_all *a, uint32_t file, const struct safetensor *t, bool *ret_taken,
                      struct err *err)
{
    const struct hf_stack_row *row;
    char name[GGUF_NAME_BYTES_MAX + 1], full[GGUF_NAME_BYTES_MAX + 8];
    struct str end;
    for (uint32_t i = 0; (row = hf_family_stack(a->config.family, t->name, i, name, &end)); i++) {
        enum hf_role role;
        struct hf_packed p = { 0 };
        struct gguf_tensor *g = NULL;
        uint32_t experts = 0;
        uint64_t stride = 0;
        *ret_taken = true;
        int rc =
            hf_parts_stack(row, end, &a->joint.files, file, t, &role, &p, &experts, &stride, err);
        if (rc < 0 || role == HF_SIDE) return rc;
        snprintf(full, sizeof full, "%s.%s", name, p.layout == HF_EVERY ? "bias" : "weight");
        struct entry e = entry_of(&p, str_from(full));
        if ((p.layout == HF_EVERY ? p.rows : experts) != a->config.experts)
            return err_set(err, -EINVAL,
                           "tensor '" STR_FMT "' is of %llu experts, config.json says %u",
                           STR_ARG(t->name), (unsigned long long)t->dims[0], a->config.experts);
        rc = add_entry(a, &e, experts, &g, err);
        for (uint32_t x = 0; x < experts && rc == 0; x++) {
            p.skip = x * stride;
            const struct hf_segment s = { .offset = g->offset + x * (uint64_t)e.bytes,
                                          .bytes = e.bytes,
                                          .file = file,
                                          .row_bytes = hf_packed_row_bytes(&p),
                                          .packed = keep(a, &p, err) };
            rc = s.packed ? add_segment(a, &s, err) : -ENOMEM;
        }
        if (rc < 0) return rc;
    }
    return 0;
}

static int take_tensor(struct hf_all *a, uint32_t file, const struct safetensor *t, struct err *err)
{
    enum hf_role role = HF_WHOLE;
    struct hf_packed p;
    struct str name;
    bool taken = false;
    if (is_spare(a, t->name)) return 0;
    int rc = take_stack(a, file, t, &taken, err);
    if (rc < 0 || taken) return rc;
    rc = hf_parts_of(&a->config.quant, &a->joint.files, file, t, &a->arena, &role, &name, &p, err);
    if (rc < 0 || role == HF_SIDE) return rc;
    if (role == HF_WHOLE && a->config.quant.method == HF_QUANT_GPTQ && is_empty_bias(a, file, t))
        return 0;
    if (role == HF_WHOLE) return take_whole(a, file, t, err);
    struct entry e = entry_of(&p, name);
    struct hf_segment s = { .file = file, .packed = keep(a, &p, err) };
    return s.packed ? take_entry(a, &e, &s, NULL, err) : -ENOMEM;
}

/* Adds a vector of floats that follows from config.json. */
static int add_made(struct hf_all *a, const char *name, const float *values, uint32_t count,
                    struct err *err)
{
    const size_t bytes = count * sizeof *values;
    struct gguf_tensor *g = NULL;
    const struct entry e = { .name = str_from(name),
                             .n_dims = 1,
                             .dims = { count, 1, 1, 1 },
                             .type = WEIGHT_F32,
                             .elements = count,
                             .bytes = bytes };
    int rc = add_entry(a, &e, 1, &g, err);
    if (rc < 0) return rc;
    const struct hf_segment s = {
        .offset = g->offset, .bytes = bytes, .memory = (const char *)values, .row_bytes = bytes
    };
    return add_segment(a, &s, err);
}

/* Adds the factors that GGUF files have as tensors: of Llama 3.1, and LongRoPE's lists. */
static int add_rope_factors(struct hf_all *a, struct err *err)
{
    const struct hf_rope *rope = &a->config.rope;
    const uint32_t pairs = hf_config_pairs(&a->config);
    if (rope->type == HF_ROPE_LONG) {
        int rc = add_made(a, "rope_factors_long.weight", rope->long_factors, pairs, err);
        return rc < 0 ? rc
                      : add_made(a, "rope_factors_short.weight", rope->short_factors, pairs, err);
    }
    if (rope->type != HF_ROPE_LLAMA3) return 0;
    if (pairs == 0 || pairs > KV_HEAD_DIM_MAX)
        return err_set(err, -EINVAL, "%s/config.json: heads of %u pairs to rotate, 1 to %d are",
                       a->folder, pairs, KV_HEAD_DIM_MAX);
    float *factors = arena_array(&a->arena, pairs, sizeof *factors);
    if (!factors) return err_set(err, -ENOMEM, "%s: no memory", a->folder);
    hf_rope_factors(rope, pairs, factors);
    return add_made(a, "rope_freqs.weight", factors, pairs, err);
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    uint64_t x = ((const struct hf_segment *)a)->offset, y = ((const struct hf_segment *)b)->offset;
    return (x > y) - (x < y);
}

/* Names are unique, and every expert of a stack was given. */
static int check_whole(const struct hf_all *a, struct err *err)
{
    uint64_t bytes = 0, given = 0;
    for (uint32_t i = 0; i < a->used; i++) {
        bytes += a->tensors[i].bytes;
        if (i > 0 && str_eq(a->tensors[i - 1].name, a->tensors[i].name))
            return err_set(err, -EINVAL, "%s: tensor '" STR_FMT "' is there twice", a->folder,
                           STR_ARG(a->tensors[i].name));
    }
    for (uint32_t i = 0; i < a->joint.segment_count; i++) {
        given += a->joint.segments[i].bytes;
        if (i > 0 && a->joint.segments[i - 1].offset == a->joint.segments[i].offset)
            return err_set(err, -EINVAL, "%s: an expert's tensor is there twice", a->folder);
    }
    if (given == bytes) return 0;
    return err_set(err, -EINVAL, "%s: tensors of some of the %u experts are missing", a->folder,
                   a->config.experts);
}

static int take_tensors(struct hf_all *a, struct err *err)
{
    size_t count = 0;
    for (uint32_t i = 0; i < a->joint.files.count; i++)
        count += a->joint.files.at[i].table->count;
    if (count > GGUF_TENSORS_MAX)
        return err_set(err, -E2BIG, "%s: %zu tensors, at most %u are read", a->folder, count,
                       GGUF_TENSORS_MAX);
    for (uint32_t i = 0; i < a->joint.files.count; i++) {
        const struct safetensors *table = a->joint.files.at[i].table;
        for (uint32_t t = 0; t < table->count; t++) {
            int rc = take_tensor(a, i, &table->tensors[t], err);
            if (rc < 0) return err_prefix(err, rc, "%s", a->joint.files.at[i].path);
        }
    }
    return add_rope_factors(a, err);
}

static int join(struct hf_all *a, struct err *err)
{
    int rc = take_tensors(a, err);
    if (rc == 0) rc = reserve(a, 0, &a->end, err);
    if (rc < 0) return rc;
    qsort(a->tensors, a->used, sizeof *a->tensors, by_name);
    qsort(a->joint.segments, a->joint.segment_count, sizeof *a->joint.segments, by_place);
    rc = check_whole(a, err);
    if (rc < 0) return rc;
    a->source = (struct gguf_source){ .name = a->folder,
                                      .bytes = a->end,
                                      .identity = hf_folder_identity(a->folder),
                                      .read = hf_joint_read,
                                      .ctx = &a->joint };
    a->gguf = (struct gguf){ .file = str_from(a->folder),
                             .values = a->config.values,
                             .tensors = a->tensors,
                             .value_count = a->config.value_count,
                             .tensor_count = a->used };
    a->model = (struct hf_model){ &a->gguf, &a->source, hf_quant_text(a->config.quant.method) };
    if (!a->config.tied && !a->config.family->encoder &&
        !gguf_tensor_find(&a->gguf, STR("output.weight")))
        return err_set(err, -EINVAL,
                       "%s: tensor 'lm_head.weight' is missing, and config.json does not say "
                       "tie_word_embeddings",
                       a->folder);
    return 0;
}

/* A file stands for its folder. */
static int find_folder(struct hf_all *a, const char *path, struct err *err)
{
    struct str folder = str_from(path);
    if (str_ends(folder, STR(".safetensors")))
        folder.len -= strlen(strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    while (folder.len > 1 && folder.data[folder.len - 1] == '/')
        folder.len--;
    if (folder.len == 0) folder = STR(".");
    if (folder.len >= HF_PATH_MAX - HF_NAME_MAX)
        return err_set(err, -ENAMETOOLONG, "a path of %zu bytes", folder.len);
    snprintf(a->folder, sizeof a->folder, STR_FMT, STR_ARG(folder));
    return 0;
}

int hf_model_open(const char *path, struct hf_model **ret, struct err *err)
{
    CLEANUP(hf_model_freep) struct hf_model *m = NULL;
    struct hf_all *a = calloc(1, sizeof *a);
    if (!a) return err_set(err, -ENOMEM, "%s: no memory to read it", path);
    m = &a->model;
    arena_init(&a->arena, HF_MEMORY_BYTES_MAX);
    int rc = find_folder(a, path, err);
    if (rc == 0) rc = read_config(a, err);
    if (rc == 0) rc = hf_files_open(&a->joint.files, a->folder, &a->arena, err);
    if (rc == 0) rc = join(a, err);
    if (rc < 0) return rc;
    *ret = TAKE(m);
    return 0;
}

int hf_model_tokenizer(const struct hf_model *m, struct vocab **ret,
                       struct chat_template **ret_template, struct err *err)
{
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    const char *folder = m->source->name;
    const struct gguf_tensor *rows = gguf_tensor_find(m->gguf, STR("token_embd.weight"));
    int rc = hf_folder_tokenizer(folder, &vocab, &template, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    if (rows && rows->n_dims == 2 && rows->dims[1] != vocab_count(vocab))
        return err_set(
            err, -EINVAL,
            "%s: %u tokens (tokenizer.json, with those that vocab_size of config.json adds), "
            "but %llu rows of model.embed_tokens.weight",
            folder, vocab_count(vocab), (unsigned long long)rows->dims[1]);
    *ret = TAKE(vocab);
    *ret_template = TAKE(template);
    return 0;
}
