/* kind_suite.c - drives a kind of cloud over a fake of its API, in virtual time: one machine an intent whatever is
 * lost, errors as classes of offers, and a controller that is killed at every step. */
#include "tests/fakes/cloud/kind_suite.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_container.h"
#include "controller/cloud/web/web_tags.h"

#include <stdlib.h>
#include <string.h>

struct kind_suite kind_suite;

static const struct fleet_config *sold(void)
{
    return kind_suite.fleet ? kind_suite.fleet : kind_suite.fake->fleet;
}

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct kind_ground *g = ctx;
    CLEANUP(buf_fini) struct buf line = { 0 };
    struct json_writer w;
    int64_t took_us = kind_suite.fake->respond(g->ctx, ask, now_us, arena, ret);
    if (!g->record) return took_us;
    json_writer_init(&w, &line);
    json_object(&w);
    json_kv_str(&w, "method", ask->method);
    json_kv_str(&w, "url", ask->url);
    json_kv_str(&w, "body", ask->body);
    json_kv_str(&w, "type", ask->content_type);
    json_key(&w, "headers");
    json_object(&w);
    for (uint32_t i = 0; i < ask->header_count; i++) {
        json_key_str(&w, ask->header[i].name);
        json_put_str(&w, ask->header[i].value);
    }
    json_object_end(&w);
    json_object_end(&w);
    fprintf(g->record, "%.*s\n", (int)line.len, line.data);
    return took_us;
}

struct kind_ground *kind_open_as(const struct fleet_config *config, const char *yaml,
                                 const char *const *environ)
{
    const struct cloud_fake recorded = { .name = kind_suite.fake->name, .respond = respond };
    struct kind_ground *g = calloc(1, sizeof *g);
    must(g);
    fake_fleet_init(&g->fleet, config ? config : sold());
    if (!config) g->fleet.config.boot_us = 30 * RIG_SECOND;
    g->ctx = kind_suite.open ? kind_suite.open(&g->fleet)
                             : kind_suite.fake->open(&g->fleet, kind_suite.token, RIG_DATE_US);
    web_rig_open(&g->rig, yaml ? yaml : kind_suite.yaml, &recorded, g,
                 environ ? environ : kind_suite.environ);
    g->rig.secret = kind_suite.secret;
    return g;
}

struct kind_ground *kind_record(struct kind_ground *g)
{
    const char *path = kind_suite.record ? getenv(kind_suite.record) : NULL;
    if (path) g->record = fopen(path, "a");
    return g;
}

struct kind_ground *kind_open(const struct fleet_row *script, uint32_t count)
{
    struct fleet_config config = *sold();
    config.boot_us = 30 * RIG_SECOND;
    config.script_count = count;
    if (count > 0) memcpy(config.script, script, count * sizeof *script);
    return kind_record(kind_open_as(&config, NULL, NULL));
}

void kind_close(struct kind_ground *g)
{
    if (g->fleet.refused_form > 0) fail_msg("%s", g->fleet.last_refused);
    web_rig_close(&g->rig);
    fake_fleet_fini(&g->fleet);
    if (g->record) fclose(g->record);
    free(g->ctx);
    free(g);
}

uint32_t kind_running(const struct kind_ground *g)
{
    return fake_fleet_running(&g->fleet, g->rig.now_us);
}

const struct cloud_event *kind_well(const struct cloud_event *e)
{
    if (e->rc < 0) fail_msg("%s: %s", offer_error_names[e->class], e->err.text);
    return e;
}

struct cloud_price kind_price(const struct cloud_event *e, const char *offer)
{
    kind_well(e);
    for (uint32_t i = 0; i < e->count; i++)
        if (strcmp(e->price[i].offer, offer) == 0) return e->price[i];
    fail_msg("no price of %s", offer);
    return (struct cloud_price){ 0 };
}

bool kind_costs(const struct cloud_event *e, const char *offer, double dollars_h)
{
    struct cloud_price p = kind_price(e, offer);
    return p.known && p.price_h > dollars_h - 1e-9 && p.price_h < dollars_h + 1e-9;
}

void kind_check_refused(const struct kind_refused *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *problem = web_rig_problem(rows[i].text);
        if (!strstr(problem, rows[i].problem)) fail_msg("%s: %s", rows[i].problem, problem);
    }
}

