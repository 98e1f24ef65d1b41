/* t_web_ec2.c - drives the EC2 kind over a fake of its API, in virtual time: one instance an intent whatever is lost
 * and in whatever zone, credentials of each source and their end, a clock that is wrong, errors as classes of offers,
 * ends as EC2 tells them, prices, the rights that docs/clouds/ec2.md asks for. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_ec2.h"
#include "tests/fakes/cloud/kind_suite.h"
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
#define OFFERS                                                                                   \
    "    offers:\n"                                                                              \
    "      - {name: small, type: t3.large, zones: [" A ", " B "]}\n"                             \
    "      - {name: one, type: t3.large, zones: [" B "]}\n"                                      \
    "      - {name: any, type: t3.large}\n"                                                      \
    "      - {name: cheap, type: g6.xlarge, zones: [" A ", " B "], spot: true, "                 \
    "spot_price_max: 0.9}\n"                                                                     \
    "      - {name: reserved, type: t3.large, zones: [" A "], capacity_reservation: cr-1}\n"     \
    "      - {name: given, type: g6.xlarge, price_per_hour: 0.5}\n"                              \
    "      - {name: pick, type: g6.xlarge, types: [t3.large], zones: [" A ", " B "]}\n"          \
    "      - {name: pick-spot, type: g6.xlarge, types: [t3.large, g6.xlarge], zones: [" A ", " B \
    "], spot: true, spot_price_max: 0.9}\n"
static const char yaml[] = YAML_HEAD OFFERS;
static const char *const environ_of_keys[] = { "AWS_ACCESS_KEY_ID=" KEY_ID,
                                               "AWS_SECRET_ACCESS_KEY=" SECRET, NULL };

static const struct fleet_config plain = {
    .bill_least_s = 60,
    .boot_us = 30 * RIG_SECOND,
    .keys_unique = true,
    .type = { { .name = "t3.large", .price_udollars_h = 96000, .spot_udollars_h = 30000 },
              { .name = "g6.xlarge", .price_udollars_h = 1006000, .spot_udollars_h = 400000 } },
    .type_count = 2,
    .zone = { A, B, C },
    .zone_count = 3,
};

static void *open_ec2(struct fake_fleet *fleet)
{
    struct fake_ec2 *f = calloc(1, sizeof *f);
    must(f);
    f->fleet = fleet;
    f->aws = (struct fake_aws){ .key_id = KEY_ID,
                                .secret = SECRET,
                                .region = "eu-central-1",
                                .session_us = 3600 * RIG_SECOND,
                                .date_us = RIG_DATE_US };
    return f;
}

static struct fake_ec2 *ec2(struct kind_ground *g)
{
    return g->ctx;
}

/* ---- what is made ---- */

static void one_intent_is_one_instance(void **state)
{
    (void)state;
    static const char *const offers[] = { "small", "one", "any", "cheap", "reserved" };
    for (size_t i = 0; i < COUNT_OF(offers); i++) {
        struct kind_ground *g = kind_record(kind_open_as(NULL, YAML_FULL OFFERS, NULL));
        const struct fleet_machine *m = kind_make_once(g, offers[i]);
        assert_string_equal(m->zone, i == 1 ? B : A);
        assert_string_equal(m->image, "ami-0123456789abcdef0");
        assert_int_equal(m->spot, i == 3);
        assert_string_equal(fleet_tag_of(m, WEB_TAG_SERVICE), "org/chat model");
        assert_int_equal(strncmp(m->user_data, "#!", 2), 0);
        assert_non_null(strstr(g->rig.event.item[0].node, ".internal"));
        kind_end_once(g);
        assert_int_equal(web_rig_remove(&g->rig, "i-0aaaaaaaaaaaaaaaa", "i-1")->rc, 0);
        kind_close(g);
    }
}

static void many_instances_are_many_pages(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_check_pages(g, 450, "any", "any");
    uint32_t before = g->fleet.calls[FLEET_LIST];
    assert_int_equal(web_rig_list(&g->rig)->count, 450);
    assert_int_equal(g->fleet.calls[FLEET_LIST] - before, 3);
    kind_close(g);
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
    struct kind_ground *g = kind_open_as(&config, NULL, NULL);
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    assert_int_equal(g->fleet.count, 1);
    assert_string_equal(g->fleet.machine[0].zone, B);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 3);

    /* A later call, of another process perhaps, finds it by its tag once it is listed. */
    g->rig.now_us += 31 * RIG_SECOND;
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    assert_int_equal(g->fleet.count, 1);
    kind_close(g);
}

