/* trail.c - predicts the bin of an output's length from the model's hidden state, and refines it
 * while decoding.
 *
 *     p(bin | h) = softmax(W2 relu(W1 norm(h))),   10 bins of 51.2 tokens, the last without an end
 *     prior(left | g)  by Bayes' rule: p(bin | h0) * P(L > g | bin), from each bin's own histogram
 *     p(left | g, h)   ~ prior(left | g) * q(left | h) / base(left)
 *
 * TRAIL (2410.01035) feeds layer 11's state at every token to a small network, which classifies the
 * remaining tokens, and smooths the result by Bayes' rule over bins that shift as tokens come. Here
 * a state, folded into 32 numbers, comes at the prompt's end and at intervals of tokens (the caller
 * chooses layer and interval); networks have 32 units and learn online, each new state together
 * with seven drawn from a reservoir.
 *
 * Deviations, measured by t_predict_engine on the shipped model. There are two networks, one for
 * whole lengths from the prompt's state and one for the rest from a running output's state, because
 * one network for both ordered prompts worse (0.67 of pairs instead of 0.72). The bins of whole
 * outputs do not shift by a matrix: histograms give exactly the part of a bin beyond g, where the
 * matrix spread it out until Bayes' step made the estimate worse. A state of a running output adds
 * its evidence, q over its base rate, smoothed over looks; an uninformative state changes nothing.
 * A softmax without hidden units was tried and was too unsure of its bins. SyncIntellects'
 * progressive prediction has no published detail beyond this and is this policy too.
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
#define REPLAYS 7u /* old states learned again with each new one */
#define RATE 0.05
#define STEP_FLOOR 1e-3  /* of an AdaGrad sum: bounds the first step of a weight */
#define STATS_MAX 1024.0 /* states that the mean and deviation remember */
#define SEED 0x747261696cULL
#define EVIDENCE_MAX 2.0 /* one look moves the odds of a bin by no more than e^2 */

_Static_assert(2 * BINS <= PREDICT_POSTERIORS, "a posterior has two numbers for each bin");

struct known {
    float hidden[PREDICT_HIDDEN_DIMS];
    uint32_t bin;
};

/* A weight and its sum of squared gradients (AdaGrad). */
struct weight {
    float w, squares;
};

struct net {
    uint64_t states;
    double mean[PREDICT_HIDDEN_DIMS], var[PREDICT_HIDDEN_DIMS];
    struct weight in[UNITS][INPUTS], out[BINS][UNITS + 1];
    struct known known[RESERVOIR];
};

struct trail {
    uint64_t finished;
    struct net whole, left; /* on the prompt's state; on states of running outputs */
    double left_seen[BINS];
    struct length_offset p90;
    struct length_hist all, hist[BINS]; /* of whole outputs */
};

struct pass {
    double x[INPUTS], unit[UNITS + 1], p[BINS];
};

/* Returns NULL also for a state with a number that is not finite: it would spoil the mean for
 * good. */
static const float *hidden_of(const struct predict_features *f)
{
    if (!f->hidden) return NULL;
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++) {
        if (!isfinite(f->hidden[d])) return NULL;
    }
    return f->hidden;
}

/* Runs the network. For an absent state the inputs are 0, the running mean. */
static void forward(const struct net *m, const float *hidden, struct pass *ret)
{
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++) {
        double z = hidden ? ((double)hidden[d] - m->mean[d]) / sqrt(m->var[d] + 1e-9) : 0;
        ret->x[d] = fmax(-4, fmin(4, z)); /* one extreme number must not decide */
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

static void backward(struct net *m, const struct pass *f, uint32_t right)
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

static void init_net(struct net *m, struct rng *rng)
{
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++)
        m->var[d] = 1;
    /* Units start different, or they would stay equal (He 2015: variance 2 / inputs). */
    for (uint32_t u = 0; u < UNITS; u++) {
        for (uint32_t i = 0; i < PREDICT_HIDDEN_DIMS; i++)
            m->in[u][i].w = (float)(sqrt(2.0 / INPUTS) * rng_normal(rng));
    }
}

static void init(void *state)
{
    struct trail *m = state;
    struct rng rng;
    memset(m, 0, sizeof *m);
    rng_seed(&rng, SEED);
    init_net(&m->whole, &rng);
    init_net(&m->left, &rng);
}