/* ---- what is made ---- */

/* Lets listings show what was just done. */
static const struct cloud_event *list(struct kind_ground *g)
{
    if (g->fleet.config.lag_us > 0) g->rig.now_us += g->fleet.config.lag_us + RIG_SECOND;
    return web_rig_list(&g->rig);
}

const struct fleet_machine *kind_make_once(struct kind_ground *g, const char *offer)
{
    const struct cloud_event *e = kind_well(web_rig_create(&g->rig, "i-1", offer));
    const struct fleet_machine *m = &g->fleet.machine[0];
    snprintf(g->handle, sizeof g->handle, "%s", e->made.handle);
    assert_string_equal(e->made.intent, "i-1");
    assert_string_equal(e->made.service, "org/chat model");
    e = kind_well(web_rig_create(&g->rig, "i-1", offer));
    assert_string_equal(e->made.handle, g->handle);
    assert_int_equal(g->fleet.count, 1);
    assert_string_equal(m->name, "i-1");
    assert_string_equal(fleet_tag_of(m, WEB_TAG_FLEET), "muster");
    assert_string_equal(fleet_tag_of(m, WEB_TAG_INTENT), "i-1");

    e = kind_well(list(g));
    assert_int_equal(e->count, 1);
    assert_string_equal(e->item[0].service, "org/chat model");
    assert_string_equal(e->item[0].pool, "small");
    assert_string_equal(e->item[0].offer, offer);
    assert_string_equal(e->item[0].intent, "i-1");
    assert_string_equal(e->item[0].handle, g->handle);
    assert_false(e->item[0].unreadable || e->item[0].gone || e->item[0].leaves_us);
    if (!kind_suite.ageless) assert_true(llabs(e->item[0].created_us - m->made_us) < RIG_SECOND);
    return m;
}

void kind_end_once(struct kind_ground *g)
{
    kind_well(web_rig_remove(&g->rig, g->handle, "i-1"));
    g->rig.now_us += kind_suite.end_us;
    kind_well(web_rig_remove(&g->rig, g->handle, "i-1"));
    kind_well(web_rig_remove(&g->rig, "", "i-1"));
    assert_int_equal(kind_running(g), 0);
}

void kind_one_intent_is_one_machine(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct fleet_machine *m = kind_make_once(g, "small");
    const struct kind_suite *k = &kind_suite;
    assert_string_equal(m->type, sold()->type[0].name);
    if (k->zone) assert_string_equal(m->zone, k->zone);
    if (k->image) assert_string_equal(m->image, k->image);
    if (k->service_tag) assert_string_equal(fleet_tag_of(m, WEB_TAG_SERVICE), k->service_tag);
    if (k->data) assert_non_null(strstr(m->user_data, k->data));
    if (k->handle) assert_string_equal(g->handle, k->handle);
    kind_end_once(g);
    kind_close(g);
}

/* A keyless kind removes both, where the provider made two of one order. */
void kind_a_lost_create_is_removed_by_its_intent(void **state)
{
    (void)state;
    const struct fleet_row twice = { .op = FLEET_CREATE, .nth = 1, .fault = FLEET_DUPLICATE };
    struct kind_ground *g = kind_open(&twice, kind_suite.keyless);
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    kind_well(web_rig_create(&g->rig, "i-2", "small"));
    assert_int_equal(kind_running(g), 2 + kind_suite.keyless);
    kind_well(web_rig_remove(&g->rig, "", "i-1"));
    g->rig.now_us += kind_suite.end_us;
    assert_int_equal(kind_running(g), 1);
    assert_int_equal(fake_fleet_of_tag(&g->fleet, WEB_TAG_INTENT, "i-2", g->rig.now_us), 1);
    kind_close(g);
}

/* Machines of the account that have no tag of ours, or that of another fleet, are neither listed nor ended. */
void keyless_others_machines_are_left(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct fleet_config *c = &g->fleet.config;
    const struct fleet_tag tags[] = { { WEB_TAG_FLEET, "another" }, { WEB_TAG_INTENT, "i-1" } };
    struct fleet_order order = { .name = "i-1", .type = c->type[0].name, .zone = c->zone[0] };
    struct fleet_machine *m;
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &m), FLEET_FINE);
    order.tag = tags;
    order.tag_count = COUNT_OF(tags);
    order.user_data = kind_suite.others_data;
    assert_int_equal(fake_fleet_create(&g->fleet, &order, 0, 0, g->rig.now_us, &m), FLEET_FINE);
    assert_int_equal(web_rig_list(&g->rig)->count, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(kind_running(g), 2);
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->rc, 0);
    assert_int_equal(web_rig_list(&g->rig)->count, 1);
    assert_int_equal(kind_running(g), 3);
    kind_close(g);
}

