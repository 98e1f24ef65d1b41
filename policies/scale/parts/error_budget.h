/* error_budget.h - misses that the promise allows and that have not happened: an error budget.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * A promise kept for a share A of requests allows (1 - A) of them to miss it. What is allowed and
 * not used is saved, what is used beyond is owed, in requests:
 *
 *     saved += COUNTED (1 - A) ended - missed,     |saved| <= (1 - A) level ALLOWANCE_S
 *
 * After adaptive conformal inference (Gibbs and Candes, 2021), which moves its level by the errors
 * it made: what a plan may let be late follows from what was late, whatever the model of the fleet
 * got wrong. With p times the allowed share late, p - 1 parts of what is allowed are drawn from the
 * budget, so over a time in which a = (1 - A) level seconds are allowed a budget pays for
 *
 *     p = 1 + budget / a,     at most ALLOWANCE_PARTS_MAX
 *
 * Below 1 the budget is owed; below 0 there is nothing to spend.
 */
#pragma once
#include <stdint.h>

/* Whatever is saved: with 99 % promised, a plan that leaves 4 % late is none. */
#define ALLOWANCE_PARTS_MAX 4.0

struct allowance {
    double saved; /* requests; negative: owed */
};

/* A reading: requests that ended since the last and those of them that missed the promise, while
 * `level` came a second; `allowed`: 1 - A. */
void allowance_observe(struct allowance *a, uint32_t ended, uint32_t missed, double level,
                       double allowed);

/* p, for a time in which `allowed` requests may be late. */
double allowance_parts(double budget, double allowed);
