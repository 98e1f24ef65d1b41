/* preempt.c - the table of preemption policies. */
#include "policies/preempt/preempt.h"

#include "base/core/bits.h"

const struct preempt_policy *const preempt_table[] = {
#define POLICY(name) &preempt_##name,
#include "policies/preempt/preempt.def"
#undef POLICY
};
const uint32_t preempt_count = COUNT_OF(preempt_table);

const struct preempt_policy *preempt_find(struct str name)
{
    for (uint32_t i = 0; i < preempt_count; i++) {
        if (str_eq(str_from(preempt_table[i]->name), name)) return preempt_table[i];
    }
    return NULL;
}

enum preempt_how preempt_cheaper(const struct preempt_view *view)
{
    return view->can_swap && view->swap_s <= view->recompute_s ? PREEMPT_SWAP : PREEMPT_RECOMPUTE;
}
