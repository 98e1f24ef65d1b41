/* metrics_state.h - defines the members of metrics and their series.
 *
 * Layer:    base/io, private to metrics.c and metrics_text.c
 * Threads:  values and exemplars from any thread, by the functions below; lists of series under `lock`
 */
#pragma once
#include "base/io/loop/lock.h"
#include "base/io/metrics.h"

#include <string.h>

struct metric;

struct metric_exemplar {
    uint8_t size; /* of the id; 0: none yet */
    uint8_t trace_size;
    char id[METRIC_EXEMPLAR_BYTES_MAX];
    char trace[METRIC_TRACE_BYTES_MAX];
    double value;
    int64_t date_us;
};

struct metric_exemplar_place {
    bool taken; /* by a writer or a reader */
    struct metric_exemplar kept;
};

struct metric_series {
    struct metric *metric;
    struct metric_series *next;
    uint64_t value;                          /* bits of a double; a histogram's sum */
    uint64_t *counts;                        /* histograms: bucket_count + 1 */
    struct metric_exemplar_place *exemplars; /* parallel to counts; NULL: the metric has none */
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

static inline double metric_double(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint64_t metric_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline bool metric_exemplar_take(struct metric_exemplar_place *e)
{
    return !__atomic_test_and_set(&e->taken, __ATOMIC_ACQUIRE);
}

static inline void metric_exemplar_drop(struct metric_exemplar_place *e)
{
    __atomic_clear(&e->taken, __ATOMIC_RELEASE);
}
