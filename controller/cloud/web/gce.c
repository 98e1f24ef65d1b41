/* gce.c - speaks the API of Google Compute Engine: an instance is a VM with the intent's id as its name.
 *
 *     create:  GET aggregated/instances by the intent's label, where an offer has several zones ──found──► made
 *              POST zones/Z/instances?requestId=, one zone after the other ──► operation ──DONE──► made
 *                  ├── alreadyExists ──► GET zones/Z/instances/NAME ──► it is ours: made
 *                  └── no capacity, in the reply or in the operation ──► the next zone
 *              of an offer of several types: POST regions/R/instances/bulkInsert?requestId= ──► operation ──DONE──►
 *              made where the operation says; without the right: as above
 *     remove:  GCE_DELETE zones/Z/instances/NAME ──► going; 404 ──► gone
 *     stop:    POST zones/Z/instances/NAME/stop ──► going
 *     start:   POST zones/Z/instances/NAME/start ──► operation ──DONE──► it starts, or there is no capacity
 *     list:    GET aggregated/instances by the fleet's label, page by page
 *     prices:  those of the file: the API tells none; GET zones/Z/reservations/NAME
 *
 * A name is unique in a zone, and so is a request id, which is made from the intent and the zone: a create that is
 * repeated gets its first operation back. Of several zones an earlier one may have got capacity meanwhile, so that
 * the intent is looked for in all of them first. An operation that has failed made nothing. If its failure was a
 * passing one, the next try has a request id of its own, because the old one would only bring back the failure.
 *
 * A bulk insert of one instance lets Google choose type and zone; its name is the intent's as well, but is unique only
 * in a zone, so that the intent is looked for first there, too, and its request id is made from intent and region.
 *
 * Rejected: a request id for deletes, whose names do it already, and
 * which would bring back a delete that failed; regional quota as a reason to ask another zone.
 *
 * A listing that a zone is missing from proves nothing and is an error. It asks for few members: metadata has the
 * instances' own keys. */
#include "controller/cloud/web/gce.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/gce_login.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <string.h>

#define PAGE 500 /* the largest that the API gives */
#define FIELDS                                         \
    "nextPageToken,unreachables,warning/code,"         \
    "items/*(warning/code,instances(name,zone,status," \
    "statusMessage,labels,creationTimestamp))"
/* ---- requests ---- */

/* Asks for a path below the project. */
int gce_ask(const struct web_provider *p, struct web_op *op, const char *method,
            const struct buf *path, struct web_step *ret)
{
    const struct web_settings *s = p->settings;
    if (path->rc < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
        return -ENOMEM;
    }
    int rc = web_ask(op, ret, method, STR_FMT "/projects/" STR_FMT "/%.*s", STR_ARG(s->endpoint),
                     STR_ARG(s->section->project), (int)path->len, path->data);
    return rc < 0 ? rc : web_ask_header(op, ret, "authorization", "Bearer %s", p->login.token);
}

/* Begins the path zones/ZONE/COLLECTION/NAME; an empty name is left out. */
static void zone_path(struct buf *path, struct str zone, const char *collection, struct str name)
{
    buf_text(path, "zones/");
    web_url_part(path, zone);
    buf_printf(path, "/%s", collection);
    if (name.len == 0) return;
    buf_byte(path, '/');
    web_url_part(path, name);
}

static struct str zone_of(const struct web_op *op)
{
    return op->offer->zone[ZONE(op->stage)];
}

/* Writes a UUID that is the same for each try of a create in a zone, or a region: of version 8, whose bits are the
 * writer's own. */
