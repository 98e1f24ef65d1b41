/* preset.h - a policy of each kind of the engine's step, under one name.
 *
 * Layer:   policies (base/core)
 * Threads: constant tables
 * Rules:   (1) what a preset leaves NULL is the kind's default policy
 *          (2) a policy that is named beside a preset goes before it
 */
#pragma once
#include "policies/admit/admit.h"
#include "policies/chunk/chunk.h"
#include "policies/evict/evict.h"
#include "policies/fair/fair.h"
#include "policies/order/order.h"
#include "policies/preempt/preempt.h"

struct preset {
    const char *name;
    const char *about;
    const char *source;
    const char *fair, *order, *admit, *preempt, *chunk, *evict;
    double swap_ratio; /* host pages per device page, where no other number is given */
};

extern const struct preset *const preset_table[];
extern const uint32_t preset_count;
#define PRESET_DEFAULT "muster"

const struct preset *preset_find(struct str name); /* NULL when there is none */

struct step_policies {
    const struct fair_policy *fair;
    const struct order_policy *order;
    const struct admit_policy *admit;
    const struct preempt_policy *preempt;
    const struct chunk_policy *chunk;
    const struct evict_policy *evict;
};

/* The policies that a preset names, where *policies has none yet; NULL: the default policies. */
void preset_fill(const struct preset *preset, struct step_policies *policies);
