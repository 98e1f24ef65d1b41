/* trail.c - the model's own hidden state says which bin of lengths an answer will end in,
 * and decoding narrows it.
 *
 *     p(bin | h) = softmax(W2 relu(W1 norm(h))),  10 bins of 51.2 tokens, the last without an end
 *     p(bin | h, L > g) ~ p(bin | h) * P(L > g | bin)
 *
 * TRAIL (2410.01035) feeds layer 11's state to a small network at every token and smooths its bins
 * by Bayes' rule over bins that shift as tokens come. Ours takes the last layer's state once, at
 * the prompt's end, folded into 32 numbers, learns a network of 32 units on line (each end beside
 * seven drawn again from a reservoir), and shifts by what was generated, from each bin's own
 * histogram; a softmax without units was tried and was so unsure of its bins that Bayes' step made
 * things worse. SyncIntellects' progressive prediction has no published detail beyond this and is
 * this row too.
 */
#include "base/core/rng.h"
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

#include <math.h>

#define BINS 10u
#define BIN_TOKENS 51.2
#define UNITS 32u
#define INPUTS (PREDICT_HIDDEN_DIMS + 1) /* and the intercept */
#define RESERVOIR 512u
#define REPLAYS 7u /* ends learned again beside each new one */
#define RATE 0.05
#define STEP_FLOOR 1e-3  /* of an AdaGrad sum: the first step of a weight is bounded */
#define STATS_MAX 1024.0 /* ends that mean and deviation of the state remember */
#define SEED 0x747261696cULL

struct end {
    float hidden[PREDICT_HIDDEN_DIMS];
    uint32_t bin;
};

/* A weight and its sum of squared gradients (AdaGrad). */
struct weight {
    float w, squares;
};

struct trail {
    uint64_t finished;
    double mean[PREDICT_HIDDEN_DIMS], var[PREDICT_HIDDEN_DIMS];
    struct weight in[UNITS][INPUTS], out[BINS][UNITS + 1];
    struct end end[RESERVOIR];
    struct length_offset p90;
    struct length_hist all, hist[BINS];
};

struct pass {
    double x[INPUTS], unit[UNITS + 1], p[BINS];
};

/* NULL also for a state with a number that is none: learned once, its mean would be none for ever.
 * */
static const float *hidden_of(const struct predict_features *f)
{
    if (!f->hidden) return NULL;
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++) {
        if (!isfinite(f->hidden[d])) return NULL;
    }
    return f->hidden;
}

/* Zeros, the running mean, stand for an absent state. */
static void forward(const struct trail *m, const float *hidden, struct pass *ret)
{
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++) {
        double z = hidden ? ((double)hidden[d] - m->mean[d]) / sqrt(m->var[d] + 1e-9) : 0;
        ret->x[d] = fmax(-4, fmin(4, z)); /* one wild number must not decide */
    }
    ret->x[PREDICT_HIDDEN_DIMS] = 1;
    for (uint32_t u = 0; u < UNITS; u++) {
        double sum = 0;
        for (uint32_t i = 0; i < INPUTS; i++)
            sum += (double)m->in[u][i].w * ret->x[i];
        ret->unit[u] = fmax(0, sum);
    }
    ret->unit[UNITS] = 1;
    double most = -1e30, all = 0;
    for (uint32_t b = 0; b < BINS; b++) {
        ret->p[b] = 0;
        for (uint32_t u = 0; u <= UNITS; u++)
            ret->p[b] += (double)m->out[b][u].w * ret->unit[u];
        most = fmax(most, ret->p[b]);
    }
    for (uint32_t b = 0; b < BINS; b++)
        all += ret->p[b] = exp(ret->p[b] - most);
    for (uint32_t b = 0; b < BINS; b++)
        ret->p[b] /= all;
}

static void step(struct weight *w, double gradient)
{
    w->squares += (float)(gradient * gradient);
    w->w -= (float)(RATE * gradient / sqrt((double)w->squares + STEP_FLOOR));
}

static void backward(struct trail *m, const struct pass *f, uint32_t right)
{
    double back[UNITS] = { 0 };
    for (uint32_t b = 0; b < BINS; b++) {
        double error = f->p[b] - (b == right ? 1 : 0);
        for (uint32_t u = 0; u <= UNITS; u++) {
            if (u < UNITS) back[u] += error * (double)m->out[b][u].w;
            step(&m->out[b][u], error * f->unit[u]);
        }
    }
    for (uint32_t u = 0; u < UNITS; u++) {
        if (f->unit[u] <= 0) continue;
        for (uint32_t i = 0; i < INPUTS; i++)
            step(&m->in[u][i], back[u] * f->x[i]);
    }
}

