/* encoder_step.c - computes a step of any encoder that encoder.h describes: some whole texts.
 *
 * Attention runs through the kernels of decoders, which let a query see the positions up to its own: all
 * queries of a text stand at its last position. A call takes the queries of one head as a group, so that
 * they lie head by head (queries, attended), while products have token by token. Where a token sees those nearby
 * alone, the queries of a head are rows at positions of their own with a window, but for the last ones of a text, whose
 * windows end with it. K and V lie in blocks of the state, in F32, for one layer at a time. */
#include "engine/kernels/op_encoder.h"
#include "engine/model/encoder.h"
#include "engine/model/gemm_loop.h"
#include "engine/model/row_loop.h"
#include "engine/model/step_memory.h"

#include <math.h>
#include <stdlib.h>

/* ---- the memory of a step */

struct encoder_row {
    uint32_t item, position, id, type;
};

/* The rows of one item, its blocks of K and V, and its share of attention's units. */
struct encoder_run {
    uint32_t row, count, block, unit_first;
};

struct encoder_state {
    float *x, *y, *q, *k, *v, *queries, *attended, *ff;
    float *turns[ENCODER_ROPES]; /* cosines of a row's pairs, then sines */
    /* Where a gate's other factor begins in a row of ff. */
    size_t embd_stride, ff_stride, ff_second;
    struct encoder_row *rows;
    struct encoder_run *runs;
    uint32_t *blocks; /* block i is at place i: what kernels call a page table */
    char *memory, *kv;
    size_t memory_bytes;
    struct kv_layout layout; /* of one layer: a page is a block */
    size_t block_bytes;
    /* of the step that runs */
    const struct model *model;
    const struct encoder *encoder;
    const struct encoder_layer *layer;
    const struct arch_step *step;
    struct q8_super *x_q8;
    const struct encoder_linear *added; /* of add_norm_unit */
    const struct encoder_norm *norm;
    bool normed; /* it goes to y */
    uint32_t row_count, attend_units;
};

static uint32_t blocks_max(uint32_t tokens_max, uint32_t seqs_max)
{
    return tokens_max / KV_BLOCK + seqs_max; /* the last block of a text may be partly empty */
}

/* Hands out the memory at `base` and returns its bytes. With base NULL it only counts. */
static size_t lay_out(struct encoder_state *s, const struct model *model, char *base,
                      uint32_t tokens, uint32_t seqs)
{
    const struct model_info *info = &model->info;
    s->embd_stride = activation_stride(info->n_embd);
    s->ff_second = (size_t)ceil_div_u32(info->n_ff, TILE_ROWS) * TILE_ROWS;
    if (s->encoder->form->fused_gate) s->ff_second = info->n_ff;
    s->ff_stride =
        activation_stride(s->encoder->form->gated ? 2 * (uint32_t)s->ff_second : info->n_ff);
    const struct step_part part[] = {
        { &s->x, tokens * s->embd_stride },
        { &s->y, tokens * s->embd_stride },
        { &s->q, tokens * s->embd_stride },
        { &s->k, tokens * s->embd_stride },
        { &s->v, tokens * s->embd_stride },
        { &s->queries, (size_t)tokens * info->n_embd },
        { &s->attended, (size_t)tokens * info->n_embd },
        { &s->ff, tokens * s->ff_stride },
        { &s->turns[0], s->encoder->angle_step[0] ? (size_t)tokens * info->head_dim : 0 },
        { &s->turns[1], s->encoder->angle_step[1] ? (size_t)tokens * info->head_dim : 0 },
    };
    size_t used = step_parts_place(part, COUNT_OF(part), base);
    if (base) s->kv = base + used;
    used += blocks_max(tokens, seqs) * s->block_bytes;
    if (base) s->x_q8 = (struct q8_super *)(void *)(base + used);
    return used +
           (model->ops->q8_types ? tokens * q8_row_bytes(max_u32(info->n_embd, info->n_ff)) : 0);
}

void encoder_state_free(void *state)
{
    struct encoder_state *s = state;
    if (!s) return;
    if (s->memory) munmap(s->memory, s->memory_bytes);
    free(s->rows);
    free(s->runs);
    free(s->blocks);
    free(s);
}

