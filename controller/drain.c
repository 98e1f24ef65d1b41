/* drain.c - drains instances, pools and nodes for a person, and takes that back.
 *
 * A pool is drained by an override: the plan wants none of it and drains what is there, as for a count of
 * 0, and the count from before holds again afterwards. An instance is drained by a mark on its intent,
 * which outlives the controller and forbids the plan to withdraw the drain. A node is all instances that
 * run on it now: what comes later is the provider's to keep away (kubectl cordon). */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "controller/control_state.h"
#include "controller/orders.h"

#include <string.h>

#define WHY "drained by hand"
#define NODES_SHOWN 8

const char *control_node(const struct control *c, uint32_t at)
{
    const struct detail *d = &c->observed.detail[at];
    return d->node[0] ? d->node : d->host;
}

/* ---- one instance ---- */

static int refuse_aside(const struct intent *i, struct err *err)
{
    return err_set(err, -EINVAL,
                   "the record of %s cannot be read, so that nothing is written over it; "
                   "`muster status` names the record",
                   i->id);
}

static int drain_one(struct control *c, uint32_t at, int64_t now_us, struct err *err)
{
    const struct intent *i = &c->money.intent[at];
    if (i->aside) return refuse_aside(i, err);
    if (i->state == INTENT_ENDING || i->let_go) return 0; /* it goes already */
    int rc = control_let_go(c, at, true, WHY, now_us);
    return rc < 0 ? err_set(err, rc, "the drain of %s cannot be written down", i->id) : 0;
}

static int undo_one(struct control *c, uint32_t at, int64_t now_us, struct err *err)
{
    const struct intent *i = &c->money.intent[at];
    if (i->aside) return refuse_aside(i, err);
    if (i->state == INTENT_ENDING)
        return err_set(err, -EINVAL, "%s ends already: its drain cannot be taken back", i->id);
    if (c->observed.detail[at].doomed)
        return err_set(err, -EINVAL, "%s cannot be kept: its %s", i->id,
                       c->observed.detail[at].machine.health == MACHINE_BROKEN
                           ? "machine is broken"
                           : "provider takes it away");
    if (!i->let_go)
        return err_set(err, -EINVAL, "%s is not drained by hand%s%s%s", i->id,
                       i->state == INTENT_DRAINING ? " (it drains: " : "",
                       i->state == INTENT_DRAINING ? i->why : "",
                       i->state == INTENT_DRAINING ? ")" : "");
    int rc = control_let_go(c, at, false, "its drain was taken back by hand", now_us);
    return rc < 0 ? err_set(err, rc, "the order for %s cannot be written down", i->id) : 0;
}

static int order_instance(struct control *c, const struct drain_order *o, int64_t now_us,
                          struct json_writer *w, struct err *err)
{
    char id[NAME_BYTES];
    uint32_t at = name_copy(id, sizeof id, o->instance) < 0 ? UINT32_MAX : control_find(c, id);
    if (at == UINT32_MAX || !intent_is_live(&c->money.intent[at]))
        return err_set(err, -ENOENT,
                       "there is no instance '" STR_FMT "'; `muster get instances` lists them",
                       STR_ARG(o->instance));
    json_put_text(w, id);
    return o->undo ? undo_one(c, at, now_us, err) : drain_one(c, at, now_us, err);
}

/* ---- a pool ---- */

static int order_pool(struct control *c, const struct drain_order *o, struct json_writer *w,
                      struct err *err)
{
    int rc = control_drain_pool(c, o->service, o->pool, !o->undo, err);
    for (uint32_t at = 0; at < c->money.count && rc == 0; at++) {
        const struct intent *i = &c->money.intent[at];
        bool of_it = str_eq(str_from(i->service), o->service) && str_eq(str_from(i->pool), o->pool);
        if (of_it && intent_is_live(i)) json_put_text(w, i->id);
    }
    return rc;
}

/* ---- a node ---- */

static int no_such_node(const struct control *c, struct str name, struct err *err)
{
    const char *names[NODES_SHOWN];
    char text[256];
    uint32_t count = 0;
    for (uint32_t at = 0; at < c->money.count && count < NODES_SHOWN; at++) {
        bool known = !intent_is_live(&c->money.intent[at]) || !control_node(c, at)[0];
        for (uint32_t k = 0; k < count; k++)
            known |= strcmp(names[k], control_node(c, at)) == 0;
        if (!known) names[count++] = control_node(c, at);
    }
    str_list(names, count, text, sizeof text);
    return err_set(err, -ENOENT, "no instance runs on '" STR_FMT "'%s%s", STR_ARG(name),
                   count ? "; they run on " : "", text);
}

/* Orders each instance of the node. One that cannot be drained is told at the end: the others are. */
static int order_node(struct control *c, const struct drain_order *o, int64_t now_us,
                      struct json_writer *w, struct err *err)
{
    uint32_t found = 0;
    int first = 0;
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct intent *i = &c->money.intent[at];
        struct err why = { 0 };
        int rc = 0;
        if (!intent_is_live(i) || !str_eq(str_from(control_node(c, at)), o->node)) continue;
        found++;
        if (o->undo && !i->let_go) continue; /* drained for another reason, or not at all */
        json_put_text(w, i->id);
        if (o->undo && i->state != INTENT_ENDING) rc = undo_one(c, at, now_us, &why);
        if (!o->undo) rc = drain_one(c, at, now_us, &why);
        if (rc == -ECANCELED) return rc;
        if (rc < 0 && first == 0) first = err_set(err, rc, "%s", err_text(&why, rc));
    }
    return found > 0 ? first : no_such_node(c, o->node, err);
}

int control_drain(struct control *c, const struct drain_order *o, int64_t now_us, struct buf *out,
                  struct err *err)
{
    struct json_writer w;
    int rc;
    owner_assert(&c->owner);
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "instances");
    json_array(&w);
    if (o->instance.len)
        rc = order_instance(c, o, now_us, &w, err);
    else if (o->pool.len)
        rc = order_pool(c, o, &w, err);
    else
        rc = order_node(c, o, now_us, &w, err);
    json_array_end(&w);
    json_object_end(&w);
    return rc < 0 ? rc : out->rc;
}
