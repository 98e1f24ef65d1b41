/* offers.h - the list of prices that commands plan with: compiled in, or a newer file.
 *
 * Layer: cli (base/io, policies)
 */
#pragma once
#include "policies/prices.h"

#define OFFERS_FILE_BYTES_MAX ((size_t)1 << 20)

/* path empty: the compiled-in list. */
int offers_load(struct str path, struct prices *ret, struct err *err);

/* Days from the price's date to today (UTC); < 0 when the date is unknown. */
double offers_age_days(const struct price *p);
