/* power.c - asks each service's power policy when it is due, and sets the clocks it chooses.
 *
 *     reports ── work between two looks ──► busy share, mean step ┐
 *     reports ── hardware, cores, model ──► roofline              ├─► power_decide ─► clocks
 *     routers ── p99 of their windows ────► tails of the service  ┘
 *
 * The hardware is the table's row that the engine reports; without one, where its offer is a share of
 * a core, the row of a CPU. Watts are those of the cores that an instance may use. Engines keep a
 * clock by injecting idle time.
 */
#include "controller/power.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <math.h>
#include <stdlib.h>

struct power_room {
    struct roofline roofline[CONTROL_INSTANCES_MAX];
    struct power_instance instance[CONTROL_INSTANCES_MAX];
    double clock[CONTROL_INSTANCES_MAX];
    uint32_t slot[CONTROL_INSTANCES_MAX];
    uint32_t count;
};

struct power_room *power_room_new(void)
{
    /* The bounds of the wire and of the policies; clang does not take them as constants. */
    must(WIRE_CLOCK_MIN == POWER_CLOCK_MIN);
    struct power_room *r = calloc(1, sizeof *r);
    must(r);
    return r;
}

void power_room_free(struct power_room *r)
{
    free(r);
}

/* ---- tails ---- */

static struct power_tail tail_now(const struct control *c, uint32_t service, int64_t now_us)
{
    struct power_tail t = { 0 };
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        if (!rt->id[0] || !control_router_is_fresh(rt, now_us) || !rt->demand[service].present)
            continue;
        power_tail_add(&t, &rt->demand[service].last);
    }
    return t;
}

/* ---- instances ---- */

