/* t_web_gce.c - drives the kind of Google Compute Engine over a fake of its API, in virtual time: one VM an intent
 * whatever is lost, in whichever zone; operations that fail late; logins; listings that lack a zone. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_gce.h"
#include "tests/fakes/cloud/jwt_check.h"
#include "tests/fakes/cloud/kind_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define YAML_HEAD                                                       \
    "clouds:\n"                                                         \
    "  - name: g\n"                                                     \
    "    kind: gce\n"                                                   \
    "    project: p-1\n"                                                \
    "    image: projects/debian-cloud/global/images/family/debian-12\n" \
    "    calls_per_s: 100\n"
#define OFFERS                                                                                 \
    "    offers:\n"                                                                            \
    "      - {name: small, type: n2-standard-4, zones: [eu-a, eu-b], price_per_hour: 0.194}\n" \
    "      - {name: one, type: n2-standard-4, zones: [eu-a], price_per_hour: 0.2}\n"           \
    "      - {name: spot, type: g2-standard-8, zones: [us-a], spot: true, gpus: 1}\n"          \
    "      - {name: t4, type: n2-standard-4, zones: [us-a], gpus: 2, "                         \
    "gpu_type: nvidia-tesla-t4, capacity_reservation: mine}\n"                                 \
    "      - {name: pick, type: g2-standard-8, types: [n2-standard-4, g2-standard-8], "        \
    "zones: [eu-a, eu-b]}\n"
static const char yaml[] = YAML_HEAD "    credentials_file: /k\n" OFFERS;
static const char all_settings[] = YAML_HEAD
    "    credentials_file: /k\n"
    "    disk: 100GiB\n"
    "    networks: [projects/p-1/regions/eu/subnetworks/s, other]\n"
    "    firewalls: [muster-agent]\n"
    "    account: vm@p-1.iam.gserviceaccount.com\n"
    "    muster_url: https://example.org/muster\n"
    "    muster_sha256: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n" OFFERS;

static const struct fleet_config plain = {
    .bill_least_s = 60,
    .type = { { .name = "n2-standard-4", .price_udollars_h = 194000, .cores = 4, .memory_gib = 16 },
              { .name = "g2-standard-8",
                .price_udollars_h = 850000,
                .spot_udollars_h = 340000,
                .cores = 8,
                .gpus = 1,
                .memory_gib = 32 } },
    .type_count = 2,
    .zone = { "eu-a", "eu-b", "us-a" },
    .zone_count = 3,
};

static void *open_gce(struct fake_fleet *fleet)
{
    struct fake_gce *f = calloc(1, sizeof *f);
    must(f);
    *f = (struct fake_gce){
        .fleet = fleet, .project = "p-1", .date_us = RIG_DATE_US, .operation_us = 3 * RIG_SECOND
    };
    return f;
}

static struct fake_gce *gce(struct kind_ground *g)
{
    return g->ctx;
}

/* ---- what is made ---- */

static void a_create_lasts_as_its_operation(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    assert_true(g->rig.now_us - RIG_START >= 3 * RIG_SECOND); /* until the operation was done */
    kind_close(g);
}

static void every_setting_is_understood(void **state)
{
    (void)state;
    static const char *const offers[] = { "small", "one", "spot", "t4", "pick" };
    struct kind_ground *g = kind_record(kind_open_as(NULL, all_settings, NULL));
    for (size_t i = 0; i < COUNT_OF(offers); i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%zu", i);
        kind_well(web_rig_create(&g->rig, intent, offers[i]));
        assert_int_equal(g->fleet.machine[i].spot, strcmp(offers[i], "spot") == 0);
    }
    assert_int_equal(kind_running(g), 5);
    kind_close(g);
}

/* Request ids are forgotten after a while: the name is then found taken, by ours or by another's. */
static void a_taken_name_is_looked_at(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    gce(g)->forgets_ids = true;
    kind_well(web_rig_create(&g->rig, "i-1", "one"));
    assert_string_equal(kind_well(web_rig_create(&g->rig, "i-1", "one"))->made.handle, "eu-a/i-1");
    assert_int_equal(g->fleet.count, 1);
    struct fleet_machine *theirs;
    const struct fleet_order order = { .name = "i-2", .type = "n2-standard-4", .zone = "eu-a" };
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                     FLEET_FINE);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-2", "one");
    assert_int_equal(e->class, OFFER_INVALID);
    assert_int_equal(kind_well(web_rig_list(&g->rig))->count, 1);
    kind_well(web_rig_remove(&g->rig, "", "i-2"));
    assert_int_equal(kind_running(g), 2);
    kind_close(g);
}

