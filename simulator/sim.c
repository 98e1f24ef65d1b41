/* sim.c - the loop: the next thing that happens, in order of time and rank. */
#include "simulator/sim.h"

#include "base/core/bits.h"
#include "policies/roofline.h"
#include "simulator/run.h"

#include <stdlib.h>

#define REPORT_US 1000000 /* how often engines say what they learned of their speed */
#define LINK_BYTES_S 25e9 /* a 200 Gb/s port */
#define LINK_US 500
#define DAY_S 86400.0
#define DRAIN_S 3600  /* after the last arrival */
#define SWAP_BPS 25e9 /* PCIe 4.0 x16, of which 31.5e9 are the wire's */
#define SEQS_MAX 256
#define BATCH_TOKENS_MAX 2048
#define OUTPUT_MAX 8192
#define PAGE_TOKENS 16
#define PAGE_TOKENS_SHARED 64
#define EVENTS_MORE (SIM_ROUTERS_MAX + 16) /* beside those of instances */
#define PLACES_MORE 16                     /* where it scales, beside twice what may serve */

/* The rank makes the order of one microsecond independent of who was asked first. */
void run_at(struct run *run, struct heap_node *node, int64_t at_us, uint32_t rank)
{
    if (heap_has(node)) heap_remove(&run->events, node);
    if (at_us == INT64_MAX) return;
    must(heap_push(&run->events, node, at_us * RUN_RANKS + rank) == 0);
}

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

static int pool_check(const struct sim_config *c, const struct sim_pool *p, struct err *err)
{
    if (p->has_step && !perf_coef_valid(&p->step)) {
        return err_set(err, -EINVAL,
                       "measured step seconds must be finite, not negative and not all zero");
    }
    if (p->has_step && c->kv_tokens == 0) {
        return err_set(err, -EINVAL,
                       "measured step seconds need kv_tokens: nothing else says how "
                       "much an instance holds");
    }
    if (!p->hardware) return 0;
    const struct model_spec *model = sim_pool_model(c, p);
    struct roofline r;
    if (!roofline_init(&r, p->hardware, model, p->tp)) {
        return err_set(err, -EINVAL, "%s cannot be split over %u of %s", model->name, p->tp,
                       p->hardware->name);
    }
    if (c->kv_tokens == 0 && roofline_kv_tokens(&r) == 0) {
        return err_set(err, -EINVAL,
                       "%s does not fit into %u x %s: use more of them (tp) or "
                       "another type",
                       model->name, p->tp, p->hardware->name);
    }
    return 0;
}

/* Somebody computes prompts, and somebody answers; a role row would see to both. */
static int roles_check(const struct sim_config *c, struct err *err)
{
    uint64_t prefills = 0, decodes = 0;
    if (c->role) return 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        uint64_t service = 1ULL << c->pool[p].service;
        if (c->pool[p].role != ROLE_DECODE) prefills |= service;
        if (c->pool[p].role != ROLE_PREFILL) decodes |= service;
    }
    if (prefills == decodes) return 0;
    return err_set(
        err, -EINVAL, "a fleet with %s instances alone serves nobody: add %s ones, or --role",
        decodes & ~prefills ? "decode" : "prefill", decodes & ~prefills ? "prefill" : "decode");
}

/* Every service of the trace has a pool, and what only knows one service gets one. */
static int services_check(const struct sim_config *c, const struct trace *trace, struct err *err)
{
    uint64_t served = 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        if (c->pool[p].service >= SIM_SERVICES_MAX) {
            return err_set(err, -EINVAL, "services are numbered 0 to %d", SIM_SERVICES_MAX - 1);
        }
        served |= 1ULL << c->pool[p].service;
    }
    for (uint32_t i = 0; i < trace->count; i++) {
        uint32_t service = trace->request[i].service;
        if (service < SIM_SERVICES_MAX && served >> service & 1) continue;
        return err_set(err, -EINVAL, "request %u asks for service %u, which no pool serves", i,
                       service);
    }
    bool moves = c->migrate && c->migrate != migrate_find(STR(MIGRATE_DEFAULT));
    if (served != 1 && (moves || c->role)) {
        return err_set(err, -EINVAL, "migration and roles are simulated for one service, number 0");
    }
    return 0;
}

