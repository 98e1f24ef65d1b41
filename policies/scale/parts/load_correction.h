/* load_correction.h - corrects the work and the number of requests by what was counted: misses, sessions, budget.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * The model says which share of requests misses the SLO with the fleet there is; the routers
 * count how many did. Over the last LOAD_CORRECTION_READINGS seconds of one and the same fleet, with m
 * missed where e were expected, the work of a request is corrected by a factor f,
 *
 *     f += LOAD_CORRECTION_GAIN log(max(m, p) / max(e, p))       each second,   0.85 <= f <= 2
 *
 * so that it comes to rest where the model's misses are those that are counted: lateness grows
 * about exponentially with load, therefore the logarithm. p are the misses that the SLO allows,
 * and a few at least: how wrong the model is below that does not matter, and a fleet that is late
 * for one in ten thousand where it expected none must not be believed slower hour by hour.
 */
#pragma once
#include "policies/scale/capacity.h"

#include <stdbool.h>
#include <stdint.h>

#define LOAD_CORRECTION_READINGS 60 /* a second each */

struct load_correction {
    uint32_t readings;
    uint32_t ended[LOAD_CORRECTION_READINGS],
        missed[LOAD_CORRECTION_READINGS];     /* by reading, rings */
    float expected[LOAD_CORRECTION_READINGS]; /* misses */
    double more;                              /* f - 1 */
};

/* About a second: requests that ended in it, those of them that missed the SLO, the share that
 * the model expected to, corrected by load_correction_factor, and the share that may. */
struct load_correction_reading {
    uint32_t ended, missed;
    double expected_share, allowed_share;
    bool unsettled; /* another fleet or a backlog: what was seen so far says nothing of this one */
    bool judge;     /* false: help for expected misses is on its way, nothing is learned */
};
void load_correction_observe(struct load_correction *b, const struct load_correction_reading *r);

/* f; 1 at first. */
double load_correction_factor(const struct load_correction *b);

/* Misses that the SLO allows and that have not happened: an error budget.
 *
 * Rules: state is plain bytes of a fixed size
 *
 * An SLO kept for a share A of requests allows (1 - A) of them to miss it. What is allowed and
 * not used is saved, what is used beyond is owed, in requests:
 *
 *     saved += COUNTED (1 - A) ended - missed,     |saved| <= (1 - A) level ERROR_BUDGET_S
 *
 * After adaptive conformal inference (Gibbs and Candes, 2021), which moves its level by the errors
 * it made: what a plan may let be late follows from what was late, whatever the model of the fleet
 * got wrong. With p times the allowed share late, p - 1 parts of what is allowed are drawn from the
 * budget, so over a time in which a = (1 - A) level seconds are allowed a budget pays for
 *
 *     p = 1 + budget / a,     at most ERROR_BUDGET_PARTS_MAX
 *
 * Below 1 the budget is owed; below 0 there is nothing to spend.
 */

/* Whatever is saved: with an SLO of 99 %, a plan that leaves 4 % late is none. */
#define ERROR_BUDGET_PARTS_MAX 4.0

struct error_budget {
    double saved; /* requests; negative: owed */
};

/* A reading: requests that ended since the last and those of them that missed the SLO, while
 * `level` came a second; `allowed`: 1 - A. */
void error_budget_observe(struct error_budget *a, uint32_t ended, uint32_t missed, double level,
                          double allowed);

/* p, for a time in which `allowed` requests may be late. */
double error_budget_parts(double budget, double allowed);

/* The outputs' mean length, told by the sessions there are.
 *
 * Rules: state is plain bytes of a fixed size
 *
 * A predictor that has just begun knows only outputs that have ended, and short ones end first. By
 * Little's law the sessions that run say it without a bias,
 *
 *     E[O] = N / (X s)        N sessions running, X begun or ended a second, s seconds of a step
 *
 * X is the mean of what arrives and what ends: while N grows one is too much and the other too
 * little. Both sides are sums over time that fade over SESSIONS_MEMORY_S.
 */

#define SESSIONS_MEMORY_S 60.0
#define SESSIONS_GAP_S 10.0 /* between readings: what ran meanwhile is not what runs at its end */

struct littles_law {
    bool known;              /* the totals were read */
    uint64_t arrived, ended; /* totals, as read last */
    double held_s, passed_s; /* sums of N dt and of X s dt */
    double seen_s;           /* sum of dt */
};

/* A reading, dt_s after the last: totals of requests, `running` of them decoding on `ready`
 * instances like `load`. One that is the first, after a gap or of new totals teaches nothing. */
struct littles_law_reading {
    uint64_t arrived, ended;
    double running, ready, dt_s;
    bool backlog; /* arrivals wait: they are not what begins, nothing is learned */
};
void littles_law_observe(struct littles_law *s, const struct scale_load *load,
                         const struct littles_law_reading *r);

/* The factor on predicted outputs: a mean of what the sessions say and of what was predicted,
 * weighted by how many sessions there are, from 1 (a predictor that has begun says too little,
 * never too much) to SESSIONS_FACTOR_MAX. */
double littles_law_factor(const struct littles_law *s, double predicted);
#define SESSIONS_FACTOR_MAX 4.0
