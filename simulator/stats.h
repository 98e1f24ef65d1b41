/* stats.h - computes means over runs with Student's 95 % interval, and quantiles.
 *
 * Layer:   simulator (base/core)
 * Threads: pure
 */
#pragma once
#include "base/core/json.h"

struct stats_mean {
    uint32_t count;
    double mean;
    double half; /* the interval is mean +- half; NAN for fewer than two values or infinite ones */
};

struct stats_mean stats_mean(const double *value, uint32_t count);

/* Returns the mean of value[i] - base[i]: pairs that met the same chance vary less than their parts. */
struct stats_mean stats_paired(const double *value, const double *base, uint32_t count);

/* Returns the 97.5th percentile of Student's distribution with `freedom` (at least 1) degrees. */
double stats_t975(uint32_t freedom);

/* Returns a quantile by nearest rank: the least value that a share `q` of all do not exceed; NAN of none. */
double stats_quantile_sorted(const double *sorted, uint32_t count, double q);
void stats_sort(double *value, uint32_t count);

struct stats_quantiles {
    double mean, p50, p90, p99; /* NAN without values */
};

/* Writes a member of the open object with 12 digits: further ones of a sum or a mean are rounding. */
void stats_figure_json(struct json_writer *w, const char *name, double v);

/* Writes a member of the open object: {"mean", "ci95"}. */
void stats_mean_json(struct json_writer *w, const char *name, struct stats_mean m);

/* Writes "MEAN +-HALF", each times `factor`; without the half where there is none, "-" without a mean. */
void stats_mean_text(struct buf *out, struct stats_mean m, double factor, int digits, bool sign);

/* Returns mean and quantiles; sorts the values. */
struct stats_quantiles stats_quantiles(double *value, uint32_t count);

/* Writes a member of the open object: {"mean", "p50", "p90", "p99"}; a value that is no number is null. */
void stats_quantiles_json(struct json_writer *w, const char *name, const struct stats_quantiles *q);
