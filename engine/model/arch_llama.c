/* arch_llama.c - computes Llama models: RMSNorm, rotary positions, grouped queries, SwiGLU.
 *
 *     x  = embedding[id]
 *     x += Wo attend(rope(Wq n), rope(Wk n), Wv n)    n = rms_norm(x) * attn_norm
 *     x += Wdown (silu(Wgate n) * (Wup n))            n = rms_norm(x) * ffn_norm
 *     logits = Wout (rms_norm(x) * output_norm)       Wout is the embedding when absent
 *
 * RoPE turns adjacent pairs (2i, 2i + 1): GGUF files of this architecture have the rows of Wq
 * and Wk permuted for that.
 *
 * The last layer computes keys and values of all tokens, but everything behind them only for the
 * tokens that need logits: that saves a sixth of the prefill of a model of six layers. */
#include "engine/model/arch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct llama_layer {
    const float *attn_norm, *ffn_norm;
    struct weight q, k, v, out, gate, up, down;
};

struct llama {
    struct weight embedding, output;
    const float *output_norm;
    struct llama_layer *layers;
    float eps;
    float scale;        /* of scores: 1 / sqrt(head_dim) */
    uint32_t pairs;     /* of a head that are rotated */
    double *angle_step; /* radians a position, of each pair */
};

static int llama_load(struct loader *l, struct model *model, struct err *err);

#define TOKENS_PER_UNIT 8 /* of the loops over tokens: below that a thread is not worth waking */
#define TILES_PER_UNIT 4  /* the least of a matrix that a thread claims: 64 rows */
#define LOGIT_ROWS 24     /* rows of logits computed at once, bounds their scratch */

/* ---- the memory of a step */

/* The token that a row of activations stands for. After the last layer's keys and values only the
 * rows that end in logits are left. */
struct llama_row {
    uint32_t item;
    uint32_t token; /* its index in the step, finds its angles */
    uint32_t position;
    uint32_t id;
};

/* Consecutive rows of one item, and its share of attention's units. */
struct llama_run {
    uint32_t item, row, count, position;
    uint32_t unit_first;
};

struct llama_state {
    float *x, *norm, *q, *k, *v, *attended, *gate, *up, *cos, *sin, *logits;
    struct q8_super *x_q8; /* of the products that run */
    size_t embd_stride, q_stride, kv_stride, ff_stride, vocab_stride;
    struct llama_row *rows;
    struct llama_run *runs;
    char *memory;
    size_t memory_bytes;
    /* of the step that runs */
    const struct model *model;
    const struct llama *llama;
    const struct arch_step *step;
    const struct llama_layer *layer;
    uint32_t layer_index;
    uint32_t row_count, run_count, attend_units;
};

/* Hands out the memory at `base` and returns its bytes. With base NULL it only counts, so that the
 * same lines size the memory. */
static size_t lay_out(struct llama_state *s, const struct model *model, char *base, uint32_t tokens,
                      uint32_t seqs)
{
    const struct model_info *info = &model->info;
    const struct llama *m = model->arch_model;
    s->embd_stride = activation_stride(info->n_embd);
    s->q_stride = activation_stride(info->n_heads * info->head_dim);
    s->kv_stride = activation_stride(info->n_kv_heads * info->head_dim);
    s->ff_stride = activation_stride(info->n_ff);
    s->vocab_stride = activation_stride(info->vocab_size);
    uint32_t widest = info->n_heads * info->head_dim;
    widest = widest > info->n_embd ? widest : info->n_embd;
    widest = widest > info->n_ff ? widest : info->n_ff;
    const struct {
        float **to;
        size_t floats;
    } part[] = {
        { &s->x, tokens * s->embd_stride },
        { &s->norm, tokens * s->embd_stride },
        { &s->q, tokens * s->q_stride },
        { &s->attended, tokens * s->q_stride },
        { &s->k, tokens * s->kv_stride },
        { &s->v, tokens * s->kv_stride },
        { &s->gate, tokens * s->ff_stride },
        { &s->up, tokens * s->ff_stride },
        { &s->cos, (size_t)tokens * m->pairs },
        { &s->sin, (size_t)tokens * m->pairs },
        { &s->logits, min_u32(seqs, LOGIT_ROWS) * s->vocab_stride },
    };
    size_t used = 0;
    for (size_t i = 0; i < COUNT_OF(part); i++) {
        if (base) *part[i].to = (float *)(void *)(base + used);
        used += (part[i].floats * sizeof(float) + 63) / 64 * 64;
    }
    if (base) s->x_q8 = (struct q8_super *)(void *)(base + used);
    return used + (model->ops->q8_types ? tokens * q8_row_bytes(widest) : 0);
}

