/* infermax.c - admits by the mean length of requests with a like prompt (InferMax, 2411.07447).
 *
 *     bucket  = floor(log2(prompt));  mean[bucket] of total tokens, prompt and output, when ended
 *     reserve = short prompt: nothing beyond it;  long: max(prompt, mean[bucket]) - prompt
 *     admit   : pages for prompt + reserve are available
 *
 * The growth of running sessions is left to preemption (least_computed is InferMax's rule for the
 * victim). A prompt is short if it is below the mean prompt of ended requests: the boundary in
 * InferMax's code is not documented. A bucket without history reserves for the prompt alone. */
#include "policies/admit/admit.h"

#define BUCKETS 32

struct histogram {
    double count[BUCKETS], total[BUCKETS];
    double prompts, prompt_sum;
};

static uint32_t bucket_of(uint32_t tokens)
{
    uint32_t bucket = 0;
    while (tokens >>= 1)
        bucket++;
    return bucket;
}

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return (uint64_t)view->pages_needed + view->pages_growth <= view->pages_available;
}

static uint32_t reserve(const void *state, const struct step_session *session)
{
    const struct histogram *h = state;
    uint32_t bucket = bucket_of(session->prompt_tokens);
    double prompt = (double)session->prompt_tokens;
    if (h->prompts <= 0 || prompt < h->prompt_sum / h->prompts) return 0;
    if (h->count[bucket] <= 0) return 0;
    double mean = h->total[bucket] / h->count[bucket];
    return mean > prompt ? (uint32_t)(mean - prompt) : 0;
}

static void observe(void *state, const struct step_event *event)
{
    if (event->kind != STEP_ENDED || !event->whole) return;
    struct histogram *h = state;
    uint32_t bucket = bucket_of(event->session->prompt_tokens);
    h->count[bucket]++;
    h->total[bucket] += (double)event->session->prompt_tokens + (double)event->output_tokens;
    h->prompts++;
    h->prompt_sum += (double)event->session->prompt_tokens;
}

const struct admit_policy admit_infermax = {
    .name = "infermax",
    .about = "admit by the mean total length in the prompt's power-of-two bucket",
    .source = "InferMax (arXiv 2411.07447)",
    .state_size = sizeof(struct histogram),
    .decide = decide,
    .reserve = reserve,
    .observe = observe,
};
