/* router_seen.h - what each router has said, as far as decisions need it.
 *
 * Layer:   controller, private to it
 * Owner:   sync.c writes, refused.c its part; demand.c sums and forgets
 */
#pragma once
#include "base/wire/sync.h"
#include "controller/core/plan.h"

#define ROUTER_FRESH_US 3000000    /* six syncs */
#define ROUTER_FORGET_US 300000000 /* a router that is silent for so long is no router any more */

struct demand_seen { /* one service through one router */
    struct service_demand last;
    bool present;
    int64_t arrived_us;                    /* when its arrivals last rose */
    double cached_share;                   /* of prompt tokens, decayed mean */
    struct scale_lengths expected, queued; /* of `last`, whose own bins are gone with the message */
};

struct router {
    char id[REPORT_NAME_BYTES_MAX + 1]; /* empty: a free place */
    char host[REPORT_NAME_BYTES_MAX + 1];
    uint32_t port;
    uint64_t boot, seq;
    int64_t heard_us;
    struct demand_seen demand[PLAN_SERVICES_MAX];
    struct routed {
        char instance[INTENT_ID_BYTES];
        uint32_t in_flight;
    } * endpoint; /* SYNC_ENDPOINTS_MAX */
    uint32_t endpoint_count;
    struct usage_seen *usage; /* CONTROL_TENANTS_MAX, parallel to tenants */
    struct refused_seen {
        uint64_t fingerprint, boot; /* of the router that said so: it may have started again */
        int64_t until_us;
    } refused[SYNC_REFUSED_MAX];
    uint32_t refused_count;
};

/* What routers have counted of a service since we know them. */
struct counted {
    uint64_t arrivals, met, missed;
};
