/* api_views.c - writes the views of the API as JSON, for people and programs.
 *
 * An absent value is null, never zero: an unknown price, a latency that was not measured. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/tunnel/tunnel.h"
#include "controller/charges.h"
#include "controller/control_state.h"
#include "controller/core/record.h"
#include "controller/orders.h"
#include "policies/scale/forecast.h"

#include <stdio.h>
#include <string.h>

/* Opens the object `name` and returns true if it is known; else its value is null. */
static bool open_known(struct json_writer *w, const char *name, bool known)
{
    json_key(w, name);
    if (known)
        json_object(w);
    else
        json_put_null(w);
    return known;
}

static void kv_known_f64(struct json_writer *w, const char *name, bool known, double value)
{
    json_key(w, name);
    if (known)
        json_put_f64(w, value);
    else
        json_put_null(w);
}

static void kv_known_i64(struct json_writer *w, const char *name, bool known, int64_t value)
{
    json_key(w, name);
    if (known)
        json_put_i64(w, value);
    else
        json_put_null(w);
}

static void put_quantiles(struct json_writer *w, const char *name, const struct wire_quantiles *q)
{
    if (!open_known(w, name, q->count > 0)) return;
    json_kv_u64(w, "count", q->count);
    json_kv_f64(w, "mean", q->mean);
    json_kv_f64(w, "p50", q->p50);
    json_kv_f64(w, "p90", q->p90);
    json_kv_f64(w, "p99", q->p99);
    json_object_end(w);
}

static void put_demand(struct json_writer *w, const struct scale_demand *d)
{
    if (!open_known(w, "demand", d->present)) return;
    record_put_demand(w, d);
    json_object_end(w);
}

/* Writes latencies by router, because quantiles of several cannot be added. */
static void put_routes(struct json_writer *w, const struct control *c, uint32_t service)
{
    json_key(w, "routers");
    json_array(w);
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        if (!rt->id[0] || !rt->demand[service].present) continue;
        const struct service_demand *d = &rt->demand[service].last;
        json_object(w);
        json_kv_text(w, "router", rt->id);
        json_kv_u64(w, "arrivals_total", d->arrivals_total);
        json_kv_u64(w, "finished_total", d->finished_total);
        json_kv_u64(w, "failed_total", d->failed_total);
        json_kv_u64(w, "rejected_total", d->rejected_total);
        json_kv_f64(w, "held_oldest_s", d->held_oldest_s);
        json_kv_f64(w, "queued_s", d->queued_s);
        json_kv_u64(w, "prompt_tokens_total", d->prompt_tokens_total);
        json_kv_u64(w, "cached_tokens_total", d->cached_tokens_total);
        json_kv_u64(w, "generated_tokens_total", d->generated_tokens_total);
        json_kv_u64(w, "slo_met_total", d->slo_met_total);
        json_kv_u64(w, "slo_missed_total", d->slo_missed_total);
        put_quantiles(w, "ttft_s", &d->ttft_s);
        put_quantiles(w, "tpot_s", &d->tpot_s);
        put_quantiles(w, "e2e_s", &d->e2e_s);
        json_object_end(w);
    }
    json_array_end(w);
}

struct tally {
    uint32_t count[SCALE_POOLS_MAX][PHASE_COUNT];
};

static void tally_service(const struct control *c, uint32_t service, struct tally *ret)
{
    *ret = (struct tally){ 0 };
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct detail *d = &c->observed.detail[at];
        if (d->service != service || !intent_is_live(&c->money.intent[at])) continue;
        if (d->pool != PLAN_NONE) ret->count[d->pool][d->phase]++;
    }
}

static void put_counts(struct json_writer *w, const uint32_t count[PHASE_COUNT])
{
    for (uint32_t p = 0; p < PHASE_COUNT; p++)
        json_kv_u64(w, phase_names[p], count[p]);
}

static void put_pool(struct json_writer *w, const struct control *c, uint32_t service,
                     uint32_t pool, const struct tally *t)
{
    const struct plan_pool *p = &c->desired.service[service].pool[pool];
    json_object(w);
    json_kv_text(w, "service", c->desired.service[service].name);
    json_kv_text(w, "pool", p->name);
    json_kv_text(w, "provider", p->provider);
    json_kv_text(w, "role", role_names[p->role]);
    json_kv_text(w, "priority", priority_names[p->priority]);
    json_key(w, "offers");
    json_array(w);
    for (uint32_t o = 0; o < p->offer_count; o++)
        json_put_text(w, c->money.offer[p->offer[o]].name);
    json_array_end(w);
    json_kv_u64(w, "min", p->min);
    json_kv_u64(w, "max", p->max);
    kv_known_i64(w, "manual", p->manual >= 0, p->manual);
    json_kv_bool(w, "drained", p->drained);
    json_key(w, "target");
    if (service < c->desired.plan.decision_count)
        json_put_u64(w, c->desired.plan.decision[service].target[pool]);
    else
        json_put_null(w);
    put_counts(w, t->count[pool]);
    json_object_end(w);
}

