/* gce_federation.c - gets access tokens of Google for an identity that another provider vouches for.
 *
 * Left out: sources that are signed requests of AWS, programs and certificates, and people (workforce pools), each of
 * which needs a client of its own; they are refused by name. The configuration is read anew for each step: it holds
 * nothing secret but headers of a source, and a login is four requests at most.
 *
 * Sources: AIP-4117 "External Account Credentials", RFC 8693, "Method: token" of the Security Token Service API and
 * "projects.serviceAccounts.generateAccessToken" of the IAM Service Account Credentials API. */
#include "controller/cloud/web/gce_federation.h"

#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "base/io/net/addr.h"
#include "controller/cloud/web/gce_login.h"
#include "controller/cloud/web/web_step.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CLOUD_SCOPE "https://www.googleapis.com/auth/cloud-platform" /* impersonation needs it */
#define TOKEN_BYTES_MAX ((size_t)64 << 10)
#define SOURCE_HEADERS_MAX 8
#define LIFETIME_S 3600
#define LIFETIME_S_MIN 600
#define LIFETIME_S_MAX 43200

/* Stages of the login; gce_login.c has those below. */
enum { STAGE_SOURCE = GCE_LOGIN_FEDERATED, STAGE_EXCHANGE, STAGE_IMPERSONATE };

bool gce_is_federated(struct str credentials)
{
    return web_text_is(credentials, "type", STR("external_account"));
}

static void no_memory(struct web_step *ret)
{
    web_refuse(ret, OFFER_TRANSIENT, "no memory for a login");
}

/* Returns true if what is sent to the URL is read by nobody on the way: it is encrypted, or stays on this machine or on its
 * own link, as metadata services do. */
static bool is_private(struct str url, bool link_too)
{
    for (size_t i = 0; i < url.len; i++)
        if (url.data[i] <= ' ' || url.data[i] > '~') return false;
    return addr_url_is_private(url) ||
           (link_too && str_starts(url, STR("http://169.254.169.254/")));
}

static bool is_token(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] <= ' ' || s.data[i] > '~') return false;
    return s.len > 0 && s.len <= TOKEN_BYTES_MAX;
}

static void wipe(struct buf *b)
{
    if (b->data) explicit_bzero(b->data, b->len);
}

/* ---- the exchange ---- */

static void put_form(struct buf *out, const char *name, struct str value)
{
    if (out->len > 0) buf_byte(out, '&');
    buf_text(out, name);
    buf_byte(out, '=');
    web_url_part(out, value);
}

static bool impersonates(struct str credentials)
{
    struct str url;
    return json_path(credentials, "service_account_impersonation_url", &url) == 0;
}

static struct str scope_of(const struct web_provider *p)
{
    return str_from(p->kind->token_for ? p->kind->token_for : GCE_SCOPE);
}

static void ask_exchange(struct web_provider *p, struct web_op *op, struct str credentials,
                         struct str subject, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct str url = web_text_at(op->arena, credentials, "token_url");
    struct str audience = web_text_at(op->arena, credentials, "audience");
    struct str type = web_text_at(op->arena, credentials, "subject_token_type");
    if (!is_token(subject)) {
        web_refuse(ret, OFFER_AUTH, "credential_source has no token: one line without blanks");
        return;
    }
    if (!is_private(url, false)) {
        web_refuse(ret, OFFER_AUTH, "the credentials' token_url is not https://");
        return;
    }
    if (audience.len == 0 || type.len == 0) {
        web_refuse(ret, OFFER_AUTH, "the credentials lack an audience or a subject_token_type");
        return;
    }
    put_form(&body, "grant_type", STR("urn:ietf:params:oauth:grant-type:token-exchange"));
    put_form(&body, "audience", audience);
    put_form(&body, "scope", impersonates(credentials) ? STR(CLOUD_SCOPE) : scope_of(p));
    put_form(&body, "requested_token_type", STR("urn:ietf:params:oauth:token-type:access_token"));
    put_form(&body, "subject_token_type", type);
    put_form(&body, "subject_token", subject);
    op->stage = STAGE_EXCHANGE;
    if (web_login_set(&p->login.key, subject) < 0)
        no_memory(ret);
    else if (web_ask(op, ret, "POST", STR_FMT, STR_ARG(url)) == 0)
        web_ask_body(op, ret, "application/x-www-form-urlencoded", &body);
    wipe(&body);
}

/* ---- the subject token ---- */

struct wanted_member {
    struct str want;
    struct buf *out;
};

static int take_field(void *ctx, struct str name, struct str value)
{
    struct wanted_member *f = ctx;
    if (!str_eq(name, f->want)) return 0;
    return json_path_text(value, "", f->out) < 0 ? -EINVAL : 1;
}

