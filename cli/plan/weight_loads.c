/* weight_loads.c - machines with queues of loads, memories and disks of the latest used.
 *
 * A machine's loads come one after the other, so that the end of each is known when it is given out;
 * what is queued is what has not ended, the one under way less what it has read. */
#include "cli/plan/weight_loads.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PURPOSE_REQUESTS 1 /* the random stream of arrivals and models */

struct one_load {
    enum load_tier tier;
    double end_s;
    uint32_t next; /* on the same machine; LOAD_NONE: the last */
};

struct machine {
    uint32_t model[WEIGHT_LOADS_MODELS_MAX]; /* on its disk, the latest used first */
    uint32_t models;
    uint32_t first, last;             /* loads that have not ended; LOAD_NONE: none */
    uint32_t queued[LOAD_TIER_COUNT]; /* of them, by tier */
    double free_s;
};

struct site {
    const struct weight_loads_work *w;
    struct machine machine[LOAD_SERVERS_MAX];
    struct load_problem question;
    struct one_load *load;
    double *start_s;
};

static enum load_tier tier_of(const struct weight_loads_work *w, const struct machine *m,
                              uint32_t model)
{
    for (uint32_t i = 0; i < m->models; i++)
        if (m->model[i] == model) return i < w->in_memory ? LOAD_MEMORY : LOAD_DISK;
    return LOAD_STORE;
}

/* The model goes to the front; the one used longest ago leaves a full disk. */
static void keep(const struct weight_loads_work *w, struct machine *m, uint32_t model)
{
    uint32_t at = 0;
    if (w->on_disk == 0) return;
    while (at < m->models && m->model[at] != model)
        at++;
    if (at == m->models) at = m->models < w->on_disk ? m->models++ : w->on_disk - 1;
    memmove(&m->model[1], &m->model[0], at * sizeof m->model[0]);
    m->model[0] = model;
}

static void end_loads(struct site *s, struct machine *m, double now_s)
{
    for (; m->first != LOAD_NONE && s->load[m->first].end_s <= now_s;
         m->first = s->load[m->first].next)
        m->queued[s->load[m->first].tier]--;
    if (m->first == LOAD_NONE) m->last = LOAD_NONE;
}

/* The machine as the policy sees it. */
static void look(struct site *s, uint32_t at, uint32_t model, double now_s)
{
    struct machine *m = &s->machine[at];
    struct load_server *ret = &s->question.server[at];
    end_loads(s, m, now_s);
    *ret = (struct load_server){ .usable = true, .tier = tier_of(s->w, m, model) };
    for (uint32_t t = 0; t < LOAD_TIER_COUNT; t++)
        ret->queued_bytes[t] = m->queued[t] * s->w->model_bytes;
    if (m->first == LOAD_NONE) return;
    const struct one_load *now = &s->load[m->first];
    double left = fmin(s->w->model_bytes, (now->end_s - now_s) * s->w->bytes_s[now->tier]);
    ret->queued_bytes[now->tier] -= s->w->model_bytes - left;
}

static enum load_tier give(struct site *s, uint32_t at, uint32_t number, uint32_t model,
                           double now_s)
{
    struct machine *m = &s->machine[at];
    enum load_tier tier = s->question.server[at].tier;
    m->free_s = fmax(m->free_s, now_s) + s->w->model_bytes / s->w->bytes_s[tier];
    s->load[number] = (struct one_load){ .tier = tier, .end_s = m->free_s, .next = LOAD_NONE };
    if (m->last != LOAD_NONE)
        s->load[m->last].next = number;
    else
        m->first = number;
    m->last = number;
    m->queued[tier]++;
    keep(s->w, m, model);
    return tier;
}

static void replay(struct site *s, const struct load_policy *row, uint64_t seed,
                   struct weight_loads_result *ret)
{
    const struct weight_loads_work *w = s->w;
    struct rng rng;
    double now_s = 0;
    rng_stream(&rng, seed, 0, PURPOSE_REQUESTS);
    for (uint32_t i = 0; i < w->loads; i++) {
        struct load_verdict v;
        now_s += rng_exp(&rng, 1 / w->rate_s);
        uint32_t model = (uint32_t)(w->models * pow(rng_f64(&rng), w->skew));
        for (uint32_t k = 0; k < w->machines; k++)
            look(s, k, model, now_s);
        row->choose(&s->question, &v);
        must(v.server < w->machines);
        ret->share[give(s, v.server, i, model, now_s)] += 1.0 / w->loads;
        s->start_s[i] = s->machine[v.server].free_s + w->start_s - now_s;
    }
    ret->start_s = stats_quantiles(s->start_s, w->loads);
}

int weight_loads_run(const struct weight_loads_work *w, const struct load_policy *row,
                     uint64_t seed, struct weight_loads_result *ret, struct err *err)
{
    static struct site site; /* large: one a process */
    site = (struct site){ .w = w,
                          .load = calloc(w->loads, sizeof *site.load),
                          .start_s = calloc(w->loads, sizeof *site.start_s) };
    site.question = (struct load_problem){ .server_count = w->machines,
                                           .model_bytes = w->model_bytes,
                                           .start_s = w->start_s };
    memcpy(site.question.bytes_s, w->bytes_s, sizeof w->bytes_s);
    for (uint32_t k = 0; k < w->machines; k++)
        site.machine[k].first = site.machine[k].last = LOAD_NONE;
    *ret = (struct weight_loads_result){ 0 };
    int rc =
        site.load && site.start_s ? 0 : err_set(err, -ENOMEM, "no memory for %u loads", w->loads);
    if (rc == 0) replay(&site, row, seed, ret);
    free(site.load);
    free(site.start_s);
    return rc;
}
