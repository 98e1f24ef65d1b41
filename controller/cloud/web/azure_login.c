/* azure_login.c - gets access tokens of Microsoft Entra.
 *
 *     secret:      POST AUTHORITY/TENANT/oauth2/v2.0/token, with the application's secret
 *     federation:  the same, with the token in AZURE_FEDERATED_TOKEN_FILE as an assertion
 *     machine:     GET 169.254.169.254/metadata/identity/oauth2/token
 *
 * The secret is what credentials_file or the variable holds; the application and its directory are AZURE_CLIENT_ID and
 * the setting `tenant`, or AZURE_TENANT_ID. Without a secret a federated token is looked for, then the machine's
 * identity; AZURE_CLIENT_ID then chooses among several.
 *
 * Sources: "Microsoft identity platform and the OAuth 2.0 client credentials flow", "How to use managed identities to
 * acquire an access token", "Use Microsoft Entra Workload ID with AKS". */
#include "controller/cloud/web/azure_login.h"

#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/net/addr.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"

#include <string.h>

#define AUTHORITY "https://login.microsoftonline.com"
#define RESOURCE "https://management.azure.com"
#define METADATA "http://169.254.169.254"
#define METADATA_PATH "/metadata/identity/oauth2/token?api-version=2018-02-01"
#define METADATA_ENV "AZURE_POD_IDENTITY_AUTHORITY_HOST" /* as Azure's own libraries name it */
#define TOKEN_BYTES_MAX ((size_t)64 << 10)
#define SECRET_ENV "AZURE_CLIENT_SECRET"

/* "Microsoft Entra authentication and authorization error codes", RFC 6749. */
static const struct web_code codes[] = {
    { "invalid_client", OFFER_AUTH, false },
    { "unauthorized_client", OFFER_AUTH, false },
    { "invalid_grant", OFFER_AUTH, false },
    { "invalid_scope", OFFER_AUTH, false },
    { "invalid_request", OFFER_AUTH, false },
    { "invalid_resource", OFFER_AUTH, false },
    { "temporarily_unavailable", OFFER_TRANSIENT, false },
    { "server_error", OFFER_TRANSIENT, false },
    { 0 },
};

static struct str variable(const struct web_provider *p, const char *name)
{
    return web_environment(p->host, str_from(name));
}

/* Returns the resource that tokens are asked for. */
static const char *resource_of(const struct web_provider *p)
{
    return p->kind->token_for ? p->kind->token_for : RESOURCE;
}

static struct str tenant_of(const struct web_provider *p)
{
    struct str tenant = p->settings->section->tenant;
    return tenant.len > 0 ? tenant : variable(p, "AZURE_TENANT_ID");
}

/* True if a secret is named, by the section or by the usual variable. */
static bool has_secret(const struct web_provider *p)
{
    const struct web_section *s = p->settings->section;
    return s->credentials_file.len > 0 || s->credentials_env.len > 0 ||
           variable(p, SECRET_ENV).len > 0;
}

static void put(struct buf *body, const char *name, struct str value)
{
    if (body->len > 0) buf_byte(body, '&');
    buf_printf(body, "%s=", name);
    web_url_part(body, value);
}

static void ask_token(const struct web_provider *p, struct web_op *op, const char *name,
                      struct str secret, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf scope = { 0 };
    struct str host = variable(p, "AZURE_AUTHORITY_HOST"), tenant = tenant_of(p);
    struct str client = variable(p, "AZURE_CLIENT_ID");
    if (tenant.len == 0 || client.len == 0) {
        web_refuse(ret, OFFER_AUTH,
                   "credentials need the setting tenant, or AZURE_TENANT_ID, and "
                   "AZURE_CLIENT_ID");
        return;
    }
    if (host.len == 0) host = STR(AUTHORITY);
    while (host.len > 0 && host.data[host.len - 1] == '/')
        host.len--;
    if (!addr_url_is_private(host)) {
        web_refuse(ret, OFFER_AUTH, "AZURE_AUTHORITY_HOST is not https://");
        return;
    }
    put(&body, "grant_type", STR("client_credentials"));
    put(&body, "client_id", client);
    buf_printf(&scope, "%s/.default", resource_of(p));
    put(&body, "scope", buf_view(&scope));
    if (strcmp(name, "client_assertion") == 0)
        put(&body, "client_assertion_type",
            STR("urn:ietf:params:oauth:client-assertion-type:jwt-bearer"));
    put(&body, name, secret);
    if (web_ask(op, ret, "POST", STR_FMT "/" STR_FMT "/oauth2/v2.0/token", STR_ARG(host),
                STR_ARG(tenant)) == 0)
        web_ask_body(op, ret, "application/x-www-form-urlencoded", &body);
    explicit_bzero(body.data, body.len);
}