int encoder_state_new(const struct model *model, uint32_t tokens_max, uint32_t seqs_max, void **ret)
{
    const struct model_info *info = &model->info;
    const uint32_t blocks = blocks_max(tokens_max, seqs_max);
    struct encoder_state *s = calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    s->model = model;
    s->encoder = model->arch_model;
    s->layout = (struct kv_layout){ .type = KV_F32,
                                    .n_layers = 1,
                                    .n_kv_heads = info->n_heads,
                                    .head_dim = info->head_dim,
                                    .page_tokens = KV_BLOCK };
    s->block_bytes = kv_page_bytes(&s->layout);
    s->memory_bytes = lay_out(s, model, NULL, tokens_max, seqs_max);
    s->rows = calloc(tokens_max, sizeof *s->rows);
    s->runs = calloc(seqs_max, sizeof *s->runs);
    s->blocks = calloc(blocks, sizeof *s->blocks);
    s->memory = step_memory_new(s->memory_bytes);
    if (!s->rows || !s->runs || !s->blocks || !s->memory) {
        encoder_state_free(s);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < blocks; i++)
        s->blocks[i] = i;
    lay_out(s, model, s->memory, tokens_max, seqs_max);
    *ret = s;
    return 0;
}

/* ---- loops over rows */

static void each_row(struct encoder_state *s, worker_fn fn)
{
    workers_run(s->step->workers, ceil_div_u32(s->row_count, TOKENS_PER_UNIT), fn, s);
}

/* Adds nothing where `more` is NULL. */
static void add_to(float *x, const float *more, uint32_t n)
{
    for (uint32_t i = 0; more && i < n; i++)
        x[i] += more[i];
}

/* Finds by what a row's pairs are turned, in all layers. */
static void find_turns(struct encoder_state *s, uint32_t r)
{
    const uint32_t head_dim = s->model->info.head_dim, pairs = head_dim / 2;
    for (uint32_t k = 0; k < ENCODER_ROPES; k++) {
        const double *step = s->encoder->angle_step[k];
        float *to = s->turns[k] + (size_t)r * head_dim;
        for (uint32_t i = 0; step && i < pairs; i++) {
            to[i] = (float)cos(step[i] * s->rows[r].position);
            to[pairs + i] = (float)sin(step[i] * s->rows[r].position);
        }
    }
}

static void embed_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct encoder_state *s = arg;
    const struct encoder *e = s->encoder;
    const uint32_t n = s->model->info.n_embd;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        const struct encoder_row *row = &s->rows[r];
        float *x = s->x + r * s->embd_stride, *more = s->y + r * s->embd_stride;
        weight_row(&e->words, row->id, x);
        if (e->types.rows > 0) {
            weight_row(&e->types, row->type, more);
            add_to(x, more, n);
        }
        if (e->form->positions) {
            weight_row(&e->positions, row->position, more);
            add_to(x, more, n);
        }
        find_turns(s, r);
        layer_norm(x, e->norm.weight, e->norm.bias, e->eps, n, x);
    }
}

/* Returns where the part of head 0 that belongs to a row's token begins in queries and attended; the next
 * head's is ret_stride floats further. */
static size_t head_major(const struct encoder_state *s, uint32_t r, size_t *ret_stride)
{
    const struct encoder_run *run = &s->runs[s->rows[r].item];
    const uint32_t head_dim = s->model->info.head_dim;
    *ret_stride = (size_t)run->count * head_dim;
    return (size_t)run->row * s->model->info.n_embd + (size_t)(r - run->row) * head_dim;
}

