/* gce_login.c - gets access tokens of Google.
 *
 *     key:      POST token_uri, a token of our own that is signed with the key (RFC 7523) ──► access token
 *                  └── refused, and the reply's date is not ours ──► once more with the provider's date
 *     federated: gce_federation.c
 *     no key:   GET metadata server, as the machine's service account ──► access token
 *
 * Looked for in this order: credentials_file, the variable that credentials_env names (the key itself), the file that
 * GOOGLE_APPLICATION_CREDENTIALS names, the metadata server. Keys of other types than service_account and
 * external_account are refused: those of a person are not for servers. On Google's own Kubernetes, workload identity
 * comes through the metadata server.
 *
 * Sources: "Using OAuth 2.0 for Server to Server Applications", "Application Default Credentials" and "View and query
 * VM metadata" of Google's documentation. */
#include "controller/cloud/web/gce_login.h"

#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/auth/jwt_sign.h"
#include "base/io/date.h"
#include "base/io/net/addr.h"
#include "controller/cloud/web/gce_federation.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_HOST "metadata.google.internal"
#define KEY_BYTES_MAX ((size_t)64 << 10)
#define ASSERTION_S 3600                /* the longest that the provider takes */
#define SKEW_US ((int64_t)30 * 1000000) /* smaller differences of dates are the network's */
#define STAGE_SECOND 1                  /* asks with the provider's date */

/* ---- the key ---- */

/* Wipes a text in the op's arena, which is ours to change. */
static void wipe(struct str s)
{
    if (s.len > 0) explicit_bzero((void *)(uintptr_t)s.data, s.len);
}

/* Reads the file that the usual variable names. data NULL: there is no such variable. */
static int read_usual(const struct web_provider *p, struct web_op *op, struct str *ret,
                      struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { .max = KEY_BYTES_MAX };
    struct str path = web_environment(p->host, STR("GOOGLE_APPLICATION_CREDENTIALS"));
    *ret = (struct str){ 0 };
    if (path.len == 0) return 0;
    int rc = p->host->read_secret(p->host->ctx, path.data, &text, err);
    if (rc < 0) return err_prefix(err, rc, "GOOGLE_APPLICATION_CREDENTIALS");
    *ret = arena_str(op->arena, buf_view(&text));
    explicit_bzero(text.data, text.len);
    return ret->data ? 0 : err_set(err, -ENOMEM, "no memory for credentials");
}

static int read_key(const struct web_provider *p, struct web_op *op, struct str *ret,
                    struct err *err)
{
    const struct web_section *s = p->settings->section;
    if (s->credentials_file.len > 0 || s->credentials_env.len > 0)
        return web_credentials(p, op, ret, err);
    return read_usual(p, op, ret, err);
}

static struct str member(struct web_op *op, struct str json, const char *name)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(json, name, &text) < 0) return (struct str){ 0 };
    struct str copy = arena_str(op->arena, buf_view(&text));
    explicit_bzero(text.data, text.len);
    return copy;
}

static int sign(const struct web_provider *p, struct web_op *op, struct str key, struct str uri,
                int64_t date_us, struct buf *out, struct err *err)
{
    const char *scope = p->kind->token_for ? p->kind->token_for : GCE_SCOPE;
    CLEANUP(buf_fini) struct buf header = { 0 };
    CLEANUP(buf_fini) struct buf claims = { 0 };
    struct json_writer w;
    json_writer_init(&w, &header);
    json_object(&w);
    json_kv_text(&w, "alg", "RS256");
    json_kv_text(&w, "typ", "JWT");
    json_kv_str(&w, "kid", member(op, key, "private_key_id"));
    json_object_end(&w);
    json_writer_init(&w, &claims);
    json_object(&w);
    json_kv_str(&w, "iss", member(op, key, "client_email"));
    json_kv_text(&w, "scope", scope);
    json_kv_str(&w, "aud", uri);
    json_kv_i64(&w, "iat", date_us / 1000000);
    json_kv_i64(&w, "exp", date_us / 1000000 + ASSERTION_S);
    json_object_end(&w);
    struct str pem = member(op, key, "private_key");
    int rc = jwt_sign_rs256(buf_view(&header), buf_view(&claims), pem, out, err);
    wipe(pem);
    return rc;
}

