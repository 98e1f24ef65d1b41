/* t_web_hetzner.c - drives the Hetzner kind over a fake of its API, in virtual time: one server an intent whatever is
 * lost, errors as classes of offers, user data, pages, prices. */
#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_tags.h"
#include "controller/cloud/web/web_user_data.h"
#include "tests/fakes/cloud/fake_hetzner.h"
#include "tests/fakes/cloud/kind_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN "jEheVytlAoFl7F8MqUQ7jAo2hOXASztX"
#define YAML_HEAD                                  \
    "clouds:\n"                                    \
    "  - name: eu\n"                               \
    "    kind: hetzner\n"                          \
    "    image: debian-12\n"                       \
    "    calls_per_s: 100\n"                       \
    "    ssh_keys: [me, '7']\n"                    \
    "    networks: ['4711']\n"                     \
    "    firewalls: ['12']\n"                      \
    "    muster_url: https://example.org/muster\n" \
    "    muster_sha256: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
#define OFFERS                                                 \
    "    offers:\n"                                            \
    "      - {name: small, type: cx22, zones: [fsn1, nbg1]}\n" \
    "      - {name: any, type: cx22}\n"                        \
    "      - {name: big, type: ccx33, zones: [hel1]}\n"        \
    "      - {name: given, type: cx22, price_per_hour: 0.5}\n"
static const char yaml[] = YAML_HEAD "    exchange_rates: [EUR=1.1]\n" OFFERS;
static const char *const environ_of_token[] = { "HCLOUD_TOKEN=" TOKEN, NULL };

static const struct fleet_config plain = {
    .bill_unit_s = 3600,
    .address_udollars_h = 1100,
    .names_unique = true,
    .type = { { .name = "cx22",
                .price_udollars_h = 6600,
                .price = 0.006,
                .cores = 2,
                .memory_gib = 4 },
              { .name = "ccx33",
                .price_udollars_h = 88000,
                .price = 0.08,
                .cores = 8,
                .memory_gib = 32 } },
    .type_count = 2,
    .zone = { "fsn1", "nbg1", "hel1" },
    .zone_count = 3,
};

static struct fake_hetzner *hetzner(struct kind_ground *g)
{
    return g->ctx;
}

/* ---- what is made ---- */

/* A server of that name which is not ours is neither taken nor ended. */
static void another_ones_server_is_left(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    struct fleet_machine *theirs;
    const struct fleet_order order = { .name = "i-1", .type = "cx22", .zone = "fsn1" };
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                     FLEET_FINE);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    assert_true(e->rc < 0);
    assert_int_equal(e->class, OFFER_INVALID);
    assert_int_equal(web_rig_list(&g->rig)->count, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(kind_running(g), 1);
    kind_close(g);
}

static void many_servers_are_many_pages(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_check_pages(g, 120, "any", "any");
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
    assert_true(e->item[0].leaves_us > 0);
    assert_string_equal(e->item[0].why, "the server is stopping");
    kind_close(g);
}

/* ---- user data ---- */

static const char *between(const char *text, const char *before, const char *after, char ret[4096])
{
    const char *from = strstr(text, before);
    assert_non_null(from);
    from += strlen(before);
    const char *to = strstr(from, after);
    assert_non_null(to);
    must(to - from < 4096);
    memcpy(ret, from, (size_t)(to - from));
    ret[to - from] = 0;
    return ret;
}

static void the_machine_gets_its_document_and_a_token(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    CLEANUP(buf_fini) struct buf json = { 0 };
    CLEANUP(buf_fini) struct buf key = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    char text[4096];
    struct launch_spec spec;
    arena_init(&arena, (size_t)1 << 20);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    const char *script = g->fleet.machine[0].user_data;
    assert_null(strstr(script, "${LAUNCH}"));
    assert_non_null(strstr(script, "umask 077"));
    assert_non_null(strstr(script, "url='https://example.org/muster'"));
    assert_non_null(strstr(script, "00112233445566778899aabbccddeeff"));
    between(script, "echo '", "' | base64 -d > " WEB_LAUNCH_FILE, text);
    assert_int_equal(base64_take(&json, str_from(text)), 0);
    assert_int_equal(launch_spec_decode(buf_view(&json), &arena, &spec, NULL), 0);
    assert_true(str_eq(spec.secret_file, STR(WEB_KEY_FILE)));
    assert_true(str_eq(spec.join_file, STR(WEB_TOKEN_FILE)));
    assert_int_equal(spec.v, LAUNCH_VERSION); /* an agent that knows no tokens refuses it */
    assert_true(str_eq(spec.instance, STR("i-1")));
    between(script, WEB_LAUNCH_FILE "\necho '", "' | base64 -d > " WEB_TOKEN_FILE, text);
    assert_int_equal(base64_take(&key, str_from(text)), 0);
    assert_true(str_eq(buf_view(&key), STR("key-of-the-instance")));
    assert_int_equal(system("command -v sh > /dev/null"), 0);
    FILE *sh = popen("sh -n", "w");
    must(sh);
    fputs(script, sh);
    assert_int_equal(pclose(sh), 0);
    kind_close(g);
}