const struct cloud_event *kind_check_pages(struct kind_ground *g, uint32_t count, const char *offer,
                                           const char *other)
{
    for (uint32_t i = 0; i < count; i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%u", i);
        kind_well(web_rig_create(&g->rig, intent, i % 2 ? offer : other));
    }
    const struct cloud_event *e = kind_well(web_rig_list(&g->rig));
    assert_int_equal(e->count, count);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(e->item[i].handle, e->item[k].handle);
    return e;
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
        strstr(script, "echo 'a2V5LW9mLXRoZS1pbnN0YW5jZQ==' | base64 -d > " WEB_TOKEN_FILE));
    assert_non_null(strstr(script, "exec $muster agent --spec " WEB_LAUNCH_FILE));
    assert_null(strstr(script, "systemctl"));
    assert_null(strstr(script, "${LAUNCH}"));
    FILE *sh = popen("sh -n", "w");
    must(sh);
    fputs(script, sh);
    assert_int_equal(pclose(sh), 0);
}

void kind_check_container(struct str env)
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

struct outcome {            /* of the create */
    enum offer_error class; /* OFFER_OK: it succeeds */
    uint32_t running;
};

struct faulty {
    struct fleet_row row;
    struct outcome keyed, keyless;
    const char *why;
};

/* A keyed create is repeated within its call until a reply says what came of it; a keyless one that may have made
 * something is not. */
static const struct faulty of_create[] = {
    { { .fault = FLEET_STOCK_OUT }, { OFFER_CAPACITY, 0 }, { OFFER_CAPACITY, 0 }, "sold out" },
    { { .fault = FLEET_QUOTA }, { OFFER_QUOTA, 0 }, { OFFER_QUOTA, 0 }, "our limit" },
    { { .fault = FLEET_THROTTLE }, { OFFER_THROTTLE, 0 }, { OFFER_THROTTLE, 0 }, "four tries" },
    { { .fault = FLEET_THROTTLE, .nth = 1 }, { OFFER_OK, 1 }, { OFFER_OK, 1 }, "one throttle" },
    { { .fault = FLEET_THROTTLE, .nth = 1, .delay_us = 7 * RIG_SECOND },
      { OFFER_OK, 1 },
      { OFFER_OK, 1 },
      "waits as long as the reply says" },
    { { .fault = FLEET_AUTH }, { OFFER_AUTH, 0 }, { OFFER_AUTH, 0 }, "a login does not help" },
    { { .fault = FLEET_AUTH, .nth = 1 }, { OFFER_OK, 1 }, { OFFER_OK, 1 }, "a login helps" },
    { { .fault = FLEET_FORBIDDEN }, { OFFER_AUTH, 0 }, { OFFER_AUTH, 0 }, "a right is missing" },
    { { .fault = FLEET_INVALID }, { OFFER_INVALID, 0 }, { OFFER_INVALID, 0 }, "a wrong value" },
    { { .fault = FLEET_SERVER_ERROR },
      { OFFER_TRANSIENT, 0 },
      { OFFER_TRANSIENT, 0 },
      "errors go on" },
    { { .fault = FLEET_SERVER_ERROR, .nth = 1 },
      { OFFER_OK, 1 },
      { OFFER_TRANSIENT, 0 },
      "one error, which says not whether it was done" },
    { { .fault = FLEET_UNKNOWN_CODE },
      { OFFER_TRANSIENT, 0 },
      { OFFER_TRANSIENT, 0 },
      "words that no table has" },
    { { .fault = FLEET_UNREACHABLE },
      { OFFER_TRANSIENT, 0 },
      { OFFER_TRANSIENT, 0 },
      "nothing is sent" },
    { { .fault = FLEET_UNREACHABLE, .nth = 1 },
      { OFFER_OK, 1 },
      { OFFER_OK, 1 },
      "nothing was sent: it is repeated" },
    { { .fault = FLEET_LOST_REQUEST, .nth = 1 },
      { OFFER_OK, 1 },
      { OFFER_TRANSIENT, 0 },
      "not done, no reply" },
    { { .fault = FLEET_LOST_REPLY, .nth = 1 },
      { OFFER_OK, 1 },
      { OFFER_TRANSIENT, 1 },
      "done, no reply" },
    { { .fault = FLEET_LATE_SUCCESS, .nth = 1, .delay_us = 300 * RIG_SECOND },
      { OFFER_OK, 1 }, /* or late_wins */
      { OFFER_TRANSIENT, 0 },
      "done after five minutes" },
    { { .fault = FLEET_HALF_REPLY, .nth = 1 },
      { OFFER_OK, 1 },
      { OFFER_TRANSIENT, 1 },
      "the reply ends in its middle" },
    { { .fault = FLEET_GARBAGE, .nth = 1 },
      { OFFER_OK, 1 },
      { OFFER_TRANSIENT, 1 },
      "a proxy answers" },
    { { .fault = FLEET_SLOW, .nth = 1, .delay_us = 10 * RIG_SECOND },
      { OFFER_OK, 1 },
      { OFFER_OK, 1 },
      "slow" },
};

