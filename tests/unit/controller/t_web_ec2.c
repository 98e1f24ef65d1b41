/* t_web_ec2.c - drives the EC2 kind over a fake of its API, in virtual time: one instance an intent whatever is lost
 * and in whatever zone, credentials of each source and their end, a clock that is wrong, errors as classes of offers,
 * ends as EC2 tells them, prices, the rights that docs/clouds/ec2.md asks for, and a controller that is killed at
 * every step. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_ec2.h"
#include "tests/fakes/cloud/fleet_world.h"
#include "tests/unit/read_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_ID "AKIDEXAMPLEOFTESTS00"
#define SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define A "eu-central-1a"
#define B "eu-central-1b"
#define C "eu-central-1c"
#define YAML_HEAD                        \
    "clouds:\n"                          \
    "  - name: aws\n"                    \
    "    kind: ec2\n"                    \
    "    region: eu-central-1\n"         \
    "    image: ami-0123456789abcdef0\n" \
    "    calls_per_s: 100\n"
#define YAML_FULL                                              \
    YAML_HEAD                                                  \
    "    account: muster-machine\n"                            \
    "    networks: [" A "=subnet-" A ", " B "=subnet-" B "]\n" \
    "    firewalls: [sg-1, sg-2]\n"                            \
    "    ssh_keys: [me]\n"                                     \
    "    disk: 100GiB\n"                                       \
    "    public_address: false\n"
#define OFFERS                                                                               \
    "    offers:\n"                                                                          \
    "      - {name: small, type: t3.large, zones: [" A ", " B "]}\n"                         \
    "      - {name: one, type: t3.large, zones: [" B "]}\n"                                  \
    "      - {name: any, type: t3.large}\n"                                                  \
    "      - {name: cheap, type: g6.xlarge, zones: [" A ", " B "], spot: true, "             \
    "spot_price_max: 0.9}\n"                                                                 \
    "      - {name: reserved, type: t3.large, zones: [" A "], capacity_reservation: cr-1}\n" \
    "      - {name: given, type: g6.xlarge, price_per_hour: 0.5}\n"
static const char yaml[] = YAML_HEAD OFFERS;
static const char *const environ_of_keys[] = { "AWS_ACCESS_KEY_ID=" KEY_ID,
                                               "AWS_SECRET_ACCESS_KEY=" SECRET, NULL };

struct ground {
    struct fake_fleet fleet;
    struct fake_ec2 ec2;
    struct web_rig rig;
};

static const struct fleet_config plain = {
    .boot_us = 30 * RIG_SECOND,
    .keys_unique = true,
    .type = { { .name = "t3.large", .price_udollars_h = 96000, .spot_udollars_h = 30000 },
              { .name = "g6.xlarge", .price_udollars_h = 1006000, .spot_udollars_h = 400000 } },
    .type_count = 2,
    .zone = { A, B, C },
    .zone_count = 3,
};

static struct ground *ground_of(const struct fleet_config *config, const char *text,
                                const char *const *environ)
{
    struct ground *g = calloc(1, sizeof *g);
    must(g);
    fake_fleet_init(&g->fleet, config);
    g->ec2.fleet = &g->fleet;
    g->ec2.aws = (struct fake_aws){ .key_id = KEY_ID,
                                    .secret = SECRET,
                                    .region = "eu-central-1",
                                    .session_us = 3600 * RIG_SECOND,
                                    .date_us = RIG_DATE_US };
    web_rig_open(&g->rig, text, &fake_ec2, &g->ec2, environ);
    return g;
}

static struct ground *ground(const struct fleet_row *script, uint32_t count)
{
    struct fleet_config config = plain;
    config.script_count = count;
    if (count > 0) memcpy(config.script, script, count * sizeof *script);
    return ground_of(&config, yaml, environ_of_keys);
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

static const struct cloud_event *create(struct ground *g, const char *intent, const char *offer)
{
    return web_rig_create(&g->rig, intent, offer);
}

static void create_well(struct ground *g, const char *intent, const char *offer)
{
    const struct cloud_event *e = create(g, intent, offer);
    if (e->rc < 0) fail_msg("%s: %s", offer, e->err.text);
}

/* ---- what is made ---- */

