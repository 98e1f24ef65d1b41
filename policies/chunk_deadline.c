/* chunk_deadline.c - as much prompt as lets every decoding session keep its mean time per token.
 *
 *     limit = max(step_s_max, least slack >= 0 of the decoding sessions, 2 * step_s(decodes alone))
 *     slack = first token + step_s_max * tokens since - now
 *     n     = (limit - step_s(planned)) / (b + e * computed-so-far)
 *
 * A limit on every single step (chunk_slack) pays the fixed cost of a step, and the reading of all
 * cached tokens, once for a small chunk: under load sessions pile up, read more, leave less room
 * for prompts, and the engine stays slow long after the burst. But what is promised is a mean: a
 * session that was served faster than promised has time in hand, and a long step spends it. So
 * chunks are as large as the budget in ordinary times and shrink when somebody's promise is at
 * stake. Sessions that are late already hold nobody up: small steps would not mend their mean, and
 * would make the rest late. For the same reason prompts get at least half of a step's seconds.
 *
 * Time in hand as in LayerKV's admission of prefills (arXiv 2410.00428); chunks by it are our own.
 */
#include "base/core/bits.h"
#include "policies/chunk.h"

#include <math.h>

#define TOKENS_MIN 64 /* below it a long prompt would pay the fixed cost of a step too often */
#define DECODE_PART_MAX 0.5 /* of a step's seconds, while prompts are there to be computed */

extern const struct chunk_policy chunk_deadline;

static uint32_t decide(const struct chunk_view *view)
{
    uint32_t most = min_u32(view->tokens_left, view->budget_left);
    if (view->planned.decoding_seqs == 0 || view->step_s_max <= 0) return most;

    double base_s = perf_step_s(&view->perf, &view->planned);
    /* Of the decodes alone: with the chunks that are planned already every prompt would double the
     * step again. */
    const struct perf_shape decodes = { .decoding_seqs = view->planned.decoding_seqs,
                                        .kv_tokens_read = view->planned.kv_tokens_decoding,
                                        .kv_tokens_decoding = view->planned.kv_tokens_decoding };
    double decode_s = perf_step_s(&view->perf, &decodes);
    double limit_s = fmax(fmax(view->step_s_max, view->slack_s), decode_s / DECODE_PART_MAX);
    double token_s = view->perf.b + view->perf.e * (double)view->computed;
    double left_s = limit_s - base_s;
    uint32_t least = view->planned.prefill_tokens > 0 ? 0 : min_u32(TOKENS_MIN, most);
    if (left_s <= 0) return least;
    double fits = token_s > 0 ? left_s / token_s : (double)most;
    if (fits >= (double)most) return most;
    return max_u32(least, (uint32_t)fits);
}

const struct chunk_policy chunk_deadline = {
    .name = "deadline",
    .about = "as much prompt as lets decoding sessions keep --step-max on average",
    .source = "our own, after Sarathi-Serve (arXiv 2403.02310) and LayerKV (arXiv 2410.00428)",
    .needs_slack = true,
    .decide = decide,
};
