/* fake_hetzner.c - speaks the API of Hetzner Cloud over a fake fleet.
 *
 * Written from docs.hetzner.cloud: the members of a create request, limits of names and labels, codes of errors, the
 * page object. What a server's object has beyond what clients read is left out or null. */
#include "tests/fakes/cloud/fake_hetzner.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_answer.h"
#include "tests/fakes/cloud/fake_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USER_DATA_MAX 32768
#define LABEL_MAX 63
#define PER_PAGE 25
#define PER_PAGE_MAX 50

/* Holds the reply to one request. */
struct answer {
    struct fake_hetzner *h;
    struct fake_fleet *fleet;
    const struct web_ask *ask;
    struct form_target at;
    struct arena *arena;
    int64_t now_us;
    int status;
    struct buf body;
    int64_t retry_after_us;
    const struct fleet_row *row; /* the fault that applies */
};

static void refuse(struct answer *a, int status, const char *code, const char *message)
{
    struct json_writer w;
    buf_clear(&a->body);
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "error");
    json_object(&w);
    json_kv_text(&w, "code", code);
    json_kv_text(&w, "message", message);
    json_key(&w, "details");
    json_put_null(&w);
    json_object_end(&w);
    json_object_end(&w);
    a->status = status;
}

static void refuse_form(struct answer *a, const char *why)
{
    fake_fleet_bad_form(a->fleet, STR_FMT " " STR_FMT ": %s", STR_ARG(a->ask->method),
                        STR_ARG(a->at.path), why);
    refuse(a, 422, "invalid_input", why);
}

/* Answers what the fault stands for in this API; false: it is none of those. */
static bool refuse_fault(struct answer *a)
{
    static const struct fake_words words[] = {
        { FLEET_STOCK_OUT, 412, "resource_unavailable", "server type is not available here" },
        { FLEET_QUOTA, 403, "resource_limit_exceeded", "server limit exceeded" },
        { FLEET_THROTTLE, 429, "rate_limit_exceeded", "limit of 3600 requests per hour reached" },
        { FLEET_AUTH, 401, "unauthorized", "unable to authenticate" },
        { FLEET_FORBIDDEN, 403, "token_readonly", "the token is only allowed to read" },
        { FLEET_INVALID, 422, "invalid_input", "invalid input in field" },
        { FLEET_SERVER_ERROR, 503, "service_error", "something went wrong" },
        { FLEET_UNKNOWN_CODE, 409, "new_kind_of_error", "words that are in no table" },
        { 0 },
    };
    const struct fake_words *w = fake_words_of(words, a->row);
    if (!w) return false;
    refuse(a, w->status, w->code, w->message);
    a->retry_after_us = w->fault == FLEET_THROTTLE ? a->row->delay_us : 0;
    return true;
}

/* ---- objects ---- */

static void put_time(struct json_writer *w, const struct answer *a, const char *key, int64_t us)
{
    char text[DATE_BYTES];
    date_print(us + a->h->date_us, text);
    json_kv_text(w, key, text);
}

static uint64_t index_of_type(const struct fake_fleet *f, const char *name)
{
    uint64_t i = 0;
    while (i < f->config.type_count && strcmp(f->config.type[i].name, name) != 0)
        i++;
    return i;
}

static void put_location(struct json_writer *w, const struct fake_fleet *f, const char *name)
{
    uint64_t id = 1;
    for (uint32_t i = 0; i < f->config.zone_count; i++)
        if (strcmp(f->config.zone[i], name) == 0) id = i + 1;
    json_object(w);
    json_kv_u64(w, "id", id);
    json_kv_text(w, "name", name);
    json_kv_text(w, "description", name);
    json_kv_text(w, "country", "DE");
    json_kv_text(w, "city", name);
    json_kv_f64(w, "latitude", 50);
    json_kv_f64(w, "longitude", 12);
    json_kv_text(w, "network_zone", "eu-central");
    json_object_end(w);
}

static void put_price(struct json_writer *w, const char *key, double net)
{
    char text[32];
    json_key(w, key);
    json_object(w);
    snprintf(text, sizeof text, "%.10f", net);
    json_kv_text(w, "net", text);
    snprintf(text, sizeof text, "%.10f", net * 1.19);
    json_kv_text(w, "gross", text);
    json_object_end(w);
}

