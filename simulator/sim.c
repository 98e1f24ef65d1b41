/* sim.c - runs the loop of events, in order of time and rank. */
#include "simulator/sim.h"

#include "base/core/bits.h"
#include "simulator/run.h"

#include <stdlib.h>

#define EVENTS_MORE (SIM_ROUTERS_MAX + 16) /* beside those of instances */
#define PLACES_MORE 16 /* if it scales, beside twice the instances that may serve */

/* ---- set-up --------------------------------------------------------------------------------- */

static void set_limits(struct run *run)
{
    for (uint32_t p = 0; p < run->config.pool_count; p++) {
        struct instance_limits limits;
        instance_limits_get(&run->config, &run->config.pool[p], &limits);
        run->context_max = max_u32(run->context_max, limits.context_max);
        run->result->extrapolated |= limits.extrapolated;
    }
}

/* Returns the places of a run: a fleet that scales needs more, as it replaces instances that still drain. */
static uint32_t places_for(const struct sim_config *c)
{
    uint32_t sum = 0;
    for (uint32_t p = 0; p < c->pool_count; p++)
        sum += c->scaling ? 2 * c->scaling->pool[p].max : c->pool[p].count;
    return c->scaling ? min_u32(sum + PLACES_MORE, SIM_INSTANCES_MAX) : sum;
}

static int start_fleet(struct run *run, struct err *err)
{
    int rc = demand_start(run, err);
    if (rc == 0) rc = heard_start(run, err);
    if (rc == 0) rc = kv_transfers_start(run, err);
    if (rc == 0) rc = roles_start(run, err);
    if (rc == 0) rc = clocks_start(run, err);
    if (rc == 0) rc = routers_start(run, err);
    if (rc == 0) rc = scaling_start(run, err);
    return rc < 0 ? rc : fleet_start(run, err);
}

int run_start(struct run *run, struct err *err)
{
    const struct sim_config *sim = &run->config;
    run->key_seed = rng_at(sim->seed, 0x5eed);
    run->places_max = places_for(sim);
    run->instance = calloc(run->places_max, sizeof(struct instance *));
    heap_init(&run->events, run->places_max + EVENTS_MORE);
    flights_init(&run->flights);
    if (world_open(&run->world, run->trace, sim) < 0)
        return err_set(err, -ENOMEM, "simulator: no memory for %u requests", run->trace->count);
    int rc = tally_init(run->result, run->trace, err);
    if (rc < 0) return rc;
    set_limits(run);
    bool serial = sim_pool_is_serial(&sim->pool[0]);
    run->block_tokens = run->trace->block_tokens == 0 ? 0
                        : serial                      ? run->trace->block_tokens
                                                      : BLOCK_TOKENS;
    rc = trace_features_new(run->trace, &run->features, err);
    if (rc < 0) return rc;
    const char *missing = predict_missing(run->config.predict, run->features->have);
    if (missing) {
        return err_set(err, -ENODATA, "predictor %s is not applicable: the trace has no %s",
                       run->config.predict->name, missing);
    }
    run->ids = calloc(run->context_max == UINT32_MAX ? 1 : run->context_max, sizeof *run->ids);
    if (!run->ids || !run->instance)
        return err_set(err, -ENOMEM, "simulator: no memory for a fleet");
    run->now_us = run->trace->request[0].at_us;
    return start_fleet(run, err);
}

