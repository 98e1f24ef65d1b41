/* meters.h - reads an engine's metrics in Prometheus' text format, and the few numbers that all kinds have, by a table
 * of names.
 *
 * Layer:   agent (base/core)
 * Threads: pure
 * Rules:   absent is not zero: `has` says which meters were on the page
 */
#pragma once

#include "base/core/str.h"

/* Reads metrics in Prometheus' text format, as engines of other kinds export them.
 *
 * Lifetime: names, labels and values point into the text
 * Bounds:   the text's own length; a line is read in one pass. A malformed line is skipped and counted:
 *           one bad series must not hide the others */

struct exposition_row {
    struct str name;
    struct str labels; /* between the braces, as written; empty: none */
    double value;      /* finite: rows of NaN and infinities are left out */
};

struct exposition_reader {
    struct str rest;
    uint32_t malformed; /* lines skipped so far */
};

void exposition_reader_init(struct exposition_reader *r, struct str text);

/* Reads the next row; false at the end. Comments and timestamps are skipped. */
bool exposition_next(struct exposition_reader *r, struct exposition_row *ret);

/* Finds a label's value, as it is written between the quotes; false: the row has no such label. */
bool exposition_label(const struct exposition_row *row, const char *name, struct str *ret);

enum meter {
    METER_RUNNING,
    METER_WAITING,
    METER_KV_SHARE,      /* of the KV memory in use, 0 to 1 */
    METER_KV_TOKENS,     /* held */
    METER_KV_TOKENS_MAX, /* room for */
    METER_PAGES,         /* of the KV memory */
    METER_PAGE_TOKENS,
    METER_PROMPT_TOKENS,   /* of all prompts, cached ones included */
    METER_COMPUTED_TOKENS, /* of prompts, without the cached ones */
    METER_CACHED_TOKENS,
    METER_GENERATED_TOKENS,
    METER_REQUESTS,  /* finished */
    METER_STARTED_S, /* date of the process's start */
    METER_COUNT
};

struct meter_row {
    const char *series;
    enum meter meter;
    /* the value is this label's, as of series that only carry facts; NULL: the row's */
    const char *label;
    bool most; /* the largest of several rows counts; else their sum */
};

#define METER(text, which, ...)                       \
    {                                                 \
        .series = text, .meter = which, ##__VA_ARGS__ \
    }

struct meters {
    bool has[METER_COUNT];
    double value[METER_COUNT];
};

/* Reads a page. Rows of further ranks of one engine repeat the first one's and are left out, and so are
 * rows for one priority beside the row for all. */
void meters_read(struct str page, const struct meter_row *row, uint32_t count, struct meters *ret);
