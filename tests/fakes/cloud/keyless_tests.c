/* keyless_tests.c - drives a kind without idempotency keys over a fake of its API, in virtual time: one machine an
 * intent whatever is lost, errors as classes of offers, and a controller that is killed at every step. */
#include "tests/fakes/cloud/keyless_tests.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_container.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct keyless_kind keyless_kind;

static struct keyless_ground *open_config(const struct fleet_config *config)
{
    struct keyless_ground *g = calloc(1, sizeof *g);
    must(g);
    fake_fleet_init(&g->fleet, config);
    g->ctx = keyless_kind.fake->open(&g->fleet, keyless_kind.token, RIG_DATE_US);
    web_rig_open(&g->rig, keyless_kind.yaml, keyless_kind.fake, g->ctx, keyless_kind.environ);
    return g;
}

struct keyless_ground *keyless_open(const struct fleet_row *script, uint32_t count)
{
    struct fleet_config config = *keyless_kind.fake->fleet;
    config.boot_us = 30 * RIG_SECOND;
    config.script_count = count;
    if (count > 0) memcpy(config.script, script, count * sizeof *script);
    return open_config(&config);
}

void keyless_close(struct keyless_ground *g)
{
    if (g->fleet.refused_form > 0) fail_msg("%s", g->fleet.last_refused);
    web_rig_close(&g->rig);
    fake_fleet_fini(&g->fleet);
    free(g->ctx);
    free(g);
}

uint32_t keyless_running(const struct keyless_ground *g)
{
    return fake_fleet_running(&g->fleet, g->rig.now_us);
}

struct cloud_price keyless_price(const struct cloud_event *e, const char *offer)
{
    if (e->rc < 0) fail_msg("%s", e->err.text);
    for (uint32_t i = 0; i < e->count; i++)
        if (strcmp(e->price[i].offer, offer) == 0) return e->price[i];
    fail_msg("no price of %s", offer);
    return (struct cloud_price){ 0 };
}

/* ---- what is made ---- */

void keyless_one_intent_is_one_machine(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    char handle[NAME_BYTES];
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    if (e->rc < 0) fail_msg("%s", e->err.text);
    snprintf(handle, sizeof handle, "%s", e->made.handle);
    assert_string_equal(e->made.intent, "i-1");
    assert_string_equal(e->made.service, "org/chat model");
    e = web_rig_create(&g->rig, "i-1", "small");
    assert_int_equal(e->rc, 0);
    assert_string_equal(e->made.handle, handle);
    assert_int_equal(g->fleet.count, 1);
    assert_string_equal(g->fleet.machine[0].type, keyless_kind.fake->fleet->type[0].name);
    assert_string_equal(fleet_tag_of(&g->fleet.machine[0], WEB_TAG_INTENT), "i-1");

    e = web_rig_list(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 1);
    assert_string_equal(e->item[0].service, "org/chat model");
    assert_string_equal(e->item[0].pool, "small");
    assert_string_equal(e->item[0].offer, "small");
    assert_string_equal(e->item[0].intent, "i-1");
    assert_string_equal(e->item[0].handle, handle);
    assert_false(e->item[0].unreadable || e->item[0].gone || e->item[0].leaves_us);

    assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
    assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(keyless_running(g), 0);
    keyless_close(g);
}

void keyless_a_lost_create_is_removed_by_its_intent(void **state)
{
    (void)state;
    const struct fleet_row twice = { .op = FLEET_CREATE, .nth = 1, .fault = FLEET_DUPLICATE };
    struct keyless_ground *g = keyless_open(&twice, 1);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "small")->rc, 0);
    assert_int_equal(keyless_running(g), 3);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(keyless_running(g), 1);
    assert_int_equal(fake_fleet_of_tag(&g->fleet, WEB_TAG_INTENT, "i-2", g->rig.now_us), 1);
    keyless_close(g);
}

