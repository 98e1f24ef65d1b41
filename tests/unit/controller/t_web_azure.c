/* t_web_azure.c - drives the kind of Azure over a fake of its API, in virtual time: one machine an intent whatever is
 * lost, what a failed create leaves is deleted, logins, prices, and a controller that is killed at every step. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_azure.h"
#include "tests/fakes/cloud/fleet_world.h"
#include "tests/unit/unit.h"

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

struct ground {
    struct fake_fleet fleet;
    struct fake_azure azure;
    struct web_rig rig;
    FILE *record; /* of requests, for tests/proc/cloud/t_azure.py; NULL: none */
};

static const struct fleet_config plain = {
    .boot_us = 30 * RIG_SECOND,
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

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct ground *g = ctx;
    CLEANUP(buf_fini) struct buf line = { 0 };
    struct json_writer w;
    int64_t took_us = fake_azure.respond(&g->azure, ask, now_us, arena, ret);
    if (!g->record) return took_us;
    json_writer_init(&w, &line);
    json_object(&w);
    json_kv_str(&w, "method", ask->method);
    json_kv_str(&w, "url", ask->url);
    json_kv_str(&w, "body", ask->body);
    json_object_end(&w);
    fprintf(g->record, "%.*s\n", (int)line.len, line.data);
    return took_us;
}

static const struct cloud_fake recorded = { .name = "azure", .respond = respond };

static struct ground *ground_of(const struct fleet_config *config, const char *text,
                                const char *const *environ)
{
    struct ground *g = calloc(1, sizeof *g);
    must(g);
    fake_fleet_init(&g->fleet, config);
    g->azure = (struct fake_azure){ .fleet = &g->fleet,
                                    .secret = SECRET,
                                    .date_us = RIG_DATE_US,
                                    .operation_us = 12 * RIG_SECOND };
    web_rig_open(&g->rig, text, &recorded, g, environ);
    return g;
}

/* Has requests recorded where the environment names a file. */
static struct ground *recorded_ground(const struct fleet_config *config, const char *text)
{
    struct ground *g = ground_of(config, text, environ_of_secret);
    const char *path = getenv("MUSTER_AZURE_RECORD");
    if (path) g->record = fopen(path, "a");
    return g;
}

static struct ground *ground(const struct fleet_row *script, uint32_t count)
{
    struct fleet_config config = plain;
    config.script_count = count;
    if (count > 0) memcpy(config.script, script, count * sizeof *script);
    return recorded_ground(&config, yaml);
}

static void ground_free(struct ground *g)
{
    if (g->fleet.refused_form > 0) fail_msg("%s", g->fleet.last_refused);
    web_rig_close(&g->rig);
    fake_fleet_fini(&g->fleet);
    if (g->record) fclose(g->record);
    free(g);
}

static uint32_t running(const struct ground *g)
{
    return fake_fleet_running(&g->fleet, g->rig.now_us);
}

static const struct cloud_event *made(const struct cloud_event *e)
{
    if (e->rc < 0) fail_msg("%s: %s", offer_error_names[e->class], e->err.text);
    return e;
}

/* ---- what is made ---- */

static void one_intent_is_one_machine(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    const struct cloud_event *e = made(web_rig_create(&g->rig, "i-1", "small"));
    assert_string_equal(e->made.handle, "i-1");
    assert_string_equal(e->made.intent, "i-1");
    assert_true(g->rig.now_us - RIG_START >= 12 * RIG_SECOND); /* until the operation was done */
    assert_string_equal(made(web_rig_create(&g->rig, "i-1", "small"))->made.handle, "i-1");
    assert_int_equal(g->fleet.count, 1);

    const struct fleet_machine *m = &g->fleet.machine[0];
    assert_string_equal(m->name, "i-1");
    assert_string_equal(m->type, "Standard_D4s_v5");
    assert_string_equal(m->zone, "1");
    assert_string_equal(m->image, "12-gen2");
    assert_string_equal(fleet_tag_of(m, WEB_TAG_SERVICE), "org/chat model");
    assert_non_null(strstr(m->user_data, "umask 077"));

    e = made(web_rig_list(&g->rig));
    assert_int_equal(e->count, 1);
    assert_string_equal(e->item[0].service, "org/chat model");
    assert_string_equal(e->item[0].offer, "small");
    assert_string_equal(e->item[0].intent, "i-1");
    assert_false(e->item[0].unreadable || e->item[0].gone || e->item[0].leaves_us);
    assert_true(llabs(e->item[0].created_us - m->made_us) < RIG_SECOND);

    made(web_rig_remove(&g->rig, "i-1", "i-1"));
    assert_true(made(web_rig_list(&g->rig))->item[0].leaves_us > 0);
    g->rig.now_us += 60 * RIG_SECOND;
    made(web_rig_remove(&g->rig, "i-1", "i-1"));
    made(web_rig_remove(&g->rig, "", "i-1"));
    assert_int_equal(running(g), 0);
    ground_free(g);
}

