/* tetri.c - predicts classes of 200 tokens, as TetriInfer tells heavy decodes from light ones.
 *
 *     class = floor(length / 200), eleven of them, the last without an end
 *
 * TetriInfer (2401.11181) runs OPT-125M beside the prefill and found it right three times in four
 * with classes of 200 tokens. All outputs below 200 tokens are one class, as they are for a
 * scheduler of long decodes. The classifier is that of classes.h.
 */
#include "policies/predict/classes.h"
#include "policies/predict/predict.h"

static void init(void *state)
{
    static const double edge[] = { 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000 };
    class_init(state, edge, sizeof edge / sizeof edge[0]);
}

const struct predict_policy predict_tetri = {
    .name = "tetri",
    .about = "classes of 200 tokens",
    .source = "TetriInfer (2401.11181), on hashed words instead of OPT",
    CLASS_POLICY(init),
    .observe = class_observe,
};
