/* hf_model.c - gives a folder of safetensors the shape of a GGUF file, so that loader and architectures
 * know one kind of file.
 *
 * Tensors get offsets in a space of their own (hf_joint.h), each at a multiple of 64. The experts of a layer
 * are one tensor there and one each in the files: the first that is found reserves the place of all. */
#include "engine/model/hf_model.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "engine/kernels/kv_layout.h"
#include "engine/model/hf_config.h"
#include "engine/model/hf_encoder.h"
#include "engine/model/hf_folder.h"
#include "engine/model/hf_joint.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define HF_NAME_MAX 255
#define HF_INDEX_NAME "model.safetensors.index.json"
#define HF_ALIGN 64u
#define HF_NORM_MAX 65536u
#define HF_STACKS_MAX 4096u /* of experts: three a layer */
#define HF_MADE_MAX 2u      /* tensors that follow from config.json */
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
    for (uint32_t i = 0; i < a->joint.file_count; i++) {
        safetensors_free(a->joint.files[i].table);
        gguf_file_close(&a->joint.files[i].file);
    }
    free(a->joint.files);
    free(a->joint.segments);
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

/* ---- files */

static int open_file(struct hf_all *a, struct str name, struct err *err)
{
    struct hf_file *f = &a->joint.files[a->joint.file_count];
    f->file.fd = -1;
    a->joint.file_count++;
    int len = snprintf(f->path, sizeof f->path, "%s/" STR_FMT, a->folder, STR_ARG(name));
    if (len < 0 || (size_t)len >= sizeof f->path)
        return err_set(err, -ENAMETOOLONG, "%s: a path of more than %d bytes", a->folder,
                       HF_PATH_MAX - 1);
    int rc = gguf_file_open(f->path, &f->file, err);
    return rc < 0 ? rc : safetensors_parse(&f->file.source, &f->table, err);
}

static struct str base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return str_from(slash ? slash + 1 : path);
}

/* Returns the file of that name, or file_count. */
static uint32_t file_named(const struct hf_all *a, struct str name)
{
    uint32_t i = 0;
    while (i < a->joint.file_count && !str_eq(base_name(a->joint.files[i].path), name))
        i++;
    return i;
}

static int take_shard(struct hf_all *a, struct str tensor, struct str file, struct err *err)
{
    if (file.len == 0 || file.len > HF_NAME_MAX || memchr(file.data, '/', file.len) ||
        memchr(file.data, 0, file.len) || file.data[0] == '.' ||
        strlen(a->folder) + file.len + 2 > HF_PATH_MAX)
        return err_set(err, -EINVAL,
                       "tensor '" STR_FMT "' is in a file with a name of %zu bytes that "
                       "is no plain file name",
                       STR_ARG(tensor), file.len);
    uint32_t i = file_named(a, file);
    if (i == a->joint.file_count) {
        if (i == HF_SHARDS_MAX) return err_set(err, -E2BIG, "more than %u files", HF_SHARDS_MAX);
        int rc = open_file(a, file, err);
        if (rc < 0) return rc;
    }
    if (safetensors_find(a->joint.files[i].table, tensor)) return 0;
    return err_set(err, -EINVAL, "tensor '" STR_FMT "' is not in " STR_FMT, STR_ARG(tensor),
                   STR_ARG(file));
}

/* Opens the files that "weight_map" names; returns how many tensors it lists. */
static int read_index(struct hf_all *a, struct str text, size_t *ret, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, text);
    *ret = 0;
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the index");
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "weight_map")) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "weight_map");
        while (json_next(&r) == JSON_KEY) {
            struct str tensor = { "", 0 }, file = { "", 0 };
            int rc = json_text_arena(&r, &a->arena, &tensor);
            json_next(&r);
            if (rc == 0) rc = json_text_arena(&r, &a->arena, &file);
            if (rc < 0) return err_set(err, rc, "weight_map holds something that is no file name");
            rc = take_shard(a, tensor, file, err);
            if (rc < 0) return rc;
            ++*ret;
        }
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the index");
    return *ret > 0 ? 0 : err_set(err, -EINVAL, "it has no weight_map");
}

