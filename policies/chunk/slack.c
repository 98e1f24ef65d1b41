/* slack.c - puts as much prompt into a step as keeps it within its time limit.
 *
 *     n = (step_s_max / ratio_p90 - step_s(planned)) / (prefill_token_s + attend_s * computed)
 *
 * A token budget only estimates seconds; with the fitted model the seconds themselves are the
 * budget, and the same flag suits a share of a core and a large accelerator. The limit protects
 * sessions that decode: without one in the step the whole budget is used. The limit is to hold for
 * nine steps in ten, so it is divided by the model's P90 error. */
#include "base/core/bits.h"
#include "policies/chunk/chunk.h"

#include <math.h>

#define MISS_MAX 2.0  /* a model with a larger error says nothing about limits */
#define TOKENS_MIN 16 /* below it a long prompt would pay the fixed cost of a step too often */

static uint32_t decide(const struct chunk_view *view)
{
    uint32_t most = min_u32(view->tokens_left, view->budget_left);
    if (view->planned.decoding_seqs == 0 || view->step_s_max <= 0) return most;

    /* Each token of a chunk reads all tokens before the chunk, as the shape counts it. */
    double token_s = view->perf.prefill_token_s + view->perf.attend_s * (double)view->computed;
    double miss = fmax(1, fmin(view->perf.ratio_p90, MISS_MAX));
    double slack_s = view->step_s_max / miss - perf_step_s(&view->perf, &view->planned);
    /* Once a step: given to each of many prompts, it would break the limit in sum. */
    uint32_t least = view->planned.prefill_tokens > 0 ? 0 : min_u32(TOKENS_MIN, most);
    if (!(slack_s > 0)) return least;
    double fits = slack_s / token_s;
    if (!(fits < (double)most)) return most; /* also where token_s is 0 */
    return max_u32(least, (uint32_t)fits);
}

const struct chunk_policy chunk_slack = {
    .name = "slack",
    .about = "as much prompt as keeps the predicted step within --step-max",
    .source = "our own, after Sarathi-Serve (arXiv 2403.02310)",
    .decide = decide,
};