/* The posterior of a running output: p(bin | h0), then the evidence of later states. */
#define FIRST(b) ((b)->share)
#define EVIDENCE(b) ((b)->share + BINS)

static void start_posterior(const struct trail *m, const float *hidden,
                            struct predict_posterior *ret)
{
    struct pass pass;
    forward(&m->whole, hidden, &pass);
    *ret = (struct predict_posterior){ .held = true };
    for (uint32_t c = 0; c < BINS; c++)
        FIRST(ret)[c] = (float)pass.p[c];
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct trail *m = state;
    struct length_estimate e;
    struct pass pass;
    forward(&m->whole, hidden_of(f), &pass);
    if (f->posterior) start_posterior(m, hidden_of(f), f->posterior);
    estimate(m, pass.p, &e);
    length_verdict(&e, &m->p90, f->output_max, ret);
}

/* Updates the evidence log(q(left | h) / base(left)): half from this look, half from those before. */
static void weigh(const struct trail *m, const float *hidden, struct predict_posterior *b)
{
    struct pass pass;
    double seen = 0;
    forward(&m->left, hidden, &pass);
    for (uint32_t c = 0; c < BINS; c++)
        seen += m->left_seen[c] + 1;
    for (uint32_t c = 0; c < BINS; c++) {
        double base = (m->left_seen[c] + 1) / seen;
        double now = fmax(-EVIDENCE_MAX, fmin(EVIDENCE_MAX, log(pass.p[c] / base + 1e-9)));
        EVIDENCE(b)
        [c] = b->looks > 0 ? (float)(0.5 * (double)EVIDENCE(b)[c] + 0.5 * now) : (float)now;
    }
    b->looks++;
}

/* For whole outputs of bin c, returns P(L > above | bin c) and E[L; L > above | bin c]. */
static void beyond(const struct trail *m, uint32_t c, double above, double *ret_share,
                   double *ret_sum)
{
    const struct length_hist *h = &m->hist[c];
    double share = 1, mean = (double)h->mean, bin[LENGTH_BINS];
    if (c * BIN_TOKENS < above) {
        for (uint32_t k = 0; k < LENGTH_BINS; k++)
            bin[k] = (double)(h->bin[k] / h->count);
        length_tail(bin, above, &share, &mean);
    }
    *ret_share = share;
    *ret_sum = share * mean;
}

/* Returns the share and the sum of lengths of outputs longer than `above`, by the first state
 * alone. */
static void prior_beyond(const struct trail *m, const struct predict_posterior *b, double above,
                         double *ret_share, double *ret_sum)
{
    *ret_share = *ret_sum = 0;
    for (uint32_t c = 0; c < BINS; c++) {
        double share, sum;
        if (m->hist[c].count < 1) continue;
        beyond(m, c, above, &share, &sum);
        *ret_share += (double)FIRST(b)[c] * share;
        *ret_sum += (double)FIRST(b)[c] * sum;
    }
}

/* Returns E[L | L > generated], summed over bins of the remaining tokens: the share of each is the
 * prior times the evidence, its mean that of the prior. */
static double expected(const struct trail *m, const struct predict_posterior *b, double generated)
{
    double mass = 0, sum = 0, share, total;
    prior_beyond(m, b, generated, &share, &total);
    for (uint32_t k = 0; k < BINS; k++) {
        double next_share = 0, next_total = 0;
        if (k + 1 < BINS)
            prior_beyond(m, b, generated + (k + 1) * BIN_TOKENS, &next_share, &next_total);
        double weight = b->looks > 0 ? exp((double)EVIDENCE(b)[k]) : 1;
        mass += weight * fmax(0, share - next_share);
        sum += weight * fmax(0, total - next_total);
        share = next_share;
        total = next_total;
    }
    return mass > 1e-6 ? sum / mass : generated * LENGTH_GROWTH;
}

static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    const struct trail *m = state;
    struct predict_posterior own = { 0 }, *b = f->posterior ? f->posterior : &own;
    bool is_running = f->hidden_at > 0 && f->hidden_at == generated;
    if (!b->held) start_posterior(m, is_running ? NULL : hidden_of(f), b);
    if (is_running && hidden_of(f)) weigh(m, hidden_of(f), b);
    double left =
        length_clamp(expected(m, b, (double)generated), f->output_max) - (double)generated;
    return left > 1 ? left : 1;
}

