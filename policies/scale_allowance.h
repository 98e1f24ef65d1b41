/* scale_allowance.h - misses that the promise allows and that have not happened: an error budget.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * A promise kept for a share A of requests allows (1 - A) of them to miss it. What is allowed and
 * not used is saved, what is used beyond is owed, in requests:
 *
 *     saved += (1 - A) ended - missed,     |saved| <= (1 - A) level ALLOWANCE_S
 *
 * What a plan may let be late follows from it, as adaptive conformal inference (Gibbs and Candes,
 * 2021) moves its level by the errors it made: over time the share that misses comes to 1 - A,
 * whatever the model of the fleet got wrong. With p times the allowed share late, p - 1 parts of
 * what is allowed are drawn from the budget, so over a time in which a = (1 - A) level seconds are
 * allowed it pays for
 *
 *     p = 1 + budget / a,     ALLOWANCE_PARTS_MIN <= p <= ALLOWANCE_PARTS_MAX
 *
 * A plan that asks for longer before it shrinks than before it keeps what there is does not go back
 * and forth.
 */
#pragma once
#include <stdint.h>

#define ALLOWANCE_PARTS_MIN 0.1 /* whatever is owed */
#define ALLOWANCE_PARTS_MAX 4.0 /* whatever is saved */

struct allowance {
    double saved; /* requests; negative: owed */
};

/* A second: requests that ended and that missed the promise, of `level` a second; `allowed`: 1 - A. */
void allowance_observe(struct allowance *a, uint32_t ended, uint32_t missed, double level,
                       double allowed);

/* What may be late by plan, in parts of `allowed` requests, when `budget` are spent beside them. */
double allowance_parts(double budget, double allowed);
