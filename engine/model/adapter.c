/* adapter.c - checks an adapter's matrices against the model's and packs them for the kernels.
 *
 * Rows of B get the order that the model's rows have (decoder.h), so that the sum needs no more care. F32, F16
 * and BF16 are kept as they are, what is quantised becomes F32: the products of an adapter are computed in F32,
 * and its matrices are small. Of a matrix that holds several parts (Q, K and V, or gate and up) the parts
 * share A, and each has its rows of B. */
#include "engine/model/adapter.h"

#include "base/core/fault.h"
#include "engine/files/hf_folder.h"
#include "engine/model/adapter_file.h"
#include "engine/model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PART_ALIGN 64u
#define ADAPTER_PATH_MAX 4096

static void freep(void *pointer)
{
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    free(memory);
}

/* ---- the model's matrices */

/* Returns NULL for a model of another kind than decoder.h describes. */
static const struct decoder *decoder_of(const struct model *m)
{
    return m->arch->step == decoder_step ? m->arch_model : NULL;
}

/* Returns the matrix that a slot adds to; one without rows: the layer's are experts. */
static const struct weight *slot_weight(const struct decoder_layer *layer, enum adapter_slot slot)
{
    const struct weight *const slots[ADAPTER_SLOT_COUNT] = {
        [ADAPTER_Q] = &layer->q,       [ADAPTER_K] = &layer->k,       [ADAPTER_V] = &layer->v,
        [ADAPTER_OUT] = &layer->out,   [ADAPTER_GATE] = &layer->gate, [ADAPTER_UP] = &layer->up,
        [ADAPTER_DOWN] = &layer->down,
    };
    return slots[slot];
}

/* Outputs with an adapter have the bits that the model's numerics id says: no BF16 where kernels would round to it. */
static enum weight_type_id kept_type(const struct model *m, enum weight_type_id type)
{
    bool kept = type == WEIGHT_F16 || (type == WEIGHT_BF16 && !m->ops->bf16);
    return kept ? type : WEIGHT_F32;
}

static bool add_matrix(size_t *total, enum weight_type_id type, uint32_t rows, uint32_t cols)
{
    const struct weight w = { .type = type, .rows = rows, .cols = cols };
    size_t bytes;
    return mul_fits(weight_tiles(&w), weight_tile_bytes(&w), &bytes) &&
           align_fits(bytes, PART_ALIGN, &bytes) && add_fits(*total, bytes, total);
}

uint64_t adapter_bytes_max(const struct model *m, uint32_t rank_max)
{
    const struct decoder *d = decoder_of(m);
    size_t total = 0;
    for (uint32_t i = 0; d && i < m->info.n_layers; i++) {
        for (int slot = 0; slot < ADAPTER_SLOT_COUNT; slot++) {
            const struct weight *w = slot_weight(&d->layers[i], (enum adapter_slot)slot);
            if (w->rows == 0) continue;
            if (!add_matrix(&total, WEIGHT_F32, rank_max, w->cols) ||
                !add_matrix(&total, WEIGHT_F32, w->rows, rank_max))
                return UINT64_MAX;
        }
    }
    return total;
}

/* ---- what the file has, by layer and slot */

/* Both halves of what a target's first slot gets. */
struct halves {
    const struct adapter_tensor *a, *b;
};

struct plan {
    const struct adapter_file *file;
    const struct model *model;
    const struct decoder *decoder;
    struct halves *halves; /* [layers][ADAPTER_SLOT_COUNT] */
};

static struct halves *halves_at(const struct plan *p, uint32_t layer, enum adapter_slot slot)
{
    return &p->halves[(size_t)layer * ADAPTER_SLOT_COUNT + slot];
}

static uint32_t target_rows(const struct decoder_layer *layer, const struct adapter_target *t)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < t->slots; i++)
        rows += slot_weight(layer, (enum adapter_slot)(t->first + i))->rows;
    return rows;
}

/* Refuses a target that the model has in another form, or not at all. */
static int check_target(const struct plan *p, const struct adapter_tensor *t, struct err *err)
{
    const char *file = p->file->source->name;
    const struct adapter_target *target = t->target;
    if (t->layer >= p->model->info.n_layers)
        return err_set(err, -EINVAL, "%s: tensor '" STR_FMT "': the model has %u layers", file,
                       STR_ARG(t->name), p->model->info.n_layers);
    if (p->decoder->form->latent)
        return err_set(err, -ENOTSUP,
                       "%s: tensor '" STR_FMT
                       "': adapters of models with latent attention (%s) are "
                       "not computed",
                       file, STR_ARG(t->name), p->model->arch->name);
    const struct decoder_layer *layer = &p->decoder->layers[t->layer];
    if (slot_weight(layer, target->first)->rows == 0)
        return err_set(err, -ENOTSUP,
                       "%s: tensor '" STR_FMT
                       "': the model's feed-forward networks are experts, whose "
                       "adapters are not computed",
                       file, STR_ARG(t->name));
    const bool in_both = target->first == ADAPTER_OUT || target->first == ADAPTER_DOWN;
    if (!in_both && target->fused != p->decoder->form->fused)
        return err_set(err, -EINVAL,
                       "%s: tensor '" STR_FMT "': the model has Q, K and V, and gate and up, %s",
                       file, STR_ARG(t->name),
                       p->decoder->form->fused ? "in one matrix each" : "in matrices of their own");
    return 0;
}

