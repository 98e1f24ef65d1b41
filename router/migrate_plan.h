/* migrate_plan.h - which running answers move to which instance: the migrate row's view and its moves.
 *
 * Layer:    router (policies, router/core)
 * Threads:  the decision thread only
 * Lifetime: with the thread; a request is known from its first token until migrate_plan_gone
 * Rules:    (1) only this router's own requests move, and only between engines that serve the same
 *               weights in pages of the same size
 *           (2) absent is not zero: an engine that does not tell its load is neither source nor
 *               target, nor is one that has not told it since a move there or from there ended
 *           (3) at most MIGRATE_AT_ONCE moves are under way
 *
 *     decodes ──► COPYING ──► ARRIVING ──► (first token there) decodes
 *                    └─► stays
 */
#pragma once
#include "policies/migrate/migrate.h"
#include "router/request.h"

#define MIGRATE_AT_ONCE 16
#define MIGRATE_STATE_BYTES 1024 /* of a row */

struct decide;
struct migrate_plan;

int migrate_plan_new(struct decide *d, const struct migrate_policy *row, uint32_t requests_max,
                     uint64_t seed, struct migrate_plan **ret, struct err *err);
void migrate_plan_free(struct migrate_plan *m);
const struct migrate_policy *migrate_plan_policy(const struct migrate_plan *m);

void migrate_plan_tokens(struct migrate_plan *m, struct request *r);  /* it has some, where it is */
void migrate_plan_arrives(struct migrate_plan *m, struct request *r); /* its leg is at the target */
void migrate_plan_stays(struct migrate_plan *m, struct request *r);
void migrate_plan_gone(struct migrate_plan *m, struct request *r); /* it decodes no more */
