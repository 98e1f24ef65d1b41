/* t_cloud_exec.c - buys instances from a program: one an intent whatever the program does wrong, nothing of a secret in
 * logs or errors, and a controller over it that is killed at every step. */
#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/cloud/cloud_exec.h"
#include "controller/control.h"
#include "tests/fakes/cloud/web_rig.h"
#include "tests/unit/controller/killed_cloud.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND RIG_SECOND
#define TOKEN "tok-2f9a8c-never-seen"
#define KEY "key-of-the-instance"

static const char *program; /* fake_seller, in our folder */
static const char *const environment[] = { "SELLER_TOKEN=" TOKEN, "OTHER=1", NULL };

struct ground {
    char folder[64];
    struct web_rig rig;
    struct cloud_exec *exec;
    const struct cloud_backend *backend;
    int64_t now_us;
    struct listed *item;
    struct cloud_price *price;
    struct err err;
};

static void open_mode(struct ground *g, const char *mode, const char *more)
{
    char yaml[2048];
    snprintf(yaml, sizeof yaml,
             "clouds:\n"
             "  - name: mine\n"
             "    kind: exec\n"
             "    program: ['%s', '%s', %s]\n"
             "    environment: [SELLER_TOKEN]\n"
             "%s"
             "    offers:\n"
             "      - {name: small, type: file, zones: [a, b]}\n"
             "      - {name: given, type: file, price_per_hour: 0.5}\n",
             program, g->folder, mode, more);
    g->rig = (struct web_rig){ 0 };
    web_rig_settings(&g->rig, yaml);
    struct err err = { 0 };
    if (cloud_exec_new(&g->rig.settings[0], environment, &g->exec, &err) < 0)
        fail_msg("%s", err.text);
    g->backend = cloud_exec_backend(g->exec);
}

static void close_mode(struct ground *g)
{
    g->backend->close(g->exec);
    arena_fini(&g->rig.arena);
    config_free(g->rig.config);
}

static void change_mode(struct ground *g, const char *mode)
{
    close_mode(g);
    open_mode(g, mode, "");
}

static struct ground *ground_with(const char *mode, const char *more)
{
    struct ground *g = calloc(1, sizeof *g);
    must(g);
    snprintf(g->folder, sizeof g->folder, "/tmp/t_cloud_exec_XXXXXX");
    must(mkdtemp(g->folder));
    g->now_us = RIG_START;
    g->item = calloc(CLOUD_LIST_MAX, sizeof *g->item);
    g->price = calloc(CLOUD_PRICES_MAX, sizeof *g->price);
    must(g->item && g->price);
    open_mode(g, mode, more);
    return g;
}

static struct ground *ground(const char *mode)
{
    return ground_with(mode, "");
}

static void ground_free(struct ground *g)
{
    char command[128];
    close_mode(g);
    snprintf(command, sizeof command, "rm -rf '%s'", g->folder);
    assert_int_equal(system(command), 0);
    free(g->item);
    free(g->price);
    free(g);
}

/* Makes an instance; the class says how it went. */
static enum offer_error create(struct ground *g, const char *intent, struct listed *ret)
{
    static const struct str args[] = { { "muster", 6 } };
    struct offer o = { .name = "small" };
    enum offer_error class = OFFER_OK;
    const struct launch_spec spec = { .instance = str_from(intent),
                                      .service = STR("org/chat model"),
                                      .pool = STR("small"),
                                      .offer = STR("small"),
                                      .controller_host = STR("10.0.0.1"),
                                      .controller_port = 8090,
                                      .engine_host = STR("127.0.0.1"),
                                      .engine_args = args,
                                      .engine_arg_count = 1 };
    const struct cloud_request req = {
        .intent = intent, .offer = &o, .spec = &spec, .key = STR(KEY)
    };
    g->err.text[0] = 0;
    int rc = g->backend->create(g->exec, &req, g->now_us, ret, &class, &g->err);
    assert_int_equal(rc < 0, class != OFFER_OK);
    return class;
}

