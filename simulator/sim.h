/* sim.h - a fleet in virtual time: the product's own decisions over a modelled world.
 *
 * Layer:    simulator (policies, every role core, base/core)
 * Time:     integer microseconds
 * Chance:   one seed; streams keyed by (seed, entity, purpose), so that two policies meet the same
 *           world
 * Rules:    (1) world and belief are apart: the world draws a hidden bias for each instance and a
 *               residual for each step and alone knows true output lengths; views hold what an
 *               engine would report and a router would have seen
 *           (2) the same configuration, trace and seed give the same digest on every machine of
 *               one instruction set
 *           (3) skipping ahead changes no digest: `exact` computes step by step
 *           (4) what was offered is counted: rejected, unfinished and too long are misses with
 *               infinite TTFT
 */
#pragma once
#include "policies/hardware.h"
#include "policies/migrate.h"
#include "policies/model_spec.h"
#include "policies/perf_row.h"
#include "policies/power.h"
#include "policies/predict.h"
#include "policies/preset.h"
#include "policies/role.h"
#include "policies/route.h"
#include "policies/scale.h"
#include "simulator/control.h"
#include "simulator/trace.h"

#define SIM_POOLS_MAX SCALE_POOLS_MAX
#define SIM_INSTANCES_MAX 4096
#define SIM_ROUTERS_MAX 16
#define SIM_HISTOGRAM_BINS 2048

/* Instances of one kind; `8xh100` is one of these. */
struct sim_pool {
    const struct hardware *hardware; /* NULL: `step`, or ref8000, the serial reference */
    bool has_step;                   /* measured on some machine, instead of hardware and model; */
    struct perf_coef step;           /* sim_config.kv_tokens is then required */
    uint32_t count;                  /* at the start; the fleet's size where nothing scales */
    uint32_t tp;                     /* devices an instance spans */
    double price_h;                  /* dollars an instance-hour */
    enum role role;
    uint32_t service;        /* of the trace's, that it serves */
    bool has_model;          /* its service's own, */
    struct model_spec model; /* instead of the run's */
};

static inline bool sim_pool_is_serial(const struct sim_pool *p)
{
    return !p->hardware && !p->has_step;
}

struct sim_promise {
    double ttft_s, tpot_s;
};

struct sim_config {
    uint64_t seed;
    bool exact;
    struct sim_pool pool[SIM_POOLS_MAX];
    uint32_t pool_count;
    struct model_spec model;

    /* The rows; NULL is the default of its kind. */
    const struct route_policy *route;
    const struct predict_policy *predict;
    const struct preset *preset; /* for those of the step that are NULL */
    const struct fair_policy *fair;
    const struct order_policy *order;
    const struct admit_policy *admit;
    const struct preempt_policy *preempt;
    const struct chunk_policy *chunk;
    const struct evict_policy *evict;
    const struct migrate_policy *migrate;
    const struct role_policy *role; /* NULL: roles stay as the pools have them */
    const struct perf_policy *perf; /* what engines believe of their speed */
    const struct power_policy *power;
    double row_watts_max; /* what the breaker before all instances allows; 0: none */

    double link_bytes_s;     /* of an instance's port, each way, for K and V; 0: 25e9 */
    int64_t link_us;         /* before the first byte; 0: 500 */
    uint32_t routers;        /* at least 1 */
    int64_t report_delay_us; /* how old an engine's report is when a router uses it */
    int64_t event_lag_us;    /* how long a block event takes to a router */

    /* Engine limits; 0: from the hardware and the model. */
    uint32_t seqs_max, batch_tokens_max, page_tokens;
    uint64_t kv_tokens;
    uint64_t swap_bytes; /* of host memory an instance; 0: what the preset asks for */
    double swap_bps;     /* bytes a second between host and device; 0: 25e9 */
    uint32_t output_max; /* an engine's own limit on an answer; 0: 8,192 */

    double bias_sigma, residual_sigma; /* of the world, lognormal; 0: the model is exact */
    double slo_ttft_s, slo_tpot_s;
    struct sim_promise promise[SIM_SERVICES_MAX]; /* of a service, instead of that; zeros: none */

