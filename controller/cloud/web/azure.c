/* azure.c - speaks the Compute API of Azure: an instance is a virtual machine with the intent's id as its name.
 *
 *     create:  PUT virtualMachines/NAME, if there is none, in one zone after the other ──► operation ──Succeeded──► made
 *                  ├── there is one ──► GET it ──► ours: made; ours and failed: DELETE it, and again
 *                  ├── refused for its capacity ──► the next zone
 *                  └── operation Failed ──► DELETE what it left ──gone──► the next zone, or the end
 *     remove:  DELETE virtualMachines/NAME ──► going; 404 ──► gone. Without a handle it is looked at first
 *     stop:    POST virtualMachines/NAME/deallocate ──► going: one that is only stopped is billed in full
 *     start:   POST virtualMachines/NAME/start ──► operation ──Succeeded──► it runs, or there is no capacity
 *     list:    GET virtualMachines of the group, page by page; the fleet's are told by their tag
 *     prices:  GET prices.azure.com for each type: retail, in dollars
 *
 * Names are unique in a group, which makes them idempotency keys. A create that fails may leave a machine, which is
 * billed: only once it is gone does a class say that nothing was made.
 *
 * Sources: the reference of "Virtual Machines", "Track asynchronous Azure operations", "Azure Retail Prices
 *          overview". */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/azure_login.h"
#include "controller/cloud/web/azure_order.h"
#include "controller/cloud/web/azure_read.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"

#include <stdio.h>
#include <string.h>

#define VERSION "2024-11-01"
#define POLL_US 5000000 /* between looks at an operation, unless a reply says when */
#define POLL_US_MAX 15000000
#define PRICES "https://prices.azure.com/api/retail/prices?$filter="

/* op->stage: what was asked for, for which of the offer's zones or of the settings' offers, and the class with which
 * the operation in that zone failed. */
enum azure_phase { BEGIN, PUT, POLL, CLEAN, CLEANING, NAMED, LOOK, DELETE, PRICE, TURN, TURNING };
#define STAGE(phase, zone, class) \
    ((uint32_t)(phase) | (uint32_t)(zone) << 8 | (uint32_t)(class) << 16)
#define PHASE(stage) ((enum azure_phase)((stage)&0xff))
#define ZONE(stage) ((stage) >> 8 & 0xff)
#define CLASS(stage) ((enum offer_error)((stage) >> 16))

/* ---- requests ---- */

static void authorize(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    web_ask_header(op, ret, "authorization", "Bearer %s", p->login.token);
}

/* Asks for a machine, or for all where `name` is NULL; `query` follows the version. */
static void ask(const struct web_provider *p, struct web_op *op, const char *method,
                const char *name, const char *query, struct web_step *ret)
{
    const struct web_section *s = p->settings->section;
    if (web_ask(op, ret, method,
                STR_FMT "/subscriptions/" STR_FMT "/resourceGroups/" STR_FMT
                        "/providers/Microsoft.Compute/virtualMachines%s%s?api-version=" VERSION
                        "%s",
                STR_ARG(p->settings->endpoint), STR_ARG(s->project), STR_ARG(s->group),
                name ? "/" : "", name ? name : "", query) == 0)
        authorize(p, op, ret);
}

/* Asks for a URL that a reply named. The token goes to the API's host only. */
static void ask_url(const struct web_provider *p, struct web_op *op, struct str url,
                    struct web_step *ret)
{
    struct str base = p->settings->endpoint;
    if (!str_starts(url, base) || url.len <= base.len || url.data[base.len] != '/')
        web_refuse(ret, OFFER_TRANSIENT, "%s of azure: the reply names another host",
                   web_op_names[op->kind]);
    else if (web_ask(op, ret, "GET", STR_FMT, STR_ARG(url)) == 0)
        authorize(p, op, ret);
}

/* Waits as long as a reply says before the look at an operation. */
static void wait(const struct web_reply *r, struct web_step *ret)
{
    int64_t seconds, wait_us = POLL_US;
    if (r && str_to_i64(web_reply_header(r, "retry-after"), &seconds) == 0 && seconds > 0)
        wait_us = min_i64(seconds, POLL_US_MAX / 1000000) * 1000000;
    *ret = (struct web_step){ .next = WEB_WAIT, .wait_us = wait_us };
}

