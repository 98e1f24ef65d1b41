/* observe.c - merges cached listings, stored intents and reports into the events of each intent.
 *
 * A listing is as old as its call. A stale one proves nothing: an instance that a provider has not been
 * able to list for a while is neither absent nor gone.
 *
 * The last hour is sampled every few seconds. TTFT and TPOT are those of the router that measured most
 * of the first service: quantiles of several routers cannot be added, and the console draws the same one. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/log.h"
#include "controller/charges.h"
#include "controller/control_state.h"
#include "controller/joins.h"
#include "controller/observed.h"
#include "controller/stops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- providers ---- */

#define STALE_POLLS 3
#define DRAIN_AHEAD_US 30000000 /* an instance is drained so long before its provider takes it */
#define STALE_US 30000000       /* on top, for a slow provider's latency */

static int64_t stale_after_us(const struct cloud *cl)
{
    return cl->poll_us * STALE_POLLS + STALE_US;
}

bool control_pool_is_known(const void *ctx, const char *service, const char *pool,
                           const char *provider)
{
    const struct control *c = ctx;
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *sv = &c->desired.service[s];
        if (strcmp(sv->name, service) != 0) continue;
        for (uint32_t p = 0; p < sv->pool_count; p++)
            if (strcmp(sv->pool[p].name, pool) == 0)
                return strcmp(sv->pool[p].provider, provider) == 0;
    }
    return false;
}

/* Returns true if it runs, is billed and serves nobody: it has no intent, or is the second of one. */
static bool is_orphan(const struct claimed *c, const struct listed *item)
{
    return !item->gone &&
           (c->claim == CLAIM_DUPLICATE || c->claim == CLAIM_END || c->claim == CLAIM_WAIT);
}

static int settle_strays(struct control *c, uint32_t cloud, int64_t now_us)
{
    struct provider *p = &c->observed.provider[cloud];
    const struct listing *l = &p->listing;
    if (!l->ok || !p->is_new) return 0;
    p->is_new = false;
    const struct merge_fleet fleet = { c->money.intent, c->money.count, control_pool_is_known, c };
    merge_claims(l, &fleet, &c->setup.merge, now_us, c->observed.claimed);
    p->orphans = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        int rc = 0;
        if (c->observed.claimed[i].owner == UINT32_MAX && !l->item[i].gone &&
            control_is_aside(c, "intent/", l->item[i].intent)) {
            control_shadow(c, cloud, &l->item[i], now_us);
            continue;
        }
        if (is_orphan(&c->observed.claimed[i], &l->item[i])) {
            p->orphans++;
            control_see_stray(c, cloud, &l->item[i], now_us);
        }
        switch (c->observed.claimed[i].claim) {
        case CLAIM_ADOPT:
            rc = control_adopt(c, cloud, &l->item[i], now_us);
            break;
        case CLAIM_DUPLICATE:
            control_count(c, CONTROL_M_DUPLICATES, NULL);
            rc = control_remove_stray(c, cloud, &l->item[i], now_us);
            break;
        case CLAIM_END:
            rc = control_remove_stray(c, cloud, &l->item[i], now_us);
            break;
        case CLAIM_OWN:
        case CLAIM_WAIT:
            break;
        }
        if (rc == -ECANCELED) return rc;
    }
    control_end_strays(c, cloud, now_us);
    return 0;
}

const struct listed *control_find_item(const struct listing *l, const struct intent *i)
{
    const struct listed *found = NULL;
    for (uint32_t k = 0; l && l->ok && k < l->count; k++) {
        if (strcmp(l->item[k].intent, i->id) != 0) continue;
        if (!found || strcmp(l->item[k].handle, i->handle) == 0) found = &l->item[k];
    }
    return found;
}

static bool offer_is_askable(const struct control *c, const struct intent *i, int64_t now_us)
{
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    return offer != PLAN_NONE && offer_may_be_asked(&c->money.health[offer], now_us);
}