/* Whatever happened, the next create of the same intent ends with one machine. */
static void check_create(struct fleet_row row, struct outcome want, const char *why)
{
    row.op = FLEET_CREATE;
    struct kind_ground *g = kind_open(&row, 1);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "small");
    if (e->class != want.class || kind_running(g) != want.running)
        fail_msg("%s: %s (%s), %u run", why, offer_error_names[e->class], e->err.text,
                 kind_running(g));
    const char *hidden = kind_suite.hidden ? kind_suite.hidden : kind_suite.token;
    if (strstr(e->err.text, hidden)) fail_msg("%s: %s", why, e->err.text);
    if (kind_suite.keyless && want.class == OFFER_TRANSIENT && row.fault != FLEET_UNREACHABLE)
        assert_int_equal(g->fleet.calls[FLEET_CREATE], 1);
    g->fleet.config.script_count = 0;
    g->rig.now_us += 600 * RIG_SECOND;
    bool another = kind_suite.remembers_refusals && want.class == OFFER_CAPACITY;
    e = web_rig_create(&g->rig, another ? "i-2" : "i-1", "small");
    if (e->rc < 0 || kind_running(g) != 1)
        fail_msg("%s: then %s, %u run", why, e->err.text, kind_running(g));
    kind_close(g);
}

void kind_faults_of_a_create(void **state)
{
    (void)state;
    const struct outcome done = { OFFER_OK, 1 }, sold_out = { OFFER_CAPACITY, 0 };
    for (size_t i = 0; i < COUNT_OF(of_create); i++) {
        const struct faulty *f = &of_create[i];
        struct outcome want = kind_suite.keyless ? f->keyless : f->keyed;
        if (f->row.fault == FLEET_STOCK_OUT && kind_suite.takes_any_order) continue;
        if (f->row.fault == FLEET_LATE_SUCCESS && kind_suite.late_wins) want.running = 0;
        check_create(f->row, want, f->why);
    }
    struct fleet_row row = { .fault = FLEET_STOCK_OUT, .type = sold()->type[0].name };
    if (!kind_suite.takes_any_order)
        check_create(row, kind_suite.several_types ? done : sold_out, "of this type");
    row.type = "another";
    check_create(row, done, "of another type");
    row = (struct fleet_row){ .fault = FLEET_WRONG_CLOCK, .nth = 1 };
    if (kind_suite.signed_date) check_create(row, done, "the date is off once");
    if (!kind_suite.several) return;
    row = (struct fleet_row){ .fault = FLEET_STOCK_OUT, .nth = 1 };
    check_create(row, done, "the next one has it");
    row = (struct fleet_row){ .fault = FLEET_STOCK_OUT, .zone = sold()->zone[0] };
    check_create(row, done, "the next zone has it");
}

