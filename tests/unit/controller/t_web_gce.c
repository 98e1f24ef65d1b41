/* t_web_gce.c - drives the kind of Google Compute Engine over a fake of its API, in virtual time: one VM an intent
 * whatever is lost, in whichever zone; operations that fail late; logins; listings that lack a zone; and a controller
 * that is killed at every step. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_gce.h"
#include "tests/fakes/cloud/fleet_world.h"
#include "tests/fakes/cloud/jwt_check.h"
#include "tests/unit/unit.h"

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
#define OFFERS                                                                        \
    "    offers:\n"                                                                   \
    "      - {name: small, type: n2-standard-4, zones: [eu-a, eu-b]}\n"               \
    "      - {name: one, type: n2-standard-4, zones: [eu-a], price_per_hour: 0.2}\n"  \
    "      - {name: spot, type: g2-standard-8, zones: [us-a], spot: true, gpus: 1}\n" \
    "      - {name: t4, type: n2-standard-4, zones: [us-a], gpus: 2, "                \
    "gpu_type: nvidia-tesla-t4, capacity_reservation: mine}\n"
static const char yaml[] = YAML_HEAD "    credentials_file: /k\n" OFFERS;
static const char all_settings[] = YAML_HEAD
    "    credentials_file: /k\n"
    "    disk: 100GiB\n"
    "    networks: [projects/p-1/regions/eu/subnetworks/s, other]\n"
    "    firewalls: [muster-agent]\n"
    "    account: vm@p-1.iam.gserviceaccount.com\n"
    "    muster_url: https://example.org/muster\n"
    "    muster_sha256: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n" OFFERS;

struct ground {
    struct fake_fleet fleet;
    struct fake_gce gce;
    struct web_rig rig;
    struct buf key;
    FILE *record; /* of requests, for tests/proc/cloud/t_gce.py; NULL: none */
};

static const struct fleet_config plain = {
    .boot_us = 30 * RIG_SECOND,
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

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct ground *g = ctx;
    int64_t took_us = fake_gce.respond(&g->gce, ask, now_us, arena, ret);
    if (g->record) {
        CLEANUP(buf_fini) struct buf line = { 0 };
        struct json_writer w;
        json_writer_init(&w, &line);
        json_object(&w);
        json_kv_str(&w, "method", ask->method);
        json_kv_str(&w, "url", ask->url);
        json_kv_str(&w, "body", ask->body);
        json_kv_str(&w, "type", ask->content_type);
        json_object_end(&w);
        fprintf(g->record, "%.*s\n", (int)line.len, line.data);
    }
    return took_us;
}

static const struct cloud_fake recorded = { .name = "gce", .respond = respond };

static struct ground *ground_of(const struct fleet_config *config, const char *text,
                                const char *const *environ)
{
    struct ground *g = calloc(1, sizeof *g);
    must(g);
    fake_fleet_init(&g->fleet, config);
    g->gce = (struct fake_gce){
        .fleet = &g->fleet, .project = "p-1", .date_us = RIG_DATE_US, .operation_us = 3 * RIG_SECOND
    };
    fake_gce_key(&g->key);
    buf_byte(&g->key, 0);
    must(g->key.rc == 0);
    web_rig_open(&g->rig, text, &recorded, g, environ);
    g->rig.secret = g->key.data;
    return g;
}

/* Has requests recorded where the environment names a file. */
static struct ground *recorded_ground(const struct fleet_config *config, const char *text,
                                      const char *const *environ)
{
    struct ground *g = ground_of(config, text, environ);
    const char *path = getenv("MUSTER_GCE_RECORD");
    if (path) g->record = fopen(path, "a");
    return g;
}

static struct ground *ground(const struct fleet_row *script, uint32_t count)
{
    struct fleet_config config = plain;
    config.script_count = count;
    if (count > 0) memcpy(config.script, script, count * sizeof *script);
    return recorded_ground(&config, yaml, NULL);
}

