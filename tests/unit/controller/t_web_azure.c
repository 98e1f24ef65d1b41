/* t_web_azure.c - drives the kind of Azure over a fake of its API, in virtual time: one machine an intent whatever is
 * lost, what a failed create leaves is deleted, logins, prices. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_azure.h"
#include "tests/fakes/cloud/kind_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET "Zx8Q~the-secret-of-the-application"
#define SUBNET                                                                                 \
    "/subscriptions/s/resourceGroups/n/providers/Microsoft.Network/virtualNetworks/v/subnets/" \
    "fleet"
#define YAML_HEAD                                    \
    "clouds:\n"                                      \
    "  - name: z\n"                                  \
    "    kind: azure\n"                              \
    "    project: " FAKE_AZURE_SUBSCRIPTION "\n"     \
    "    group: " FAKE_AZURE_GROUP "\n"              \
    "    tenant: " FAKE_AZURE_TENANT "\n"            \
    "    region: " FAKE_AZURE_REGION "\n"            \
    "    image: 'Debian:debian-12:12-gen2:latest'\n" \
    "    networks: [" SUBNET "]\n"                   \
    "    ssh_keys: ['ssh-ed25519 AAAA me']\n"        \
    "    calls_per_s: 100\n"
#define OFFERS                                                                    \
    "    offers:\n"                                                               \
    "      - {name: small, type: Standard_D4s_v5, zones: ['1', '2']}\n"           \
    "      - {name: any, type: Standard_D4s_v5, price_per_hour: 0.5}\n"           \
    "      - {name: spot, type: Standard_NC4as_T4_v3, zones: ['3'], spot: true, " \
    "spot_price_max: 0.4}\n"                                                      \
    "      - {name: gpu, type: Standard_NC4as_T4_v3}\n"                           \
    "      - {name: none, type: Standard_D999, capacity_reservation: /subscriptions/s/crg}\n"
static const char yaml[] = YAML_HEAD OFFERS;
static const char all_settings[] = YAML_HEAD "    disk: 100GiB\n"
                                             "    firewalls: [/subscriptions/s/nsg]\n"
                                             "    account: /subscriptions/s/identity\n" OFFERS;
static const char *const environ_of_secret[] = { "AZURE_CLIENT_ID=" FAKE_AZURE_CLIENT,
                                                 "AZURE_CLIENT_SECRET=" SECRET, NULL };

static const struct fleet_config plain = {
    .type = { { .name = "Standard_D4s_v5",
                .price_udollars_h = 230000,
                .cores = 4,
                .memory_gib = 16 },
              { .name = "Standard_NC4as_T4_v3",
                .price_udollars_h = 526000,
                .spot_udollars_h = 190000,
                .cores = 4,
                .gpus = 1,
                .memory_gib = 28 } },
    .type_count = 2,
    .zone = { "1", "2", "3" },
    .zone_count = 3,
};

static void *open_azure(struct fake_fleet *fleet)
{
    struct fake_azure *z = calloc(1, sizeof *z);
    must(z);
    *z = (struct fake_azure){
        .fleet = fleet, .secret = SECRET, .date_us = RIG_DATE_US, .operation_us = 12 * RIG_SECOND
    };
    return z;
}

static struct fake_azure *azure(struct kind_ground *g)
{
    return g->ctx;
}

static void quick_operations(struct kind_ground *g)
{
    azure(g)->operation_us = 3 * RIG_SECOND;
}

/* ---- what is made ---- */

static void calls_last_as_their_operations(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    assert_true(g->rig.now_us - RIG_START >= 12 * RIG_SECOND); /* until the operation was done */
    kind_well(web_rig_remove(&g->rig, "i-1", "i-1"));
    assert_true(kind_well(web_rig_list(&g->rig))->item[0].leaves_us > 0);
    kind_close(g);
}

