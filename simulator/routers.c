/* routers.c - feeds the product's directors with the run's events, and carries out their verdicts.
 *
 * Every router has its own director, ledger, index and predictor, as in the product; each request goes to
 * one of them by chance. A router learns of tokens as they stream through it, of blocks after event_lag_us
 * and of everything else from reports.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "simulator/flight.h"
#include "simulator/run.h"

#include <stdio.h>

/* ---- services ------------------------------------------------------------------------------- */

static struct str service_name(uint32_t service, char ret[16])
{
    return (struct str){ ret, (size_t)snprintf(ret, 16, "s%u", service) };
}

uint64_t routers_model(uint32_t service)
{
    char text[16];
    struct str name = service_name(service, text);
    return hash64(name.data, name.len, 0);
}

/* Tells a router the rules of a controller, once. An instance may always start: the bounds of held requests
 * decide how long one is waited for. */
static void tell_rules(struct run *run, uint32_t router)
{
    struct service_rules service[SIM_SERVICES_MAX] = { 0 };
    char text[SIM_SERVICES_MAX][16];
    for (uint32_t k = 0; k < run->demand.services; k++) {
        const struct sim_slo slo = sim_slo_of(&run->config, k);
        service[k] = (struct service_rules){ .service = service_name(k, text[k]),
                                             .may_start = true,
                                             .slo_ttft_s = slo.ttft_s,
                                             .slo_tpot_s = slo.tpot_s,
                                             .refuse_late = slo.refuse_late };
    }
    const struct router_rules rules = { .services = service,
                                        .service_count = run->demand.services,
                                        .router_index = router,
                                        .router_count = run->config.routers };
    director_rules(run->router[router].director, &rules);
}

/* ---- start ---------------------------------------------------------------------------------- */

int routers_start(struct run *run, struct err *err)
{
    const struct sim_config *sim = &run->config;
    for (uint32_t i = 0; i < sim->routers; i++) {
        const struct director_config config = {
            .dispatch = { .route = sim->route,
                          .predict = sim->predict,
                          .index_bytes = sim->bounds.index_bytes,
                          .endpoints_max = run->places_max,
                          .requests_max = sim->bounds.requests_max,
                          .held_max = sim->bounds.held_max,
                          .hold_us_max = sim->bounds.hold_us_max,
                          .key_tokens = run->block_tokens,
                          .seed = rng_at(sim->seed, ((uint64_t)WORLD_TIES << 32) + i) },
        };
        struct run_router *r = &run->router[i];
        int rc = director_new(&config, &r->director, err);
        if (rc < 0) return rc;
        r->dispatch = director_dispatch(r->director);
        tell_rules(run, i);
        run->router_count++;
    }
    return 0;
}

void routers_stop(struct run *run)
{
    for (uint32_t i = 0; i < run->router_count; i++)
        director_free(run->router[i].director);
}

static void name_of(const struct instance *in, char ret[DISPATCH_NAME_MAX])
{
    snprintf(ret, DISPATCH_NAME_MAX, "i%u", in->config.serial);
}

void routers_endpoint(struct run *run, struct instance *in)
{
    const struct sim_config *sim = &run->config;
    const struct sim_pool *pool = in->config.pool;
    struct instance_limits limits;
    struct instance_load load;
    instance_limits_get(sim, pool, &limits);
    in->kind->load(in, run->now_us, &load);
    struct director_endpoint ep = {
        .known = { .model = routers_model(pool->service),
                   .boot = 1 + (uint64_t)in->config.serial,
                   .ready = in->state == INSTANCE_READY,
                   .role = in->role,
                   .has_perf = true,
                   .perf = load.perf,
                   .token_budget = limits.batch_tokens_max,
                   .seqs_max = limits.seqs_max,
                   .kv_tokens_max = load.kv_tokens_max,
                   .takes_ids = true,
                   .link_bytes_s = sim_pool_is_serial(&sim->pool[0]) ? 0 : sim->link_bytes_s,
                   .kv_bytes_per_token = (uint32_t)model_spec_kv_token_bytes(&sim->model),
                   .price_per_hour = pool->price_h },
        .draining = in->state == INSTANCE_DRAINING,
        .leaves_us = in->leaves_us,
        .group = in->kind->hold ? 1 + (uint64_t)pool->service : 0,
        .page_tokens = sim->page_tokens,
    };
    name_of(in, ep.known.name);
    for (uint32_t i = 0; i < run->router_count; i++) {
        uint32_t slot;
        must(director_endpoint_put(run->router[i].director, &ep, &slot) == 0);
        must(slot == in->config.place); /* routers see launches and ends in one order */
    }
}

void routers_endpoint_gone(struct run *run, const struct instance *in)
{
    for (uint32_t i = 0; i < run->router_count; i++)
        director_endpoint_remove(run->router[i].director, in->config.place);
}

/* Reports an instance's load to the routers, so that each knows the others' part. */
static void report(struct run *run, struct instance *in)
{
    struct reported_load said;
    instance_report(in, run->now_us, &said);
    for (uint32_t i = 0; i < run->router_count; i++)
        dispatch_endpoint_report(run->router[i].dispatch, in->config.place, &said, run->now_us,
                                 run->now_us);
}

