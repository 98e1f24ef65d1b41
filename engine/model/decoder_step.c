/* decoder_step.c - computes a step of any decoder that decoder.h describes.
 *
 * The last layer computes keys and values of all tokens, but everything behind them only for the
 * tokens that need logits: that saves a sixth of the prefill of a model of six layers. */
#include "engine/model/adapter_step.h"
#include "engine/model/decoder.h"
#include "engine/model/experts.h"
#include "engine/model/gemm_loop.h"
#include "engine/model/latent.h"
#include "engine/model/row_loop.h"
#include "engine/model/step_memory.h"

#include <math.h>
#include <stdlib.h>

#define LOGIT_ROWS 24 /* rows of logits computed at once, bounds their scratch */

/* ---- the memory of a step */

/* Consecutive rows of one item, and its share of attention's units. */
struct decoder_run {
    uint32_t item, row, count, position;
    uint32_t unit_first;
};

struct decoder_state {
    float *x, *norm, *q, *k, *v, *attended, *gate, *up, *cos, *sin, *logits;
    size_t embd_stride, q_stride, kv_stride, attended_stride, ff_stride, vocab_stride;
    struct decoder_row *rows;
    struct decoder_run *runs;
    char *memory;
    size_t memory_bytes;
    uint32_t tokens_max;
    /* of the step that runs */
    const struct model *model;
    const struct decoder *decoder;
    struct experts *experts; /* NULL: the model has none */
    struct latent *latent;   /* NULL: attention is the ordinary one */
    struct q8_super *x_q8;   /* of the products that run */
    const struct arch_step *step;
    const struct decoder_layer *layer;
    uint32_t layer_index;
    const float *norm_weight;           /* of norm_unit */
    const float *back_bias, *back_norm; /* of what add_back_unit adds; NULL: none */
    uint32_t row_count, run_count, attend_units;
};

/* Hands out the memory at `base` and returns its bytes. With base NULL it only counts, so that the
 * same lines size the memory. */
static size_t lay_out(struct decoder_state *s, const struct model *model, char *base,
                      uint32_t tokens)
{
    const struct model_info *info = &model->info;
    const struct decoder *m = model->arch_model;
    s->embd_stride = activation_stride(info->n_embd);
    const bool latent = m->form->latent; /* which has queries and keys of its own */
    const uint32_t attended = info->n_heads * (latent ? m->latent.value : info->head_dim);
    const uint32_t ff = max_u32(info->n_ff, m->shared_ff);
    s->q_stride = latent ? 0 : activation_stride(attended);
    s->kv_stride = latent ? 0 : activation_stride(info->n_kv_heads * info->head_dim);
    s->attended_stride = activation_stride(attended);
    s->ff_stride = activation_stride(ff);
    s->vocab_stride = activation_stride(info->vocab_size);
    const struct step_part part[] = {
        { &s->x, tokens * s->embd_stride },
        { &s->norm, tokens * s->embd_stride },
        { &s->q, tokens * s->q_stride },
        { &s->attended, tokens * s->attended_stride },
        { &s->k, tokens * s->kv_stride },
        { &s->v, tokens * s->kv_stride },
        { &s->gate, tokens * s->ff_stride },
        { &s->up, tokens * s->ff_stride },
        { &s->cos, (size_t)m->ropes * tokens * m->pairs },
        { &s->sin, (size_t)m->ropes * tokens * m->pairs },
        { &s->logits, min_u32(tokens, LOGIT_ROWS) * s->vocab_stride },
    };
    size_t used = step_parts_place(part, COUNT_OF(part), base);
    uint32_t widest = max_u32(max_u32(attended, info->n_embd), ff);
    if (base) s->x_q8 = (struct q8_super *)(void *)(base + used);
    return used + (model->ops->q8_types ? tokens * q8_row_bytes(widest) : 0);
}

void decoder_state_free(void *state)
{
    struct decoder_state *s = state;
    if (!s) return;
    if (s->memory) munmap(s->memory, s->memory_bytes);
    experts_free(s->experts);
    latent_free(s->latent);
    free(s->rows);
    free(s->runs);
    free(s);
}

