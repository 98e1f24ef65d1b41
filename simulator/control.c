/* control.c - launches, drains and losses in virtual time under the real plan.
 *
 *     launch -> provision -> image -> weights -> warm-up -> ready -> draining -> ended
 *                  \____________ fails half-way ________/      \___ lost ___/
 *
 * One service. Pools whose instances are alike (same step times and limits) are one pool of the plan
 * with an offer each, which the placement row chooses among. What plan() sees is built here as controller/observe.c builds it
 * from reports; the windows that routers keep are in control_window.c. */
#include "simulator/control.h"

#include "base/core/bits.h"
#include "simulator/control_window.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND ((int64_t)1000000)
#define NEVER INT64_MAX
#define ROOM_MIN 64
#define BOUND_HALF_S 30 /* the clairvoyant's needs are means over a minute */

/* Shares of the lead time, as published starts of large engines divide it: machine, image, weights,
 * graph capture. */
static const double phase_share[SIM_PHASE_COUNT] = { 0.35, 0.15, 0.35, 0.15 };

enum purpose { PURPOSE_LEAD = 101, PURPOSE_FAIL, PURPOSE_LIFE, PURPOSE_ZONE, PURPOSE_PLAN };
enum stage { STAGE_STARTING, STAGE_READY, STAGE_DRAINING, STAGE_ENDED };

struct machine {
    uint32_t pool;
    enum stage stage;
    bool doomed, fails;
    int64_t launched_us, stage_us;
    int64_t due_us; /* starting: ready or failed; else: lost; NEVER */
    double lead_s;
};

struct zone {
    bool down;
    int64_t turn_us;
    struct rng rng;
};

struct sim_control {
    struct sim_control_setup setup;
    struct plan_service service;
    uint32_t group[SCALE_POOLS_MAX]; /* the plan's pool that each pool is an offer of */
    struct offer offer[SCALE_POOLS_MAX];
    struct offer_health health[SCALE_POOLS_MAX];
    struct zone zone[SIM_ZONES_MAX];
    struct control_window *window;
    struct plan_memory memory;
    struct plan plan;
    struct rng rng;

    struct machine *machine; /* by number */
    uint32_t count, room;
    uint32_t *live; /* numbers that have not ended */
    uint32_t live_count;

    struct plan_instance *view;
    uint32_t *view_number; /* parallel to view */

    struct sim_control_action *out;
    uint32_t out_count;
    struct sim_control_action pending[SIM_CONTROL_ACTIONS_MAX];
    uint32_t pending_count;

    uint16_t *need; /* the clairvoyant's, by second */
    uint32_t need_count;

    int64_t tick_us;                 /* next decision */
    int64_t last_us;                 /* totals are up to here */
    struct sim_control_totals total; /* floor_*: as of the last return to the floor */
    uint32_t floor;                  /* the least that it may have */
    bool above_floor;
};

/* ---- totals ---- */

static void account(struct sim_control *c, int64_t now_us)
{
    double span_s = (double)(now_us - c->last_us) / 1e6;
    if (span_s <= 0) return;
    for (uint32_t i = 0; i < c->live_count; i++) {
        const struct machine *m = &c->machine[c->live[i]];
        c->total.instance_seconds += span_s;
        c->total.cost_usd += span_s / 3600 * c->setup.pool[m->pool].price_h;
    }
    c->last_us = now_us;
}

static void note_floor(struct sim_control *c, int64_t now_us)
{
    bool above = c->live_count > c->floor;
    if (c->above_floor && !above) {
        c->total.floor_s = (double)now_us / 1e6;
        c->total.floor_instance_seconds = c->total.instance_seconds;
    }
    c->above_floor = above;
    c->total.instances_max = max_u32(c->total.instances_max, c->live_count);
}

/* ---- machines ---- */

