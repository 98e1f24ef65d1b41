/* gc.c - collects what the fleet has lost sight of, on a person's order.
 *
 * The controller ends most orphans by itself, once it has proof (core/merge.c). This file shows what there
 * is in the meantime and what stays for want of a person's word, and removes what may go:
 *
 *     listed     a provider lists it, no living intent owns it   removed by a call to the provider
 *     intent     wanted, and nothing came within GC_LEADS leads   ended, as the plan would end it
 *     leftover   what a driver keeps without an instance          removed by the driver
 *     record     set aside, because it cannot be read             deleted, unless something needs it
 *
 * An instance that an intent owns and that reports, is listed or may be routed to is no orphan: no order
 * here can end it. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "controller/control_state.h"
#include "controller/orders.h"

#include <stdio.h>
#include <string.h>

#define GC_LEADS 2           /* an intent may take so many times its offer's lead */
#define GC_LEAST_US 60000000 /* and at least so long */
#define GC_ITEMS_MAX 2000    /* shown; the rest is counted and comes with the next call */
#define COLLECTED "collected: it has no instance past its lead"

struct gc {
    struct control *c;
    bool remove;
    int64_t now_us;
    struct json_writer w;
    uint32_t shown, removed, kept;
    int rc; /* -ECANCELED: an armed step; nothing more is done */
};

struct item {
    const char *kind, *name, *provider, *service, *pool;
    const char *why, *next; /* next: where it stays, what a person may do */
    bool removable;
};

static void put(struct gc *g, const struct item *i, bool removed)
{
    g->removed += removed;
    g->kept += !removed;
    if (g->shown++ >= GC_ITEMS_MAX) return;
    json_object(&g->w);
    json_kv_text(&g->w, "kind", i->kind);
    json_kv_text(&g->w, "name", i->name);
    json_kv_text(&g->w, "provider", i->provider);
    json_kv_text(&g->w, "service", i->service && i->service[0] ? i->service : NULL);
    json_kv_text(&g->w, "pool", i->pool && i->pool[0] ? i->pool : NULL);
    json_kv_text(&g->w, "action", removed ? "removed" : i->removable ? "remove" : "keep");
    json_kv_text(&g->w, "why", i->why);
    json_kv_text(&g->w, "next", i->next);
    json_object_end(&g->w);
}

/* ---- what providers list ---- */

/* Says what an entry of a listing is; false: it is an instance that a living intent owns. */
static bool judge_listed(const struct gc *g, const struct listing *l, const struct listed *item,
                         const struct claimed *claim, struct item *ret)
{
    const struct control *c = g->c;
    const struct intent *owner = claim->owner == UINT32_MAX ? NULL : &c->money.intent[claim->owner];
    *ret = (struct item){ .kind = "listed",
                          .name = item->handle,
                          .provider = l->provider,
                          .service = item->service,
                          .pool = item->pool,
                          .removable = true };
    if (claim->claim == CLAIM_DUPLICATE) {
        ret->why = "a second instance of its intent";
        return true;
    }
    if (claim->claim == CLAIM_OWN) {
        ret->why = "its intent has ended";
        bool fresh = owner->ended_us + l->lag_us >= l->taken_us;
        return !intent_is_live(owner) && !fresh;
    }
    if (control_is_aside(c, "intent/", item->intent)) {
        ret->why = "the record of its intent cannot be read: it counts as serving";
        ret->next = "run the release that wrote the record, or drain it there";
        ret->removable = item->gone;
        return true;
    }
    ret->why = "no intent owns it, and no configured pool";
    if (claim->claim == CLAIM_END || (item->unreadable && item->gone)) return true;
    ret->removable = false;
    if (item->unreadable) {
        ret->why = "its launch document cannot be read, and it runs";
        ret->next = "end it on its machine, then collect again";
    } else if (claim->claim == CLAIM_ADOPT) {
        ret->why = "no intent owns it; the next tick adopts it";
    } else {
        ret->why = "no intent owns it; it is too young: its pool may be on its way";
        ret->next = "collect again in a minute";
    }
    return true;
}