/* ---- create ---- */

static struct str zone_of(const struct web_op *op)
{
    return op->offer->zone_count > 0 ? op->offer->zone[ZONE(op->stage)] : (struct str){ 0 };
}

static void put(const struct web_provider *p, struct web_op *op, uint32_t zone,
                struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    op->stage = STAGE(PUT, zone, 0);
    if (azure_order_write(p->settings, op, zone_of(op), &body) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
    } else {
        ask(p, op, "PUT", op->call->intent, "", ret);
        if (ret->next == WEB_ASK && web_ask_header(op, ret, "if-none-match", "*") == 0)
            web_ask_body(op, ret, "application/json", &body);
    }
    if (body.data) explicit_bzero(body.data, body.len);
}

/* The words of the failure are kept where the machine's would stand. */
static void clean(const struct web_provider *p, struct web_op *op, enum offer_error class,
                  const char *why, struct web_step *ret)
{
    char words[sizeof op->made.why];
    snprintf(words, sizeof words, "%.*s", (int)sizeof words - 1, why);
    memcpy(op->made.why, words, sizeof words);
    op->stage = STAGE(CLEAN, ZONE(op->stage), class);
    ask(p, op, "DELETE", op->call->intent, "&forceDeletion=true", ret);
}

/* Goes on after the leftovers of a create are gone: with the next zone, or to the end. */
static void cleaned(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    enum offer_error class = CLASS(op->stage);
    uint32_t next = ZONE(op->stage) + 1;
    if (class == OFFER_CAPACITY && next < op->offer->zone_count)
        put(p, op, next, ret);
    else
        web_refuse(ret, class, "%s", op->made.why);
}

static void make(struct web_op *op, int64_t now_us, struct web_step *ret)
{
    struct listed *l = &op->made;
    *l = (struct listed){ .created_us = now_us };
    snprintf(l->handle, sizeof l->handle, "%s", op->call->intent);
    snprintf(l->intent, sizeof l->intent, "%s", op->call->intent);
    snprintf(l->node, sizeof l->node, "%s", op->call->intent);
    web_text_copy(l->service, sizeof l->service, op->spec->service);
    web_text_copy(l->pool, sizeof l->pool, op->spec->pool);
    web_text_copy(l->offer, sizeof l->offer, op->spec->offer);
    web_succeed(ret);
}

/* Follows the operation that a reply names; false: it names none. */
static bool follow(struct web_op *op, const struct web_reply *r, enum azure_phase phase,
                   struct web_step *ret)
{
    struct str url = web_reply_header(r, "azure-asyncoperation");
    if (url.len == 0 || url.len >= sizeof op->note) return false;
    web_text_copy(op->note, sizeof op->note, url);
    op->stage = STAGE(phase, ZONE(op->stage), CLASS(op->stage));
    wait(r, ret);
    return true;
}

static void take_put(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                     int64_t now_us, struct web_step *ret)
{
    struct str code = azure_text(op, r->body, "error.code");
    if (r->status == 200 || r->status == 201) {
        if (!follow(op, r, POLL, ret)) make(op, now_us, ret);
        return;
    }
    if (r->status == 412 || str_eq(code, STR("PropertyChangeNotAllowed"))) {
        op->stage = STAGE(NAMED, ZONE(op->stage), 0);
        ask(p, op, "GET", op->call->intent, "", ret);
        return;
    }
    azure_refuse(p, op, r, ret);
    uint32_t next = ZONE(op->stage) + 1;
    if (ret->class == OFFER_CAPACITY && next < op->offer->zone_count) put(p, op, next, ret);
}

