/* budget.c - fills the step's token budget exactly (Dynamic SplitFuse; vLLM's default).
 *
 * Long prompts are split and short ones packed until the step carries --max-num-batched-tokens. */
#include "base/core/bits.h"
#include "policies/chunk/chunk.h"

static uint32_t decide(const struct chunk_view *view)
{
    return min_u32(view->tokens_left, view->budget_left);
}

const struct chunk_policy chunk_budget = {
    .name = "budget",
    .about = "fill the token budget of the step",
    .source = "DeepSpeed-FastGen (Dynamic SplitFuse)",
    .decide = decide,
};
