/* completion.c - the default: send a request where it costs all requests together the fewest seconds.
 *
 *     cost = wait + own + work * load / (1 - load)            until its first token, and later ones'
 *          + weight * (  L * itl / (1 - share)                its own decoding
 *                      + m * b * (uncached - least uncached)  avoidable prefill that others wait for
 *                      + kept * (  L * itl * now / (1 - now)  what it adds to others' decoding
 *                                + (c + d * ctx) * min(n * L, left)))
 *          + price + fairness
 *
 *     wait     seconds until the instance begins with this prompt (queue, sequence slots)
 *     own      seconds of its uncached prompt: uncached * (b + step / token_budget)
 *     work     of these, the prompt's own arithmetic: uncached * b
 *     load     seconds of work a second that the fleet was sent lately, per instance that accepts
 *     itl      a + c * (n + 1) + d * (kv + ctx), n sequences there, kv their tokens, m of them past
 *              their first token
 *     now      share of the instance's seconds that prompts took in the last 10 s, with this one
 *     share    the mean over the output's time of a share that fades from `now` to the fleet's mean
 *     kept     1 where a gap there, itl / (1 - now), is within the TPOT SLO, or there is none; else 0
 *     L        predicted output, ctx = prompt + L / 2, left = tokens the n have yet to generate
 *
 * Why work / (1 - load): requests that arrive while this one is computed wait longer too. A second of
 * work lengthens a busy period of a server at load r by 1 / (1 - r) seconds (M/G/1), and the
 * arrivals of that time wait behind it. So an idle fleet routes by the shortest time to first token,
 * and a loaded one prefers the instance where the prompt is cached even when its queue is longer:
 * avoided work is worth more than a place in a queue. The load is the fleet's and not the
 * instance's own, because later requests go where the queue is shortest. They wait for the prompt's
 * arithmetic only: the steps that carry it run for the sequences that decode in any case. With these
 * steps counted, a fleet near its limit (1 / (1 - load) is 20) kept long prompts away from
 * instances that decode much.
 *
 * Decoding: prompts that take a share of the seconds stretch a gap between tokens to itl / (1 -
 * share). The share of the last seconds says what this prompt meets and does now, so it stands for
 * what the prompt does to the sequences that decode. It says less the longer an output lasts, so
 * the output's own stretch uses a share that fades to the fleet's mean, at the rate at which the
 * window forgets. Counting the effect on others directly, as n * b * uncached, is right for the
 * mean and wrong for the SLO: it drives prompts and outputs to different instances, and short
 * outputs among the prompts past their time per token (measured: Azure conversations, eight A100).
 * Where nothing contends (c = d = 0) only L * a is left, which tells slow hardware from fast. But
 * tokens that are cached elsewhere need not be computed at all: they, and only they, are counted
 * directly, for each sequence that decodes on the instance.
 *
 * Kept: where a gap exceeds the TPOT SLO the outputs lose it whatever is sent there. To count what a
 * request adds to them keeps long prompts away from them, and so sends these to the instances that
 * still keep the SLO, which then keep fewer: of two A100 with more work than they can do, the one
 * in time got prompts of 2,500 tokens and the other of 900, and it kept the SLO of 263 requests a
 * minute where shortest_ttft's kept that of 399.
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
    double prompt_load; /* mean of the instances */
};

static void means(const struct route_view *view, struct terms *t)
{
    double count = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        t->price_least = count > 0 ? fmin(t->price_least, in->price_per_hour) : in->price_per_hour;
        t->price_mean += in->price_per_hour;
        t->prompt_load += in->prompt_load;
        count += 1;
    }
    if (count > 0) t->price_mean /= count;
    if (count > 0) t->prompt_load /= count;
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

/* Returns the mean over an output of `seconds` of what is left of the last window's prompts. */
static double window_part(double seconds)
{
    double windows = seconds / PROMPTS_S;
    return windows > 1e-6 ? -expm1(-windows) / windows : 1;
}

/* Returns the seconds of decoding: this output's, and what the request adds to those that decode there. */
static double decode_s(const struct route_instance *in, const struct route_req *req,
                       const struct terms *t)
{
    double output = fmax(req->output_mean, 1), n = (double)in->in_flight;
    double context = (double)req->prompt_tokens + output / 2, alone = alone_s(in, req);
    double adds_s = in->perf.decode_seq_s + in->perf.kv_read_s * context;
    if (!(adds_s > 0)) return alone; /* nothing contends */
    uint32_t uncached = uncached_tokens(in, req);
    double brings = in->perf.prefill_token_s * (double)uncached / PROMPTS_S;
    double now = in->prompt_load + brings;
    double share = t->prompt_load + (now - t->prompt_load) * window_part(alone);
    now = fmin(now, PROMPTS_MAX);

    double again_s = in->perf.prefill_token_s * (double)(uncached - t->least_uncached);
    double own = alone / (1 - fmin(share, PROMPTS_MAX)) + again_s * (double)in->decoding;
    bool kept = req->slo_tpot_s <= 0 || alone / (1 - now) <= output * req->slo_tpot_s;
    if (!kept) return own;
    return own + alone * now / (1 - now) + adds_s * fmin(n * output, in->output_left);
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
    double arithmetic = (double)uncached * at.perf.prefill_token_s;
    double cost =
        first_s(&at, req) + arithmetic * (t->follow - 1) + t->decode_weight * decode_s(&at, req, t);
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
    means(view, &t);
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
