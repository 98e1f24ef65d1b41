/* perf_model.c - the table of performance policies, and recursive least squares with forgetting, in
 * information form.
 *
 *     info   <- info - (1 - L) info x x' info / (x' info x) + w x x'
 *     target <- target - (1 - L) info x (x' target) / (x' info x) + w x y
 *     value  =  argmin over value >= 0 of value' info value - 2 target' value
 *
 * Three choices differ from the textbook:
 *
 * Forgetting is directional (Kulhavy and Karny 1984): old steps are forgotten only in the direction
 * of the new one. An engine may decode for an hour without a single prompt; plain forgetting would
 * lose the prefill term in that hour, and the covariance form would blow up.
 *
 * Steps differ a hundredfold in length, so errors are relative to the estimate, else the long
 * prefill steps would determine all values. Beyond three times the usual spread the weight falls
 * with the distance (Huber): one stall of a shared machine moves little. A lasting change widens
 * the spread and shifts the mean error within some steps; while the mean is shifted, the past is
 * forgotten faster, because after a slowdown by a factor of five each old step weighs 25 times a
 * new one.
 *
 * The values are projected onto the non-negative orthant in the metric of `info`, exactly: the fit
 * takes that one of the 31 sets of free terms whose solution is optimal (Karush, Kuhn and Tucker).
 * Clamping values one by one would leave the others fitted to a negative neighbour.
 */

#include "policies/perf/perf_model.h"

#include "base/core/bits.h"

#include <math.h>
#include <string.h>

#define FORGET 0.01       /* 1 - L: a direction remembers about 100 steps along it */
#define SPREAD_RATE 0.05  /* rate of the running means of |error| and error */
#define DRIFT_USUAL 0.2   /* a mean error below it is noise, not change */
#define DRIFT_FORGETS 0.2 /* a mean error of a factor e beyond that forgets this part a step */
#define SPREAD_MIN 0.02   /* clocks and caches alone cause this much */
#define HUBER_SPREADS 3.0 /* beyond so many spreads the influence of a step stops growing */
#define STEP_S_MIN 1e-6   /* no step is shorter: keeps weights finite */

void perf_rls_init(struct perf_rls *fit, const double prior[PERF_TERMS], double prior_steps)
{
    memset(fit, 0, sizeof *fit);
    fit->ratio_p90 = 1.0;
    fit->free_set = (1u << PERF_TERMS) - 1;
    fit->spread = 1.0; /* wide, so that the first steps count in full */
    double sum = 0;
    for (int i = 0; i < PERF_TERMS; i++)
        sum += fit->value[i] = prior[i];
    for (int i = 0; i < PERF_TERMS; i++) {
        /* A prior of 0 is as uncertain as one of a tenth of the sum. */
        double sure = fmax(prior[i], fmax(sum / 10, STEP_S_MIN));
        fit->info[i][i] = prior_steps / (sure * sure);
        fit->target[i] = fit->info[i][i] * prior[i];
    }
}

static double fit_s(const struct perf_rls *fit, const double x[PERF_TERMS])
{
    double sum = 0;
    for (int i = 0; i < PERF_TERMS; i++)
        sum += fit->value[i] * x[i];
    return sum;
}

