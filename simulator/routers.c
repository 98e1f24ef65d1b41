/* routers.c - the product's router cores: what they are told, and what they answer.
 *
 * Every router has its own dispatch, ledger, index and predictor, as in the product; requests fall on
 * them by chance. A dispatch learns of tokens as they stream through it, of blocks after event_lag_us
 * and of everything else from reports.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "simulator/flight.h"
#include "simulator/run.h"

#include <stdio.h>

uint64_t routers_model(uint32_t service)
{
    return hash64(&service, sizeof service, 0x5e71);
}

/* ---- start ---------------------------------------------------------------------------------- */

int routers_start(struct run *run, struct err *err)
{
    const struct sim_config *sim = &run->config;
    for (uint32_t i = 0; i < sim->routers; i++) {
        struct dispatch_config config = {
            .route = sim->route,
            .predict = sim->predict,
            .index_bytes = sim->bounds.index_bytes,
            .endpoints_max = run->places_max,
            .requests_max = sim->bounds.requests_max,
            .held_max = sim->bounds.held_max,
            .hold_us_max = sim->bounds.hold_us_max,
            .key_tokens = run->block_tokens,
            .seed = rng_at(sim->seed, ((uint64_t)WORLD_TIES << 32) + i),
        };
        int rc = dispatch_new(&config, &run->router[i].dispatch, err);
        if (rc < 0) return rc;
        dispatch_peers_set(run->router[i].dispatch, i, sim->routers);
        run->router_count++;
    }
    return 0;
}

void routers_stop(struct run *run)
{
    for (uint32_t i = 0; i < run->router_count; i++)
        dispatch_free(run->router[i].dispatch);
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
    struct dispatch_endpoint ep = {
        .model = routers_model(pool->service),
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
        .price_per_hour = pool->price_h,
    };
    name_of(in, ep.name);
    for (uint32_t i = 0; i < run->router_count; i++) {
        uint32_t slot;
        must(dispatch_endpoint_put(run->router[i].dispatch, &ep, &slot) == 0);
        must(slot == in->config.place); /* routers see launches and ends in one order */
    }
}

void routers_endpoint_gone(struct run *run, const struct instance *in)
{
    for (uint32_t i = 0; i < run->router_count; i++)
        dispatch_endpoint_remove(run->router[i].dispatch, in->config.place);
}

/* Tells a router what the others sent. */
static void report(struct run *run, struct instance *in)
{
    struct reported_load said;
    instance_report(in, run->now_us, &said);
    for (uint32_t i = 0; i < run->router_count; i++)
        dispatch_endpoint_report(run->router[i].dispatch, in->config.place, &said, run->now_us,
                                 run->now_us);
}

/* A router that is alone knows all of it from its own ledger. */
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

