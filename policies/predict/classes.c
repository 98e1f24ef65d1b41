/* classes.c - the classifier: softmax over hashed words, and the mixture of the classes'
 * histograms. */
#include "policies/predict/classes.h"

#include <math.h>

#define RATE 0.4

void class_init(struct class_model *m, const double *edges, uint32_t edge_count)
{
    memset(m, 0, sizeof *m);
    m->count = edge_count + 1;
    memcpy(m->edge, edges, edge_count * sizeof *edges);
}

static uint32_t class_of(const struct class_model *m, double tokens)
{
    uint32_t c = 0;
    while (c + 1 < m->count && tokens >= m->edge[c])
        c++;
    return c;
}

static void probabilities(const struct class_model *m, const struct text_features *t,
                          double ret[CLASSES_MAX])
{
    double most = -1e30, sum = 0, score[CLASSES_MAX] = { 0 };
    for (uint32_t i = 0; i < t->count; i++) {
        const float *slot = m->weight + (size_t)(t->at[i] & (CLASS_SLOTS - 1)) * CLASS_STRIDE;
        for (uint32_t c = 0; c < m->count; c++)
            score[c] += (double)slot[2 * c];
    }
    for (uint32_t c = 0; c < m->count; c++) {
        score[c] /= sqrt((double)t->count);
        most = fmax(most, score[c]);
    }
    for (uint32_t c = 0; c < m->count; c++)
        sum += ret[c] = exp(score[c] - most);
    for (uint32_t c = 0; c < m->count; c++)
        ret[c] /= sum;
}

/* Mixes the classes' histograms. An empty class uses the histogram of all lengths. */
static void estimate(const struct class_model *m, const double p[CLASSES_MAX],
                     struct length_estimate *ret)
{
    struct length_estimate all;
    length_prior(&all);
    length_shrink(&all, &m->all);
    *ret = (struct length_estimate){ .samples = m->finished };
    for (uint32_t c = 0; c < m->count; c++) {
        const struct length_hist *h = &m->hist[c];
        bool empty = h->count < 1;
        ret->mean += p[c] * (empty ? all.mean : (double)h->mean);
        for (uint32_t b = 0; b < LENGTH_BINS; b++)
            ret->bin[b] += p[c] * (empty ? all.bin[b] : (double)(h->bin[b] / h->count));
    }
}

static void predict_length(const struct class_model *m, const struct predict_features *f,
                           struct length_estimate *ret)
{
    struct text_features t;
    double p[CLASSES_MAX];
    text_features(f, &t);
    probabilities(m, &t, p);
    estimate(m, p, ret);
}

void class_decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct class_model *m = state;
    struct length_estimate e;
    predict_length(m, f, &e);
    length_verdict(&e, &m->p90, f->output_max, ret);
}

double class_remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    struct length_estimate e;
    predict_length(state, f, &e);
    return length_left(&e, f->output_max, generated);
}

void class_observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct class_model *m = state;
    struct text_features t;
    struct length_estimate e;
    struct predict_verdict said;
    double p[CLASSES_MAX];
    text_features(f, &t);
    probabilities(m, &t, p);
    estimate(m, p, &e);
    length_verdict(&e, &m->p90, UINT32_MAX, &said);
    length_offset_observe(&m->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return;
    uint32_t right = class_of(m, length);
    m->finished++;
    length_learn(&m->all, length);
    length_learn(&m->hist[right], length);
    for (uint32_t c = 0; c < m->count; c++) {
        linear_step(m->weight + 2 * c, CLASS_STRIDE, CLASS_SLOTS - 1, &t,
                    p[c] - (c == right ? 1 : 0), RATE);
    }
}

void class_merge(void *state, const void *other)
{
    struct class_model *m = state;
    const struct class_model *o = other;
    double all = m->finished + o->finished;
    if (o->finished == 0) return;
    linear_merge(m->weight, o->weight, CLASS_SLOTS * CLASSES_MAX);
    length_offset_merge(&m->p90, &o->p90);
    length_merge(&m->all, &o->all);
    for (uint32_t c = 0; c < m->count; c++) {
        m->edge[c] = (m->edge[c] * m->finished + o->edge[c] * o->finished) / all;
        length_merge(&m->hist[c], &o->hist[c]);
    }
    m->finished = all;
}
