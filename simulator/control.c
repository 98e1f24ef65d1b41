/* control.c - runs the real plan over a simulated fleet, and carries out its actions.
 *
 * The fleet has some services at one provider (cloud.c). Routers and agents report in the periods of
 * fleet/defaults.h, and their reports go through the code of fleet/ and controller/core that the
 * controller feeds, so that the plan has the same view here as there, of the same age. A decision comes
 * with every tick, and soon after the events that the controller calls urgent: a router begins to hold
 * requests, an instance becomes ready. */
#include "simulator/control.h"

#include "base/core/bits.h"
#include "controller/core/plan_view.h"
#include "fleet/defaults.h"
#include "fleet/demand.h"
#include "simulator/cloud.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PURPOSE_PLAN 105 /* the next after those of cloud.c */

/* One router's last report of one service. */
struct told {
    struct demand_seen seen;
    int64_t heard_us;
    bool heard;
};

struct sim_control {
    struct sim_control_setup setup;
    struct control_services services;
    struct sim_cloud cloud;
    struct offer_health health[SCALE_POOLS_MAX];
    struct told *told;          /* [router * services.count + service] */
    int64_t *sync_us;           /* of each router: its next report */
    struct plan_memory *memory; /* of each service, as are the next two */
    struct plan_demand demand[SIM_SERVICES_MAX];
    struct demand_counted counted[SIM_SERVICES_MAX];
    struct foresight foresight; /* of service 0 */
    struct plan plan;
    struct pool_mix_room *mix_room;
    struct pool_mix *mix; /* parallel to the services */
    struct rng rng;
    struct plan_instance *view;
    uint32_t *view_number; /* parallel to view */
    int64_t tick_us;       /* next decision */
    int64_t report_us;     /* next reports of agents */
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

static void show_machine(const struct sim_control *c, uint32_t number, int64_t now_us,
                         struct plan_instance *ret)
{
    const struct merge_config merge = MERGE_CONFIG_DEFAULT;
    const struct machine *m = &c->cloud.machine[number];
    const struct sim_control_pool *p = &c->setup.pool[m->pool];
    char id[INTENT_ID_BYTES];
    snprintf(id, sizeof id, "i-%u", number);
    const struct instance_facts facts = {
        .id = id,
        .number = number,
        .service = p->service,
        .pool = c->services.group[m->pool],
        .offer = m->pool,
        .phase = phase_of(m),
        .fresh = sighting_is_fresh(&m->seen, &merge, now_us) || m->stage == MACHINE_STARTING,
        .doomed = m->doomed,
        .price_h = p->price_h,
        .lead_s = c->services.offer[m->pool].lead_s,
        .since_us = m->stage_us,
        .context_tokens = p->context_tokens,
        .step_tokens = p->step_tokens,
    };
    plan_instance_see(&facts, &m->seen, ret);
}

static void be_urgent(struct sim_control *c, int64_t now_us)
{
    c->tick_us = min_i64(c->tick_us, now_us + URGENT_TICK_US);
}

/* ---- reports ---- */

void sim_engine_report(const struct sim_load *l, const struct sim_engine *e,
                       struct engine_report *ret)
{
    uint32_t page = l->page_tokens ? l->page_tokens : 1;
    uint32_t total = (uint32_t)min_u64(e->kv_tokens_max / page, UINT32_MAX);
    uint32_t held = (uint32_t)min_u64((l->kv_tokens + page - 1) / page, total);
    uint32_t cached = (uint32_t)min_u64(l->pages_cached, total - held);
    *ret = (struct engine_report){ .health = ENGINE_READY,
                                   .running = l->running,
                                   .waiting = l->waiting,
                                   .running_max = e->seqs_max,
                                   .page_tokens = page,
                                   .pages_total = total,
                                   .pages_free = total - held - cached,
                                   .pages_cached = cached,
                                   .context_tokens = e->context_tokens,
                                   .step_tokens = e->step_tokens,
                                   .has_owed = true,
                                   .owed = { l->prefill_tokens },
                                   .has_perf = l->has_perf,
                                   .perf = l->perf };
}

static void hear_instance(struct sim_control *c, const struct sim_load *l, int64_t now_us)
{
    struct machine *m = &c->cloud.machine[l->number];
    const struct sim_control_pool *p = &c->setup.pool[m->pool];
    struct engine_report e;
    sim_engine_report(l,
                      &(struct sim_engine){ .seqs_max = p->seqs_max,
                                            .context_tokens = p->context_tokens,
                                            .step_tokens = p->step_tokens,
                                            .kv_tokens_max = p->kv_tokens_max },
                      &e);
    /* Zero is the run's first moment, but means "never" in a sighting. */
    m->seen = (struct sighting){ .heard_us = max_i64(now_us, 1), .state = AGENT_UP };
    sighting_take(&m->seen, &e);
}

static void hear_agents(struct sim_control *c, const struct sim_control_input *in, int64_t now_us)
{
    for (uint32_t i = 0; i < in->load_count; i++)
        hear_instance(c, &in->load[i], now_us);
    c->report_us = now_us + REPORT_PERIOD_US;
}

/* Takes the reports of agents with an engine that has become ready: they report at once. */
static void hear_new_ones(struct sim_control *c, int64_t now_us)
{
    for (uint32_t i = 0; i < c->cloud.live_count; i++) {
        uint32_t number = c->cloud.live[i];
        const struct machine *m = &c->cloud.machine[number];
        if (m->stage != MACHINE_READY || m->seen.heard_us > 0) continue;
        const struct sim_load idle = { .number = number };
        hear_instance(c, &idle, now_us);
        be_urgent(c, now_us);
    }
}

static void hear_router(struct sim_control *c, uint32_t router, const struct sim_control_input *in,
                        int64_t now_us)
{
    for (uint32_t k = 0; k < c->services.count; k++) {
        struct told *t = &c->told[router * c->services.count + k];
        const struct service_demand *d = &in->demand[router * SIM_SERVICES_MAX + k];
        if (d->held > 0 && t->seen.last.held == 0) be_urgent(c, now_us);
        demand_heard(&t->seen, &c->counted[k], d, true, now_us);
        t->heard_us = now_us;
        t->heard = true;
    }
    c->sync_us[router] = now_us + SYNC_PERIOD_US;
}

/* ---- decisions ---- */

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

static void show_demand(struct sim_control *c, int64_t now_us)
{
    const struct merge_config merge = MERGE_CONFIG_DEFAULT;
    uint32_t waiting[SIM_SERVICES_MAX] = { 0 };
    for (uint32_t i = 0; i < c->cloud.live_count; i++) {
        const struct machine *m = &c->cloud.machine[c->cloud.live[i]];
        if (sighting_is_fresh(&m->seen, &merge, now_us))
            waiting[c->setup.pool[m->pool].service] += m->seen.waiting;
    }
    for (uint32_t k = 0; k < c->services.count; k++) {
        struct demand_source source[SIM_CONTROL_ROUTERS_MAX];
        uint32_t count = 0;
        for (uint32_t r = 0; r < c->setup.routers; r++) {
            const struct told *t = &c->told[r * c->services.count + k];
            if (t->heard) source[count++] = (struct demand_source){ &t->seen, t->heard_us };
        }
        c->demand[k].all_fresh =
            demand_merge(source, count, &c->counted[k], waiting[k], now_us, &c->demand[k].sum);
    }
}

static void show_fleet(struct sim_control *c, int64_t now_us)
{
    for (uint32_t i = 0; i < c->cloud.live_count; i++) {
        uint32_t number = c->cloud.live[i];
        c->view_number[i] = number;
        show_machine(c, number, now_us, &c->view[i]);
    }
}

static void decide(struct sim_control *c, int64_t now_us)
{
    show_demand(c, now_us);
    show_fleet(c, now_us);
    if (c->foresight.need) foresight_set(&c->foresight, &c->services.plan[0], now_us);
    struct plan_view view = { .service = c->services.plan,
                              .service_count = c->services.count,
                              .offer = c->services.offer,
                              .health = c->health,
                              .instance = c->view,
                              .instance_count = c->cloud.live_count,
                              .demand = c->demand,
                              .room = c->setup.instances_max - c->cloud.live_count,
                              .mix_room = c->mix_room,
                              .mix = c->mix };
    plan(&view, c->memory, now_us, &c->rng, &c->plan);
    carry_out(c, now_us);
    if (c->plan.action_count > 0) be_urgent(c, now_us); /* states of instances have changed */
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
    if (c->setup.tick_us <= 0) c->setup.tick_us = TICK_PERIOD_US;
    if (c->setup.routers == 0) c->setup.routers = 1;
    if (c->setup.instances_max == 0) c->setup.instances_max = PLAN_INSTANCES_MAX;
    c->view = calloc(c->setup.instances_max, sizeof *c->view);
    c->view_number = calloc(c->setup.instances_max, sizeof *c->view_number);
    control_services_init(&c->services, &c->setup);
    c->memory = calloc(c->services.count, sizeof *c->memory);
    c->told = calloc((size_t)c->setup.routers * c->services.count, sizeof *c->told);
    c->sync_us = calloc(c->setup.routers, sizeof *c->sync_us);
    c->mix_room = calloc(1, sizeof *c->mix_room);
    c->mix = calloc(c->services.count, sizeof *c->mix);
    bool there =
        c->view && c->view_number && c->memory && c->told && c->sync_us && c->mix_room && c->mix;
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
    free(c->told);
    free(c->sync_us);
    sim_cloud_fini(&c->cloud);
    foresight_fini(&c->foresight);
    free(c->mix);
    free(c->mix_room);
    free(c->memory);
    free(c->view);
    free(c->view_number);
    free(c);
}

void sim_control_hurry(struct sim_control *c, uint32_t router, int64_t now_us)
{
    c->sync_us[router] = min_i64(c->sync_us[router], now_us + URGENT_SYNC_US);
}

static int64_t next_sync_us(const struct sim_control *c)
{
    int64_t at_us = INT64_MAX;
    for (uint32_t r = 0; r < c->setup.routers; r++)
        at_us = min_i64(at_us, c->sync_us[r]);
    return at_us;
}

int64_t sim_control_next_us(const struct sim_control *c)
{
    int64_t heard_us = min_i64(c->report_us, next_sync_us(c));
    return min_i64(min_i64(c->tick_us, heard_us), sim_cloud_next_us(&c->cloud));
}

bool sim_control_wants_loads(const struct sim_control *c, int64_t now_us)
{
    return now_us >= c->report_us;
}

bool sim_control_wants_demand(const struct sim_control *c, int64_t now_us)
{
    return now_us >= next_sync_us(c);
}

uint32_t sim_control_advance(struct sim_control *c, int64_t now_us,
                             const struct sim_control_input *in,
                             struct sim_control_action ret[SIM_CONTROL_ACTIONS_MAX])
{
    sim_cloud_begin(&c->cloud, now_us);
    hear_new_ones(c, now_us);
    if (now_us >= c->report_us) hear_agents(c, in, now_us);
    for (uint32_t r = 0; r < c->setup.routers; r++)
        if (now_us >= c->sync_us[r]) hear_router(c, r, in, now_us);
    if (now_us >= c->tick_us) {
        c->tick_us = now_us + c->setup.tick_us;
        decide(c, now_us);
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

/* ---- the plan's services, with their pools and offers ---- */

static uint32_t services_of(const struct sim_control_setup *s)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < s->pool_count; p++)
        count = max_u32(count, s->pool[p].service + 1);
    return count;
}

static int check_service(const struct sim_control_setup *s, uint32_t service, struct err *err)
{
    uint32_t pools = 0;
    for (uint32_t p = 0; p < s->pool_count; p++)
        pools += s->pool[p].service == service;
    if (pools == 0) {
        return err_set(err, -EINVAL,
                       "services that scale are numbered from 0 without a gap: none is %u",
                       service);
    }
    if (!(s->service[service].ttft_slo_s > 0) || !(s->service[service].tpot_slo_s > 0))
        return err_set(err, -EINVAL, "scaling needs an SLO: TTFT and TPOT");
    return 0;
}

int control_services_check(const struct sim_control_setup *s, struct err *err)
{
    if (s->pool_count == 0 || s->pool_count > SCALE_POOLS_MAX)
        return err_set(err, -EINVAL, "a fleet has 1 to %d pools", SCALE_POOLS_MAX);
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct sim_control_pool *pool = &s->pool[p];
        if (pool->min > pool->max || pool->max > SCALE_COUNT_MAX || pool->zone >= SIM_ZONES_MAX ||
            pool->service >= SIM_SERVICES_MAX)
            return err_set(err, -EINVAL, "pool %u: min, max, zone or service out of bounds", p);
        if (!(pool->lead_s >= 0) || pool->start > pool->max)
            return err_set(err, -EINVAL, "pool %u: lead time or start out of bounds", p);
    }
    uint32_t count = services_of(s);
    if (s->future && count > 1)
        return err_set(err, -EINVAL, "the clairvoyant bound is of one service");
    int rc = 0;
    for (uint32_t k = 0; k < count && rc == 0; k++)
        rc = check_service(s, k, err);
    return rc;
}

