/* scls.c - cuts outputs into slices of 128 tokens, after each of which a session returns to the
 * queue (slice-level scheduling, SCLS, arXiv 2406.13511).
 *
 * A slice bounds the time and the pages that an admission can cost, whatever the length of the
 * output. With admit scls the batches are the paper's: closed, and formed from all waiting
 * sessions. With an admission that refills places only the return to the queue remains, as a
 * quantum of fairness (pages stay while there is room). Prompts fill the token budget. */
#include "base/core/bits.h"
#include "policies/chunk/chunk.h"

static uint32_t decide(const struct chunk_view *view)
{
    return min_u32(view->tokens_left, view->budget_left);
}

const struct chunk_policy chunk_scls = {
    .name = "scls",
    .about = "fill the token budget; after 128 output tokens back to the queue",
    .source = "SCLS (arXiv 2406.13511)",
    .slice_tokens = 128,
    .decide = decide,
};
