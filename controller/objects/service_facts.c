/* service_facts.c - reads the controller's state for the status of a service's object. */
#include "controller/objects/service_facts.h"

#include "base/core/bits.h"
#include "controller/control_state.h"
#include "controller/objects/service_object.h"

#include <stdio.h>
#include <string.h>

static uint32_t index_of(const struct control *c, struct str service)
{
    for (uint32_t s = 0; s < c->setup.service_count; s++)
        if (str_eq(str_from(c->desired.service[s].name), service)) return s;
    return PLAN_NONE;
}

static void count_instances(const struct control *c, uint32_t service, struct service_facts *f)
{
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct detail *d = &c->observed.detail[at];
        if (d->service != service || !intent_is_live(&c->money.intent[at])) continue;
        f->instances++;
        f->ready += d->phase == PHASE_READY;
        f->starting += d->phase == PHASE_STARTING;
        f->leaving += d->phase == PHASE_DRAINING || d->phase == PHASE_ENDING;
        if (intent_is_billed(&c->money.intent[at])) f->cost_h += c->money.intent[at].price_h;
        if (d->pool == PLAN_NONE) continue;
        f->pool[d->pool].instances++;
        f->pool[d->pool].ready += d->phase == PHASE_READY;
    }
}

/* Returns true if the last that every offer of the pool said is that there is nothing to be had. */
static bool is_sold_out(const struct control *c, const struct plan_pool *p, char *ret, size_t size)
{
    for (uint32_t o = 0; o < p->offer_count; o++) {
        const struct offer_health *h = &c->money.health[p->offer[o]];
        if (h->failures == 0 || (h->last != OFFER_CAPACITY && h->last != OFFER_QUOTA)) return false;
        if (o == 0)
            snprintf(ret, size, "pool %.40s: offer %.40s: %.80s", p->name,
                     c->money.offer[p->offer[o]].name, h->text);
    }
    return p->offer_count > 0;
}

static void read_pools(const struct control *c, const struct plan_service *s,
                       const struct plan_decision *d, struct service_facts *f)
{
    f->pool_count = s->pool_count;
    f->drained = s->pool_count > 0;
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct plan_pool *pool = &s->pool[p];
        struct pool_facts *to = &f->pool[p];
        snprintf(to->name, sizeof to->name, "%s", pool->name);
        f->drained &= pool->drained;
        f->by_hand |= pool->manual >= 0;
        if (!d) continue;
        to->desired = d->target[p];
        f->desired += d->target[p];
        bool missing = d->target[p] > d->ready[p];
        f->missing |= missing;
        if (missing && !f->stocked_out)
            f->stocked_out = is_sold_out(c, pool, f->stock, sizeof f->stock);
    }
}

void service_facts_read(const struct control *c, struct str service, struct service_facts *ret)
{
    *ret = (struct service_facts){ 0 };
    uint32_t s = c ? index_of(c, service) : PLAN_NONE;
    if (s == PLAN_NONE) return;
    const struct plan_service *sv = &c->desired.service[s];
    const struct plan_decision *d = NULL;
    for (uint32_t i = 0; i < c->desired.plan.decision_count; i++)
        if (c->desired.plan.decision[i].service == s) d = &c->desired.plan.decision[i];
    ret->known = true;
    ret->observed = control_has_observed(c);
    ret->decided = d != NULL;
    ret->paused = sv->paused;
    ret->budget_h = sv->budget_h;
    ret->met = c->observed.counted[s].met;
    ret->missed = c->observed.counted[s].missed;
    if (d) {
        ret->reason = d->reason;
        ret->blocked = d->blocked;
        ret->at_budget = d->blocked && strcmp(d->blocked, PLAN_BLOCKED_BUDGET) == 0;
    }
    read_pools(c, sv, d, ret);
    count_instances(c, s, ret);
}

uint32_t service_instances(const struct control *c, struct str service)
{
    uint32_t count = 0;
    for (uint32_t at = 0; at < c->money.count; at++)
        count += intent_is_live(&c->money.intent[at]) &&
                 str_eq(str_from(c->money.intent[at].service), service);
    return count;
}

int service_replicas_set(struct control *c, struct str service, int64_t replicas, struct err *err)
{
    uint32_t s = index_of(c, service), min[SCALE_POOLS_MAX], max[SCALE_POOLS_MAX];
    uint32_t share[SCALE_POOLS_MAX];
    if (s == PLAN_NONE)
        return err_set(err, -ENOENT, "there is no service '" STR_FMT "'", STR_ARG(service));
    const struct plan_service *sv = &c->desired.service[s];
    for (uint32_t p = 0; p < sv->pool_count; p++) {
        min[p] = sv->pool[p].min;
        max[p] = sv->pool[p].max;
    }
    int rc = 0;
    if (replicas >= 0) rc = service_scale(replicas, min, max, sv->pool_count, share, err);
    for (uint32_t p = 0; p < sv->pool_count && rc == 0; p++)
        rc = control_scale(c, service, str_from(sv->pool[p].name),
                           replicas >= 0 ? (int32_t)share[p] : -1, err);
    return rc;
}

void service_events_each(const struct control *c, uint64_t *at,
                         void (*fn)(void *ctx, const struct fleet_event *event), void *ctx)
{
    const struct events *e = &c->events;
    uint64_t end = e->dropped + e->count;
    for (uint64_t i = max_u64(*at, e->dropped); i < end; i++)
        fn(ctx, &e->event[(e->first + (uint32_t)(i - e->dropped)) % EVENTS_MAX]);
    *at = end;
}
