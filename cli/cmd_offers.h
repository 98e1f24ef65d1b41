/* cmd_offers.h - loads the list of prices that commands plan with: compiled in, a newer file, or what the clouds of a
 * configuration say.
 *
 * Layer: cli (controller/cloud/web, base/io, policies)
 */
#pragma once

#include "base/perf/prices.h"
#include "controller/cloud/web/web_section.h"

/* Asks the clouds of a configuration what their offers cost at this moment.
 *
 * Waits:   for each cloud in turn, and for its bounded number of tries
 * Rules:   a cloud that does not answer is named on stderr, and the others are asked; only when none answers is
 *          that an error */

/* One offer and what its cloud says of it. */
struct offers_answer {
    const struct web_settings *cloud;
    const struct web_offer *offer;
    const struct cloud_price *price;
};
typedef void offers_fn(void *arg, const struct offers_answer *a);

/* Calls fn with each offer of each cloud in `file` that answers. -ENOENT: the file has no clouds. */
int offers_ask(struct str file, offers_fn *fn, void *arg, struct err *err);

/* The same as a list of prices: offers whose price and hardware are known, the cloud as their provider. -ENOENT:
 * there is none. -E2BIG: there are more than a list holds. */
int offers_ask_prices(struct str file, struct prices *ret, struct err *err);

#define OFFERS_FILE_BYTES_MAX ((size_t)1 << 20)

/* Loads the list at `path`; empty: the compiled-in one. A file with an offer dated later than tomorrow is
 * refused with -EINVAL: dates are UTC, and half the world is a day ahead of it. */
int offers_load(struct str path, struct prices *ret, struct err *err);

/* Returns the whole seconds from the beginning of the price's date to now (UTC), 0 for a date of
 * tomorrow; -1 when the age is not known: there is no date, or it is later than tomorrow. */
int64_t offers_age_s(const struct price *p);
