/* charges.c - keeps what instances cost true to what their providers list, tells where the two differ, and sums up.
 *
 * A stray is an instance that is listed and that no intent stands for: an orphan that is not adopted, or the second of
 * one intent. It costs money like any other, so it is kept as an intent that is never stored, until a listing shows
 * it no more; its cost then joins the bill of the service that its tags name. */
#include "controller/charges.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COST_FLUSH_US 60000000 /* tokens that were counted are written so often */
#define NOBODY "-"             /* service and pool of a stray whose tags name none */

static struct bill_periods periods(const struct control *c, int64_t now_us)
{
    return bill_periods_at(now_us, c->date_ahead_us);
}

/* ---- where provider and bill differ ---- */

static void tell(struct control *c, const struct intent *i, enum charge_difference d,
                 const char *text, int64_t now_us)
{
    const struct str labels[] = { str_from(i->provider), str_from(charge_difference_names[d]) };
    metric_inc(metric_series(c->metrics, CONTROL_M_BILL_DIFFERENCES, labels));
    log_event(LOG_WARN, "bill_differs", "id=%s provider=%s what=%s text=%s", i->id, i->provider,
              charge_difference_names[d], text);
    const struct event_note note = { .what = "bill",
                                     .by = i->provider,
                                     .service = i->service,
                                     .pool = i->pool,
                                     .instance = i->id,
                                     .offer = i->offer,
                                     .text = text };
    control_note(c, &note, now_us);
}

/* Stores a changed charge. A record that is not written keeps the old one: the next listing tells it again. */
static void keep(struct control *c, uint32_t at, struct intent *copy)
{
    if (control_store_intent(c, copy) == 0) c->money.intent[at] = *copy;
}

/* Returns the price that a provider tells of a machine, with the parts that it does not tell. 0: none, or a reserved
 * one, which is paid for in another way. */
static double told_price(const struct control *c, const struct intent *i, double price_h)
{
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (price_h <= 0 || offer == PLAN_NONE) return price_h;
    const struct offer *o = &c->money.offer[offer];
    return o->reserved > 0 ? 0 : price_h + o->disk_h;
}

void control_reconcile(struct control *c, uint32_t at, const struct listed *item, int64_t now_us)
{
    struct intent copy = c->money.intent[at];
    const double told_h = told_price(c, &copy, item->price_h);
    const struct charge_entry e = { item->created_us, told_h > 0, told_h };
    const struct bill_periods p = periods(c, now_us);
    char text[INTENT_WHY_BYTES];
    bool changed;
    if (copy.aside || item->gone || !intent_is_billed(&copy) || copy.charge.halted) return;
    double price_h = copy.price_h;
    enum charge_difference d = charge_reconcile(&copy, &e, &p, &changed);
    if (!changed) return;
    keep(c, at, &copy);
    if (d == CHARGE_PRICE)
        snprintf(text, sizeof text, "its provider asks %.4f dollars an hour and not %.4f", told_h,
                 price_h);
    else if (d == CHARGE_TIME)
        snprintf(text, sizeof text, "its provider has billed it since %.0f s before our record",
                 (double)(copy.made_us - item->created_us) / 1e6);
    if (d != CHARGE_SAME) tell(c, &copy, d, text, now_us);
}

void control_note_gone(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    if (i->state < INTENT_CREATED || i->state > INTENT_DRAINING) return;
    tell(c, i, CHARGE_GONE, "it is gone at its provider, and nobody here ended it", now_us);
}

void control_settle_charge(const struct control *c, uint32_t at, struct intent *copy,
                           int64_t now_us)
{
    const struct intent *before = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    const struct bill_periods p = periods(c, now_us);
    if (copy->charge.from_us == 0 && intent_is_billed(copy)) {
        const double told_h = told_price(c, copy, d->told_price_h);
        const struct charge_entry e = { d->told_us, told_h > 0, told_h };
        bool changed;
        (void)charge_reconcile(copy, &e, &p, &changed);
    }
    if (copy->state == before->state) return;
    uint32_t offer = control_find_offer(c, copy->provider, copy->offer);
    bool is_made = before->made_us == 0 && copy->made_us != 0 && copy->starts == 0;
    if (is_made && offer != PLAN_NONE && c->money.offer[offer].start_usd > 0)
        charge_add(copy, c->money.offer[offer].start_usd, &p);
    if (before->state == INTENT_ENDED)
        charge_reopen(copy, d->told_us > before->ended_us ? d->told_us : now_us, &p);
    if (copy->state != INTENT_ENDED) return;
    uint32_t cloud = control_find_cloud(c, copy->provider);
    const struct listing *l = cloud == PLAN_NONE ? NULL : &c->observed.provider[cloud].listing;
    bool absent = l && l->ok && !control_find_item(l, before) && l->taken_us > d->shown_us;
    const struct charge_end end = { .asked_us =
                                        before->state == INTENT_ENDING ? before->state_us : 0,
                                    .removed_us = d->taken_us,
                                    .shown_us = d->shown_us,
                                    .absent_us = d->gone_us ? d->gone_us
                                                 : absent   ? l->taken_us
                                                            : now_us };
    charge_close(copy, &end);
}

