/* cost.h - holds sums of dollars by period, and what the charge of one instance is made of.
 *
 * Layer:   controller/core (libc)
 * Threads: pure data; charge.h counts with it, an intent carries it (intent.h)
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Dollars by the periods that they fell in; the parts are of `day` and `month`, and 0 in others. */
struct cost {
    int64_t day, month; /* since 1970 */
    double in_day, in_month, total;
};

/* How a provider counts an instance's time: in whole units, and so long at least. 0: as it is. */
struct billing {
    int64_t unit_us, least_us;
};

/* The cost of an instance, as its provider bills it (charge.h). */
struct charge {
    int64_t from_us, to_us; /* its billed life; 0: not known, so from made_us to ended_us */
    int64_t priced_us;      /* since when the intent's price holds; 0: from the beginning */
    int64_t unsure_us;      /* to_us may be earlier by so much */
    struct cost before;     /* at earlier prices, and of an earlier life */
    struct billing billing;
    double before_unsure; /* dollars of `before` that may be too much */
    bool halted;          /* stopped: the price is that of its disk, and its offer's says nothing */
    bool told; /* the provider has told the price of this instance, not only of its offer */
};