static void llama_state_free(void *state)
{
    struct llama_state *s = state;
    if (!s) return;
    if (s->memory) munmap(s->memory, s->memory_bytes);
    free(s->rows);
    free(s->runs);
    free(s);
}

static int llama_state_new(const struct model *model, uint32_t tokens_max, uint32_t seqs_max,
                           void **ret)
{
    struct llama_state *s = calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    s->memory_bytes = lay_out(s, model, NULL, tokens_max, seqs_max);
    s->rows = calloc(tokens_max, sizeof *s->rows);
    s->runs = calloc(seqs_max, sizeof *s->runs);
    void *memory =
        mmap(NULL, s->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->memory = memory == MAP_FAILED ? NULL : memory;
    if (!s->rows || !s->runs || !s->memory) {
        llama_state_free(s);
        return -ENOMEM;
    }
    lay_out(s, model, s->memory, tokens_max, seqs_max);
    s->model = model;
    s->llama = model->arch_model;
    *ret = s;
    return 0;
}

/* ---- loops over rows */

static void each_row(struct llama_state *s, worker_fn fn)
{
    workers_run(s->step->workers, ceil_div_u32(s->row_count, TOKENS_PER_UNIT), fn, s);
}

#define EACH_ROW_OF_UNIT(s, unit, r)                                                               \
    for (uint32_t r = (unit)*TOKENS_PER_UNIT, end_ = min_u32(r + TOKENS_PER_UNIT, (s)->row_count); \
         r < end_; r++)

static void embed_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct llama_state *s = arg;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        const struct llama_row *row = &s->rows[r];
        weight_row(&s->llama->embedding, row->id, s->x + r * s->embd_stride);
        for (uint32_t i = 0; i < s->llama->pairs; i++) {
            double angle = row->position * s->llama->angle_step[i];
            s->cos[(size_t)r * s->llama->pairs + i] = (float)cos(angle);
            s->sin[(size_t)r * s->llama->pairs + i] = (float)sin(angle);
        }
    }
}

static void norm_rows(struct llama_state *s, uint32_t unit, const float *weight)
{
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        s->model->ops->rms_norm(s->x + r * s->embd_stride, weight, s->llama->eps,
                                s->model->info.n_embd, s->norm + r * s->embd_stride);
    }
}

static void attn_norm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct llama_state *s = arg;
    (void)thread;
    norm_rows(s, unit, s->layer->attn_norm);
}

static void ffn_norm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct llama_state *s = arg;
    (void)thread;
    norm_rows(s, unit, s->layer->ffn_norm);
}

static void rope_row(const struct llama_state *s, uint32_t r, float *x, uint32_t heads)
{
    size_t at = (size_t)s->rows[r].token * s->llama->pairs;
    s->model->ops->rope(x, heads, s->model->info.head_dim, s->cos + at, s->sin + at,
                        s->llama->pairs);
}

static void rope_q_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct llama_state *s = arg;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        rope_row(s, r, s->q + r * s->q_stride, s->model->info.n_heads);
    }
}

/* Returns the address of this layer's and KV head's K in page 0. */
static char *kv_head(const struct llama_state *s, uint32_t head)
{
    struct kv_store *kv = s->step->kv;
    return kv->memory + kv_head_offset(&kv->layout, s->layer_index, head);
}

