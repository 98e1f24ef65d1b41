/* observe.c - what providers list is brought together with what was written and what is heard. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <math.h>
#include <string.h>

/* ---- providers ---- */

static void take_listing(struct control *c, uint32_t cloud, int64_t now_us)
{
    struct cloud *cl = &c->cloud[cloud];
    struct listing *l = &c->listing[cloud];
    struct err err = { 0 };
    uint32_t count = 0;
    int rc = cl->driver->list(cl->ctx, now_us, c->listed[cloud], CLOUD_LIST_MAX, &count, &err);
    l->ok = rc == 0;
    if (rc < 0) {
        control_count(c, CONTROL_M_LIST_FAILURES, cl->driver->name);
        log_event(LOG_WARN, "list_failed", "provider=%s error=%s", cl->driver->name,
                  err_text(&err, rc));
        l->count = 0;
        return;
    }
    *l = (struct listing){ .provider = cl->driver->name,
                           .item = c->listed[cloud],
                           .count = count,
                           .ok = true,
                           .taken_us = now_us,
                           .lag_us = cl->lag_us };
    /* A lagging listing shows the world since our start only once the lag has passed. */
    if (now_us >= c->started_us + cl->lag_us) c->observed[cloud] = true;
}

static bool pool_is_known(const void *ctx, const char *service, const char *pool,
                          const char *provider)
{
    const struct control *c = ctx;
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *sv = &c->service[s];
        if (strcmp(sv->name, service) != 0) continue;
        for (uint32_t p = 0; p < sv->pool_count; p++)
            if (strcmp(sv->pool[p].name, pool) == 0)
                return strcmp(sv->pool[p].provider, provider) == 0;
    }
    return false;
}

static int settle_strays(struct control *c, uint32_t cloud, int64_t now_us)
{
    const struct listing *l = &c->listing[cloud];
    if (!l->ok) return 0;
    merge_claims(l, c->intent, c->count, pool_is_known, c, &c->setup.merge, now_us, c->claimed);
    for (uint32_t i = 0; i < l->count; i++) {
        int rc = 0;
        if (c->claimed[i].owner == UINT32_MAX && !l->item[i].gone &&
            control_is_aside(c, "intent/", l->item[i].intent)) {
            control_shadow(c, cloud, &l->item[i], now_us);
            continue;
        }
        switch (c->claimed[i].claim) {
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
    return 0;
}

static const struct listed *find_item(const struct listing *l, const struct intent *i)
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
    return offer != PLAN_NONE && offer_may_be_asked(&c->health[offer], now_us);
}

/* Launch to ready, once for each instance whose whole way we have seen. */
static void learn_lead(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->intent[at];
    struct detail *d = &c->detail[at];
    if (d->lead_learned || i->called_us < c->listening_us) return;
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (offer == PLAN_NONE) return;
    d->lead_learned = true;
    offer_learn_lead(&c->offer[offer], (double)(now_us - i->called_us) / 1e6);
}

/* Whether somebody has requests at `at`, as far as anybody knows: without fresh word of every
 * router nobody can say that nobody has. A controller cut off from agents and routers alike must
 * not end what goes on serving. */
static bool may_be_routed(const struct control *c, uint32_t at, int64_t now_us)
{
    bool heard = false;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        if (!c->router[r].id[0]) continue;
        if (!control_router_is_fresh(&c->router[r], now_us)) return true;
        heard = true;
    }
    return !heard || c->detail[at].routed > 0;
}

static int drive_intent(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->intent[at];
    uint32_t cloud = control_find_cloud(c, i->provider);
    const struct listing *l = cloud == PLAN_NONE ? NULL : &c->listing[cloud];
    struct merge_view v = { .intent = i,
                            .seen = &c->seen[at],
                            .listing = l,
                            .item = find_item(l, i),
                            .may_ask = offer_is_askable(c, i, now_us),
                            .routed = may_be_routed(c, at, now_us),
                            .listening_us = c->listening_us };
    enum intent_event e = merge_event(&v, &c->setup.merge, now_us);
    const char *handle = v.item ? v.item->handle : NULL;
    int rc = e == INTENT_EVENT_COUNT ? 0 : control_apply(c, at, e, NULL, handle, now_us);
    if (rc == -ECANCELED) return rc;

    struct detail *d = &c->detail[at];
    enum phase phase = merge_phase(&c->intent[at], &c->seen[at], &c->setup.merge, now_us);
    if (phase != d->phase) {
        if (phase == PHASE_READY && c->seen[at].heard_us) learn_lead(c, at, now_us);
        d->phase = phase;
        d->phase_us = now_us;
    }
    return 0;
}

int control_observe(struct control *c, int64_t now_us)
{
    for (uint32_t cloud = 0; cloud < c->setup.cloud_count; cloud++) {
        take_listing(c, cloud, now_us);
        int rc = settle_strays(c, cloud, now_us);
        if (rc < 0) return rc;
    }
    control_drop_shadows(c);
    for (uint32_t at = 0; at < c->count; at++) {
        int rc = drive_intent(c, at, now_us);
        if (rc < 0) return rc;
    }
    return 0;
}
