/* scale.h - the interface of scaling policies: how many instances should each pool have?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) two stages: a row of the table is the *signal* (what does the demand of this moment
 *              ask for?), scale_shape.h is the *shaper* (when may the fleet follow?); every
 *              signal goes through the same shaper
 *          (2) a signal counts instances that are ready or starting, never draining ones
 *          (3) absent is not zero: with demand.present == false a signal asks for what there is
 *          (4) min <= want <= max of every pool, except that nothing is added to a pool whose
 *              offers cannot be had now (available == false)
 *          (5) state is plain bytes of a fixed size: it can be saved and copied
 *
 * Units are seconds, tokens and dollars an hour.
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"
#include "policies/perf.h"

#define SCALE_POOLS_MAX 8   /* pools one service may own */
#define SCALE_COUNT_MAX 256 /* instances one pool may have */
#define SCALE_STATE_BYTES_MAX 1024

struct scale_pool {
    uint32_t min, max; /* min <= max <= SCALE_COUNT_MAX */
    uint32_t ready;    /* serving now */
    uint32_t starting; /* asked for or launched, not ready yet */
    bool available;    /* at least one of its offers may be asked now */
    double price_h;    /* dollars an hour of the cheapest offer that may be asked */
    double lead_s;     /* from the create call to ready */
    double left_s;     /* what is left of it, mean over the starting ones */
    bool perf_known;   /* perf was reported by an instance or is the prior of the offer */
    struct perf_coef perf;
    uint32_t seqs_max; /* sequences an instance runs at once; at least 1 */
};

struct scale_demand {
    bool present;         /* false: no router has reported lately; nothing below means anything */
    double arrivals_s;    /* requests a second over the routers' window */
    double prompt_tokens; /* mean per request, less what caches held */
    double output_tokens; /* mean per request, as predicted */
    uint32_t in_flight;   /* sent to instances and not ended */
    uint32_t waiting;     /* of those, not yet computing */
    uint32_t held;        /* kept by routers because no instance could take them */
    double idle_s;        /* since the last arrival */
    bool ttft_known;      /* enough answers began within the window */
    double ttft_s;        /* nine in ten had their first token within this time */
    double window_s;      /* that arrivals_s and ttft_s are taken over */
};

struct scale_view {
    struct scale_pool pool[SCALE_POOLS_MAX];
    uint32_t pool_count;
    struct scale_demand demand;
    double ttft_slo_s, tpot_slo_s; /* > 0 */
    double budget_h;               /* ceiling in dollars an hour; 0 for none */
};

struct scale_config {
    double utilisation_max; /* work: the share of an instance's seconds that may be planned */
    double clear_s;         /* work: seconds within which a backlog should be gone */
    double life_s;          /* work: how long a new instance is expected to be of use */
    double zero_after_s;    /* silence after which a pool may go below one */
    double queue_target;    /* queue: waiting requests an instance may have */
    double concurrency;     /* concurrency: requests an instance should run at once */
    uint32_t count;         /* static: instances */
};

/* What a row starts from when the configuration says nothing. */
#define SCALE_CONFIG_DEFAULT                         \
    ((struct scale_config){ .utilisation_max = 0.85, \
                            .clear_s = 10,           \
                            .life_s = 600,           \
                            .zero_after_s = 60,      \
                            .queue_target = 5,       \
                            .concurrency = 8,        \
                            .count = 1 })

struct scale_choice {
    uint32_t want[SCALE_POOLS_MAX];
    double cost_h; /* of all of it */
};

struct scale_verdict {
    struct scale_choice choice;
    struct scale_choice runner_up;
    bool has_runner_up;
    const char *reason;     /* static sentence */
    const char *runner_why; /* static: why the runner-up lost; NULL without one */
    double load;            /* the signal's own number, in instances of the first pool asked */
    double estimate_s;      /* predicted TTFT once the choice is ready; < 0 when unknown */
    int64_t again_us;       /* ask again no later than this */
};

struct scale_policy {
    const char *name;    /* as in muster.yaml */
    const char *about;   /* --help and the documents */
    const char *source;  /* where the rule comes from */
    uint32_t state_size; /* at most SCALE_STATE_BYTES_MAX; zeroed bytes are the first state */
    void (*decide)(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret);
};

extern const struct scale_policy *const scale_table[];
extern const uint32_t scale_count;
#define SCALE_DEFAULT "work"

const struct scale_policy *scale_find(struct str name); /* NULL when there is none */

/* What rows share (scale.c). */

/* Ready plus starting. */
uint32_t scale_have(const struct scale_pool *pool);

/* The most this pool can have soon: max, or what it has while nothing can be bought. */
uint32_t scale_reach(const struct scale_pool *pool);

double scale_cost_h(const struct scale_view *view, const uint32_t want[SCALE_POOLS_MAX]);

/* Spreads `total` instances: every pool's minimum first, then the cheapest pools up to their
 * reach and the budget. For signals that only know a number. */
void scale_spread(const struct scale_view *view, uint32_t total, struct scale_choice *ret);

/* The fleet as it is: the answer to absent demand. */
void scale_keep(const struct scale_view *view, const char *reason, struct scale_verdict *ret);

/* True when at least one instance is wanted: somebody asks, or somebody asked within zero_after_s
 * and something runs (recent silence keeps an instance, it does not buy one). */
bool scale_is_awake(const struct scale_config *config, const struct scale_view *view);