static void other_settings_find_the_first_instance(void **state)
{
    (void)state;
    struct fleet_config config = plain;
    config.lag_us = 10 * RIG_SECOND;
    struct kind_ground *g = kind_open_as(&config, NULL, NULL);
    struct err err = { 0 };
    kind_well(web_rig_create(&g->rig, "i-1", "any"));
    web_drive_close(&g->rig.drive);
    struct web_rig other = { 0 };
    web_rig_settings(&other, YAML_HEAD "    public_address: false\n" OFFERS);
    must(web_drive_open(&g->rig.drive, &other.settings[0], &g->rig.host, 1, fake_ec2.respond,
                        ec2(g), &err) == 0);
    g->rig.drive.date_us = RIG_DATE_US;
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "any");
    assert_int_equal(e->class, OFFER_TRANSIENT); /* not listed yet: it may be there */
    g->rig.now_us += 20 * RIG_SECOND;
    kind_well(web_rig_create(&g->rig, "i-1", "any"));
    assert_int_equal(g->fleet.count, 1);
    web_drive_close(&g->rig.drive);
    must(web_drive_open(&g->rig.drive, &g->rig.settings[0], &g->rig.host, 1, fake_ec2.respond,
                        ec2(g), &err) == 0);
    arena_fini(&other.arena);
    config_free(other.config);
    kind_close(g);
}

/* ---- fleets ---- */