static void emit(struct sim_control *c, enum sim_control_act act, uint32_t number)
{
    struct sim_control_action a = { act, number, c->machine[number].pool };
    if (c->out && c->out_count < SIM_CONTROL_ACTIONS_MAX)
        c->out[c->out_count++] = a;
    else if (c->pending_count < SIM_CONTROL_ACTIONS_MAX)
        c->pending[c->pending_count++] = a;
    else
        must(false); /* live instances are fewer than both lists together */
}

static bool grow(struct sim_control *c)
{
    if (c->count < c->room) return true;
    uint32_t room = max_u32(ROOM_MIN, c->room * 2);
    struct machine *to = realloc(c->machine, room * sizeof *to);
    if (!to) return false;
    c->machine = to;
    c->room = room;
    return true;
}

/* Draws what the launch will be: its phases, and whether it comes to an end at all. */
static void draw_launch(struct sim_control *c, uint32_t number, int64_t now_us)
{
    struct machine *m = &c->machine[number];
    const struct sim_control_pool *p = &c->setup.pool[m->pool];
    struct rng lead, fail;
    rng_stream(&lead, c->setup.seed, number, PURPOSE_LEAD);
    rng_stream(&fail, c->setup.seed, number, PURPOSE_FAIL);
    double sigma = c->setup.lead_sigma, sum = 0;
    for (uint32_t k = 0; k < SIM_PHASE_COUNT; k++) {
        double s = p->lead_s * phase_share[k] * exp(sigma * rng_normal(&lead) - sigma * sigma / 2);
        c->total.phase_s[k] += s;
        sum += s;
    }
    m->lead_s = sum;
    m->fails = rng_f64(&fail) < p->fail_share;
    if (m->fails) sum *= rng_f64(&fail);
    m->due_us = now_us + (int64_t)(sum * 1e6);
}

static uint32_t add_machine(struct sim_control *c, uint32_t pool, int64_t now_us)
{
    if (c->live_count == PLAN_INSTANCES_MAX || !grow(c)) return UINT32_MAX;
    uint32_t number = c->count++;
    c->machine[number] = (struct machine){
        .pool = pool, .launched_us = now_us, .stage_us = now_us, .due_us = NEVER
    };
    c->live[c->live_count++] = number;
    return number;
}

static void set_life(struct sim_control *c, uint32_t number, int64_t now_us)
{
    struct machine *m = &c->machine[number];
    struct rng rng;
    rng_stream(&rng, c->setup.seed, number, PURPOSE_LIFE);
    double life_s = c->setup.pool[m->pool].life_s;
    m->stage = STAGE_READY;
    m->stage_us = now_us;
    m->due_us = life_s > 0 ? now_us + (int64_t)(rng_exp(&rng, life_s) * 1e6) : NEVER;
}

static void end_machine(struct sim_control *c, uint32_t number)
{
    for (uint32_t i = 0; i < c->live_count; i++) {
        if (c->live[i] != number) continue;
        c->live[i] = c->live[--c->live_count];
        break;
    }
    c->machine[number].stage = STAGE_ENDED;
    c->machine[number].due_us = NEVER;
}

static void lose(struct sim_control *c, uint32_t number)
{
    struct machine *m = &c->machine[number];
    c->total.lost++;
    c->health[m->pool].lost++;
    end_machine(c, number);
    emit(c, SIM_GONE, number);
}

static void launch(struct sim_control *c, uint32_t pool, int64_t now_us)
{
    const struct sim_control_pool *p = &c->setup.pool[pool];
    if (p->spot && c->zone[p->zone].down) {
        offer_answered(&c->health[pool], OFFER_CAPACITY, NULL, now_us);
        return;
    }
    uint32_t number = add_machine(c, pool, now_us);
    if (number == UINT32_MAX) {
        offer_answered(&c->health[pool], OFFER_QUOTA, "no room for more instances", now_us);
        return;
    }
    offer_answered(&c->health[pool], OFFER_OK, NULL, now_us);
    draw_launch(c, number, now_us);
    c->total.launches++;
    emit(c, SIM_LAUNCH, number);
}

