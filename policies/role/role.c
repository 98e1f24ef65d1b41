/* role.c - the table of role policies, the one without roles, their shared functions, and the closed-form evaluator. The
 * evaluator computes requests a second within both SLOs from step-time coefficients and two moments of the lengths.
 *
 *     prefill   an M/G/1 queue of prompts: TTFT at quantile q = service_q + wait_q,
 *               wait_q = (W / rho) ln(rho / (1 - q)), W = rate E[S^2] / (2 (1 - rho))
 *     decode    sessions running at once: B = rate * output * step(B), step(B) = a + B (c + d ctx);
 *               step at B + z sqrt(B) within the TPOT, less the copy's share of it
 *     both      prompts take the share phi = rate * prompt seconds of the time, so a token takes
 *               step(B) / (1 - phi); its spread over a session's life comes from the batch and from
 *               the prompts that arrive meanwhile
 *
 * Bisection finds the largest rate that keeps all of these limits. DistServe section 3 analyses the
 * two phases in the same way (its M/D/1 waits become M/G/1 here, because prompt lengths vary more
 * than anything else), but its planner simulates; this form needs no trace and costs microseconds.
 * Its errors are alike for every choice of roles.
 */

#include "policies/role/role.h"

#include "base/core/bits.h"
#include "base/core/err.h"

#include <math.h>
#include <stdlib.h>

#define BISECTIONS 32

/* Returns z with P(normal < z) = q, to a few per mille (Abramowitz and Stegun 26.2.23). */
static double normal_quantile(double q)
{
    double t = sqrt(-2 * log(1 - fmin(fmax(q, 0.5), 0.9999)));
    return t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                   (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t);
}

/* Returns the TTFT at the view's quantile for prompts served one after another, each taking
 * fixed + per * tokens seconds. */
static double ttft_s(const struct role_view *v, double rate, double fixed, double per)
{
    const struct role_demand *d = &v->demand;
    double q = v->attainment, mean = fixed + per * d->prompt_mean;
    double m2 = fixed * fixed + 2 * fixed * per * d->prompt_mean + per * per * d->prompt_m2;
    double rho = rate * mean;
    if (rho >= 1) return (double)INFINITY;
    double wait = rho > 1 - q ? rate * m2 / (2 * (1 - rho)) / rho * log(rho / (1 - q)) : 0;
    return mean + normal_quantile(q) * sqrt(fmax(m2 - mean * mean, 0)) + wait;
}

/* Returns the mean tokens that a running session holds; long outputs are running more often. */
static double context(const struct role_demand *d)
{
    return d->prompt_mean + d->output_m2 / (2 * d->output_mean);
}

/* Returns the mean seconds of a prompt token, its attention to earlier tokens included. */
static double prompt_token_s(const struct role_demand *d, const struct perf_coef *p)
{
    return p->prefill_token_s + p->attend_s * d->prompt_m2 / (2 * d->prompt_mean);
}

static double step_s(const struct role_view *v, const struct perf_coef *p, double batch)
{
    return p->step_s + batch * (p->decode_seq_s + p->kv_read_s * context(&v->demand));
}

static bool fits(const struct role_view *v, const struct role_instance *in, double batch,
                 double tpot_s)
{
    double most = batch + normal_quantile(v->attainment) * sqrt(batch);
    return most <= (double)in->seqs_max && step_s(v, &in->perf, most) <= tpot_s &&
           most * context(&v->demand) <= (double)in->kv_tokens_max;
}

static bool prefill_ok(const struct role_view *v, const struct role_instance *in, double rate)
{
    const struct role_demand *d = &v->demand;
    /* Each full step costs its fixed part; a prompt takes at least one. */
    double fixed = in->perf.step_s * fmax(1, d->prompt_mean / (double)in->token_budget);
    double copy_s = v->token_bytes * d->prompt_mean / v->link_bytes_s;
    return rate * copy_s < 0.9 &&
           ttft_s(v, rate, fixed, prompt_token_s(d, &in->perf)) <= v->ttft_slo_s;
}

static bool decode_ok(const struct role_view *v, const struct role_instance *in, double rate)
{
    const struct role_demand *d = &v->demand;
    double each = rate * d->output_mean * (in->perf.decode_seq_s + in->perf.kv_read_s * context(d));
    if (each >= 1) return false;
    double copy_s = v->token_bytes * d->prompt_mean / v->link_bytes_s;
    double batch = rate * d->output_mean * in->perf.step_s / (1 - each);
    return fits(v, in, batch, v->tpot_slo_s - copy_s / fmax(d->output_mean - 1, 1));
}