/* Fills an instance's roofline. False: its hardware or its model is unknown. */
static bool model_roofline(const struct control *c, uint32_t at, struct roofline *ret)
{
    const struct detail *d = &c->observed.detail[at];
    const struct model_spec *s = &d->engine.spec;
    const struct intent *i = &c->money.intent[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    double share = offer == PLAN_NONE ? 0 : c->money.offer[offer].share;
    const struct hardware *hw = d->power.hardware;
    if (!hw && share > 0) hw = hardware_find(STR("cpu"));
    if (!hw || !d->engine.has_spec) return false;
    if (!roofline_init(ret, hw, s, 1)) return false;
    double cores = d->engine.cores > 0 ? d->engine.cores : share;
    if (hw->cores <= 0) return true;
    if (cores <= 0) return false;
    double slower = hw->cores / cores;
    const double factor[ROOFLINE_PARTS] = { slower, slower, slower, slower, slower };
    roofline_scale(ret, factor);
    ret->watts_idle /= slower;
    ret->watts_max /= slower;
    return true;
}

static bool is_shown(const struct control *c, uint32_t at, uint32_t service, int64_t now_us)
{
    const struct detail *d = &c->observed.detail[at];
    if (d->service != service || !intent_is_live(&c->money.intent[at]) || !d->has_engine)
        return false;
    if (!c->observed.seen[at].engine_ready) return false;
    return sighting_is_fresh(&c->observed.seen[at], &c->setup.merge, now_us);
}

static enum priority priority_of(const struct control *c, const struct detail *d)
{
    return d->pool == PLAN_NONE ? PRIORITY_HIGH
                                : c->desired.service[d->service].pool[d->pool].priority;
}

static void show(struct control *c, uint32_t service, int64_t now_us)
{
    struct power_room *room = c->observed.power_room;
    struct service_power *p = &c->observed.power[service];
    struct power_tail tail;
    const struct power_tail now = tail_now(c, service, now_us);
    bool known = power_tails_merge(&p->tails, &now, &tail);
    room->count = p->shown = p->unmodelled = 0;
    for (uint32_t at = 0; at < c->money.count; at++) {
        struct detail *d = &c->observed.detail[at];
        if (d->service == service) d->power.watts_known = false;
        if (!is_shown(c, at, service, now_us)) continue;
        uint32_t n = room->count;
        bool clocked = d->engine.clock > 0 && d->engine.has_work && n < CONTROL_INSTANCES_MAX;
        bool modelled = clocked && model_roofline(c, at, &room->roofline[n]);
        p->shown++;
        if (!modelled) p->unmodelled++;
        if (!clocked) continue;
        struct power_instance *in = &room->instance[n];
        const struct power_facts facts = { .roofline = modelled ? &room->roofline[n] : NULL,
                                           .clock = d->engine.clock,
                                           .injects_idle = true,
                                           .waiting = d->engine.waiting,
                                           .priority = priority_of(c, d) };
        power_instance_see(&facts, known ? &tail : NULL, in);
        static const struct wire_work none;
        power_work_since(&d->engine.work, d->power.boot == d->engine.boot ? &d->power.seen : &none,
                         in);
        d->power.boot = d->engine.boot;
        d->power.seen = d->engine.work;
        d->power.watts = power_watts(in, in->clock);
        d->power.watts_known = modelled;
        room->slot[room->count++] = at;
    }
}

/* ---- the look ---- */

static void obey(struct control *c, uint32_t service, const struct power_verdict *v)
{
    struct power_room *room = c->observed.power_room;
    struct service_power *p = &c->observed.power[service];
    uint32_t changed = 0;
    double least = 1;
    for (uint32_t i = 0; i < room->count; i++) {
        struct instance_power *in = &c->observed.detail[room->slot[i]].power;
        changed += fabs(in->clock - v->clock[i]) > POWER_RUNG / 2;
        in->clock = v->clock[i];
        least = fmin(least, in->clock);
    }
    p->reason = v->reason;
    if (changed > 0)
        log_event(LOG_INFO, "clocks", "service=%s changed=%u least=%.2f watts=%.1f reason=%s",
                  c->desired.service[service].name, changed, least, p->watts, v->reason);
}

static void look(struct control *c, uint32_t service, int64_t now_us)
{
    const struct plan_service *sv = &c->desired.service[service];
    struct service_power *p = &c->observed.power[service];
    struct power_room *room = c->observed.power_room;
    show(c, service, now_us);
    struct power_view view = { .instance = room->instance,
                               .count = room->count,
                               .ttft_slo_s = sv->ttft_slo_s,
                               .tpot_slo_s = sv->tpot_slo_s,
                               .power_limit_watts = sv->power_limit_watts };
    for (uint32_t i = 0; i < room->count; i++)
        view.drawn_watts += c->observed.detail[room->slot[i]].power.watts;
    p->watts = view.drawn_watts;
    p->asked = true;
    struct power_verdict v = { .clock = room->clock };
    power_decide(sv->power, p->state, &view, now_us, &v);
    obey(c, service, &v);
    p->due_us = power_again_us(v.again_us, now_us);
    struct str name = str_from(sv->name);
    metric_set(metric_series(c->metrics, CONTROL_M_WATTS, &name), view.drawn_watts);
    if (view.power_limit_watts > 0 && view.drawn_watts > view.power_limit_watts)
        control_count(c, CONTROL_M_BREAKER, sv->name);
}

void control_power(struct control *c, int64_t now_us)
{
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        struct service_power *p = &c->observed.power[s];
        if (!c->desired.service[s].power) continue;
        if (power_tails_due(&p->tails, now_us)) {
            const struct power_tail now = tail_now(c, s, now_us);
            power_tails_take(&p->tails, &now, now_us);
        }
        if (!power_is_due(p->due_us, now_us)) continue;
        look(c, s, now_us);
    }
}

double control_clock(const struct control *c, uint32_t at)
{
    const struct detail *d = &c->observed.detail[at];
    if (d->service == PLAN_NONE) return 0;
    return c->desired.service[d->service].power ? d->power.clock : 1;
}
