/* migrate_plan.h - which running sessions go to which instance: the decision thread's part of every migration.
 *
 * Layer:    router (router/core)
 * Threads:  the decision thread only
 * Lifetime: with the thread
 *
 * States and views are the director's. This file has the timer, the metrics, the log and the words to the
 * byte loops.
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
/* It decodes no more: what is being copied of it is dropped. */
void migrate_plan_drops(struct migrate_plan *m, const struct request *r);
