/* dlpm.c - serves the longest cached prefix among tenants with budget left: deficit longest prefix
 * match (DLPM, arXiv 2501.14312).
 *
 *     deficit[tenant] -= uncached prompt tokens at admission + 2 * output tokens
 *     next: among waiting tenants with deficit > 0, the one with the best-ranked head
 *     none has deficit > 0: every waiting tenant gets quanta * weight until one has
 *
 * With order longest_prefix the best-ranked head has the longest cached beginning, so a tenant uses
 * its cached prefixes up to the quantum before another tenant's turn; within a quantum the hit rate
 * is that of longest prefix alone. Cached tokens are free here, but not with vtc. A tenant that was
 * idle starts at 0: it keeps neither credit nor debt. */
#include "policies/fair/fair.h"

#include <math.h>

#define QUANTUM_TOKENS 4096.0
#define OUTPUT_PRICE 2.0

struct deficits {
    double of[FAIR_TENANTS_MAX];
};

static void observe(void *state, const struct fair_event *e)
{
    struct deficits *d = state;
    if (e->kind == STEP_ARRIVED) {
        if (e->was_idle) d->of[e->slot] = 0;
    } else if (e->kind == STEP_ADMITTED) {
        d->of[e->slot] -= (double)(e->input_tokens - e->cached_tokens);
    } else {
        d->of[e->slot] -= OUTPUT_PRICE * (double)e->output_tokens;
    }
}

/* If no waiting tenant has a deficit above 0, gives all of them the fewest quanta after which one
 * has. */
static void refill(struct deficits *d, const struct fair_tenant *tenant, uint32_t count)
{
    double rounds = 0;
    for (uint32_t i = 0; i < count; i++) {
        double quantum = QUANTUM_TOKENS * tenant[i].weight, has = d->of[tenant[i].slot];
        if (has > 0) return;
        double needs = floor(-has / quantum) + 1;
        if (i == 0 || needs < rounds) rounds = needs;
    }
    for (uint32_t i = 0; i < count; i++)
        d->of[tenant[i].slot] += rounds * QUANTUM_TOKENS * tenant[i].weight;
}

static uint32_t pick(void *state, const struct fair_tenant *tenant, uint32_t count)
{
    struct deficits *d = state;
    refill(d, tenant, count);
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++) {
        if (!(d->of[tenant[i].slot] > 0)) continue;
        if (best == count || tenant[i].head_rank < tenant[best].head_rank) best = i;
    }
    return best < count ? best : 0;
}

const struct fair_policy fair_dlpm = {
    .name = "dlpm",
    .about = "best-ranked head among tenants within their deficit quanta; cached tokens are free",
    .source = "DLPM (arXiv 2501.14312)",
    .state_size = sizeof(struct deficits),
    .uses_heads = true,
    .pick = pick,
    .observe = observe,
    .displace = fair_longest_queue,
};
