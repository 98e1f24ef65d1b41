/* fake_gce_login.c - speaks Google's token endpoint and the metadata server's path for tokens.
 *
 * Written from "Using OAuth 2.0 for Server to Server Applications" and "View and query VM metadata" of Google's
 * documentation: the form of the request, what an assertion must claim, what is said of one that is too old. */
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
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
#define GRANT "urn:ietf:params:oauth:grant-type:jwt-bearer"
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
    if (!text_is(c, "scope", "https://www.googleapis.com/auth/compute") &&
        !text_is(c, "scope", "https://www.googleapis.com/auth/cloud-platform"))
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

/* ---- the two servers ---- */

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

bool fake_gce_login(struct fake_gce *g, const struct web_ask *ask, int64_t now_us,
                    struct arena *arena, struct web_reply *ret, const struct fleet_row **ret_row)
{
    bool by_metadata = is_at(ask->url, METADATA);
    struct str flavor = form_header(ask, "metadata-flavor");
    if (!by_metadata && !is_at(ask->url, TOKEN_URL)) return false;
    *ret_row = fake_fleet_meet(g->fleet, FLEET_LOGIN, NULL, NULL, now_us);
    if (by_metadata && !g->on_machine) {
        *ret = (struct web_reply){ .problem = STR("the name is not known") };
        return true;
    }
    if (!refuse_fault(*ret_row, arena, ret)) {
        if (!by_metadata)
            take_assertion(g, ask, now_us, arena, ret);
        else if (str_eq(ask->method, STR("GET")) && str_eq(flavor, STR("Google")))
            hand_out(g, now_us, arena, ret);
        else
            refuse_form(g, arena, "metadata-flavor: Google is missing", ret);
    }
    put_date(g, now_us, arena, ret);
    return true;
}
