/* experts.c - sorts the choices of some rows by expert, so that each expert's weights are read once.
 *
 *     row, choice --sort by expert--> place      x[place] = n[row]
 *     one product an expert over its places      y[row]  += weight * x[place]
 *
 * Rows go in groups of ROWS_AT_ONCE: that bounds the memory, and a prefill still reads the weights
 * seldom. */
#include "engine/model/experts.h"

#include "engine/model/gemm_loop.h"
#include "engine/model/step_memory.h"

#include <math.h>
#include <stdlib.h>

#define ROWS_AT_ONCE 256u
#define ROWS_PER_UNIT 8u
#define SUM_LEAST 1e-20 /* sigmoids may all be 0; as DeepSeek has it */

struct choice {
    uint32_t expert, place;
    float weight;
};

struct experts {
    const struct model *model;
    const struct decoder *decoder;
    uint32_t rows_max; /* of a group */
    float *scores, *x, *gate, *up;
    struct q8_super *x_q8; /* of the products that run, by place */
    size_t score_stride, embd_stride, ff_stride;
    struct choice *choices; /* [row][used], by descending score */
    uint32_t *firsts;       /* [expert + 1]: places of an expert */
    uint32_t *expert_of;    /* [place] */
    struct gemm *gemms;
    char *memory;
    size_t memory_bytes;
    /* of the group that is computed */
    const struct arch_step *step;
    const struct decoder_experts *e;
    const float *n;
    float *y;
    uint32_t rows;
};

/* Returns the bytes of the memory, and hands it out from `base` on unless that is NULL. */
static size_t lay_out(struct experts *x, char *base)
{
    const struct model_info *info = &x->model->info;
    size_t places = (size_t)x->rows_max * x->decoder->experts_used;
    x->score_stride = activation_stride(x->decoder->n_experts);
    x->embd_stride = activation_stride(info->n_embd);
    x->ff_stride = activation_stride(x->decoder->expert_ff);
    const struct step_part part[] = {
        { &x->scores, x->rows_max * x->score_stride },
        { &x->x, places * x->embd_stride },
        { &x->gate, places * x->ff_stride },
        { &x->up, places * x->ff_stride },
    };
    size_t used = step_parts_place(part, COUNT_OF(part), base);
    if (base) x->x_q8 = (struct q8_super *)(void *)(base + used);
    size_t row = q8_row_bytes(max_u32(info->n_embd, x->decoder->expert_ff));
    return used + (x->model->ops->q8_types ? places * row : 0);
}

int experts_new(const struct model *m, uint32_t rows_max, struct experts **ret)
{
    const struct decoder *d = m->arch_model;
    struct experts *x = calloc(1, sizeof *x);
    if (!x) return -ENOMEM;
    x->model = m;
    x->decoder = d;
    x->rows_max = min_u32(rows_max, ROWS_AT_ONCE);
    size_t places = (size_t)x->rows_max * d->experts_used;
    x->choices = calloc(places, sizeof *x->choices);
    x->expert_of = calloc(places, sizeof *x->expert_of);
    x->firsts = calloc(d->n_experts + 1, sizeof *x->firsts);
    x->gemms = calloc(2 * (size_t)d->n_experts, sizeof *x->gemms);
    x->memory_bytes = lay_out(x, NULL);
    x->memory = step_memory_new(x->memory_bytes);
    if (!x->choices || !x->expert_of || !x->firsts || !x->gemms || !x->memory) {
        experts_free(x);
        return -ENOMEM;
    }
    lay_out(x, x->memory);
    *ret = x;
    return 0;
}

void experts_free(struct experts *x)
{
    if (!x) return;
    if (x->memory) munmap(x->memory, x->memory_bytes);
    free(x->choices);
    free(x->expert_of);
    free(x->firsts);
    free(x->gemms);
    free(x);
}

/* ---- choosing */

static double sigmoid(float x)
{
    return 1 / (1 + exp(-(double)x));
}

/* Returns by what a group is chosen: its largest rank, or the sum of the largest two. */
static float rank_of_group(const float *ranks, uint32_t count, bool of_two)
{
    float first = -HUGE_VALF, second = -HUGE_VALF;
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] > first)
            second = first, first = ranks[i];
        else if (ranks[i] > second)
            second = ranks[i];
    }
    return of_two ? first + second : first;
}

/* Lowers the ranks of experts whose groups are not among the best. */
static void choose_groups(const struct decoder *d, float *ranks)
{
    const struct decoder_router *r = &d->router;
    const uint32_t each = d->n_experts / r->groups;
    float group[DECODER_EXPERTS_MAX];
    for (uint32_t g = 0; g < r->groups; g++)
        group[g] = rank_of_group(ranks + (size_t)g * each, each, r->sigmoid);
    for (uint32_t g = 0; g < r->groups; g++) {
        uint32_t better = 0;
        for (uint32_t i = 0; i < r->groups; i++)
            better += group[i] > group[g] || (i < g && !(group[g] > group[i]));
        for (uint32_t e = 0; better >= r->groups_used && e < each; e++)
            ranks[(size_t)g * each + e] = -HUGE_VALF;
    }
}

