/* role.c - what the role policies share, and their table. */
#include "policies/role/role.h"

#include "base/core/bits.h"
#include "base/core/err.h"

#include <stdlib.h>

#define AGAIN_US 10000000 /* where nothing is known to decide by */
#define ALIKE 1.05        /* speeds that were learned differ by so much between like machines */

const struct role_policy *const role_table[] = {
#define POLICY(name) &role_##name,
#include "policies/role/role.def"
#undef POLICY
};
const uint32_t role_count = COUNT_OF(role_table);

const struct role_policy *role_find(struct str name)
{
    for (uint32_t i = 0; i < role_count; i++) {
        if (str_eq(str_from(role_table[i]->name), name)) return role_table[i];
    }
    return NULL;
}

/* Of those that are ready. */
static bool has_both_phases(const struct role_view *view, const enum role *role,
                            enum role *ret_only)
{
    uint32_t of[ROLE_COUNT] = { 0 };
    for (uint32_t i = 0; i < view->instance_count; i++)
        if (view->instance[i].ready) of[role[i]]++;
    *ret_only = of[ROLE_PREFILL] ? ROLE_PREFILL : ROLE_DECODE;
    return of[ROLE_BOTH] > 0 || !of[ROLE_PREFILL] == !of[ROLE_DECODE];
}

/* Rule 1. */
static void see_to_both(const struct role_view *view, struct role_verdict *ret)
{
    enum role only;
    if (has_both_phases(view, ret->role, &only)) return;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct role_instance *in = &view->instance[i];
        if (in->ready && !in->changing && ret->role[i] == only) ret->role[i] = ROLE_BOTH;
    }
    role_answer(view, "whole requests: nobody is left for the other phase", ret->again_us, ret);
}

void role_decide(const struct role_policy *p, void *state, const struct role_view *view,
                 int64_t now_us, struct rng *rng, struct role_verdict *ret)
{
    p->decide(state, view, now_us, rng, ret);
    see_to_both(view, ret);
}

void role_hold(const struct role_view *view, const char *reason, int64_t now_us,
               struct role_verdict *ret)
{
    role_keep(view, reason, now_us, ret);
    see_to_both(view, ret);
}

bool role_known(const struct role_view *view)
{
    const struct role_demand *d = &view->demand;
    if (!d->present || !(d->prompt_mean >= 1) || !(d->output_mean >= 1)) return false;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (view->instance[i].ready && view->instance[i].has_perf) return true;
    }
    return false;
}

void role_keep(const struct role_view *view, const char *reason, int64_t now_us,
               struct role_verdict *ret)
{
    for (uint32_t i = 0; i < view->instance_count; i++)
        ret->role[i] = view->instance[i].role;
    ret->changes = 0;
    ret->goodput_rps = ret->runner_up_rps = -1;
    ret->reason = reason;
    ret->again_us = now_us + AGAIN_US;
}

static double aptitude(const struct role_view *view, const struct role_instance *in)
{
    const struct role_demand *d = &view->demand;
    double prompt_s =
        in->perf.prefill_token_s * d->prompt_mean + in->perf.attend_s * d->prompt_m2 / 2;
    double token_s = in->perf.step_s + in->perf.decode_seq_s +
                     in->perf.kv_read_s * (d->prompt_mean + d->output_mean / 2);
    return token_s * d->output_mean / (prompt_s > 0 ? prompt_s : 1e-12);
}

/* One that may change. */
struct candidate {
    double aptitude;
    uint32_t class; /* of like ones, the aptest is 0 */
    uint32_t rank;  /* by its role: prefill 0, both 1, decode 2 */
    uint32_t id, at;
};

static int by_aptitude(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->aptitude > y->aptitude || x->aptitude < y->aptitude)
        return x->aptitude > y->aptitude ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_class(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

uint32_t role_order(const struct role_view *view, uint32_t ret[ROLE_INSTANCES_MAX])
{
    static const uint32_t rank[ROLE_COUNT] = {
        [ROLE_PREFILL] = 0, [ROLE_BOTH] = 1, [ROLE_DECODE] = 2
    };
    struct candidate list[ROLE_INSTANCES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct role_instance *in = &view->instance[i];
        if (!role_is_free(in) || !in->has_perf) continue;
        list[count++] = (struct candidate){ aptitude(view, in), 0, rank[in->role], in->id, i };
    }
    qsort(list, count, sizeof *list, by_aptitude);
    double first = count ? list[0].aptitude : 0; /* of its class */
    for (uint32_t i = 1; i < count; i++) {
        bool alike = list[i].aptitude * ALIKE >= first;
        list[i].class = list[i - 1].class + !alike;
        if (!alike) first = list[i].aptitude;
    }
    qsort(list, count, sizeof *list, by_class);
    for (uint32_t i = 0; i < count; i++)
        ret[i] = list[i].at;
    return count;
}

void role_assign(const struct role_view *view, const uint32_t *order, uint32_t count,
                 uint32_t prefill, uint32_t decode, enum role ret[ROLE_INSTANCES_MAX])
{
    for (uint32_t i = 0; i < view->instance_count; i++)
        ret[i] = view->instance[i].role;
    for (uint32_t i = 0; i < count; i++) {
        /* Both kinds from the ends: the aptest for each. */
        ret[order[i]] = i < prefill ? ROLE_PREFILL : i >= count - decode ? ROLE_DECODE : ROLE_BOTH;
    }
}

void role_answer(const struct role_view *view, const char *reason, int64_t again_us,
                 struct role_verdict *ret)
{
    ret->changes = 0;
    for (uint32_t i = 0; i < view->instance_count; i++)
        ret->changes += ret->role[i] != view->instance[i].role;
    ret->goodput_rps = view->evaluator->goodput_rps(view->evaluator->ctx, view, ret->role);
    ret->runner_up_rps = -1;
    ret->reason = reason;
    ret->again_us = again_us;
}

/* One look. */

void role_look(struct role_look *l, const struct role_view *view, int64_t now_us,
               struct role_verdict *ret)
{
    must(l->row->state_size <= sizeof l->state);
    role_decide(l->row, l->state, view, now_us, &l->rng, ret);
    l->again_us = max_i64(ret->again_us, now_us + ROLE_LOOK_US_MIN);
}