static void every_setting_is_understood(void **state)
{
    (void)state;
    static const char *const offers[] = { "small", "any", "spot", "gpu" };
    struct ground *g = recorded_ground(&plain, all_settings);
    for (size_t i = 0; i < COUNT_OF(offers); i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%zu", i);
        made(web_rig_create(&g->rig, intent, offers[i]));
        assert_int_equal(g->fleet.machine[i].spot, strcmp(offers[i], "spot") == 0);
    }
    assert_int_equal(web_rig_create(&g->rig, "i-9", "none")->class, OFFER_INVALID);
    ground_free(g);
}

static void a_lost_create_is_removed_by_its_intent(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    made(web_rig_create(&g->rig, "i-1", "small"));
    made(web_rig_create(&g->rig, "i-2", "small"));
    made(web_rig_remove(&g->rig, "", "i-1"));
    g->rig.now_us += 60 * RIG_SECOND;
    assert_int_equal(running(g), 1);
    assert_int_equal(fake_fleet_of_tag(&g->fleet, WEB_TAG_INTENT, "i-2", g->rig.now_us), 1);
    ground_free(g);
}

/* Another's machine of that name is neither changed nor ended; so too where the API did not look at the condition. */
static void another_ones_machine_is_left(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct ground *g = ground(NULL, 0);
        struct fleet_machine *theirs;
        const struct fleet_order order = { .name = "i-1", .type = "Standard_D4s_v5", .zone = "1" };
        g->azure.ignores_condition = way;
        assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                         FLEET_FINE);
        assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->class, OFFER_INVALID);
        assert_int_equal(made(web_rig_list(&g->rig))->count, 0);
        made(web_rig_remove(&g->rig, "", "i-1"));
        g->rig.now_us += 60 * RIG_SECOND;
        assert_int_equal(running(g), 1);
        ground_free(g);
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
        struct ground *g = ground(NULL, 0);
        g->azure.failure = rows[i].code;
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "any");
        if (e->class != rows[i].class || running(g) != 0)
            fail_msg("%s: %s (%s), %u run", rows[i].code, offer_error_names[e->class], e->err.text,
                     running(g));
        bool named = rows[i].class == OFFER_TRANSIENT || strstr(e->err.text, rows[i].code);
        if (!named) fail_msg("%s: %s", rows[i].code, e->err.text);
        g->azure.failure = NULL;
        g->rig.now_us += 60 * RIG_SECOND;
        made(web_rig_create(&g->rig, "i-1", "any"));
        assert_int_equal(running(g), 1);
        ground_free(g);
    }
}

/* Without the right to delete it, or as long as Azure does not, something was made. */
static void what_cannot_be_deleted_is_not_denied(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    g->azure.failure = "AllocationFailed";
    g->azure.denied = (uint64_t)1 << AZURE_DELETE;
    assert_int_equal(web_rig_create(&g->rig, "i-1", "any")->class, OFFER_TRANSIENT);
    assert_int_equal(running(g), 1);
    const struct cloud_event *e = made(web_rig_list(&g->rig));
    assert_true(e->count == 1 && e->item[0].gone);
    g->azure.denied = 0;
    g->azure.failure = NULL;
    made(web_rig_create(&g->rig, "i-1", "any")); /* deletes what failed first */
    assert_int_equal(running(g), 1);
    assert_false(made(web_rig_list(&g->rig))->item[0].gone);
    ground_free(g);
}

