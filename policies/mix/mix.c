/* mix.c - the table of mix policies; profiles, the solver's problem and verdicts, which they
 * share. */
#include "policies/mix/mix.h"

#include "base/core/bits.h"

#include <math.h>

const struct mix_policy *const mix_table[] = {
#define POLICY(name) &mix_##name,
#include "policies/mix/mix.def"
#undef POLICY
};
const uint32_t mix_count = COUNT_OF(mix_table);

const struct mix_policy *mix_find(struct str name)
{
    for (uint32_t i = 0; i < mix_count; i++)
        if (str_eq(name, str_from(mix_table[i]->name))) return mix_table[i];
    return NULL;
}

void mix_profile(const struct mix_problem *m, struct mix_memory *memory)
{
    for (uint32_t b = 0; b < m->bucket_count; b++)
        for (uint32_t t = 0; t < m->type_count; t++) {
            struct mix_score score = { 0 };
            if (m->type[t].max > 0) m->eval(m->ctx, t, &m->bucket[b], &score);
            memory->rate[b][t] = score.rate_s;
        }
}

void mix_program(const struct mix_problem *m, uint32_t slices, double scale,
                 const double fill[MIX_TYPES_MAX], struct mix_memory *memory)
{
    struct solver_problem *p = &memory->problem;
    *p = (struct solver_problem){ .types = m->type_count, .groups = m->bucket_count };
    for (uint32_t t = 0; t < m->type_count; t++) {
        p->price[t] = m->type[t].price_h;
        p->max[t] = m->type[t].max;
    }
    for (uint32_t b = 0; b < m->bucket_count; b++) {
        p->count[b] = m->bucket[b].rate_s > 0 ? slices : 0;
        for (uint32_t t = 0; t < m->type_count; t++) {
            double can = memory->rate[b][t] * fill[t];
            p->load[b][t] =
                can > 0 ? scale * m->bucket[b].rate_s / (slices * can) : (double)INFINITY;
        }
    }
}

const char *mix_lack(const struct mix_problem *m, const struct mix_memory *memory)
{
    for (uint32_t b = 0; b < m->bucket_count; b++) {
        bool some = m->bucket[b].rate_s <= 0;
        for (uint32_t t = 0; t < m->type_count && !some; t++)
            some = memory->rate[b][t] > 0;
        if (!some) return "no type serves the work in time";
    }
    return "it takes more instances of these types than can be asked for";
}

void mix_verdict_of(const struct mix_problem *m, const struct mix_memory *memory,
                    struct mix_verdict *ret)
{
    const struct solver_answer *a = &memory->answer;
    *ret = (struct mix_verdict){ .found = a->found,
                                 .optimal = a->optimal,
                                 .served = a->found ? 1 : 0,
                                 .why = mix_lack(m, memory) };
    if (!a->found) return;
    ret->why = a->optimal ? "proven cheapest" : "the cheapest found within the node limit";
    for (uint32_t t = 0; t < m->type_count; t++) {
        ret->count[t] = a->count[t];
        ret->cost_h += a->count[t] * m->type[t].price_h;
        for (uint32_t b = 0; b < m->bucket_count; b++)
            if (memory->problem.count[b])
                ret->share[b][t] = (double)a->on[b][t] / memory->problem.count[b];
    }
}
