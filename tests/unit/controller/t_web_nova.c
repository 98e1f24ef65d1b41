/* t_web_nova.c - drives the Nova kind over a fake of OpenStack's APIs: what keyless kinds must do, servers that find no
 * host, tokens that expire, catalogues, pages. */
#include "base/core/bits.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_nova.h"
#include "tests/fakes/cloud/keyless_tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASSWORD "correct-horse-battery"
#define IMAGE "70a599e0-31e7-49b7-b260-868f441e862b"
#define NETWORK "ff608d40-75e9-48cb-b745-77bb55b5eaf2"
#define YAML_HEAD                       \
    "clouds:\n"                         \
    "  - name: own\n"                   \
    "    kind: nova\n"                  \
    "    image: " IMAGE "\n"            \
    "    networks: [" NETWORK "]\n"     \
    "    firewalls: [default, fleet]\n" \
    "    ssh_keys: [me]\n"              \
    "    calls_per_s: 100\n"
#define OFFERS                                                                        \
    "    offers:\n"                                                                   \
    "      - {name: small, type: g1.small, zones: [az1, az2], price_per_hour: 0.1}\n" \
    "      - {name: any, type: g1.small}\n"                                           \
    "      - {name: none, type: g1.none}\n"

static const char yaml[] = YAML_HEAD OFFERS;
static const char *const environ_of_password[] = { "OS_AUTH_URL=https://cloud.example/identity/v3/",
                                                   "OS_USERNAME=fleet",
                                                   "OS_PASSWORD=" PASSWORD,
                                                   "OS_PROJECT_NAME=fleet",
                                                   "OS_REGION_NAME=RegionOne",
                                                   NULL };
static const char *const environ_of_app[] = { "OS_AUTH_URL=https://cloud.example/identity",
                                              "OS_APPLICATION_CREDENTIAL_ID=a1",
                                              "OS_APPLICATION_CREDENTIAL_SECRET=" PASSWORD, NULL };

static struct fake_nova *nova(struct keyless_ground *g)
{
    return g->ctx;
}

static const struct fleet_machine *made(const struct keyless_ground *g, uint32_t i)
{
    assert_true(i < g->fleet.count);
    return &g->fleet.machine[i];
}

static void a_server_has_what_the_section_says(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    if (e->rc < 0) fail_msg("%s", e->err.text);
    assert_string_equal(made(g, 0)->name, "i-1");
    assert_string_equal(made(g, 0)->zone, "az1");
    assert_string_equal(made(g, 0)->image, IMAGE);
    assert_string_equal(fleet_tag_of(made(g, 0), WEB_TAG_SERVICE), "org/chat model");
    assert_non_null(strstr(made(g, 0)->user_data, "umask 077"));
    assert_int_equal(g->fleet.calls[FLEET_PRICES], 1); /* flavors */
    assert_int_equal(web_rig_create(&g->rig, "i-2", "small")->rc, 0);
    assert_int_equal(g->fleet.calls[FLEET_PRICES], 1); /* looked up once */
    assert_int_equal(nova(g)->logins, 1);
    keyless_close(g);
}

static void a_disk_is_a_volume(void **state)
{
    (void)state;
    const char *before = keyless_kind.yaml;
    keyless_kind.yaml = YAML_HEAD "    disk: 50GiB\n" OFFERS;
    struct keyless_ground *g = keyless_open(NULL, 0);
    keyless_kind.yaml = before;
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_string_equal(made(g, 0)->image, ""); /* it boots from the volume */
    keyless_close(g);
}

/* ---- no host ---- */

static void without_a_host_it_is_stuck_and_the_next_zone_is_asked(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    char handle[NAME_BYTES];
    fake_fleet_stock(&g->fleet, "g1.small", "az1", 0);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    assert_int_equal(e->rc, 0); /* Nova takes the order */
    snprintf(handle, sizeof handle, "%s", e->made.handle);
    e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_int_equal(e->item[0].stuck, OFFER_CAPACITY);
    assert_non_null(strstr(e->item[0].why, "No valid host"));
    assert_false(e->item[0].gone);
    assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "small")->rc, 0);
    assert_string_equal(made(g, 1)->zone, "az2");
    g->rig.now_us += 400 * RIG_SECOND; /* it may have hosts again */
    assert_int_equal(web_rig_create(&g->rig, "i-3", "small")->rc, 0);
    assert_string_equal(made(g, 2)->zone, "az1");
    keyless_close(g);
}

