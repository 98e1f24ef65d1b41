/* services.h - what the router knows of each service: rules from the controller, demand for it.
 *
 * Layer:   router (policies, base/wire, base/core)
 * Threads: the decision thread only
 * Bound:   SYNC_SERVICES_MAX services; a window keeps WINDOW_SAMPLES_MAX values of WINDOW_US.
 *          Faster arrivals than that are measured over the shorter time that they fill.
 */
#pragma once
#include "base/wire/sync.h"
#include "policies/scale_recent.h"

#define WINDOW_SAMPLES_MAX 1024
#define WINDOW_US 15000000 /* demand is reported over the last fifteen seconds */
#define SERVICE_NAME_MAX 128

/* The latest values, oldest overwritten. */
struct window {
    double value[WINDOW_SAMPLES_MAX];
    int64_t at_us[WINDOW_SAMPLES_MAX];
    uint32_t next, count;
};
void window_add(struct window *w, double value, int64_t now_us);
/* count 0 when nothing fell into the last WINDOW_US. */
void window_quantiles(const struct window *w, int64_t now_us, struct wire_quantiles *ret);

/* Values a second over the last WINDOW_US. */
double window_per_s(const struct window *w, int64_t now_us);

struct service {
    char name[SERVICE_NAME_MAX];
    uint64_t hash; /* of the name: core_request.model */
    bool paused, may_start;
    bool from_controller; /* false: of a static endpoint, or deleted since */
    double slo_ttft_s, slo_tpot_s;
    bool has_kv_link;            /* the controller has said the next */
    double kv_link_bytes_s;      /* 0: its engines copy no K and V */
    struct service_demand total; /* the _total counters */
    struct window arrivals;      /* prompt tokens of each */
    struct window predicted;     /* tokens foretold for each */
    struct window ttft_s, tpot_s, e2e_s;
    struct scale_recent recent; /* lengths: what arrived lately, and what waits */
};

struct services {
    struct service *item;
    uint32_t count;
};

int services_new(struct services *s); /* -ENOMEM */
void services_fini(struct services *s);

/* Finds or makes; NULL at the bound or for a name that is too long. */
struct service *services_get(struct services *s, struct str name);
struct service *services_by_hash(struct services *s, uint64_t hash); /* NULL */
void services_remove(struct services *s, uint32_t at); /* another one may take its index */

/* Room for the bins of one message. */
struct service_bins {
    uint32_t expected[WIRE_LENGTH_PLACES], queued[WIRE_LENGTH_PLACES];
};

/* The service's part of a sync message; held and in-flight figures are the caller's. The message
 * borrows `bins`. */
void service_demand_fill(const struct service *s, int64_t now_us, struct service_bins *bins,
                         struct service_demand *ret);