/* EC2 chooses the cheapest that has one; the instance is paid for as what it is. */
static void a_fleet_is_one_instance_of_what_there_is(void **state)
{
    (void)state;
    static const struct {
        const char *offer, *none_of, *none_in, *type, *zone;
        double price_h;
    } rows[] = {
        { "pick", NULL, NULL, "t3.large", A, 0.096 },
        { "pick", "t3.large", A, "t3.large", B, 0.096 },
        { "pick", "t3.large", NULL, "g6.xlarge", A, 1.006 },
        { "pick-spot", NULL, NULL, "t3.large", A, 0.03 },
        { "pick-spot", "t3.large", A, "t3.large", B, 0.033 },
        { "pick-spot", "t3.large", NULL, "g6.xlarge", A, 0.4 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kind_ground *g = kind_open_as(NULL, YAML_FULL OFFERS, NULL);
        const char *const zones[] = { A, B, C };
        for (size_t z = 0; rows[i].none_of && z < COUNT_OF(zones); z++)
            if (!rows[i].none_in || strcmp(rows[i].none_in, zones[z]) == 0)
                fake_fleet_stock(&g->fleet, rows[i].none_of, zones[z], 0);
        /* YAML_FULL has subnets of two zones. */
        kind_well(web_rig_prices(&g->rig));
        const struct cloud_event *e = kind_well(web_rig_create(&g->rig, "i-1", rows[i].offer));
        double price_h = e->made.price_h;
        const struct fleet_machine *m = &g->fleet.machine[0];
        assert_string_equal(m->type, rows[i].type);
        assert_string_equal(m->zone, rows[i].zone);
        assert_true(price_h > rows[i].price_h - 1e-9 && price_h < rows[i].price_h + 1e-9);
        assert_int_equal(strncmp(m->user_data, "#!", 2), 0);
        m = kind_make_once(g, rows[i].offer);
        assert_int_equal(m->spot, i >= 3);
        kind_end_once(g);
        assert_int_equal(ec2(g)->template_count, 1);
        kind_close(g);
    }
}

static void a_fleet_without_capacity_says_so(void **state)
{
    (void)state;
    const struct fleet_row none = { .op = FLEET_CREATE, .fault = FLEET_STOCK_OUT };
    struct kind_ground *g = kind_open(&none, 1);
    const struct cloud_event *e = web_rig_create(&g->rig, "i-1", "pick");
    assert_int_equal(e->class, OFFER_CAPACITY);
    assert_non_null(strstr(e->err.text, "InsufficientInstanceCapacity"));
    assert_int_equal(g->fleet.count, 0);

    /* One pool is at our limit, the others are sold out: what passes first counts. */
    const struct fleet_row mixed[] = {
        { .op = FLEET_CREATE, .type = "t3.large", .fault = FLEET_QUOTA },
        { .op = FLEET_CREATE, .type = "g6.xlarge", .zone = A, .fault = FLEET_STOCK_OUT },
        { .op = FLEET_CREATE, .type = "g6.xlarge", .zone = B, .fault = FLEET_QUOTA },
    };
    g->fleet.config.script_count = COUNT_OF(mixed);
    memcpy(g->fleet.config.script, mixed, sizeof mixed);
    assert_int_equal(web_rig_create(&g->rig, "i-2", "pick")->class, OFFER_CAPACITY);
    g->fleet.config.script[1].fault = FLEET_QUOTA;
    assert_int_equal(web_rig_create(&g->rig, "i-3", "pick")->class, OFFER_QUOTA);
    assert_int_equal(g->fleet.count, 0);
    kind_close(g);
}

/* Without the right to fleets types and zones are asked for in turn, as they are written. */
static void without_the_right_the_places_are_tried_in_turn(void **state)
{
    (void)state;
    const struct fleet_row row = { .op = FLEET_CREATE,
                                   .type = "g6.xlarge",
                                   .fault = FLEET_STOCK_OUT };
    struct kind_ground *g = kind_open(&row, 1);
    ec2(g)->no_fleets = true;
    kind_well(web_rig_create(&g->rig, "i-1", "pick"));
    assert_string_equal(g->fleet.machine[0].type, "t3.large");
    assert_string_equal(g->fleet.machine[0].zone, A);
    assert_int_equal(g->fleet.calls[FLEET_CREATE], 3);
    kind_make_once(g, "pick");
    kind_end_once(g);
    kind_close(g);
}

/* A reply that is lost is asked for again with its token, also where another pool would be chosen now. */
static void a_lost_reply_of_a_fleet_brings_its_instance(void **state)
{
    (void)state;
    const struct fleet_row row = { .op = FLEET_CREATE, .nth = 1, .fault = FLEET_LOST_REPLY };
    struct fleet_config config = plain;
    config.lag_us = 30 * RIG_SECOND;
    config.script_count = 1;
    config.script[0] = row;
    struct kind_ground *g = kind_open_as(&config, NULL, NULL);
    kind_well(web_rig_create(&g->rig, "i-1", "pick"));
    assert_int_equal(g->fleet.count, 1);
    g->rig.now_us += 31 * RIG_SECOND;
    kind_well(web_rig_create(&g->rig, "i-1", "pick"));
    assert_int_equal(g->fleet.count, 1);
    kind_close(g);
}

/* A template that somebody deletes is made again; one of other settings goes a day after it was made. */
static void templates_are_made_and_cleared_away(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    struct fake_ec2 *e = ec2(g);
    kind_well(web_rig_create(&g->rig, "i-1", "pick"));
    assert_int_equal(e->template_count, 1);
    e->template_count = 0;
    kind_well(web_rig_create(&g->rig, "i-2", "pick"));
    assert_int_equal(e->template_count, 1);
    char *digit = e->template[0].name + strlen(e->template[0].name) - 1;
    *digit = *digit == '0' ? '1' : '0'; /* it is of other settings now */
    kind_well(web_rig_create(&g->rig, "i-3", "pick"));
    assert_int_equal(e->template_count, 2);
    e->template[2] = e->template[0];
    e->template[2].id = ++e->template_last;
    snprintf(e->template[2].name, sizeof e->template[2].name, "muster-muster-a-persons-own");
    e->template_count = 3;
    kind_well(web_rig_prices(&g->rig));
    assert_int_equal(e->template_count, 3);
    g->rig.now_us += 25 * 3600 * RIG_SECOND;
    for (int i = 0; i < 3; i++)
        kind_well(web_rig_prices(&g->rig));
    assert_int_equal(e->template_count, 2);
    kind_well(web_rig_create(&g->rig, "i-4", "pick"));
    assert_int_equal(e->template_count, 2);
    kind_close(g);
}

/* ---- ends ---- */

static const struct listed *only_item(struct kind_ground *g)
{
    const struct cloud_event *e = web_rig_list(&g->rig);
    assert_int_equal(e->rc, 0);
    return e->count == 1 ? &e->item[0] : NULL;
}

static const struct listed *the_item(struct kind_ground *g)
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
        struct kind_ground *g = kind_open(NULL, 0);
        char handle[NAME_BYTES];
        kind_well(web_rig_create(&g->rig, "i-1", "cheap"));
        struct fleet_machine *m = &g->fleet.machine[0];
        ec2(g)->extra[0].reason = rows[i].reason;
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
        kind_close(g);
    }
}

