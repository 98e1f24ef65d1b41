/* metrics.c - keeps and prints the counters, gauges and histograms of one static table.
 *
 * A value is a double in a 64-bit atomic: seconds and dollars are counted as well as requests,
 * and below 2^53 every integer is exact. Adding is a compare-and-swap loop, which on a counter
 * that many threads share costs what the shared cache line costs anyway. Rendering reads bucket
 * by bucket and adds them up itself, so that _count always equals the +Inf bucket, whatever was
 * observed meanwhile; _sum may be ahead by the observations of that moment.
 *
 * An exemplar is several words, so each has a flag that its writer or reader takes. Nobody waits for a
 * writer: a second one leaves the exemplar of the first, and a reader prints the bucket without one.
 */
#include "base/io/metrics.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/lock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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

struct metric;

struct exemplar {
    uint8_t size; /* of the id; 0: none yet */
    uint8_t trace_size;
    char id[METRIC_EXEMPLAR_BYTES_MAX];
    char trace[METRIC_TRACE_BYTES_MAX];
    double value;
    int64_t date_us;
};

struct exemplar_place {
    bool taken; /* by a writer or a reader */
    struct exemplar kept;
};

struct metric_series {
    struct metric *metric;
    struct metric_series *next;
    uint64_t value;                   /* bits of a double; a histogram's sum */
    uint64_t *counts;                 /* histograms: bucket_count + 1 */
    struct exemplar_place *exemplars; /* parallel to counts; NULL: the metric has none */
    struct str labels[METRIC_LABELS_MAX];
    char *text; /* what the labels point into */
};

struct metric {
    const struct metric_desc *desc;
    double bounds[METRIC_BUCKETS_MAX];
    uint32_t bucket_count;
    uint32_t label_count;
    uint32_t series_count; /* without `other` */
    uint32_t series_max;
    uint64_t overflows;
    bool other_used;              /* a caller holds `other`, so it is shown */
    struct metric_series *series; /* in order of their making */
    struct metric_series *other;  /* the unlabelled, or the one beyond the bound */
};

struct metrics {
    struct metric *metrics;
    uint32_t count;
    double began_s;   /* date */
    struct lock lock; /* the lists of series */
};