static void a_size_without_stock(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    fake_fleet_stock(&g->fleet, "Standard_D4s_v5", "1", 0);
    made(web_rig_create(&g->rig, "i-1", "small"));
    assert_string_equal(g->fleet.machine[0].zone, "2");
    fake_fleet_stock(&g->fleet, "Standard_D4s_v5", "2", 0);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-2", "small");
    assert_int_equal(e->class, OFFER_CAPACITY);
    assert_non_null(strstr(e->err.text, "SkuNotAvailable"));
    ground_free(g);
}

/* ---- what a provider may do ---- */

struct faulty {
    struct fleet_row row;
    enum offer_error class; /* of the create; OFFER_OK: it succeeds */
    uint32_t running;
    const char *why;
};

/* Every fault of a create, and what it means. Whatever happened, the next create of the same intent ends with one
 * machine. */
static void faults_of_a_create(void **state)
{
    (void)state;
    static const struct faulty rows[] = {
        { { .fault = FLEET_STOCK_OUT }, OFFER_CAPACITY, 0, "sold out everywhere" },
        { { .fault = FLEET_STOCK_OUT, .zone = "1" }, OFFER_OK, 1, "the next zone has it" },
        { { .fault = FLEET_STOCK_OUT, .type = "Standard_NC4as_T4_v3" }, OFFER_OK, 1, "another" },
        { { .fault = FLEET_QUOTA }, OFFER_QUOTA, 0, "no second zone is asked" },
        { { .fault = FLEET_THROTTLE }, OFFER_THROTTLE, 0, "after four tries" },
        { { .fault = FLEET_THROTTLE, .nth = 1, .delay_us = 7 * RIG_SECOND },
          OFFER_OK,
          1,
          "waits as long as the reply says" },
        { { .fault = FLEET_AUTH }, OFFER_AUTH, 0, "one new login does not help" },
        { { .fault = FLEET_AUTH, .nth = 1 }, OFFER_OK, 1, "one new login helps" },
        { { .fault = FLEET_FORBIDDEN }, OFFER_AUTH, 0, "a role lacks an action" },
        { { .fault = FLEET_INVALID }, OFFER_INVALID, 0, "no size of that name" },
        { { .fault = FLEET_SERVER_ERROR }, OFFER_TRANSIENT, 0, "errors go on" },
        { { .fault = FLEET_SERVER_ERROR, .nth = 1 }, OFFER_OK, 1, "one error" },
        { { .fault = FLEET_UNKNOWN_CODE }, OFFER_TRANSIENT, 0, "words that no table has" },
        { { .fault = FLEET_UNREACHABLE }, OFFER_TRANSIENT, 0, "nothing was sent" },
        { { .fault = FLEET_LOST_REQUEST, .nth = 1 }, OFFER_OK, 1, "not done, no reply" },
        { { .fault = FLEET_LOST_REPLY, .nth = 1 }, OFFER_OK, 1, "found by its name" },
        { { .fault = FLEET_LATE_SUCCESS, .nth = 1, .delay_us = 300 * RIG_SECOND },
          OFFER_OK,
          1,
          "the name is taken when the first comes through" },
        { { .fault = FLEET_HALF_REPLY, .nth = 1 }, OFFER_OK, 1, "the reply ends in its middle" },
        { { .fault = FLEET_GARBAGE, .nth = 1 }, OFFER_OK, 1, "the header says it all" },
        { { .fault = FLEET_SLOW, .nth = 1, .delay_us = 10 * RIG_SECOND }, OFFER_OK, 1, "slow" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fleet_row row = rows[i].row;
        row.op = FLEET_CREATE;
        struct ground *g = ground(&row, 1);
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (e->class != rows[i].class || running(g) != rows[i].running)
            fail_msg("%s: %s (%s), %u run", rows[i].why, offer_error_names[e->class], e->err.text,
                     running(g));
        if (strstr(e->err.text, "eyJ0")) fail_msg("%s: %s", rows[i].why, e->err.text);
        g->fleet.config.script_count = 0;
        g->rig.now_us += 600 * RIG_SECOND;
        e = web_rig_create(&g->rig, "i-1", "small");
        if (e->rc < 0 || running(g) != 1)
            fail_msg("%s: then %s, %u run", rows[i].why, e->err.text, running(g));
        ground_free(g);
    }
}

static void faults_of_other_calls(void **state)
{
    (void)state;
    static const enum fleet_fault passing[] = {
        FLEET_THROTTLE,     FLEET_AUTH,       FLEET_SERVER_ERROR, FLEET_UNREACHABLE,
        FLEET_LOST_REQUEST, FLEET_LOST_REPLY, FLEET_HALF_REPLY,   FLEET_GARBAGE,
    };
    for (size_t i = 0; i < COUNT_OF(passing); i++) {
        const struct fleet_row once[] = {
            { .op = FLEET_LIST, .nth = 1, .fault = passing[i], .delay_us = RIG_SECOND },
            { .op = FLEET_REMOVE, .nth = 1, .fault = passing[i], .delay_us = RIG_SECOND },
            { .op = FLEET_PRICES, .nth = 1, .fault = passing[i], .delay_us = RIG_SECOND },
        };
        struct ground *g = ground(once, COUNT_OF(once));
        made(web_rig_create(&g->rig, "i-1", "small"));
        const struct cloud_event *e = web_rig_list(&g->rig);
        if (e->rc < 0 || e->count != 1)
            fail_msg("list, %s: %s", fleet_fault_names[passing[i]], e->err.text);
        e = web_rig_prices(&g->rig);
        if (e->rc < 0) fail_msg("prices, %s: %s", fleet_fault_names[passing[i]], e->err.text);
        e = web_rig_remove(&g->rig, "", "i-1");
        g->rig.now_us += 60 * RIG_SECOND;
        if (e->rc < 0 || running(g) != 0)
            fail_msg("remove, %s: %s", fleet_fault_names[passing[i]], e->err.text);
        ground_free(g);
    }
    const struct fleet_row outage = { .any_op = true, .fault = FLEET_LOST_REQUEST };
    struct ground *g = ground(&outage, 1);
    int64_t begun_us = g->rig.now_us;
    assert_true(web_rig_list(&g->rig)->rc < 0);
    assert_true(g->rig.now_us - begun_us <= WEB_RUN_US + WEB_CALL_US);
    ground_free(g);
}

/* The token goes to no other host, whatever a reply says. */
static void an_operation_elsewhere_is_not_asked_for(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    g->azure.names_strangers = true;
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "any");
    assert_true(e->rc == 0 || e->class == OFFER_TRANSIENT);
    assert_int_equal(running(g), 1);
    ground_free(g);
}

