/* role.c - what the role rows share, and their table. */
#include "policies/role.h"

#include "base/core/bits.h"

#include <string.h>

const char *const role_names[ROLE_COUNT] = {
    [ROLE_BOTH] = "both",
    [ROLE_PREFILL] = "prefill",
    [ROLE_DECODE] = "decode",
};

extern const struct role_policy role_colocated, role_planner, role_distserve, role_splitwise,
    role_dynamo_pd, role_thunderserve, role_pd_serve;

const struct role_policy *const role_table[] = {
    &role_planner,   &role_colocated,    &role_distserve, &role_splitwise,
    &role_dynamo_pd, &role_thunderserve, &role_pd_serve,
};
const uint32_t role_count = COUNT_OF(role_table);

const struct role_policy *role_find(struct str name)
{
    for (uint32_t i = 0; i < role_count; i++) {
        if (str_eq(str_from(role_table[i]->name), name)) return role_table[i];
    }
    return NULL;
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
    ret->again_us = now_us + 10000000;
}

static double aptitude(const struct role_view *view, const struct role_instance *in)
{
    const struct role_demand *d = &view->demand;
    double prompt_s = in->perf.b * d->prompt_mean + in->perf.e * d->prompt_m2 / 2;
    double token_s = in->perf.a + in->perf.c + in->perf.d * (d->prompt_mean + d->output_mean / 2);
    return token_s * d->output_mean / (prompt_s > 0 ? prompt_s : 1e-12);
}

static bool goes_first(const struct role_view *view, uint32_t a, uint32_t b)
{
    double x = aptitude(view, &view->instance[a]), y = aptitude(view, &view->instance[b]);
    /* Speeds that were learned differ by noise between like machines. */
    if (x > y * 1.05 || y > x * 1.05) return x > y;
    bool is_a = view->instance[a].role == ROLE_PREFILL,
         is_b = view->instance[b].role == ROLE_PREFILL;
    if (is_a != is_b) return is_a;
    bool no_a = view->instance[a].role == ROLE_DECODE, no_b = view->instance[b].role == ROLE_DECODE;
    if (no_a != no_b) return no_b;
    return view->instance[a].id < view->instance[b].id;
}

uint32_t role_order(const struct role_view *view, uint32_t ret[ROLE_INSTANCES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct role_instance *in = &view->instance[i];
        if (!in->ready || in->changing || !in->has_perf) continue;
        uint32_t at = count++;
        for (; at > 0 && goes_first(view, i, ret[at - 1]); at--)
            ret[at] = ret[at - 1];
        ret[at] = i;
    }
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