/* Machines of the account that have no tag of ours, or that of another fleet, are neither listed nor ended. */
void keyless_others_machines_are_left(void **state)
{
    (void)state;
    struct keyless_ground *g = keyless_open(NULL, 0);
    const struct fleet_config *c = &g->fleet.config;
    const struct fleet_tag tags[] = { { WEB_TAG_FLEET, "another" }, { WEB_TAG_INTENT, "i-1" } };
    struct fleet_order order = { .name = "i-1", .type = c->type[0].name, .zone = c->zone[0] };
    struct fleet_machine *m;
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &m), FLEET_FINE);
    order.tag = tags;
    order.tag_count = COUNT_OF(tags);
    order.user_data = keyless_kind.others_data;
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &m), FLEET_FINE);
    assert_int_equal(web_rig_list(&g->rig)->count, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(keyless_running(g), 2);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_int_equal(web_rig_list(&g->rig)->count, 1);
    assert_int_equal(keyless_running(g), 3);
    keyless_close(g);
}

static int put_variable(void *ctx, struct str name, struct str value)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0) return -EINVAL;
    return buf_printf(ctx, "'" STR_FMT "=" STR_FMT "' ", STR_ARG(name), STR_ARG(buf_view(&text)));
}

static void check_script(const char *script)
{
    assert_non_null(strstr(script, "umask 077"));
    assert_non_null(strstr(script, "| base64 -d > " WEB_LAUNCH_FILE));
    assert_non_null(
        strstr(script, "echo 'a2V5LW9mLXRoZS1pbnN0YW5jZQ==' | base64 -d > " WEB_KEY_FILE));
    assert_non_null(strstr(script, "exec $muster agent --spec " WEB_LAUNCH_FILE));
    assert_null(strstr(script, "systemctl"));
    assert_null(strstr(script, "${LAUNCH}"));
    FILE *sh = popen("sh -n", "w");
    must(sh);
    fputs(script, sh);
    assert_int_equal(pclose(sh), 0);
}

void keyless_check_container(struct str env)
{
    CLEANUP(buf_fini) struct buf command = { 0 };
    char script[16384];
    buf_text(&command, "env -i PATH=\"$PATH\" ");
    assert_int_equal(json_path_each_member(env, "", put_variable, &command), 0);
    buf_printf(&command, "sh -c '%s'", WEB_CONTAINER_DECODE);
    FILE *sh = popen(command.data, "r");
    must(sh);
    size_t len = fread(script, 1, sizeof script - 1, sh);
    script[len] = 0;
    assert_int_equal(pclose(sh), 0);
    check_script(script);
}

/* ---- what a provider may do ---- */

struct faulty {
    struct fleet_row row;
    enum offer_error class; /* of the create; OFFER_OK: it succeeds */
    uint32_t running;
    const char *why;
};

/* A create that may have made something is not repeated within the call. Whatever happened, the next create of the
 * same intent, behind a listing, ends with one machine. */
static const struct faulty of_create[] = {
    { { .fault = FLEET_STOCK_OUT }, OFFER_CAPACITY, 0, "sold out everywhere" },
    { { .fault = FLEET_QUOTA }, OFFER_QUOTA, 0, "our limit" },
    { { .fault = FLEET_THROTTLE }, OFFER_THROTTLE, 0, "after four tries" },
    { { .fault = FLEET_THROTTLE, .nth = 1, .delay_us = 7 * RIG_SECOND },
      OFFER_OK,
      1,
      "one throttle" },
    { { .fault = FLEET_AUTH }, OFFER_AUTH, 0, "one new login does not help" },
    { { .fault = FLEET_AUTH, .nth = 1 }, OFFER_OK, 1, "one new login helps" },
    { { .fault = FLEET_FORBIDDEN }, OFFER_AUTH, 0, "the key lacks a right" },
    { { .fault = FLEET_INVALID }, OFFER_INVALID, 0, "no such image" },
    { { .fault = FLEET_SERVER_ERROR, .nth = 1 },
      OFFER_TRANSIENT,
      0,
      "an error says not whether it was done" },
    { { .fault = FLEET_UNKNOWN_CODE }, OFFER_TRANSIENT, 0, "words that no table has" },
    { { .fault = FLEET_UNREACHABLE }, OFFER_TRANSIENT, 0, "nothing was sent" },
    { { .fault = FLEET_UNREACHABLE, .nth = 1 }, OFFER_OK, 1, "nothing was sent: it is repeated" },
    { { .fault = FLEET_LOST_REQUEST, .nth = 1 }, OFFER_TRANSIENT, 0, "not done, no reply" },
    { { .fault = FLEET_LOST_REPLY, .nth = 1 }, OFFER_TRANSIENT, 1, "done, no reply" },
    { { .fault = FLEET_LATE_SUCCESS, .nth = 1, .delay_us = 300 * RIG_SECOND },
      OFFER_TRANSIENT,
      0,
      "done after five minutes" },
    { { .fault = FLEET_HALF_REPLY, .nth = 1 }, OFFER_TRANSIENT, 1, "the reply ends in its middle" },
    { { .fault = FLEET_GARBAGE, .nth = 1 }, OFFER_TRANSIENT, 1, "a proxy answers" },
    { { .fault = FLEET_SLOW, .nth = 1, .delay_us = 10 * RIG_SECOND }, OFFER_OK, 1, "slow" },
};