static void an_end_by_a_call_is_absence(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    kind_well(web_rig_create(&g->rig, "i-1", "any"));
    fake_fleet_remove(&g->fleet, g->fleet.machine[0].id, g->rig.now_us);
    assert_true(the_item(g)->leaves_us > 0);
    g->rig.now_us += 60 * RIG_SECOND;
    assert_null(only_item(g));
    kind_close(g);
}

/* ---- what a provider may do ---- */

/* A look before a create that is lost leaves nothing open: the class is that of what came after. */
static void a_lost_look_makes_nothing(void **state)
{
    (void)state;
    const struct fleet_row rows[] = {
        { .op = FLEET_LIST, .nth = 1, .fault = FLEET_LOST_REPLY },
        { .op = FLEET_CREATE, .fault = FLEET_QUOTA },
    };
    struct kind_ground *g = kind_open(rows, COUNT_OF(rows));
    assert_int_equal(web_rig_create(&g->rig, "i-1", "small")->class, OFFER_QUOTA);
    kind_close(g);
}

/* ---- credentials and the clock ---- */

static void check_source(const char *why, const char *text, const char *const *environ,
                         const char *secret, const char *role, const char *problem)
{
    struct kind_ground *g = kind_open_as(NULL, text, environ);
    g->rig.secret = secret;
    ec2(g)->aws.role = role;
    ec2(g)->aws.identity = "a.web.identity";
    const struct cloud_event *e = web_rig_list(&g->rig);
    bool as_wanted =
        problem ? e->rc < 0 && e->class == OFFER_AUTH && strstr(e->err.text, problem) : e->rc == 0;
    if (!as_wanted) fail_msg("%s: %d %s", why, e->rc, e->err.text);
    if (strstr(e->err.text, SECRET)) fail_msg("%s: %s", why, e->err.text);
    kind_close(g);
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
    struct kind_ground *g = kind_open_as(NULL, yaml, none);
    ec2(g)->aws.role = "controller";
    uint64_t lists = 0;
    for (; g->rig.now_us < RIG_START + 36000 * RIG_SECOND; g->rig.now_us += 50 * RIG_SECOND) {
        const struct cloud_event *e = web_rig_list(&g->rig);
        if (e->rc < 0) fail_msg("%s", e->err.text);
        lists++;
    }
    assert_true(ec2(g)->aws.session_count >= 10 && ec2(g)->aws.session_count <= 12);
    assert_int_equal(g->fleet.calls[FLEET_LIST], lists);
    kind_close(g);
}

/* Keys that end before they say so, as a role that is taken back and given again. */
static void a_session_that_ends_early_is_replaced(void **state)
{
    (void)state;
    static const char *const none[] = { NULL };
    struct kind_ground *g = kind_open_as(NULL, yaml, none);
    ec2(g)->aws.role = "controller";
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    ec2(g)->aws.session_end_us[0] = g->rig.now_us;
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    assert_int_equal(ec2(g)->aws.session_count, 2);
    kind_close(g);
}

static void a_wrong_clock_is_made_up_for(void **state)
{
    (void)state;
    static const int64_t off_s[] = { -7200, -400, 20, 400, 86400 };
    static const char *const none[] = { NULL };
    for (size_t i = 0; i < 2 * COUNT_OF(off_s); i++) {
        bool role = i >= COUNT_OF(off_s);
        int64_t off_us = off_s[i % COUNT_OF(off_s)] * RIG_SECOND;
        struct kind_ground *g = kind_open_as(NULL, yaml, role ? none : environ_of_keys);
        ec2(g)->aws.role = "controller";
        ec2(g)->aws.date_us = RIG_DATE_US + off_us;
        kind_well(web_rig_create(&g->rig, "i-1", "small"));
        const struct cloud_event *e = web_rig_list(&g->rig);
        assert_int_equal(e->count, 1);
        assert_true(llabs(e->item[0].created_us - g->fleet.machine[0].made_us) < 60 * RIG_SECOND);
        uint64_t asks = g->rig.drive.asks;
        assert_int_equal(web_rig_list(&g->rig)->rc, 0);
        assert_int_equal(g->rig.drive.asks - asks, 1); /* the clock is known by now */
        kind_close(g);
    }
}

