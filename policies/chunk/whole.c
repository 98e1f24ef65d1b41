/* whole.c - puts each prompt whole into one step.
 *
 *     fits the budget that is left -> all of it;  else, if the step holds no prompt yet, as much
 *     as fits (it is longer than any step);  else it waits for the next step
 *
 * Engines served so before chunked prefill: decoding sessions wait for the longest prompt that
 * comes. The token budget (--max-num-batched-tokens) should hold the longest prompt plus the
 * batch. */
#include "policies/chunk/chunk.h"

static uint32_t decide(const struct chunk_view *view)
{
    if (view->tokens_left <= view->budget_left) return view->tokens_left;
    return view->planned.prefill_tokens == 0 ? view->budget_left : 0;
}

const struct chunk_policy chunk_whole = {
    .name = "whole",
    .about = "prompts are not split",
    .source = "serving before Sarathi-Serve and SplitFuse",
    .decide = decide,
};