static void estimate(const struct trail *m, const double p[BINS], struct length_estimate *ret)
{
    struct length_estimate all;
    length_prior(&all);
    length_shrink(&all, &m->all);
    *ret = (struct length_estimate){ .samples = (double)m->finished };
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
    /* Units begin apart, or they would stay alike (He 2015: variance 2 / inputs). */
    struct rng rng;
    rng_seed(&rng, SEED);
    for (uint32_t u = 0; u < UNITS; u++) {
        for (uint32_t i = 0; i < PREDICT_HIDDEN_DIMS; i++)
            m->in[u][i].w = (float)(sqrt(2.0 / INPUTS) * rng_normal(&rng));
    }
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct trail *m = state;
    struct length_estimate e;
    struct pass pass;
    forward(m, hidden_of(f), &pass);
    estimate(m, pass.p, &e);
    length_verdict(&e, &m->p90, f->output_max, ret);
}

/* Bayes' step: a bin counts by what of it lies beyond `generated`; one that is passed is gone. */
static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    const struct trail *m = state;
    struct pass pass;
    double mass = 0, sum = 0;
    forward(m, hidden_of(f), &pass);
    for (uint32_t c = 0; c < BINS; c++) {
        const struct length_hist *h = &m->hist[c];
        if (h->count < 1) continue;
        double share = 1, mean = (double)h->mean;
        if (c * BIN_TOKENS < (double)generated) {
            double bin[LENGTH_BINS];
            for (uint32_t b = 0; b < LENGTH_BINS; b++)
                bin[b] = (double)(h->bin[b] / h->count);
            length_tail(bin, (double)generated, &share, &mean);
        }
        mass += pass.p[c] * share;
        sum += pass.p[c] * share * mean;
    }
    double expected = mass > 1e-6 ? sum / mass : (double)generated * LENGTH_GROWTH;
    double left = length_clamp(expected, f->output_max) - (double)generated;
    return left > 1 ? left : 1;
}

static void learn(struct trail *m, const float *hidden, uint32_t bin)
{
    struct pass pass;
    forward(m, hidden, &pass);
    backward(m, &pass, bin);
}

static void normalise(struct trail *m, const float *hidden)
{
    double step = 1 / fmin((double)m->finished, STATS_MAX);
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++) {
        double away = (double)hidden[d] - m->mean[d];
        m->mean[d] += step * away;
        m->var[d] += step * (away * ((double)hidden[d] - m->mean[d]) - m->var[d]);
    }
}

/* What ended is learned once, and some of the last RESERVOIR again: ends are few, states many. */
static void replay(struct trail *m, const float *hidden, uint32_t bin)
{
    struct end *place = &m->end[m->finished % RESERVOIR];
    memcpy(place->hidden, hidden, sizeof place->hidden);
    place->bin = bin;
    m->finished++;
    normalise(m, hidden);
    learn(m, hidden, bin);
    uint64_t kept = m->finished < RESERVOIR ? m->finished : RESERVOIR;
    for (uint32_t i = 0; i < REPLAYS; i++) {
        const struct end *e = &m->end[rng_at(SEED, m->finished * REPLAYS + i) % kept];
        learn(m, e->hidden, e->bin);
    }
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct trail *m = state;
    struct length_estimate e;
    struct predict_verdict said;
    struct pass pass;
    const float *hidden = hidden_of(f);
    forward(m, hidden, &pass);
    estimate(m, pass.p, &e);
    length_verdict(&e, &m->p90, UINT32_MAX, &said);
    length_offset_observe(&m->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return;
    double bin = length / BIN_TOKENS;
    uint32_t right = bin < BINS ? (uint32_t)bin : BINS - 1;
    length_learn(&m->all, length);
    length_learn(&m->hist[right], length);
    if (hidden) replay(m, hidden, right);
}

static void merge_lengths(struct trail *m, const struct trail *other)
{
    length_merge(&m->all, &other->all);
    for (uint32_t b = 0; b < BINS; b++)
        length_merge(&m->hist[b], &other->hist[b]);
}

/* Two networks cannot be averaged: units have no common order. The one that has seen more stays and
 * learns the other's ends as if they had come here, in their order, and keeps its own P90. */
static void merge(void *state, const void *other)
{
    struct trail *m = state, kept;
    const struct trail *less = other;
    if (less->finished > m->finished) {
        kept = *m;
        *m = *less;
        less = &kept;
    }
    merge_lengths(m, less);
    uint64_t count = less->finished < RESERVOIR ? less->finished : RESERVOIR;
    for (uint64_t i = less->finished - count; i < less->finished; i++) {
        const struct end *e = &less->end[i % RESERVOIR];
        replay(m, e->hidden, e->bin);
    }
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