/* ---- prices ---- */

static void prices_are_the_dearest_of_the_zones(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    const struct cloud_event *e = web_rig_prices(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->count, 8);
    assert_true(kind_costs(e, "small", 0.096) && kind_costs(e, "any", 0.096) &&
                kind_costs(e, "reserved", 0.096));
    assert_true(kind_costs(e, "cheap", 0.44)); /* the second zone is a tenth dearer */
    assert_true(kind_costs(e, "given", 0.5));
    assert_true(kind_costs(e, "pick", 1.006) && kind_costs(e, "pick-spot", 0.44));
    assert_int_equal(g->fleet.calls[FLEET_PRICES], 6); /* reservations, three pages, two types */
    ec2(g)->no_price_list = true;
    e = web_rig_prices(&g->rig);
    assert_int_equal(e->rc, 0);
    assert_false(kind_price(e, "small").known);
    assert_true(kind_costs(e, "cheap", 0.44));
    kind_close(g);

    struct kind_ground *h = kind_open_as(
        NULL, YAML_HEAD "    endpoint: https://ec2.example.org\n" OFFERS, environ_of_keys);
    e = web_rig_prices(&h->rig);
    assert_int_equal(e->rc, 0);
    assert_false(kind_price(e, "small").known); /* another cloud's prices are not Amazon's */
    kind_close(h);
}

/* An active reservation is paid already, and says what it has room for. Full, it is a lack of capacity. */
static void a_reservation_is_paid_and_has_room(void **state)
{
    (void)state;
    struct kind_ground *g = kind_open(NULL, 0);
    struct cloud_price p = kind_price(kind_well(web_rig_prices(&g->rig)), "reserved");
    assert_true(p.reserved_known && p.reserved == 0 &&
                !p.room_known); /* there is none of that name */
    ec2(g)->reservation =
        (struct ec2_reservation){ .id = "cr-1", .type = "t3.large", .zone = A, .total = 2 };
    kind_well(web_rig_create(&g->rig, "i-1", "reserved"));
    const struct cloud_event *e = kind_well(web_rig_prices(&g->rig));
    assert_true(kind_costs(e, "reserved", 0.096));
    assert_false(kind_price(e, "one").reserved_known);
    p = kind_price(e, "reserved");
    assert_true(p.reserved_known && p.reserved == 2);
    assert_true(p.room_known && p.nodes == 2 && p.room == 1);
    kind_well(web_rig_create(&g->rig, "i-2", "reserved"));
    assert_int_equal(web_rig_create(&g->rig, "i-3", "reserved")->class, OFFER_CAPACITY);
    e = kind_well(web_rig_prices(&g->rig));
    assert_int_equal(kind_price(e, "reserved").room, 0);
    ec2(g)->no_reservations = true; /* a right that may be missing */
    e = kind_well(web_rig_prices(&g->rig));
    assert_true(kind_costs(e, "reserved", 0.096));
    assert_false(kind_price(e, "reserved").reserved_known);
    kind_close(g);
}

/* ---- a launch template of the user's ---- */

#define YAML_TEMPLATE(what)                                    \
    "clouds:\n"                                                \
    "  - name: aws\n"                                          \
    "    kind: ec2\n"                                          \
    "    region: eu-central-1\n"                               \
    "    calls_per_s: 100\n"                                   \
    "    networks: [" A "=subnet-" A ", " B "=subnet-" B "]\n" \
    "    launch_template: " what "\n" OFFERS

