/* fake_azure_login.c - speaks Entra's token endpoint and the metadata service's path for tokens.
 *
 * Written from "Microsoft identity platform and the OAuth 2.0 client credentials flow" and "How managed identities work
 * with Azure virtual machines". */
#include "base/core/buf.h"
#include "base/core/own.h"
#include "tests/fakes/cloud/fake_answer.h"
#include "tests/fakes/cloud/fake_azure.h"
#include "tests/fakes/cloud/fake_form.h"

#include <stdio.h>
#include <string.h>

#define TOKEN_URL "https://login.microsoftonline.com/" FAKE_AZURE_TENANT "/oauth2/v2.0/token"
#define METADATA "http://169.254.169.254/metadata/identity/oauth2/token"
#define HOUR_US ((int64_t)3600 * 1000000)

static void refuse(struct web_reply *ret, struct arena *arena, int status, const char *code,
                   const char *why)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body, "{\"error\": \"%s\", \"error_description\": \"%s\"}", code, why);
    *ret = (struct web_reply){ .status = status,
                               .sent = true,
                               .body = arena_str(arena, buf_view(&body)) };
}

static void refuse_form(struct fake_azure *z, struct arena *arena, const char *why,
                        struct web_reply *ret)
{
    fake_fleet_bad_form(z->fleet, "token endpoint: %s", why);
    refuse(ret, arena, 400, "invalid_request", why);
}

/* The metadata service writes numbers as texts. */
static void hand_out(struct fake_azure *z, int64_t now_us, bool as_text, struct arena *arena,
                     struct web_reply *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    int64_t life_us = z->token_us > 0 ? z->token_us : HOUR_US;
    const char *quote = as_text ? "\"" : "";
    snprintf(z->token, sizeof z->token, "eyJ0.fake-token-%u", ++z->tokens);
    z->expires_us = now_us + life_us;
    buf_printf(&body,
               "{\"token_type\": \"Bearer\", \"expires_in\": %s%lld%s, \"access_token\": \"%s\"}",
               quote, (long long)(life_us / 1000000), quote, z->token);
    *ret = (struct web_reply){ .status = 200,
                               .sent = true,
                               .body = arena_str(arena, buf_view(&body)) };
}

static bool is(struct str a, const char *b)
{
    return a.data && b && str_eq(a, str_from(b));
}

static void take_form(struct fake_azure *z, const struct web_ask *ask, int64_t now_us,
                      struct arena *arena, struct web_reply *ret)
{
    static const char *const members[] = { "grant_type",
                                           "client_id",
                                           "scope",
                                           "client_secret",
                                           "client_assertion",
                                           "client_assertion_type",
                                           NULL };
    char why[FORM_WHY_BYTES];
    struct str secret = form_query(arena, ask->body, "client_secret");
    struct str assertion = form_query(arena, ask->body, "client_assertion");
    struct str type = form_query(arena, ask->body, "client_assertion_type");
    if (!is(ask->method, "POST") || !is(ask->content_type, "application/x-www-form-urlencoded"))
        refuse_form(z, arena, "want a form in a POST", ret);
    else if (form_query_check(ask->body, members, why) < 0)
        refuse_form(z, arena, why, ret);
    else if (!is(form_query(arena, ask->body, "grant_type"), "client_credentials") ||
             !is(form_query(arena, ask->body, "scope"), "https://management.azure.com/.default") ||
             (secret.data && assertion.data))
        refuse_form(z, arena, "grant_type, scope or two credentials", ret);
    else if (assertion.data && !is(type, "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"))
        refuse_form(z, arena, "client_assertion_type", ret);
    else if (!is(form_query(arena, ask->body, "client_id"), FAKE_AZURE_CLIENT))
        refuse(ret, arena, 400, "unauthorized_client", "AADSTS700016: no such application");
    else if (!is(secret, z->secret) && !is(assertion, z->federated))
        refuse(ret, arena, 401, "invalid_client", "AADSTS7000215: Invalid client secret provided.");
    else
        hand_out(z, now_us, false, arena, ret);
}

static void take_metadata(struct fake_azure *z, const struct web_ask *ask, int64_t now_us,
                          struct arena *arena, struct web_reply *ret)
{
    struct form_target at;
    must(form_target(ask->url, STR("/metadata/identity/oauth2/token"), &at) == 0);
    if (!z->on_machine)
        *ret = (struct web_reply){ .problem = STR("no route to host") };
    else if (!is(ask->method, "GET") || !is(form_header(ask, "metadata"), "true") ||
             !is(form_query(arena, at.query, "api-version"), "2018-02-01") ||
             !is(form_query(arena, at.query, "resource"), "https://management.azure.com/"))
        refuse_form(z, arena, "header, api-version or resource", ret);
    else
        hand_out(z, now_us, true, arena, ret);
}

static bool refuse_fault(const struct fleet_row *row, struct arena *arena, struct web_reply *ret)
{
    static const struct fake_words words[] = {
        { FLEET_AUTH, 401, "invalid_client", "AADSTS7000222: the secret has expired." },
        { FLEET_FORBIDDEN, 400, "unauthorized_client", "AADSTS7000112: disabled" },
        { FLEET_THROTTLE, 429, "too_many", "AADSTS50196" },
        { FLEET_SERVER_ERROR, 503, "temporarily_unavailable", "try later" },
        { FLEET_UNKNOWN_CODE, 418, "new_kind_of_error", "words that are in no table" },
        { 0 },
    };
    const struct fake_words *w = fake_words_of(words, row);
    if (w) refuse(ret, arena, w->status, w->code, w->message);
    return w != NULL;
}

bool fake_azure_login(struct fake_azure *z, const struct web_ask *ask, int64_t now_us,
                      struct arena *arena, struct web_reply *ret, const struct fleet_row **ret_row)
{
    bool metadata = str_starts(ask->url, STR(METADATA));
    if (!metadata && !is(ask->url, TOKEN_URL)) return false;
    *ret_row = fake_fleet_meet(z->fleet, FLEET_LOGIN, NULL, NULL, now_us);
    if (refuse_fault(*ret_row, arena, ret)) return true;
    if (metadata)
        take_metadata(z, ask, now_us, arena, ret);
    else
        take_form(z, ask, now_us, arena, ret);
    return true;
}
