/* ssjf_ordinal.c - predicts the index of a class by regression, as SSJF's ordinal form does.
 *
 *     index = sum of weights / sqrt(n),  squared error against 0 .. 4
 *     estimate = the histograms of the two nearest classes, mixed by their distance
 *
 * Classes are those of ssjf_classes. To mistake a class for its neighbour costs less than for a
 * distant one, which cross entropy ignores. The paper's proxy is BERT-base; ours is linear over
 * hashed words (text.h).
 */
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"
#include "policies/predict/text.h"

#include <math.h>

#define CLASSES 5u
#define SLOTS 32768u
#define RATE 0.15
#define STEP_MAX 4.0 /* of the gradient, in classes: the largest distance of two */

static const double edges[CLASSES - 1] = { 42, 141, 294, 503 };

struct ordinal {
    float weight[SLOTS * 2];
    double finished, centre; /* centre: the running mean of indices, the intercept */
    struct length_offset p90;
    struct length_hist all, hist[CLASSES];
};

static uint32_t class_of(double tokens)
{
    uint32_t c = 0;
    while (c + 1 < CLASSES && tokens >= edges[c])
        c++;
    return c;
}

static double index_of(const struct ordinal *m, const struct text_features *t)
{
    double index = m->centre + linear_dot(m->weight, 2, SLOTS - 1, t);
    return fmax(0, fmin(CLASSES - 1.0, index));
}

static void add(const struct length_hist *h, const struct length_estimate *all, double part,
                struct length_estimate *ret)
{
    bool empty = h->count < 1;
    ret->mean += part * (empty ? all->mean : (double)h->mean);
    for (uint32_t b = 0; b < LENGTH_BINS; b++)
        ret->bin[b] += part * (empty ? all->bin[b] : (double)(h->bin[b] / h->count));
}

static void estimate(const struct ordinal *m, double index, struct length_estimate *ret)
{
    struct length_estimate all;
    length_prior(&all);
    length_shrink(&all, &m->all);
    *ret = (struct length_estimate){ .samples = m->finished };
    uint32_t low = (uint32_t)index, high = low + 1 < CLASSES ? low + 1 : low;
    double part = index - low;
    add(&m->hist[low], &all, 1 - part, ret);
    add(&m->hist[high], &all, part, ret);
}

static void init(void *state)
{
    struct ordinal *m = state;
    memset(m, 0, sizeof *m);
    m->centre = (CLASSES - 1) / 2.0;
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct ordinal *m = state;
    struct text_features t;
    struct length_estimate e;
    text_features(f, &t);
    estimate(m, index_of(m, &t), &e);
    length_verdict(&e, &m->p90, f->output_max, ret);
}

static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    const struct ordinal *m = state;
    struct text_features t;
    struct length_estimate e;
    text_features(f, &t);
    estimate(m, index_of(m, &t), &e);
    return length_left(&e, f->output_max, generated);
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct ordinal *m = state;
    struct text_features t;
    struct length_estimate e;
    struct predict_verdict said;
    text_features(f, &t);
    double index = index_of(m, &t);
    estimate(m, index, &e);
    length_verdict(&e, &m->p90, UINT32_MAX, &said);
    length_offset_observe(&m->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return;
    uint32_t right = class_of(length);
    m->finished++;
    m->centre += (right - m->centre) / fmin(m->finished, 512);
    length_learn(&m->all, length);
    length_learn(&m->hist[right], length);
    double gradient = fmax(-STEP_MAX, fmin(STEP_MAX, index - right));
    linear_step(m->weight, 2, SLOTS - 1, &t, gradient, RATE);
}

static void merge(void *state, const void *from)
{
    struct ordinal *m = state;
    const struct ordinal *o = from;
    double all = m->finished + o->finished;
    if (o->finished == 0) return;
    linear_merge(m->weight, o->weight, SLOTS);
    m->centre += (o->finished / all) * (o->centre - m->centre);
    length_offset_merge(&m->p90, &o->p90);
    length_merge(&m->all, &o->all);
    for (uint32_t c = 0; c < CLASSES; c++)
        length_merge(&m->hist[c], &o->hist[c]);
    m->finished = all;
}

const struct predict_policy predict_ssjf_ordinal = {
    .name = "ssjf_ordinal",
    .about = "five classes learned as a number from 0 to 4",
    .source = "SSJF (2404.08509), on hashed words instead of BERT",
    .needs = PREDICT_TEXT,
    .state_size = sizeof(struct ordinal),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
    .remaining = remaining,
};