static void store_kv_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct llama_state *s = arg;
    (void)thread;
    struct kv_store *kv = s->step->kv;
    uint32_t head_dim = s->model->info.head_dim;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        const struct llama_row *row = &s->rows[r];
        const uint32_t *page_table = s->step->items[row->item].page_table;
        float *k = s->k + r * s->kv_stride, *v = s->v + r * s->kv_stride;
        rope_row(s, r, k, s->model->info.n_kv_heads);
        for (uint32_t h = 0; h < s->model->info.n_kv_heads; h++) {
            char *block = kv_block_at(&kv->layout, kv_head(s, h), kv->page_bytes, page_table,
                                      row->position / KV_BLOCK);
            s->model->ops->kv_put(&kv->layout, k + (size_t)h * head_dim, v + (size_t)h * head_dim,
                                  row->position % KV_BLOCK, block,
                                  block + kv_half_bytes(&kv->layout));
        }
    }
}

/* ---- matrices */

struct gemm_loop {
    const struct llama_state *s;
    struct gemm gemm[3];
    uint32_t count;
    uint32_t tiles_per_unit;
    bool swiglu; /* gemm[0] and gemm[1] are gate and up: tile by tile, then joined */
};

/* Rounds rows of the products' x. */
static void round_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const struct gemm_loop *l = arg;
    const struct gemm *g = &l->gemm[0];
    (void)thread;
    for (uint32_t t = unit * TOKENS_PER_UNIT; t < min_u32((unit + 1) * TOKENS_PER_UNIT, g->tokens);
         t++)
        l->s->model->ops->q8_round(g->x + t * g->x_stride, g->w->cols,
                                   q8_row_at(l->s->x_q8, g->w->cols, t));
}

static uint32_t gemm_units(const struct gemm_loop *l, uint32_t i)
{
    return ceil_div_u32(weight_tiles(l->gemm[i].w), l->tiles_per_unit);
}

static void gemm_tiles(const struct gemm_loop *l, uint32_t i, uint32_t unit, uint32_t thread)
{
    uint32_t first = unit * l->tiles_per_unit;
    uint32_t tiles = min_u32(l->tiles_per_unit, weight_tiles(l->gemm[i].w) - first);
    l->s->model->ops->gemm(&l->gemm[i], first, tiles, l->s->step->scratch[thread]);
}

static void gemm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const struct gemm_loop *l = arg;
    uint32_t i = 0;
    for (; unit >= gemm_units(l, i); i++)
        unit -= gemm_units(l, i);
    gemm_tiles(l, i, unit, thread);
}

static void swiglu_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const struct gemm_loop *l = arg;
    gemm_tiles(l, 0, unit, thread);
    gemm_tiles(l, 1, unit, thread);
    const struct gemm *gate = &l->gemm[0], *up = &l->gemm[1];
    uint32_t first = unit * l->tiles_per_unit;
    uint32_t tiles = min_u32(l->tiles_per_unit, weight_tiles(gate->w) - first);
    size_t column = (size_t)first * TILE_ROWS;
    for (uint32_t t = 0; t < gate->tokens; t++)
        l->s->model->ops->silu_mul(gate->y + t * gate->y_stride + column,
                                   up->y + t * up->y_stride + column, tiles * TILE_ROWS);
}

/* All products of a loop have the same x. */
static void gemm_run(struct gemm_loop *l)
{
    struct workers *workers = l->s->step->workers;
    uint32_t threads = workers_threads(workers), units = 0, tiles = 0;
    bool rounds = false;
    for (uint32_t i = 0; i < l->count; i++) {
        tiles += weight_tiles(l->gemm[i].w);
        rounds = rounds || ops_round(l->s->model->ops, l->gemm[i].w->type);
    }
    if (rounds)
        workers_run(workers, ceil_div_u32(l->gemm[0].tokens, TOKENS_PER_UNIT), round_unit, l);
    /* Four claims a thread even out threads that lose their core for a while. */
    l->tiles_per_unit =
        threads == 1 ? tiles : ceil_div_u32(tiles, threads * 4 * TILES_PER_UNIT) * TILES_PER_UNIT;
    for (uint32_t i = 0; i < (l->swiglu ? 1 : l->count); i++)
        units += gemm_units(l, i);
    workers_run(workers, units, l->swiglu ? swiglu_unit : gemm_unit, l);
}

