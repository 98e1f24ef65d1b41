/* gce_read.c - reads replies of Google Compute Engine. */
#include "controller/cloud/web/gce_read.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <string.h>

/* Reasons in lower case are those of replies ("Resolving common errors", "Troubleshooting bulk VM creation", the
 * error catalogue of the reference, "Global domain errors" of Google's JSON APIs). Those in upper case are of
 * operations ("Troubleshooting resource availability errors", the same catalogue) and statuses of replies. */
static const struct web_code codes[] = {
    { "ZONE_RESOURCE_POOL_EXHAUSTED", OFFER_CAPACITY, false },
    { "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", OFFER_CAPACITY, false },
    { "REGION_RESOURCE_POOL_EXHAUSTED", OFFER_CAPACITY, false },
    { "RESOURCE_POOL_EXHAUSTED", OFFER_CAPACITY, false },
    { "INSUFFICIENT_CAPACITY", OFFER_CAPACITY, false },
    { "insufficientCapacity", OFFER_CAPACITY, false },
    { "VM_MIN_COUNT_NOT_REACHED", OFFER_CAPACITY, false }, /* of a bulk insert */
    { "IP_SPACE_EXHAUSTED", OFFER_CAPACITY, false },       /* of the subnet in this zone's region */
    { "IP_SPACE_EXHAUSTED_WITH_DETAILS", OFFER_CAPACITY, false },
    { "QUOTA_EXCEEDED", OFFER_QUOTA, false },
    { "quotaExceeded", OFFER_QUOTA, false },
    { "limitExceeded", OFFER_QUOTA, false },
    { "rateLimitExceeded", OFFER_THROTTLE, false },
    { "userRateLimitExceeded", OFFER_THROTTLE, false },
    { "RATE_LIMIT_EXCEEDED", OFFER_THROTTLE, false },
    { "RESOURCE_OPERATION_RATE_EXCEEDED", OFFER_THROTTLE, false },
    { "operationRateExceeded", OFFER_THROTTLE, false },
    { "authError", OFFER_AUTH, true },
    { "UNAUTHENTICATED", OFFER_AUTH, true },
    { "required", OFFER_INVALID, false },
    { "forbidden", OFFER_AUTH, false },
    { "insufficientPermissions", OFFER_AUTH, false },
    { "accessNotConfigured", OFFER_AUTH, false },
    { "PERMISSIONS_ERROR", OFFER_AUTH, false },
    { "PERMISSION_DENIED", OFFER_AUTH, false },
    { "invalid", OFFER_INVALID, false },
    { "badRequest", OFFER_INVALID, false },
    { "INVALID_FIELD_VALUE", OFFER_INVALID, false },
    { "INVALID_USAGE", OFFER_INVALID, false },
    { "INVALID_ARGUMENT", OFFER_INVALID, false },
    { "notFound", OFFER_INVALID, false }, /* of a create: zone, type, image, network */
    { "RESOURCE_NOT_FOUND", OFFER_INVALID, false },
    { "NOT_FOUND", OFFER_INVALID, false },
    { "conditionNotMet", OFFER_INVALID, false }, /* a policy of the organisation */
    { "CONDITION_NOT_MET", OFFER_INVALID, false },
    { "alreadyExists", OFFER_INVALID, false }, /* where the VM of that name is not ours */
    { "resourceNotReady", OFFER_TRANSIENT, false },
    { "RESOURCE_NOT_READY", OFFER_TRANSIENT, false },
    { "backendError", OFFER_TRANSIENT, false },
    { "internalError", OFFER_TRANSIENT, false },
    { "INTERNAL_ERROR", OFFER_TRANSIENT, false },
    { "UNAVAILABLE", OFFER_TRANSIENT, false },
    { 0 },
};

/* ---- errors ---- */

struct str gce_text(struct web_op *op, struct str json, const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(json, path, &text) < 0) return (struct str){ 0 };
    return arena_str(op->arena, buf_view(&text));
}

static int take_first(void *ctx, struct str item)
{
    *(struct str *)ctx = item;
    return 1;
}

struct str gce_first(struct str json, const char *path)
{
    struct str item = { 0 };
    json_path_each(json, path, take_first, &item);
    return item;
}