int decoder_state_new(const struct model *model, uint32_t tokens_max, uint32_t seqs_max, void **ret)
{
    struct decoder_state *s = calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    s->tokens_max = tokens_max;
    s->memory_bytes = lay_out(s, model, NULL, tokens_max);
    s->rows = calloc(tokens_max, sizeof *s->rows);
    s->runs = calloc(seqs_max, sizeof *s->runs);
    s->memory = step_memory_new(s->memory_bytes);
    const struct decoder *d = model->arch_model;
    int rc = d->n_experts > 0 ? experts_new(model, tokens_max, &s->experts) : 0;
    if (rc == 0 && d->form->latent) rc = latent_new(model, tokens_max, &s->latent);
    if (rc < 0 || !s->rows || !s->runs || !s->memory) {
        decoder_state_free(s);
        return -ENOMEM;
    }
    lay_out(s, model, s->memory, tokens_max);
    s->model = model;
    s->decoder = d;
    *ret = s;
    return 0;
}

/* ---- loops over rows */

static void each_row(struct decoder_state *s, worker_fn fn)
{
    workers_run(s->step->workers, ceil_div_u32(s->row_count, TOKENS_PER_UNIT), fn, s);
}

/* Returns where the angles of a token begin in cos and sin. */
static size_t angles_at(const struct decoder_state *s, uint32_t rope, uint32_t token)
{
    return ((size_t)rope * s->tokens_max + token) * s->decoder->pairs;
}

static void find_angles(struct decoder_state *s, uint32_t index, uint32_t r)
{
    const struct decoder_rope *rope = &s->decoder->rope[index];
    size_t at = angles_at(s, index, r);
    for (uint32_t i = 0; i < s->decoder->pairs; i++) {
        double angle = s->rows[r].position * rope->angle_step[i];
        s->cos[at + i] = (float)(cos(angle) * rope->magnitude);
        s->sin[at + i] = (float)(sin(angle) * rope->magnitude);
    }
}

static void embed_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct decoder_state *s = arg;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        const struct decoder_row *row = &s->rows[r];
        float *x = s->x + r * s->embd_stride;
        weight_row(&s->decoder->embedding, row->id, x);
        for (uint32_t i = 0; s->decoder->embedding_scale > 0 && i < s->model->info.n_embd; i++)
            x[i] *= s->decoder->embedding_scale;
        for (uint32_t i = 0; i < s->decoder->ropes; i++)
            find_angles(s, i, r);
    }
}

static void norm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct decoder_state *s = arg;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        s->model->ops->rms_norm(s->x + r * s->embd_stride, s->norm_weight, s->decoder->eps,
                                s->model->info.n_embd, s->norm + r * s->embd_stride);
    }
}

static void norm_rows(struct decoder_state *s, const float *weight)
{
    s->norm_weight = weight;
    each_row(s, norm_unit);
}

static void add_to(float *x, const float *more, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] += more[i];
}

/* Makes queries or keys of the products: bias, norm of each head, rotation. */
static void finish_heads(const struct decoder_state *s, uint32_t r, float *x, uint32_t heads,
                         const float *bias, const float *norm)
{
    const struct ops *ops = s->model->ops;
    uint32_t head_dim = s->model->info.head_dim;
    if (bias) add_to(x, bias, heads * head_dim);
    for (uint32_t h = 0; norm && h < heads; h++) {
        float *head = x + (size_t)h * head_dim;
        ops->rms_norm(head, norm, s->decoder->eps, head_dim, head);
    }
    if (s->layer->rope == DECODER_NO_ROPE) return;
    size_t at = angles_at(s, s->layer->rope, s->rows[r].token);
    ops->rope(x, heads, head_dim, s->cos + at, s->sin + at, s->decoder->pairs);
}

static void finish_q_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct decoder_state *s = arg;
    (void)thread;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        finish_heads(s, r, s->q + r * s->q_stride, s->model->info.n_heads, s->layer->q_bias,
                     s->layer->q_norm);
    }
}

/* Returns the address of this layer's and KV head's K in page 0. */
static char *kv_head(const struct decoder_state *s, uint32_t head)
{
    struct kv_store *kv = s->step->kv;
    return kv->memory + kv_head_offset(&kv->layout, s->layer->kv_place, head);
}

