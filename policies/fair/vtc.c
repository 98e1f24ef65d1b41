/* vtc.c - serves the tenant that was served least, by virtual token counters (VTC, OSDI 2024).
 *
 *     counter[tenant] += (1 * prompt tokens at admission + 2 * output tokens) / weight
 *     next: the waiting tenant with the lowest counter
 *     a tenant that is new or comes back from idling is lifted to the lowest counter of those
 *     active, or, when none is, to that of the tenant served last: idling earns no credit
 *
 * The service of two backlogged tenants then differs by a bound that does not grow with time: 2 *
 * max(1 * longest prompt, 2 * tokens that run at once). A cached prompt counts whole, as in the
 * paper; dlpm counts only the computed tokens. The paper's artifact lifts over waiting tenants
 * only; ours over those waiting or running. */
#include "policies/fair/fair.h"

#define INPUT_PRICE 1.0
#define OUTPUT_PRICE 2.0

struct counters {
    double of[FAIR_TENANTS_MAX];
    double last; /* counter of the tenant served last */
};

static void lift(struct counters *c, const struct fair_event *e)
{
    double least = -1;
    for (uint32_t i = 0; i < FAIR_TENANTS_MAX; i++) {
        if (i == e->slot || !e->active[i]) continue;
        if (least < 0 || c->of[i] < least) least = c->of[i];
    }
    if (least < 0) least = c->last;
    if (c->of[e->slot] < least) c->of[e->slot] = least;
}

static void observe(void *state, const struct fair_event *e)
{
    struct counters *c = state;
    if (e->kind == STEP_ARRIVED) {
        if (e->is_new) c->of[e->slot] = 0;
        if (e->was_idle) lift(c, e);
        return;
    }
    double tokens = e->kind == STEP_ADMITTED ? INPUT_PRICE * (double)e->input_tokens
                                             : OUTPUT_PRICE * (double)e->output_tokens;
    c->of[e->slot] += tokens / e->weight;
    c->last = c->of[e->slot];
}

static uint32_t pick(void *state, const struct fair_tenant *tenant, uint32_t count)
{
    const struct counters *c = state;
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (c->of[tenant[i].slot] < c->of[tenant[best].slot]) best = i;
    }
    return best;
}

const struct fair_policy fair_vtc = {
    .name = "vtc",
    .about = "the tenant that was served least goes first: prompt + 2 * output tokens",
    .source = "VTC (arXiv 2401.00588)",
    .state_size = sizeof(struct counters),
    .pick = pick,
    .observe = observe,
    .displace = fair_longest_queue,
};
