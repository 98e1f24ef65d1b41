/* api_orders.c - carries out what people order by the controller's API, and keeps the record of it. */
#include "base/io/loop/clock.h"
#include "base/wire/field.h"
#include "base/wire/order.h"
#include "controller/api_call.h"
#include "controller/config.h"
#include "controller/orders.h"

#include <stdio.h>
#include <string.h>

/* Keeps a person's order in the record. */
static void keep_order(struct call *k, struct control_order order)
{
    char by[BY_BYTES];
    (void)call_by(k, by);
    order.by = by;
    control_order_done(k->api->control, &order, api_now(k->api));
}

/* Replies to an order that has nothing to show: done, or why not. A done one is kept in the record. */
static void conclude(struct call *k, int rc, const struct err *err, struct control_order order)
{
    if (rc < 0) {
        call_refuse_rc(k, rc, err);
        return;
    }
    keep_order(k, order);
    call_done(k);
    call_tell_urgent(k->api);
}

void order_pause(struct call *k)
{
    struct err err = { 0 };
    int rc = control_pause(k->api->control, k->part, k->arg, &err);
    conclude(k, rc, &err,
             (struct control_order){ .what = k->arg ? "pause" : "resume", .service = k->part });
}

void order_scale(struct call *k)
{
    struct scale_order order;
    struct err err = { 0 };
    int rc = scale_order_decode(k->req->body, &k->api->arena, &order, &err);
    if (rc == 0 && order.count > CONTROL_COUNT_MAX)
        rc = err_set(&err, -ERANGE, "count: want 0 to %d, or null", CONTROL_COUNT_MAX);
    if (rc == 0)
        rc = control_scale(k->api->control, k->part, order.pool, (int32_t)order.count, &err);
    char text[32] = "auto";
    if (order.count >= 0) snprintf(text, sizeof text, "%lld", (long long)order.count);
    conclude(k, rc, &err,
             (struct control_order){
                 .what = "scale", .service = k->part, .pool = order.pool, .text = text });
}

void order_drain(struct call *k)
{
    struct drain_order o;
    struct err err = { 0 };
    char text[NAME_BYTES + 16] = "";
    int rc = drain_order_decode(k->req->body, &k->api->arena, &o, &err);
    if (rc == 0) rc = control_drain(k->api->control, &o, api_now(k->api), &k->api->out, &err);
    if (rc < 0) {
        call_refuse_rc(k, rc, &err);
        return;
    }
    if (o.node.len) snprintf(text, sizeof text, "node %.*s", NAME_BYTES, o.node.data);
    keep_order(k, (struct control_order){ .what = o.undo ? "undo_drain" : "drain",
                                          .service = o.service,
                                          .pool = o.pool,
                                          .instance = o.instance,
                                          .text = text });
    call_answer(k, 200, &k->api->out);
    call_tell_urgent(k->api);
}

/* Replies with a new credential, shown this once, and its owner. `role` may be NULL. */
static void show_once(struct call *k, const char *owner, struct str name, const char *role,
                      const char *kind, char *secret)
{
    char note[48];
    struct json_writer w;
    snprintf(note, sizeof note, "the %s is shown this once", kind);
    json_writer_init(&w, &k->api->out);
    json_object(&w);
    json_kv_str(&w, owner, name);
    if (role) json_kv_text(&w, "role", role);
    json_kv_text(&w, kind, secret);
    json_kv_text(&w, "note", note);
    json_object_end(&w);
    explicit_bzero(secret, strlen(secret));
    call_answer(k, 201, &k->api->out);
}

/* Shows orphans; POST removes those that may go. */
void order_gc(struct call *k)
{
    struct err err = { 0 };
    uint32_t removed = 0;
    char text[32];
    bool remove = k->arg;
    int rc = control_gc(k->api->control, remove, api_now(k->api), &k->api->out, &removed, &err);
    if (rc < 0) {
        call_refuse_rc(k, rc, &err);
        return;
    }
    snprintf(text, sizeof text, "%u removed", removed);
    if (remove) keep_order(k, (struct control_order){ .what = "gc", .text = text });
    call_answer(k, 200, &k->api->out);
    call_tell_urgent(k->api);
}

void order_show_config(struct call *k)
{
    const struct api_config *c = &k->api->config;
    if (!c->show_config)
        call_refuse(k, 404, "not_found", "this controller shows no configuration");
    else if (c->show_config(c->arg, &k->api->out) < 0)
        call_refuse(k, 500, "failed", "the configuration does not fit");
    else
        call_answer(k, 200, &k->api->out);
}

static const struct field config_fields[] = {
    FIELD(struct config_order, name, FIELD_STR, .required = true, .min = 1, .max = 255),
    FIELD(struct config_order, text, FIELD_STR, .max = (double)BODY_BYTES_MAX),
    FIELD(struct config_order, dry_run, FIELD_BOOL),
    FIELD(struct config_order, generation, FIELD_U64),
};
static const struct field_set config_set = FIELD_SET(struct config_order, config_fields);

