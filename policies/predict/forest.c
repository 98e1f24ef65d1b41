/* forest.c - predicts by regression trees over features of the request, refitted as outputs end.
 *
 * Magnus (2406.04785) regresses on the length of the user's input and on sentence embeddings with a
 * random forest. Ours has no embedding model: words are projected by hashed signs into 8 numbers,
 * and tenant, task, prefix and first words are replaced by the running log-mean of their outputs.
 * Trees are fitted to the logarithms of the last RESERVOIR outputs by random cuts (Geurts 2006):
 * the best of CUTS draws of (input, threshold) by the variance that it removes.
 *
 * One tree is replaced every REFIT_ENDS outputs, and so the forest every TREES * REFIT_ENDS; no
 * output costs more than one tree. Draws are functions of (seed, outputs so far): the same outputs
 * make the same forest.
 */
#include "base/core/hash.h"
#include "base/core/rng.h"
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"
#include "policies/predict/text.h"

#include <math.h>

#define RESERVOIR 1024u
#define TREES 16u
#define REFIT_ENDS 16u
#define DEPTH 8u
#define NODES (1u << DEPTH) /* inner nodes, as a heap: children of i are 2i and 2i + 1 */
#define LEAF_MIN 6u         /* fewest outputs in a leaf */
#define CUTS 24u
#define PROJECTED 8u
#define MEANS_SLOTS 4096u
#define MEANS_SHRINK 4.0f
#define MEANS_MAX 64.0f
#define SEED 0x666f72657374ULL

enum input {
    IN_PROMPT,
    IN_TEXT,
    IN_NUMBER,
    IN_QUESTION,
    IN_PREVIOUS,
    IN_LIMIT,
    IN_MEAN, /* tenant, task, prefix, ask, first word, first two */
    IN_PROJECTED = IN_MEAN + 6,
    INPUTS = IN_PROJECTED + PROJECTED,
};

struct sample {
    float x[INPUTS], y;
};

struct node {
    float threshold, value; /* value: the mean of the samples that reach it */
    uint32_t input;         /* INPUTS: a leaf */
};

struct running {
    float count, mean;
};

struct forest {
    uint64_t finished, fitted; /* outputs; trees, of which the last TREES are kept */
    struct running all;
    struct length_band band;
    struct running means[MEANS_SLOTS];
    struct sample sample[RESERVOIR];
    struct node node[TREES][2 * NODES];
};

static uint32_t slot_of(uint32_t kind, uint64_t key)
{
    uint64_t part[2] = { kind, key };
    return (uint32_t)(hash64(part, sizeof part, SEED) % MEANS_SLOTS);
}

static void mean_slots(const struct predict_features *f, uint32_t ret[6])
{
    const uint64_t key[6] = { f->tenant,
                              f->group,
                              f->prefix,
                              f->ask,
                              f->text.len ? text_head(f->text, 1) : 0,
                              f->text.len ? text_head(f->text, 2) : 0 };
    for (uint32_t i = 0; i < 6; i++)
        ret[i] = slot_of(i, key[i]);
}

static void project(const struct predict_features *f, float ret[PROJECTED])
{
    struct text_features t;
    text_features(f, &t);
    for (uint32_t d = 0; d < PROJECTED; d++)
        ret[d] = 0;
    for (uint32_t i = 0; i < t.count; i++)
        ret[t.at[i] % PROJECTED] += t.at[i] >> 16 & 1 ? 1 : -1;
}

static void inputs(const struct forest *m, const struct predict_features *f, float ret[INPUTS])
{
    uint32_t slot[6];
    ret[IN_PROMPT] = logf((float)f->prompt_tokens + 1);
    ret[IN_TEXT] = logf((float)f->text.len + 1);
    ret[IN_NUMBER] = f->text.len ? logf((float)text_number(f->text) + 2) : 0;
    ret[IN_QUESTION] = f->text.len && f->text.data[f->text.len - 1] == '?' ? 1 : 0;
    ret[IN_PREVIOUS] = logf((float)f->previous_tokens + 1);
    ret[IN_LIMIT] = logf((float)f->output_max + 1);
    mean_slots(f, slot);
    for (uint32_t i = 0; i < 6; i++) {
        const struct running *r = &m->means[slot[i]];
        ret[IN_MEAN + i] =
            (r->count * r->mean + MEANS_SHRINK * m->all.mean) / (r->count + MEANS_SHRINK);
    }
    project(f, ret + IN_PROJECTED);
}

static void running_learn(struct running *r, float y)
{
    if (r->count < MEANS_MAX) r->count += 1;
    r->mean += (y - r->mean) / r->count;
}

static uint32_t trees(const struct forest *m)
{
    return m->fitted < TREES ? (uint32_t)m->fitted : TREES;
}

static double estimate(const struct forest *m, const float x[INPUTS])
{
    if (m->fitted == 0) return m->all.count > 0 ? exp((double)m->all.mean) : LENGTH_FIRST_GUESS;
    double sum = 0;
    for (uint32_t t = 0; t < trees(m); t++) {
        uint32_t at = 1;
        const struct node *node = m->node[t];
        while (at < NODES && node[at].input < INPUTS)
            at = 2 * at + (x[node[at].input] > node[at].threshold);
        sum += (double)node[at].value;
    }
    return exp(sum / trees(m));
}

struct fit {
    const struct forest *m;
    struct node *node;
    struct rng rng;
    uint16_t index[RESERVOIR]; /* of samples; those of a node are contiguous */
};