/* A list, a remove or a look at prices that meets a fault once is asked again. */
static void check_other_calls(enum fleet_fault fault)
{
    /* A keyless create lists before it orders, and may ask what is sold. */
    uint32_t nth = kind_suite.keyless ? 2 : 1;
    const struct fleet_row once[] = {
        { .op = FLEET_LIST, .nth = nth, .fault = fault, .delay_us = RIG_SECOND },
        { .op = FLEET_REMOVE, .nth = 1, .fault = fault, .delay_us = RIG_SECOND },
        { .op = FLEET_PRICES, .nth = nth, .fault = fault, .delay_us = RIG_SECOND },
    };
    const char *name = fleet_fault_names[fault];
    const char *offer = kind_suite.quiet_offer ? kind_suite.quiet_offer : "small";
    struct kind_ground *g = kind_open(once, COUNT_OF(once));
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", offer);
    if (e->rc < 0) fail_msg("create, %s: %s", name, e->err.text);
    e = list(g);
    if (e->rc < 0 || e->count != 1) fail_msg("list, %s: %s", name, e->err.text);
    e = web_rig_prices(&g->rig);
    if (e->rc < 0) fail_msg("prices, %s: %s", name, e->err.text);
    e = web_rig_remove(&g->rig, "", "i-1");
    g->rig.now_us += kind_suite.end_us;
    if (e->rc < 0 || kind_running(g) != 0) fail_msg("remove, %s: %s", name, e->err.text);
    kind_close(g);
}

void kind_faults_of_other_calls(void **state)
{
    (void)state;
    static const enum fleet_fault passing[] = {
        FLEET_THROTTLE,     FLEET_AUTH,       FLEET_SERVER_ERROR, FLEET_UNREACHABLE,
        FLEET_LOST_REQUEST, FLEET_LOST_REPLY, FLEET_HALF_REPLY,   FLEET_GARBAGE,
    };
    for (size_t i = 0; i < COUNT_OF(passing); i++)
        check_other_calls(passing[i]);
    if (kind_suite.signed_date) check_other_calls(FLEET_WRONG_CLOCK);
}

/* A call that never gets a reply ends within its time. */
void kind_outage(void **state)
{
    (void)state;
    const struct fleet_row outage = { .any_op = true, .fault = FLEET_LOST_REQUEST };
    struct kind_ground *g = kind_open(&outage, 1);
    int64_t begun_us = g->rig.now_us;
    assert_true(web_rig_list(&g->rig)->rc < 0);
    assert_true(g->rig.now_us - begun_us <= WEB_RUN_US + WEB_CALL_US);
    kind_close(g);

    g = kind_open(&outage, 1);
    begun_us = g->rig.now_us;
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->class, OFFER_TRANSIENT);
    if (kind_suite.keyless) /* nothing is ordered without a look-up */
        assert_int_equal(g->fleet.calls[FLEET_CREATE], 0);
    assert_true(g->rig.now_us - begun_us <= WEB_RUN_US + WEB_CALL_US);
    kind_close(g);
}

void kind_expired_credentials(void **state)
{
    (void)state;
    const struct fleet_row expired = { .any_op = true, .fault = FLEET_AUTH };
    const char *hidden = kind_suite.hidden ? kind_suite.hidden : kind_suite.token;
    struct kind_ground *g = kind_open(&expired, 1);
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_true(e->rc == -EACCES);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_null(strstr(e->err.text, hidden));
    g->fleet.config.script_count = 0; /* the file was rotated */
    g->rig.now_us += 20 * RIG_SECOND;
    kind_well(web_rig_list(&g->rig));
    kind_close(g);

    if (kind_suite.machine_login) return;
    static const char *const nothing[] = { NULL };
    struct kind_ground *h = kind_open_as(NULL, NULL, nothing);
    e = web_rig_list(&h->rig);
    assert_int_equal(e->class, OFFER_AUTH);
    assert_non_null(strstr(e->err.text, h->rig.settings[0].kind->credentials_env));
    assert_int_equal(h->rig.drive.asks, 0);
    kind_close(h);
}

/* ---- a controller over it ---- */

static void config_of_world(struct fleet_config *ret)
{
    *ret = *sold();
    ret->boot_us = 5 * RIG_SECOND;
    ret->lag_us = 3 * RIG_SECOND;
}

static void open_ground(struct fleet_ground *ret)
{
    struct fleet_config config;
    config_of_world(&config);
    struct kind_ground *g = kind_open_as(&config, NULL, NULL);
    if (kind_suite.before_kills) kind_suite.before_kills(g);
    *ret = (struct fleet_ground){ .rig = &g->rig, .fleet = &g->fleet, .arg = g };
}

