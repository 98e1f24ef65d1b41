/* fake_runpod.c - speaks version 2 of RunPod's REST API over a fake fleet.
 *
 * Written from the provider's OpenAPI document of version 2.0.0: members of a create, what a Pod and a type of GPU must
 * have, problem documents (RFC 9457) as errors, the meaning of each status. The environment that a create sends is kept
 * as its JSON, in place of user data. */
#include "tests/fakes/cloud/fake_runpod.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake {
    struct fake_fleet *fleet;
    const char *token;
    int64_t date_us;
};

static const struct fake_words words[] = {
    { FLEET_STOCK_OUT, 400, "Bad Request",
      "There are no longer any instances available with the requested specifications." },
    { FLEET_QUOTA, 402, "Payment Required", "insufficient balance" },
    { FLEET_THROTTLE, 429, "Too Many Requests", "rate limit exceeded for the minute window" },
    { FLEET_AUTH, 401, "Unauthorized", "invalid bearer token" },
    { FLEET_FORBIDDEN, 403, "Forbidden", "access denied" },
    { FLEET_INVALID, 422, "Unprocessable Entity", "Request validation failed." },
    { FLEET_SERVER_ERROR, 500, "Internal Server Error", "upstream failed" },
    { FLEET_UNKNOWN_CODE, 409, "Conflict", "words that are in no table" },
    { 0 },
};

static void put_error(struct fake_answer *a, const char *title, const char *detail)
{
    struct json_writer *w = &a->w;
    json_object(w);
    json_kv_text(w, "title", title);
    json_kv_i64(w, "status", a->status);
    json_kv_text(w, "detail", detail);
    json_object_end(w);
}

/* ---- Pods ---- */

static void put_time(struct fake_answer *a, const char *key, int64_t us)
{
    char text[DATE_BYTES];
    date_print(us + a->date_us, text);
    json_kv_text(&a->w, key, text);
}

static const char *status_of(const struct fleet_machine *m, int64_t now_us)
{
    if (m->taken && m->removed_us <= now_us) return "EXITED";
    return m->ready_us <= now_us ? "RUNNING" : "PROVISIONING";
}

static void put_pod(struct fake_answer *a, const struct fleet_machine *m)
{
    struct json_writer *w = &a->w;
    char id[32];
    snprintf(id, sizeof id, "pod%llu", (unsigned long long)m->id);
    json_object(w);
    json_kv_text(w, "id", id);
    json_kv_text(w, "name", m->name);
    json_kv_text(w, "status", status_of(m, a->now_us));
    json_key(w, "actions");
    json_put_raw(w, STR("[\"stop\",\"terminate\"]"));
    json_kv_text(w, "image", m->image);
    json_kv_text(w, "args", "");
    json_kv_i64(w, "disk", 50);
    json_key(w, "mounts");
    json_put_raw(w, STR("{}"));
    json_key(w, "ports");
    json_put_raw(w, STR("[]"));
    json_key(w, "env");
    json_put_raw(w, m->user_data[0] ? str_from(m->user_data) : STR("{}"));
    json_key(w, "gpu");
    json_object(w);
    json_kv_text(w, "id", m->type);
    json_kv_i64(w, "count", 1);
    json_kv_i64(w, "vcpuCount", 8);
    json_kv_i64(w, "memory", 64);
    json_object_end(w);
    json_kv_text(w, "cloud", "SECURE");
    json_kv_text(w, "dataCenterId", m->zone);
    json_kv_f64(w, "cost", (double)m->price_udollars_h / 1e6);
    json_kv_bool(w, "locked", false);
    json_key(w, "globalNetworking");
    json_put_raw(w, STR("{\"enabled\":false}"));
    json_key(w, "runtime");
    json_put_null(w);
    put_time(a, "createdAt", m->made_us);
    json_key(w, "startedAt");
    json_put_null(w);
    json_object_end(w);
}

/* A Pod that was deleted is listed no more; one that was taken is, as EXITED. */
static bool is_listed(const struct fake_answer *a, const struct fleet_machine *m)
{
    int64_t then_us = a->now_us - a->fleet->config.lag_us;
    return m->made_us <= then_us && (m->removed_us == 0 || m->taken || m->removed_us > then_us);
}

static void list_pods(struct fake_answer *a)
{
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "pods");
    json_array(w);
    for (uint32_t i = 0; i < a->fleet->count; i++)
        if (is_listed(a, &a->fleet->machine[i])) put_pod(a, &a->fleet->machine[i]);
    json_array_end(w);
    json_object_end(w);
}

/* ---- the catalog ---- */

