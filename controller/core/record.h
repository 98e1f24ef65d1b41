/* record.h - encodes decisions as they are kept and shown, and the state of policies as it is stored.
 *
 * Layer: controller/core
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/json.h"
#include "controller/core/plan.h"

/* Appends one JSON object for one service's decision. `launched` (may be NULL) holds the ids given to
 * the plan's launches, parallel to plan->action. `at_us` is the date. */
int record_encode(const struct plan_view *view, const struct plan *plan,
                  const struct plan_decision *decision, const char (*launched)[INTENT_ID_BYTES],
                  int64_t at_us, struct buf *out);

/* Writes a service's demand as members of the open object, alike wherever it is shown. */
void record_put_demand(struct json_writer *w, const struct scale_demand *d);

/* Writes the phases that are known of a lead as the member `lead`; nothing where none is. */
void record_put_lead(struct json_writer *w, const struct lead *l);

/* Writes a distribution as a member of the open object, in a few numbers, as its bins would be most of
 * a record; null when there is none. */
void record_put_lengths(struct json_writer *w, const char *name, const struct lengths *l);

/* Returns true if the decision is worth keeping: it acts, or something new held it back. `last` has the
 * reason and the hindrance kept before for this service (NULL members at first), and is updated when
 * the result is true. */
struct record_last {
    const char *reason, *blocked;
};
bool record_is_news(struct record_last *last, const struct plan_decision *decision);

/* The stored form of a service's policy state.
 *
 * Threads: pure
 * Format:  "muster policy memory 1\n", a line that says what it is of (policies, sizes of their states,
 *          pools), the digest of that line and of the bytes as 16 hexadecimal digits and "\n",
 *          the bytes
 * Version: POLICY_MEMORY_VERSION rises when a state's members change their meaning;
 *          t_plan knows the sizes that belong to it. Records older than format 1 (of the
 *          release "0.1.0": a line that begins so and the same bytes, no digest) are read too
 */

#define POLICY_MEMORY_VERSION 1

enum policy_memory_kind {
    POLICY_MEMORY_GOOD,
    POLICY_MEMORY_OTHER,   /* of other policies, pools or version: useless, but no fault */
    POLICY_MEMORY_DAMAGED, /* of our format, but not as it was written */
};

/* Appends the record. */
int policy_memory_encode(const struct plan_service *s, const struct plan_memory *memory,
                         struct buf *out);

/* Reads a record. *ret is written only when it is good. */
enum policy_memory_kind policy_memory_decode(const struct plan_service *s, struct str record,
                                             struct plan_memory *ret);