void gce_request_id(const struct web_provider *p, const struct web_op *op, struct str where,
                    char ret[GCE_ID_BYTES])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint8_t d[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    buf_printf(&text, "muster " STR_FMT " " STR_FMT " %s %u",
               STR_ARG(p->settings->section->project), STR_ARG(where), op->call->intent,
               ROUND(op->stage));
    must(text.rc == 0);
    sha256(text.data, text.len, d);
    d[6] = (uint8_t)(0x80 | (d[6] & 0x0f));
    d[8] = (uint8_t)(0x80 | (d[8] & 0x3f));
    hex_from(d, 16, hex);
    snprintf(ret, GCE_ID_BYTES, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
}

/* ---- listings ---- */

/* Asks for the instances with a label. */
static void ask_list(const struct web_provider *p, struct web_op *op, const char *label,
                     struct str value, struct str page, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_printf(&path, "aggregated/instances?filter=labels.%s%%3D%%22", label);
    web_url_part(&path, value);
    buf_printf(&path, "%%22&maxResults=%d&fields=", PAGE);
    web_url_part(&path, STR(FIELDS));
    if (page.len > 0) buf_text(&path, "&pageToken=");
    web_url_part(&path, page);
    gce_ask(p, op, "GET", &path, ret);
}

static int take_instance(void *ctx, struct str item)
{
    struct gce_reading *r = ctx;
    struct web_op *op = r->op;
    struct listed one;
    int rc = gce_read_instance(item, r, &one);
    if (rc < 0) return rc;
    if (op->kind == WEB_LIST) {
        if (op->count == CLOUD_LIST_MAX) return -E2BIG;
        op->item[op->count++] = one;
    } else if (op->kind == WEB_CREATE) {
        if (!op->made.handle[0] && strcmp(one.intent, op->call->intent) == 0) op->made = one;
    } else if (strcmp(one.intent, op->call->intent) == 0 && !one.leaves_us) {
        size_t len = strlen(op->note), more = strlen(one.handle) + 1;
        if (len + more >= sizeof op->note) return -E2BIG;
        snprintf(op->note + len, sizeof op->note - len, "%s ", one.handle);
    }
    return 0;
}

static int take_scope(void *ctx, struct str name, struct str scope)
{
    struct gce_reading *r = ctx;
    (void)name;
    r->incomplete = r->incomplete || gce_is_warning(scope);
    int rc = json_path_each(scope, "instances", take_instance, r);
    return rc == -ENOENT ? 0 : rc;
}

/* Takes a page. True: it was the last; false: *ret has the next, or the end. */
static bool take_page(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                      struct gce_reading *read, const char *label, struct str value,
                      struct web_step *ret)
{
    const char *kind = web_op_names[op->kind];
    if (r->status != 200) {
        gce_refuse(p, op, r, ret);
        return false;
    }
    int rc = json_path_each_member(r->body, "items", take_scope, read);
    bool lacks =
        read->incomplete || gce_is_warning(r->body) || gce_first(r->body, "unreachables").data;
    struct str next = gce_text(op, r->body, "nextPageToken");
    if (rc == -E2BIG)
        web_refuse(ret, OFFER_INVALID, "more than %d instances have the label", CLOUD_LIST_MAX);
    else if (rc < 0 && rc != -ENOENT)
        web_refuse(ret, OFFER_TRANSIENT, "%s of gce: the reply is no list of instances", kind);
    else if (lacks)
        web_refuse(ret, OFFER_TRANSIENT, "%s of gce: a zone is missing from the listing", kind);
    else if (next.len > 0)
        ask_list(p, op, label, value, next, ret);
    else
        return true;
    return false;
}

void gce_ask_intent(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    ask_list(p, op, WEB_TAG_INTENT, str_from(op->call->intent), (struct str){ 0 }, ret);
}

bool gce_take_intent(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                     struct gce_reading *read, struct web_step *ret)
{
    return take_page(p, op, r, read, WEB_TAG_INTENT, str_from(op->call->intent), ret);
}

static void list(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                 struct gce_reading *read, struct web_step *ret)
{
    struct str fleet = p->settings->fleet;
    if (!r)
        ask_list(p, op, WEB_TAG_FLEET, fleet, (struct str){ 0 }, ret);
    else if (take_page(p, op, r, read, WEB_TAG_FLEET, fleet, ret))
        web_succeed(ret);
}

/* ---- create ---- */

/* Asks for an instance in the zone and with the request id of the stage. */
static void ask_insert(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf path = { 0 };
    struct err err = { 0 };
    char id[GCE_ID_BYTES];
    gce_request_id(p, op, zone_of(op), id);
    zone_path(&path, zone_of(op), "instances", (struct str){ 0 });
    buf_printf(&path, "?requestId=%s", id);
    if (p->settings->section->launch_template.len > 0) {
        CLEANUP(buf_fini) struct buf url = { 0 };
        gce_template(p->settings, &url);
        buf_text(&path, "&sourceInstanceTemplate=");
        web_url_part(&path, buf_view(&url));
        if (url.rc < 0) path.rc = url.rc;
    }
    int rc = gce_order_write(p->settings, op, zone_of(op), &body, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_INVALID, "%s", err_text(&err, rc));
    else if (gce_ask(p, op, "POST", &path, ret) == 0)
        web_ask_body(op, ret, "application/json", &body);
    if (body.data) explicit_bzero(body.data, body.len);
}

void gce_insert(const struct web_provider *p, struct web_op *op, uint32_t zone, uint32_t round,
                struct web_step *ret)
{
    op->stage = STAGE(GCE_INSERT, zone, round);
    ask_insert(p, op, ret);
}

/* Asks what has the name already. */
static void ask_named(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    zone_path(&path, zone_of(op), "instances", str_from(op->call->intent));
    op->stage = STAGE(GCE_NAMED, ZONE(op->stage), ROUND(op->stage));
    gce_ask(p, op, "GET", &path, ret);
}

static void take_named(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       struct gce_reading *read, struct web_step *ret)
{
    if (r->status == 404) /* it went meanwhile */
        web_refuse(ret, OFFER_TRANSIENT, "the VM %s was there and is gone", op->call->intent);
    else if (r->status != 200)
        gce_refuse(p, op, r, ret);
    else if (gce_read_instance(r->body, read, &op->made) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "create of gce: the reply is no instance");
    else if (strcmp(op->made.intent, op->call->intent) == 0)
        web_succeed(ret);
    else
        web_refuse(ret, OFFER_INVALID, "a VM %s is there that is not ours", op->call->intent);
}

/* The operation says no more than that it is done, and where; the rest is what was ordered. */
void gce_make(struct web_op *op, struct str zone, int64_t now_us, struct web_step *ret)
{
    struct listed *l = &op->made;
    *l = (struct listed){ .created_us = now_us };
    must(gce_handle(zone, str_from(op->call->intent), l->handle) == 0); /* checked at open */
    snprintf(l->intent, sizeof l->intent, "%s", op->call->intent);
    snprintf(l->node, sizeof l->node, "%s", op->call->intent);
    web_text_copy(l->service, sizeof l->service, op->spec->service);
    web_text_copy(l->pool, sizeof l->pool, op->spec->pool);
    web_text_copy(l->offer, sizeof l->offer, op->spec->offer);
    web_succeed(ret);
}

/* Goes on behind a refusal in *ret: the next zone, or another request id. */
static void go_on(const struct web_provider *p, struct web_op *op, bool by_operation,
                  struct web_step *ret)
{
    bool passing = ret->class == OFFER_TRANSIENT || ret->class == OFFER_THROTTLE;
    if (ret->class == OFFER_CAPACITY && ZONE(op->stage) + 1 < op->offer->zone_count)
        gce_insert(p, op, ZONE(op->stage) + 1, 0, ret);
    else if (by_operation && passing && ROUND(op->stage) + 1 < GCE_ROUNDS_MAX)
        gce_insert(p, op, ZONE(op->stage), ROUND(op->stage) + 1, ret);
}

/* Takes an operation. One that had failed when it was asked for is of an earlier try. */
static void take_operation(const struct web_provider *p, struct web_op *op,
                           const struct web_reply *r, int64_t now_us, struct web_step *ret)
{
    struct str name = gce_text(op, r->body, "name"), status = gce_text(op, r->body, "status");
    struct str code = gce_code(op, r->body);
    bool is_old = PHASE(op->stage) == GCE_INSERT, failed = gce_first(r->body, "error.errors").data;
    if (name.len == 0 || name.len >= sizeof op->note || status.len == 0) {
        web_refuse(ret, OFFER_TRANSIENT, "create of gce: the reply is no operation");
    } else if (!str_eq(status, STR("DONE"))) {
        web_text_copy(op->note, sizeof op->note, name);
        op->stage = STAGE(GCE_POLL, ZONE(op->stage), ROUND(op->stage));
        *ret = (struct web_step){ .next = WEB_WAIT, .wait_us = GCE_POLL_US };
    } else if (failed && str_eq(code, STR("RESOURCE_ALREADY_EXISTS"))) {
        ask_named(p, op, ret);
    } else if (failed) {
        gce_refuse(p, op, r, ret);
        go_on(p, op, is_old, ret);
    } else {
        gce_make(op, zone_of(op), now_us, ret);
    }
}

static void ask_operation(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    zone_path(&path, zone_of(op), "operations", str_from(op->note));
    gce_ask(p, op, "GET", &path, ret);
}

static void take_insert(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                        int64_t now_us, struct web_step *ret)
{
    if (r->status == 200)
        take_operation(p, op, r, now_us, ret);
    else if (r->status == 409 && str_eq(gce_code(op, r->body), STR("alreadyExists")))
        ask_named(p, op, ret);
    else {
        gce_refuse(p, op, r, ret);
        go_on(p, op, false, ret);
    }
}

/* A look at an operation that fails says nothing of the operation: the VM may be there. */
static void take_poll(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                      int64_t now_us, struct web_step *ret)
{
    if (r->status == 200) {
        take_operation(p, op, r, now_us, ret);
        return;
    }
    gce_refuse(p, op, r, ret);
    ret->class = OFFER_TRANSIENT;
    ret->rc = web_class_errno(OFFER_TRANSIENT);
}

static bool is_chosen(const struct web_op *op)
{
    return op->offer->section->types.count > 0;
}

static void create(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct gce_reading *read, struct web_step *ret)
{
    switch (PHASE(op->stage)) {
    case GCE_BEGIN:
        if (op->resume && PHASE(op->resume) == GCE_BULK) {
            gce_bulk(p, op, ROUND(op->resume), ret);
            break;
        }
        if (op->resume || (op->offer->zone_count == 1 && !is_chosen(op))) {
            gce_insert(p, op, ZONE(op->resume), ROUND(op->resume), ret);
            break;
        }
        op->stage = STAGE(GCE_LOOK, 0, 0);
        gce_ask_intent(p, op, ret);
        break;
    case GCE_LOOK:
        if (!gce_take_intent(p, op, r, read, ret)) break;
        if (op->made.handle[0])
            web_succeed(ret);
        else if (is_chosen(op))
            gce_bulk(p, op, 0, ret);
        else
            gce_insert(p, op, 0, 0, ret);
        break;
    case GCE_BULK:
    case GCE_BULK_POLL:
    case GCE_BULK_LOOK:
        gce_bulk_step(p, op, r, read, ret);
        break;
    case GCE_INSERT:
        take_insert(p, op, r, read->now_us, ret);
        break;
    case GCE_POLL:
        if (r)
            take_poll(p, op, r, read->now_us, ret);
        else
            ask_operation(p, op, ret);
        break;
    case GCE_NAMED:
        take_named(p, op, r, read, ret);
        break;
    case GCE_DELETE:
    case GCE_TURN:
    case GCE_TURNING:
        break;
    }
}

/* ---- remove ---- */

/* Asks for the end of the first instance of the note, which has handles with a blank behind each. */
static void ask_delete(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    struct str rest = str_from(op->note), name = str_cut(&rest, ' '), zone = str_cut(&name, '/');
    op->stage = STAGE(GCE_DELETE, 0, 0);
    if (name.len == 0) {
        web_succeed(ret); /* a handle without a zone is not one of ours */
        return;
    }
    zone_path(&path, zone, "instances", name);
    gce_ask(p, op, "DELETE", &path, ret);
}

static void drop_first(struct web_op *op)
{
    size_t at = strcspn(op->note, " ");
    at += op->note[at] == ' ';
    memmove(op->note, op->note + at, strlen(op->note + at) + 1);
}

static void remove_instances(const struct web_provider *p, struct web_op *op,
                             const struct web_reply *r, struct gce_reading *read,
                             struct web_step *ret)
{
    if (PHASE(op->stage) == GCE_BEGIN && op->call->handle[0]) {
        snprintf(op->note, sizeof op->note, "%s ", op->call->handle);
        ask_delete(p, op, ret);
    } else if (PHASE(op->stage) == GCE_BEGIN) {
        op->stage = STAGE(GCE_LOOK, 0, 0);
        gce_ask_intent(p, op, ret);
    } else if (PHASE(op->stage) == GCE_LOOK) {
        if (!gce_take_intent(p, op, r, read, ret)) return;
        ask_delete(p, op, ret);
    } else if (r->status == 404 || (r->status >= 200 && r->status < 300)) {
        drop_first(op);
        ask_delete(p, op, ret);
    } else {
        gce_refuse(p, op, r, ret);
    }
}

/* ---- stop and start ---- */

/* A request id would bring back the operation of an earlier time; a VM that is so already is left as it is. */
static void ask_turn(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    struct str name = str_from(op->call->handle), zone = str_cut(&name, '/');
    op->stage = STAGE(GCE_TURN, 0, 0);
    zone_path(&path, zone, "instances", name);
    /* A stop loses the content of local SSDs, and without this word such a VM cannot be stopped. */
    buf_text(&path, op->kind == WEB_STOP ? "/stop?discardLocalSsd=true" : "/start");
    gce_ask(p, op, "POST", &path, ret);
}

static void ask_turning(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    struct str name = str_from(op->call->handle), zone = str_cut(&name, '/');
    zone_path(&path, zone, "operations", str_from(op->note));
    gce_ask(p, op, "GET", &path, ret);
}

/* Capacity for a start is told by its operation alone. */
static void turn(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                 struct web_step *ret)
{
    if (!r && PHASE(op->stage) == GCE_BEGIN) {
        ask_turn(p, op, ret);
        return;
    }
    if (!r) {
        ask_turning(p, op, ret);
        return;
    }
    struct str name = gce_text(op, r->body, "name"), status = gce_text(op, r->body, "status");
    bool failed = gce_first(r->body, "error.errors").data;
    if (r->status != 200 || failed) {
        gce_refuse(p, op, r, ret);
    } else if (op->kind == WEB_STOP || str_eq(status, STR("DONE"))) {
        web_succeed(ret);
    } else if (name.len == 0 || name.len >= sizeof op->note) {
        web_refuse(ret, OFFER_TRANSIENT, "start of gce: the reply is no operation");
    } else {
        web_text_copy(op->note, sizeof op->note, name);
        op->stage = STAGE(GCE_TURNING, 0, 0);
        *ret = (struct web_step){ .next = WEB_WAIT, .wait_us = GCE_POLL_US };
    }
}

/* ---- prices ---- */

static void begin_prices(const struct web_provider *p, struct web_op *op)
{
    const struct web_settings *s = p->settings;
    for (uint32_t i = 0; i < s->offer_count; i++) {
        const struct web_offer *o = &s->offer[i];
        struct cloud_price *c = &op->price[op->count++];
        *c = (struct cloud_price){ .known = o->price_given, .price_h = o->offer.price_h };
        must(name_copy(c->offer, sizeof c->offer, str_from(o->offer.name)) == 0);
        web_text_copy(c->hardware, sizeof c->hardware, o->type);
    }
}

/* Asks for the next reservation from zone `at` of all offers' on; the stage is its number and one. */
static void ask_reservation(const struct web_provider *p, struct web_op *op, uint32_t at,
                            struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    for (; at < op->count * WEB_ZONES_MAX; at++) {
        const struct web_offer *o = &p->settings->offer[at / WEB_ZONES_MAX];
        struct str name = o->section->capacity_reservation;
        if (name.len == 0 || at % WEB_ZONES_MAX >= o->zone_count) continue;
        op->stage = at + 1;
        zone_path(&path, o->zone[at % WEB_ZONES_MAX], "reservations", name);
        gce_ask(p, op, "GET", &path, ret);
        return;
    }
    web_succeed(ret);
}

/* It is billed whether it is used or not: as many VMs as it has are reserved, unless the offer says how many. */
static void take_reservation(const struct web_provider *p, struct web_op *op,
                             const struct web_reply *r)
{
    uint32_t i = (op->stage - 1) / WEB_ZONES_MAX;
    struct cloud_price *c = &op->price[i];
    uint64_t count, used = 0;
    int64_t said = p->settings->offer[i].section->reserved;
    if (!str_eq(gce_text(op, r->body, "status"), STR("READY")) ||
        str_to_u64(gce_text(op, r->body, "specificReservation.count"), &count) < 0)
        return;
    (void)str_to_u64(gce_text(op, r->body, "specificReservation.inUseCount"), &used);
    c->room_known = c->reserved_known = true;
    c->nodes += (uint32_t)min_u64(count, UINT32_MAX / WEB_ZONES_MAX);
    if (used < count) c->room += (uint32_t)min_u64(count - used, UINT32_MAX / WEB_ZONES_MAX);
    c->reserved = said > 0 ? (uint32_t)said : c->nodes;
}

/* Without the right to reservations, or without the reservation, prices go on without. */
static void prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    if (!r) {
        begin_prices(p, op);
        ask_reservation(p, op, 0, ret);
        return;
    }
    if (r->status == 200) {
        take_reservation(p, op, r);
    } else {
        gce_refuse(p, op, r, ret);
        if (ret->login_refused || ret->class == OFFER_TRANSIENT || ret->class == OFFER_THROTTLE)
            return;
    }
    ask_reservation(p, op, op->stage, ret);
}