static void put_centers(struct fake_answer *a, uint32_t type)
{
    struct json_writer *w = &a->w;
    const struct fleet_config *c = &a->fleet->config;
    json_key(w, "dataCenters");
    json_array(w);
    for (uint32_t z = 0; z < c->zone_count; z++) {
        json_object(w);
        json_kv_text(w, "id", c->zone[z]);
        json_kv_text(w, "name", c->zone[z]);
        json_kv_text(w, "availability", a->fleet->stock[type][z] != 0 ? "LOW" : "NONE");
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_gpu(struct fake_answer *a, uint32_t type)
{
    struct json_writer *w = &a->w;
    const struct fleet_type *t = &a->fleet->config.type[type];
    bool some = false;
    for (uint32_t z = 0; z < a->fleet->config.zone_count; z++)
        some = some || a->fleet->stock[type][z] != 0;
    json_object(w);
    json_kv_text(w, "id", t->name);
    json_kv_text(w, "name", t->name);
    json_key(w, "pool");
    json_put_null(w);
    json_kv_text(w, "manufacturer", "NVIDIA");
    json_kv_i64(w, "memory", 24);
    json_kv_bool(w, "secure", true);
    json_kv_bool(w, "community", false);
    json_key(w, "price");
    json_object(w);
    json_kv_f64(w, "secure", (double)t->price_udollars_h / 1e6);
    json_kv_f64(w, "community", 0);
    json_object_end(w);
    json_key(w, "maxCount");
    json_put_raw(w, STR("{\"secure\":8,\"community\":0}"));
    json_kv_text(w, "availability", some ? "HIGH" : "NONE");
    if (some) put_centers(a, type);
    json_object_end(w);
}

static void list_gpus(struct fake_answer *a)
{
    static const char *const known[] = { "include",      "product",      "count",          "cloud",
                                         "countryCodes", "cudaVersions", "minCudaVersion", NULL };
    char why[FORM_WHY_BYTES];
    struct str include = form_query(a->arena, a->at.query, "include");
    struct str product = form_query(a->arena, a->at.query, "product");
    if (form_query_check(a->at.query, known, why) < 0) {
        fake_refuse_form(a, why);
        return;
    }
    if (!str_eq(include, STR("AVAILABILITY")) || !str_eq(product, STR("POD"))) {
        fake_refuse_form(a, "product belongs to include=AVAILABILITY");
        return;
    }
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "gpus");
    json_array(w);
    for (uint32_t i = 0; i < a->fleet->config.type_count; i++)
        put_gpu(a, i);
    json_array_end(w);
    json_object_end(w);
}

/* ---- create ---- */

static const struct form_field gpu_form[] = { { "id", FORM_TEXT, true, NULL },
                                              { "count", FORM_WHOLE, false, NULL },
                                              { "allowedCudaVersions", FORM_TEXTS, false, NULL },
                                              { "minCudaVersion", FORM_TEXT, false, NULL },
                                              { "minRamPerGpu", FORM_WHOLE, false, NULL },
                                              { "minVcpuCountPerGpu", FORM_WHOLE, false, NULL },
                                              { 0 } };
static const struct form_field pod_form[] = {
    { "name", FORM_TEXT, true, NULL },
    { "image", FORM_TEXT, true, NULL },
    { "args", FORM_TEXT, false, NULL },
    { "disk", FORM_WHOLE, false, NULL },
    { "env", FORM_MAP, false, NULL },
    { "ports", FORM_TEXTS, false, NULL },
    { "registry", FORM_TEXT, false, NULL },
    { "mounts", FORM_ANY, false, NULL },
    { "gpu", FORM_OBJECT, true, gpu_form },
    { "cloud", FORM_TEXT, false, NULL },
    { "dataCenterIds", FORM_TEXTS, false, NULL },
    { "globalNetworking", FORM_BOOL, false, NULL },
    { "startJupyter", FORM_BOOL, false, NULL },
    { "startSsh", FORM_BOOL, false, NULL },
    { "templateId", FORM_TEXT, false, NULL },
    { 0 },
};

/* Takes the first preferred data center that has the type. */
struct placing {
    struct fake_answer *a;
    const char *type;
    char zone[FLEET_TEXT];
    bool asked;
};

static void try_zone(struct placing *p, uint32_t z)
{
    const struct fleet_config *c = &p->a->fleet->config;
    for (uint32_t t = 0; t < c->type_count; t++)
        if (strcmp(c->type[t].name, p->type) == 0 && p->a->fleet->stock[t][z] != 0 && !p->zone[0])
            snprintf(p->zone, sizeof p->zone, "%s", c->zone[z]);
}

static int take_zone(void *ctx, struct str item)
{
    struct placing *p = ctx;
    CLEANUP(buf_fini) struct buf id = { 0 };
    const struct fleet_config *c = &p->a->fleet->config;
    must(json_path_text(item, "", &id) == 0);
    p->asked = true;
    for (uint32_t z = 0; z < c->zone_count; z++)
        if (str_eq(buf_view(&id), str_from(c->zone[z]))) try_zone(p, z);
    return 0;
}

static const char *env_of(struct fake_answer *a)
{
    struct str env;
    if (json_path(a->ask->body, "env", &env) < 0) return "";
    return arena_str(a->arena, env).data;
}

static void create_pod(struct fake_answer *a)
{
    char why[FORM_WHY_BYTES];
    struct fleet_machine *m;
    struct fleet_tag tag[FLEET_TAGS_MAX];
    struct placing p = { .a = a, .type = fake_text(a, "gpu.id") };
    json_path_each(a->ask->body, "dataCenterIds", take_zone, &p);
    for (uint32_t z = 0; z < a->fleet->config.zone_count && !p.asked; z++)
        try_zone(&p, z);
    bool refused = fake_meets(a, FLEET_CREATE, p.type, p.zone);
    if (form_check(a->ask->body, pod_form, why) < 0) {
        fake_refuse_form(a, why);
        return;
    }
    if (refused) return;
    if (!p.zone[0]) {
        fake_refuse(a, words[0].status, words[0].code, words[0].message);
        return;
    }
    struct fleet_order order = { .name = fake_text(a, "name"),
                                 .type = p.type,
                                 .zone = p.zone,
                                 .image = fake_text(a, "image"),
                                 .user_data = env_of(a),
                                 .tag = tag };
    order.tag_count = fake_tags_of_env(str_from(order.user_data), tag);
    if (!fake_make(a, &order, &m)) return;
    fake_reply(a, 201);
    put_pod(a, m);
}

/* ---- requests ---- */

static void of_pod(struct fake_answer *a, struct str id_text)
{
    uint64_t id = 0;
    bool deletes = str_eq(a->ask->method, STR("DELETE"));
    bool named = str_starts(id_text, STR("pod")) &&
                 str_to_u64(str_of(id_text.data + 3, id_text.len - 3), &id) == 0;
    if (fake_meets(a, deletes ? FLEET_REMOVE : FLEET_LIST, NULL, NULL)) return;
    struct fleet_machine *m = named ? fake_fleet_find(a->fleet, id) : NULL;
    bool there = m && m->made_us <= a->now_us && (m->removed_us == 0 || m->taken);
    if (!deletes && there) {
        fake_reply(a, 200);
        put_pod(a, m);
    } else if (!there) {
        fake_refuse(a, 404, "Not Found", "resource not found");
    } else if (!fake_is_undone(a)) {
        fake_fleet_remove(a->fleet, id, a->now_us);
        m->taken = false;
        fake_reply(a, 204);
    }
}

static void route(struct fake_answer *a)
{
    bool one = str_starts(a->at.path, STR("/pods/"));
    bool reads = str_eq(a->ask->method, STR("GET"));
    if (fake_is(a, "GET", "/catalog/gpus")) {
        if (!fake_meets(a, FLEET_PRICES, NULL, NULL)) list_gpus(a);
    } else if (a->at.query.len > 0) {
        fake_refuse_form(a, "no such parameter");
    } else if (fake_is(a, "POST", "/pods")) {
        create_pod(a);
    } else if (fake_is(a, "GET", "/pods")) {
        if (!fake_meets(a, FLEET_LIST, NULL, NULL)) list_pods(a);
    } else if (one && (reads || str_eq(a->ask->method, STR("DELETE")))) {
        of_pod(a, str_of(a->at.path.data + 6, a->at.path.len - 6));
    } else {
        fake_refuse_form(a, "no such path or method");
    }
}

static const struct fake_api api = {
    .base = "/v2", .words = words, .retry_after = true, .put_error = put_error, .route = route
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
    .type = { { .name = "NVIDIA GeForce RTX 4090", .price_udollars_h = 690000, .gpus = 1 },
              { .name = "NVIDIA H100 80GB HBM3", .price_udollars_h = 2990000, .gpus = 1 } },
    .type_count = 2,
    .zone = { "US-KS-2", "EU-RO-1", "US-TX-3" },
    .zone_count = 3,
};

const struct cloud_fake fake_runpod = {
    .name = "runpod", .fleet = &sold, .open = open_fake, .respond = respond
};