static void put_prices(struct json_writer *w, const struct fake_fleet *f, double hourly)
{
    json_key(w, "prices");
    json_array(w);
    for (uint32_t z = 0; z < f->config.zone_count; z++) {
        json_object(w);
        json_kv_text(w, "location", f->config.zone[z]);
        put_price(w, "price_hourly", hourly);
        put_price(w, "price_monthly", hourly * 624);
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_type(struct json_writer *w, const struct fake_fleet *f, const char *name)
{
    uint64_t i = index_of_type(f, name);
    const struct fleet_type *t = &f->config.type[i];
    json_object(w);
    json_kv_u64(w, "id", i + 1);
    json_kv_text(w, "name", t->name);
    json_kv_text(w, "description", t->name);
    json_kv_u64(w, "cores", t->cores);
    json_kv_u64(w, "memory", t->memory_gib);
    json_kv_u64(w, "disk", 40);
    json_kv_text(w, "storage_type", "local");
    json_kv_text(w, "cpu_type", "shared");
    json_kv_text(w, "architecture", "x86");
    put_prices(w, f, t->price);
    json_object_end(w);
}

static const char *status_of(const struct answer *a, const struct fleet_machine *m)
{
    if (m->notice_us > 0 && a->now_us >= m->notice_us) return "stopping";
    return a->now_us < m->ready_us ? "initializing" : "running";
}

static void put_labels(struct json_writer *w, const struct fleet_machine *m)
{
    json_key(w, "labels");
    json_object(w);
    for (uint32_t i = 0; i < m->tag_count; i++)
        json_kv_text(w, m->tag[i].name, m->tag[i].value);
    json_object_end(w);
}

static void put_server(struct json_writer *w, const struct answer *a, const struct fleet_machine *m)
{
    static const char *const nulls[] = { "iso", "backup_window", "placement_group", "image" };
    json_object(w);
    json_kv_u64(w, "id", m->id);
    json_kv_text(w, "name", m->name);
    json_kv_text(w, "status", status_of(a, m));
    put_time(w, a, "created", m->made_us);
    json_key(w, "server_type");
    put_type(w, a->fleet, m->type);
    json_key(w, "location");
    put_location(w, a->fleet, m->zone);
    put_labels(w, m);
    json_key(w, "public_net");
    json_put_raw(w, STR("{\"ipv4\":null,\"ipv6\":null,\"floating_ips\":[],\"firewalls\":[]}"));
    json_key(w, "private_net");
    json_put_raw(w, STR("[]"));
    json_key(w, "volumes");
    json_put_raw(w, STR("[]"));
    json_key(w, "protection");
    json_put_raw(w, STR("{\"delete\":false,\"rebuild\":false}"));
    for (size_t i = 0; i < COUNT_OF(nulls); i++) {
        json_key(w, nulls[i]);
        json_put_null(w);
    }
    json_kv_bool(w, "rescue_enabled", false);
    json_kv_bool(w, "locked", false);
    json_kv_u64(w, "primary_disk_size", 40);
    json_object_end(w);
}

static void put_action(struct json_writer *w, const struct answer *a, const char *command,
                       uint64_t server)
{
    json_object(w);
    json_kv_u64(w, "id", server + 5000000);
    json_kv_text(w, "command", command);
    json_kv_text(w, "status", "running");
    json_kv_u64(w, "progress", 0);
    put_time(w, a, "started", a->now_us);
    json_key(w, "finished");
    json_put_null(w);
    json_key(w, "error");
    json_put_null(w);
    json_key(w, "resources");
    json_array(w);
    json_object(w);
    json_kv_u64(w, "id", server);
    json_kv_text(w, "type", "server");
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
}

static void put_page(struct json_writer *w, uint64_t page, uint64_t per_page, uint64_t total)
{
    uint64_t last = total == 0 ? 1 : (total + per_page - 1) / per_page;
    json_key(w, "meta");
    json_object(w);
    json_key(w, "pagination");
    json_object(w);
    json_kv_u64(w, "page", page);
    json_kv_u64(w, "per_page", per_page);
    json_key(w, "previous_page");
    page > 1 ? json_put_u64(w, page - 1) : json_put_null(w);
    json_key(w, "next_page");
    page < last ? json_put_u64(w, page + 1) : json_put_null(w);
    json_kv_u64(w, "last_page", last);
    json_kv_u64(w, "total_entries", total);
    json_object_end(w);
    json_object_end(w);
}

/* ---- lists ---- */

/* Returns true if the machine has the labels of a selector: k=v or k, joined by commas. */
static bool fits(const struct fleet_machine *m, struct str selector)
{
    while (selector.len > 0) {
        struct str value = str_cut(&selector, ','), key = str_cut(&value, '=');
        char name[FLEET_TEXT];
        if (value.len > 0 && value.data[0] == '=') value = str_of(value.data + 1, value.len - 1);
        snprintf(name, sizeof name, STR_FMT, STR_ARG(key));
        const char *has = fleet_tag_of(m, name);
        if (value.data ? !str_eq(str_from(has), value) : has[0] == 0) return false;
    }
    return true;
}

static uint64_t number(struct answer *a, const char *name, uint64_t otherwise)
{
    uint64_t n;
    struct str text = form_query(a->arena, a->at.query, name);
    return text.data && str_to_u64(text, &n) == 0 ? n : otherwise;
}

static void list_servers(struct answer *a)
{
    static const char *const parameters[] = { "name", "label_selector", "status", "sort",
                                              "page", "per_page",       NULL };
    char why[FORM_WHY_BYTES];
    struct json_writer w;
    uint64_t page = number(a, "page", 1), per_page = number(a, "per_page", PER_PAGE), total = 0;
    struct str name = form_query(a->arena, a->at.query, "name");
    struct str selector = form_query(a->arena, a->at.query, "label_selector");
    if (form_query_check(a->at.query, parameters, why) < 0) {
        refuse_form(a, why);
        return;
    }
    if (page == 0 || per_page == 0 || per_page > PER_PAGE_MAX) {
        refuse_form(a, "page or per_page out of range");
        return;
    }
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "servers");
    json_array(&w);
    for (uint32_t i = 0; i < a->fleet->count; i++) {
        const struct fleet_machine *m = &a->fleet->machine[i];
        if (!fake_fleet_shows(a->fleet, m, a->now_us) || !fits(m, selector)) continue;
        if (name.data && !str_eq(name, str_from(m->name))) continue;
        if (total >= (page - 1) * per_page && total < page * per_page) put_server(&w, a, m);
        total++;
    }
    json_array_end(&w);
    put_page(&w, page, per_page, total);
    json_object_end(&w);
    a->status = 200;
}

static void list_types(struct answer *a)
{
    struct json_writer w;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "server_types");
    json_array(&w);
    for (uint32_t i = 0; i < a->fleet->config.type_count; i++)
        put_type(&w, a->fleet, a->fleet->config.type[i].name);
    json_array_end(&w);
    put_page(&w, 1, PER_PAGE_MAX, a->fleet->config.type_count);
    json_object_end(&w);
    a->status = 200;
}