/* Finds the token in what a source gave, as text or in a member of a JSON object. */
static void take_subject(struct web_provider *p, struct web_op *op, struct str credentials,
                         struct str text, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf token = { .max = TOKEN_BYTES_MAX };
    struct str format = web_text_at(op->arena, credentials, "credential_source.format.type");
    struct wanted_member f = { .out = &token,
                               .want = web_text_at(
                                   op->arena, credentials,
                                   "credential_source.format.subject_token_field_name") };
    if (format.len == 0 || str_eq(format, STR("text"))) {
        while (text.len > 0 && (unsigned char)text.data[text.len - 1] <= ' ')
            text.len--; /* files end with a line break */
        ask_exchange(p, op, credentials, text, ret);
        return;
    }
    if (!str_eq(format, STR("json")) || f.want.len == 0)
        web_refuse(ret, OFFER_AUTH,
                   "credential_source.format: want type text, or json with "
                   "subject_token_field_name");
    else if (json_path_each_member(text, "", take_field, &f) != 1)
        web_refuse(ret, OFFER_AUTH, "credential_source has no text " STR_FMT, STR_ARG(f.want));
    else
        ask_exchange(p, op, credentials, buf_view(&token), ret);
    wipe(&token);
}

static void read_file(struct web_provider *p, struct web_op *op, struct str credentials,
                      struct str path, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf text = { .max = TOKEN_BYTES_MAX };
    struct err err = { 0 };
    int rc = p->host->read_secret(p->host->ctx, path.data, &text, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_AUTH, "credential_source: %s",
                   err_text(&err, rc));
    else
        take_subject(p, op, credentials, buf_view(&text), ret);
    wipe(&text);
}

struct headers {
    struct web_op *op;
    struct web_step *step;
};

static bool is_header(struct str name, struct str value)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!fine && c != '-' && c != '_') return false;
    }
    for (size_t i = 0; i < value.len; i++)
        if (value.data[i] < ' ' || value.data[i] > '~') return false;
    return name.len > 0;
}

static int take_header(void *ctx, struct str name, struct str value)
{
    struct headers *h = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct str kept = arena_str(h->op->arena, name);
    if (json_path_text(value, "", &text) < 0 || !is_header(name, buf_view(&text))) return -EINVAL;
    if (h->step->ask.header_count == SOURCE_HEADERS_MAX) return -E2BIG;
    if (!kept.data) return -ENOMEM;
    int rc = web_ask_header(h->op, h->step, kept.data, STR_FMT, STR_ARG(buf_view(&text)));
    wipe(&text);
    return rc;
}

static void ask_source(struct web_op *op, struct str credentials, struct str url,
                       struct web_step *ret)
{
    struct headers h = { op, ret };
    if (!is_private(url, true)) {
        web_refuse(ret, OFFER_AUTH, "credential_source.url is neither https:// nor this machine's");
        return;
    }
    op->stage = STAGE_SOURCE;
    if (web_ask(op, ret, "GET", STR_FMT, STR_ARG(url)) < 0) return;
    int rc = json_path_each_member(credentials, "credential_source.headers", take_header, &h);
    if (rc == -ENOMEM)
        no_memory(ret);
    else if (rc < 0 && rc != -ENOENT)
        web_refuse(ret, OFFER_AUTH, "credential_source.headers: want at most %d names with texts",
                   SOURCE_HEADERS_MAX);
}

static void begin(struct web_provider *p, struct web_op *op, struct str credentials,
                  struct web_step *ret)
{
    struct str file = web_text_at(op->arena, credentials, "credential_source.file");
    struct str url = web_text_at(op->arena, credentials, "credential_source.url");
    struct str value;
    if (json_path(credentials, "workforce_pool_user_project", &value) == 0)
        web_refuse(ret, OFFER_AUTH, "the credentials are a person's (workforce pool)");
    else if (json_path(credentials, "credential_source.environment_id", &value) == 0)
        web_refuse(ret, OFFER_AUTH,
                   "credential_source is AWS, which is not understood: want a file or a url");
    else if (file.len > 0)
        read_file(p, op, credentials, file, ret);
    else if (url.len > 0)
        ask_source(op, credentials, url, ret);
    else
        web_refuse(ret, OFFER_AUTH,
                   "credential_source has neither a file nor a url; programs and certificates are "
                   "not understood");
}

/* ---- a service account ---- */

static void ask_account(struct web_provider *p, struct web_op *op, struct str credentials,
                        struct str federated, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    uint64_t seconds = LIFETIME_S;
    struct json_writer w;
    struct str url = web_text_at(op->arena, credentials, "service_account_impersonation_url");
    int rc = json_path_u64(credentials, "service_account_impersonation.token_lifetime_seconds",
                           &seconds);
    if (!is_private(url, false)) {
        web_refuse(ret, OFFER_AUTH,
                   "the credentials' service_account_impersonation_url is not https://");
        return;
    }
    if ((rc < 0 && rc != -ENOENT) || seconds < LIFETIME_S_MIN || seconds > LIFETIME_S_MAX) {
        web_refuse(ret, OFFER_AUTH, "token_lifetime_seconds: want %d to %d", LIFETIME_S_MIN,
                   LIFETIME_S_MAX);
        return;
    }
    json_writer_init(&w, &body);
    json_object(&w);
    json_key(&w, "scope");
    json_array(&w);
    json_put_str(&w, scope_of(p));
    json_array_end(&w);
    json_key(&w, "lifetime");
    char lifetime[24];
    snprintf(lifetime, sizeof lifetime, "%llus", (unsigned long long)seconds);
    json_put_text(&w, lifetime);
    json_object_end(&w);
    op->stage = STAGE_IMPERSONATE;
    if (web_login_set(&p->login.key, federated) < 0)
        no_memory(ret);
    else if (web_ask(op, ret, "POST", STR_FMT, STR_ARG(url)) == 0 &&
             web_ask_header(op, ret, "authorization", "Bearer " STR_FMT, STR_ARG(federated)) == 0)
        web_ask_body(op, ret, "application/json", &body);
}