static int config_check(const struct sim_config *c, const struct trace *trace, struct err *err)
{
    uint32_t serial = 0, instances = 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        const struct sim_pool *pool = &c->pool[p];
        serial += sim_pool_is_serial(pool);
        instances += c->scaling ? c->scaling->pool[p].max : pool->count;
        int rc = pool_check(c, pool, err);
        if (rc < 0) return rc;
    }
    if (trace->count == 0) return err_set(err, -EINVAL, "the trace has no requests");
    if (instances == 0) return err_set(err, -EINVAL, "a fleet needs at least one instance");
    if (instances > SIM_INSTANCES_MAX) {
        return err_set(err, -EINVAL, "a fleet has at most %d instances, not %u", SIM_INSTANCES_MAX,
                       instances);
    }
    if (serial > 0 && serial < c->pool_count) {
        return err_set(err, -EINVAL,
                       "ref8000 cannot be mixed with other hardware: its cache has "
                       "blocks of another size");
    }
    if (serial > 0 && c->role) return err_set(err, -EINVAL, "ref8000 has no roles to give");
    if (c->routers == 0 || c->routers > SIM_ROUTERS_MAX) {
        return err_set(err, -EINVAL, "routers: 1 to %d, not %u", SIM_ROUTERS_MAX, c->routers);
    }
    double span_s =
        (double)(trace->request[trace->count - 1].at_us - trace->request[0].at_us) * 1e-6;
    if (span_s > TRACE_SPAN_S_MAX) {
        return err_set(err, -EINVAL, "the trace's arrivals span %.0f days, at most %.0f",
                       span_s / DAY_S, TRACE_SPAN_S_MAX / DAY_S);
    }
    int rc = services_check(c, trace, err);
    return rc == 0 ? roles_check(c, err) : rc;
}

/* The product's own defaults; pages of 64 tokens where prompts share blocks, because as much is
 * found in them in a quarter of the time. */
static struct sim_config resolved(const struct sim_config *config, const struct trace *trace)
{
    struct sim_config c = *config;
    if (!c.route) c.route = route_find(STR(ROUTE_DEFAULT));
    if (!c.predict) c.predict = predict_find(STR(PREDICT_DEFAULT));
    struct step_rows rows = { c.fair, c.order, c.admit, c.preempt, c.chunk, c.evict };
    preset_fill(c.preset, &rows);
    c.fair = rows.fair, c.order = rows.order, c.admit = rows.admit;
    c.preempt = rows.preempt, c.chunk = rows.chunk, c.evict = rows.evict;
    if (c.swap_bps <= 0) c.swap_bps = SWAP_BPS;
    if (!c.perf) c.perf = perf_find(STR(PERF_DEFAULT));
    if (!c.power) c.power = power_find(STR(POWER_DEFAULT));
    if (!c.migrate) c.migrate = migrate_find(STR(MIGRATE_DEFAULT));
    if (c.link_bytes_s <= 0) c.link_bytes_s = LINK_BYTES_S;
    if (c.link_us == 0) c.link_us = LINK_US;
    if (c.seqs_max == 0) c.seqs_max = SEQS_MAX;
    if (c.batch_tokens_max == 0) c.batch_tokens_max = BATCH_TOKENS_MAX;
    if (c.output_max == 0) c.output_max = OUTPUT_MAX;
    if (c.page_tokens == 0) c.page_tokens = trace->block_tokens ? PAGE_TOKENS_SHARED : PAGE_TOKENS;
    if (c.report_delay_us == 0) c.report_delay_us = REPORT_US;
    if (c.drain_s <= 0) c.drain_s = DRAIN_S;
    return c;
}

/* A fleet that scales replaces instances that are still draining. */
static uint32_t places_for(const struct sim_config *c)
{
    uint32_t sum = 0;
    for (uint32_t p = 0; p < c->pool_count; p++)
        sum += c->scaling ? 2 * c->scaling->pool[p].max : c->pool[p].count;
    return c->scaling ? min_u32(sum + PLACES_MORE, SIM_INSTANCES_MAX) : sum;
}