static struct gemm gemm_of(const struct llama_state *s, const struct weight *w, const float *x,
                           size_t x_stride, float *y, size_t y_stride)
{
    return (struct gemm){ .w = w,
                          .x = x,
                          .x_stride = x_stride,
                          .x_q8 = s->x_q8,
                          .y = y,
                          .y_stride = y_stride,
                          .tokens = s->row_count };
}

static void project_q(struct llama_state *s)
{
    struct gemm_loop l = { .s = s, .count = 1 };
    l.gemm[0] = gemm_of(s, &s->layer->q, s->norm, s->embd_stride, s->q, s->q_stride);
    gemm_run(&l);
}

static void project_kv(struct llama_state *s)
{
    struct gemm_loop l = { .s = s, .count = 2 };
    l.gemm[0] = gemm_of(s, &s->layer->k, s->norm, s->embd_stride, s->k, s->kv_stride);
    l.gemm[1] = gemm_of(s, &s->layer->v, s->norm, s->embd_stride, s->v, s->kv_stride);
    gemm_run(&l);
}

/* x += w y */
static void project_back(struct llama_state *s, const struct weight *w, const float *y,
                         size_t y_stride)
{
    struct gemm_loop l = { .s = s, .count = 1 };
    l.gemm[0] = gemm_of(s, w, y, y_stride, s->x, s->embd_stride);
    l.gemm[0].accumulate = true;
    gemm_run(&l);
}

static void feed_forward(struct llama_state *s)
{
    each_row(s, ffn_norm_unit);
    struct gemm_loop l = { .s = s, .count = 2, .swiglu = true };
    l.gemm[0] = gemm_of(s, &s->layer->gate, s->norm, s->embd_stride, s->gate, s->ff_stride);
    l.gemm[1] = gemm_of(s, &s->layer->up, s->norm, s->embd_stride, s->up, s->ff_stride);
    gemm_run(&l);
    project_back(s, &s->layer->down, s->gate, s->ff_stride);
}

/* ---- attention */

static uint32_t attend_group(const struct llama_state *s)
{
    return s->model->info.n_heads / s->model->info.n_kv_heads;
}

static uint32_t run_blocks(const struct llama_state *s, const struct llama_run *run)
{
    return ceil_div_u32(run->count * attend_group(s), s->model->ops->attend_rows);
}

/* Computes one unit of attention. Units are numbered by run, then KV head, then block of query
 * rows. */
static void attend_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct llama_state *s = arg;
    uint32_t low = 0, high = s->run_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (s->runs[middle].unit_first <= unit)
            low = middle;
        else
            high = middle;
    }
    const struct llama_run *run = &s->runs[low];
    const struct kv_store *kv = s->step->kv;
    uint32_t group = attend_group(s), rows = run->count * group;
    uint32_t head = (unit - run->unit_first) / run_blocks(s, run);
    uint32_t first = (unit - run->unit_first) % run_blocks(s, run) * s->model->ops->attend_rows;
    size_t column = (size_t)head * group * s->model->info.head_dim;
    const struct attend a = {
        .layout = &kv->layout,
        .head = kv_head(s, head),
        .page_bytes = kv->page_bytes,
        .page_table = s->step->items[run->item].page_table,
        .q = s->q + run->row * s->q_stride + column,
        .q_stride = s->q_stride,
        .out = s->attended + run->row * s->q_stride + column,
        .out_stride = s->q_stride,
        .group = group,
        .position = run->position,
        .row_first = first,
        .row_count = min_u32(s->model->ops->attend_rows, rows - first),
        .scale = s->llama->scale,
    };
    s->model->ops->attend(&a, s->step->scratch[thread]);
}

