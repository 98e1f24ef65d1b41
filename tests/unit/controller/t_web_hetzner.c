/* t_web_hetzner.c - drives the Hetzner kind over a fake of its API, in virtual time: one server an intent whatever is
 * lost, errors as classes of offers, pages, prices, and a controller that is killed at every step. */
#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_tags.h"
#include "controller/cloud/web/web_user_data.h"
#include "tests/fakes/cloud/fake_hetzner.h"
#include "tests/fakes/cloud/fleet_world.h"
#include "tests/unit/unit.h"

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

struct ground {
    struct fake_fleet fleet;
    struct fake_hetzner hetzner;
    struct web_rig rig;
};

static const struct fleet_config plain = {
    .boot_us = 30 * RIG_SECOND,
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

static struct ground *ground_of(const struct fleet_config *config, const char *text)
{
    struct ground *g = calloc(1, sizeof *g);
    must(g);
    fake_fleet_init(&g->fleet, config);
    g->hetzner =
        (struct fake_hetzner){ .fleet = &g->fleet, .token = TOKEN, .date_us = RIG_DATE_US };
    web_rig_open(&g->rig, text, &fake_hetzner, &g->hetzner, environ_of_token);
    return g;
}

static struct ground *ground(const struct fleet_row *script, uint32_t count)
{
    struct fleet_config config = plain;
    config.script_count = count;
    if (count > 0) memcpy(config.script, script, count * sizeof *script);
    return ground_of(&config, yaml);
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

/* ---- what is made ---- */

static void one_intent_is_one_server(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    char handle[NAME_BYTES];
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    if (e->rc < 0) fail_msg("%s", e->err.text);
    snprintf(handle, sizeof handle, "%s", e->made.handle);
    assert_string_equal(e->made.intent, "i-1");
    e = web_rig_create(&g->rig, "i-1", "small");
    assert_int_equal(e->rc, 0);
    assert_string_equal(e->made.handle, handle);
    assert_int_equal(g->fleet.count, 1);

    const struct fleet_machine *m = &g->fleet.machine[0];
    assert_string_equal(m->name, "i-1");
    assert_string_equal(m->type, "cx22");
    assert_string_equal(m->zone, "fsn1");
    assert_string_equal(m->image, "debian-12");
    assert_string_equal(fleet_tag_of(m, WEB_TAG_SERVICE), "org_2fchat_20model");

    e = web_rig_list(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 1);
    assert_string_equal(e->item[0].service, "org/chat model");
    assert_string_equal(e->item[0].pool, "small");
    assert_string_equal(e->item[0].offer, "small");
    assert_string_equal(e->item[0].intent, "i-1");
    assert_string_equal(e->item[0].handle, handle);
    assert_false(e->item[0].unreadable || e->item[0].gone || e->item[0].leaves_us);
    assert_true(llabs(e->item[0].created_us - m->made_us) < RIG_SECOND);

    assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
    assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(running(g), 0);
    ground_free(g);
}

static void a_lost_create_is_removed_by_its_intent(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "any")->rc, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "any")->rc, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(running(g), 1);
    assert_int_equal(fake_fleet_of_tag(&g->fleet, WEB_TAG_INTENT, "i-2", g->rig.now_us), 1);
    ground_free(g);
}

/* A server of that name which is not ours is neither taken nor ended. */
static void another_ones_server_is_left(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    struct fleet_machine *theirs;
    const struct fleet_order order = { .name = "i-1", .type = "cx22", .zone = "fsn1" };
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &theirs),
                     FLEET_FINE);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    assert_true(e->rc < 0);
    assert_int_equal(e->class, OFFER_INVALID);
    assert_int_equal(web_rig_list(&g->rig)->count, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(running(g), 1);
    ground_free(g);
}

static void many_servers_are_many_pages(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    for (int i = 0; i < 120; i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%d", i);
        assert_int_equal(web_rig_create(&g->rig, intent, "any")->rc, 0);
    }
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 120);
    for (uint32_t i = 0; i < 120; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(e->item[i].handle, e->item[k].handle);
    ground_free(g);
}

static void a_server_on_its_way_out_is_listed_so(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    fake_fleet_preempt(&g->fleet, &g->fleet.machine[0], 60 * RIG_SECOND, g->rig.now_us);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->count, 1);
    assert_true(e->item[0].leaves_us > 0);
    assert_string_equal(e->item[0].why, "the server is stopping");
    ground_free(g);
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

