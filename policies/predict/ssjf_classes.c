/* ssjf_classes.c - predicts one of SSJF's five classes, at the percentiles of its data.
 *
 *     edges 42, 141, 294 and 503 tokens
 *
 * The paper's proxy is BERT-base under cross entropy; ours is the classifier of classes.h. mu_serve
 * has as many classes and moves their edges with the traffic; here the edges are fixed.
 */
#include "policies/predict/classes.h"
#include "policies/predict/predict.h"

static void init(void *state)
{
    static const double edge[] = { 42, 141, 294, 503 };
    class_init(state, edge, sizeof edge / sizeof edge[0]);
}

const struct predict_policy predict_ssjf_classes = {
    .name = "ssjf_classes",
    .about = "five classes with edges at 42, 141, 294 and 503 tokens",
    .source = "SSJF (2404.08509), on hashed words instead of BERT",
    CLASS_POLICY,
    .observe = class_observe,
};
