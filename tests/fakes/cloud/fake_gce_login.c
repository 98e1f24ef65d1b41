/* fake_gce_login.c - speaks Google's token endpoint, the metadata server's path for tokens, the Security Token Service and
 * the IAM Service Account Credentials API.
 *
 * Written from "Using OAuth 2.0 for Server to Server Applications", "View and query VM metadata", "Method: token" and
 * "projects.serviceAccounts.generateAccessToken" of Google's documentation: the form of the request, what an assertion
 * must claim, what is said of one that is too old. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_answer.h"
#include "tests/fakes/cloud/fake_form.h"
#include "tests/fakes/cloud/fake_gce.h"
#include "tests/fakes/cloud/jwt_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKEN_URL "https://oauth2.googleapis.com/token"
#define METADATA \
    "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
#define STS_URL "https://sts.googleapis.com/v1/token"
#define ACCOUNT_URL                                                                         \
    "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" FAKE_GCE_ACCOUNT \
    ":generateAccessToken"
#define IDP_URL "https://idp.example/identity/token"
#define GRANT "urn:ietf:params:oauth:grant-type:jwt-bearer"
#define EXCHANGE "urn:ietf:params:oauth:grant-type:token-exchange"
#define COMPUTE_SCOPE "https://www.googleapis.com/auth/compute"
#define IAM_SCOPE "https://www.googleapis.com/auth/iam" /* as Google's Python library asks */
#define CLOUD_SCOPE "https://www.googleapis.com/auth/cloud-platform"
#define HOUR_US ((int64_t)3600 * 1000000)
#define DATE_SLACK_S 300 /* that a date may be off */

void fake_gce_key(struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "type", "service_account");
    json_kv_text(&w, "project_id", "p-1");
    json_kv_text(&w, "private_key_id", FAKE_GCE_KEY_ID);
    json_kv_text(&w, "private_key", jwt_test_key());
    json_kv_text(&w, "client_email", FAKE_GCE_ACCOUNT);
    json_kv_text(&w, "client_id", "100000000000000000001");
    json_kv_text(&w, "auth_uri", "https://accounts.google.com/o/oauth2/auth");
    json_kv_text(&w, "token_uri", TOKEN_URL);
    json_kv_text(&w, "universe_domain", "googleapis.com");
    json_object_end(&w);
    must(out->rc == 0);
}

/* ---- replies ---- */

static void reply(struct web_reply *ret, struct arena *arena, int status, const struct buf *body)
{
    *ret = (struct web_reply){ .status = status, .sent = true };
    ret->body = arena_str(arena, buf_view(body));
}

static void refuse(struct web_reply *ret, struct arena *arena, int status, const char *code,
                   const char *why)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body, "{\"error\": \"%s\", \"error_description\": \"%s\"}", code, why);
    reply(ret, arena, status, &body);
}

static void hand_out(struct fake_gce *g, int64_t now_us, struct arena *arena, struct web_reply *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    int64_t life_us = g->token_us > 0 ? g->token_us : HOUR_US;
    snprintf(g->token, sizeof g->token, "ya29.c.fake-token-%u", ++g->tokens);
    g->expires_us = now_us + life_us;
    buf_printf(&body,
               "{\"access_token\": \"%s\", \"expires_in\": %lld, \"token_type\": \"Bearer\"}",
               g->token, (long long)(life_us / 1000000));
    reply(ret, arena, 200, &body);
}

/* ---- assertions ---- */

static bool text_is(struct str json, const char *path, const char *want)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    return json_path_text(json, path, &text) == 0 && str_eq(buf_view(&text), str_from(want));
}

static const char *check_dates(struct str claims, int64_t date_s)
{
    uint64_t iat, exp;
    if (json_path_u64(claims, "iat", &iat) < 0 || json_path_u64(claims, "exp", &exp) < 0)
        return "Invalid JWT: iat and exp are needed.";
    bool fine = exp > iat && exp - iat <= 3600 && (int64_t)iat <= date_s + DATE_SLACK_S &&
                (int64_t)exp > date_s - DATE_SLACK_S;
    return fine ? NULL
                : "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
                  "timeframe. Check your iat and exp values in the JWT claim.";
}