static void ask_with_secret(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    struct err err = { 0 };
    struct str secret;
    int rc = web_credentials(p, op, &secret, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_AUTH, "%s", err_text(&err, rc));
    else
        ask_token(p, op, "client_secret", secret, ret);
}

static void ask_with_federation(const struct web_provider *p, struct web_op *op, struct str path,
                                struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf text = { .max = TOKEN_BYTES_MAX };
    struct err err = { 0 };
    int rc = p->host->read_secret(p->host->ctx, path.data, &text, &err);
    struct str token = buf_view(&text);
    while (token.len > 0 && (unsigned char)token.data[token.len - 1] <= ' ')
        token.len--;
    if (rc < 0)
        web_refuse(ret, OFFER_AUTH, "AZURE_FEDERATED_TOKEN_FILE: %s", err_text(&err, rc));
    else
        ask_token(p, op, "client_assertion", token, ret);
    if (text.data) explicit_bzero(text.data, text.len);
}

static void ask_metadata(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf url = { 0 };
    CLEANUP(buf_fini) struct buf resource = { 0 };
    struct str client = variable(p, "AZURE_CLIENT_ID"), host = variable(p, METADATA_ENV);
    buf_printf(&resource, "%s/", resource_of(p));
    while (host.len > 0 && host.data[host.len - 1] == '/')
        host.len--;
    buf_str(&url, host.len > 0 ? host : STR(METADATA));
    buf_text(&url, METADATA_PATH);
    put(&url, "resource", buf_view(&resource));
    if (client.len > 0) put(&url, "client_id", client);
    if (web_ask(op, ret, "GET", "%.*s", (int)url.len, url.data) == 0)
        web_ask_header(op, ret, "metadata", "true");
}

static void take_token(struct web_provider *p, const struct web_reply *r, int64_t now_us,
                       struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf token = { 0 };
    CLEANUP(buf_fini) struct buf life = { 0 };
    uint64_t seconds = 0;
    bool fine = json_path_text(r->body, "access_token", &token) == 0 && token.len > 0;
    /* A number, and of the machine's identity a text. */
    if (json_path_u64(r->body, "expires_in", &seconds) < 0)
        fine = fine && json_path_text(r->body, "expires_in", &life) == 0 &&
               str_to_u64(buf_view(&life), &seconds) == 0;
    for (size_t i = 0; i < token.len; i++)
        fine = fine && token.data[i] > ' ' && token.data[i] <= '~';
    if (!fine || seconds > 7 * 86400)
        web_refuse(ret, OFFER_TRANSIENT, "login of azure: the reply has no token");
    else if (web_login_set(&p->login.token, buf_view(&token)) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a token");
    else
        web_succeed(ret);
    p->login.expires_us = now_us + (int64_t)seconds * 1000000;
    if (token.data) explicit_bzero(token.data, token.len);
}

static void refuse(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf code = { 0 };
    CLEANUP(buf_fini) struct buf message = { 0 };
    json_path_text(r->body, "error", &code);
    json_path_text(r->body, "error_description", &message);
    web_refuse_reply(p, op, r, codes, buf_view(&code), buf_view(&message), ret);
    if (!has_secret(p) && variable(p, "AZURE_FEDERATED_TOKEN_FILE").len == 0)
        err_prefix(&ret->err, ret->rc,
                   "no credentials are named (credentials_file, " SECRET_ENV
                   ", AZURE_FEDERATED_TOKEN_FILE), and the machine's identity");
}

void azure_login(struct web_provider *p, struct web_op *op, const struct web_reply *r,
                 int64_t now_us, struct web_step *ret)
{
    struct str federated = variable(p, "AZURE_FEDERATED_TOKEN_FILE");
    if (r && r->status == 200)
        take_token(p, r, now_us, ret);
    else if (r)
        refuse(p, op, r, ret);
    else if (has_secret(p))
        ask_with_secret(p, op, ret);
    else if (federated.len > 0)
        ask_with_federation(p, op, federated, ret);
    else
        ask_metadata(p, op, ret);
}
