/* sim.c - the loop: the next thing that happens, in order of time and rank. */
#include "simulator/sim.h"

#include "base/core/bits.h"
#include "policies/roofline.h"
#include "simulator/run.h"

#include <stdlib.h>

#define REPORT_US 1000000 /* how often engines say what they learned of their speed */
#define DRAIN_S 3600      /* after the last arrival */
#define EVENTS_MAX (SIM_INSTANCES_MAX + SIM_ROUTERS_MAX + 16)

/* The rank makes the order of one microsecond independent of who was asked first. */
void run_at(struct run *run, struct heap_node *node, int64_t at_us, uint32_t rank)
{
    if (heap_has(node)) heap_remove(&run->events, node);
    if (at_us == INT64_MAX) return;
    must(heap_push(&run->events, node, at_us * RUN_RANKS + rank) == 0);
}

/* ---- what instances tell -------------------------------------------------------------------- */

static void on_tokens(void *arg, struct flight *f, uint32_t count, int64_t first_us,
                      int64_t last_us)
{
    struct run *run = arg;
    tally_tokens(run->result, f, count, first_us, last_us);
    routers_tokens(run, f, count);
}

static void on_ended(void *arg, struct flight *f, int64_t now_us)
{
    (void)now_us;
    routers_ended(arg, f);
}

static void on_block(void *arg, uint32_t instance, struct block_key key, bool add, int64_t now_us)
{
    struct run *run = arg;
    struct feed_event ev = { now_us + run->config->event_lag_us, key, instance, add };
    must(feed_push(&run->feed, &ev));
}

/* ---- set-up --------------------------------------------------------------------------------- */

static int add_instances(struct run *run, struct err *err)
{
    const struct sim_config *sim = run->config;
    for (uint32_t p = 0; p < sim->pool_count; p++) {
        struct instance_limits limits;
        instance_limits_get(sim, &sim->pool[p], &limits);
        run->context_max = max_u32(run->context_max, limits.context_max);
        run->result->extrapolated |= limits.extrapolated;
        for (uint32_t i = 0; i < sim->pool[p].count; i++) {
            if (run->instance_count == SIM_INSTANCES_MAX) {
                return err_set(err, -EINVAL, "a fleet has at most %d instances", SIM_INSTANCES_MAX);
            }
            struct instance_config config = {
                .sim = sim,
                .world = &run->world,
                .pool = &sim->pool[p],
                .id = run->instance_count,
                .key_seed = run->key_seed,
                .block_tokens = run->trace->block_tokens,
                .hooks = { run, on_tokens, on_ended, on_block },
            };
            int rc = instance_new(&config, &run->instance[run->instance_count], err);
            if (rc < 0) return rc;
            run->instance_count++;
        }
    }
    return 0;
}

static bool pool_is_serial(const struct sim_pool *p)
{
    return !p->hardware && !p->has_step;
}

static int pool_check(const struct sim_config *c, const struct sim_pool *p, struct err *err)
{
    if (p->has_step && !perf_coef_valid(&p->step)) {
        return err_set(err, -EINVAL, "measured step seconds must be finite and not negative");
    }
    if (p->has_step && c->kv_tokens == 0) {
        return err_set(err, -EINVAL,
                       "measured step seconds need kv_tokens: nothing else says how "
                       "much an instance holds");
    }
    if (!p->hardware) return 0;
    struct roofline r;
    if (!roofline_init(&r, p->hardware, &c->model, p->tp)) {
        return err_set(err, -EINVAL, "%s cannot be split over %u of %s", c->model.name, p->tp,
                       p->hardware->name);
    }
    if (c->kv_tokens == 0 && roofline_kv_tokens(&r) == 0) {
        return err_set(err, -EINVAL,
                       "%s does not fit into %u x %s: use more of them (tp) or "
                       "another type",
                       c->model.name, p->tp, p->hardware->name);
    }
    return 0;
}

static int config_check(const struct sim_config *c, const struct trace *trace, struct err *err)
{
    uint32_t serial = 0, instances = 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        const struct sim_pool *pool = &c->pool[p];
        serial += pool_is_serial(pool);
        instances += pool->count;
        int rc = pool_check(c, pool, err);
        if (rc < 0) return rc;
    }
    if (trace->count == 0) return err_set(err, -EINVAL, "the trace has no requests");
    if (instances == 0) return err_set(err, -EINVAL, "a fleet needs at least one instance");
    if (serial > 0 && serial < c->pool_count) {
        return err_set(err, -EINVAL,
                       "ref8000 cannot be mixed with other hardware: its cache has "
                       "blocks of another size");
    }
    if (c->routers == 0 || c->routers > SIM_ROUTERS_MAX) {
        return err_set(err, -EINVAL, "routers: 1 to %d, not %u", SIM_ROUTERS_MAX, c->routers);
    }
    return 0;
}