/* Returns what is wrong with an assertion; NULL: nothing. */
static const char *check(struct str assertion, int64_t date_s)
{
    CLEANUP(buf_fini) struct buf header = { 0 };
    CLEANUP(buf_fini) struct buf claims = { 0 };
    int rc = jwt_check_rs256(assertion, &header, &claims);
    struct str h = buf_view(&header), c = buf_view(&claims);
    if (rc < 0) return rc == -EPERM ? "Invalid JWT Signature." : "Invalid JWT.";
    if (!text_is(h, "alg", "RS256") || !text_is(h, "typ", "JWT") ||
        !text_is(h, "kid", FAKE_GCE_KEY_ID))
        return "Invalid JWT header.";
    if (!text_is(c, "iss", FAKE_GCE_ACCOUNT)) return "Invalid grant: account not found";
    if (!text_is(c, "aud", TOKEN_URL)) return "Invalid JWT: Failed audience check.";
    if (!text_is(c, "scope", COMPUTE_SCOPE) && !text_is(c, "scope", CLOUD_SCOPE))
        return "Invalid OAuth scope or ID token audience provided.";
    return check_dates(c, date_s);
}

static void refuse_form(struct fake_gce *g, struct arena *arena, const char *why,
                        struct web_reply *ret)
{
    fake_fleet_bad_form(g->fleet, "token endpoint: %s", why);
    refuse(ret, arena, 400, "invalid_request", why);
}

static void take_assertion(struct fake_gce *g, const struct web_ask *ask, int64_t now_us,
                           struct arena *arena, struct web_reply *ret)
{
    static const char *const members[] = { "grant_type", "assertion", NULL };
    char why[FORM_WHY_BYTES];
    struct str grant = form_query(arena, ask->body, "grant_type");
    const char *wrong = NULL;
    if (!str_eq(ask->method, STR("POST")) ||
        !str_eq(ask->content_type, STR("application/x-www-form-urlencoded")))
        refuse_form(g, arena, "want a form in a POST", ret);
    else if (form_query_check(ask->body, members, why) < 0)
        refuse_form(g, arena, why, ret);
    else if (!str_eq(grant, STR(GRANT)))
        refuse_form(g, arena, "grant_type", ret);
    else if ((wrong = check(form_query(arena, ask->body, "assertion"),
                            (now_us + g->date_us) / 1000000)))
        refuse(ret, arena, 400, "invalid_grant", wrong);
    else
        hand_out(g, now_us, arena, ret);
}

/* ---- workload identity federation ---- */

/* Gives a token for a subject token: one for the API where the identity has the role itself, else one that opens the
 * account alone. */
static void take_exchange(struct fake_gce *g, const struct web_ask *ask, int64_t now_us,
                          struct arena *arena, struct web_reply *ret)
{
    static const char *const members[] = {
        "grant_type",         "audience",      "scope",   "requested_token_type",
        "subject_token_type", "subject_token", "options", NULL
    };
    CLEANUP(buf_fini) struct buf body = { 0 };
    char why[FORM_WHY_BYTES];
    struct str scope = form_query(arena, ask->body, "scope");
    struct str subject = form_query(arena, ask->body, "subject_token");
    bool wide = str_eq(scope, STR(CLOUD_SCOPE)) || str_eq(scope, STR(IAM_SCOPE));
    if (!str_eq(ask->method, STR("POST")) ||
        !str_eq(ask->content_type, STR("application/x-www-form-urlencoded")))
        refuse_form(g, arena, "want a form in a POST", ret);
    else if (form_query_check(ask->body, members, why) < 0)
        refuse_form(g, arena, why, ret);
    else if (!str_eq(form_query(arena, ask->body, "grant_type"), STR(EXCHANGE)) ||
             !str_eq(form_query(arena, ask->body, "requested_token_type"),
                     STR("urn:ietf:params:oauth:token-type:access_token")) ||
             !str_eq(form_query(arena, ask->body, "subject_token_type"),
                     STR("urn:ietf:params:oauth:token-type:jwt")))
        refuse_form(g, arena, "grant_type or a type of token", ret);
    else if (!wide && !str_eq(scope, STR(COMPUTE_SCOPE)))
        refuse(ret, arena, 400, "invalid_scope", "scope");
    else if (!str_eq(form_query(arena, ask->body, "audience"), STR(FAKE_GCE_AUDIENCE)))
        refuse(ret, arena, 400, "invalid_target", "The target service indicated is invalid.");
    else if (!g->subject || !str_eq(subject, str_from(g->subject))) {
        /* What is sent comes back in the words, as a provider may have it. */
        buf_printf(&body, "The ID Token " STR_FMT " is stale to sign-in.", STR_ARG(subject));
        refuse(ret, arena, 400, "invalid_grant", arena_str(arena, buf_view(&body)).data);
    } else if (g->direct) {
        hand_out(g, now_us, arena, ret);
    } else {
        snprintf(g->federated, sizeof g->federated, "ya29.d.federated-%u", ++g->tokens);
        g->federated_wide = wide;
        g->federated_us = now_us + HOUR_US;
        buf_printf(&body,
                   "{\"access_token\": \"%s\", \"issued_token_type\": "
                   "\"urn:ietf:params:oauth:token-type:access_token\", \"token_type\": \"Bearer\", "
                   "\"expires_in\": 3600}",
                   g->federated);
        reply(ret, arena, 200, &body);
    }
}

