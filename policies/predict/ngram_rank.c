/* ngram_rank.c - learns a score that orders requests by length, by ListMLE (learning to rank).
 *
 * A list holds RANK_WINDOW finished requests, longest first by (length / LABEL_TOKENS). The loss is
 * the negative logarithm of the probability that draws without replacement, in proportion to
 * exp(score), give this order:
 *
 *     L = - sum_i (s_i - log sum_{j >= i} exp s_j)
 *     dL/ds_k = exp(s_k) * sum_{i <= k} 1 / Z_i - 1,   Z_i = sum_{j >= i} exp s_j
 *
 * The paper trains OPT-125M on such lists, with labels in tens of tokens; ours is linear over
 * hashed words (text.h) and steps once for every full window. The lengths that go with scores are
 * learned beside it (rank.h).
 */
#include "policies/predict/predict.h"
#include "policies/predict/rank.h"

#include <math.h>

#define RATE 0.2
#define LABEL_TOKENS 10.0f
#define SCORE_MAX 30.0 /* sums of its exp stay finite */

/* Sorts the window's indices, longest first; equal labels in the order in which they ended. */
static void sort_longest(const struct rank_model *m, uint32_t ret[RANK_WINDOW])
{
    for (uint32_t i = 0; i < RANK_WINDOW; i++) {
        float label = floorf(m->window[i].tokens / LABEL_TOKENS);
        uint32_t at = i;
        while (at > 0 && floorf(m->window[ret[at - 1]].tokens / LABEL_TOKENS) < label) {
            ret[at] = ret[at - 1];
            at--;
        }
        ret[at] = i;
    }
}

static void learn(struct rank_model *m)
{
    uint32_t order[RANK_WINDOW];
    double e[RANK_WINDOW], z[RANK_WINDOW], rest = 0, inverse = 0;
    sort_longest(m, order);
    for (uint32_t i = RANK_WINDOW; i-- > 0;) {
        double s = rank_score(m, &m->window[order[i]].features);
        e[i] = exp(fmax(-SCORE_MAX, fmin(SCORE_MAX, s)));
        rest += e[i];
        z[i] = rest;
    }
    for (uint32_t k = 0; k < RANK_WINDOW; k++) {
        inverse += 1 / z[k];
        linear_step(m->weight, 2, RANK_SLOTS - 1, &m->window[order[k]].features, e[k] * inverse - 1,
                    RATE);
    }
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct rank_model *m = state;
    struct text_features t;
    text_features(f, &t);
    if (rank_observe(m, &t, tokens, censored) && m->filled % RANK_WINDOW == 0) learn(m);
}

const struct predict_policy predict_ngram_rank = {
    .name = "ngram_rank",
    .about = "ListMLE over windows of 32 finished requests: learns the order, not the length",
    .source = "Learning to Rank (2408.15792), on hashed words instead of OPT",
    .needs = PREDICT_TEXT,
    .state_size = sizeof(struct rank_model),
    .init = rank_init,
    .decide = rank_decide,
    .observe = observe,
    .merge = rank_merge,
};
