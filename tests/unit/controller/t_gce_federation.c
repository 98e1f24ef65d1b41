/* t_gce_federation.c - logs in at Google for an identity of another provider, over a fake of its services: subject tokens from
 * a file and from a URL, with and without a service account, their ends, refusals, and what is told of them. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/fakes/cloud/fake_gce.h"
#include "tests/fakes/cloud/kind_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_FILE "/run/idp/token"
#define YAML                                             \
    "clouds:\n"                                          \
    "  - name: g\n"                                      \
    "    kind: gce\n"                                    \
    "    project: p-1\n"                                 \
    "    image: projects/debian-cloud/global/images/x\n" \
    "    calls_per_s: 100\n"                             \
    "    credentials_file: /k\n"                         \
    "    offers:\n"                                      \
    "      - {name: small, type: n2-standard-4, zones: [eu-a], price_per_hour: 0.2}\n"

#define HEAD                                                                 \
    "{\"type\": \"external_account\", \"audience\": \"" FAKE_GCE_AUDIENCE    \
    "\", \"subject_token_type\": \"urn:ietf:params:oauth:token-type:jwt\", " \
    "\"token_url\": \"https://sts.googleapis.com/v1/token\", "
#define ACCOUNT                                                                               \
    "\"service_account_impersonation_url\": "                                                 \
    "\"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" FAKE_GCE_ACCOUNT \
    ":generateAccessToken\", "
#define FROM_FILE "\"credential_source\": {\"file\": \"" TOKEN_FILE "\"}}"
#define FROM_URL                                                                \
    "\"credential_source\": {\"url\": \"https://idp.example/identity/token\", " \
    "\"headers\": {\"x-caller\": \"fleet\"}, "                                  \
    "\"format\": {\"type\": \"json\", \"subject_token_field_name\": \"value\"}}}"

static const struct fleet_config plain = {
    .type = { { .name = "n2-standard-4", .price_udollars_h = 200000, .cores = 4 } },
    .type_count = 1,
    .zone = { "eu-a" },
    .zone_count = 1,
};

static void *open_gce(struct fake_fleet *fleet)
{
    struct fake_gce *f = calloc(1, sizeof *f);
    must(f);
    *f = (struct fake_gce){ .fleet = fleet,
                            .project = "p-1",
                            .date_us = RIG_DATE_US,
                            .operation_us = RIG_SECOND,
                            .subject = FAKE_GCE_SUBJECT };
    return f;
}

static struct fake_gce *gce(struct kind_ground *g)
{
    return g->ctx;
}

static struct kind_ground *open_with(const char *credentials)
{
    struct kind_ground *g = kind_open_as(NULL, NULL, NULL);
    g->rig.secret = credentials;
    g->rig.token_path = TOKEN_FILE;
    g->rig.token = FAKE_GCE_SUBJECT "\n";
    return g;
}

/* ---- what works ---- */

