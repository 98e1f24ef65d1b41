/* colocated.c - every instance serves whole requests.
 *
 * This is the simple alternative, and with chunked prompts a strong one: it needs no KV transfer and
 * has no ratio that could be wrong. */
#include "policies/role/role.h"

#define AGAIN_US 60000000

static void decide(void *state, const struct role_view *view, int64_t now_us, struct rng *rng,
                   struct role_verdict *ret)
{
    (void)state, (void)rng;
    uint32_t order[ROLE_INSTANCES_MAX];
    uint32_t count = role_order(view, order);
    role_assign(view, order, count, 0, 0, ret->role);
    role_answer(view, "whole requests everywhere", now_us + AGAIN_US, ret);
}

const struct role_policy role_colocated = {
    .name = "colocated",
    .about = "every instance computes prompts and decodes",
    .source = "the simple alternative (Sarathi-Serve, OSDI'24)",
    .decide = decide,
};
