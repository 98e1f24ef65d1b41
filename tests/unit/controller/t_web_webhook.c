/* t_web_webhook.c - drives the webhook kind over a server of the hook protocol, in virtual time: one machine an intent
 * whatever is lost, errors as classes of offers, prices, and a controller that is killed at every step. */
#include "base/core/bits.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_webhook.h"
#include "tests/fakes/cloud/fleet_world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN "s3cret-of-the-webhook"
#define YAML_HEAD                            \
    "clouds:\n"                              \
    "  - name: mine\n"                       \
    "    kind: webhook\n"                    \
    "    endpoint: https://sell.example/m\n" \
    "    image: debian\n"                    \
    "    region: here\n"                     \
    "    lag: 3s\n"                          \
    "    calls_per_s: 100\n"
#define OFFERS                                                     \
    "    offers:\n"                                                \
    "      - {name: small, type: t1, zones: [a, b], spot: true}\n" \
    "      - {name: any, type: t1, gpus: 2}\n"                     \
    "      - {name: given, type: t1, price_per_hour: 0.5}\n"
static const char yaml[] = YAML_HEAD "    exchange_rates: [EUR=1.1]\n" OFFERS;
static const char *const environ_of_token[] = { "MUSTER_WEBHOOK_TOKEN=" TOKEN, NULL };

struct ground {
    struct fake_fleet fleet;
    struct fake_webhook webhook;
    struct web_rig rig;
};

static const struct fleet_config plain = {
    .boot_us = 5 * RIG_SECOND,
    .lag_us = 3 * RIG_SECOND,
    .keys_unique = true,
    .type = { { .name = "t1", .price_udollars_h = 250000, .price = 0.25, .cores = 2 } },
    .type_count = 1,
    .zone = { "a", "b" },
    .zone_count = 2,
};

static struct ground *ground(const struct fleet_row *script, uint32_t count)
{
    struct ground *g = calloc(1, sizeof *g);
    must(g);
    struct fleet_config config = plain;
    config.script_count = count;
    if (count > 0) memcpy(config.script, script, count * sizeof *script);
    fake_fleet_init(&g->fleet, &config);
    g->webhook = (struct fake_webhook){ .fleet = &g->fleet, .token = TOKEN };
    web_rig_open(&g->rig, yaml, &fake_webhook, &g->webhook, environ_of_token);
    return g;
}

static void ground_free(struct ground *g)
{
    if (g->fleet.refused_form > 0) fail_msg("%s", g->fleet.last_refused);
    web_rig_close(&g->rig);
    fake_fleet_fini(&g->fleet);
    free(g);
}

static uint32_t running(const struct ground *g)
{
    return fake_fleet_running(&g->fleet, g->rig.now_us);
}

static void one_intent_is_one_machine(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    char handle[NAME_BYTES];
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    if (e->rc < 0) fail_msg("%s", e->err.text);
    snprintf(handle, sizeof handle, "%s", e->made.handle);
    assert_string_equal(e->made.intent, "i-1");
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_int_equal(g->fleet.count, 1);
    assert_string_equal(g->fleet.machine[0].zone, "a");
    assert_non_null(strstr(g->fleet.machine[0].user_data, "#!/bin/sh"));
    g->rig.now_us += 10 * RIG_SECOND;
    e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_string_equal(e->item[0].service, "org/chat model");
    assert_string_equal(e->item[0].offer, "small");
    assert_string_equal(e->item[0].handle, handle);
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 60 * RIG_SECOND, g->rig.now_us);
    assert_true(web_rig_list(&g->rig)->item[0].leaves_us > g->rig.now_us);
    assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
    assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "any")->rc, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-2")->rc, 0);
    assert_int_equal(running(g), 0);
    ground_free(g);
}

static void another_fleets_machine_is_passed_over(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    struct fleet_machine *theirs;
    struct fleet_tag tag = { .name = WEB_TAG_FLEET, .value = "other" };
    const struct fleet_order order = {
        .name = "i-9", .type = "t1", .zone = "a", .tag = &tag, .tag_count = 1
    };
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                     FLEET_FINE);
    g->rig.now_us += 10 * RIG_SECOND;
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 0);
    theirs->tag_count = 0; /* it might be ours: nothing is decided on such a listing */
    e = web_rig_list(&g->rig);
    assert_true(e->rc < 0);
    assert_non_null(strstr(e->err.text, "has no tag"));
    ground_free(g);
}

struct faulty {
    struct fleet_row row;
    enum offer_error class;
    uint32_t running;
    const char *why;
};