/* A machine's own moment: started, failed to start, or lost. */
static void turn_machine(struct sim_control *c, uint32_t number, int64_t now_us)
{
    struct machine *m = &c->machine[number];
    if (m->stage != STAGE_STARTING) {
        lose(c, number);
        return;
    }
    if (m->fails) {
        c->total.launches_failed++;
        offer_answered(&c->health[m->pool], OFFER_TRANSIENT, "a launch failed", now_us);
        end_machine(c, number);
        emit(c, SIM_GONE, number);
        return;
    }
    offer_learn_lead(&c->offer[m->pool], (double)(now_us - m->launched_us) / 1e6);
    set_life(c, number, now_us);
    emit(c, SIM_SERVE, number);
}

/* ---- zones ---- */

static void turn_zone(struct sim_control *c, uint32_t z, int64_t now_us)
{
    struct zone *zone = &c->zone[z];
    const struct sim_zone *s = &c->setup.zone[z];
    zone->down = !zone->down;
    double spell_s = rng_exp(&zone->rng, zone->down ? s->down_s : s->up_s);
    zone->turn_us = now_us + max_i64(1, (int64_t)(spell_s * 1e6));
    if (!zone->down) return;
    int64_t end_us = now_us + (int64_t)(c->setup.notice_s * 1e6);
    for (uint32_t i = c->live_count; i-- > 0;) {
        uint32_t number = c->live[i];
        struct machine *m = &c->machine[number];
        const struct sim_control_pool *p = &c->setup.pool[m->pool];
        if (!p->spot || p->zone != z) continue;
        if (m->stage == STAGE_STARTING) {
            lose(c, number);
            continue;
        }
        m->doomed = true;
        m->due_us = min_i64(m->due_us, end_us);
        if (m->stage == STAGE_READY) emit(c, SIM_DRAIN, number);
        m->stage = STAGE_DRAINING;
        m->stage_us = now_us;
    }
}

/* ---- the view ---- */

static enum phase phase_of(const struct machine *m)
{
    static const enum phase phases[] = { [STAGE_STARTING] = PHASE_STARTING,
                                         [STAGE_READY] = PHASE_READY,
                                         [STAGE_DRAINING] = PHASE_DRAINING,
                                         [STAGE_ENDED] = PHASE_ENDING };
    return phases[m->stage];
}

static const struct sim_load *load_of(const struct sim_control_input *in, uint32_t number)
{
    for (uint32_t i = 0; i < in->load_count; i++)
        if (in->load[i].number == number) return &in->load[i];
    return NULL;
}

