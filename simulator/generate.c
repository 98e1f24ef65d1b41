/* generate.c - generates requests in order of time: a new conversation's first turn, or the next of another.
 *
 * Gaps of mean 1 are drawn and laid along the integral of the rate, so that every spacing works
 * with every schedule. A conversation's prompt is the shared prefix, the turns so far, and the tokens
 * that this turn adds; its blocks but the last, partial one keep their ids from turn to turn. */
#include "simulator/generate.h"

#include "base/core/bits.h"
#include "base/core/heap.h"
#include "base/core/rng.h"
#include "simulator/generate_draw.h"

#include <math.h>
#include <stdlib.h>

enum purpose { ARRIVALS = 0x67656e, BURSTS, TENANT, SYSTEM, LENGTHS, THINK, BLOCKS, SERVICE };

#define LIVE_MAX 1000000 /* conversations at once */

/* Walks the rate's integral forwards. */
struct clockwork {
    const struct generate_spec *spec;
    struct rng gaps, bursts;
    uint32_t step;
    double at_s, step_ends_s;
    bool started;
};

struct conversation {
    struct heap_node node; /* first: by the next turn's time */
    uint32_t number, turn, turns, tenant, system, service;
    uint32_t spoken; /* tokens of prompt and output so far */
    struct rng lengths, think;
};

struct generator {
    const struct generate_spec *spec;
    uint64_t seed;
    struct clockwork clock;
    double *weight; /* cumulative, one a tenant */
    uint32_t conversations;
    struct heap live;
    uint64_t *block; /* scratch: context / block_tokens */
    struct trace *trace;
};

static double draw(const struct generate_dist *d, struct rng *rng)
{
    return d->shape->draw(d->param, rng);
}

static uint32_t draw_count(const struct generate_dist *d, struct rng *rng, double max)
{
    return (uint32_t)fmin(fmax(round(draw(d, rng)), 1), max);
}

static double step_length_s(struct clockwork *c)
{
    double for_s = c->spec->step[c->step].for_s;
    return c->spec->bursts ? rng_exp(&c->bursts, for_s) : for_s;
}

static void clockwork_init(struct clockwork *c, const struct generate_spec *spec, uint64_t seed)
{
    *c = (struct clockwork){ .spec = spec };
    rng_stream(&c->gaps, seed, 0, ARRIVALS);
    rng_stream(&c->bursts, seed, 0, BURSTS);
    c->step_ends_s = step_length_s(c);
}

/* Returns the time of the next arrival in seconds; INFINITY when the schedule has ended. Evenly spaced
 * arrivals begin with the schedule, others a gap after it. */
static double clockwork_next(struct clockwork *c)
{
    double gap = c->spec->spacing->gap(c->spec->cv > 0 ? c->spec->cv : 1, &c->gaps);
    if (!c->started && c->spec->spacing->regular) gap = 0;
    c->started = true;
    for (;;) {
        double rate = c->spec->step[c->step].rate;
        double left = (c->step_ends_s - c->at_s) * rate;
        if (gap < left) {
            c->at_s += gap / rate;
            return c->at_s;
        }
        if (rate > 0) gap -= left;
        c->at_s = c->step_ends_s;
        c->step++;
        if (c->step == c->spec->step_count && c->spec->bursts) c->step = 0;
        if (c->step == c->spec->step_count) {
            c->step--; /* stays at the end for further calls */
            return (double)INFINITY;
        }
        c->step_ends_s += step_length_s(c);
    }
}

/* Fills the tenants' cumulative weights: tenant k (from 1) weighs 1 / k^zipf, the first `heavy` times that. */
static int weigh_tenants(struct generator *g, struct err *err)
{
    uint32_t count = (uint32_t)g->spec->tenants;
    if (count == 0) return 0;
    g->weight = malloc(count * sizeof *g->weight);
    if (!g->weight) return err_set(err, -ENOMEM, "no memory for tenants");
    double sum = 0;
    for (uint32_t k = 0; k < count; k++) {
        double w = pow(k + 1, -g->spec->zipf);
        if (k == 0 && g->spec->heavy > 0) w *= g->spec->heavy;
        g->weight[k] = sum += w;
    }
    return 0;
}

