/* held_share.h - which held request gives its place to a newcomer of another tenant.
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

int held_share_new(uint32_t held_max, struct held_share **ret, struct err *err); /* -ENOMEM */
void held_share_free(struct held_share *h);
CLEANUP_FREEP(held_share, struct held_share)

/* Among at most held_max requests, linked by `link` in order of arrival: the last one of the tenant that
 * fair_longest_queue names. NULL: the newcomer is refused. */
struct dispatch_request *held_share_displace(struct held_share *h, const struct list *held,
                                             const struct dispatch_request *newcomer);
