/* client_mean.c - predicts the running log-mean of the client's outputs.
 *
 *     estimate = exp((n * own + SHRINK * all) / (n + SHRINK))
 *
 * On traffic of many steady clients (ServeGen) this alone orders requests as well as a language
 * model does. Clients are held in a 4-way table; the one whose last output is oldest makes room.
 */
#include "base/core/bits.h"
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

#include <math.h>

#define WAYS 4
#define SETS 1024
#define SHRINK 4.0      /* outputs of all clients that are mixed with a client's own */
#define COUNT_MAX 256.0 /* older outputs of a client fade */

struct client {
    uint64_t tenant; /* 0: empty */
    uint64_t used;   /* the table's clock when it was last updated */
    float count, log_mean;
};

struct client_mean {
    uint64_t clock;        /* outputs of clients that have a name */
    float count, log_mean; /* of all */
    struct length_band band;
    struct client client[SETS * WAYS];
};

static void mean_learn(float *count, float *mean, double y)
{
    if ((double)*count < COUNT_MAX) *count += 1;
    *mean += ((float)y - *mean) / *count;
}

static const struct client *find(const struct client_mean *c, uint64_t tenant)
{
    const struct client *set = &c->client[tenant % SETS * WAYS];
    for (uint32_t w = 0; w < WAYS; w++) {
        if (set[w].tenant == tenant) return &set[w];
    }
    return NULL;
}

static struct client *find_or_make(struct client_mean *c, uint64_t tenant)
{
    struct client *set = &c->client[tenant % SETS * WAYS], *oldest = set;
    for (uint32_t w = 0; w < WAYS; w++) {
        if (set[w].tenant == tenant) return &set[w];
        if (set[w].used < oldest->used) oldest = &set[w];
    }
    *oldest = (struct client){ .tenant = tenant };
    return oldest;
}

static double estimate(const struct client_mean *c, uint64_t tenant, double *ret_samples)
{
    const struct client *own = tenant ? find(c, tenant) : NULL;
    double n = own ? (double)own->count : 0,
           all = c->count > 0 ? (double)c->log_mean : log(LENGTH_FIRST_GUESS);
    *ret_samples = n;
    return exp((n * (own ? (double)own->log_mean : 0) + SHRINK * all) / (n + SHRINK));
}

static void init(void *state)
{
    struct client_mean *c = state;
    memset(c, 0, sizeof *c);
    length_band_init(&c->band);
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct client_mean *c = state;
    double samples, tokens = estimate(c, f->tenant, &samples);
    length_band_verdict(&c->band, tokens, f->output_max, ret);
    ret->samples = samples;
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct client_mean *c = state;
    double samples, said = estimate(c, f->tenant, &samples);
    length_band_observe(&c->band, said, (double)tokens, censored);
    if (tokens == 0 || (censored && (double)tokens < said)) return;
    double y = log((double)tokens);
    mean_learn(&c->count, &c->log_mean, y);
    if (!f->tenant) return;
    struct client *own = find_or_make(c, f->tenant);
    own->used = ++c->clock;
    mean_learn(&own->count, &own->log_mean, y);
}

static void mean_merge(float *count, float *mean, float other_count, float other_mean)
{
    float all = *count + other_count;
    if (all <= 0) return;
    *mean = (*mean * *count + other_mean * other_count) / all;
    *count = fminf(all, (float)COUNT_MAX);
}

static void merge(void *state, const void *other)
{
    struct client_mean *c = state;
    const struct client_mean *o = other;
    mean_merge(&c->count, &c->log_mean, o->count, o->log_mean);
    length_band_merge(&c->band, &o->band);
    /* Clocks count outputs, and one table may have seen more: ages are kept, not clock values. */
    const uint64_t clock = max_u64(c->clock, o->clock);
    for (uint32_t i = 0; i < SETS * WAYS; i++)
        if (c->client[i].tenant) c->client[i].used += clock - c->clock;
    for (uint32_t i = 0; i < SETS * WAYS; i++) {
        const struct client *from = &o->client[i];
        if (!from->tenant) continue;
        struct client *own = find_or_make(c, from->tenant);
        own->used = max_u64(own->used, from->used + (clock - o->clock));
        mean_merge(&own->count, &own->log_mean, from->count, from->log_mean);
    }
    c->clock = clock;
}

const struct predict_policy predict_client_mean = {
    .name = "client_mean",
    .about = "each client's running log-mean, shrunk towards all clients'",
    .source = "measured on ServeGen's client mixes (alibaba/ServeGen)",
    .needs = PREDICT_TENANT,
    .state_size = sizeof(struct client_mean),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
};
