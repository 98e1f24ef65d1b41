/* skip.c - the policy `skip_predict`, which asks a cheap model first and a costly one where that is
 * unsure.
 *
 *     key table: P90 / P50 <= SURE, or P90 <= SHORT  ->  its estimate   (one bit: short or known)
 *     else                                           ->  the n-gram model's, marked costly
 *
 * SkipPredict (2402.03564) asks a one-bit class of every request and serves the short ones in order
 * of arrival; only long ones get the costly prediction. Here the bit is whether the table's
 * histogram is narrow, or short as a whole. Both models learn from every output, so the second is
 * ready when it is asked. Without text the second adds little.
 */
#include "policies/predict/key_table.h"
#include "policies/predict/ngram.h"
#include "policies/predict/predict.h"

#define SURE 1.6
#define SHORT 16.0 /* tokens: below, an error costs less than the second look */

struct skip {
    struct key_table cheap;
    struct ngram costly;
};

static void init(void *state)
{
    struct skip *s = state;
    predict_key_table.init(&s->cheap);
    predict_ngram.init(&s->costly);
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct skip *s = state;
    predict_key_table.decide(&s->cheap, f, ret);
    if (ret->p90 <= SURE * ret->p50 || ret->p90 <= SHORT) return;
    predict_ngram.decide(&s->costly, f, ret);
    ret->costly = true;
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct skip *s = state;
    predict_key_table.observe(&s->cheap, f, tokens, censored);
    predict_ngram.observe(&s->costly, f, tokens, censored);
}

static void merge(void *state, const void *other)
{
    struct skip *s = state;
    const struct skip *o = other;
    predict_key_table.merge(&s->cheap, &o->cheap);
    predict_ngram.merge(&s->costly, &o->costly);
}

const struct predict_policy predict_skip = {
    .name = "skip_predict",
    .about = "the key table first, the n-gram model where the table is unsure",
    .source = "SkipPredict (2402.03564)",
    .needs = PREDICT_TEXT,
    .state_size = sizeof(struct skip),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
};