static void list_locations(struct answer *a)
{
    struct json_writer w;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "locations");
    json_array(&w);
    for (uint32_t i = 0; i < a->fleet->config.zone_count; i++)
        put_location(&w, a->fleet, a->fleet->config.zone[i]);
    json_array_end(&w);
    put_page(&w, 1, PER_PAGE_MAX, a->fleet->config.zone_count);
    json_object_end(&w);
    a->status = 200;
}

static void show_pricing(struct answer *a)
{
    struct json_writer w;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "pricing");
    json_object(&w);
    json_kv_text(&w, "currency", a->h->currency ? a->h->currency : "EUR");
    json_kv_text(&w, "vat_rate", "19.000000");
    json_key(&w, "primary_ips");
    json_array(&w);
    json_object(&w);
    json_kv_text(&w, "type", "ipv4");
    put_prices(&w, a->fleet, 0.001);
    json_object_end(&w);
    json_array_end(&w);
    json_key(&w, "server_types");
    json_array(&w);
    for (uint32_t i = 0; i < a->fleet->config.type_count; i++) {
        json_object(&w);
        json_kv_u64(&w, "id", i + 1);
        json_kv_text(&w, "name", a->fleet->config.type[i].name);
        put_prices(&w, a->fleet, a->fleet->config.type[i].price);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    a->status = 200;
}

/* ---- create ---- */

static const struct form_field public_net[] = {
    { "enable_ipv4", FORM_BOOL, false, NULL },
    { "enable_ipv6", FORM_BOOL, false, NULL },
    { "ipv4", FORM_WHOLE, false, NULL },
    { "ipv6", FORM_WHOLE, false, NULL },
    { 0 },
};
static const struct form_field firewall[] = { { "firewall", FORM_WHOLE, true, NULL }, { 0 } };
static const struct form_field server_form[] = {
    { "name", FORM_TEXT, true, NULL },
    { "server_type", FORM_WHOLE_OR_TEXT, true, NULL },
    { "image", FORM_WHOLE_OR_TEXT, true, NULL },
    { "location", FORM_TEXT, false, NULL },
    { "start_after_create", FORM_BOOL, false, NULL },
    { "placement_group", FORM_WHOLE, false, NULL },
    { "ssh_keys", FORM_WHOLES_OR_TEXTS, false, NULL },
    { "volumes", FORM_WHOLES, false, NULL },
    { "networks", FORM_WHOLES, false, NULL },
    { "firewalls", FORM_OBJECTS, false, firewall },
    { "user_data", FORM_TEXT, false, NULL },
    { "labels", FORM_MAP, false, NULL },
    { "automount", FORM_BOOL, false, NULL },
    { "public_net", FORM_OBJECT, false, public_net },
    { 0 },
};

static bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Names are host names; values of labels may have dots and underscores, too. */
static bool is_word(struct str s, bool label)
{
    if (s.len > LABEL_MAX || (s.len == 0 && !label)) return false;
    for (size_t i = 0; i < s.len; i++) {
        bool inside = i > 0 && i + 1 < s.len;
        bool sign = s.data[i] == '-' || s.data[i] == '.' || (label && s.data[i] == '_');
        if (!is_alphanumeric(s.data[i]) && !(inside && sign)) return false;
    }
    return true;
}

struct tags {
    struct fleet_tag tag[FLEET_TAGS_MAX];
    uint32_t count;
    bool bad;
};

static int take_tag(void *ctx, struct str name, struct str value)
{
    struct tags *t = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    must(json_path_text(value, "", &text) == 0 && t->count < FLEET_TAGS_MAX);
    if (!is_word(name, true) || name.len == 0 || !is_word(buf_view(&text), true)) t->bad = true;
    struct fleet_tag *tag = &t->tag[t->count++];
    snprintf(tag->name, sizeof tag->name, STR_FMT, STR_ARG(name));
    snprintf(tag->value, sizeof tag->value, STR_FMT, STR_ARG(buf_view(&text)));
    return 0;
}

static const char *text_at(struct answer *a, const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(a->ask->body, path, &text) < 0) return "";
    return arena_str(a->arena, buf_view(&text)).data;
}

static void put_created(struct answer *a, const struct fleet_machine *m)
{
    struct json_writer w;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "server");
    put_server(&w, a, m);
    json_key(&w, "action");
    put_action(&w, a, "create_server", m->id);
    json_key(&w, "next_actions");
    json_put_raw(&w, STR("[]"));
    json_key(&w, "root_password");
    json_put_null(&w);
    json_object_end(&w);
    a->status = 201;
}

/* Makes the server that a checked request asks for. */
static void make_server(struct answer *a, const struct fleet_order *o)
{
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    struct fleet_machine *m;
    if (fake_fleet_named(a->fleet, o->name, a->now_us)) {
        refuse(a, 409, "uniqueness_error", "server name is already used");
        return;
    }
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    enum fleet_fault made =
        fake_fleet_create(a->fleet, o, fault == FLEET_LATE_SUCCESS ? a->row->delay_us : 0,
                          fault == FLEET_SLOW_BOOT ? a->row->delay_us : 0, a->now_us, &m);
    if (made == FLEET_FINE) {
        put_created(a, m);
        struct fleet_machine *twin;
        if (fault == FLEET_DUPLICATE) fake_fleet_create(a->fleet, o, 0, 0, a->now_us, &twin);
        return;
    }
    a->row = &(struct fleet_row){ .fault = made };
    refuse_fault(a);
    a->row = NULL;
}

static void create_server(struct answer *a)
{
    char why[FORM_WHY_BYTES];
    struct tags tags = { 0 };
    const char *zone = text_at(a, "location"), *type = text_at(a, "server_type");
    const char *name = text_at(a, "name"), *user_data = text_at(a, "user_data");
    a->row = fake_fleet_meet(a->fleet, FLEET_CREATE, type, zone, a->now_us);
    if (!str_eq(a->ask->content_type, STR("application/json"))) {
        refuse_form(a, "content-type");
        return;
    }
    if (form_check(a->ask->body, server_form, why) < 0) {
        refuse_form(a, why);
        return;
    }
    int rc = json_path_each_member(a->ask->body, "labels", take_tag, &tags);
    if ((rc < 0 && rc != -ENOENT) || tags.bad || !is_word(str_from(name), false)) {
        refuse_form(a, "a name or label has characters that it may not have");
        return;
    }
    if (strlen(user_data) > USER_DATA_MAX) {
        refuse_form(a, "user_data is longer than 32 KiB");
        return;
    }
    if (refuse_fault(a)) return;
    const struct fleet_order order = { .name = name,
                                       .type = type,
                                       .zone = zone[0] ? zone : a->fleet->config.zone[0],
                                       .image = text_at(a, "image"),
                                       .user_data = user_data,
                                       .tag = tags.tag,
                                       .tag_count = tags.count };
    make_server(a, &order);
}