/* A single router knows all loads from its own ledger. */
void routers_report(struct run *run)
{
    for (uint32_t i = 0; i < run->places; i++) {
        if (!run->instance[i]) continue;
        routers_endpoint(run, run->instance[i]);
        if (run->router_count > 1) report(run, run->instance[i]);
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

static void deliver_blocks(struct run *run)
{
    struct feed_event ev;
    while (feed_pop(&run->feed, run->now_us, &ev)) {
        const struct instance *in = run->instance[ev.place];
        if (!in || in->config.serial != ev.serial) continue; /* its cache died with it */
        for (uint32_t i = 0; i < run->router_count; i++) {
            struct prefix_index *ix = dispatch_index(run->router[i].dispatch);
            if (ev.add) {
                prefix_index_add(ix, ev.place, ev.key);
            } else {
                prefix_index_drop(ix, ev.place, ev.key);
            }
        }
    }
}

/* Returns what the client measures of a completed output. */
static struct telemetry_outcome outcome_of(const struct flight *f)
{
    int64_t decode_us = f->last_us - f->first_us; /* whole microseconds, as in the router */
    return (struct telemetry_outcome){
        .ttft_s = (double)(f->first_us - f->arrival_us) * 1e-6,
        .tpot_s = f->generated > 1 ? (double)(decode_us / (f->generated - 1)) * 1e-6 : 0,
        .e2e_s = (double)(f->last_us - f->arrival_us) * 1e-6,
        .prompt_tokens = f->routed.dispatch.prompt_tokens,
        .cached_tokens = f->cached_tokens,
        .generated_tokens = f->generated,
    };
}

/* Ends a request. `cut`: its output ended at its limit. */
static void finish(struct run *run, struct flight *f, enum sim_end end, bool cut)
{
    struct director_end over = { .ok = end == SIM_COMPLETED,
                                 .censored = cut,
                                 .generated = f->generated };
    if (over.ok) over.outcome = outcome_of(f);
    director_end(run->router[f->router].director, &f->routed, &over, run->now_us);
    tally_end(run->result, f, end);
    run->misses += !sim_outcome_kept(&run->result->outcome[f->request], &run->config);
    run->router[f->router].requests--;
    flight_give(&run->flights, f);
}

static void count_refused(struct run *run, int status)
{
    run->result->refused_429 += status == 429;
    run->result->refused_503 += status == 503;
}

/* Rejects a request at a full router, which replies before its director sees the request. */
static void turn_away(struct run *run, uint32_t request)
{
    run->result->outcome[request].end = SIM_REJECTED;
    run->misses++;
    count_refused(run, 429);
}

static void set_held_timer(struct run *run, uint32_t router)
{
    struct run_router *r = &run->router[router];
    int64_t at_us = dispatch_held_deadline_us(r->dispatch, run->now_us);
    if (heap_has(&r->held)) heap_remove(&run->events, &r->held);
    if (at_us != INT64_MAX)
        run_at(run, &r->held, max_i64(at_us, run->now_us), RANK_ROUTER + router);
}

static bool submit(struct run *run, struct flight *f)
{
    struct instance *in = run->instance[f->instance];
    if (in->kind->submit(in, f, run->now_us, NULL) < 0) return false;
    list_push_back(&in->flights, &f->on_instance);
    in->in_flight++;
    run_at(run, &in->event, in->next_us, RANK_INSTANCE + f->instance);
    return true;
}

/* Sends a request to its instance; where the verdict names a peer, its pages are fetched first. */
static bool send_out(struct run *run, struct flight *f)
{
    if (kv_transfers_fetch(run, f)) return true;
    kv_transfers_sent(run, f);
    return submit(run, f);
}

/* Follows the director's verdicts until the request is sent, held or refused. Returns true if an attempt
 * failed on the way, so that held requests must be looked at. */
static bool follow(struct run *run, struct flight *f, struct director_verdict v)
{
    bool failed = false;
    while (v.answer == DISPATCH_SEND) {
        f->instance = v.slot;
        if (send_out(run, f)) {
            run->instance[f->instance]->routed_tokens += f->routed.dispatch.prompt_tokens;
            return failed;
        }
        failed = true;
        kv_transfers_forget(run, f);
        director_fail(run->router[f->router].director, &f->routed, RETRY_OVERLOADED, run->now_us,
                      &v);
    }
    if (v.answer == DISPATCH_REFUSE) {
        count_refused(run, v.status);
        finish(run, f, f->generated > 0 ? SIM_FAILED : SIM_REJECTED, false);
    } else {
        if (v.displaced) {
            count_refused(run, v.status);
            finish(run, CONTAINER_OF(v.displaced, struct flight, routed), SIM_REJECTED, false);
        }
        set_held_timer(run, f->router);
    }
    return failed;
}

void routers_look_at_held(struct run *run, uint32_t router)
{
    struct director_verdict v;
    struct director_request *c;
    deliver_blocks(run);
    while ((c = director_held_next(run->router[router].director, run->now_us, &v)))
        follow(run, CONTAINER_OF(c, struct flight, routed), v);
    set_held_timer(run, router);
}

/* Fills a request's block keys as a router chains them: from the trace's own blocks where engines have
 * pages of that size, else from the ids. */
static bool set_keys(struct run *run, struct flight *f, const struct trace_request *r)
{
    if (run->block_tokens == 0 || r->block_count == 0) return true;
    char name[16];
    struct str tenant_name = { name, (size_t)snprintf(name, sizeof name, "%u", r->tenant) };
    f->salt = block_salt(run->key_seed, STR("weights"), STR(""), tenant_name);
    if (run->block_tokens == run->trace->block_tokens) {
        if (!flight_keys_reserve(f, r->block_count)) return false;
        prompt_block_keys(run->trace, r, run->key_seed, f->salt, f->keys);
        f->key_count = r->block_count;
        return true;
    }
    uint32_t keys = r->prompt_tokens / BLOCK_TOKENS;
    if (!flight_keys_reserve(f, keys)) return false;
    prompt_ids(run->trace, r, run->ids);
    f->key_count = block_keys(run->key_seed, f->salt, run->ids, r->prompt_tokens, f->keys, keys);
    return true;
}

static void describe(const struct run *run, struct flight *f, const struct trace_request *r)
{
    struct dispatch_request *c = &f->routed.dispatch;
    c->model = routers_model(r->service);
    c->prompt_tokens = r->prompt_tokens;
    c->keys = f->keys;
    c->key_count = f->key_count;
    c->weight = sim_tenant_weight(&run->config, r->tenant);
    trace_features_of(run->features, f->request, f->key_count ? f->keys[0].lo : 0, &c->features);
}

/* Lets the router report to the controller soon. */
static void hurry(struct run *run, uint32_t router)
{
    if (run->control) scaling_hurry(run, router);
    heard_hurry(run, router);
}

void routers_arrive(struct run *run, uint32_t request)
{
    const struct trace_request *r = &run->trace->request[request];
    deliver_blocks(run);
    uint32_t router =
        (uint32_t)(rng_at(run->config.seed ^ WORLD_ROUTER, request) % run->router_count);
    if (run->router[router].requests == run->config.bounds.requests_max) {
        turn_away(run, request);
        return;
    }
    struct flight *f = flight_take(&run->flights);
    must(f != NULL);
    f->request = request;
    f->router = router;
    f->arrival_us = run->now_us;
    run->router[router].requests++;
    if (r->prompt_tokens >= run->context_max) {
        finish(run, f, SIM_TOO_LONG, false);
        return;
    }
    must(set_keys(run, f, r));
    describe(run, f, r);
    struct director_verdict v;
    director_arrive(run->router[router].director, &f->routed, run->now_us, &v);
    if (v.hurry) hurry(run, router);
    if (follow(run, f, v)) routers_look_at_held(run, router);
}

void routers_tokens(struct run *run, struct flight *f, uint32_t count)
{
    director_tokens(run->router[f->router].director, &f->routed, count, run->now_us);
    kv_transfers_tokens(run, f);
}

void routers_ended(struct run *run, struct flight *f)
{
    uint32_t router = f->router;
    const struct trace_request *r = &run->trace->request[f->request];
    bool cut = r->output_max && f->generated >= r->output_max;
    finish(run, f, SIM_COMPLETED, cut);
    routers_look_at_held(run, router);
}

void routers_sliced(struct run *run, struct flight *f)
{
    uint32_t router = f->router;
    struct director_verdict v;
    f->routed.dispatch.generated = f->generated;
    director_slice_end(run->router[router].director, &f->routed, run->now_us, &v);
    follow(run, f, v);
    routers_look_at_held(run, router);
}

/* Routes a request again after a failure. Its output so far goes along: the next instance computes it
 * behind the prompt. The failure may have freed an instance for held requests. */
static void fail(struct run *run, struct flight *f, enum retry_failure failure)
{
    const uint32_t router = f->router;
    struct director_verdict v;
    deliver_blocks(run);
    f->routed.dispatch.generated = f->generated;
    director_fail(run->router[router].director, &f->routed, failure, run->now_us, &v);
    if (failure == RETRY_DIED && f->generated > 0 && v.answer != DISPATCH_REFUSE) {
        run->result->resumed++;
        run->result->resumed_tokens += f->routed.dispatch.prompt_tokens + f->generated;
    }
    follow(run, f, v);
    routers_look_at_held(run, router);
}

/* The engine refused the request, or let it go before it ran. */
void routers_displaced(struct run *run, struct flight *f)
{
    kv_transfers_forget(run, f);
    fail(run, f, RETRY_OVERLOADED);
}

void routers_deliver(struct run *run, struct flight *f)
{
    if (!submit(run, f)) routers_displaced(run, f);
}

void routers_died(struct run *run, struct flight *f)
{
    fail(run, f, RETRY_DIED);
}