static void machines_are_made_from_a_template(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *offer, *image;
        enum offer_error class;
    } rows[] = {
        { YAML_TEMPLATE(EC2_USER_TEMPLATE), "small", EC2_USER_IMAGE, OFFER_OK },
        { YAML_TEMPLATE(EC2_USER_TEMPLATE ":3"), "small", EC2_USER_IMAGE, OFFER_OK },
        { YAML_TEMPLATE(EC2_USER_TEMPLATE ":$Latest"), "cheap", EC2_USER_IMAGE, OFFER_OK },
        { YAML_TEMPLATE(EC2_USER_TEMPLATE_NAME), "pick", EC2_USER_IMAGE, OFFER_OK },
        { YAML_TEMPLATE(EC2_USER_TEMPLATE_NAME "\n    image: ami-0000000000000mine"), "small",
          "ami-0000000000000mine", OFFER_OK },
        { YAML_TEMPLATE(EC2_USER_TEMPLATE_NAME "\n    image: ami-0000000000000mine"), "pick",
          "ami-0000000000000mine", OFFER_OK },
        { YAML_TEMPLATE(EC2_USER_TEMPLATE ":4"), "small", NULL, OFFER_INVALID },
        { YAML_TEMPLATE("lt-0000000000000none"), "pick", NULL, OFFER_INVALID },
        { YAML_TEMPLATE("none"), "pick", NULL, OFFER_INVALID },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kind_ground *g = kind_record(kind_open_as(NULL, rows[i].yaml, NULL));
        const struct cloud_event *e = web_rig_create(&g->rig, "i-1", rows[i].offer);
        if (e->class != rows[i].class) fail_msg("%zu: %s", i, e->err.text);
        assert_int_equal(g->fleet.count, rows[i].image ? 1 : 0);
        if (rows[i].image) {
            const struct fleet_machine *m = &g->fleet.machine[0];
            assert_string_equal(m->image, rows[i].image);
            assert_int_equal(strncmp(m->user_data, "#!", 2), 0);
            assert_string_equal(fleet_tag_of(m, WEB_TAG_INTENT), "i-1");
            kind_well(web_rig_create(&g->rig, "i-1", rows[i].offer)); /* the same again */
            assert_int_equal(g->fleet.count, 1);
        }
        assert_int_equal(ec2(g)->template_count, 0); /* none of ours is made beside it */
        kind_close(g);
    }
}

/* ---- settings ---- */

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct kind_refused rows[] = {
        { "clouds:\n  - name: aws\n    kind: ec2\n    image: ami-1\n" OFFERS, "region: kind ec2" },
        { "clouds:\n  - name: aws\n    kind: ec2\n    region: eu-1\n" OFFERS, "image: kind ec2" },
        { "clouds:\n  - name: aws\n    kind: ec2\n    region: a.b/\n    image: ami-1\n" OFFERS,
          "region" },
        { YAML_HEAD "    project: x\n" OFFERS, "project: kind ec2 reads no such setting" },
        { YAML_HEAD "    networks: [vpc-1]\n" OFFERS, "SUBNET or ZONE=SUBNET" },
        { YAML_HEAD "    networks: [subnet-1]\n" OFFERS, "networks has no " A "=SUBNET" },
        { YAML_TEMPLATE("house\n    firewalls: [sg-1]"), "firewalls: the launch template" },
        { YAML_TEMPLATE("house\n    public_address: false"),
          "public_address: the launch template" },
        { YAML_TEMPLATE("house\n    disk: 10GiB"), "disk: the launch template" },
        { YAML_TEMPLATE("house:new"), "version 'new': want a number" },
        { YAML_TEMPLATE("':3'"), "want lt-..., or a name" },
        { YAML_HEAD "    firewalls: [web]\n" OFFERS, "security group" },
        { YAML_HEAD "    ssh_keys: [a, b]\n" OFFERS, "one key pair" },
        { "clouds:\n  - name: aws\n    kind: ec2\n    region: eu-1\n    image: resolve:ssm:/x\n"
          "    disk: 10GiB\n" OFFERS,
          "disk" },
        { YAML_HEAD
          "    offers:\n      - {name: a, type: b, spot: true, capacity_reservation: c}\n",
          "it is spot" },
        { YAML_HEAD
          "    offers:\n      - {name: a, type: b, types: [c], capacity_reservation: d}\n",
          "types: a capacity_reservation is of one" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, types: [c, d, e, f, g, h, i], zones: "
                    "[z1, z2, z3, z4, z5, z6, z7]}\n",
          "48 together at most" },
        { YAML_HEAD "    offers:\n      - {name: a, type: b, gpus: 1}\n", "gpus: kind ec2" },
    };
    kind_check_refused(rows, COUNT_OF(rows));
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
    struct kind_ground *g = kind_record(kind_open_as(NULL, YAML_FULL OFFERS, NULL));
    kind_well(web_rig_create(&g->rig, "i-1", "small"));
    kind_well(web_rig_create(&g->rig, "i-2", "cheap"));
    kind_well(web_rig_create(&g->rig, "i-3", "pick"));
    char *digit = ec2(g)->template[0].name + strlen(ec2(g)->template[0].name) - 1;
    *digit = *digit == '0' ? '1' : '0';
    g->rig.now_us += 25 * 3600 * RIG_SECOND;
    assert_int_equal(web_rig_list(&g->rig)->rc, 0);
    assert_int_equal(web_rig_prices(&g->rig)->rc, 0);
    kind_well(web_rig_turn(&g->rig, g->rig.room[0].handle, g->rig.room[0].intent, false));
    g->rig.now_us += 60 * RIG_SECOND;
    kind_well(web_rig_turn(&g->rig, g->rig.room[0].handle, g->rig.room[0].intent, true));
    assert_int_equal(web_rig_remove(&g->rig, "", "i-1")->rc, 0);
    uint32_t asked = 0;
    for (uint32_t i = 0; ec2_action_names[i]; i++) {
        if (!(ec2(g)->actions & 1u << i)) continue;
        asked++;
        if (!has_right(buf_view(&doc), ec2_action_names[i]))
            fail_msg("%s is asked for, and the policy does not allow it", ec2_action_names[i]);
    }
    assert_int_equal(asked, 14);
    check_rights(buf_view(&doc), "\"ec2:");
    check_rights(buf_view(&doc), "\"pricing:");
    kind_close(g);
}