/* ---- one server ---- */

static void delete_server(struct answer *a, uint64_t id)
{
    struct json_writer w;
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    bool undone = fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE;
    if (!undone && !fake_fleet_remove(a->fleet, id, a->now_us)) {
        refuse(a, 404, "not_found", "server not found");
        return;
    }
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "action");
    put_action(&w, a, "delete_server", id);
    json_object_end(&w);
    a->status = 200;
}

static void show_server(struct answer *a, uint64_t id)
{
    struct json_writer w;
    const struct fleet_machine *m = fake_fleet_find(a->fleet, id);
    if (!m || !fake_fleet_shows(a->fleet, m, a->now_us)) {
        refuse(a, 404, "not_found", "server not found");
        return;
    }
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "server");
    put_server(&w, a, m);
    json_object_end(&w);
    a->status = 200;
}

static void of_server(struct answer *a, struct str id_text)
{
    uint64_t id;
    bool deletes = str_eq(a->ask->method, STR("DELETE"));
    if (str_to_u64(id_text, &id) < 0 || (!deletes && !str_eq(a->ask->method, STR("GET")))) {
        refuse_form(a, "no such path or method");
        return;
    }
    a->row = fake_fleet_meet(a->fleet, deletes ? FLEET_REMOVE : FLEET_LIST, NULL, NULL, a->now_us);
    if (refuse_fault(a)) return;
    if (deletes)
        delete_server(a, id);
    else
        show_server(a, id);
}

/* ---- requests ---- */

static void read_only(struct answer *a, enum fleet_op op, void (*show)(struct answer *a))
{
    if (!str_eq(a->ask->method, STR("GET"))) {
        refuse_form(a, "no such method");
        return;
    }
    a->row = fake_fleet_meet(a->fleet, op, NULL, NULL, a->now_us);
    if (!refuse_fault(a)) show(a);
}

static void route(struct answer *a)
{
    static const struct {
        const char *path;
        enum fleet_op op;
        void (*show)(struct answer *a);
    } lists[] = {
        { "/server_types", FLEET_PRICES, list_types },
        { "/locations", FLEET_PRICES, list_locations },
        { "/pricing", FLEET_PRICES, show_pricing },
    };
    struct str path = a->at.path;
    if (str_eq(path, STR("/servers")) && str_eq(a->ask->method, STR("POST"))) {
        create_server(a);
        return;
    }
    if (str_eq(path, STR("/servers"))) {
        read_only(a, FLEET_LIST, list_servers);
        return;
    }
    if (str_starts(path, STR("/servers/"))) {
        of_server(a, str_of(path.data + 9, path.len - 9));
        return;
    }
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        if (str_eq(path, str_from(lists[i].path))) {
            read_only(a, lists[i].op, lists[i].show);
            return;
        }
    refuse_form(a, "no such path");
}

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake_hetzner *h = ctx;
    struct answer a = { .h = h, .fleet = h->fleet, .ask = ask, .arena = arena, .now_us = now_us };
    int64_t took_us;
    if (form_target(ask->url, STR("/v1"), &a.at) < 0)
        refuse_form(&a, "no URL of this API");
    else if (!fake_is_bearer(ask, h->token))
        refuse(&a, 401, "unauthorized", "unable to authenticate");
    else
        route(&a);
    fake_fill(ret, arena, a.status, &a.body, a.retry_after_us);
    fleet_break_reply(a.row, ret, &took_us);
    return took_us;
}

static void *open_fake(struct fake_fleet *fleet, const char *token, int64_t date_us)
{
    struct fake_hetzner *h = calloc(1, sizeof *h);
    must(h);
    *h = (struct fake_hetzner){ .fleet = fleet, .token = token, .date_us = date_us };
    return h;
}

static const struct fleet_config sold = {
    .bill_unit_s = 3600, /* as its price list says */
    .names_unique = true,
    .type = { { .name = "cx22",
                .price_udollars_h = 6480,
                .price = 0.006,
                .cores = 2,
                .memory_gib = 4 },
              { .name = "ccx33",
                .price_udollars_h = 86400,
                .price = 0.08,
                .cores = 8,
                .memory_gib = 32 } },
    .type_count = 2,
    .zone = { "fsn1", "nbg1", "hel1" },
    .zone_count = 3,
};

const struct cloud_fake fake_hetzner = {
    .name = "hetzner", .fleet = &sold, .open = open_fake, .respond = respond
};