/* The reply from the second zone was lost, and the first one has room again: no second VM is made. */
static void no_second_vm_in_another_zone(void **state)
{
    (void)state;
    for (int runs = 1; runs <= 2; runs++) {
        const struct fleet_row rows[] = {
            { .op = FLEET_CREATE, .nth = 1, .zone = "eu-a", .fault = FLEET_STOCK_OUT },
            { .op = FLEET_CREATE,
              .zone = "eu-b",
              .to_us = RIG_START + 200 * RIG_SECOND,
              .nth = runs == 1,
              .fault = FLEET_LOST_REPLY },
        };
        struct kind_ground *g = kind_open(rows, COUNT_OF(rows));
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (runs == 2) {
            assert_int_equal(e->class, OFFER_TRANSIENT);
            g->rig.now_us += 300 * RIG_SECOND;
            gce(g)->forgets_ids = true;
            e = web_rig_create(&g->rig, "i-1", "small");
        }
        assert_string_equal(kind_well(e)->made.handle, "eu-b/i-1");
        assert_int_equal(kind_running(g), 1);
        kind_close(g);
    }
}

/* An operation that failed for a passing reason is not asked for again under its request id, which would only bring
 * it back. */
static void a_failed_operation_is_not_the_last_word(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    gce(g)->failure = "INTERNAL_ERROR";
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "one");
    assert_int_equal(e->class, OFFER_TRANSIENT);
    assert_non_null(strstr(e->err.text, "INTERNAL_ERROR"));
    assert_int_equal(kind_running(g), 0);
    gce(g)->failure = NULL;
    kind_well(web_rig_create(&g->rig, "i-1", "one"));
    assert_int_equal(kind_running(g), 1);
    kind_close(g);
}

/* Google chooses type and zone, and its operation says where it is; else a listing does. */
static void one_of_several_is_where_the_operation_says(void **state)
{
    (void)state;
    const struct fleet_row rows[] = {
        { .op = FLEET_CREATE, .type = "g2-standard-8", .fault = FLEET_STOCK_OUT },
        { .op = FLEET_CREATE, .zone = "eu-a", .fault = FLEET_STOCK_OUT },
    };
    for (int mute = 0; mute <= 1; mute++) {
        struct kind_ground *g = kind_open(rows, COUNT_OF(rows));
        gce(g)->mute_bulk = mute;
        const struct cloud_event *e = kind_well(web_rig_create(&g->rig, "i-1", "pick"));
        assert_string_equal(e->made.handle, "eu-b/i-1");
        assert_string_equal(e->made.service, "org/chat model");
        assert_int_equal(g->fleet.calls[FLEET_LIST], 1 + mute);
        assert_string_equal(g->fleet.machine[0].type, "n2-standard-4");
        assert_string_equal(kind_well(web_rig_create(&g->rig, "i-1", "pick"))->made.handle,
                            "eu-b/i-1");
        assert_int_equal(g->fleet.count, 1);
        kind_close(g);
    }
}

static void a_failed_bulk_insert_made_nothing(void **state)
{
    (void)state;
    const struct fleet_row none = { .op = FLEET_CREATE, .fault = FLEET_STOCK_OUT };
    struct kind_ground *g = kind_open(&none, 1);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "pick");
    assert_int_equal(e->class, OFFER_CAPACITY);
    assert_non_null(strstr(e->err.text, "VM_MIN_COUNT_NOT_REACHED"));
    assert_int_equal(g->fleet.count, 0);
    g->fleet.config.script_count = 0;

    /* A passing failure is asked for again with another request id, which the first one would bring back. */
    gce(g)->failure = "INTERNAL_ERROR";
    assert_int_equal(web_rig_create(&g->rig, "i-2", "pick")->class, OFFER_TRANSIENT);
    gce(g)->failure = NULL;
    kind_well(web_rig_create(&g->rig, "i-2", "pick"));
    assert_int_equal(kind_running(g), 1);

    /* The name is there: ours is found, wherever it is. */
    gce(g)->forgets_ids = true;
    g->fleet.config.lag_us = 120 * RIG_SECOND;
    kind_well(web_rig_create(&g->rig, "i-3", "pick"));
    assert_int_equal(web_rig_create(&g->rig, "i-3", "pick")->class, OFFER_TRANSIENT);
    g->rig.now_us += 130 * RIG_SECOND;
    kind_well(web_rig_create(&g->rig, "i-3", "pick"));
    assert_int_equal(kind_running(g), 2);
    kind_close(g);
}