/* ---- the kind ---- */

static int open_kind(struct web_provider *p, struct err *err)
{
    return gce_order_check(p->settings, err);
}

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    struct gce_reading read = { .op = op, .now_us = now_us, .wall_us = wall_us };
    switch (op->kind) {
    case WEB_LOGIN:
        gce_login(p, op, reply, now_us, wall_us, ret);
        break;
    case WEB_CREATE:
        create(p, op, reply, &read, ret);
        break;
    case WEB_REMOVE:
        remove_instances(p, op, reply, &read, ret);
        break;
    case WEB_STOP:
    case WEB_START:
        turn(p, op, reply, ret);
        break;
    case WEB_LIST:
        list(p, op, reply, &read, ret);
        break;
    case WEB_PRICES:
        prices(p, op, reply, ret);
        break;
    case WEB_OP_COUNT:
        break;
    }
}

static const char *const takes[] = { "project",
                                     "image",
                                     "launch_template",
                                     "disk",
                                     "networks",
                                     "firewalls",
                                     "public_address",
                                     "account",
                                     "offers.zones",
                                     "offers.types",
                                     "offers.spot",
                                     "offers.gpus",
                                     "offers.gpu_type",
                                     "offers.capacity_reservation",
                                     NULL };
static const char *const wants[] = { "project",
                                     NULL }; /* and an image, which a template may have */
static const char *const reply_headers[] = { "retry-after", "date", NULL };

const struct web_kind web_kind_gce = {
    .name = "gce",
    .about = "Google Compute Engine: VMs in zones, on demand and spot",
    .endpoint = "https://compute.googleapis.com/compute/v1",
    .lag_us = 10000000,
    .poll_us = 10000000,
    .billing = { 1000000,
                 60000000 }, /* cloud.google.com/compute/all-pricing: by the second, a minute at least */
    .calls_per_s = 10,       /* half of the default quota of requests, which is 1,500 a minute */
    /* The provider takes 256 KiB; the requests to 16 zones fit an op's arena. */
    .user_data_bytes = (size_t)32 << 10,
    .notice = "gce",
    .stops = true,
    .create_is_keyed = true,
    .takes = takes,
    .wants = wants,
    .reply_headers = reply_headers,
    .check = gce_template_check,
    .open = open_kind,
    .step = step,
};