/* Writes what the experts of a row are chosen by. */
static void rank(const struct experts *x, const float *scores, float ranks[DECODER_EXPERTS_MAX])
{
    const struct decoder *d = x->decoder;
    const float *bias = x->e->choice_bias;
    for (uint32_t i = 0; i < d->n_experts; i++) {
        ranks[i] = d->router.sigmoid ? (float)sigmoid(scores[i]) : scores[i];
        if (bias) ranks[i] += bias[i];
    }
    if (d->router.groups > 1) choose_groups(d, ranks);
}

/* Writes the weights of the chosen experts. */
static void weigh(const struct experts *x, const float *scores, struct choice *ret)
{
    const struct decoder_router *r = &x->decoder->router;
    const uint32_t used = x->decoder->experts_used;
    double weights[DECODER_EXPERTS_USED_MAX], sum = 0, top = (double)scores[ret[0].expert];
    for (uint32_t i = 0; i < used; i++) {
        const float score = scores[ret[i].expert];
        weights[i] = r->sigmoid ? sigmoid(score) : exp((double)score - top);
        sum += weights[i];
    }
    if (r->sigmoid) sum += SUM_LEAST;
    if (r->plain) sum = r->sigmoid ? 1 : 0;
    for (uint32_t i = 0; r->plain && !r->sigmoid && i < x->decoder->n_experts; i++)
        sum += exp((double)scores[i] - top);
    for (uint32_t i = 0; i < used; i++)
        ret[i].weight = (float)(weights[i] / sum * (r->scale > 0 ? (double)r->scale : 1));
}

/* Chooses the experts of a row, by descending rank. */
static void choose(const struct experts *x, const float *scores, struct choice *ret)
{
    uint32_t used = x->decoder->experts_used, count = 0;
    float ranks[DECODER_EXPERTS_MAX];
    rank(x, scores, ranks);
    for (uint32_t i = 0; i < x->decoder->n_experts; i++) {
        uint32_t at = count;
        while (at > 0 && ranks[i] > ranks[ret[at - 1].expert])
            at--;
        if (at == used) continue;
        if (count < used) count++;
        for (uint32_t j = count - 1; j > at; j--)
            ret[j] = ret[j - 1];
        ret[at].expert = i;
    }
    weigh(x, scores, ret);
}

static void choose_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct experts *x = arg;
    (void)thread;
    uint32_t end = min_u32((unit + 1) * ROWS_PER_UNIT, x->rows);
    for (uint32_t r = unit * ROWS_PER_UNIT; r < end; r++) {
        float *scores = x->scores + r * x->score_stride;
        for (uint32_t i = 0; x->e->router_bias && i < x->decoder->n_experts; i++)
            scores[i] += x->e->router_bias[i];
        choose(x, scores, x->choices + (size_t)r * x->decoder->experts_used);
    }
}

/* Gives every choice a place: those of one expert are neighbours. */
static void place_choices(struct experts *x)
{
    uint32_t experts = x->decoder->n_experts, count = x->rows * x->decoder->experts_used;
    memset(x->firsts, 0, (experts + 1) * sizeof *x->firsts);
    for (uint32_t i = 0; i < count; i++)
        x->firsts[x->choices[i].expert + 1]++;
    for (uint32_t e = 0; e < experts; e++)
        x->firsts[e + 1] += x->firsts[e];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *next = &x->firsts[x->choices[i].expert];
        x->expert_of[*next] = x->choices[i].expert;
        x->choices[i].place = (*next)++;
    }
    for (uint32_t e = experts; e > 0; e--) /* each now is the end of its own */
        x->firsts[e] = x->firsts[e - 1];
    x->firsts[0] = 0;
}

/* ---- computing */

/* Returns a loop over products of these rows. */
static struct gemm_loop loop_of(const struct experts *x, const float *from, size_t stride,
                                uint32_t rows)
{
    return (struct gemm_loop){ .ops = x->model->ops,
                               .workers = x->step->workers,
                               .scratch = x->step->scratch,
                               .gemm = x->gemms,
                               .x = from,
                               .x_stride = stride,
                               .rows = rows,
                               .x_q8 = x->x_q8,
                               .importance = x->step->importance };
}

static void add_gemm(struct experts *x, struct gemm_loop *l, uint32_t expert,
                     const struct weight *w, const float *from, size_t from_stride, float *to,
                     size_t to_stride)
{
    size_t first = x->firsts[expert];
    x->gemms[l->count++] = (struct gemm){ .w = w,
                                          .x = from + first * from_stride,
                                          .x_stride = from_stride,
                                          .x_q8 = q8_row_at(x->x_q8, w->cols, first),
                                          .y = to + first * to_stride,
                                          .y_stride = to_stride,
                                          .tokens = x->firsts[expert + 1] - x->firsts[expert] };
}

