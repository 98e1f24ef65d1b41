/* cmd_offers.h - the list of prices that commands plan with: compiled in, or a newer file.
 *
 * Layer: cli (base/io, policies)
 */
#pragma once
#include "base/perf/prices.h"

#define OFFERS_FILE_BYTES_MAX ((size_t)1 << 20)

/* path empty: the compiled-in list. A file with an offer dated after today (UTC, and half the world is
 * a day ahead of it) is refused: -EINVAL. */
int offers_load(struct str path, struct prices *ret, struct err *err);

/* Whole seconds from the beginning of the price's date to now (UTC), 0 for what is dated tomorrow; -1
 * when its age is not known: no date, or one that this machine's clock has not reached. */
int64_t offers_age_s(const struct price *p);