void keyless_faults_of_a_create(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(of_create); i++) {
        const struct faulty *f = &of_create[i];
        struct fleet_row row = f->row;
        row.op = FLEET_CREATE;
        struct keyless_ground *g = keyless_open(&row, 1);
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (e->class != f->class || keyless_running(g) != f->running)
            fail_msg("%s: %s (%s), %u run", f->why, offer_error_names[e->class], e->err.text,
                     keyless_running(g));
        if (strstr(e->err.text, keyless_kind.token)) fail_msg("%s: %s", f->why, e->err.text);
        if (f->class == OFFER_TRANSIENT && f->row.fault != FLEET_UNREACHABLE)
            assert_int_equal(g->fleet.calls[FLEET_CREATE], 1);
        g->fleet.config.script_count = 0;
        g->rig.now_us += 600 * RIG_SECOND;
        e = web_rig_create(&g->rig, "i-1", "small");
        if (e->rc < 0 || keyless_running(g) != 1)
            fail_msg("%s: then %s, %u run", f->why, e->err.text, keyless_running(g));
        keyless_close(g);
    }
    if (!keyless_kind.several) return;
    const struct fleet_row first = { .op = FLEET_CREATE, .nth = 1, .fault = FLEET_STOCK_OUT };
    struct keyless_ground *g = keyless_open(&first, 1);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_int_equal(keyless_running(g), 1);
    keyless_close(g);
}

void keyless_faults_of_other_calls(void **state)
{
    (void)state;
    static const enum fleet_fault passing[] = {
        FLEET_THROTTLE,     FLEET_AUTH,       FLEET_SERVER_ERROR, FLEET_UNREACHABLE,
        FLEET_LOST_REQUEST, FLEET_LOST_REPLY, FLEET_HALF_REPLY,   FLEET_GARBAGE,
    };
    for (size_t i = 0; i < COUNT_OF(passing); i++) {
        const struct fleet_row once[] = {
            { .op = FLEET_LIST, .nth = 2, .fault = passing[i], .delay_us = RIG_SECOND },
            { .op = FLEET_REMOVE, .nth = 1, .fault = passing[i], .delay_us = RIG_SECOND },
            { .op = FLEET_PRICES, .nth = 2, .fault = passing[i], .delay_us = RIG_SECOND },
        };
        const char *name = fleet_fault_names[passing[i]];
        struct keyless_ground *g = keyless_open(once, COUNT_OF(once));
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
        if (e->rc < 0) fail_msg("create, %s: %s", name, e->err.text);
        e = web_rig_list(&g->rig);
        if (e->rc < 0 || e->count != 1) fail_msg("list, %s: %s", name, e->err.text);
        e = web_rig_prices(&g->rig);
        if (e->rc < 0) fail_msg("prices, %s: %s", name, e->err.text);
        e = web_rig_remove(&g->rig, "", "i-1");
        if (e->rc < 0 || keyless_running(g) != 0) fail_msg("remove, %s: %s", name, e->err.text);
        keyless_close(g);
    }
    const struct fleet_row outage = { .any_op = true, .fault = FLEET_LOST_REQUEST };
    struct keyless_ground *g = keyless_open(&outage, 1);
    int64_t begun_us = g->rig.now_us;
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->class, OFFER_TRANSIENT);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 0); /* nothing is ordered without a look-up */
    assert_true(g->rig.now_us - begun_us <= WEB_RUN_US + WEB_CALL_US);
    keyless_close(g);
}

