/* cloud.c - plays launches, lives and losses of machines in virtual time.
 *
 *     launch -> provision -> image -> weights -> warm-up -> ready -> draining -> ended
 *                  \____________ fails half-way ________/      \___ lost ___/
 */
#include "simulator/cloud.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER INT64_MAX
#define ROOM_MIN 64
#define ACTIONS_EACH 4 /* of a machine between two calls: launch, serve, drain and gone */

/* Shares of the lead time, as published starts of large engines divide it: machine, image, weights,
 * graph capture. */
static const double phase_share[SIM_PHASE_COUNT] = { 0.35, 0.15, 0.35, 0.15 };

enum purpose { PURPOSE_LEAD = 101, PURPOSE_FAIL, PURPOSE_LIFE, PURPOSE_ZONE };

/* ---- totals ---- */

static void account(struct sim_cloud *c, int64_t now_us)
{
    double span_s = (double)(now_us - c->last_us) / 1e6;
    if (span_s <= 0) return;
    for (uint32_t i = 0; i < c->live_count; i++) {
        const struct machine *m = &c->machine[c->live[i]];
        c->total.instance_seconds += span_s;
        c->total.cost_usd += span_s / 3600 * c->setup->pool[m->pool].price_h;
    }
    c->last_us = now_us;
}

static void note_floor(struct sim_cloud *c, int64_t now_us)
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

static void emit(struct sim_cloud *c, enum sim_control_act act, uint32_t number)
{
    must(c->action_count < c->action_room);
    const struct machine *m = &c->machine[number];
    bool tells = act == SIM_DRAIN && m->doomed;
    c->action[c->action_count++] =
        (struct sim_control_action){ act, number, m->pool, tells ? m->due_us : 0 };
}

static bool grow(struct sim_cloud *c)
{
    if (c->count < c->room) return true;
    uint32_t room = max_u32(ROOM_MIN, c->room * 2);
    struct machine *to = realloc(c->machine, room * sizeof *to);
    if (!to) return false;
    c->machine = to;
    c->room = room;
    return true;
}

/* Draws a launch: its phases, and whether it fails on the way. */
static void draw_launch(struct sim_cloud *c, uint32_t number, int64_t now_us)
{
    struct machine *m = &c->machine[number];
    const struct sim_control_pool *p = &c->setup->pool[m->pool];
    struct rng lead, fail;
    rng_stream(&lead, c->setup->seed, number, PURPOSE_LEAD);
    rng_stream(&fail, c->setup->seed, number, PURPOSE_FAIL);
    double sigma = c->setup->lead_sigma, sum = 0;
    for (uint32_t k = 0; k < SIM_PHASE_COUNT; k++) {
        double s = p->lead_s * phase_share[k] * exp(sigma * rng_normal(&lead) - sigma * sigma / 2);
        c->total.phase_s[k] += s;
        sum += s;
    }
    m->fails = rng_f64(&fail) < p->fail_share;
    if (m->fails) sum *= rng_f64(&fail);
    m->due_us = now_us + (int64_t)(sum * 1e6);
}

static uint32_t add_machine(struct sim_cloud *c, uint32_t pool, int64_t now_us)
{
    if (c->live_count == c->setup->instances_max || !grow(c)) return UINT32_MAX;
    uint32_t number = c->count++;
    c->machine[number] = (struct machine){
        .pool = pool, .launched_us = now_us, .stage_us = now_us, .due_us = NEVER
    };
    c->live[c->live_count++] = number;
    return number;
}

static void set_life(struct sim_cloud *c, uint32_t number, int64_t now_us)
{
    struct machine *m = &c->machine[number];
    struct rng rng;
    rng_stream(&rng, c->setup->seed, number, PURPOSE_LIFE);
    double life_s = c->setup->pool[m->pool].life_s;
    m->stage = MACHINE_READY;
    m->stage_us = now_us;
    m->due_us = life_s > 0 ? now_us + (int64_t)(rng_exp(&rng, life_s) * 1e6) : NEVER;
}

static void end_machine(struct sim_cloud *c, uint32_t number)
{
    for (uint32_t i = 0; i < c->live_count; i++) {
        if (c->live[i] != number) continue;
        c->live[i] = c->live[--c->live_count];
        break;
    }
    c->machine[number].stage = MACHINE_ENDED;
    c->machine[number].due_us = NEVER;
}

static void lose(struct sim_cloud *c, uint32_t number)
{
    struct machine *m = &c->machine[number];
    c->total.lost++;
    if (!m->doomed) c->health[m->pool].lost++;
    end_machine(c, number);
    emit(c, SIM_GONE, number);
}