static int check_shape(const struct plan *p, const struct adapter_tensor *t, uint32_t rank_max,
                       struct err *err)
{
    const struct decoder_layer *layer = &p->decoder->layers[t->layer];
    const char *file = p->file->source->name;
    const uint32_t rows = target_rows(layer, t->target);
    const uint32_t cols = slot_weight(layer, t->target->first)->cols;
    const uint64_t rank = t->is_b ? t->cols : t->rows, other = t->is_b ? t->rows : t->cols;
    if (other != (t->is_b ? rows : cols))
        return err_set(err, -EINVAL,
                       "%s: tensor '" STR_FMT
                       "' has %llu %s, the model's matrix %u: it is an adapter of another "
                       "model",
                       file, STR_ARG(t->name), (unsigned long long)other,
                       t->is_b ? "rows" : "columns", t->is_b ? rows : cols);
    if (p->file->rank > 0 && rank != p->file->rank)
        return err_set(err, -EINVAL,
                       "%s: tensor '" STR_FMT "' has rank %llu, adapter_config.json says %u", file,
                       STR_ARG(t->name), (unsigned long long)rank, p->file->rank);
    if (rank > rank_max)
        return err_set(err, -E2BIG,
                       "%s: tensor '" STR_FMT
                       "' has rank %llu, at most %u are taken (--max-lora-rank)",
                       file, STR_ARG(t->name), (unsigned long long)rank, rank_max);
    return 0;
}

static int sort_tensors(struct plan *p, uint32_t rank_max, struct err *err)
{
    const struct adapter_file *f = p->file;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct adapter_tensor *t = &f->tensors[i];
        int rc = check_target(p, t, err);
        if (rc == 0) rc = check_shape(p, t, rank_max, err);
        if (rc < 0) return rc;
        struct halves *h = halves_at(p, t->layer, t->target->first);
        must(!(t->is_b ? h->b : h->a)); /* names are unique, and each names one place */
        *(t->is_b ? &h->b : &h->a) = t;
    }
    return 0;
}

/* Refuses a half without the other, and adds up the memory of all. */
static int check_halves(const struct plan *p, size_t *ret_bytes, struct err *err)
{
    const uint32_t count = p->model->info.n_layers * ADAPTER_SLOT_COUNT;
    const char *file = p->file->source->name;
    for (uint32_t i = 0; i < count; i++) {
        const struct halves *h = &p->halves[i];
        if (!h->a && !h->b) continue;
        if (!h->a || !h->b)
            return err_set(err, -EINVAL, "%s: tensor '" STR_FMT "' has no %s beside it", file,
                           STR_ARG((h->a ? h->a : h->b)->name), h->a ? "B" : "A");
        if (h->a->rows != h->b->cols)
            return err_set(err, -EINVAL,
                           "%s: tensors '" STR_FMT "' and '" STR_FMT "' have ranks %llu and %llu",
                           file, STR_ARG(h->a->name), STR_ARG(h->b->name),
                           (unsigned long long)h->a->rows, (unsigned long long)h->b->cols);
        const struct adapter_tensor *const both[] = { h->a, h->b };
        for (size_t k = 0; k < 2; k++)
            if (!add_matrix(ret_bytes, kept_type(p->model, both[k]->type), (uint32_t)both[k]->rows,
                            (uint32_t)both[k]->cols))
                return err_set(err, -EINVAL, "%s: it does not fit in memory", file);
    }
    return 0;
}

/* ---- packing */

static struct row_order order_of(const struct plan *p, const struct adapter_target *t)
{
    const struct model_info *info = &p->model->info;
    const bool halves = p->decoder->form->halves;
    uint32_t heads = 0;
    if (t->first == ADAPTER_Q) heads = info->n_heads + (t->fused ? info->n_kv_heads : 0);
    if (t->first == ADAPTER_K) heads = info->n_kv_heads;
    if (!halves && !p->file->hf_rows) heads = 0; /* the file has the model's order */
    return (struct row_order){ .rows = heads * info->head_dim,
                               .head_rows = info->head_dim,
                               .pairs = halves ? p->decoder->pairs : info->head_dim / 2 };
}

