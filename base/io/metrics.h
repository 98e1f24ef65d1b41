/* metrics.h - keeps counters, gauges and histograms of one static table; prints them for Prometheus, in its
 * classic text format or as OpenMetrics, which has exemplars.
 *
 * Layer:    base/io (base/core)
 * Threads:  metric_add/set/observe from any thread (relaxed atomics, no lock, no hashing);
 *           metric_series and metrics_render take a short lock
 * Lifetime: a series lives until metrics_free
 * Bound:    series_max a metric; beyond it values go to one series whose labels are all "other",
 *           and muster_metrics_overflow_total{metric="..."} counts the refused look-ups.
 *           One exemplar a bucket, the latest, of METRIC_EXEMPLAR_BYTES_MAX
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#define METRIC_LABELS_MAX 6
#define METRIC_BUCKETS_MAX 40        /* with inserted targets, without +Inf */
#define METRIC_SERIES_DEFAULT 64     /* series of a metric whose row names no bound */
#define METRIC_LABEL_BYTES_MAX 128   /* longer label values are cut */
#define METRIC_EXEMPLAR_BYTES_MAX 64 /* a longer request id leaves no exemplar */
#define METRIC_TRACE_BYTES_MAX 32 /* of a trace id in hex; both fit OpenMetrics' 128 characters */
#define METRICS_TEXT_BYTES_MAX ((size_t)8 << 20)

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_desc {
    const char *name; /* muster_engine_requests_total; counters end with _total */
    enum metric_type type;
    const char *unit; /* seconds, tokens, bytes, dollars: for the docs; NULL for plain counts */
    const char *help; /* one sentence */
    const char *labels[METRIC_LABELS_MAX]; /* names; the first NULL ends the list */
    const double *buckets;                 /* histograms: ascending upper bounds */
    uint32_t bucket_count;
    uint32_t series_max; /* 0: METRIC_SERIES_DEFAULT; only with labels */
    bool exemplars;      /* histograms: buckets remember requests (metric_observe_request) */
};

/* A bound that is inserted into a histogram's buckets, so that attainment of an SLO is exact. */
struct metric_target {
    uint32_t metric; /* index in the table */
    double bound;
};

struct metrics;
struct metric_series;

/* Every role exports these beside its own table: look-ups beyond a bound, and the process as all exporters
 * name it. */
enum metrics_own {
    METRICS_OVERFLOW,
    METRICS_CPU,
    METRICS_RESIDENT,
    METRICS_START,
    METRICS_OWN_COUNT
};
extern const struct metric_desc metrics_own_table[METRICS_OWN_COUNT];

/* `table` must outlive the metrics; an index in it is a metric's id. Unlabelled metrics exist
 * with value 0 from now on. -ENOMEM. A malformed table is our bug (must). */
int metrics_new(const struct metric_desc *table, uint32_t count,
                const struct metric_target *targets, uint32_t target_count, struct metrics **ret,
                struct err *err);
void metrics_free(struct metrics *m);
static inline void metrics_freep(struct metrics **m)
{
    metrics_free(*m);
    *m = NULL;
}

/* Returns the handle of an unlabelled metric; costs an array access. */
struct metric_series *metric_of(const struct metrics *m, uint32_t metric);

/* Returns the handle for label values (as many as the metric has labels), made when new. Never NULL: at
 * the bound, or without memory, it is the "other" series. Keep the handle, do not look up per event. */
struct metric_series *metric_series(struct metrics *m, uint32_t metric, const struct str *values);

void metric_add(struct metric_series *s, double v); /* counters: v >= 0; gauges: any */
void metric_inc(struct metric_series *s);
void metric_set(struct metric_series *s, double v);     /* gauges */
void metric_observe(struct metric_series *s, double v); /* histograms; NaN is dropped */
void metrics_zero(struct metrics *m, uint32_t metric);  /* sets all series of a gauge to 0 */

/* Sets every gauge to 0 whose series has these values of these labels: of what is no more, which would keep
 * its last value. `labels` are names as in the table. */
void metrics_quiet(struct metrics *m, const char *const *labels, const struct str *values,
                   uint32_t count);

/* Observes a value of a request and remembers its id as the bucket's exemplar; `date_us` is the date. The
 * metric has exemplars. When two threads come to one bucket at once, only one of the ids is kept.
 * `trace`: the id of its trace in hex, of METRIC_TRACE_BYTES_MAX; empty: it is not traced. */
void metric_observe_request(struct metric_series *s, double v, struct str id, struct str trace,
                            int64_t date_us);
double metric_value(const struct metric_series *s); /* counters and gauges */

/* The content of a histogram at one moment; counts[i] is of its own bucket, not cumulated. */
struct metric_snapshot {
    double bounds[METRIC_BUCKETS_MAX];
    uint64_t counts[METRIC_BUCKETS_MAX + 1]; /* the last: above every bound */
    uint32_t bucket_count;
    uint64_t count;
    double sum;
};
void metric_snapshot(const struct metric_series *s, struct metric_snapshot *ret);

enum metrics_format { METRICS_CLASSIC, METRICS_OPENMETRICS, METRICS_FORMAT_COUNT };
extern const char *const metrics_content_types[METRICS_FORMAT_COUNT];

/* Returns the format that a scraper's Accept header prefers; empty: classic. */
enum metrics_format metrics_format_of(struct str accept);

/* Appends all metrics: as text exposition 0.0.4, or as OpenMetrics 1.0 with exemplars. -E2BIG, -ENOMEM. */
int metrics_render(struct metrics *m, enum metrics_format format, struct buf *out);

/* Appends the rows of a table for docs/metrics.md. */
int metrics_markdown(const struct metric_desc *table, uint32_t count, struct buf *out);
