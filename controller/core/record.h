/* record.h - a decision as it is kept and shown, and the stored form of policies' state.
 *
 * Layer: controller/core
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/json.h"
#include "controller/core/plan.h"

/* One JSON object for one service's decision; `launched` (may be NULL) holds the ids given to the
 * plan's launches, parallel to plan->action. `at_us` is the wall clock. */
int record_encode(const struct plan_view *view, const struct plan *plan,
                  const struct plan_decision *decision, const char (*launched)[INTENT_ID_BYTES],
                  int64_t at_us, struct buf *out);

/* Members of the open object: what is asked of a service, everything that all who show it say. */
void record_put_demand(struct json_writer *w, const struct scale_demand *d);

/* A member of the open object: a distribution in a few numbers, as its bins would be most of a
 * record; null when there is none. */
void record_put_lengths(struct json_writer *w, const char *name, const struct lengths *l);

/* True when the decision is worth keeping: it acts, or what it says is new. `last` is the reason
 * and hindrance kept before for this service (NULL members at first), and is brought up to date
 * when the answer is true. */
struct record_last {
    const char *reason, *blocked;
};
bool record_is_news(struct record_last *last, const struct plan_decision *decision);

/* What the policies of a service remember, as it is stored.
 *
 * Threads: pure
 * Format:  "muster policy memory 1\n", a line that says of what (policies, sizes of their states,
 *          pools), the digest of that line and of the bytes as 16 hexadecimal digits and "\n",
 *          the bytes
 * Version: POLICY_MEMORY_VERSION rises when a state's members change their meaning;
 *          t_policy_memory knows the sizes that belong to it. Records of before format 1 (the
 *          release "0.1.0", a line that begins so and the same bytes, no digest) are read too
 */

#define POLICY_MEMORY_VERSION 1

enum policy_memory_kind {
    POLICY_MEMORY_GOOD,
    POLICY_MEMORY_OTHER, /* of other policies or pools, or another version: of no use, and no fault */
    POLICY_MEMORY_DAMAGED, /* it says that it is ours, and is not what was written */
};

/* Appends the record. */
int policy_memory_encode(const struct plan_service *s, const struct plan_memory *memory,
                         struct buf *out);

/* *ret is written where it is good. */
enum policy_memory_kind policy_memory_decode(const struct plan_service *s, struct str record,
                                             struct plan_memory *ret);
