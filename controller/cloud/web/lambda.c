/* lambda.c - speaks the API of Lambda Cloud: an instance is a virtual machine with its tags.
 *
 *     create:  GET /instances ──none has the intent──► GET /instance-types, regions with capacity
 *                └──► POST /instance-operations/launch, one region after the other ──200──► made
 *     remove:  POST /instance-operations/terminate; 404 ──► gone
 *     list:    GET /instances, in one page
 *     prices:  GET /instance-types: cents, and the regions that have capacity
 *
 * There is no idempotency key, and names are not unique (web_keyless.h). The stock is asked for before a launch,
 * because launches have a budget of their own: a region that is sold out costs no launch.
 *
 * Sources: the provider's OpenAPI document, version 1.10.0 (shapes, codes of errors, limits of tags and user data) and
 * its page on the API (rates: a request a second, a launch every 12 seconds). */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_keyless.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAUNCH_CALLS 12 /* a launch takes as much of the budget as this many requests */

/* All from the schemas ApiError* of the document. Cloudflare, which stands before the API, answers 429 without one. */
static const struct web_code codes[] = {
    { "global/invalid-api-key", OFFER_AUTH, true },
    { "global/account-inactive", OFFER_AUTH, false },
    { "global/invalid-address", OFFER_AUTH, false }, /* of the bill */
    { "global/forbidden", OFFER_AUTH, false },
    { "global/quota-exceeded", OFFER_QUOTA, false },
    { "global/invalid-parameters", OFFER_INVALID, false },
    { "global/object-does-not-exist", OFFER_INVALID, false }, /* of a launch: key, image, type */
    { "global/not-found", OFFER_INVALID, false },
    { "global/conflict", OFFER_TRANSIENT, false },
    { "global/unknown", OFFER_TRANSIENT, false },
    { "instance-operations/launch/insufficient-capacity", OFFER_CAPACITY, false },
    { "instance-operations/launch/file-system-in-wrong-region", OFFER_INVALID, false },
    { 0 },
};

struct own {
    int64_t launch_us; /* the earliest next launch */
};

static void refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    web_refuse_reply(p, op, r, codes, web_text_at(op->arena, r->body, "error.code"),
                     web_text_at(op->arena, r->body, "error.message"), ret);
}

static void ask(const struct web_provider *p, struct web_op *op, const char *path,
                struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text, path);
    web_bearer_ask(p, op, "GET", &text, ret);
}

/* ---- machines ---- */

static void ask_page(const struct web_provider *p, struct web_op *op, struct str page,
                     struct web_step *ret)
{
    (void)page;
    ask(p, op, "/instances", ret);
}

static int take_tag(void *ctx, struct str item)
{
    struct web_machine *m = ctx;
    CLEANUP(buf_fini) struct buf key = { 0 };
    CLEANUP(buf_fini) struct buf value = { 0 };
    if (json_path_text(item, "key", &key) < 0 || json_path_text(item, "value", &value) < 0)
        return -EINVAL;
    if (str_eq(buf_view(&key), STR(WEB_TAG_FLEET)))
        web_text_copy(m->fleet, sizeof m->fleet, buf_view(&value));
    else if (web_tag_take(buf_view(&key), buf_view(&value), false, &m->listed) < 0)
        m->listed.unreadable = true;
    return 0;
}

/* The API says neither when an instance was made nor when it goes: those that end are on their way. */
static int read_machine(const struct web_moment *at, struct web_op *op, struct str item,
                        struct web_machine *ret)
{
    struct listed *l = &ret->listed;
    struct str id = web_text_at(op->arena, item, "id");
    struct str status = web_text_at(op->arena, item, "status");
    if (id.len == 0 || id.len >= sizeof l->handle) return -EINVAL;
    web_text_copy(l->handle, sizeof l->handle, id);
    web_text_copy(l->node, sizeof l->node, web_text_at(op->arena, item, "hostname"));
    double cents;
    if (json_path_f64(item, "instance_type.price_cents_per_hour", &cents) == 0 && cents > 0)
        l->price_h = cents / 100;
    int rc = json_path_each(item, "tags", take_tag, ret);
    if (rc < 0 && rc != -ENOENT) return rc;
    l->unreadable = l->unreadable || !l->service[0] || !l->pool[0];
    ret->ended = str_eq(status, STR("terminating")) || str_eq(status, STR("terminated"));
    l->gone = str_eq(status, STR("terminated")) || str_eq(status, STR("preempted"));
    if (str_eq(status, STR("terminating"))) l->leaves_us = at->now_us;
    if (l->gone || l->leaves_us)
        snprintf(l->why, sizeof l->why, "the instance is " STR_FMT, STR_ARG(status));
    return 0;
}

static void ask_remove(const struct web_provider *p, struct web_op *op, struct str handle,
                       struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    buf_text(&path, "/instance-operations/terminate");
    json_writer_init(&w, &body);
    json_object(&w);
    json_key(&w, "instance_ids");
    json_array(&w);
    json_put_str(&w, handle);
    json_array_end(&w);
    json_object_end(&w);
    web_bearer_send(p, op, "POST", &path, &body, ret);
}