/* Returns true if nothing but their offer tells the engines of two pools apart. */
static bool are_alike(const struct sim_control_pool *a, const struct sim_control_pool *b)
{
    const struct perf_coef *f = &a->prior, *g = &b->prior;
    if (a->service != b->service) return false;
    bool alike = !(f->step_s < g->step_s) && !(f->step_s > g->step_s) &&
                 !(f->prefill_token_s < g->prefill_token_s) &&
                 !(f->prefill_token_s > g->prefill_token_s);
    alike &= !(f->decode_seq_s < g->decode_seq_s) && !(f->decode_seq_s > g->decode_seq_s) &&
             !(f->kv_read_s < g->kv_read_s) && !(f->kv_read_s > g->kv_read_s);
    return alike && a->seqs_max == b->seqs_max && a->kv_tokens_max == b->kv_tokens_max &&
           a->context_tokens == b->context_tokens;
}

/* Makes pool `p` an offer of the plan's pool of its kind, which is added for the first such pool. */
static void add_offer(struct control_services *c, uint32_t p)
{
    const struct sim_control_pool *from = &c->setup->pool[p];
    struct plan_service *v = &c->plan[from->service];
    uint32_t first = 0;
    while (first < p && !are_alike(&c->setup->pool[first], from))
        first++;
    uint32_t g = first < p ? c->group[first] : v->pool_count++;
    struct plan_pool *to = &v->pool[g];
    c->group[p] = g;
    if (first == p) {
        *to = (struct plan_pool){ .manual = -1 };
        snprintf(to->name, sizeof to->name, "pool%u", p);
        snprintf(to->provider, sizeof to->provider, "sim");
    }
    to->offer[to->offer_count++] = p;
    to->min += from->min;
    to->max = min_u32(to->max + from->max, SCALE_COUNT_MAX);
    struct offer *o = &c->offer[p];
    *o = (struct offer){ .price_h = from->price_h,
                         .price_known = true,
                         .spot = from->spot,
                         .lead_s = from->lead_s,
                         .seqs_max = from->seqs_max,
                         .kv_tokens_max = from->kv_tokens_max,
                         .step_tokens = from->step_tokens,
                         .has_prior = perf_coef_valid(&from->prior),
                         .prior = from->prior };
    snprintf(o->name, sizeof o->name, "offer%u", p);
}

