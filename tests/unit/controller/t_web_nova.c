/* t_web_nova.c - drives the Nova kind over a fake of OpenStack's APIs: what keyless kinds must do, servers that find no
 * host, servers that are shelved, tokens that expire, catalogues, pages. */
#include "base/core/bits.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_nova.h"
#include "tests/fakes/cloud/kind_suite.h"

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

static struct fake_nova *nova(struct kind_ground *g)
{
    return g->ctx;
}

static const struct fleet_machine *made(const struct kind_ground *g, uint32_t i)
{
    assert_true(i < g->fleet.count);
    return &g->fleet.machine[i];
}

static void a_server_has_what_the_section_says(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
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
    kind_close(g);
}

static void a_disk_is_a_volume(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open_as(NULL, YAML_HEAD "    disk: 50GiB\n" OFFERS, NULL);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_string_equal(made(g, 0)->image, ""); /* it boots from the volume */
    kind_close(g);
}

/* ---- no host ---- */

static void without_a_host_it_is_stuck_and_the_next_zone_is_asked(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
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
    kind_close(g);
}

/* A controller over a cloud whose first zone has no host: the pool comes up in the second, and nothing stays. */
static void a_pool_comes_up_beside_a_zone_without_hosts(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    g->fleet.config.boot_us = 5 * RIG_SECOND;
    fake_fleet_stock(&g->fleet, "g1.small", "az1", 0);
    struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
    assert_true(fleet_world_up_and_down(&over, 1, 600));
    uint32_t in_az2 = 0;
    for (uint32_t i = 0; i < g->fleet.count; i++)
        in_az2 += strcmp(g->fleet.machine[i].zone, "az2") == 0;
    assert_true(in_az2 >= 2);
    kind_close(g);
}

static void an_unknown_flavor_is_refused(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "none");
    assert_int_equal(e->class, OFFER_INVALID);
    assert_non_null(strstr(e->err.text, "g1.none"));
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 0);
    kind_close(g);
}

/* ---- listings ---- */

static void many_servers_are_many_pages(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_check_pages(g, 230, "any", "any");
    kind_close(g);
}

static void a_server_on_its_way_out_is_listed_so(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 60 * RIG_SECOND, g->rig.now_us);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].leaves_us > 0 && !e->item[0].gone);
    kind_close(g);
}

/* ---- shelved servers ---- */

static const struct listed *the_item(struct kind_ground *g)
{
    const struct cloud_event *e = kind_well(web_rig_list(&g->rig));
    assert_int_equal(e->count, 1);
    return &e->item[0];
}

/* What a server is on its way to the shelf and back, and where no host has room for it. */
static void a_shelved_server_is_told_step_by_step(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    char handle[NAME_BYTES];
    nova(g)->task_us = 20 * RIG_SECOND;
    snprintf(handle, sizeof handle, "%s",
             kind_well(web_rig_create(&g->rig, "i-1", "small"))->made.handle);
    g->rig.now_us += 60 * RIG_SECOND;
    kind_well(web_rig_turn(&g->rig, handle, "i-1", false));
    const struct listed *l = the_item(g);
    assert_true(l->leaves_us > 0 && !l->stopped && !l->gone);
    assert_non_null(strstr(l->why, "shelving"));
    /* It cannot be started before it is there. */
    assert_int_equal(web_rig_turn(&g->rig, handle, "i-1", true)->class, OFFER_TRANSIENT);
    g->rig.now_us += 30 * RIG_SECOND;
    l = the_item(g);
    assert_true(l->stopped && l->gone && l->leaves_us == 0);

    fake_fleet_stock(&g->fleet, "g1.small", "az1", 0);
    int64_t before_us = g->rig.now_us;
    assert_int_equal(web_rig_turn(&g->rig, handle, "i-1", true)->class, OFFER_CAPACITY);
    assert_true(g->rig.now_us >= before_us + 20 * RIG_SECOND); /* told when the look is over */
    assert_true(the_item(g)->stopped);

    fake_fleet_stock(&g->fleet, "g1.small", "az1", -1);
    before_us = g->rig.now_us;
    kind_well(web_rig_turn(&g->rig, handle, "i-1", true));
    assert_true(g->rig.now_us < before_us + 28 * RIG_SECOND); /* not until it has booted */
    l = the_item(g);
    assert_false(l->stopped || l->gone || l->leaves_us);
    assert_string_equal(fleet_tag_of(made(g, 0), WEB_TAG_INTENT), "i-1");
    assert_int_equal(g->fleet.count, 1);
    kind_close(g);
}