static void finish(struct run *run, struct flight *f, enum sim_end end)
{
    demand_ended(run, f, end);
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

/* A router that is full answers before it looks at the request: nobody else hears of it. */
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

/* With a peer's pages first, where the verdict names one. */
static bool send_out(struct run *run, struct flight *f)
{
    if (kv_transfers_fetch(run, f)) return true;
    kv_transfers_sent(run, f);
    return submit(run, f);
}

/* Follows the dispatch's answers until the request is somewhere: sent, held or refused. */
static void follow(struct run *run, struct flight *f, struct dispatch_verdict v)
{
    while (v.answer == DISPATCH_SEND) {
        f->instance = f->dispatch.slot;
        if (send_out(run, f)) {
            run->instance[f->instance]->routed_tokens += f->dispatch.prompt_tokens;
            return;
        }
        kv_transfers_forget(run, f);
        v = dispatch_fail(run->router[f->router].dispatch, &f->dispatch, RETRY_OVERLOADED,
                          run->now_us);
    }
    if (v.answer == DISPATCH_REFUSE) {
        count_refused(run, v.status);
        finish(run, f, f->generated > 0 ? SIM_FAILED : SIM_REJECTED);
    } else {
        struct dispatch_request *out = dispatch_displaced(run->router[f->router].dispatch, &v);
        if (out) {
            count_refused(run, v.status);
            finish(run, CONTAINER_OF(out, struct flight, dispatch), SIM_REJECTED);
        }
        set_held_timer(run, f->router);
    }
}

void routers_look_at_held(struct run *run, uint32_t router)
{
    struct dispatch_verdict v;
    struct dispatch_request *c;
    while ((c = dispatch_held_next(run->router[router].dispatch, run->now_us, &v)))
        follow(run, CONTAINER_OF(c, struct flight, dispatch), v);
    set_held_timer(run, router);
}

/* Block keys as a router chains them: of the trace's own blocks for an engine whose pages have
 * that size, else of the ids. */
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
    struct dispatch_request *c = &f->dispatch;
    c->model = routers_model(r->service);
    c->prompt_tokens = r->prompt_tokens;
    c->keys = f->keys;
    c->key_count = f->key_count;
    struct sim_slo slo = sim_slo_of(&run->config, r->service);
    c->slo_ttft_s = slo.ttft_s;
    c->slo_tpot_s = slo.tpot_s;
    c->refuse_late = slo.refuse_late;
    c->weight = sim_tenant_weight(&run->config, r->tenant);
    trace_features_of(run->features, f->request, f->key_count ? f->keys[0].lo : 0, &c->features);
}

/* The router tells the controller soon. */
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
        finish(run, f, SIM_TOO_LONG);
        return;
    }
    must(set_keys(run, f, r));
    describe(run, f, r);
    struct dispatch_verdict v =
        dispatch_arrive(run->router[f->router].dispatch, &f->dispatch, run->now_us);
    demand_arrived(run, f);
    if (v.answer == DISPATCH_REFUSE) demand_refused(run, f);
    if (v.answer == DISPATCH_WAIT) hurry(run, router);
    follow(run, f, v);
}

void routers_tokens(struct run *run, struct flight *f, uint32_t count)
{
    dispatch_tokens(run->router[f->router].dispatch, &f->dispatch, count, run->now_us);
    kv_transfers_tokens(run, f);
}

void routers_ended(struct run *run, struct flight *f)
{
    uint32_t router = f->router;
    const struct trace_request *r = &run->trace->request[f->request];
    bool cut = r->output_max && f->generated >= r->output_max;
    dispatch_end(run->router[router].dispatch, &f->dispatch, f->generated, cut, run->now_us);
    finish(run, f, SIM_COMPLETED);
    routers_look_at_held(run, router);
}

void routers_sliced(struct run *run, struct flight *f)
{
    uint32_t router = f->router;
    f->dispatch.generated = f->generated;
    follow(run, f, dispatch_slice_end(run->router[router].dispatch, &f->dispatch, run->now_us));
    routers_look_at_held(run, router);
}

/* The engine did not take it, or took it and let it go before it ran. */
void routers_displaced(struct run *run, struct flight *f)
{
    struct dispatch *dispatch = run->router[f->router].dispatch;
    kv_transfers_forget(run, f);
    f->dispatch.generated = f->generated;
    follow(run, f, dispatch_fail(dispatch, &f->dispatch, RETRY_OVERLOADED, run->now_us));
}

void routers_deliver(struct run *run, struct flight *f)
{
    if (!submit(run, f)) routers_displaced(run, f);
}

/* What is told of its answer goes along: the next instance computes it behind the prompt. */
void routers_died(struct run *run, struct flight *f)
{
    f->dispatch.generated = f->generated;
    struct dispatch *dispatch = run->router[f->router].dispatch;
    struct dispatch_verdict v = dispatch_fail(dispatch, &f->dispatch, RETRY_DIED, run->now_us);
    if (f->generated > 0 && v.answer != DISPATCH_REFUSE) {
        run->result->resumed++;
        run->result->resumed_tokens += f->dispatch.prompt_tokens + f->generated;
    }
    follow(run, f, v);
}