static void one_intent_is_one_instance(void **state)
{
    (void)state;
    static const char *const offers[] = { "small", "one", "any", "cheap", "reserved" };
    for (size_t i = 0; i < COUNT_OF(offers); i++) {
        struct ground *g = ground_of(&plain, YAML_FULL OFFERS, environ_of_keys);
        char handle[NAME_BYTES];
        create_well(g, "i-1", offers[i]);
        snprintf(handle, sizeof handle, "%s", g->rig.event.made.handle);
        assert_string_equal(g->rig.event.made.intent, "i-1");
        create_well(g, "i-1", offers[i]);
        assert_string_equal(g->rig.event.made.handle, handle);
        assert_int_equal(g->fleet.count, 1);

        const struct fleet_machine *m = &g->fleet.machine[0];
        assert_string_equal(m->name, "i-1");
        assert_string_equal(m->zone, i == 1 ? B : A);
        assert_string_equal(m->image, "ami-0123456789abcdef0");
        assert_int_equal(m->spot, i == 3);
        assert_string_equal(fleet_tag_of(m, WEB_TAG_FLEET), "muster");
        assert_string_equal(fleet_tag_of(m, WEB_TAG_SERVICE), "org/chat model");
        assert_int_equal(strncmp(m->user_data, "#!", 2), 0);

        const struct cloud_event *e = web_rig_list(&g->rig);
        assert_int_equal(e->count, 1);
        assert_string_equal(e->item[0].service, "org/chat model");
        assert_string_equal(e->item[0].pool, "small");
        assert_string_equal(e->item[0].offer, offers[i]);
        assert_string_equal(e->item[0].intent, "i-1");
        assert_string_equal(e->item[0].handle, handle);
        assert_non_null(strstr(e->item[0].node, ".internal"));
        assert_false(e->item[0].unreadable || e->item[0].gone || e->item[0].leaves_us);
        assert_true(llabs(e->item[0].created_us - m->made_us) < RIG_SECOND);

        assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
        assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
        assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
        assert_int_equal(web_rig_remove(&g->rig, "i-0aaaaaaaaaaaaaaaa", "i-1")->rc, 0);
        assert_int_equal(running(g), 0);
        ground_free(g);
    }
}

static void a_lost_create_is_removed_by_its_intent(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    create_well(g, "i-1", "any");
    create_well(g, "i-2", "any");
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    assert_int_equal(running(g), 1);
    assert_int_equal(fake_fleet_of_tag(&g->fleet, WEB_TAG_INTENT, "i-2", g->rig.now_us), 1);
    ground_free(g);
}

static void many_instances_are_many_pages(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    for (int i = 0; i < 450; i++) {
        char intent[16];
        snprintf(intent, sizeof intent, "i-%d", i);
        create_well(g, intent, "any");
    }
    uint32_t before = g->fleet.calls[FLEET_LIST];
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 450);
    assert_int_equal(g->fleet.calls[FLEET_LIST] - before, 3);
    for (uint32_t i = 1; i < 450; i++)
        assert_string_not_equal(e->item[i].handle, e->item[i - 1].handle);
    ground_free(g);
}

/* ---- zones and tokens ---- */