    /* How the fleet follows its demand; NULL: it stays. Of its pools, parallel to `pool`, the
     * limits, leads and risks count; what is zero of the rest is filled in by the run. */
    const struct sim_control_setup *scaling;
    bool scaling_clairvoyant; /* the bound decides, not the row */
    double drain_s;           /* after the last arrival; what is not done by then is unfinished */
};

static inline const struct model_spec *sim_pool_model(const struct sim_config *c,
                                                      const struct sim_pool *p)
{
    return p->has_model ? &p->model : &c->model;
}

static inline struct sim_promise sim_promise(const struct sim_config *c, uint32_t service)
{
    const struct sim_promise *own = &c->promise[service];
    return (struct sim_promise){ own->ttft_s > 0 ? own->ttft_s : c->slo_ttft_s,
                                 own->tpot_s > 0 ? own->tpot_s : c->slo_tpot_s };
}

enum sim_end {
    SIM_COMPLETED,
    SIM_REJECTED,
    SIM_UNFINISHED,
    SIM_TOO_LONG,
    SIM_FAILED,
    SIM_END_COUNT
};

/* What became of one request. */
struct sim_outcome {
    enum sim_end end;
    uint32_t service;
    uint32_t instance; /* of the first token */
    int64_t arrival_us, first_us, last_us;
    uint32_t generated, cached_tokens;
};

/* Log-spaced counts with one per cent resolution (value in microseconds). */
struct sim_histogram {
    uint64_t count[SIM_HISTOGRAM_BINS];
    uint64_t total;
    double sum_us;
    double last_us; /* and its bin: sessions of one step have one gap, and a logarithm takes time */
    uint32_t last_bin;
};

struct sim_share {
    double instance_seconds;
    uint32_t instances_max;
};

struct sim_result {
    struct sim_outcome *outcome; /* one a request, in the trace's order */
    uint32_t offered, ended[SIM_END_COUNT];
    struct sim_histogram itl;
    uint64_t prompt_tokens, hit_tokens, preemptions, steps, events, swaps;
    uint64_t handoffs, migrations, migrations_dropped, fetches, fetched_tokens, role_changes;
    const char
        *role_reason; /* of the role row's last look, with what it foresaw of its choice and */
    double role_rps, role_runner_up_rps; /* of the next best, < 0: it did not ask; NULL: no look */
    double link_bytes, stall_s;          /* K and V copied; moved sessions without a token */
    /* Prompt tokens a ready second of the busiest instance, over the mean of all: in a fleet that
     * stays as it is, its share of the tokens times the number of instances. */
    double hotspot;
    double span_s; /* first arrival to last end */
    double
        stood_s; /* first arrival to the end of billing: with `drain_s` where something never ended */
    double instance_seconds, cost_usd, energy_j, gpu_seconds;
    uint32_t instances_max, scale_actions;
    struct sim_share service[SIM_SERVICES_MAX]; /* of the instances, what was each service's */
    uint32_t launches, launches_failed, lost;   /* instances, where the fleet scales */
    double phase_s[SIM_PHASE_COUNT];            /* drawn for all launches */
    uint32_t trips; /* looks of the power row at which the breaker was overdrawn */
    /* Until the fleet was back at its floor for good; 0 where nothing scales. */
    double floor_s, floor_instance_seconds;
    uint64_t digest; /* over (id, instance, first, last) of every request */
    double cpu_s;
    bool extrapolated; /* beyond validated hardware or ranges */
};

/* -EINVAL with a sentence; -ENODATA when the trace lacks what a row needs; -ENOMEM. The result is the caller's: sim_result_fini. */
int sim_run(const struct sim_config *config, const struct trace *trace, struct sim_result *ret,
            struct err *err);
void sim_result_fini(struct sim_result *r);

/* The q-th quantile (0..1) of a histogram, in seconds. */
double sim_histogram_quantile_s(const struct sim_histogram *h, double q);
