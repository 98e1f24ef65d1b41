/* scls.c - send each slice of an output to the instance with the least estimated serving time of all
 * its work (the offloader of slice-level scheduling, SCLS, arXiv 2406.13511).
 *
 * A request comes back after 128 output tokens, the slice of chunk scls, and is placed again, so that
 * no instance keeps long outputs while others stand idle. An instance serves closed batches one after
 * the other (admit scls), so for one with `waiting` requests before their first token
 *
 *     running = output tokens still to come, less those of the waiting
 *     places  = min(seqs_max, sequences of the mean length that its KV memory holds)
 *     steps   = running / decoding + own * ceil((waiting + 1) / places)
 *     seconds = steps * step_s + (prompt tokens owed + uncached tokens) * prefill_token_s
 *               + (output tokens still to come + own) * (decode_seq_s + kv_read_s * mean length)
 *
 * where `own` is the number of tokens that this request is expected to generate in the slice; waiting
 * requests are assumed to be like it. The request goes where the seconds are least, so that the
 * largest load over the fleet grows least (max-min).
 *
 * Deviations. The paper collects a pool at intervals, forms batches of it, sorts them by estimated
 * time and gives each, longest first, to the least loaded instance. A router here places one request
 * when it comes or comes back: list scheduling instead of longest first, bounded by twice the optimum
 * instead of 4/3, and without the wait for an interval. The engine forms the batches (admit scls).
 * The load is the work that the ledger says is still to be done, not a sum kept by the policy, so it
 * falls with each token and counts other routers' requests. An output is expected to have its
 * predicted length where that is shorter than the slice; the paper has no predictions. As in the
 * paper the next instance computes the prompt and the output so far; unlike in the paper an instance
 * that still has them cached is that much cheaper. */
#include "base/core/bits.h"
#include "policies/route/route.h"

#include <math.h>

#define SLICE_TOKENS 128 /* as chunk scls */

static double mean_tokens(const struct route_instance *in, const struct route_req *req)
{
    return ((double)in->active_tokens + (double)req->prompt_tokens) / ((double)in->in_flight + 1);
}

/* Returns the most sequences that a batch can have. */
static double places(const struct route_instance *in, double mean)
{
    double n = (double)in->seqs_max;
    if (in->kv_tokens_max > 0) n = fmin(n, (double)in->kv_tokens_max / (mean + SLICE_TOKENS));
    return fmax(floor(n), 1);
}

static double load_s(const struct route_instance *in, const struct route_req *req)
{
    double own = fmin(fmax(req->output_mean, 1), SLICE_TOKENS), waiting = (double)in->waiting;
    double uncached = (double)(req->prompt_tokens - route_hit_tokens(in, req));
    double prefill = (double)in->prefill_tokens + uncached;
    double decode = fmax(in->output_left, 0) + own;
    if (!in->has_perf) return prefill + decode; /* no speed is known: tokens */
    double mean = mean_tokens(in, req);
    double running = fmax(decode - (waiting + 1) * own, 0);
    double steps = own * ceil((waiting + 1) / places(in, mean));
    if (in->decoding > 0) steps += running / (double)in->decoding;
    return steps * in->perf.step_s + prefill * in->perf.prefill_token_s +
           decode * (in->perf.decode_seq_s + in->perf.kv_read_s * mean);
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct perf_coef fleet;
    bool known = route_fleet_perf(view, &fleet);
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        struct route_instance in = route_known(&view->instance[i], known ? &fleet : NULL);
        route_best_offer(&best, i, load_s(&in, req), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_scls = {
    .name = "scls",
    .about = "each slice of 128 output tokens to the least estimated serving time of all there",
    .source = "SCLS (arXiv 2406.13511)",
    .slice_tokens = SLICE_TOKENS,
    .decide = decide,
};
