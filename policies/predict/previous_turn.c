/* previous_turn.c - predicts from the length of the conversation's previous output.
 *
 *     log length = a + b log(previous output), fitted online; for a first turn their log-mean
 *
 * Mooncake's follow-ups are ordered better by this one number than by everything else in their
 * trace. The estimate is linear in the logarithm (lengths.h), so requests keep the order of their
 * previous outputs.
 */
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

static void init(void *state)
{
    length_line_init(state);
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct length_line *l = state;
    length_band_verdict(&l->band, length_line_at(l, f->previous_tokens), f->output_max, ret);
    ret->samples = f->previous_tokens ? l->n : l->none_n;
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    length_line_observe(state, f->previous_tokens, tokens, censored);
}

static void merge(void *state, const void *other)
{
    length_line_merge(state, other);
}

const struct predict_policy predict_previous_turn = {
    .name = "previous_turn",
    .about = "from the length of the conversation's output before",
    .source = "measured on Mooncake's follow-ups (kvcache-ai/Mooncake, FAST'25)",
    .needs = PREDICT_PREVIOUS,
    .state_size = sizeof(struct length_line),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
};
