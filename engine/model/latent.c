/* latent.c - walks through the rows in pieces: the absorbed queries of one are heads times wider than its
 * activations, and a piece of ROWS_AT_ONCE reads the weights seldom enough.
 *
 * What a head's matrix multiplies lies head by head, so that its rows follow each other: they are rounded to
 * int8 once and multiplied in one product. */
#include "engine/model/latent.h"

#include "engine/model/gemm_loop.h"
#include "engine/model/row_loop.h"
#include "engine/model/step_memory.h"

#include <stdlib.h>

#define ROWS_AT_ONCE 64u

struct latent {
    const struct model *model;
    const struct decoder *decoder;
    uint32_t rows_max; /* of a piece */
    float *kv, *low, *q, *plain, *query, *sum;
    size_t embd_stride;           /* of the step's rows */
    size_t kv_stride, low_stride; /* [row]: what Wkv_a and Wq_a make */
    size_t q_stride;              /* [row][head]: queries as the file's matrix makes them */
    size_t plain_stride;          /* [head][row]: their part that is not turned */
    size_t query_stride;          /* [row][head]: absorbed, then the turned part */
    size_t sum_stride;            /* [head][row]: sums of weighted vectors */
    struct q8_super *x_q8;        /* of the products that run */
    struct gemm *gemms;           /* one for each head */
    char *memory;
    size_t memory_bytes;
    /* of the piece that is computed */
    const struct latent_rows *all;
    uint32_t first, row_count;
};

/* Returns the bytes of the memory, and hands it out from `base` on unless that is NULL. */
static size_t lay_out(struct latent *x, char *base)
{
    const struct model_info *info = &x->model->info;
    const struct decoder_latent_shape *s = &x->decoder->latent;
    const size_t rows = x->rows_max, heads = info->n_heads;
    x->embd_stride = activation_stride(info->n_embd);
    x->kv_stride = activation_stride(info->head_dim);
    x->low_stride = activation_stride(s->q_rank);
    x->q_stride = activation_stride(info->n_heads * (s->plain + s->turned));
    x->plain_stride = activation_stride(s->plain);
    x->query_stride = activation_stride(info->n_heads * info->head_dim);
    x->sum_stride = activation_stride(s->kv_rank);
    const struct step_part part[] = {
        { &x->kv, rows * x->kv_stride },       { &x->low, rows * x->low_stride },
        { &x->q, rows * x->q_stride },         { &x->plain, rows * heads * x->plain_stride },
        { &x->query, rows * x->query_stride }, { &x->sum, rows * heads * x->sum_stride },
    };
    size_t used = step_parts_place(part, COUNT_OF(part), base);
    if (base) x->x_q8 = (struct q8_super *)(void *)(base + used);
    const size_t of_row = q8_row_bytes(max_u32(info->n_embd, s->q_rank));
    const size_t of_heads = heads * q8_row_bytes(max_u32(s->plain, s->kv_rank));
    return used + (x->model->ops->q8_types ? rows * max_size(of_row, of_heads) : 0);
}

int latent_new(const struct model *m, uint32_t rows_max, struct latent **ret)
{
    struct latent *x = calloc(1, sizeof *x);
    if (!x) return -ENOMEM;
    x->model = m;
    x->decoder = m->arch_model;
    x->rows_max = min_u32(rows_max, ROWS_AT_ONCE);
    x->gemms = calloc(m->info.n_heads, sizeof *x->gemms);
    x->memory_bytes = lay_out(x, NULL);
    x->memory = step_memory_new(x->memory_bytes);
    if (!x->gemms || !x->memory) {
        latent_free(x);
        return -ENOMEM;
    }
    lay_out(x, x->memory);
    *ret = x;
    return 0;
}

void latent_free(struct latent *x)
{
    if (!x) return;
    if (x->memory) munmap(x->memory, x->memory_bytes);
    free(x->gemms);
    free(x);
}

/* ---- products and rows */