/* Adds biases, turns positions, moves the query to its heads, and stores K and V. */
static void spread_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct encoder_state *s = arg;
    const struct encoder_layer *layer = s->layer;
    const uint32_t n = s->model->info.n_embd, head_dim = s->model->info.head_dim;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        const struct encoder_row *row = &s->rows[r];
        float *q = s->q + r * s->embd_stride, *k = s->k + r * s->embd_stride,
              *v = s->v + r * s->embd_stride;
        const uint32_t block = s->runs[row->item].block + row->position / KV_BLOCK;
        size_t stride, at = head_major(s, r, &stride);
        add_to(q, layer->q.bias, n);
        add_to(k, layer->k.bias, n);
        add_to(v, layer->v.bias, n);
        if (s->encoder->angle_step[layer->rope]) {
            const float *turn = s->turns[layer->rope] + (size_t)r * head_dim;
            s->model->ops->rope(q, s->model->info.n_heads, head_dim, turn, turn + head_dim / 2,
                                head_dim / 2);
            s->model->ops->rope(k, s->model->info.n_heads, head_dim, turn, turn + head_dim / 2,
                                head_dim / 2);
        }
        for (uint32_t h = 0, d = 0; h < s->model->info.n_heads; h++, d += head_dim) {
            char *k_block = s->kv + block * s->block_bytes + kv_head_offset(&s->layout, 0, h);
            memcpy(s->queries + at + h * stride, q + d, head_dim * sizeof *q);
            s->model->ops->kv_put(&s->layout, k + d, v + d, row->position % KV_BLOCK, k_block,
                                  k_block + kv_half_bytes(&s->layout));
        }
    }
}

static void gather_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct encoder_state *s = arg;
    const uint32_t head_dim = s->model->info.head_dim;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        size_t stride, at = head_major(s, r, &stride);
        for (uint32_t h = 0; h < s->model->info.n_heads; h++)
            memcpy(s->q + r * s->embd_stride + (size_t)h * head_dim, s->attended + at + h * stride,
                   head_dim * sizeof(float));
    }
}

/* x += y + bias, and its norm: in x, or, where norms stand before products, in y for the next one. */
static void add_norm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct encoder_state *s = arg;
    const uint32_t n = s->model->info.n_embd;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        float *x = s->x + r * s->embd_stride, *y = s->y + r * s->embd_stride;
        add_to(y, s->added->bias, n);
        add_to(x, y, n);
        layer_norm(x, s->norm->weight, s->norm->bias, s->encoder->eps, n, s->normed ? y : x);
    }
}

static void act_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct encoder_state *s = arg;
    const uint32_t n = s->model->info.n_ff;
    const float *bias = s->layer->up.bias ? s->layer->up.bias : s->encoder->zeros;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        float *ff = s->ff + r * s->ff_stride, *up = ff + s->ff_second;
        if (s->encoder->form->gated && s->encoder->silu) {
            s->model->ops->silu_mul(ff, up, (uint32_t)s->ff_second);
            continue;
        }
        gelu_erf_bias(ff, bias, n);
        for (uint32_t i = 0; s->encoder->form->gated && i < n; i++)
            ff[i] *= up[i];
    }
}

/* ---- matrices */

static struct gemm gemm_of(const struct encoder_state *s, const struct encoder_linear *l,
                           const float *x, size_t x_stride, float *y, size_t y_stride)
{
    return (struct gemm){ .w = &l->w,
                          .x = x,
                          .x_stride = x_stride,
                          .x_q8 = s->x_q8,
                          .y = y,
                          .y_stride = y_stride,
                          .tokens = s->row_count };
}

/* Runs products of one x. */
static void run_gemms(struct encoder_state *s, const struct gemm *gemms, uint32_t count)
{
    struct gemm_loop l = { .ops = s->model->ops,
                           .workers = s->step->workers,
                           .scratch = s->step->scratch,
                           .gemm = gemms,
                           .count = count,
                           .x = gemms[0].x,
                           .x_stride = gemms[0].x_stride,
                           .rows = gemms[0].tokens,
                           .x_q8 = s->x_q8 };
    gemm_loop_run(&l);
}

/* x += w from + bias; then the norm of that, in x, or in y if `apart`. */
static void project_back(struct encoder_state *s, const struct encoder_linear *linear,
                         const float *from, size_t stride, const struct encoder_norm *norm,
                         bool apart)
{
    const struct gemm back = gemm_of(s, linear, from, stride, s->y, s->embd_stride);
    run_gemms(s, &back, 1);
    s->added = linear;
    s->norm = norm;
    s->normed = apart;
    each_row(s, add_norm_unit);
}

/* ---- attention */

static uint32_t run_blocks(const struct encoder_state *s, const struct encoder_run *run)
{
    return ceil_div_u32(run->count, s->model->ops->attend_rows);
}

static const struct encoder_run *run_of_unit(const struct encoder_state *s, uint32_t unit)
{
    uint32_t low = 0, high = s->step->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (s->runs[middle].unit_first <= unit)
            low = middle;
        else
            high = middle;
    }
    return &s->runs[low];
}

