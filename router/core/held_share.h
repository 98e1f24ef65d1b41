/* held_share.h - which held request gives its place to a newcomer of another tenant; what is held, in sum.
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

/* Among at most held_max requests, linked by `link` in order of arrival: the last one of the tenant that
 * fair_longest_queue names. NULL: the newcomer is refused. */
struct dispatch_request *held_share_displace(struct held_share *h, const struct list *held,
                                             const struct dispatch_request *newcomer);

/* Age of the one that is held longest; 0: nothing is. */
int64_t held_oldest_us(const struct list *held, int64_t now_us);
/* When one has waited for hold_us_max, or its policy wants to be asked again; INT64_MAX: never. */
int64_t held_deadline_us(const struct list *held, int64_t hold_us_max, int64_t now_us);
/* Adds those of the model. */
void held_report(const struct list *held, uint64_t model, int64_t now_us,
                 struct service_demand *ret);
