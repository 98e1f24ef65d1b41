/* roles.c - gives each instance of a service its role: prefill, decode or both.
 *
 * Instances of a service without a role policy keep the roles of their pools. A role policy is asked when
 * it wants to be, and at once when an instance has come or gone; it sees instances of pools with a role
 * of their own, which keep it. In both cases role.h's first rule holds at every tick: instances of one
 * phase serve whole requests as long as the other phase has none.
 *
 * Routers are told roles with their next sync, and roles are not stored: after a restart the pools' roles
 * hold until the policy has chosen. A role changes at once; an instance goes on with the requests that
 * it has begun. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"
#include "controller/core/plan_view.h"
#include "fleet/demand.h"

#include <string.h>

#define HELD "roles as the pools have them"
#define WEIGHTLESS "no engine says what K and V of a token weigh"

static enum role pool_role(const struct control *c, uint32_t at)
{
    const struct detail *d = &c->observed.detail[at];
    return d->pool == PLAN_NONE ? ROLE_BOTH : c->desired.service[d->service].pool[d->pool].role;
}

void control_first_role(struct control *c, uint32_t at)
{
    bool taken[SLOTS_MAX] = { false };
    uint32_t id = 0;
    for (uint32_t i = 0; i < c->money.count; i++)
        if (i != at) taken[c->observed.detail[i].role_id] = true;
    while (taken[id])
        id++;
    c->observed.detail[at].role_id = id;
    c->observed.detail[at].role = pool_role(c, at);
}

/* ---- the policy's view ---- */

static bool serves(const struct control *c, uint32_t at, int64_t now_us)
{
    const struct sighting *s = &c->observed.seen[at];
    return c->money.intent[at].state == INTENT_REGISTERED && s->engine_ready &&
           s->state == AGENT_UP && sighting_is_fresh(s, &c->setup.merge, now_us);
}

/* Fills the policy's view of an instance. An engine that does not report the KV bytes of a token makes no
 * handoffs: it serves whole requests. */
static void describe(const struct control *c, uint32_t at, int64_t now_us,
                     struct role_instance *ret)
{
    const struct detail *d = &c->observed.detail[at];
    const struct role_facts facts = { .id = d->role_id,
                                      .ready = serves(c, at, now_us),
                                      .moves_kv = d->engine.kv_token_bytes > 0,
                                      .pool_role = pool_role(c, at),
                                      .role = d->role,
                                      .step_tokens = d->engine.step_tokens,
                                      .context_tokens = d->engine.context_tokens };
    role_instance_see(&facts, &c->observed.seen[at], ret);
}

static void lend_speeds(struct control *c, uint32_t count)
{
    const struct perf_coef *prior[PLAN_OFFERS_MAX] = { NULL };
    uint32_t offer[CONTROL_INSTANCES_MAX];
    for (uint32_t o = 0; o < c->money.offer_count; o++)
        if (c->money.offer[o].has_prior) prior[o] = &c->money.offer[o].prior;
    for (uint32_t i = 0; i < count; i++) {
        const struct intent *from = &c->money.intent[c->observed.role_slot[i]];
        offer[i] = control_find_offer(c, from->provider, from->offer);
    }
    role_lend_speeds(c->observed.role_instance, offer, count, prior, PLAN_OFFERS_MAX);
}

static struct role_view build_view(struct control *c, uint32_t service, int64_t now_us)
{
    const struct plan_service *s = &c->desired.service[service];
    struct role_view v = { .instance = c->observed.role_instance,
                           .demand = role_demand_of(&c->observed.demand[service].sum),
                           .ttft_slo_s = s->ttft_slo_s,
                           .tpot_slo_s = s->tpot_slo_s,
                           .attainment = ROLE_ATTAINMENT,
                           .link_bytes_s = s->kv_link_bytes_s,
                           .evaluator = &role_closed_form };
    for (uint32_t at = 0; at < c->money.count && v.instance_count < CONTROL_INSTANCES_MAX; at++) {
        const struct detail *d = &c->observed.detail[at];
        if (d->service != service || !intent_is_live(&c->money.intent[at])) continue;
        if (d->has_engine && d->engine.kv_token_bytes > v.token_bytes)
            v.token_bytes = d->engine.kv_token_bytes;
        describe(c, at, now_us, &c->observed.role_instance[v.instance_count]);
        c->observed.role_slot[v.instance_count++] = at;
    }
    if (s->role) lend_speeds(c, v.instance_count);
    return v;
}

/* ---- record and effects ---- */

static void put_known(struct json_writer *w, const char *name, double value)
{
    json_key(w, name);
    if (value >= 0)
        json_put_f64(w, value);
    else
        json_put_null(w);
}

static void put_inputs(struct json_writer *w, const struct scale_demand *d,
                       const struct role_view *v)
{
    json_key(w, "inputs");
    json_object(w);
    json_kv_bool(w, "demand_known", d->present);
    if (d->present) {
        json_kv_f64(w, "demand_age_s", d->age_s);
        record_put_demand(w, d);
    }
    json_kv_f64(w, "link_bytes_per_s", v->link_bytes_s);
    json_kv_f64(w, "kv_token_bytes", v->token_bytes);
    json_object_end(w);
}