void sim_cloud_launch(struct sim_cloud *c, uint32_t pool, int64_t now_us)
{
    const struct sim_control_pool *p = &c->setup->pool[pool];
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

/* Does what is due for a machine by itself: it has started, failed to start, or is lost. */
static void turn_machine(struct sim_cloud *c, uint32_t number, int64_t now_us)
{
    struct machine *m = &c->machine[number];
    if (m->stage != MACHINE_STARTING) {
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

static void turn_zone(struct sim_cloud *c, uint32_t z, int64_t now_us)
{
    struct zone *zone = &c->zone[z];
    const struct sim_zone *s = &c->setup->zone[z];
    zone->down = !zone->down;
    double spell_s = rng_exp(&zone->rng, zone->down ? s->down_s : s->up_s);
    zone->turn_us = now_us + max_i64(1, (int64_t)(spell_s * 1e6));
    if (!zone->down) return;
    int64_t end_us = now_us + (int64_t)(c->setup->notice_s * 1e6);
    for (uint32_t i = c->live_count; i-- > 0;) {
        uint32_t number = c->live[i];
        struct machine *m = &c->machine[number];
        const struct sim_control_pool *p = &c->setup->pool[m->pool];
        if (!p->spot || p->zone != z) continue;
        if (m->stage == MACHINE_STARTING) {
            lose(c, number);
            continue;
        }
        bool told = m->doomed && m->stage == MACHINE_DRAINING;
        if (!m->doomed) c->health[m->pool].lost++; /* as the controller counts it, at the notice */
        m->doomed = true;
        m->due_us = min_i64(m->due_us, end_us);
        if (!told) emit(c, SIM_DRAIN, number);
        m->stage = MACHINE_DRAINING;
        m->stage_us = now_us;
    }
}

static void start_zones(struct sim_cloud *c)
{
    for (uint32_t z = 0; z < SIM_ZONES_MAX; z++) {
        const struct sim_zone *s = &c->setup->zone[z];
        c->zone[z].turn_us = NEVER;
        if (!(s->down_s > 0)) continue;
        rng_stream(&c->zone[z].rng, c->setup->seed, z, PURPOSE_ZONE);
        c->zone[z].turn_us = (int64_t)(rng_exp(&c->zone[z].rng, s->up_s) * 1e6);
    }
}

/* ---- the public functions ---- */

int sim_cloud_init(struct sim_cloud *c, const struct sim_control_setup *setup, uint32_t floor,
                   struct offer *offer, struct offer_health *health, struct err *err)
{
    *c = (struct sim_cloud){ .setup = setup, .offer = offer, .health = health, .floor = floor };
    c->action_room = ACTIONS_EACH * setup->instances_max + SIM_CONTROL_ACTIONS_MAX;
    c->action = calloc(c->action_room, sizeof *c->action);
    c->live = calloc(setup->instances_max, sizeof *c->live);
    if (!c->live || !c->action) return err_set(err, -ENOMEM, "no memory for instances");
    start_zones(c);
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
    return 0;
}

void sim_cloud_fini(struct sim_cloud *c)
{
    free(c->machine);
    free(c->live);
    free(c->action);
    *c = (struct sim_cloud){ 0 };
}

int64_t sim_cloud_next_us(const struct sim_cloud *c)
{
    if (c->action_count) return c->last_us;
    int64_t next = NEVER;
    for (uint32_t i = 0; i < c->live_count; i++)
        next = min_i64(next, c->machine[c->live[i]].due_us);
    for (uint32_t z = 0; z < SIM_ZONES_MAX; z++)
        next = min_i64(next, c->zone[z].turn_us);
    return next;
}

void sim_cloud_begin(struct sim_cloud *c, int64_t now_us)
{
    account(c, now_us);
    for (uint32_t z = 0; z < SIM_ZONES_MAX; z++)
        while (c->zone[z].turn_us <= now_us)
            turn_zone(c, z, now_us);
    for (uint32_t i = c->live_count; i-- > 0;)
        if (c->machine[c->live[i]].due_us <= now_us) turn_machine(c, c->live[i], now_us);
}

uint32_t sim_cloud_finish(struct sim_cloud *c, int64_t now_us,
                          struct sim_control_action ret[SIM_CONTROL_ACTIONS_MAX])
{
    note_floor(c, now_us);
    uint32_t told = min_u32(c->action_count, SIM_CONTROL_ACTIONS_MAX);
    memcpy(ret, c->action, told * sizeof *ret);
    c->action_count -= told;
    memmove(c->action, c->action + told, c->action_count * sizeof *ret);
    return told;
}

void sim_cloud_cancel(struct sim_cloud *c, uint32_t number)
{
    end_machine(c, number);
    emit(c, SIM_GONE, number);
}

static void turn_stage(struct sim_cloud *c, uint32_t number, enum machine_stage to, int64_t now_us)
{
    c->machine[number].stage = to;
    c->machine[number].stage_us = now_us;
    emit(c, to == MACHINE_DRAINING ? SIM_DRAIN : SIM_KEEP, number);
}

void sim_cloud_drain(struct sim_cloud *c, uint32_t number, int64_t now_us)
{
    turn_stage(c, number, MACHINE_DRAINING, now_us);
}

void sim_cloud_keep(struct sim_cloud *c, uint32_t number, int64_t now_us)
{
    turn_stage(c, number, MACHINE_READY, now_us);
}

void sim_cloud_emptied(struct sim_cloud *c, uint32_t number, int64_t now_us)
{
    must(number < c->count);
    if (c->machine[number].stage != MACHINE_DRAINING) return; /* kept, or lost meanwhile */
    account(c, now_us);
    end_machine(c, number);
    note_floor(c, now_us);
}

void sim_cloud_totals(struct sim_cloud *c, int64_t end_us, struct sim_control_totals *ret)
{
    account(c, end_us);
    *ret = c->total;
    bool back = ret->floor_s > 0 && !c->above_floor;
    if (back) return;
    ret->floor_s = (double)end_us / 1e6;
    ret->floor_instance_seconds = ret->instance_seconds;
}
