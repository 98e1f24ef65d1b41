/* control.c - what the real plan sees of a simulated fleet, and what becomes of its actions.
 *
 * Some services (control_service.c) at one provider (cloud.c). What plan() sees is built here as
 * controller/observe.c builds it from reports; the windows that routers keep are in
 * control_window.c. */
#include "simulator/control.h"

#include "base/core/bits.h"
#include "simulator/cloud.h"
#include "simulator/control_service.h"
#include "simulator/control_window.h"
#include "simulator/foresight.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND ((int64_t)1000000)
#define PURPOSE_PLAN 105 /* cloud.c has those before it */

struct sim_control {
    struct sim_control_setup setup;
    struct control_services services;
    struct sim_cloud cloud;
    struct offer_health health[SCALE_POOLS_MAX];
    struct control_window *window[SIM_SERVICES_MAX]; /* of each service, as are the next two */
    struct plan_memory *memory;
    struct plan_demand demand[SIM_SERVICES_MAX];
    struct foresight foresight; /* of service 0 */
    struct plan plan;
    struct rng rng;
    struct plan_instance *view;
    uint32_t *view_number; /* parallel to view */
    int64_t tick_us;       /* next decision */
};

/* ---- the view ---- */

static enum phase phase_of(const struct machine *m)
{
    static const enum phase phases[] = { [MACHINE_STARTING] = PHASE_STARTING,
                                         [MACHINE_READY] = PHASE_READY,
                                         [MACHINE_DRAINING] = PHASE_DRAINING,
                                         [MACHINE_ENDED] = PHASE_ENDING };
    return phases[m->stage];
}

/* `l`: what it reports; NULL: nothing. */
static void show_machine(const struct sim_control *c, uint32_t number, const struct sim_load *l,
                         struct plan_instance *ret)
{
    const struct machine *m = &c->cloud.machine[number];
    const struct sim_control_pool *p = &c->setup.pool[m->pool];
    *ret = (struct plan_instance){ .service = p->service,
                                   .pool = c->services.group[m->pool],
                                   .offer = m->pool,
                                   .phase = phase_of(m),
                                   .fresh = l || m->stage == MACHINE_STARTING,
                                   .doomed = m->doomed,
                                   .seqs_max = p->seqs_max,
                                   .price_h = p->price_h,
                                   .context_tokens = p->context_tokens,
                                   .since_us = m->stage_us,
                                   .load = { .id = number, .kv_tokens_max = p->kv_tokens_max } };
    snprintf(ret->id, sizeof ret->id, "i-%u", number);
    if (!l) return;
    ret->in_flight = l->running + l->waiting;
    ret->pages_cached = (uint32_t)min_u64(l->pages_cached, UINT32_MAX);
    ret->has_perf = l->has_perf;
    ret->perf = l->perf;
    ret->load.running = l->running;
    ret->load.waiting = l->waiting;
    ret->load.kv_tokens = l->kv_tokens;
    ret->load.prefill_known = true;
    ret->load.prefill_tokens = l->prefill_tokens;
}

static void carry_out(struct sim_control *c, int64_t now_us)
{
    for (uint32_t i = 0; i < c->plan.action_count; i++) {
        const struct plan_action *a = &c->plan.action[i];
        c->cloud.total.scale_actions++;
        if (a->act == PLAN_LAUNCH) {
            sim_cloud_launch(&c->cloud, a->offer, now_us);
            continue;
        }
        uint32_t number = c->view_number[a->instance];
        if (a->act == PLAN_CANCEL) {
            sim_cloud_cancel(&c->cloud, number);
        } else if (a->act == PLAN_DRAIN) {
            sim_cloud_drain(&c->cloud, number, now_us);
        } else {
            sim_cloud_keep(&c->cloud, number, now_us);
        }
    }
}

/* Everything but what only instances know. */
static void show_demand(struct sim_control *c, int64_t now_us, const struct sim_control_input *in)
{
    for (uint32_t k = 0; k < c->services.count; k++) {
        struct plan_demand *d = &c->demand[k];
        *d = (struct plan_demand){ .all_fresh = true };
        control_window_demand(c->window[k], now_us, &d->sum);
        d->sum.held = in->held[k].requests;
        d->sum.held_prompt_tokens = in->held[k].prompt_tokens;
    }
}

static void show_fleet(struct sim_control *c, const struct sim_control_input *in)
{
    for (uint32_t i = 0; i < in->load_count; i++) {
        const struct sim_load *l = &in->load[i];
        struct machine *m = &c->cloud.machine[l->number];
        struct scale_demand *d = &c->demand[c->setup.pool[m->pool].service].sum;
        d->waiting += l->waiting;
        d->in_flight += l->running + l->waiting;
        m->load = l;
    }
    for (uint32_t i = 0; i < c->cloud.live_count; i++) {
        uint32_t number = c->cloud.live[i];
        c->view_number[i] = number;
        show_machine(c, number, c->cloud.machine[number].load, &c->view[i]);
    }
    for (uint32_t i = 0; i < in->load_count; i++)
        c->cloud.machine[in->load[i].number].load = NULL;
}

