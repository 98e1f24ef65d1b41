/* perf_fit.c - the constants of a piece of hardware by Nelder and Mead's simplex (1965).
 *
 * The measure is the mean relative error, which has corners: a simplex wants no derivative. Four
 * unknowns and a thousand rows take a thousand evaluations, a tenth of a second. Bounds are kept
 * by folding: a step beyond one lands on it. */
#include "cli/plan/perf_fit.h"

#include "base/core/bits.h"
#include "base/perf/roofline.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDS 1000
#define UNKNOWNS_MAX 6
#define SMALL_WEIGHT 0.25
#define SHARE_MIN 0.01

// clang-format off
#define CONSTANT(name_, unit_, max_) { #name_, unit_, offsetof(struct hardware, name_), max_ }
static const struct perf_constant layer[] = {
    CONSTANT(eff_bytes, "", 1), CONSTANT(eff_flops, "", 1), CONSTANT(eff_rows, "", 1),
    CONSTANT(layer_s, "seconds", 1e-3),
};
static const struct perf_constant attention[] = { CONSTANT(eff_attn, "", 1) };
static const struct perf_constant steps[] = {
    CONSTANT(eff_bytes, "", 1), CONSTANT(eff_flops, "", 1), CONSTANT(eff_rows, "", 1),
    CONSTANT(eff_attn, "", 1), CONSTANT(host_s, "seconds", 1e-2),
    CONSTANT(seq_s, "seconds", 1e-2),
};
static const struct perf_constant reduce[] = { CONSTANT(eff_link, "", 1) };
// clang-format on

const struct perf_constant *perf_constants(enum perf_kind kind, uint32_t *ret_count)
{
    static const struct {
        const struct perf_constant *constant;
        uint32_t count;
    } of[PERF_KIND_COUNT] = {
        [PERF_MLP] = { layer, COUNT_OF(layer) },
        [PERF_DENSE] = { layer, COUNT_OF(layer) },
        [PERF_ATTENTION] = { attention, COUNT_OF(attention) },
        [PERF_ALLREDUCE] = { reduce, COUNT_OF(reduce) },
        [PERF_STEPS] = { steps, COUNT_OF(steps) },
    };
    *ret_count = of[kind].count;
    return of[kind].constant;
}

static bool is_part(const struct perf_shape *s, enum perf_part part)
{
    switch (part) {
    case PERF_SMALL:
        return s->prefill_tokens + s->decoding_seqs <= PERF_SMALL_TOKENS;
    case PERF_DECODE:
        return s->prefill_tokens == 0;
    case PERF_PREFILL:
        return s->decoding_seqs == 0;
    case PERF_MIXED:
        return s->prefill_tokens > 0 && s->decoding_seqs > 0;
    case PERF_ALL:
    case PERF_PART_COUNT:
        break;
    }
    return true;
}

static double predict(const struct roofline *r, enum perf_kind kind, const struct perf_shape *s)
{
    if (kind == PERF_ATTENTION) return roofline_attention_s(r, s);
    if (kind == PERF_ALLREDUCE) return roofline_reduce_s(r, s->prefill_tokens);
    if (kind == PERF_STEPS) return roofline_step_s(r, s);
    return roofline_layer_s(r, s->prefill_tokens);
}

static int make_rooflines(const struct perf_table *t, const struct hardware *h,
                          struct roofline r[PERF_GROUPS_MAX], struct err *err)
{
    for (uint32_t i = 0; i < t->group_count; i++) {
        if (roofline_init(&r[i], h, &t->group[i].model, t->group[i].tp)) continue;
        return err_set(err, -EINVAL, "%s: layers are not shared by %u of it", h->name,
                       t->group[i].tp);
    }
    return 0;
}

/* The mean relative error alone, as the search wants it. */
static double mean_error(const struct perf_table *t, const struct roofline *r, enum perf_part part)
{
    double sum = 0, count = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct perf_sample *s = &t->sample[i];
        if (!is_part(&s->shape, part)) continue;
        sum += fabs(predict(&r[s->group], t->kind, &s->shape) / s->seconds - 1);
        count += 1;
    }
    return count > 0 ? sum / count : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int perf_error_of(const struct perf_table *t, const struct hardware *h, enum perf_part part,
                  uint32_t tp, struct perf_error *ret, struct err *err)
{
    *ret = (struct perf_error){ 0 };
    struct roofline r[PERF_GROUPS_MAX];
    int rc = make_rooflines(t, h, r, err);
    if (rc < 0) return rc;
    double *off = calloc(t->count, sizeof *off), sum = 0;
    if (!off) return err_set(err, -ENOMEM, "no memory for the errors");
    for (uint32_t i = 0; i < t->count; i++) {
        const struct perf_sample *s = &t->sample[i];
        if ((tp && t->group[s->group].tp != tp) || !is_part(&s->shape, part)) continue;
        off[ret->count] = fabs(predict(&r[s->group], t->kind, &s->shape) / s->seconds - 1);
        sum += off[ret->count++];
    }
    if (ret->count > 0) {
        qsort(off, ret->count, sizeof *off, by_size);
        ret->mape = sum / ret->count;
        ret->p90 = off[(uint64_t)ret->count * 9 / 10];
    }
    free(off);
    return 0;
}

