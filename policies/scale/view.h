/* view.h - the view that a scaling policy decides from: pools, instances and demand.
 *
 * Layer: policies (base/core)
 * Rules: a value that was not reported is marked as absent; no value is of the future
 */
#pragma once
#include "base/perf/lengths.h"
#include "base/perf/perf.h"

#define SCALE_POOLS_MAX 8    /* pools one service may own */
#define SCALE_COUNT_MAX 4096 /* instances one pool may have */

struct scale_pool {
    uint32_t min, max; /* min <= max <= SCALE_COUNT_MAX */
    uint32_t ready;    /* serving now */
    uint32_t starting; /* asked for or launched, not ready yet */
    bool available;    /* at least one of its offers can be had now */
    double price_h;    /* dollars an hour of the cheapest offer that can be had */
    double lead_s;     /* from the create call to ready */
    double left_s;     /* what is left of lead_s, mean over the starting instances */
    bool perf_known;   /* perf was reported by an instance or is the prior of the offer */
    struct perf_coef perf;
    uint32_t seqs_max;       /* sequences an instance runs at once; at least 1 */
    uint64_t kv_tokens_max;  /* tokens that one instance's KV memory holds; 0: unknown */
    uint32_t step_tokens;    /* prompt tokens that a step carries at most; 0: unknown */
    uint32_t context_tokens; /* longest request an instance takes, in tokens; 0: unknown */
};

/* One instance that is ready or starting, as its agent reported it last. */
struct scale_instance {
    uint64_t id; /* the same for its whole life, never used again */
    uint32_t pool;
    bool ready;
    bool fresh;    /* it has reported lately: the loads below mean something */
    double left_s; /* starting: the rest of its lead time */
    double price_h;
    double read_s; /* perf_read_s of its measured coefficients; 0: none yet */
    uint32_t running, waiting;
    uint64_t kv_tokens, kv_tokens_max; /* held by sessions, and capacity; capacity 0: absent */
    bool prefill_known;
    uint64_t prefill_tokens; /* of prompts it has accepted and not computed */
};

struct scale_demand {
    bool present;          /* false: no router has reported lately; nothing below means anything */
    double age_s;          /* of the oldest report in it */
    double arrivals_s;     /* requests a second over the routers' window */
    double late_refused_s; /* of those, refused by overload control */
    double prompt_tokens;  /* mean per request, less what caches held */
    double output_tokens;  /* mean per request, as predicted */
    uint32_t in_flight;    /* sent to instances and not ended */
    uint32_t waiting;      /* of those, not yet computing */
    uint32_t held;         /* kept by routers because no instance could take them */
    double idle_s;         /* since the last arrival */
    bool ttft_known;       /* enough outputs began within the window */
    double ttft_s;         /* 90th percentile */
    bool tpot_known;       /* enough outputs ended within the window */
    double tpot_s;         /* 90th percentile */
    bool slo_known;        /* the next two totals are counted */
    uint64_t slo_met_total, slo_missed_total; /* requests, since the same time */
    uint64_t arrivals_total;                  /* since the controller first heard of the service */
    uint64_t held_prompt_tokens;              /* prompt tokens of the held requests */
    struct lengths expected;                  /* of recent arrivals: the next are expected alike */
    struct lengths queued;                    /* of requests that are held or wait */
};

struct scale_view {
    struct scale_pool pool[SCALE_POOLS_MAX];
    uint32_t pool_count;
    const struct scale_instance *instance; /* ready or starting, in no order */
    uint32_t instance_count;
    struct scale_demand demand;
    double ttft_slo_s, tpot_slo_s; /* > 0 */
    double budget_h;               /* ceiling in dollars an hour; 0 for none */
};
