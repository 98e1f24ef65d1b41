/* ngram.c - continues the sequence as it went on after the latest occurrence of its last tokens.
 *
 * It looks for the last three tokens in the sequence itself, then for the last two, then for the last
 * one, and copies what followed. Texts that repeat their prompt (summaries, edits of code, retrieved
 * passages) are guessed well; it keeps nothing between steps.
 *
 * Source: prompt lookup decoding (github.com/apoorvumang/prompt-lookup-decoding), which takes the first
 * occurrence; ours takes the latest, because a text repeats what it said last more often. A match in a
 * run that is being repeated may lie so late that fewer tokens follow it than are wanted: the copy then
 * goes on with the tokens that it guessed. */
#include "base/core/bits.h"
#include "policies/draft/draft.h"

#define NGRAM_MAX 3

/* Returns how many tokens before `at` and before the end agree, at most NGRAM_MAX. */
static uint32_t agreeing(const struct draft_view *view, uint32_t at)
{
    uint32_t most = min_u32(NGRAM_MAX, at), n = 0;
    while (n < most && view->ids[at - 1 - n] == view->ids[view->count - 1 - n])
        n++;
    return n;
}

static uint32_t propose(void *state, const struct draft_view *view, uint32_t *ret_ids,
                        uint32_t *ret_match)
{
    (void)state;
    uint32_t first = view->count > DRAFT_WINDOW ? view->count - DRAFT_WINDOW : 0;
    uint32_t best = 0, from = 0;
    for (uint32_t at = view->count - 1; at > first && best < NGRAM_MAX; at--) {
        uint32_t n = agreeing(view, at);
        if (n <= best) continue;
        best = n;
        from = at;
    }
    if (best == 0) return 0;
    for (uint32_t i = 0; i < view->max; i++)
        ret_ids[i] = from + i < view->count ? view->ids[from + i] : ret_ids[from + i - view->count];
    *ret_match = best;
    return view->max;
}

const struct draft_policy draft_ngram = {
    .name = "ngram",
    .about = "what followed the latest occurrence of the last three, two or one tokens",
    .source = "prompt lookup decoding (2023)",
    .propose = propose,
};