static void each_source_opens_the_api(void **state)
{
    (void)state;
    static const struct {
        const char *credentials;
        bool direct;
        uint32_t requests; /* of the login */
    } rows[] = {
        { HEAD FROM_FILE, true, 1 },
        { HEAD ACCOUNT FROM_FILE, false, 2 },
        { HEAD FROM_URL, true, 2 },
        { HEAD ACCOUNT FROM_URL, false, 3 },
        { HEAD ACCOUNT
          "\"service_account_impersonation\": {\"token_lifetime_seconds\": 900}, " FROM_FILE,
          false, 2 },
        { HEAD "\"service_account_impersonation_url\": null, " FROM_FILE, true, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kind_ground *g = open_with(rows[i].credentials);
        gce(g)->direct = rows[i].direct;
        kind_well(web_rig_create(&g->rig, "i-1", "small"));
        assert_int_equal(g->fleet.calls[FLEET_LOGIN], rows[i].requests);
        assert_int_equal(gce(g)->tokens, rows[i].direct ? 1 : 2);
        assert_int_equal(kind_running(g), 1);
        kind_close(g);
    }
}

/* The variable that all of Google's clients read names the file, too. */
static void the_usual_variable_names_a_file(void **state)
{
    (void)state;
    static const char *const environ[] = { "GOOGLE_APPLICATION_CREDENTIALS=/k", NULL };
    static const char file[] = "    credentials_file: /k\n";
    char yaml[sizeof YAML] = YAML;
    char *line = strstr(yaml, file);
    memmove(line, line + sizeof file - 1, strlen(line + sizeof file - 1) + 1);
    struct kind_ground *g = kind_open_as(NULL, yaml, environ);
    g->rig.secret = HEAD ACCOUNT FROM_FILE;
    g->rig.token_path = TOKEN_FILE;
    g->rig.token = FAKE_GCE_SUBJECT;
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    kind_close(g);
}

/* A token lives as long as its account's reply says; the subject token is read anew for the next. */
static void a_rotated_token_is_taken(void **state)
{
    (void)state;
    struct kind_ground *g = open_with(
        HEAD ACCOUNT
        "\"service_account_impersonation\": {\"token_lifetime_seconds\": 900}, " FROM_FILE);
    kind_well(web_rig_list(&g->rig));
    g->rig.now_us += 700 * RIG_SECOND; /* a minute before the margin */
    kind_well(web_rig_list(&g->rig));
    assert_int_equal(g->fleet.calls[FLEET_LOGIN], 2);
    gce(g)->subject = "the.next.token";
    g->rig.token = "the.next.token";
    g->rig.now_us += 100 * RIG_SECOND;
    kind_well(web_rig_list(&g->rig));
    assert_int_equal(g->fleet.calls[FLEET_LOGIN], 4);
    kind_close(g);
}

/* Our clock is off; the end of the token is Google's date. */
static void a_wrong_clock_takes_no_token_for_ended(void **state)
{
    (void)state;
    static const int64_t off_us[] = { 86400 * RIG_SECOND, -86400 * RIG_SECOND };
    for (size_t i = 0; i < COUNT_OF(off_us); i++) {
        struct kind_ground *g = open_with(HEAD ACCOUNT FROM_FILE);
        g->rig.drive.date_us += off_us[i];
        for (int n = 0; n < 10; n++) {
            kind_well(web_rig_list(&g->rig));
            g->rig.now_us += 300 * RIG_SECOND;
        }
        assert_int_equal(g->fleet.calls[FLEET_LOGIN], 2);
        kind_close(g);
    }
}

static void faults_are_tried_again(void **state)
{
    (void)state;
    static const enum fleet_fault faults[] = { FLEET_SERVER_ERROR, FLEET_THROTTLE, FLEET_LOST_REPLY,
                                               FLEET_GARBAGE, FLEET_HALF_REPLY };
    for (uint32_t nth = 1; nth <= 3; nth++)
        for (size_t i = 0; i < COUNT_OF(faults); i++) {
            struct fleet_config config = plain;
            config.script_count = 1;
            config.script[0] =
                (struct fleet_row){ .op = FLEET_LOGIN, .nth = nth, .fault = faults[i] };
            struct kind_ground *g = kind_open_as(&config, NULL, NULL);
            g->rig.secret = HEAD ACCOUNT FROM_URL;
            const struct cloud_event *e = web_rig_list(&g->rig);
            if (nth == 1 && faults[i] == FLEET_GARBAGE) { /* a source that gives no JSON is wrong */
                assert_int_equal(e->class, OFFER_AUTH);
            } else if (e->rc < 0) {
                fail_msg("%s of request %u: %s", fleet_fault_names[faults[i]], nth, e->err.text);
            }
            kind_close(g);
        }
}

/* ---- what is refused ---- */

static void refuses(struct kind_ground *g, const char *words)
{
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc < 0);
    assert_int_equal(e->class, OFFER_AUTH);
    if (!strstr(e->err.text, words)) fail_msg("%s: %s", words, e->err.text);
    assert_null(strstr(e->err.text, "of-the-idp")); /* the subject token, and a source's words */
    assert_null(strstr(e->err.text, "ya29"));
    kind_close(g);
}

