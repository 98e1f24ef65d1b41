/* speed.c - starts a performance policy from what is known of model and machine, and keeps it.
 *
 * What it learns are the seconds at full speed. Steps at a share of it take longer in every part (perf_at_clock). */
#include "engine/serve/speed.h"

#include <math.h>
#include <stdlib.h>

/* Guesses the step times of this model on a processor of today, before the first step was timed:
 * right within a factor of three or so, and forgotten after twenty steps. Rates: bytes read and
 * operations done per second by one thread, measured on two server processors. */
static struct perf_coef guess_perf(const struct model_info *m, const struct speed_config *c)
{
    const double read_s = 12e9, compute_s = 80e9, thread_most = 4; /* then memory is the limit */
    double threads = c->threads > 1 ? fmin((double)c->threads, thread_most) : 1;
    double share = c->cpu_share > 0 ? fmin(c->cpu_share / threads, 1) : 1;
    double speed = threads * share;
    return (struct perf_coef){
        .step_s = (1e-4 + (double)m->weight_bytes / read_s) / speed,
        .prefill_token_s = 2 * (double)m->parameters / compute_s / speed,
        .decode_seq_s = (5e-5 + 10e-9 * (double)m->vocab_size) / share,
        .kv_read_s = (double)m->kv_bytes_per_token / read_s / speed,
        .attend_s = (double)m->kv_bytes_per_token / read_s / speed,
    };
}

/* The weights are as wide as the packed ones. */
struct model_spec speed_spec(const struct model_info *m)
{
    struct model_spec spec = { .name = "served",
                               .layers = m->n_layers,
                               .hidden = m->n_embd,
                               .heads = m->n_heads,
                               .kv_heads = m->n_kv_heads,
                               .head_dim = m->head_dim,
                               .ffn = m->n_ff,
                               .vocab = m->vocab_size,
                               .gated = m->task == MODEL_GENERATE };
    double kv = 2.0 * m->n_layers * m->n_kv_heads * m->head_dim;
    spec.weight_bytes = (double)m->weight_bytes / (double)m->parameters;
    /* An encoder keeps none, but moves those of a step in F32. */
    spec.kv_element_bytes = m->task == MODEL_GENERATE ? (double)m->kv_bytes_per_token / kv
                                                      : (double)kv_element_bytes(KV_F32);
    return spec;
}

/* A CPU's row has the peaks of all its cores, so they are scaled to the share that this process may use. */
int speed_init(struct speed *s, const struct model_info *m, const struct speed_config *c,
               struct err *err)
{
    const struct perf_coef guess = guess_perf(m, c);
    struct perf_setup setup = { .prior = &guess };
    struct roofline roofline;
    s->policy = c->policy;
    if (!s->policy)
        s->policy = perf_find(c->hardware ? STR(PERF_DEFAULT) : STR(PERF_DEFAULT_UNKNOWN));
    if (c->hardware) {
        const struct model_spec spec = speed_spec(m);
        double cores = c->threads;
        if (c->cpu_share > 0) cores = fmin(cores, c->cpu_share);
        if (!roofline_init(&roofline, c->hardware, &spec, 1)) {
            return err_set(err, -EINVAL, "--hardware %s: the model does not fit it",
                           c->hardware->name);
        }
        double slower = c->hardware->cores > 0 ? c->hardware->cores / cores : 1;
        const double factor[ROOFLINE_PARTS] = { slower, slower, slower, slower, slower };
        roofline_scale(&roofline, factor);
        setup.roofline = &roofline;
    }
    must(setup.roofline || !s->policy->needs_roofline); /* the configuration was checked */
    s->state = calloc(1, s->policy->state_size);
    if (!s->state) return -ENOMEM;
    s->policy->init(s->state, &setup);
    s->policy->coef(s->state, &s->coef);
    speed_clock_set(s, 1);
    return 0;
}

void speed_fini(struct speed *s)
{
    free(s->state);
    *s = (struct speed){ 0 };
}

void speed_observe(struct speed *s, const struct perf_shape *shape, double seconds)
{
    s->policy->observe(s->state, shape, seconds);
    s->policy->coef(s->state, &s->coef);
    speed_clock_set(s, s->clock);
}

void speed_clock_set(struct speed *s, double clock)
{
    s->clock = clock;
    s->now = perf_at_clock(&s->coef, clock);
}