/* Learns the lead from launch to ready, once for each instance that was watched all the way. */
static void learn_lead(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    struct detail *d = &c->observed.detail[at];
    if (d->lead_learned || i->called_us < c->observed.listening_us) return;
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (offer == PLAN_NONE) return;
    d->lead_learned = true;
    const double seconds = (double)(now_us - i->called_us) / 1e6;
    if (i->starts > 0)
        offer_learn_restart(&c->money.offer[offer], seconds);
    else
        offer_learn_lead(&c->money.offer[offer], seconds);
    measure_ready(c, at, now_us);
}

/* Returns true if any phase is known. */
static bool is_told(const struct lead *l)
{
    for (int p = 0; p < LEAD_PHASE_COUNT; p++)
        if (l->known[p]) return true;
    return false;
}

/* Learns the phases of a launch as they become known, each once. An instance of an earlier run of the controller
 * teaches too: its provider, or its agent, knows the times. */
static void learn_phases(struct control *c, uint32_t at, const struct listed *item)
{
    const struct intent *i = &c->money.intent[at];
    struct detail *d = &c->observed.detail[at];
    struct lead fresh = { 0 };
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    const struct lead *told = item && is_told(&item->lead) ? &item->lead : &d->told;
    if (offer == PLAN_NONE || d->lead.known[LEAD_WARM] || i->starts > 0) return;
    double told_s = 0;
    for (int p = 0; p < LEAD_PHASE_COUNT; p++) {
        if (!told->known[p]) continue;
        told_s += told->s[p];
        fresh.known[p] = !d->lead.known[p];
        fresh.s[p] = told->s[p];
    }
    if (told->known[LEAD_LOAD] && d->lead_learned && d->phase == PHASE_READY &&
        i->called_us >= c->observed.listening_us) {
        fresh.known[LEAD_WARM] = true;
        fresh.s[LEAD_WARM] = fmax(0, (double)(d->phase_us - i->called_us) / 1e6 - told_s);
    }
    offer_learn_phases(&c->money.offer[offer], &fresh);
    for (int p = 0; p < LEAD_PHASE_COUNT; p++)
        if (fresh.known[p]) {
            d->lead.known[p] = true;
            d->lead.s[p] = fresh.s[p];
            measure_lead(c, i, lead_phase_names[p], fresh.s[p]);
        }
}

/* Returns true if a router may have requests at `at`: without a fresh sync of every router this cannot be
 * ruled out. A controller that is cut off from agents and routers must not end instances that still
 * serve. */
static bool may_be_routed(const struct control *c, uint32_t at, int64_t now_us)
{
    bool heard = false;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        if (!c->observed.router[r].id[0]) continue;
        if (!control_router_is_fresh(&c->observed.router[r], now_us)) return true;
        heard = true;
    }
    return !heard || c->observed.detail[at].routed > 0;
}

/* Counts a loss by the provider, once for each instance: hazards are learned from the counts. */
static void count_loss(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    struct detail *d = &c->observed.detail[at];
    if (d->doomed) return;
    d->doomed = true;
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (offer == PLAN_NONE) return;
    c->money.health[offer].lost++;
    control_count(c, CONTROL_M_LOST, c->money.offer[offer].name);
    log_event(LOG_WARN, "taken_away", "id=%s offer=%s zone=%s leaves_in_s=%.0f", i->id, i->offer,
              c->money.offer[offer].zone,
              d->leaves_us ? (double)(d->leaves_us - now_us) / 1e6 : 0.0);
    const struct event_note note = { .what = "taken_away",
                                     .by = i->provider,
                                     .service = i->service,
                                     .pool = i->pool,
                                     .instance = i->id,
                                     .offer = i->offer,
                                     .text = d->leaves_us ? "announced by the provider"
                                                          : "without notice" };
    control_note(c, &note, now_us);
}

/* Returns true if a spot instance went without a drain of ours and without its agent's report of an end. */
static bool was_taken(const struct merge_view *v, const struct offer *o, enum intent_event e)
{
    bool served = v->intent->state == INTENT_CREATED || v->intent->state == INTENT_REGISTERED;
    bool gone = e == INTENT_ABSENT || (e == INTENT_DRAINED && v->item && v->item->gone);
    return o && o->spot && served && gone && v->seen->state != AGENT_STOPPED;
}

