/* fake_lambda.c - speaks the API of Lambda Cloud over a fake fleet.
 *
 * Written from the provider's OpenAPI document, version 1.10.0: members and limits of a launch, codes of errors, what
 * an instance and a type must have. Ids are 32 hexadecimal digits, as in its examples. */
#include "tests/fakes/cloud/fake_lambda.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "tests/fakes/cloud/fake_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USER_DATA_MAX 1000000
#define NAME_MAX_CHARS 64
#define TAG_KEY_MAX 55
#define TAG_VALUE_MAX 128
#define TERMINATING_US 4000000 /* that an ended instance is still listed */
#define ID_DIGITS 32

struct fake {
    struct fake_fleet *fleet;
    const char *token;
    int64_t date_us;
};

static const struct fake_words words[] = {
    { FLEET_STOCK_OUT, 400, "instance-operations/launch/insufficient-capacity",
      "Not enough capacity to fulfill launch request." },
    { FLEET_QUOTA, 400, "global/quota-exceeded", "Quota exceeded." },
    { FLEET_THROTTLE, 429, NULL, "error code: 1015" },
    { FLEET_AUTH, 401, "global/invalid-api-key", "API key was invalid, expired, or deleted." },
    { FLEET_FORBIDDEN, 403, "global/account-inactive", "Your account is inactive." },
    { FLEET_INVALID, 400, "global/invalid-parameters", "Invalid request data." },
    { FLEET_SERVER_ERROR, 500, "global/unknown", "An internal error occurred." },
    { FLEET_UNKNOWN_CODE, 409, "new/kind-of-error", "words that are in no table" },
    { 0 },
};

/* A 429 is not the API's own: Cloudflare answers a line of text. */
static void put_error(struct fake_answer *a, const char *code, const char *message)
{
    struct json_writer *w = &a->w;
    if (!code) {
        buf_text(&a->body, message);
        return;
    }
    json_object(w);
    json_key(w, "error");
    json_object(w);
    json_kv_text(w, "code", code);
    json_kv_text(w, "message", message);
    json_kv_text(w, "suggestion", "");
    json_object_end(w);
    json_object_end(w);
}

/* ---- objects ---- */

static void put_region(struct json_writer *w, const char *name)
{
    json_object(w);
    json_kv_text(w, "name", name);
    json_kv_text(w, "description", name);
    json_object_end(w);
}

static void put_type(struct json_writer *w, const struct fleet_type *t)
{
    json_object(w);
    json_kv_text(w, "name", t->name);
    json_kv_text(w, "description", t->name);
    json_kv_text(w, "gpu_description", t->name);
    json_kv_i64(w, "price_cents_per_hour", t->price_udollars_h / 10000);
    json_key(w, "specs");
    json_object(w);
    json_kv_u64(w, "vcpus", t->cores);
    json_kv_u64(w, "memory_gib", t->memory_gib);
    json_kv_u64(w, "storage_gib", 512);
    json_kv_u64(w, "gpus", t->gpus);
    json_object_end(w);
    json_object_end(w);
}

static const struct fleet_type *type_of(const struct fake_fleet *f, const char *name)
{
    for (uint32_t i = 0; i < f->config.type_count; i++)
        if (strcmp(f->config.type[i].name, name) == 0) return &f->config.type[i];
    return NULL;
}

static void put_actions(struct json_writer *w)
{
    static const char *const names[] = { "migrate", "rebuild", "restart", "cold_reboot",
                                         "terminate" };
    json_key(w, "actions");
    json_object(w);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        json_key(w, names[i]);
        json_object(w);
        json_kv_bool(w, "available", true);
        json_object_end(w);
    }
    json_object_end(w);
}

static const char *status_of(const struct fleet_machine *m, int64_t now_us)
{
    if (m->removed_us > 0 && m->removed_us <= now_us) return m->taken ? "preempted" : "terminating";
    return m->ready_us <= now_us ? "active" : "booting";
}