static void add_service(struct control_services *c, uint32_t k)
{
    const struct sim_control_service *s = &c->setup->service[k];
    const struct scale_policy *policy = s->policy ? s->policy : scale_find(STR(SCALE_DEFAULT));
    struct plan_service *v = &c->plan[k];
    *v = (struct plan_service){ .min = s->min,
                                .max = s->max,
                                .ttft_slo_s = s->ttft_slo_s,
                                .tpot_slo_s = s->tpot_slo_s,
                                .budget_h = s->budget_h,
                                .policy = policy,
                                .scale = s->scale,
                                .place = s->place ? s->place : place_find(STR(PLACE_DEFAULT)) };
    snprintf(v->name, sizeof v->name, "service%u", k);
    v->shaper = s->shaper ? s->shaper : scale_shape_find(str_from(policy->shaper));
    must(v->shaper);
    v->shape = !s->shaper && policy->shape ? *policy->shape : v->shaper->published;
    if (s->has_shape) v->shape = s->shape;
    uint32_t floor = 0, sum = 0;
    for (uint32_t p = 0; p < c->setup->pool_count; p++) {
        const struct sim_control_pool *from = &c->setup->pool[p];
        if (from->service != k) continue;
        add_offer(c, p);
        sum += from->max;
        floor += from->min;
    }
    if (v->max == 0) v->max = sum;
    c->floor += max_u32(floor, v->min);
}