/* Computes the queries of positions `first` on, each over those at most `reach` from it. */
static void attend_near(const struct encoder_state *s, struct attend *a, uint32_t first,
                        uint32_t count, void *scratch)
{
    const uint32_t reach = s->layer->reach, head_dim = s->model->info.head_dim;
    const uint32_t end = first + a->row_count,
                   whole = count - reach; /* positions before end whole */
    a->group = 1;
    a->q_stride = a->out_stride = head_dim;
    a->position = first + reach;
    a->window = 2 * reach + 1;
    a->row_count = first < whole ? min_u32(end, whole) - first : 0;
    if (a->row_count > 0) s->model->ops->attend(a, scratch);
    const float *q = a->q;
    float *out = a->out;
    for (uint32_t p = first + a->row_count; p < end; p++) {
        a->q = q + (size_t)(p - first) * head_dim;
        a->out = out + (size_t)(p - first) * head_dim;
        a->position = count - 1;
        a->window = count - p + reach;
        a->row_count = 1;
        s->model->ops->attend(a, scratch);
    }
}

/* Computes some queries of one head. Units are numbered by run, then head, then block of queries. */
static void attend_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct encoder_state *s = arg;
    const struct encoder_run *run = run_of_unit(s, unit);
    const uint32_t head_dim = s->model->info.head_dim, blocks = run_blocks(s, run);
    const uint32_t head = (unit - run->unit_first) / blocks;
    const uint32_t first = (unit - run->unit_first) % blocks * s->model->ops->attend_rows;
    const uint32_t rows = min_u32(s->model->ops->attend_rows, run->count - first);
    const size_t at =
        (size_t)run->row * s->model->info.n_embd + ((size_t)head * run->count + first) * head_dim;
    struct attend a = {
        .layout = &s->layout,
        .head = s->kv + kv_head_offset(&s->layout, 0, head),
        .page_bytes = s->block_bytes,
        .page_table = s->blocks + run->block,
        .q = s->queries + at,
        .out = s->attended + at,
        .out_head = head_dim,
        .group = rows,
        .position = run->count - 1,
        .row_count = rows,
        .scale = s->encoder->scale,
    };
    if (s->layer->reach > 0 && s->layer->reach < run->count - 1)
        attend_near(s, &a, first, run->count, s->step->scratch[thread]);
    else
        s->model->ops->attend(&a, s->step->scratch[thread]);
}

/* ---- the step */

static void begin(struct encoder_state *s)
{
    uint32_t block = 0;
    s->row_count = s->attend_units = 0;
    for (uint32_t i = 0; i < s->step->count; i++) {
        const struct batch_item *item = &s->step->items[i];
        const uint32_t second = item->second_from > 0 ? item->second_from : item->count;
        s->runs[i] = (struct encoder_run){
            .row = s->row_count, .count = item->count, .block = block, .unit_first = s->attend_units
        };
        block += ceil_div_u32(item->count, KV_BLOCK);
        s->attend_units += run_blocks(s, &s->runs[i]) * s->model->info.n_heads;
        for (uint32_t j = 0; j < item->count; j++)
            s->rows[s->row_count++] = (struct encoder_row){
                .item = i,
                .position = j,
                .id = item->ids[j],
                .type = j >= second && s->encoder->types.rows > 1,
            };
    }
    each_row(s, embed_unit);
}