/* Solves info[at, at] z = target[at] by Cholesky; returns false if it is not positive definite. */
static inline __attribute__((always_inline)) bool
solve_at(const struct perf_rls *fit, const int at[PERF_TERMS], const int n, double z[PERF_TERMS])
{
    double l[PERF_TERMS][PERF_TERMS], y[PERF_TERMS];
    for (int i = 0; i < n; i++) {
        y[i] = fit->target[at[i]];
        for (int j = 0; j <= i; j++) {
            double sum = fit->info[at[i]][at[j]];
            for (int k = 0; k < j; k++)
                sum -= l[i][k] * l[j][k];
            if (i == j && !(sum > 0)) return false;
            l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
        }
        for (int k = 0; k < i; k++)
            y[i] -= l[i][k] * y[k];
        y[i] /= l[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        double sum = y[i];
        for (int k = i + 1; k < n; k++)
            sum -= l[k][i] * z[at[k]];
        z[at[i]] = sum / l[i][i];
    }
    return true;
}

/* Solves for the terms in `set`; the others are 0. All five, as in most steps, are solved without loops. */
static bool solve(const struct perf_rls *fit, unsigned set, double z[PERF_TERMS])
{
    static const int all[PERF_TERMS] = { 0, 1, 2, 3, 4 };
    if (set == (1u << PERF_TERMS) - 1) return solve_at(fit, all, PERF_TERMS, z);
    int at[PERF_TERMS] = { 0 }, n = 0;
    for (int i = 0; i < PERF_TERMS; i++) {
        z[i] = 0;
        if (set & (1u << i)) at[n++] = i;
    }
    return solve_at(fit, at, n, z);
}

/* Returns true if no free term is negative and freeing a clamped one would not improve the fit. */
static bool is_optimum(const struct perf_rls *fit, unsigned set, const double z[PERF_TERMS])
{
    for (int i = 0; i < PERF_TERMS; i++) {
        double slope = -fit->target[i];
        if (set & (1u << i)) {
            if (!(z[i] >= 0)) return false;
            continue;
        }
        for (int j = 0; j < PERF_TERMS; j++)
            slope += fit->info[i][j] * z[j];
        if (!(slope >= 0)) return false;
    }
    return true;
}

/* Finds the optimal values. A step moves the optimum little, so the set that was free last is tried
 * first, and the others only if it is no longer optimal. */
static void fit_values(struct perf_rls *fit)
{
    double z[PERF_TERMS];
    if (solve(fit, (unsigned)fit->free_set, z) && is_optimum(fit, (unsigned)fit->free_set, z)) {
        memcpy(fit->value, z, sizeof z);
        return;
    }
    for (unsigned set = (1u << PERF_TERMS) - 1; set > 0; set--) {
        if (!solve(fit, set, z) || !is_optimum(fit, set, z)) continue;
        fit->free_set = set;
        memcpy(fit->value, z, sizeof z);
        return;
    }
    /* No set passed, by rounding errors: keep the last good values. */
}

/* Forgets a part of all past steps. Scaling both sides alike leaves the coefficients as they are:
 * they only become easier to move, also those that no new step informs. */
static void forget_all(struct perf_rls *fit, double part)
{
    if (part == 0) return; /* as nearly always */
    for (int i = 0; i < PERF_TERMS; i++) {
        fit->target[i] *= 1 - part;
        for (int j = 0; j < PERF_TERMS; j++)
            fit->info[i][j] *= 1 - part;
    }
}

static void forget_along(struct perf_rls *fit, const double x[PERF_TERMS])
{
    double ix[PERF_TERMS], xix = 0, xt = 0;
    for (int i = 0; i < PERF_TERMS; i++) {
        ix[i] = 0;
        for (int j = 0; j < PERF_TERMS; j++)
            ix[i] += fit->info[i][j] * x[j];
        xix += ix[i] * x[i];
        xt += x[i] * fit->target[i];
    }
    if (!(xix > 0)) return;
    for (int i = 0; i < PERF_TERMS; i++) {
        fit->target[i] -= FORGET * ix[i] * xt / xix;
        for (int j = 0; j < PERF_TERMS; j++) {
            fit->info[i][j] -= FORGET * ix[i] * ix[j] / xix;
        }
    }
}

void perf_rls_observe(struct perf_rls *fit, const double x[PERF_TERMS], double seconds)
{
    if (!isfinite(seconds) || seconds <= 0) return;
    double expected = fmax(fit_s(fit, x), STEP_S_MIN);
    double off = fabs(seconds / expected - 1);
    double weight = 1 / (expected * expected);
    double usual = HUBER_SPREADS * fmax(fit->spread, SPREAD_MIN);
    if (off > usual) weight *= usual / off;

    forget_all(fit, fmin(DRIFT_FORGETS * fmax(fabs(fit->drift) - DRIFT_USUAL, 0), DRIFT_FORGETS));
    forget_along(fit, x);
    for (int i = 0; i < PERF_TERMS; i++) {
        fit->target[i] += weight * x[i] * seconds;
        for (int j = 0; j < PERF_TERMS; j++)
            fit->info[i][j] += weight * x[i] * x[j];
    }
    fit->spread += SPREAD_RATE * (off - fit->spread);
    /* The logarithm treats half and double alike; a single stall is cut to 1. */
    double error = fmax(fmin(log(seconds / expected), 1), -1);
    fit->drift += SPREAD_RATE * (error - fit->drift);
    perf_track_p90(&fit->ratio_p90, seconds / expected);
    fit->samples += 1;
    fit_values(fit);
}

#define RATIO_RATE 0.02 /* step of the running quantile, relative */
#define RATIO_QUANTILE 0.9

const struct perf_policy *const perf_table[] = {
#define POLICY(name) &perf_##name,
#include "policies/perf/perf.def"
#undef POLICY
};

const uint32_t perf_count = COUNT_OF(perf_table);

const struct perf_policy *perf_find(struct str name)
{
    for (uint32_t i = 0; i < perf_count; i++) {
        if (str_eq(str_from(perf_table[i]->name), name)) return perf_table[i];
    }
    return NULL;
}

void perf_track_p90(double *p90, double ratio)
{
    *p90 *= 1 + RATIO_RATE * (ratio > *p90 ? RATIO_QUANTILE : RATIO_QUANTILE - 1);
}