static int open_files(struct hf_all *a, struct err *err)
{
    char path[HF_PATH_MAX + 32];
    struct stat st;
    a->joint.files = calloc(HF_SHARDS_MAX, sizeof *a->joint.files);
    if (!a->joint.files) return err_set(err, -ENOMEM, "%s: no memory", a->folder);
    snprintf(path, sizeof path, "%s/" HF_INDEX_NAME, a->folder);
    if (stat(path, &st) < 0) return open_file(a, STR("model.safetensors"), err);
    CLEANUP(buf_fini) struct buf text = { 0 };
    size_t listed = 0, held = 0;
    int rc = hf_folder_read(a->folder, HF_INDEX_NAME, HF_INDEX_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = read_index(a, buf_view(&text), &listed, err);
    for (uint32_t i = 0; i < a->joint.file_count && rc == 0; i++)
        held += a->joint.files[i].table->count;
    if (rc == 0 && held != listed)
        rc = err_set(err, -EINVAL, "it lists %zu tensors, its files hold %zu", listed, held);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

/* ---- tensors */

/* Older files store the rotary frequencies, which follow from rope_theta; with tied embeddings an
 * lm_head is a copy that is not read. */
static bool is_spare(const struct hf_all *a, struct str name)
{
    if (a->config.family->encoder) return hf_encoder_is_spare(&a->config, name);
    return str_ends(name, STR(".rotary_emb.inv_freq")) ||
           (a->config.tied && str_eq(name, STR("lm_head.weight")));
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

/* Adds the entry of a tensor, or of a stack of `count` like it. */
static int add_entry(struct hf_all *a, const struct safetensor *t, struct str name, size_t bytes,
                     uint32_t count, struct gguf_tensor **ret, struct err *err)
{
    static const enum weight_type_id types[] = { [SAFETENSOR_F32] = WEIGHT_F32,
                                                 [SAFETENSOR_F16] = WEIGHT_F16,
                                                 [SAFETENSOR_BF16] = WEIGHT_BF16,
                                                 [SAFETENSOR_F8_E4M3] = WEIGHT_F16 };
    struct gguf_tensor *g = &a->tensors[a->used];
    *g = (struct gguf_tensor){ .name = arena_str(&a->arena, name),
                               .n_dims = t->n_dims,
                               .type = types[t->type],
                               .elements = t->elements };
    if (!g->name.data) return err_set(err, -ENOMEM, "no memory for the names");
    if (!mul_fits(bytes, count, &bytes) || !mul_fits(t->elements, count, &(size_t){ 0 }))
        return err_set(err, -EINVAL, "its tensors have more than 2^64 bytes");
    for (uint32_t i = 0; i < GGUF_DIMS_MAX; i++)
        g->dims[i] = i < t->n_dims ? t->dims[t->n_dims - 1 - i] : 1;
    if (count > 1) {
        if (t->n_dims != 2) return err_set(err, -EINVAL, "an expert's tensor is no matrix");
        g->n_dims = 3;
        g->dims[2] = count;
        g->elements *= count;
    }
    g->bytes = bytes;
    int rc = reserve(a, bytes, &g->offset, err);
    if (rc < 0) return rc;
    a->used++;
    *ret = g;
    return 0;
}

/* Finds the stack that an expert's tensor belongs to, or adds it. All of its experts have one shape. */
static int find_stack(struct hf_all *a, const struct safetensor *t, struct str name, size_t bytes,
                      uint32_t expert, struct gguf_tensor **ret, struct err *err)
{
    uint32_t experts = a->config.experts;
    if (expert >= experts)
        return err_set(err, -EINVAL, "tensor '" STR_FMT "' is of expert %u, there are %u",
                       STR_ARG(t->name), expert, experts);
    for (uint32_t i = a->stack_count; i > 0; i--) { /* the layer's own are the last */
        struct gguf_tensor *g = &a->tensors[a->stacks[i - 1]];
        if (!str_eq(g->name, name)) continue;
        if (t->n_dims != 2 || g->dims[0] != t->dims[1] || g->dims[1] != t->dims[0] ||
            g->bytes != bytes * experts)
            return err_set(err, -EINVAL, "tensor '" STR_FMT "' is unlike another expert's",
                           STR_ARG(t->name));
        *ret = g;
        return 0;
    }
    if (a->stack_count == HF_STACKS_MAX)
        return err_set(err, -E2BIG, "experts in more than %u tensors of layers", HF_STACKS_MAX);
    a->stacks[a->stack_count++] = a->used;
    return add_entry(a, t, name, bytes, experts, ret, err);
}

/* Says which rows move, for GGUF files that have them in another order. */
static int set_order(const struct hf_all *a, const struct safetensor *t, struct str name,
                     struct hf_segment *s, struct err *err)
{
    uint32_t heads = str_ends(name, STR(".attn_q.weight"))   ? a->config.heads
                     : str_ends(name, STR(".attn_k.weight")) ? a->config.kv_heads
                                                             : 0;
    if (heads == 0 || !a->config.family->pairs) return 0;
    if (t->n_dims != 2 || t->dims[0] % heads != 0 || t->dims[0] / heads % 2 != 0 ||
        t->dims[0] / heads > UINT32_MAX)
        return err_set(err, -EINVAL, "tensor '" STR_FMT "' has no rows for %u heads of even size",
                       STR_ARG(t->name), heads);
    s->head_rows = (uint32_t)(t->dims[0] / heads);
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
static int skip_rows(const struct hf_all *a, const char *name, struct safetensor *t,
                     struct err *err)
{
    const uint64_t skip = a->config.position_skip;
    if (skip == 0 || strcmp(name, "position_embd.weight") != 0) return 0;
    if (t->n_dims != 2 || t->dims[0] <= skip)
        return err_set(err, -EINVAL, "tensor '" STR_FMT "' has no more than %llu rows",
                       STR_ARG(t->name), (unsigned long long)skip);
    const uint64_t row_bytes = t->bytes / t->dims[0];
    t->dims[0] -= skip;
    t->elements -= skip * t->dims[1];
    t->bytes -= skip * row_bytes;
    t->offset += skip * row_bytes;
    return 0;
}

static int take_tensor(struct hf_all *a, uint32_t file, const struct safetensor *given,
                       struct err *err)
{
    struct safetensor cut = *given;
    const struct safetensor *t = &cut;
    char name[GGUF_NAME_BYTES_MAX + 1];
    uint32_t expert;
    if (is_spare(a, t->name)) return 0;
    if (!hf_family_tensor(a->config.family, t->name, name, &expert))
        return err_set(err, -ENOTSUP, "tensor '" STR_FMT "' is not one that a %s has here",
                       STR_ARG(t->name), a->config.family->model_type);
    if (t->type == SAFETENSOR_I64)
        return err_set(err, -ENOTSUP, "tensor '" STR_FMT "' has whole numbers", STR_ARG(t->name));
    int rc = skip_rows(a, name, &cut, err);
    if (rc < 0) return rc;
    struct gguf_tensor *g = NULL;
    bool f8 = t->type == SAFETENSOR_F8_E4M3;
    size_t bytes;
    if (!mul_fits((size_t)t->bytes, f8 ? 2 : 1, &bytes))
        return err_set(err, -EINVAL, "its tensors have more than 2^64 bytes");
    rc = expert == HF_NO_EXPERT ? add_entry(a, t, str_from(name), bytes, 1, &g, err)
                                : find_stack(a, t, str_from(name), bytes, expert, &g, err);
    if (rc < 0) return rc;
    struct hf_segment *s = &a->joint.segments[a->joint.segment_count++];
    *s = (struct hf_segment){
        .offset = g->offset + (expert == HF_NO_EXPERT ? 0 : expert * (uint64_t)bytes),
        .bytes = bytes,
        .from = t->offset,
        .file = file,
        .row_bytes = bytes / (t->elements / g->dims[0]),
        .f8 = f8,
    };
    if (a->config.family->one_plus && str_ends(g->name, STR("norm.weight")))
        return add_one_plus(a, &a->joint.files[file], t, g, s, err);
    return set_order(a, t, g->name, s, err);
}

/* Adds a vector of floats that follows from config.json. */
static int add_made(struct hf_all *a, const char *name, const float *values, uint32_t count,
                    struct err *err)
{
    const size_t bytes = count * sizeof *values;
    uint64_t offset;
    int rc = reserve(a, bytes, &offset, err);
    if (rc < 0) return rc;
    a->joint.segments[a->joint.segment_count++] = (struct hf_segment){
        .offset = offset, .bytes = bytes, .memory = (const char *)values, .row_bytes = bytes
    };
    a->tensors[a->used++] = (struct gguf_tensor){ .name = str_from(name),
                                                  .n_dims = 1,
                                                  .dims = { count, 1, 1, 1 },
                                                  .type = WEIGHT_F32,
                                                  .elements = count,
                                                  .offset = offset,
                                                  .bytes = bytes };
    return 0;
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
    for (uint32_t i = 0; i < a->joint.file_count; i++)
        count += a->joint.files[i].table->count;
    if (count > GGUF_TENSORS_MAX)
        return err_set(err, -E2BIG, "%s: %zu tensors, at most %u are read", a->folder, count,
                       GGUF_TENSORS_MAX);
    a->joint.segments = calloc(count + HF_MADE_MAX, sizeof *a->joint.segments);
    a->tensors = calloc(count + HF_MADE_MAX, sizeof *a->tensors);
    if (!a->joint.segments || !a->tensors)
        return err_set(err, -ENOMEM, "%s: no memory for the tensor table", a->folder);
    for (uint32_t i = 0; i < a->joint.file_count; i++) {
        const struct safetensors *table = a->joint.files[i].table;
        for (uint32_t t = 0; t < table->count; t++) {
            int rc = take_tensor(a, i, &table->tensors[t], err);
            if (rc < 0) return err_prefix(err, rc, "%s", a->joint.files[i].path);
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
    a->model = (struct hf_model){ &a->gguf, &a->source };
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
    if (str_ends(folder, STR(".safetensors"))) folder.len -= base_name(path).len;
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
    if (rc == 0) rc = open_files(a, err);
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