static void refuse_account(struct web_reply *ret, struct arena *arena, int status, const char *code,
                           const char *why)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body, "{\"error\": {\"code\": %d, \"message\": \"%s\", \"status\": \"%s\"}}",
               status, why, code);
    reply(ret, arena, status, &body);
}

static int take_scope(void *ctx, struct str item)
{
    bool *known = ctx;
    *known = text_is(item, "", COMPUTE_SCOPE) || text_is(item, "", CLOUD_SCOPE);
    return 0;
}

/* Gives the account's token, for as long as is asked, an hour at most. */
static void take_account(struct fake_gce *g, const struct web_ask *ask, int64_t now_us,
                         struct arena *arena, struct web_reply *ret)
{
    static const struct form_field form[] = { { "scope", FORM_TEXTS, true, NULL },
                                              { "lifetime", FORM_TEXT, false, NULL },
                                              { "delegates", FORM_ANY, false, NULL },
                                              { 0 } };
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf life = { 0 };
    char why[FORM_WHY_BYTES] = "no POST", end[DATE_BYTES];
    int64_t seconds = 3600;
    bool known = false;
    json_path_text(ask->body, "lifetime", &life);
    if (life.len > 1 && life.data[life.len - 1] == 's')
        str_to_i64(str_of(life.data, life.len - 1), &seconds);
    json_path_each(ask->body, "scope", take_scope, &known);
    if (!str_eq(ask->method, STR("POST")) || form_check(ask->body, form, why) < 0 || !known) {
        fake_fleet_bad_form(g->fleet, "generateAccessToken: %s", known ? why : "scope");
        refuse_account(ret, arena, 400, "INVALID_ARGUMENT",
                       "Request contains an invalid argument.");
    } else if (seconds < 1 || seconds > 3600) {
        refuse_account(ret, arena, 400, "INVALID_ARGUMENT", "The token lifetime is too long.");
    } else if (!g->federated[0] || !fake_is_bearer(ask, g->federated) ||
               now_us >= g->federated_us) {
        refuse_account(ret, arena, 401, "UNAUTHENTICATED",
                       "Request had invalid authentication credentials.");
    } else if (!g->federated_wide || g->denied & 1u << GCE_IMPERSONATE) {
        refuse_account(ret, arena, 403, "PERMISSION_DENIED",
                       "Permission 'iam.serviceAccounts.getAccessToken' denied.");
    } else {
        snprintf(g->token, sizeof g->token, "ya29.c.fake-token-%u", ++g->tokens);
        g->expires_us = now_us + (g->token_us > 0 ? g->token_us : seconds * 1000000);
        g->needed |= 1u << GCE_IMPERSONATE;
        date_print(g->expires_us + g->date_us, end);
        end[strlen("2026-11-29T09:54:33")] =
            0; /* whole seconds: Google's library reads no others */
        buf_printf(&body, "{\"accessToken\": \"%s\", \"expireTime\": \"%sZ\"}", g->token, end);
        reply(ret, arena, 200, &body);
    }
}