static int list(struct ground *g, uint32_t *ret_count)
{
    g->err.text[0] = 0;
    *ret_count = 0;
    return g->backend->list(g->exec, g->now_us, g->item, CLOUD_LIST_MAX, ret_count, &g->err);
}

/* Lines of FOLDER/made: creates that made something. */
static uint32_t made(const struct ground *g)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[128];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/made", g->folder);
    if (file_read(path, 1 << 20, &text, NULL) < 0) return 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.data[i] == '\n';
    return n;
}

static uint32_t there(const struct ground *g)
{
    uint32_t n = 0;
    DIR *dir = opendir(g->folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += strncmp(e->d_name, "i-", 2) == 0;
    closedir(dir);
    return n;
}

/* ---- what is made ---- */

static void one_intent_is_one_instance(void **state)
{
    (void)state;
    struct ground *g = ground("serve");
    struct listed first, second;
    uint32_t count, priced;
    assert_int_equal(create(g, "i-1", &first), OFFER_OK);
    assert_int_equal(create(g, "i-1", &second), OFFER_OK);
    assert_string_equal(first.handle, second.handle);
    assert_string_equal(first.intent, "i-1");
    assert_int_equal(made(g), 1);
    assert_int_equal(create(g, "i-2", &second), OFFER_OK);
    assert_int_equal(list(g, &count), 0);
    assert_int_equal(count, 2);
    assert_string_equal(g->item[0].service, "org/chat model");
    assert_string_equal(g->item[0].pool, "small");
    assert_string_equal(g->item[0].offer, "small");
    assert_true(llabs(g->item[0].created_us - g->now_us) < 60 * SECOND);
    assert_false(g->item[0].unreadable || g->item[0].gone || g->item[0].leaves_us);

    const struct cloud_backend *b = g->backend;
    assert_int_equal(b->remove(g->exec, first.handle, "i-1", g->now_us, &g->err), 0);
    assert_int_equal(b->remove(g->exec, first.handle, "i-1", g->now_us, &g->err), 0);
    assert_int_equal(b->remove(g->exec, "", "i-2", g->now_us, &g->err), 0);
    assert_int_equal(there(g), 0);

    assert_int_equal(b->prices(g->exec, g->now_us, g->price, CLOUD_PRICES_MAX, &priced, &g->err),
                     0);
    assert_int_equal(priced, 2);
    assert_string_equal(g->price[0].offer, "small");
    assert_true(g->price[0].known && g->price[0].price_h > 0.2499 && g->price[0].price_h < 0.2501);
    assert_string_equal(g->price[0].hardware, "a file");
    assert_true(g->price[1].known && g->price[1].price_h > 0.4999);
    ground_free(g);
}

static void states_and_members_that_are_not_known(void **state)
{
    (void)state;
    struct ground *g = ground("more");
    struct listed one;
    uint32_t count;
    assert_int_equal(create(g, "i-1", &one), OFFER_OK);
    change_mode(g, "stuck");
    assert_int_equal(list(g, &count), 0);
    assert_int_equal(g->item[0].stuck, OFFER_CAPACITY);
    assert_string_equal(g->item[0].why, "no host has room");
    change_mode(g, "leaving");
    assert_int_equal(list(g, &count), 0);
    assert_true(g->item[0].leaves_us == g->now_us + 30 * SECOND);
    ground_free(g);
}

/* ---- what a program may do wrong ---- */

static void wrongs_of_a_create(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        enum offer_error class;
        uint32_t made;
        const char *says;
    } rows[] = {
        { "garbage", OFFER_TRANSIENT, 0, "no JSON object" },
        { "half", OFFER_TRANSIENT, 0, "no JSON object" },
        { "nothing", OFFER_TRANSIENT, 0, "no JSON object" },
        { "two_lines", OFFER_TRANSIENT, 1, "no JSON object" },
        { "long", OFFER_TRANSIENT, 0, "wrote more than" },
        { "wrong_type", OFFER_TRANSIENT, 0, "handle is no text" },
        { "wrong_class", OFFER_TRANSIENT, 0, "none of the error classes" },
        { "version", OFFER_TRANSIENT, 1, "v is not 1" },
        { "die", OFFER_TRANSIENT, 1, "ended with signal 9" },
        { "die_unread", OFFER_TRANSIENT, 0, "ended with signal 9" },
        { "fail", OFFER_TRANSIENT, 1, "ended with status 3: the disk is full" },
        { "capacity", OFFER_CAPACITY, 0, "sold out" },
        { "quota", OFFER_QUOTA, 0, "quota" },
        { "deaf", OFFER_TRANSIENT, 0, "instance is missing" },
        { "child", OFFER_OK, 1, "" },
        { "more", OFFER_OK, 1, "" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct ground *g = ground(rows[i].mode);
        struct listed one;
        int64_t begun_us = clock_mono_us();
        enum offer_error class = create(g, "i-1", &one);
        if (class != rows[i].class || made(g) != rows[i].made || !strstr(g->err.text, rows[i].says))
            fail_msg("%s: %s (%s), %u made", rows[i].mode, offer_error_names[class], g->err.text,
                     made(g));
        assert_true(clock_mono_us() - begun_us < 15 * SECOND);
        change_mode(g, "serve");
        if (create(g, "i-1", &one) != OFFER_OK || made(g) != 1)
            fail_msg("%s: then %s, %u made", rows[i].mode, g->err.text, made(g));
        ground_free(g);
    }
}

static void a_listing_that_cannot_be_read_is_none(void **state)
{
    (void)state;
    static const char *const modes[] = { "garbage", "tagless", "wrong_type", "fail", "capacity" };
    struct ground *g = ground("serve");
    struct listed one;
    uint32_t count;
    assert_int_equal(create(g, "i-1", &one), OFFER_OK);
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        change_mode(g, modes[i]);
        if (list(g, &count) >= 0) fail_msg("%s: listed %u", modes[i], count);
    }
    ground_free(g);
}

