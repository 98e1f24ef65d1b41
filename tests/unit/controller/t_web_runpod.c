/* t_web_runpod.c - drives the RunPod kind over a fake of its API: what all keyless kinds must do, data centers, what a
 * container gets, prices. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_runpod.h"
#include "tests/fakes/cloud/kind_suite.h"

#include <stdlib.h>
#include <string.h>

#define TOKEN "rpa_0123456789abcdefghijklmnopqrstuv"
#define YAML_HEAD                                \
    "clouds:\n"                                  \
    "  - name: pods\n"                           \
    "    kind: runpod\n"                         \
    "    calls_per_s: 100\n"                     \
    "    image: example.org/muster-cuda:0.1.0\n" \
    "    disk: 50GB\n"
#define OFFERS                                                                          \
    "    offers:\n"                                                                     \
    "      - {name: small, type: NVIDIA GeForce RTX 4090, zones: [EU-RO-1, US-TX-3]}\n" \
    "      - {name: any, type: NVIDIA GeForce RTX 4090}\n"                              \
    "      - {name: eight, type: NVIDIA H100 80GB HBM3, gpus: 8, zones: [US-KS-2]}\n"   \
    "      - {name: given, type: NVIDIA GeForce RTX 4090, price_per_hour: 0.5}\n"       \
    "      - {name: none, type: NVIDIA Abacus}\n"
static const char *const environ_of_token[] = { "RUNPOD_API_KEY=" TOKEN, NULL };

static void data_centers_are_preferred_in_order(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_string_equal(g->fleet.machine[0].zone, "EU-RO-1");
    assert_string_equal(g->fleet.machine[0].image, "example.org/muster-cuda:0.1.0");
    fake_fleet_stock(&g->fleet, "NVIDIA GeForce RTX 4090", "EU-RO-1", 0);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "small")->rc, 0);
    assert_string_equal(g->fleet.machine[1].zone, "US-TX-3");
    fake_fleet_stock(&g->fleet, "NVIDIA GeForce RTX 4090", "US-TX-3", 0);
    assert_int_equal(web_rig_create(&g->rig, "i-3", "small")->class, OFFER_CAPACITY);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 2); /* the catalog said so */
    assert_int_equal(web_rig_create(&g->rig, "i-3", "any")->rc, 0);
    assert_string_equal(g->fleet.machine[2].zone, "US-KS-2");
    assert_int_equal(web_rig_create(&g->rig, "i-4", "none")->class, OFFER_CAPACITY);
    kind_close(g);
}

static void the_container_gets_its_document_and_its_own_key(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    CLEANUP(buf_fini) struct buf value = { 0 };
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    struct str env = str_from(g->fleet.machine[0].user_data);
    assert_int_equal(json_path_text(env, "TAG_MUSTER_SERVICE", &value), 0);
    assert_true(str_eq(buf_view(&value), STR("org/chat model")));
    kind_check_container(env);
    kind_close(g);
}

static void a_pod_that_stopped_is_gone(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    const struct fleet_machine *m = &g->fleet.machine[0];
    assert_true(llabs(web_rig_list(&g->rig)->item[0].created_us - m->made_us) < RIG_SECOND);
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 0, g->rig.now_us);
    g->rig.now_us += RIG_SECOND;
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].gone);
    assert_string_equal(e->item[0].why, "the Pod is EXITED");
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0); /* its disk is billed until then */
    assert_int_equal(web_rig_list(&g->rig)->count, 0);
    kind_close(g);
}

static void prices_count_gpus_and_say_what_is_sold_out(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    struct cloud_price p = kind_price(e, "small");
    assert_true(p.known && p.price_h > 0.6899 && p.price_h < 0.6901 && !p.room_known);
    p = kind_price(e, "eight");
    assert_true(p.known && p.price_h > 8 * 2.99 - 1e-6 && p.price_h < 8 * 2.99 + 1e-6);
    p = kind_price(e, "given");
    assert_true(p.known && p.price_h > 0.4999 && p.price_h < 0.5001);
    p = kind_price(e, "none");
    assert_false(p.known || p.room_known);
    assert_int_equal(g->fleet.calls[FLEET_PRICES], 2); /* one for each number of GPUs */
    fake_fleet_stock(&g->fleet, "NVIDIA H100 80GB HBM3", "US-KS-2", 0);
    p = kind_price(web_rig_prices(&g->rig), "eight");
    assert_true(p.room_known && p.room == 0);
    kind_close(g);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
        { "clouds:\n  - name: pods\n    kind: runpod\n" OFFERS, "image: kind runpod needs it" },
        { YAML_HEAD "    ssh_keys: [me]\n" OFFERS, "ssh_keys: kind runpod reads no such setting" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, spot: true}\n", "spot: kind runpod" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        KEYLESS_TESTS,
        cmocka_unit_test(data_centers_are_preferred_in_order),
        cmocka_unit_test(the_container_gets_its_document_and_its_own_key),
        cmocka_unit_test(a_pod_that_stopped_is_gone),
        cmocka_unit_test(prices_count_gpus_and_say_what_is_sold_out),
        cmocka_unit_test(settings_that_are_refused),
    };
    kind_suite = (struct kind_suite){
        .keyless = true,
        .fake = &fake_runpod,
        .yaml = YAML_HEAD OFFERS,
        .environ = environ_of_token,
        .token = TOKEN,
        .record = "MUSTER_RUNPOD_RECORD",
        .others_data = "{\"TAG_MUSTER_FLEET\":\"another\",\"TAG_MUSTER_INTENT\":\"i-1\"}",
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
