/* completion.c - the default: send a request where it costs all requests together the fewest seconds.
 *
 *     cost = wait + own / (1 - load)                             until its first token
 *          + weight * (  L * itl * (1 + prompts) / (1 - prompts) its own decoding
 *                      + (c + d * ctx) * min(n * L, left)        what it adds to others' decoding
 *                      + m * b * (uncached - least uncached))    avoidable prefill that they wait for
 *          + price + fairness
 *
 *     wait     seconds until the instance begins with this prompt (queue, sequence slots)
 *     own      seconds of its uncached prompt: uncached * (b + step / token_budget)
 *     load     seconds of work a second that the fleet was sent lately, per instance that accepts
 *     itl      a + c * (n + 1) + d * (kv + ctx), n sequences there, kv their tokens, m of them past
 *              their first token
 *     prompts  share of the instance's seconds that prompts took in the last 10 s, with this one
 *     L        predicted output, ctx = prompt + L / 2, left = tokens the n have yet to generate
 *
 * Why own / (1 - load): requests that arrive while this one is computed wait longer too. A second of
 * work lengthens a busy period of a server at load r by 1 / (1 - r) seconds (M/G/1), and the
 * arrivals of that time wait behind it. So an idle fleet routes by the shortest time to first token,
 * and a loaded one prefers the instance where the prompt is cached even when its queue is longer:
 * avoided work is worth more than a place in a queue. The load is the fleet's and not the
 * instance's own, because later requests go where the queue is shortest.
 *
 * Decoding: prompts that take a share of the seconds stretch a gap between tokens to itl / (1 -
 * prompts). The stretch is counted twice: for this output, and in place of what this prompt does to
 * the sequences that decode. Counting that directly, as n * b * uncached, is right for the mean and wrong
 * for the SLO: it drives prompts and outputs to different instances, and short outputs among
 * the prompts past their time per token (measured: Azure conversations, eight A100). Where nothing
 * contends (c = d = 0) only L * a is left, which tells slow hardware from fast. But tokens that are
 * cached elsewhere need not be computed at all: they, and only they, are counted directly, for each
 * sequence that decodes on the instance.
 *
 * Weight: a second before the first token is 1 / slo_ttft of the time allowed for it, a second of
 * decoding 1 / (L * slo_tpot). An SLO says what is allowed, not what is usual: where first tokens take
 * 0.2 s and the SLO is 10 s, or there is none, an output of 10 s that ends 0.5 s earlier is not worth
 * two first tokens that come twice as late. So a second counts also as a share of the time that its
 * phase takes at best now, T to the first token and D of decoding:
 *
 *     weight = min(1, slo_ttft / (L * slo_tpot), T / D),      T, D least over the instances
 *
 * At a weight of 1 mean TTFT was 3 % above that of shortest_ttft on two A100 and twice as high near
 * what eight L4 do (Azure conversations), where the stretch by prompts outweighed every queue. With
 * the SLOs alone an SLO of 10 s or none cost 4 % on two A100 at speed 1.5; with T / D mean TTFT is
 * 1.1 % below shortest_ttft's and mean JCT 2.3 %.
 *
 * A request that will miss its SLO wherever it goes is placed by the same cost. It delays others by at
 * least own / (1 - load) seconds, which the cost already has, and a longer queue would only add to
 * its own wait: it would lose seconds, and the others would gain none unless the fleet has more work
 * than it can do. Rejected: sending it where it begins last. On Mooncake's conversations at an SLO of
 * 5 s that lost 2 to 5 points of attainment and 11 to 19 % of mean TTFT, because unequal queues leave
 * instances idle.
 *
 * Price: busy seconds there, weighed by how much dearer than the cheapest the instance is; a
 * waiting second and an instance-second at the fleet's mean price count 4 : 1.
 * Fairness: a tenant that had more than its share of the work of the last minute pays its own
 * prompt once more for every request of others that waits there, times its excess: its requests
 * queue behind each other instead of in front of other tenants.
 *
 * Source: ours. Related: size-aware dispatching by first policy iteration (Hyytia, Penttinen,
 * Aalto, EJOR 2012), Mooncake's minimum TTFT, which this rule equals at load 0 without decoding.
 */
