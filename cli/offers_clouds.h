/* offers_clouds.h - asks the clouds of a configuration what their offers cost at this moment.
 *
 * Layer:   cli (controller/cloud/web)
 * Waits:   for each cloud in turn, and for its bounded number of tries
 * Rules:   a cloud that does not answer is named on stderr, and the others are asked; only when none answers is
 *          that an error
 */
#pragma once
#include "base/perf/prices.h"
#include "controller/cloud/web/web_section.h"

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