static bool is_finite(const float *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

/* Packs rows [first, first + count) as one tile. `row` has room for a row of floats, `rows` for a tile's. */
static int pack_tile(const struct adapter_tensor *t, const char *raw, const struct row_order *order,
                     uint32_t first, const struct weight *w, float *row, char *rows, char *to)
{
    const size_t from_bytes = weight_row_bytes(t->type, w->cols);
    const size_t kept_bytes = weight_row_bytes(w->type, w->cols);
    const uint32_t count = min_u32(TILE_ROWS, w->rows - first);
    for (uint32_t i = 0; i < count; i++) {
        const char *from = raw + row_order_from(order, first + i) * from_bytes;
        weight_types[t->type].to_f32(from, w->cols, row);
        if (!is_finite(row, w->cols)) return -EDOM;
        memcpy(rows + i * kept_bytes, w->type == t->type ? from : (const char *)row, kept_bytes);
    }
    weight_pack(w->type, rows, count, w->cols, to);
    return 0;
}

static int pack_matrix(const struct plan *p, const struct adapter_tensor *t,
                       const struct row_order *order, char **to, struct weight *ret,
                       struct err *err)
{
    const struct gguf_source *source = p->file->source;
    struct weight w = { .type = kept_type(p->model, t->type),
                        .rows = (uint32_t)t->rows,
                        .cols = (uint32_t)t->cols,
                        .tiles = *to };
    must(t->bytes == t->rows * weight_row_bytes(t->type, w.cols));
    CLEANUP(freep) char *raw = FAULT("adapter.read") ? NULL : malloc((size_t)t->bytes);
    CLEANUP(freep) float *row = malloc(w.cols * sizeof *row);
    CLEANUP(freep) char *rows = malloc(TILE_ROWS * weight_row_bytes(w.type, w.cols));
    if (!raw || !row || !rows)
        return err_set(err, -ENOMEM, "%s: no memory to read tensor '" STR_FMT "'", source->name,
                       STR_ARG(t->name));
    int rc = source->read(source->ctx, t->offset, raw, (size_t)t->bytes, err);
    if (rc < 0)
        return err_prefix(err, rc, "%s: tensor '" STR_FMT "'", source->name, STR_ARG(t->name));
    char *tile = *to;
    for (uint32_t first = 0; first < w.rows; first += TILE_ROWS, tile += weight_tile_bytes(&w))
        if (pack_tile(t, raw, order, first, &w, row, rows, tile) < 0)
            return err_set(err, -EINVAL,
                           "%s: tensor '" STR_FMT "' holds a number that is not finite",
                           source->name, STR_ARG(t->name));
    size_t bytes = weight_tiles(&w) * weight_tile_bytes(&w);
    *to += (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    *ret = w;
    return 0;
}

static float scale_of(const struct adapter_file *f, uint32_t rank)
{
    if (f->scale > 0) return (float)f->scale;
    return f->alpha > 0 ? f->alpha / (float)rank : 1;
}

/* Packs what a target's first slot has, and gives each of its slots its rows of B. */
static int pack_target(const struct plan *p, const struct halves *h, struct adapter *a, char **to,
                       struct err *err)
{
    const struct adapter_target *t = h->a->target;
    const struct decoder_layer *layer = &p->decoder->layers[h->a->layer];
    const struct row_order order = order_of(p, t);
    struct adapter_part whole = { .scale = scale_of(p->file, (uint32_t)h->a->rows) };
    int rc = pack_matrix(p, h->a, NULL, to, &whole.a, err);
    if (rc == 0) rc = pack_matrix(p, h->b, &order, to, &whole.b, err);
    if (rc < 0) return rc;
    a->rank = max_u32(a->rank, whole.a.rows);
    for (uint32_t i = 0, first = 0; i < t->slots; i++) {
        const enum adapter_slot slot = (enum adapter_slot)(t->first + i);
        struct adapter_part *part = &a->parts[(size_t)h->a->layer * ADAPTER_SLOT_COUNT + slot];
        must(first % TILE_ROWS == 0); /* heads are of whole tiles, and so are fused gates */
        *part = whole;
        part->b.rows = slot_weight(layer, slot)->rows;
        part->b.tiles += first / TILE_ROWS * weight_tile_bytes(&whole.b);
        first += part->b.rows;
        a->matrices++;
    }
    return 0;
}

static int take_memory(struct adapter *a, const struct plan *p, size_t bytes, struct err *err)
{
    const char *file = p->file->source->name;
    a->layers = p->model->info.n_layers;
    a->parts = calloc((size_t)a->layers * ADAPTER_SLOT_COUNT, sizeof *a->parts);
    void *memory = MAP_FAILED;
    if (a->parts && !FAULT("adapter.map"))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return err_set(err, -ENOMEM, "%s: no memory for %zu bytes of an adapter", file, bytes);
    madvise(memory, bytes, MADV_HUGEPAGE); /* a hint */
    a->memory = memory;
    a->memory_bytes = bytes;
    return 0;
}

int adapter_pack(const struct adapter_file *f, const struct model *m, uint32_t rank_max,
                 struct adapter **ret, struct err *err)
{
    CLEANUP(adapter_freep) struct adapter *a = calloc(1, sizeof *a);
    const uint32_t places = m->info.n_layers * ADAPTER_SLOT_COUNT;
    CLEANUP(freep) struct halves *halves = calloc(places, sizeof *halves);
    struct plan p = { .file = f, .model = m, .decoder = decoder_of(m), .halves = halves };
    size_t bytes = 0;
    if (!p.decoder)
        return err_set(err, -ENOTSUP, "%s: models of architecture '%s' take no adapters",
                       f->source->name, m->arch->name);
    if (!a || !halves) return err_set(err, -ENOMEM, "%s: no memory", f->source->name);
    int rc = sort_tensors(&p, min_u32(rank_max, ADAPTER_RANK_MAX), err);
    if (rc == 0) rc = check_halves(&p, &bytes, err);
    if (rc == 0) rc = take_memory(a, &p, bytes, err);
    char *to = a->memory;
    for (uint32_t i = 0; i < places && rc == 0; i++)
        if (halves[i].a) rc = pack_target(&p, &halves[i], a, &to, err);
    if (rc < 0) return rc;
    *ret = TAKE(a);
    return 0;
}

/* ---- paths */

/* The same tensors with another scale are another adapter. */
static int folder_digest(const struct gguf_source *source, double scale, char *ret, struct err *err)
{
    char text[SHA256_HEX + 64];
    uint8_t digest[SHA256_BYTES];
    int rc = gguf_digest(source, text, err);
    if (rc < 0) return rc;
    int len = snprintf(text + SHA256_HEX, sizeof text - SHA256_HEX, " scale %a", scale);
    sha256(text, SHA256_HEX + (size_t)len, digest);
    hex_from(digest, sizeof digest, ret);
    return 0;
}

static int load_folder(const char *path, const struct model *m, uint32_t rank_max,
                       struct adapter **ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    CLEANUP(adapter_file_fini) struct adapter_file list = { 0 };
    CLEANUP(adapter_freep) struct adapter *a = NULL;
    struct adapter_config config;
    char tensors[ADAPTER_PATH_MAX];
    int rc = hf_folder_read(path, "adapter_config.json", ADAPTER_CONFIG_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = adapter_config_read(buf_view(&text), &config, err);
    if (rc < 0) return err_prefix(err, rc, "%s/adapter_config.json", path);
    int len = snprintf(tensors, sizeof tensors, "%s/adapter_model.safetensors", path);
    if (len < 0 || (size_t)len >= sizeof tensors)
        return err_set(err, -ENAMETOOLONG, "%s: a path of more than %d bytes", path,
                       ADAPTER_PATH_MAX - 1);
    rc = gguf_file_open(tensors, &file, err);
    if (rc == 0) rc = adapter_file_peft(&file.source, &config, &list, err);
    if (rc == 0) rc = adapter_pack(&list, m, rank_max, &a, err);
    if (rc == 0) rc = folder_digest(&file.source, config.scale, a->digest, err);
    if (rc < 0) return rc;
    *ret = TAKE(a);
    return 0;
}

static int load_gguf(const char *path, const struct model *m, uint32_t rank_max,
                     struct adapter **ret, struct err *err)
{
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    CLEANUP(adapter_file_fini) struct adapter_file list = { 0 };
    CLEANUP(adapter_freep) struct adapter *a = NULL;
    const struct decoder *d = decoder_of(m);
    int rc = gguf_file_open(path, &file, err);
    if (rc == 0)
        rc = adapter_file_gguf(&file.source, m->arch->name, d && d->form->fused, &list, err);
    if (rc == 0) rc = adapter_pack(&list, m, rank_max, &a, err);
    if (rc == 0) rc = gguf_digest(&file.source, a->digest, err);
    if (rc < 0) return rc;
    *ret = TAKE(a);
    return 0;
}

int adapter_load(const char *path, const struct model *m, uint32_t rank_max, struct adapter **ret,
                 struct err *err)
{
    return hf_folder_is(path) ? load_folder(path, m, rank_max, ret, err)
                              : load_gguf(path, m, rank_max, ret, err);
}

void adapter_free(struct adapter *a)
{
    if (!a) return;
    if (a->memory) munmap(a->memory, a->memory_bytes);
    free(a->parts);
    free(a);
}
