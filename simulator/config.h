/* config.h - configures a run of the simulator: fleet, policies, limits, world and SLO.
 *
 * Layer: simulator
 */
#pragma once
#include "base/perf/hardware.h"
#include "base/perf/model_spec.h"
#include "policies/migrate/migrate.h"
#include "policies/perf/perf_model.h"
#include "policies/power/power.h"
#include "policies/predict/predict.h"
#include "policies/preset.h"
#include "policies/role/role.h"
#include "policies/route/route.h"
#include "policies/scale/scale.h"
#include "simulator/control.h"
#include "simulator/trace.h"

#define SIM_POOLS_MAX SCALE_POOLS_MAX
#define SIM_INSTANCES_MAX 4096
#define SIM_ROUTERS_MAX 16
#define SIM_TENANT_WEIGHTS_MAX 64

/* Instances of one kind; `8xh100` is one of these. */
struct sim_pool {
    const struct hardware *hardware; /* NULL: `step`, or ref8000, the serial reference */
    bool has_step;                   /* `step` replaces hardware and model */
    struct perf_coef step;           /* as measured; sim_config.kv_tokens is then required */
    uint32_t count;                  /* at the start; the fleet's size if it does not scale */
    uint32_t tp;                     /* devices an instance spans */
    double price_h;                  /* dollars an instance-hour */
    enum role role;
    bool has_role;           /* it was given, be it `both` */
    enum priority priority;  /* of its work, where a breaker is near */
    bool has_priority;       /* it was given, be it `high` */
    uint32_t service;        /* of the trace, which it serves */
    bool has_model;          /* `model` replaces the run's */
    struct model_spec model; /* its service's own */
};

static inline bool sim_pool_is_serial(const struct sim_pool *p)
{
    return !p->hardware && !p->has_step;
}

struct sim_slo {
    double ttft_s, tpot_s;
    bool refuse_late; /* while the fleet is overloaded */
};

/* Bounds of a router and of an engine. Reaching one has the same effect as in the product. */
struct sim_bounds {
    uint32_t requests_max, held_max; /* in a router at once; of them, held */
    int64_t hold_us_max;             /* the longest that one is held */
    uint64_t index_bytes;            /* of its prefix index */
    uint32_t waiting_max;            /* in an engine's queue */
};
extern const struct sim_bounds sim_bounds_default; /* those of fleet/defaults.h */

struct sim_config {
    uint64_t seed;
    bool exact;
    struct sim_pool pool[SIM_POOLS_MAX];
    uint32_t pool_count;
    struct model_spec model;

    /* The policies; NULL is the default of its kind. */
    const struct route_policy *route;
    const struct predict_policy *predict;
    const struct preset *preset; /* for the policies of `step` that are NULL */
    struct step_policies step;
    const struct migrate_policy *migrate;
    const struct role_policy *role; /* NULL: roles stay as the pools have them */
    const struct perf_policy *perf; /* by which engines estimate their speed */
    const struct power_policy *power;
    double power_limit_watts; /* limit of the breaker before all instances; 0: none */

    double link_bytes_s;     /* of an instance's port, each way, for KV; 0: 25e9 */
    int64_t link_us;         /* before the first byte; 0: 500 */
    uint32_t routers;        /* at least 1 */
    int64_t report_delay_us; /* between an engine's reports to routers; 0: REPORT_PERIOD_US */
    int64_t event_lag_us;    /* how long a block event takes to a router */

    /* Weights of tenants 1, 2, ..., for the fair policy; further ones weigh 1. */
    double tenant_weight[SIM_TENANT_WEIGHTS_MAX];
    uint32_t tenant_weight_count;

    /* Engine limits; 0: from the hardware and the model. */
    uint32_t seqs_max, batch_tokens_max, page_tokens;
    uint64_t kv_tokens;
    uint64_t swap_bytes; /* of host memory an instance; 0: the preset's */
    double swap_bps;     /* bytes a second between host and device; 0: 25e9 */
    uint32_t output_max; /* an engine's own limit on an output; 0: 8,192 */

    bool has_bounds; /* `bounds` hold, not the default ones */
    struct sim_bounds bounds;

    /* Of the world, lognormal; 0: steps take as the model says. */
    double bias_sigma, residual_sigma;
    double slo_ttft_s, slo_tpot_s;
    bool refuse_late; /* routers refuse late requests while their service's fleet is overloaded */
    struct sim_slo slo[SIM_SERVICES_MAX]; /* of a service, instead of the run's; zeros: none */

    /* How the fleet follows its demand; NULL: it stays. Its pools are parallel to `pool`; they give
     * limits, leads and risks, and the run fills in the rest. */
    const struct sim_control_setup *scaling;
    bool scaling_clairvoyant; /* the bound decides, not the policy */
    double drain_s;           /* after the last arrival; a request not done by then is unfinished */
    uint32_t misses_max;      /* one more ends the run, the rest unfinished; 0: no limit */
};

static inline const struct model_spec *sim_pool_model(const struct sim_config *c,
                                                      const struct sim_pool *p)
{
    return p->has_model ? &p->model : &c->model;
}

/* Returns a tenant's weight, for engines and for held requests. */
static inline double sim_tenant_weight(const struct sim_config *c, uint32_t tenant)
{
    return tenant > 0 && tenant <= c->tenant_weight_count ? c->tenant_weight[tenant - 1] : 1;
}

static inline struct sim_slo sim_slo_of(const struct sim_config *c, uint32_t service)
{
    const struct sim_slo *own = &c->slo[service];
    return (struct sim_slo){ own->ttft_s > 0 ? own->ttft_s : c->slo_ttft_s,
                             own->tpot_s > 0 ? own->tpot_s : c->slo_tpot_s,
                             own->refuse_late || c->refuse_late };
}

/* Checks the configuration. -EINVAL with a sentence on what cannot be simulated. */
int sim_config_check(const struct sim_config *c, const struct trace *trace, struct err *err);

/* Returns the configuration with the product's own defaults for all that is left open. */
struct sim_config sim_config_resolved(const struct sim_config *config, const struct trace *trace);