static void ground_free(struct ground *g)
{
    if (g->fleet.refused_form > 0) fail_msg("%s", g->fleet.last_refused);
    web_rig_close(&g->rig);
    fake_fleet_fini(&g->fleet);
    buf_fini(&g->key);
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

static void one_intent_is_one_vm(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    const struct cloud_event *e = made(web_rig_create(&g->rig, "i-1", "small"));
    assert_string_equal(e->made.handle, "eu-a/i-1");
    assert_string_equal(e->made.intent, "i-1");
    assert_true(g->rig.now_us - RIG_START >= 3 * RIG_SECOND); /* until the operation was done */
    assert_string_equal(made(web_rig_create(&g->rig, "i-1", "small"))->made.handle, "eu-a/i-1");
    assert_int_equal(g->fleet.count, 1);

    const struct fleet_machine *m = &g->fleet.machine[0];
    assert_string_equal(m->name, "i-1");
    assert_string_equal(m->type, "n2-standard-4");
    assert_string_equal(m->zone, "eu-a");
    assert_string_equal(fleet_tag_of(m, WEB_TAG_FLEET), "muster");
    assert_string_equal(fleet_tag_of(m, WEB_TAG_SERVICE), "org_2fchat_20model");
    assert_non_null(strstr(m->user_data, "umask 077"));

    e = made(web_rig_list(&g->rig));
    assert_int_equal(e->count, 1);
    assert_string_equal(e->item[0].service, "org/chat model");
    assert_string_equal(e->item[0].pool, "small");
    assert_string_equal(e->item[0].offer, "small");
    assert_string_equal(e->item[0].intent, "i-1");
    assert_string_equal(e->item[0].handle, "eu-a/i-1");
    assert_false(e->item[0].unreadable || e->item[0].gone || e->item[0].leaves_us);
    assert_true(llabs(e->item[0].created_us - m->made_us) < RIG_SECOND);

    made(web_rig_remove(&g->rig, "eu-a/i-1", "i-1"));
    made(web_rig_remove(&g->rig, "eu-a/i-1", "i-1"));
    made(web_rig_remove(&g->rig, "", "i-1"));
    assert_int_equal(running(g), 0);
    ground_free(g);
}

static void every_setting_is_understood(void **state)
{
    (void)state;
    static const char *const offers[] = { "small", "one", "spot", "t4" };
    struct ground *g = recorded_ground(&plain, all_settings, NULL);
    for (size_t i = 0; i < COUNT_OF(offers); i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%zu", i);
        made(web_rig_create(&g->rig, intent, offers[i]));
        assert_int_equal(g->fleet.machine[i].spot, strcmp(offers[i], "spot") == 0);
    }
    assert_int_equal(running(g), 4);
    ground_free(g);
}

static void a_lost_create_is_removed_by_its_intent(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    made(web_rig_create(&g->rig, "i-1", "small"));
    made(web_rig_create(&g->rig, "i-2", "small"));
    made(web_rig_remove(&g->rig, "", "i-1"));
    assert_int_equal(running(g), 1);
    assert_int_equal(fake_fleet_of_tag(&g->fleet, WEB_TAG_INTENT, "i-2", g->rig.now_us), 1);
    ground_free(g);
}

/* Request ids are forgotten after a while: the name is then found taken, by ours or by another's. */
static void a_taken_name_is_looked_at(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    g->gce.forgets_ids = true;
    made(web_rig_create(&g->rig, "i-1", "one"));
    assert_string_equal(made(web_rig_create(&g->rig, "i-1", "one"))->made.handle, "eu-a/i-1");
    assert_int_equal(g->fleet.count, 1);
    struct fleet_machine *theirs;
    const struct fleet_order order = { .name = "i-2", .type = "n2-standard-4", .zone = "eu-a" };
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                     FLEET_FINE);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-2", "one");
    assert_int_equal(e->class, OFFER_INVALID);
    assert_int_equal(made(web_rig_list(&g->rig))->count, 1);
    made(web_rig_remove(&g->rig, "", "i-2"));
    assert_int_equal(running(g), 2);
    ground_free(g);
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
        struct ground *g = ground(rows, COUNT_OF(rows));
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (runs == 2) {
            assert_int_equal(e->class, OFFER_TRANSIENT);
            g->rig.now_us += 300 * RIG_SECOND;
            g->gce.forgets_ids = true;
            e = web_rig_create(&g->rig, "i-1", "small");
        }
        assert_string_equal(made(e)->made.handle, "eu-b/i-1");
        assert_int_equal(running(g), 1);
        ground_free(g);
    }
}

/* An operation that failed for a passing reason is not asked for again under its request id, which would only bring
 * it back. */
static void a_failed_operation_is_not_the_last_word(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    g->gce.failure = "INTERNAL_ERROR";
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "one");
    assert_int_equal(e->class, OFFER_TRANSIENT);
    assert_non_null(strstr(e->err.text, "INTERNAL_ERROR"));
    assert_int_equal(running(g), 0);
    g->gce.failure = NULL;
    made(web_rig_create(&g->rig, "i-1", "one"));
    assert_int_equal(running(g), 1);
    ground_free(g);
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
        struct ground *g = ground(NULL, 0);
        g->gce.failure = rows[i].code;
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (e->class != rows[i].class)
            fail_msg("%s: %s (%s)", rows[i].code, offer_error_names[e->class], e->err.text);
        ground_free(g);
    }
}