static void show_machine(const struct sim_control *c, uint32_t number,
                         const struct sim_control_input *in, struct plan_instance *ret)
{
    const struct machine *m = &c->machine[number];
    const struct sim_control_pool *p = &c->setup.pool[m->pool];
    const struct sim_load *l = load_of(in, number);
    *ret = (struct plan_instance){ .pool = c->group[m->pool],
                                   .offer = m->pool,
                                   .phase = phase_of(m),
                                   .fresh = l || m->stage == STAGE_STARTING,
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

/* The clairvoyant's count is set as a person's hand would set it: past signal and shaper. */
static void foresee(struct sim_control *c, int64_t now_us)
{
    uint32_t second = (uint32_t)min_i64(now_us / SECOND, c->need_count - 1);
    uint32_t want = c->need_count ? c->need[second] : 0;
    want = min_u32(max_u32(want, c->service.min), c->service.max);
    for (uint32_t p = 0; p < c->service.pool_count; p++) {
        uint32_t n = min_u32(max_u32(want, c->setup.pool[p].min), c->service.pool[p].max);
        c->service.pool[p].manual = (int32_t)n;
        want -= min_u32(n, want);
    }
}

static void carry_out(struct sim_control *c, int64_t now_us)
{
    for (uint32_t i = 0; i < c->plan.action_count; i++) {
        const struct plan_action *a = &c->plan.action[i];
        c->total.scale_actions++;
        if (a->act == PLAN_LAUNCH) {
            launch(c, a->offer, now_us);
            continue;
        }
        uint32_t number = c->view_number[a->instance];
        struct machine *m = &c->machine[number];
        if (a->act == PLAN_CANCEL) {
            end_machine(c, number);
            emit(c, SIM_GONE, number);
            continue;
        }
        m->stage = a->act == PLAN_DRAIN ? STAGE_DRAINING : STAGE_READY;
        m->stage_us = now_us;
        emit(c, a->act == PLAN_DRAIN ? SIM_DRAIN : SIM_KEEP, number);
    }
}

static void decide(struct sim_control *c, int64_t now_us, const struct sim_control_input *in)
{
    uint32_t waiting = 0, in_flight = 0;
    for (uint32_t i = 0; i < in->load_count; i++) {
        waiting += in->load[i].waiting;
        in_flight += in->load[i].running + in->load[i].waiting;
    }
    for (uint32_t i = 0; i < c->live_count; i++) {
        c->view_number[i] = c->live[i];
        show_machine(c, c->live[i], in, &c->view[i]);
    }
    struct plan_demand demand = { .all_fresh = true };
    control_window_demand(c->window, now_us, &demand.sum);
    demand.sum.waiting = waiting;
    demand.sum.in_flight = in_flight;
    demand.sum.held = in->held;
    demand.sum.held_prompt_tokens = in->held_prompt_tokens;
    if (c->need) foresee(c, now_us);
    struct plan_view view = { .service = &c->service,
                              .service_count = 1,
                              .offer = c->offer,
                              .health = c->health,
                              .offer_count = c->setup.pool_count,
                              .instance = c->view,
                              .instance_count = c->live_count,
                              .demand = &demand,
                              .room = PLAN_INSTANCES_MAX - c->live_count };
    plan(&view, &c->memory, now_us, &c->rng, &c->plan);
    carry_out(c, now_us);
}

/* ---- the public functions ---- */

/* Engines of both pools would be told apart by nothing but their offer. */
static bool are_alike(const struct sim_control_pool *a, const struct sim_control_pool *b)
{
    const struct perf_coef *f = &a->prior, *g = &b->prior;
    bool alike = !(f->a < g->a) && !(f->a > g->a) && !(f->b < g->b) && !(f->b > g->b);
    alike &= !(f->c < g->c) && !(f->c > g->c) && !(f->d < g->d) && !(f->d > g->d);
    return alike && a->seqs_max == b->seqs_max && a->kv_tokens_max == b->kv_tokens_max &&
           a->context_tokens == b->context_tokens;
}

/* Makes pool `p` an offer of the plan's pool of its kind, which is added when it is the first. */
static void add_offer(struct sim_control *c, uint32_t p)
{
    const struct sim_control_pool *from = &c->setup.pool[p];
    struct plan_service *v = &c->service;
    uint32_t first = 0;
    while (first < p && !are_alike(&c->setup.pool[first], from))
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
}

static void fill_service(struct sim_control *c)
{
    const struct sim_control_setup *s = &c->setup;
    const struct scale_policy *policy = s->policy ? s->policy : scale_find(STR(SCALE_DEFAULT));
    struct plan_service *v = &c->service;
    *v = (struct plan_service){ .name = "service",
                                .min = s->min,
                                .max = s->max,
                                .ttft_slo_s = s->ttft_slo_s,
                                .tpot_slo_s = s->tpot_slo_s,
                                .budget_h = s->budget_h,
                                .policy = policy,
                                .scale = s->scale,
                                .place = s->place ? s->place : place_find(STR(PLACE_DEFAULT)) };
    v->shaper = s->shaper ? s->shaper : scale_shape_find(str_from(policy->shaper));
    must(v->shaper);
    v->shape = !s->shaper && policy->shape ? *policy->shape : v->shaper->published;
    uint32_t sum = 0;
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct sim_control_pool *from = &s->pool[p];
        add_offer(c, p);
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
        sum += from->max;
        c->floor += from->min;
    }
    if (v->max == 0) v->max = sum;
    c->floor = max_u32(c->floor, v->min);
}

static int check_setup(const struct sim_control_setup *s, struct err *err)
{
    if (s->pool_count == 0 || s->pool_count > SCALE_POOLS_MAX)
        return err_set(err, -EINVAL, "a fleet has 1 to %d pools", SCALE_POOLS_MAX);
    if (!(s->ttft_slo_s > 0) || !(s->tpot_slo_s > 0))
        return err_set(err, -EINVAL, "scaling needs a promise: TTFT and TPOT");
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct sim_control_pool *pool = &s->pool[p];
        if (pool->min > pool->max || pool->max > SCALE_COUNT_MAX || pool->zone >= SIM_ZONES_MAX)
            return err_set(err, -EINVAL, "pool %u: min, max or zone out of bounds", p);
        if (!(pool->lead_s >= 0) || pool->start > pool->max)
            return err_set(err, -EINVAL, "pool %u: lead time or start out of bounds", p);
    }
    return 0;
}

