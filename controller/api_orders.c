/* api_orders.c - orders of people: pause, scale, tenants, keys, tokens, quarantine. Each is checked
 * whole, done, answered. */
#include "base/io/clock.h"
#include "base/wire/field.h"
#include "base/wire/order.h"
#include "controller/api_part.h"
#include "controller/config.h"

#include <stdio.h>
#include <string.h>

/* The reply to an order that has nothing to show: done, or why not. True: done. */
static bool conclude(struct call *k, int rc, const struct err *err)
{
    if (rc < 0)
        api_refuse_rc(k, rc, err);
    else
        api_done(k);
    return rc >= 0;
}

void api_pause_service(struct call *k)
{
    struct err err = { 0 };
    int rc = control_pause(k->api->control, k->part, k->arg, &err);
    if (conclude(k, rc, &err)) api_tell_urgent(k->api);
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
    if (conclude(k, rc, &err)) api_tell_urgent(k->api);
}

/* A credential, which is shown this once, and what it belongs to. `role` may be NULL. */
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
    api_answer(k, 201, &k->api->out);
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
    show_once(k, "tenant", t.name, NULL, "key", key);
}

void api_remove_tenant(struct call *k)
{
    struct err err = { 0 };
    conclude(k, control_tenant_remove(k->api->control, k->part, &err), &err);
}

void api_open_keys(struct call *k)
{
    struct err err = { 0 };
    int rc = control_keys_open(k->api->control, &err);
    if (rc == 0) log_event(LOG_WARN, "keys_opened_by", "peer=%.*s", STR_ARG(k->req->peer));
    conclude(k, rc, &err);
}

void api_clear_quarantine(struct call *k)
{
    struct err err = { 0 };
    uint64_t fingerprint;
    int rc = quarantine_order_decode(k->req->body, &k->api->arena, &fingerprint, &err);
    if (rc == 0) control_quarantine_clear(k->api->control, fingerprint);
    conclude(k, rc, &err);
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
    show_once(k, "name", t.name, token_role_names[t.role], "token", text);
}

void api_remove_token(struct call *k)
{
    struct err err = { 0 };
    conclude(k, control_token_remove(k->api->control, k->part, &err), &err);
}