/* Without bulk inserts the zones are asked for in turn. */
static void without_bulk_inserts_zones_are_tried_in_turn(void **state)
{
    (void)state;
    const struct fleet_row row = { .op = FLEET_CREATE, .zone = "eu-a", .fault = FLEET_STOCK_OUT };
    struct kind_ground *g = kind_open(&row, 1);
    gce(g)->denied = 1u << GCE_BULK;
    assert_string_equal(kind_well(web_rig_create(&g->rig, "i-1", "pick"))->made.handle, "eu-b/i-1");
    assert_string_equal(g->fleet.machine[0].type, "g2-standard-8");
    kind_close(g);
}

static void codes_of_operations(void **state)
{
    (void)state;
    static const struct {
        const char *code;
        enum offer_error class;
    } rows[] = {
        { "ZONE_RESOURCE_POOL_EXHAUSTED", OFFER_CAPACITY },
        { "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", OFFER_CAPACITY },
        { "QUOTA_EXCEEDED", OFFER_QUOTA },
        { "IP_SPACE_EXHAUSTED", OFFER_CAPACITY },
        { "PERMISSIONS_ERROR", OFFER_AUTH },
        { "INVALID_FIELD_VALUE", OFFER_INVALID },
        { "CONDITION_NOT_MET", OFFER_INVALID },
        { "RESOURCE_OPERATION_RATE_EXCEEDED", OFFER_THROTTLE },
        { "NEVER_HEARD_OF", OFFER_TRANSIENT },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kind_ground *g = kind_open(NULL, 0);
        gce(g)->failure = rows[i].code;
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (e->class != rows[i].class)
            fail_msg("%s: %s (%s)", rows[i].code, offer_error_names[e->class], e->err.text);
        kind_close(g);
    }
}

/* ---- what a provider may do ---- */

/* A look at an operation that fails says nothing of the VM, and the create goes on. */
static void faults_of_looks_at_operations(void **state)
{
    (void)state;
    static const enum fleet_fault faults[] = {
        FLEET_THROTTLE,     FLEET_AUTH,       FLEET_SERVER_ERROR, FLEET_UNREACHABLE,
        FLEET_LOST_REQUEST, FLEET_HALF_REPLY, FLEET_GARBAGE,      FLEET_UNKNOWN_CODE,
    };
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        for (uint32_t nth = 0; nth <= 1; nth++) { /* each one, and the first */
            const struct fleet_row row = { .op = FLEET_PRICES, .nth = nth, .fault = faults[i] };
            struct kind_ground *g = kind_open(&row, 1);
            const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
            if (nth == 1 && e->rc < 0)
                fail_msg("%s: %s", fleet_fault_names[faults[i]], e->err.text);
            if (e->rc < 0 && e->class != OFFER_TRANSIENT)
                fail_msg("%s: %s", fleet_fault_names[faults[i]], offer_error_names[e->class]);
            assert_int_equal(kind_running(g), 1);
            kind_close(g);
        }
    }
}

/* ---- listings ---- */

static void many_vms_are_many_pages(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    gce(g)->page = 30;
    gce(g)->operation_us = 0;
    kind_check_pages(g, 100, "one", "t4");
    kind_close(g);
}