#include "base/core/bits.h"
#include "policies/route/route.h"

#include <math.h>

#define LOAD_MAX 0.95     /* beyond it later requests would outweigh any queue */
#define PROMPTS_S 10.0    /* window of route_instance.prompt_load */
#define PROMPTS_MAX 0.9   /* the largest share of prompts that is believed */
#define PRICE_WEIGHT 0.25 /* waiting seconds that an instance-second at mean price is worth */
#define FAIR_US 60000000  /* a tenant's share is that of the work of about the last minute */
#define FAIR_SLOTS 256    /* tenants told apart; two in one slot share their share */
#define FAIR_EXCESS_MAX 4.0
#define FAIR_S_MIN 1e-3 /* below it a tenant's share is not held against it */

struct shares {
    double work_s[FAIR_SLOTS]; /* decayed, each to its own at_us */
    int64_t at_us[FAIR_SLOTS];
};

static double decayed(const struct shares *s, uint32_t slot, int64_t now_us)
{
    return route_faded(s->work_s[slot], s->at_us[slot], now_us, FAIR_US);
}

static void observe(void *state, const struct route_event *ev)
{
    if (ev->kind != ROUTE_SENT || !isfinite(ev->work_s)) return;
    struct shares *s = state;
    uint32_t slot = ev->tenant % FAIR_SLOTS;
    s->work_s[slot] = decayed(s, slot, ev->at_us) + ev->work_s;
    s->at_us[slot] = max_i64(s->at_us[slot], ev->at_us);
}

/* Returns the tenant's excess over an equal share among the active tenants; 0 if it is alone. */
static double excess(const struct shares *s, uint64_t tenant, int64_t now_us)
{
    double total = 0, active = 0;
    double mine = decayed(s, tenant % FAIR_SLOTS, now_us);
    if (mine < FAIR_S_MIN) return 0;
    for (uint32_t i = 0; i < FAIR_SLOTS; i++) {
        if (s->work_s[i] <= 0) continue;
        double work_s = decayed(s, i, now_us);
        if (work_s < 1e-3 * mine) continue;
        total += work_s;
        active += 1;
    }
    return fmin(fmax(mine * active / total - 1, 0), FAIR_EXCESS_MAX);
}

struct terms {
    struct perf_coef fleet;
    bool has_fleet;
    double follow; /* 1 / (1 - load) */
    double price_least, price_mean;
    double excess;
    double decode_weight;
    uint32_t least_uncached;
};

static void prices(const struct route_view *view, struct terms *t)
{
    double count = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        t->price_least = count > 0 ? fmin(t->price_least, in->price_per_hour) : in->price_per_hour;
        t->price_mean += in->price_per_hour;
        count += 1;
    }
    if (count > 0) t->price_mean /= count;
}

static uint32_t uncached_tokens(const struct route_instance *in, const struct route_req *req)
{
    return req->prompt_tokens - route_hit_tokens(in, req);
}

static uint32_t least_uncached(const struct route_view *view, const struct route_req *req)
{
    uint32_t least = req->prompt_tokens;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (route_takes(in)) least = min_u32(least, uncached_tokens(in, req));
    }
    return least;
}

/* Returns the seconds of decoding beside the sequences that are there, if no prompt is computed. */
static double alone_s(const struct route_instance *at, const struct route_req *req)
{
    double output = fmax(req->output_mean, 1);
    double context = (double)at->active_tokens + (double)req->prompt_tokens + output / 2;
    return output * (at->perf.step_s + at->perf.decode_seq_s * ((double)at->in_flight + 1) +
                     at->perf.kv_read_s * context);
}

