/* scaling.c - lets the fleet follow its demand: carries out the controller's actions on the instances.
 *
 * simulator/control knows launches, prices and the plan; simulator/fleet knows engines. Routers hold
 * requests that no instance can take, as in the product, and report them as held.
 */
#include "base/core/bits.h"
#include "simulator/run.h"

#include <stdlib.h>
#include <string.h>

static void set_pool(const struct run *run, uint32_t p, struct sim_control_pool *ret)
{
    const struct sim_pool *pool = &run->config.pool[p];
    struct instance_limits limits;
    instance_limits_get(&run->config, pool, &limits);
    ret->service = pool->service;
    ret->price_h = pool->price_h;
    ret->prior = limits.prior;
    ret->seqs_max = limits.seqs_max;
    ret->kv_tokens_max = limits.kv_tokens;
    ret->step_tokens = limits.batch_tokens_max;
    ret->context_tokens = limits.context_max;
    if (ret->start == 0) ret->start = pool->count;
}

static void set_slo(const struct sim_config *c, uint32_t service, struct sim_control_service *ret)
{
    struct sim_slo slo = sim_slo_of(c, service);
    if (ret->ttft_slo_s <= 0) ret->ttft_slo_s = slo.ttft_s;
    if (ret->tpot_slo_s <= 0) ret->tpot_slo_s = slo.tpot_s;
}

int scaling_start(struct run *run, struct err *err)
{
    if (!run->config.scaling) return 0;
    struct sim_control_setup setup = *run->config.scaling;
    setup.seed = run->config.seed;
    setup.pool_count = run->config.pool_count;
    for (uint32_t k = 0; k < SIM_SERVICES_MAX; k++)
        set_slo(&run->config, k, &setup.service[k]);
    for (uint32_t p = 0; p < setup.pool_count; p++)
        set_pool(run, p, &setup.pool[p]);
    if (run->config.scaling_clairvoyant) {
        int rc = world_future_make(&run->world, &run->future);
        if (rc < 0) return err_set(err, rc, "simulator: no memory for what will come");
        setup.future = &run->future.view;
    }
    run->load = calloc(run->places_max, sizeof *run->load);
    if (!run->load) return err_set(err, -ENOMEM, "simulator: no memory for loads");
    setup.instances_max = run->places_max;
    setup.routers = run->config.routers;
    int rc = sim_control_new(&setup, &run->control, err);
    if (rc < 0) return rc;
    scaling_due(run);
    return 0;
}

void scaling_stop(struct run *run)
{
    sim_control_free(run->control);
    free(run->load);
    world_future_fini(&run->future);
}

static struct instance *by_number(const struct run *run, uint32_t number)
{
    for (uint32_t i = 0; i < run->places; i++)
        if (run->instance[i] && run->instance[i]->number == number) return run->instance[i];
    return NULL;
}

void scaling_load(const struct run *run, struct instance *in, struct sim_load *ret)
{
    struct instance_load load;
    in->kind->load(in, run->now_us, &load);
    *ret = (struct sim_load){ .number = in->number,
                              .running = load.running,
                              .waiting = load.waiting,
                              .kv_tokens = load.kv_tokens,
                              .prefill_tokens = load.prefill_tokens,
                              .pages_cached = load.pages_cached,
                              .page_tokens = run->config.page_tokens,
                              .has_perf = load.perf.samples > 0,
                              .perf = load.perf };
}

static uint32_t fill_loads(struct run *run, struct sim_load *ret)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->places; i++) {
        struct instance *in = run->instance[i];
        if (in && in->state != INSTANCE_STARTING) scaling_load(run, in, &ret[count++]);
    }
    return count;
}

/* Launches an instance. There is a place for it, as the controller plans within the run's places. */
static void launch(struct run *run, const struct sim_control_action *a)
{
    struct instance *in;
    must(fleet_launch(run, a->pool, &in, NULL) == 0);
    in->number = a->number;
}

static void act(struct run *run, const struct sim_control_action *a)
{
    struct instance *in = by_number(run, a->number);
    if (!in && a->act != SIM_LAUNCH) return; /* it has drained already */
    switch (a->act) {
    case SIM_LAUNCH:
        launch(run, a);
        break;
    case SIM_SERVE:
        fleet_ready(run, in);
        break;
    case SIM_DRAIN:
        in->leaves_us = a->ends_us > 0 ? run->trace->request[0].at_us + a->ends_us : 0;
        fleet_drain(run, in);
        if (in->in_flight == 0) run->drained = true;
        break;
    case SIM_KEEP:
        fleet_keep(run, in);
        break;
    case SIM_GONE:
        fleet_kill(run, in);
        break;
    }
}

static void set_timer(struct run *run)
{
    int64_t next_us = sim_control_next_us(run->control);
    if (next_us != INT64_MAX) next_us += run->trace->request[0].at_us;
    run_at(run, &run->control_event, max_i64(next_us, run->now_us), RANK_CONTROL);
}

void scaling_due(struct run *run)
{
    struct sim_control_input in = { .load = run->load };
    if (sim_control_wants_loads(run->control, run_elapsed_us(run)))
        in.load_count = fill_loads(run, run->load);
    if (sim_control_wants_demand(run->control, run_elapsed_us(run))) in.demand = demand_report(run);
    struct sim_control_action action[SIM_CONTROL_ACTIONS_MAX];
    uint32_t n = sim_control_advance(run->control, run_elapsed_us(run), &in, action);
    for (uint32_t i = 0; i < n; i++)
        act(run, &action[i]);
    set_timer(run);
}

void scaling_hurry(struct run *run, uint32_t router)
{
    sim_control_hurry(run->control, router, run_elapsed_us(run));
    set_timer(run);
}

void scaling_sum_up(struct run *run)
{
    if (!run->control) return;
    struct sim_control_totals t;
    struct sim_result *r = run->result;
    sim_control_finish(run->control, run_elapsed_us(run), &t);
    r->scale_actions = t.scale_actions;
    r->launches = t.launches;
    r->launches_failed = t.launches_failed;
    r->lost = t.lost;
    memcpy(r->phase_s, t.phase_s, sizeof r->phase_s);
    r->floor_s = t.floor_s;
    r->floor_instance_seconds = t.floor_instance_seconds;
}
