/* chunk.c - the table of chunk policies, and the two that look at the token budget alone. */
#include "policies/chunk/chunk.h"

#include "base/core/bits.h"

const struct chunk_policy *const chunk_table[] = {
#define POLICY(name) &chunk_##name,
#include "policies/chunk/chunk.def"
#undef POLICY
};
const uint32_t chunk_count = COUNT_OF(chunk_table);

const struct chunk_policy *chunk_find(struct str name)
{
    for (uint32_t i = 0; i < chunk_count; i++) {
        if (str_eq(str_from(chunk_table[i]->name), name)) return chunk_table[i];
    }
    return NULL;
}

/* Fills the step's token budget exactly (Dynamic SplitFuse; vLLM's default).
 *
 * Long prompts are split and short ones packed until the step carries --max-num-batched-tokens. */
static uint32_t decide_budget(const struct chunk_view *view)
{
    return min_u32(view->tokens_left, view->budget_left);
}

const struct chunk_policy chunk_budget = {
    .name = "budget",
    .about = "fill the token budget of the step",
    .source = "DeepSpeed-FastGen (Dynamic SplitFuse)",
    .decide = decide_budget,
};

/* Puts each prompt whole into one step.
 *
 *     fits the budget that is left -> all of it;  else, if the step holds no prompt yet, as much
 *     as fits (it is longer than any step);  else it waits for the next step
 *
 * Engines served so before chunked prefill: decoding sessions wait for the longest prompt that
 * comes. The token budget (--max-num-batched-tokens) should hold the longest prompt plus the
 * batch. */
static uint32_t decide_whole(const struct chunk_view *view)
{
    if (view->tokens_left <= view->budget_left) return view->tokens_left;
    return view->planned.prefill_tokens == 0 ? view->budget_left : 0;
}

const struct chunk_policy chunk_whole = {
    .name = "whole",
    .about = "prompts are not split",
    .source = "serving before Sarathi-Serve and SplitFuse",
    .decide = decide_whole,
};
