/* fake_vast.c - speaks the API of Vast.ai over a fake fleet.
 *
 * Written from the provider's OpenAPI documents of "create instance", "search offers" and "show instances", and from
 * what its Python library sends. The environment that an order sends is kept as its JSON, in place of user data. */
#include "tests/fakes/cloud/fake_vast.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "tests/fakes/cloud/fake_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_MAX 25
#define FIRST_ASK 1000
#define VALUE_MAX 256 /* x-input-validation of the document: env */
#define ENV_MAX 32768 /* max_total_length */
#define ARGS_MAX 4096
#define LABEL_MAX 256

struct fake {
    struct fake_fleet *fleet;
    const char *token;
    int64_t date_us;
};

static const struct fake_words words[] = {
    { FLEET_STOCK_OUT, 410, "no_such_ask", "error 410/3907: no_such_ask is no longer available." },
    { FLEET_QUOTA, 400, "insufficient_credit", "Your account lacks credit; see the billing page." },
    { FLEET_THROTTLE, 429, NULL, "API requests too frequent endpoint threshold=4.5" },
    { FLEET_AUTH, 401, "auth_error", "Invalid user key" },
    { FLEET_FORBIDDEN, 403, "forbidden", "the key lacks the permission instance_write" },
    { FLEET_INVALID, 400, "invalid_args", "error 400/3467: Invalid args" },
    { FLEET_SERVER_ERROR, 502, "server_error", "bad gateway" },
    { FLEET_UNKNOWN_CODE, 409, "new_kind_of_error", "words that are in no table" },
    { 0 },
};

/* A throttle is a line of text. */
static void put_error(struct fake_answer *a, const char *code, const char *message)
{
    struct json_writer *w = &a->w;
    if (!code) {
        buf_text(&a->body, message);
        return;
    }
    json_object(w);
    json_kv_bool(w, "success", false);
    json_kv_text(w, "error", code);
    json_kv_text(w, "msg", message);
    json_object_end(w);
}

/* ---- instances ---- */

static int put_variable(void *ctx, struct str name, struct str value)
{
    struct json_writer *w = ctx;
    json_array(w);
    json_put_str(w, name);
    json_put_raw(w, value);
    json_array_end(w);
    return 0;
}

static void put_instance(struct fake_answer *a, const struct fleet_machine *m)
{
    struct json_writer *w = &a->w;
    bool outbid = m->taken && m->removed_us <= a->now_us;
    json_object(w);
    json_kv_u64(w, "id", m->id);
    if (!outbid && m->ready_us > a->now_us) {
        json_key(w, "actual_status");
        json_put_null(w);
    } else {
        json_kv_text(w, "actual_status", outbid ? "exited" : "running");
    }
    json_kv_text(w, "cur_state", outbid ? "stopped" : "running");
    json_kv_text(w, "next_state", "running");
    json_kv_text(w, "intended_status", "running");
    json_kv_text(w, "label", m->name);
    json_kv_text(w, "image_uuid", m->image);
    json_key(w, "extra_env");
    json_array(w);
    if (m->user_data[0]) json_path_each_member(str_from(m->user_data), "", put_variable, w);
    json_array_end(w);
    json_kv_text(w, "status_msg", outbid ? "outbid" : "success, running");
    json_kv_u64(w, "machine_id", m->id % 100);
    json_kv_f64(w, "start_date", (double)(m->made_us + a->date_us) / 1e6);
    json_kv_text(w, "gpu_name", m->type);
    json_kv_u64(w, "num_gpus", 1);
    json_kv_text(w, "geolocation", m->zone);
    json_kv_bool(w, "is_bid", m->spot);
    json_kv_f64(w, "dph_base", (double)m->price_udollars_h / 1e6);
    json_kv_f64(w, "dph_total", (double)m->price_udollars_h / 1e6);
    json_object_end(w);
}

static bool is_listed(const struct fake_answer *a, const struct fleet_machine *m)
{
    int64_t then_us = a->now_us - a->fleet->config.lag_us;
    return m->made_us <= then_us && (m->removed_us == 0 || m->taken || m->removed_us > then_us);
}

