/* llmd_scorers.c - take the highest sum of llm-d's weighted scorers: prefix 3, queue 2, KV use 2.
 *
 *     prefix = cached / prompt
 *     queue  = (longest - waiting) / (longest - shortest), 1 when all are alike
 *     kv     = 1 - active tokens / KV capacity, 1 where the capacity is unknown
 *
 * Deviations: waiting and KV use come from the ledger and are not scraped every 50 ms; there is no
 * prefix-affinity filter before the scorers, as in its default profile.
 * Source: llm-d-router, weights since GIE #1827.
 */
#include "policies/route/route.h"

#include <math.h>

#define PREFIX_WEIGHT 3.0
#define QUEUE_WEIGHT 2.0
#define KV_WEIGHT 2.0

struct queues {
    double shortest, longest;
    bool any;
};

static double score(const struct route_instance *in, const struct route_req *req,
                    const struct queues *q)
{
    double prefix = (double)route_hit_tokens(in, req) / (double)req->prompt_tokens;
    double spread = q->longest - q->shortest;
    double queue = spread > 0 ? (q->longest - (double)in->waiting) / spread : 1;
    double kv = 1;
    if (in->kv_tokens_max > 0) {
        kv = fmax(1 - (double)in->active_tokens / (double)in->kv_tokens_max, 0);
    }
    return PREFIX_WEIGHT * prefix + QUEUE_WEIGHT * queue + KV_WEIGHT * kv;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct queues q = { 0 };
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        double waiting = (double)view->instance[i].waiting;
        q.shortest = q.any ? fmin(q.shortest, waiting) : waiting;
        q.longest = q.any ? fmax(q.longest, waiting) : waiting;
        q.any = true;
    }
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (route_takes(in)) route_best_offer(&best, i, -score(in, req, &q), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_llmd_scorers = {
    .name = "llmd_scorers",
    .about = "weighted sum: cached prefix 3, queue 2, KV use 2",
    .source = "llm-d router, default weights",
    .decide = decide,
};