/* ---- stock ---- */

/* Holds the entry of one type in /instance-types. */
struct stock {
    struct str type;
    struct web_op *op;             /* of an order: its note gets the regions to try */
    const struct web_offer *offer; /* the regions that it may be in */
    bool found, priced;
    double cents;
    uint32_t regions; /* of the offer that have capacity */
};

static bool may_be_in(const struct web_offer *o, struct str region)
{
    for (uint32_t i = 0; i < o->zone_count; i++)
        if (str_eq(o->zone[i], region)) return true;
    return o->zone_count == 0;
}

static int take_region(void *ctx, struct str item)
{
    struct stock *s = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 };
    if (json_path_text(item, "name", &name) < 0 || !may_be_in(s->offer, buf_view(&name))) return 0;
    s->regions++;
    return s->op ? web_note_push(s->op, buf_view(&name)) : 0;
}

static int take_type(void *ctx, struct str name, struct str value)
{
    struct stock *s = ctx;
    if (!str_eq(name, s->type)) return 0;
    s->found = true;
    s->priced =
        json_path_f64(value, "instance_type.price_cents_per_hour", &s->cents) == 0 && s->cents >= 0;
    return json_path_each(value, "regions_with_capacity_available", take_region, s);
}

/* -EINVAL: the reply is no list of types. */
static int read_stock(struct str body, struct stock *s)
{
    int rc = json_path_each_member(body, "data", take_type, s);
    return rc == -E2BIG ? 0 : rc; /* more regions than there is time to try */
}

/* Puts the regions that have capacity into the order of the offer. */
static void sort_regions(struct web_op *op)
{
    char found[WEB_NOTE_BYTES];
    if (op->offer->zone_count == 0) return;
    memcpy(found, op->note, sizeof found);
    op->note[0] = 0;
    for (uint32_t i = 0; i < op->offer->zone_count; i++) {
        struct str rest = str_from(found);
        while (rest.len > 0)
            if (str_eq(str_cut(&rest, ' '), op->offer->zone[i]))
                web_note_push(op, op->offer->zone[i]); /* they fitted before */
    }
}

/* ---- launch ---- */

enum { STAGE_STOCK = 1, STAGE_PAUSE, STAGE_LAUNCH };

static int put_tag(void *ctx, const char *name, struct str text)
{
    struct json_writer *w = ctx;
    json_object(w);
    json_kv_text(w, "key", name);
    json_kv_str(w, "value", text);
    json_object_end(w);
    return 0;
}

/* An image is a family's name, or the 32 digits of an id. */
static void put_image(struct json_writer *w, struct str image)
{
    uint8_t id[16];
    if (image.len == 0) return;
    json_key(w, "image");
    json_object(w);
    json_kv_str(w, hex_to(image, id, sizeof id) == 0 ? "id" : "family", image);
    json_object_end(w);
}

static void write_launch(const struct web_provider *p, const struct web_op *op, struct str region,
                         struct buf *out)
{
    const struct web_section *s = p->settings->section;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, "region_name", region);
    json_kv_str(&w, "instance_type_name", op->offer->type);
    json_key(&w, "ssh_key_names");
    json_array(&w);
    json_put_str(&w, s->ssh_keys.items[0]);
    json_array_end(&w);
    json_kv_text(&w, "name", op->call->intent);
    put_image(&w, s->image);
    json_kv_str(&w, "user_data", op->user_data);
    json_key(&w, "tags");
    json_array(&w);
    web_tags_each(op, p->settings->fleet, put_tag, &w);
    json_array_end(&w);
    if (s->firewalls.count > 0) {
        json_key(&w, "firewall_rulesets");
        json_array(&w);
        for (size_t i = 0; i < s->firewalls.count; i++) {
            json_object(&w);
            json_kv_str(&w, "id", s->firewalls.items[i]);
            json_object_end(&w);
        }
        json_array_end(&w);
    }
    json_object_end(&w);
}

/* Launches in the next region of the note, once a launch is allowed. */
static void launch(const struct web_provider *p, struct web_op *op, int64_t now_us,
                   struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct own *own = p->own;
    struct str region;
    if (now_us < own->launch_us) {
        op->stage = STAGE_PAUSE;
        *ret = (struct web_step){ .next = WEB_WAIT, .wait_us = own->launch_us - now_us };
        return;
    }
    if (!web_note_pop(op, &region)) {
        web_refuse(ret, OFFER_CAPACITY, "create of lambda: no region has " STR_FMT,
                   STR_ARG(op->offer->type));
        return;
    }
    op->stage = STAGE_LAUNCH;
    own->launch_us = now_us + (int64_t)(LAUNCH_CALLS / p->settings->calls_per_s * 1e6);
    buf_text(&path, "/instance-operations/launch");
    write_launch(p, op, region, &body);
    web_bearer_send(p, op, "POST", &path, &body, ret);
}