/* ---- listings ---- */

static void many_machines_are_many_pages(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    struct fleet_machine *theirs;
    const struct fleet_order order = { .name = "theirs", .type = "Standard_D4s_v5", .zone = "1" };
    g->azure.page = 30;
    g->azure.operation_us = 0;
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                     FLEET_FINE);
    for (int i = 0; i < 100; i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%d", i);
        made(web_rig_create(&g->rig, intent, "any"));
    }
    const struct cloud_event *e = made(web_rig_list(&g->rig));
    assert_int_equal(e->count, 100);
    for (uint32_t i = 0; i < 100; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(e->item[i].handle, e->item[k].handle);
    ground_free(g);
}

static void a_spot_machine_on_its_way_out_is_listed_so(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    made(web_rig_create(&g->rig, "i-1", "spot"));
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 30 * RIG_SECOND, g->rig.now_us);
    const struct cloud_event *e = made(web_rig_list(&g->rig));
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].leaves_us > 0);
    assert_string_equal(e->item[0].why, "the machine is deallocating");
    g->rig.now_us += 60 * RIG_SECOND;
    assert_int_equal(made(web_rig_list(&g->rig))->count, 0);
    ground_free(g);
}

static double price_of(const struct cloud_event *e, const char *offer)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (strcmp(e->price[i].offer, offer) == 0)
            return e->price[i].known ? e->price[i].price_h : -1;
    fail_msg("no price of %s", offer);
    return 0;
}

