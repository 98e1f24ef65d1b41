/* record.h - a decision as it is kept and shown: inputs, reason, runner-up, cost, actions.
 *
 * Layer: controller/core
 */
#pragma once
#include "base/core/json.h"
#include "controller/core/plan.h"

/* One JSON object for one service's decision; `launched` (may be NULL) holds the ids given to the
 * plan's launches, parallel to plan->action. `at_us` is the wall clock. */
int record_encode(const struct plan_view *view, const struct plan *plan,
                  const struct plan_decision *decision, const char (*launched)[INTENT_ID_BYTES],
                  int64_t at_us, struct buf *out);

/* Members of the open object: what is asked of a service, everything that all who show it say. */
void record_put_demand(struct json_writer *w, const struct scale_demand *d);

/* A member of the open object: a distribution in a few numbers, as its bins would be most of a record;
 * null when there is none. */
void record_put_lengths(struct json_writer *w, const char *name, const struct lengths *l);

/* True when the decision is worth keeping: it acts, or what it says is new. `last` is the reason
 * and hindrance kept before for this service (NULL members at first), and is brought up to date when the answer is true. */
struct record_last {
    const char *reason, *blocked;
};
bool record_is_news(struct record_last *last, const struct plan_decision *decision);