static void close_ground(struct fleet_ground *g)
{
    kind_close(g->arg);
}

void kind_killed_at_every_step(void **state)
{
    (void)state;
    fleet_world_killed_at_every_step(open_ground, close_ground, true);
    fleet_world_killed_at_every_step(open_ground, close_ground, false);
}

/* How often the controller is killed at each step: CRASH_TIMES unless the environment says, as it does for ./check
 * --gates (100). Under the sanitizers each step is met once: what is judged there is memory. */
#ifdef MUSTER_DEBUG
#    define CRASH_TIMES 1
#else
#    define CRASH_TIMES 3
#endif

void kind_crash_points(void **state)
{
    (void)state;
    const char *times = getenv("MUSTER_CRASH_TIMES");
    fleet_world_crash_points(open_ground, close_ground,
                             times ? (uint32_t)strtoul(times, NULL, 10) : CRASH_TIMES);
}

/* ---- kinds that stop machines ---- */

static const struct listed *only_listed(struct kind_ground *g)
{
    const struct cloud_event *e = kind_well(web_rig_list(&g->rig));
    assert_int_equal(e->count, 1);
    return &e->item[0];
}

void kind_a_machine_is_stopped_and_started(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    char handle[NAME_BYTES];
    memcpy(handle, g->rig.event.made.handle, sizeof handle);
    g->rig.now_us += 300 * RIG_SECOND;
    assert_false(only_listed(g)->gone);
    for (int time = 0; time < 2; time++) {
        kind_well(web_rig_turn(&g->rig, handle, "i-1", false));
        kind_well(web_rig_turn(&g->rig, handle, "i-1", false)); /* it is so already */
        assert_int_equal(fake_fleet_up(&g->fleet, g->rig.now_us), 0);
        g->rig.now_us += 120 * RIG_SECOND;
        const struct listed *l = only_listed(g);
        assert_true(l->stopped && l->gone && l->stuck == OFFER_OK);
        assert_string_equal(l->handle, handle);
        assert_string_equal(l->intent, "i-1");
        kind_well(web_rig_turn(&g->rig, handle, "i-1", true));
        kind_well(web_rig_turn(&g->rig, handle, "i-1", true));
        assert_int_equal(fake_fleet_up(&g->fleet, g->rig.now_us), 1);
        g->rig.now_us += 120 * RIG_SECOND;
        l = only_listed(g);
        assert_false(l->stopped || l->gone || l->leaves_us);
    }
    kind_well(web_rig_turn(&g->rig, handle, "i-1", false));
    kind_well(web_rig_remove(&g->rig, handle, "i-1"));
    g->rig.now_us += 7200 * RIG_SECOND;
    assert_int_equal(kind_running(g), 0);
    assert_int_equal(g->fleet.count, 1);
    /* One that is gone is neither stopped nor started, and no call is made for it for ever. */
    assert_true(web_rig_turn(&g->rig, handle, "i-1", true)->rc < 0);
    assert_int_equal(g->rig.event.class, OFFER_INVALID);
    assert_true(web_rig_turn(&g->rig, handle, "i-1", false)->rc < 0);
    assert_int_equal(g->rig.event.class, OFFER_INVALID);
    kind_close(g);
}