/* EC2 keeps a token for each zone. The reply of the second zone is lost; then the first has stock again. */
static void a_lost_reply_of_the_second_zone_is_asked_there_again(void **state)
{
    (void)state;
    const struct fleet_row rows[] = {
        { .op = FLEET_CREATE, .zone = A, .nth = 1, .fault = FLEET_STOCK_OUT },
        { .op = FLEET_CREATE, .zone = B, .nth = 1, .fault = FLEET_LOST_REPLY },
    };
    struct fleet_config config = plain;
    config.lag_us = 30 * RIG_SECOND;
    config.script_count = COUNT_OF(rows);
    memcpy(config.script, rows, sizeof rows);
    struct ground *g = ground_of(&config, yaml, environ_of_keys);
    create_well(g, "i-1", "small");
    assert_int_equal(g->fleet.count, 1);
    assert_string_equal(g->fleet.machine[0].zone, B);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 3);

    /* A later call, of another process perhaps, finds it by its tag once it is listed. */
    g->rig.now_us += 31 * RIG_SECOND;
    create_well(g, "i-1", "small");
    assert_int_equal(g->fleet.count, 1);
    ground_free(g);
}

static void other_settings_find_the_first_instance(void **state)
{
    (void)state;
    struct fleet_config config = plain;
    config.lag_us = 10 * RIG_SECOND;
    struct ground *g = ground_of(&config, yaml, environ_of_keys);
    struct err err = { 0 };
    create_well(g, "i-1", "any");
    web_drive_close(&g->rig.drive);
    struct web_rig other = { 0 };
    web_rig_settings(&other, YAML_HEAD "    public_address: false\n" OFFERS);
    must(web_drive_open(&g->rig.drive, &other.settings[0], &g->rig.host, 1, fake_ec2.respond,
                        &g->ec2, &err) == 0);
    g->rig.drive.date_us = RIG_DATE_US;
    const struct cloud_event *e = create(g, "i-1", "any");
    assert_int_equal(e->class, OFFER_TRANSIENT); /* not listed yet: it may be there */
    g->rig.now_us += 20 * RIG_SECOND;
    create_well(g, "i-1", "any");
    assert_int_equal(g->fleet.count, 1);
    web_drive_close(&g->rig.drive);
    must(web_drive_open(&g->rig.drive, &g->rig.settings[0], &g->rig.host, 1, fake_ec2.respond,
                        &g->ec2, &err) == 0);
    arena_fini(&other.arena);
    config_free(other.config);
    ground_free(g);
}

/* ---- ends ---- */

static const struct listed *only_item(struct ground *g)
{
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->rc, 0);
    return e->count == 1 ? &e->item[0] : NULL;
}

static const struct listed *the_item(struct ground *g)
{
    const struct listed *l = only_item(g);
    if (!l) fail_msg("nothing is listed");
    must(l);
    return l;
}

static void ends_are_told_as_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *reason;
        bool by_provider, gone;
        enum offer_error stuck;
        const char *why;
    } rows[] = {
        { NULL, true, true, OFFER_OK, "a spot instance is taken away" },
        { "Client.InstanceInitiatedShutdown", false, true, OFFER_OK, "its agent shuts it down" },
        { "Server.InsufficientInstanceCapacity", false, false, OFFER_CAPACITY, "it never ran" },
        { "Client.VolumeLimitExceeded", false, false, OFFER_QUOTA, "its disk is too much" },
        { "Client.InternalError", false, false, OFFER_INVALID, "a key of its disk is not ours" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct ground *g = ground(NULL, 0);
        char handle[NAME_BYTES];
        create_well(g, "i-1", "cheap");
        struct fleet_machine *m = &g->fleet.machine[0];
        g->ec2.extra[0].reason = rows[i].reason;
        g->rig.now_us += 60 * RIG_SECOND;
        if (rows[i].by_provider)
            fake_fleet_preempt(&g->fleet, m, RIG_SECOND, g->rig.now_us);
        else
            fake_fleet_remove(&g->fleet, m->id, g->rig.now_us);
        g->rig.now_us += 2 * RIG_SECOND;
        const struct listed *l = the_item(g);
        assert_true(l->leaves_us > 0 && !l->gone);
        g->rig.now_us += 60 * RIG_SECOND;
        l = the_item(g);
        if (l->gone != rows[i].gone || l->stuck != rows[i].stuck || !strstr(l->why, "terminated"))
            fail_msg("%s: gone %d, stuck %d, %s", rows[i].why, l->gone, l->stuck, l->why);
        snprintf(handle, sizeof handle, "%s", l->handle);
        assert_int_equal(web_rig_remove(&g->rig, handle, "i-1")->rc, 0);
        if (only_item(g)) fail_msg("%s: it is listed after it was cleared away", rows[i].why);
        ground_free(g);
    }
}