/* ---- stopped instances ---- */

/* Bills on from the stop at the price of the disk. The provider took the stop, or a listing shows its effect. */
static void settle_halt(const struct control *c, uint32_t at, struct intent *copy, double disk_h,
                        const struct bill_periods *p, int64_t now_us)
{
    const struct detail *d = &c->observed.detail[at];
    uint32_t cloud = control_find_cloud(c, copy->provider);
    const struct listing *l = cloud == PLAN_NONE ? NULL : &c->observed.provider[cloud].listing;
    struct intent ended = *copy;
    ended.ended_us = d->gone_us ? d->gone_us : l && l->ok ? l->taken_us : now_us;
    /* It may have switched itself off as soon as it was told to drain. */
    const struct charge_end end = { .asked_us = c->money.intent[at].drain_us,
                                    .removed_us = d->taken_us,
                                    .shown_us = d->shown_us,
                                    .absent_us = ended.ended_us };
    charge_close(&ended, &end);
    const struct charge_turn halt = { .at_us = ended.charge.to_us,
                                      .unsure_us = ended.charge.unsure_us,
                                      .price_h = disk_h,
                                      .halted = true };
    charge_turn(copy, &halt, p);
}

/* Bills on from a start call at the price of the offer. A call that is repeated follows a listing that shows the
 * instance stopped: until then the one before came to nothing. */
static void settle_start(const struct control *c, uint32_t at, struct intent *copy, double disk_h,
                         const struct bill_periods *p, int64_t now_us)
{
    const struct intent *before = &c->money.intent[at];
    uint32_t offer = control_find_offer(c, copy->provider, copy->offer);
    uint32_t cloud = control_find_cloud(c, copy->provider);
    struct charge_turn start = { .at_us = now_us, .price_h = copy->price_h };
    if (before->state == INTENT_STARTING) {
        copy->price_h = disk_h;
        copy->charge.billing = (struct billing){ 0 };
        if (cloud != PLAN_NONE)
            start.at_us = c->observed.provider[cloud].listing.taken_us -
                          c->observed.provider[cloud].cloud.lag_us;
        start.at_us = max_i64(start.at_us, before->called_us);
    }
    if (offer != PLAN_NONE) {
        start.price_h = control_price_of_next(c, offer);
        start.billing = c->money.offer[offer].billing;
    }
    charge_turn(copy, &start, p);
}

void control_settle_stop(const struct control *c, uint32_t at, struct intent *copy,
                         enum intent_action action, int64_t now_us)
{
    const struct intent *before = &c->money.intent[at];
    const struct bill_periods p = periods(c, now_us);
    uint32_t offer = control_find_offer(c, copy->provider, copy->offer);
    double disk_h = offer == PLAN_NONE ? 0 : c->money.offer[offer].disk_h;
    if (action == INTENT_CALL_START) {
        settle_start(c, at, copy, disk_h, &p, now_us);
    } else if (copy->state == INTENT_STOPPED && before->state == INTENT_STOPPING) {
        settle_halt(c, at, copy, disk_h, &p, now_us);
    } else if (copy->state == INTENT_STOPPED && before->state == INTENT_STARTING) {
        copy->price_h = disk_h; /* refused: it never ran */
        copy->charge.billing = (struct billing){ 0 };
        copy->charge.halted = true;
    }
}

/* ---- strays ---- */

static struct intent *find_stray(struct control *c, const char *provider, const char *handle)
{
    for (uint32_t i = 0; i < c->money.stray_count; i++)
        if (strcmp(c->money.stray[i].provider, provider) == 0 &&
            strcmp(c->money.stray[i].handle, handle) == 0)
            return &c->money.stray[i];
    return NULL;
}