static void decide(struct sim_control *c, int64_t now_us, const struct sim_control_input *in)
{
    show_demand(c, now_us, in);
    show_fleet(c, in);
    if (c->foresight.need) foresight_set(&c->foresight, &c->services.plan[0], now_us);
    struct plan_view view = { .service = c->services.plan,
                              .service_count = c->services.count,
                              .offer = c->services.offer,
                              .health = c->health,
                              .instance = c->view,
                              .instance_count = c->cloud.live_count,
                              .demand = c->demand,
                              .room = c->setup.instances_max - c->cloud.live_count };
    plan(&view, c->memory, now_us, &c->rng, &c->plan);
    carry_out(c, now_us);
}

/* ---- the public functions ---- */

int sim_control_new(const struct sim_control_setup *setup, struct sim_control **ret,
                    struct err *err)
{
    int rc = control_services_check(setup, err);
    if (rc < 0) return rc;
    CLEANUP(sim_control_freep) struct sim_control *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "no memory for the controller");
    c->setup = *setup;
    if (c->setup.tick_us <= 0) c->setup.tick_us = SECOND;
    if (c->setup.instances_max == 0) c->setup.instances_max = PLAN_INSTANCES_MAX;
    c->view = calloc(c->setup.instances_max, sizeof *c->view);
    c->view_number = calloc(c->setup.instances_max, sizeof *c->view_number);
    control_services_init(&c->services, &c->setup);
    c->memory = calloc(c->services.count, sizeof *c->memory);
    bool there = c->view && c->view_number && c->memory;
    for (uint32_t k = 0; k < c->services.count && there; k++)
        there = (c->window[k] = control_window_new()) != NULL;
    if (!there) return err_set(err, -ENOMEM, "no memory for the controller");
    rng_stream(&c->rng, setup->seed, 0, PURPOSE_PLAN);
    if (setup->future) rc = foresight_init(&c->foresight, &c->setup, err);
    if (rc < 0) return rc;
    rc = sim_cloud_init(&c->cloud, &c->setup, c->services.floor, c->services.offer, c->health, err);
    if (rc < 0) return rc;
    *ret = TAKE(c);
    return 0;
}

void sim_control_free(struct sim_control *c)
{
    if (!c) return;
    for (uint32_t k = 0; k < SIM_SERVICES_MAX; k++)
        control_window_free(c->window[k]);
    sim_cloud_fini(&c->cloud);
    foresight_fini(&c->foresight);
    free(c->memory);
    free(c->view);
    free(c->view_number);
    free(c);
}

void sim_control_arrived(struct sim_control *c, uint32_t service, uint32_t prompt, double predicted,
                         int64_t now_us)
{
    control_window_arrived(c->window[service], prompt, predicted, now_us);
}

void sim_control_began(struct sim_control *c, uint32_t service, uint32_t prompt, double predicted,
                       double ttft_s, int64_t now_us)
{
    struct control_window *w = c->window[service];
    control_window_left(w, prompt, predicted);
    control_window_ttft(w, ttft_s, now_us);
    if (ttft_s > c->setup.service[service].ttft_slo_s) control_window_judged(w, false);
}

void sim_control_dropped(struct sim_control *c, uint32_t service, uint32_t prompt, double predicted)
{
    control_window_left(c->window[service], prompt, predicted);
}

void sim_control_ended(struct sim_control *c, uint32_t service, double tpot_s, int64_t now_us)
{
    struct control_window *w = c->window[service];
    if (tpot_s >= 0) control_window_tpot(w, tpot_s, now_us);
    control_window_judged(w, tpot_s <= c->setup.service[service].tpot_slo_s);
}

int64_t sim_control_next_us(const struct sim_control *c)
{
    return min_i64(c->tick_us, sim_cloud_next_us(&c->cloud));
}

bool sim_control_wants_loads(const struct sim_control *c, int64_t now_us)
{
    return now_us >= c->tick_us;
}

uint32_t sim_control_advance(struct sim_control *c, int64_t now_us,
                             const struct sim_control_input *in,
                             struct sim_control_action ret[SIM_CONTROL_ACTIONS_MAX])
{
    sim_cloud_begin(&c->cloud, now_us);
    if (now_us >= c->tick_us) {
        decide(c, now_us, in);
        c->tick_us = now_us + c->setup.tick_us;
    }
    return sim_cloud_finish(&c->cloud, now_us, ret);
}

void sim_control_emptied(struct sim_control *c, uint32_t number, int64_t now_us)
{
    sim_cloud_emptied(&c->cloud, number, now_us);
}

void sim_control_finish(struct sim_control *c, int64_t end_us, struct sim_control_totals *ret)
{
    sim_cloud_totals(&c->cloud, end_us, ret);
}