static void an_end_by_a_call_is_absence(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    create_well(g, "i-1", "any");
    fake_fleet_remove(&g->fleet, g->fleet.machine[0].id, g->rig.now_us);
    assert_true(the_item(g)->leaves_us > 0);
    g->rig.now_us += 60 * RIG_SECOND;
    assert_null(only_item(g));
    ground_free(g);
}

/* ---- what a provider may do ---- */

struct faulty {
    struct fleet_row row;
    enum offer_error class; /* of the create; OFFER_OK: it succeeds */
    uint32_t running;
    const char *why;
};

static void check_fault(const struct faulty *f, const char *offer)
{
    struct fleet_row row = f->row;
    row.op = FLEET_CREATE;
    struct ground *g = ground(&row, 1);
    const struct cloud_event *e = create(g, "i-1", offer);
    if (e->class != f->class || running(g) != f->running)
        fail_msg("%s: %s (%s), %u run", f->why, offer_error_names[e->class], e->err.text,
                 running(g));
    if (strstr(e->err.text, SECRET)) fail_msg("%s: %s", f->why, e->err.text);
    g->fleet.config.script_count = 0;
    g->rig.now_us += 600 * RIG_SECOND;
    e = create(g, "i-1", offer);
    if (e->rc < 0 || running(g) != 1)
        fail_msg("%s: then %s, %u run", f->why, e->err.text, running(g));
    ground_free(g);
}

/* Every fault of a create, and what it means. Whatever happened, the next create of the same intent ends with one
 * instance. */