/* A listing without one of the zones would prove that its VMs are gone. */
static void a_zone_that_is_missing_is_an_error(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct kind_ground *g = kind_open(NULL, 0);
        kind_well(web_rig_create(&g->rig, "i-1", "one"));
        gce(g)->missing = "eu-a";
        gce(g)->by_unreachables = way;
        const struct cloud_event *e = web_rig_list(&g->rig);
        assert_int_equal(e->rc, -EIO);
        assert_non_null(strstr(e->err.text, "a zone is missing"));
        assert_true(web_rig_create(&g->rig, "i-2", "small")->rc < 0); /* it may be there already */
        assert_true(web_rig_remove(&g->rig, "", "i-1")->rc < 0);
        assert_int_equal(kind_running(g), 1);
        kind_close(g);
    }
}

static void a_spot_vm_on_its_way_out_is_listed_so(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_well(web_rig_create(&g->rig, "i-1", "spot"));
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 30 * RIG_SECOND, g->rig.now_us);
    const struct cloud_event *e = kind_well(web_rig_list(&g->rig));
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].leaves_us > 0);
    assert_string_equal(e->item[0].why, "the VM is STOPPING");
    g->rig.now_us += 60 * RIG_SECOND;
    assert_int_equal(kind_well(web_rig_list(&g->rig))->count, 0);
    kind_well(web_rig_remove(&g->rig, "us-a/i-1", "i-1"));
    kind_close(g);
}

static void prices_are_those_of_the_file(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = kind_well(web_rig_prices(&g->rig));
    assert_int_equal(e->count, 5);
    for (uint32_t i = 0; i < e->count; i++)
        assert_int_equal(e->price[i].known, strcmp(e->price[i].offer, "one") == 0 ||
                                                strcmp(e->price[i].offer, "small") == 0);
    kind_close(g);
}

/* A reservation is paid already, and says what it has room for. */
static void a_reservation_is_paid_and_has_room(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    gce(g)->reserved = "mine";
    const struct cloud_event *e = kind_well(web_rig_prices(&g->rig));
    assert_true(kind_price(e, "t4").reserved_known && kind_costs(e, "one", 0.2));
    assert_int_equal(kind_price(e, "t4").reserved, 4);
    assert_int_equal(kind_price(e, "t4").nodes, 4);
    assert_int_equal(kind_price(e, "t4").room, 3);
    gce(g)->denied = 1u << GCE_RESERVATION;
    e = kind_well(web_rig_prices(&g->rig));
    assert_false(kind_price(e, "t4").reserved_known || kind_price(e, "t4").room_known);
    kind_close(g);
}

/* ---- logins ---- */

/* A clock that is off by an hour is noticed by the date of the refusal. */
static void a_wrong_clock_costs_one_request(void **state)
{
    (void)state;
    static const int64_t off_us[] = { 3600 * RIG_SECOND, -7200 * RIG_SECOND, 86400 * RIG_SECOND };
    for (size_t i = 0; i < COUNT_OF(off_us); i++) {
        struct kind_ground *g = kind_open(NULL, 0);
        g->rig.drive.date_us += off_us[i];
        kind_well(web_rig_list(&g->rig));
        assert_int_equal(g->fleet.calls[FLEET_LOGIN], 2);
        assert_int_equal(gce(g)->tokens, 1);
        assert_int_equal(g->rig.drive.asks, 3);
        g->rig.now_us += 3590 * RIG_SECOND; /* the next login knows */
        kind_well(web_rig_list(&g->rig));
        assert_int_equal(g->rig.drive.asks, 5);
        kind_close(g);
    }
}

static void a_token_is_renewed_before_it_ends(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    for (int i = 0; i < 100; i++) {
        kind_well(web_rig_list(&g->rig));
        g->rig.now_us += 120 * RIG_SECOND;
    }
    assert_int_equal(gce(g)->tokens, 4); /* 12,000 s */
    assert_int_equal(g->fleet.calls[FLEET_LIST], 100);
    kind_close(g);
}