/* Builds the runs from the rows: consecutive rows of an item are consecutive positions. */
static void find_runs(struct llama_state *s)
{
    s->run_count = s->attend_units = 0;
    for (uint32_t r = 0; r < s->row_count; r++) {
        struct llama_run *last = s->run_count > 0 ? &s->runs[s->run_count - 1] : NULL;
        if (last && last->item == s->rows[r].item)
            last->count++;
        else
            s->runs[s->run_count++] = (struct llama_run){
                .item = s->rows[r].item, .row = r, .count = 1, .position = s->rows[r].position
            };
    }
    for (uint32_t i = 0; i < s->run_count; i++) {
        s->runs[i].unit_first = s->attend_units;
        s->attend_units += run_blocks(s, &s->runs[i]) * s->model->info.n_kv_heads;
    }
}

/* ---- the step */

static void begin(struct llama_state *s)
{
    s->row_count = 0;
    for (uint32_t i = 0; i < s->step->count; i++) {
        const struct batch_item *item = &s->step->items[i];
        for (uint32_t j = 0; j < item->count; j++, s->row_count++)
            s->rows[s->row_count] = (struct llama_row){
                .item = i, .token = s->row_count, .position = item->position + j, .id = item->ids[j]
            };
    }
    find_runs(s);
    each_row(s, embed_unit);
}

/* Keeps the last row of each item that wants logits. */
static void keep_wanted(struct llama_state *s)
{
    uint32_t kept = 0;
    for (uint32_t r = 0; r < s->row_count; r++) {
        bool last = r + 1 == s->row_count || s->rows[r + 1].item != s->rows[r].item;
        if (!last || !s->step->items[s->rows[r].item].want_logits) continue;
        if (kept != r) {
            size_t bytes = s->embd_stride * sizeof(float);
            s->rows[kept] = s->rows[r];
            memcpy(s->x + kept * s->embd_stride, s->x + r * s->embd_stride, bytes);
            memcpy(s->norm + kept * s->embd_stride, s->norm + r * s->embd_stride, bytes);
        }
        kept++;
    }
    s->row_count = kept;
    find_runs(s);
}

/* Folds the last token's state of every item that asks for it. */
static void fold_hidden(const struct llama_state *s, const float *rows)
{
    for (uint32_t i = 0; i < s->run_count; i++) {
        const struct llama_run *run = &s->runs[i];
        float *hidden = s->step->items[run->item].hidden;
        size_t last = run->row + run->count - 1;
        if (hidden) hidden_fold(rows + last * s->embd_stride, s->model->info.n_embd, hidden);
    }
}

static void layer_step(struct llama_state *s, uint32_t index)
{
    s->layer = &s->llama->layers[index];
    s->layer_index = index;
    each_row(s, attn_norm_unit);
    project_kv(s);
    each_row(s, store_kv_unit);
    if (index + 1 == s->model->info.n_layers) keep_wanted(s);
    if (s->row_count == 0) return;
    project_q(s);
    each_row(s, rope_q_unit);
    workers_run(s->step->workers, s->attend_units, attend_unit, s);
    project_back(s, &s->layer->out, s->attended, s->q_stride);
    feed_forward(s);
    bool is_last = index + 1 == s->model->info.n_layers;
    if (!is_last && index + 1 == s->step->hidden_layer) fold_hidden(s, s->x);
}

static void output_norm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct llama_state *s = arg;
    (void)thread;
    norm_rows(s, unit, s->llama->output_norm);
}

