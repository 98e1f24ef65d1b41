/* pd_handoff.c - picks the decode instance with the shortest step once it has the new session.
 *
 * Splitwise takes the token machine with the least memory in use, TetriInfer the better of two with
 * room by predicted load, DistServe the least loaded. All of these stand for the seconds of a step
 * there; the step-time model gives the seconds themselves, which also compare unlike machines. The
 * choice is made at the first token, not when the request arrives: prefill takes long enough for the
 * best instance to change. */
#include "policies/route/pd_handoff.h"

uint32_t handoff_pick(const struct route_view *view, const struct route_req *req, struct rng *rng)
{
    struct route_best free_slot = ROUTE_BEST_INIT, any = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!in->accepts) continue;
        double kv_tokens = (double)in->kv_tokens + (double)req->prompt_tokens + 1;
        double step_s =
            in->has_perf ? in->perf.step_s + in->perf.decode_seq_s * (double)(in->in_flight + 1) +
                               in->perf.kv_read_s * kv_tokens
                         : kv_tokens; /* unknown: behind all that are known, by tokens */
        route_best_offer(&any, i, step_s, rng);
        if (in->in_flight < in->seqs_max) route_best_offer(&free_slot, i, step_s, rng);
    }
    return free_slot.index != ROUTE_NONE ? free_slot.index : any.index;
}
