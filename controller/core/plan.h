/* plan.h - decides the fleet's next actions, as a pure function of the wanted and the observed state.
 *
 * Layer:   controller/core (policies, base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Steps:   signal (a scaling policy; with a mix policy its counts of each pool) -> bounds of the
 *          service -> shaper -> override (pause, manual counts) -> proof (nothing goes down without
 *          fresh telemetry) -> actions within the budget
 * Rules:   (1) scale-down needs a report within fresh_us of at least PLAN_FRESH_SHARE of the ready
 *              instances and a fresh sync of every router; to zero, also that no router has a request
 *          (2) the price of everything that may be billed, launches under way and drains
 *              included, stays within the budget; a launch that the budget forbids is reported
 *          (3) an offer in back-off is not asked; the placement policy chooses among the others. In a
 *              pool with spot offers its spares and replacements are followed too, when nothing
 *              else is under way
 *          (4) a draining instance that is wanted again is kept before another is bought
 *          (5) an instance at risk counts as leaving, so that another takes its place; it serves on until
 *              the others are as many as are wanted, and is drained then. Where none can be bought it goes
 *              on: what works is not given up
 *          (6) launches are cancelled before ready instances are drained; the first victim is
 *              the one whose work costs the most (its speed and its price), then serves the
 *              fewest requests, then holds the least cache
 *          (6) what works is not given up before its replacement in another pool is ready, as long as the
 *              service's maximum and its budget have room for both
 */
#pragma once
#include "controller/core/bill.h"
#include "controller/core/intent.h"
#include "controller/core/merge.h"
#include "controller/core/pool_mix.h"
#include "policies/place/place.h"
#include "policies/power/power.h"
#include "policies/role/role.h"
#include "policies/scale/scale.h"
#include "policies/scale/shape/shape.h"

#define PLAN_OFFERS_MAX 64     /* all providers */
#define PLAN_POOL_OFFERS_MAX 8 /* of one pool, in order of preference */
#define PLAN_SERVICES_MAX 16
#define PLAN_INSTANCES_MAX 4096 /* live intents in one view */
#define PLAN_ACTIONS_MAX 64     /* of one decision; the rest come with the next */
#define PLAN_FRESH_SHARE 0.9
/* Share of time in which a pool should have its target, where the service names no attainment. */
#define PLAN_AVAILABILITY 0.99
/* Of a pool: so many failing machines, or one, are replaced at a time. */
#define PLAN_FAILING_SHARE 0.2
#define PLAN_NONE UINT32_MAX
#define PLAN_BLOCKED_BUDGET "the budget" /* what a decision says was in the way */

struct plan_pool {
    char name[NAME_BYTES];
    char provider[NAME_BYTES];
    uint32_t offer[PLAN_POOL_OFFERS_MAX]; /* indices, as listed */
    uint32_t offer_count;
    uint32_t min, max;
    /* Instances that are stopped and not ended when they are given up, at most. */
    uint32_t keep_stopped;
    int32_t manual; /* instances a person asked for; -1: none */
    bool drained;   /* by a person: no instance is wanted, whatever `manual` says */
    enum role role; /* other than `both`: pinned, no policy chooses it */
    enum priority priority;
};

/* A service, from the configuration and from people's overrides. */
struct plan_service {
    char name[NAME_BYTES];
    struct plan_pool pool[SCALE_POOLS_MAX];
    uint32_t pool_count;
    uint32_t min, max; /* of all its pools together */
    double ttft_slo_s, tpot_slo_s;
    bool refuse_late; /* its routers refuse late requests while its fleet is overloaded */
    double budget_h;  /* dollars an hour that all ceilings allow now; 0: none */
    struct bill_ceilings budget; /* as configured */
    bool paused;                 /* the fleet stays as it is */
    const struct scale_policy *policy;
    struct scale_config scale;
    const struct scale_shaper *shaper; /* NULL: window */
    struct scale_shape_config shape;
    const struct mix_policy *mix;     /* NULL: the scaling policy says how many of each pool */
    const struct place_policy *place; /* has `choose` */
    const struct role_policy *role;   /* NULL: roles stay as the pools have them */
    double kv_link_bytes_s;           /* rate at which its engines copy KV; 0: they do not */
    const struct power_policy *power; /* NULL: clocks are not set */
    double power_limit_watts;         /* limit of the breaker before its instances; 0: none */
};