void order_apply_config(struct call *k)
{
    const struct api_config *c = &k->api->config;
    struct config_order o = { 0 };
    struct err err = { 0 };
    char by[BY_BYTES];
    (void)call_by(k, by);
    if (!c->apply_config) {
        call_refuse(k, 404, "not_found", "this controller takes no configuration");
        return;
    }
    int rc = fields_decode(&config_set, k->req->body, &k->api->arena, &o, "the order", &err);
    if (rc == 0) rc = c->apply_config(c->arg, &o, by, &k->api->out, &err);
    if (rc < 0)
        call_refuse_rc(k, rc, &err);
    else
        call_answer(k, 200, &k->api->out);
}

/* Keeps an order about a tenant or token of this name. */
static void keep_named(struct call *k, const char *what, struct str name)
{
    char text[NAME_BYTES];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(name));
    keep_order(k, (struct control_order){ .what = what, .text = text });
}

static void conclude_named(struct call *k, int rc, const struct err *err, const char *what)
{
    char text[NAME_BYTES];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(k->part));
    conclude(k, rc, err, (struct control_order){ .what = what, .text = text });
}

struct tenant_order {
    struct str name;
    struct tenant_limits limits;
};

static const struct field tenant_fields[] = {
    FIELD(struct tenant_order, name, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES - 1),
    FIELD_AS("requests_per_min", struct tenant_order, limits.requests_per_min, FIELD_U32),
    FIELD_AS("tokens_per_min", struct tenant_order, limits.tokens_per_min, FIELD_U32),
    FIELD_AS("concurrency", struct tenant_order, limits.concurrency, FIELD_U32),
    FIELD_AS("weight", struct tenant_order, limits.weight, FIELD_F64, .max = TENANT_WEIGHT_MAX),
};
static const struct field_set tenant_set = FIELD_SET(struct tenant_order, tenant_fields);

void order_add_tenant(struct call *k)
{
    struct tenant_order t = { 0 };
    struct err err = { 0 };
    char key[TENANT_KEY_BYTES];
    int rc = fields_decode(&tenant_set, k->req->body, &k->api->arena, &t, "the tenant", &err);
    if (rc == 0)
        rc = control_tenant_add(k->api->control, t.name, &t.limits, clock_wall_us(), key, &err);
    if (rc < 0) {
        call_refuse_rc(k, rc, &err);
        return;
    }
    keep_named(k, "tenant_create", t.name);
    show_once(k, "tenant", t.name, NULL, "key", key);
}

void order_remove_tenant(struct call *k)
{
    struct err err = { 0 };
    conclude_named(k, control_tenant_remove(k->api->control, k->part, &err), &err, "tenant_remove");
}

void order_open_keys(struct call *k)
{
    struct err err = { 0 };
    int rc = control_keys_open(k->api->control, &err);
    if (rc == 0) log_event(LOG_WARN, "keys_opened_by", "peer=%.*s", STR_ARG(k->req->peer));
    conclude(k, rc, &err, (struct control_order){ .what = "keys_open" });
}

void order_clear_quarantine(struct call *k)
{
    struct err err = { 0 };
    uint64_t fingerprint;
    int rc = quarantine_order_decode(k->req->body, &k->api->arena, &fingerprint, &err);
    if (rc == 0) control_quarantine_clear(k->api->control, fingerprint);
    conclude(k, rc, &err, (struct control_order){ .what = "quarantine_clear" });
}

struct token_order {
    struct str name;
    enum token_role role;
};

static const struct field token_fields[] = {
    FIELD(struct token_order, name, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES - 1),
    FIELD(struct token_order, role, FIELD_ENUM, .required = true, .names = token_role_names,
          .max = TOKEN_ROLE_COUNT),
};
static const struct field_set token_set = FIELD_SET(struct token_order, token_fields);

void order_add_token(struct call *k)
{
    struct token_order t = { 0 };
    struct err err = { 0 };
    char text[TOKEN_TEXT_BYTES];
    int rc = fields_decode(&token_set, k->req->body, &k->api->arena, &t, "the token", &err);
    if (rc == 0)
        rc = control_token_add(k->api->control, t.name, t.role, clock_wall_us(), text, &err);
    if (rc < 0) {
        call_refuse_rc(k, rc, &err);
        return;
    }
    keep_named(k, "token_create", t.name);
    show_once(k, "name", t.name, token_role_names[t.role], "token", text);
}

void order_remove_token(struct call *k)
{
    struct err err = { 0 };
    conclude_named(k, control_token_remove(k->api->control, k->part, &err), &err, "token_remove");
}
