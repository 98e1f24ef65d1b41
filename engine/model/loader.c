/* loader.c - reads tensors from the file and packs them as weights.
 *
 * All weights lie in one mapping: of a sealed file that all engines of the machine share, or an anonymous one,
 * with huge pages where the system has them: a decode step walks through all of it, and with 4 KiB pages that costs
 * a TLB miss every page. From a sealed file nothing is read: the loader takes the same places in the same order,
 * which the file has a hash of. */
#include "engine/model/loader.h"

#include "base/core/fault.h"
#include "engine/model/arch.h"
#include "engine/model/weight_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define WEIGHT_ALIGN 64
#define READ_BYTES ((size_t)1 << 20) /* rows are read in tiles, about this much at a time */
#define KEY_MAX 128

/* Returns true for a tensor that is kept as floats: vectors, and biases of experts. */
static bool is_floats(const struct gguf_tensor *t)
{
    return t->n_dims == 1 || str_ends(t->name, STR(".bias"));
}

/* Returns the type that weights of loader_split become. */
static enum weight_type_id split_type(enum weight_type_id type)
{
    return weight_types[type].block_elements == 1 ? type : WEIGHT_F32;
}

/* Adds to *total the bytes of the packed tensor: floats, or a matrix, or a stack of these. Returns
 * false if they overflow. */
static bool packed_bytes(const struct gguf_tensor *t, size_t *total)
{
    const struct weight_type *type = &weight_types[t->type];
    size_t row = (size_t)(t->dims[0] / type->block_elements) * type->block_bytes;
    size_t rows = 0, bytes, count = 1;
    if (is_floats(t)) {
        if (!mul_fits(t->elements, sizeof(float), &bytes)) return false;
    } else if (str_ends(t->name, STR(".attn_kv_b.weight"))) {
        row = weight_types[split_type(t->type)].block_bytes;
        if (!mul_fits(t->elements, row, &bytes)) return false;
    } else {
        if (!align_fits(t->dims[1], TILE_ROWS, &rows) || !mul_fits(rows, row, &bytes)) return false;
        if (!mul_fits(t->dims[2], t->dims[3], &count)) return false;
    }
    return align_fits(bytes, WEIGHT_ALIGN, &bytes) && mul_fits(bytes, count, &bytes) &&
           add_fits(*total, bytes, total);
}