static void every_setting_is_understood(void **state)
{
    (void)state;
    static const char *const offers[] = { "small", "any", "spot", "gpu" };
    struct kind_ground *g = kind_record(kind_open_as(NULL, all_settings, NULL));
    for (size_t i = 0; i < COUNT_OF(offers); i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%zu", i);
        kind_well(web_rig_create(&g->rig, intent, offers[i]));
        assert_int_equal(g->fleet.machine[i].spot, strcmp(offers[i], "spot") == 0);
    }
    assert_int_equal(web_rig_create(&g->rig, "i-9", "none")->class, OFFER_INVALID);
    kind_close(g);
}

/* Another's machine of that name is neither changed nor ended; so too where the API did not look at the condition. */
static void another_ones_machine_is_left(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct kind_ground *g = kind_open(NULL, 0);
        struct fleet_machine *theirs;
        const struct fleet_order order = { .name = "i-1", .type = "Standard_D4s_v5", .zone = "1" };
        azure(g)->ignores_condition = way;
        assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                         FLEET_FINE);
        assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->class, OFFER_INVALID);
        assert_int_equal(kind_well(web_rig_list(&g->rig))->count, 0);
        kind_well(web_rig_remove(&g->rig, "", "i-1"));
        g->rig.now_us += 60 * RIG_SECOND;
        assert_int_equal(kind_running(g), 1);
        kind_close(g);
    }
}

/* ---- creates that fail ---- */

/* The operation fails and leaves a machine: it is gone before another zone is asked, and before a class says that
 * nothing was made. */
static void what_a_failed_create_leaves_is_deleted(void **state)
{
    (void)state;
    static const struct {
        const char *code;
        enum offer_error class;
    } rows[] = {
        { "AllocationFailed", OFFER_CAPACITY },
        { "ZonalAllocationFailed", OFFER_CAPACITY },
        { "OverconstrainedAllocationRequest", OFFER_CAPACITY },
        { "OperationNotAllowed", OFFER_QUOTA },
        { "PlatformImageNotFound", OFFER_INVALID },
        { "InternalExecutionError", OFFER_TRANSIENT },
        { "NEVER_HEARD_OF", OFFER_TRANSIENT },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kind_ground *g = kind_open(NULL, 0);
        azure(g)->failure = rows[i].code;
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "any");
        if (e->class != rows[i].class || kind_running(g) != 0)
            fail_msg("%s: %s (%s), %u run", rows[i].code, offer_error_names[e->class], e->err.text,
                     kind_running(g));
        bool named = rows[i].class == OFFER_TRANSIENT || strstr(e->err.text, rows[i].code);
        if (!named) fail_msg("%s: %s", rows[i].code, e->err.text);
        azure(g)->failure = NULL;
        g->rig.now_us += 60 * RIG_SECOND;
        kind_well(web_rig_create(&g->rig, "i-1", "any"));
        assert_int_equal(kind_running(g), 1);
        kind_close(g);
    }
}

/* Without the right to delete it, or as long as Azure does not, something was made. */
static void what_cannot_be_deleted_is_not_denied(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    azure(g)->failure = "AllocationFailed";
    azure(g)->denied = (uint64_t)1 << AZURE_DELETE;
    assert_int_equal(web_rig_create(&g->rig, "i-1", "any")->class, OFFER_TRANSIENT);
    assert_int_equal(kind_running(g), 1);
    const struct cloud_event *e = kind_well(web_rig_list(&g->rig));
    assert_true(e->count == 1 && e->item[0].gone);
    azure(g)->denied = 0;
    azure(g)->failure = NULL;
    kind_well(web_rig_create(&g->rig, "i-1", "any")); /* deletes what failed first */
    assert_int_equal(kind_running(g), 1);
    assert_false(kind_well(web_rig_list(&g->rig))->item[0].gone);
    kind_close(g);
}

static void a_size_without_stock(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    fake_fleet_stock(&g->fleet, "Standard_D4s_v5", "1", 0);
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    assert_string_equal(g->fleet.machine[0].zone, "2");
    fake_fleet_stock(&g->fleet, "Standard_D4s_v5", "2", 0);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-2", "small");
    assert_int_equal(e->class, OFFER_CAPACITY);
    assert_non_null(strstr(e->err.text, "SkuNotAvailable"));
    kind_close(g);
}