static void ask_with_key(const struct web_provider *p, struct web_op *op, struct str key,
                         int64_t wall_us, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct err err = { 0 };
    struct str type = member(op, key, "type"), uri = member(op, key, "token_uri");
    if (!str_eq(type, STR("service_account"))) {
        web_refuse(ret, OFFER_AUTH, "the credentials are no key of a service account");
        return;
    }
    if (!addr_url_is_private(uri)) { /* the assertion opens the account for an hour */
        web_refuse(ret, OFFER_AUTH, "the key's token_uri is not https://");
        return;
    }
    buf_text(&body, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=");
    int rc = sign(p, op, key, uri, wall_us + p->login.skew_us, &body, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_AUTH, "%s", err_text(&err, rc));
    else if (web_ask(op, ret, "POST", STR_FMT, STR_ARG(uri)) == 0)
        web_ask_body(op, ret, "application/x-www-form-urlencoded", &body);
    explicit_bzero(body.data, body.len);
}

static void ask_metadata(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    struct str host = web_environment(p->host, STR("GCE_METADATA_HOST"));
    if (host.len == 0) host = STR(METADATA_HOST);
    if (web_ask(op, ret, "GET",
                "http://" STR_FMT "/computeMetadata/v1/instance/service-accounts/default/token",
                STR_ARG(host)) == 0)
        web_ask_header(op, ret, "metadata-flavor", "Google");
}

/* Begins the login, or goes on with a federated one: `r` is its reply. */
static void begin(struct web_provider *p, struct web_op *op, const struct web_reply *r,
                  int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    struct err err = { 0 };
    struct str key;
    int rc = read_key(p, op, &key, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_AUTH, "%s", err_text(&err, rc));
    else if (r && !gce_is_federated(key))
        web_refuse(ret, OFFER_TRANSIENT, "the credentials changed during the login");
    else if (key.data && gce_is_federated(key))
        gce_federate(p, op, key, r, now_us, wall_us, ret);
    else if (!key.data)
        ask_metadata(p, op, ret);
    else
        ask_with_key(p, op, key, wall_us, ret);
    if (rc == 0) wipe(key);
}

/* ---- the reply ---- */

/* Notes how far our date is off. Returns true if the last request was signed with a wrong one. */
static bool take_date(struct web_provider *p, const struct web_reply *r, int64_t wall_us)
{
    int64_t date_us;
    if (date_parse_http(web_reply_header(r, "date"), &date_us) < 0) return false;
    int64_t skew_us = date_us - wall_us, used_us = p->login.skew_us;
    p->login.skew_us = llabs(skew_us) > SKEW_US ? skew_us : 0;
    return llabs(skew_us - used_us) > SKEW_US;
}

void gce_take_token(struct web_provider *p, struct web_op *op, const struct web_reply *r,
                    int64_t now_us, struct web_step *ret)
{
    uint64_t seconds = 0;
    struct str token = member(op, r->body, "access_token");
    bool fine = token.len > 0 && json_path_u64(r->body, "expires_in", &seconds) == 0;
    for (size_t i = 0; i < token.len; i++)
        fine = fine && token.data[i] > ' ' && token.data[i] <= '~';
    if (!fine || seconds > 86400) {
        web_refuse(ret, OFFER_TRANSIENT, "login of gce: the reply has no token");
        return;
    }
    if (web_login_set(&p->login.token, token) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a token");
        return;
    }
    p->login.expires_us = now_us + (int64_t)seconds * 1000000;
    web_succeed(ret);
}

static void refuse(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    /* "Error codes" of the same document; RFC 6749, section 5.2. */
    static const struct web_code codes[] = {
        { "invalid_grant", OFFER_AUTH, false },  /* the key is gone, or a date is wrong */
        { "invalid_client", OFFER_AUTH, false }, /* no such account */
        { "unauthorized_client", OFFER_AUTH, false },
        { "invalid_scope", OFFER_AUTH, false },
        { "disabled_client", OFFER_AUTH, false },
        { "invalid_request", OFFER_AUTH, false },
        { "unsupported_grant_type", OFFER_AUTH, false },
        { "temporarily_unavailable", OFFER_TRANSIENT, false },
        { 0 },
    };
    web_refuse_reply(p, op, r, codes, member(op, r->body, "error"),
                     member(op, r->body, "error_description"), ret);
    bool by_metadata = op->stage == 0 && p->settings->section->credentials_file.len == 0 &&
                       p->settings->section->credentials_env.len == 0 &&
                       web_environment(p->host, STR("GOOGLE_APPLICATION_CREDENTIALS")).len == 0;
    if (by_metadata)
        err_prefix(&ret->err, ret->rc,
                   "no credentials are named (credentials_file, GOOGLE_APPLICATION_CREDENTIALS), "
                   "and the metadata server");
}

void gce_login(struct web_provider *p, struct web_op *op, const struct web_reply *r, int64_t now_us,
               int64_t wall_us, struct web_step *ret)
{
    if (!r) {
        begin(p, op, NULL, now_us, wall_us, ret);
        return;
    }
    /* A source of subject tokens is not Google: its date says nothing. */
    bool wrong_date = op->stage != GCE_LOGIN_FEDERATED && take_date(p, r, wall_us);
    if (op->stage >= GCE_LOGIN_FEDERATED) {
        begin(p, op, r, now_us, wall_us, ret);
    } else if (r->status == 200) {
        gce_take_token(p, op, r, now_us, ret);
    } else if (wrong_date && op->stage == 0 &&
               str_eq(r->body.len ? member(op, r->body, "error") : STR(""), STR("invalid_grant"))) {
        op->stage = STAGE_SECOND;
        begin(p, op, NULL, now_us, wall_us, ret);
    } else {
        refuse(p, op, r, ret);
    }
}