static void put_pools(struct json_writer *w, const struct control *c)
{
    json_key(w, "pools");
    json_array(w);
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        struct tally t;
        tally_service(c, s, &t);
        for (uint32_t p = 0; p < c->desired.service[s].pool_count; p++)
            put_pool(w, c, s, p, &t);
    }
    json_array_end(w);
}

/* Writes the power policy and its last look. */
static void put_power(struct json_writer *w, const struct control *c, uint32_t service)
{
    const struct plan_service *sv = &c->desired.service[service];
    const struct service_power *p = &c->observed.power[service];
    json_kv_text(w, "power", sv->power ? sv->power->name : NULL);
    json_kv_text(w, "power_reason", p->reason);
    kv_known_f64(w, "power_limit_watts", sv->power_limit_watts > 0, sv->power_limit_watts);
    kv_known_f64(w, "row_watts", sv->power_limit_watts > 0,
                 sv->power_limit_watts); /* former name */
    kv_known_f64(w, "watts", p->asked, p->watts);
    kv_known_i64(w, "unmodelled", p->asked, p->unmodelled);
}

/* Returns true if a person has drained every pool: no instance will come. */
static bool is_drained(const struct plan_service *s)
{
    bool drained = s->pool_count > 0;
    for (uint32_t p = 0; p < s->pool_count; p++)
        drained &= s->pool[p].drained;
    return drained;
}