static uint64_t number(struct fake_answer *a, const char *name, uint64_t otherwise)
{
    uint64_t n;
    struct str text = form_query(a->arena, a->at.query, name);
    return text.data && str_to_u64(text, &n) == 0 ? n : otherwise;
}

static void list_instances(struct fake_answer *a)
{
    static const char *const known[] = { "limit",       "after_token",    "order_by",
                                         "select_cols", "select_filters", NULL };
    char why[FORM_WHY_BYTES], token[24];
    uint64_t limit = number(a, "limit", 5), after = number(a, "after_token", 0), shown = 0,
             last = 0;
    if (form_query_check(a->at.query, known, why) < 0 || limit > PAGE_MAX) {
        fake_refuse_form(a, "a parameter of instances");
        return;
    }
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_kv_bool(w, "success", true);
    json_key(w, "instances");
    json_array(w);
    bool more = false;
    for (uint32_t i = 0; i < a->fleet->count && !more; i++) {
        const struct fleet_machine *m = &a->fleet->machine[i];
        if (m->id <= after || !is_listed(a, m)) continue;
        more = shown == limit;
        if (more) break;
        put_instance(a, m);
        last = m->id;
        shown++;
    }
    json_array_end(w);
    json_kv_u64(w, "instances_found", shown);
    json_key(w, "next_token");
    snprintf(token, sizeof token, "%llu", (unsigned long long)last);
    json_put_text(w, more ? token : NULL);
    json_object_end(w);
}

/* ---- asks ---- */

static uint64_t ask_id(uint32_t type, uint32_t zone)
{
    return FIRST_ASK + type * FLEET_ZONES_MAX + zone;
}

struct search {
    struct fake_answer *a;
    char gpu[FLEET_TEXT];
    const char *zone; /* that is looked at */
    bool by_zone, fits, bid;
};

static int take_zone(void *ctx, struct str item)
{
    struct search *s = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    must(json_path_text(item, "", &text) == 0);
    s->by_zone = true;
    s->fits = s->fits || str_eq(buf_view(&text), str_from(s->zone));
    return 0;
}

static void put_ask(struct search *s, uint32_t type, uint32_t zone)
{
    struct json_writer *w = &s->a->w;
    const struct fleet_type *t = &s->a->fleet->config.type[type];
    int64_t price = s->bid ? t->spot_udollars_h : t->price_udollars_h;
    json_object(w);
    json_kv_u64(w, "id", ask_id(type, zone));
    json_kv_u64(w, "ask_contract_id", ask_id(type, zone));
    json_kv_text(w, "gpu_name", t->name);
    json_kv_u64(w, "num_gpus", 1);
    json_kv_text(w, "geolocation", s->a->fleet->config.zone[zone]);
    json_kv_f64(w, "dph_base", (double)price / 1e6);
    json_kv_f64(w, "dph_total", (double)price / 1e6 + 0.01); /* with the disk */
    json_kv_f64(w, "min_bid", (double)t->spot_udollars_h / 1e6);
    json_kv_bool(w, "rentable", true);
    json_object_end(w);
}

static void put_asks(struct search *s)
{
    const struct fake_fleet *f = s->a->fleet;
    for (uint32_t t = 0; t < f->config.type_count; t++)
        for (uint32_t z = 0; z < f->config.zone_count; z++) {
            s->zone = f->config.zone[z];
            s->by_zone = s->fits = false;
            json_path_each(s->a->ask->body, "geolocation.in", take_zone, s);
            bool here = !s->by_zone || s->fits;
            bool wanted = !s->gpu[0] || strcmp(s->gpu, f->config.type[t].name) == 0;
            if (f->stock[t][z] != 0 && here && wanted) put_ask(s, t, z);
        }
}

static const struct form_field search_form[] = {
    { "limit", FORM_WHOLE, false, NULL },
    { "type", FORM_TEXT, false, NULL },
    { "verified", FORM_ANY, false, NULL },
    { "external", FORM_ANY, false, NULL },
    { "rentable", FORM_ANY, false, NULL },
    { "rented", FORM_ANY, false, NULL },
    { "gpu_name", FORM_ANY, false, NULL },
    { "num_gpus", FORM_ANY, false, NULL },
    { "geolocation", FORM_ANY, false, NULL },
    { "dph_total", FORM_ANY, false, NULL },
    { "allocated_storage", FORM_NUMBER, false, NULL },
    { "order", FORM_ANY, false, NULL },
    { 0 },
};

