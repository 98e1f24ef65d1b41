/* migrate_plan.h - which running sessions go to which instance: the decision thread's part of every migration.
 *
 * Layer:    router (fleet, router/core)
 * Threads:  the decision thread only
 * Lifetime: with the thread; a request is known from its first token until migrate_plan_gone
 *
 * The states are those of fleet/kv_transfer.h, the view is fleet/migrate_view.h's. This file has the
 * timer, the metrics, the log and the words to the byte loops.
 */
#pragma once
#include "fleet/migrate_view.h"
#include "router/request.h"

struct decide;
struct migrate_plan;

int migrate_plan_new(struct decide *d, const struct migrate_policy *policy, uint32_t requests_max,
                     uint64_t seed, struct migrate_plan **ret, struct err *err);
void migrate_plan_free(struct migrate_plan *m);
const struct migrate_policy *migrate_plan_policy(const struct migrate_plan *m);

void migrate_plan_endpoint(struct migrate_plan *m, uint32_t slot, uint64_t serial); /* 0: gone */

/* It is sent to its slot, for its first token only where it `prefills` there. */
void migrate_plan_sent(struct migrate_plan *m, struct request *r, bool prefills);
/* Its prompt's leg is over, and it goes on at slot `to`; its own: no other takes it. */
void migrate_plan_prefilled(struct migrate_plan *m, struct request *r, uint32_t to);
void migrate_plan_tokens(struct migrate_plan *m, struct request *r);  /* some came */
void migrate_plan_arrives(struct migrate_plan *m, struct request *r); /* its leg is at the target */
void migrate_plan_stays(struct migrate_plan *m, struct request *r);
void migrate_plan_gone(struct migrate_plan *m, struct request *r); /* it decodes no more */
