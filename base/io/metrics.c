/* metrics.c - keeps the counters, gauges and histograms of one static table.
 *
 * A value is a double in a 64-bit atomic: seconds and dollars are counted as well as requests,
 * and below 2^53 every integer is exact. Adding is a compare-and-swap loop, which on a counter
 * that many threads share costs what the shared cache line costs anyway.
 *
 * An exemplar is several words, so each has a flag that its writer or reader takes. Nobody waits for a
 * writer: a second one leaves the exemplar of the first, and a reader prints the bucket without one.
 */
#include "base/io/metrics.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/io/metrics_state.h"

#include <math.h>
#include <stdlib.h>

const struct metric_desc metrics_own_table[METRICS_OWN_COUNT] = {
    [METRICS_OVERFLOW] = { .name = "muster_metrics_overflow_total",
                           .type = METRIC_COUNTER,
                           .help = "Look-ups of a series beyond its metric's bound.",
                           .labels = { "metric" } },
    [METRICS_CPU] = { .name = "process_cpu_seconds_total",
                      .type = METRIC_COUNTER,
                      .unit = "seconds",
                      .help = "Processor time of the process." },
    [METRICS_RESIDENT] = { .name = "process_resident_memory_bytes",
                           .type = METRIC_GAUGE,
                           .unit = "bytes",
                           .help = "Memory of the process that is resident." },
    [METRICS_START] = { .name = "process_start_time_seconds",
                        .type = METRIC_GAUGE,
                        .unit = "seconds",
                        .help = "Date of the process's start, since 1970." },
};

/* ---- the table ---- */

static bool is_name(const char *name)
{
    for (const char *c = name; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        if (!letter && !(c > name && *c >= '0' && *c <= '9')) return false;
    }
    return *name != 0;
}

static void desc_check(const struct metric_desc *d)
{
    must(d->name && is_name(d->name) && d->help && *d->help);
    must((d->type == METRIC_COUNTER) == str_ends(str_from(d->name), STR("_total")));
    must((d->type == METRIC_HISTOGRAM) == (d->bucket_count > 0));
    must(!d->exemplars || d->type == METRIC_HISTOGRAM);
    must(d->bucket_count <= METRIC_BUCKETS_MAX);
    for (uint32_t i = 0; i < d->bucket_count; i++) {
        must(isfinite(d->buckets[i]));
        must(i == 0 || d->buckets[i - 1] < d->buckets[i]);
    }
    for (uint32_t i = 0; i < METRIC_LABELS_MAX && d->labels[i]; i++)
        must(is_name(d->labels[i]) && strcmp(d->labels[i], "le") != 0);
}

static void bound_insert(struct metric *m, double bound)
{
    must(isfinite(bound));
    uint32_t at = 0;
    while (at < m->bucket_count && m->bounds[at] < bound)
        at++;
    if (at < m->bucket_count && m->bounds[at] <= bound) return;
    must(m->bucket_count < METRIC_BUCKETS_MAX);
    memmove(m->bounds + at + 1, m->bounds + at, (m->bucket_count - at) * sizeof *m->bounds);
    m->bounds[at] = bound;
    m->bucket_count++;
}

/* ---- series ---- */

static void series_free(struct metric_series *s)
{
    if (!s) return;
    free(s->exemplars);
    free(s->counts);
    free(s->text);
    free(s);
}

static struct str label_cut(struct str value)
{
    value.len = min_size(value.len, METRIC_LABEL_BYTES_MAX);
    return str_of(value.data, str_utf8_complete(value));
}

static struct metric_series *series_make(struct metric *m, const struct str *values)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < m->label_count; i++)
        bytes += label_cut(values[i]).len;
    struct metric_series *s = FAULT("metrics.alloc") ? NULL : calloc(1, sizeof *s);
    if (!s) return NULL;
    s->metric = m;
    s->text = malloc(bytes);
    bool histogram = m->desc->type == METRIC_HISTOGRAM;
    if (histogram) s->counts = calloc(m->bucket_count + 1, sizeof *s->counts);
    bool exemplars = m->desc->exemplars;
    if (exemplars) s->exemplars = calloc(m->bucket_count + 1, sizeof *s->exemplars);
    if (!s->text || (histogram && !s->counts) || (exemplars && !s->exemplars)) {
        series_free(s);
        return NULL;
    }
    char *to = s->text;
    for (uint32_t i = 0; i < m->label_count; i++) {
        struct str cut = label_cut(values[i]);
        if (cut.len > 0) memcpy(to, cut.data, cut.len);
        s->labels[i] = str_of(to, cut.len);
        to += cut.len;
    }
    return s;
}