static void one_that_hangs_is_killed(void **state)
{
    (void)state;
    struct ground *g = ground_with("hang", "    timeout: 300ms\n");
    struct listed one;
    int64_t begun_us = clock_mono_us();
    assert_int_equal(create(g, "i-1", &one), OFFER_TRANSIENT);
    assert_non_null(strstr(g->err.text, "did not end within"));
    assert_true(clock_mono_us() - begun_us < 10 * SECOND);
    ground_free(g);
}

static void one_that_is_not_there_made_nothing(void **state)
{
    (void)state;
    const char *before = program;
    program = "/nonexistent/seller";
    struct ground *g = ground("serve");
    struct listed one;
    assert_int_equal(create(g, "i-1", &one), OFFER_INVALID);
    program = before;
    ground_free(g);
}

/* ---- secrets ---- */

/* The log's text after the calls of one that tells all it knows: bounded, and without key, its base64 or the token. */
static void what_it_says_is_logged_without_secrets(void **state)
{
    (void)state;
    struct ground *g = ground("loud");
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf key64 = { 0 };
    char path[128];
    struct listed one;
    snprintf(path, sizeof path, "%s/log", g->folder);
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    log_set_level(LOG_WARN);
    log_set_fd(fd);
    assert_int_equal(create(g, "i-1", &one), OFFER_OK);
    log_set_fd(2);
    log_set_level(LOG_LEVEL_COUNT - 1);
    close(fd);
    assert_int_equal(file_read(path, 1 << 20, &text, NULL), 0);
    base64_put(&key64, STR(KEY));
    assert_non_null(strstr(text.data, "cloud_program_says"));
    assert_non_null(strstr(text.data, "intent=i-1"));
    assert_null(strstr(text.data, TOKEN));
    assert_null(strstr(text.data, KEY));
    assert_null(strstr(text.data, key64.data));
    assert_true(text.len < 64 << 10);
    ground_free(g);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
#define HEAD "clouds:\n  - name: mine\n    kind: exec\n"
#define OFFERS "    offers: [{name: a, type: b}]\n"
        { HEAD OFFERS, "program: kind exec needs it" },
        { HEAD "    program: [seller]\n" OFFERS, "no absolute path" },
        { HEAD "    program: [/x]\n    endpoint: https://x\n" OFFERS, "reads no endpoint" },
        { HEAD "    program: [/x]\n    credentials_file: /y\n" OFFERS, "no credentials" },
        { HEAD "    program: [/x]\n    project: p\n" OFFERS, "project: kind exec reads no such" },
        { HEAD "    program: [/x]\n    timeout: 2m\n" OFFERS, "timeout" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *problem = web_rig_problem(rows[i].text);
        if (!strstr(problem, rows[i].problem)) fail_msg("%s: %s", rows[i].problem, problem);
    }
    static const char *const nothing[] = { NULL };
    struct ground *g = ground("serve");
    struct cloud_exec *x;
    assert_true(cloud_exec_new(&g->rig.settings[0], nothing, &x, &g->err) < 0);
    assert_non_null(strstr(g->err.text, "SELLER_TOKEN"));
    ground_free(g);
}

