/* whole.c - a prompt goes into one step, whole.
 *
 *     fits the budget that is left -> all of it;  else, if the step holds no prompt yet, as much
 *     as fits (it is longer than any step);  else it waits for the next step
 *
 * Serving before chunked prefill: decoding sessions wait for the longest prompt that comes. Give a
 * budget (--max-num-batched-tokens) of the longest prompt and the batch. */
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