static void take_stock(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       int64_t now_us, struct web_step *ret)
{
    struct stock s = { .type = op->offer->type, .op = op, .offer = op->offer };
    if (r->status != 200) {
        refuse(p, op, r, ret);
    } else if (read_stock(r->body, &s) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "create of lambda: the reply is no list of types");
    } else if (!s.found) {
        web_refuse(ret, OFFER_INVALID, "create of lambda: there is no type " STR_FMT,
                   STR_ARG(op->offer->type));
    } else if (s.regions == 0) {
        web_refuse(ret, OFFER_CAPACITY, "create of lambda: " STR_FMT " is sold out",
                   STR_ARG(op->offer->type));
    } else {
        sort_regions(op);
        launch(p, op, now_us, ret);
    }
}

static int take_id(void *ctx, struct str item)
{
    struct listed *l = ctx;
    CLEANUP(buf_fini) struct buf id = { 0 };
    if (json_path_text(item, "", &id) < 0 || id.len >= sizeof l->handle) return -EINVAL;
    if (!l->handle[0]) web_text_copy(l->handle, sizeof l->handle, buf_view(&id));
    return 0;
}

static void take_launch(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                        int64_t now_us, struct web_step *ret)
{
    if (r->status == 200) {
        bool named = json_path_each(r->body, "data.instance_ids", take_id, &op->made) == 0;
        if (named && op->made.handle[0])
            web_succeed(ret);
        else
            web_refuse(ret, OFFER_TRANSIENT, "create of lambda: the reply names no instance");
        return;
    }
    refuse(p, op, r, ret);
    if (ret->class == OFFER_CAPACITY && op->note[0]) launch(p, op, now_us, ret);
}

static void order(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                  const struct web_moment *at, struct web_step *ret)
{
    if (op->stage == 0) {
        op->stage = STAGE_STOCK;
        ask(p, op, "/instance-types", ret);
    } else if (op->stage == STAGE_STOCK) {
        take_stock(p, op, r, at->now_us, ret);
    } else if (op->stage == STAGE_PAUSE) {
        launch(p, op, at->now_us, ret);
    } else {
        take_launch(p, op, r, at->now_us, ret);
    }
}

/* ---- prices ---- */

static void read_prices(const struct web_provider *p, struct web_op *op, struct str body,
                        struct web_step *ret)
{
    const struct web_settings *settings = p->settings;
    for (uint32_t i = 0; i < settings->offer_count; i++) {
        const struct web_offer *o = &settings->offer[i];
        struct cloud_price *c = &op->price[op->count];
        struct stock s = { .type = o->type, .offer = o };
        if (read_stock(body, &s) < 0) {
            web_refuse(ret, OFFER_TRANSIENT, "prices of lambda: the reply is no list of types");
            return;
        }
        *c = (struct cloud_price){ .known = o->price_given, .price_h = o->offer.price_h };
        must(name_copy(c->offer, sizeof c->offer, str_from(o->offer.name)) == 0);
        web_text_copy(c->hardware, sizeof c->hardware, o->type);
        if (!c->known && s.priced)
            c->known = web_dollars(settings, STR("USD"), s.cents / 100, &c->price_h);
        /* That a region has capacity says not for how many: only that there is none is a number. */
        c->room_known = s.found && s.regions == 0;
        op->count++;
    }
    web_succeed(ret);
}

static void prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    if (!r)
        ask(p, op, "/instance-types", ret);
    else if (r->status != 200)
        refuse(p, op, r, ret);
    else
        read_prices(p, op, r->body, ret);
}

/* ---- the kind ---- */

static const struct web_keyless keyless = { .ask_page = ask_page,
                                            .list = "data",
                                            .read = read_machine,
                                            .ask_remove = ask_remove,
                                            .order = order,
                                            .refuse = refuse,
                                            .prices = prices };

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    const struct web_moment at = { now_us, wall_us };
    web_keyless_serve(&keyless, p, op, reply, &at, ret);
}

static int open_kind(struct web_provider *p, struct err *err)
{
    if (p->settings->section->ssh_keys.count != 1)
        return err_set(err, -EINVAL, "ssh_keys: lambda takes exactly one");
    p->own = calloc(1, sizeof(struct own));
    return p->own ? 0 : err_set(err, -ENOMEM, "no memory for lambda");
}

static void close_kind(struct web_provider *p)
{
    free(p->own);
    p->own = NULL;
}

static const char *const takes[] = { "image", "ssh_keys", "firewalls", "offers.zones", NULL };
static const char *const wants[] = { "ssh_keys", NULL };

const struct web_kind web_kind_lambda = {
    .name = "lambda",
    .about = "Lambda Cloud: virtual machines with GPUs, in regions that have capacity or not",
    .endpoint = "https://cloud.lambda.ai/api/v1",
    .credentials_env = "LAMBDA_API_KEY",
    .lag_us = 10000000,
    .poll_us = 10000000,
    .billing = { 60000000, 0 },           /* docs.lambda.ai/public-cloud/billing: by the minute */
    .calls_per_s = 1,                     /* of an account */
    .user_data_bytes = (size_t)512 << 10, /* the API takes 1 MB, an op's memory twice this */
    .takes = takes,
    .wants = wants,
    .open = open_kind,
    .close = close_kind,
    .step = step,
};
