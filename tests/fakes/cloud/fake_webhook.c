/* fake_webhook.c - speaks the hook protocol over a fake fleet.
 *
 * Errors stand in bodies with status 200, but for a refused token (401) and a failure of the server (500), which have
 * none. */
#include "tests/fakes/cloud/fake_webhook.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "tests/fakes/cloud/fake_answer.h"
#include "tests/fakes/cloud/fake_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    struct fake_webhook *h;
    struct fake_fleet *fleet;
    const struct web_ask *ask;
    struct arena *arena;
    int64_t now_us;
    int status;
    struct buf body;
    const struct fleet_row *row;
};

static void refuse(struct answer *a, const char *class, const char *message, int64_t retry_us)
{
    struct json_writer w;
    buf_clear(&a->body);
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "error");
    json_object(&w);
    json_kv_text(&w, "class", class);
    json_kv_text(&w, "message", message);
    if (retry_us > 0) json_kv_f64(&w, "retry_after_s", (double)retry_us / 1e6);
    json_object_end(&w);
    json_object_end(&w);
    a->status = 200;
}

static void refuse_form(struct answer *a, const char *why)
{
    fake_fleet_bad_form(a->fleet, "%s", why);
    refuse(a, "invalid", why, 0);
}

static bool refuse_fault(struct answer *a)
{
    static const struct {
        enum fleet_fault fault;
        int status; /* not 200: without a body */
        const char *class, *message;
    } rows[] = {
        { FLEET_STOCK_OUT, 200, "capacity", "none of the type is left here" },
        { FLEET_QUOTA, 200, "quota", "the account may have no more" },
        { FLEET_THROTTLE, 200, "throttle", "too many calls" },
        { FLEET_AUTH, 401, NULL, NULL },
        { FLEET_FORBIDDEN, 403, NULL, NULL },
        { FLEET_INVALID, 200, "invalid", "there is no such type" },
        { FLEET_SERVER_ERROR, 500, NULL, NULL },
        { FLEET_UNKNOWN_CODE, 200, "tired", "words that the protocol does not have" },
    };
    for (size_t i = 0; a->row && i < COUNT_OF(rows); i++) {
        if (rows[i].fault != a->row->fault) continue;
        bool throttled = rows[i].fault == FLEET_THROTTLE;
        if (rows[i].class)
            refuse(a, rows[i].class, rows[i].message, throttled ? a->row->delay_us : 0);
        a->status = rows[i].status;
        return true;
    }
    return false;
}

static const char *text_at(struct answer *a, const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(a->ask->body, path, &text) < 0) return "";
    return arena_str(a->arena, buf_view(&text)).data;
}

/* ---- instances ---- */

static void put_instance(struct json_writer *w, const struct answer *a,
                         const struct fleet_machine *m)
{
    char handle[24];
    snprintf(handle, sizeof handle, "h%llu", (unsigned long long)m->id);
    json_object(w);
    json_kv_text(w, "handle", handle);
    json_key(w, "tags");
    json_object(w);
    for (uint32_t i = 0; i < m->tag_count; i++)
        json_kv_text(w, m->tag[i].name, m->tag[i].value);
    json_object_end(w);
    json_kv_f64(w, "age_s", (double)max_i64(0, a->now_us - m->made_us) / 1e6);
    if (m->notice_us > 0 && a->now_us >= m->notice_us)
        json_kv_f64(w, "leaves_in_s", (double)max_i64(0, m->removed_us - a->now_us) / 1e6);
    json_object_end(w);
}

static int take_tag(void *ctx, struct str name, struct str value)
{
    struct fleet_order *o = ctx;
    struct fleet_tag *tag = (struct fleet_tag *)(uintptr_t)&o->tag[o->tag_count++];
    CLEANUP(buf_fini) struct buf text = { 0 };
    must(o->tag_count <= FLEET_TAGS_MAX && json_path_text(value, "", &text) == 0);
    snprintf(tag->name, sizeof tag->name, STR_FMT, STR_ARG(name));
    snprintf(tag->value, sizeof tag->value, STR_FMT, STR_ARG(buf_view(&text)));
    return 0;
}

static void create(struct answer *a)
{
    struct fleet_tag tag[FLEET_TAGS_MAX];
    const char *zone = text_at(a, "zone"), *type = text_at(a, "type");
    a->row = fake_fleet_meet(a->fleet, FLEET_CREATE, type, zone, a->now_us);
    if (refuse_fault(a)) return;
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    struct fleet_order o = { .name = text_at(a, "intent"),
                             .key = text_at(a, "intent"),
                             .type = type,
                             .zone = zone[0] ? zone : a->fleet->config.zone[0],
                             .user_data = text_at(a, "user_data"),
                             .tag = tag };
    must(json_path_each_member(a->ask->body, "tags", take_tag, &o) == 0);
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    struct fleet_machine *m, *twin;
    enum fleet_fault made =
        fake_fleet_create(a->fleet, &o, fault == FLEET_LATE_SUCCESS ? a->row->delay_us : 0,
                          fault == FLEET_SLOW_BOOT ? a->row->delay_us : 0, a->now_us, &m);
    if (made != FLEET_FINE) {
        a->row = &(struct fleet_row){ .fault = made };
        refuse_fault(a);
        a->row = NULL;
        return;
    }
    o.key = "";
    if (fault == FLEET_DUPLICATE) fake_fleet_create(a->fleet, &o, 0, 0, a->now_us, &twin);
    struct json_writer w;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "instance");
    put_instance(&w, a, m);
    json_object_end(&w);
}