static void store_kv_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct decoder_state *s = arg;
    (void)thread;
    struct kv_store *kv = s->step->kv;
    uint32_t head_dim = s->model->info.head_dim;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        const struct decoder_row *row = &s->rows[r];
        const struct batch_item *item = &s->step->items[row->item];
        if (row->position - item->position < item->stored) continue;
        float *k = s->k + r * s->kv_stride, *v = s->v + r * s->kv_stride;
        finish_heads(s, r, k, s->model->info.n_kv_heads, s->layer->k_bias, s->layer->k_norm);
        if (s->layer->v_bias) add_to(v, s->layer->v_bias, s->model->info.n_kv_heads * head_dim);
        for (uint32_t h = 0; h < s->model->info.n_kv_heads; h++) {
            char *block = kv_block_at(&kv->layout, kv_head(s, h), kv->page_bytes, item->page_table,
                                      row->position / KV_BLOCK);
            s->model->ops->kv_put(&kv->layout, k + (size_t)h * head_dim, v + (size_t)h * head_dim,
                                  row->position % KV_BLOCK, block,
                                  block + kv_half_bytes(&kv->layout));
        }
    }
}

/* ---- matrices */

static struct gemm gemm_of(const struct decoder_state *s, const struct weight *w, const float *x,
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

/* Runs products of one x. */
static void run_gemms(struct decoder_state *s, const struct gemm *gemms, uint32_t count,
                      void (*join)(float *gate, const float *up, uint32_t n))
{
    struct gemm_loop l = { .ops = s->model->ops,
                           .workers = s->step->workers,
                           .scratch = s->step->scratch,
                           .gemm = gemms,
                           .count = count,
                           .x = gemms[0].x,
                           .x_stride = gemms[0].x_stride,
                           .rows = gemms[0].tokens,
                           .x_q8 = s->x_q8,
                           .join = join,
                           .importance = s->step->importance };
    gemm_loop_run(&l);
}

/* Adds what adapters bring to a product of x. */
static void add_adapters(struct decoder_state *s, enum adapter_slot slot, const float *x,
                         size_t x_stride, float *y, size_t y_stride)
{
    if (s->step->adapters)
        adapter_step_add(s->step->adapters, s->model->ops, s->step, s->layer_index, slot, x,
                         x_stride, y, y_stride);
}

static void project_kv(struct decoder_state *s)
{
    const struct gemm kv[2] = {
        gemm_of(s, &s->layer->k, s->norm, s->embd_stride, s->k, s->kv_stride),
        gemm_of(s, &s->layer->v, s->norm, s->embd_stride, s->v, s->kv_stride),
    };
    run_gemms(s, kv, 2, NULL);
    add_adapters(s, ADAPTER_K, s->norm, s->embd_stride, s->k, s->kv_stride);
    add_adapters(s, ADAPTER_V, s->norm, s->embd_stride, s->v, s->kv_stride);
}

static void add_back_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct decoder_state *s = arg;
    (void)thread;
    uint32_t n = s->model->info.n_embd;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        float *y = s->norm + r * s->embd_stride;
        if (s->back_bias) add_to(y, s->back_bias, n);
        if (s->back_norm) s->model->ops->rms_norm(y, s->back_norm, s->decoder->eps, n, y);
        add_to(s->x + r * s->embd_stride, y, n);
    }
}

/* x += post(norm + bias), where norm holds the output of a half of the layer */
static void add_back(struct decoder_state *s, const float *bias, const float *post)
{
    s->back_bias = bias;
    s->back_norm = post;
    each_row(s, add_back_unit);
}

/* x += post(w y + bias) */
static void project_back(struct decoder_state *s, const struct weight *w, enum adapter_slot slot,
                         const float *y, size_t y_stride, const float *bias, const float *post)
{
    bool plain = !bias && !post;
    struct gemm back = gemm_of(s, w, y, y_stride, plain ? s->x : s->norm, s->embd_stride);
    back.accumulate = plain;
    run_gemms(s, &back, 1, NULL);
    add_adapters(s, slot, y, y_stride, back.y, s->embd_stride);
    if (!plain) add_back(s, bias, post);
}