static void the_machine_gets_its_document_and_its_own_key(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
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
    assert_true(str_eq(spec.instance, STR("i-1")));
    between(script, WEB_LAUNCH_FILE "\necho '", "' | base64 -d > " WEB_KEY_FILE, text);
    assert_int_equal(base64_take(&key, str_from(text)), 0);
    assert_true(str_eq(buf_view(&key), STR("key-of-the-instance")));
    assert_int_equal(system("command -v sh > /dev/null"), 0);
    FILE *sh = popen("sh -n", "w");
    must(sh);
    fputs(script, sh);
    assert_int_equal(pclose(sh), 0);
    ground_free(g);
}

/* What is too long is refused with both sizes, and nothing is asked of the provider. */
static void user_data_has_a_limit(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    static char template[40000];
    memset(template, '#', sizeof template - 1);
    memcpy(template, "${LAUNCH}${KEY}\n", 16);
    g->rig.settings[0].user_data = str_from(template);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    assert_int_equal(e->class, OFFER_INVALID);
    assert_non_null(strstr(e->err.text, "hetzner takes 32768"));
    assert_int_equal(g->rig.drive.asks, 0);
    ground_free(g);
}

static void templates_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
        { "echo ${LAUNCH} ${KEY} ${NOTHING}", "there is no ${NOTHING}" },
        { "echo ${LAUNCH}", "without ${KEY}" },
        { "echo ${KEY} ${SHELL_VARIABLE_in_part}", "without ${LAUNCH}" },
        { "echo ${LAUNCH} ${KEY} ${here:-x} $PATH ${lower}", "" }, /* the shell's own */
    };
    struct ground *g = ground(NULL, 0);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        g->rig.settings[0].user_data = str_from(rows[i].text);
        int rc = web_user_data_check(&g->rig.settings[0], &err);
        if ((rc < 0) != (rows[i].problem[0] != 0) || !strstr(err.text, rows[i].problem))
            fail_msg("%s: %s", rows[i].text, err.text);
    }
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
 * server. */
static void faults_of_a_create(void **state)
{
    (void)state;
    static const struct faulty rows[] = {
        { { .fault = FLEET_STOCK_OUT }, OFFER_CAPACITY, 0, "sold out everywhere" },
        { { .fault = FLEET_STOCK_OUT, .zone = "fsn1" }, OFFER_OK, 1, "the next location has it" },
        { { .fault = FLEET_QUOTA }, OFFER_QUOTA, 0, "no second location is asked" },
        { { .fault = FLEET_THROTTLE }, OFFER_THROTTLE, 0, "after four tries" },
        { { .fault = FLEET_THROTTLE, .nth = 1, .delay_us = 7 * RIG_SECOND },
          OFFER_OK,
          1,
          "waits as long as the reply says" },
        { { .fault = FLEET_AUTH }, OFFER_AUTH, 0, "one new login does not help" },
        { { .fault = FLEET_AUTH, .nth = 1 }, OFFER_OK, 1, "one new login helps" },
        { { .fault = FLEET_FORBIDDEN }, OFFER_AUTH, 0, "a token that may only read" },
        { { .fault = FLEET_INVALID }, OFFER_INVALID, 0, "no server type of that name" },
        { { .fault = FLEET_SERVER_ERROR }, OFFER_TRANSIENT, 0, "errors go on" },
        { { .fault = FLEET_SERVER_ERROR, .nth = 1 }, OFFER_OK, 1, "one error" },
        { { .fault = FLEET_UNKNOWN_CODE }, OFFER_TRANSIENT, 0, "words that no table has" },
        { { .fault = FLEET_UNREACHABLE }, OFFER_TRANSIENT, 0, "nothing was sent" },
        { { .fault = FLEET_LOST_REQUEST, .nth = 1 }, OFFER_OK, 1, "not done, no reply" },
        { { .fault = FLEET_LOST_REPLY, .nth = 1 },
          OFFER_OK,
          1,
          "done, no reply: found by its name" },
        { { .fault = FLEET_LATE_SUCCESS, .nth = 1, .delay_us = 300 * RIG_SECOND },
          OFFER_OK,
          1,
          "the name is taken when the first comes through" },
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
        if (strstr(e->err.text, TOKEN)) fail_msg("%s: %s", rows[i].why, e->err.text);
        g->fleet.config.script_count = 0;
        g->rig.now_us += 600 * RIG_SECOND;
        e = web_rig_create(&g->rig, "i-1", "small");
        if (e->rc < 0 || running(g) != 1)
            fail_msg("%s: then %s, %u run", rows[i].why, e->err.text, running(g));
        ground_free(g);
    }
}

