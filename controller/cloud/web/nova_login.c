/* nova_login.c - logs in at Keystone.
 *
 * Rejected: clouds.yaml, whose many forms of authentication come from plug-ins. An openrc is what Horizon hands out,
 * and holds one account, as a credentials file here does. */
#include "controller/cloud/web/nova_login.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"

#include <string.h>

static const struct web_code no_codes[] = { { 0 } };

/* ---- what the account says ---- */

struct account {
    struct str url, region, interface;
    struct str app_id, app_secret;
    struct str user, password, user_domain, project, project_id, project_domain;
};

static const struct {
    const char *name;
    size_t offset;
} variables[] = {
    { "OS_AUTH_URL", offsetof(struct account, url) },
    { "OS_REGION_NAME", offsetof(struct account, region) },
    { "OS_INTERFACE", offsetof(struct account, interface) },
    { "OS_APPLICATION_CREDENTIAL_ID", offsetof(struct account, app_id) },
    { "OS_APPLICATION_CREDENTIAL_SECRET", offsetof(struct account, app_secret) },
    { "OS_USERNAME", offsetof(struct account, user) },
    { "OS_PASSWORD", offsetof(struct account, password) },
    { "OS_USER_DOMAIN_NAME", offsetof(struct account, user_domain) },
    { "OS_PROJECT_NAME", offsetof(struct account, project) },
    { "OS_PROJECT_ID", offsetof(struct account, project_id) },
    { "OS_PROJECT_DOMAIN_NAME", offsetof(struct account, project_domain) },
};

static struct str *member(struct account *a, size_t i)
{
    return (struct str *)((char *)a + variables[i].offset);
}

static struct str unquote(struct str s)
{
    char c = s.len >= 2 ? s.data[0] : 0;
    bool quoted = (c == '"' || c == '\'') && s.data[s.len - 1] == c;
    return quoted ? str_of(s.data + 1, s.len - 2) : s;
}

/* Reads lines NAME=value, with or without `export`; others are passed over. */
static void read_lines(struct str text, struct account *a)
{
    while (text.len > 0) {
        struct str value = str_trim(str_cut(&text, '\n'));
        if (str_starts(value, STR("export ")))
            value = str_trim(str_of(value.data + 7, value.len - 7));
        struct str name = str_cut(&value, '=');
        for (size_t i = 0; i < COUNT_OF(variables); i++)
            if (str_eq(name, str_from(variables[i].name))) *member(a, i) = unquote(str_trim(value));
    }
}

static int read_account(const struct web_provider *p, struct web_op *op, struct account *a,
                        struct err *err)
{
    const struct web_section *s = p->settings->section;
    *a = (struct account){ .interface = STR("public") };
    if (s->credentials_file.len > 0 || s->credentials_env.len > 0) {
        struct str text;
        int rc = web_credentials(p, op, &text, err);
        if (rc < 0) return rc;
        read_lines(text, a);
    } else {
        for (size_t i = 0; i < COUNT_OF(variables); i++) {
            struct str value = web_environment(p->host, str_from(variables[i].name));
            if (value.len > 0) *member(a, i) = value;
        }
    }
    if (s->endpoint.len > 0) a->url = s->endpoint;
    if (s->region.len > 0) a->region = s->region;
    while (a->url.len > 0 && a->url.data[a->url.len - 1] == '/')
        a->url.len--;
    if (a->url.len == 0)
        return err_set(err, -EACCES,
                       "no credentials: name an openrc as credentials_file, or set OS_AUTH_URL and "
                       "the others");
    if ((a->app_id.len == 0 || a->app_secret.len == 0) &&
        (a->user.len == 0 || a->password.len == 0))
        return err_set(
            err, -EACCES,
            "no credentials: want OS_APPLICATION_CREDENTIAL_ID and _SECRET, or OS_USERNAME and "
            "OS_PASSWORD");
    return 0;
}

/* ---- the request ---- */

static void put_domain(struct json_writer *w, struct str name)
{
    json_key(w, "domain");
    json_object(w);
    json_kv_str(w, "name", name.len > 0 ? name : STR("Default"));
    json_object_end(w);
}