/* ---- what a provider may do ---- */

/* The token goes to no other host, whatever a reply says. */
static void an_operation_elsewhere_is_not_asked_for(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    azure(g)->names_strangers = true;
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "any");
    assert_true(e->rc == 0 || e->class == OFFER_TRANSIENT);
    assert_int_equal(kind_running(g), 1);
    kind_close(g);
}

/* ---- listings ---- */

static void many_machines_are_many_pages(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    struct fleet_machine *theirs;
    const struct fleet_order order = { .name = "theirs", .type = "Standard_D4s_v5", .zone = "1" };
    azure(g)->page = 30;
    azure(g)->operation_us = 0;
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                     FLEET_FINE);
    kind_check_pages(g, 100, "any", "any");
    kind_close(g);
}

static void a_spot_machine_on_its_way_out_is_listed_so(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_well(web_rig_create(&g->rig, "i-1", "spot"));
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 30 * RIG_SECOND, g->rig.now_us);
    const struct cloud_event *e = kind_well(web_rig_list(&g->rig));
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].leaves_us > 0);
    assert_string_equal(e->item[0].why, "the machine is deallocating");
    g->rig.now_us += 60 * RIG_SECOND;
    assert_int_equal(kind_well(web_rig_list(&g->rig))->count, 0);
    kind_close(g);
}

static void prices_are_those_of_the_meter(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = kind_well(web_rig_prices(&g->rig));
    assert_int_equal(e->count, 5);
    assert_true(kind_costs(e, "small", 0.23));
    assert_true(kind_costs(e, "any", 0.5));
    assert_true(kind_costs(e, "spot", 0.19));
    assert_true(kind_costs(e, "gpu", 0.526));
    assert_false(kind_price(e, "none").known);
    kind_close(g);
}

/* ---- logins ---- */

static void three_ways_to_log_in(void **state)
{
    (void)state;
    static const char *const federated[] = { "AZURE_CLIENT_ID=" FAKE_AZURE_CLIENT,
                                             "AZURE_FEDERATED_TOKEN_FILE=/t", NULL };
    static const char *const nothing[] = { NULL };
    struct kind_ground *g = kind_open(NULL, 0);
    kind_well(web_rig_list(&g->rig));
    kind_close(g);

    g = kind_open_as(NULL, NULL, federated);
    azure(g)->federated = "token.of.the.pod";
    g->rig.secret = "token.of.the.pod\n";
    kind_well(web_rig_list(&g->rig));
    g->rig.secret = "another";
    g->rig.now_us += 3600 * RIG_SECOND; /* the file is read anew */
    assert_int_equal(web_rig_list(&g->rig)->class, OFFER_AUTH);
    kind_close(g);

    g = kind_open_as(NULL, NULL, nothing);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc < 0);
    assert_non_null(strstr(e->err.text, "AZURE_CLIENT_SECRET"));
    azure(g)->on_machine = true;
    g->rig.now_us += 60 * RIG_SECOND;
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    kind_close(g);
}

static void a_secret_is_nowhere_repeated(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    azure(g)->secret = "another";
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_null(strstr(e->err.text, SECRET));
    assert_non_null(strstr(e->err.text, "AADSTS7000215"));
    kind_close(g);
    static const char *const no_client[] = { "AZURE_CLIENT_SECRET=" SECRET, NULL };
    g = kind_open_as(NULL, NULL, no_client);
    e = web_rig_list(&g->rig);
    assert_non_null(strstr(e->err.text, "AZURE_CLIENT_ID"));
    kind_close(g);
}

static void a_token_is_renewed_before_it_ends(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    for (int i = 0; i < 100; i++) {
        kind_well(web_rig_list(&g->rig));
        g->rig.now_us += 120 * RIG_SECOND;
    }
    assert_int_equal(azure(g)->tokens, 4); /* 12,000 s */
    kind_close(g);
}

