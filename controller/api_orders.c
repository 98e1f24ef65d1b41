/* api_orders.c - orders of people: pause, scale, tenants and keys. Each is checked whole, done, answered. */
#include "base/io/clock.h"
#include "base/wire/field.h"
#include "base/wire/order.h"
#include "controller/api_part.h"
#include "controller/config.h"

#include <string.h>

void api_pause_service(struct call *k)
{
    struct err err = { 0 };
    int rc = control_pause(k->api->control, k->part, k->arg, &err);
    if (rc < 0) {
        api_refuse_rc(k, rc, &err);
        return;
    }
    api_done(k);
    api_tell_urgent(k->api);
}

void api_scale_service(struct call *k)
{
    struct scale_order order;
    struct err err = { 0 };
    int rc = scale_order_decode(k->req->body, &k->api->arena, &order, &err);
    if (rc == 0 && order.count > CONTROL_COUNT_MAX)
        rc = err_set(&err, -ERANGE, "count: want 0 to %d, or null", CONTROL_COUNT_MAX);
    if (rc == 0)
        rc = control_scale(k->api->control, k->part, order.pool, (int32_t)order.count, &err);
    if (rc < 0) {
        api_refuse_rc(k, rc, &err);
        return;
    }
    api_done(k);
    api_tell_urgent(k->api);
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
};
static const struct field_set tenant_set = FIELD_SET(struct tenant_order, tenant_fields);

void api_add_tenant(struct call *k)
{
    struct tenant_order t = { 0 };
    struct err err = { 0 };
    char key[TENANT_KEY_BYTES];
    int rc = fields_decode(&tenant_set, k->req->body, &k->api->arena, &t, "the tenant", &err);
    if (rc == 0)
        rc = control_tenant_add(k->api->control, t.name, &t.limits, clock_wall_us(), key, &err);
    if (rc < 0) {
        api_refuse_rc(k, rc, &err);
        return;
    }
    struct json_writer w;
    json_writer_init(&w, &k->api->out);
    json_object(&w);
    json_kv_str(&w, "tenant", t.name);
    json_kv_text(&w, "key", key);
    json_kv_text(&w, "note", "the key is shown this once");
    json_object_end(&w);
    explicit_bzero(key, sizeof key);
    api_answer(k, 201, &k->api->out);
}

void api_remove_tenant(struct call *k)
{
    struct err err = { 0 };
    int rc = control_tenant_remove(k->api->control, k->part, &err);
    if (rc < 0)
        api_refuse_rc(k, rc, &err);
    else
        api_done(k);
}

void api_open_keys(struct call *k)
{
    struct err err = { 0 };
    int rc = control_keys_open(k->api->control, &err);
    if (rc < 0) {
        api_refuse_rc(k, rc, &err);
        return;
    }
    log_event(LOG_WARN, "keys_opened_by", "peer=%.*s", STR_ARG(k->req->peer));
    api_done(k);
}

void api_clear_quarantine(struct call *k)
{
    struct err err = { 0 };
    uint64_t fingerprint;
    int rc = quarantine_order_decode(k->req->body, &k->api->arena, &fingerprint, &err);
    if (rc < 0) {
        api_refuse_rc(k, rc, &err);
        return;
    }
    control_quarantine_clear(k->api->control, fingerprint);
    api_done(k);
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

void api_add_token(struct call *k)
{
    struct token_order t = { 0 };
    struct err err = { 0 };
    char text[TOKEN_TEXT_BYTES];
    int rc = fields_decode(&token_set, k->req->body, &k->api->arena, &t, "the token", &err);
    if (rc == 0)
        rc = control_token_add(k->api->control, t.name, t.role, clock_wall_us(), text, &err);
    if (rc < 0) {
        api_refuse_rc(k, rc, &err);
        return;
    }
    struct json_writer w;
    json_writer_init(&w, &k->api->out);
    json_object(&w);
    json_kv_str(&w, "name", t.name);
    json_kv_text(&w, "role", token_role_names[t.role]);
    json_kv_text(&w, "token", text);
    json_kv_text(&w, "note", "the token is shown this once");
    json_object_end(&w);
    explicit_bzero(text, sizeof text);
    api_answer(k, 201, &k->api->out);
}

void api_remove_token(struct call *k)
{
    struct err err = { 0 };
    int rc = control_token_remove(k->api->control, k->part, &err);
    if (rc < 0)
        api_refuse_rc(k, rc, &err);
    else
        api_done(k);
}