/* ---- the search ------------------------------------------------------------------------------ */

struct search {
    const struct perf_table *table;
    const struct perf_constant *constant;
    uint32_t count;
    struct hardware hardware;
};

static double *slot(struct hardware *h, const struct perf_constant *c)
{
    return (double *)(void *)((char *)h + c->offset);
}

static double *at_bounds(const struct search *s, double x[UNKNOWNS_MAX])
{
    for (uint32_t i = 0; i < s->count; i++) {
        double least = s->constant[i].max == 1 ? SHARE_MIN : 0;
        x[i] = fmin(fmax(x[i], least), s->constant[i].max);
    }
    return x;
}

static double cost(struct search *s, double x[UNKNOWNS_MAX])
{
    at_bounds(s, x);
    for (uint32_t i = 0; i < s->count; i++)
        *slot(&s->hardware, &s->constant[i]) = x[i];
    struct roofline r[PERF_GROUPS_MAX];
    if (make_rooflines(s->table, &s->hardware, r, NULL) < 0) return (double)INFINITY;
    double e = mean_error(s->table, r, PERF_ALL);
    bool layers = s->table->kind == PERF_MLP || s->table->kind == PERF_DENSE;
    return layers ? e + SMALL_WEIGHT * mean_error(s->table, r, PERF_SMALL) : e;
}

struct vertex {
    double x[UNKNOWNS_MAX], cost;
};

static void sort_vertices(struct vertex *v, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct vertex moved = v[i];
        uint32_t j = i;
        for (; j > 0 && v[j - 1].cost > moved.cost; j--)
            v[j] = v[j - 1];
        v[j] = moved;
    }
}

/* The point at `step` times the way from the worst vertex through the centre of the others. */
static struct vertex through_centre(struct search *s, const struct vertex *v, double step)
{
    struct vertex ret = { 0 };
    for (uint32_t i = 0; i < s->count; i++) {
        double centre = 0;
        for (uint32_t k = 0; k < s->count; k++)
            centre += v[k].x[i] / s->count;
        ret.x[i] = v[s->count].x[i] + step * (centre - v[s->count].x[i]);
    }
    ret.cost = cost(s, ret.x);
    return ret;
}

static void shrink(struct search *s, struct vertex *v)
{
    for (uint32_t k = 1; k <= s->count; k++) {
        for (uint32_t i = 0; i < s->count; i++)
            v[k].x[i] = (v[0].x[i] + v[k].x[i]) / 2;
        v[k].cost = cost(s, v[k].x);
    }
}

static void improve(struct search *s, struct vertex *v)
{
    uint32_t worst = s->count;
    struct vertex mirrored = through_centre(s, v, 2);
    if (mirrored.cost < v[0].cost) {
        struct vertex further = through_centre(s, v, 3);
        v[worst] = further.cost < mirrored.cost ? further : mirrored;
    } else if (mirrored.cost < v[worst - 1].cost || (worst == 1 && mirrored.cost < v[1].cost)) {
        v[worst] = mirrored;
    } else {
        struct vertex nearer = through_centre(s, v, 0.5);
        if (nearer.cost < v[worst].cost) {
            v[worst] = nearer;
        } else {
            shrink(s, v);
        }
    }
    sort_vertices(v, s->count + 1);
}

int perf_fit(const struct perf_table *t, struct hardware *h, struct err *err)
{
    struct search s = { .table = t, .hardware = *h };
    struct roofline r[PERF_GROUPS_MAX];
    s.constant = perf_constants(t->kind, &s.count);
    must(s.count <= UNKNOWNS_MAX);
    if (t->count < s.count)
        return err_set(err, -EINVAL, "%u rows cannot tell %u constants apart: measure more",
                       t->count, s.count);
    int rc = make_rooflines(t, h, r, err);
    if (rc < 0) return rc;
    struct vertex v[UNKNOWNS_MAX + 1] = { 0 };
    for (uint32_t k = 0; k <= s.count; k++) {
        for (uint32_t i = 0; i < s.count; i++) {
            double start = fmax(*slot(h, &s.constant[i]), 0.01 * s.constant[i].max);
            /* Away from the bound, or the simplex would be flat. */
            v[k].x[i] = i + 1 == k ? start * (start > 0.8 * s.constant[i].max ? 0.8 : 1.2) : start;
        }
        v[k].cost = cost(&s, v[k].x);
    }
    sort_vertices(v, s.count + 1);
    for (uint32_t round = 0; round < ROUNDS; round++)
        improve(&s, v);
    for (uint32_t i = 0; i < s.count; i++)
        *slot(h, &s.constant[i]) = v[0].x[i];
    return 0;
}
