/* lateness_model.h - how many requests would be late with a fleet of n, over the paths that demand may
 * take.
 *
 * Layer: policies (base/core)
 * Rules: a model is built anew for each decision and keeps nothing
 *
 * One pool stands for all in the fluid, the *main* one: the cheapest for its rate
 * of those that can grow. What others do is counted in its instances. A fleet of n is what there is
 * until the lead of new instances has passed, and n then; if n is fewer, the rest leave at once.
 * What is late is told over the *look*: LATENESS_LOOK_STEPS from the lead on, or from clear_s later,
 * on LATENESS_PATHS paths of demand (parts/forecast_paths.h) whose level is spread by its own error. A lead
 * of more than LATENESS_LEAD_STEPS_MAX (37 minutes) is planned for as if it were that.
 *
 * A model that is all zero is filled in three steps, each of which needs what those before it
 * found: lateness_level, lateness_pools, lateness_look.
 */
#pragma once
#include "policies/scale/capacity.h"
#include "policies/scale/parts/forecast_paths.h"
#include "policies/scale/scale.h"
#include "policies/scale/view.h"

/* fluid_late predicts how many requests a fleet would serve late in the time to come.
 *
 * A fleet of n(t) equal instances (capacity.h) is followed in steps of FLUID_STEP_S, as a
 * fluid of N sessions, Q requests that wait, and b = N / n sessions an instance:
 *
 *     dN / dt  = taken in - N / (E[O] step seconds)
 *     taken in = arrivals and what waits, as far as sessions are free and prompts can be computed
 *
 * About the fluid there is chance: sessions vary by N (a + c b) / a (a birth-death process whose
 * service slows as the batch grows), prompts wait as in M/G/n. The share that is late is the sum,
 * at most 1, of those
 *
 *     that find no session free, nor one within TTFT:
 *         Phi(-(room + X (TTFT - p) - N - Q) / sd(N)),     X ended a second
 *     whose prompt waits longer than TTFT leaves (Sakasegawa's form of M/G/n):
 *         rho^sqrt(2(n+1)) exp(-(TTFT - S) 2 n (1-rho) / S(1+cv^2)),     rho = r S
 *     in whose life more prompts come than TPOT leaves room for:
 *         Phi(-(TPOT (1 - r p) - a - c b) / (TPOT sd)),     sd^2 = r p^2 (1+cv^2) / (T sqrt(n))
 *
 * with r prompts a second and instance, of p seconds each alone and S beside those that decode, T
 * the life at TPOT of an output half as long as the mean (short ones are late first), and sqrt(n)
 * for a router that evens out a part of the bunches. room: sessions with which steps keep TPOT.
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

/* Requests late and all in the steps from `from` on. */
void fluid_late(const struct fluid_ask *ask, uint32_t from, double *ret_late, double *ret_all);

/* speed_average holds the speed of an instance of each pool, averaged over minutes.
 *
 * Rules: state is plain bytes of a fixed size
 *
 * Engines report the coefficients of their last seconds: those follow every burst, and a line that
 * is fitted to a few hundred steps differs by some percent from the next. A fleet is sized for
 * minutes, so it is sized with their mean: of all readings at first, then fading over SPEED_AVERAGE_S. What
 * an offer claims is forgotten as soon as an instance has measured.
 */

struct speed_average {
    int64_t read_us; /* the last reading; 0: none */
    struct speed_mean {
        double seen_s;         /* that the mean is of; 0: the pool's speed was never known */
        bool learned;          /* from instances; else what an offer claims */
        struct perf_coef perf; /* a to e; the rest is of the first reading */
    } pool[SCALE_POOLS_MAX];
};

/* Takes the pools' speeds as they are reported now. A pool of unknown speed keeps its mean. */
void speed_average_observe(struct speed_average *p, const struct scale_view *view, int64_t now_us);

#define LATENESS_PATHS 24
#define LATENESS_NO_POOL UINT32_MAX
#define LATENESS_LOOK_STEPS 4       /* of FLUID_STEP_S: 20 s */
#define LATENESS_CLEAR_STEPS_MAX 60 /* of clear_s: five minutes */
#define LATENESS_LEAD_STEPS_MAX (FLUID_STEPS_MAX - LATENESS_LOOK_STEPS - LATENESS_CLEAR_STEPS_MAX)

struct lateness_model {
    const struct scale_config *config;
    const struct scale_view *view;
    const struct forecast_paths *paths;
    /* lateness_level */
    double level; /* requests a second now */
    bool counted; /* level and paths are from counts; else the routers' rate stands for both */
    /* lateness_pools */
    struct scale_load load[SCALE_POOLS_MAX];
    double rate[SCALE_POOLS_MAX]; /* requests a second of an instance; 0: of no use */
    bool slo_possible;            /* they are within the SLO; else no pool can keep it */
    uint32_t main;                /* or LATENESS_NO_POOL */
    /* lateness_look; by step of FLUID_STEP_S from now on */
    double lead_s; /* of the main pool */
    uint32_t lead_steps, clear_steps, steps;
    uint32_t look_from;                            /* lead_steps, or later */
    float demand[LATENESS_PATHS][FLUID_STEPS_MAX]; /* requests a second */
    float existing[FLUID_STEPS_MAX]; /* instances of the main pool's kind that serve */
};

void lateness_level(struct lateness_model *s, const struct scale_config *config,
                    const struct scale_view *view, const struct forecast_paths *paths);
void lateness_pools(struct lateness_model *s, const struct lengths *lengths,
                    const struct speed_average *speed);

/* Requests a second that ready and starting instances do. */
double lateness_fleet_rate(const struct lateness_model *s);

/* Predicted TTFT when arrivals are spread over so many instances of each pool in proportion to their
 * rates; < 0: they do not keep up. */
double lateness_ttft_s(const struct lateness_model *s, const uint32_t want[SCALE_POOLS_MAX]);

/* Needs a main pool. `factor`: what the work of a request is multiplied by. */
void lateness_look(struct lateness_model *s, double factor);

/* Instances of the main pool that do what one of `pool` does. */
double lateness_worth(const struct lateness_model *s, uint32_t pool);

/* Instances of the main pool's kind at the end of the look; what starts later is not counted. */
double lateness_have(const struct lateness_model *s);

/* Share of requests late with n over the look: from look_from on, or from now on. */
double lateness_share(const struct lateness_model *s, double n, bool from_now);

/* Requests that are late from now on with `n` and not with `most`, mean of the worst paths. */
double lateness_worst_loss(const struct lateness_model *s, double n, double most);

/* Share of requests that are late with what is ready at the level of now, work multiplied by
 * `factor`. Needs a main pool and no lateness_look. */
double lateness_late_now(const struct lateness_model *s, double factor);
