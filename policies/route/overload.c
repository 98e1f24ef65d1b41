/* overload.c - detect a standing queue, and refuse late requests in it.
 *
 *     idle        some instance has no prompt queued and a free sequence slot
 *     overloaded  no instance is idle, and either none was for ROUTE_OVERLOAD_US or load >= 1
 *     late        min over instances of predicted TTFT > slo_ttft
 *     retry after min TTFT - slo_ttft, at least a second: the queue has to shrink by so much
 *
 * Refusals hold the shortest queue at about the SLO, where it is not empty: while more work arrives
 * than the fleet does, the fleet stays overloaded. Once less arrives, requests are in time before the
 * queue is empty, so no request is refused at the end of an overload.
 * The load shows an overload at once, before there is a backlog of a minute. It is not enough alone:
 * seconds of work leave out the fixed cost of a step and a shortage of memory, so a fleet can be full
 * at a load of 0.7; and the load counts what is sent, which refusals hold at about 1. */
#include "policies/route/overload.h"

#include "base/core/bits.h"

#include <math.h>

#define LOAD_FULL 1.0 /* seconds of work a second, an instance */
#define RETRY_S_MIN 1.0

const char *const route_overload_names[ROUTE_OVERLOAD_COUNT + 1] = {
    [ROUTE_OVERLOAD_SERVE] = "serve",
    [ROUTE_OVERLOAD_REFUSE] = "refuse",
};

void route_overload_observe(struct route_overload *o, const struct route_view *view, int64_t now_us)
{
    bool takes = false, idle = false;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        takes = true;
        idle = idle || (in->prefill_tokens == 0 && in->slot_wait_s <= 0);
    }
    /* With no instance there is no queue: the request is held. */
    if (o->watched && takes && !idle) return;
    o->idle_us = o->watched ? max_i64(o->idle_us, now_us) : now_us;
    o->watched = true;
}

bool route_is_overloaded(const struct route_overload *o, const struct route_view *view,
                         int64_t now_us)
{
    if (!o->watched || now_us <= o->idle_us) return false;
    return now_us - o->idle_us >= ROUTE_OVERLOAD_US || (view->has_load && view->load >= LOAD_FULL);
}

bool route_refuse_late(const struct route_view *view, const struct route_req *req,
                       struct route_verdict *ret)
{
    struct perf_coef fleet;
    if (req->slo_ttft_s <= 0 || !route_fleet_perf(view, &fleet)) return false;
    double least_s = (double)INFINITY;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        struct route_instance at = route_known(&view->instance[i], &fleet);
        least_s = fmin(least_s, route_ttft_s(&at, req));
    }
    if (least_s <= req->slo_ttft_s || isinf(least_s)) return false;
    route_answer(view, req, ROUTE_NONE, ROUTE_NONE, ret);
    ret->reject = true;
    ret->late = true;
    ret->estimate_s = least_s;
    ret->retry_after_s = fmax(least_s - req->slo_ttft_s, RETRY_S_MIN);
    return true;
}
