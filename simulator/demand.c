/* demand.c - the demand that routers measure and report, as the product's router does.
 *
 * Each router has a telemetry for each service; the controller, the role policy and the power policy
 * are told from it. */
#include "base/core/bits.h"
#include "simulator/run.h"

#include <stdlib.h>
#include <string.h>

static struct telemetry *telemetry_at(const struct run *run, uint32_t router, uint32_t service)
{
    return &run->demand.telemetry[router * run->demand.services + service];
}

static struct telemetry *telemetry_of(const struct run *run, const struct flight *f)
{
    return telemetry_at(run, f->router, run->trace->request[f->request].service);
}

int demand_start(struct run *run, struct err *err)
{
    struct run_demand *d = &run->demand;
    size_t reports = (size_t)run->config.routers * SIM_SERVICES_MAX;
    for (uint32_t p = 0; p < run->config.pool_count; p++)
        d->services = max_u32(d->services, run->config.pool[p].service + 1);
    d->telemetry = calloc((size_t)run->config.routers * d->services, sizeof *d->telemetry);
    d->report = calloc(reports, sizeof *d->report);
    d->bins = calloc(reports, sizeof *d->bins);
    if (d->telemetry && d->report && d->bins) return 0;
    return err_set(err, -ENOMEM, "simulator: no memory for demand");
}

void demand_stop(struct run *run)
{
    free(run->demand.telemetry);
    free(run->demand.report);
    free(run->demand.bins);
}

void demand_arrived(struct run *run, struct flight *f)
{
    struct telemetry *t = telemetry_of(run, f);
    int64_t now_us = run_elapsed_us(run);
    f->told_prompt = f->core.prompt_tokens - f->core.hit_tokens;
    f->told_output = f->core.length.mean;
    f->queued = true;
    telemetry_arrived(t, f->core.prompt_tokens, f->core.length.mean, now_us);
    telemetry_queued(t, f->told_prompt, f->told_output, now_us);
}

static void leave_queue(struct run *run, struct flight *f)
{
    if (!f->queued) return;
    f->queued = false;
    telemetry_unqueued(telemetry_of(run, f), f->told_prompt, f->told_output);
}

void demand_began(struct run *run, struct flight *f)
{
    leave_queue(run, f);
}

void demand_ended(struct run *run, struct flight *f, enum sim_end end)
{
    /* A request that is too long for every instance was refused before it was counted. */
    if (end == SIM_TOO_LONG) return;
    struct telemetry *t = telemetry_of(run, f);
    leave_queue(run, f);
    if (end == SIM_REJECTED) telemetry_refused(t);
    if (end == SIM_FAILED) telemetry_failed(t);
    if (end != SIM_COMPLETED) return;
    const struct trace_request *r = &run->trace->request[f->request];
    struct sim_slo slo = sim_slo_of(&run->config, r->service);
    double decode_s = (double)(f->last_us - f->first_us) * 1e-6;
    const struct telemetry_outcome ended = {
        .ttft_s = (double)(f->first_us - f->arrival_us) * 1e-6,
        .tpot_s = f->generated > 1 ? decode_s / (f->generated - 1) : 0,
        .e2e_s = (double)(f->last_us - f->arrival_us) * 1e-6,
        .ttft_slo_s = slo.ttft_s,
        .tpot_slo_s = slo.tpot_s,
        .prompt_tokens = f->core.prompt_tokens,
        .cached_tokens = f->cached_tokens,
        .generated_tokens = f->generated,
    };
    telemetry_finished(t, &ended, run_elapsed_us(run));
}

static void report(struct run *run, uint32_t router, uint32_t service)
{
    uint32_t at = router * SIM_SERVICES_MAX + service;
    struct service_demand *d = &run->demand.report[at];
    const struct dispatch *core = run->router[router].core;
    telemetry_report(telemetry_at(run, router, service), run_elapsed_us(run), &run->demand.bins[at],
                     d);
    struct dispatch_held held;
    dispatch_held_of(core, routers_model(service), run->now_us, &held);
    d->held = held.count;
    d->held_prompt_tokens = held.prompt_tokens;
    d->held_oldest_s = (double)held.oldest_us * 1e-6;
    for (uint32_t i = 0; i < run->places; i++) {
        const struct instance *in = run->instance[i];
        if (in && in->config.pool->service == service) d->in_flight += dispatch_in_flight(core, i);
    }
}

const struct service_demand *demand_report(struct run *run)
{
    for (uint32_t r = 0; r < run->router_count; r++)
        for (uint32_t k = 0; k < run->demand.services; k++)
            report(run, r, k);
    return run->demand.report;
}