/* Runs `count` products of x->gemms, which read `rows` rows from `from` on. */
static void run(struct latent *x, uint32_t count, const float *from, size_t stride, uint32_t rows)
{
    struct gemm_loop l = { .ops = x->model->ops,
                           .workers = x->all->step->workers,
                           .scratch = x->all->step->scratch,
                           .gemm = x->gemms,
                           .count = count,
                           .x = from,
                           .x_stride = stride,
                           .rows = rows,
                           .x_q8 = x->x_q8,
                           .importance = x->all->step->importance };
    gemm_loop_run(&l);
}

/* to = w from, of all rows of the piece. */
static void product(struct latent *x, const struct weight *w, const float *from, size_t from_stride,
                    float *to, size_t to_stride)
{
    x->gemms[0] = (struct gemm){ .w = w,
                                 .x = from,
                                 .x_stride = from_stride,
                                 .x_q8 = x->x_q8,
                                 .y = to,
                                 .y_stride = to_stride,
                                 .tokens = x->row_count };
    run(x, 1, from, from_stride, x->row_count);
}

/* Multiplies what lies head by head by the matrix of each. A head's result begins `to_head` floats behind
 * that of the head before it. */
static void products_of_heads(struct latent *x, const struct weight *w, const float *from,
                              size_t from_stride, float *to, size_t to_stride, size_t to_head)
{
    const uint32_t heads = x->model->info.n_heads;
    for (uint32_t h = 0; h < heads; h++) {
        const size_t first = (size_t)h * x->row_count;
        x->gemms[h] = (struct gemm){ .w = &w[h],
                                     .x = from + first * from_stride,
                                     .x_stride = from_stride,
                                     .x_q8 = q8_row_at(x->x_q8, w[h].cols, first),
                                     .y = to + h * to_head,
                                     .y_stride = to_stride,
                                     .tokens = x->row_count };
    }
    run(x, heads, from, from_stride, heads * x->row_count);
}

static void each_row(struct latent *x, worker_fn fn)
{
    workers_run(x->all->step->workers, ceil_div_u32(x->row_count, TOKENS_PER_UNIT), fn, x);
}

/* Returns the normalised rows of the piece. */
static const float *input(const struct latent *x)
{
    return x->all->n + x->first * x->embd_stride;
}

static const struct decoder_row *row_at(const struct latent *x, uint32_t r)
{
    return &x->all->rows[x->first + r];
}

/* Turns the last part of `heads` keys or queries of row r. */
static void turn(const struct latent *x, uint32_t r, float *heads, uint32_t count)
{
    const size_t at = (size_t)row_at(x, r)->token * x->decoder->pairs;
    x->model->ops->rope(heads + x->decoder->latent.kv_rank, count, x->model->info.head_dim,
                        x->all->cos + at, x->all->sin + at, x->decoder->pairs);
}

static bool begin_piece(struct latent *x, const struct latent_rows *all, uint32_t first)
{
    if (first >= all->count) return false;
    x->all = all;
    x->first = first;
    x->row_count = min_u32(x->rows_max, all->count - first);
    return true;
}

/* ---- what is stored */

static char *stored_head(const struct latent *x)
{
    const struct kv_store *kv = x->all->step->kv;
    return kv->memory + kv_head_offset(&kv->layout, x->all->layer->kv_place, 0);
}

static void store_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct latent *x = arg;
    (void)thread;
    const struct kv_store *kv = x->all->step->kv;
    const struct ops *ops = x->model->ops;
    EACH_ROW_OF_UNIT(x, unit, r)
    {
        const struct decoder_row *row = row_at(x, r);
        const struct batch_item *item = &x->all->step->items[row->item];
        if (row->position - item->position < item->stored) continue;
        float *c = x->kv + r * x->kv_stride;
        ops->rms_norm(c, x->all->layer->latent.kv_norm, x->decoder->eps, x->decoder->latent.kv_rank,
                      c);
        turn(x, r, c, 1);
        char *block = kv_block_at(&kv->layout, stored_head(x), kv->page_bytes, item->page_table,
                                  row->position / KV_BLOCK);
        ops->kv_put(&kv->layout, c, NULL, row->position % KV_BLOCK, block, NULL);
    }
}