/* A controller over a cloud whose first zone has no host: the pool comes up in the second, and nothing stays. */
static void a_pool_comes_up_beside_a_zone_without_hosts(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    g->fleet.config.boot_us = 5 * RIG_SECOND;
    fake_fleet_stock(&g->fleet, "g1.small", "az1", 0);
    struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
    assert_true(fleet_world_up_and_down(&over, 1, 600));
    uint32_t in_az2 = 0;
    for (uint32_t i = 0; i < g->fleet.count; i++)
        in_az2 += strcmp(g->fleet.machine[i].zone, "az2") == 0;
    assert_true(in_az2 >= 2);
    keyless_close(g);
}

/* ---- faults of a create ---- */

struct faulty {
    struct fleet_row row;
    enum offer_error class;
    uint32_t running;
    const char *why;
};

/* An order that may have been carried out is not repeated within the call; the next create, behind a listing, ends with
 * one server. */
static void faults_of_a_create(void **state)
{
    (void)state;
    static const struct faulty rows[] = {
        { { .fault = FLEET_QUOTA }, OFFER_QUOTA, 0, "403 with Quota" },
        { { .fault = FLEET_FORBIDDEN }, OFFER_AUTH, 0, "403 of a policy" },
        { { .fault = FLEET_THROTTLE }, OFFER_THROTTLE, 0, "413, four tries" },
        { { .fault = FLEET_THROTTLE, .nth = 1, .delay_us = 7 * RIG_SECOND },
          OFFER_OK,
          1,
          "413 once" },
        { { .fault = FLEET_AUTH }, OFFER_AUTH, 0, "one new login does not help" },
        { { .fault = FLEET_AUTH, .nth = 1 }, OFFER_OK, 1, "one new login helps" },
        { { .fault = FLEET_INVALID }, OFFER_INVALID, 0, "400" },
        { { .fault = FLEET_SERVER_ERROR, .nth = 1 }, OFFER_TRANSIENT, 0, "500" },
        { { .fault = FLEET_UNKNOWN_CODE }, OFFER_TRANSIENT, 0, "words that no table has" },
        { { .fault = FLEET_UNREACHABLE }, OFFER_TRANSIENT, 0, "nothing was sent" },
        { { .fault = FLEET_UNREACHABLE, .nth = 1 }, OFFER_OK, 1, "nothing was sent once" },
        { { .fault = FLEET_LOST_REQUEST, .nth = 1 }, OFFER_TRANSIENT, 0, "not done, no reply" },
        { { .fault = FLEET_LOST_REPLY, .nth = 1 }, OFFER_TRANSIENT, 1, "done, no reply" },
        { { .fault = FLEET_LATE_SUCCESS, .nth = 1, .delay_us = 300 * RIG_SECOND },
          OFFER_TRANSIENT,
          0,
          "done after five minutes" },
        { { .fault = FLEET_HALF_REPLY, .nth = 1 }, OFFER_TRANSIENT, 1, "half a reply" },
        { { .fault = FLEET_GARBAGE, .nth = 1 }, OFFER_TRANSIENT, 1, "a proxy answers" },
        { { .fault = FLEET_SLOW, .nth = 1, .delay_us = 10 * RIG_SECOND }, OFFER_OK, 1, "slow" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fleet_row row = rows[i].row;
        row.op = FLEET_CREATE;
        struct keyless_ground *g = keyless_open(&row, 1);
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (e->class != rows[i].class || keyless_running(g) != rows[i].running)
            fail_msg("%s: %s (%s), %u run", rows[i].why, offer_error_names[e->class], e->err.text,
                     keyless_running(g));
        if (strstr(e->err.text, PASSWORD)) fail_msg("%s: %s", rows[i].why, e->err.text);
        g->fleet.config.script_count = 0;
        g->rig.now_us += 600 * RIG_SECOND;
        e = web_rig_create(&g->rig, "i-1", "small");
        if (e->rc < 0 || keyless_running(g) != 1)
            fail_msg("%s: then %s, %u run", rows[i].why, e->err.text, keyless_running(g));
        keyless_close(g);
    }
}

static void an_unknown_flavor_is_refused(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "none");
    assert_int_equal(e->class, OFFER_INVALID);
    assert_non_null(strstr(e->err.text, "g1.none"));
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 0);
    keyless_close(g);
}

/* ---- listings ---- */

static void many_servers_are_many_pages(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    for (int i = 0; i < 230; i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%d", i);
        assert_int_equal(web_rig_create(&g->rig, intent, "any")->rc, 0);
    }
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 230);
    for (uint32_t i = 0; i < 230; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(e->item[i].handle, e->item[k].handle);
    keyless_close(g);
}

static void a_server_on_its_way_out_is_listed_so(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 60 * RIG_SECOND, g->rig.now_us);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].leaves_us > 0 && !e->item[0].gone);
    keyless_close(g);
}

/* ---- logins ---- */