static void search(struct fake_answer *a)
{
    char why[FORM_WHY_BYTES];
    struct search s = { .a = a, .bid = strcmp(fake_text(a, "type"), "bid") == 0 };
    if (form_check(a->ask->body, search_form, why) < 0) {
        fake_refuse_form(a, why);
        return;
    }
    snprintf(s.gpu, sizeof s.gpu, "%s", fake_text(a, "gpu_name.eq"));
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "offers");
    json_array(w);
    put_asks(&s);
    json_array_end(w);
    json_kv_bool(w, "truncated", false);
    json_object_end(w);
}

/* ---- order ---- */

static const struct form_field order_form[] = {
    { "client_id", FORM_TEXT, false, NULL }, /* as the library sends it */
    { "image", FORM_TEXT, true, NULL },         { "label", FORM_TEXT, false, NULL },
    { "disk", FORM_NUMBER, false, NULL },       { "price", FORM_NUMBER, false, NULL },
    { "env", FORM_MAP, false, NULL },           { "runtype", FORM_TEXT, false, NULL },
    { "target_state", FORM_TEXT, false, NULL }, { "cancel_unavail", FORM_BOOL, false, NULL },
    { "onstart", FORM_TEXT, false, NULL },      { "args", FORM_TEXTS, false, NULL },
    { "args_str", FORM_TEXT, false, NULL },     { 0 },
};

struct lengths {
    size_t env, args, longest;
};

static int measure_variable(void *ctx, struct str name, struct str value)
{
    struct lengths *l = ctx;
    size_t longest = name.len > value.len - 2 ? name.len : value.len - 2;
    l->env += name.len + value.len;
    l->longest = l->longest > longest ? l->longest : longest;
    return 0;
}

static int measure_arg(void *ctx, struct str item)
{
    ((struct lengths *)ctx)->args += item.len;
    return 0;
}

static const char *problem_of(struct fake_answer *a)
{
    static char why[FORM_WHY_BYTES];
    struct lengths l = { 0 };
    if (form_check(a->ask->body, order_form, why) < 0) return why;
    json_path_each_member(a->ask->body, "env", measure_variable, &l);
    json_path_each(a->ask->body, "args", measure_arg, &l);
    if (l.longest > VALUE_MAX || l.env > ENV_MAX) return "env is too long";
    if (l.args > ARGS_MAX) return "args are too long";
    if (strlen(fake_text(a, "label")) > LABEL_MAX) return "label is too long";
    return NULL;
}

static void make(struct fake_answer *a, uint32_t type, uint32_t zone)
{
    struct fleet_tag tag[FLEET_TAGS_MAX];
    struct fleet_machine *m;
    struct str env = { 0 };
    double bid = 0;
    const struct fleet_type *t = &a->fleet->config.type[type];
    bool spot = json_path_f64(a->ask->body, "price", &bid) == 0;
    if (spot && bid < (double)t->spot_udollars_h / 1e6) {
        fake_refuse(a, 400, "invalid_price", "the bid is below the least");
        return;
    }
    json_path(a->ask->body, "env", &env);
    const struct fleet_order order = { .name = fake_text(a, "label"),
                                       .type = t->name,
                                       .zone = a->fleet->config.zone[zone],
                                       .image = fake_text(a, "image"),
                                       .user_data = arena_str(a->arena, env).data,
                                       .spot = spot,
                                       .tag = tag,
                                       .tag_count = fake_tags_of_env(env, tag) };
    if (!fake_make(a, &order, &m)) return;
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_kv_bool(w, "success", true);
    json_kv_u64(w, "new_contract", m->id);
    json_object_end(w);
}