static bool adapted_gate(const struct decoder_state *s)
{
    const struct adapter_step *a = s->step->adapters;
    return a && (adapter_step_has(a, s->layer_index, ADAPTER_GATE) ||
                 adapter_step_has(a, s->layer_index, ADAPTER_UP));
}

/* Joins gate and up where adapters came between the products and this. */
static void join_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct decoder_state *s = arg;
    (void)thread;
    decoder_gate_fn join = decoder_gate(s->decoder, s->model->ops);
    uint32_t n = ceil_div_u32(s->layer->gate.rows, TILE_ROWS) * TILE_ROWS;
    EACH_ROW_OF_UNIT(s, unit, r) join(s->gate + r * s->ff_stride, s->up + r * s->ff_stride, n);
}

/* gate = act(Wgate n) * (Wup n) */
static void join_gate(struct decoder_state *s)
{
    const struct decoder_layer *layer = s->layer;
    const struct gemm in[2] = {
        gemm_of(s, &layer->gate, s->norm, s->embd_stride, s->gate, s->ff_stride),
        gemm_of(s, &layer->up, s->norm, s->embd_stride, s->up, s->ff_stride),
    };
    if (adapted_gate(s)) {
        run_gemms(s, in, 2, NULL);
        add_adapters(s, ADAPTER_GATE, s->norm, s->embd_stride, s->gate, s->ff_stride);
        add_adapters(s, ADAPTER_UP, s->norm, s->embd_stride, s->up, s->ff_stride);
        each_row(s, join_unit);
    } else {
        run_gemms(s, in, 2, decoder_gate(s->decoder, s->model->ops));
    }
}

static void feed_forward(struct decoder_state *s)
{
    const struct decoder_layer *layer = s->layer;
    const bool for_all = layer->gate.rows > 0;
    norm_rows(s, layer->ffn_norm);
    if (for_all) join_gate(s);
    if (layer->experts.gate) {
        experts_run(s->experts, s->step, &layer->experts, s->norm, s->norm, s->row_count);
        add_back(s, NULL, layer->ffn_post_norm);
    }
    if (for_all)
        project_back(s, &layer->down, ADAPTER_DOWN, s->gate, s->ff_stride, NULL,
                     layer->ffn_post_norm);
}

/* ---- attention */

static uint32_t attend_group(const struct decoder_state *s)
{
    return s->model->info.n_heads / s->model->info.n_kv_heads;
}

static uint32_t run_blocks(const struct decoder_state *s, const struct decoder_run *run)
{
    return ceil_div_u32(run->count * attend_group(s), s->model->ops->attend_rows);
}

/* Computes one unit of attention. Units are numbered by run, then KV head, then block of query
 * rows. */
static void attend_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct decoder_state *s = arg;
    uint32_t low = 0, high = s->run_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (s->runs[middle].unit_first <= unit)
            low = middle;
        else
            high = middle;
    }
    const struct decoder_run *run = &s->runs[low];
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
        .out = s->attended + run->row * s->attended_stride + column,
        .out_stride = s->attended_stride,
        .out_head = s->model->info.head_dim,
        .group = group,
        .position = run->position,
        .row_first = first,
        .row_count = min_u32(s->model->ops->attend_rows, rows - first),
        .scale = s->decoder->scale,
        .window = s->layer->window,
        .cap = s->decoder->attn_cap,
        .sinks = s->layer->sinks ? s->layer->sinks + (size_t)head * group : NULL,
    };
    s->model->ops->attend(&a, s->step->scratch[thread]);
}

/* Tells the step's adapters which rows they have. */
static void group_rows(struct decoder_state *s)
{
    if (!s->step->adapters) return;
    adapter_step_clear(s->step->adapters);
    for (uint32_t i = 0; i < s->run_count; i++) {
        const struct adapter *a = s->step->items[s->runs[i].item].adapter;
        if (a) adapter_step_rows(s->step->adapters, a, s->runs[i].row, s->runs[i].count);
    }
}

