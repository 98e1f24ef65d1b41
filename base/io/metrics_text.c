/* metrics_text.c - prints metrics: for scrapers, in one of two formats, and their table as a page.
 *
 * Rendering reads bucket by bucket and adds them up itself, so that _count always equals the +Inf bucket, whatever was
 * observed meanwhile; _sum may be ahead by the observations of that moment.
 */
#include "base/io/metrics_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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
        if (metric_bits(strtod(text, NULL)) == metric_bits(v)) break;
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
    if (!s->exemplars || !metric_exemplar_take(&s->exemplars[bucket])) return;
    const struct metric_exemplar e = s->exemplars[bucket].kept;
    metric_exemplar_drop(&s->exemplars[bucket]);
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
