/* t_web_webhook.c - drives the webhook kind over a server of the hook protocol, in virtual time: one machine an intent
 * whatever is lost, errors as classes of offers, prices. */
#include "base/core/bits.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_webhook.h"
#include "tests/fakes/cloud/kind_suite.h"

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

static const struct fleet_config plain = {
    .lag_us = 3 * RIG_SECOND,
    .keys_unique = true,
    .type = { { .name = "t1", .price_udollars_h = 250000, .price = 0.25, .cores = 2 } },
    .type_count = 1,
    .zone = { "a", "b" },
    .zone_count = 2,
};

static void *open_webhook(struct fake_fleet *fleet)
{
    struct fake_webhook *w = calloc(1, sizeof *w);
    must(w);
    *w = (struct fake_webhook){ .fleet = fleet, .token = TOKEN };
    return w;
}

static struct fake_webhook *webhook(struct kind_ground *g)
{
    return g->ctx;
}

static void a_machine_on_its_way_out_is_listed_so(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_make_once(g, "small");
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 60 * RIG_SECOND, g->rig.now_us);
    assert_true(web_rig_list(&g->rig)->item[0].leaves_us > g->rig.now_us);
    kind_end_once(g);
    kind_well(web_rig_create(&g->rig, "i-2", "any"));
    kind_well(web_rig_remove(&g->rig, "", "i-2"));
    assert_int_equal(kind_running(g), 0);
    kind_close(g);
}

static void another_fleets_machine_is_passed_over(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
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
    kind_close(g);
}

static void prices_are_converted_or_unknown(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    assert_int_equal(e->count, 3);
    assert_true(kind_costs(e, "small", 0.25));
    assert_false(kind_price(e, "any").known);
    assert_true(kind_costs(e, "given", 0.5));
    webhook(g)->currency = "EUR";
    assert_true(kind_costs(web_rig_prices(&g->rig), "small", 0.275));
    webhook(g)->currency = "CHF"; /* of which no rate is known */
    assert_false(kind_price(web_rig_prices(&g->rig), "small").known);
    kind_close(g);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
        { "clouds:\n  - name: m\n    kind: webhook\n    offers: [{name: a, type: b}]\n",
          "endpoint: kind webhook needs it" },
        { YAML_HEAD "    program: [/x]\n" OFFERS, "program: kind webhook reads no such" },
        { YAML_HEAD "    ssh_keys: [me]\n" OFFERS, "ssh_keys: kind webhook reads no such" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
}

int main(void)
{
    kind_suite = (struct kind_suite){ .fake = &fake_webhook,
                                      .fleet = &plain,
                                      .open = open_webhook,
                                      .yaml = yaml,
                                      .environ = environ_of_token,
                                      .token = TOKEN,
                                      .several = true,
                                      .late_wins = true,
                                      .zone = "a",
                                      .data = "#!/bin/sh" };
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        cmocka_unit_test(a_machine_on_its_way_out_is_listed_so),
        cmocka_unit_test(another_fleets_machine_is_passed_over),
        cmocka_unit_test(prices_are_converted_or_unknown),
        cmocka_unit_test(settings_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
