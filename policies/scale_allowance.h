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
 * whatever the model of the fleet got wrong. A plan shrinks carefully, so as to spend what is saved
 * over ALLOWANCE_SHRINK_S, and keeps what there is while it would last for ALLOWANCE_HOLD_S: the gap
 * between the two keeps a fleet from going back and forth. Whatever is saved, a plan may not let more
 * be late on its bad paths than that.
 */
#pragma once
#include <stdint.h>

struct allowance {
    double saved; /* requests; negative: owed */
};

/* A second: requests that ended and that missed the promise, of `level` a second; `allowed`: 1 - A. */
void allowance_observe(struct allowance *a, uint32_t ended, uint32_t missed, double level,
                       double allowed);

/* Shares of requests that may be late by plan, to shrink and to keep what there is, in parts of what
 * is allowed: at least ALLOWANCE_SHRINK_MIN and ALLOWANCE_HOLD_MIN whatever is owed. */
#define ALLOWANCE_SHRINK_MIN 0.02
#define ALLOWANCE_HOLD_MIN 0.1
double allowance_to_shrink(const struct allowance *a, double level, double allowed);
double allowance_to_hold(const struct allowance *a, double level, double allowed);