static void an_expired_token_is_renewed(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    nova(g)->token_us = 600 * RIG_SECOND;
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    g->rig.now_us += 500 * RIG_SECOND; /* within the margin: before it expires */
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    assert_int_equal(nova(g)->logins, 2);
    nova(g)->revoked_us = g->rig.now_us;
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    assert_int_equal(nova(g)->logins, 3);
    keyless_close(g);
}

static void an_application_credential_logs_in(void **state)
{
    (void)state;
    struct keyless_kind before = keyless_kind;
    keyless_kind.environ = environ_of_app;
    struct keyless_ground *g = keyless_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    keyless_close(g);

    keyless_kind.yaml = YAML_HEAD "    credentials_file: /etc/openrc\n" OFFERS;
    struct keyless_ground *h = keyless_open(NULL, 0);
    keyless_kind = before;
    h->rig.secret = "#!/usr/bin/env bash\nexport OS_AUTH_URL=\"https://cloud.example/identity\"\n"
                    "export OS_USERNAME='fleet'\nOS_PASSWORD=" PASSWORD "\nunset OS_TENANT_ID\n"
                    "OS_PROJECT_ID=p1\n";
    const struct cloud_event *e = web_rig_list(&h->rig);
    if (e->rc < 0) fail_msg("%s", e->err.text);
    keyless_close(h);
}

static void a_wrong_password_is_told_without_it(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    nova(g)->password = "another";
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_null(strstr(e->err.text, PASSWORD));
    keyless_close(g);
}

static void of_two_regions_one_must_be_named(void **state)
{
    (void)state;
    struct keyless_kind before = keyless_kind;
    keyless_kind.environ = environ_of_app; /* names none */
    struct keyless_ground *g = keyless_open(NULL, 0);
    keyless_kind = before;
    nova(g)->two_regions = true;
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_non_null(strstr(e->err.text, "region"));
    keyless_close(g);
    struct keyless_ground *h = keyless_open(NULL, 0);
    nova(h)->two_regions = true;
    assert_int_equal(web_rig_list(&h->rig)->rc, 0);
    keyless_close(h);
}

/* ---- prices and settings ---- */

static void prices_are_those_of_the_file(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    assert_true(keyless_price(e, "small").known);
    assert_false(keyless_price(e, "any").known);
    keyless_close(g);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
#define KIND "clouds:\n  - name: own\n    kind: nova\n"
        { KIND OFFERS, "image: kind nova needs it" },
        { KIND "    image: debian-12\n" OFFERS, "image: 'debian-12': want its id" },
        { KIND "    image: " IMAGE "\n    networks: [private]\n" OFFERS, "networks: 'private'" },
        { KIND "    image: " IMAGE "\n    ssh_keys: [a, b]\n" OFFERS, "ssh_keys" },
        { YAML_HEAD "    project: p\n" OFFERS, "project: kind nova reads no such" },
        { YAML_HEAD "    offers: [{name: a, type: b, spot: true}]\n", "spot: kind nova" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *problem = web_rig_problem(rows[i].text);
        if (!strstr(problem, rows[i].problem)) fail_msg("%s: %s", rows[i].problem, problem);
    }
}

int main(void)
{
    keyless_kind = (struct keyless_kind){
        .fake = &fake_nova, .yaml = yaml, .environ = environ_of_password, .token = PASSWORD
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keyless_one_intent_is_one_machine),
        cmocka_unit_test(keyless_a_lost_create_is_removed_by_its_intent),
        cmocka_unit_test(keyless_others_machines_are_left),
        cmocka_unit_test(keyless_faults_of_other_calls),
        cmocka_unit_test(keyless_duplicates_go),
        cmocka_unit_test(keyless_expired_credentials),
        cmocka_unit_test(keyless_killed_at_every_step),
        cmocka_unit_test(keyless_random_faults),
        cmocka_unit_test(a_server_has_what_the_section_says),
        cmocka_unit_test(a_disk_is_a_volume),
        cmocka_unit_test(without_a_host_it_is_stuck_and_the_next_zone_is_asked),
        cmocka_unit_test(a_pool_comes_up_beside_a_zone_without_hosts),
        cmocka_unit_test(faults_of_a_create),
        cmocka_unit_test(an_unknown_flavor_is_refused),
        cmocka_unit_test(many_servers_are_many_pages),
        cmocka_unit_test(a_server_on_its_way_out_is_listed_so),
        cmocka_unit_test(an_expired_token_is_renewed),
        cmocka_unit_test(an_application_credential_logs_in),
        cmocka_unit_test(a_wrong_password_is_told_without_it),
        cmocka_unit_test(of_two_regions_one_must_be_named),
        cmocka_unit_test(prices_are_those_of_the_file),
        cmocka_unit_test(settings_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