static void faults_of_a_create(void **state)
{
    (void)state;
    static const struct faulty rows[] = {
        { { .fault = FLEET_STOCK_OUT }, OFFER_CAPACITY, 0, "sold out everywhere" },
        { { .fault = FLEET_STOCK_OUT, .zone = A }, OFFER_OK, 1, "the next zone has it" },
        { { .fault = FLEET_STOCK_OUT, .type = "t3.large" }, OFFER_CAPACITY, 0, "of this type" },
        { { .fault = FLEET_STOCK_OUT, .type = "g6.xlarge" }, OFFER_OK, 1, "of another type" },
        { { .fault = FLEET_QUOTA }, OFFER_QUOTA, 0, "no second zone is asked" },
        { { .fault = FLEET_THROTTLE }, OFFER_THROTTLE, 0, "after four tries" },
        { { .fault = FLEET_THROTTLE, .nth = 1 }, OFFER_OK, 1, "one throttle" },
        { { .fault = FLEET_AUTH }, OFFER_AUTH, 0, "one new login does not help" },
        { { .fault = FLEET_AUTH, .nth = 1 }, OFFER_OK, 1, "one new login helps" },
        { { .fault = FLEET_WRONG_CLOCK, .nth = 1 }, OFFER_OK, 1, "the date is off once" },
        { { .fault = FLEET_FORBIDDEN }, OFFER_AUTH, 0, "a right is missing" },
        { { .fault = FLEET_INVALID }, OFFER_INVALID, 0, "a value that EC2 does not take" },
        { { .fault = FLEET_SERVER_ERROR }, OFFER_TRANSIENT, 0, "errors go on" },
        { { .fault = FLEET_SERVER_ERROR, .nth = 1 }, OFFER_OK, 1, "one error" },
        { { .fault = FLEET_UNKNOWN_CODE }, OFFER_TRANSIENT, 0, "words that no table has" },
        { { .fault = FLEET_UNREACHABLE }, OFFER_TRANSIENT, 0, "nothing was sent" },
        { { .fault = FLEET_LOST_REQUEST, .nth = 1 }, OFFER_OK, 1, "not done, no reply" },
        { { .fault = FLEET_LOST_REPLY, .nth = 1 }, OFFER_OK, 1, "done, found by its token" },
        { { .fault = FLEET_LATE_SUCCESS, .nth = 1, .delay_us = 300 * RIG_SECOND },
          OFFER_OK,
          0,
          "the token is taken, and the instance comes later" },
        { { .fault = FLEET_HALF_REPLY, .nth = 1 }, OFFER_OK, 1, "the reply ends in its middle" },
        { { .fault = FLEET_GARBAGE, .nth = 1 }, OFFER_OK, 1, "a proxy answers" },
        { { .fault = FLEET_SLOW, .nth = 1, .delay_us = 10 * RIG_SECOND }, OFFER_OK, 1, "slow" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check_fault(&rows[i], "small");
}

static void faults_of_other_calls(void **state)
{
    (void)state;
    static const enum fleet_fault passing[] = {
        FLEET_THROTTLE,    FLEET_AUTH,         FLEET_SERVER_ERROR,
        FLEET_UNREACHABLE, FLEET_LOST_REQUEST, FLEET_LOST_REPLY,
        FLEET_HALF_REPLY,  FLEET_GARBAGE,      FLEET_WRONG_CLOCK,
    };
    for (size_t i = 0; i < COUNT_OF(passing); i++) {
        const struct fleet_row once[] = {
            { .op = FLEET_LIST, .nth = 1, .fault = passing[i] },
            { .op = FLEET_REMOVE, .nth = 1, .fault = passing[i] },
            { .op = FLEET_PRICES, .nth = 1, .fault = passing[i] },
        };
        struct ground *g = ground(once, COUNT_OF(once));
        create_well(g, "i-1", "any");
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

/* A look before a create that is lost leaves nothing open: the class is that of what came after. */
static void a_lost_look_makes_nothing(void **state)
{
    (void)state;
    const struct fleet_row rows[] = {
        { .op = FLEET_LIST, .nth = 1, .fault = FLEET_LOST_REPLY },
        { .op = FLEET_CREATE, .fault = FLEET_QUOTA },
    };
    struct ground *g = ground(rows, COUNT_OF(rows));
    assert_int_equal(create(g, "i-1", "small")->class, OFFER_QUOTA);
    ground_free(g);
}

/* ---- credentials and the clock ---- */

static void check_source(const char *why, const char *text, const char *const *environ,
                         const char *secret, const char *role, const char *problem)
{
    struct ground *g = ground_of(&plain, text, environ);
    g->rig.secret = secret;
    g->ec2.aws.role = role;
    g->ec2.aws.identity = "a.web.identity";
    const struct cloud_event *e = web_rig_list(&g->rig);
    bool as_wanted =
        problem ? e->rc < 0 && e->class == OFFER_AUTH && strstr(e->err.text, problem) : e->rc == 0;
    if (!as_wanted) fail_msg("%s: %d %s", why, e->rc, e->err.text);
    if (strstr(e->err.text, SECRET)) fail_msg("%s: %s", why, e->err.text);
    ground_free(g);
}

#define FILE_TEXT                                                                        \
    "# of two accounts\n[default]\naws_access_key_id = other\naws_secret_access_key=x\n" \
    "\n[fleet]\r\naws_access_key_id=" KEY_ID "\r\naws_secret_access_key = " SECRET "\r\n"

static void credentials_come_from_each_source(void **state)
{
    (void)state;
    static const char *const none[] = { NULL };
    static const char *const home[] = { "HOME=/root", NULL };
    static const char *const profile[] = { "HOME=/root", "AWS_PROFILE=fleet", NULL };
    static const char *const file_in_a_variable[] = { "KEYS=" FILE_TEXT, NULL };
    static const char *const no_metadata[] = { "AWS_EC2_METADATA_DISABLED=true", NULL };
    static const char *const identity[] = { "AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/token",
                                            "AWS_ROLE_ARN=arn:aws:iam::1:role/controller", NULL };
    static const char *const broken[] = { "AWS_ACCESS_KEY_ID=" KEY_ID, NULL };
#define OF_FILE "    credentials_file: /etc/muster/aws\n    profile: "
    check_source("keys of the environment", yaml, environ_of_keys, NULL, NULL, NULL);
    check_source("a key without its secret", yaml, broken, NULL, "r", "no secret");
    check_source("a file", YAML_HEAD OF_FILE "fleet\n" OFFERS, none, FILE_TEXT, "r", NULL);
    check_source("a mistyped profile", YAML_HEAD OF_FILE "flet\n" OFFERS, environ_of_keys,
                 FILE_TEXT, "r", "no profile 'flet'");
    check_source("a profile, and no file", YAML_HEAD "    profile: fleet\n" OFFERS, home, NULL, "r",
                 "no credentials file");
    check_source("a file's text in a variable",
                 YAML_HEAD "    credentials_env: KEYS\n    profile: fleet\n" OFFERS,
                 file_in_a_variable, NULL, NULL, NULL);
    check_source("the usual file", yaml, profile, FILE_TEXT, NULL, NULL);
    check_source("a web identity", yaml, identity, "a.web.identity\n", NULL, NULL);
    check_source("another web identity", yaml, identity, "another", NULL, "InvalidIdentityToken");
    check_source("the machine's role", yaml, none, NULL, "controller", NULL);
    check_source("a machine without a role", yaml, home, NULL, NULL, "no credentials");
    check_source("no metadata", yaml, no_metadata, NULL, "r", "AWS_EC2_METADATA_DISABLED");
}

/* Ten hours of listings with sessions of an hour: each is renewed before its end, and no request is refused. */
static void sessions_are_renewed_before_their_end(void **state)
{
    (void)state;
    static const char *const none[] = { NULL };
    struct ground *g = ground_of(&plain, yaml, none);
    g->ec2.aws.role = "controller";
    uint64_t lists = 0;
    for (; g->rig.now_us < RIG_START + 36000 * RIG_SECOND; g->rig.now_us += 50 * RIG_SECOND) {
        const struct cloud_event *e = web_rig_list(&g->rig);
        if (e->rc < 0) fail_msg("%s", e->err.text);
        lists++;
    }
    assert_true(g->ec2.aws.session_count >= 10 && g->ec2.aws.session_count <= 12);
    assert_int_equal(g->fleet.calls[FLEET_LIST], lists);
    ground_free(g);
}

/* Keys that end before they say so, as a role that is taken back and given again. */
static void a_session_that_ends_early_is_replaced(void **state)
{
    (void)state;
    static const char *const none[] = { NULL };
    struct ground *g = ground_of(&plain, yaml, none);
    g->ec2.aws.role = "controller";
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    g->ec2.aws.session_end_us[0] = g->rig.now_us;
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    assert_int_equal(g->ec2.aws.session_count, 2);
    ground_free(g);
}

static void a_wrong_clock_is_made_up_for(void **state)
{
    (void)state;
    static const int64_t off_s[] = { -7200, -400, 20, 400, 86400 };
    static const char *const none[] = { NULL };
    for (size_t i = 0; i < 2 * COUNT_OF(off_s); i++) {
        bool role = i >= COUNT_OF(off_s);
        int64_t off_us = off_s[i % COUNT_OF(off_s)] * RIG_SECOND;
        struct ground *g = ground_of(&plain, yaml, role ? none : environ_of_keys);
        g->ec2.aws.role = "controller";
        g->ec2.aws.date_us = RIG_DATE_US + off_us;
        create_well(g, "i-1", "small");
        const struct cloud_event *e = web_rig_list(&g->rig);
        assert_int_equal(e->count, 1);
        assert_true(llabs(e->item[0].created_us - g->fleet.machine[0].made_us) < 60 * RIG_SECOND);
        uint64_t asks = g->rig.drive.asks;
        assert_int_equal(web_rig_list(&g->rig)->rc, 0);
        assert_int_equal(g->rig.drive.asks - asks, 1); /* the clock is known by now */
        ground_free(g);
    }
}

/* ---- prices ---- */

static struct cloud_price price_of(const struct cloud_event *e, const char *offer)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (strcmp(e->price[i].offer, offer) == 0) return e->price[i];
    fail_msg("no price of %s", offer);
    return (struct cloud_price){ 0 };
}

static bool costs(const struct cloud_event *e, const char *offer, double dollars)
{
    struct cloud_price p = price_of(e, offer);
    return p.known && p.price_h > dollars - 1e-9 && p.price_h < dollars + 1e-9;
}

static void prices_are_the_dearest_of_the_zones(void **state)
{
    (void)state;
    struct ground *g = ground(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 6);
    assert_true(costs(e, "small", 0.096) && costs(e, "any", 0.096) && costs(e, "reserved", 0.096));
    assert_true(costs(e, "cheap", 0.44)); /* the second zone is a tenth dearer */
    assert_true(costs(e, "given", 0.5));
    assert_int_equal(g->fleet.calls[FLEET_PRICES], 4); /* three pages, one type */
    g->ec2.no_price_list = true;
    e = web_rig_prices(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_false(price_of(e, "small").known);
    assert_true(costs(e, "cheap", 0.44));
    ground_free(g);

    struct ground *h = ground_of(&plain, YAML_HEAD "    endpoint: https://ec2.example.org\n" OFFERS,
                                 environ_of_keys);
    e = web_rig_prices(&h->rig);
    assert_int_equal(e->rc, 0);
    assert_false(price_of(e, "small").known); /* another cloud's prices are not Amazon's */
    ground_free(h);
}

/* ---- settings ---- */

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
        { "clouds:\n  - name: aws\n    kind: ec2\n    image: ami-1\n" OFFERS, "region: kind ec2" },
        { "clouds:\n  - name: aws\n    kind: ec2\n    region: eu-1\n" OFFERS, "image: kind ec2" },
        { "clouds:\n  - name: aws\n    kind: ec2\n    region: a.b/\n    image: ami-1\n" OFFERS,
          "region" },
        { YAML_HEAD "    project: x\n" OFFERS, "project: kind ec2 reads no such setting" },
        { YAML_HEAD "    networks: [vpc-1]\n" OFFERS, "SUBNET or ZONE=SUBNET" },
        { YAML_HEAD "    networks: [subnet-1]\n" OFFERS, "networks has no " A "=SUBNET" },
        { YAML_HEAD "    firewalls: [web]\n" OFFERS, "security group" },
        { YAML_HEAD "    ssh_keys: [a, b]\n" OFFERS, "one key pair" },
        { "clouds:\n  - name: aws\n    kind: ec2\n    region: eu-1\n    image: resolve:ssm:/x\n"
          "    disk: 10GiB\n" OFFERS,
          "disk" },
        { YAML_HEAD
          "    offers:\n      - {name: a, type: b, spot: true, capacity_reservation: c}\n",
          "it is spot" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, gpus: 1}\n", "gpus: kind ec2" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *problem = web_rig_problem(rows[i].text);
        if (!strstr(problem, rows[i].problem)) fail_msg("%s: %s", rows[i].problem, problem);
    }
}

/* ---- rights ---- */

/* True if the text has the word, with quotes around it as a policy has it. */
static bool has_right(struct str policy, const char *right)
{
    char quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\"", right);
    return str_find(policy, str_from(quoted)) != SIZE_MAX;
}

/* Fails for an action that the policy allows and the driver never asks for. */
static void check_rights(struct str doc, const char *service)
{
    char name[80];
    size_t at;
    while ((at = str_find(doc, str_from(service))) != SIZE_MAX) {
        doc = str_of(doc.data + at + 1, doc.len - at - 1);
        struct str rest = doc, word = str_cut(&rest, '"');
        snprintf(name, sizeof name, STR_FMT, STR_ARG(word));
        bool known = strcmp(name, "ec2:CreateAction") == 0; /* a condition */
        for (uint32_t i = 0; ec2_action_names[i]; i++)
            known = known || strcmp(name, ec2_action_names[i]) == 0;
        if (!known) fail_msg("the policy allows %s, which is never asked for", name);
    }
}

/* The policy of docs/clouds/ec2.md has the actions that the driver asks for, and no other. */
static void the_policy_has_what_is_asked_for(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf doc = { 0 };
    read_file("docs/clouds/ec2.md", &doc);
    struct ground *g = ground_of(&plain, YAML_FULL OFFERS, environ_of_keys);
    create_well(g, "i-1", "small");
    create_well(g, "i-2", "cheap");
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    assert_int_equal(web_rig_prices(&g->rig)->rc, 0);
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    uint32_t asked = 0;
    for (uint32_t i = 0; ec2_action_names[i]; i++) {
        if (!(g->ec2.actions & 1u << i)) continue;
        asked++;
        if (!has_right(buf_view(&doc), ec2_action_names[i]))
            fail_msg("%s is asked for, and the policy does not allow it", ec2_action_names[i]);
    }
    assert_int_equal(asked, 7);
    check_rights(buf_view(&doc), "\"ec2:");
    check_rights(buf_view(&doc), "\"pricing:");
    ground_free(g);
}

/* ---- a controller over it ---- */

static void open_ground(struct fleet_ground *ret)
{
    struct fleet_config config = plain;
    config.boot_us = 5 * RIG_SECOND;
    config.lag_us = 3 * RIG_SECOND;
    struct ground *g = ground_of(&config, yaml, environ_of_keys);
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
        FLEET_STOCK_OUT,    FLEET_THROTTLE,    FLEET_SERVER_ERROR, FLEET_UNREACHABLE,
        FLEET_LOST_REQUEST, FLEET_LOST_REPLY,  FLEET_LATE_SUCCESS, FLEET_HALF_REPLY,
        FLEET_GARBAGE,      FLEET_DUPLICATE,   FLEET_SLOW_BOOT,    FLEET_UNKNOWN_CODE,
        FLEET_QUOTA,        FLEET_WRONG_CLOCK,
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
        struct ground *g = ground_of(&config, yaml, environ_of_keys);
        struct fleet_ground over = { .rig = &g->rig, .fleet = &g->fleet };
        if (!fleet_world_up_and_down(&over, seed, 900))
            fail_msg("seed %llu", (unsigned long long)seed);
        ground_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_intent_is_one_instance),
        cmocka_unit_test(a_lost_create_is_removed_by_its_intent),
        cmocka_unit_test(many_instances_are_many_pages),
        cmocka_unit_test(a_lost_reply_of_the_second_zone_is_asked_there_again),
        cmocka_unit_test(other_settings_find_the_first_instance),
        cmocka_unit_test(ends_are_told_as_they_are),
        cmocka_unit_test(an_end_by_a_call_is_absence),
        cmocka_unit_test(faults_of_a_create),
        cmocka_unit_test(faults_of_other_calls),
        cmocka_unit_test(a_lost_look_makes_nothing),
        cmocka_unit_test(credentials_come_from_each_source),
        cmocka_unit_test(sessions_are_renewed_before_their_end),
        cmocka_unit_test(a_session_that_ends_early_is_replaced),
        cmocka_unit_test(a_wrong_clock_is_made_up_for),
        cmocka_unit_test(prices_are_the_dearest_of_the_zones),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(the_policy_has_what_is_asked_for),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(random_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
