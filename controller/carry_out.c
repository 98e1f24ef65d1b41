/* carry_out.c - the plan is shown the fleet, what it wants is done, and why is written down. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

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
    const struct intent *i = &c->intent[at];
    const struct sighting *s = &c->seen[at];
    const struct detail *d = &c->detail[at];
    *ret = (struct plan_instance){
        .service = d->service,
        .pool = d->pool,
        .offer = control_find_offer(c, i->provider, i->offer),
        .phase = merge_phase(i, s, &c->setup.merge, now_us),
        .fresh = sighting_is_fresh(s, &c->setup.merge, now_us),
        .doomed = d->doomed,
        .pinned = i->aside,
        .in_flight = max_u32(s->in_flight, d->routed),
        .pages_cached = s->pages_cached,
        .has_perf = s->has_perf,
        .perf = s->perf,
        .seqs_max = s->seqs_max,
        .price_h = i->price_h,
        .since_us = d->phase_us,
        .context_tokens = s->heard_us && d->has_engine ? d->engine.context_tokens : 0,
        .step_tokens = s->heard_us && d->has_engine ? d->engine.step_tokens : 0,
        .load = { .id = id_number(i->id),
                  .running = s->running,
                  .waiting = s->waiting,
                  .kv_tokens = s->kv_tokens,
                  .kv_tokens_max = s->kv_tokens_max,
                  .prefill_known = s->prefill_known,
                  .prefill_tokens = s->prefill_tokens },
    };
    uint32_t offer = ret->offer;
    if (offer != PLAN_NONE) ret->lead_s = c->offer[offer].lead_s;
    memcpy(ret->id, i->id, sizeof ret->id);
}

void control_build_view(struct control *c, int64_t now_us, struct plan_view *ret)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < c->count && n < CONTROL_INSTANCES_MAX; at++) {
        if (!intent_is_live(&c->intent[at])) continue;
        fill_instance(c, at, now_us, &c->view_instance[n]);
        c->view_slot[n++] = at;
    }
    uint32_t unseen = c->aside.intents; /* live intents that may be there and cannot be read */
    for (uint32_t at = 0; at < c->count && unseen > 0; at++)
        unseen -= c->intent[at].aside;
    *ret = (struct plan_view){ .service = c->service,
                               .service_count = c->setup.service_count,
                               .offer = c->offer,
                               .health = c->health,
                               .instance = c->view_instance,
                               .instance_count = n,
                               .demand = c->demand,
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
    return control_apply(c, c->view_slot[a->instance], events[a->act], a->why, NULL, now_us);
}

int control_keep_decision(struct control *c, uint32_t service, struct str text)
{
    struct err err = { 0 };
    uint64_t seq;
    int rc = store_append(c->setup.store, &c->decision_log, text, &seq, &err);
    if (rc < 0) {
        control_store_failed(c, "decision_not_written", c->service[service].name,
                             err_text(&err, rc));
        return rc;
    }
    c->decision_last = seq;
    control_count(c, CONTROL_M_DECISIONS, NULL);
    return 0;
}

static void record(struct control *c, const struct plan_view *view, const struct plan_decision *d,
                   const char (*launched)[INTENT_ID_BYTES], int64_t now_us)
{
    if (!record_is_news(&c->last[d->service], d)) return;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (record_encode(view, &c->plan, d, launched, now_us + c->date_ahead_us, &text) < 0) {
        control_store_failed(c, "decision_not_written", c->service[d->service].name, "no memory");
        return;
    }
    if (control_keep_decision(c, d->service, buf_view(&text)) < 0) return;
    log_event(LOG_INFO, "decision", "id=%llu service=%s actions=%u reason=%s blocked=%s",
              (unsigned long long)c->decision_last, c->service[d->service].name, d->action_count,
              d->reason, d->blocked ? d->blocked : "");
}

int control_carry_out(struct control *c, int64_t now_us)
{
    char launched[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { { 0 } };
    struct plan_view view;
    control_build_view(c, now_us, &view);
    plan(&view, c->memory, now_us, &c->rng, &c->plan);
    if (c->plan.dropped) control_bound_reached(c, "plan_actions");
    /* What goes down goes first: a crash in between leaves the fleet too small, which costs
     * nothing, and never over its maximum. */
    static const enum plan_act order[] = { PLAN_CANCEL, PLAN_DRAIN, PLAN_KEEP, PLAN_LAUNCH };
    bool unwritten = false; /* what could not go down still counts: nothing comes beside it */
    for (uint32_t k = 0; k < COUNT_OF(order); k++)
        for (uint32_t i = 0; i < c->plan.action_count; i++) {
            enum plan_act act = c->plan.action[i].act;
            bool grows = act == PLAN_LAUNCH || act == PLAN_KEEP;
            if (act != order[k] || (grows && unwritten)) continue;
            int rc = carry_out_one(c, &c->plan.action[i], now_us, launched[i]);
            if (rc == -ECANCELED) return rc;
            unwritten |= rc < 0;
        }
    const char(*ids)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])launched;
    for (uint32_t i = 0; i < c->plan.decision_count; i++)
        record(c, &view, &c->plan.decision[i], ids, now_us);
    return 0;
}
