/* measure.c - sets the controller's gauges after each tick, and counts what a provider refuses and how long a
 * launch takes.
 *
 * Absent is not zero: a value that is not known is NaN, which charts show as a gap and no alert compares. A
 * service without a budget has no budget's metric at all. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/charges.h"
#include "controller/control_state.h"

#include <math.h>
#include <string.h>

static void set(struct control *c, enum control_metric m, const struct str *labels, double value)
{
    metric_set(metric_series(c->metrics, m, labels), value);
}

static void set_known(struct control *c, enum control_metric m, const struct str *labels,
                      bool known, double value)
{
    set(c, m, labels, known ? value : (double)NAN);
}

/* ---- providers and offers ---- */

static void measure_providers(struct control *c, int64_t now_us)
{
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        const struct provider *p = &c->observed.provider[k];
        struct str label = str_from(p->cloud.driver->name);
        uint32_t calls = (p->list_call != 0) + (p->price_call != 0);
        for (uint32_t at = 0; at < c->money.count; at++)
            calls += c->observed.detail[at].call != 0 &&
                     control_find_cloud(c, c->money.intent[at].provider) == k;
        set(c, CONTROL_M_CALLS_UNDER_WAY, &label, calls);
        set(c, CONTROL_M_ORPHANS, &label, p->orphans);
        if (p->listing.taken_us)
            set(c, CONTROL_M_LISTING_AGE, &label, (double)(now_us - p->listing.taken_us) / 1e6);
    }
}

static void measure_offers(struct control *c, int64_t now_us)
{
    for (uint32_t o = 0; o < c->money.offer_count; o++) {
        const struct offer *offer = &c->money.offer[o];
        const struct str label[] = { str_from(offer->provider), str_from(offer->name) };
        set(c, CONTROL_M_OFFER_AVAILABLE, label, offer_may_be_asked(&c->money.health[o], now_us));
        set_known(c, CONTROL_M_OFFER_PRICE, label, offer->price_known, offer->price_h);
        set(c, CONTROL_M_OFFER_LEAD, label, offer->lead_s);
        if (offer->room_known) set(c, CONTROL_M_OFFER_ROOM, label, offer->room);
        for (int p = 0; p < LEAD_PHASE_COUNT; p++) {
            const struct str of[] = { label[0], label[1], str_from(lead_phase_names[p]) };
            if (offer->lead.known[p]) set(c, CONTROL_M_OFFER_PHASE, of, offer->lead.s[p]);
        }
    }
}

static void count_failure(struct control *c, const struct offer *o, enum offer_error e, double n)
{
    const struct str label[] = { str_from(o->provider), str_from(o->name),
                                 str_from(offer_error_names[e]) };
    metric_add(metric_series(c->metrics, CONTROL_M_CREATE_FAILURES, label), n);
}

void measure_zeros(struct control *c)
{
    static const char *const bounds[] = { "intents", "plan_actions", "records_unreadable",
                                          "routers", "strays",       "tenants",
                                          "tokens" };
    for (size_t i = 0; i < COUNT_OF(bounds); i++) {
        struct str label = str_from(bounds[i]);
        metric_series(c->metrics, CONTROL_M_BOUNDS, &label);
    }
    for (uint32_t k = 0; k < c->setup.cloud_count; k++)
        for (int d = CHARGE_SAME + 1; d < CHARGE_DIFFERENCE_COUNT; d++) {
            const struct str of[] = { str_from(c->setup.cloud[k].driver->name),
                                      str_from(charge_difference_names[d]) };
            metric_series(c->metrics, CONTROL_M_BILL_DIFFERENCES, of);
        }
    /* Those that end machines; others appear with their first fault. */
    static const char *const faults[] = {
        "xid_48", "xid_64", "xid_74", "xid_79", "xid_95", "lost"
    };
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        struct str label = str_from(faults[i]);
        metric_series(c->metrics, CONTROL_M_GPU_FAULTS, &label);
    }
    for (int v = 0; v < JOIN_VERDICT_COUNT; v++) {
        struct str verdict = str_from(join_verdict_names[v]);
        metric_series(c->metrics, CONTROL_M_JOINS, &verdict);
    }
    for (uint32_t o = 0; o < c->money.offer_count; o++) {
        struct str offer = str_from(c->money.offer[o].name);
        metric_series(c->metrics, CONTROL_M_LOST, &offer);
        for (int e = OFFER_OK + 1; e < OFFER_ERROR_COUNT; e++)
            count_failure(c, &c->money.offer[o], (enum offer_error)e, 0);
    }
}

