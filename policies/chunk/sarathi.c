/* sarathi.c - fills each step to 512 tokens, decodes included (Sarathi-Serve, OSDI 2024).
 *
 *     n = 512 - tokens planned already
 *
 * The fixed size is the default of the paper's code. Decodes go first, then begun prompts, then new
 * ones; this is the scheduler's order with every policy. */
#include "base/core/bits.h"
#include "policies/chunk/chunk.h"

#define STEP_TOKENS 512

static uint32_t decide(const struct chunk_view *view)
{
    uint32_t planned = view->planned.prefill_tokens + view->planned.decoding_seqs;
    uint32_t left = planned < STEP_TOKENS ? STEP_TOKENS - planned : 0;
    return min_u32(left, min_u32(view->tokens_left, view->budget_left));
}

const struct chunk_policy chunk_sarathi = {
    .name = "sarathi",
    .about = "steps of 512 tokens, decodes first",
    .source = "Sarathi-Serve (arXiv 2403.02310)",
    .decide = decide,
};