static bool both_ok(const struct role_view *v, const struct role_instance *in, double rate)
{
    const struct role_demand *d = &v->demand;
    double token_s = prompt_token_s(d, &in->perf),
           each_s = step_s(v, &in->perf, 1) - in->perf.step_s;
    double busy = rate * d->prompt_mean * token_s;
    double free = 1 - busy - rate * d->output_mean * each_s;
    if (free <= 0) return false;
    double batch = rate * d->output_mean * in->perf.step_s / free;
    double decode_s = step_s(v, &in->perf, batch), tpot_s = decode_s / (1 - busy);
    double from_batch = each_s * sqrt(batch) / (1 - busy);
    double from_prompts = token_s * sqrt(rate * tpot_s * d->prompt_m2 / d->output_mean);
    double z = normal_quantile(v->attainment);
    if (tpot_s + z * hypot(from_batch, from_prompts) > v->tpot_slo_s) return false;
    double fixed = decode_s * fmax(1, d->prompt_mean / (double)in->token_budget);
    return fits(v, in, batch, (double)INFINITY) && ttft_s(v, rate, fixed, token_s) <= v->ttft_slo_s;
}

typedef bool (*ok_fn)(const struct role_view *, const struct role_instance *, double rate);

static double most_rps(const struct role_view *v, const struct role_instance *in, ok_fn ok)
{
    double low = 0, high = 1e-3;
    if (!in->ready || !in->has_perf || !ok(v, in, high)) return 0;
    while (high < 1e6 && ok(v, in, high)) {
        low = high;
        high *= 2;
    }
    for (int i = 0; i < BISECTIONS; i++) {
        double mid = (low + high) / 2;
        if (ok(v, in, mid)) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

double role_prefill_rps(const struct role_view *view, const struct role_instance *in)
{
    return view->link_bytes_s > 0 ? most_rps(view, in, prefill_ok) : 0;
}

double role_decode_rps(const struct role_view *view, const struct role_instance *in)
{
    return view->link_bytes_s > 0 ? most_rps(view, in, decode_ok) : 0;
}

/* Returns the goodput as a sum over instances: a router that knows all speeds brings every instance
 * of a role to its own limit at the same time. */
static double goodput_rps(const void *ctx, const struct role_view *view, const enum role *role)
{
    (void)ctx;
    double sum[ROLE_COUNT] = { 0 };
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct role_instance *in = &view->instance[i];
        sum[role[i]] += role[i] == ROLE_PREFILL  ? role_prefill_rps(view, in)
                        : role[i] == ROLE_DECODE ? role_decode_rps(view, in)
                                                 : most_rps(view, in, both_ok);
    }
    return sum[ROLE_BOTH] + fmin(sum[ROLE_PREFILL], sum[ROLE_DECODE]);
}

const struct role_evaluator role_closed_form = { .goodput_rps = goodput_rps };

#define AGAIN_US 10000000 /* until the next question where roles are kept */
#define ALIKE 1.05        /* learned speeds of like machines differ by up to this factor */

const struct role_policy *const role_table[] = {
#define POLICY(name) &role_##name,
#include "policies/role/role.def"
#undef POLICY
};

const uint32_t role_count = COUNT_OF(role_table);

const struct role_policy *role_find(struct str name)
{
    for (uint32_t i = 0; i < role_count; i++) {
        if (str_eq(str_from(role_table[i]->name), name)) return role_table[i];
    }
    return NULL;
}

/* Returns true if the ready instances serve both phases or none; else *ret_only is the one they serve. */
static bool has_both_phases(const struct role_view *view, const enum role *role,
                            enum role *ret_only)
{
    uint32_t of[ROLE_COUNT] = { 0 };
    for (uint32_t i = 0; i < view->instance_count; i++)
        if (view->instance[i].ready) of[role[i]]++;
    *ret_only = of[ROLE_PREFILL] ? ROLE_PREFILL : ROLE_DECODE;
    return of[ROLE_BOTH] > 0 || !of[ROLE_PREFILL] == !of[ROLE_DECODE];
}

/* Enforces rule 1: if one phase has no ready instance, those of the other serve whole requests. */
static void see_to_both(const struct role_view *view, struct role_verdict *ret)
{
    enum role only;
    if (has_both_phases(view, ret->role, &only)) return;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct role_instance *in = &view->instance[i];
        if (in->ready && !in->changing && ret->role[i] == only) ret->role[i] = ROLE_BOTH;
    }
    role_answer(view, "whole requests: nobody is left for the other phase", ret->again_us, ret);
}

void role_decide(const struct role_policy *p, void *state, const struct role_view *view,
                 int64_t now_us, struct rng *rng, struct role_verdict *ret)
{
    p->decide(state, view, now_us, rng, ret);
    see_to_both(view, ret);
}

void role_hold(const struct role_view *view, const char *reason, int64_t now_us,
               struct role_verdict *ret)
{
    role_keep(view, reason, now_us, ret);
    see_to_both(view, ret);
}

bool role_known(const struct role_view *view)
{
    const struct role_demand *d = &view->demand;
    if (!d->present || !(d->prompt_mean >= 1) || !(d->output_mean >= 1)) return false;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (view->instance[i].ready && view->instance[i].has_perf) return true;
    }
    return false;
}

