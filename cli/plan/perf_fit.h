/* perf_fit.h - constants of a piece of hardware from a measured table, and how far off they are.
 *
 * Layer: cli (policies)
 */
#pragma once
#include "base/perf/hardware.h"
#include "cli/plan/perf_table.h"

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