/* Builds the runs from the rows: consecutive rows of an item are consecutive positions. */
static void find_runs(struct decoder_state *s)
{
    s->run_count = s->attend_units = 0;
    for (uint32_t r = 0; r < s->row_count; r++) {
        struct decoder_run *last = s->run_count > 0 ? &s->runs[s->run_count - 1] : NULL;
        if (last && last->item == s->rows[r].item)
            last->count++;
        else
            s->runs[s->run_count++] = (struct decoder_run){
                .item = s->rows[r].item, .row = r, .count = 1, .position = s->rows[r].position
            };
    }
    for (uint32_t i = 0; i < s->run_count; i++) {
        s->runs[i].unit_first = s->attend_units;
        s->attend_units += run_blocks(s, &s->runs[i]) * s->model->info.n_kv_heads;
    }
    group_rows(s);
}

/* ---- the step */

/* Puts the rows of the items from `from` on that have this adapter. */
static void put_rows(struct decoder_state *s, const struct adapter *adapter, uint32_t from)
{
    for (uint32_t i = from; i < s->step->count; i++) {
        const struct batch_item *item = &s->step->items[i];
        for (uint32_t j = 0; item->adapter == adapter && j < item->count; j++, s->row_count++)
            s->rows[s->row_count] = (struct decoder_row){
                .item = i, .token = s->row_count, .position = item->position + j, .id = item->ids[j]
            };
    }
}

/* Returns true if no item before this one has its adapter. */
static bool is_first(const struct arch_step *step, uint32_t item)
{
    for (uint32_t i = 0; i < item; i++)
        if (step->items[i].adapter == step->items[item].adapter) return false;
    return true;
}

/* Orders the rows: those without an adapter, then those of each adapter together. No result depends on the
 * order. */
static void begin(struct decoder_state *s)
{
    s->row_count = 0;
    put_rows(s, NULL, 0);
    for (uint32_t i = 0; s->step->adapters && i < s->step->count; i++)
        if (s->step->items[i].adapter && is_first(s->step, i))
            put_rows(s, s->step->items[i].adapter, i);
    find_runs(s);
    each_row(s, embed_unit);
}

/* Returns the row of logits that the token of a row of activations has in its item; below 0: none. */
static int64_t logit_row(const struct decoder_state *s, const struct decoder_row *row)
{
    const struct batch_item *item = &s->step->items[row->item];
    int64_t first = (int64_t)item->position + item->count - 1 - item->drafted - item->rows_before;
    return item->want_logits ? (int64_t)row->position - first : -1;
}

/* Returns true if the state of the row's token is added up. */
static bool wants_state(const struct decoder_state *s, const struct decoder_row *row)
{
    const struct batch_item *item = &s->step->items[row->item];
    return item->state_sum && row->position >= item->state_from;
}