static int map_memory(struct model *m, const char *name, struct err *err)
{
    void *memory = MAP_FAILED;
    if (!FAULT("model.map"))
        memory = mmap(NULL, m->weights_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (memory == MAP_FAILED)
        return err_set(err, -ENOMEM, "%s: no memory for %zu bytes of weights", name,
                       m->weights_bytes);
    madvise(memory, m->weights_bytes, MADV_HUGEPAGE); /* a hint: all works without it */
    m->weights = m->own_weights = memory;
    return 0;
}

/* Opens the cache; without it the weights go to memory. */
static void open_cache(struct loader *l, const struct weight_cache *cache)
{
    struct model *m = l->model;
    struct err err = { 0 };
    const struct weight_file_ask ask = { cache->folder, cache->bytes_max, m->info.digest,
                                         m->weights_bytes };
    if (weight_file_open(&ask, &m->weight_file, &err) < 0) {
        snprintf(m->info.cache_trouble, sizeof m->info.cache_trouble, "%.*s",
                 (int)sizeof m->info.cache_trouble - 1, err.text);
        return;
    }
    l->file = m->weight_file;
    m->weights = weight_file_memory(m->weight_file);
    m->info.weights_mapped = true;
    m->info.weights_found = weight_file_is_sealed(m->weight_file);
}

int loader_init(struct loader *l, const struct gguf *g, const struct gguf_source *source,
                const struct weight_cache *cache, struct model *m, struct err *err)
{
    size_t total = 0;
    for (uint32_t i = 0; i < g->tensor_count; i++)
        if (!packed_bytes(&g->tensors[i], &total))
            return err_set(err, -EINVAL, "%s: tensor '" STR_FMT "' does not fit in memory",
                           source->name, STR_ARG(g->tensors[i].name));
    if (total == 0) return err_set(err, -EINVAL, "%s: no tensors", source->name);
    bool *taken = arena_array(&m->arena, g->tensor_count, sizeof *taken);
    if (!taken) return err_set(err, -ENOMEM, "%s: no memory for its tensors", source->name);
    m->matrices = arena_array(&m->arena, g->tensor_count, sizeof *m->matrices);
    if (!m->matrices) return err_set(err, -ENOMEM, "%s: no memory for its tensors", source->name);
    m->weights_bytes = total;
    *l = (struct loader){ .gguf = g, .source = source, .model = m, .tensor_taken = taken };
    if (cache->folder) open_cache(l, cache);
    return l->file ? 0 : map_memory(m, source->name, err);
}

int loader_end(struct loader *l, struct err *err)
{
    int rc = loader_check_tensors(l, err);
    if (rc < 0 || !l->file) return rc;
    if (!weight_file_is_sealed(l->file)) return weight_file_seal(l->file, l->order, err);
    if (weight_file_order(l->file) == l->order) return 0;
    weight_file_remove(l->file);
    return err_set(err, -ESTALE, "%s: its packed weights are of another version", l->source->name);
}

/* ---- keys */

static const char *full_key(const struct loader *l, const char *name, char key[KEY_MAX])
{
    int len = snprintf(key, KEY_MAX, "%s.%s", l->arch, name);
    must(len > 0 && len < KEY_MAX);
    return key;
}

/* Returns true if the caller should read the key: it is there, or must be. */
static bool wanted(const struct loader *l, const char *key, bool required)
{
    return required || gguf_find(l->gguf, str_from(key)) != NULL;
}

int loader_u32(struct loader *l, const char *name, bool required, uint32_t min, uint32_t max,
               uint32_t *ret, struct err *err)
{
    char text[KEY_MAX];
    const char *key = full_key(l, name, text);
    if (!wanted(l, key, required)) return 0;
    uint32_t value = 0;
    int rc = gguf_get_u32(l->gguf, key, &value, err);
    if (rc < 0) return rc == -ENOENT ? -EINVAL : rc;
    if (value < min || value > max)
        return err_set(err, -EINVAL, "%s: key '%s' is %u, it must be %u to %u", l->source->name,
                       key, value, min, max);
    *ret = value;
    return 0;
}

int loader_f32(struct loader *l, const char *name, bool required, float *ret, struct err *err)
{
    char text[KEY_MAX];
    const char *key = full_key(l, name, text);
    if (!wanted(l, key, required)) return 0;
    int rc = gguf_get_f32(l->gguf, key, ret, err);
    return rc == -ENOENT ? -EINVAL : rc;
}

int loader_bool(struct loader *l, const char *name, bool *ret, struct err *err)
{
    char text[KEY_MAX];
    const char *key = full_key(l, name, text);
    return wanted(l, key, false) ? gguf_get_bool(l->gguf, key, ret, err) : 0;
}

int loader_str(struct loader *l, const char *name, struct str *ret, struct err *err)
{
    char text[KEY_MAX];
    const char *key = full_key(l, name, text);
    return wanted(l, key, false) ? gguf_get_str(l->gguf, key, ret, err) : 0;
}

int loader_vocab_size(struct loader *l, uint32_t *ret, struct err *err)
{
    const struct gguf_value *tokens = gguf_find(l->gguf, STR("tokenizer.ggml.tokens"));
    bool counted = tokens && tokens->type == GGUF_ARRAY && tokens->array.count > 0 &&
                   tokens->array.count <= VOCAB_TOKENS_MAX;
    uint32_t count = counted ? (uint32_t)tokens->array.count : 0, size = count;
    int rc = loader_u32(l, "vocab_size", !counted, 1, VOCAB_TOKENS_MAX, &size, err);
    if (rc < 0) return rc;
    if (counted && size != count)
        return err_set(err, -EINVAL, "%s: key '%s.vocab_size' is %u, but there are %u tokens",
                       l->source->name, l->arch, size, count);
    *ret = size;
    return 0;
}

static bool is_zero(const struct gguf_value *v)
{
    switch (v->type) {
    case GGUF_F32:
    case GGUF_F64:
        return !(v->f < 0 || v->f > 0) && v->f == v->f;
    case GGUF_STRING:
        return v->text.len == 0;
    case GGUF_ARRAY:
        return v->array.count == 0;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
    case GGUF_BOOL:
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
    case GGUF_TYPE_COUNT:
        break;
    }
    return v->u == 0;
}

static int check_key(struct loader *l, const struct gguf_value *v, struct str name,
                     const struct key_rule *rules, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!str_eq(str_from(rules[i].name), name)) continue;
        if (rules[i].use != KEY_ZERO || is_zero(v)) return 0;
        return err_set(err, -ENOTSUP,
                       "%s: key '" STR_FMT "' asks for something that "
                       "architecture '%s' does not have here; only 0 is read",
                       l->source->name, STR_ARG(v->key), l->arch);
    }
    return err_set(err, -ENOTSUP,
                   "%s: key '" STR_FMT "' is unknown to architecture '%s' here; "
                   "ignoring it could give wrong answers",
                   l->source->name, STR_ARG(v->key), l->arch);
}

