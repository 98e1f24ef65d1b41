/* clocks.c - asks the power policy of a run, and sets the clocks that it chooses.
 *
 * Its view is the controller's (fleet/power_view.h), made of reports (heard.h): the mean step and busy share
 * of each instance between two reports, and tails as routers reported them. A new clock holds from the next
 * step on.
 */
#include "base/core/bits.h"
#include "fleet/defaults.h"
#include "simulator/run.h"

#include <math.h>
#include <stdlib.h>

/* Returns the tail over all routers and services: here one policy sets the clocks of the whole fleet. */
static struct power_tail tail_now(const struct run *run)
{
    struct power_tail t = { 0 };
    struct demand_source source[SIM_ROUTERS_MAX];
    for (uint32_t s = 0; s < run->demand.services; s++) {
        uint32_t count = heard_demand(run, s, source);
        for (uint32_t i = 0; i < count; i++)
            if (demand_is_fresh(source[i].heard_us, run->now_us))
                power_tail_add(&t, &source[i].seen->last);
    }
    return t;
}

int clocks_start(struct run *run, struct err *err)
{
    struct run_clocks *c = &run->clocks;
    c->shown = calloc(run->places_max, sizeof *c->shown);
    c->who = calloc(run->places_max, sizeof(struct instance *));
    c->clock = calloc(run->places_max, sizeof *c->clock);
    if (c->shown && c->who && c->clock) return 0;
    return err_set(err, -ENOMEM, "simulator: no memory for clocks");
}

void clocks_stop(struct run *run)
{
    free(run->clocks.shown);
    free(run->clocks.who);
    free(run->clocks.clock);
}

static uint32_t show(const struct run *run, struct power_instance *ret, struct instance **who)
{
    const struct power_tail now = tail_now(run);
    struct power_tail tail;
    bool known = power_tails_merge(&run->clocks.tails, &now, &tail);
    uint32_t n = 0;
    static const struct merge_config merge = MERGE_CONFIG_DEFAULT;
    for (uint32_t i = 0; i < run->places; i++) {
        struct instance *in = run->instance[i];
        if (!in || in->state == INSTANCE_STARTING || !in->kind->work) continue;
        const struct heard_agent *a = heard_agent(run, in);
        if (!a || !sighting_is_fresh(&a->seen, &merge, run->now_us)) continue;
        struct instance_work w;
        in->kind->work(in, run->now_us, &w);
        const struct power_facts facts = { .roofline = w.roofline,
                                           .clock = a->clock,
                                           .waiting = a->seen.waiting,
                                           .priority = in->config.pool->priority };
        who[n] = in;
        power_instance_see(&facts, known ? &tail : NULL, &ret[n]);
        power_work_since(&a->work, &in->work_seen, &ret[n++]);
        in->work_seen = a->work;
    }
    return n;
}

/* Returns the tightest SLO of all services: the policy judges by the tail of all responses. */
static struct sim_slo tightest(const struct sim_config *c)
{
    struct sim_slo least = sim_slo_of(c, c->pool[0].service);
    for (uint32_t p = 1; p < c->pool_count; p++) {
        struct sim_slo own = sim_slo_of(c, c->pool[p].service);
        least.ttft_s = fmin(least.ttft_s, own.ttft_s);
        least.tpot_s = fmin(least.tpot_s, own.tpot_s);
    }
    return least;
}

static void look(struct run *run)
{
    struct run_clocks *c = &run->clocks;
    struct sim_slo slo = tightest(&run->config);
    struct power_view view = { .instance = c->shown,
                               .count = show(run, c->shown, c->who),
                               .ttft_slo_s = slo.ttft_s,
                               .tpot_slo_s = slo.tpot_s,
                               .power_limit_watts = run->config.power_limit_watts };
    for (uint32_t i = 0; i < view.count; i++)
        view.drawn_watts += power_watts(&c->shown[i], c->shown[i].clock);
    struct power_verdict v = { .clock = c->clock };
    power_decide(run->config.power, c->state, &view, run->now_us, &v);
    for (uint32_t i = 0; i < view.count; i++)
        c->who[i]->clock = c->clock[i];
    if (view.power_limit_watts > 0 && view.drawn_watts > view.power_limit_watts)
        run->result->trips++;
    c->due_us = power_again_us(v.again_us, run->now_us);
}

/* Runs as often as the controller ticks. */
void clocks_due(struct run *run)
{
    struct run_clocks *c = &run->clocks;
    if (power_tails_due(&c->tails, run->now_us)) {
        const struct power_tail now = tail_now(run);
        power_tails_take(&c->tails, &now, run->now_us);
    }
    if (power_is_due(c->due_us, run->now_us)) look(run);
    run_at(run, &c->tick, run->now_us + TICK_PERIOD_US, RANK_POWER);
}
