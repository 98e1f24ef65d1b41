/* hetzner.c - speaks the API of Hetzner Cloud: an instance is a server with the intent's id as its name.
 *
 *     create:  POST /servers, one location after the other ──201──► made
 *                  └── uniqueness_error ──► GET /servers?name= ──► it is ours: made
 *     remove:  DELETE /servers/ID ──► going; 404 ──► gone
 *     list:    GET /servers?label_selector=muster-fleet=..., page by page
 *     prices:  GET /pricing, which names its currency
 *
 * Names of servers are unique in a project, which makes them idempotency keys. A create answers before the server
 * runs: its `action` goes on, and a failure of it is seen in the listing, where the server is then missing.
 *
 * Sources: docs.hetzner.cloud, sections "Errors", "Labels", "Rate Limiting", "Servers", "Pricing", and the error
 * codes of the provider's own client library for Go. Prices are net, without VAT. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/provider.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <string.h>

#define PAGE 50 /* the largest that the API gives */
#define ID_BYTES 24

static const struct web_tag_rule label_rule = { .upper = true, .dot = true };

/* Where the first seven are not Hetzner's "Errors" section, they are those of "Create a Server". */
static const struct web_code codes[] = {
    { "unauthorized", OFFER_AUTH, true },
    { "forbidden", OFFER_AUTH, false },
    { "token_readonly", OFFER_AUTH, false },
    { "rate_limit_exceeded", OFFER_THROTTLE, false },
    { "resource_limit_exceeded", OFFER_QUOTA, false },
    { "resource_unavailable", OFFER_CAPACITY, false },
    { "placement_error", OFFER_CAPACITY, false },
    { "no_space_left_in_location", OFFER_CAPACITY, false },
    { "invalid_input", OFFER_INVALID, false },
    { "json_error", OFFER_INVALID, false },
    { "not_found", OFFER_INVALID, false }, /* of a create: image, key, network or type */
    { "invalid_server_type", OFFER_INVALID, false },
    { "unsupported_error", OFFER_INVALID, false },
    { "deprecated_api_endpoint", OFFER_INVALID, false },
    { "protected", OFFER_INVALID, false },
    { "uniqueness_error", OFFER_INVALID, false }, /* where the server of that name is not ours */
    { "ip_not_available", OFFER_CAPACITY, false },
    { "no_subnet_available", OFFER_CAPACITY, false },
    { "locked", OFFER_TRANSIENT, false },
    { "resource_locked", OFFER_TRANSIENT, false },
    { "conflict", OFFER_TRANSIENT, false },
    { "maintenance", OFFER_TRANSIENT, false },
    { "robot_unavailable", OFFER_TRANSIENT, false },
    { "service_error", OFFER_TRANSIENT, false },
    { "server_error", OFFER_TRANSIENT, false },
    { "unknown_error", OFFER_TRANSIENT, false },
    { "bad_gateway", OFFER_TRANSIENT, false },
    { "timeout", OFFER_TRANSIENT, false },
    { 0 },
};

static void refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    web_refuse_reply(p, op, r, codes, web_text_at(op->arena, r->body, "error.code"),
                     web_text_at(op->arena, r->body, "error.message"), ret);
}

static bool is_error(const struct web_op *op, const struct web_reply *r, const char *code)
{
    return r->status >= 400 &&
           str_eq(web_text_at(op->arena, r->body, "error.code"), str_from(code));
}

/* ---- servers ---- */

struct reading {
    struct web_op *op;
    int64_t now_us, wall_us;
    struct listed *item;
    int rc; /* of the labels */
};

static int take_label(void *ctx, struct str name, struct str value)
{
    struct reading *r = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0) return -EINVAL;
    if (web_tag_take(name, buf_view(&text), true, r->item) < 0) r->rc = -E2BIG;
    return 0;
}

/* Fills what a server's object says. The statuses that are no way up are ends: a server that was switched off is
 * billed on and does not come back by itself. */
