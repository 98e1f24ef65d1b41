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
    if (d->telemetry && d->report) return 0;
    return err_set(err, -ENOMEM, "simulator: no memory for demand");
}

void demand_stop(struct run *run)
{
    free(run->demand.telemetry);
    free(run->demand.report);
}

void demand_arrived(struct run *run, struct flight *f)
{
    struct telemetry *t = telemetry_of(run, f);
    int64_t now_us = run_elapsed_us(run);
    telemetry_arrived(t, f->dispatch.prompt_tokens, f->dispatch.length.mean, now_us);
    telemetry_queued(t, &f->told, f->dispatch.prompt_tokens - f->dispatch.hit_tokens,
                     f->dispatch.length.mean, now_us);
}

void demand_began(struct run *run, struct flight *f)
{
    telemetry_unqueued(telemetry_of(run, f), &f->told);
}

void demand_refused(struct run *run, const struct flight *f)
{
    struct telemetry *t = telemetry_of(run, f);
    if (f->dispatch.route.late)
        telemetry_refused_late(t, f->dispatch.route.estimate_s, run_elapsed_us(run));
    else
        telemetry_refused(t);
}

void demand_ended(struct run *run, struct flight *f, enum sim_end end)
{
    /* A request that is too long for every instance was refused before it was counted. */
    if (end == SIM_TOO_LONG) return;
    struct telemetry *t = telemetry_of(run, f);
    telemetry_unqueued(t, &f->told);
    if (end != SIM_COMPLETED) {
        telemetry_failed(t);
        return;
    }
    const struct trace_request *r = &run->trace->request[f->request];
    struct sim_slo slo = sim_slo_of(&run->config, r->service);
    int64_t decode_us = f->last_us - f->first_us; /* whole microseconds, as in the router */
    const struct telemetry_outcome ended = {
        .ttft_s = (double)(f->first_us - f->arrival_us) * 1e-6,
        .tpot_s = f->generated > 1 ? (double)(decode_us / (f->generated - 1)) * 1e-6 : 0,
        .e2e_s = (double)(f->last_us - f->arrival_us) * 1e-6,
        .ttft_slo_s = slo.ttft_s,
        .tpot_slo_s = slo.tpot_s,
        .prompt_tokens = f->dispatch.prompt_tokens,
        .cached_tokens = f->cached_tokens,
        .generated_tokens = f->generated,
    };
    telemetry_finished(t, &ended, run_elapsed_us(run));
}

static void report(struct run *run, uint32_t router, uint32_t service)
{
    struct service_demand *d = &run->demand.report[router * SIM_SERVICES_MAX + service];
    telemetry_report(telemetry_at(run, router, service), run_elapsed_us(run), d);
    dispatch_report(run->router[router].dispatch, routers_model(service), run->now_us, d);
}

const struct service_demand *demand_report(struct run *run)
{
    for (uint32_t r = 0; r < run->router_count; r++)
        for (uint32_t k = 0; k < run->demand.services; k++)
            report(run, r, k);
    return run->demand.report;
}
