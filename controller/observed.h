/* observed.h - holds the fleet's state as providers, agents and routers last reported it, and a few numbers
 * of its last hour for the console's charts.
 *
 * Layer:   controller, private to it
 * Threads: the loop's
 * Owner:   calls.c writes providers, sync.c agents and routers, and sums and forgets routers
 * Rules:   (1) nothing here is stored: a restarted controller learns it all anew
 *          (2) the hour is a bounded ring: a sample every LAST_HOUR_PERIOD_US, the oldest is dropped;
 *              dashboards keep more (metrics)
 */
#pragma once
#include "base/core/hash.h"
#include "base/wire/sync.h"
#include "controller/cloud/cloud.h"
#include "controller/core/plan.h"
#include "controller/machine.h"
#include "controller/power.h"
#include "fleet/demand.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- providers ---- */

/* One provider: its driver, its budget and its last good listing. */
struct provider {
    struct cloud cloud;
    double tokens; /* of the budget */
    int64_t filled_us;

    struct listed *listed; /* CLOUD_LIST_MAX */
    struct listing listing;
    bool observed; /* the listing shows the world since the controller's start */
    bool is_new;   /* the listing has come since the last tick */
    bool list_soon;
    uint32_t orphans;               /* in the listing, beyond those that were adopted */
    uint64_t list_call, price_call; /* under way; 0: none */
    int64_t list_sent_us, price_sent_us;
};

/* ---- agents ---- */

/* An agent's report beyond the part that decisions need, and the calls about the instance. Parallel to
 * intents. */
/* Adapters that an engine reports, in one piece of memory with their texts. */
struct known_adapters {
    uint32_t count;
    struct wire_adapter list[WIRE_ADAPTERS_MAX];
    char texts[];
};

struct detail {
    uint64_t agent_boot, agent_seq;
    uint32_t restarts;
    char trouble[REPORT_TEXT_BYTES_MAX + 1];
    char version[REPORT_VERSION_BYTES_MAX + 1];
    int64_t clock_ahead_us; /* the agent's wall clock less ours, as its report came; has_clock */
    bool has_clock;
    uint32_t unfinished;
    char node[NAME_BYTES]; /* as its provider lists it; empty: not said */
    char host[REPORT_NAME_BYTES_MAX + 1], agent_host[REPORT_NAME_BYTES_MAX + 1];
    char model[REPORT_TEXT_BYTES_MAX + 1];
    char digest[REPORT_NAME_BYTES_MAX + 1], numerics[REPORT_NAME_BYTES_MAX + 1];
    bool has_weights;
    struct wire_weights weights; /* its sha256 points into the next */
    char weights_sha256[SHA256_HEX + 1];
    bool has_engine;
    struct engine_report engine;     /* its strings point into this struct */
    struct known_adapters *adapters; /* NULL: none, or no memory for them */
    struct machine_detail machine;
    bool lead_learned;
    struct lead told;   /* phases of its launch by its agent */
    struct lead lead;   /* those that the offer has learned */
    bool doomed;        /* the provider takes it away, or has taken it; or its machine is broken */
    int64_t leaves_us;  /* when, as the provider says; 0: not said */
    int64_t noticed_us; /* when, as its own machine was told; 0: it was not */
    bool at_risk;       /* its provider may take it away sooner than others; its machine was told */
    char notice_why[INTENT_WHY_BYTES];
    enum cloud_op due;      /* a call that is wanted and not submitted */
    uint64_t call;          /* under way; 0: none */
    int64_t call_us;        /* when it was submitted */
    int64_t answered_us;    /* when the last one completed; 0: none since the start */
    double told_price_h;    /* its own price, as its provider said at the create; 0: not said */
    int64_t told_us;        /* when its provider says that it was made; 0: not said */
    int64_t shown_us;       /* the latest moment at which a listing proves it to be there */
    int64_t gone_us;        /* when a listing first showed it as ended; 0: none did */
    int64_t taken_us;       /* when the provider took a remove; 0: not since the start */
    uint32_t service, pool; /* PLAN_NONE: not configured */
    enum phase phase;       /* as the last tick saw it */
    int64_t phase_us;
    uint32_t routed;  /* in flight there, as routers report */
    uint32_t role_id; /* its id in role policies: < SLOTS_MAX, of no other live instance */
    enum role role;   /* as routers are told */
    struct instance_power power;
};

/* ---- routers ---- */

struct usage {
    uint64_t requests, rejected, prompt_tokens, cached_tokens, generated_tokens;
};

struct usage_seen {
    uint64_t tenant; /* serial of the tenant this belongs to; 0: none */
    struct usage last;
    struct {
        uint64_t service; /* hash of its name */
        uint64_t tokens;
    } work[TENANT_SERVICES_MAX];
    uint32_t work_count;
};

#define ROUTER_FORGET_US 300000000 /* a router that is silent for so long is forgotten */

struct router {
    char id[REPORT_NAME_BYTES_MAX + 1]; /* empty: a free place */
    char host[REPORT_NAME_BYTES_MAX + 1];
    char reach[REPORT_NAME_BYTES_MAX + 1]; /* where agents may dial it; empty: they may not */
    uint32_t port;
    uint64_t boot, seq;
    int64_t heard_us;
    char version[REPORT_VERSION_BYTES_MAX + 1];
    int64_t clock_ahead_us; /* its wall clock less ours, as its sync came; has_clock */
    bool has_clock;
    struct demand_seen demand[PLAN_SERVICES_MAX];
    struct routed {
        char instance[INTENT_ID_BYTES];
        uint32_t in_flight;
        bool has_perf; /* learned from the streams of an engine that reports none */
        struct perf_coef perf;
    } * endpoint; /* SYNC_ENDPOINTS_MAX */
    uint32_t endpoint_count;
    struct usage_seen *usage; /* CONTROL_TENANTS_MAX, parallel to tenants */
    struct refused_seen {
        uint64_t fingerprint, boot; /* of the router that reported it: it may have restarted */
        int64_t until_us;
    } refused[SYNC_REFUSED_MAX];
    uint32_t refused_count;
};

#define LAST_HOUR_PERIOD_US 5000000
#define LAST_HOUR_SAMPLES_MAX 720 /* an hour */

struct hour_sample {
    int64_t at_us; /* fleet time */
    double arrivals_s;
    uint32_t in_flight, held, ready; /* over all services */
    bool ttft_known, tpot_known;     /* the router with most measurements had some */
    double ttft_p50_s, ttft_p99_s, tpot_p50_s;
};

struct last_hour {
    struct hour_sample sample[LAST_HOUR_SAMPLES_MAX];
    uint32_t first, count;
};

struct control;
struct json_writer;

/* Takes a sample when one is due. */
void last_hour_keep(struct control *c, int64_t now_us);

/* Writes "history": {"period_s":5,"samples":[{..},..]}, oldest first; dates in place of fleet time. */
void last_hour_put(struct json_writer *w, const struct control *c);