/* Heeds that the provider is about to take an instance away: its listing says so, or the machine was told, which is
 * often sooner. From then on it counts as gone where another is bought in its place (plan.h), but it serves: it is
 * drained only when DRAIN_AHEAD_US are left, which requests need to end or to move. With two minutes of notice most of
 * the replacement's start-up is so bridged. One that we are ending leaves because we said so. */
static int heed_notice(struct control *c, uint32_t at, const struct listed *item, int64_t now_us)
{
    struct detail *d = &c->observed.detail[at];
    char why[INTENT_WHY_BYTES];
    bool is_listed = item && item->leaves_us;
    if ((!is_listed && !d->noticed_us) || (d->doomed && !d->leaves_us)) return 0;
    enum intent_state state = c->money.intent[at].state;
    if (state > INTENT_DRAINING) return 0;
    /* A machine that drains and may be kept switches itself off, and its agent's last words may be lost. */
    if (state == INTENT_DRAINING && !d->noticed_us && control_may_stop_at(c, at)) return 0;
    d->leaves_us = is_listed ? item->leaves_us : d->noticed_us;
    const char *words = is_listed ? item->why : d->notice_why;
    count_loss(c, at, now_us);
    if (state == INTENT_REGISTERED && d->leaves_us - now_us > DRAIN_AHEAD_US) return 0;
    snprintf(why, sizeof why, "the provider takes it away%s%.150s", words[0] ? ": " : "", words);
    return control_apply(c, at, INTENT_DRAIN, why, NULL, now_us);
}

/* Ends an instance that its provider cannot bring up, and counts that as a refusal of the offer, so that
 * the next goes elsewhere. Its agent's report outweighs what the provider says. */
static int heed_stuck(struct control *c, uint32_t at, const struct listed *item, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    if (!item || item->stuck == OFFER_OK ||
        (i->state != INTENT_CREATING && i->state != INTENT_CREATED))
        return 0;
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (offer != PLAN_NONE) {
        offer_answered(&c->money.health[offer], item->stuck, item->why, now_us);
        measure_create(c, offer, item->stuck);
    }
    log_event(LOG_WARN, "instance_stuck", "id=%s offer=%s class=%s why=%s", i->id, i->offer,
              offer_error_names[item->stuck], item->why);
    char why[INTENT_WHY_BYTES];
    snprintf(why, sizeof why, "%s: %.160s", offer_error_names[item->stuck], item->why);
    return control_apply(c, at, INTENT_END, why, NULL, now_us);
}

/* Counts an instance that ended by itself before it was ever ready as a refusal of its offer, so that the next
 * goes elsewhere: there its engine does not start. A machine or Pod that went away says less about the offer
 * than an engine that its agent has given up. */
static void heed_false_start(struct control *c, uint32_t at, const struct listed *item,
                             int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    bool coming = i->state == INTENT_CREATED || i->state == INTENT_REGISTERED;
    bool watched = i->called_us > 0 && i->called_us >= c->observed.listening_us;
    bool given_up = c->observed.seen[at].state == AGENT_STOPPED && d->trouble[0];
    bool gone = item && item->gone && item->why[0];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (!coming || !watched || d->lead_learned || !(given_up || gone) || offer == PLAN_NONE) return;
    enum offer_error class = given_up ? OFFER_INVALID : OFFER_TRANSIENT;
    offer_answered(&c->money.health[offer], class, given_up ? d->trouble : item->why, now_us);
    measure_create(c, offer, class);
    log_event(LOG_WARN, "never_ready", "id=%s offer=%s class=%s why=%s", i->id, i->offer,
              offer_error_names[class], c->money.health[offer].text);
}

void control_see_phase(struct control *c, uint32_t at, int64_t now_us)
{
    struct detail *d = &c->observed.detail[at];
    enum phase phase =
        merge_phase(&c->money.intent[at], &c->observed.seen[at], &c->setup.merge, now_us);
    if (phase == d->phase) return;
    if (phase == PHASE_READY && c->observed.seen[at].heard_us) learn_lead(c, at, now_us);
    d->phase = phase;
    d->phase_us = now_us;
}