static void faults_of_a_login(void **state)
{
    (void)state;
    static const struct {
        enum fleet_fault fault;
        uint32_t nth;
        enum offer_error class;
    } rows[] = {
        { FLEET_AUTH, 0, OFFER_AUTH },
        { FLEET_FORBIDDEN, 0, OFFER_AUTH },
        { FLEET_SERVER_ERROR, 1, OFFER_OK },
        { FLEET_THROTTLE, 1, OFFER_OK },
        { FLEET_LOST_REPLY, 1, OFFER_OK },
        { FLEET_GARBAGE, 1, OFFER_OK },
        { FLEET_UNREACHABLE, 1, OFFER_OK },
        { FLEET_HALF_REPLY, 1, OFFER_OK },
        { FLEET_SERVER_ERROR, 0, OFFER_TRANSIENT },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct fleet_row row = { .op = FLEET_LOGIN,
                                       .nth = rows[i].nth,
                                       .fault = rows[i].fault };
        struct kind_ground *g = kind_open(&row, 1);
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (e->class != rows[i].class)
            fail_msg("%s: %s (%s)", fleet_fault_names[rows[i].fault], offer_error_names[e->class],
                     e->err.text);
        assert_int_equal(kind_running(g), rows[i].class == OFFER_OK);
        kind_close(g);
    }
}

static void the_machines_own_account(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open_as(NULL, YAML_HEAD OFFERS, NULL);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc < 0);
    assert_non_null(strstr(e->err.text, "credentials_file"));
    assert_non_null(strstr(e->err.text, "metadata server"));
    gce(g)->on_machine = true;
    g->rig.now_us += 60 * RIG_SECOND;
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    kind_close(g);
}

static void the_usual_variable_names_a_file(void **state)
{
    (void)state;
    static const char *const environ[] = { "GOOGLE_APPLICATION_CREDENTIALS=/k", NULL };
    struct kind_ground *g = kind_open_as(NULL, YAML_HEAD OFFERS, environ);
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    g->rig.secret = NULL;
    g->rig.now_us += 3600 * RIG_SECOND;
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_non_null(strstr(e->err.text, "GOOGLE_APPLICATION_CREDENTIALS"));
    kind_close(g);
}

static void keys_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *problem;
    } rows[] = {
        { "", "is empty" },
        { "{}", "no key of a service account" },
        { "{\"type\":\"authorized_user\"}", "no key of a service account" },
        { "{\"type\":\"service_account\",\"token_uri\":\"http://example.org/token\"}", "https://" },
        { "{\"type\":\"service_account\",\"token_uri\":\"https://oauth2.googleapis.com/token\","
          "\"private_key\":\"hush-hush\"}",
          "no RSA key" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kind_ground *g = kind_open(NULL, 0);
        g->rig.secret = rows[i].key;
        const struct cloud_event *e = web_rig_list(&g->rig);
        assert_int_equal(e->class, OFFER_AUTH);
        if (!strstr(e->err.text, rows[i].problem)) fail_msg("%s: %s", rows[i].problem, e->err.text);
        assert_null(strstr(e->err.text, "hush"));
        assert_int_equal(g->rig.drive.asks, 0);
        kind_close(g);
    }
}

/* ---- an instance template of the user's ---- */

#define YAML_TEMPLATE(what)      \
    "clouds:\n"                  \
    "  - name: google\n"         \
    "    kind: gce\n"            \
    "    project: p-1\n"         \
    "    credentials_file: /k\n" \
    "    calls_per_s: 100\n"     \
    "    launch_template: " what "\n" OFFERS

static void machines_are_made_from_a_template(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *offer, *image;
    } rows[] = {
        { YAML_TEMPLATE(GCE_USER_TEMPLATE), "one", GCE_USER_IMAGE },
        { YAML_TEMPLATE("projects/p-1/global/instanceTemplates/" GCE_USER_TEMPLATE), "one",
          GCE_USER_IMAGE },
        { YAML_TEMPLATE(GCE_USER_TEMPLATE), "pick", GCE_USER_IMAGE },
        { YAML_TEMPLATE(GCE_USER_TEMPLATE "\n    image: mine"), "one", NULL },
        { YAML_TEMPLATE(GCE_USER_TEMPLATE "\n    image: mine"), "pick", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kind_ground *g = kind_record(kind_open_as(NULL, rows[i].yaml, NULL));
        kind_well(web_rig_create(&g->rig, "i-1", rows[i].offer));
        kind_well(web_rig_create(&g->rig, "i-1", rows[i].offer));
        assert_int_equal(g->fleet.count, 1);
        const struct fleet_machine *m = &g->fleet.machine[0];
        if (rows[i].image)
            assert_string_equal(m->image, rows[i].image);
        else
            assert_non_null(strstr(m->image, "mine"));
        assert_int_equal(strncmp(m->user_data, "#!", 2), 0);
        assert_string_equal(fleet_tag_of(m, WEB_TAG_INTENT), "i-1");
        kind_close(g);
    }
    struct kind_ground *g = kind_open_as(NULL, YAML_TEMPLATE("none"), NULL);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "one")->class, OFFER_INVALID);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "pick")->class, OFFER_INVALID);
    assert_int_equal(g->fleet.count, 0);
    kind_close(g);
}

