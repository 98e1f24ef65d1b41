/* control.h - runs the controller and its cloud in virtual time: the real plan over instances that take
 * time to launch, cost their price, fail and are lost.
 *
 * Layer:    simulator (controller/core, policies, base/core)
 * Time:     integer microseconds of the run
 * Chance:   streams keyed by (seed, instance number, purpose): two policies meet the same leads
 * Rules:    (1) the plan sees what routers and agents have reported, with its age, through the code
 *               of fleet/ and controller/core that ships, and nothing of the future; the bound
 *               `clairvoyant` gets the future through its own pointer and is no policy
 *           (2) an instance costs its price from launch to termination, start-up and drain included
 *           (3) an instance's number is never used twice
 *
 * How a run uses it:
 *
 *     sim_control_new(&setup, &c, err);           instances of `start` are ready: drain the actions
 *                                                 of a first sim_control_advance(c, 0, ...)
 *     when a router holds a request               sim_control_hurry(c, router, now)
 *     next = sim_control_next_us(c)               put it in the event heap; at that time:
 *     if (sim_control_wants_loads(c, now))        fill in->load[k] for each instance that serves or
 *                                                 drains, in any order, with its number
 *     if (sim_control_wants_demand(c, now))       fill in->demand for each router and service, as
 *                                                 telemetry_report() does
 *     n = sim_control_advance(c, now, &in, act, SIM_CONTROL_ACTIONS_MAX)
 *         SIM_LAUNCH   `number` of `pool` is on its way and costs money (SIM_SERVE or SIM_GONE
 *                      follows)
 *         SIM_SERVE    it is ready: send it requests from now on
 *         SIM_DRAIN    send it nothing more; sim_control_emptied(c, number, now) once it is empty
 *         SIM_KEEP     a drain is withdrawn: send it requests again
 *         SIM_GONE     it is gone now: cancelled, failed to start, or lost with what it had (do not
 *                      call _emptied)
 *     sim_control_finish(c, end_us, &totals)
 */
#pragma once
#include "base/core/own.h"
#include "base/wire/report.h"
#include "base/wire/sync.h"
#include "controller/core/plan.h"
#include "policies/scale/bound.h"

#define SIM_CONTROL_ACTIONS_MAX 512 /* of one call; the rest come with the next */
#define SIM_SERVICES_MAX PLAN_SERVICES_MAX
#define SIM_CONTROL_ROUTERS_MAX 64

/* Instances of one kind, from one offer. Zero means none, unless said otherwise. */
struct sim_control_pool {
    uint32_t service;
    double price_h;
    double lead_s; /* launch to ready, mean; divided over four phases */
    uint32_t min, max, start;
    struct perf_coef prior; /* an engine's coefficients before one has reported */
    uint32_t seqs_max;
    uint64_t kv_tokens_max;
    uint32_t context_tokens, step_tokens;
    bool spot;         /* lost with its zone, on notice */
    uint32_t zone;     /* below SIM_ZONES_MAX */
    double fail_share; /* of launches that end in an error half-way */
    double life_s;     /* mean time to a failure without notice */
};

#define SIM_ZONES_MAX 8
struct sim_zone {
    double up_s, down_s; /* means of exponential spells with and without capacity; 0: always up */
};

/* How one service follows its demand. */
struct sim_control_service {
    const struct scale_policy *policy; /* NULL: the default; not asked with a future */
    const struct scale_shaper *shaper; /* NULL: the policy's own */
    bool has_shape;                    /* its numbers are `shape`, not the published ones */
    struct scale_shape_config shape;
    const struct place_policy *place; /* NULL: the default */
    struct scale_config scale;        /* SCALE_CONFIG_DEFAULT to start from */
    double ttft_slo_s, tpot_slo_s, budget_h;
    uint32_t min, max; /* of its pools together; max 0: the sum of the pools' */
};

struct sim_control_setup {
    uint64_t seed;
    struct sim_control_pool pool[SCALE_POOLS_MAX];
    uint32_t pool_count;
    struct sim_control_service service[SIM_SERVICES_MAX]; /* those that pools name, from 0 on */
    struct sim_zone zone[SIM_ZONES_MAX];
    double notice_s;        /* between a spot instance's notice and its end */
    double lead_sigma;      /* spread of each phase, lognormal; 0: exact */
    uint32_t routers;       /* 0: one */
    uint32_t instances_max; /* at once, drains included; 0: PLAN_INSTANCES_MAX */
    int64_t tick_us;        /* between decisions; 0: TICK_PERIOD_US */
    /* not NULL: the clairvoyant bound decides, for one service */
    const struct scale_future *future;
};