static double decode_s(const struct route_instance *in, const struct route_req *req, uint32_t least)
{
    double output = fmax(req->output_mean, 1), n = (double)in->in_flight;
    double context = (double)req->prompt_tokens + output / 2;
    double adds_s = in->perf.decode_seq_s + in->perf.kv_read_s * context;
    uint32_t uncached = uncached_tokens(in, req);
    double brings = in->perf.prefill_token_s * (double)uncached / PROMPTS_S;
    double prompts = adds_s > 0 ? fmin(in->prompt_load + brings, PROMPTS_MAX) : 0;
    double again_s = adds_s > 0 ? in->perf.prefill_token_s * (double)(uncached - least) : 0;
    return alone_s(in, req) * (1 + prompts) / (1 - prompts) +
           adds_s * fmin(n * output, in->output_left) + again_s * (double)in->decoding;
}

static double own_s(const struct route_instance *at, uint32_t uncached)
{
    double step_s = at->perf.step_s + at->perf.decode_seq_s * (double)at->decoding +
                    at->perf.kv_read_s * (double)at->kv_tokens;
    return (double)uncached * (at->perf.prefill_token_s + step_s / (double)at->token_budget);
}

static double first_s(const struct route_instance *at, const struct route_req *req)
{
    double own = own_s(at, uncached_tokens(at, req));
    return fmax(route_ttft_s(at, req), own); /* rounding to whole steps aside */
}

/* Returns the weight of a second of decoding, in seconds before the first token. */
static double decode_weight(const struct route_view *view, const struct route_req *req,
                            const struct terms *t)
{
    double weight = 1, first = INFINITY, decode = INFINITY;
    if (req->slo_ttft_s > 0 && req->slo_tpot_s > 0)
        weight = fmin(1, req->slo_ttft_s / (fmax(req->output_mean, 1) * req->slo_tpot_s));
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in) || (!in->has_perf && !t->has_fleet)) continue;
        struct route_instance at = route_known(in, &t->fleet);
        first = fmin(first, first_s(&at, req));
        decode = fmin(decode, alone_s(&at, req));
    }
    return decode > 0 && isfinite(decode) ? fmin(weight, first / decode) : weight;
}

static double cost_s(const struct route_instance *in, const struct route_req *req,
                     const struct terms *t)
{
    uint32_t uncached = uncached_tokens(in, req);
    if (!in->has_perf && !t->has_fleet) {
        /* No speed is known: tokens stand in for seconds. */
        return (double)in->prefill_tokens + (double)in->decoding + (double)uncached * t->follow;
    }
    struct route_instance at = route_known(in, &t->fleet);
    double own = own_s(&at, uncached);
    double cost = first_s(&at, req) + own * (t->follow - 1) +
                  t->decode_weight * decode_s(&at, req, t->least_uncached);
    if (t->price_mean > 0) {
        double busy_s = route_work_s(&at.perf, at.token_budget, req->prompt_tokens,
                                     req->prompt_tokens - uncached, fmax(req->output_mean, 1));
        cost += PRICE_WEIGHT * busy_s * (at.price_per_hour - t->price_least) / t->price_mean;
    }
    double others = (double)at.waiting - (double)at.tenant_waiting;
    return cost + t->excess * own * fmax(others, 0);
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    double load = view->has_load ? fmin(fmax(view->load, 0), LOAD_MAX) : 0;
    struct terms t = {
        .follow = 1 / (1 - load),
        .excess = excess(state, req->tenant, now_us),
    };
    t.has_fleet = route_fleet_perf(view, &t.fleet);
    t.decode_weight = decode_weight(view, req, &t);
    t.least_uncached = least_uncached(view, req);
    prices(view, &t);
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (route_takes(in)) route_best_offer(&best, i, cost_s(in, req, &t), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_completion = {
    .name = "completion",
    .about =
        "least seconds it costs all requests: wait, its work, those that follow, decoding, price",
    .source = "ours; M/G/1 busy period, first policy iteration (Hyytia et al., EJOR 2012)",
    .state_size = sizeof(struct shares),
    .observe = observe,
    .decide = decide,
};
