/* prices.h - reads a dated list of prices of accelerators: one line an offer.
 *
 * Layer:   base/perf (base/core)
 * Threads: pure
 *
 *     hardware provider zone purchase dollars-an-hour date source
 *     h100     aws     -    on_demand 6.88 2026-11-09 data-receipts
 *
 * `#` begins a comment. purchase is on_demand or spot; zone and date may be `-` for unknown. A copy of
 * the list is compiled in (prices/); users can pass a newer one.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define PRICES_MAX 256
#define PRICE_NAME_MAX 32 /* with its NUL */
#define PRICE_DATE_UNKNOWN INT32_MIN

struct price {
    char hardware[PRICE_NAME_MAX]; /* a row of hardware_table */
    char provider[PRICE_NAME_MAX], zone[PRICE_NAME_MAX], source[PRICE_NAME_MAX];
    bool spot;
    double price_h;
    int32_t day; /* since 1970-01-01, UTC; or PRICE_DATE_UNKNOWN */
};

struct prices {
    struct price row[PRICES_MAX];
    uint32_t count;
};

/* Parses a list. Refuses unknown hardware or purchase, a price that is not above 0 or is above 10,000, an
 * invalid date and lines of more or fewer than seven words. On failure *ret is untouched and err names
 * the line. */
int prices_parse(struct str text, struct prices *ret, struct err *err);

/* Converts "2026-11-09" to days since 1970-01-01; -EINVAL if it is no day of the calendar. */
int price_day(struct str text, int32_t *ret);

/* Returns the compiled-in list. */
struct str prices_text(void);