static void put_instance(struct fake_answer *a, const struct fleet_machine *m)
{
    struct json_writer *w = &a->w;
    char id[ID_DIGITS + 1];
    snprintf(id, sizeof id, "%032llx", (unsigned long long)m->id);
    json_object(w);
    json_kv_text(w, "id", id);
    if (m->name[0]) json_kv_text(w, "name", m->name);
    json_kv_text(w, "ip", "198.51.100.2");
    json_kv_text(w, "private_ip", "10.0.2.100");
    json_kv_text(w, "status", status_of(m, a->now_us));
    json_key(w, "ssh_key_names");
    json_put_raw(w, STR("[\"me\"]"));
    json_key(w, "file_system_names");
    json_put_raw(w, STR("[]"));
    json_key(w, "region");
    put_region(w, m->zone);
    json_key(w, "instance_type");
    put_type(w, type_of(a->fleet, m->type));
    json_kv_text(w, "hostname", "198-51-100-2");
    json_kv_text(w, "jupyter_token", "03b7d30d9d3e4d8fa41657bc0d478c1b");
    put_actions(w);
    json_key(w, "tags");
    json_array(w);
    for (uint32_t i = 0; i < m->tag_count; i++) {
        json_object(w);
        json_kv_text(w, "key", m->tag[i].name);
        json_kv_text(w, "value", m->tag[i].value);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

/* One that was ended is listed as going for a while. */
static bool is_listed(const struct fake_answer *a, const struct fleet_machine *m)
{
    int64_t then_us = a->now_us - a->fleet->config.lag_us;
    bool made = m->made_us <= then_us;
    return made && (m->removed_us == 0 || then_us < m->removed_us + TERMINATING_US);
}

static void list_instances(struct fake_answer *a)
{
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "data");
    json_array(w);
    for (uint32_t i = 0; i < a->fleet->count; i++)
        if (is_listed(a, &a->fleet->machine[i])) put_instance(a, &a->fleet->machine[i]);
    json_array_end(w);
    json_object_end(w);
}

static void list_types(struct fake_answer *a)
{
    const struct fleet_config *c = &a->fleet->config;
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "data");
    json_object(w);
    for (uint32_t i = 0; i < c->type_count; i++) {
        json_key(w, c->type[i].name);
        json_object(w);
        json_key(w, "instance_type");
        put_type(w, &c->type[i]);
        json_key(w, "regions_with_capacity_available");
        json_array(w);
        for (uint32_t z = 0; z < c->zone_count; z++)
            if (a->fleet->stock[i][z] != 0) put_region(w, c->zone[z]);
        json_array_end(w);
        json_object_end(w);
    }
    json_object_end(w);
    json_object_end(w);
}

/* ---- launch ---- */

static const struct form_field image_form[] = { { "id", FORM_TEXT, false, NULL },
                                                { "family", FORM_TEXT, false, NULL },
                                                { 0 } };
static const struct form_field tag_form[] = { { "key", FORM_TEXT, true, NULL },
                                              { "value", FORM_TEXT, true, NULL },
                                              { 0 } };
static const struct form_field ruleset_form[] = { { "id", FORM_TEXT, true, NULL }, { 0 } };
static const struct form_field mount_form[] = { { "mount_point", FORM_TEXT, true, NULL },
                                                { "file_system_id", FORM_TEXT, true, NULL },
                                                { 0 } };
static const struct form_field launch_form[] = {
    { "region_name", FORM_TEXT, true, NULL },
    { "instance_type_name", FORM_TEXT, true, NULL },
    { "ssh_key_names", FORM_TEXTS, true, NULL },
    { "file_system_names", FORM_TEXTS, false, NULL },
    { "file_system_mounts", FORM_OBJECTS, false, mount_form },
    { "hostname", FORM_TEXT, false, NULL },
    { "name", FORM_TEXT, false, NULL },
    { "image", FORM_OBJECT, false, image_form },
    { "user_data", FORM_TEXT, false, NULL },
    { "tags", FORM_OBJECTS, false, tag_form },
    { "firewall_rulesets", FORM_OBJECTS, false, ruleset_form },
    { "quantity", FORM_WHOLE, false,
      NULL }, /* of the older document, which client libraries send */
    { 0 },
};