static int read_server(struct str json, struct reading *r)
{
    struct listed *l = r->item;
    struct arena *arena = r->op->arena;
    uint64_t id;
    int64_t created_us;
    *l = (struct listed){ 0 };
    if (json_path_u64(json, "id", &id) < 0) return -EINVAL;
    snprintf(l->handle, sizeof l->handle, "%llu", (unsigned long long)id);
    int rc = json_path_each_member(json, "labels", take_label, r);
    if (rc < 0 && rc != -ENOENT) return rc;
    struct str status = web_text_at(arena, json, "status");
    web_text_copy(l->node, sizeof l->node, web_text_at(arena, json, "name"));
    if (date_parse(web_text_at(arena, json, "created"), &created_us) == 0)
        l->created_us = max_i64(1, r->now_us - (r->wall_us - created_us));
    l->unreadable = r->rc < 0 || !l->service[0] || !l->pool[0];
    l->gone = str_eq(status, STR("off"));
    if (str_eq(status, STR("stopping")) || str_eq(status, STR("deleting")))
        l->leaves_us = r->now_us;
    if (l->gone || l->leaves_us)
        snprintf(l->why, sizeof l->why, "the server is " STR_FMT, STR_ARG(status));
    return 0;
}

/* ---- create ---- */

struct label_put {
    struct json_writer *w;
    struct err *err;
};

static int put_label(void *ctx, const char *name, struct str text)
{
    struct label_put *l = ctx;
    char value[WEB_TAG_BYTES];
    int rc = web_tag_write(&label_rule, text, name, value, l->err);
    if (rc == 0) json_kv_text(l->w, name, value);
    return rc;
}

/* Networks and firewalls are numbers to this API; a name is refused by it. */
static int put_numbers(struct json_writer *w, const char *key, const char *inner,
                       const struct config_texts *texts, struct err *err)
{
    uint64_t id;
    if (texts->count == 0) return 0;
    json_key(w, key);
    json_array(w);
    for (size_t i = 0; i < texts->count; i++) {
        if (str_to_u64(texts->items[i], &id) < 0)
            return err_set(err, -EINVAL, "%s: '" STR_FMT "': want the number of its page", key,
                           STR_ARG(texts->items[i]));
        if (inner) json_object(w);
        if (inner) json_key(w, inner);
        json_put_u64(w, id);
        if (inner) json_object_end(w);
    }
    json_array_end(w);
    return 0;
}

static int write_server(const struct web_provider *p, const struct web_op *op, struct str location,
                        struct buf *out, struct err *err)
{
    const struct web_section *s = p->settings->section;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "name", op->call->intent);
    json_kv_str(&w, "server_type", op->offer->type);
    json_kv_str(&w, "image", s->image);
    if (location.len > 0) json_kv_str(&w, "location", location);
    json_kv_bool(&w, "start_after_create", true);
    json_key(&w, "labels");
    json_object(&w);
    int rc = web_tags_each(op, p->settings->fleet, put_label,
                           &(struct label_put){ .w = &w, .err = err });
    json_object_end(&w);
    if (s->ssh_keys.count > 0) {
        json_key(&w, "ssh_keys");
        json_array(&w);
        for (size_t i = 0; i < s->ssh_keys.count; i++)
            json_put_str(&w, s->ssh_keys.items[i]);
        json_array_end(&w);
    }
    if (rc == 0) rc = put_numbers(&w, "networks", NULL, &s->networks, err);
    if (rc == 0) rc = put_numbers(&w, "firewalls", "firewall", &s->firewalls, err);
    json_key(&w, "public_net");
    json_object(&w);
    json_kv_bool(&w, "enable_ipv4", s->public_address);
    json_kv_bool(&w, "enable_ipv6", s->public_address);
    json_object_end(&w);
    json_kv_str(&w, "user_data", op->user_data);
    json_object_end(&w);
    return rc < 0 ? rc : out->rc;
}

static struct str location_of(const struct web_op *op)
{
    return op->offer->zone_count > 0 ? op->offer->zone[op->stage] : (struct str){ 0 };
}

/* Asks for a server in the location of this stage. */
static void ask_create(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct err err = { 0 };
    buf_text(&path, "/servers");
    int rc = write_server(p, op, location_of(op), &body, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_INVALID, "%s", err_text(&err, rc));
    else
        web_bearer_send(p, op, "POST", &path, &body, ret);
    if (body.data) explicit_bzero(body.data, body.len);
}

#define STAGE_NAME 1000 /* asks what has the name already */

static void ask_name(const struct web_provider *p, struct web_op *op, const char *name,
                     struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_text(&path, "/servers?name=");
    web_url_part(&path, str_from(name));
    op->stage = STAGE_NAME;
    web_bearer_ask(p, op, "GET", &path, ret);
}

static int take_first(void *ctx, struct str item)
{
    struct reading *r = ctx;
    return r->item->handle[0] ? 0 : read_server(item, r);
}