/* ---- a controller over it, killed at every step ---- */

/* Lets the agents of all instances report and the controller tick. -ECANCELED: it died. */
static int second(void *arg, struct control *c)
{
    struct ground *g = arg;
    g->now_us += SECOND;
    DIR *dir = opendir(g->folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, "i-", 2) == 0) killed_cloud_report(c, e->d_name, g->now_us);
    closedir(dir);
    return control_tick(c, g->now_us);
}

static uint32_t there_now(void *arg)
{
    return there(arg);
}

static void one_kill(const char *step, uint64_t nth, bool carried_out)
{
    struct ground *g = ground("serve");
    const struct killed_cloud k = { .provider = "mine",
                                    .backend = g->backend,
                                    .backend_ctx = g->exec,
                                    .secret = STR("0123456789abcdef0123456789abcdef"),
                                    .carried_out = carried_out,
                                    .turns = 40,
                                    .quiet = 5,
                                    .now_us = &g->now_us,
                                    .second = second,
                                    .there = there_now,
                                    .ground = g };
    struct killed_count n = killed_cloud_run(&k, step, nth, nth);
    if (n.crashes != 1 || n.most != 2 || n.left != 0 || made(g) != 2)
        fail_msg("%s, time %llu: %u crashes, %u at once, %u left, %u made", step,
                 (unsigned long long)nth, n.crashes, n.most, n.left, made(g));
    ground_free(g);
}

/* Each call is a process, and under the sanitizers it takes a tenth of a second to start: there each step is met
 * once, and in the release build four times. */
#ifdef MUSTER_DEBUG
#    define NTH_MAX 1
#else
#    define NTH_MAX 2
#endif

static void killed_at_every_step(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < control_step_count; s++)
        for (uint64_t nth = 1; nth <= NTH_MAX; nth++) {
            one_kill(control_steps[s], nth, (s + nth) % 2 == 0);
            if (NTH_MAX > 1) one_kill(control_steps[s], nth, (s + nth) % 2 == 1);
        }
}

int main(int argc, char **argv)
{
    (void)argc;
    static char path[PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(argv[0], '/');
    snprintf(path, sizeof path, "%.*sfake_seller", slash ? (int)(slash - argv[0]) + 1 : 0, argv[0]);
    must(realpath(path, real));
    program = real;
    log_set_level(LOG_LEVEL_COUNT - 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_intent_is_one_instance),
        cmocka_unit_test(states_and_members_that_are_not_known),
        cmocka_unit_test(wrongs_of_a_create),
        cmocka_unit_test(a_listing_that_cannot_be_read_is_none),
        cmocka_unit_test(one_that_hangs_is_killed),
        cmocka_unit_test(one_that_is_not_there_made_nothing),
        cmocka_unit_test(what_it_says_is_logged_without_secrets),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(killed_at_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
