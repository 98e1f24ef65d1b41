/* mooncake_fetch.c - take the least TTFT, where a peer's KV may be fetched: Mooncake's Conductor.
 *
 *     best     the longest cached run of an accepting instance, the first of equal ones
 *     local_i  = queue_i + prefill_i(prompt - cached_i)
 *     remote_i = queue_i + (best - cached_i) * bytes / link + prefill_i(prompt - best)
 *     take the least of all; remote_i only when best > cached_i * 1.25
 *
 * A fetched run stays at the instance that fetched it, so hot prefixes replicate by themselves.
 * Deviations: the paper names a threshold on best / cached without its value; ours is 1.25, and the
 * transfer must also be cheaper in seconds. Transfer and queue are added, not overlapped.
 * Without a link it decides as shortest_ttft does.
 * Source: Mooncake (FAST'25), algorithm 1.
 */
#include "policies/route/route.h"

#define BALANCE_RATIO 1.25

struct source {
    uint32_t index; /* view index; ROUTE_NONE: no instance holds any of it */
    uint32_t hit;
};

static struct source longest(const struct route_view *view, const struct route_req *req)
{
    struct source s = { ROUTE_NONE, 0 };
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        uint32_t hit = route_hit_tokens(in, req);
        /* A decode instance can be fetched from as well; one that is gone cannot. */
        if (in->accepts && hit > s.hit) s = (struct source){ i, hit };
    }
    return s;
}

/* Returns the seconds to the first token with the run fetched; -1 if it cannot or should not be
 * fetched. Where no speed is known, the link's seconds cannot be compared with tokens. */
static double remote_s(const struct route_view *view, const struct route_instance *in,
                       const struct route_req *req, const struct source *s)
{
    uint32_t local = route_hit_tokens(in, req);
    if (view->link_bytes_s <= 0 || view->kv_bytes_per_token == 0 || !in->has_perf) return -1;
    if ((double)s->hit <= (double)local * BALANCE_RATIO) return -1;
    struct route_instance fetched = *in;
    fetched.hit_tokens = s->hit;
    double bytes = (double)(s->hit - local) * (double)view->kv_bytes_per_token;
    return route_ttft_s(&fetched, req) + bytes / view->link_bytes_s;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    struct source s = longest(view, req);
    struct route_best best = ROUTE_BEST_INIT;
    if (s.index == ROUTE_NONE || view->link_bytes_s <= 0) {
        route_shortest_ttft.decide(state, view, req, now_us, rng, ret);
        return;
    }
    struct perf_coef fleet;
    const struct perf_coef *speed = route_fleet_perf(view, &fleet) ? &fleet : NULL;
    bool fetches[ROUTE_INSTANCES_MAX];
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        struct route_instance in = route_known(&view->instance[i], speed);
        double local = route_wait_s(&in, req, speed);
        double remote = remote_s(view, &in, req, &s);
        fetches[i] = remote >= 0 && remote < local;
        route_best_offer(&best, i, fetches[i] ? remote : local, rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
    if (best.index == ROUTE_NONE || !fetches[best.index]) return;
    ret->fetch_from_id = view->instance[s.index].id;
    ret->fetch_tokens = s.hit - route_hit_tokens(&view->instance[best.index], req);
    ret->estimate_s = best.score;
}

const struct route_policy route_mooncake_fetch = {
    .name = "mooncake_fetch",
    .about = "least predicted TTFT, a peer's cached prefix fetched where that is faster",
    .source = "Mooncake (FAST'25), algorithm 1",
    .decide = decide,
};