void role_keep(const struct role_view *view, const char *reason, int64_t now_us,
               struct role_verdict *ret)
{
    for (uint32_t i = 0; i < view->instance_count; i++)
        ret->role[i] = view->instance[i].role;
    ret->changes = 0;
    ret->goodput_rps = ret->runner_up_rps = -1;
    ret->reason = reason;
    ret->again_us = now_us + AGAIN_US;
}

static double aptitude(const struct role_view *view, const struct role_instance *in)
{
    const struct role_demand *d = &view->demand;
    double prompt_s =
        in->perf.prefill_token_s * d->prompt_mean + in->perf.attend_s * d->prompt_m2 / 2;
    double token_s = in->perf.step_s + in->perf.decode_seq_s +
                     in->perf.kv_read_s * (d->prompt_mean + d->output_mean / 2);
    return token_s * d->output_mean / (prompt_s > 0 ? prompt_s : 1e-12);
}

/* An instance that may change its role. */
struct candidate {
    double aptitude;
    uint32_t class; /* of like instances; the class best at prefill is 0 */
    uint32_t rank;  /* by its role: prefill 0, both 1, decode 2 */
    uint32_t id, at;
};

static int by_aptitude(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->aptitude > y->aptitude || x->aptitude < y->aptitude)
        return x->aptitude > y->aptitude ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_class(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

uint32_t role_order(const struct role_view *view, uint32_t ret[ROLE_INSTANCES_MAX])
{
    static const uint32_t rank[ROLE_COUNT] = {
        [ROLE_PREFILL] = 0, [ROLE_BOTH] = 1, [ROLE_DECODE] = 2
    };
    struct candidate list[ROLE_INSTANCES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct role_instance *in = &view->instance[i];
        if (!role_is_free(in) || !in->has_perf) continue;
        list[count++] = (struct candidate){ aptitude(view, in), 0, rank[in->role], in->id, i };
    }
    qsort(list, count, sizeof *list, by_aptitude);
    double first = count ? list[0].aptitude : 0; /* of its class */
    for (uint32_t i = 1; i < count; i++) {
        bool alike = list[i].aptitude * ALIKE >= first;
        list[i].class = list[i - 1].class + !alike;
        if (!alike) first = list[i].aptitude;
    }
    qsort(list, count, sizeof *list, by_class);
    for (uint32_t i = 0; i < count; i++)
        ret[i] = list[i].at;
    return count;
}

void role_assign(const struct role_view *view, const uint32_t *order, uint32_t count,
                 uint32_t prefill, uint32_t decode, enum role ret[ROLE_INSTANCES_MAX])
{
    for (uint32_t i = 0; i < view->instance_count; i++)
        ret[i] = view->instance[i].role;
    for (uint32_t i = 0; i < count; i++) {
        /* Each role takes from its own end, where the instances best at it are. */
        ret[order[i]] = i < prefill ? ROLE_PREFILL : i >= count - decode ? ROLE_DECODE : ROLE_BOTH;
    }
}

void role_answer(const struct role_view *view, const char *reason, int64_t again_us,
                 struct role_verdict *ret)
{
    ret->changes = 0;
    for (uint32_t i = 0; i < view->instance_count; i++)
        ret->changes += ret->role[i] != view->instance[i].role;
    ret->goodput_rps = view->evaluator->goodput_rps(view->evaluator->ctx, view, ret->role);
    ret->runner_up_rps = -1;
    ret->reason = reason;
    ret->again_us = again_us;
}

/* struct role_look calls a policy with its state. */

void role_look(struct role_look *l, const struct role_view *view, int64_t now_us,
               struct role_verdict *ret)
{
    must(l->policy->state_size <= sizeof l->state);
    role_decide(l->policy, l->state, view, now_us, &l->rng, ret);
    l->again_us = max_i64(ret->again_us, now_us + ROLE_LOOK_US_MIN);
}

/* Every instance serves whole requests.
 *
 * This is the simple alternative, and with chunked prompts a strong one: it needs no KV transfer and
 * has no ratio that could be wrong. */
#define COLOCATED_AGAIN_US 60000000

static void decide_colocated(void *state, const struct role_view *view, int64_t now_us,
                             struct rng *rng, struct role_verdict *ret)
{
    (void)state, (void)rng;
    uint32_t order[ROLE_INSTANCES_MAX];
    uint32_t count = role_order(view, order);
    role_assign(view, order, count, 0, 0, ret->role);
    role_answer(view, "whole requests everywhere", now_us + COLOCATED_AGAIN_US, ret);
}

const struct role_policy role_colocated = {
    .name = "colocated",
    .about = "every instance computes prompts and decodes",
    .source = "the simple alternative (Sarathi-Serve, OSDI'24)",
    .decide = decide_colocated,
};
