/* route_completion.c - the default: least time that the request costs everybody, in seconds.
 *
 *     cost = wait + own / (1 - load)                             until its first token
 *          + L * itl * (1 + prompts) / (1 - prompts)             its own decoding
 *          + (c + d * ctx) * min(n * L, left)                    what it adds to theirs
 *          + m * b * (uncached - least uncached anywhere)        what of it they need not wait for
 *          + price + fairness
 *
 *     wait     seconds until the instance begins with this prompt (queue, sequence slots)
 *     own      seconds of its uncached prompt: uncached * (b + step / token_budget)
 *     load     seconds of work a second that the fleet was sent lately, per instance that accepts
 *     itl      a + c * (n + 1) + d * (kv + ctx), n sequences there, kv their tokens, m of them past
 *              their first token
 *     prompts  share of the instance's seconds that prompts took lately, with this one
 *     L        predicted answer, ctx = prompt + L / 2, left = tokens the n have yet to generate
 *
 * Why own / (1 - load): of whatever a request brings, those who come while it is worked off pay
 * too. A second of work lengthens a busy period of a server at load r by 1 / (1 - r) seconds
 * (M/G/1), and the arrivals of that time wait behind it. So an idle fleet routes by the shortest
 * time to first token, and a loaded one prefers the instance where the prompt is cached even when
 * its queue is longer: work that is avoided is worth more than a place in a queue. The fleet's
 * load and not the instance's own is meant, because those who follow go where it is shortest.
 *
 * Decoding: prompts that take a share of the seconds stretch a gap between tokens to itl / (1 -
 * prompts). The stretch is counted twice: for this answer, and in place of what this prompt does to
 * those who decode. Counting that directly, as n * b * uncached, is right for the mean and wrong
 * for the promise: it drives prompts and answers to different instances, and short answers among
 * the prompts past their time per token (measured: Azure conversations, eight A100). Where nothing
 * contends (c = d = 0) only L * a is left, which tells slow hardware from fast. But what is cached
 * elsewhere need not be computed at all: that part, and only that, is counted directly, for each
 * who decodes where it would be.
 *
 * Late: where nobody can begin within LATE_PART of the promised time to the first token, though
 * the request's own work could be done in it, the request goes where it would begin last, within
 * LATEST times what was promised. It is late wherever it goes, and there it holds up the fewest who
 * are not; the queues of the others become short enough to keep promises again. A part, because
 * the wait is reckoned in steps as large as the budget, and the engine takes smaller ones, and
 * because a queue as long as the promise drives the engine to steps that break those per token.
 * Only where hardly more of it is uncached than anywhere: work done twice would hold up all. Under
 * a load beyond the fleet's no queue would become shorter by it. At a speed somewhat past the
 * fleet's limit this keeps more promises and lets those that are broken wait longer
 * (docs/systems.md).
 *
 * Price: busy seconds there, weighed by how much dearer than the cheapest the instance is; a
 * waiting second and an instance-second at the fleet's mean price count 4 : 1.
 * Fairness: a tenant that had more than its share of the work of the last minute pays its own
 * prompt once more for every request of others that waits there, times its excess: it gathers
 * behind itself instead of in front of everybody.
 *
 * Source: ours. Related: size-aware dispatching by first policy iteration (Hyytia, Penttinen,
 * Aalto, EJOR 2012), Mooncake's minimum TTFT, which this is at load 0 without decoding.
 */
#include "base/core/bits.h"
#include "policies/route.h"

#include <math.h>

#define LOAD_MAX 0.95     /* beyond it the followers would outweigh any queue */
#define LATE_PART 0.4     /* of the promised time: estimates know of steps as large as the budget */
#define LATEST 4.0        /* promised times: who is late anyhow waits no longer than that */
#define LATE_MORE 8       /* a part of the least that is uncached which may be computed again */
#define PROMPTS_S 10.0    /* as long as route_instance.prompt_load looks back */
#define PROMPTS_MAX 0.9   /* share of prompts that is believed */
#define PRICE_WEIGHT 0.25 /* waiting seconds that an instance-second at mean price is worth */
#define FAIR_US 60000000  /* a tenant's share is of the work of about so long */
#define FAIR_SLOTS 256    /* tenants told apart; two in one slot share their share */
#define FAIR_EXCESS_MAX 4.0
#define FAIR_S_MIN 1e-3 /* who had less lately is owed no reproach */

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

/* How far the tenant is above an equal share among those active; 0 when it is alone. */
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