/* ---- rights ---- */

/* The page for users lists the rights of the role that it makes: those, and no others, are needed by what the driver
 * asks for; without any one of them a call is refused as such. */
static void the_page_lists_the_rights(void **state)
{
    (void)state;
    struct kind_ground *g = kind_record(kind_open_as(NULL, all_settings, NULL));
    CLEANUP(buf_fini) struct buf page = { 0 };
    must(file_read(MUSTER_SOURCE "/docs/clouds/gce.md", 1 << 20, &page, NULL) == 0);
    gce(g)->forgets_ids = true;
    kind_well(web_rig_create(&g->rig, "i-1", "one"));
    kind_well(web_rig_create(&g->rig, "i-1", "one")); /* looks at what has the name */
    kind_well(web_rig_create(&g->rig, "i-2", "pick"));
    kind_well(web_rig_list(&g->rig));
    kind_well(web_rig_prices(&g->rig));
    kind_well(web_rig_turn(&g->rig, "eu-a/i-1", "i-1", false));
    kind_well(web_rig_turn(&g->rig, "eu-a/i-1", "i-1", true));
    gce(g)->denied = 1u << GCE_START | 1u << GCE_STOP;
    assert_int_equal(web_rig_turn(&g->rig, "eu-a/i-1", "i-1", false)->class, OFFER_AUTH);
    assert_int_equal(web_rig_turn(&g->rig, "eu-a/i-1", "i-1", true)->class, OFFER_AUTH);
    kind_well(web_rig_remove(&g->rig, "eu-a/i-1", "i-1"));
    struct kind_ground *of_template = kind_open_as(NULL, YAML_TEMPLATE(GCE_USER_TEMPLATE), NULL);
    kind_well(web_rig_create(&of_template->rig, "i-1", "one"));
    gce(g)->needed |= gce(of_template)->needed;
    kind_close(of_template);
    for (uint32_t p = 0; p < GCE_PERMISSION_COUNT; p++) {
        bool needed = gce(g)->needed >> p & 1;
        bool listed = str_find(buf_view(&page), str_from(fake_gce_permissions[p])) != SIZE_MAX;
        /* Images of other projects need none here, and stand on the page for those of one's own; a key needs no
         * account's token, which t_gce_federation asks for. */
        if (!listed || (!needed && p != GCE_IMAGE && p != GCE_IMPERSONATE))
            fail_msg("%s", fake_gce_permissions[p]);
        if (p == GCE_LIST || p == GCE_GET || p == GCE_DELETE || p == GCE_OPERATION ||
            p == GCE_RESERVATION || p == GCE_BULK || p == GCE_REGION_OPERATION || p == GCE_STOP ||
            p == GCE_START || p == GCE_TEMPLATE || !needed)
            continue;
        gce(g)->denied = 1u << p;
        const struct cloud_event *e = web_rig_create(&g->rig, "i-9", "one");
        assert_int_equal(e->class, OFFER_AUTH);
        assert_non_null(strstr(e->err.text, fake_gce_permissions[p]));
    }
    kind_close(g);
}

/* ---- settings ---- */

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
        { YAML_HEAD "    region: eu\n" OFFERS, "region: kind gce reads no such setting" },
        { "clouds:\n  - name: g\n    kind: gce\n    image: x\n" OFFERS, "project: kind gce needs" },
        { "clouds:\n  - name: g\n    kind: gce\n    project: p-1\n" OFFERS,
          "image: kind gce needs" },
        { YAML_TEMPLATE("a b"), "want the name or the URL" },
        { YAML_TEMPLATE("house\n    public_address: false"),
          "public_address: the instance template" },
        { YAML_TEMPLATE("house\n    disk: 10GiB"), "disk: the instance template" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, gpu_type: c, zones: [d]}\n",
          "gpu_type: how many" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, spot: true, spot_price_max: 1}\n",
          "spot_price_max: kind gce" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
}

