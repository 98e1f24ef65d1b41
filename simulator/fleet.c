/* fleet.c - launches, drains and ends instances, and accounts for the work and cost of each.
 *
 *     fleet_launch ──► STARTING ──► fleet_ready ──► READY ──► fleet_drain ──► DRAINING ──► gone
 *                          └──────────────┴────────── fleet_kill ───────────────┴────────► gone
 *
 * An instance keeps one place, which is its slot in every router; a place is given again only
 * when the last request of its former instance has ended. Billing runs from launch to the end,
 * as clouds bill.
 */
#include "base/core/bits.h"
#include "base/perf/roofline.h"
#include "simulator/run.h"

#include <math.h>

#define NEVER_READY INT64_MAX

/* An instance that was ready for less, and for less than half of the run so far, has no rate that is
 * worth comparing. */
#define HOTSPOT_S 60.0

static void on_tokens(void *arg, struct flight *f, uint32_t count, int64_t first_us,
                      int64_t last_us)
{
    struct run *run = arg;
    tally_tokens(run->result, f, count, first_us, last_us);
    routers_tokens(run, f, count);
}

static void depart(void *arg, struct flight *f, void (*next)(struct run *run, struct flight *f))
{
    struct run *run = arg;
    list_remove(&f->on_instance);
    kv_transfers_forget(run, f);
    struct instance *in = run->instance[f->instance];
    in->in_flight--;
    next(run, f);
    if (in->in_flight == 0 && in->state == INSTANCE_DRAINING) run->drained = true;
}

static void on_displaced(void *arg, struct flight *f, int64_t now_us)
{
    (void)now_us;
    depart(arg, f, routers_displaced);
}

static void on_ended(void *arg, struct flight *f, int64_t now_us)
{
    (void)now_us;
    depart(arg, f, routers_ended);
}

static void on_sliced(void *arg, struct flight *f, int64_t now_us)
{
    (void)now_us;
    depart(arg, f, routers_sliced);
}

static void on_prefilled(void *arg, struct flight *f, int64_t now_us)
{
    f->held_us = now_us;
    kv_transfers_prefilled(arg, f);
}

static void on_stands(void *arg, struct flight *f, int64_t now_us)
{
    (void)now_us;
    kv_transfers_stands(arg, f);
}

/* Returns true if the instance has no flight and no transfer on its way to it. */
static bool is_empty(const struct run *run, const struct instance *in)
{
    return in->in_flight == 0 && kv_transfers_incoming(run, in) == 0;
}

static void on_block(void *arg, const struct instance *in, struct block_key key, bool add,
                     int64_t now_us)
{
    struct run *run = arg;
    struct feed_event ev = { .due_us = now_us + run->config.event_lag_us,
                             .key = key,
                             .serial = in->config.serial,
                             .place = in->config.place,
                             .add = add };
    must(feed_push(&run->feed, &ev));
}

static uint32_t free_place(const struct run *run)
{
    uint32_t place = 0;
    while (place < run->places_max && run->instance[place])
        place++;
    return place;
}

int fleet_launch(struct run *run, uint32_t pool, struct instance **ret, struct err *err)
{
    uint32_t place = free_place(run);
    if (place == run->places_max) {
        return err_set(err, -ENOSPC, "this fleet has at most %u instances", run->places_max);
    }
    struct instance_config config = {
        .sim = &run->config,
        .world = &run->world,
        .pool = &run->config.pool[pool],
        .serial = run->launched,
        .place = place,
        .key_seed = run->key_seed,
        .block_tokens = run->trace->block_tokens,
        .hooks = { run, on_tokens, on_ended, on_displaced, on_sliced, on_prefilled, on_stands,
                   on_block },
    };
    struct instance *in;
    int rc = instance_new(&config, &in, err);
    if (rc < 0) return rc;
    in->role = config.pool->role;
    in->launched_us = run->now_us;
    in->ready_us = NEVER_READY;
    run->launched++;
    run->instance[place] = in;
    kv_transfers_instance_new(run, in);
    run->places = max_u32(run->places, place + 1);
    run->alive++;
    run->result->instances_max = max_u32(run->result->instances_max, run->alive);
    uint32_t service = config.pool->service, alive = ++run->alive_of[service];
    struct sim_share *share = &run->result->service[service];
    share->instances_max = max_u32(share->instances_max, alive);
    routers_endpoint(run, in);
    *ret = in;
    return 0;
}

/* Tells the routers of a ready instance, and lets them send it held requests. */
static void serve(struct run *run, struct instance *in)
{
    in->state = INSTANCE_READY;
    roles_moved(run);
    routers_endpoint(run, in);
    for (uint32_t r = 0; r < run->router_count; r++)
        routers_look_at_held(run, r);
}

