/* self_report.c - asks the model itself for the length of its output.
 *
 *     log length = a + b log(reported number)
 *
 * Response Length Perception (Zheng 2023) asks before it serves. This costs, for every request, the
 * prompt and QUESTION_TOKENS more to read and REPORT_TOKENS to write, and the verdict counts them.
 * The paper tunes the model by LoRA to estimate well; ours is asked as it is, and a regression
 * fitted online (lengths.h) corrects its number. A report without a number counts as none.
 */
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

#define QUESTION_TOKENS 24
#define REPORT_TOKENS 8

static void init(void *state)
{
    length_line_init(state);
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct length_line *l = state;
    length_band_verdict(&l->band, length_line_at(l, f->reported_tokens), f->output_max, ret);
    ret->samples = f->reported_tokens ? l->n : l->none_n;
    ret->extra_prompt_tokens = f->prompt_tokens + QUESTION_TOKENS;
    ret->extra_output_tokens = REPORT_TOKENS;
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    length_line_observe(state, f->reported_tokens, tokens, censored);
}

static void merge(void *state, const void *other)
{
    length_line_merge(state, other);
}

const struct predict_policy predict_self_report = {
    .name = "self_report",
    .about = "asks the model for a number first, and pays for the tokens",
    .source = "Response Length Perception (2305.13144), without its tuning",
    .needs = PREDICT_REPORTED,
    .state_size = sizeof(struct length_line),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
};
