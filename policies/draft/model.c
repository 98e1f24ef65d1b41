/* model.c - passes on what a draft model guessed: a small model with the vocabulary of the large one.
 *
 * The caller runs the draft model, greedily, before the step, and asks draft_ask how far. A guess rests on
 * its place: the first token of it has a match of 1, the second of 2, so that the rates of length.c are
 * those of places in a guess.
 *
 * Source: speculative decoding (arXiv 2211.17192). Its draft samples, and its verifier rejects by the ratio of
 * two probabilities; here a token of the output is a function of its position and seed, so that the guess
 * is the draft model's likeliest token, and outputs are equal with and without it, not only alike. */
#include "base/core/bits.h"
#include "policies/draft/draft.h"

static uint32_t propose(void *state, const struct draft_view *view, uint32_t *ret_ids,
                        uint32_t *ret_match)
{
    (void)state;
    uint32_t count = min_u32(view->given_count, view->max);
    for (uint32_t i = 0; i < count; i++)
        ret_ids[i] = view->given[i];
    *ret_match = 1;
    return count;
}

const struct draft_policy draft_model = {
    .name = "model",
    .about = "the likeliest tokens of a small model with the same vocabulary (--draft-model)",
    .source = "speculative decoding (arXiv 2211.17192)",
    .asks = true,
    .propose = propose,
};