static bool remove_listed(struct gc *g, uint32_t cloud, const struct listed *item,
                          const struct claimed *claim)
{
    struct control *c = g->c;
    bool owned = claim->claim == CLAIM_OWN;
    int rc = owned ? control_apply(c, claim->owner, INTENT_LISTED, NULL, item->handle, g->now_us)
                   : control_remove_stray(c, cloud, item, g->now_us);
    if (rc == -ECANCELED) g->rc = rc;
    return rc == 0;
}

static void collect_listed(struct gc *g, uint32_t cloud)
{
    struct control *c = g->c;
    const struct provider *p = &c->observed.provider[cloud];
    const struct listing *l = &p->listing;
    if (!l->ok) {
        put(g,
            &(struct item){ .kind = "provider",
                            .name = l->provider,
                            .provider = l->provider,
                            .why = l->taken_us ? "its last listing is too old to prove anything"
                                               : "it was not listed since the controller's start",
                            .next = "see muster doctor, then collect again" },
            false);
        return;
    }
    const struct merge_fleet fleet = { c->money.intent, c->money.count, control_pool_is_known, c };
    merge_claims(l, &fleet, &c->setup.merge, g->now_us, c->observed.claimed);
    for (uint32_t i = 0; i < l->count && g->rc == 0; i++) {
        struct item one;
        const struct claimed claim = c->observed.claimed[i];
        if (!judge_listed(g, l, &l->item[i], &claim, &one)) continue;
        bool removed = g->remove && one.removable && remove_listed(g, cloud, &l->item[i], &claim);
        put(g, &one, removed);
    }
}

/* ---- intents without an instance ---- */

static bool is_listed(const struct listing *l, const struct intent *i)
{
    for (uint32_t k = 0; k < l->count; k++)
        if (strcmp(l->item[k].intent, i->id) == 0) return true;
    return false;
}

/* Says what an intent without an instance is; false: it has one, or may still get it. */
static bool judge_intent(const struct gc *g, uint32_t at, struct item *ret)
{
    const struct control *c = g->c;
    const struct intent *i = &c->money.intent[at];
    uint32_t cloud = control_find_cloud(c, i->provider);
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    *ret = (struct item){ .kind = "intent",
                          .name = i->id,
                          .provider = i->provider,
                          .service = i->service,
                          .pool = i->pool };
    if (!intent_is_live(i) || i->aside) return false;
    if (cloud == PLAN_NONE) {
        ret->why = "its provider is not configured: nothing can be asked about it";
        ret->next = "configure the provider again";
        return true;
    }
    const struct listing *l = &c->observed.provider[cloud].listing;
    if (!l->ok || is_listed(l, i) || c->observed.seen[at].heard_us) return false;
    if (i->state >= INTENT_REGISTERED) {
        ret->why = "its provider does not list it: it is ended once that is proven";
        return i->state < INTENT_ENDING;
    }
    double lead_s = offer == PLAN_NONE ? 0 : c->money.offer[offer].lead_s;
    int64_t limit_us = max_i64((int64_t)(lead_s * GC_LEADS * 1e6), GC_LEAST_US);
    if (g->now_us - i->wanted_us < limit_us) return false;
    ret->removable = true;
    ret->why = i->state == INTENT_WANTED ? "past its lead, and nothing was asked of the provider"
                                         : "past its lead, and the provider does not list it";
    return true;
}

static void collect_intents(struct gc *g)
{
    for (uint32_t at = 0; at < g->c->money.count && g->rc == 0; at++) {
        struct item one;
        bool removed = false;
        if (!judge_intent(g, at, &one)) continue;
        if (g->remove && one.removable) {
            int rc = control_apply(g->c, at, INTENT_END, COLLECTED, NULL, g->now_us);
            if (rc == -ECANCELED) g->rc = rc;
            removed = rc == 0;
        }
        put(g, &one, removed);
    }
}

