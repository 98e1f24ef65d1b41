/* preset.h - names one policy for each stage of the engine's step.
 *
 * Layer:   policies (base/core)
 * Threads: constant tables
 * Rules:   (1) what a preset leaves NULL is the kind's default policy
 *          (2) a policy named beside a preset overrides the preset's
 */
#pragma once
#include "policies/admit/admit.h"
#include "policies/chunk/chunk.h"
#include "policies/draft/draft.h"
#include "policies/evict/evict.h"
#include "policies/fair/fair.h"
#include "policies/order/order.h"
#include "policies/preempt/preempt.h"

struct preset {
    const char *name;
    const char *about;
    const char *source;
    const char *fair, *order, *admit, *preempt, *chunk, *evict;
    double swap_ratio; /* host pages per device page, where no swap space is configured */
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
    const struct draft_policy *draft; /* no preset names one */
};

/* Fills each policy that is NULL in *policies with the preset's, or with the default policy of its
 * kind where `preset` is NULL or names none. */
void preset_fill(const struct preset *preset, struct step_policies *policies);
