/* forecast.h - the interface of forecasts, which predict the next values of a series.
 *
 * Layer: policies (base/core)
 * Rules: pure: values at equal distances in time, oldest first; none is of the future
 */
#pragma once
#include "base/core/str.h"

#include <stdint.h>

struct scale_forecast {
    const char *name;
    const char *about;
    const char *source;
    uint32_t points_min; /* with fewer the forecast is the last value */
    /* Predicts the value `ahead` steps after the last of `count` values, at least points_min. */
    double (*next)(const double *value, uint32_t count, uint32_t ahead);
};

extern const struct scale_forecast *const scale_forecast_table[];
#define FORECAST_DEFAULT "arima"
extern const uint32_t scale_forecast_count;
const struct scale_forecast *scale_forecast_find(struct str name); /* NULL when there is none */

extern const struct scale_forecast scale_forecast_constant, scale_forecast_kalman,
    scale_forecast_arima, scale_forecast_holt;

/* Returns the forecast, at least 0. It is the last value while there are fewer than points_min or
 * where f->next gives no finite number, and 0 for an empty series. */
double scale_forecast_next(const struct scale_forecast *f, const double *value, uint32_t count,
                           uint32_t ahead);
