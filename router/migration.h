/* migration.h - which running answers move to which instance: the migrate row's view and its moves.
 *
 * Layer:    router (policies, router/core)
 * Threads:  the decision thread only
 * Lifetime: with the thread; a request is known from its first token until migration_gone
 * Rules:    (1) only this router's own requests move, and only between engines that serve the same
 *               weights in pages of the same size
 *           (2) absent is not zero: an engine that does not tell its load is neither source nor
 *               target, nor is one that has not told it since a move there or from there ended
 *           (3) at most MIGRATION_AT_ONCE moves are under way
 *
 *     decodes ──► COPYING ──► ARRIVING ──► (first token there) decodes
 *                    └─► stays
 */
#pragma once
#include "policies/migrate/migrate.h"
#include "router/request.h"

#define MIGRATION_AT_ONCE 16
#define MIGRATION_STATE_BYTES 1024 /* of a row */

struct decide;
struct migration;

int migration_new(struct decide *d, const struct migrate_policy *row, uint32_t requests_max,
                  uint64_t seed, struct migration **ret, struct err *err);
void migration_free(struct migration *m);
const struct migrate_policy *migration_row(const struct migration *m);

void migration_tokens(struct migration *m, struct request *r); /* it has some, where it is */
void migration_moved(struct migration *m, struct request *r);  /* its leg is at the target */
void migration_stays(struct migration *m, struct request *r);
void migration_gone(struct migration *m, struct request *r); /* it decodes no more */