static void write_logits(struct llama_state *s)
{
    uint32_t rows = s->row_count;
    each_row(s, output_norm_unit);
    if (s->step->hidden_layer == s->model->info.n_layers) fold_hidden(s, s->norm);
    for (uint32_t first = 0; first < rows; first += LOGIT_ROWS) {
        s->row_count = min_u32(LOGIT_ROWS, rows - first);
        struct gemm_loop l = { .s = s, .count = 1 };
        l.gemm[0] = gemm_of(s, &s->llama->output, s->norm + first * s->embd_stride, s->embd_stride,
                            s->logits, s->vocab_stride);
        gemm_run(&l);
        for (uint32_t r = 0; r < s->row_count; r++)
            memcpy(s->step->items[s->rows[first + r].item].logits, s->logits + r * s->vocab_stride,
                   s->model->info.vocab_size * sizeof(float));
    }
}

static void llama_step(const struct model *model, void *state, const struct arch_step *step)
{
    struct llama_state *s = state;
    s->step = step;
    begin(s);
    for (uint32_t i = 0; i < model->info.n_layers; i++)
        layer_step(s, i);
    if (s->row_count > 0) write_logits(s);
}

const struct model_arch arch_llama = {
    .name = "llama",
    .about = "Llama 1 to 3 and its kin: RMSNorm, RoPE over adjacent pairs, GQA, SwiGLU",
    .load = llama_load,
    .state_new = llama_state_new,
    .state_free = llama_state_free,
    .step = llama_step,
};

/* Loading reads a Llama from its file: geometry, rotary angles, weights.
 *
 * Linear scaling and a table of factors (rope_freqs.weight) are computed into the angles; other
 * scalings are refused. */

#define HEADS_MAX 4096u

/* clang-format off */
static const struct key_rule key_rules[] = {
    { "vocab_size", KEY_READ },
    { "context_length", KEY_READ },
    { "embedding_length", KEY_READ },
    { "block_count", KEY_READ },
    { "feed_forward_length", KEY_READ },
    { "attention.head_count", KEY_READ },
    { "attention.head_count_kv", KEY_READ },
    { "attention.key_length", KEY_READ },
    { "attention.value_length", KEY_READ },
    { "attention.layer_norm_rms_epsilon", KEY_READ },
    { "rope.dimension_count", KEY_READ },
    { "rope.freq_base", KEY_READ },
    { "rope.scaling.type", KEY_READ },
    { "rope.scaling.factor", KEY_READ },
    { "rope.scaling.original_context_length", KEY_IGNORED }, /* linear scaling does not use it */
    { "rope.scaling.finetuned", KEY_IGNORED },
    { "tensor_data_layout", KEY_IGNORED },
    { "expert_count", KEY_ZERO },
    { "expert_used_count", KEY_ZERO },
};
/* clang-format on */

static int load_heads(struct loader *l, struct model_info *info, struct err *err)
{
    info->n_kv_heads = info->n_heads;
    int rc = loader_u32(l, "attention.head_count_kv", false, 1, HEADS_MAX, &info->n_kv_heads, err);
    if (rc < 0) return rc;
    if (info->n_heads % info->n_kv_heads != 0)
        return err_set(err, -EINVAL, "%s: %u heads cannot share %u KV heads evenly",
                       l->source->name, info->n_heads, info->n_kv_heads);
    info->head_dim = info->n_embd % info->n_heads == 0 ? info->n_embd / info->n_heads : 0;
    rc = loader_u32(l, "attention.key_length", info->head_dim == 0, 1, KV_HEAD_DIM_MAX,
                    &info->head_dim, err);
    uint32_t value_length = info->head_dim;
    if (rc == 0)
        rc = loader_u32(l, "attention.value_length", false, 1, KV_HEAD_DIM_MAX, &value_length, err);
    if (rc < 0) return rc;
    if (value_length != info->head_dim)
        return err_set(err, -ENOTSUP, "%s: keys of %u and values of %u; they must be equal here",
                       l->source->name, info->head_dim, value_length);
    if (info->head_dim % TILE_ROWS != 0 || info->head_dim > KV_HEAD_DIM_MAX)
        return err_set(err, -ENOTSUP, "%s: heads of %u; multiples of %d up to %d are computed",
                       l->source->name, info->head_dim, TILE_ROWS, KV_HEAD_DIM_MAX);
    return 0;
}