/* Takes the only server of a reply to ask_name; its handle is empty: there is none. */
static bool take_named(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       struct reading *read, struct web_step *ret)
{
    *read->item = (struct listed){ 0 };
    if (r->status != 200) {
        refuse(p, op, r, ret);
        return false;
    }
    if (json_path_each(r->body, "servers", take_first, read) == 0) return true;
    web_refuse(ret, OFFER_TRANSIENT, "%s of hetzner: the reply is no list of servers",
               web_op_names[op->kind]);
    return false;
}

static void create(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct reading *read, struct web_step *ret)
{
    struct str server;
    read->item = &op->made;
    if (!r) {
        ask_create(p, op, ret);
    } else if (op->stage == STAGE_NAME) {
        if (!take_named(p, op, r, read, ret)) return;
        if (strcmp(op->made.intent, op->call->intent) == 0)
            web_succeed(ret);
        else if (op->made.handle[0])
            web_refuse(ret, OFFER_INVALID, "a server %s is there that is not ours",
                       op->call->intent);
        else /* it went meanwhile */
            web_refuse(ret, OFFER_TRANSIENT, "the server %s was there and is gone",
                       op->call->intent);
    } else if (r->status == 201) {
        if (json_path(r->body, "server", &server) == 0 && read_server(server, read) == 0 &&
            strcmp(op->made.intent, op->call->intent) == 0)
            web_succeed(ret);
        else
            web_refuse(ret, OFFER_TRANSIENT, "create of hetzner: the reply has no server of ours");
    } else if (is_error(op, r, "uniqueness_error")) {
        ask_name(p, op, op->call->intent, ret);
    } else {
        refuse(p, op, r, ret);
        bool more = op->stage + 1 < op->offer->zone_count;
        if (ret->class != OFFER_CAPACITY || !more) return;
        op->stage++;
        ask_create(p, op, ret);
    }
}

/* ---- remove ---- */

static void ask_delete(const struct web_provider *p, struct web_op *op, const char *id,
                       struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_text(&path, "/servers/");
    web_url_part(&path, str_from(id));
    op->stage = 0;
    web_bearer_ask(p, op, "DELETE", &path, ret);
}

static void remove_server(const struct web_provider *p, struct web_op *op,
                          const struct web_reply *r, struct reading *read, struct web_step *ret)
{
    struct listed found;
    read->item = &found;
    if (!r && op->call->handle[0]) {
        ask_delete(p, op, op->call->handle, ret);
    } else if (!r) {
        ask_name(p, op, op->call->intent, ret);
    } else if (op->stage == STAGE_NAME) {
        if (!take_named(p, op, r, read, ret)) return;
        /* Another's server of that name is not ours to end; ours is not there, then. */
        if (strcmp(found.intent, op->call->intent) == 0)
            ask_delete(p, op, found.handle, ret);
        else
            web_succeed(ret);
    } else if (r->status == 404 || (r->status >= 200 && r->status < 300)) {
        web_succeed(ret);
    } else {
        refuse(p, op, r, ret);
    }
}

/* ---- list ---- */

static void ask_page(const struct web_provider *p, struct web_op *op, uint64_t page,
                     struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_text(&path, "/servers?label_selector=" WEB_TAG_FLEET "%3D");
    web_url_part(&path, p->settings->fleet);
    buf_printf(&path, "&per_page=%d&page=%llu", PAGE, (unsigned long long)page);
    web_bearer_ask(p, op, "GET", &path, ret);
}

static int take_listed(void *ctx, struct str item)
{
    struct reading *r = ctx;
    struct web_op *op = r->op;
    if (op->count == CLOUD_LIST_MAX) return -E2BIG;
    r->item = &op->item[op->count];
    r->rc = 0;
    int rc = read_server(item, r);
    op->count += rc == 0;
    return rc;
}

static void list(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                 struct reading *read, struct web_step *ret)
{
    uint64_t next;
    if (!r) {
        ask_page(p, op, 1, ret);
        return;
    }
    if (r->status != 200) {
        refuse(p, op, r, ret);
        return;
    }
    int rc = json_path_each(r->body, "servers", take_listed, read);
    if (rc == -E2BIG)
        web_refuse(ret, OFFER_INVALID, "more than %d servers have the label", CLOUD_LIST_MAX);
    else if (rc < 0)
        web_refuse(ret, OFFER_TRANSIENT, "list of hetzner: the reply is no list of servers");
    else if (json_path_u64(r->body, "meta.pagination.next_page", &next) == 0)
        ask_page(p, op, next, ret);
    else
        web_succeed(ret);
}

/* ---- prices ---- */

