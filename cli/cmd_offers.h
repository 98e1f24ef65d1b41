/* cmd_offers.h - loads the list of prices that commands plan with: compiled in, or a newer file.
 *
 * Layer: cli (base/io, policies)
 */
#pragma once
#include "base/perf/prices.h"

#define OFFERS_FILE_BYTES_MAX ((size_t)1 << 20)

/* Loads the list at `path`; empty: the compiled-in one. A file with an offer dated later than tomorrow is
 * refused with -EINVAL: dates are UTC, and half the world is a day ahead of it. */
int offers_load(struct str path, struct prices *ret, struct err *err);

/* Returns the whole seconds from the beginning of the price's date to now (UTC), 0 for a date of
 * tomorrow; -1 when the age is not known: there is no date, or it is later than tomorrow. */
int64_t offers_age_s(const struct price *p);