static int load_geometry(struct loader *l, struct model_info *info, struct llama *m,
                         struct err *err)
{
    int rc = loader_u32(l, "embedding_length", true, 1, MODEL_EMBD_MAX, &info->n_embd, err);
    if (rc == 0) rc = loader_u32(l, "block_count", true, 1, MODEL_LAYERS_MAX, &info->n_layers, err);
    if (rc == 0) rc = loader_u32(l, "feed_forward_length", true, 1, OP_COLS_MAX, &info->n_ff, err);
    if (rc == 0)
        rc = loader_u32(l, "attention.head_count", true, 1, HEADS_MAX, &info->n_heads, err);
    if (rc == 0)
        rc =
            loader_u32(l, "context_length", true, 1, MODEL_CONTEXT_MAX, &info->context_length, err);
    if (rc == 0) rc = loader_f32(l, "attention.layer_norm_rms_epsilon", true, &m->eps, err);
    if (rc < 0) return rc;
    if (!(m->eps > 0 && m->eps < 1))
        return err_set(err, -EINVAL,
                       "%s: key 'llama.attention.layer_norm_rms_epsilon' is %g, it "
                       "must lie between 0 and 1",
                       l->source->name, (double)m->eps);
    rc = load_heads(l, info, err);
    if (rc == 0) m->scale = (float)(1 / sqrt((double)info->head_dim));
    return rc;
}

/* Reads the factor that positions are divided by: 1, or that of linear scaling. */
static int load_scaling(struct loader *l, double *ret, struct err *err)
{
    struct str type = STR("none");
    float factor = 1;
    int rc = loader_str(l, "rope.scaling.type", &type, err);
    if (rc == 0) rc = loader_f32(l, "rope.scaling.factor", false, &factor, err);
    if (rc < 0) return rc;
    bool linear = str_eq(type, STR("linear"));
    if (!linear && !str_eq(type, STR("none")) && type.len > 0)
        return err_set(err, -ENOTSUP,
                       "%s: key 'llama.rope.scaling.type' is '" STR_FMT "'; none "
                       "and linear are computed",
                       l->source->name, STR_ARG(type));
    if (linear && !(factor >= 1))
        return err_set(err, -EINVAL,
                       "%s: key 'llama.rope.scaling.factor' is %g, it must be at "
                       "least 1",
                       l->source->name, (double)factor);
    *ret = linear ? (double)factor : 1;
    return 0;
}

static int load_rope(struct loader *l, const struct model_info *info, struct llama *m,
                     struct err *err)
{
    uint32_t dims = info->head_dim;
    float base = 10000;
    double scaling = 1;
    const float *factors = NULL;
    int rc = loader_u32(l, "rope.dimension_count", false, 2, info->head_dim, &dims, err);
    if (rc == 0) rc = loader_f32(l, "rope.freq_base", false, &base, err);
    if (rc == 0) rc = load_scaling(l, &scaling, err);
    if (rc < 0) return rc;
    if (dims % 2 != 0 || !(base >= 1))
        return err_set(err, -EINVAL,
                       "%s: RoPE over %u dimensions with base %g: the first must be "
                       "even, the second at least 1",
                       l->source->name, dims, (double)base);
    m->pairs = dims / 2;
    if (loader_has(l, "rope_freqs.weight"))
        rc = loader_vector(l, "rope_freqs.weight", m->pairs, &factors, err);
    if (rc < 0) return rc;
    m->angle_step = arena_array(&l->model->arena, m->pairs, sizeof *m->angle_step);
    if (!m->angle_step) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    for (uint32_t i = 0; i < m->pairs; i++) {
        double factor = factors ? (double)factors[i] : 1;
        if (!(factor > 0))
            return err_set(err, -EINVAL, "%s: tensor 'rope_freqs.weight' has a factor of %g",
                           l->source->name, factor);
        m->angle_step[i] = pow((double)base, -2.0 * i / dims) / (factor * scaling);
    }
    return 0;
}

