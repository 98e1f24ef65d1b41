/* policy_memory.h - what the policies of a service remember, as it is stored.
 *
 * Layer:   controller/core (base/core, controller/core/plan.h)
 * Threads: pure
 * Format:  "muster policy memory 1\n", a line that says of what (rows, sizes of their states, pools),
 *          the digest of that line and of the bytes as 16 hexadecimal digits and "\n", the bytes
 * Version: POLICY_MEMORY_VERSION rises when a state's members change their meaning; t_policy_memory
 *          knows the sizes that belong to it. Records of before format 1 (the release "0.1.0", a
 *          line that begins so and the same bytes, no digest) are read too
 */
#pragma once
#include "base/core/buf.h"
#include "controller/core/plan.h"

#define POLICY_MEMORY_VERSION 1

enum policy_memory_kind {
    POLICY_MEMORY_GOOD,
    POLICY_MEMORY_OTHER,   /* of other rows or pools, or another version: of no use, and no fault */
    POLICY_MEMORY_DAMAGED, /* it says that it is ours, and is not what was written */
};

/* Appends the record. */
int policy_memory_encode(const struct plan_service *s, const struct plan_memory *memory,
                         struct buf *out);

/* *ret is written where it is good. */
enum policy_memory_kind policy_memory_decode(const struct plan_service *s, struct str record,
                                             struct plan_memory *ret);