static double bits_double(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t double_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

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
    while (!__atomic_compare_exchange_n(to, &was, double_bits(bits_double(was) + v), true,
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
    __atomic_store_n(&s->value, double_bits(v), __ATOMIC_RELAXED);
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

static bool exemplar_take(struct exemplar_place *e)
{
    return !__atomic_test_and_set(&e->taken, __ATOMIC_ACQUIRE);
}

static void exemplar_drop(struct exemplar_place *e)
{
    __atomic_clear(&e->taken, __ATOMIC_RELEASE);
}

void metric_observe_request(struct metric_series *s, double v, struct str id, struct str trace,
                            int64_t date_us)
{
    must(s->exemplars);
    if (isnan(v)) return;
    struct exemplar_place *e = &s->exemplars[observe(s, v)];
    if (id.len == 0 || id.len > METRIC_EXEMPLAR_BYTES_MAX || !exemplar_take(e)) return;
    memcpy(e->kept.id, id.data, id.len);
    e->kept.size = (uint8_t)id.len;
    e->kept.trace_size = trace.len <= METRIC_TRACE_BYTES_MAX ? (uint8_t)trace.len : 0;
    if (e->kept.trace_size > 0) memcpy(e->kept.trace, trace.data, e->kept.trace_size);
    e->kept.value = v;
    e->kept.date_us = date_us;
    exemplar_drop(e);
}

double metric_value(const struct metric_series *s)
{
    must(s->metric->desc->type != METRIC_HISTOGRAM);
    return bits_double(__atomic_load_n(&s->value, __ATOMIC_RELAXED));
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
    ret->sum = bits_double(__atomic_load_n(&s->value, __ATOMIC_RELAXED));
}

/* ---- the format ---- */

const char *const metrics_content_types[METRICS_FORMAT_COUNT] = {
    [METRICS_CLASSIC] = "text/plain; version=0.0.4; charset=utf-8",
    [METRICS_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8",
};

/* Reads one media range of an Accept header; returns its weight, 0 for a version that is not ours. */
static double range_read(struct str range, struct str *ret_type)
{
    double weight = 1;
    *ret_type = str_trim(str_cut(&range, ';'));
    bool open = str_eq_nocase(*ret_type, STR("application/openmetrics-text"));
    while (range.len > 0) {
        struct str value = str_cut(&range, ';');
        struct str name = str_trim(str_cut(&value, '='));
        value = str_trim(value);
        if (str_eq_nocase(name, STR("q")) && str_to_f64(value, &weight) < 0) weight = 0;
        bool is_version = open && str_eq_nocase(name, STR("version"));
        if (is_version && !str_eq(value, STR("1.0.0")) && !str_eq(value, STR("0.0.1"))) return 0;
    }
    return weight;
}

enum metrics_format metrics_format_of(struct str accept)
{
    double classic = 0, openmetrics = 0;
    while (accept.len > 0) {
        struct str type;
        double weight = range_read(str_cut(&accept, ','), &type);
        if (str_eq_nocase(type, STR("application/openmetrics-text")))
            openmetrics = fmax(openmetrics, weight);
        else if (str_eq_nocase(type, STR("text/plain")))
            classic = fmax(classic, weight);
    }
    return openmetrics > 0 && openmetrics >= classic ? METRICS_OPENMETRICS : METRICS_CLASSIC;
}

/* ---- text ---- */

/* Where the text goes, and in which format. */
struct text {
    struct buf *out;
    bool open; /* OpenMetrics */
};

static void put_number(struct buf *out, double v)
{
    char text[40];
    if (isnan(v) || isinf(v)) {
        buf_text(out, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (double_bits(strtod(text, NULL)) == double_bits(v)) break;
    }
    buf_text(out, text);
}

/* Appends a bucket's bound. In OpenMetrics a whole number ends with ".0". */
static void put_bound(struct text t, double bound)
{
    size_t from = t.out->len;
    put_number(t.out, bound);
    if (!t.open || t.out->rc < 0 || isinf(bound)) return;
    struct str printed = str_of(t.out->data + from, t.out->len - from);
    bool whole = str_find(printed, STR(".")) == SIZE_MAX && str_find(printed, STR("e")) == SIZE_MAX;
    if (whole) buf_text(t.out, ".0");
}

/* Appends a text with escapes: of \ and newlines, and of quotes too. */
static void put_escaped(struct buf *out, struct str s, bool quotes)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == '\n')
            buf_text(out, "\\n");
        else if (c == '\\' || (quotes && c == '"'))
            buf_printf(out, "\\%c", c);
        else
            buf_byte(out, c);
    }
}

/* Appends name_suffix{a="x",le="0.5"}. */
static void put_name(struct text t, const struct metric_series *s, const char *suffix, bool le,
                     double bound)
{
    const struct metric *m = s->metric;
    buf_printf(t.out, "%s%s", m->desc->name, suffix);
    if (m->label_count == 0 && !le) return;
    buf_byte(t.out, '{');
    for (uint32_t i = 0; i < m->label_count; i++) {
        buf_printf(t.out, "%s%s=\"", i ? "," : "", m->desc->labels[i]);
        put_escaped(t.out, s->labels[i], true);
        buf_byte(t.out, '"');
    }
    if (le) {
        buf_printf(t.out, "%sle=\"", m->label_count ? "," : "");
        put_bound(t, bound);
        buf_byte(t.out, '"');
    }
    buf_byte(t.out, '}');
}

/* Appends # {request_id="...",trace_id="..."} value date, in seconds, behind a bucket's count. */
static void put_exemplar(struct buf *out, const struct metric_series *s, uint32_t bucket)
{
    if (!s->exemplars || !exemplar_take(&s->exemplars[bucket])) return;
    const struct exemplar e = s->exemplars[bucket].kept;
    exemplar_drop(&s->exemplars[bucket]);
    if (e.size == 0) return;
    buf_text(out, " # {request_id=\"");
    put_escaped(out, str_of(e.id, e.size), true);
    if (e.trace_size > 0) {
        buf_text(out, "\",trace_id=\"");
        put_escaped(out, str_of(e.trace, e.trace_size), true);
    }
    buf_text(out, "\"} ");
    put_number(out, e.value);
    buf_printf(out, " %" PRId64 ".%06" PRId64, e.date_us / 1000000, e.date_us % 1000000);
}

static void put_histogram(struct text t, const struct metric_series *s)
{
    struct metric_snapshot now;
    metric_snapshot(s, &now);
    uint64_t below = 0;
    for (uint32_t i = 0; i <= now.bucket_count; i++) {
        below += now.counts[i];
        double bound = i < now.bucket_count ? now.bounds[i] : (double)INFINITY;
        put_name(t, s, "_bucket", true, bound);
        buf_printf(t.out, " %" PRIu64, below);
        if (t.open) put_exemplar(t.out, s, i);
        buf_byte(t.out, '\n');
    }
    put_name(t, s, "_sum", false, 0);
    buf_byte(t.out, ' ');
    put_number(t.out, now.sum);
    buf_byte(t.out, '\n');
    put_name(t, s, "_count", false, 0);
    buf_printf(t.out, " %" PRIu64 "\n", now.count);
}

static void put_series(struct text t, const struct metric_series *s)
{
    if (s->metric->desc->type == METRIC_HISTOGRAM) {
        put_histogram(t, s);
        return;
    }
    put_name(t, s, "", false, 0);
    buf_byte(t.out, ' ');
    put_number(t.out, metric_value(s));
    buf_byte(t.out, '\n');
}

static const char *const type_names[] = {
    [METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"
};

/* Appends the two lines before a metric's samples. OpenMetrics knows a counter by its name without
 * _total, and escapes quotes in help texts too. */
static void put_head(struct text t, const char *name, enum metric_type type, const char *help)
{
    struct str known = str_from(name);
    if (t.open && type == METRIC_COUNTER) known.len -= strlen("_total");
    buf_printf(t.out, "# HELP " STR_FMT " ", STR_ARG(known));
    put_escaped(t.out, str_from(help), t.open);
    buf_printf(t.out, "\n# TYPE " STR_FMT " %s\n", STR_ARG(known), type_names[type]);
}

static void put_metric(struct text t, const struct metric *m)
{
    put_head(t, m->desc->name, m->desc->type, m->desc->help);
    for (const struct metric_series *s = m->series; s; s = s->next)
        put_series(t, s);
    if (m->label_count == 0 || m->other_used) put_series(t, m->other);
}

static void put_own_head(struct text t, enum metrics_own which)
{
    const struct metric_desc *d = &metrics_own_table[which];
    put_head(t, d->name, d->type, d->help);
}

static void put_overflows(struct text t, const struct metrics *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->metrics[i].label_count == 0) continue;
        if (!any) put_own_head(t, METRICS_OVERFLOW);
        any = true;
        buf_printf(t.out, "%s{metric=\"%s\"} %" PRIu64 "\n",
                   metrics_own_table[METRICS_OVERFLOW].name, m->metrics[i].desc->name,
                   m->metrics[i].overflows);
    }
}

/* Returns the resident bytes of this process; NaN: not known. */
static double resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    bool known = f && fscanf(f, "%*u %lu", &pages) == 1;
    if (f) fclose(f);
    return known ? (double)pages * (double)sysconf(_SC_PAGESIZE) : (double)NAN;
}