static int start_fleet(struct run *run, struct err *err)
{
    int rc = moves_start(run, err);
    if (rc == 0) rc = roles_start(run, err);
    if (rc == 0) rc = clocks_start(run, err);
    if (rc == 0) rc = routers_start(run, err);
    if (rc == 0) rc = scaling_start(run, err);
    return rc < 0 ? rc : fleet_start(run, err);
}

static int start(struct run *run, struct err *err)
{
    const struct sim_config *sim = &run->config;
    run->world = (struct world){ .trace = run->trace,
                                 .seed = sim->seed,
                                 .bias_sigma = sim->bias_sigma,
                                 .residual_sigma = sim->residual_sigma };
    run->key_seed = rng_at(sim->seed, 0x5eed);
    run->places_max = places_for(sim);
    run->instance = calloc(run->places_max, sizeof(struct instance *));
    heap_init(&run->events, run->places_max + EVENTS_MORE);
    flights_init(&run->flights);
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

static void stop(struct run *run)
{
    fleet_stop(run);
    routers_stop(run);
    scaling_stop(run);
    moves_stop(run);
    roles_stop(run);
    clocks_stop(run);
    flights_fini(&run->flights);
    feed_fini(&run->feed);
    heap_fini(&run->events);
    trace_features_free(run->features);
    free(run->ids);
    free(run->instance);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void report_due(struct run *run)
{
    routers_report(run);
    moves_stranded(run);
    run_at(run, &run->report, run->now_us + run->config.report_delay_us, RANK_REPORT);
}

/* Skips the queue of events: the instance's steps follow each other directly until somebody else's
 * event, or an arrival, comes first. Who comes first in one microsecond is decided as the queue
 * would, so the digest is that of an `exact` run. */
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

static void happen(struct run *run, struct heap_node *node, int64_t until_us)
{
    uint32_t rank = (uint32_t)(node->key % RUN_RANKS);
    run->now_us = node->key / RUN_RANKS;
    heap_remove(&run->events, node);
    run->event_count++;
    if (rank < RANK_COPY) {
        advance(run, rank, until_us);
    } else if (rank == RANK_COPY) {
        moves_arrived(run);
    } else if (rank == RANK_LOOK) {
        moves_look(run);
    } else if (rank == RANK_ROLES) {
        roles_look(run);
    } else if (rank < RANK_REPORT) {
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

/* When the time for draining is over. */
static int64_t last_us(const struct run *run)
{
    const struct trace *t = run->trace;
    return t->request[t->count - 1].at_us + (int64_t)(run->config.drain_s * 1e6);
}

/* The loop ends when every request has, or when the time for draining is over. */
static void loop(struct run *run)
{
    const struct trace *t = run->trace;
    int64_t end_us = last_us(run);
    run_at(run, &run->report, t->request[0].at_us, RANK_REPORT);
    run_at(run, &run->clocks.due, t->request[0].at_us, RANK_POWER);
    for (uint32_t next = 0; next < t->count || run->flights.taken > 0;) {
        struct heap_node *node = heap_peek(&run->events);
        int64_t event_us = node ? node->key / RUN_RANKS : INT64_MAX;
        int64_t arrival_us = next < t->count ? t->request[next].at_us : INT64_MAX;
        if (min_i64(event_us, arrival_us) > end_us) return;
        if (event_us <= arrival_us) {
            happen(run, node, min_i64(arrival_us, end_us));
        } else {
            run->now_us = arrival_us;
            run->event_count++;
            routers_arrive(run, next++);
        }
    }
}

/* The run ends when the last answer does; while one is missing, when the time for draining is over. */
static void sum_up(struct run *run)
{
    const struct trace *t = run->trace;
    struct sim_result *r = run->result;
    tally_close(r);
    int64_t from_us = t->request[0].at_us;
    run->now_us =
        r->ended[SIM_UNFINISHED] > 0 ? last_us(run) : from_us + (int64_t)(r->span_s * 1e6);
    r->stood_s = (double)(run->now_us - from_us) * 1e-6;
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
    int rc = config_check(config, trace, err);
    if (rc < 0) return rc;
    struct run *run = calloc(1, sizeof *run);
    if (!run) return err_set(err, -ENOMEM, "simulator: no memory");
    struct sim_result result;
    run->config = resolved(config, trace);
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