static void refusals_are_told_without_tokens(void **state)
{
    (void)state;
    struct kind_ground *g = open_with(HEAD ACCOUNT FROM_FILE);
    gce(g)->subject = "another";
    refuses(g, "the token service: login of gce: status 400, invalid_grant: The ID Token ***");

    /* One longer than what is repeated of a provider's words: no half of it stays. */
    char token[801];
    for (size_t i = 0; i < sizeof token - 1; i++)
        token[i] = (char)('a' + i % 26);
    token[sizeof token - 1] = 0;
    g = open_with(HEAD FROM_FILE);
    g->rig.token = token;
    assert_int_equal(web_rig_list(&g->rig)->class, OFFER_AUTH);
    assert_null(strstr(g->rig.event.err.text, "abcdef"));
    kind_close(g);

    g = open_with(HEAD ACCOUNT FROM_FILE);
    gce(g)->denied = 1u << GCE_IMPERSONATE;
    refuses(g, "iam.serviceAccounts.getAccessToken");

    g = open_with(HEAD ACCOUNT "\"credential_source\": {\"url\": "
                               "\"https://idp.example/identity/token\"}}");
    refuses(g, "credential_source: login of gce: status 403");

    g = open_with(HEAD ACCOUNT FROM_FILE);
    g->rig.token = NULL;
    refuses(g, "credential_source: " TOKEN_FILE);
}

/* Nothing is sent where the configuration is wrong, nor to whom it must not go. */
static void configurations_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *credentials, *words;
    } rows[] = {
        { HEAD ACCOUNT "\"credential_source\": {\"environment_id\": \"aws1\"}}", "is AWS" },
        { HEAD "\"credential_source\": {\"executable\": {\"command\": \"/x\"}}}",
          "neither a file" },
        { HEAD "\"x\": 1}", "neither a file nor a url" },
        { HEAD "\"workforce_pool_user_project\": \"1\", " FROM_FILE, "a person's" },
        { "{\"type\": \"external_account\", \"audience\": \"a\", \"subject_token_type\": \"t\", "
          "\"token_url\": \"http://sts.googleapis.com/v1/token\", " FROM_FILE,
          "token_url is not https://" },
        { "{\"type\": \"external_account\", \"subject_token_type\": \"t\", \"token_url\": "
          "\"https://sts.googleapis.com/v1/token\", " FROM_FILE,
          "lack an audience" },
        { HEAD "\"credential_source\": {\"url\": \"http://idp.example/identity/token\"}}",
          "credential_source.url is neither" },
        { HEAD "\"credential_source\": {\"url\": \"http://127.0.0.1:1@idp.example/token\"}}",
          "credential_source.url is neither" },
        { HEAD "\"credential_source\": {\"url\": \"https://idp.example/\", \"headers\": {\"a\": "
               "\"b\\r\\nc: d\"}}}",
          "credential_source.headers" },
        { HEAD "\"credential_source\": {\"url\": \"https://idp.example/\", \"headers\": {\"a b\": "
               "\"c\"}}}",
          "credential_source.headers" },
        { HEAD "\"credential_source\": {\"file\": \"" TOKEN_FILE
               "\", \"format\": {\"type\": \"xml\"}}}",
          "credential_source.format" },
        { HEAD "\"credential_source\": {\"file\": \"" TOKEN_FILE
               "\", \"format\": {\"type\": \"json\", \"subject_token_field_name\": \"none\"}}}",
          "credential_source has no text none" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kind_ground *g = open_with(rows[i].credentials);
        if (strstr(rows[i].words, "no text none")) g->rig.token = "{\"some\": \"x\"}";
        web_rig_list(&g->rig);
        assert_int_equal(g->rig.drive.asks, 0);
        kind_close(g);
        g = open_with(rows[i].credentials);
        if (strstr(rows[i].words, "no text none")) g->rig.token = "{\"some\": \"x\"}";
        refuses(g, rows[i].words);
    }
    struct kind_ground *g = open_with(HEAD FROM_FILE);
    g->rig.token = "two words";
    refuses(g, "one line without blanks");
    g = open_with(
        HEAD ACCOUNT
        "\"service_account_impersonation\": {\"token_lifetime_seconds\": 60}, " FROM_FILE);
    refuses(g, "token_lifetime_seconds: want 600 to 43200");
}

int main(void)
{
    kind_suite = (struct kind_suite){
        .fake = &fake_gce, .fleet = &plain, .open = open_gce, .yaml = YAML, .hidden = "ya29"
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_source_opens_the_api),
        cmocka_unit_test(the_usual_variable_names_a_file),
        cmocka_unit_test(a_rotated_token_is_taken),
        cmocka_unit_test(a_wrong_clock_takes_no_token_for_ended),
        cmocka_unit_test(faults_are_tried_again),
        cmocka_unit_test(refusals_are_told_without_tokens),
        cmocka_unit_test(configurations_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