void measure_create(struct control *c, uint32_t offer, enum offer_error e)
{
    if (e != OFFER_OK) count_failure(c, &c->money.offer[offer], e, 1);
}

/* ---- launches ---- */

static void observe_phase(struct control *c, const struct intent *i, const char *phase,
                          int64_t from_us, int64_t to_us)
{
    const struct str label[] = { str_from(i->service), str_from(i->pool), str_from(phase) };
    if (from_us == 0 || to_us < from_us) return; /* one of the moments was not seen */
    metric_observe(metric_series(c->metrics, CONTROL_M_TIME_TO_READY, label),
                   (double)(to_us - from_us) / 1e6);
}

/* The agent's own account of what the phase `load` consists of. */
static void observe_parts(struct control *c, const struct intent *i, const struct wire_weights *w)
{
    int64_t fetch_us = (int64_t)(w->fetch_s * 1e6), load_us = (int64_t)(w->load_s * 1e6);
    if (w->whole && fetch_us > 0) observe_phase(c, i, "weights", 0, fetch_us);
    if (load_us > 0) observe_phase(c, i, "engine", 0, load_us);
}

void measure_ready(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    if (d->has_weights) observe_parts(c, i, &d->weights);
    observe_phase(c, i, "call", i->wanted_us, i->called_us);
    observe_phase(c, i, "create", i->called_us, i->made_us);
    observe_phase(c, i, "boot", i->made_us, i->registered_us);
    observe_phase(c, i, "load", i->registered_us, now_us);
    observe_phase(c, i, "total", i->wanted_us, now_us);
}

void measure_lead(struct control *c, const struct intent *i, const char *phase, double seconds)
{
    const struct str label[] = { str_from(i->service), str_from(i->pool), str_from(phase) };
    metric_observe(metric_series(c->metrics, CONTROL_M_LEAD_PHASE, label), seconds);
}

/* ---- services ---- */

/* Sets a sentence's series to 1, and that of the sentence before it to 0. */
static void tell_sentence(struct control *c, enum control_metric m, const char *service,
                          const char **told, const char *now)
{
    struct str label[] = { str_from(service), { 0 } };
    if (*told && (!now || strcmp(*told, now) != 0)) {
        label[1] = str_from(*told);
        set(c, m, label, 0);
    }
    *told = now;
    if (!now) return;
    label[1] = str_from(now);
    set(c, m, label, 1);
}

static void measure_demand(struct control *c, struct str service, const struct plan_decision *d)
{
    const struct scale_demand *m = &d->demand;
    const struct {
        struct str state;
        uint32_t count;
    } requests[] = { { STR("in_flight"), m->in_flight },
                     { STR("waiting"), m->waiting },
                     { STR("held"), m->held } };
    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        const struct str label[] = { service, requests[i].state };
        set_known(c, CONTROL_M_REQUESTS, label, m->present, requests[i].count);
    }
    const struct scale_verdict *v = &d->verdict;
    set_known(c, CONTROL_M_ARRIVALS, &service, m->present, m->arrivals_s);
    set_known(c, CONTROL_M_FORECAST, &service, v->has_forecast, v->forecast_s);
    set_known(c, CONTROL_M_TTFT_ESTIMATE, &service, v->estimate_s >= 0, v->estimate_s);
}