/* ---- leftovers and records ---- */

struct sweep {
    struct gc *g;
    const char *provider;
};

static void on_leftover(void *arg, const struct cloud_leftover *one)
{
    const struct sweep *s = arg;
    put(s->g,
        &(struct item){ .kind = "leftover",
                        .name = one->name,
                        .provider = s->provider,
                        .why = one->why,
                        .removable = one->removable },
        one->removed);
}

static void collect_leftovers(struct gc *g, uint32_t cloud)
{
    const struct cloud *cl = &g->c->observed.provider[cloud].cloud;
    struct sweep s = { g, cl->driver->name };
    struct err err = { 0 };
    if (!cl->driver->leftovers) return;
    int rc = cl->driver->leftovers(cl->ctx, g->remove, on_leftover, &s, &err);
    if (rc < 0)
        put(g,
            &(struct item){ .kind = "leftover",
                            .name = s.provider,
                            .provider = s.provider,
                            .why = err_text(&err, rc) },
            false);
}

/* Returns true if no provider has an instance of this intent, which needs a good listing of each. */
static bool nobody_has(const struct control *c, const char *intent)
{
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        const struct listing *l = &c->observed.provider[k].listing;
        if (!l->ok) return false;
        for (uint32_t i = 0; i < l->count; i++)
            if (strcmp(l->item[i].intent, intent) == 0) return false;
    }
    return true;
}

static void judge_record(const struct gc *g, const char *key, struct item *ret)
{
    struct str name = str_from(key), kind = str_cut(&name, '/');
    ret->removable = true;
    if (str_eq(kind, STR("aside"))) {
        ret->why = "a copy of a record that could not be read";
    } else if (str_eq(kind, STR("intent")) && name.data && nobody_has(g->c, name.data)) {
        ret->why = "an intent that cannot be read, and no provider has its instance";
    } else {
        ret->removable = false;
        ret->why = str_eq(kind, STR("intent"))
                       ? "an intent that cannot be read; its instance may serve"
                       : "it cannot be read, and something may need it";
        ret->next = "run the release that wrote it; `muster status` says why it cannot be read";
    }
}

static void collect_records(struct gc *g)
{
    struct aside *a = &g->c->people.aside;
    for (uint32_t i = 0; i < a->count;) {
        char key[ASIDE_KEY_BYTES];
        struct item one = { .kind = "record", .name = key };
        memcpy(key, a->record[i].key, sizeof key);
        judge_record(g, key, &one);
        bool removed = g->remove && one.removable && control_remove_aside(g->c, i, NULL) == 0;
        put(g, &one, removed);
        i += !removed; /* the next one has taken its place */
    }
}

int control_gc(struct control *c, bool remove, int64_t now_us, struct buf *out,
               uint32_t *ret_removed, struct err *err)
{
    struct gc g = { .c = c, .remove = remove, .now_us = now_us };
    owner_assert(&c->owner);
    json_writer_init(&g.w, out);
    json_object(&g.w);
    json_key(&g.w, "orphans");
    json_array(&g.w);
    for (uint32_t k = 0; k < c->setup.cloud_count; k++)
        collect_listed(&g, k);
    collect_intents(&g);
    for (uint32_t k = 0; k < c->setup.cloud_count && g.rc == 0; k++)
        collect_leftovers(&g, k);
    if (g.rc == 0) collect_records(&g);
    json_array_end(&g.w);
    json_kv_u64(&g.w, "removed", g.removed);
    json_kv_u64(&g.w, "kept", g.kept);
    json_object_end(&g.w);
    *ret_removed = g.removed;
    c->urgent |= g.removed > 0;
    if (g.rc < 0) return err_set(err, g.rc, "stopped at an armed step");
    return out->rc;
}