int loader_check_keys(struct loader *l, const struct key_rule *rules, size_t count, struct err *err)
{
    size_t prefix = strlen(l->arch);
    for (uint32_t i = 0; i < l->gguf->value_count; i++) {
        const struct gguf_value *v = &l->gguf->values[i];
        if (!str_starts(v->key, str_from(l->arch))) continue;
        if (v->key.len == prefix || v->key.data[prefix] != '.') continue;
        struct str name = { v->key.data + prefix + 1, v->key.len - prefix - 1 };
        int rc = check_key(l, v, name, rules, count, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- tensors */

bool loader_has(const struct loader *l, const char *tensor)
{
    return gguf_tensor_find(l->gguf, str_from(tensor)) != NULL;
}

/* Finds a tensor of the expected shape; `dims` are 1 beyond n_dims. */
static int take_tensor(struct loader *l, const char *name, uint32_t n_dims, const uint64_t dims[3],
                       const struct gguf_tensor **ret, struct err *err)
{
    const struct gguf_tensor *t = gguf_tensor_find(l->gguf, str_from(name));
    if (!t) return err_set(err, -EINVAL, "%s: tensor '%s' is missing", l->source->name, name);
    if (n_dims == 3 && (t->n_dims != n_dims || memcmp(t->dims, dims, 3 * sizeof *dims) != 0))
        return err_set(err, -EINVAL,
                       "%s: tensor '%s' is [%llu, %llu, %llu] in %u dimensions, expected "
                       "[%llu, %llu, %llu]",
                       l->source->name, name, (unsigned long long)t->dims[0],
                       (unsigned long long)t->dims[1], (unsigned long long)t->dims[2], t->n_dims,
                       (unsigned long long)dims[0], (unsigned long long)dims[1],
                       (unsigned long long)dims[2]);
    if (t->n_dims != n_dims || t->dims[0] != dims[0] || t->dims[1] != dims[1])
        return err_set(err, -EINVAL,
                       "%s: tensor '%s' is [%llu, %llu] in %u dimensions, expected [%llu, %llu] "
                       "in %u",
                       l->source->name, name, (unsigned long long)t->dims[0],
                       (unsigned long long)t->dims[1], t->n_dims, (unsigned long long)dims[0],
                       (unsigned long long)dims[1], n_dims);
    l->tensor_taken[t - l->gguf->tensors] = true;
    l->model->info.parameters += t->elements;
    *ret = t;
    return 0;
}

/* Returns the place in the mapping for what becomes of the tensor's bytes from `from` on. */
static size_t take_place(struct loader *l, const struct gguf_tensor *t, uint64_t from, size_t bytes,
                         const struct row_order *order)
{
    static const struct row_order none = { 0 };
    size_t at = l->weights_used;
    l->weights_used += (bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    must(l->weights_used <= l->model->weights_bytes); /* each tensor is taken once */
    if (!order) order = &none;
    const uint64_t what[] = {
        at, from, bytes, (uint64_t)t->type, order->rows, order->head_rows, order->pairs
    };
    l->order = hash64(t->name.data, t->name.len, l->order);
    l->order = hash64(what, sizeof what, l->order);
    return at;
}

static bool is_filled(const struct loader *l)
{
    return l->file && weight_file_is_sealed(l->file);
}

static void freep(char **p)
{
    free(*p);
}

uint32_t row_order_from(const struct row_order *order, uint32_t row)
{
    if (!order || row >= order->rows) return row;
    uint32_t in_head = row % order->head_rows;
    if (in_head >= 2 * order->pairs) return row;
    return row - in_head + in_head / 2 + in_head % 2 * order->pairs;
}

/* Reads `rows` rows from `first` on. Rows that move stay in their head: whole heads are read. */
static int read_rows(struct loader *l, const struct gguf_tensor *t, uint64_t at, size_t row_bytes,
                     const struct row_order *order, uint32_t first, uint32_t rows, char *raw,
                     char *moved, struct err *err)
{
    int rc = l->source->read(l->source->ctx, t->offset + at + first * row_bytes, raw,
                             rows * row_bytes, err);
    if (rc < 0)
        return err_prefix(err, rc, "%s: tensor '" STR_FMT "'", l->source->name, STR_ARG(t->name));
    for (uint32_t r = 0; moved && r < rows; r++)
        memcpy(moved + r * row_bytes, raw + (row_order_from(order, first + r) - first) * row_bytes,
               row_bytes);
    return 0;
}

/* Packs whole tiles of `rows` rows to a place in the mapping: there, or in the buffer `packed`, which goes to the file.
 * Writes the bytes that they take. */
static int put_tiles(struct loader *l, const struct weight *w, const char *data, uint32_t rows,
                     char *packed, size_t place, size_t *ret_bytes, struct err *err)
{
    size_t row_bytes = weight_row_bytes(w->type, w->cols), tile_bytes = weight_tile_bytes(w);
    char *first = packed ? packed : l->model->own_weights + place, *to = first;
    for (uint32_t r = 0; r < rows; r += TILE_ROWS, to += tile_bytes)
        weight_pack(w->type, data + r * row_bytes, min_u32(TILE_ROWS, rows - r), w->cols, to);
    *ret_bytes = (size_t)(to - first);
    return packed ? weight_file_write(l->file, place, packed, *ret_bytes, err) : 0;
}

/* Packs the matrix that begins `from` bytes into the tensor, to a place in the mapping. */
static int pack(struct loader *l, const struct gguf_tensor *t, uint64_t from,
                const struct weight *w, const struct row_order *order, size_t place,
                struct err *err)
{
    size_t row_bytes = weight_row_bytes(w->type, w->cols);
    size_t tile_bytes = weight_tile_bytes(w);
    bool moves = order && order->rows > 0;
    uint32_t unit = moves ? order->head_rows : TILE_ROWS; /* a head is of whole tiles */
    uint32_t at_once = (uint32_t)(READ_BYTES / (unit * row_bytes));
    at_once = at_once == 0 ? unit : at_once * unit;
    CLEANUP(freep) char *raw = FAULT("model.read_buffer") ? NULL : malloc(at_once * row_bytes);
    CLEANUP(freep) char *moved = moves ? malloc(at_once * row_bytes) : NULL;
    CLEANUP(freep) char *packed = l->file ? malloc(at_once / TILE_ROWS * tile_bytes) : NULL;
    if (!raw || (moves && !moved) || (l->file && !packed))
        return err_set(err, -ENOMEM, "%s: no memory to read weights", l->source->name);
    for (uint32_t row = 0; row < w->rows; row += at_once) {
        uint32_t rows = min_u32(at_once, w->rows - row);
        int rc = read_rows(l, t, from, row_bytes, order, row, rows, raw, moved, err);
        if (rc < 0) return rc;
        size_t bytes = 0;
        rc = put_tiles(l, w, moves ? moved : raw, rows, packed, place, &bytes, err);
        if (rc < 0) return rc;
        place += bytes;
    }
    return 0;
}

static int check_cols(const struct loader *l, const char *tensor, uint32_t cols, struct err *err)
{
    if (cols <= OP_COLS_MAX) return 0;
    return err_set(err, -ENOTSUP, "%s: tensor '%s' has rows of %u, at most %zu are computed",
                   l->source->name, tensor, cols, OP_COLS_MAX);
}

static int take_matrix(struct loader *l, const struct gguf_tensor *t, uint64_t at, uint32_t rows,
                       uint32_t cols, const struct row_order *order, struct weight *ret,
                       struct err *err)
{
    struct weight w = { .type = t->type, .rows = rows, .cols = cols };
    size_t place = take_place(l, t, at, weight_tiles(&w) * weight_tile_bytes(&w), order);
    int rc = is_filled(l) ? 0 : pack(l, t, at, &w, order, place, err);
    w.tiles = l->model->weights + place;
    if (rc == 0) *ret = w;
    return rc;
}

/* Notes where the matrices of a tensor were packed, from `place` on. */
static int note_matrices(struct loader *l, const struct gguf_tensor *t, size_t place, uint32_t cols,
                         uint32_t count, struct err *err)
{
    struct model *m = l->model;
    struct model_matrix *note = &m->matrices[m->matrix_count++]; /* each tensor is taken once */
    *note = (struct model_matrix){ .name = arena_str(&m->arena, t->name),
                                   .place = place,
                                   .stride = (l->weights_used - place) / count,
                                   .cols = cols,
                                   .count = count };
    return note->name.data ? 0 : err_set(err, -ENOMEM, "%s: no memory", l->source->name);
}

int loader_matrix(struct loader *l, const char *tensor, uint32_t rows, uint32_t cols,
                  const struct row_order *order, struct weight *ret, struct err *err)
{
    const struct gguf_tensor *t = NULL;
    const size_t place = l->weights_used;
    int rc = check_cols(l, tensor, cols, err);
    if (rc == 0) rc = take_tensor(l, tensor, 2, (uint64_t[3]){ cols, rows, 1 }, &t, err);
    if (rc == 0) rc = take_matrix(l, t, 0, rows, cols, order, ret, err);
    return rc < 0 ? rc : note_matrices(l, t, place, cols, 1, err);
}

int loader_stack(struct loader *l, const char *tensor, uint32_t count, uint32_t rows, uint32_t cols,
                 struct weight **ret, struct err *err)
{
    const struct gguf_tensor *t = NULL;
    const size_t place = l->weights_used;
    int rc = check_cols(l, tensor, cols, err);
    if (rc == 0) rc = take_tensor(l, tensor, 3, (uint64_t[3]){ cols, rows, count }, &t, err);
    if (rc < 0) return rc;
    struct weight *w = arena_array(&l->model->arena, count, sizeof *w);
    if (!w) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = take_matrix(l, t, i * (t->bytes / count), rows, cols, NULL, &w[i], err);
    if (rc == 0) *ret = w;
    return rc < 0 ? rc : note_matrices(l, t, place, cols, count, err);
}

/* Memory to split one head at a time. */
struct split_work {
    char *raw;    /* the head's rows as they are in the file */
    char *rows;   /* the same in the type that they become */
    char *turned; /* those of K, transposed */
    char *packed; /* NULL: tiles go to the mapping */
};

static void split_work_fini(struct split_work *w)
{
    free(w->raw);
    free(w->rows);
    free(w->turned);
    free(w->packed);
}

static int split_work_init(const struct loader *l, const struct gguf_tensor *t,
                           const struct split_heads *s, struct split_work *w, struct err *err)
{
    const enum weight_type_id type = split_type(t->type);
    const size_t count = s->k_rows + s->v_rows;
    w->raw = malloc(count * weight_row_bytes(t->type, s->cols));
    w->rows = malloc(count * weight_row_bytes(type, s->cols));
    w->turned = malloc(s->k_rows * weight_row_bytes(type, s->cols));
    w->packed = l->file ? malloc(count * weight_row_bytes(type, s->cols)) : NULL;
    if (w->raw && w->rows && w->turned && (w->packed || !l->file)) return 0;
    return err_set(err, -ENOMEM, "%s: no memory to read weights", l->source->name);
}

/* Reads a head's rows and transposes those of K. */
static int read_head(struct loader *l, const struct gguf_tensor *t, const struct split_heads *s,
                     uint32_t head, struct split_work *w, struct err *err)
{
    const enum weight_type_id type = split_type(t->type);
    const uint32_t count = s->k_rows + s->v_rows;
    const size_t bytes = weight_types[type].block_bytes, row = weight_row_bytes(type, s->cols);
    int rc = read_rows(l, t, 0, weight_row_bytes(t->type, s->cols), NULL, head * count, count,
                       w->raw, NULL, err);
    if (rc < 0) return rc;
    if (type == t->type)
        memcpy(w->rows, w->raw, count * row);
    else
        weight_types[t->type].to_f32(w->raw, count * s->cols, (float *)(void *)w->rows);
    for (uint32_t r = 0; r < s->k_rows; r++)
        for (uint32_t c = 0; c < s->cols; c++)
            memcpy(w->turned + (c * (size_t)s->k_rows + r) * bytes, w->rows + r * row + c * bytes,
                   bytes);
    return 0;
}

int loader_split(struct loader *l, const char *tensor, const struct split_heads *s,
                 struct weight **ret_k, struct weight **ret_v, struct err *err)
{
    const struct gguf_tensor *t = NULL;
    const uint32_t count = s->k_rows + s->v_rows;
    CLEANUP(split_work_fini) struct split_work work = { 0 };
    int rc = check_cols(l, tensor, s->cols, err);
    if (rc == 0)
        rc = take_tensor(l, tensor, 2, (uint64_t[3]){ s->cols, s->heads * count, 1 }, &t, err);
    if (rc == 0 && !is_filled(l)) rc = split_work_init(l, t, s, &work, err);
    if (rc < 0) return rc;
    struct weight *k = arena_array(&l->model->arena, s->heads, sizeof *k);
    struct weight *v = arena_array(&l->model->arena, s->heads, sizeof *v);
    if (!k || !v) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    for (uint32_t h = 0; h < s->heads && rc == 0; h++) {
        const enum weight_type_id type = split_type(t->type);
        k[h] = (struct weight){ .type = type, .rows = s->cols, .cols = s->k_rows };
        v[h] = (struct weight){ .type = type, .rows = s->v_rows, .cols = s->cols };
        const size_t k_bytes = weight_tiles(&k[h]) * weight_tile_bytes(&k[h]);
        const size_t v_bytes = weight_tiles(&v[h]) * weight_tile_bytes(&v[h]);
        const size_t k_at = take_place(l, t, h, k_bytes, NULL);
        const size_t v_at = take_place(l, t, h, v_bytes, NULL);
        size_t bytes;
        k[h].tiles = l->model->weights + k_at;
        v[h].tiles = l->model->weights + v_at;
        if (is_filled(l)) continue;
        rc = read_head(l, t, s, h, &work, err);
        if (rc == 0) rc = put_tiles(l, &k[h], work.turned, s->cols, work.packed, k_at, &bytes, err);
        if (rc == 0)
            rc = put_tiles(l, &v[h], work.rows + s->k_rows * weight_row_bytes(type, s->cols),
                           s->v_rows, work.packed, v_at, &bytes, err);
    }
    *ret_k = k;
    *ret_v = v;
    return rc;
}

/* Reads a tensor's elements as floats. */
static int read_floats(struct loader *l, const struct gguf_tensor *t, const float **ret,
                       struct err *err)
{
    struct model *m = l->model;
    size_t bytes = t->elements * sizeof(float), place = take_place(l, t, 0, bytes, NULL);
    *ret = (const float *)(const void *)(m->weights + place);
    if (is_filled(l)) return 0;
    CLEANUP(freep) char *raw = malloc(t->bytes);
    CLEANUP(freep) char *made = l->file ? malloc(bytes) : NULL;
    if (!raw || (l->file && !made))
        return err_set(err, -ENOMEM, "%s: no memory to read weights", l->source->name);
    int rc = l->source->read(l->source->ctx, t->offset, raw, t->bytes, err);
    if (rc < 0)
        return err_prefix(err, rc, "%s: tensor '" STR_FMT "'", l->source->name, STR_ARG(t->name));
    weight_types[t->type].to_f32(raw, (uint32_t)t->elements,
                                 (float *)(void *)(made ? made : m->own_weights + place));
    return made ? weight_file_write(l->file, place, made, bytes, err) : 0;
}

int loader_vector(struct loader *l, const char *tensor, uint32_t count,
                  const struct row_order *order, const float **ret, struct err *err)
{
    const struct gguf_tensor *t = NULL;
    const float *values = NULL;
    int rc = take_tensor(l, tensor, 1, (uint64_t[3]){ count, 1, 1 }, &t, err);
    if (rc == 0) rc = read_floats(l, t, &values, err);
    if (rc < 0) return rc;
    if (order && order->rows > 0) {
        float *moved = arena_array(&l->model->arena, count, sizeof *moved);
        if (!moved) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
        for (uint32_t i = 0; i < count; i++)
            moved[i] = values[row_order_from(order, i)];
        values = moved;
    }
    *ret = values;
    return 0;
}

int loader_table(struct loader *l, const char *tensor, uint32_t rows, uint32_t cols,
                 const float **ret, struct err *err)
{
    const struct gguf_tensor *t = NULL;
    int rc = take_tensor(l, tensor, 2, (uint64_t[3]){ cols, rows, 1 }, &t, err);
    return rc < 0 ? rc : read_floats(l, t, ret, err);
}

int loader_check_tensors(const struct loader *l, struct err *err)
{
    for (uint32_t i = 0; i < l->gguf->tensor_count; i++)
        if (!l->tensor_taken[i])
            return err_set(err, -ENOTSUP,
                           "%s: tensor '" STR_FMT "' is not one that architecture "
                           "'%s' has here; ignoring it could give wrong answers",
                           l->source->name, STR_ARG(l->gguf->tensors[i].name), l->arch);
    return 0;
}