static void measure_decision(struct control *c, const struct plan_service *sv,
                             const struct plan_decision *d)
{
    struct str service = str_from(sv->name);
    const struct str fresh[] = { service, STR("fresh") }, stale[] = { service, STR("stale") };
    const struct str load[] = { service, str_from(sv->policy->name) };
    set(c, CONTROL_M_REPORTING, fresh, d->fresh);
    set(c, CONTROL_M_REPORTING, stale, d->expected - min_u32(d->fresh, d->expected));
    set(c, CONTROL_M_SCALE_LOAD, load, d->verdict.load);
    measure_demand(c, service, d);
    tell_sentence(c, CONTROL_M_REASON, sv->name, &c->told[d->service].reason, d->reason);
    tell_sentence(c, CONTROL_M_BLOCKED, sv->name, &c->told[d->service].blocked, d->blocked);
}

static void measure_settings(struct control *c, const struct plan_service *sv)
{
    struct str service = str_from(sv->name);
    const struct str ttft[] = { service, STR("ttft") }, tpot[] = { service, STR("tpot") };
    set(c, CONTROL_M_SLO_SECONDS, ttft, sv->ttft_slo_s);
    set(c, CONTROL_M_SLO_SECONDS, tpot, sv->tpot_slo_s);
    set(c, CONTROL_M_SLO_OBJECTIVE, &service, sv->scale.attainment);
    if (sv->budget_h > 0) set(c, CONTROL_M_BUDGET, &service, sv->budget_h);
}

/* The instances of one service. */
struct tally {
    uint32_t count[SCALE_POOLS_MAX][PHASE_COUNT];
    double cost_h;
};

static void measure_pools(struct control *c, uint32_t service, const struct tally *t)
{
    const struct plan_service *sv = &c->desired.service[service];
    for (uint32_t p = 0; p < sv->pool_count; p++) {
        struct str label[] = {
            str_from(sv->name), str_from(sv->pool[p].name), str_from(sv->pool[p].provider), { 0 }
        };
        if (service < c->desired.plan.decision_count)
            set(c, CONTROL_M_TARGET, label, c->desired.plan.decision[service].target[p]);
        for (uint32_t ph = 0; ph < PHASE_COUNT; ph++) {
            label[3] = str_from(phase_names[ph]);
            set(c, CONTROL_M_INSTANCES, label, t->count[p][ph]);
        }
        metric_series(c->metrics, CONTROL_M_RESTARTS, label); /* a rate needs a zero */
    }
}

static void measure_services(struct control *c)
{
    struct tally tally[PLAN_SERVICES_MAX];
    memset(tally, 0, sizeof tally);
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct detail *d = &c->observed.detail[at];
        if (!intent_is_live(&c->money.intent[at]) || d->service == PLAN_NONE) continue;
        struct tally *t = &tally[d->service];
        if (intent_is_billed(&c->money.intent[at])) t->cost_h += c->money.intent[at].price_h;
        if (d->pool != PLAN_NONE) t->count[d->pool][d->phase]++;
    }
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *sv = &c->desired.service[s];
        struct str label = str_from(sv->name);
        const struct bill_spent spent = control_spent(c, s, NULL);
        const struct str day[] = { label, STR("day") }, month[] = { label, STR("month") };
        set(c, CONTROL_M_COST_PER_HOUR, &label, tally[s].cost_h);
        set(c, CONTROL_M_SPENT, day, spent.day);
        set(c, CONTROL_M_SPENT, month, spent.month);
        measure_settings(c, sv);
        measure_pools(c, s, &tally[s]);
    }
    for (uint32_t i = 0; i < c->desired.plan.decision_count; i++) {
        const struct plan_decision *d = &c->desired.plan.decision[i];
        measure_decision(c, &c->desired.service[d->service], d);
    }
}

void control_measure(struct control *c, int64_t now_us)
{
    measure_services(c);
    measure_providers(c, now_us);
    measure_offers(c, now_us);
    metric_set(metric_of(c->metrics, CONTROL_M_COST_TOTAL), control_cost_total(c, now_us));
    metric_set(metric_of(c->metrics, CONTROL_M_TENANTS), c->people.tenant_count);
    metric_set(metric_of(c->metrics, CONTROL_M_UNREADABLE), control_aside_count(c));
    metric_set(metric_of(c->metrics, CONTROL_M_LOG_LOST), (double)log_lost());
}
