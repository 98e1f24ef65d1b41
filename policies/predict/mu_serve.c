/* mu_serve.c - predicts classes with edges at the quintiles of the lengths seen.
 *
 *     edge_q *= exp(RATE * (q - [length < edge_q]))
 *
 * mu-Serve (ATC 2024) trains BERT on percentile classes of its data set. Ours follows the quintiles
 * online by stochastic steps, so that classes stay equally full when the traffic changes; the
 * classifier is that of classes.h.
 */
#include "policies/predict/classes.h"
#include "policies/predict/predict.h"

#include <math.h>

#define QUINTILES 4
#define RATE 0.05 /* of an edge's logarithm, an output */

static void init(void *state)
{
    static const double edge[QUINTILES] = { 32, 64, 128, 256 };
    class_init(state, edge, QUINTILES);
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct class_model *m = state;
    class_observe(m, f, tokens, censored);
    if (censored) return;
    double least = 1;
    for (uint32_t i = 0; i < QUINTILES; i++) {
        double q = (i + 1) / (double)(QUINTILES + 1), below = (double)tokens < m->edge[i];
        /* Edges stay in order and at least a token apart. */
        m->edge[i] = fmax(least + 1, m->edge[i] * exp(RATE * (q - below)));
        least = m->edge[i];
    }
}

const struct predict_policy predict_mu_serve = {
    .name = "mu_serve",
    .about = "five classes at the quintiles of the lengths seen",
    .source = "mu-Serve (ATC 2024), on hashed words instead of BERT",
    CLASS_POLICY(init),
    .observe = observe,
};
