/* intelligent_router.c - take the least sum of predicted latency and the penalty of mixing unlike work.
 *
 *     score   = TTFT + class * itl + penalty
 *     penalty = b * uncached part of this prompt * sequences decoding there (spikes it causes)
 *             + b * prefill queued there, if the output is at most 64 tokens    (spikes it meets)
 *     itl     = a + c * (decoding + 1) + d * (KV held + prompt)
 *     class   = the middle of the predicted output's bucket: 0-64, -128, -256, -512, -1024, -2048,
 *               which stands for all beyond
 *
 * Deviations: the paper trains a policy by reinforcement, guided by such a heuristic; we keep the
 * heuristic alone and price its penalty in seconds of the instance's step model. Its length classes
 * come from a fine-tuned encoder, ours from the configured predictor.
 * Source: Intelligent Router for LLM Workloads (arXiv 2408.13510).
 */
#include "policies/route/route.h"

#define SHORT_TOKENS 64

static double class_tokens(double predicted)
{
    double top = SHORT_TOKENS;
    while (top < 1024 && predicted > top)
        top *= 2;
    if (predicted > top) return 1.5 * top;
    return top == SHORT_TOKENS ? top / 2 : 0.75 * top;
}

static double score(const struct route_instance *in, const struct route_req *req)
{
    double uncached = (double)(req->prompt_tokens - route_hit_tokens(in, req));
    double output = class_tokens(req->output_p50);
    double itl_s = in->perf.step_s + in->perf.decode_seq_s * ((double)in->decoding + 1) +
                   in->perf.kv_read_s * (double)(in->kv_tokens + req->prompt_tokens);
    double penalty_s = in->perf.prefill_token_s * uncached * (double)in->decoding;
    if (output < SHORT_TOKENS) penalty_s += in->perf.prefill_token_s * (double)in->prefill_tokens;
    return route_ttft_s(in, req) + output * itl_s + penalty_s;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct perf_coef fleet = { .prefill_token_s =
                                   1 }; /* where no speed is known: tokens for seconds */
    route_fleet_perf(view, &fleet);
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        struct route_instance in = route_known(&view->instance[i], &fleet);
        route_best_offer(&best, i, score(&in, req), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_intelligent_router = {
    .name = "intelligent_router",
    .about = "least predicted latency plus what mixing prompts and decoding costs",
    .source = "Intelligent Router (arXiv 2408.13510), its heuristic",
    .decide = decide,
};
