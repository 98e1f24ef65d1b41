/* gce_bulk.c - creates an instance where Google chooses among several types and zones: regionInstances.bulkInsert of
 * one.
 *
 *     POST regions/R/instances/bulkInsert?requestId= ──► operation ──DONE──► made, in the zone that it names
 *         ├── failed: its class; a passing failure of an earlier try: once more, with the next request id
 *         ├── no zone in it, or the name is taken ──► GET aggregated/instances by the intent's label
 *         └── no right ──► instances.insert, one zone after the other
 *
 * The instance's name is the intent's id, which is unique only in a zone. So the intent is looked for before the first
 * order, and the request id is made from intent, region and round.
 *
 * Source: reference of regionInstances.bulkInsert; "About instance flexibility for VMs created in bulk". */
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/gce.h"

#include <string.h>

void gce_bulk(const struct web_provider *p, struct web_op *op, uint32_t round, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf path = { 0 };
    struct err err = { 0 };
    char id[GCE_ID_BYTES];
    struct str region = gce_region(op->offer->zone[0]);
    op->stage = STAGE(GCE_BULK, 0, round);
    gce_request_id(p, op, region, id);
    buf_text(&path, "regions/");
    web_url_part(&path, region);
    buf_printf(&path, "/instances/bulkInsert?requestId=%s", id);
    int rc = gce_order_write_bulk(p->settings, op, &body, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_INVALID, "%s", err_text(&err, rc));
    else if (gce_ask(p, op, "POST", &path, ret) == 0)
        web_ask_body(op, ret, "application/json", &body);
    if (body.data) explicit_bzero(body.data, body.len);
}

static void ask_bulk_operation(const struct web_provider *p, struct web_op *op,
                               struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_text(&path, "regions/");
    web_url_part(&path, gce_region(op->offer->zone[0]));
    buf_text(&path, "/operations/");
    web_url_part(&path, str_from(op->note));
    gce_ask(p, op, "GET", &path, ret);
}

struct place {
    struct arena *arena;
    struct str zone; /* data NULL: nowhere */
};

/* Takes the zone in which a bulk insert has made its instance. */
static int take_location(void *ctx, struct str name, struct str value)
{
    struct place *at = ctx;
    uint64_t made = 0;
    (void)json_path_u64(value, "createdVmCount", &made);
    if (made > 0 && str_starts(name, STR("zones/")))
        at->zone = arena_str(at->arena, str_of(name.data + 6, name.len - 6));
    return 0;
}

/* One that failed made nothing. If it failed for a passing reason in an earlier try, its request id is used up. */
static void bulk_failed(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                        bool is_old, struct web_step *ret)
{
    uint32_t round = ROUND(op->stage);
    gce_refuse(p, op, r, ret);
    bool passing = ret->class == OFFER_TRANSIENT || ret->class == OFFER_THROTTLE;
    if (is_old && passing && round + 1 < GCE_ROUNDS_MAX) gce_bulk(p, op, round + 1, ret);
}

static void look_where(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    op->stage = STAGE(GCE_BULK_LOOK, 0, ROUND(op->stage));
    gce_ask_intent(p, op, ret);
}

static void take_bulk_operation(const struct web_provider *p, struct web_op *op,
                                const struct web_reply *r, int64_t now_us, struct web_step *ret)
{
    struct str name = gce_text(op, r->body, "name"), status = gce_text(op, r->body, "status");
    struct place at = { .arena = op->arena };
    if (name.len == 0 || name.len >= sizeof op->note || status.len == 0) {
        web_refuse(ret, OFFER_TRANSIENT, "create of gce: the reply is no operation");
    } else if (!str_eq(status, STR("DONE"))) {
        web_text_copy(op->note, sizeof op->note, name);
        op->stage = STAGE(GCE_BULK_POLL, 0, ROUND(op->stage));
        *ret = (struct web_step){ .next = WEB_WAIT, .wait_us = GCE_POLL_US };
    } else if (gce_first(r->body, "error.errors").data) {
        if (str_eq(gce_code(op, r->body), STR("RESOURCE_ALREADY_EXISTS")))
            look_where(p, op, ret);
        else
            bulk_failed(p, op, r, PHASE(op->stage) == GCE_BULK, ret);
    } else {
        (void)json_path_each_member(
            r->body, "instancesBulkInsertOperationMetadata.perLocationStatus", take_location, &at);
        if (at.zone.len > 0 && at.zone.len + INTENT_ID_BYTES < NAME_BYTES)
            gce_make(op, at.zone, now_us, ret);
        else
            look_where(p, op, ret);
    }
}

static void take_bulk(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                      int64_t now_us, struct web_step *ret)
{
    if (r->status == 200) {
        take_bulk_operation(p, op, r, now_us, ret);
        return;
    }
    gce_refuse(p, op, r, ret);
    if (PHASE(op->stage) == GCE_BULK_POLL) { /* a look that fails says nothing of the operation */
        ret->class = OFFER_TRANSIENT;
        ret->rc = web_class_errno(OFFER_TRANSIENT);
    } else if (ret->class == OFFER_AUTH && !ret->login_refused) {
        gce_insert(p, op, 0, 0, ret);
    }
}

static void bulk_looked(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                        struct gce_reading *read, struct web_step *ret)
{
    if (!gce_take_intent(p, op, r, read, ret)) return;
    if (op->made.handle[0])
        web_succeed(ret);
    else /* it is not listed yet */
        web_refuse(ret, OFFER_TRANSIENT, "create of gce: %s was made, and is not listed yet",
                   op->call->intent);
}

void gce_bulk_step(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct gce_reading *read, struct web_step *ret)
{
    if (PHASE(op->stage) == GCE_BULK_LOOK)
        bulk_looked(p, op, r, read, ret);
    else if (r)
        take_bulk(p, op, r, read->now_us, ret);
    else /* the pause between two looks is over */
        ask_bulk_operation(p, op, ret);
}