void control_see_stray(struct control *c, uint32_t cloud, const struct listed *item, int64_t now_us)
{
    const char *provider = c->observed.provider[cloud].cloud.driver->name;
    struct intent *s = find_stray(c, provider, item->handle);
    if (s) {
        s->state_us = now_us;
        return;
    }
    if (c->money.stray_count == STRAYS_MAX) {
        control_bound_reached(c, "strays");
        return;
    }
    uint32_t offer = control_find_offer(c, provider, item->offer);
    s = &c->money.stray[c->money.stray_count++];
    *s = (struct intent){ .state = INTENT_CREATED,
                          .adopted = true,
                          .price_h = offer == PLAN_NONE ? 0 : c->money.offer[offer].price_h,
                          .made_us = item->created_us ? item->created_us : now_us,
                          .state_us = now_us };
    if (offer != PLAN_NONE) s->charge.billing = c->money.offer[offer].billing;
    if (item->price_h > 0) s->price_h = item->price_h;
    snprintf(s->id, sizeof s->id, "%.15s", item->intent);
    memcpy(s->handle, item->handle, sizeof s->handle);
    snprintf(s->service, sizeof s->service, "%s", item->service[0] ? item->service : NOBODY);
    snprintf(s->pool, sizeof s->pool, "%s", item->pool[0] ? item->pool : NOBODY);
    memcpy(s->offer, item->offer, sizeof s->offer);
    must(name_copy(s->provider, sizeof s->provider, str_from(provider)) == 0);
    tell(c, s, CHARGE_ORPHAN, "its provider bills it, and no intent stands for it", now_us);
}

void control_end_strays(struct control *c, uint32_t cloud, int64_t now_us)
{
    const struct provider *p = &c->observed.provider[cloud];
    const struct bill_periods period = periods(c, now_us);
    for (uint32_t i = 0; i < c->money.stray_count;) {
        struct intent *s = &c->money.stray[i];
        if (strcmp(s->provider, p->cloud.driver->name) != 0 || s->state_us == now_us) {
            i++;
            continue;
        }
        bool is_adopted = control_find(c, s->id) != UINT32_MAX &&
                          strcmp(c->money.intent[control_find(c, s->id)].handle, s->handle) == 0;
        s->state = INTENT_ENDED;
        s->ended_us = p->listing.taken_us;
        struct bill folded = c->money.bill;
        bill_fold(&folded, s, &period);
        memcpy(folded.last, c->money.bill.last, sizeof folded.last); /* it has no record */
        if (!is_adopted && control_store_cost(c, &folded) == 0) c->money.bill = folded;
        *s = c->money.stray[--c->money.stray_count];
    }
}

/* ---- prices and tokens ---- */

/* Sets an offer's price, and that of its running instances unless their provider has told theirs. */
void control_reprice(struct control *c, uint32_t offer, double price_h, int64_t now_us)
{
    struct offer *o = &c->money.offer[offer];
    const struct bill_periods p = periods(c, now_us);
    bool known = o->price_known, same = fabs(o->price_h - price_h) <= 1e-9 * fabs(price_h);
    o->price_h = price_h;
    if (known && same) return;
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct intent *i = &c->money.intent[at];
        bool mine = strcmp(i->provider, o->provider) == 0 && strcmp(i->offer, o->name) == 0;
        if (!mine || !intent_is_live(i) || i->aside || i->charge.told || i->charge.halted) continue;
        if (fabs(i->price_h - price_h) <= 1e-9 * fabs(price_h)) continue;
        struct intent copy = *i;
        if (copy.price_h > 0 && intent_is_billed(&copy))
            charge_price(&copy, price_h, &p);
        else /* it was not known when it was bought */
            copy.price_h = price_h;
        keep(c, at, &copy);
    }
}

/* ---- reserved instances ---- */

static bool is_of(const struct intent *i, const struct offer *o)
{
    return intent_is_live(i) && !i->charge.halted && strcmp(i->offer, o->name) == 0 &&
           strcmp(i->provider, o->provider) == 0;
}

/* Returns how many live instances of the offer are older; at == money.count: than one that is made now. */
static uint32_t older(const struct control *c, const struct offer *o, uint32_t at)
{
    uint32_t n = 0;
    const struct intent *mine = at < c->money.count ? &c->money.intent[at] : NULL;
    for (uint32_t k = 0; k < c->money.count; k++) {
        const struct intent *i = &c->money.intent[k];
        if (k == at || !is_of(i, o)) continue;
        bool before = !mine || i->wanted_us < mine->wanted_us ||
                      (i->wanted_us == mine->wanted_us && strcmp(i->id, mine->id) < 0);
        n += before;
    }
    return n;
}

