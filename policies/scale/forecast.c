/* forecast.c - the forecasts of Dynamo's planner and of SageServe in their simplest form.
 *
 * constant  x[t+h] = x[t]
 * kalman    local linear trend: level' = level + trend + N(0, q_level), trend' = trend +
 *           N(0, q_trend), x = level + N(0, r), with Dynamo's q_level 1, q_trend 0.1, r 10 and its
 *           five points before the filter is believed
 * arima     ARIMA(2,1,0) with drift: y = first differences, y[t] = c + p1 y[t-1] + p2 y[t-2],
 *           least squares over all points at each call. The originals choose the orders by an
 *           information criterion; the orders here are fixed, and coefficients that would let the
 *           differences grow are shrunk.
 * holt      additive trend damped by 0.9 a step, smoothing 0.8 (level) and 0.5 (trend). It stands
 *           in for Prophet, which fits trend change points and seasons of days and weeks; neither
 *           occurs within an hour.
 */
#include "policies/scale/forecast.h"

#include "base/core/bits.h"

#include <math.h>

#define KALMAN_LEVEL 1.0
#define KALMAN_TREND 0.1
#define KALMAN_NOISE 10.0
#define HOLT_LEVEL 0.8
#define HOLT_TREND 0.5
#define HOLT_DAMP 0.9
#define AR_SUM_MAX 0.95 /* |p1| + |p2|: differences die out */

const struct scale_forecast *const scale_forecast_table[] = {
    &scale_forecast_constant, &scale_forecast_kalman, &scale_forecast_arima, &scale_forecast_holt
};
const uint32_t scale_forecast_count = COUNT_OF(scale_forecast_table);

const struct scale_forecast *scale_forecast_find(struct str name)
{
    for (uint32_t i = 0; i < scale_forecast_count; i++)
        if (str_eq(name, str_from(scale_forecast_table[i]->name))) return scale_forecast_table[i];
    return NULL;
}

double scale_forecast_next(const struct scale_forecast *f, const double *value, uint32_t count,
                           uint32_t ahead)
{
    if (count == 0) return 0;
    if (count < f->points_min) return value[count - 1];
    double x = f->next(value, count, ahead);
    return isfinite(x) ? fmax(x, 0) : value[count - 1];
}

static double constant(const double *value, uint32_t count, uint32_t ahead)
{
    (void)ahead;
    return value[count - 1];
}

static double kalman(const double *value, uint32_t count, uint32_t ahead)
{
    double level = value[0], trend = 0;
    double p00 = KALMAN_NOISE, p01 = 0, p11 = 1; /* covariance of (level, trend) */
    for (uint32_t i = 1; i < count; i++) {
        level += trend;
        p00 += 2 * p01 + p11 + KALMAN_LEVEL;
        p01 += p11;
        p11 += KALMAN_TREND;
        double s = p00 + KALMAN_NOISE, k0 = p00 / s, k1 = p01 / s;
        double miss = value[i] - level;
        level += k0 * miss;
        trend += k1 * miss;
        p11 -= k1 * p01;
        p01 -= k0 * p01;
        p00 -= k0 * p00;
    }
    return level + trend * ahead;
}

static double holt(const double *value, uint32_t count, uint32_t ahead)
{
    double level = value[0], trend = value[1] - value[0]; /* points_min: there are two */
    for (uint32_t i = 1; i < count; i++) {
        double before = level;
        level = HOLT_LEVEL * value[i] + (1 - HOLT_LEVEL) * (level + HOLT_DAMP * trend);
        trend = HOLT_TREND * (level - before) + (1 - HOLT_TREND) * HOLT_DAMP * trend;
    }
    double damp = 1, sum = 0;
    for (uint32_t h = 0; h < ahead; h++) {
        damp *= HOLT_DAMP;
        sum += damp;
    }
    return level + trend * sum;
}

/* Solves the 3 x 3 normal equations m x = v in place, with a ridge so that a flat series has a
 * solution. */
static void solve3(double m[3][3], double v[3])
{
    for (int i = 0; i < 3; i++)
        m[i][i] += 1e-9 + 1e-6 * m[i][i];
    for (int i = 0; i < 3; i++) {
        for (int k = i + 1; k < 3; k++) {
            double f = m[k][i] / m[i][i];
            for (int j = i; j < 3; j++)
                m[k][j] -= f * m[i][j];
            v[k] -= f * v[i];
        }
    }
    for (int i = 2; i >= 0; i--) {
        for (int j = i + 1; j < 3; j++)
            v[i] -= m[i][j] * v[j];
        v[i] /= m[i][i];
    }
}

static double arima(const double *value, uint32_t count, uint32_t ahead)
{
    double m[3][3] = { 0 }, v[3] = { 0 };
    for (uint32_t t = 3; t < count; t++) {
        double row[3] = { 1, value[t - 1] - value[t - 2], value[t - 2] - value[t - 3] };
        double y = value[t] - value[t - 1];
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 3; j++)
                m[i][j] += row[i] * row[j];
            v[i] += row[i] * y;
        }
    }
    solve3(m, v);
    double size = fabs(v[1]) + fabs(v[2]), shrink = size > AR_SUM_MAX ? AR_SUM_MAX / size : 1;
    double x = value[count - 1], y1 = x - value[count - 2],
           y2 = value[count - 2] - value[count - 3];
    for (uint32_t h = 0; h < ahead; h++) {
        double y = v[0] + shrink * (v[1] * y1 + v[2] * y2);
        y2 = y1;
        y1 = y;
        x += y;
    }
    return x;
}

const struct scale_forecast scale_forecast_constant = { .name = "constant",
                                                        .about = "the last value",
                                                        .source = "Dynamo's planner",
                                                        .points_min = 1,
                                                        .next = constant };
const struct scale_forecast scale_forecast_kalman = { .name = "kalman",
                                                      .about = "local linear trend, filtered",
                                                      .source = "Dynamo's planner",
                                                      .points_min = 5,
                                                      .next = kalman };
const struct scale_forecast scale_forecast_arima = { .name = "arima",
                                                     .about = "ARIMA(2,1,0) with drift",
                                                     .source = "Dynamo's planner, SageServe",
                                                     .points_min = 8,
                                                     .next = arima };
const struct scale_forecast scale_forecast_holt = { .name = "holt",
                                                    .about = "damped additive trend",
                                                    .source = "Holt; in Prophet's place",
                                                    .points_min = 2,
                                                    .next = holt };
