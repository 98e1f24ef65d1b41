/* heard.c - takes reports of routers and agents as the controller takes them, with the demand that directors
 * measure; the controller, the role policy and the power policy get their views from it. */
#include "simulator/heard.h"

#include "base/core/bits.h"
#include "fleet/defaults.h"
#include "simulator/run.h"

#include <stdlib.h>

int demand_start(struct run *run, struct err *err)
{
    struct run_demand *d = &run->demand;
    size_t reports = (size_t)run->config.routers * SIM_SERVICES_MAX;
    for (uint32_t p = 0; p < run->config.pool_count; p++)
        d->services = max_u32(d->services, run->config.pool[p].service + 1);
    d->report = calloc(reports, sizeof *d->report);
    return d->report ? 0 : err_set(err, -ENOMEM, "simulator: no memory for demand");
}

void demand_stop(struct run *run)
{
    free(run->demand.report);
}

const struct service_demand *demand_report(struct run *run)
{
    for (uint32_t r = 0; r < run->router_count; r++) {
        struct director *d = run->router[r].director;
        const struct services *services = director_services(d);
        for (uint32_t k = 0; k < run->demand.services; k++)
            director_report_service(d, &services->item[k], run->now_us,
                                    &run->demand.report[r * SIM_SERVICES_MAX + k]);
    }
    return run->demand.report;
}

/* Returns the time of a report, at least 1: zero means "never" here and may be a run's first moment. */
static int64_t heard_at_us(const struct run *run)
{
    return max_i64(run->now_us, 1);
}

int heard_start(struct run *run, struct err *err)
{
    struct heard *h = &run->heard;
    const struct sim_config *c = &run->config;
    h->on = c->role || c->power_limit_watts > 0 || c->power != power_find(STR(POWER_DEFAULT));
    if (!h->on) return 0;
    size_t reports = (size_t)c->routers * run->demand.services;
    h->sync_us = calloc(c->routers, sizeof *h->sync_us);
    h->agent = calloc(run->places_max, sizeof *h->agent);
    h->seen = calloc(reports, sizeof *h->seen);
    h->heard_us = calloc(reports, sizeof *h->heard_us);
    h->counted = calloc(run->demand.services, sizeof *h->counted);
    if (!h->sync_us || !h->agent || !h->seen || !h->heard_us || !h->counted)
        return err_set(err, -ENOMEM, "simulator: no memory for reports");
    run_at(run, &h->sync, run->now_us, RANK_SYNC);
    return 0;
}

void heard_stop(struct run *run)
{
    struct heard *h = &run->heard;
    free(h->sync_us);
    free(h->agent);
    free(h->seen);
    free(h->heard_us);
    free(h->counted);
}

/* ---- routers ---- */

static void hear_router(struct run *run, uint32_t router, const struct service_demand *report)
{
    struct heard *h = &run->heard;
    for (uint32_t k = 0; k < run->demand.services; k++) {
        uint32_t at = router * run->demand.services + k;
        demand_heard(&h->seen[at], &h->counted[k], &report[router * SIM_SERVICES_MAX + k], true,
                     run->now_us);
        h->heard_us[at] = heard_at_us(run);
    }
    h->sync_us[router] = run->now_us + SYNC_PERIOD_US;
}

static void set_timer(struct run *run)
{
    int64_t at_us = INT64_MAX;
    for (uint32_t r = 0; r < run->config.routers; r++)
        at_us = min_i64(at_us, run->heard.sync_us[r]);
    run_at(run, &run->heard.sync, at_us, RANK_SYNC);
}

void heard_sync(struct run *run)
{
    const struct service_demand *report = demand_report(run);
    for (uint32_t r = 0; r < run->router_count; r++) {
        if (run->now_us < run->heard.sync_us[r]) continue;
        hear_router(run, r, report);
        routers_look_at_held(run, r); /* the reply lists the endpoints */
    }
    set_timer(run);
}

void heard_hurry(struct run *run, uint32_t router)
{
    struct heard *h = &run->heard;
    if (!h->on) return;
    h->sync_us[router] = min_i64(h->sync_us[router], run->now_us + URGENT_SYNC_US);
    set_timer(run);
}

uint32_t heard_demand(const struct run *run, uint32_t service, struct demand_source *ret)
{
    const struct heard *h = &run->heard;
    uint32_t count = 0;
    if (!h->on) return 0;
    for (uint32_t r = 0; r < run->router_count; r++) {
        uint32_t at = r * run->demand.services + service;
        if (h->heard_us[at]) ret[count++] = (struct demand_source){ &h->seen[at], h->heard_us[at] };
    }
    return count;
}

/* ---- agents ---- */

static void hear_agent(struct run *run, struct instance *in)
{
    struct heard_agent *a = &run->heard.agent[in->config.place];
    struct instance_limits limits;
    struct sim_load load;
    struct engine_report e;
    instance_limits_get(&run->config, in->config.pool, &limits);
    scaling_load(run, in, &load);
    sim_engine_report(&load,
                      &(struct sim_engine){ .seqs_max = limits.seqs_max,
                                            .kv_tokens_max = limits.kv_tokens,
                                            .context_tokens = limits.context_max,
                                            .step_tokens = limits.batch_tokens_max },
                      &e);
    *a = (struct heard_agent){ .serial = in->config.serial + 1,
                               .seen = { .heard_us = heard_at_us(run), .state = AGENT_UP },
                               .clock = in->clock };
    sighting_take(&a->seen, &e);
    if (!in->kind->work) return;
    struct instance_work w;
    in->kind->work(in, run->now_us, &w);
    a->work = w.work;
}

void heard_report(struct run *run)
{
    if (!run->heard.on) return;
    for (uint32_t i = 0; i < run->places; i++) {
        struct instance *in = run->instance[i];
        if (in && in->state != INSTANCE_STARTING) hear_agent(run, in);
    }
}

void heard_ready(struct run *run, struct instance *in)
{
    if (run->heard.on) hear_agent(run, in);
}

const struct heard_agent *heard_agent(const struct run *run, const struct instance *in)
{
    if (!run->heard.on) return NULL;
    const struct heard_agent *a = &run->heard.agent[in->config.place];
    return a->serial == in->config.serial + 1 ? a : NULL;
}