/* Keeps the rows whose logits or states are wanted. */
static void keep_wanted(struct decoder_state *s)
{
    uint32_t kept = 0;
    for (uint32_t r = 0; r < s->row_count; r++) {
        if (logit_row(s, &s->rows[r]) < 0 && !wants_state(s, &s->rows[r])) continue;
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

/* Folds the state of the last token that is not drafted, of every item that asks for it. */
static void fold_hidden(const struct decoder_state *s, const float *rows)
{
    for (uint32_t i = 0; i < s->run_count; i++) {
        const struct decoder_run *run = &s->runs[i];
        const struct batch_item *item = &s->step->items[run->item];
        size_t last = run->row + run->count - 1 - item->drafted;
        if (item->hidden)
            hidden_fold(rows + last * s->embd_stride, s->model->info.n_embd, item->hidden);
    }
}

static struct latent_rows latent_rows_of(const struct decoder_state *s)
{
    return (struct latent_rows){ .step = s->step,
                                 .layer = s->layer,
                                 .layer_index = s->layer_index,
                                 .rows = s->rows,
                                 .count = s->row_count,
                                 .n = s->norm,
                                 .cos = s->cos,
                                 .sin = s->sin };
}

/* Stores what later tokens need of the rows. */
static void store_rows(struct decoder_state *s)
{
    if (s->latent) {
        const struct latent_rows rows = latent_rows_of(s);
        latent_store(s->latent, &rows);
        return;
    }
    project_kv(s);
    each_row(s, store_kv_unit);
}

static void attend_rows(struct decoder_state *s)
{
    if (s->latent) {
        const struct latent_rows rows = latent_rows_of(s);
        latent_attend(s->latent, &rows, s->attended, s->attended_stride);
        return;
    }
    const struct gemm q = gemm_of(s, &s->layer->q, s->norm, s->embd_stride, s->q, s->q_stride);
    run_gemms(s, &q, 1, NULL);
    add_adapters(s, ADAPTER_Q, s->norm, s->embd_stride, s->q, s->q_stride);
    each_row(s, finish_q_unit);
    workers_run(s->step->workers, s->attend_units, attend_unit, s);
}

static void layer_step(struct decoder_state *s, uint32_t index)
{
    s->layer = &s->decoder->layers[index];
    s->layer_index = index;
    norm_rows(s, s->layer->attn_norm);
    store_rows(s);
    if (index + 1 == s->model->info.n_layers) keep_wanted(s);
    if (s->row_count == 0) return;
    attend_rows(s);
    project_back(s, &s->layer->out, ADAPTER_OUT, s->attended, s->attended_stride,
                 s->layer->out_bias, s->layer->attn_post_norm);
    feed_forward(s);
    if (index + 1 < s->model->info.n_layers && index + 1 == s->step->hidden_layer)
        fold_hidden(s, s->x);
}

static void cap_logits_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct decoder_state *s = arg;
    (void)thread;
    uint32_t n = ceil_div_u32(s->model->info.vocab_size, TILE_ROWS) * TILE_ROWS;
    EACH_ROW_OF_UNIT(s, unit, r)
    {
        s->model->ops->soft_cap(s->logits + r * s->vocab_stride, s->decoder->logit_cap, n);
    }
}

/* Adds the states of the items that want them, in the order of positions, and leaves the rows that end in
 * logits. */
static void take_states(struct decoder_state *s)
{
    uint32_t kept = 0;
    for (uint32_t r = 0; r < s->row_count; r++) {
        const float *state = s->norm + r * s->embd_stride;
        double *sum = s->step->items[s->rows[r].item].state_sum;
        if (wants_state(s, &s->rows[r]))
            for (uint32_t i = 0; i < s->model->info.n_embd; i++)
                sum[i] += (double)state[i];
        if (logit_row(s, &s->rows[r]) < 0) continue;
        if (kept != r)
            memcpy(s->norm + kept * s->embd_stride, state, s->embd_stride * sizeof(float));
        s->rows[kept++] = s->rows[r];
    }
    s->row_count = kept;
}

static void write_logits(struct decoder_state *s)
{
    norm_rows(s, s->decoder->output_norm);
    if (s->step->hidden_layer == s->model->info.n_layers) fold_hidden(s, s->norm);
    take_states(s);
    uint32_t rows = s->row_count;
    for (uint32_t first = 0; first < rows; first += LOGIT_ROWS) {
        s->row_count = min_u32(LOGIT_ROWS, rows - first);
        const struct gemm out = gemm_of(s, &s->decoder->output, s->norm + first * s->embd_stride,
                                        s->embd_stride, s->logits, s->vocab_stride);
        run_gemms(s, &out, 1, NULL);
        if (s->decoder->logit_cap > 0) each_row(s, cap_logits_unit);
        for (uint32_t r = 0; r < s->row_count; r++) {
            const struct decoder_row *row = &s->rows[first + r];
            size_t vocab = s->model->info.vocab_size, at = (size_t)logit_row(s, row);
            memcpy(s->step->items[row->item].logits + at * vocab, s->logits + r * s->vocab_stride,
                   vocab * sizeof(float));
        }
    }
}

void decoder_step(const struct model *model, void *state, const struct arch_step *step)
{
    struct decoder_state *s = state;
    s->step = step;
    begin(s);
    for (uint32_t i = 0; i < model->info.n_layers; i++)
        layer_step(s, i);
    if (s->row_count > 0) write_logits(s);
}
