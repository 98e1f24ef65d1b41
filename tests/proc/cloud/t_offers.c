/* t_offers.c - tests the commands that ask clouds for prices: `muster offers --clouds` lists what each says now, and
 * `muster plan --clouds` chooses among what they sell. */
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "tests/proc/rig/rig.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TOKEN "t0ken-of-the-fake"

static struct rig_process fake;
static char config[RIG_PATH], only_gone[RIG_PATH], no_hardware[RIG_PATH];

#define AWAY                                 \
    "  - name: away\n"                       \
    "    kind: hetzner\n"                    \
    "    endpoint: http://127.0.0.1:%u/v1\n" \
    "    credentials_file: %s\n"             \
    "    image: debian-12\n"                 \
    "    offers: [ { name: other, type: cx22, price_per_hour: 0.001, hardware: h100 } ]\n"
#define EU                                                                   \
    "  - name: eu\n"                                                         \
    "    kind: hetzner\n"                                                    \
    "    endpoint: http://127.0.0.1:%u/v1\n"                                 \
    "    credentials_file: %s\n"                                             \
    "    image: debian-12\n"                                                 \
    "    exchange_rates: [EUR=2]\n"                                          \
    "    offers:\n"                                                          \
    "      - { name: dear, type: cx22, price_per_hour: 9, zones: [fsn1] }\n" \
    "      - { name: small, type: cx22, zones: [fsn1]%s }\n"

static int setup(void **state)
{
    (void)state;
    char port[16], token[RIG_PATH];
    uint16_t gone = rig_port();
    fake.port = rig_port();
    snprintf(port, sizeof port, "%u", fake.port);
    fake = rig_start(
        "fake_cloud",
        ARGS(getenv("FAKE_CLOUD_BIN"), "--plays", "hetzner", "--port", port, "--token", TOKEN),
        fake.port, "/fake/state", 200);
    rig_file(token, "token", TOKEN);
    assert_int_equal(chmod(token, 0600), 0);
    char text[2048];
    snprintf(text, sizeof text, "clouds:\n" EU AWAY, fake.port, token, ", hardware: l4", gone,
             token);
    rig_file(config, "clouds.yaml", text);
    snprintf(text, sizeof text, "clouds:\n" EU, fake.port, token, "");
    rig_file(no_hardware, "plain.yaml", text);
    snprintf(text, sizeof text, "clouds:\n" AWAY, gone, token);
    rig_file(only_gone, "gone.yaml", text);
    return 0;
}

static int find_small(void *ctx, struct str item)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    assert_int_equal(json_path_text(item, "offer", &name), 0);
    if (strcmp(name.data, "small") == 0)
        assert_int_equal(json_path_f64(item, "price_per_h", ctx), 0);
    return 0;
}

static void clouds_tell_their_prices(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf json = { 0 };
    double price = 0;
    assert_int_equal(rig_run(&text, ARGS("offers", "--clouds", config)), 0);
    assert_non_null(strstr(text.data, "small"));
    assert_non_null(strstr(text.data, "l4"));
    assert_non_null(strstr(text.data, "$9.00"));
    assert_non_null(strstr(text.data, "price_per_hour"));
    assert_non_null(
        strstr(text.data, "away: prices: ")); /* the cloud that does not answer is named */
    assert_null(strstr(text.data, TOKEN));
    assert_int_equal(rig_run(&json, ARGS("offers", "--clouds", config, "-o", "json")), 0);
    const char *list = strstr(json.data, "[{");
    assert_non_null(list);
    const char *end = strrchr(list, ']');
    assert_int_equal(json_path_each(str_of(list, (size_t)(end - list) + 1), "", find_small, &price),
                     0);
    assert_true(price > 0 && price < 1);
}

static void a_plan_buys_where_it_is_cheapest(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(rig_run(&text, ARGS("plan", "--clouds", config, "--rate", "1")), 0);
    assert_non_null(strstr(text.data, "x l4"));
    assert_non_null(strstr(text.data, "eu (small) on demand"));
    assert_non_null(strstr(text.data, "a million tokens of output"));
}

/* Beside the choice, each provider as if there were no other. */
static void each_provider_is_looked_at_alone(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf json = { 0 };
    double all = 0, eu = 0;
    assert_int_equal(rig_run(&text, ARGS("plan", "--clouds", config, "--rate", "1", "--buy")), 0);
    const char *choice = strstr(text.data, "$"), *alone = strstr(text.data, "eu alone");
    assert_non_null(choice);
    assert_non_null(alone);
    assert_true(choice < alone);
    assert_non_null(strstr(alone, "eu (small) on demand"));
    assert_int_equal(
        rig_run(&json, ARGS("plan", "--clouds", config, "--rate", "1", "--buy", "-o", "json")), 0);
    const char *object = strchr(json.data, '{');
    assert_non_null(object);
    struct str o = str_of(object, (size_t)(strrchr(object, '}') - object) + 1);
    assert_int_equal(json_path_f64(o, "choice.cost_per_h", &all), 0);
    assert_int_equal(json_path_f64(o, "providers.eu.cost_per_h", &eu), 0);
    assert_true(all > 0 && all <= eu); /* more to choose from is never dearer */
}

static void what_cannot_be_told_is_said(void **state)
{
    (void)state;
    const struct {
        const char *const *args;
        int status;
        const char *says;
    } rows[] = {
        { ARGS("offers", "--clouds", only_gone), 1, "no cloud of " },
        { ARGS("offers", "--clouds", config, "--hardware", "l4"), 2,
          "not with --hardware or --prices" },
        { ARGS("offers", "--clouds", "/nonexistent"), 1, "/nonexistent" },
        { ARGS("offers", "--clouds", "muster.yaml"), 1, "has no section `clouds`" },
        { ARGS("plan", "--clouds", config, "--prices", "x"), 2, "not with --prices" },
        { ARGS("plan", "--rate", "1", "--buy"), 2, "--buy: needs --clouds FILE" },
        { ARGS("plan", "--clouds", no_hardware), 1, "has both a price and `hardware`" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        int status = rig_run(&text, rows[i].args);
        if (status != rows[i].status || !strstr(text.data, rows[i].says))
            fail_msg("row %zu: status %d\n%s", i, status, text.data);
    }
}

static int teardown(void **state)
{
    (void)state;
    return rig_stop(&fake);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_CLOUD_BIN"))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clouds_tell_their_prices),
        cmocka_unit_test(a_plan_buys_where_it_is_cheapest),
        cmocka_unit_test(each_provider_is_looked_at_alone),
        cmocka_unit_test(what_cannot_be_told_is_said),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