/* ---- what a provider may do ---- */

struct faulty {
    struct fleet_row row;
    enum offer_error class; /* of the create; OFFER_OK: it succeeds */
    uint32_t running;
    const char *why;
};

/* Every fault of a create, and what it means. Whatever happened, the next create of the same intent ends with one
 * VM. */
static void faults_of_a_create(void **state)
{
    (void)state;
    static const struct faulty rows[] = {
        { { .fault = FLEET_STOCK_OUT }, OFFER_CAPACITY, 0, "sold out everywhere" },
        { { .fault = FLEET_STOCK_OUT, .zone = "eu-a" }, OFFER_OK, 1, "the next zone has it" },
        { { .fault = FLEET_STOCK_OUT, .type = "g2-standard-8" }, OFFER_OK, 1, "another type" },
        { { .fault = FLEET_QUOTA }, OFFER_QUOTA, 0, "no second zone is asked" },
        { { .fault = FLEET_THROTTLE }, OFFER_THROTTLE, 0, "403 and no word how long" },
        { { .fault = FLEET_THROTTLE, .nth = 1, .delay_us = 7 * RIG_SECOND },
          OFFER_OK,
          1,
          "429 with Retry-After" },
        { { .fault = FLEET_AUTH }, OFFER_AUTH, 0, "one new login does not help" },
        { { .fault = FLEET_AUTH, .nth = 1 }, OFFER_OK, 1, "one new login helps" },
        { { .fault = FLEET_FORBIDDEN }, OFFER_AUTH, 0, "a role lacks a right" },
        { { .fault = FLEET_INVALID }, OFFER_INVALID, 0, "no machine type of that name" },
        { { .fault = FLEET_SERVER_ERROR }, OFFER_TRANSIENT, 0, "errors go on" },
        { { .fault = FLEET_SERVER_ERROR, .nth = 1 }, OFFER_OK, 1, "one error" },
        { { .fault = FLEET_UNKNOWN_CODE }, OFFER_TRANSIENT, 0, "words that no table has" },
        { { .fault = FLEET_UNREACHABLE }, OFFER_TRANSIENT, 0, "nothing was sent" },
        { { .fault = FLEET_LOST_REQUEST, .nth = 1 }, OFFER_OK, 1, "not done, no reply" },
        { { .fault = FLEET_LOST_REPLY, .nth = 1 },
          OFFER_OK,
          1,
          "done, no reply: the request id brings it back" },
        { { .fault = FLEET_LATE_SUCCESS, .nth = 1, .delay_us = 300 * RIG_SECOND },
          OFFER_OK,
          1,
          "the request id is taken when the first comes through" },
        { { .fault = FLEET_HALF_REPLY, .nth = 1 }, OFFER_OK, 1, "the reply ends in its middle" },
        { { .fault = FLEET_GARBAGE, .nth = 1 }, OFFER_OK, 1, "a proxy answers" },
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
        if (strstr(e->err.text, "ya29")) fail_msg("%s: %s", rows[i].why, e->err.text);
        g->fleet.config.script_count = 0;
        g->rig.now_us += 600 * RIG_SECOND;
        bool sold_out = rows[i].class == OFFER_CAPACITY; /* which its request ids go on to say */
        e = web_rig_create(&g->rig, sold_out ? "i-2" : "i-1", "small");
        if (e->rc < 0 || running(g) != 1)
            fail_msg("%s: then %s, %u run", rows[i].why, e->err.text, running(g));
        ground_free(g);
    }
}

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
            struct ground *g = ground(&row, 1);
            const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
            if (nth == 1 && e->rc < 0)
                fail_msg("%s: %s", fleet_fault_names[faults[i]], e->err.text);
            if (e->rc < 0 && e->class != OFFER_TRANSIENT)
                fail_msg("%s: %s", fleet_fault_names[faults[i]], offer_error_names[e->class]);
            assert_int_equal(running(g), 1);
            ground_free(g);
        }
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
        };
        struct ground *g = ground(once, COUNT_OF(once));
        made(web_rig_create(&g->rig, "i-1", "one"));
        const struct cloud_event *e = web_rig_list(&g->rig);
        if (e->rc < 0 || e->count != 1)
            fail_msg("list, %s: %s", fleet_fault_names[passing[i]], e->err.text);
        e = web_rig_remove(&g->rig, "", "i-1");
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

/* ---- listings ---- */

