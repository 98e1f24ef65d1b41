/* perf_fit.h - measured kernel times of CSV tables that others publish, and constants of a piece of
 * hardware that fit them.
 *
 * Layer:    cli (policies, base/io)
 * Lifetime: perf_table_free; samples are in the order of the file
 *
 * Five kinds of table, told apart by their columns. `mlp`: matrices and small kernels of a layer by tokens
 * and parallel degree, one row for all of them (microsoft/vidur). `allreduce`: one collective by
 * size (the same). `dense`: the same kernels of a layer, a row each, and `attention`: both kinds of
 * it in one launch (casys-kaist/LLMServingSim). `steps`: whole steps of our own engine (--step-log).
 * The last three do not name the model.
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
    struct perf_shape shape; /* tokens are prefill_tokens; all-reduce: 16-bit numbers are */
    double seconds;          /* > 0 */
};

struct perf_table {
    enum perf_kind kind;
    struct perf_group group[PERF_GROUPS_MAX];
    uint32_t group_count;
    struct perf_sample *sample;
    uint32_t count, cap;
};

/* `model` is what tables are of that do not say it. Refuses (with the line) rows that are not
 * understood; skips all-reduces between machines, which are not of a device's own link. */
int perf_table_read(struct str text, const struct model_spec *model, struct perf_table **ret,
                    struct err *err);

void perf_table_free(struct perf_table *t);

CLEANUP_FREEP(perf_table, struct perf_table)

/* Mean of |predicted / measured - 1|, and its 90th percentile, over what was selected. */
struct perf_error {
    double mape, p90;
    uint32_t count;
};

enum perf_part {
    PERF_ALL,
    PERF_SMALL, /* at most PERF_SMALL_TOKENS tokens: what decode steps are made of */
    PERF_DECODE,
    PERF_PREFILL,
    PERF_MIXED, /* attention only */
    PERF_PART_COUNT
};

#define PERF_SMALL_TOKENS 64

/* The error of `h` on the part of the table; tp 0: all parallel degrees. */
int perf_error_of(const struct perf_table *t, const struct hardware *h, enum perf_part part,
                  uint32_t tp, struct perf_error *ret, struct err *err);

/* The constants that the table's kind speaks about, by name. */
struct perf_constant {
    const char *name, *unit; /* unit: "" for a share */
    size_t offset;           /* in struct hardware, a double */
    double max;
};

const struct perf_constant *perf_constants(enum perf_kind kind, uint32_t *ret_count);

/* Starts from *h and changes those constants, none beyond its bounds (shares end at 1). Least mean
 * relative error; for layers that of small batches counts a quarter more. Deterministic. */
int perf_fit(const struct perf_table *t, struct hardware *h, struct err *err);