struct tags {
    struct fleet_tag tag[FLEET_TAGS_MAX];
    uint32_t count;
    const char *problem;
};

static bool is_key(struct str key)
{
    if (key.len < 2 || key.len > TAG_KEY_MAX) return false;
    for (size_t i = 0; i < key.len; i++) {
        char c = key.data[i];
        bool letter = c >= 'a' && c <= 'z';
        if (!letter && !(i > 0 && ((c >= '0' && c <= '9') || c == '-' || c == ':'))) return false;
    }
    return true;
}

static int take_tag(void *ctx, struct str item)
{
    struct tags *t = ctx;
    CLEANUP(buf_fini) struct buf key = { 0 };
    CLEANUP(buf_fini) struct buf value = { 0 };
    must(json_path_text(item, "key", &key) == 0 && json_path_text(item, "value", &value) == 0);
    must(t->count < FLEET_TAGS_MAX);
    if (!is_key(buf_view(&key))) t->problem = "a tag's key";
    if (value.len > TAG_VALUE_MAX) t->problem = "a tag's value is too long";
    struct fleet_tag *tag = &t->tag[t->count++];
    snprintf(tag->name, sizeof tag->name, STR_FMT, STR_ARG(buf_view(&key)));
    snprintf(tag->value, sizeof tag->value, STR_FMT, STR_ARG(buf_view(&value)));
    return 0;
}

static int count_one(void *ctx, struct str item)
{
    (void)item;
    ++*(int *)ctx;
    return 0;
}

/* NULL: the API takes it. */
static const char *problem_of(struct fake_answer *a, struct tags *tags)
{
    static char why[FORM_WHY_BYTES];
    int keys = 0;
    if (form_check(a->ask->body, launch_form, why) < 0) return why;
    json_path_each(a->ask->body, "ssh_key_names", count_one, &keys);
    if (keys != 1) return "exactly one SSH key must be specified";
    if (strlen(fake_text(a, "name")) > NAME_MAX_CHARS) return "name is longer than 64 characters";
    if (strlen(fake_text(a, "user_data")) > USER_DATA_MAX) return "user_data exceeds 1 MB";
    if (fake_text(a, "image.id")[0] && fake_text(a, "image.family")[0])
        return "image: id or family";
    json_path_each(a->ask->body, "tags", take_tag, tags);
    return tags->problem;
}

static void launch(struct fake_answer *a)
{
    struct tags tags = { 0 };
    struct fleet_machine *m;
    const char *type = fake_text(a, "instance_type_name"), *zone = fake_text(a, "region_name");
    const char *problem = problem_of(a, &tags);
    bool refused = fake_meets(a, FLEET_CREATE, type, zone);
    if (problem) {
        fake_refuse_form(a, problem);
        return;
    }
    if (refused) return;
    const char *family = fake_text(a, "image.family");
    const struct fleet_order order = { .name = fake_text(a, "name"),
                                       .type = type,
                                       .zone = zone,
                                       .image = family[0] ? family : fake_text(a, "image.id"),
                                       .user_data = fake_text(a, "user_data"),
                                       .tag = tags.tag,
                                       .tag_count = tags.count };
    if (!fake_make(a, &order, &m)) return;
    char id[ID_DIGITS + 1];
    snprintf(id, sizeof id, "%032llx", (unsigned long long)m->id);
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "data");
    json_object(w);
    json_key(w, "instance_ids");
    json_array(w);
    json_put_text(w, id);
    json_array_end(w);
    json_object_end(w);
    json_object_end(w);
}

/* ---- terminate ---- */

struct ending {
    struct fake_answer *a;
    uint64_t id[16];
    uint32_t count;
    bool absent;
};