void kind_faults_of_stops_and_starts(void **state)
{
    (void)state;
    static const struct {
        enum fleet_fault fault;
        enum offer_error class;
        bool done; /* all the same */
    } rows[] = {
        { FLEET_STOCK_OUT, OFFER_CAPACITY, false },
        { FLEET_QUOTA, OFFER_QUOTA, false },
        { FLEET_FORBIDDEN, OFFER_AUTH, false },
        { FLEET_SERVER_ERROR, OFFER_TRANSIENT, false },
        { FLEET_LOST_REPLY, OFFER_TRANSIENT, true },
        { FLEET_LOST_REQUEST, OFFER_TRANSIENT, false },
        { FLEET_UNREACHABLE, OFFER_TRANSIENT, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (int on = 0; on < 2; on++) {
            struct fleet_row script = { .op = on ? FLEET_START : FLEET_STOP,
                                        .fault = rows[i].fault };
            if (!on && rows[i].fault == FLEET_STOCK_OUT) continue;
            struct kind_ground *g = kind_open(&script, 1);
            kind_well(web_rig_create(&g->rig, "i-1", "small"));
            char handle[NAME_BYTES];
            memcpy(handle, g->rig.event.made.handle, sizeof handle);
            g->rig.now_us += 300 * RIG_SECOND;
            if (on) kind_well(web_rig_turn(&g->rig, handle, "i-1", false));
            g->rig.now_us += 120 * RIG_SECOND;
            const struct cloud_event *e = web_rig_turn(&g->rig, handle, "i-1", on);
            bool is_up = fake_fleet_up(&g->fleet, g->rig.now_us) == 1;
            if (e->rc == 0 || e->class != rows[i].class ||
                is_up != (on ? rows[i].done : !rows[i].done))
                fail_msg("%s of a %s: class %s, %s, %s", fleet_fault_names[rows[i].fault],
                         on ? "start" : "stop", offer_error_names[e->class],
                         is_up ? "up" : "stopped", e->err.text);
            kind_close(g);
        }
}

void kind_stopped_machines_survive_crashes(void **state)
{
    (void)state;
    const char *times = getenv("MUSTER_CRASH_TIMES");
    fleet_world_stop_points(open_ground, close_ground, kind_suite.halts_by_machine,
                            times ? (uint32_t)strtoul(times, NULL, 10) : CRASH_TIMES);
}

/* The provider makes two of one order: the controller ends the second. */
void keyless_duplicates_go(void **state)
{
    (void)state;
    struct fleet_config config;
    config_of_world(&config);
    config.script[config.script_count++] =
        (struct fleet_row){ .op = FLEET_CREATE, .nth = 1, .fault = FLEET_DUPLICATE };
    struct kind_ground *g = kind_open_as(&config, NULL, NULL);
    struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
    assert_true(fleet_world_up_and_down(&over, 1, 300));
    assert_true(g->fleet.count >= 3);
    kind_close(g);
}

static uint32_t faults_of_kind(enum fleet_fault ret[FLEET_FAULT_COUNT])
{
    static const enum fleet_fault faults[] = {
        FLEET_STOCK_OUT,    FLEET_THROTTLE,   FLEET_SERVER_ERROR, FLEET_UNREACHABLE,
        FLEET_LOST_REQUEST, FLEET_LOST_REPLY, FLEET_LATE_SUCCESS, FLEET_HALF_REPLY,
        FLEET_GARBAGE,      FLEET_DUPLICATE,  FLEET_SLOW_BOOT,    FLEET_UNKNOWN_CODE,
        FLEET_QUOTA,
    };
    uint32_t n = 0;
    for (size_t i = 0; i < COUNT_OF(faults); i++)
        if (faults[i] != FLEET_DUPLICATE || !kind_suite.unique) ret[n++] = faults[i];
    if (kind_suite.signed_date) ret[n++] = FLEET_WRONG_CLOCK;
    return n;
}

/* The claims of the seeds are the release build's; under the sanitizers some are looked at byte by byte. */
#ifdef MUSTER_DEBUG
#    define SEEDS 5
#else
#    define SEEDS 20
#endif

/* Fleets with random faults on a third of all calls: none is left over, none is doubled. */
void kind_random_faults(void **state)
{
    (void)state;
    enum fleet_fault faults[FLEET_FAULT_COUNT];
    uint32_t count = faults_of_kind(faults);
    uint64_t op_count = kind_suite.operations ? 4 : 3; /* prices count looks at operations */
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fleet_config config;
        struct rng rng;
        config_of_world(&config);
        rng_seed(&rng, seed);
        for (int i = 0; i < 16; i++)
            config.script[config.script_count++] =
                (struct fleet_row){ .op = FLEET_CREATE + rng_below(&rng, op_count),
                                    .nth = 1 + (uint32_t)rng_below(&rng, 12),
                                    .fault = faults[rng_below(&rng, count)],
                                    .delay_us = (int64_t)rng_below(&rng, 20) * RIG_SECOND };
        struct kind_ground *g = kind_open_as(&config, NULL, NULL);
        struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
        if (!fleet_world_up_and_down(&over, seed, 900))
            fail_msg("seed %llu", (unsigned long long)seed);
        kind_close(g);
    }
}
