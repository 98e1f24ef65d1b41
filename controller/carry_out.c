/* carry_out.c - the plan is shown the fleet, what it wants is done, and why is written down. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"
#include "controller/core/plan_view.h"

#include <stdlib.h>
#include <string.h>

/* The id's hexadecimal digits: one of its own for each instance. */
static uint64_t id_number(const char *id)
{
    return strtoull(id + strlen("i-"), NULL, 16);
}

static void fill_instance(const struct control *c, uint32_t at, int64_t now_us,
                          struct plan_instance *ret)
{
    const struct intent *i = &c->money.intent[at];
    const struct sighting *s = &c->observed.seen[at];
    const struct detail *d = &c->observed.detail[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    bool heard = s->heard_us && d->has_engine;
    const struct instance_facts facts = {
        .id = i->id,
        .number = id_number(i->id),
        .service = d->service,
        .pool = d->pool,
        .offer = offer,
        .phase = merge_phase(i, s, &c->setup.merge, now_us),
        .fresh = sighting_is_fresh(s, &c->setup.merge, now_us),
        .doomed = d->doomed,
        .pinned = i->aside,
        .routed = d->routed,
        .price_h = i->price_h,
        .lead_s = offer == PLAN_NONE ? 0 : c->money.offer[offer].lead_s,
        .since_us = d->phase_us,
        .context_tokens = heard ? d->engine.context_tokens : 0,
        .step_tokens = heard ? d->engine.step_tokens : 0,
    };
    plan_instance_see(&facts, s, ret);
}

void control_build_view(struct control *c, int64_t now_us, struct plan_view *ret)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < c->money.count && n < CONTROL_INSTANCES_MAX; at++) {
        if (!intent_is_live(&c->money.intent[at])) continue;
        fill_instance(c, at, now_us, &c->desired.view_instance[n]);
        c->desired.view_slot[n++] = at;
    }
    uint32_t unseen =
        c->people.aside.intents; /* live intents that may be there and cannot be read */
    for (uint32_t at = 0; at < c->money.count && unseen > 0; at++)
        unseen -= c->money.intent[at].aside;
    *ret = (struct plan_view){ .service = c->desired.service,
                               .service_count = c->setup.service_count,
                               .offer = c->money.offer,
                               .health = c->money.health,
                               .instance = c->desired.view_instance,
                               .instance_count = n,
                               .demand = c->observed.demand,
                               .mix_room = c->desired.mix_room,
                               .mix = c->desired.mix,
                               .room = CONTROL_INSTANCES_MAX -
                                       min_u32(n + unseen, CONTROL_INSTANCES_MAX) };
}
static int carry_out_one(struct control *c, const struct plan_action *a, int64_t now_us,
                         char ret_id[INTENT_ID_BYTES])
{
    static const enum intent_event events[PLAN_ACT_COUNT] = {
        [PLAN_CANCEL] = INTENT_DRAIN,
        [PLAN_DRAIN] = INTENT_DRAIN,
        [PLAN_KEEP] = INTENT_KEEP,
    };
    control_count(c, CONTROL_M_ACTIONS, plan_act_names[a->act]);
    if (a->act == PLAN_LAUNCH) return control_launch_one(c, a, now_us, ret_id);
    return control_apply(c, c->desired.view_slot[a->instance], events[a->act], a->why, NULL,
                         now_us);
}

int control_keep_decision(struct control *c, uint32_t service, struct str text)
{
    struct err err = { 0 };
    uint64_t seq;
    int rc = store_append(c->setup.store, &c->desired.decision_log, text, &seq, &err);
    if (rc < 0) {
        control_store_failed(c, "decision_not_written", c->desired.service[service].name,
                             err_text(&err, rc));
        return rc;
    }
    c->desired.decision_last = seq;
    control_count(c, CONTROL_M_DECISIONS, NULL);
    return 0;
}

static void record(struct control *c, const struct plan_view *view, const struct plan_decision *d,
                   const char (*launched)[INTENT_ID_BYTES], int64_t now_us)
{
    if (!record_is_news(&c->desired.last[d->service], d)) return;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (record_encode(view, &c->desired.plan, d, launched, now_us + c->date_ahead_us, &text) < 0) {
        control_store_failed(c, "decision_not_written", c->desired.service[d->service].name,
                             "no memory");
        return;
    }
    if (control_keep_decision(c, d->service, buf_view(&text)) < 0) return;
    log_event(LOG_INFO, "decision", "id=%llu service=%s actions=%u reason=%s blocked=%s",
              (unsigned long long)c->desired.decision_last, c->desired.service[d->service].name,
              d->action_count, d->reason, d->blocked ? d->blocked : "");
}

int control_carry_out(struct control *c, int64_t now_us)
{
    char launched[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { { 0 } };
    struct plan_view view;
    control_build_view(c, now_us, &view);
    plan(&view, c->desired.memory, now_us, &c->rng, &c->desired.plan);
    if (c->desired.plan.dropped) control_bound_reached(c, "plan_actions");
    /* What goes down goes first: a crash in between leaves the fleet too small, which costs
     * nothing, and never over its maximum. */
    static const enum plan_act order[] = { PLAN_CANCEL, PLAN_DRAIN, PLAN_KEEP, PLAN_LAUNCH };
    bool unwritten = false; /* what could not go down still counts: nothing comes beside it */
    for (uint32_t k = 0; k < COUNT_OF(order); k++)
        for (uint32_t i = 0; i < c->desired.plan.action_count; i++) {
            enum plan_act act = c->desired.plan.action[i].act;
            bool grows = act == PLAN_LAUNCH || act == PLAN_KEEP;
            if (act != order[k] || (grows && unwritten)) continue;
            int rc = carry_out_one(c, &c->desired.plan.action[i], now_us, launched[i]);
            if (rc == -ECANCELED) return rc;
            unwritten |= rc < 0;
        }
    const char(*ids)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])launched;
    for (uint32_t i = 0; i < c->desired.plan.decision_count; i++)
        record(c, &view, &c->desired.plan.decision[i], ids, now_us);
    return 0;
}