/* A list or a remove that gets no reply is asked again; one that never gets any ends within its time. */
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
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        assert_int_equal(e->rc, 0);
        e = web_rig_list(&g->rig);
        if (e->rc < 0 || e->count != 1)
            fail_msg("list, %s: %s", fleet_fault_names[passing[i]], e->err.text);
        e = web_rig_prices(&g->rig);
        if (e->rc < 0) fail_msg("prices, %s: %s", fleet_fault_names[passing[i]], e->err.text);
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

/* What one call learns of a throttle holds for the others. */
static void a_throttle_is_everybodys(void **state)
{
    (void)state;
    const struct fleet_row row = {
        .op = FLEET_CREATE, .nth = 1, .fault = FLEET_THROTTLE, .delay_us = 30 * RIG_SECOND
    };
    struct ground *g = ground(&row, 1);
    int64_t begun_us = g->rig.now_us;
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_true(g->rig.now_us - begun_us >= 30 * RIG_SECOND);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 2);
    ground_free(g);
}

static void a_wrong_token_is_asked_for_once_in_a_while(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    g->hetzner.token = "another";
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc == -EACCES);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_null(strstr(e->err.text, TOKEN));
    ground_free(g);
    static const char *const nothing[] = { NULL };
    struct ground *h = ground(NULL, 0);
    h->rig.host.environ = nothing;
    web_drive_close(&h->rig.drive);
    struct err err = { 0 };
    must(web_drive_open(&h->rig.drive, &h->rig.settings[0], &h->rig.host, 1, fake_hetzner.respond,
                        &h->hetzner, &err) == 0);
    e = web_rig_list(&h->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_non_null(strstr(e->err.text, "HCLOUD_TOKEN"));
    assert_int_equal(h->rig.drive.asks, 0);
    ground_free(h);
}

/* ---- prices ---- */

static struct cloud_price price_of(const struct cloud_event *e, const char *offer)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (strcmp(e->price[i].offer, offer) == 0) return e->price[i];
    fail_msg("no price of %s", offer);
    return (struct cloud_price){ 0 };
}

static void prices_are_converted_or_unknown(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 4);
    assert_true(price_of(e, "small").known); /* with the address */
    assert_true(price_of(e, "small").price_h > 0.007 * 1.1 - 1e-9);
    assert_true(price_of(e, "small").price_h < 0.007 * 1.1 + 1e-9);
    assert_true(price_of(e, "big").price_h > 0.081 * 1.1 - 1e-9);
    assert_true(price_of(e, "given").price_h > 0.4999 && price_of(e, "given").price_h < 0.5001);
    g->hetzner.currency = "CHF"; /* of which no rate is known */
    e = web_rig_prices(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_false(price_of(e, "small").known);
    assert_true(price_of(e, "given").known);
    ground_free(g);
}

/* ---- settings ---- */

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
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
    struct ground *g = ground_of(&config, yaml);
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
        FLEET_GARBAGE,      FLEET_DUPLICATE,  FLEET_SLOW_BOOT,    FLEET_UNKNOWN_CODE,
        FLEET_QUOTA,
    };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fleet_config config = plain;
        struct rng rng;
        rng_seed(&rng, seed);
        config.boot_us = 5 * RIG_SECOND;
        config.lag_us = 3 * RIG_SECOND;
        for (int i = 0; i < 16; i++)
            config.script[config.script_count++] =
                (struct fleet_row){ .op = FLEET_CREATE + rng_below(&rng, 3),
                                    .nth = 1 + (uint32_t)rng_below(&rng, 12),
                                    .fault = faults[rng_below(&rng, COUNT_OF(faults))],
                                    .delay_us = (int64_t)rng_below(&rng, 20) * RIG_SECOND };
        struct ground *g = ground_of(&config, yaml);
        struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
        if (!fleet_world_up_and_down(&over, seed, 900))
            fail_msg("seed %llu", (unsigned long long)seed);
        ground_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_intent_is_one_server),
        cmocka_unit_test(a_lost_create_is_removed_by_its_intent),
        cmocka_unit_test(another_ones_server_is_left),
        cmocka_unit_test(many_servers_are_many_pages),
        cmocka_unit_test(a_server_on_its_way_out_is_listed_so),
        cmocka_unit_test(the_machine_gets_its_document_and_its_own_key),
        cmocka_unit_test(user_data_has_a_limit),
        cmocka_unit_test(templates_that_are_refused),
        cmocka_unit_test(faults_of_a_create),
        cmocka_unit_test(faults_of_other_calls),
        cmocka_unit_test(a_throttle_is_everybodys),
        cmocka_unit_test(a_wrong_token_is_asked_for_once_in_a_while),
        cmocka_unit_test(prices_are_converted_or_unknown),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(random_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