static int take_id(void *ctx, struct str item)
{
    struct ending *e = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    char digits[64];
    must(json_path_text(item, "", &text) == 0 && e->count < COUNT_OF(e->id));
    snprintf(digits, sizeof digits, STR_FMT, STR_ARG(buf_view(&text)));
    uint64_t id = strtoull(digits, NULL, 16);
    struct fleet_machine *m = fake_fleet_find(e->a->fleet, id);
    if (!m || m->removed_us > 0 || m->made_us > e->a->now_us) e->absent = true;
    e->id[e->count++] = id;
    return 0;
}

static void terminate(struct fake_answer *a)
{
    static const struct form_field form[] = { { "instance_ids", FORM_TEXTS, true, NULL }, { 0 } };
    char why[FORM_WHY_BYTES];
    struct ending e = { .a = a };
    bool refused = fake_meets(a, FLEET_REMOVE, NULL, NULL);
    if (form_check(a->ask->body, form, why) < 0) {
        fake_refuse_form(a, why);
        return;
    }
    if (refused || fake_is_undone(a)) return;
    json_path_each(a->ask->body, "instance_ids", take_id, &e);
    if (e.absent) {
        fake_refuse(a, 404, "global/object-does-not-exist", "Specified instance does not exist.");
        return;
    }
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "data");
    json_object(w);
    json_key(w, "terminated_instances");
    json_array(w);
    for (uint32_t i = 0; i < e.count; i++) {
        fake_fleet_remove(a->fleet, e.id[i], a->now_us);
        put_instance(a, fake_fleet_find(a->fleet, e.id[i]));
    }
    json_array_end(w);
    json_object_end(w);
    json_object_end(w);
}

/* ---- requests ---- */

static void show_instance(struct fake_answer *a, struct str id_text)
{
    char id[64];
    snprintf(id, sizeof id, STR_FMT, STR_ARG(id_text));
    const struct fleet_machine *m = fake_fleet_find(a->fleet, strtoull(id, NULL, 16));
    if (!m || !is_listed(a, m)) {
        fake_refuse(a, 404, "global/object-does-not-exist", "Specified instance does not exist.");
        return;
    }
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "data");
    put_instance(a, m);
    json_object_end(w);
}

static void route(struct fake_answer *a)
{
    if (a->at.query.len > 0) {
        fake_refuse_form(a, "no parameters are documented");
    } else if (fake_is(a, "POST", "/instance-operations/launch")) {
        launch(a);
    } else if (fake_is(a, "POST", "/instance-operations/terminate")) {
        terminate(a);
    } else if (fake_is(a, "GET", "/instances")) {
        if (!fake_meets(a, FLEET_LIST, NULL, NULL)) list_instances(a);
    } else if (fake_is(a, "GET", "/instance-types")) {
        if (!fake_meets(a, FLEET_PRICES, NULL, NULL)) list_types(a);
    } else if (str_starts(a->at.path, STR("/instances/")) && str_eq(a->ask->method, STR("GET"))) {
        if (!fake_meets(a, FLEET_LIST, NULL, NULL))
            show_instance(a, str_of(a->at.path.data + 11, a->at.path.len - 11));
    } else {
        fake_refuse_form(a, "no such path or method");
    }
}

static const struct fake_api api = {
    .base = "/api/v1", .words = words, .put_error = put_error, .route = route
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
    .bill_unit_s = 60, /* as its price list says */
    .type = { { .name = "gpu_1x_a10",
                .price_udollars_h = 750000,
                .cores = 30,
                .gpus = 1,
                .memory_gib = 200 },
              { .name = "gpu_8x_h100_sxm5",
                .price_udollars_h = 23920000,
                .cores = 208,
                .gpus = 8,
                .memory_gib = 1800 } },
    .type_count = 2,
    .zone = { "us-west-1", "us-east-1", "europe-central-1" },
    .zone_count = 3,
};

const struct cloud_fake fake_lambda = {
    .name = "lambda", .fleet = &sold, .open = open_fake, .respond = respond
};
