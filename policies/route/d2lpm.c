/* d2lpm.c - D2LPM: take the longest cached prefix among the instances where the tenant has credit.
 *
 *     candidates: instances with a deficit counter for this tenant above 0
 *     none: every counter of the tenant grows by the quantum until one is above 0
 *     among them the longest cached prefix, then the fewest in flight
 *     the counter falls by the uncached prompt when sent and by 2 x the output when it is finished
 *
 * The quantum bounds how far an instance can run ahead of others for one tenant's locality.
 * Deviations: counters live in a fixed table of hashed (tenant, instance) pairs; a pair that finds
 * its place taken by another pair starts anew, so fairness decays to plain locality when many more
 * pairs than places are active. The quantum, tunable as Q_w in the paper, is 16,384 tokens. A debt
 * is at most DEBT_MAX, so that DEBT_MAX / QUANTUM quanta always bring the credit back.
 * Source: Locality-aware fair scheduling (arXiv 2501.14312), algorithm for distributed workers.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "policies/route/route.h"

#include <math.h>

#define PAIRS 1024
#define QUANTUM 16384.0f           /* tokens */
#define ANSWER_WEIGHT 2.0f         /* of a generated token against a prompt token, as in VTC */
#define DEBT_MAX (64.0f * QUANTUM) /* a float still tells single tokens apart up to here */

struct pair {
    uint32_t tag; /* 0: free */
    float deficit;
};

struct deficits {
    struct pair pair[PAIRS];
};

/* Returns the counter of (tenant, instance); a new one holds a quantum. */
static float *counter(struct deficits *d, uint64_t tenant, uint32_t id)
{
    uint64_t h = hash64(&tenant, sizeof tenant, id);
    struct pair *p = &d->pair[h % PAIRS];
    uint32_t tag = (uint32_t)(h >> 32) | 1;
    if (p->tag != tag) *p = (struct pair){ tag, QUANTUM };
    return &p->deficit;
}

static void observe(void *state, const struct route_event *ev)
{
    struct deficits *d = state;
    float *left = counter(d, ev->tenant, ev->instance_id);
    uint32_t hit = min_u32(ev->hit_tokens, ev->prompt_tokens);
    if (ev->kind == ROUTE_SENT) *left -= (float)(ev->prompt_tokens - hit);
    if (ev->kind == ROUTE_FINISHED) *left -= ANSWER_WEIGHT * (float)ev->generated;
    *left = fmaxf(*left, -DEBT_MAX);
}

/* Returns the quanta until the tenant's least indebted instance has credit; 0 when one has. */
static float refills(struct deficits *d, const struct route_view *view, uint64_t tenant)
{
    float most = -INFINITY;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        most = fmaxf(most, *counter(d, tenant, view->instance[i].id));
    }
    return most > 0 || isinf(most) ? 0 : floorf(-most / QUANTUM) + 1;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)now_us;
    struct deficits *d = state;
    float grow = refills(d, view, req->tenant) * QUANTUM;
    uint32_t longest = 0;
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < view->instance_count; i++) {
            const struct route_instance *in = &view->instance[i];
            if (!route_takes(in)) continue;
            float *left = counter(d, req->tenant, in->id);
            if (pass == 0) *left = fminf(*left + grow, QUANTUM);
            if (*left <= 0) continue;
            uint32_t hit = route_hit_tokens(in, req);
            if (pass == 0 && hit > longest) longest = hit;
            if (pass == 1 && hit == longest) route_best_offer(&best, i, (double)in->in_flight, rng);
        }
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_d2lpm = {
    .name = "d2lpm",
    .about = "longest cached prefix among instances where the tenant still has credit",
    .source = "D2LPM (arXiv 2501.14312)",
    .state_size = sizeof(struct deficits),
    .observe = observe,
    .decide = decide,
};