static int fill_need(struct sim_control *c, struct err *err)
{
    const struct sim_control_setup *s = &c->setup;
    const struct scale_future *f = s->future;
    int64_t last_us = f->count ? f->at_us[f->count - 1] : 0;
    c->need_count = (uint32_t)(last_us / SECOND) + 1;
    c->need = calloc(c->need_count, sizeof *c->need);
    if (!c->need) return err_set(err, -ENOMEM, "no memory for what will come");
    struct scale_pool pool = { .perf = s->pool[0].prior,
                               .seqs_max = max_u32(s->pool[0].seqs_max, 1),
                               .kv_tokens_max = s->pool[0].kv_tokens_max,
                               .step_tokens = s->pool[0].step_tokens };
    for (uint32_t k = 0; k < c->need_count; k++) {
        double need = s->scale.margin * scale_bound_need(f, &pool, s->ttft_slo_s, s->tpot_slo_s,
                                                         k * SECOND, BOUND_HALF_S);
        c->need[k] = (uint16_t)fmin(ceil(need - 1e-9), SCALE_COUNT_MAX);
    }
    scale_bound_plan(c->need, c->need_count, s->pool[0].lead_s);
    return 0;
}

int sim_control_new(const struct sim_control_setup *setup, struct sim_control **ret,
                    struct err *err)
{
    int rc = check_setup(setup, err);
    if (rc < 0) return rc;
    CLEANUP(sim_control_freep) struct sim_control *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "no memory for the controller");
    c->setup = *setup;
    if (c->setup.tick_us <= 0) c->setup.tick_us = SECOND;
    c->live = calloc(PLAN_INSTANCES_MAX, sizeof *c->live);
    c->view = calloc(PLAN_INSTANCES_MAX, sizeof *c->view);
    c->view_number = calloc(PLAN_INSTANCES_MAX, sizeof *c->view_number);
    c->window = control_window_new();
    if (!c->live || !c->view || !c->view_number || !c->window)
        return err_set(err, -ENOMEM, "no memory for the controller");
    fill_service(c);
    rng_stream(&c->rng, setup->seed, 0, PURPOSE_PLAN);
    for (uint32_t z = 0; z < SIM_ZONES_MAX; z++) {
        c->zone[z].turn_us = NEVER;
        if (!(setup->zone[z].down_s > 0)) continue;
        rng_stream(&c->zone[z].rng, setup->seed, z, PURPOSE_ZONE);
        c->zone[z].turn_us = (int64_t)(rng_exp(&c->zone[z].rng, setup->zone[z].up_s) * 1e6);
    }
    if (setup->future) rc = fill_need(c, err);
    if (rc < 0) return rc;
    for (uint32_t p = 0; p < setup->pool_count; p++) {
        for (uint32_t i = 0; i < setup->pool[p].start; i++) {
            uint32_t number = add_machine(c, p, 0);
            if (number == UINT32_MAX) return err_set(err, -ENOMEM, "no memory for instances");
            set_life(c, number, 0);
            emit(c, SIM_LAUNCH, number);
            emit(c, SIM_SERVE, number);
        }
    }
    note_floor(c, 0);
    *ret = TAKE(c);
    return 0;
}