static void metric_init(struct metric *m, const struct metric_desc *d)
{
    desc_check(d);
    m->desc = d;
    m->bucket_count = d->bucket_count;
    for (uint32_t i = 0; i < d->bucket_count; i++)
        m->bounds[i] = d->buckets[i];
    while (m->label_count < METRIC_LABELS_MAX && d->labels[m->label_count])
        m->label_count++;
    m->series_max = d->series_max ? d->series_max : METRIC_SERIES_DEFAULT;
}

static int metric_make_other(struct metric *m)
{
    struct str values[METRIC_LABELS_MAX];
    for (uint32_t i = 0; i < METRIC_LABELS_MAX; i++)
        values[i] = STR("other");
    m->other = series_make(m, values);
    return m->other ? 0 : -ENOMEM;
}

int metrics_new(const struct metric_desc *table, uint32_t count,
                const struct metric_target *targets, uint32_t target_count, struct metrics **ret,
                struct err *err)
{
    CLEANUP(metrics_freep) struct metrics *m = calloc(1, sizeof *m);
    if (m) m->metrics = calloc(count, sizeof *m->metrics);
    if (!m || (!m->metrics && count > 0)) return err_set(err, -ENOMEM, "no memory for metrics");
    lock_init(&m->lock);
    m->count = count;
    m->began_s = (double)clock_wall_us() / 1e6;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < i; j++)
            must(strcmp(table[i].name, table[j].name) != 0);
        metric_init(&m->metrics[i], &table[i]);
    }
    for (uint32_t i = 0; i < target_count; i++) {
        must(targets[i].metric < count && table[targets[i].metric].type == METRIC_HISTOGRAM);
        bound_insert(&m->metrics[targets[i].metric], targets[i].bound);
    }
    /* After the bounds are known. `other` is made now, because at the bound it must be there. */
    for (uint32_t i = 0; i < count; i++)
        if (metric_make_other(&m->metrics[i]) < 0)
            return err_set(err, -ENOMEM, "no memory for metrics");
    *ret = TAKE(m);
    return 0;
}

void metrics_free(struct metrics *m)
{
    if (!m) return;
    for (uint32_t i = 0; i < m->count; i++) {
        struct metric *one = &m->metrics[i];
        while (one->series) {
            struct metric_series *next = one->series->next;
            series_free(one->series);
            one->series = next;
        }
        series_free(one->other);
    }
    if (m->metrics) lock_fini(&m->lock);
    free(m->metrics);
    free(m);
}

struct metric_series *metric_of(const struct metrics *m, uint32_t metric)
{
    must(metric < m->count && m->metrics[metric].label_count == 0);
    return m->metrics[metric].other;
}

static bool labels_eq(const struct metric_series *s, const struct str *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!str_eq(s->labels[i], label_cut(values[i]))) return false;
    return true;
}

/* Returns the series of these labels, made if there is room, else the one called other. */
static struct metric_series *series_find_or_make(struct metrics *all, uint32_t metric,
                                                 const struct str *values)
{
    lock_assert_held(&all->lock);
    struct metric *m = &all->metrics[metric];
    struct metric_series **at = &m->series;
    for (; *at; at = &(*at)->next)
        if (labels_eq(*at, values, m->label_count)) return *at;
    bool named = labels_eq(m->other, values, m->label_count); /* a tenant called "other" */
    bool room = !named && m->series_count < m->series_max;
    struct metric_series *s = room ? series_make(m, values) : NULL;
    if (!s) {
        m->overflows += !named;
        m->other_used = true;
        return m->other;
    }
    *at = s;
    m->series_count++;
    return s;
}

struct metric_series *metric_series(struct metrics *m, uint32_t metric, const struct str *values)
{
    must(metric < m->count && m->metrics[metric].label_count > 0);
    lock_take(&m->lock);
    struct metric_series *s = series_find_or_make(m, metric, values);
    lock_drop(&m->lock);
    return s;
}