/* The identity provider: it gives its token to the caller that it knows. */
static void give_subject(const struct fake_gce *g, const struct web_ask *ask, struct arena *arena,
                         struct web_reply *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    bool knows = str_eq(form_header(ask, "x-caller"), STR("fleet"));
    buf_printf(&body, "{\"value.of\": 1, \"value\": \"%s\"}", g->subject ? g->subject : "");
    if (knows && str_eq(ask->method, STR("GET")))
        reply(ret, arena, 200, &body);
    else
        refuse(ret, arena, 403, "secret-words-of-the-idp", "who is it?");
}

/* ---- the servers ---- */

static bool refuse_fault(const struct fleet_row *row, struct arena *arena, struct web_reply *ret)
{
    static const struct fake_words words[] = {
        { FLEET_AUTH, 400, "invalid_grant", "Invalid JWT Signature." },
        { FLEET_FORBIDDEN, 401, "disabled_client", "The OAuth client was disabled." },
        { FLEET_THROTTLE, 429, "rate_limit_exceeded", "too many" },
        { FLEET_SERVER_ERROR, 503, "temporarily_unavailable", "try later" },
        { FLEET_UNKNOWN_CODE, 418, "new_kind_of_error", "words that are in no table" },
        { 0 },
    };
    const struct fake_words *w = fake_words_of(words, row);
    if (w) refuse(ret, arena, w->status, w->code, w->message);
    return w != NULL;
}

static void put_date(const struct fake_gce *g, int64_t now_us, struct arena *arena,
                     struct web_reply *ret)
{
    char text[64];
    time_t seconds = (time_t)((now_us + g->date_us) / 1000000);
    struct tm t;
    gmtime_r(&seconds, &t);
    strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &t);
    ret->header[ret->header_count++] =
        (struct web_header){ STR("date"), arena_str(arena, str_from(text)) };
}

/* A server's requests have no host in their URL. */
static bool is_at(struct str url, const char *full)
{
    return str_eq(url, str_from(full)) ||
           (url.len > 1 && url.data[0] == '/' && str_ends(str_from(full), url));
}

static void federate(struct fake_gce *g, const struct web_ask *ask, int64_t now_us,
                     struct arena *arena, struct web_reply *ret)
{
    if (is_at(ask->url, STS_URL))
        take_exchange(g, ask, now_us, arena, ret);
    else if (is_at(ask->url, ACCOUNT_URL))
        take_account(g, ask, now_us, arena, ret);
    else
        give_subject(g, ask, arena, ret);
}

bool fake_gce_login(struct fake_gce *g, const struct web_ask *ask, int64_t now_us,
                    struct arena *arena, struct web_reply *ret, const struct fleet_row **ret_row)
{
    bool by_metadata = is_at(ask->url, METADATA), by_key = is_at(ask->url, TOKEN_URL);
    bool federated =
        is_at(ask->url, STS_URL) || is_at(ask->url, ACCOUNT_URL) || is_at(ask->url, IDP_URL);
    struct str flavor = form_header(ask, "metadata-flavor");
    if (!by_metadata && !by_key && !federated) return false;
    *ret_row = fake_fleet_meet(g->fleet, FLEET_LOGIN, NULL, NULL, now_us);
    if (by_metadata && !g->on_machine) {
        *ret = (struct web_reply){ .problem = STR("the name is not known") };
        return true;
    }
    if (!refuse_fault(*ret_row, arena, ret)) {
        if (!by_metadata && !by_key)
            federate(g, ask, now_us, arena, ret);
        else if (by_key)
            take_assertion(g, ask, now_us, arena, ret);
        else if (str_eq(ask->method, STR("GET")) && str_eq(flavor, STR("Google")))
            hand_out(g, now_us, arena, ret);
        else
            refuse_form(g, arena, "metadata-flavor: Google is missing", ret);
    }
    put_date(g, now_us, arena, ret);
    return true;
}