static int drive_intent(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    struct detail *d = &c->observed.detail[at];
    uint32_t cloud = control_find_cloud(c, i->provider);
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    const struct listing *l = cloud == PLAN_NONE ? NULL : &c->observed.provider[cloud].listing;
    /* First: an agent whose engine was ended for it reports the end in the same moment. */
    int rc = heed_notice(c, at, control_find_item(l, i), now_us);
    if (rc == 0) rc = control_heed_machine(c, at, now_us);
    if (rc == -ECANCELED) return rc;
    if (rc == 0) rc = control_heed_contest(c, at, now_us);
    if (rc == -ECANCELED) return rc;
    struct merge_view v = { .intent = i,
                            .seen = &c->observed.seen[at],
                            .listing = l,
                            .item = control_find_item(l, i),
                            .may_ask = offer_is_askable(c, i, now_us),
                            .routed = may_be_routed(c, at, now_us),
                            .in_parts =
                                cloud != PLAN_NONE && c->observed.provider[cloud].cloud.in_parts,
                            .calling = control_is_calling(d),
                            .answered_us = d->answered_us,
                            .listening_us = c->observed.listening_us };
    enum intent_event e = control_keep_or_end(c, at, merge_event(&v, &c->setup.merge, now_us));
    const bool at_rest =
        v.item && v.item->stopped && (e == INTENT_PARK || intent_is_parked(i) || i->charge.halted);
    const char *handle = v.item ? v.item->handle : NULL;
    if (v.item) d->told_us = v.item->created_us;
    /* Of a stopped one the moments of its running count until it is, and those of its disk from then on. */
    if (v.item && (!v.item->gone || (at_rest && i->charge.halted)))
        d->shown_us = max_i64(d->shown_us, l->taken_us - l->lag_us);
    if (v.item && v.item->node[0]) memcpy(d->node, v.item->node, sizeof d->node);
    if (was_taken(&v, offer == PLAN_NONE ? NULL : &c->money.offer[offer], e))
        count_loss(c, at, now_us);
    char why[INTENT_WHY_BYTES] = "";
    bool late = e == INTENT_LATE && i->state == INTENT_DRAINING;
    bool ends_drain = late || e == INTENT_DRAINED;
    if (late) d->unfinished = max_u32(d->unfinished, v.seen->in_flight);
    if (e == INTENT_DRAINED) heed_false_start(c, at, v.item, now_us);
    bool ended = v.item && v.item->gone && !at_rest && e != INTENT_PARK;
    if ((ended || (e == INTENT_PARK && at_rest)) && d->gone_us == 0) d->gone_us = l->taken_us;
    if (e == INTENT_ABSENT || (e == INTENT_DRAINED && ended)) control_note_gone(c, at, now_us);
    if (e == INTENT_END)
        snprintf(why, sizeof why, "its pool keeps fewer, or others, stopped");
    else if (ended)
        snprintf(why, sizeof why, "%s", v.item->why);
    else if (e == INTENT_ABSENT && v.item)
        snprintf(why, sizeof why, "asked again: it may be there in part");
    else if (ends_drain && d->unfinished > 0)
        snprintf(why, sizeof why, "%s, with %u requests in flight when the drain's time was over",
                 intent_event_names[e], d->unfinished);
    else if (e == INTENT_DRAINED && i->state < INTENT_DRAINING && d->trouble[0])
        snprintf(why, sizeof why, "%s: %.140s", intent_event_names[e], d->trouble);
    rc = e == INTENT_EVENT_COUNT ? 0 : control_apply(c, at, e, why[0] ? why : NULL, handle, now_us);
    if (rc == 0) rc = heed_stuck(c, at, v.item, now_us);
    if (rc == -ECANCELED) return rc;
    if (v.item) control_reconcile(c, at, v.item, now_us);
    control_see_phase(c, at, now_us);
    learn_phases(c, at, v.item);
    return 0;
}

