/* capacity.c - the steady state of an instance under load. */
#include "policies/scale/capacity.h"

#include <float.h>
#include <math.h>

#define STEP_TOKENS 2048      /* where the step budget is unknown */
#define CHUNK_SHARE_MIN 0.125 /* of a step that prompts get however many sessions decode */
#define FREE_SHARE_MIN 0.02   /* of the step left when prompts come faster than they are computed */
/* Bounds of the requests a second of one instance, whatever its coefficients say. An instance below
 * the least is of no use; no language model comes near the most. Sums over a fleet stay finite. */
#define RATE_MIN 1e-9
#define RATE_MAX 1e6

void scale_load_of(const struct scale_pool *pool, const struct lengths *lengths,
                   struct scale_load *ret)
{
    const struct perf_coef *f = &pool->perf;
    double output = fmax(lengths->output, 1);
    double held = lengths->cross + lengths->output_sq / 2;
    struct scale_load l = { .step_s = f->step_s,
                            .prefill_s = f->prefill_token_s * lengths->prompt +
                                         f->attend_s * lengths->prompt_sq / 2,
                            .output = output,
                            .context = held / output,
                            .seqs_max = pool->seqs_max };
    double mean_sq = lengths->prompt * lengths->prompt;
    l.prefill_scv = mean_sq > 0 ? fmax(lengths->prompt_sq / mean_sq - 1, 0) : 0;
    double budget = pool->step_tokens ? pool->step_tokens : STEP_TOKENS;
    l.prompt = lengths->prompt;
    l.step_tokens = budget;
    l.seq_s = f->decode_seq_s + f->kv_read_s * l.context;
    l.work_s = l.prefill_s + output * l.seq_s;
    double longest = lengths->prompt + output;
    if (pool->kv_tokens_max > 0)
        l.seqs_max = fmin(l.seqs_max, fmax(1, (double)pool->kv_tokens_max / longest));
    *ret = l;
}

static double bounded(double rate)
{
    return rate < RATE_MIN ? 0 : fmin(rate, RATE_MAX);
}

double scale_load_rate(const struct scale_load *l, double ttft_slo_s, double tpot_slo_s,
                       double utilisation_max)
{
    double u = utilisation_max;
    u = fmin(u, 1 - (l->step_s + l->work_s / l->output) / tpot_slo_s);
    u = fmin(u, 1 - (l->step_s + l->prefill_s) / ttft_slo_s);
    if (u <= 0) return 0;
    double slots = l->seqs_max * utilisation_max;
    double rate = slots / fmax(l->output * l->step_s + slots * l->work_s, DBL_MIN);
    rate = fmin(rate, u / fmax(l->work_s, DBL_MIN));
    /* The sessions and the rate of prompts depend on each other: two rounds are near enough. */
    for (int i = 0; i < 2; i++) {
        double step = l->step_s / fmax(1 - rate * l->work_s, FREE_SHARE_MIN);
        double batch = fmin(rate * l->output * step, l->seqs_max);
        rate = fmin(rate, utilisation_max / scale_load_prompt_s(l, batch, 0));
    }
    return bounded(rate);
}

double scale_load_effort(const struct scale_load *l, double utilisation_max)
{
    double own_s =
        l->step_s * l->output / l->seqs_max; /* a request's share of full steps' fixed part */
    return bounded(utilisation_max / fmax(l->work_s + own_s, DBL_MIN));
}

double scale_load_prompt_s(const struct scale_load *l, double batch, double steps_more)
{
    double chunk = fmax(l->step_tokens - batch, l->step_tokens * CHUNK_SHARE_MIN);
    return l->prefill_s + (l->prompt / chunk + steps_more) * (l->step_s + l->seq_s * batch);
}

double scale_load_step_s(const struct scale_load *l, double n, double r)
{
    double left = fmax(1 - r * l->prefill_s, FREE_SHARE_MIN);
    return (l->step_s + l->seq_s * n) / left;
}