/* The changing part of an agent's report on a ready or draining instance. */
struct sim_load {
    uint32_t number;
    uint32_t running, waiting;
    uint64_t kv_tokens, prefill_tokens, pages_cached;
    uint32_t page_tokens; /* 0: 1 */
    bool has_perf;
    struct perf_coef perf;
};

/* The constant part of an engine's report. */
struct sim_engine {
    uint32_t seqs_max, context_tokens, step_tokens;
    uint64_t kv_tokens_max;
};

/* Makes the engine's part of its agent's report. */
void sim_engine_report(const struct sim_load *l, const struct sim_engine *e,
                       struct engine_report *ret);

struct sim_control_input {
    /* Each router's report of each service: [router * SIM_SERVICES_MAX + service]. */
    const struct service_demand *demand;
    const struct sim_load *load;
    uint32_t load_count;
};

enum sim_control_act { SIM_LAUNCH, SIM_SERVE, SIM_DRAIN, SIM_KEEP, SIM_GONE };
struct sim_control_action {
    enum sim_control_act act;
    uint32_t number, pool;
    int64_t ends_us; /* SIM_DRAIN: when it is lost, as the provider announced; 0: not announced */
};

enum sim_phase { SIM_PROVISION, SIM_IMAGE, SIM_WEIGHTS, SIM_WARM_UP, SIM_PHASE_COUNT };

struct sim_control_totals {
    double instance_seconds, cost_usd;
    double phase_s[SIM_PHASE_COUNT]; /* of all launches */
    uint32_t instances_max, launches, launches_failed, lost, scale_actions;
    /* Until the fleet was back at its floor for good; of the whole run if it never was. */
    double floor_s, floor_instance_seconds;
};

struct sim_control;

/* -EINVAL with a sentence; -ENOMEM. */
int sim_control_new(const struct sim_control_setup *setup, struct sim_control **ret,
                    struct err *err);
void sim_control_free(struct sim_control *c);
CLEANUP_FREEP(sim_control, struct sim_control)

/* Hurries a router that holds a request: it reports URGENT_SYNC_US later, or earlier if it is due. */
void sim_control_hurry(struct sim_control *c, uint32_t router, int64_t now_us);

int64_t sim_control_next_us(const struct sim_control *c);
bool sim_control_wants_loads(const struct sim_control *c, int64_t now_us);
bool sim_control_wants_demand(const struct sim_control *c, int64_t now_us);

/* Does everything that is due. Returns the number of actions, at most SIM_CONTROL_ACTIONS_MAX: further
 * ones come with the next call, which is then due at once. */
uint32_t sim_control_advance(struct sim_control *c, int64_t now_us,
                             const struct sim_control_input *in,
                             struct sim_control_action ret[SIM_CONTROL_ACTIONS_MAX]);
void sim_control_emptied(struct sim_control *c, uint32_t number, int64_t now_us);

void sim_control_finish(struct sim_control *c, int64_t end_us, struct sim_control_totals *ret);

/* Turns a simulated fleet into the plan's services.
 *
 * Rules: pools of one service with like instances (same step times and limits) are one pool of the
 *        plan with an offer each, and the placement policy chooses among these
 */

struct control_services {
    const struct sim_control_setup *setup; /* borrowed */
    struct plan_service plan[SIM_SERVICES_MAX];
    uint32_t count;
    struct offer offer[SCALE_POOLS_MAX]; /* by pool of the setup, as is group */
    uint32_t group[SCALE_POOLS_MAX];     /* the plan's pool that has it as an offer */
    uint32_t floor;                      /* the least number of instances that the fleet may have */
};

/* -EINVAL with a sentence. */
int control_services_check(const struct sim_control_setup *setup, struct err *err);

void control_services_init(struct control_services *s, const struct sim_control_setup *setup);

/* The instances that the clairvoyant bound wants, from all future requests.
 *
 * Rules: no policy sees them; they are set as a person's override is, past signal and shaper
 */

struct foresight {
    uint16_t *need; /* by second; NULL: no bound */
    uint32_t count;
};

/* Computes the needs from setup->future. -ENOMEM. */
int foresight_init(struct foresight *ret, const struct sim_control_setup *setup, struct err *err);
void foresight_fini(struct foresight *f);

/* Sets the counts of the service's pools; instances beyond one pool's maximum go to the next. */
void foresight_set(const struct foresight *f, struct plan_service *service, int64_t now_us);
