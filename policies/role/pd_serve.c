/* pd_serve.c - set the ratio at which neither phase waits for the other: n_p mu_p = n_d mu_d.
 *
 *     mu_p = 1 / (seconds of a mean prompt),  mu_d = batch / (step seconds at that batch * output)
 *
 * The rates are those of busy instances and ignore the SLO on waiting; the batch is the largest
 * within the TPOT and the KV memory. P/D-Serve (2024) adjusts one instance at a time as the
 * measured rates drift, and so does this policy. */
#include "base/core/bits.h"
#include "policies/role/role.h"

#include <math.h>

#define AGAIN_US 10000000

static double prefill_mu(const struct role_view *v, const struct role_instance *in)
{
    return 1 / perf_prefill_s(&in->perf, (uint32_t)v->demand.prompt_mean);
}

static double decode_mu(const struct role_view *v, const struct role_instance *in)
{
    double context = v->demand.prompt_mean + v->demand.output_mean / 2;
    double each_s = in->perf.decode_seq_s + in->perf.kv_read_s * context;
    double batch = fmin(in->seqs_max, (double)in->kv_tokens_max / context);
    if (each_s > 0) batch = fmin(batch, (v->tpot_slo_s - in->perf.step_s) / each_s);
    if (batch < 1) batch = 1;
    return batch / ((in->perf.step_s + batch * each_s) * v->demand.output_mean);
}

static void decide(void *state, const struct role_view *view, int64_t now_us, struct rng *rng,
                   struct role_verdict *ret)
{
    (void)state, (void)rng;
    uint32_t order[ROLE_INSTANCES_MAX];
    uint32_t count = role_order(view, order);
    if (!role_known(view) || count < 2) {
        role_keep(view, "no demand is known, or too few instances", now_us, ret);
        return;
    }
    double prefill = 0, decode = 0;
    uint32_t now = 0, disaggregated = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct role_instance *in = &view->instance[order[i]];
        prefill += prefill_mu(view, in);
        decode += decode_mu(view, in);
        now += in->role == ROLE_PREFILL;
        disaggregated += in->role != ROLE_BOTH;
    }
    double part = decode / (prefill + decode); /* infinite rates have no ratio: halves */
    uint32_t want = (uint32_t)lround(count * (part >= 0 ? part : 0.5));
    want = min_u32(max_u32(want, 1), count - 1);
    /* A fleet that is already split changes by one instance at a time. */
    if (disaggregated == count && now > 0) want = want > now ? now + 1 : want < now ? now - 1 : now;
    role_assign(view, order, count, want, count - want, ret->role);
    role_answer(view, "both sides work at one rate", now_us + AGAIN_US, ret);
}

const struct role_policy role_pd_serve = {
    .name = "pd_serve",
    .about = "prefill and decode instances in the ratio of their rates, one change at a time",
    .source = "P/D-Serve (2024) section 3.3",
    .decide = decide,
};