static double decode_s(const struct route_instance *in, const struct route_req *req, uint32_t least)
{
    double answer = fmax(req->output_mean, 1), n = (double)in->in_flight;
    double context = (double)req->prompt_tokens + answer / 2;
    double adds_s = in->perf.c + in->perf.d * context;
    double itl_s = in->perf.a + in->perf.c * n + in->perf.d * (double)in->active_tokens + adds_s;
    uint32_t uncached = uncached_tokens(in, req);
    double brings = in->perf.b * (double)uncached / PROMPTS_S;
    double prompts = adds_s > 0 ? fmin(in->prompt_load + brings, PROMPTS_MAX) : 0;
    double again_s = adds_s > 0 ? in->perf.b * (double)(uncached - least) : 0;
    return answer * itl_s * (1 + prompts) / (1 - prompts) +
           adds_s * fmin(n * answer, in->output_left) + again_s * (double)in->decoding;
}

static double own_s(const struct route_instance *at, uint32_t uncached)
{
    double step_s =
        at->perf.a + at->perf.c * (double)at->decoding + at->perf.d * (double)at->kv_tokens;
    return (double)uncached * (at->perf.b + step_s / (double)at->token_budget);
}

static double first_s(const struct route_instance *at, const struct route_req *req)
{
    double own = own_s(at, uncached_tokens(at, req));
    return fmax(route_ttft_s(at, req), own); /* rounding to whole steps aside */
}

static double cost_s(const struct route_instance *in, const struct route_req *req,
                     const struct terms *t)
{
    uint32_t uncached = uncached_tokens(in, req);
    if (!in->has_perf && !t->has_fleet) {
        /* Nobody's speed is known: tokens stand in for seconds. */
        return (double)in->prefill_tokens + (double)in->decoding + (double)uncached * t->follow;
    }
    struct route_instance at = route_known(in, &t->fleet);
    double own = own_s(&at, uncached);
    double cost = first_s(&at, req) + own * (t->follow - 1) + decode_s(&at, req, t->least_uncached);
    if (t->price_mean > 0) {
        double busy_s = route_work_s(&at.perf, at.token_budget, req->prompt_tokens,
                                     req->prompt_tokens - uncached, fmax(req->output_mean, 1));
        cost += PRICE_WEIGHT * busy_s * (at.price_per_hour - t->price_least) / t->price_mean;
    }
    double others = (double)at.waiting - (double)at.tenant_waiting;
    return cost + t->excess * own * fmax(others, 0);
}

/* For a request that is too late for its promise wherever it goes, by others' work and not its own:
 * where it begins last, there it delays the fewest who are not. False: it is not, or nowhere soon
 * enough. */
static bool late_everywhere(const struct route_view *view, const struct route_req *req,
                            const struct terms *t, struct rng *rng, struct route_best *ret)
{
    double soonest_s = (double)INFINITY, soonest_own_s = 0, late_s = LATE_PART * req->slo_ttft_s;
    if (req->slo_ttft_s <= 0 || !t->has_fleet) return false;
    struct route_best last = ROUTE_BEST_INIT;
    uint32_t most = t->least_uncached + t->least_uncached / LATE_MORE;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        struct route_instance at = route_known(&view->instance[i], &t->fleet);
        uint32_t uncached = uncached_tokens(&at, req);
        double s = first_s(&at, req), own = own_s(&at, uncached);
        if (s < soonest_s || (s == soonest_s && own < soonest_own_s)) {
            soonest_s = s;
            soonest_own_s = own;
        }
        if (uncached <= most && s <= LATEST * req->slo_ttft_s) route_best_offer(&last, i, -s, rng);
    }
    if (last.index == ROUTE_NONE || soonest_s <= late_s || soonest_own_s > late_s) return false;
    *ret = last;
    return true;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    double load = view->has_load ? fmin(fmax(view->load, 0), LOAD_MAX) : 0;
    struct terms t = { .follow = 1 / (1 - load), .excess = excess(state, req->tenant, now_us) };
    t.has_fleet = route_fleet_perf(view, &t.fleet);
    t.least_uncached = least_uncached(view, req);
    prices(view, &t);
    struct route_best best = ROUTE_BEST_INIT;
    bool late = load < LOAD_MAX && late_everywhere(view, req, &t, rng, &best);
    for (uint32_t i = 0; !late && i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (route_takes(in)) route_best_offer(&best, i, cost_s(in, req, &t), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_completion = {
    .name = "completion",
    .about = "least seconds it costs everybody: wait, its work and who follows, decoding, price",
    .source = "ours; M/G/1 busy period, first policy iteration (Hyytia et al., EJOR 2012)",
    .state_size = sizeof(struct shares),
    .observe = observe,
    .decide = decide,
};