static bool is_known(struct str code)
{
    for (const struct web_code *row = codes; row->code; row++)
        if (str_eq(code, str_from(row->code))) return true;
    return false;
}

/* Returns the code of a reply or an operation that has failed; empty: it has none. */
struct str gce_code(struct web_op *op, struct str json)
{
    struct str first = gce_first(json, "error.errors");
    struct str code = gce_text(op, first, "code"), status;
    if (code.len == 0) code = gce_text(op, first, "reason");
    if (is_known(code)) return code;
    status = gce_text(op, json, "error.status");
    return is_known(status) || code.len == 0 ? status : code;
}

static struct str message_of(struct web_op *op, struct str json)
{
    struct str message = gce_text(op, gce_first(json, "error.errors"), "message");
    return message.len > 0 ? message : gce_text(op, json, "error.message");
}

void gce_refuse(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                struct web_step *ret)
{
    web_refuse_reply(p, op, r, codes, gce_code(op, r->body), message_of(op, r->body), ret);
}

/* ---- instances ---- */

bool gce_is_warning(struct str json)
{
    CLEANUP(buf_fini) struct buf code = { 0 };
    return json_path_text(json, "warning.code", &code) == 0 &&
           !str_eq(buf_view(&code), STR("NO_RESULTS_ON_PAGE"));
}

int gce_handle(struct str zone, struct str name, char ret[NAME_BYTES])
{
    if (zone.len + 1 + name.len >= NAME_BYTES) return -E2BIG;
    memcpy(ret, zone.data, zone.len);
    ret[zone.len] = '/';
    memcpy(ret + zone.len + 1, name.data, name.len);
    ret[zone.len + 1 + name.len] = 0;
    return 0;
}

static int take_label(void *ctx, struct str name, struct str value)
{
    struct listed *l = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0) return -EINVAL;
    if (web_tag_take(name, buf_view(&text), true, l) < 0) l->unreadable = true;
    return 0;
}

/* Reads an instance's state of the life cycle ("Instance lifecycle"). The disk of a VM that is stopped is billed on;
 * "TERMINATED" is the API's word for it. */
static void read_status(struct str status, struct str message, int64_t now_us, struct listed *l)
{
    static const char *const leaving[] = { "STOPPING", "PENDING_STOP", "SUSPENDING",
                                           "DEPROVISIONING" };
    static const char *const gone[] = { "TERMINATED", "STOPPED", "SUSPENDED" };
    for (size_t i = 0; i < COUNT_OF(leaving); i++)
        if (str_eq(status, str_from(leaving[i]))) l->leaves_us = now_us;
    for (size_t i = 0; i < COUNT_OF(gone); i++)
        if (str_eq(status, str_from(gone[i]))) l->gone = true;
    l->stopped = str_eq(status, STR("TERMINATED")) || str_eq(status, STR("STOPPED"));
    if (l->gone || l->leaves_us)
        snprintf(l->why, sizeof l->why, "the VM is " STR_FMT "%s%.*s", STR_ARG(status),
                 message.len > 0 ? ": " : "", (int)min_i64((int64_t)message.len, 80), message.data);
}

int gce_read_instance(struct str json, const struct gce_reading *r, struct listed *l)
{
    struct web_op *op = r->op;
    int64_t created_us;
    struct str name = gce_text(op, json, "name"), zone = gce_text(op, json, "zone");
    for (size_t slash; (slash = str_find(zone, STR("/"))) != SIZE_MAX;) /* it is a URL */
        zone = str_of(zone.data + slash + 1, zone.len - slash - 1);
    *l = (struct listed){ 0 };
    if (name.len == 0 || zone.len == 0 || gce_handle(zone, name, l->handle) < 0) return -EINVAL;
    int rc = json_path_each_member(json, "labels", take_label, l);
    if (rc < 0 && rc != -ENOENT) return rc;
    web_text_copy(l->node, sizeof l->node, name);
    if (date_parse(gce_text(op, json, "creationTimestamp"), &created_us) == 0)
        l->created_us = max_i64(1, r->now_us - (r->wall_us - created_us));
    l->unreadable = l->unreadable || !l->service[0] || !l->pool[0];
    read_status(gce_text(op, json, "status"), gce_text(op, json, "statusMessage"), r->now_us, l);
    return 0;
}