static void take_poll(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                      int64_t now_us, struct web_step *ret)
{
    struct str status = azure_text(op, r->body, "status");
    if (r->status != 200) { /* it says nothing of the machine, which may be there */
        azure_refuse(p, op, r, ret);
        ret->class = OFFER_TRANSIENT;
        ret->rc = web_class_errno(OFFER_TRANSIENT);
    } else if (str_eq(status, STR("Succeeded"))) {
        make(op, now_us, ret);
    } else if (str_eq(status, STR("Failed")) || str_eq(status, STR("Canceled"))) {
        azure_refuse(p, op, r, ret);
        struct err why = ret->err;
        clean(p, op, ret->class, why.text, ret);
    } else if (status.len == 0) {
        web_refuse(ret, OFFER_TRANSIENT, "create of azure: the reply is no operation");
    } else {
        wait(r, ret);
    }
}

static void take_cleaning(const struct web_provider *p, struct web_op *op,
                          const struct web_reply *r, struct web_step *ret)
{
    struct str status = azure_text(op, r->body, "status");
    bool begun = PHASE(op->stage) == CLEAN && (r->status == 202 || r->status == 200);
    if (begun && follow(op, r, CLEANING, ret)) return;
    if ((PHASE(op->stage) == CLEAN && (r->status == 404 || r->status == 204)) ||
        (r->status == 200 && str_eq(status, STR("Succeeded")))) {
        cleaned(p, op, ret);
    } else if (PHASE(op->stage) == CLEANING && r->status == 200 && !str_eq(status, STR("Failed")) &&
               status.len > 0) {
        wait(r, ret);
    } else {
        web_refuse(ret, OFFER_TRANSIENT, "%s; what it left is not gone: status %d", op->made.why,
                   r->status);
    }
}

static void take_named(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       struct azure_reading *read, struct web_step *ret)
{
    if (r->status == 404) /* it went meanwhile */
        web_refuse(ret, OFFER_TRANSIENT, "the machine %s was there and is gone", op->call->intent);
    else if (r->status != 200)
        azure_refuse(p, op, r, ret);
    else if (azure_read_machine(r->body, read) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "create of azure: the reply is no machine");
    else if (!read->is_ours || strcmp(op->made.intent, op->call->intent) != 0)
        web_refuse(ret, OFFER_INVALID, "a machine %s is there that is not ours", op->call->intent);
    else if (str_eq(read->state, STR("Failed")))
        clean(p, op, OFFER_TRANSIENT, "an earlier try of the create failed", ret);
    else if (str_eq(read->state, STR("Deleting")))
        web_refuse(ret, OFFER_TRANSIENT, "the machine %s is being deleted", op->call->intent);
    else
        web_succeed(ret);
}

static void create(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct azure_reading *read, struct web_step *ret)
{
    read->item = &op->made;
    switch (PHASE(op->stage)) {
    case BEGIN:
        put(p, op, ZONE(op->resume), ret);
        break;
    case PUT:
        take_put(p, op, r, read->now_us, ret);
        break;
    case POLL:
    case CLEANING:
        if (!r)
            ask_url(p, op, str_from(op->note), ret);
        else if (PHASE(op->stage) == POLL)
            take_poll(p, op, r, read->now_us, ret);
        else
            take_cleaning(p, op, r, ret);
        break;
    case CLEAN:
        take_cleaning(p, op, r, ret);
        break;
    case NAMED:
        take_named(p, op, r, read, ret);
        break;
    case LOOK:
    case DELETE:
    case PRICE:
    case TURN:
    case TURNING:
        break;
    }
}

/* ---- remove ---- */

static void remove_machine(const struct web_provider *p, struct web_op *op,
                           const struct web_reply *r, struct azure_reading *read,
                           struct web_step *ret)
{
    const char *handle = op->call->handle[0] ? op->call->handle : op->call->intent;
    struct listed found;
    read->item = &found;
    if (PHASE(op->stage) == BEGIN && !op->call->handle[0]) {
        op->stage = STAGE(LOOK, 0, 0);
        ask(p, op, "GET", handle, "", ret);
        return;
    }
    if (PHASE(op->stage) == LOOK) {
        if (r->status != 200 && r->status != 404) {
            azure_refuse(p, op, r, ret);
            return;
        }
        if (r->status == 200 && azure_read_machine(r->body, read) < 0) {
            web_refuse(ret, OFFER_TRANSIENT, "remove of azure: the reply is no machine");
            return;
        }
        /* Another's machine of that name is not ours to end; ours is not there, then. */
        if (r->status == 404 || !read->is_ours || strcmp(found.intent, op->call->intent) != 0) {
            web_succeed(ret);
            return;
        }
    }
    if (PHASE(op->stage) != DELETE) {
        op->stage = STAGE(DELETE, 0, 0);
        ask(p, op, "DELETE", handle, "&forceDeletion=true", ret);
    } else if (r->status == 404 || (r->status >= 200 && r->status < 300)) {
        web_succeed(ret);
    } else {
        azure_refuse(p, op, r, ret);
    }
}

