/* overload.h - tells an overloaded fleet from a burst, and refuses requests that are late in it.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router's decision thread or the simulator calls
 * Rules:   (1) a service with `overload: serve`, the default, refuses nothing and asks nothing here
 *          (2) a request is refused only where no instance is expected to keep its TTFT SLO, and
 *              only while the fleet is overloaded
 *          (3) it works behind any routing policy: it judges the view, not the choice
 *
 * A burst ends in an empty queue; the queue of an overloaded fleet stands. The fleet of a model is
 * overloaded while every instance has a queue and either that has lasted for ROUTE_OVERLOAD_US or
 * each instance is sent a second of work a second or more. In a burst it is right to wait: the fleet
 * works the queue off and serves late requests soon. In a standing queue every request that is
 * served late makes those behind it late as well, without end.
 *
 * Source: the distinction is CoDel's (Nichols and Jacobson, CACM 2012), the refusal Mooncake's
 * (FAST'25, section on overload). Deviations: the least queue over the whole fleet is watched, and
 * requests are dropped because they are expected to miss their SLO, not because they have waited.
 */
#pragma once
#include "policies/route/route.h"

/* The window over which the fleet's load is averaged (router/core/ledger.h). */
#define ROUTE_OVERLOAD_US 60000000

enum route_overload_rule { ROUTE_OVERLOAD_SERVE, ROUTE_OVERLOAD_REFUSE, ROUTE_OVERLOAD_COUNT };
extern const char *const route_overload_names[ROUTE_OVERLOAD_COUNT + 1];

/* One for each model; zeros at first. */
struct route_overload {
    bool watched;
    int64_t idle_us; /* when an instance was last seen without a queue */
};

/* Notes the queues that a request of the model meets. */
void route_overload_observe(struct route_overload *o, const struct route_view *view,
                            int64_t now_us);
bool route_is_overloaded(const struct route_overload *o, const struct route_view *view,
                         int64_t now_us);

/* Turns the verdict into a refusal when no instance is expected to keep the request's TTFT SLO, and
 * says when to come back. Returns false and changes nothing if one is expected to keep it, or if no
 * speed or SLO is known. */
bool route_refuse_late(const struct route_view *view, const struct route_req *req,
                       struct route_verdict *ret);
