/* lateness_model.h - predicts the requests that a fleet of n serves late on paths that demand may take.
 *
 * Layer: policies (base/core)
 * Rules: a model is built anew for each decision; what it keeps only spares it computing the same again
 *
 * One pool, the *main* one, stands for all in the fluid: the cheapest for its rate of those that can
 * grow. The rates of the others are counted in its instances. A fleet of n is the present fleet until
 * the lead of new instances has passed, and n from then on; if n is smaller, the rest leave at once.
 * Lateness is measured over the *look*: LATENESS_LOOK_STEPS steps, from the lead on or from clear_s
 * later, on LATENESS_PATHS paths of demand (parts/forecast_paths.h). Their level is varied by its
 * standard error. A lead of more than LATENESS_LEAD_STEPS_MAX (37 minutes) is taken to be that long.
 *
 * Three functions fill a model that is all zeros, in this order: lateness_level, lateness_pools,
 * lateness_look. Each needs the results of those before it.
 */
#pragma once
#include "policies/scale/capacity.h"
#include "policies/scale/parts/forecast_paths.h"
#include "policies/scale/scale.h"
#include "policies/scale/view.h"

/* fluid_late predicts how many requests a fleet will serve late.
 *
 * It follows a fleet of n(t) equal instances (capacity.h) in steps of FLUID_STEP_S, as a fluid of N
 * sessions, Q waiting requests, and b = N / n sessions an instance:
 *
 *     dN / dt = in - N / (E[O] step seconds)
 *     in      = arrivals and waiting requests, as far as sessions are free and prompts can be computed
 *
 * Chance is added to the fluid: the variance of N is N (a + c b) / a (a birth-death process with
 * service that slows as the batch grows), and prompts wait as in M/G/n. The late share is the sum, at most
 * 1, of the shares of requests
 *
 *     that find no session free within TTFT:
 *         Phi(-(room + X (TTFT - p) - N - Q) / sd(N)),     X ended a second
 *     with a prompt that waits longer than TTFT allows (Sakasegawa's form of M/G/n):
 *         rho^sqrt(2(n+1)) exp(-(TTFT - S) 2 n (1-rho) / S(1+cv^2)),     rho = r S
 *     that meet more prompts of others during their decode than TPOT allows:
 *         Phi(-(TPOT (1 - r p) - a - c b) / (TPOT sd)),     sd^2 = r p^2 (1+cv^2) / (T sqrt(n))
 *
 * An instance gets r prompts a second, which take p seconds each alone and S beside its decoding
 * sessions. T is the decode time, at TPOT, of an output half as long as the mean (short ones are late
 * first). sqrt(n) stands for a router that evens out a part of the bunches. room is the number of
 * sessions with which steps keep TPOT.
 */

#define FLUID_STEP_S 5
#define FLUID_STEPS_MAX 512 /* 42 minutes */

struct fluid_ask {
    const struct scale_load *load;
    double sessions, waiting; /* now */
    double ttft_slo_s, tpot_slo_s;
    uint32_t steps;         /* at most FLUID_STEPS_MAX */
    const float *rate;      /* arrivals a second in each step */
    const float *instances; /* serving in each step */
};

/* Returns the late requests and all requests of the steps from `from` on. */
void fluid_late(const struct fluid_ask *ask, uint32_t from, double *ret_late, double *ret_all);

/* struct speed_average holds the speed of an instance of each pool, averaged over minutes.
 *
 * Rules: state is plain bytes of a fixed size
 *
 * Engines report the coefficients of their last seconds. These follow every burst, and a line that is
 * fitted to a few hundred steps differs by some percent from the next. A fleet is sized for minutes,
 * so it is sized with their mean: over all readings at first, then fading over SPEED_AVERAGE_S. An
 * offer's claimed speed is dropped as soon as an instance has measured its own.
 */

struct speed_average {
    int64_t read_us; /* the last reading; 0: none */
    struct speed_mean {
        double seen_s;         /* seconds the mean covers; 0: the pool's speed was never known */
        bool learned;          /* from instances; else from an offer's claim */
        struct perf_coef perf; /* means of a to e; the other members are of the first reading */
    } pool[SCALE_POOLS_MAX];
};

/* Takes the pools' speeds as reported now. A pool of unknown speed keeps its mean. */
void speed_average_observe(struct speed_average *p, const struct scale_view *view, int64_t now_us);

