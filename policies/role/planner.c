/* planner.c - serve whole requests unless the evaluator predicts clearly more goodput from a split.
 *
 *     goodput(best of all splits)  >  1.05 goodput(colocated)
 *
 * Prefill/decode disaggregation is an outcome here, not a setting: it pays where the TPOT is tight
 * and the link is fast, and loses where neither holds, because a split fleet idles on one side. Roles
 * stay as they are until another choice predicts 5 % more, so that they do not follow the noise of
 * demand. Partly split fleets are not tried: they need a router that gives each part a load it can
 * take.
 */
#include "policies/role/role.h"

#define GAIN_MIN 1.05 /* below it the model is not sure enough to change roles */
#define AGAIN_US 30000000
#define GRID_MAX 64 /* splits that are tried in a larger fleet */

struct best {
    uint32_t prefill, decode;
    double rps, second_rps;
};

static void offer(const struct role_view *view, const uint32_t *order, uint32_t count,
                  uint32_t prefill, uint32_t decode, struct best *best)
{
    enum role role[ROLE_INSTANCES_MAX];
    role_assign(view, order, count, prefill, decode, role);
    double rps = view->evaluator->goodput_rps(view->evaluator->ctx, view, role);
    if (rps > best->rps) {
        *best = (struct best){ prefill, decode, rps, best->rps };
    } else if (rps > best->second_rps) {
        best->second_rps = rps;
    }
}

static bool is_now(const struct role_view *view, const uint32_t *order, uint32_t count,
                   const struct best *b)
{
    enum role role[ROLE_INSTANCES_MAX];
    role_assign(view, order, count, b->prefill, b->decode, role);
    for (uint32_t i = 0; i < view->instance_count; i++)
        if (role[i] != view->instance[i].role) return false;
    return true;
}

static void decide(void *state, const struct role_view *view, int64_t now_us, struct rng *rng,
                   struct role_verdict *ret)
{
    (void)state, (void)rng;
    if (!role_known(view)) {
        role_keep(view, "no demand is known", now_us, ret);
        return;
    }
    uint32_t order[ROLE_INSTANCES_MAX];
    uint32_t count = role_order(view, order), step = count / GRID_MAX + 1;
    struct best together = { .rps = -1 };
    offer(view, order, count, 0, 0, &together);
    struct best best = together;
    for (uint32_t prefill = 1; prefill < count; prefill += step)
        offer(view, order, count, prefill, count - prefill, &best);
    const struct role_evaluator *e = view->evaluator;
    role_keep(view, "no choice promises five per cent more", now_us, ret);
    double now_rps = e->goodput_rps(e->ctx, view, ret->role);
    if (best.prefill && together.rps * GAIN_MIN >= best.rps)
        best = (struct best){ 0, 0, together.rps, best.rps };
    ret->goodput_rps = now_rps;
    ret->runner_up_rps = is_now(view, order, count, &best) ? best.second_rps : best.rps;
    ret->again_us = now_us + AGAIN_US;
    if (best.rps <= 0 || best.rps < now_rps * GAIN_MIN) return;
    role_assign(view, order, count, best.prefill, best.decode, ret->role);
    role_answer(view,
                best.prefill ? "a split promises more than whole requests"
                             : "no split promises five per cent more than whole requests",
                now_us + AGAIN_US, ret);
    ret->runner_up_rps = best.second_rps;
}

const struct role_policy role_planner = {
    .name = "planner",
    .about = "whole requests, unless a split promises five per cent more goodput",
    .source = "ours; the choice DistServe (OSDI'24) and Splitwise (ISCA'24) make once and for all",
    .decide = decide,
};
