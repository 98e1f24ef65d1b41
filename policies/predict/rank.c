/* rank.c - turns scores into places among recent scores, and places into lengths. */
#include "policies/predict/rank.h"

#include <math.h>

#define STATS_MAX 512.0 /* scores that the mean and deviation remember */

void rank_init(void *state)
{
    struct rank_model *m = state;
    memset(m, 0, sizeof *m);
    m->score_var = 1;
}

double rank_score(const struct rank_model *m, const struct text_features *t)
{
    return linear_dot(m->weight, 2, RANK_SLOTS - 1, t);
}

/* Returns the place of a score, in [0, RANK_BINS). */
static double place_of(const struct rank_model *m, double score)
{
    double z = (score - m->score_mean) / sqrt(m->score_var + 1e-9);
    return fmin(RANK_BINS * 0.5 * erfc(-z / sqrt(2)), RANK_BINS - 1e-6);
}

static void estimate(const struct rank_model *m, uint32_t bin, struct length_estimate *ret)
{
    length_prior(ret);
    length_shrink(ret, &m->all);
    length_shrink(ret, &m->bin[bin]);
}

/* Fills ret with the means of the bins, each raised to at least that of the bin below. */
static void means(const struct rank_model *m, double ret[RANK_BINS])
{
    double least = 0;
    for (uint32_t b = 0; b < RANK_BINS; b++) {
        struct length_estimate e;
        estimate(m, b, &e);
        ret[b] = least = fmax(least, e.mean);
    }
}

void rank_decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct rank_model *m = state;
    struct text_features t;
    text_features(f, &t);
    double score = rank_score(m, &t), place = place_of(m, score), mean[RANK_BINS];
    struct length_estimate e;
    estimate(m, (uint32_t)place, &e);
    means(m, mean);
    double at = fmax(0, fmin(place - 0.5, RANK_BINS - 1.0));
    uint32_t low = (uint32_t)at, high = low + 1 < RANK_BINS ? low + 1 : low;
    /* The last term keeps scores apart where the means are flat; it is below a token. */
    e.mean = mean[low] + (at - low) * (mean[high] - mean[low]) + place / RANK_BINS;
    length_verdict(&e, &m->p90, f->output_max, ret);
    ret->samples = m->finished;
    ret->has_rank = true;
    ret->rank = score;
}

/* Copies only the hashes in use: the bytes behind them are undefined and must not be saved. */
static void keep(struct rank_item *item, const struct text_features *t, double length)
{
    *item = (struct rank_item){ .features = { .count = t->count }, .tokens = (float)length };
    memcpy(item->features.at, t->at, t->count * sizeof t->at[0]);
}

bool rank_observe(struct rank_model *m, const struct text_features *t, uint32_t tokens,
                  bool censored)
{
    double score = rank_score(m, t);
    uint32_t bin = (uint32_t)place_of(m, score);
    struct length_estimate e;
    struct predict_verdict said;
    estimate(m, bin, &e);
    length_verdict(&e, &m->p90, UINT32_MAX, &said);
    length_offset_observe(&m->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return false;
    length_learn(&m->all, length);
    length_learn(&m->bin[bin], length);
    m->finished = fmin(m->finished + 1, STATS_MAX);
    double step = 1 / m->finished, away = score - m->score_mean;
    m->score_mean += step * away;
    m->score_var += step * (away * (score - m->score_mean) - m->score_var);
    keep(&m->window[m->filled++ % RANK_WINDOW], t, length);
    return true;
}

void rank_merge(void *state, const void *from)
{
    struct rank_model *m = state;
    const struct rank_model *other = from;
    double all = m->finished + other->finished;
    if (other->finished == 0) return;
    linear_merge(m->weight, other->weight, RANK_SLOTS);
    /* The variance of all is that within each state plus that between their means. */
    double part = other->finished / all, apart = other->score_mean - m->score_mean;
    m->score_var += part * (other->score_var - m->score_var) + part * (1 - part) * apart * apart;
    m->score_mean += part * apart;
    m->finished = fmin(all, STATS_MAX);
    length_offset_merge(&m->p90, &other->p90);
    length_merge(&m->all, &other->all);
    for (uint32_t b = 0; b < RANK_BINS; b++)
        length_merge(&m->bin[b], &other->bin[b]);
}