static void take_order(struct fake_answer *a, struct str id_text)
{
    uint64_t id = 0;
    const struct fleet_config *c = &a->fleet->config;
    bool named = str_to_u64(id_text, &id) == 0 && id >= FIRST_ASK;
    uint32_t type = (uint32_t)(id - FIRST_ASK) / FLEET_ZONES_MAX;
    uint32_t zone = (uint32_t)(id - FIRST_ASK) % FLEET_ZONES_MAX;
    bool known = named && type < c->type_count && zone < c->zone_count;
    bool refused = fake_meets(a, FLEET_CREATE, known ? c->type[type].name : NULL,
                              known ? c->zone[zone] : NULL);
    const char *problem = problem_of(a);
    if (problem)
        fake_refuse_form(a, problem);
    else if (!refused && !known)
        fake_refuse(a, 404, "invalid_args", "error 404/3603: no_such_ask");
    else if (!refused)
        make(a, type, zone);
}

/* ---- one instance ---- */

static void of_instance(struct fake_answer *a, struct str id_text)
{
    uint64_t id = 0;
    bool deletes = str_eq(a->ask->method, STR("DELETE"));
    bool named = str_to_u64(id_text, &id) == 0;
    if (fake_meets(a, deletes ? FLEET_REMOVE : FLEET_LIST, NULL, NULL)) return;
    struct fleet_machine *m = named ? fake_fleet_find(a->fleet, id) : NULL;
    bool there = m && m->made_us <= a->now_us && (m->removed_us == 0 || m->taken);
    if (!there) {
        fake_refuse(a, 404, "no_such_instance", "no such instance");
        return;
    }
    if (deletes && fake_is_undone(a)) return;
    if (deletes) {
        fake_fleet_remove(a->fleet, id, a->now_us);
        m->taken = false;
    }
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_kv_bool(w, "success", true);
    if (!deletes) {
        json_key(w, "instances");
        put_instance(a, m);
    }
    json_object_end(w);
}

/* ---- requests ---- */

/* Returns the id between a prefix and the slash at the end; empty: the path is another. */
static struct str id_behind(const struct fake_answer *a, const char *prefix)
{
    struct str path = a->at.path, before = str_from(prefix);
    if (!str_starts(path, before) || path.len <= before.len + 1) return (struct str){ 0 };
    if (path.data[path.len - 1] != '/') return (struct str){ 0 };
    return str_of(path.data + before.len, path.len - before.len - 1);
}

static void route(struct fake_answer *a)
{
    struct str ask = id_behind(a, "/v0/asks/"), instance = id_behind(a, "/v0/instances/");
    bool reads = str_eq(a->ask->method, STR("GET"));
    if (fake_is(a, "GET", "/v1/instances/")) {
        if (!fake_meets(a, FLEET_LIST, NULL, NULL)) list_instances(a);
    } else if (fake_is(a, "POST", "/v0/bundles/")) {
        if (!fake_meets(a, FLEET_PRICES, NULL, NULL)) search(a);
    } else if (ask.len > 0 && str_eq(a->ask->method, STR("PUT"))) {
        take_order(a, ask);
    } else if (instance.len > 0 && (reads || str_eq(a->ask->method, STR("DELETE")))) {
        of_instance(a, instance);
    } else {
        fake_refuse_form(a, "no such path or method");
    }
}

static const struct fake_api api = {
    .base = "/api", .words = words, .put_error = put_error, .route = route
};

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake *f = ctx;
    return fake_answer(&api, f->fleet, f, f->token, f->date_us, ask, now_us, arena, ret);
}

static void *open_fake(struct fake_fleet *fleet, const char *token, int64_t date_us)
{
    struct fake *f = calloc(1, sizeof *f);
    must(f);
    *f = (struct fake){ .fleet = fleet, .token = token, .date_us = date_us };
    return f;
}

static const struct fleet_config sold = {
    .type = { { .name = "RTX 4090",
                .price_udollars_h = 400000,
                .spot_udollars_h = 200000,
                .gpus = 1 },
              { .name = "H100 SXM",
                .price_udollars_h = 2500000,
                .spot_udollars_h = 1500000,
                .gpus = 1 } },
    .type_count = 2,
    .zone = { "US", "DE", "FR" },
    .zone_count = 3,
};

const struct cloud_fake fake_vast = {
    .name = "vast", .fleet = &sold, .open = open_fake, .respond = respond
};