static uint32_t pick_tenant(const struct generator *g, uint32_t number)
{
    uint32_t count = (uint32_t)g->spec->tenants;
    if (count == 0) return 0;
    struct rng rng;
    rng_stream(&rng, g->seed, number, TENANT);
    double at = rng_f64(&rng) * g->weight[count - 1];
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (g->weight[middle] > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low + 1;
}

static uint32_t pick_system(const struct generator *g, uint32_t number, uint32_t tenant)
{
    uint64_t systems = g->spec->systems > 0 ? (uint64_t)g->spec->systems : 1;
    if (tenant > 0) return (uint32_t)(tenant % systems);
    struct rng rng;
    rng_stream(&rng, g->seed, number, SYSTEM);
    return (uint32_t)rng_below(&rng, systems);
}

static void conversation_init(struct generator *g, struct conversation *c)
{
    uint32_t number = ++g->conversations;
    *c = (struct conversation){ .number = number, .turns = 1 };
    rng_stream(&c->lengths, g->seed, number, LENGTHS);
    rng_stream(&c->think, g->seed, number, THINK);
    c->tenant = pick_tenant(g, number);
    c->system = pick_system(g, number, c->tenant);
    struct rng rng;
    rng_stream(&rng, g->seed, number, SERVICE);
    c->service = (uint32_t)rng_below(&rng, (uint64_t)g->spec->services);
    if (g->spec->turns.shape) c->turns = draw_count(&g->spec->turns, &c->think, 1e6);
    c->spoken = (uint32_t)g->spec->system_tokens;
}

/* Names a prompt's blocks: first those of its shared prefix, then those of its conversation. A partial
 * last block is shared with no other prompt. */
static uint32_t name_blocks(struct generator *g, const struct conversation *c, uint32_t prompt)
{
    if (g->trace->block_tokens == 0) return 0;
    uint32_t size = g->trace->block_tokens, count = ceil_div_u32(prompt, size);
    uint32_t shared = (uint32_t)g->spec->system_tokens / size;
    uint64_t system = rng_at(rng_at(g->seed, c->system), SYSTEM);
    uint64_t own = rng_at(rng_at(g->seed, c->number), BLOCKS);
    for (uint32_t i = 0; i < count; i++)
        g->block[i] = rng_at(i < shared ? system : own, i);
    if (prompt % size > 0) g->block[count - 1] = rng_at(rng_at(own, count - 1), c->turn);
    return count;
}

static int say(struct generator *g, struct conversation *c, int64_t at_us, struct err *err)
{
    const struct generate_spec *s = g->spec;
    double room = s->context - c->spoken;
    uint32_t added = draw_count(&s->prompt, &c->lengths, fmax(room, 1));
    uint32_t prompt = c->spoken + added;
    uint32_t output = draw_count(&s->output, &c->lengths, s->output_max > 0 ? s->output_max : 1e7);
    c->turn++;
    struct trace_request r = {
        .at_us = at_us,
        .prompt_tokens = prompt,
        .output_tokens = output,
        .output_max = (uint32_t)s->output_max,
        .tenant = c->tenant,
        .service = c->service,
        .session = s->turns.shape ? c->number : 0,
        .turn = s->turns.shape ? c->turn : 0,
        .block_count = name_blocks(g, c, prompt),
    };
    c->spoken = prompt + output;
    return trace_append(g->trace, &r, g->block, (struct str){ 0 }, err);
}

static bool goes_on(const struct generator *g, const struct conversation *c)
{
    return c->turn < c->turns && c->spoken < g->spec->context;
}

static int64_t next_turn_us(struct generator *g, struct conversation *c, int64_t at_us)
{
    double think_s = draw(&g->spec->think_s, &c->think);
    return at_us + (int64_t)(fmin(fmax(think_s, 0), TRACE_SPAN_S_MAX) * 1e6);
}

static int open_conversation(struct generator *g, int64_t at_us, struct err *err)
{
    struct conversation first;
    conversation_init(g, &first);
    int rc = say(g, &first, at_us, err);
    if (rc < 0 || !goes_on(g, &first)) return rc;
    struct conversation *c = malloc(sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "no memory for a conversation");
    *c = first;
    rc = heap_push(&g->live, &c->node, next_turn_us(g, c, at_us));
    if (rc == 0) return 0;
    free(c);
    return err_set(err, rc, "more than %d conversations at once", LIVE_MAX);
}

static int continue_conversation(struct generator *g, struct err *err)
{
    struct conversation *c = (struct conversation *)heap_pop(&g->live); /* its first member */
    int64_t at_us = c->node.key;
    int rc = say(g, c, at_us, err);
    if (rc == 0 && goes_on(g, c)) return heap_push(&g->live, &c->node, next_turn_us(g, c, at_us));
    free(c);
    return rc;
}

/* Ends the generation, with an error if the longest span cuts requests off. */
static int ended(const struct generator *g, bool at_span, struct err *err)
{
    if (at_span && g->spec->duration_s <= 0) {
        return err_set(err, -EINVAL,
                       "%u requests take the %.0f days that a trace spans at most, and more follow",
                       g->trace->count, TRACE_SPAN_S_MAX / 86400);
    }
    return g->trace->count > 0 ? 0 : err_set(err, -EINVAL, "no request was generated");
}

static int run(struct generator *g, struct err *err)
{
    double n = g->spec->n > 0 ? g->spec->n : TRACE_REQUESTS_MAX + 1.0;
    double end_us = (g->spec->duration_s > 0 ? g->spec->duration_s : TRACE_SPAN_S_MAX) * 1e6;
    double start_us = clockwork_next(&g->clock) * 1e6;
    while (g->trace->count < n) {
        const struct heap_node *turn = heap_peek(&g->live);
        double turn_us = turn ? (double)turn->key : (double)INFINITY;
        double at_us = fmin(start_us, turn_us);
        if (!(at_us < end_us)) return ended(g, isfinite(at_us), err);
        int rc = turn_us < start_us ? continue_conversation(g, err)
                                    : open_conversation(g, (int64_t)start_us, err);
        if (rc < 0) return rc;
        if (turn_us >= start_us) start_us = clockwork_next(&g->clock) * 1e6;
    }
    return ended(g, false, err);
}

int generate_trace(const struct generate_spec *spec, uint64_t seed, struct trace **ret,
                   struct err *err)
{
    CLEANUP(trace_freep) struct trace *trace = NULL;
    struct generator g = { .spec = spec, .seed = seed };
    int rc = trace_new(&trace, err);
    if (rc == 0) rc = weigh_tenants(&g, err);
    if (rc == 0 && (spec->turns.shape || spec->system_tokens > 0)) {
        trace->block_tokens = (uint32_t)spec->block_tokens;
        g.block = malloc((size_t)(spec->context / spec->block_tokens + 2) * sizeof *g.block);
        if (!g.block) rc = err_set(err, -ENOMEM, "no memory for blocks");
    }
    if (rc == 0) {
        g.trace = trace;
        clockwork_init(&g.clock, spec, seed);
        heap_init(&g.live, LIVE_MAX);
        rc = run(&g, err);
        struct heap_node *left;
        while ((left = heap_pop(&g.live)))
            free(left);
        heap_fini(&g.live);
    }
    free(g.weight);
    free(g.block);
    if (rc == 0) *ret = TAKE(trace);
    return rc;
}