static void put_own(struct text t, enum metrics_own which, double v)
{
    put_own_head(t, which);
    buf_printf(t.out, "%s ", metrics_own_table[which].name);
    put_number(t.out, v);
    buf_byte(t.out, '\n');
}

static void put_process(struct text t, const struct metrics *m)
{
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    put_own(t, METRICS_CPU, (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    put_own(t, METRICS_RESIDENT, resident_bytes());
    put_own(t, METRICS_START, m->began_s);
}

int metrics_render(struct metrics *m, enum metrics_format format, struct buf *out)
{
    struct text t = { out, format == METRICS_OPENMETRICS };
    lock_take(&m->lock);
    for (uint32_t i = 0; i < m->count; i++)
        put_metric(t, &m->metrics[i]);
    put_overflows(t, m);
    lock_drop(&m->lock);
    put_process(t, m);
    if (t.open) buf_text(out, "# EOF\n");
    return out->rc;
}

static void put_cell(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|') buf_byte(out, '\\');
        buf_byte(out, *text == '\n' ? ' ' : *text);
    }
}

int metrics_markdown(const struct metric_desc *table, uint32_t count, struct buf *out)
{
    buf_text(out, "| metric | type | unit | labels | |\n|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < count; i++) {
        const struct metric_desc *d = &table[i];
        buf_printf(out, "| `%s` | %s | %s | ", d->name, type_names[d->type],
                   d->unit ? d->unit : "-");
        for (uint32_t j = 0; j < METRIC_LABELS_MAX && d->labels[j]; j++)
            buf_printf(out, "%s`%s`", j ? ", " : "", d->labels[j]);
        buf_text(out, d->labels[0] ? " | " : "- | ");
        put_cell(out, d->help);
        buf_text(out, " |\n");
    }
    return out->rc;
}
