/* predict_trail.c - the model's own hidden state says which bin of lengths an answer will end in, and
 * decoding narrows it.
 *
 *     p(bin | h) = softmax(W norm(h)),  10 bins of 51.2 tokens, the last without an end
 *     p(bin | h, L > g) ~ p(bin | h) * P(L > g | bin)
 *
 * TRAIL (2410.01035) feeds layer 11's state to a small network at every token and smooths its bins by
 * Bayes' rule over bins that shift as tokens come. Ours pools the last layer at the prompt's end into
 * 32 numbers (the engine's signs), learns a logistic model of them on line, and shifts by what was
 * generated, from each bin's own histogram; `hidden` may be given anew while decoding. SyncIntellects'
 * progressive prediction has no published detail beyond this and is this row too.
 */
#include "policies/predict_lengths.h"
#include "policies/predict_rows.h"

#include <math.h>

#define BINS 10u
#define BIN_TOKENS 51.2
#define RATE 0.5
#define STEP_FLOOR 1e-3
#define INPUTS (PREDICT_HIDDEN_DIMS + 1) /* and the intercept */
#define STATS_MAX 1024.0

struct trail {
    double finished;
    double mean[PREDICT_HIDDEN_DIMS], var[PREDICT_HIDDEN_DIMS];
    double weight[BINS][INPUTS], squares[BINS][INPUTS];
    struct length_offset p90;
    struct length_hist all, hist[BINS];
};

/* Zeros, the running mean, stand for an absent state. */
static void normalise(const struct trail *m, const float *hidden, double ret[INPUTS])
{
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++) {
        double z = hidden ? ((double)hidden[d] - m->mean[d]) / sqrt(m->var[d] + 1e-9) : 0;
        ret[d] = fmax(-4, fmin(4, z)); /* one wild number must not decide */
    }
    ret[PREDICT_HIDDEN_DIMS] = 1;
}

static void probabilities(const struct trail *m, const double x[INPUTS], double ret[BINS])
{
    double most = -1e30, sum = 0;
    for (uint32_t b = 0; b < BINS; b++) {
        ret[b] = 0;
        for (uint32_t i = 0; i < INPUTS; i++)
            ret[b] += m->weight[b][i] * x[i];
        most = fmax(most, ret[b]);
    }
    for (uint32_t b = 0; b < BINS; b++)
        sum += ret[b] = exp(ret[b] - most);
    for (uint32_t b = 0; b < BINS; b++)
        ret[b] /= sum;
}

static void estimate(const struct trail *m, const double x[INPUTS], struct length_estimate *ret)
{
    double p[BINS];
    struct length_estimate all;
    probabilities(m, x, p);
    length_prior(&all);
    length_shrink(&all, &m->all);
    *ret = (struct length_estimate){ .samples = m->finished };
    for (uint32_t c = 0; c < BINS; c++) {
        const struct length_hist *h = &m->hist[c];
        bool empty = h->count < 1;
        ret->mean += p[c] * (empty ? all.mean : (double)h->mean);
        for (uint32_t b = 0; b < LENGTH_BINS; b++)
            ret->bin[b] += p[c] * (empty ? all.bin[b] : (double)(h->bin[b] / h->count));
    }
}

static void init(void *state)
{
    struct trail *m = state;
    memset(m, 0, sizeof *m);
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++)
        m->var[d] = 1;
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct trail *m = state;
    struct length_estimate e;
    double x[INPUTS];
    normalise(m, f->hidden, x);
    estimate(m, x, &e);
    length_verdict(&e, &m->p90, f->output_max, ret);
}

/* The histogram beyond `generated` is the Bayes step: a bin that is passed has no mass left. */
static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    const struct trail *m = state;
    struct length_estimate e;
    double x[INPUTS];
    normalise(m, f->hidden, x);
    estimate(m, x, &e);
    return length_left(&e, f->output_max, generated);
}

static void learn(struct trail *m, const double x[INPUTS], uint32_t right)
{
    double p[BINS];
    probabilities(m, x, p);
    for (uint32_t b = 0; b < BINS; b++) {
        double error = p[b] - (b == right ? 1 : 0);
        for (uint32_t i = 0; i < INPUTS; i++) {
            double g = error * x[i];
            m->squares[b][i] += g * g;
            m->weight[b][i] -= RATE * g / sqrt(m->squares[b][i] + STEP_FLOOR) / sqrt(INPUTS);
        }
    }
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct trail *m = state;
    struct length_estimate e;
    struct predict_verdict said;
    double x[INPUTS];
    normalise(m, f->hidden, x);
    estimate(m, x, &e);
    length_verdict(&e, &m->p90, UINT32_MAX, &said);
    length_offset_observe(&m->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return;
    double bin = length / BIN_TOKENS;
    uint32_t right = bin < BINS ? (uint32_t)bin : BINS - 1;
    m->finished++;
    length_learn(&m->all, length);
    length_learn(&m->hist[right], length);
    learn(m, x, right);
    double step = 1 / fmin(m->finished, STATS_MAX);
    for (uint32_t d = 0; f->hidden && d < PREDICT_HIDDEN_DIMS; d++) {
        double away = (double)f->hidden[d] - m->mean[d];
        m->mean[d] += step * away;
        m->var[d] += step * (away * ((double)f->hidden[d] - m->mean[d]) - m->var[d]);
    }
}

static void merge(void *state, const void *other)
{
    struct trail *m = state;
    const struct trail *o = other;
    double all = m->finished + o->finished;
    if (o->finished == 0) return;
    double own = m->finished / all, theirs = o->finished / all;
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++) {
        m->mean[d] = own * m->mean[d] + theirs * o->mean[d];
        m->var[d] = own * m->var[d] + theirs * o->var[d];
    }
    for (uint32_t b = 0; b < BINS; b++) {
        for (uint32_t i = 0; i < INPUTS; i++) {
            m->weight[b][i] = own * m->weight[b][i] + theirs * o->weight[b][i];
            m->squares[b][i] += o->squares[b][i];
        }
        length_merge(&m->hist[b], &o->hist[b]);
    }
    m->finished = all;
    length_merge(&m->all, &o->all);
    length_offset_merge(&m->p90, &o->p90);
}

const struct predict_policy predict_trail = {
    .name = "trail",
    .about = "bins from the model's pooled hidden state, narrowed while decoding; in the engine",
    .source = "TRAIL (2410.01035); SyncIntellects",
    .needs = PREDICT_HIDDEN,
    .state_size = sizeof(struct trail),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
    .remaining = remaining,
};