/* ---- logins ---- */

static void an_expired_token_is_renewed(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    nova(g)->token_us = 600 * RIG_SECOND;
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    g->rig.now_us += 500 * RIG_SECOND; /* within the margin: before it expires */
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    assert_int_equal(nova(g)->logins, 2);
    nova(g)->revoked_us = g->rig.now_us;
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    assert_int_equal(nova(g)->logins, 3);
    kind_close(g);
}

static void an_application_credential_logs_in(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open_as(NULL, NULL, environ_of_app);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    kind_close(g);

    struct kind_ground *h =
        kind_open_as(NULL, YAML_HEAD "    credentials_file: /etc/openrc\n" OFFERS, environ_of_app);
    h->rig.secret = "#!/usr/bin/env bash\nexport OS_AUTH_URL=\"https://cloud.example/identity\"\n"
                    "export OS_USERNAME='fleet'\nOS_PASSWORD=" PASSWORD "\nunset OS_TENANT_ID\n"
                    "OS_PROJECT_ID=p1\n";
    const struct cloud_event *e = web_rig_list(&h->rig);
    if (e->rc < 0) fail_msg("%s", e->err.text);
    kind_close(h);
}

static void a_wrong_password_is_told_without_it(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    nova(g)->password = "another";
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_null(strstr(e->err.text, PASSWORD));
    kind_close(g);
}

static void of_two_regions_one_must_be_named(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open_as(NULL, NULL, environ_of_app); /* names none */
    nova(g)->two_regions = true;
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_non_null(strstr(e->err.text, "region"));
    kind_close(g);
    struct kind_ground *h = kind_open(NULL, 0);
    nova(h)->two_regions = true;
    assert_int_equal(web_rig_list(&h->rig)->rc, 0);
    kind_close(h);
}

/* ---- prices and settings ---- */

static void prices_are_those_of_the_file(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    assert_true(kind_price(e, "small").known);
    assert_false(kind_price(e, "any").known);
    kind_close(g);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
#define KIND "clouds:\n  - name: own\n    kind: nova\n"
        { KIND OFFERS, "image: kind nova needs it" },
        { KIND "    image: debian-12\n" OFFERS, "image: 'debian-12': want its id" },
        { KIND "    image: " IMAGE "\n    networks: [private]\n" OFFERS, "networks: 'private'" },
        { KIND "    image: " IMAGE "\n    ssh_keys: [a, b]\n" OFFERS, "ssh_keys" },
        { YAML_HEAD "    project: p\n" OFFERS, "project: kind nova reads no such" },
        { YAML_HEAD "    offers: [{name: a, type: b, spot: true}]\n", "spot: kind nova" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
}

int main(void)
{
    kind_suite = (struct kind_suite){ .keyless = true,
                                      .fake = &fake_nova,
                                      .yaml = yaml,
                                      .environ = environ_of_password,
                                      .token = PASSWORD,
                                      .takes_any_order = true };
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        KEYLESS_TESTS,
        STOP_TESTS,
        cmocka_unit_test(a_shelved_server_is_told_step_by_step),
        cmocka_unit_test(a_server_has_what_the_section_says),
        cmocka_unit_test(a_disk_is_a_volume),
        cmocka_unit_test(without_a_host_it_is_stuck_and_the_next_zone_is_asked),
        cmocka_unit_test(a_pool_comes_up_beside_a_zone_without_hosts),
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