void sim_control_free(struct sim_control *c)
{
    if (!c) return;
    control_window_free(c->window);
    free(c->machine);
    free(c->live);
    free(c->view);
    free(c->view_number);
    free(c->need);
    free(c);
}

void sim_control_arrived(struct sim_control *c, uint32_t prompt, double predicted, int64_t now_us)
{
    control_window_arrived(c->window, prompt, predicted, now_us);
}

void sim_control_began(struct sim_control *c, uint32_t prompt, double predicted, double ttft_s,
                       int64_t now_us)
{
    control_window_left(c->window, prompt, predicted);
    control_window_ttft(c->window, ttft_s, now_us);
    if (ttft_s > c->setup.ttft_slo_s) control_window_judged(c->window, false);
}

void sim_control_dropped(struct sim_control *c, uint32_t prompt, double predicted)
{
    control_window_left(c->window, prompt, predicted);
}

void sim_control_ended(struct sim_control *c, double tpot_s, int64_t now_us)
{
    if (tpot_s >= 0) control_window_tpot(c->window, tpot_s, now_us);
    control_window_judged(c->window, tpot_s <= c->setup.tpot_slo_s);
}

int64_t sim_control_next_us(const struct sim_control *c)
{
    if (c->pending_count) return c->last_us;
    int64_t next = c->tick_us;
    for (uint32_t i = 0; i < c->live_count; i++)
        next = min_i64(next, c->machine[c->live[i]].due_us);
    for (uint32_t z = 0; z < SIM_ZONES_MAX; z++)
        next = min_i64(next, c->zone[z].turn_us);
    return next;
}

bool sim_control_wants_loads(const struct sim_control *c, int64_t now_us)
{
    return now_us >= c->tick_us;
}

uint32_t sim_control_advance(struct sim_control *c, int64_t now_us,
                             const struct sim_control_input *in,
                             struct sim_control_action ret[SIM_CONTROL_ACTIONS_MAX])
{
    account(c, now_us);
    c->out = ret;
    c->out_count = 0;
    uint32_t pending = c->pending_count;
    c->pending_count = 0;
    for (uint32_t i = 0; i < pending; i++)
        c->out[c->out_count++] = c->pending[i];
    for (uint32_t z = 0; z < SIM_ZONES_MAX; z++)
        while (c->zone[z].turn_us <= now_us)
            turn_zone(c, z, now_us);
    for (uint32_t i = c->live_count; i-- > 0;)
        if (c->machine[c->live[i]].due_us <= now_us) turn_machine(c, c->live[i], now_us);
    if (now_us >= c->tick_us) {
        decide(c, now_us, in);
        c->tick_us = now_us + c->setup.tick_us;
    }
    note_floor(c, now_us);
    c->out = NULL;
    return c->out_count;
}

void sim_control_emptied(struct sim_control *c, uint32_t number, int64_t now_us)
{
    must(number < c->count);
    if (c->machine[number].stage != STAGE_DRAINING) return; /* kept, or lost meanwhile */
    account(c, now_us);
    end_machine(c, number);
    note_floor(c, now_us);
}

uint32_t sim_control_billed(const struct sim_control *c, uint32_t pool)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->live_count; i++)
        n += c->machine[c->live[i]].pool == pool;
    return n;
}

uint32_t sim_control_serving(const struct sim_control *c, uint32_t pool)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->live_count; i++) {
        const struct machine *m = &c->machine[c->live[i]];
        n += m->pool == pool && m->stage == STAGE_READY;
    }
    return n;
}

const struct plan_decision *sim_control_decision(const struct sim_control *c)
{
    return &c->plan.decision[0];
}

void sim_control_finish(struct sim_control *c, int64_t end_us, struct sim_control_totals *ret)
{
    account(c, end_us);
    *ret = c->total;
    bool back = ret->floor_s > 0 && !c->above_floor;
    if (back) return;
    ret->floor_s = (double)end_us / 1e6;
    ret->floor_instance_seconds = ret->instance_seconds;
}