static void faults_of_a_create(void **state)
{
    (void)state;
    static const struct faulty rows[] = {
        { { .fault = FLEET_STOCK_OUT }, OFFER_CAPACITY, 0, "sold out everywhere" },
        { { .fault = FLEET_STOCK_OUT, .zone = "a" }, OFFER_OK, 1, "the next zone has it" },
        { { .fault = FLEET_QUOTA }, OFFER_QUOTA, 0, "no second zone is asked" },
        { { .fault = FLEET_THROTTLE }, OFFER_THROTTLE, 0, "after four tries" },
        { { .fault = FLEET_THROTTLE, .nth = 1, .delay_us = 7 * RIG_SECOND }, OFFER_OK, 1, "waits" },
        { { .fault = FLEET_AUTH }, OFFER_AUTH, 0, "one new login does not help" },
        { { .fault = FLEET_AUTH, .nth = 1 }, OFFER_OK, 1, "one new login helps" },
        { { .fault = FLEET_FORBIDDEN }, OFFER_AUTH, 0, "403" },
        { { .fault = FLEET_INVALID }, OFFER_INVALID, 0, "no such type" },
        { { .fault = FLEET_SERVER_ERROR }, OFFER_TRANSIENT, 0, "errors go on" },
        { { .fault = FLEET_SERVER_ERROR, .nth = 1 }, OFFER_OK, 1, "one error" },
        { { .fault = FLEET_UNKNOWN_CODE }, OFFER_TRANSIENT, 0, "a class that is none" },
        { { .fault = FLEET_UNREACHABLE }, OFFER_TRANSIENT, 0, "nothing was sent" },
        { { .fault = FLEET_LOST_REQUEST, .nth = 1 }, OFFER_OK, 1, "not done, no reply" },
        { { .fault = FLEET_LOST_REPLY, .nth = 1 }, OFFER_OK, 1, "done, no reply" },
        { { .fault = FLEET_LATE_SUCCESS, .nth = 1, .delay_us = 30 * RIG_SECOND },
          OFFER_OK,
          1,
          "late" },
        { { .fault = FLEET_HALF_REPLY, .nth = 1 }, OFFER_OK, 1, "half a reply" },
        { { .fault = FLEET_GARBAGE, .nth = 1 }, OFFER_OK, 1, "a proxy answers" },
        { { .fault = FLEET_SLOW, .nth = 1, .delay_us = 10 * RIG_SECOND }, OFFER_OK, 1, "slow" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fleet_row row = rows[i].row;
        row.op = FLEET_CREATE;
        struct ground *g = ground(&row, 1);
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        g->rig.now_us += 60 * RIG_SECOND;
        if (e->class != rows[i].class || running(g) != rows[i].running)
            fail_msg("%s: %s (%s), %u run", rows[i].why, offer_error_names[e->class], e->err.text,
                     running(g));
        if (strstr(e->err.text, TOKEN)) fail_msg("%s: %s", rows[i].why, e->err.text);
        g->fleet.config.script_count = 0;
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
        assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
        g->rig.now_us += 10 * RIG_SECOND;
        const struct cloud_event *e = web_rig_list(&g->rig);
        if (e->rc < 0 || e->count != 1)
            fail_msg("list, %s: %s", fleet_fault_names[passing[i]], e->err.text);
        e = web_rig_prices(&g->rig);
        if (e->rc < 0) fail_msg("prices, %s: %s", fleet_fault_names[passing[i]], e->err.text);
        e = web_rig_remove(&g->rig, "", "i-1");
        if (e->rc < 0 || running(g) != 0)
            fail_msg("remove, %s: %s", fleet_fault_names[passing[i]], e->err.text);
        ground_free(g);
    }
}

static struct cloud_price price_of(const struct cloud_event *e, const char *offer)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (strcmp(e->price[i].offer, offer) == 0) return e->price[i];
    fail_msg("no price of %s", offer);
    return (struct cloud_price){ 0 };
}

static bool is_near(double a, double b)
{
    return a > b - 1e-9 && a < b + 1e-9;
}

static void prices_are_converted_or_unknown(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    assert_int_equal(e->count, 3);
    assert_true(price_of(e, "small").known && is_near(price_of(e, "small").price_h, 0.25));
    assert_false(price_of(e, "any").known);
    assert_true(price_of(e, "given").known && is_near(price_of(e, "given").price_h, 0.5));
    g->webhook.currency = "EUR";
    assert_true(is_near(price_of(web_rig_prices(&g->rig), "small").price_h, 0.275));
    g->webhook.currency = "CHF"; /* of which no rate is known */
    assert_false(price_of(web_rig_prices(&g->rig), "small").known);
    ground_free(g);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
        { "clouds:\n  - name: m\n    kind: webhook\n    offers: [{name: a, type: b}]\n",
          "endpoint: kind webhook needs it" },
        { YAML_HEAD "    program: [/x]\n" OFFERS, "program: kind webhook reads no such" },
        { YAML_HEAD "    ssh_keys: [me]\n" OFFERS, "ssh_keys: kind webhook reads no such" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *problem = web_rig_problem(rows[i].text);
        if (!strstr(problem, rows[i].problem)) fail_msg("%s: %s", rows[i].problem, problem);
    }
}

static void open_ground(struct fleet_ground *ret)
{
    struct ground *g = ground(NULL, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_intent_is_one_machine),
        cmocka_unit_test(another_fleets_machine_is_passed_over),
        cmocka_unit_test(faults_of_a_create),
        cmocka_unit_test(faults_of_other_calls),
        cmocka_unit_test(prices_are_converted_or_unknown),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(killed_at_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
