/* intelligent_router.c - predicts classes that double in length, for a router that mixes light and
 * heavy requests.
 *
 *     class ends: 16, 32, 64, ... 2048
 *
 * The Intelligent Router (2408.13510) classifies by DistilBERT into length buckets before it weighs
 * how a request mixes with those of an instance. Its buckets follow its own data; ours double, so
 * that one set serves short and long outputs. The classifier is that of classes.h.
 */
#include "policies/predict/classes.h"
#include "policies/predict/predict.h"

static void init(void *state)
{
    static const double edge[] = { 16, 32, 64, 128, 256, 512, 1024, 2048 };
    class_init(state, edge, sizeof edge / sizeof edge[0]);
}

const struct predict_policy predict_intelligent_router = {
    .name = "intelligent_router",
    .about = "classes that double, 16 to 2,048 tokens",
    .source = "Intelligent Router (2408.13510), on hashed words instead of DistilBERT",
    CLASS_POLICY(init),
    .observe = class_observe,
};