static void types_are_chosen_in_one_region(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    struct web_drive drive;
    struct err err = { 0 };
    struct web_rig other = { 0 };
    web_rig_settings(&other, YAML_HEAD
                     "    offers:\n      - {name: a, type: b, types: [c], zones: [eu-a, us-a]}\n");
    assert_true(web_drive_open(&drive, &other.settings[0], &g->rig.host, 1, fake_gce.respond,
                               gce(g), &err) < 0);
    assert_non_null(strstr(err.text, "Google chooses in one region"));
    arena_fini(&other.arena);
    config_free(other.config);
    kind_close(g);
}

static int use_bulk(void **state)
{
    (void)state;
    kind_suite.yaml =
        YAML_HEAD "    credentials_file: /k\n"
                  "    offers:\n"
                  "      - {name: small, type: n2-standard-4, types: [g2-standard-8], "
                  "zones: [eu-a, eu-b]}\n";
    kind_suite.several_types = true;
    return 0;
}

int main(void)
{
    CLEANUP(buf_fini) struct buf key = { 0 };
    fake_gce_key(&key);
    buf_byte(&key, 0);
    must(key.rc == 0);
    kind_suite = (struct kind_suite){ .fake = &fake_gce,
                                      .fleet = &plain,
                                      .open = open_gce,
                                      .yaml = yaml,
                                      .secret = key.data,
                                      .hidden = "ya29", /* begins a token */
                                      .record = "MUSTER_GCE_RECORD",
                                      .several = true,
                                      .remembers_refusals = true,
                                      .operations = true,
                                      .halts_by_machine = true,
                                      .unique = true,
                                      .machine_login = true,
                                      .quiet_offer = "one",
                                      .zone = "eu-a",
                                      .service_tag = "org_2fchat_20model",
                                      .data = "umask 077",
                                      .handle = "eu-a/i-1" };
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        STOP_TESTS,
        cmocka_unit_test(machines_are_made_from_a_template),
        cmocka_unit_test(a_create_lasts_as_its_operation),
        cmocka_unit_test(every_setting_is_understood),
        cmocka_unit_test(a_taken_name_is_looked_at),
        cmocka_unit_test(no_second_vm_in_another_zone),
        cmocka_unit_test(a_failed_operation_is_not_the_last_word),
        cmocka_unit_test(one_of_several_is_where_the_operation_says),
        cmocka_unit_test(a_failed_bulk_insert_made_nothing),
        cmocka_unit_test(without_bulk_inserts_zones_are_tried_in_turn),
        cmocka_unit_test(codes_of_operations),
        cmocka_unit_test(faults_of_looks_at_operations),
        cmocka_unit_test(many_vms_are_many_pages),
        cmocka_unit_test(a_zone_that_is_missing_is_an_error),
        cmocka_unit_test(a_spot_vm_on_its_way_out_is_listed_so),
        cmocka_unit_test(prices_are_those_of_the_file),
        cmocka_unit_test(a_reservation_is_paid_and_has_room),
        cmocka_unit_test(a_wrong_clock_costs_one_request),
        cmocka_unit_test(a_token_is_renewed_before_it_ends),
        cmocka_unit_test(faults_of_a_login),
        cmocka_unit_test(the_machines_own_account),
        cmocka_unit_test(the_usual_variable_names_a_file),
        cmocka_unit_test(keys_that_are_refused),
        cmocka_unit_test(the_page_lists_the_rights),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(types_are_chosen_in_one_region),
    };
    /* The same offer as Google's to choose from. */
    const struct CMUnitTest of_bulk[] = {
        cmocka_unit_test(kind_one_intent_is_one_machine),
        cmocka_unit_test(kind_a_lost_create_is_removed_by_its_intent),
        cmocka_unit_test(kind_faults_of_a_create),
        cmocka_unit_test(kind_killed_at_every_step),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests(of_bulk, use_bulk, NULL);
}
