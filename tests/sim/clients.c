/* clients.c - makes Poisson arrivals in phases, with lognormal lengths, and clients that leave early. */
#include "base/core/bits.h"
#include "tests/sim/world.h"

#include <math.h>

#define PROMPT_MEDIAN 200.0
#define PROMPT_SIGMA 0.8
#define PROMPT_MAX 4000.0
#define OUTPUT_MEDIAN 60.0
#define OUTPUT_SIGMA 0.8
#define OUTPUT_MAX 512.0
#define PREFIXES 8

/* The rate in requests a second, from each moment of the world on. */
static const struct {
    int64_t from_us;
    double rate;
} phases[] = {
    { 0, 1.5 },           { 40 * SECOND, 10 }, /* burst */
    { 65 * SECOND, 1.5 }, { 110 * SECOND, 0 }, { 140 * SECOND, 2 },
};

static double rate_at(const struct world *w, int64_t at_us)
{
    int64_t since_us = at_us - w->time.began_us;
    double rate = 0;
    for (uint32_t i = 0; i < COUNT_OF(phases); i++)
        if (since_us >= phases[i].from_us) rate = phases[i].rate;
    return at_us >= w->silence_us ? 0 : rate;
}

static uint32_t length(struct rng *rng, double median, double sigma, double most)
{
    return (uint32_t)fmin(most, ceil(median * exp(sigma * rng_normal(rng))));
}

static void leave(struct world *w, const struct event *e)
{
    router_client_left(w, e->who);
}

static void arrive(struct world *w)
{
    must(w->request_count < SIM_REQUESTS_MAX); /* the phases make a sixth of it */
    struct rng *rng = &w->rng_clients;
    struct request *r = &w->request[w->request_count];
    *r = (struct request){ .index = w->request_count++,
                           .sent_us = w->time.now_us,
                           .router = (uint32_t)rng_below(rng, w->router_count),
                           .output = length(rng, OUTPUT_MEDIAN, OUTPUT_SIGMA, OUTPUT_MAX) };
    r->routed.dispatch.model = w->model;
    r->routed.dispatch.prompt_tokens = length(rng, PROMPT_MEDIAN, PROMPT_SIGMA, PROMPT_MAX);
    r->routed.dispatch.features =
        (struct predict_features){ .tenant = 1,
                                   .prefix = 1 + rng_below(rng, PREFIXES),
                                   .prompt_tokens = r->routed.dispatch.prompt_tokens,
                                   .output_max = (uint32_t)OUTPUT_MAX };
    double patience_s = (double)SIM_PATIENCE_US / 1e6;
    if (faults_hit(w, FAULT_CLIENTS_LEAVE, 0.2)) patience_s = rng_exp(rng, 3);
    history_expects(&w->history, r->index, r->output, (struct str){ 0 });
    history_sent(&w->history, r->index, HISTORY_KEY_NOT_ASKED, w->time.now_us);
    router_arrive(w, r);
    timeline_at(&w->time, w->time.now_us + (int64_t)(patience_s * 1e6), leave, r, 0);
}

/* Draws the number of arrivals of a tenth of a second (Poisson, by products of uniform numbers). The rate is
 * read at each step, so that it follows the phases. */
static void step(struct world *w, const struct event *e)
{
    (void)e;
    const int64_t step_us = 100 * MS;
    double mean = rate_at(w, w->time.now_us) * (double)step_us / 1e6;
    double left = exp(-mean);
    for (double p = rng_f64(&w->rng_clients); p > left; p *= rng_f64(&w->rng_clients))
        arrive(w);
    timeline_at(&w->time, w->time.now_us + step_us, step, w, 0);
}

void clients_begin(struct world *w)
{
    timeline_at(&w->time, w->time.now_us + SECOND, step, w, 0);
}