/* ---- rights ---- */

/* The page for users lists the actions of the role that it makes: those that the driver's requests needed. */
static void the_page_lists_the_actions(void **state)
{
    (void)state;
    struct kind_ground *g = kind_record(kind_open_as(NULL, all_settings, NULL));
    CLEANUP(buf_fini) struct buf page = { 0 };
    must(file_read(MUSTER_SOURCE "/docs/clouds/azure.md", 1 << 20, &page, NULL) == 0);
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    kind_well(web_rig_list(&g->rig));
    kind_well(web_rig_turn(&g->rig, "i-1", "i-1", false));
    kind_well(web_rig_turn(&g->rig, "i-1", "i-1", true));
    azure(g)->denied = (uint64_t)1 << AZURE_DEALLOCATE | (uint64_t)1 << AZURE_START;
    assert_int_equal(web_rig_turn(&g->rig, "i-1", "i-1", false)->class, OFFER_AUTH);
    assert_int_equal(web_rig_turn(&g->rig, "i-1", "i-1", true)->class, OFFER_AUTH);
    azure(g)->denied = 0;
    kind_well(web_rig_remove(&g->rig, "i-1", "i-1"));
    for (uint32_t i = 0; i < AZURE_ACTION_COUNT; i++)
        if (!(azure(g)->actions >> i & 1) ||
            str_find(buf_view(&page), str_from(fake_azure_actions[i])) == SIZE_MAX)
            fail_msg("%s", fake_azure_actions[i]);
    for (uint32_t i = AZURE_SUBNET; i <= AZURE_IDENTITY; i++) {
        azure(g)->denied = (uint64_t)1 << i;
        const struct cloud_event *e = web_rig_create(&g->rig, "i-9", "small");
        assert_int_equal(e->class, OFFER_AUTH);
        assert_non_null(strstr(e->err.text, fake_azure_actions[i]));
    }
    kind_close(g);
}

/* ---- settings ---- */

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
        { YAML_HEAD "    profile: eu\n" OFFERS, "profile: kind azure reads no such setting" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, gpus: 1}\n", "gpus: kind azure" },
        { "clouds:\n  - name: z\n    kind: azure\n    image: x\n" OFFERS, "kind azure needs it" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
}

int main(void)
{
    kind_suite = (struct kind_suite){ .fake = &fake_azure,
                                      .fleet = &plain,
                                      .open = open_azure,
                                      .yaml = yaml,
                                      .environ = environ_of_secret,
                                      .hidden = "eyJ0", /* begins a token */
                                      .record = "MUSTER_AZURE_RECORD",
                                      .before_kills = quick_operations,
                                      .several = true,
                                      .operations = true,
                                      .unique = true,
                                      .machine_login = true,
                                      .end_us = 60 * RIG_SECOND,
                                      .zone = "1",
                                      .image = "12-gen2",
                                      .service_tag = "org/chat model",
                                      .data = "umask 077",
                                      .handle = "i-1" };
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        STOP_TESTS,
        cmocka_unit_test(calls_last_as_their_operations),
        cmocka_unit_test(every_setting_is_understood),
        cmocka_unit_test(another_ones_machine_is_left),
        cmocka_unit_test(what_a_failed_create_leaves_is_deleted),
        cmocka_unit_test(what_cannot_be_deleted_is_not_denied),
        cmocka_unit_test(a_size_without_stock),
        cmocka_unit_test(an_operation_elsewhere_is_not_asked_for),
        cmocka_unit_test(many_machines_are_many_pages),
        cmocka_unit_test(a_spot_machine_on_its_way_out_is_listed_so),
        cmocka_unit_test(prices_are_those_of_the_meter),
        cmocka_unit_test(three_ways_to_log_in),
        cmocka_unit_test(a_secret_is_nowhere_repeated),
        cmocka_unit_test(a_token_is_renewed_before_it_ends),
        cmocka_unit_test(the_page_lists_the_actions),
        cmocka_unit_test(settings_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