/* Returns the squared error that a cut removes; -1 if a side is too small. */
static double gain(const struct fit *fit, uint32_t from, uint32_t to, uint32_t input,
                   float threshold)
{
    double n[2] = { 0 }, sum[2] = { 0 };
    for (uint32_t i = from; i < to; i++) {
        const struct sample *s = &fit->m->sample[fit->index[i]];
        uint32_t side = s->x[input] > threshold;
        n[side] += 1;
        sum[side] += (double)s->y;
    }
    if (n[0] < LEAF_MIN || n[1] < LEAF_MIN) return -1;
    double all = sum[0] + sum[1];
    return sum[0] * sum[0] / n[0] + sum[1] * sum[1] / n[1] - all * all / (n[0] + n[1]);
}

/* Cuts a node's samples; returns where the right side begins, or `to` for a leaf. */
static uint32_t cut(struct fit *fit, struct node *node, uint32_t from, uint32_t to)
{
    double best = 0, sum = 0;
    node->input = INPUTS;
    for (uint32_t i = from; i < to; i++)
        sum += (double)fit->m->sample[fit->index[i]].y;
    node->value = (float)(sum / (to - from));
    for (uint32_t c = 0; c < CUTS && to - from >= 2 * LEAF_MIN; c++) {
        uint32_t input = (uint32_t)rng_below(&fit->rng, INPUTS);
        /* The threshold is a sample's value, so that the cut lies among the samples. */
        uint32_t at = from + (uint32_t)rng_below(&fit->rng, to - from);
        float threshold = fit->m->sample[fit->index[at]].x[input];
        double g = gain(fit, from, to, input, threshold);
        if (g <= best) continue;
        best = g;
        node->input = input;
        node->threshold = threshold;
    }
    if (node->input == INPUTS) return to;
    uint32_t left = from;
    for (uint32_t i = from; i < to; i++) {
        uint16_t k = fit->index[i];
        if (fit->m->sample[k].x[node->input] > node->threshold) continue;
        fit->index[i] = fit->index[left];
        fit->index[left++] = k;
    }
    return left;
}

/* Fits the nodes in the order of the heap, so a node's samples are known before its children's. */
static void fit_tree(struct forest *m, uint32_t tree, uint32_t samples)
{
    struct fit fit = { .m = m, .node = m->node[tree] };
    uint32_t from[2 * NODES] = { 0 }, to[2 * NODES] = { 0 };
    rng_stream(&fit.rng, SEED, m->finished, 0);
    for (uint32_t i = 0; i < samples; i++) /* drawn with replacement */
        fit.index[i] = (uint16_t)rng_below(&fit.rng, samples);
    to[1] = samples;
    for (uint32_t at = 1; at < 2 * NODES; at++) {
        if (from[at] == to[at]) continue;
        struct node *node = &fit.node[at];
        uint32_t middle = cut(&fit, node, from[at], to[at]);
        if (at >= NODES || node->input == INPUTS) {
            node->input = INPUTS;
            continue;
        }
        from[2 * at] = from[at];
        to[2 * at] = from[2 * at + 1] = middle;
        to[2 * at + 1] = to[at];
    }
}

static void init(void *state)
{
    struct forest *m = state;
    memset(m, 0, sizeof *m);
    length_band_init(&m->band);
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct forest *m = state;
    float x[INPUTS];
    inputs(m, f, x);
    length_band_verdict(&m->band, estimate(m, x), f->output_max, ret);
    ret->samples = (double)m->finished;
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct forest *m = state;
    struct sample s;
    uint32_t slot[6];
    inputs(m, f, s.x);
    double said = estimate(m, s.x);
    length_band_observe(&m->band, said, (double)tokens, censored);
    if (tokens == 0 || (censored && (double)tokens < said)) return;
    s.y = logf((float)tokens);
    m->sample[m->finished++ % RESERVOIR] = s;
    running_learn(&m->all, s.y);
    mean_slots(f, slot);
    for (uint32_t i = 0; i < 6; i++)
        running_learn(&m->means[slot[i]], s.y);
    if (m->finished % REFIT_ENDS != 0) return;
    uint32_t samples = m->finished < RESERVOIR ? (uint32_t)m->finished : RESERVOIR;
    fit_tree(m, (uint32_t)(m->fitted++ % TREES), samples);
}

static void running_merge(struct running *r, const struct running *other)
{
    float all = r->count + other->count;
    if (all <= 0) return;
    r->mean = (r->mean * r->count + other->mean * other->count) / all;
    r->count = fminf(all, MEANS_MAX);
}

/* Adds the other's samples to the reservoir as if they had ended here, in their order; trees are
 * refitted as outputs end. If this forest has no tree yet, it takes the other's. */
static void merge(void *state, const void *other)
{
    struct forest *m = state;
    const struct forest *o = other;
    uint64_t count = o->finished < RESERVOIR ? o->finished : RESERVOIR;
    for (uint64_t i = o->finished - count; i < o->finished; i++)
        m->sample[m->finished++ % RESERVOIR] = o->sample[i % RESERVOIR];
    if (m->fitted == 0) {
        memcpy(m->node, o->node, sizeof m->node);
        m->fitted = o->fitted;
    }
    running_merge(&m->all, &o->all);
    for (uint32_t i = 0; i < MEANS_SLOTS; i++)
        running_merge(&m->means[i], &o->means[i]);
    length_band_merge(&m->band, &o->band);
}

const struct predict_policy predict_forest = {
    .name = "forest",
    .about = "16 random-cut trees over lengths, words and running means, refitted one at a time",
    .source = "Magnus (2406.04785); hashed words instead of sentence embeddings",
    .needs = PREDICT_TEXT,
    .state_size = sizeof(struct forest),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
};