static void put_services(struct json_writer *w, const struct control *c, int64_t now_us)
{
    json_key(w, "services");
    json_array(w);
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *sv = &c->desired.service[s];
        const struct bill_spent spent = control_spent(c, s, NULL);
        const struct cost mtokens = bill_mtokens(&c->money.bill, sv->name, &c->money.period);
        struct tally t;
        uint32_t sum[PHASE_COUNT] = { 0 };
        tally_service(c, s, &t);
        for (uint32_t p = 0; p < sv->pool_count; p++)
            for (uint32_t ph = 0; ph < PHASE_COUNT; ph++)
                sum[ph] += t.count[p][ph];
        json_object(w);
        json_kv_text(w, "service", sv->name);
        json_kv_text(w, "policy", sv->policy->name);
        json_kv_text(w, "shaper", sv->shaper ? sv->shaper->name : NULL);
        json_kv_text(w, "forecast", sv->scale.forecast ? sv->scale.forecast->name : NULL);
        json_kv_text(w, "mix", sv->mix ? sv->mix->name : NULL);
        json_kv_text(w, "place", sv->place->name);
        json_kv_text(w, "role", sv->role ? sv->role->name : NULL);
        json_kv_text(w, "role_reason", c->observed.roles[s].reason);
        bool foreseen =
            c->observed.roles[s].looked_us != 0 && c->observed.roles[s].goodput_rps >= 0;
        kv_known_f64(w, "role_goodput_rps", foreseen, c->observed.roles[s].goodput_rps);
        json_kv_text(w, "policy_lacks", control_missing(c, s, now_us));
        put_power(w, c, s);
        json_kv_bool(w, "paused", sv->paused);
        json_kv_bool(w, "drained", is_drained(sv));
        json_kv_u64(w, "min", sv->min);
        json_kv_u64(w, "max", sv->max);
        json_kv_f64(w, "slo_ttft_s", sv->ttft_slo_s);
        json_kv_f64(w, "slo_tpot_s", sv->tpot_slo_s);
        kv_known_f64(w, "budget_per_h", sv->budget_h > 0, sv->budget_h);
        kv_known_f64(w, "budget_per_day", sv->budget.day > 0, sv->budget.day);
        kv_known_f64(w, "budget_per_month", sv->budget.month > 0, sv->budget.month);
        json_kv_f64(w, "cost_per_h", control_per_h(c, s, PLAN_NONE));
        json_kv_f64(w, "cost_today", spent.day);
        json_kv_f64(w, "cost_this_month", spent.month);
        json_kv_f64(w, "cost_per_mtoken_this_month",
                    control_per_mtoken(spent.month, mtokens.in_month));
        put_counts(w, sum);
        const struct plan_decision *d =
            s < c->desired.plan.decision_count ? &c->desired.plan.decision[s] : NULL;
        json_kv_text(w, "reason", d ? d->reason : NULL);
        json_kv_text(w, "blocked", d ? d->blocked : NULL);
        put_demand(w, &c->observed.demand[s].sum);
        json_kv_bool(w, "routers_fresh",
                     c->observed.demand[s].sum.present && c->observed.demand[s].all_fresh);
        put_routes(w, c, s);
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_perf(struct json_writer *w, const struct sighting *s)
{
    if (!open_known(w, "perf", s->has_perf)) return;
    json_kv_f64(w, "step_s", s->perf.step_s);
    json_kv_f64(w, "prefill_token_s", s->perf.prefill_token_s);
    json_kv_f64(w, "decode_seq_s", s->perf.decode_seq_s);
    json_kv_f64(w, "kv_read_s", s->perf.kv_read_s);
    json_kv_f64(w, "attend_s", s->perf.attend_s);
    /* The same under the names of the release before. */
    json_kv_f64(w, "a", s->perf.step_s);
    json_kv_f64(w, "b", s->perf.prefill_token_s);
    json_kv_f64(w, "c", s->perf.decode_seq_s);
    json_kv_f64(w, "d", s->perf.kv_read_s);
    json_kv_f64(w, "e", s->perf.attend_s);
    json_kv_f64(w, "samples", s->perf.samples);
    json_object_end(w);
}

static void put_engine(struct json_writer *w, const struct detail *d)
{
    const struct engine_report *e = &d->engine;
    if (!open_known(w, "engine", d->has_engine)) return;
    json_kv_text(w, "host", d->host);
    json_kv_u64(w, "port", e->port);
    json_kv_bool(w, "tls", e->tls);
    json_kv_text(w, "kind", engine_kind_names[e->kind]);
    json_kv_text(w, "health", engine_health_names[e->health]);
    json_kv_text(w, "model", d->model);
    json_kv_text(w, "digest", d->digest);
    json_kv_text(w, "numerics", d->numerics);
    json_kv_u64(w, "running", e->running);
    json_kv_u64(w, "running_max", e->running_max);
    json_kv_u64(w, "waiting", e->waiting);
    kv_known_i64(w, "step_tokens", e->step_tokens > 0, e->step_tokens);
    json_kv_u64(w, "pages_total", e->pages_total);
    json_kv_u64(w, "pages_free", e->pages_free);
    json_kv_u64(w, "pages_cached", e->pages_cached);
    kv_known_i64(w, "owed_prompt_tokens", e->has_owed,
                 (int64_t)min_u64(e->owed.prompt_tokens, INT64_MAX));
    json_kv_u64(w, "requests_total", e->requests_total);
    json_kv_u64(w, "prompt_tokens_total", e->prompt_tokens_total);
    json_kv_u64(w, "cached_tokens_total", e->cached_tokens_total);
    json_kv_u64(w, "generated_tokens_total", e->generated_tokens_total);
    json_object_end(w);
}

static void put_weights(struct json_writer *w, const struct detail *d)
{
    const struct wire_weights *m = &d->weights;
    if (!open_known(w, "weights", d->has_weights)) return;
    json_kv_text(w, "sha256", d->weights_sha256[0] ? d->weights_sha256 : NULL);
    json_kv_bool(w, "whole", m->whole);
    kv_known_i64(w, "bytes", m->bytes > 0, (int64_t)min_u64(m->bytes, INT64_MAX));
    kv_known_i64(w, "total", m->total > 0, (int64_t)min_u64(m->total, INT64_MAX));
    kv_known_i64(w, "seed_bytes", m->bytes > 0, (int64_t)min_u64(m->seed_bytes, INT64_MAX));
    kv_known_f64(w, "rate", m->rate > 0, m->rate);
    kv_known_f64(w, "percent", !m->whole && m->total > 0,
                 100 * (double)m->bytes / (double)m->total);
    kv_known_f64(w, "fetch_s", m->fetch_s > 0, m->fetch_s);
    kv_known_f64(w, "load_s", m->load_s > 0, m->load_s);
    json_object_end(w);
}

static void put_instance(struct json_writer *w, const struct control *c, uint32_t at,
                         int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    const struct sighting *s = &c->observed.seen[at];
    json_object(w);
    json_kv_text(w, "instance", i->id);
    json_kv_text(w, "service", i->service);
    json_kv_text(w, "pool", i->pool);
    json_kv_text(w, "provider", i->provider);
    json_kv_text(w, "offer", i->offer);
    json_kv_text(w, "intent", intent_state_names[i->state]);
    json_kv_text(w, "phase", phase_names[d->phase]);
    json_kv_text(w, "role", role_names[d->role]);
    json_kv_text(w, "why", i->why);
    json_kv_f64(w, "price_per_h", i->price_h);
    json_kv_f64(w, "cost", charge_total(i, now_us));
    json_kv_f64(w, "age_s", (double)(now_us - i->wanted_us) / 1e6);
    json_kv_text(w, "agent", s->heard_us ? agent_state_names[s->state] : NULL);
    kv_known_f64(w, "report_age_s", s->heard_us != 0, (double)(now_us - s->heard_us) / 1e6);
    json_kv_u64(w, "restarts", d->restarts);
    json_kv_text(w, "trouble", d->trouble[0] ? d->trouble : NULL);
    json_kv_text(w, "node", control_node(c, at)[0] ? control_node(c, at) : NULL);
    json_kv_text(w, "version", d->version[0] ? d->version : NULL);
    kv_known_f64(w, "clock_ahead_s", d->has_clock, (double)d->clock_ahead_us / 1e6);
    record_put_lead(w, &d->lead);
    json_kv_bool(w, "let_go", i->let_go);
    json_kv_u64(w, "unfinished", d->unfinished);
    json_kv_u64(w, "routed", d->routed);
    bool managed = d->service != PLAN_NONE && c->desired.service[d->service].power;
    kv_known_f64(w, "clock", managed && d->has_engine && d->engine.clock > 0, d->engine.clock);
    kv_known_f64(w, "watts", managed && d->power.watts_known, d->power.watts);
    put_weights(w, d);
    machine_put(w, &d->machine);
    put_engine(w, d);
    put_perf(w, s);
    json_object_end(w);
}

static void put_instances(struct json_writer *w, const struct control *c, int64_t now_us)
{
    json_key(w, "instances");
    json_array(w);
    for (uint32_t at = 0; at < c->money.count; at++)
        if (intent_is_live(&c->money.intent[at])) put_instance(w, c, at, now_us);
    json_array_end(w);
}

/* Writes a moment of fleet time as a date. */
static void put_time(struct json_writer *w, const struct control *c, const char *name, int64_t us)
{
    kv_known_i64(w, name, us != 0, us + c->date_ahead_us);
}

static void put_intents(struct json_writer *w, const struct control *c)
{
    json_key(w, "intents");
    json_array(w);
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct intent *i = &c->money.intent[at];
        json_object(w);
        json_kv_text(w, "id", i->id);
        json_kv_text(w, "state", intent_state_names[i->state]);
        json_kv_text(w, "service", i->service);
        json_kv_text(w, "pool", i->pool);
        json_kv_text(w, "provider", i->provider);
        json_kv_text(w, "offer", i->offer);
        json_kv_text(w, "handle", i->handle[0] ? i->handle : NULL);
        json_kv_text(w, "why", i->why);
        json_kv_bool(w, "adopted", i->adopted);
        json_kv_u64(w, "create_calls", i->calls);
        json_kv_u64(w, "unfinished", c->observed.detail[at].unfinished);
        put_time(w, c, "wanted_us", i->wanted_us);
        put_time(w, c, "created_us", i->made_us);
        put_time(w, c, "registered_us", i->registered_us);
        put_time(w, c, "drain_us", i->drain_us);
        put_time(w, c, "ended_us", i->ended_us);
        json_object_end(w);
    }
    json_array_end(w);
}

