/* migrate_plan.h - runs the decision thread's part of every migration.
 *
 * Layer:    router (router/core)
 * Threads:  the decision thread only
 * Lifetime: with the thread
 *
 * The director has states and views, and its policy chooses which running session goes to which instance.
 * This file has the timer, the metrics, the log and the mail to the byte loops.
 */
#pragma once
#include "router/request.h"

struct decide;
struct migrate_plan;

int migrate_plan_new(struct decide *d, struct migrate_plan **ret, struct err *err);
void migrate_plan_free(struct migrate_plan *m);

void migrate_plan_arrives(struct migrate_plan *m, struct request *r,
                          int64_t now_us); /* its leg is there */
void migrate_plan_stays(struct migrate_plan *m, struct request *r, int64_t now_us);
/* Counts a dropped migration if the request, which decodes no more, was being copied. */
void migrate_plan_drops(struct migrate_plan *m, const struct request *r);
