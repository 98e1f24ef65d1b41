/* ssjf_classes.c - predicts one of SSJF's five classes, at the percentiles of its data, or one of two (ssjf_binary).
 *
 *     edges 42, 141, 294 and 503 tokens
 *
 * The paper's proxy is BERT-base under cross entropy; ours is the classifier of classes.h. mu_serve
 * has as many classes and moves their edges with the traffic; here the edges are fixed.
 */
#include "policies/predict/classes.h"
#include "policies/predict/predict.h"

static void init_five(void *state)
{
    static const double edge[] = { 42, 141, 294, 503 };
    class_init(state, edge, sizeof edge / sizeof edge[0]);
}

const struct predict_policy predict_ssjf_classes = {
    .name = "ssjf_classes",
    .about = "five classes with edges at 42, 141, 294 and 503 tokens",
    .source = "SSJF (2404.08509), on hashed words instead of BERT",
    CLASS_POLICY(init_five),
    .observe = class_observe,
};

/* Predicts short or long, as SSJF's first classifier does.
 *
 *     long: at least 141 tokens, the median of the paper's data
 *
 * The paper's proxy is BERT-base; ours is the classifier of classes.h. Two classes order requests
 * by the probability of the long one. */
static void init_two(void *state)
{
    static const double edge[] = { 141 };
    class_init(state, edge, sizeof edge / sizeof edge[0]);
}

const struct predict_policy predict_ssjf_binary = {
    .name = "ssjf_binary",
    .about = "two classes, short and long, that part at 141 tokens",
    .source = "SSJF (2404.08509), on hashed words instead of BERT",
    CLASS_POLICY(init_two),
    .observe = class_observe,
};