static void many_vms_are_many_pages(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    g->gce.page = 30;
    g->gce.operation_us = 0;
    for (int i = 0; i < 100; i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%d", i);
        made(web_rig_create(&g->rig, intent, i % 2 ? "one" : "t4"));
    }
    const struct cloud_event *e = made(web_rig_list(&g->rig));
    assert_int_equal(e->count, 100);
    for (uint32_t i = 0; i < 100; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(e->item[i].handle, e->item[k].handle);
    ground_free(g);
}

/* A listing without one of the zones would prove that its VMs are gone. */
static void a_zone_that_is_missing_is_an_error(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct ground *g = ground(NULL, 0);
        made(web_rig_create(&g->rig, "i-1", "one"));
        g->gce.missing = "eu-a";
        g->gce.by_unreachables = way;
        const struct cloud_event *e = web_rig_list(&g->rig);
        assert_int_equal(e->rc, -EIO);
        assert_non_null(strstr(e->err.text, "a zone is missing"));
        assert_true(web_rig_create(&g->rig, "i-2", "small")->rc < 0); /* it may be there already */
        assert_true(web_rig_remove(&g->rig, "", "i-1")->rc < 0);
        assert_int_equal(running(g), 1);
        ground_free(g);
    }
}

static void a_spot_vm_on_its_way_out_is_listed_so(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    made(web_rig_create(&g->rig, "i-1", "spot"));
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 30 * RIG_SECOND, g->rig.now_us);
    const struct cloud_event *e = made(web_rig_list(&g->rig));
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].leaves_us > 0);
    assert_string_equal(e->item[0].why, "the VM is STOPPING");
    g->rig.now_us += 60 * RIG_SECOND;
    assert_int_equal(made(web_rig_list(&g->rig))->count, 0);
    made(web_rig_remove(&g->rig, "us-a/i-1", "i-1"));
    ground_free(g);
}

static void prices_are_those_of_the_file(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    const struct cloud_event *e = made(web_rig_prices(&g->rig));
    assert_int_equal(e->count, 4);
    for (uint32_t i = 0; i < e->count; i++)
        assert_int_equal(e->price[i].known, strcmp(e->price[i].offer, "one") == 0);
    ground_free(g);
}

/* ---- logins ---- */

/* A clock that is off by an hour is noticed by the date of the refusal. */
static void a_wrong_clock_costs_one_request(void **state)
{
    (void)state;
    static const int64_t off_us[] = { 3600 * RIG_SECOND, -7200 * RIG_SECOND, 86400 * RIG_SECOND };
    for (size_t i = 0; i < COUNT_OF(off_us); i++) {
        struct ground *g = ground(NULL, 0);
        g->rig.drive.date_us += off_us[i];
        made(web_rig_list(&g->rig));
        assert_int_equal(g->fleet.calls[FLEET_LOGIN], 2);
        assert_int_equal(g->gce.tokens, 1);
        assert_int_equal(g->rig.drive.asks, 3);
        g->rig.now_us += 3590 * RIG_SECOND; /* the next login knows */
        made(web_rig_list(&g->rig));
        assert_int_equal(g->rig.drive.asks, 5);
        ground_free(g);
    }
}

static void a_token_is_renewed_before_it_ends(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    for (int i = 0; i < 100; i++) {
        made(web_rig_list(&g->rig));
        g->rig.now_us += 120 * RIG_SECOND;
    }
    assert_int_equal(g->gce.tokens, 4); /* 12,000 s */
    assert_int_equal(g->fleet.calls[FLEET_LIST], 100);
    ground_free(g);
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
        struct ground *g = ground(&row, 1);
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (e->class != rows[i].class)
            fail_msg("%s: %s (%s)", fleet_fault_names[rows[i].fault], offer_error_names[e->class],
                     e->err.text);
        assert_int_equal(running(g), rows[i].class == OFFER_OK);
        ground_free(g);
    }
}

static void the_machines_own_account(void **state)
{
    (void)state;
    struct ground *g = ground_of(&plain, YAML_HEAD OFFERS, NULL);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc < 0);
    assert_non_null(strstr(e->err.text, "credentials_file"));
    assert_non_null(strstr(e->err.text, "metadata server"));
    g->gce.on_machine = true;
    g->rig.now_us += 60 * RIG_SECOND;
    made(web_rig_create(&g->rig, "i-1", "small"));
    ground_free(g);
}