static void learn(struct net *m, const float *hidden, uint32_t bin)
{
    struct pass pass;
    forward(m, hidden, &pass);
    backward(m, &pass, bin);
}

static void normalise(struct net *m, const float *hidden)
{
    double step = 1 / fmin((double)m->states, STATS_MAX);
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++) {
        double away = (double)hidden[d] - m->mean[d];
        m->mean[d] += step * away;
        m->var[d] += step * (away * ((double)hidden[d] - m->mean[d]) - m->var[d]);
    }
}

/* Learns a state, and again some of the last RESERVOIR, because outputs are few. */
static void replay(struct net *m, const float *hidden, uint32_t bin)
{
    struct known *place = &m->known[m->states % RESERVOIR];
    memcpy(place->hidden, hidden, sizeof place->hidden);
    place->bin = bin;
    m->states++;
    normalise(m, hidden);
    learn(m, hidden, bin);
    uint64_t kept = m->states < RESERVOIR ? m->states : RESERVOIR;
    for (uint32_t i = 0; i < REPLAYS; i++) {
        const struct known *e = &m->known[rng_at(SEED, m->states * REPLAYS + i) % kept];
        learn(m, e->hidden, e->bin);
    }
}

static uint32_t bin_of(double tokens)
{
    double bin = tokens / BIN_TOKENS;
    return bin < BINS ? (uint32_t)bin : BINS - 1;
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct trail *m = state;
    struct length_estimate e;
    struct predict_verdict said;
    struct pass pass;
    const float *hidden = hidden_of(f);
    forward(&m->whole, hidden, &pass);
    estimate(m, pass.p, &e);
    length_verdict(&e, &m->p90, UINT32_MAX, &said);
    length_offset_observe(&m->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return;
    length_learn(&m->all, length);
    length_learn(&m->hist[bin_of(length)], length);
    m->finished++;
    if (hidden) replay(&m->whole, hidden, bin_of(length));
}

/* Learns from a state of a running output. A censored output counts with its expected rest. */
static void observe_look(void *state, const struct predict_features *f, uint32_t tokens,
                         bool censored)
{
    struct trail *m = state;
    const float *hidden = hidden_of(f);
    if (!hidden || tokens <= f->hidden_at) return;
    struct predict_features whole = *f;
    whole.hidden = NULL;
    whole.posterior = NULL;
    whole.hidden_at = 0;
    whole.output_max = UINT32_MAX;
    double left = tokens - f->hidden_at;
    if (censored) left += remaining(state, &whole, tokens);
    m->left_seen[bin_of(left)]++;
    replay(&m->left, hidden, bin_of(left));
}

static void merge_lengths(struct trail *m, const struct trail *other)
{
    length_merge(&m->all, &other->all);
    for (uint32_t b = 0; b < BINS; b++)
        length_merge(&m->hist[b], &other->hist[b]);
}

static void merge_net(struct net *m, const struct net *less)
{
    uint64_t count = less->states < RESERVOIR ? less->states : RESERVOIR;
    for (uint64_t i = less->states - count; i < less->states; i++) {
        const struct known *e = &less->known[i % RESERVOIR];
        replay(m, e->hidden, e->bin);
    }
}

/* Merges by learning. Two networks cannot be averaged, because units have no common order: the one
 * that has seen more outputs stays, keeps its own P90 and learns the other's states as if they had
 * come here, in their order. */
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
    m->finished += less->finished;
    for (uint32_t c = 0; c < BINS; c++)
        m->left_seen[c] += less->left_seen[c];
    merge_net(&m->whole, &less->whole);
    merge_net(&m->left, &less->left);
}

const struct predict_policy predict_trail = {
    .name = "trail",
    .about = "bins from a layer's hidden state, read again while decoding; in the engine",
    .source = "TRAIL (2410.01035); SyncIntellects",
    .needs = PREDICT_HIDDEN,
    .state_size = sizeof(struct trail),
    .init = init,
    .decide = decide,
    .observe = observe,
    .observe_look = observe_look,
    .merge = merge,
    .remaining = remaining,
};
