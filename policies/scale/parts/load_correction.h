/* load_correction.h - corrects predicted work and output lengths by counted misses and sessions.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * struct load_correction corrects the work of a request. The model predicts which share of requests
 * misses the SLO with the present fleet, and the routers count the misses. Let m be the counted and e
 * the expected misses of the last LOAD_CORRECTION_READINGS seconds, all with the same fleet. Work is
 * multiplied by a factor f,
 *
 *     f += LOAD_CORRECTION_GAIN log(max(m, p) / max(e, p))       each second,   0.85 <= f <= 2
 *
 * which comes to rest where the model expects the misses that are counted. The logarithm is there
 * because lateness grows about exponentially with load. p is the number of misses that the SLO
 * allows, or a few if that is more: below it the model's error does not matter, and a fleet that
 * misses one request in ten thousand where none was expected must not count as slower hour by hour.
 */
#pragma once
#include "policies/scale/capacity.h"

#include <stdbool.h>
#include <stdint.h>

#define LOAD_CORRECTION_READINGS 60 /* a second each */

struct load_correction {
    uint32_t readings;
    /* By reading, rings. */
    uint32_t ended[LOAD_CORRECTION_READINGS], missed[LOAD_CORRECTION_READINGS];
    float expected[LOAD_CORRECTION_READINGS]; /* misses */
    double more;                              /* f - 1 */
};

/* One reading, of about a second: the requests that ended, those that missed the SLO, the share of
 * misses that the corrected model expected, and the share that the SLO allows. */
struct load_correction_reading {
    uint32_t ended, missed;
    double expected_share, allowed_share;
    bool unsettled; /* the fleet changed or there is a backlog: earlier readings are dropped */
    bool judge;     /* false: help for expected misses is on its way, nothing is learned */
};
void load_correction_observe(struct load_correction *b, const struct load_correction_reading *r);

/* Returns f; 1 at first. */
double load_correction_factor(const struct load_correction *b);

/* struct error_budget saves the misses that the SLO allows and that have not happened.
 *
 * Rules: state is plain bytes of a fixed size
 *
 * An SLO kept for a share A of requests allows (1 - A) of them to miss it. Allowed misses that do not
 * happen are saved, and misses beyond the allowed ones are owed, in requests:
 *
 *     saved += COUNTED (1 - A) ended - missed,     |saved| <= (1 - A) level ERROR_BUDGET_S
 *
 * The method follows adaptive conformal inference (Gibbs and Candes, 2021), which moves its level by
 * the errors it made: the lateness that a plan may accept follows from the lateness that happened,
 * whatever the errors of the fleet's model. A plan that lets p times the allowed share be late draws
 * p - 1 parts of the allowed misses from the budget. Over a time in which a = (1 - A) level seconds
 * misses are allowed, a budget therefore pays for
 *
 *     p = 1 + budget / a,     at most ERROR_BUDGET_PARTS_MAX
 *
 * Below 1 the budget is owed; below 0 there is nothing to spend.
 */

/* The bound holds however much is saved: with an SLO of 99 % no plan leaves more than 4 % late. */
#define ERROR_BUDGET_PARTS_MAX 4.0

struct error_budget {
    double saved; /* requests; negative: owed */
};

/* Takes a reading: the requests that ended since the last one and those that missed the SLO, while
 * `level` requests arrived a second; `allowed` is 1 - A. */
void error_budget_observe(struct error_budget *a, uint32_t ended, uint32_t missed, double level,
                          double allowed);

/* Returns p for a time in which `allowed` requests may be late. */
double error_budget_parts(double budget, double allowed);

/* struct littles_law estimates the mean length of outputs from the number of running sessions.
 *
 * Rules: state is plain bytes of a fixed size
 *
 * A predictor that has just begun knows only outputs that have ended, and short ones end first. By
 * Little's law the running sessions give the mean without this bias,
 *
 *     E[O] = N / (X s)        N sessions running, X begun or ended a second, s seconds of a step
 *
 * X is the mean of the rates of arrival and of end: while N grows the first is too large and the
 * second too small. Both sides are sums over time that fade over SESSIONS_MEMORY_S.
 */

#define SESSIONS_MEMORY_S 60.0
#define SESSIONS_GAP_S 10.0 /* a longer gap: the sessions at its end do not stand for all of it */

struct littles_law {
    bool known;              /* the totals were read */
    uint64_t arrived, ended; /* totals, as read last */
    double held_s, passed_s; /* sums of N dt and of X s dt */
    double seen_s;           /* sum of dt */
};

/* One reading, dt_s after the last: totals of requests, and `running` requests that decode on `ready`
 * instances with this `load`. The first reading, one after a gap and one with totals that began anew
 * teach nothing. */
struct littles_law_reading {
    uint64_t arrived, ended;
    double running, ready, dt_s;
    bool backlog; /* arrivals wait, so as many do not begin: nothing is learned */
};
void littles_law_observe(struct littles_law *s, const struct scale_load *load,
                         const struct littles_law_reading *r);

/* Returns the factor on predicted output lengths, from 1 (a predictor that has just begun predicts too
 * little, never too much) to SESSIONS_FACTOR_MAX. It is a mean of the sessions' estimate and the
 * prediction, weighted by the number of sessions. */
double littles_law_factor(const struct littles_law *s, double predicted);
#define SESSIONS_FACTOR_MAX 4.0
