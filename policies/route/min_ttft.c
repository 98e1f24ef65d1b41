/* min_ttft.c - take the least TTFT or refuse the request: Mooncake's Conductor without transfers.
 *
 *     ttft_i = queue_i + prefill_i(prompt - cached_i);   take the least
 *     least ttft > TTFT SLO, or the gap between tokens there > TPOT SLO: reject
 *
 * With no SLO it decides as shortest_ttft does. A rejected client is told to come back when the queue
 * has shrunk by the seconds over the SLO, or after slo_tpot where only the gap between tokens is too
 * long: no prediction says when a sequence there ends.
 * Deviations: the paper predicts with an offline fit for each prefill length, we with the
 * instance's reported step model; it checks the gap between tokens at a separate decode instance.
 * Source: Mooncake (FAST'25) algorithm 1, first branch, and section on overload.
 */
#include "policies/route/route.h"

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    route_shortest_ttft.decide(state, view, req, now_us, rng, ret);
    if (ret->instance_id == ROUTE_NONE || ret->estimate_s < 0) return;

    double late_s = req->slo_ttft_s > 0 ? ret->estimate_s - req->slo_ttft_s : 0;
    if (late_s <= 0 && req->slo_tpot_s > 0) {
        const struct route_instance *in = view->instance;
        while (in->id != ret->instance_id)
            in++;
        double itl_s = in->perf.step_s + in->perf.decode_seq_s * ((double)in->decoding + 1) +
                       in->perf.kv_read_s * (double)(in->kv_tokens + req->prompt_tokens);
        if (itl_s > req->slo_tpot_s) late_s = req->slo_tpot_s;
    }
    if (late_s <= 0) return;
    ret->instance_id = ROUTE_NONE;
    ret->reject = true;
    ret->retry_after_s = late_s;
}

const struct route_policy route_min_ttft = {
    .name = "min_ttft",
    .about = "least predicted TTFT; refuses what cannot keep its SLO",
    .source = "Mooncake (FAST'25), algorithm 1 without transfers",
    .decide = decide,
};