static void the_usual_variable_names_a_file(void **state)
{
    (void)state;
    static const char *const environ[] = { "GOOGLE_APPLICATION_CREDENTIALS=/k", NULL };
    struct ground *g = ground_of(&plain, YAML_HEAD OFFERS, environ);
    made(web_rig_create(&g->rig, "i-1", "small"));
    g->rig.secret = NULL;
    g->rig.now_us += 3600 * RIG_SECOND;
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_non_null(strstr(e->err.text, "GOOGLE_APPLICATION_CREDENTIALS"));
    ground_free(g);
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
        struct ground *g = ground(NULL, 0);
        g->rig.secret = rows[i].key;
        const struct cloud_event *e = web_rig_list(&g->rig);
        assert_int_equal(e->class, OFFER_AUTH);
        if (!strstr(e->err.text, rows[i].problem)) fail_msg("%s: %s", rows[i].problem, e->err.text);
        assert_null(strstr(e->err.text, "hush"));
        assert_int_equal(g->rig.drive.asks, 0);
        ground_free(g);
    }
}

/* ---- rights ---- */

/* The page for users lists the rights of the role that it makes: those, and no others, are needed by what the driver
 * asks for; without any one of them a call is refused as such. */
static void the_page_lists_the_rights(void **state)
{
    (void)state;
    struct ground *g = recorded_ground(&plain, all_settings, NULL);
    CLEANUP(buf_fini) struct buf page = { 0 };
    must(file_read(MUSTER_SOURCE "/docs/clouds/gce.md", 1 << 20, &page, NULL) == 0);
    g->gce.forgets_ids = true;
    made(web_rig_create(&g->rig, "i-1", "one"));
    made(web_rig_create(&g->rig, "i-1", "one")); /* looks at what has the name */
    made(web_rig_list(&g->rig));
    made(web_rig_remove(&g->rig, "eu-a/i-1", "i-1"));
    for (uint32_t p = 0; p < GCE_PERMISSION_COUNT; p++) {
        bool needed = g->gce.needed >> p & 1;
        bool listed = str_find(buf_view(&page), str_from(fake_gce_permissions[p])) != SIZE_MAX;
        /* Images of other projects need none here, and stand on the page for those of one's own. */
        if (!listed || (!needed && p != GCE_IMAGE)) fail_msg("%s", fake_gce_permissions[p]);
        if (p == GCE_LIST || p == GCE_GET || p == GCE_DELETE || p == GCE_OPERATION || !needed)
            continue;
        g->gce.denied = 1u << p;
        const struct cloud_event *e = web_rig_create(&g->rig, "i-9", "one");
        assert_int_equal(e->class, OFFER_AUTH);
        assert_non_null(strstr(e->err.text, fake_gce_permissions[p]));
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
        { YAML_HEAD "    region: eu\n" OFFERS, "region: kind gce reads no such setting" },
        { "clouds:\n  - name: g\n    kind: gce\n    image: x\n" OFFERS, "project: kind gce needs" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, gpu_type: c, zones: [d]}\n",
          "gpu_type: how many" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, spot: true, spot_price_max: 1}\n",
          "spot_price_max: kind gce" },
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
    struct ground *g = ground_of(&config, yaml, NULL);
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
        struct ground *g = ground_of(&config, yaml, NULL);
        struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
        if (!fleet_world_up_and_down(&over, seed, 900))
            fail_msg("seed %llu", (unsigned long long)seed);
        ground_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_intent_is_one_vm),
        cmocka_unit_test(every_setting_is_understood),
        cmocka_unit_test(a_lost_create_is_removed_by_its_intent),
        cmocka_unit_test(a_taken_name_is_looked_at),
        cmocka_unit_test(no_second_vm_in_another_zone),
        cmocka_unit_test(a_failed_operation_is_not_the_last_word),
        cmocka_unit_test(codes_of_operations),
        cmocka_unit_test(faults_of_a_create),
        cmocka_unit_test(faults_of_looks_at_operations),
        cmocka_unit_test(faults_of_other_calls),
        cmocka_unit_test(many_vms_are_many_pages),
        cmocka_unit_test(a_zone_that_is_missing_is_an_error),
        cmocka_unit_test(a_spot_vm_on_its_way_out_is_listed_so),
        cmocka_unit_test(prices_are_those_of_the_file),
        cmocka_unit_test(a_wrong_clock_costs_one_request),
        cmocka_unit_test(a_token_is_renewed_before_it_ends),
        cmocka_unit_test(faults_of_a_login),
        cmocka_unit_test(the_machines_own_account),
        cmocka_unit_test(the_usual_variable_names_a_file),
        cmocka_unit_test(keys_that_are_refused),
        cmocka_unit_test(the_page_lists_the_rights),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(random_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