void control_services_init(struct control_services *c, const struct sim_control_setup *s)
{
    *c = (struct control_services){ .setup = s, .count = services_of(s) };
    for (uint32_t k = 0; k < c->count; k++)
        add_service(c, k);
}

/* ---- the clairvoyant's count of instances, second by second ---- */

#define SECOND ((int64_t)1000000)
#define BOUND_HALF_S 30 /* needs are means over a minute */

int foresight_init(struct foresight *ret, const struct sim_control_setup *s, struct err *err)
{
    const struct scale_future *f = s->future;
    const struct sim_control_service *own = &s->service[0];
    int64_t last_us = f->count ? f->at_us[f->count - 1] : 0;
    ret->count = (uint32_t)(last_us / SECOND) + 1;
    ret->need = calloc(ret->count, sizeof *ret->need);
    if (!ret->need) return err_set(err, -ENOMEM, "no memory for what will come");
    struct scale_pool pool = { .perf = s->pool[0].prior,
                               .seqs_max = max_u32(s->pool[0].seqs_max, 1),
                               .kv_tokens_max = s->pool[0].kv_tokens_max,
                               .step_tokens = s->pool[0].step_tokens };
    for (uint32_t k = 0; k < ret->count; k++) {
        double need =
            own->scale.margin *
            scale_bound_need(f, &pool, own->ttft_slo_s, own->tpot_slo_s, k * SECOND, BOUND_HALF_S);
        ret->need[k] = (uint16_t)fmin(ceil(need - 1e-9), SCALE_COUNT_MAX);
    }
    scale_bound_plan(ret->need, ret->count, s->pool[0].lead_s);
    return 0;
}

void foresight_fini(struct foresight *f)
{
    free(f->need);
    *f = (struct foresight){ 0 };
}

/* Sets the clairvoyant's count as a person's override is set: past signal and shaper. */
void foresight_set(const struct foresight *f, struct plan_service *service, int64_t now_us)
{
    uint32_t second = (uint32_t)min_i64(now_us / SECOND, f->count - 1);
    uint32_t want = f->count ? f->need[second] : 0;
    want = min_u32(max_u32(want, service->min), service->max);
    for (uint32_t p = 0; p < service->pool_count; p++) {
        uint32_t n = min_u32(max_u32(want, service->pool[p].min), service->pool[p].max);
        service->pool[p].manual = (int32_t)n;
        want -= min_u32(n, want);
    }
}