/* ---- stop and start ---- */

static void take_turning(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                         struct web_step *ret)
{
    struct str status = azure_text(op, r->body, "status");
    if (r->status != 200 || str_eq(status, STR("Failed")) || str_eq(status, STR("Canceled")))
        azure_refuse(p, op, r, ret);
    else if (str_eq(status, STR("Succeeded")))
        web_succeed(ret);
    else
        wait(r, ret);
}

/* Capacity for a start is told by its operation alone. A machine that is so already is left as it is. */
static void turn(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                 struct web_step *ret)
{
    char path[NAME_BYTES + 16];
    if (PHASE(op->stage) == BEGIN) {
        snprintf(path, sizeof path, "%s/%s", op->call->handle,
                 op->kind == WEB_STOP ? "deallocate" : "start");
        op->stage = STAGE(TURN, 0, 0);
        ask(p, op, "POST", path, "", ret);
    } else if (!r) {
        ask_url(p, op, str_from(op->note), ret);
    } else if (PHASE(op->stage) == TURNING) {
        take_turning(p, op, r, ret);
    } else if (r->status != 200 && r->status != 202) {
        azure_refuse(p, op, r, ret);
    } else if (op->kind == WEB_STOP || !follow(op, r, TURNING, ret)) {
        web_succeed(ret);
    }
}

/* ---- list ---- */

static int take_machine(void *ctx, struct str item)
{
    struct azure_reading *r = ctx;
    struct web_op *op = r->op;
    struct listed one;
    r->item = &one;
    int rc = azure_read_machine(item, r);
    if (rc < 0 || !r->is_ours) return rc;
    if (op->count == CLOUD_LIST_MAX) return -E2BIG;
    op->item[op->count++] = one;
    return 0;
}

static void list(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                 struct azure_reading *read, struct web_step *ret)
{
    if (!r) {
        ask(p, op, "GET", NULL, "&$expand=instanceView", ret);
        return;
    }
    if (r->status != 200) {
        azure_refuse(p, op, r, ret);
        return;
    }
    int rc = json_path_each(r->body, "value", take_machine, read);
    struct str next = azure_text(op, r->body, "nextLink");
    if (rc == -E2BIG)
        web_refuse(ret, OFFER_INVALID, "more than %d machines have the tag", CLOUD_LIST_MAX);
    else if (rc < 0)
        web_refuse(ret, OFFER_TRANSIENT, "list of azure: the reply is no list of machines");
    else if (next.len > 0)
        ask_url(p, op, next, ret);
    else
        web_succeed(ret);
}

/* ---- prices ---- */

struct wanted {
    struct web_op *op;
    bool spot;
    double price; /* the lowest that was found; < 0: none */
};

/* Meters of one size: Linux and Windows, on demand, spot and low priority, by the hour and by reservation. */
static int take_meter(void *ctx, struct str item)
{
    struct wanted *w = ctx;
    double price;
    struct str meter = azure_text(w->op, item, "meterName"),
               unit = azure_text(w->op, item, "unitOfMeasure");
    bool windows = str_ends(azure_text(w->op, item, "productName"), STR(" Windows"));
    bool spot = str_ends(meter, STR(" Spot")), low = str_ends(meter, STR(" Low Priority"));
    if (windows || low || spot != w->spot || !str_eq(unit, STR("1 Hour"))) return 0;
    if (!str_eq(azure_text(w->op, item, "currencyCode"), STR("USD"))) return 0;
    if (json_path_f64(item, "retailPrice", &price) < 0 || !(price > 0)) return 0;
    if (w->price < 0 || price < w->price) w->price = price;
    return 0;
}