/* Describes an entry that is looked for in a list of /pricing. */
struct wanted {
    const char *list, *key;    /* "server_types", and the member with the type's name */
    struct str type, location; /* location empty: any */
    double price;              /* the highest that was found; < 0: none */
};

/* Takes the net price of an hour, which is a text. Of several locations the dearest counts: the instance may be
 * there. */
static int take_place(void *ctx, struct str item)
{
    struct wanted *w = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    double net;
    if (w->location.len > 0 && !web_text_is(item, "location", w->location)) return 0;
    if (json_path_text(item, "price_hourly.net", &text) < 0) return 0;
    if (str_to_f64(buf_view(&text), &net) == 0 && net >= 0 && net > w->price) w->price = net;
    return 0;
}

static int take_type(void *ctx, struct str item)
{
    struct wanted *w = ctx;
    return web_text_is(item, w->key, w->type) ? json_path_each(item, "prices", take_place, w) : 0;
}

/* Returns the dearest price of the type over the offer's locations; below 0: one of them has none. */
static double price_of(struct str pricing, struct wanted w, const struct web_offer *offer)
{
    double dearest = -1;
    for (uint32_t z = 0; z < offer->zone_count || z == 0; z++) {
        if (offer->zone_count > 0) w.location = offer->zone[z];
        w.price = -1;
        if (json_path_each(pricing, w.list, take_type, &w) < 0 || w.price < 0) return -1;
        if (w.price > dearest) dearest = w.price;
    }
    return dearest;
}

static void read_prices(const struct web_provider *p, struct web_op *op, struct str pricing,
                        struct str currency)
{
    const struct web_settings *s = p->settings;
    for (uint32_t i = 0; i < s->offer_count; i++) {
        const struct web_offer *o = &s->offer[i];
        struct cloud_price *c = &op->price[op->count++];
        *c = (struct cloud_price){ .known = o->price_given, .price_h = o->offer.price_h };
        must(name_copy(c->offer, sizeof c->offer, str_from(o->offer.name)) == 0);
        web_text_copy(c->hardware, sizeof c->hardware, o->type);
        if (o->price_given) continue;
        struct wanted server = { .list = "server_types", .key = "name", .type = o->type };
        struct wanted ipv4 = { .list = "primary_ips", .key = "type", .type = STR("ipv4") };
        double price = price_of(pricing, server, o);
        double address = s->section->public_address ? price_of(pricing, ipv4, o) : 0;
        if (price >= 0 && address >= 0)
            c->known = web_dollars(s, currency, price + address, &c->price_h);
    }
}

static void prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    struct str pricing;
    if (!r) {
        buf_text(&path, "/pricing");
        web_bearer_ask(p, op, "GET", &path, ret);
    } else if (r->status != 200) {
        refuse(p, op, r, ret);
    } else if (json_path(r->body, "pricing", &pricing) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "prices of hetzner: the reply has no pricing");
    } else {
        read_prices(p, op, pricing, web_text_at(op->arena, pricing, "currency"));
        web_succeed(ret);
    }
}

/* ---- the kind ---- */

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    struct reading read = { .op = op, .now_us = now_us, .wall_us = wall_us };
    switch (op->kind) {
    case WEB_LOGIN:
        web_bearer_login(p, op, ret);
        break;
    case WEB_CREATE:
        create(p, op, reply, &read, ret);
        break;
    case WEB_REMOVE:
        remove_server(p, op, reply, &read, ret);
        break;
    case WEB_LIST:
        list(p, op, reply, &read, ret);
        break;
    case WEB_PRICES:
        prices(p, op, reply, ret);
        break;
    case WEB_STOP:
    case WEB_START:
    case WEB_OP_COUNT:
        break;
    }
}

static const char *const takes[] = { "image",          "ssh_keys",     "networks", "firewalls",
                                     "public_address", "offers.zones", NULL };
static const char *const wants[] = { "image", NULL };

const struct web_kind web_kind_hetzner = {
    .name = "hetzner",
    .about = "Hetzner Cloud: servers in locations, priced in euros",
    .endpoint = "https://api.hetzner.cloud/v1",
    .credentials_env = "HCLOUD_TOKEN",
    .lag_us = 5000000,
    .poll_us = 10000000,
    .billing = { INT64_C(3600000000),
                 0 }, /* docs.hetzner.com/cloud/billing/faq: by the hour, rounded up */
    .calls_per_s = 1, /* 3,600 requests an hour for a project */
    .user_data_bytes = (size_t)32 << 10,
    .create_is_keyed = true,
    .takes = takes,
    .wants = wants,
    .step = step,
};