/* Products read x, or, where norms stand before them, the norm of x in y. */
static void layer_step(struct encoder_state *s, uint32_t index)
{
    const struct encoder *e = s->encoder;
    const struct encoder_layer *layer = &e->layers[index];
    const bool pre = e->form->pre_norm, last = index + 1 == s->model->info.n_layers;
    const float *in = pre && index > 0 ? s->y : s->x, *between = pre ? s->y : s->x;
    s->layer = layer;
    const struct gemm qkv[3] = {
        gemm_of(s, &layer->q, in, s->embd_stride, s->q, s->embd_stride),
        gemm_of(s, &layer->k, in, s->embd_stride, s->k, s->embd_stride),
        gemm_of(s, &layer->v, in, s->embd_stride, s->v, s->embd_stride),
    };
    run_gemms(s, qkv, 3);
    each_row(s, spread_unit);
    workers_run(s->step->workers, s->attend_units, attend_unit, s);
    each_row(s, gather_unit);
    project_back(s, &layer->out, s->q, s->embd_stride, pre ? &layer->ffn_norm : &layer->attn_norm,
                 pre);
    const bool two = layer->gate.w.rows > 0;
    const struct gemm up[2] = {
        gemm_of(s, &layer->up, between, s->embd_stride, s->ff + (two ? s->ff_second : 0),
                s->ff_stride),
        gemm_of(s, &layer->gate, between, s->embd_stride, s->ff, s->ff_stride),
    };
    run_gemms(s, up, two ? 2 : 1);
    each_row(s, act_unit);
    const struct encoder_norm *next = !pre   ? &layer->ffn_norm
                                      : last ? &e->last_norm
                                             : &e->layers[index + 1].attn_norm;
    project_back(s, &layer->down, s->ff, s->ff_stride, next, pre && !last);
}

static void take_states(const struct encoder_state *s)
{
    for (uint32_t i = 0; i < s->step->count; i++) {
        const struct batch_item *item = &s->step->items[i];
        const uint32_t end =
            item->state_to > 0 ? min_u32(item->state_to, item->count) : item->count;
        for (uint32_t j = item->state_from; item->state_sum && j < end; j++) {
            const float *state = s->x + (s->runs[i].row + j) * s->embd_stride;
            for (uint32_t d = 0; d < s->model->info.n_embd; d++)
                item->state_sum[d] += (double)state[d];
        }
    }
}

/* Puts what the head judges of a text: its first token's state, or the mean of all. */
static void put_judged(const struct encoder_state *s, const struct encoder_run *run, float *ret)
{
    const uint32_t n = s->model->info.n_embd;
    const float *x = s->x + run->row * s->embd_stride;
    for (uint32_t d = 0; d < n; d++) {
        double sum = (double)x[d];
        for (uint32_t j = 1; s->encoder->head.of_mean && j < run->count; j++)
            sum += (double)x[j * s->embd_stride + d];
        ret[d] = s->encoder->head.of_mean ? (float)(sum / run->count) : x[d];
    }
}

/* Activates the head's hidden layer. */
static void act_head(const struct encoder_state *s, float *state)
{
    const struct encoder_head *head = &s->encoder->head;
    const uint32_t n = s->model->info.n_embd;
    add_to(state, head->dense.bias, n);
    if (head->norm.weight) {
        gelu_erf_bias(state, s->encoder->zeros, n);
        layer_norm(state, head->norm.weight, head->norm.bias, s->encoder->eps, n, state);
        return;
    }
    for (uint32_t d = 0; d < n; d++)
        state[d] = tanhf(state[d]);
}

/* Has the head judge the texts that want a score. */
static void take_scores(struct encoder_state *s)
{
    const struct encoder_head *head = &s->encoder->head;
    const uint32_t n = s->model->info.n_embd, texts = s->step->count;
    const bool hidden = head->dense.w.rows > 0;
    float *in = s->q, *out = hidden ? s->y : s->q;
    s->row_count = 0;
    for (uint32_t i = 0; i < texts; i++)
        if (s->step->items[i].score)
            put_judged(s, &s->runs[i], in + s->row_count++ * s->embd_stride);
    if (s->row_count > 0 && hidden) {
        const struct gemm dense = gemm_of(s, &head->dense, in, s->embd_stride, out, s->embd_stride);
        run_gemms(s, &dense, 1);
    }
    for (uint32_t i = 0, r = 0; i < texts; i++) {
        if (!s->step->items[i].score) continue;
        float *state = out + r++ * s->embd_stride;
        double sum = (double)head->out_bias;
        if (hidden) act_head(s, state);
        for (uint32_t d = 0; d < n; d++)
            sum += (double)state[d] * (double)head->out[d];
        *s->step->items[i].score = (float)sum;
    }
}

void encoder_step(const struct model *model, void *state, const struct arch_step *step)
{
    struct encoder_state *s = state;
    s->step = step;
    begin(s);
    for (uint32_t i = 0; i < model->info.n_layers; i++)
        layer_step(s, i);
    take_states(s);
    if (s->encoder->head.out) take_scores(s);
}