static void is_about(double price, double want)
{
    if (price < want - 1e-9 || price > want + 1e-9) fail_msg("%g, not %g", price, want);
}

static void prices_are_those_of_the_meter(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    const struct cloud_event *e = made(web_rig_prices(&g->rig));
    assert_int_equal(e->count, 5);
    is_about(price_of(e, "small"), 0.23);
    is_about(price_of(e, "any"), 0.5);
    is_about(price_of(e, "spot"), 0.19);
    is_about(price_of(e, "gpu"), 0.526);
    is_about(price_of(e, "none"), -1);
    ground_free(g);
}

/* ---- logins ---- */

static void three_ways_to_log_in(void **state)
{
    (void)state;
    static const char *const federated[] = { "AZURE_CLIENT_ID=" FAKE_AZURE_CLIENT,
                                             "AZURE_FEDERATED_TOKEN_FILE=/t", NULL };
    static const char *const nothing[] = { NULL };
    struct ground *g = ground(NULL, 0);
    made(web_rig_list(&g->rig));
    ground_free(g);

    g = ground_of(&plain, yaml, federated);
    g->azure.federated = "token.of.the.pod";
    g->rig.secret = "token.of.the.pod\n";
    made(web_rig_list(&g->rig));
    g->rig.secret = "another";
    g->rig.now_us += 3600 * RIG_SECOND; /* the file is read anew */
    assert_int_equal(web_rig_list(&g->rig)->class, OFFER_AUTH);
    ground_free(g);

    g = ground_of(&plain, yaml, nothing);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc < 0);
    assert_non_null(strstr(e->err.text, "AZURE_CLIENT_SECRET"));
    g->azure.on_machine = true;
    g->rig.now_us += 60 * RIG_SECOND;
    made(web_rig_create(&g->rig, "i-1", "small"));
    ground_free(g);
}

static void a_secret_is_nowhere_repeated(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    g->azure.secret = "another";
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_null(strstr(e->err.text, SECRET));
    assert_non_null(strstr(e->err.text, "AADSTS7000215"));
    ground_free(g);
    static const char *const no_client[] = { "AZURE_CLIENT_SECRET=" SECRET, NULL };
    g = ground_of(&plain, yaml, no_client);
    e = web_rig_list(&g->rig);
    assert_non_null(strstr(e->err.text, "AZURE_CLIENT_ID"));
    ground_free(g);
}

static void a_token_is_renewed_before_it_ends(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    for (int i = 0; i < 100; i++) {
        made(web_rig_list(&g->rig));
        g->rig.now_us += 120 * RIG_SECOND;
    }
    assert_int_equal(g->azure.tokens, 4); /* 12,000 s */
    ground_free(g);
}

/* ---- rights ---- */

/* The page for users lists the actions of the role that it makes: those that the driver's requests needed. */
static void the_page_lists_the_actions(void **state)
{
    (void)state;
    struct ground *g = recorded_ground(&plain, all_settings);
    CLEANUP(buf_fini) struct buf page = { 0 };
    must(file_read(MUSTER_SOURCE "/docs/clouds/azure.md", 1 << 20, &page, NULL) == 0);
    made(web_rig_create(&g->rig, "i-1", "small"));
    made(web_rig_list(&g->rig));
    made(web_rig_remove(&g->rig, "i-1", "i-1"));
    for (uint32_t i = 0; i < AZURE_ACTION_COUNT; i++)
        if (!(g->azure.actions >> i & 1) ||
            str_find(buf_view(&page), str_from(fake_azure_actions[i])) == SIZE_MAX)
            fail_msg("%s", fake_azure_actions[i]);
    for (uint32_t i = AZURE_SUBNET; i <= AZURE_IDENTITY; i++) {
        g->azure.denied = (uint64_t)1 << i;
        const struct cloud_event *e = web_rig_create(&g->rig, "i-9", "small");
        assert_int_equal(e->class, OFFER_AUTH);
        assert_non_null(strstr(e->err.text, fake_azure_actions[i]));
    }
    ground_free(g);
}

