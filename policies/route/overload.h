/* overload.h - tells an overloaded fleet from a burst, and refuses requests that are late in it.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router's decision thread or the simulator calls
 * Rules:   (1) a service that serves all (`overload: serve`, the default) is never asked about
 *          (2) a request is refused only where no instance is expected to keep its TTFT SLO, and
 *              only while the fleet is overloaded
 *          (3) any routing policy may stand before it: it judges the view, not the choice
 *
 * A burst ends in an empty queue; the queue of an overloaded fleet stands. The fleet of a model is
 * overloaded while no instance is without a queue and either that has been so for ROUTE_OVERLOAD_US
 * or more than a second of work is sent to each a second. In a burst it is right to wait: the fleet
 * works the queue off and serves late requests soon. In a standing queue every request that is
 * served late makes those behind it late as well, without end.
 *
 * Source: the distinction is CoDel's (Nichols and Jacobson, CACM 2012), the refusal Mooncake's
 * (FAST'25, section on overload). Deviations: the least queue over the whole fleet is watched, and
 * what is dropped is what is expected to miss its SLO, not what has waited.
 */
#pragma once
#include "policies/route/route.h"

/* As long as the fleet's load is averaged over (router/core/ledger.h). */
#define ROUTE_OVERLOAD_US 60000000

enum route_overload_rule { ROUTE_OVERLOAD_SERVE, ROUTE_OVERLOAD_REFUSE, ROUTE_OVERLOAD_COUNT };
extern const char *const route_overload_names[ROUTE_OVERLOAD_COUNT + 1];

/* One for each model; zeros at first. */
struct route_overload {
    bool watched;
    int64_t idle_us; /* when an instance was last seen without a queue */
};

/* Looks at the queues that a request of the model meets. */
void route_overload_observe(struct route_overload *o, const struct route_view *view,
                            int64_t now_us);
bool route_is_overloaded(const struct route_overload *o, const struct route_view *view,
                         int64_t now_us);

/* Turns the verdict into a refusal when no instance is expected to keep the request's TTFT SLO, and
 * says when to come back. False, and nothing changes: one is, or no speed or SLO is known. */
bool route_refuse_late(const struct route_view *view, const struct route_req *req,
                       struct route_verdict *ret);
