/* stats.c - computes means, intervals and quantiles. Student's t is from a table where it bends, from Cornish
 * and Fisher's series beyond. */
#include "simulator/stats.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double stats_t975(uint32_t freedom)
{
    static const double t[] = { 12.7062, 4.3027, 3.1824, 2.7764, 2.5706,
                                2.4469,  2.3646, 2.3060, 2.2622, 2.2281 };
    if (freedom >= 1 && freedom <= COUNT_OF(t)) return t[freedom - 1];
    /* The normal quantile and three terms in 1 / freedom: within 0.0002 from 10 on. */
    double z = 1.959964, n = freedom, z2 = z * z;
    return z + z * (z2 + 1) / (4 * n) + z * ((5 * z2 + 16) * z2 + 3) / (96 * n * n) +
           z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * n * n * n);
}

struct stats_mean stats_mean(const double *value, uint32_t count)
{
    struct stats_mean m = { .count = count, .mean = (double)NAN, .half = (double)NAN };
    if (count == 0) return m;
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += value[i];
    m.mean = sum / count;
    if (count < 2 || !isfinite(m.mean)) return m;
    for (uint32_t i = 0; i < count; i++)
        square += (value[i] - m.mean) * (value[i] - m.mean);
    m.half = stats_t975(count - 1) * sqrt(square / (count - 1) / count);
    return m;
}

struct stats_mean stats_paired(const double *value, const double *base, uint32_t count)
{
    double *difference = malloc((count + 1) * sizeof *difference);
    if (!difference)
        return (struct stats_mean){ .count = count, .mean = (double)NAN, .half = (double)NAN };
    for (uint32_t i = 0; i < count; i++)
        difference[i] = value[i] - base[i];
    struct stats_mean m = stats_mean(difference, count);
    free(difference);
    return m;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void stats_sort(double *value, uint32_t count)
{
    if (count > 1) qsort(value, count, sizeof *value, by_value);
}

double stats_quantile_sorted(const double *sorted, uint32_t count, double q)
{
    if (count == 0) return (double)NAN;
    double rank = ceil(q * count);
    uint32_t index = rank < 1 ? 0 : (uint32_t)rank - 1;
    return sorted[min_u32(index, count - 1)];
}

struct stats_quantiles stats_quantiles(double *value, uint32_t count)
{
    stats_sort(value, count);
    return (struct stats_quantiles){
        .mean = stats_mean(value, count).mean,
        .p50 = stats_quantile_sorted(value, count, 0.50),
        .p90 = stats_quantile_sorted(value, count, 0.90),
        .p99 = stats_quantile_sorted(value, count, 0.99),
    };
}

void stats_figure_json(struct json_writer *w, const char *name, double v)
{
    char text[32];
    double rounded;
    snprintf(text, sizeof text, "%.12g", v);
    bool is_number = str_to_f64(str_from(text), &rounded) == 0;
    json_kv_f64(w, name, is_number ? rounded : v);
}

void stats_mean_json(struct json_writer *w, const char *name, struct stats_mean m)
{
    json_key(w, name);
    json_object(w);
    stats_figure_json(w, "mean", m.mean);
    stats_figure_json(w, "ci95", m.half);
    json_object_end(w);
}

void stats_mean_text(struct buf *out, struct stats_mean m, double factor, int digits, bool sign)
{
    if (isnan(m.mean)) {
        buf_byte(out, '-');
        return;
    }
    buf_printf(out, sign ? "%+.*f" : "%.*f", digits, m.mean * factor);
    if (!isnan(m.half)) buf_printf(out, " \u00b1%.*f", digits, m.half * factor);
}

void stats_quantiles_json(struct json_writer *w, const char *name, const struct stats_quantiles *q)
{
    json_key(w, name);
    json_object(w);
    stats_figure_json(w, "mean", q->mean);
    stats_figure_json(w, "p50", q->p50);
    stats_figure_json(w, "p90", q->p90);
    stats_figure_json(w, "p99", q->p99);
    json_object_end(w);
}
