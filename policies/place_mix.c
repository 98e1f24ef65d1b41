/* place_mix.c - profiles, loads and verdicts: what the rows that choose a mix share. */
#include "policies/place_mix.h"

#include <math.h>

void place_mix_profile(const struct place_mix *m, struct place_mix_work *work)
{
    for (uint32_t b = 0; b < m->bucket_count; b++)
        for (uint32_t t = 0; t < m->type_count; t++) {
            struct place_score score = { 0 };
            if (m->type[t].max > 0) m->eval(m->ctx, t, &m->bucket[b], &score);
            work->rate[b][t] = score.rate_s;
        }
}

void place_mix_problem(const struct place_mix *m, uint32_t slices, double scale,
                       const double fill[PLACE_TYPES_MAX], struct place_mix_work *work)
{
    struct solver_problem *p = &work->problem;
    *p = (struct solver_problem){ .types = m->type_count, .groups = m->bucket_count };
    for (uint32_t t = 0; t < m->type_count; t++) {
        p->price[t] = m->type[t].price_h;
        p->max[t] = m->type[t].max;
    }
    for (uint32_t b = 0; b < m->bucket_count; b++) {
        p->count[b] = m->bucket[b].rate_s > 0 ? slices : 0;
        for (uint32_t t = 0; t < m->type_count; t++) {
            double can = work->rate[b][t] * fill[t];
            p->load[b][t] =
                can > 0 ? scale * m->bucket[b].rate_s / (slices * can) : (double)INFINITY;
        }
    }
}

const char *place_mix_lack(const struct place_mix *m, const struct place_mix_work *work)
{
    for (uint32_t b = 0; b < m->bucket_count; b++) {
        bool some = m->bucket[b].rate_s <= 0;
        for (uint32_t t = 0; t < m->type_count && !some; t++)
            some = work->rate[b][t] > 0;
        if (!some) return "no type serves the work in time";
    }
    return "it takes more instances of these types than can be asked for";
}

void place_mix_verdict_of(const struct place_mix *m, const struct place_mix_work *work,
                          struct place_mix_verdict *ret)
{
    const struct solver_answer *a = &work->answer;
    *ret = (struct place_mix_verdict){ .found = a->found,
                                       .optimal = a->optimal,
                                       .served = a->found ? 1 : 0,
                                       .why = place_mix_lack(m, work) };
    if (!a->found) return;
    ret->why = a->optimal ? "proven cheapest" : "the cheapest found within the node limit";
    for (uint32_t t = 0; t < m->type_count; t++) {
        ret->count[t] = a->count[t];
        ret->cost_h += a->count[t] * m->type[t].price_h;
        for (uint32_t b = 0; b < m->bucket_count; b++)
            if (work->problem.count[b])
                ret->share[b][t] = (double)a->on[b][t] / work->problem.count[b];
    }
}