static int start(struct run *run, struct err *err)
{
    const struct sim_config *sim = run->config;
    run->world = (struct world){ .trace = run->trace,
                                 .seed = sim->seed,
                                 .bias_sigma = sim->bias_sigma,
                                 .residual_sigma = sim->residual_sigma };
    run->key_seed = rng_at(sim->seed, 0x5eed);
    heap_init(&run->events, EVENTS_MAX);
    flights_init(&run->flights);
    int rc = tally_init(run->result, run->trace, err);
    if (rc == 0) rc = add_instances(run, err);
    if (rc < 0) return rc;
    bool serial = pool_is_serial(&sim->pool[0]);
    run->block_tokens = run->trace->block_tokens == 0 ? 0
                        : serial                      ? run->trace->block_tokens
                                                      : BLOCK_TOKENS;
    run->ids = calloc(run->context_max == UINT32_MAX ? 1 : run->context_max, sizeof *run->ids);
    if (!run->ids) return err_set(err, -ENOMEM, "simulator: no memory for a prompt");
    return routers_start(run, err);
}

static void stop(struct run *run)
{
    routers_stop(run);
    for (uint32_t i = 0; i < run->instance_count; i++)
        instance_free(run->instance[i]);
    flights_fini(&run->flights);
    feed_fini(&run->feed);
    heap_fini(&run->events);
    free(run->ids);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void report_due(struct run *run)
{
    routers_report(run);
    int64_t every_us = run->config->report_delay_us ? run->config->report_delay_us : REPORT_US;
    run_at(run, &run->report, run->now_us + every_us, RANK_REPORT);
}

static void happen(struct run *run, struct heap_node *node)
{
    uint32_t rank = (uint32_t)(node->key % RUN_RANKS);
    run->now_us = node->key / RUN_RANKS;
    heap_remove(&run->events, node);
    run->event_count++;
    if (rank < RANK_ROUTER) {
        struct instance *in = run->instance[rank];
        in->kind->advance(in, run->now_us);
        run_at(run, &in->event, in->next_us, rank);
    } else if (rank < RANK_REPORT) {
        routers_look_at_held(run, rank - RANK_ROUTER);
    } else {
        report_due(run);
    }
}

/* The loop ends when every request has, or when the time for draining is over. */
static void loop(struct run *run)
{
    const struct trace *t = run->trace;
    double drain_s = run->config->drain_s > 0 ? run->config->drain_s : DRAIN_S;
    int64_t end_us = t->request[t->count - 1].at_us + (int64_t)(drain_s * 1e6);
    run_at(run, &run->report, t->request[0].at_us, RANK_REPORT);
    for (uint32_t next = 0; next < t->count || run->flights.taken > 0;) {
        struct heap_node *node = heap_peek(&run->events);
        int64_t event_us = node ? node->key / RUN_RANKS : INT64_MAX;
        int64_t arrival_us = next < t->count ? t->request[next].at_us : INT64_MAX;
        if (min_i64(event_us, arrival_us) > end_us) return;
        if (event_us <= arrival_us) {
            happen(run, node);
        } else {
            run->now_us = arrival_us;
            run->event_count++;
            routers_arrive(run, next++);
        }
    }
}

static void sum_up(struct run *run)
{
    struct sim_result *r = run->result;
    uint64_t most = 0, all = 0;
    tally_close(r);
    for (uint32_t i = 0; i < run->instance_count; i++) {
        struct instance *in = run->instance[i];
        struct instance_stats s;
        in->kind->stats(in, &s);
        r->steps += s.steps;
        r->preemptions += s.preemptions;
        r->swaps += s.swaps;
        r->prompt_tokens += s.prompt_tokens;
        r->hit_tokens += s.hit_tokens;
        r->energy_j += s.energy_j;
        uint32_t devices = max_u32(in->config.pool->tp, 1);
        r->instance_seconds += r->span_s;
        r->gpu_seconds += r->span_s * devices;
        r->cost_usd += in->config.pool->price_h * r->span_s / 3600;
        if (in->config.pool->hardware) {
            double idle_s = r->span_s > s.busy_s ? r->span_s - s.busy_s : 0;
            r->energy_j += idle_s * in->config.pool->hardware->watts_idle * devices;
        }
        most = run->routed_tokens[i] > most ? run->routed_tokens[i] : most;
        all += run->routed_tokens[i];
    }
    r->instances_max = run->instance_count;
    r->hotspot = all ? (double)most * run->instance_count / (double)all : 0;
    r->events = run->event_count;
}

int sim_run(const struct sim_config *config, const struct trace *trace, struct sim_result *ret,
            struct err *err)
{
    int rc = config_check(config, trace, err);
    if (rc < 0) return rc;
    struct run *run = calloc(1, sizeof *run);
    if (!run) return err_set(err, -ENOMEM, "simulator: no memory");
    struct sim_result result;
    run->config = config;
    run->trace = trace;
    run->result = &result;
    rc = start(run, err);
    if (rc == 0) {
        loop(run);
        sum_up(run);
        *ret = result;
    } else {
        sim_result_fini(&result);
    }
    stop(run);
    free(run);
    return rc;
}