/* The offer as its stopped instances make it: how many there are, and how soon one of them serves. */
static void put_stopped(struct json_writer *w, const struct control *c, const struct offer *of)
{
    uint32_t stopped = 0;
    if (!of->stops) return;
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct intent *i = &c->money.intent[at];
        stopped += i->state == INTENT_STOPPED && strcmp(i->offer, of->name) == 0 &&
                   strcmp(i->provider, of->provider) == 0;
    }
    json_kv_u64(w, "stopped", stopped);
    kv_known_f64(w, "restart_s", of->restart_s > 0, of->restart_s);
}

static void put_offers(struct json_writer *w, const struct control *c, int64_t now_us)
{
    json_key(w, "offers");
    json_array(w);
    for (uint32_t o = 0; o < c->money.offer_count; o++) {
        const struct offer *of = &c->money.offer[o];
        const struct offer_health *h = &c->money.health[o];
        json_object(w);
        json_kv_text(w, "offer", of->name);
        json_kv_text(w, "provider", of->provider);
        kv_known_f64(w, "price_per_h", of->price_known, of->price_h);
        json_kv_f64(w, "lead_s", of->lead_s);
        record_put_lead(w, &of->lead);
        put_stopped(w, c, of);
        json_kv_bool(w, "spot", of->spot);
        if (of->hardware[0]) json_kv_text(w, "hardware", of->hardware);
        if (of->reserved) json_kv_u64(w, "reserved", of->reserved);
        if (of->start_usd > 0) json_kv_f64(w, "start_cost", of->start_usd);
        if (of->price_default) json_kv_bool(w, "price_default", true);
        if (of->room_known) {
            json_kv_u64(w, "nodes", of->nodes);
            json_kv_u64(w, "room", of->room);
        }
        json_kv_f64(w, "share", of->share);
        json_kv_bool(w, "available", offer_may_be_asked(h, now_us));
        const struct stock *stock = stock_find(&c->money.stock.stocks, of);
        if (stock && stock->refused_us) {
            json_kv_f64(w, "sold_out", stock_out(stock, now_us));
            json_kv_f64(w, "sold_out_age_s", (double)(now_us - stock->refused_us) / 1e6);
        }
        if (h->last != OFFER_OK) {
            json_kv_text(w, "last_error", offer_error_names[h->last]);
            json_kv_text(w, "error", h->text);
            json_kv_f64(w, "again_in_s", (double)max_i64(0, h->until_us - now_us) / 1e6);
        }
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_tokens(struct json_writer *w, const struct control *c)
{
    json_key(w, "tokens");
    json_array(w);
    for (uint32_t i = 0; i < c->people.tokens.count; i++) {
        json_object(w);
        json_kv_text(w, "token", c->people.tokens.at[i].name);
        json_kv_text(w, "role", token_role_names[c->people.tokens.at[i].role]);
        json_kv_i64(w, "created_us", c->people.tokens.at[i].created_us);
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_routers(struct json_writer *w, const struct control *c, int64_t now_us)
{
    json_key(w, "routers");
    json_array(w);
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        if (!rt->id[0]) continue;
        json_object(w);
        json_kv_text(w, "router", rt->id);
        json_kv_text(w, "host", rt->host);
        json_kv_u64(w, "port", rt->port);
        json_kv_f64(w, "sync_age_s", (double)(now_us - rt->heard_us) / 1e6);
        json_kv_text(w, "version", rt->version[0] ? rt->version : NULL);
        kv_known_f64(w, "clock_ahead_s", rt->has_clock, (double)rt->clock_ahead_us / 1e6);
        json_object_end(w);
    }
    json_array_end(w);
}

int control_view(struct control *c, enum control_view view, int64_t now_us, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_u64(&w, "v", WIRE_VERSION);
    json_kv_i64(&w, "now_us", now_us + c->date_ahead_us);
    bool all = view == CONTROL_STATUS;
    if (all) {
        json_kv_text(&w, "version", MUSTER_VERSION);
        json_kv_f64(&w, "uptime_s", (double)(now_us - c->started_us) / 1e6);
        json_kv_bool(&w, "observed", control_has_observed(c));
        json_kv_bool(&w, "complete", control_is_complete(c));
        control_put_aside(&w, c);
        json_kv_u64(&w, "decision_last", c->desired.decision_last);
        put_routers(&w, c, now_us);
    }
    if (all || view == CONTROL_SERVICES) put_services(&w, c, now_us);
    if (all || view == CONTROL_POOLS) put_pools(&w, c);
    if (all || view == CONTROL_INSTANCES) put_instances(&w, c, now_us);
    if (view == CONTROL_INTENTS) put_intents(&w, c);
    if (all || view == CONTROL_OFFERS) put_offers(&w, c, now_us);
    if (all || view == CONTROL_COST) control_put_cost(&w, c, now_us);
    if (view == CONTROL_TOKENS) put_tokens(&w, c);
    if (view == CONTROL_HISTORY) last_hour_put(&w, c);
    if (view == CONTROL_TENANTS) {
        json_kv_bool(&w, "keys_required", keys_needed(c));
        control_put_tenants(&w, c);
    }
    json_object_end(&w);
    return out->rc;
}

/* ---- targets of a scraper ---- */

/* A scraper reaches what is behind a tunnel no better than a router does. */
static bool is_scraped(const char *host)
{
    return host[0] && !tunnel_is_host(str_from(host));
}

static void begin_target(struct json_writer *w, const char *host, uint32_t port, const char *job,
                         const char *instance)
{
    char at[REPORT_NAME_BYTES_MAX + 16];
    bool brackets = strchr(host, ':') != NULL; /* an IPv6 address */
    snprintf(at, sizeof at, "%s%s%s:%u", brackets ? "[" : "", host, brackets ? "]" : "", port);
    json_object(w);
    json_key(w, "targets");
    json_array(w);
    json_put_text(w, at);
    json_array_end(w);
    json_key(w, "labels");
    json_object(w);
    json_kv_text(w, "job", job);
    json_kv_text(w, "instance", instance);
}

static void end_target(struct json_writer *w)
{
    json_object_end(w);
    json_object_end(w);
}

static void put_whose(struct json_writer *w, const struct intent *i, bool tls)
{
    json_kv_text(w, "__scheme__", tls ? "https" : "http");
    json_kv_text(w, "service", i->service);
    json_kv_text(w, "pool", i->pool);
    json_kv_text(w, "provider", i->provider);
    json_kv_text(w, "offer", i->offer);
}

/* An engine has its own job, and so has the agent that speaks for one of another kind. */
static void put_engine_target(struct json_writer *w, const struct intent *i, const struct detail *d)
{
    char job[32];
    snprintf(job, sizeof job, "%s-engine", engine_kind_names[d->engine.kind]);
    begin_target(w, d->host, d->engine.port, job, i->id);
    put_whose(w, i, d->engine.tls);
    end_target(w);
    if (!d->engine.agent_port) return;
    begin_target(w, d->agent_host, d->engine.agent_port, "muster-agent", i->id);
    put_whose(w, i, d->engine.agent_tls);
    end_target(w);
}

int control_targets(const struct control *c, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_array(&w);
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct detail *d = &c->observed.detail[at];
        bool serves = intent_is_live(&c->money.intent[at]) && d->has_engine && is_scraped(d->host);
        if (serves && d->engine.port) put_engine_target(&w, &c->money.intent[at], d);
    }
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        struct str host = str_from(rt->host);
        bool everywhere = str_eq(host, STR("0.0.0.0")) || str_eq(host, STR("::"));
        if (!rt->id[0] || host.len == 0 || everywhere || !rt->port) continue;
        begin_target(&w, rt->host, rt->port, "muster-router", rt->id);
        end_target(&w);
    }
    json_array_end(&w);
    return out->rc;
}

/* ---- decisions ---- */

/* Writes a kept record {...} as {"id":N,"decision":{...}}. */
static void put_record(struct json_writer *w, uint64_t seq, struct str record)
{
    json_object(w);
    json_kv_u64(w, "id", seq);
    json_key(w, "decision");
    json_put_raw(w, record);
    json_object_end(w);
}

static int put_one(void *ctx, const struct store_record *r)
{
    put_record(ctx, r->seq, r->value);
    return 0;
}

int control_decisions(struct control *c, uint64_t from, uint64_t max, struct buf *out,
                      struct err *err)
{
    struct store_log_stat stat;
    int rc = store_log_stat(c->setup.store, &c->desired.decision_log, &stat, err);
    if (rc < 0) return rc;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_u64(&w, "first", stat.first);
    json_kv_u64(&w, "last", stat.last);
    json_kv_u64(&w, "dropped", stat.dropped);
    json_key(&w, "decisions");
    json_array(&w);
    rc = store_log_read(c->setup.store, &c->desired.decision_log, from, max, put_one, &w, err);
    if (rc < 0) return rc;
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}

struct one {
    struct json_writer *w;
    uint64_t id;
    bool found;
};

static int put_if_same(void *ctx, const struct store_record *r)
{
    struct one *o = ctx;
    if (r->seq != o->id) return 0;
    o->found = true;
    put_record(o->w, r->seq, r->value);
    return 0;
}

int control_decision(struct control *c, uint64_t id, struct buf *out, struct err *err)
{
    struct json_writer w;
    json_writer_init(&w, out);
    struct one o = { &w, id, false };
    int rc = store_log_read(c->setup.store, &c->desired.decision_log, id, 1, put_if_same, &o, err);
    if (rc < 0) return rc;
    if (!o.found) return err_set(err, -ENOENT, "no decision %llu is kept", (unsigned long long)id);
    return out->rc;
}