/* Asks for the next type whose price the file does not give. */
static void ask_price(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    const struct web_settings *s = p->settings;
    CLEANUP(buf_fini) struct buf filter = { 0 };
    CLEANUP(buf_fini) struct buf part = { 0 };
    for (; op->count < s->offer_count && s->offer[op->count].price_given; op->count++) {
        struct cloud_price *c = &op->price[op->count];
        *c = (struct cloud_price){ .known = true, .price_h = s->offer[op->count].offer.price_h };
    }
    if (op->count == s->offer_count) {
        for (uint32_t i = 0; i < s->offer_count; i++) {
            must(name_copy(op->price[i].offer, NAME_BYTES, str_from(s->offer[i].offer.name)) == 0);
            web_text_copy(op->price[i].hardware, NAME_BYTES, s->offer[i].type);
        }
        web_succeed(ret);
        return;
    }
    op->stage = STAGE(PRICE, 0, 0);
    buf_printf(&filter,
               "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName "
               "eq '" STR_FMT "' and armSkuName eq '" STR_FMT "'",
               STR_ARG(s->section->region), STR_ARG(s->offer[op->count].type));
    if (web_url_part(&part, buf_view(&filter)) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
    else
        web_ask(op, ret, "GET", PRICES "%.*s", (int)part.len, part.data);
}

static void prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    if (!r) {
        ask_price(p, op, ret);
        return;
    }
    const struct web_offer *o = &p->settings->offer[op->count];
    struct wanted w = { .op = op, .spot = o->offer.spot, .price = -1 };
    if (r->status != 200) {
        azure_refuse(p, op, r, ret);
    } else if (json_path_each(r->body, "Items", take_meter, &w) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "prices of azure: the reply has no items");
    } else {
        op->price[op->count++] =
            (struct cloud_price){ .known = w.price >= 0, .price_h = w.price >= 0 ? w.price : 0 };
        ask_price(p, op, ret);
    }
}

/* ---- the kind ---- */

static int open_kind(struct web_provider *p, struct err *err)
{
    return azure_order_check(p->settings, err);
}

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    struct azure_reading read = { .p = p, .op = op, .now_us = now_us, .wall_us = wall_us };
    switch (op->kind) {
    case WEB_LOGIN:
        azure_login(p, op, reply, now_us, ret);
        break;
    case WEB_CREATE:
        create(p, op, reply, &read, ret);
        break;
    case WEB_REMOVE:
        remove_machine(p, op, reply, &read, ret);
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
                                     "group",
                                     "tenant",
                                     "region",
                                     "image",
                                     "networks",
                                     "firewalls",
                                     "ssh_keys",
                                     "public_address",
                                     "disk",
                                     "account",
                                     "offers.zones",
                                     "offers.spot",
                                     "offers.spot_price_max",
                                     "offers.capacity_reservation",
                                     NULL };
static const char *const wants[] = { "project",  "group",    "region", "image",
                                     "networks", "ssh_keys", NULL };
static const char *const reply_headers[] = { "retry-after", "azure-asyncoperation", NULL };

const struct web_kind web_kind_azure = {
    .name = "azure",
    .about = "Azure: virtual machines in zones of a region, on demand and spot",
    .endpoint = "https://management.azure.com",
    .credentials_env = "AZURE_CLIENT_SECRET",
    .lag_us = 10000000,
    .poll_us = 15000000,
    .billing = { 1000000, 0 }, /* azure.microsoft.com/pricing, virtual machines: by the second */
    .calls_per_s = 2,          /* writes of a subscription: 200 at once, 10 a second more */
    .user_data_bytes = 49000,  /* 64 KiB as base64 */
    .notice = "azure",
    .stops = true,
    .create_is_keyed = true,
    .takes = takes,
    .wants = wants,
    .reply_headers = reply_headers,
    .open = open_kind,
    .step = step,
};
