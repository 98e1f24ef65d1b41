/* eval.c - requests a second within both SLOs, from step-time coefficients and two moments.
 *
 *     prefill   an M/G/1 queue of prompts: TTFT at quantile q = service_q + wait_q,
 *               wait_q = (W / rho) ln(rho / (1 - q)), W = rate E[S^2] / (2 (1 - rho))
 *     decode    sessions running at once: B = rate * output * step(B), step(B) = a + B (c + d ctx);
 *               step at B + z sqrt(B) within the TPOT, less the copy's share of it
 *     both      prompts take the share phi = rate * prompt seconds of the time, so a token takes
 *               step(B) / (1 - phi); its spread over a session's life is that of the batch and of the
 *               prompts that happen to come meanwhile
 *
 * The largest rate that keeps all of it is found by bisection. DistServe section 3 analyses the two
 * phases so (its M/D/1 waits become M/G/1 here, because prompts differ more than anything else),
 * but simulates in its planner; this form needs no trace and costs microseconds. Wherever it is
 * rough it is so for every choice alike.
 */
#include "base/core/bits.h"
#include "policies/role/role.h"

#include <math.h>

#define BISECTIONS 32

/* z with P(normal < z) = q, to a few per mille (Abramowitz and Stegun 26.2.23). */
static double normal_quantile(double q)
{
    double t = sqrt(-2 * log(1 - fmin(fmax(q, 0.5), 0.9999)));
    return t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                   (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t);
}

/* TTFT at quantile q of prompts that are served one after another in s = fixed + per * tokens. */
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

/* Mean tokens that a running session holds: long outputs are met more often. */
static double context(const struct role_demand *d)
{
    return d->prompt_mean + d->output_m2 / (2 * d->output_mean);
}

/* Seconds of a prompt token, its attention to those before it included. */
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
    /* Every full step, and at least one, costs its fixed part. */
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

/* A router that knows all speeds spreads so that every instance of a kind is at its own limit at
 * once. */
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
