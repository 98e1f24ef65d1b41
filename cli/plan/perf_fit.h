/* perf_fit.h - reads measured kernel times from published CSV tables, and fits a piece of hardware's constants
 * to them.
 *
 * Layer:    cli (policies, base/io)
 * Lifetime: perf_table_free; samples are in the order of the file
 *
 * There are five kinds of table, recognised by their columns. `mlp`: matrices and small kernels of a layer by
 * tokens and parallel degree, one row for all of them (microsoft/vidur). `allreduce`: one collective by
 * size (vidur too). `dense`: the same kernels of a layer, a row each, and `attention`: prefill and decode in
 * one launch (casys-kaist/LLMServingSim). `steps`: whole steps of our own engine (--step-log). The last three
 * do not name the model.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/perf/hardware.h"
#include "base/perf/model_spec.h"
#include "base/perf/perf.h"

enum perf_kind {
    PERF_MLP,
    PERF_DENSE,
    PERF_ATTENTION,
    PERF_ALLREDUCE,
    PERF_STEPS,
    PERF_KIND_COUNT
};

extern const char *const perf_kind_names[]; /* NULL-terminated */

#define PERF_GROUPS_MAX 64
#define PERF_SAMPLES_MAX (1 << 20)

/* The setting that all rows of a table share: a model's shape, split over tp devices. */
struct perf_group {
    struct model_spec model;
    uint32_t tp;
};

struct perf_sample {
    uint32_t group;
    struct perf_shape shape; /* layers: prefill_tokens are all tokens; all-reduce: 16-bit numbers */
    double seconds;          /* > 0 */
};

struct perf_table {
    enum perf_kind kind;
    struct perf_group group[PERF_GROUPS_MAX];
    uint32_t group_count;
    struct perf_sample *sample;
    uint32_t count, cap;
};

/* Reads a table. `model` is the model of tables that do not name one. Refuses rows that are not understood,
 * naming the line; skips all-reduces between machines, which do not measure a device's own link. */
int perf_table_read(struct str text, const struct model_spec *model, struct perf_table **ret,
                    struct err *err);

void perf_table_free(struct perf_table *t);

CLEANUP_FREEP(perf_table, struct perf_table)

/* Mean of |predicted / measured - 1|, and its 90th percentile, over the selected samples. */
struct perf_error {
    double mape, p90;
    uint32_t count;
};

enum perf_part {
    PERF_ALL,
    PERF_SMALL, /* at most PERF_SMALL_TOKENS tokens, as in decode steps */
    PERF_DECODE,
    PERF_PREFILL,
    PERF_MIXED, /* attention only */
    PERF_PART_COUNT
};

#define PERF_SMALL_TOKENS 64

/* Computes the error of `h` on a part of the table; tp 0: all parallel degrees. */
int perf_error_of(const struct perf_table *t, const struct hardware *h, enum perf_part part,
                  uint32_t tp, struct perf_error *ret, struct err *err);

/* The constants that a kind of table determines, by name. */
struct perf_constant {
    const char *name, *unit; /* unit: "" for a share */
    size_t offset;           /* in struct hardware, a double */
    double max;
};

const struct perf_constant *perf_constants(enum perf_kind kind, uint32_t *ret_count);

/* Fits those constants within their bounds (shares end at 1), starting from *h. It minimises the mean
 * relative error; for layers the error of small batches counts a quarter more. Deterministic. */
int perf_fit(const struct perf_table *t, struct hardware *h, struct err *err);