double control_price_of_next(const struct control *c, uint32_t offer)
{
    const struct offer *o = &c->money.offer[offer];
    return o->reserved > 0 && older(c, o, c->money.count) < o->reserved ? 0 : o->price_h;
}

static void cover(struct control *c, const struct offer *o, const struct bill_periods *p)
{
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct intent *i = &c->money.intent[at];
        if (!is_of(i, o) || i->aside) continue;
        double price_h = older(c, o, at) < o->reserved ? 0 : o->price_h;
        if (fabs(i->price_h - price_h) <= 1e-9) continue;
        struct intent copy = *i;
        if (intent_is_billed(&copy))
            charge_price(&copy, price_h, p);
        else
            copy.price_h = price_h;
        keep(c, at, &copy);
    }
}

void control_use_reserved(struct control *c, int64_t now_us)
{
    const struct bill_periods p = periods(c, now_us);
    struct bill *l = &c->money.bill;
    double hours = l->reserved_us > 0 ? fmax(0, (double)(now_us - l->reserved_us) / 3.6e9) : 0;
    bool any = false;
    for (uint32_t o = 0; o < c->money.offer_count; o++) {
        const struct offer *of = &c->money.offer[o];
        if (of->reserved == 0) continue;
        any = true;
        cover(c, of, &p);
        if (of->price_known && hours > 0)
            bill_reserve(l, of->name, hours * of->reserved * of->price_h, &p);
    }
    if (!any) return;
    l->reserved_us = now_us;
    c->money.bill_grown = true;
}

void control_count_tokens(struct control *c, int64_t now_us)
{
    const struct bill_periods p = periods(c, now_us);
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        uint64_t *tokens = &c->observed.counted[s].tokens;
        if (*tokens == 0) continue;
        bill_count_tokens(&c->money.bill, c->desired.service[s].name, *tokens, &p);
        *tokens = 0;
        c->money.bill_grown = true;
    }
}

int control_flush_cost(struct control *c, int64_t now_us)
{
    if (!c->money.bill_grown || now_us - c->money.bill_us < COST_FLUSH_US) return 0;
    int rc = control_store_cost(c, &c->money.bill);
    if (rc < 0) {
        control_store_failed(c, "cost_not_written", "cost", "the store refused it");
        return rc;
    }
    c->money.bill_us = now_us;
    c->money.bill_grown = false;
    return 0;
}

/* ---- sums ---- */

double control_cost_total(const struct control *c, int64_t now_us)
{
    double sum = bill_total(&c->money.bill, c->money.intent, c->money.count, now_us);
    for (uint32_t i = 0; i < c->money.stray_count; i++)
        sum += charge_total(&c->money.stray[i], now_us);
    return sum;
}

double control_cost_unsure(const struct control *c, int64_t now_us)
{
    double sum = 0;
    for (uint32_t at = 0; at < c->money.count; at++)
        sum += charge_unsure(&c->money.intent[at], now_us);
    return sum;
}

struct bill_spent control_spent(const struct control *c, uint32_t service, const char *pool)
{
    const char *name = c->desired.service[service].name;
    struct bill_spent s =
        bill_spent(&c->money.bill, name, pool, c->money.intent, c->money.count, &c->money.period);
    for (uint32_t i = 0; i < c->money.stray_count; i++) {
        const struct intent *stray = &c->money.stray[i];
        if (strcmp(stray->service, name) != 0 || (pool && strcmp(stray->pool, pool) != 0)) continue;
        struct cost one = charge_of(stray, &c->money.period);
        s.day += one.in_day;
        s.month += one.in_month;
        s.total += one.total;
    }
    return s;
}

double control_per_h(const struct control *c, uint32_t service, uint32_t pool)
{
    double sum = 0;
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct detail *d = &c->observed.detail[at];
        if (d->service == service && (pool == PLAN_NONE || d->pool == pool) &&
            intent_is_billed(&c->money.intent[at]))
            sum += c->money.intent[at].price_h;
    }
    return sum;
}

double control_per_mtoken(double dollars, double mtokens)
{
    return mtokens > 0 ? dollars / mtokens : (double)NAN;
}
