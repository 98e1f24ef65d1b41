/* world.c - computes the world's step times from rooflines and lognormal factors of stateless streams. */
#include "simulator/world.h"

#include "base/core/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* The longest step: it ends after every run, whose arrivals and drain take months at most, and far from the
 * end of the clock. A machine that slow completes no request. */
#define STEP_US_MAX 1e15

static uint64_t stream_seed(uint64_t seed, uint64_t entity, enum world_purpose purpose)
{
    struct rng r;
    rng_stream(&r, seed, entity, purpose);
    return rng_u64(&r);
}

int world_open(struct world *w, const struct trace *trace, const struct sim_config *sim)
{
    *w = (struct world){ .trace = trace,
                         .output_tokens = malloc(trace->count * sizeof *w->output_tokens),
                         .seed = sim->seed,
                         .bias_sigma = sim->bias_sigma,
                         .residual_sigma = sim->residual_sigma };
    if (!w->output_tokens) return -ENOMEM;
    for (uint32_t i = 0; i < trace->count; i++)
        w->output_tokens[i] = trace->request[i].output_tokens;
    return 0;
}

void world_close(struct world *w)
{
    free(w->output_tokens);
    *w = (struct world){ 0 };
}

void world_engine_init(const struct world *w, uint32_t instance, const struct sim_pool *pool,
                       const struct model_spec *model, struct world_engine *ret)
{
    struct rng r;
    rng_stream(&r, w->seed, instance, WORLD_BIAS);
    *ret = (struct world_engine){
        .has_step = pool->has_step,
        .step = pool->step,
        .bias = exp(w->bias_sigma * rng_normal(&r)),
        .seed = stream_seed(w->seed, instance, WORLD_RESIDUAL),
        .residual_sigma = w->residual_sigma,
    };
    if (!pool->has_step) roofline_init(&ret->roofline, pool->hardware, model, pool->tp);
}

/* Returns the scaled sum of four uniforms: close to normal, bounded, and cheap enough for every step. */
static double about_normal(uint64_t seed, uint64_t position)
{
    uint64_t bits = rng_at(seed, position);
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)(bits >> (16 * i) & 0xffff);
    return (sum / 65535 - 2) * 1.7320508075688772; /* variance of the sum is 4 / 12 */
}

int64_t world_step_us(const struct world_engine *e, const struct perf_shape *shape, uint64_t step,
                      double clock)
{
    double seconds = e->has_step ? perf_step_s(&e->step, shape)
                     : clock < 1 ? roofline_step_clock_s(&e->roofline, shape, clock)
                                 : roofline_step_s(&e->roofline, shape);
    seconds *= e->bias;
    if (e->residual_sigma > 0) seconds *= exp(e->residual_sigma * about_normal(e->seed, step));
    double us = round(seconds * 1e6);
    return (int64_t)fmin(fmax(us, 1), STEP_US_MAX);
}

double world_step_watts(const struct world_engine *e, const struct perf_shape *shape, double clock)
{
    return e->has_step ? 0 : roofline_watts(&e->roofline, shape, clock);
}

int world_future_make(const struct world *w, struct world_future *ret)
{
    uint32_t n = w->trace->count;
    struct world_future f = { .at_us = calloc(n, sizeof *f.at_us),
                              .prompt_tokens = calloc(n, sizeof *f.prompt_tokens),
                              .output_tokens = calloc(n, sizeof *f.output_tokens) };
    if (!f.at_us || !f.prompt_tokens || !f.output_tokens) {
        world_future_fini(&f);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct trace_request *r = &w->trace->request[i];
        f.at_us[i] = r->at_us - w->trace->request[0].at_us;
        f.prompt_tokens[i] = r->prompt_tokens;
        f.output_tokens[i] = r->output_tokens;
    }
    f.view = (struct scale_future){ f.at_us, f.prompt_tokens, f.output_tokens, n };
    *ret = f;
    return 0;
}

void world_future_fini(struct world_future *f)
{
    free(f->at_us);
    free(f->prompt_tokens);
    free(f->output_tokens);
    *f = (struct world_future){ 0 };
}
