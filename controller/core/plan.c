/* plan.c - from wants to actions, one service after the other; the steps are plan_desk.h's. */
#include "controller/core/plan.h"

#include "controller/core/plan_desk.h"

#include <string.h>

const char *const plan_act_names[PLAN_ACT_COUNT] = {
    [PLAN_LAUNCH] = "launch",
    [PLAN_CANCEL] = "cancel",
    [PLAN_DRAIN] = "drain",
    [PLAN_KEEP] = "keep",
};

static void decide_service(struct plan_desk *d)
{
    struct plan_decision *r = d->decision;
    plan_see(d);
    d->service->policy->decide(d->memory->policy, &d->service->scale, &d->scale, d->now_us, d->rng,
                               &r->verdict);
    plan_target(d);
    r->cost_h_after = r->cost_h;
    r->action_from = d->plan->action_count;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        plan_ask_row(d, p);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        plan_grow(d, p);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        plan_shrink(d, p);
    r->action_count = d->plan->action_count - r->action_from;
}

void plan(const struct plan_view *view, struct plan_memory *memory, int64_t now_us, struct rng *rng,
          struct plan *ret)
{
    must(view->service_count <= PLAN_SERVICES_MAX && view->instance_count <= PLAN_INSTANCES_MAX);
    struct scale_instance seen[PLAN_INSTANCES_MAX]; /* written as far as there are some */
    bool taken[PLAN_INSTANCES_MAX];
    memset(ret, 0, sizeof *ret);
    memset(taken, 0, view->instance_count);
    struct plan_desk d = {
        .view = view, .now_us = now_us, .seen = seen, .taken = taken, .plan = ret, .rng = rng
    };
    for (uint32_t s = 0; s < view->service_count; s++) {
        d.service = &view->service[s];
        d.index = s;
        d.decision = &ret->decision[ret->decision_count++];
        d.decision->service = s;
        d.memory = &memory[s];
        decide_service(&d);
    }
    plan_retire(&d);
}