struct plan_instance {
    char id[INTENT_ID_BYTES];
    uint32_t service, pool; /* PLAN_NONE: not configured (any more) */
    uint32_t offer;         /* it was bought at this one; PLAN_NONE likewise */
    enum phase phase;
    bool fresh;         /* its agent reported within fresh_us */
    bool at_risk;       /* its provider may take it away soon: replaced, and given up then */
    bool failing;       /* at risk, as its machine's GPU is failing */
    bool doomed;        /* the provider takes it away, or a person: it counts as gone, even while it
                         * still serves, and its drain is not withdrawn */
    bool pinned;        /* it cannot be ended: counted, but never a victim */
    uint32_t in_flight; /* the larger of its own count and the routers' */
    uint32_t pages_cached;
    uint64_t cached_tokens; /* that they hold */
    bool has_perf;
    struct perf_coef perf;
    uint32_t seqs_max; /* 0: unknown */
    double price_h;
    int64_t since_us;           /* in this phase */
    double lead_s;              /* of the offer it came from; 0: unknown, the pool's counts */
    uint32_t context_tokens;    /* 0: unknown */
    uint32_t step_tokens;       /* 0: unknown */
    struct scale_instance load; /* as reported; pool, ready, fresh and left_s are the plan's */
};

/* Demand of one service as its routers report it. */
struct plan_demand {
    struct scale_demand sum; /* .present: at least one router is fresh */
    bool all_fresh;          /* and none of the known ones is stale */
};

struct plan_view {
    const struct plan_service *service;
    uint32_t service_count;
    const struct offer *offer;
    const struct offer_health *health; /* parallel to offer */
    const double *sold_out;            /* likewise: the chance of it (stock.h); NULL: not known */
    const struct plan_instance *instance;
    uint32_t instance_count;
    const struct plan_demand *demand; /* parallel to service */
    uint32_t room;                    /* intents that may still be written */
    struct pool_mix_room *mix_room;   /* work memory; NULL: no service has a mix policy */
    struct pool_mix *mix;             /* parallel to service, likewise; written */
};

/* The state of a service's policies between decisions; plain bytes, stored with the fleet. */
struct plan_memory {
    _Alignas(8) char policy[SCALE_STATE_BYTES_MAX];
    _Alignas(8) char shape[SHAPE_STATE_BYTES_MAX];
    _Alignas(8) char place[SCALE_POOLS_MAX][PLACE_STATE_BYTES_MAX];
};

enum plan_act {
    PLAN_LAUNCH,
    PLAN_CANCEL, /* an instance that serves no request yet */
    PLAN_DRAIN,
    PLAN_KEEP, /* withdraw a drain */
    PLAN_ACT_COUNT
};
extern const char *const plan_act_names[PLAN_ACT_COUNT];

struct plan_action {
    enum plan_act act;
    uint32_t service, pool, offer; /* LAUNCH */
    uint32_t instance;             /* the others: index in the view */
    const char *why;               /* static */
};

/* The placement policy's verdict on one pool. */
struct plan_placed {
    const char *reason; /* static */
    double cost_h;      /* of the instances that it wants */
    double missing;     /* predicted share of time below the target; < 0: unknown */
};

/* A decision for one service with its grounds: inputs, reason, runner-up, cost. */
struct plan_decision {
    uint32_t service;
    struct scale_demand demand;
    struct scale_verdict verdict;
    uint32_t have[SCALE_POOLS_MAX]; /* ready and starting */
    uint32_t ready[SCALE_POOLS_MAX];
    uint32_t target[SCALE_POOLS_MAX]; /* after bounds, shaper, override and proof */
    struct plan_placed placed[SCALE_POOLS_MAX];
    const char *reason;       /* static: the rule that decided */
    const char *blocked;      /* static: the rule that held something back; NULL: none */
    double hold_s;            /* of a stabilisation window that has begun; 0 else */
    uint32_t failing;         /* ready instances whose machine is failing */
    uint32_t fresh, expected; /* ready instances: with a fresh report; all */
    bool routers_fresh;
    double cost_h, cost_h_after; /* billed now, and once the actions are done */
    uint32_t action_from, action_count;
};

struct plan {
    struct plan_action action[PLAN_ACTIONS_MAX];
    uint32_t action_count;
    struct plan_decision decision[PLAN_SERVICES_MAX];
    uint32_t decision_count;
    uint32_t dropped; /* actions beyond PLAN_ACTIONS_MAX or `room` */

    /* Scratch of plan(), here because 330 kB are too much for a stack. */
    struct scale_instance seen[PLAN_INSTANCES_MAX];
    bool taken[PLAN_INSTANCES_MAX];
};

/* Decides for all services. `memory` is parallel to view->service. */
void plan(const struct plan_view *view, struct plan_memory *memory, int64_t now_us, struct rng *rng,
          struct plan *ret);
