/* held_share.h - picks the held request that gives its place to a newcomer of another tenant, and sums up
 * the held requests.
 *
 * Layer:    router/core (policies/fair, base/core)
 * Threads:  the decision thread
 * Lifetime: all memory is taken by held_share_new; nothing is kept between calls
 * Rules:    a request whose output has begun keeps its place
 */
#pragma once
#include "base/core/err.h"
#include "base/core/list.h"
#include "base/core/own.h"

#include <stdint.h>

struct dispatch_request;
struct held_share;
struct service_demand;

int held_share_new(uint32_t held_max, struct held_share **ret, struct err *err); /* -ENOMEM */
void held_share_free(struct held_share *h);
CLEANUP_FREEP(held_share, struct held_share)

/* Returns the last request, without output so far, of the tenant that fair_longest_queue names. `held` has
 * at most held_max requests, linked by `link` in order of arrival. NULL: the newcomer is refused. */
struct dispatch_request *held_share_displace(struct held_share *h, const struct list *held,
                                             const struct dispatch_request *newcomer);

/* Returns the age of the request that is held longest; 0: none is held. */
int64_t held_oldest_us(const struct list *held, int64_t now_us);
/* Returns when the first of them has waited for hold_us_max, or its policy wants to be asked again;
 * INT64_MAX: never. */
int64_t held_deadline_us(const struct list *held, int64_t hold_us_max, int64_t now_us);
/* Adds the held requests of one model to its service's report. */
void held_report(const struct list *held, uint64_t model, int64_t now_us,
                 struct service_demand *ret);