void fleet_ready(struct run *run, struct instance *in)
{
    in->ready_us = run->now_us;
    heard_ready(run, in);
    serve(run, in);
}

void fleet_drain(struct run *run, struct instance *in)
{
    in->state = INSTANCE_DRAINING;
    roles_moved(run);
    routers_endpoint(run, in);
}

void fleet_keep(struct run *run, struct instance *in)
{
    serve(run, in);
}

/* Adds an instance's work and cost until now to the result. */
static void account(struct run *run, struct instance *in)
{
    struct sim_result *r = run->result;
    const struct sim_pool *pool = in->config.pool;
    struct instance_stats s;
    in->kind->stats(in, &s);
    r->steps += s.steps;
    r->preemptions += s.preemptions;
    r->swaps += s.swaps;
    r->prompt_tokens += s.prompt_tokens;
    r->hit_tokens += s.hit_tokens;
    r->energy_j += s.energy_j;
    r->extrapolated |= s.extrapolated;
    double alive_s = (double)(run->now_us - in->launched_us) * 1e-6;
    uint32_t devices = max_u32(pool->tp, 1);
    r->instance_seconds += alive_s;
    r->service[pool->service].instance_seconds += alive_s;
    r->gpu_seconds += alive_s * devices;
    r->cost_usd += pool->price_h * alive_s / 3600;
    if (pool->hardware && alive_s > s.busy_s) {
        r->energy_j += (alive_s - s.busy_s) * pool->hardware->watts_idle * devices;
    }
    if (in->ready_us == NEVER_READY) return;
    double ready_s = (double)(run->now_us - in->ready_us) * 1e-6;
    double run_s = (double)run_elapsed_us(run) * 1e-6;
    if (ready_s <= 0) return;
    run->routed_tokens += in->routed_tokens;
    run->ready_s += ready_s;
    double rate = (double)in->routed_tokens / ready_s;
    if (ready_s >= fmin(HOTSPOT_S, run_s / 2)) run->hottest = fmax(run->hottest, rate);
}

static void retire(struct run *run, struct instance *in)
{
    must(in->in_flight == 0); /* transfers to it have another target */
    account(run, in);
    run_at(run, &in->event, INT64_MAX, 0);
    routers_endpoint_gone(run, in);
    run->instance[in->config.place] = NULL;
    run->alive--;
    run->alive_of[in->config.pool->service]--;
    instance_free(in);
}

/* Ends a drained instance. A flight that still fetches from its cache goes without the rest. */
static void leave(struct run *run, struct instance *in)
{
    in->state = INSTANCE_GONE;
    kv_transfers_instance_gone(run, in);
    if (run->control) sim_control_emptied(run->control, in->number, run_elapsed_us(run));
    retire(run, in);
}

void fleet_kill(struct run *run, struct instance *in)
{
    in->state = INSTANCE_GONE;
    roles_moved(run);
    routers_endpoint(run, in);
    run_at(run, &in->event, INT64_MAX, 0);
    kv_transfers_instance_gone(run, in);
    while (!list_empty(&in->flights)) {
        struct flight *f = CONTAINER_OF(in->flights.next, struct flight, on_instance);
        list_remove(&f->on_instance);
        in->in_flight--;
        kv_transfers_forget(run, f);
        routers_died(run, f);
    }
    retire(run, in);
}

void fleet_sweep(struct run *run)
{
    run->drained = false;
    for (uint32_t i = 0; i < run->places; i++) {
        struct instance *in = run->instance[i];
        if (in && in->state == INSTANCE_DRAINING && is_empty(run, in)) leave(run, in);
    }
}

int fleet_start(struct run *run, struct err *err)
{
    const struct sim_config *sim = &run->config;
    if (run->control) return 0; /* it launches them */
    for (uint32_t p = 0; p < sim->pool_count; p++) {
        for (uint32_t i = 0; i < sim->pool[p].count; i++) {
            struct instance *in;
            int rc = fleet_launch(run, p, &in, err);
            if (rc < 0) return rc;
            fleet_ready(run, in);
        }
    }
    return 0;
}

void fleet_stop(struct run *run)
{
    for (uint32_t i = 0; i < run->places; i++) {
        struct instance *in = run->instance[i];
        if (!in) continue;
        run_at(run, &in->event, INT64_MAX, 0); /* it may be in the middle of a step */
        account(run, in);
        run->instance[i] = NULL;
        instance_free(in);
    }
}
