/* scale_allowance.c - what is saved, as a rate at which it may be spent. */
#include "policies/scale_allowance.h"

#include <math.h>

#define ALLOWANCE_S 3600.0
#define ALLOWANCE_SHRINK_S 1800.0
#define ALLOWANCE_HOLD_S 300.0
#define ALLOWANCE_SHRINK_MAX 2.0 /* parts of what is allowed */
#define ALLOWANCE_HOLD_MAX 4.0

void allowance_observe(struct allowance *a, uint32_t ended, uint32_t missed, double level,
                       double allowed)
{
    double most = allowed * level * ALLOWANCE_S;
    a->saved += allowed * ended - missed;
    a->saved = fmin(fmax(a->saved, -most), most);
}

/* Parts of what is allowed a second, when it is spent over `seconds`. */
static double rate(const struct allowance *a, double level, double allowed, double seconds)
{
    double each = allowed * level * seconds;
    return each > 0 ? a->saved / each : 0;
}

double allowance_to_shrink(const struct allowance *a, double level, double allowed)
{
    double parts = fmin(rate(a, level, allowed, ALLOWANCE_SHRINK_S), ALLOWANCE_SHRINK_MAX);
    return fmax(parts, ALLOWANCE_SHRINK_MIN);
}

double allowance_to_hold(const struct allowance *a, double level, double allowed)
{
    double parts = fmin(rate(a, level, allowed, ALLOWANCE_HOLD_S), ALLOWANCE_HOLD_MAX);
    return fmax(parts, ALLOWANCE_HOLD_MIN);
}