/* What is too long is refused with both sizes, and nothing is asked of the provider. */
static void user_data_has_a_limit(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    static char template[40000];
    memset(template, '#', sizeof template - 1);
    memcpy(template, "${LAUNCH}${TOKEN}\n", 18);
    g->rig.settings[0].user_data = str_from(template);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    assert_int_equal(e->class, OFFER_INVALID);
    assert_non_null(strstr(e->err.text, "hetzner takes 32768"));
    assert_int_equal(g->rig.drive.asks, 0);
    kind_close(g);
}

static void templates_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
        { "echo ${LAUNCH} ${TOKEN} ${NOTHING}", "there is no ${NOTHING}" },
        { "echo ${LAUNCH}", "without ${TOKEN}" },
        { "echo ${TOKEN} ${SHELL_VARIABLE_in_part}", "without ${LAUNCH}" },
        { "echo ${LAUNCH} ${TOKEN} ${here:-x} $PATH ${lower}", "" }, /* the shell's own */
    };
    struct kind_ground *g = kind_open(NULL, 0);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        g->rig.settings[0].user_data = str_from(rows[i].text);
        int rc = web_user_data_check(&g->rig.settings[0], &err);
        if ((rc < 0) != (rows[i].problem[0] != 0) || !strstr(err.text, rows[i].problem))
            fail_msg("%s: %s", rows[i].text, err.text);
    }
    kind_close(g);
}

/* ---- what a provider may do ---- */

/* What one call learns of a throttle holds for the others. */
static void a_throttle_is_everybodys(void **state)
{
    (void)state;
    const struct fleet_row row = {
        .op = FLEET_CREATE, .nth = 1, .fault = FLEET_THROTTLE, .delay_us = 30 * RIG_SECOND
    };
    struct kind_ground *g = kind_open(&row, 1);
    int64_t begun_us = g->rig.now_us;
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_true(g->rig.now_us - begun_us >= 30 * RIG_SECOND);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 2);
    kind_close(g);
}

static void a_wrong_token_is_asked_for_once_in_a_while(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    hetzner(g)->token = "another";
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc == -EACCES);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_null(strstr(e->err.text, TOKEN));
    kind_close(g);
}

/* ---- prices ---- */

static void prices_are_converted_or_unknown(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 4);
    assert_true(kind_costs(e, "small", 0.007 * 1.1)); /* with the address */
    assert_true(kind_costs(e, "big", 0.081 * 1.1));
    assert_true(kind_costs(e, "given", 0.5));
    hetzner(g)->currency = "CHF"; /* of which no rate is known */
    e = web_rig_prices(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_false(kind_price(e, "small").known);
    assert_true(kind_price(e, "given").known);
    kind_close(g);
}

/* ---- settings ---- */

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
        { YAML_HEAD "    region: eu\n" OFFERS, "region: kind hetzner reads no such setting" },
        { YAML_HEAD "    exchange_rates: [EUR]\n" OFFERS, "exchange_rates" },
        { "clouds:\n  - name: eu\n    kind: hetzner\n" OFFERS, "image: kind hetzner needs it" },
        { "clouds:\n  - name: local\n    kind: hetzner\n    image: x\n" OFFERS,
          "another provider" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, spot: true}\n", "spot: kind hetzner" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, gpus: 1}\n", "gpus: kind hetzner" },
        { YAML_HEAD "    fleet: Muster\n" OFFERS, "fleet" },
        { YAML_HEAD "    endpoint: api.hetzner.cloud\n" OFFERS, "endpoint" },
        { YAML_HEAD "    endpoint: http://api.hetzner.cloud/v1\n" OFFERS, "over https" },
        { YAML_HEAD "    endpoint: http://127.0.0.1.example.org/v1\n" OFFERS, "over https" },
        { "clouds:\n  - name: eu\n    kind: hetzner\n    image: x\n    muster_url: "
          "https://x/y\n" OFFERS,
          "muster_sha256" },
        { "clouds:\n  - name: eu\n    kind: hetzner\n    image: x\n    muster_url: "
          "\"https://x/'y\"\n"
          "    muster_sha256: 0\n" OFFERS,
          "muster_url" },
        { YAML_HEAD "    credentials: secret\n" OFFERS, "credentials" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
}

int main(void)
{
    kind_suite = (struct kind_suite){ .fake = &fake_hetzner,
                                      .fleet = &plain,
                                      .yaml = yaml,
                                      .environ = environ_of_token,
                                      .token = TOKEN,
                                      .several = true,
                                      .zone = "fsn1",
                                      .image = "debian-12",
                                      .service_tag = "org_2fchat_20model" };
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        cmocka_unit_test(another_ones_server_is_left),
        cmocka_unit_test(many_servers_are_many_pages),
        cmocka_unit_test(a_server_on_its_way_out_is_listed_so),
        cmocka_unit_test(the_machine_gets_its_document_and_a_token),
        cmocka_unit_test(user_data_has_a_limit),
        cmocka_unit_test(templates_that_are_refused),
        cmocka_unit_test(a_throttle_is_everybodys),
        cmocka_unit_test(a_wrong_token_is_asked_for_once_in_a_while),
        cmocka_unit_test(prices_are_converted_or_unknown),
        cmocka_unit_test(settings_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