static bool changes(const struct control *c, const struct role_view *v,
                    const struct role_verdict *verdict, uint32_t i)
{
    return v->instance[i].ready &&
           c->observed.detail[c->observed.role_slot[i]].role != verdict->role[i];
}

static void put_changes(struct json_writer *w, const struct control *c, const struct role_view *v,
                        const struct role_verdict *verdict)
{
    json_key(w, "actions");
    json_array(w);
    for (uint32_t i = 0; i < v->instance_count; i++) {
        uint32_t at = c->observed.role_slot[i];
        if (!changes(c, v, verdict, i)) continue;
        json_object(w);
        json_kv_text(w, "act", "role");
        json_kv_text(w, "pool", c->money.intent[at].pool);
        json_kv_text(w, "instance", c->money.intent[at].id);
        json_kv_text(w, "was", role_names[c->observed.detail[at].role]);
        json_kv_text(w, "role", role_names[verdict->role[i]]);
        json_object_end(w);
    }
    json_array_end(w);
}

/* Keeps the decision before it is carried out, because it shows the old roles. */
static void keep_record(struct control *c, uint32_t service, const struct role_view *v,
                        const struct role_verdict *verdict, int64_t now_us)
{
    const struct plan_service *s = &c->desired.service[service];
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct json_writer w;
    json_writer_init(&w, &text);
    json_object(&w);
    json_kv_i64(&w, "at_us", now_us + c->date_ahead_us);
    json_kv_text(&w, "service", s->name);
    json_kv_text(&w, "kind", "role");
    json_kv_text(&w, "policy", s->role ? s->role->name : NULL);
    json_kv_text(&w, "reason", verdict->reason);
    put_inputs(&w, &c->observed.demand[service].sum, v);
    put_known(&w, "goodput_rps", verdict->goodput_rps);
    put_known(&w, "runner_up_rps", verdict->runner_up_rps);
    put_changes(&w, c, v, verdict);
    json_object_end(&w);
    if (text.rc < 0)
        control_store_failed(c, "decision_not_written", s->name, "no memory");
    else
        (void)control_keep_decision(c, service, buf_view(&text)); /* logged and counted there */
}

static void carry_out(struct control *c, uint32_t service, const struct role_view *v,
                      const struct role_verdict *verdict, int64_t now_us)
{
    const char *name = c->desired.service[service].name;
    uint32_t of[ROLE_COUNT] = { 0 }, changed = 0;
    for (uint32_t i = 0; i < v->instance_count; i++)
        changed += changes(c, v, verdict, i);
    if (changed > 0) keep_record(c, service, v, verdict, now_us);
    for (uint32_t i = 0; i < v->instance_count; i++) {
        struct str label[2] = { str_from(name), str_from(role_names[verdict->role[i]]) };
        if (!v->instance[i].ready) continue;
        of[verdict->role[i]]++;
        if (!changes(c, v, verdict, i)) continue;
        c->observed.detail[c->observed.role_slot[i]].role = verdict->role[i];
        metric_inc(metric_series(c->metrics, CONTROL_M_ROLE_CHANGES, label));
        log_event(LOG_INFO, "role", "instance=%s service=%s role=%s reason=%s",
                  c->money.intent[c->observed.role_slot[i]].id, name, role_names[verdict->role[i]],
                  verdict->reason);
    }
    for (uint32_t r = 0; r < ROLE_COUNT; r++) {
        struct str label[2] = { str_from(name), str_from(role_names[r]) };
        metric_set(metric_series(c->metrics, CONTROL_M_ROLES, label), of[r]);
    }
}

/* Returns a sum over the ready instances and their known speeds, which changes when one comes or goes. */
static uint64_t ready_sum(const struct role_view *v)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < v->instance_count; i++)
        if (v->instance[i].ready)
            sum +=
                ((uint64_t)1 << 40) + ((uint64_t)v->instance[i].has_perf << 20) + v->instance[i].id;
    return sum;
}

static void look(struct control *c, uint32_t service, const struct role_view *v, int64_t now_us,
                 struct role_verdict *ret)
{
    const struct role_policy *policy = c->desired.service[service].role;
    struct roles *r = &c->observed.roles[service];
    uint64_t ready = ready_sum(v);
    bool moved = ready != r->ready && now_us >= r->looked_us + ROLE_LOOK_US_MIN;
    if (!policy || v->token_bytes <= 0 || (now_us < r->look.again_us && !moved)) {
        bool weightless = policy && v->token_bytes <= 0;
        role_hold(v, weightless ? WEIGHTLESS : HELD, now_us, ret);
        if (weightless || !policy) r->reason = ret->reason;
        return;
    }
    if (!r->look.policy) rng_stream(&r->look.rng, c->setup.seed, service, 0);
    r->look.policy = policy;
    role_look(&r->look, v, now_us, ret);
    r->looked_us = now_us;
    r->ready = ready;
    r->reason = ret->reason;
    r->goodput_rps = ret->goodput_rps;
}

void control_give_roles(struct control *c, int64_t now_us)
{
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        struct role_view view = build_view(c, s, now_us);
        struct role_verdict verdict;
        look(c, s, &view, now_us, &verdict);
        carry_out(c, s, &view, &verdict, now_us);
    }
}