static void put_identity(struct json_writer *w, const struct account *a)
{
    bool app = a->app_id.len > 0;
    const char *method = app ? "application_credential" : "password";
    json_key(w, "identity");
    json_object(w);
    json_key(w, "methods");
    json_array(w);
    json_put_text(w, method);
    json_array_end(w);
    json_key(w, method);
    json_object(w);
    if (app) {
        json_kv_str(w, "id", a->app_id);
        json_kv_str(w, "secret", a->app_secret);
    } else {
        json_key(w, "user");
        json_object(w);
        json_kv_str(w, "name", a->user);
        put_domain(w, a->user_domain);
        json_kv_str(w, "password", a->password);
        json_object_end(w);
    }
    json_object_end(w);
    json_object_end(w);
}

/* An application credential has its project in itself. */
static void put_scope(struct json_writer *w, const struct account *a)
{
    if (a->app_id.len > 0) return;
    json_key(w, "scope");
    json_object(w);
    json_key(w, "project");
    json_object(w);
    if (a->project_id.len > 0) {
        json_kv_str(w, "id", a->project_id);
    } else {
        json_kv_str(w, "name", a->project);
        put_domain(w, a->project_domain);
    }
    json_object_end(w);
    json_object_end(w);
}

static void ask(struct web_provider *p, struct web_op *op, const struct account *a,
                struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    const char *version = str_ends(a->url, STR("/v3")) ? "" : "/v3";
    json_writer_init(&w, &body);
    json_object(&w);
    json_key(&w, "auth");
    json_object(&w);
    put_identity(&w, a);
    put_scope(&w, a);
    json_object_end(&w);
    json_object_end(&w);
    if (web_login_set(&p->login.key, a->app_id.len > 0 ? a->app_secret : a->password) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for credentials");
    else if (web_ask(op, ret, "POST", STR_FMT "%s/auth/tokens", STR_ARG(a->url), version) == 0)
        web_ask_body(op, ret, "application/json", &body);
    if (body.data) explicit_bzero(body.data, body.len);
}

/* ---- the reply ---- */

struct search {
    const struct account *account;
    struct arena *arena;
    struct str url;
    uint32_t found; /* endpoints of other regions count too where none is named */
};

static int take_endpoint(void *ctx, struct str item)
{
    struct search *s = ctx;
    bool here = s->account->region.len == 0 || web_text_is(item, "region", s->account->region) ||
                web_text_is(item, "region_id", s->account->region);
    if (!here || !web_text_is(item, "interface", s->account->interface)) return 0;
    s->url = web_text_at(s->arena, item, "url");
    s->found++;
    return 0;
}

static int take_service(void *ctx, struct str item)
{
    bool is_compute = web_text_is(item, "type", STR("compute"));
    return is_compute ? json_path_each(item, "endpoints", take_endpoint, ctx) : 0;
}

static void take_token(struct web_provider *p, struct web_op *op, const struct account *a,
                       const struct web_reply *r, const struct web_moment *at, struct web_step *ret)
{
    struct search s = { .account = a, .arena = op->arena };
    struct str token = web_reply_header(r, "x-subject-token");
    int64_t expires_us;
    if (token.len == 0 || json_path_each(r->body, "token.catalog", take_service, &s) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "the reply of Identity has no token or no catalogue");
        return;
    }
    if (s.found != 1) {
        web_refuse(ret, OFFER_AUTH,
                   "the catalogue has %u endpoints of Compute for interface " STR_FMT
                   " and region '" STR_FMT "'; name `region`, or OS_INTERFACE",
                   s.found, STR_ARG(a->interface), STR_ARG(a->region));
        return;
    }
    while (s.url.len > 0 && s.url.data[s.url.len - 1] == '/')
        s.url.len--;
    p->login.expires_us = 0;
    if (date_parse(web_text_at(op->arena, r->body, "token.expires_at"), &expires_us) == 0)
        p->login.expires_us = max_i64(1, at->now_us + expires_us - at->wall_us);
    if (web_login_set(&p->login.token, token) < 0 || web_login_set(&p->login.endpoint, s.url) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a token");
    else
        web_succeed(ret);
}

void nova_login(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                const struct web_moment *at, struct web_step *ret)
{
    struct err err = { 0 };
    struct account a;
    int rc = read_account(p, op, &a, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_AUTH, "%s", err.text);
    else if (!reply)
        ask(p, op, &a, ret);
    else if (reply->status == 201)
        take_token(p, op, &a, reply, at, ret);
    else
        web_refuse_reply(p, op, reply, no_codes, (struct str){ 0 },
                         web_text_at(op->arena, reply->body, "error.message"), ret);
}
