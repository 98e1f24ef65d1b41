/* t_web_lambda.c - drives the Lambda kind over a fake of its API: what all keyless kinds must do, regions that have
 * capacity, the pace of launches, prices. */
#include "base/core/bits.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_lambda.h"
#include "tests/fakes/cloud/kind_suite.h"

#include <string.h>

#define TOKEN "secret_fleet_0123456789abcdef"
#define YAML_HEAD                                         \
    "clouds:\n"                                           \
    "  - name: gpu\n"                                     \
    "    kind: lambda\n"                                  \
    "    image: lambda-stack-24-04\n"                     \
    "    firewalls: [c4d291f47f9d436fa39f58493ce3b50d]\n" \
    "    calls_per_s: 100\n"
#define OFFERS                                                                 \
    "    offers:\n"                                                            \
    "      - {name: small, type: gpu_1x_a10, zones: [us-east-1, us-west-1]}\n" \
    "      - {name: any, type: gpu_1x_a10}\n"                                  \
    "      - {name: big, type: gpu_8x_h100_sxm5, zones: [europe-central-1]}\n" \
    "      - {name: given, type: gpu_1x_a10, price_per_hour: 0.5}\n"           \
    "      - {name: none, type: gpu_1x_abacus}\n"
static const char *const environ_of_token[] = { "LAMBDA_API_KEY=" TOKEN, NULL };

static void regions_are_tried_in_order(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_string_equal(g->fleet.machine[0].zone, "us-east-1");
    assert_string_equal(g->fleet.machine[0].image, "lambda-stack-24-04");
    assert_string_equal(g->fleet.machine[0].name, "i-1");
    assert_string_equal(fleet_tag_of(&g->fleet.machine[0], WEB_TAG_SERVICE), "org/chat model");
    assert_non_null(strstr(g->fleet.machine[0].user_data, "umask 077"));
    fake_fleet_stock(&g->fleet, "gpu_1x_a10", "us-east-1", 0);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "small")->rc, 0);
    assert_string_equal(g->fleet.machine[1].zone, "us-west-1");
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 2); /* none for the region without capacity */
    fake_fleet_stock(&g->fleet, "gpu_1x_a10", "us-west-1", 0);
    assert_int_equal(web_rig_create(&g->rig, "i-3", "small")->class, OFFER_CAPACITY);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 2);
    assert_int_equal(web_rig_create(&g->rig, "i-3", "any")->rc, 0);
    assert_string_equal(g->fleet.machine[2].zone, "europe-central-1");
    kind_close(g);
}

static void launches_keep_their_distance(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open_as(
        NULL, "clouds:\n  - name: gpu\n    kind: lambda\n    ssh_keys: [me]\n" OFFERS, NULL);
    for (int i = 0; i < 4; i++) {
        const char *const intents[] = { "i-1", "i-2", "i-3", "i-4" };
        assert_int_equal(web_rig_create(&g->rig, intents[i], "small")->rc, 0);
    }
    for (uint32_t i = 1; i < 4; i++)
        assert_true(g->fleet.machine[i].made_us - g->fleet.machine[i - 1].made_us >=
                    12 * RIG_SECOND);
    kind_close(g);
}

static void an_instance_that_goes_is_listed_so(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    assert_int_equal(web_rig_remove(&g->rig, e->made.handle, "i-1")->rc, 0);
    e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].leaves_us > 0 && !e->item[0].gone);
    assert_string_equal(e->item[0].why, "the instance is terminating");
    g->rig.now_us += 60 * RIG_SECOND;
    assert_int_equal(web_rig_list(&g->rig)->count, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "small")->rc, 0);
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[1], 0, g->rig.now_us);
    g->rig.now_us += RIG_SECOND;
    e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].gone);
    kind_close(g);
}

static void prices_are_dollars_and_say_what_is_sold_out(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    struct cloud_price p = kind_price(e, "small");
    assert_true(p.known && p.price_h > 0.7499 && p.price_h < 0.7501);
    assert_false(p.room_known); /* some, and nobody says how many */
    p = kind_price(e, "given");
    assert_true(p.known && p.price_h > 0.4999 && p.price_h < 0.5001);
    p = kind_price(e, "none");
    assert_false(p.known || p.room_known);
    fake_fleet_stock(&g->fleet, "gpu_8x_h100_sxm5", "europe-central-1", 0);
    p = kind_price(web_rig_prices(&g->rig), "big");
    assert_true(p.known && p.price_h > 23.91 && p.price_h < 23.93);
    assert_true(p.room_known && p.room == 0);
    kind_close(g);
}

static void an_unknown_type_is_refused(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "none");
    assert_int_equal(e->class, OFFER_INVALID);
    assert_non_null(strstr(e->err.text, "gpu_1x_abacus"));
    kind_close(g);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
        { YAML_HEAD OFFERS, "ssh_keys: kind lambda needs it" },
        { YAML_HEAD "    ssh_keys: [me]\n    region: us-west-1\n" OFFERS,
          "region: kind lambda reads no such setting" },
        { YAML_HEAD "    ssh_keys: [me]\n    offers:\n      - {name: a, type: b, spot: true}\n",
          "spot: kind lambda" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        KEYLESS_TESTS,
        cmocka_unit_test(regions_are_tried_in_order),
        cmocka_unit_test(launches_keep_their_distance),
        cmocka_unit_test(an_instance_that_goes_is_listed_so),
        cmocka_unit_test(prices_are_dollars_and_say_what_is_sold_out),
        cmocka_unit_test(an_unknown_type_is_refused),
        cmocka_unit_test(settings_that_are_refused),
    };
    kind_suite = (struct kind_suite){ .keyless = true,
                                      .ageless = true,
                                      .fake = &fake_lambda,
                                      .yaml = YAML_HEAD "    ssh_keys: [me]\n" OFFERS,
                                      .environ = environ_of_token,
                                      .token = TOKEN,
                                      .several = true };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