/* ---- settings ---- */

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
        { YAML_HEAD "    profile: eu\n" OFFERS, "profile: kind azure reads no such setting" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, gpus: 1}\n", "gpus: kind azure" },
        { "clouds:\n  - name: z\n    kind: azure\n    image: x\n" OFFERS, "kind azure needs it" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *problem = web_rig_problem(rows[i].text);
        if (!strstr(problem, rows[i].problem)) fail_msg("%s: %s", rows[i].problem, problem);
    }
}

/* ---- a controller over it ---- */

static void open_ground(struct fleet_ground *ret)
{
    struct fleet_config config = plain;
    config.boot_us = 5 * RIG_SECOND;
    config.lag_us = 3 * RIG_SECOND;
    struct ground *g = ground_of(&config, yaml, environ_of_secret);
    g->azure.operation_us = 3 * RIG_SECOND;
    *ret = (struct fleet_ground){ .rig = &g->rig, .fleet = &g->fleet, .arg = g };
}

static void close_ground(struct fleet_ground *g)
{
    ground_free(g->arg);
}

static void killed_at_every_step(void **state)
{
    (void)state;
    fleet_world_killed_at_every_step(open_ground, close_ground, true);
    fleet_world_killed_at_every_step(open_ground, close_ground, false);
}

/* Twenty fleets with random faults on a third of all calls: none is left over, none is doubled. */
static void random_faults(void **state)
{
    (void)state;
    static const enum fleet_fault faults[] = {
        FLEET_STOCK_OUT,    FLEET_THROTTLE,   FLEET_SERVER_ERROR, FLEET_UNREACHABLE,
        FLEET_LOST_REQUEST, FLEET_LOST_REPLY, FLEET_LATE_SUCCESS, FLEET_HALF_REPLY,
        FLEET_GARBAGE,      FLEET_SLOW_BOOT,  FLEET_UNKNOWN_CODE, FLEET_QUOTA,
    };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fleet_config config = plain;
        struct rng rng;
        rng_seed(&rng, seed);
        config.boot_us = 5 * RIG_SECOND;
        config.lag_us = 3 * RIG_SECOND;
        for (int i = 0; i < 16; i++)
            config.script[config.script_count++] =
                (struct fleet_row){ .op = FLEET_CREATE + rng_below(&rng, 4),
                                    .nth = 1 + (uint32_t)rng_below(&rng, 12),
                                    .fault = faults[rng_below(&rng, COUNT_OF(faults))],
                                    .delay_us = (int64_t)rng_below(&rng, 20) * RIG_SECOND };
        struct ground *g = ground_of(&config, yaml, environ_of_secret);
        struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
        if (!fleet_world_up_and_down(&over, seed, 900))
            fail_msg("seed %llu", (unsigned long long)seed);
        ground_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_intent_is_one_machine),
        cmocka_unit_test(every_setting_is_understood),
        cmocka_unit_test(a_lost_create_is_removed_by_its_intent),
        cmocka_unit_test(another_ones_machine_is_left),
        cmocka_unit_test(what_a_failed_create_leaves_is_deleted),
        cmocka_unit_test(what_cannot_be_deleted_is_not_denied),
        cmocka_unit_test(a_size_without_stock),
        cmocka_unit_test(faults_of_a_create),
        cmocka_unit_test(faults_of_other_calls),
        cmocka_unit_test(an_operation_elsewhere_is_not_asked_for),
        cmocka_unit_test(many_machines_are_many_pages),
        cmocka_unit_test(a_spot_machine_on_its_way_out_is_listed_so),
        cmocka_unit_test(prices_are_those_of_the_meter),
        cmocka_unit_test(three_ways_to_log_in),
        cmocka_unit_test(a_secret_is_nowhere_repeated),
        cmocka_unit_test(a_token_is_renewed_before_it_ends),
        cmocka_unit_test(the_page_lists_the_actions),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(random_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
