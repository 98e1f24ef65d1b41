/* ssjf_pairwise.c - learns which of two outputs is longer, as SSJF's pairwise form does.
 *
 *     L = log(1 + exp(-(s_long - s_short)))
 *
 * Each output is compared with the PAIRS that ended just before it. SSJF (2404.08509) computes the
 * two scores with BERT and found the form to gain little over regression; ours is linear over
 * hashed words.
 */
#include "policies/predict/predict.h"
#include "policies/predict/rank.h"

#include <math.h>

#define RATE 0.2
#define PAIRS 8

static void compare(struct rank_model *m, const struct rank_item *a, const struct rank_item *b)
{
    if (a->tokens == b->tokens) return;
    const struct rank_item *longer = a->tokens > b->tokens ? a : b, *shorter = longer == a ? b : a;
    double ahead = rank_score(m, &longer->features) - rank_score(m, &shorter->features);
    double pull = 1 / (1 + exp(ahead));
    linear_step(m->weight, 2, RANK_SLOTS - 1, &longer->features, -pull, RATE);
    linear_step(m->weight, 2, RANK_SLOTS - 1, &shorter->features, pull, RATE);
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct rank_model *m = state;
    struct text_features t;
    text_features(f, &t);
    if (!rank_observe(m, &t, tokens, censored)) return;
    uint32_t last = m->filled - 1;
    for (uint32_t i = 1; i <= PAIRS && i <= last; i++) {
        compare(m, &m->window[last % RANK_WINDOW], &m->window[(last - i) % RANK_WINDOW]);
    }
}

const struct predict_policy predict_ssjf_pairwise = {
    .name = "ssjf_pairwise",
    .about = "which of two outputs is longer, learned from neighbouring ends",
    .source = "SSJF (2404.08509), pairwise, on hashed words instead of BERT",
    .needs = PREDICT_TEXT,
    .state_size = sizeof(struct rank_model),
    .init = rank_init,
    .decide = rank_decide,
    .observe = observe,
    .merge = rank_merge,
};