static void list(struct answer *a)
{
    struct json_writer w;
    a->row = fake_fleet_meet(a->fleet, FLEET_LIST, NULL, NULL, a->now_us);
    if (refuse_fault(a)) return;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "instances");
    json_array(&w);
    for (uint32_t i = 0; i < a->fleet->count; i++)
        if (fake_fleet_shows(a->fleet, &a->fleet->machine[i], a->now_us))
            put_instance(&w, a, &a->fleet->machine[i]);
    json_array_end(&w);
    json_object_end(&w);
}

static void remove_one(struct answer *a)
{
    const char *handle = text_at(a, "handle"), *intent = text_at(a, "intent");
    a->row = fake_fleet_meet(a->fleet, FLEET_REMOVE, NULL, NULL, a->now_us);
    if (refuse_fault(a)) return;
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (handle[0]) {
        fake_fleet_remove(a->fleet, strtoull(handle + 1, NULL, 10), a->now_us);
    } else {
        struct fleet_machine *m = fake_fleet_named(a->fleet, intent, a->now_us);
        if (m) fake_fleet_remove(a->fleet, m->id, a->now_us);
    }
    buf_text(&a->body, "{\"removed\":true}");
}

static void prices(struct answer *a)
{
    struct json_writer w;
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (refuse_fault(a)) return;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "prices");
    json_array(&w);
    json_object(&w);
    json_kv_text(&w, "offer", "small");
    json_kv_f64(&w, "per_hour", a->fleet->config.type[0].price);
    if (a->h->currency) json_kv_text(&w, "currency", a->h->currency);
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
}

/* ---- requests ---- */

#define COMMON                                                          \
    { "v", FORM_WHOLE, true, NULL }, { "call", FORM_TEXT, true, NULL }, \
        { "cloud", FORM_TEXT, true, NULL },                             \
    {                                                                   \
        "fleet", FORM_TEXT, true, NULL                                  \
    }
static const struct form_field create_form[] = {
    COMMON,
    { "intent", FORM_TEXT, true, NULL },
    { "offer", FORM_TEXT, true, NULL },
    { "type", FORM_TEXT, true, NULL },
    { "zone", FORM_TEXT, false, NULL },
    { "region", FORM_TEXT, false, NULL },
    { "image", FORM_TEXT, false, NULL },
    { "gpus", FORM_WHOLE, true, NULL },
    { "spot", FORM_BOOL, true, NULL },
    { "tags", FORM_MAP, true, NULL },
    { "user_data", FORM_TEXT, true, NULL },
    { 0 },
};
static const struct form_field list_form[] = { COMMON, { 0 } };
static const struct form_field remove_form[] = {
    COMMON,
    { "intent", FORM_TEXT, true, NULL },
    { "handle", FORM_TEXT, true, NULL },
    { 0 },
};
static const struct form_field offer_form[] = {
    { "offer", FORM_TEXT, true, NULL },
    { "type", FORM_TEXT, true, NULL },
    { "spot", FORM_BOOL, true, NULL },
    { "zones", FORM_TEXTS, true, NULL },
    { 0 },
};
static const struct form_field prices_form[] = {
    COMMON,
    { "offers", FORM_OBJECTS, true, offer_form },
    { 0 },
};

static void route(struct answer *a)
{
    static const struct {
        const char *call;
        const struct form_field *form;
        void (*answer)(struct answer *a);
    } calls[] = {
        { "create", create_form, create },
        { "list", list_form, list },
        { "remove", remove_form, remove_one },
        { "prices", prices_form, prices },
    };
    char why[FORM_WHY_BYTES];
    const char *call = text_at(a, "call");
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        if (strcmp(call, calls[i].call) != 0) continue;
        if (form_check(a->ask->body, calls[i].form, why) < 0)
            refuse_form(a, why);
        else
            calls[i].answer(a);
        return;
    }
    refuse_form(a, "no such call");
}

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake_webhook *h = ctx;
    struct answer a = {
        .h = h, .fleet = h->fleet, .ask = ask, .arena = arena, .now_us = now_us, .status = 200
    };
    int64_t took_us;
    if (!str_eq(ask->method, STR("POST")) || !str_eq(ask->content_type, STR("application/json")))
        refuse_form(&a, "method or content-type");
    else if (!fake_is_bearer(ask, h->token))
        a.status = 401;
    else
        route(&a);
    fake_fill(ret, arena, a.status, &a.body, 0);
    fleet_break_reply(a.row, ret, &took_us);
    return took_us;
}

const struct cloud_fake fake_webhook = { .name = "webhook", .respond = respond };
