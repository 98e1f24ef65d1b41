/* ssjf_binary.c - predicts short or long, as SSJF's first classifier does.
 *
 *     long: at least 141 tokens, the median of the paper's data
 *
 * The paper's proxy is BERT-base; ours is the classifier of classes.h. Two classes order requests
 * by the probability of the long one.
 */
#include "policies/predict/classes.h"
#include "policies/predict/predict.h"

static void init(void *state)
{
    static const double edge[] = { 141 };
    class_init(state, edge, sizeof edge / sizeof edge[0]);
}

const struct predict_policy predict_ssjf_binary = {
    .name = "ssjf_binary",
    .about = "two classes, short and long, that part at 141 tokens",
    .source = "SSJF (2404.08509), on hashed words instead of BERT",
    CLASS_POLICY,
    .observe = class_observe,
};
