/* scale.h - the interface of scaling policies, which choose how many instances each pool should have.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) scaling has two stages: a policy of this table is the *signal*, which says how many
 *              instances the present demand needs; a policy of shape/shape.h is the *shaper*, which
 *              says when the fleet may follow. Each signal names the shaper it is published with
 *          (2) a signal counts instances that are ready or starting, never draining ones
 *          (3) absent is not zero: a signal asks for the present fleet while demand.present is
 *              false, and while the reports lack an input that it needs
 *          (4) min <= want <= max of every pool, except that nothing is added to a pool while its
 *              offers cannot be had (available == false)
 *          (5) state is plain bytes of a fixed size: it can be saved and copied
 *          (6) no view holds the future: the one planner that knows it (bound.h) is not in this
 *              table
 *          (7) now_us is wall clock time: it is never negative but may go back, and no policy waits
 *              until it has caught up
 *
 * Units are seconds, tokens and dollars an hour.
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"
#include "base/perf/perf.h"
#include "policies/scale/view.h"

#define SCALE_STATE_BYTES_MAX 16384

struct scale_shape_config; /* shape/shape.h */
struct scale_forecast;     /* forecast.h */

struct scale_config {
    double margin;          /* every policy: measured load is multiplied by it; 1: as published */
    double utilisation_max; /* work: largest share of an instance's seconds that is planned */
    double clear_s;         /* work: seconds within which a backlog should be gone */
    double life_s;          /* work: seconds that a new instance is expected to be of use */
    double attainment;      /* work: share of requests that should keep the SLO */
    double zero_after_s;    /* silence after which a pool may go below one */
    double queue_target;    /* keda_queue: waiting requests an instance may have */
    double concurrency;     /* kpa: requests an instance should run at once */
    double ongoing_target;  /* ray_serve: requests an instance has under way */
    double qps_target;      /* skyserve: requests a second an instance serves */
    double kv_target;       /* aibrix_apa, apa_fixed: share of KV memory in use */
    uint32_t count;         /* static: instances */
    /* dynamo_throughput, sageserve; NULL: the policy's own */
    const struct scale_forecast *forecast;
};

/* The defaults of parameters that the configuration does not set. */
#define SCALE_CONFIG_DEFAULT                         \
    ((struct scale_config){ .margin = 1,             \
                            .utilisation_max = 0.85, \
                            .clear_s = 10,           \
                            .life_s = 600,           \
                            .attainment = 0.99,      \
                            .zero_after_s = 60,      \
                            .queue_target = 5,       \
                            .concurrency = 100,      \
                            .ongoing_target = 2,     \
                            .qps_target = 1,         \
                            .kv_target = 0.5,        \
                            .count = 1 })

struct scale_choice {
    uint32_t want[SCALE_POOLS_MAX];
    double cost_h; /* dollars an hour of all of them */
};

struct scale_verdict {
    struct scale_choice choice;
    struct scale_choice runner_up;
    bool has_runner_up;
    const char *reason;     /* static sentence */
    const char *runner_why; /* static: why the runner-up lost; NULL without one */
    double load;            /* the signal's own measure: instances, or a share or score of load */
    double estimate_s;      /* predicted TTFT once the choice is ready; < 0 when unknown */
    bool has_forecast;      /* the next is forecast */
    double forecast_s;      /* arrivals a second that the choice will meet */
    int64_t again_us;       /* ask again no later than this */
};

/* Inputs that a policy requires; if one is missing it keeps the fleet as it is (scale_missing). */
enum scale_need {
    SCALE_NEEDS_KV = 1 << 0,      /* KV tokens of instances */
    SCALE_NEEDS_PREFILL = 1 << 1, /* prompt tokens that instances have not computed */
    SCALE_NEEDS_TPOT = 1 << 2,    /* measured TPOT */
    SCALE_NEEDS_SPEED = 1 << 3,   /* the step-time model of at least one pool */
};

struct scale_policy {
    const char *name;   /* as in muster.yaml */
    const char *about;  /* --help and the documents */
    const char *source; /* where the rule comes from */
    const char *shaper; /* the policy of scale_shape_table that it is published with */
    const struct scale_shape_config *shape; /* the shaper's numbers; NULL: its own */
    uint32_t needs;                         /* bits of enum scale_need */
    uint32_t state_size; /* at most SCALE_STATE_BYTES_MAX; the first state is all zeros */
    void (*decide)(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret);
};

#define POLICY(name) extern const struct scale_policy scale_##name;
#include "policies/scale/scale.def"
#undef POLICY

extern const struct scale_policy *const scale_table[];
extern const uint32_t scale_count;
#define SCALE_DEFAULT "work"

const struct scale_policy *scale_find(struct str name); /* NULL when there is none */

/* Returns the first input of `needs` that is not in `has`, in words; NULL when none is missing. */
const char *scale_missing(uint32_t needs, uint32_t has);

/* Functions that policies share (scale.c). */

/* Returns the instances of a pool that are ready or starting. */
uint32_t scale_have(const struct scale_pool *pool);

/* Return the instances of all pools: ready or starting, ready, starting. */
uint32_t scale_have_all(const struct scale_view *view);
uint32_t scale_ready_all(const struct scale_view *view);
uint32_t scale_starting_all(const struct scale_view *view);

/* Returns the most instances this pool can have soon: max, or its present count while its offers
 * cannot be had. */
uint32_t scale_reach(const struct scale_pool *pool);

double scale_cost_h(const struct scale_view *view, const uint32_t want[SCALE_POOLS_MAX]);

/* Returns true if the budget covers the cost, or there is no budget. */
bool scale_affords(const struct scale_view *view, double cost_h);

/* Spreads `total` instances over pools: every pool's minimum first, then the cheapest pools up to
 * their reach and the budget. It serves signals that compute one number for all pools. */
void scale_spread(const struct scale_view *view, uint32_t total, struct scale_choice *ret);

/* Changes the present fleet by `by` instances: adds to the cheapest pools, removes from the dearest.
 * With `settled` only pools where nothing starts are changed. It serves signals that move by steps. */
void scale_nudge(const struct scale_view *view, int by, bool settled, struct scale_choice *ret);

/* Asks for the present fleet, within each pool's min and max: the verdict when demand is absent. */
void scale_keep(const struct scale_view *view, const char *reason, struct scale_verdict *ret);

/* Fills the verdict of a signal that computes one number for all pools: `total` rounded up, and at
 * least one while scale_is_awake. */
void scale_answer(const struct scale_config *config, const struct scale_view *view, double total,
                  const char *reason, struct scale_verdict *ret);

/* Returns true when at least one instance is wanted: there are requests now, or there were within
 * zero_after_s and an instance exists (recent silence keeps an instance but buys none). */
bool scale_is_awake(const struct scale_config *config, const struct scale_view *view);

/* Rounds a load in instances as the HPA does: up, or to `have` while the load is within a tenth of it. */
double scale_hpa_count(double load, uint32_t have);

/* Returns true once a period and then sets `*next_us`, which is part of the policy's state. Policies
 * with a slow loop keep their last result in between. */
bool scale_due(int64_t *next_us, double period_s, int64_t now_us);