void run_stop(struct run *run)
{
    fleet_stop(run);
    routers_stop(run);
    demand_stop(run);
    heard_stop(run);
    scaling_stop(run);
    kv_transfers_stop(run);
    roles_stop(run);
    clocks_stop(run);
    flights_fini(&run->flights);
    feed_fini(&run->feed);
    heap_fini(&run->events);
    trace_features_free(run->features);
    world_close(&run->world);
    free(run->ids);
    free(run->instance);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void report_due(struct run *run)
{
    routers_report(run);
    heard_report(run);
    run_at(run, &run->report, run->now_us + run->config.report_delay_us, RANK_REPORT);
}

/* Skips the queue of events: the instance's steps follow each other directly until another event, or an
 * arrival, comes first. The order within one microsecond is that of the queue, so the digest is that of
 * an `exact` run. */
static void advance(struct run *run, uint32_t place, int64_t until_us)
{
    struct instance *in = run->instance[place];
    in->kind->advance(in, run->now_us);
    while (!run->config.exact && !run->drained && in->next_us <= until_us) {
        run_at(run, &in->event, INT64_MAX, place); /* a request may have come back to it */
        const struct heap_node *other = heap_peek(&run->events);
        if (other && other->key < in->next_us * RUN_RANKS + place) break;
        run->now_us = in->next_us;
        run->event_count++;
        in->kind->advance(in, run->now_us);
    }
    run_at(run, &in->event, in->next_us, place);
}

void run_happen(struct run *run, struct heap_node *node, int64_t until_us)
{
    uint32_t rank = (uint32_t)(node->key % RUN_RANKS);
    run->now_us = node->key / RUN_RANKS;
    heap_remove(&run->events, node);
    run->event_count++;
    if (rank < RANK_COPY) {
        advance(run, rank, until_us);
    } else if (rank == RANK_COPY) {
        kv_transfers_over(run);
    } else if (rank == RANK_SYNC) {
        heard_sync(run);
    } else if (rank == RANK_TELL) {
        kv_transfers_tell(run);
    } else if (rank == RANK_LOOK) {
        kv_transfers_look(run);
    } else if (rank == RANK_ROLES) {
        roles_look(run);
    } else if (rank >= RANK_ROUTER && rank < RANK_CONTROL) {
        routers_look_at_held(run, rank - RANK_ROUTER);
    } else if (rank == RANK_CONTROL) {
        scaling_due(run);
    } else if (rank == RANK_POWER) {
        clocks_due(run);
    } else {
        report_due(run);
    }
    if (run->drained) fleet_sweep(run);
}

/* Returns when the time for draining is over. */
static int64_t last_us(const struct run *run)
{
    const struct trace *t = run->trace;
    return t->request[t->count - 1].at_us + (int64_t)(run->config.drain_s * 1e6);
}

/* Runs events and arrivals until every request has ended, the time for draining is over, or too many
 * requests have missed their SLO. */
static void loop(struct run *run)
{
    const struct trace *t = run->trace;
    int64_t end_us = last_us(run);
    run_at(run, &run->report, t->request[0].at_us, RANK_REPORT);
    run_at(run, &run->clocks.tick, t->request[0].at_us, RANK_POWER);
    for (uint32_t next = 0; next < t->count || run->flights.taken > 0;) {
        struct heap_node *node = heap_peek(&run->events);
        int64_t event_us = node ? node->key / RUN_RANKS : INT64_MAX;
        int64_t arrival_us = next < t->count ? t->request[next].at_us : INT64_MAX;
        if (min_i64(event_us, arrival_us) > end_us) return;
        if (run->misses > run->config.misses_max) return;
        if (event_us <= arrival_us) {
            run_happen(run, node, min_i64(arrival_us, end_us));
        } else {
            run->now_us = arrival_us;
            run->event_count++;
            routers_arrive(run, next++);
        }
    }
}

/* Sums the run up. It ends when the last request does, or, if one never ended, when the time for draining is
 * over. */
static void sum_up(struct run *run)
{
    struct sim_result *r = run->result;
    tally_close(r);
    if (r->ended[SIM_UNFINISHED] > 0) run->now_us = last_us(run);
    r->stood_s = (double)run_elapsed_us(run) * 1e-6;
    fleet_stop(run);
    scaling_sum_up(run);
    if (run->routed_tokens) {
        r->hotspot = run->hottest * run->ready_s / (double)run->routed_tokens;
    }
    r->events = run->event_count;
}

int sim_run(const struct sim_config *config, const struct trace *trace, struct sim_result *ret,
            struct err *err)
{
    int rc = sim_config_check(config, trace, err);
    if (rc < 0) return rc;
    struct run *run = calloc(1, sizeof *run);
    if (!run) return err_set(err, -ENOMEM, "simulator: no memory");
    struct sim_result result;
    run->config = sim_config_resolved(config, trace);
    run->trace = trace;
    run->result = &result;
    rc = run_start(run, err);
    if (rc == 0) {
        loop(run);
        sum_up(run);
        *ret = result;
    } else {
        sim_result_fini(&result);
    }
    run_stop(run);
    free(run);
    return rc;
}