#define LATENESS_PATHS 24
#define LATENESS_NO_POOL UINT32_MAX
#define LATENESS_LOOK_STEPS 4       /* of FLUID_STEP_S: 20 s */
#define LATENESS_CLEAR_STEPS_MAX 60 /* of clear_s: five minutes */
#define LATENESS_LEAD_STEPS_MAX (FLUID_STEPS_MAX - LATENESS_LOOK_STEPS - LATENESS_CLEAR_STEPS_MAX)

#define LATENESS_SEEN_MAX 32 /* a decision asks of some twenty fleets, of many of them again */

/* The state of the fluid at the end of a step. */
struct flow {
    double sessions, waiting;
    double out; /* ended a second */
};

/* Late requests of a fleet of n on each path, and their share of all requests. */
struct lateness_seen {
    double n;
    bool from_now;
    uint32_t look_from;
    double share, late[LATENESS_PATHS];
};

struct lateness_model {
    const struct scale_config *config;
    const struct scale_view *view;
    const struct forecast_paths *paths;
    /* lateness_level */
    double level; /* requests a second now */
    bool counted; /* level and paths come from counts; else the routers' rate stands for both */
    /* lateness_pools */
    struct scale_load load[SCALE_POOLS_MAX];
    double rate[SCALE_POOLS_MAX]; /* requests a second of an instance; 0: of no use */
    bool slo_possible;            /* the rates are within the SLO; false: no pool can keep it */
    uint32_t main;                /* or LATENESS_NO_POOL */
    /* lateness_look; by step of FLUID_STEP_S from now on */
    double lead_s; /* of the main pool */
    uint32_t lead_steps, clear_steps, steps;
    uint32_t look_from;                            /* lead_steps, or later */
    float demand[LATENESS_PATHS][FLUID_STEPS_MAX]; /* requests a second */
    float existing[FLUID_STEPS_MAX]; /* serving instances, in instances of the main pool */
    /* The fleets that this look has computed, the latest at the place of the oldest, and the fluid at lead_steps,
     * which is that of every fleet that is not smaller than the present one. */
    struct lateness_seen seen[LATENESS_SEEN_MAX];
    uint32_t seen_count;
    bool lead_known;
    struct flow at_lead[LATENESS_PATHS];
};

void lateness_level(struct lateness_model *s, const struct scale_config *config,
                    const struct scale_view *view, const struct forecast_paths *paths);
void lateness_pools(struct lateness_model *s, const struct lengths *lengths,
                    const struct speed_average *speed);

/* Returns the requests a second that are expected a lead from now: the mean of the paths. It needs a main
 * pool. */
double lateness_forecast(const struct lateness_model *s);

/* Returns the requests a second that the ready and starting instances can serve. */
double lateness_fleet_rate(const struct lateness_model *s);

/* Returns the predicted TTFT when arrivals are spread over want[i] instances of each pool i in
 * proportion to their rates; < 0 when these cannot keep up. */
double lateness_ttft_s(const struct lateness_model *s, const uint32_t want[SCALE_POOLS_MAX]);

/* Fills the demand and the existing fleet of the look. It needs a main pool. `factor` multiplies the
 * work of a request. */
void lateness_look(struct lateness_model *s, double factor);

/* Returns the rate of one instance of `pool`, in instances of the main pool. */
double lateness_worth(const struct lateness_model *s, uint32_t pool);

/* Returns the existing fleet at the end of the look, in instances of the main pool. Instances that
 * become ready later are not counted. */
double lateness_have(const struct lateness_model *s);

/* Returns the share of requests that are late with a fleet of n, counted from look_from, or from now,
 * to the end of the look. */
double lateness_share(struct lateness_model *s, double n, bool from_now);

/* Returns how much more than `base` that share is; as soon as it is sure to be above `enough`, any value above
 * that. */
double lateness_more(struct lateness_model *s, double n, bool from_now, double base, double enough);

/* Returns how many more requests are late from now on with `n` than with `most`: the mean of the worst
 * paths. */
double lateness_worst_loss(struct lateness_model *s, double n, double most);

/* Returns the share of requests that the ready instances serve late at the present level, with work
 * multiplied by `factor`. It needs a main pool but no lateness_look. */
double lateness_late_now(const struct lateness_model *s, double factor);