static int load_vocab_size(struct loader *l, struct model_info *info, struct err *err)
{
    const struct gguf_value *tokens = gguf_find(l->gguf, STR("tokenizer.ggml.tokens"));
    bool counted = tokens && tokens->type == GGUF_ARRAY && tokens->array.count > 0 &&
                   tokens->array.count <= VOCAB_TOKENS_MAX;
    uint32_t count = counted ? (uint32_t)tokens->array.count : 0;
    info->vocab_size = count;
    int rc = loader_u32(l, "vocab_size", !counted, 1, VOCAB_TOKENS_MAX, &info->vocab_size, err);
    if (rc < 0) return rc;
    if (counted && info->vocab_size != count)
        return err_set(err, -EINVAL, "%s: key 'llama.vocab_size' is %u, but there are %u tokens",
                       l->source->name, info->vocab_size, count);
    return 0;
}

static int load_layer(struct loader *l, const struct model_info *info, uint32_t index,
                      struct llama_layer *layer, struct err *err)
{
    uint32_t q_rows = info->n_heads * info->head_dim, kv_rows = info->n_kv_heads * info->head_dim;
    const struct {
        const char *name;
        struct weight *to;
        uint32_t rows, cols;
    } matrix[] = {
        { "attn_q", &layer->q, q_rows, info->n_embd },
        { "attn_k", &layer->k, kv_rows, info->n_embd },
        { "attn_v", &layer->v, kv_rows, info->n_embd },
        { "attn_output", &layer->out, info->n_embd, q_rows },
        { "ffn_gate", &layer->gate, info->n_ff, info->n_embd },
        { "ffn_up", &layer->up, info->n_ff, info->n_embd },
        { "ffn_down", &layer->down, info->n_embd, info->n_ff },
    };
    char name[GGUF_NAME_BYTES_MAX + 1];
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(matrix) && rc == 0; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", index, matrix[i].name);
        rc = loader_matrix(l, name, matrix[i].rows, matrix[i].cols, matrix[i].to, err);
    }
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", index);
    if (rc == 0) rc = loader_vector(l, name, info->n_embd, &layer->attn_norm, err);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", index);
    if (rc == 0) rc = loader_vector(l, name, info->n_embd, &layer->ffn_norm, err);
    return rc;
}

static int llama_load(struct loader *l, struct model *model, struct err *err)
{
    struct model_info *info = &model->info;
    struct llama *m = arena_alloc(&model->arena, sizeof *m);
    if (!m) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    int rc = loader_check_keys(l, key_rules, COUNT_OF(key_rules), err);
    if (rc == 0) rc = load_geometry(l, info, m, err);
    if (rc == 0) rc = load_rope(l, info, m, err);
    if (rc == 0) rc = load_vocab_size(l, info, err);
    if (rc == 0)
        rc = loader_matrix(l, "token_embd.weight", info->vocab_size, info->n_embd, &m->embedding,
                           err);
    if (rc == 0) rc = loader_vector(l, "output_norm.weight", info->n_embd, &m->output_norm, err);
    if (rc < 0) return rc;
    m->output = m->embedding;
    info->tied = !loader_has(l, "output.weight");
    if (!info->tied)
        info->table_bytes = weight_tiles(&m->embedding) * weight_tile_bytes(&m->embedding);
    if (!info->tied)
        rc = loader_matrix(l, "output.weight", info->vocab_size, info->n_embd, &m->output, err);
    m->layers = arena_array(&model->arena, info->n_layers, sizeof *m->layers);
    if (rc == 0 && !m->layers) rc = err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    for (uint32_t i = 0; i < info->n_layers && rc == 0; i++)
        rc = load_layer(l, info, i, &m->layers[i], err);
    if (rc == 0) model->arch_model = m;
    return rc;
}
