/* error_budget.c - what is saved, as a rate at which it may be spent. */
#include "policies/scale/parts/error_budget.h"

#include <math.h>

#define ALLOWANCE_S 3600.0 /* saved or owed at most: older hours were of another load */
#define COUNTED 0.97       /* part of what is allowed: what is late already has not all ended */

void allowance_observe(struct allowance *a, uint32_t ended, uint32_t missed, double level,
                       double allowed)
{
    double most = allowed * level * ALLOWANCE_S;
    a->saved += COUNTED * allowed * ended - missed;
    a->saved = fmin(fmax(a->saved, -most), most);
}

double allowance_parts(double budget, double allowed)
{
    double parts = allowed > 0 ? 1 + budget / allowed : 1;
    return fmin(parts, ALLOWANCE_PARTS_MAX);
}