static void gather_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct experts *x = arg;
    (void)thread;
    uint32_t used = x->decoder->experts_used, end = min_u32((unit + 1) * ROWS_PER_UNIT, x->rows);
    for (uint32_t r = unit * ROWS_PER_UNIT; r < end; r++)
        for (uint32_t i = 0; i < used; i++)
            memcpy(x->x + x->choices[(size_t)r * used + i].place * x->embd_stride,
                   x->n + r * x->embd_stride, x->model->info.n_embd * sizeof *x->x);
}

static void add_bias(float *y, const float *biases, uint32_t expert, uint32_t n)
{
    for (uint32_t i = 0; biases && i < n; i++)
        y[i] += biases[(size_t)expert * n + i];
}

static void gate_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct experts *x = arg;
    (void)thread;
    const struct ops *ops = x->model->ops;
    uint32_t n = x->decoder->expert_ff;
    uint32_t end = min_u32((unit + 1) * ROWS_PER_UNIT, x->rows * x->decoder->experts_used);
    for (uint32_t p = unit * ROWS_PER_UNIT; p < end; p++) {
        float *gate = x->gate + p * x->ff_stride, *up = x->up + p * x->ff_stride;
        add_bias(gate, x->e->gate_bias, x->expert_of[p], n);
        add_bias(up, x->e->up_bias, x->expert_of[p], n);
        decoder_gate(x->decoder, ops)(gate, up, ceil_div_u32(n, TILE_ROWS) * TILE_ROWS);
    }
}

static void sum_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct experts *x = arg;
    (void)thread;
    uint32_t used = x->decoder->experts_used, n = x->model->info.n_embd;
    uint32_t end = min_u32((unit + 1) * ROWS_PER_UNIT, x->rows);
    for (uint32_t r = unit * ROWS_PER_UNIT; r < end; r++) {
        float *y = x->y + r * x->embd_stride;
        memset(y, 0, n * sizeof *y);
        for (uint32_t i = 0; i < used; i++) {
            const struct choice *c = &x->choices[(size_t)r * used + i];
            float *from = x->x + c->place * x->embd_stride;
            add_bias(from, x->e->down_bias, c->expert, n);
            for (uint32_t k = 0; k < n; k++)
                y[k] += c->weight * from[k];
        }
    }
}

static void run_group(struct experts *x)
{
    struct workers *workers = x->step->workers;
    uint32_t units = ceil_div_u32(x->rows, ROWS_PER_UNIT);
    uint32_t places = x->rows * x->decoder->experts_used;
    struct gemm_loop router = loop_of(x, x->n, x->embd_stride, x->rows);
    struct gemm_loop in = loop_of(x, x->x, x->embd_stride, places);
    struct gemm_loop out = loop_of(x, x->gate, x->ff_stride, places);
    x->gemms[router.count++] = (struct gemm){ .w = &x->e->router,
                                              .x = x->n,
                                              .x_stride = x->embd_stride,
                                              .x_q8 = x->x_q8,
                                              .y = x->scores,
                                              .y_stride = x->score_stride,
                                              .tokens = x->rows };
    gemm_loop_run(&router);
    workers_run(workers, units, choose_unit, x);
    place_choices(x);
    workers_run(workers, units, gather_unit, x);
    for (uint32_t e = 0; e < x->decoder->n_experts; e++) {
        if (x->firsts[e] == x->firsts[e + 1]) continue;
        add_gemm(x, &in, e, &x->e->gate[e], x->x, x->embd_stride, x->gate, x->ff_stride);
        add_gemm(x, &in, e, &x->e->up[e], x->x, x->embd_stride, x->up, x->ff_stride);
    }
    gemm_loop_run(&in);
    workers_run(workers, ceil_div_u32(places, ROWS_PER_UNIT), gate_unit, x);
    for (uint32_t e = 0; e < x->decoder->n_experts; e++)
        if (x->firsts[e] < x->firsts[e + 1])
            add_gemm(x, &out, e, &x->e->down[e], x->gate, x->ff_stride, x->x, x->embd_stride);
    gemm_loop_run(&out);
    workers_run(workers, units, sum_unit, x);
}

void experts_run(struct experts *x, const struct arch_step *step, const struct decoder_experts *e,
                 const float *n, float *y, uint32_t rows)
{
    x->step = step;
    x->e = e;
    for (uint32_t first = 0; first < rows; first += x->rows_max) {
        x->rows = min_u32(x->rows_max, rows - first);
        x->n = n + first * x->embd_stride;
        x->y = y + first * x->embd_stride;
        run_group(x);
    }
}