int control_observe(struct control *c, int64_t now_us)
{
    for (uint32_t cloud = 0; cloud < c->setup.cloud_count; cloud++) {
        struct provider *p = &c->observed.provider[cloud];
        p->listing.ok =
            p->listing.taken_us && now_us - p->listing.taken_us <= stale_after_us(&p->cloud);
        int rc = settle_strays(c, cloud, now_us);
        if (rc < 0) return rc;
    }
    control_drop_shadows(c);
    for (uint32_t at = 0; at < c->money.count; at++) {
        int rc = drive_intent(c, at, now_us);
        if (rc < 0) return rc;
    }
    return 0;
}

static const struct service_demand *busiest(const struct control *c, int64_t now_us)
{
    const struct service_demand *best = NULL;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        const struct demand_seen *d = &rt->demand[0];
        if (!rt->id[0] || !d->present || !control_router_is_fresh(rt, now_us)) continue;
        if (d->last.ttft_s.count == 0) continue;
        if (!best || d->last.ttft_s.count > best->ttft_s.count) best = &d->last;
    }
    return best;
}

static struct hour_sample sample(const struct control *c, int64_t now_us)
{
    struct hour_sample s = { .at_us = now_us };
    for (uint32_t i = 0; i < c->setup.service_count; i++) {
        const struct scale_demand *d = &c->observed.demand[i].sum;
        if (!d->present) continue;
        s.arrivals_s += d->arrivals_s;
        s.in_flight += d->in_flight;
        s.held += d->held;
    }
    for (uint32_t at = 0; at < c->money.count; at++)
        s.ready +=
            intent_is_live(&c->money.intent[at]) && c->observed.detail[at].phase == PHASE_READY;
    const struct service_demand *d = c->setup.service_count > 0 ? busiest(c, now_us) : NULL;
    if (!d) return s;
    s.ttft_known = true;
    s.ttft_p50_s = d->ttft_s.p50;
    s.ttft_p99_s = d->ttft_s.p99;
    s.tpot_known = d->tpot_s.count > 0;
    s.tpot_p50_s = d->tpot_s.p50;
    return s;
}

static const struct hour_sample *sample_at(const struct last_hour *h, uint32_t i)
{
    return &h->sample[(h->first + i) % LAST_HOUR_SAMPLES_MAX];
}

void last_hour_keep(struct control *c, int64_t now_us)
{
    struct last_hour *h = &c->last_hour;
    if (h->count > 0 && now_us - sample_at(h, h->count - 1)->at_us < LAST_HOUR_PERIOD_US) return;
    if (h->count == LAST_HOUR_SAMPLES_MAX) {
        h->first = (h->first + 1) % LAST_HOUR_SAMPLES_MAX;
        h->count--;
    }
    h->sample[(h->first + h->count++) % LAST_HOUR_SAMPLES_MAX] = sample(c, now_us);
}

static void put_known(struct json_writer *w, const char *name, bool known, double value)
{
    json_key(w, name);
    if (known)
        json_put_f64(w, value);
    else
        json_put_null(w);
}

void last_hour_put(struct json_writer *w, const struct control *c)
{
    const struct last_hour *h = &c->last_hour;
    json_key(w, "history");
    json_object(w);
    json_kv_f64(w, "period_s", LAST_HOUR_PERIOD_US / 1e6);
    json_key(w, "samples");
    json_array(w);
    for (uint32_t i = 0; i < h->count; i++) {
        const struct hour_sample *s = sample_at(h, i);
        json_object(w);
        json_kv_i64(w, "at_us", s->at_us + c->date_ahead_us);
        json_kv_f64(w, "arrivals_per_s", s->arrivals_s);
        json_kv_u64(w, "in_flight", s->in_flight);
        json_kv_u64(w, "held", s->held);
        json_kv_u64(w, "ready", s->ready);
        put_known(w, "ttft_p50_s", s->ttft_known, s->ttft_p50_s);
        put_known(w, "ttft_p99_s", s->ttft_known, s->ttft_p99_s);
        put_known(w, "tpot_p50_s", s->tpot_known, s->tpot_p50_s);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}