void latent_store(struct latent *x, const struct latent_rows *rows)
{
    for (uint32_t first = 0; begin_piece(x, rows, first); first += x->row_count) {
        product(x, &rows->layer->latent.kv_a, input(x), x->embd_stride, x->kv, x->kv_stride);
        each_row(x, store_unit);
    }
}

/* ---- queries and sums */

static void norm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct latent *x = arg;
    (void)thread;
    EACH_ROW_OF_UNIT(x, unit, r)
    {
        float *low = x->low + r * x->low_stride;
        x->model->ops->rms_norm(low, x->all->layer->latent.q_norm, x->decoder->eps,
                                x->decoder->latent.q_rank, low);
    }
}

/* Parts the queries of each row: what is absorbed, head by head, and what is turned. */
static void part_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct latent *x = arg;
    (void)thread;
    const struct decoder_latent_shape *s = &x->decoder->latent;
    const struct model_info *info = &x->model->info;
    EACH_ROW_OF_UNIT(x, unit, r)
    {
        const float *q = x->q + r * x->q_stride;
        float *query = x->query + r * x->query_stride;
        for (uint32_t h = 0; h < info->n_heads; h++, q += s->plain + s->turned) {
            memcpy(x->plain + ((size_t)h * x->row_count + r) * x->plain_stride, q,
                   s->plain * sizeof *q);
            memcpy(query + (size_t)h * info->head_dim + s->kv_rank, q + s->plain,
                   s->turned * sizeof *q);
        }
        turn(x, r, query, info->n_heads);
    }
}

static void make_queries(struct latent *x)
{
    const struct decoder_layer *layer = x->all->layer;
    const float *from = input(x);
    size_t stride = x->embd_stride;
    if (x->decoder->latent.q_rank > 0) {
        product(x, &layer->latent.q_a, from, stride, x->low, x->low_stride);
        each_row(x, norm_unit);
        from = x->low;
        stride = x->low_stride;
    }
    product(x, &layer->q, from, stride, x->q, x->q_stride);
    each_row(x, part_unit);
    products_of_heads(x, layer->latent.k_b, x->plain, x->plain_stride, x->query, x->query_stride,
                      x->model->info.head_dim);
}

/* Returns how many heads of a row one unit of attention has: about the same in all of them. */
static uint32_t unit_heads(const struct latent *x)
{
    const uint32_t heads = x->model->info.n_heads;
    return ceil_div_u32(heads, ceil_div_u32(heads, x->model->ops->attend_rows));
}

/* Computes some heads of one row. Units are numbered by row, then heads. */
static void attend_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct latent *x = arg;
    const struct kv_store *kv = x->all->step->kv;
    const uint32_t heads = x->model->info.n_heads, at_once = unit_heads(x);
    const uint32_t units = ceil_div_u32(heads, at_once), r = unit / units;
    const uint32_t head = unit % units * at_once;
    const struct attend a = {
        .layout = &kv->layout,
        .head = stored_head(x),
        .page_bytes = kv->page_bytes,
        .page_table = x->all->step->items[row_at(x, r)->item].page_table,
        .q = x->query + r * x->query_stride,
        .out = x->sum + r * x->sum_stride,
        .out_head = x->row_count * x->sum_stride,
        .group = heads,
        .position = row_at(x, r)->position,
        .row_first = head,
        .row_count = min_u32(at_once, heads - head),
        .scale = x->decoder->scale,
    };
    x->model->ops->attend(&a, x->all->step->scratch[thread]);
}

void latent_attend(struct latent *x, const struct latent_rows *rows, float *ret, size_t stride)
{
    const uint32_t units = ceil_div_u32(x->model->info.n_heads, unit_heads(x));
    for (uint32_t first = 0; begin_piece(x, rows, first); first += x->row_count) {
        make_queries(x);
        workers_run(rows->step->workers, x->row_count * units, attend_unit, x);
        products_of_heads(x, rows->layer->latent.v_b, x->sum, x->sum_stride, ret + first * stride,
                          stride, x->decoder->latent.value);
    }
}
