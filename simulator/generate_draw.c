/* generate_draw.c - draws lengths from distributions, and gaps between arrivals.
 *
 *     lognormal: s^2 = ln(1 + C2), m = ln(mean) - s^2 / 2, with C2 the squared coefficient of variation
 *     gamma:     shape 1 / cv^2, mean 1 (Marsaglia and Tsang 2000; below shape 1 by the boost
 *                U^(1/shape) of shape + 1)
 */
#include "simulator/generate_draw.h"

#include "base/core/bits.h"

#include <math.h>

static bool any_valid(const double *p)
{
    return p[0] >= 0;
}

static double first_mean(const double *p)
{
    return p[0];
}

static double fixed_draw(const double *p, struct rng *rng)
{
    (void)rng;
    return p[0];
}

#define LOGNORMAL_C2_MAX 1000 /* beyond it the mean of any trace is far from MEAN */

static bool lognormal_valid(const double *p)
{
    return p[0] > 0 && p[1] >= 0 && p[1] <= LOGNORMAL_C2_MAX;
}

static double lognormal_draw(const double *p, struct rng *rng)
{
    double variance = log1p(p[1]);
    return exp(log(p[0]) - variance / 2 + sqrt(variance) * rng_normal(rng));
}

static bool normal_valid(const double *p)
{
    return p[1] >= 0 && p[2] >= 0 && p[2] <= p[0] && p[0] <= p[3];
}

static double normal_draw(const double *p, struct rng *rng)
{
    return fmin(fmax(p[0] + p[1] * rng_normal(rng), p[2]), p[3]);
}

static bool uniform_valid(const double *p)
{
    return p[0] >= 0 && p[0] <= p[1];
}

static double uniform_mean(const double *p)
{
    return (p[0] + p[1]) / 2;
}

static double uniform_draw(const double *p, struct rng *rng)
{
    return p[0] + (p[1] - p[0]) * rng_f64(rng);
}

static double exponential_draw(const double *p, struct rng *rng)
{
    return rng_exp(rng, p[0]);
}

// clang-format off
const struct generate_shape generate_shapes[] = {
    { "fixed", "NUMBER", "from 0", 1, any_valid, first_mean, fixed_draw },
    { "lognormal", "lognormal(MEAN,C2)", "C2 from 0 to 1000", 2, lognormal_valid, first_mean,
      lognormal_draw },
    { "normal", "normal(MEAN,SD,MIN,MAX)", "none below 0 and MIN <= MEAN <= MAX", 4, normal_valid,
      first_mean, normal_draw },
    { "uniform", "uniform(MIN,MAX)", "0 <= MIN <= MAX", 2, uniform_valid, uniform_mean,
      uniform_draw },
    { "exponential", "exponential(MEAN)", "from 0", 1, any_valid, first_mean, exponential_draw },
};

// clang-format on
const uint32_t generate_shape_count = COUNT_OF(generate_shapes);
_Static_assert(COUNT_OF(generate_shapes) <= GENERATE_SHAPES_MAX, "names fit the callers' arrays");

const struct generate_shape *generate_shape_find(struct str name)
{
    for (uint32_t i = 0; i < generate_shape_count; i++)
        if (str_eq(name, str_from(generate_shapes[i].name))) return &generate_shapes[i];
    return NULL;
}

static double poisson_gap(double cv, struct rng *rng)
{
    (void)cv;
    return rng_exp(rng, 1);
}

static double constant_gap(double cv, struct rng *rng)
{
    (void)cv, (void)rng;
    return 1;
}

/* Draws from a gamma distribution of shape at least 1 and mean `shape`. */
static double gamma_draw(double shape, struct rng *rng)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = rng_normal(rng), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        double u = 1 - rng_f64(rng); /* in (0, 1]: its logarithm exists */
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}

static double gamma_gap(double cv, struct rng *rng)
{
    double shape = 1 / (cv * cv);
    if (shape >= 1) return gamma_draw(shape, rng) / shape;
    double boost = pow(1 - rng_f64(rng), 1 / shape);
    return gamma_draw(shape + 1, rng) * boost / shape;
}

static const struct generate_spacing spacings[] = {
    { "poisson", false, false, poisson_gap },
    { "constant", false, true, constant_gap },
    { "gamma", true, false, gamma_gap },
};

const char generate_spacing_names[] = "poisson, constant or gamma";

const struct generate_spacing *generate_spacing_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(spacings); i++)
        if (str_eq(name, str_from(spacings[i].name))) return &spacings[i];
    return NULL;
}