static void take_exchange(struct web_provider *p, struct web_op *op, struct str credentials,
                          const struct web_reply *r, int64_t now_us, struct web_step *ret)
{
    struct str token = web_text_at(op->arena, r->body, "access_token");
    if (!impersonates(credentials))
        gce_take_token(p, op, r, now_us, ret);
    else if (is_token(token))
        ask_account(p, op, credentials, token, ret);
    else
        web_refuse(ret, OFFER_TRANSIENT, "login of gce: the token service's reply has no token");
}

/* The account's token tells its end as a date. */
static void take_account(struct web_provider *p, struct web_op *op, const struct web_reply *r,
                         int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    struct str token = web_text_at(op->arena, r->body, "accessToken");
    int64_t end_us = 0, date_us = wall_us + p->login.skew_us;
    bool fine = date_parse(web_text_at(op->arena, r->body, "expireTime"), &end_us) == 0 &&
                end_us > date_us && end_us <= date_us + ((int64_t)LIFETIME_S_MAX + 60) * 1000000;
    if (!fine || !is_token(token))
        web_refuse(ret, OFFER_TRANSIENT, "login of gce: the reply has no token of the account");
    else if (web_login_set(&p->login.token, token) < 0)
        no_memory(ret);
    else {
        p->login.expires_us = now_us + (end_us - date_us);
        web_succeed(ret);
    }
}

/* ---- replies ---- */

/* "Error codes" of RFC 6749 section 5.2 and RFC 8693 section 2.2.2; statuses of google.rpc.Code. */
static const struct web_code codes[] = {
    { "invalid_grant", OFFER_AUTH, false },
    { "invalid_target", OFFER_AUTH, false },
    { "invalid_request", OFFER_AUTH, false },
    { "invalid_client", OFFER_AUTH, false },
    { "invalid_scope", OFFER_AUTH, false },
    { "unauthorized_client", OFFER_AUTH, false },
    { "unsupported_grant_type", OFFER_AUTH, false },
    { "PERMISSION_DENIED", OFFER_AUTH, false },
    { "UNAUTHENTICATED", OFFER_AUTH, false },
    { "INVALID_ARGUMENT", OFFER_AUTH, false },
    { "NOT_FOUND", OFFER_AUTH, false },
    { "RESOURCE_EXHAUSTED", OFFER_THROTTLE, false },
    { "UNAVAILABLE", OFFER_TRANSIENT, false },
    { "INTERNAL", OFFER_TRANSIENT, false },
    { 0 },
};

static void refuse(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    static const char *const who[] = { "credential_source", "the token service",
                                       "the service account's token" };
    bool account = op->stage == STAGE_IMPERSONATE, source = op->stage == STAGE_SOURCE;
    /* Of a source nothing is repeated: who knows what stands in its reply. */
    struct str code = { 0 }, words = { 0 };
    if (!source && r->status != 0) {
        code = web_text_at(op->arena, r->body, account ? "error.status" : "error");
        words = web_text_at(op->arena, r->body, account ? "error.message" : "error_description");
        /* Before they are cut: half a token is one, too. The arena is ours to change. */
        if (words.len > 0)
            web_blot((char *)(uintptr_t)words.data, words.len, str_from(p->login.key));
    }
    web_refuse_reply(p, op, r, codes, code, words, ret);
    err_prefix(&ret->err, ret->rc, "%s", who[op->stage - STAGE_SOURCE]);
    if (source && r->status >= 400 && r->status < 500 && r->status != 429) {
        ret->class = OFFER_AUTH;
        ret->rc = web_class_errno(OFFER_AUTH);
    }
}

void gce_federate(struct web_provider *p, struct web_op *op, struct str credentials,
                  const struct web_reply *r, int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    if (!r)
        begin(p, op, credentials, ret);
    else if (r->status != 200)
        refuse(p, op, r, ret);
    else if (op->stage == STAGE_SOURCE)
        take_subject(p, op, credentials, r->body, ret);
    else if (op->stage == STAGE_EXCHANGE)
        take_exchange(p, op, credentials, r, now_us, ret);
    else
        take_account(p, op, r, now_us, wall_us, ret);
    if (ret->next == WEB_END && ret->rc == 0) web_login_set(&p->login.key, STR(""));
}
