/* t_web_vast.c - drives the Vast.ai kind over a fake of its API: what all keyless kinds must do, the market, bids,
 * what a container gets, pages. */
#include "base/core/bits.h"
#include "tests/fakes/cloud/fake_vast.h"
#include "tests/fakes/cloud/kind_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef"
#define YAML_HEAD                                \
    "clouds:\n"                                  \
    "  - name: market\n"                         \
    "    kind: vast\n"                           \
    "    calls_per_s: 100\n"                     \
    "    image: example.org/muster-cuda:0.1.0\n" \
    "    disk: 50GB\n"
#define OFFERS                                                                  \
    "    offers:\n"                                                             \
    "      - {name: small, type: RTX_4090, zones: [DE, FR]}\n"                  \
    "      - {name: any, type: RTX 4090}\n"                                     \
    "      - {name: cheap, type: RTX_4090, spot: true, spot_price_max: 0.21}\n" \
    "      - {name: bid, type: H100 SXM, spot: true}\n"                         \
    "      - {name: poor, type: H100 SXM, spot: true, spot_price_max: 1.0}\n"   \
    "      - {name: given, type: RTX_4090, price_per_hour: 0.5}\n"
static const char *const environ_of_token[] = { "VAST_API_KEY=" TOKEN, NULL };

static bool is_near(double a, double b)
{
    return a > b - 1e-6 && a < b + 1e-6;
}

static void asks_are_tried_one_after_the_other(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_string_equal(g->fleet.machine[0].zone, "DE");
    assert_string_equal(g->fleet.machine[0].name, "i-1");
    assert_false(g->fleet.machine[0].spot);
    fake_fleet_stock(&g->fleet, "RTX 4090", "DE", 0);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "small")->rc, 0);
    assert_string_equal(g->fleet.machine[1].zone, "FR");
    fake_fleet_stock(&g->fleet, "RTX 4090", "FR", 0);
    assert_int_equal(web_rig_create(&g->rig, "i-3", "small")->class, OFFER_CAPACITY);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 2);
    assert_int_equal(web_rig_create(&g->rig, "i-3", "any")->rc, 0);
    kind_close(g);
}

static void what_can_be_interrupted_is_bid_for(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "cheap")->rc, 0);
    assert_true(g->fleet.machine[0].spot);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "poor")->class, OFFER_CAPACITY);
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 0, g->rig.now_us);
    g->rig.now_us += RIG_SECOND;
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].gone);
    assert_string_equal(e->item[0].why, "the instance is exited: outbid");
    assert_int_equal(web_rig_remove(&g->rig, e->item[0].handle, "i-1")->rc, 0);
    assert_int_equal(web_rig_list(&g->rig)->count, 0);
    kind_close(g);
}

static void prices_are_the_cheapest_and_counted(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    struct cloud_price p = kind_price(e, "small");
    assert_true(p.known && is_near(p.price_h, 0.41)); /* with the disk */
    assert_true(p.room_known && p.room == 2);
    p = kind_price(e, "cheap"); /* the bid would be 0.22 */
    assert_true(p.known && is_near(p.price_h, 0.21 + 0.01) && p.room == 3);
    p = kind_price(e, "bid");
    assert_true(p.known && is_near(p.price_h, 1.65 + 0.01));
    p = kind_price(e, "poor");
    assert_true(!p.known && p.room_known && p.room == 0);
    p = kind_price(e, "given");
    assert_true(p.known && is_near(p.price_h, 0.5));
    kind_close(g);
}

static void the_container_gets_its_document_and_its_own_key(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_non_null(strstr(g->fleet.machine[0].user_data, "BOOT_MUSTER_101"));
    kind_check_container(str_from(g->fleet.machine[0].user_data));
    kind_close(g);
}

static void many_instances_are_many_pages(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = kind_check_pages(g, 60, "any", "any");
    assert_int_equal(web_rig_create(&g->rig, "i-59", "any")->rc, 0); /* on the last page */
    assert_int_equal(g->fleet.count, 60);
    assert_true(llabs(e->item[0].created_us - g->fleet.machine[0].made_us) < RIG_SECOND);
    kind_close(g);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
        { "clouds:\n  - name: market\n    kind: vast\n" OFFERS, "image: kind vast needs it" },
        { YAML_HEAD "    ssh_keys: [me]\n" OFFERS, "ssh_keys: kind vast reads no such setting" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, spot_price_max: 1}\n",
          "spot_price_max: it is not spot" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        KEYLESS_TESTS,
        cmocka_unit_test(asks_are_tried_one_after_the_other),
        cmocka_unit_test(what_can_be_interrupted_is_bid_for),
        cmocka_unit_test(prices_are_the_cheapest_and_counted),
        cmocka_unit_test(the_container_gets_its_document_and_its_own_key),
        cmocka_unit_test(many_instances_are_many_pages),
        cmocka_unit_test(settings_that_are_refused),
    };
    kind_suite = (struct kind_suite){
        .keyless = true,
        .fake = &fake_vast,
        .yaml = YAML_HEAD OFFERS,
        .environ = environ_of_token,
        .token = TOKEN,
        .several = true,
        .others_data = "{\"TAG_MUSTER_FLEET\":\"another\",\"TAG_MUSTER_INTENT\":\"i-1\"}",
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
