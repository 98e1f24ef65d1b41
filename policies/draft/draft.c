/* draft.c - the table of draft policies, and the one that never guesses. */
#include "policies/draft/draft.h"

#include "base/core/bits.h"

const struct draft_policy *const draft_table[] = {
#define POLICY(name) &draft_##name,
#include "policies/draft/draft.def"
#undef POLICY
};
const uint32_t draft_count = COUNT_OF(draft_table);

const struct draft_policy *draft_find(struct str name)
{
    for (uint32_t i = 0; i < draft_count; i++) {
        if (str_eq(str_from(draft_table[i]->name), name)) return draft_table[i];
    }
    return NULL;
}

/* Never guesses: a decoding sequence computes one token a step. */
const struct draft_policy draft_none = {
    .name = "none",
    .about = "no guesses, one token a step",
    .source = "the usual decoding",
};