void keyless_expired_credentials(void **state)
{
    (void)state;
    const struct fleet_row expired = { .any_op = true, .fault = FLEET_AUTH };
    struct keyless_ground *g = keyless_open(&expired, 1);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc == -EACCES);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_null(strstr(e->err.text, keyless_kind.token));
    g->fleet.config.script_count = 0; /* the file was rotated */
    g->rig.now_us += 20 * RIG_SECOND;
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    keyless_close(g);

    static const char *const nothing[] = { NULL };
    struct keyless_kind with = keyless_kind;
    keyless_kind.environ = nothing;
    struct keyless_ground *h = keyless_open(NULL, 0);
    keyless_kind = with;
    e = web_rig_list(&h->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_non_null(strstr(e->err.text, h->rig.settings[0].kind->credentials_env));
    assert_int_equal(h->rig.drive.asks, 0);
    keyless_close(h);
}

/* ---- a controller over it ---- */

static void config_of_world(struct fleet_config *ret)
{
    *ret = *keyless_kind.fake->fleet;
    ret->boot_us = 5 * RIG_SECOND;
    ret->lag_us = 3 * RIG_SECOND;
}

static void open_ground(struct fleet_ground *ret)
{
    struct fleet_config config;
    config_of_world(&config);
    struct keyless_ground *g = open_config(&config);
    *ret = (struct fleet_ground){ .rig = &g->rig, .fleet = &g->fleet, .arg = g };
}

static void close_ground(struct fleet_ground *g)
{
    keyless_close(g->arg);
}

void keyless_killed_at_every_step(void **state)
{
    (void)state;
    fleet_world_killed_at_every_step(open_ground, close_ground, true);
    fleet_world_killed_at_every_step(open_ground, close_ground, false);
}

/* The provider makes two of one order: the controller ends the second. */
void keyless_duplicates_go(void **state)
{
    (void)state;
    struct fleet_config config;
    config_of_world(&config);
    config.script[config.script_count++] =
        (struct fleet_row){ .op = FLEET_CREATE, .nth = 1, .fault = FLEET_DUPLICATE };
    struct keyless_ground *g = open_config(&config);
    struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
    assert_true(fleet_world_up_and_down(&over, 1, 300));
    assert_true(g->fleet.count >= 3);
    keyless_close(g);
}

/* Twenty fleets with random faults on a third of all calls: none is left over. */
void keyless_random_faults(void **state)
{
    (void)state;
    static const enum fleet_fault faults[] = {
        FLEET_STOCK_OUT,    FLEET_THROTTLE,   FLEET_SERVER_ERROR, FLEET_UNREACHABLE,
        FLEET_LOST_REQUEST, FLEET_LOST_REPLY, FLEET_LATE_SUCCESS, FLEET_HALF_REPLY,
        FLEET_GARBAGE,      FLEET_DUPLICATE,  FLEET_SLOW_BOOT,    FLEET_UNKNOWN_CODE,
        FLEET_QUOTA,
    };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fleet_config config;
        struct rng rng;
        config_of_world(&config);
        rng_seed(&rng, seed);
        for (int i = 0; i < 16; i++)
            config.script[config.script_count++] =
                (struct fleet_row){ .op = FLEET_CREATE + rng_below(&rng, 3),
                                    .nth = 1 + (uint32_t)rng_below(&rng, 12),
                                    .fault = faults[rng_below(&rng, COUNT_OF(faults))],
                                    .delay_us = (int64_t)rng_below(&rng, 20) * RIG_SECOND };
        struct keyless_ground *g = open_config(&config);
        struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
        if (!fleet_world_up_and_down(&over, seed, 900))
            fail_msg("seed %llu", (unsigned long long)seed);
        keyless_close(g);
    }
}
