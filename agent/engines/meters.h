/* meters.h - reads an engine's metrics into the few numbers that all kinds have, by a table of names.
 *
 * Layer:   agent (base/wire, base/core)
 * Threads: pure
 * Rules:   absent is not zero: `has` says which meters were on the page
 */
#pragma once
#include "base/wire/exposition.h"

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