/* Returns true if the series has these values of these labels. */
static bool has_labels(const struct metric *m, const struct metric_series *s,
                       const char *const *labels, const struct str *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = 0;
        while (at < m->label_count && strcmp(m->desc->labels[at], labels[i]) != 0)
            at++;
        if (at == m->label_count || !str_eq(s->labels[at], label_cut(values[i]))) return false;
    }
    return true;
}

void metrics_quiet(struct metrics *m, const char *const *labels, const struct str *values,
                   uint32_t count)
{
    lock_take(&m->lock);
    for (uint32_t i = 0; i < m->count; i++) {
        const struct metric *one = &m->metrics[i];
        if (one->desc->type != METRIC_GAUGE) continue;
        for (struct metric_series *s = one->series; s; s = s->next)
            if (has_labels(one, s, labels, values, count)) metric_set(s, 0);
    }
    lock_drop(&m->lock);
}

/* ---- values ---- */

static void value_add(uint64_t *to, double v)
{
    uint64_t was = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(to, &was, metric_bits(metric_double(was) + v), true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

void metric_add(struct metric_series *s, double v)
{
    must(s->metric->desc->type != METRIC_HISTOGRAM);
    must(v >= 0 || s->metric->desc->type == METRIC_GAUGE);
    value_add(&s->value, v);
}

void metric_inc(struct metric_series *s)
{
    metric_add(s, 1);
}

void metric_set(struct metric_series *s, double v)
{
    must(s->metric->desc->type == METRIC_GAUGE);
    __atomic_store_n(&s->value, metric_bits(v), __ATOMIC_RELAXED);
}

void metrics_zero(struct metrics *m, uint32_t metric)
{
    must(metric < m->count);
    lock_take(&m->lock);
    metric_set(m->metrics[metric].other, 0);
    for (struct metric_series *s = m->metrics[metric].series; s; s = s->next)
        metric_set(s, 0);
    lock_drop(&m->lock);
}

/* Counts the value and returns its bucket. */
static uint32_t observe(struct metric_series *s, double v)
{
    const struct metric *m = s->metric;
    uint32_t low = 0, high = m->bucket_count; /* the first bound >= v, or behind the last */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (m->bounds[middle] >= v)
            high = middle;
        else
            low = middle + 1;
    }
    __atomic_fetch_add(&s->counts[low], 1, __ATOMIC_RELAXED);
    value_add(&s->value, v);
    return low;
}

void metric_observe(struct metric_series *s, double v)
{
    must(s->metric->desc->type == METRIC_HISTOGRAM);
    if (!isnan(v)) observe(s, v);
}

void metric_observe_request(struct metric_series *s, double v, struct str id, struct str trace,
                            int64_t date_us)
{
    must(s->exemplars);
    if (isnan(v)) return;
    struct metric_exemplar_place *e = &s->exemplars[observe(s, v)];
    if (id.len == 0 || id.len > METRIC_EXEMPLAR_BYTES_MAX || !metric_exemplar_take(e)) return;
    memcpy(e->kept.id, id.data, id.len);
    e->kept.size = (uint8_t)id.len;
    e->kept.trace_size = trace.len <= METRIC_TRACE_BYTES_MAX ? (uint8_t)trace.len : 0;
    if (e->kept.trace_size > 0) memcpy(e->kept.trace, trace.data, e->kept.trace_size);
    e->kept.value = v;
    e->kept.date_us = date_us;
    metric_exemplar_drop(e);
}

double metric_value(const struct metric_series *s)
{
    must(s->metric->desc->type != METRIC_HISTOGRAM);
    return metric_double(__atomic_load_n(&s->value, __ATOMIC_RELAXED));
}

void metric_snapshot(const struct metric_series *s, struct metric_snapshot *ret)
{
    const struct metric *m = s->metric;
    must(m->desc->type == METRIC_HISTOGRAM);
    *ret = (struct metric_snapshot){ .bucket_count = m->bucket_count };
    for (uint32_t i = 0; i < m->bucket_count; i++)
        ret->bounds[i] = m->bounds[i];
    for (uint32_t i = 0; i <= m->bucket_count; i++) {
        ret->counts[i] = __atomic_load_n(&s->counts[i], __ATOMIC_RELAXED);
        ret->count += ret->counts[i];
    }
    ret->sum = metric_double(__atomic_load_n(&s->value, __ATOMIC_RELAXED));
}