static int use_fleets(void **state)
{
    (void)state;
    kind_suite.yaml = YAML_HEAD "    offers:\n"
                                "      - {name: small, type: t3.large, types: [g6.xlarge], zones: "
                                "[" A ", " B "]}\n"
                                "      - {name: any, type: t3.large}\n";
    kind_suite.several_types = true;
    kind_suite.remembers_refusals = true;
    return 0;
}

int main(void)
{
    kind_suite = (struct kind_suite){ .fake = &fake_ec2,
                                      .fleet = &plain,
                                      .open = open_ec2,
                                      .yaml = yaml,
                                      .environ = environ_of_keys,
                                      .hidden = SECRET,
                                      .record = "MUSTER_EC2_RECORD",
                                      .several = true,
                                      .late_wins = true,
                                      .signed_date = true,
                                      .halts_by_machine = true,
                                      .machine_login = true,
                                      .quiet_offer = "any",
                                      .zone = A,
                                      .image = "ami-0123456789abcdef0",
                                      .service_tag = "org/chat model",
                                      .data = "#!" };
    const struct CMUnitTest tests[] = {
        KIND_TESTS,
        STOP_TESTS,
        cmocka_unit_test(machines_are_made_from_a_template),
        cmocka_unit_test(one_intent_is_one_instance),
        cmocka_unit_test(many_instances_are_many_pages),
        cmocka_unit_test(a_lost_reply_of_the_second_zone_is_asked_there_again),
        cmocka_unit_test(other_settings_find_the_first_instance),
        cmocka_unit_test(a_fleet_is_one_instance_of_what_there_is),
        cmocka_unit_test(a_fleet_without_capacity_says_so),
        cmocka_unit_test(without_the_right_the_places_are_tried_in_turn),
        cmocka_unit_test(a_lost_reply_of_a_fleet_brings_its_instance),
        cmocka_unit_test(templates_are_made_and_cleared_away),
        cmocka_unit_test(ends_are_told_as_they_are),
        cmocka_unit_test(an_end_by_a_call_is_absence),
        cmocka_unit_test(a_lost_look_makes_nothing),
        cmocka_unit_test(credentials_come_from_each_source),
        cmocka_unit_test(sessions_are_renewed_before_their_end),
        cmocka_unit_test(a_session_that_ends_early_is_replaced),
        cmocka_unit_test(a_wrong_clock_is_made_up_for),
        cmocka_unit_test(prices_are_the_dearest_of_the_zones),
        cmocka_unit_test(a_reservation_is_paid_and_has_room),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(the_policy_has_what_is_asked_for),
    };
    /* The same offer as EC2's to choose from. */
    const struct CMUnitTest of_fleets[] = {
        cmocka_unit_test(kind_one_intent_is_one_machine),
        cmocka_unit_test(kind_a_lost_create_is_removed_by_its_intent),
        cmocka_unit_test(kind_faults_of_a_create),
        cmocka_unit_test(kind_killed_at_every_step),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests(of_fleets, use_fleets, NULL);
}
