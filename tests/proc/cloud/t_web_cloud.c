/* t_web_cloud.c - tests a real controller on a fake of a provider over loopback: machines boot from their very user
 * data, report, serve and are returned, and no credential is written anywhere.
 *
 * This program is the provider's hypervisor: it runs the user data of each machine that the fake has made. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/rig.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "s3cret-t0ken-of-the-provider"
#define OFFER "      - { name: small, type: cx22, zones: [fsn1, nbg1], lead: 2s }\n"

static struct rig_process fake, controller;
static char state[RIG_PATH], config[RIG_PATH], model[PATH_MAX], machines[RIG_PATH];
static char booted[64][16]; /* names of machines that were started */
static uint32_t booted_count, runs;

/* ---- the provider ---- */

static void order(const char *path, const char *body)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(rig_call(fake.port, path, body, &reply), 200);
}

static void start_fake(void)
{
    char port[16];
    fake.port = rig_port();
    snprintf(port, sizeof port, "%u", fake.port);
    fake = rig_start("fake_cloud",
                     ARGS(getenv("FAKE_CLOUD_BIN"), "--plays", "hetzner", "--port", port, "--token",
                          TOKEN, "--lag-ms", "500"),
                     fake.port, "/fake/state", 200);
}

/* Runs the user data of a machine, in the background, as an init would. */
static void boot(const char *name, struct str user_data)
{
    char file[32], path[RIG_PATH], command[2 * RIG_PATH + 64];
    CLEANUP(buf_fini) struct buf text = { 0 };
    snprintf(file, sizeof file, "user-data-%s", name);
    buf_str(&text, user_data);
    rig_file(path, file, text.data);
    snprintf(command, sizeof command, "sh '%s' > '%s.log' 2>&1 &", path, path);
    assert_int_equal(system(command), 0);
}

static int look_at(void *ctx, struct str item)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    CLEANUP(buf_fini) struct buf user_data = { 0 };
    bool there = false;
    (void)ctx;
    assert_int_equal(json_path_text(item, "name", &name), 0);
    assert_int_equal(json_path_text(item, "user_data", &user_data), 0);
    assert_int_equal(json_path_bool(item, "there", &there), 0);
    for (uint32_t i = 0; i < booted_count; i++)
        if (strcmp(booted[i], name.data) == 0) return 0;
    if (!there) return 0;
    must(booted_count < COUNT_OF(booted));
    snprintf(booted[booted_count++], sizeof booted[0], "%s", name.data);
    boot(name.data, buf_view(&user_data));
    return 0;
}

static void boot_all(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(rig_call(fake.port, "/fake/machines", NULL, &reply), 200);
    assert_int_equal(json_path_each(buf_view(&reply), "machines", look_at, NULL), 0);
}

/* ---- the controller ---- */

static void start_controller(const char *more)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char template[RIG_PATH], token[RIG_PATH], script[1024];
    snprintf(machines, sizeof machines, "%s/machines%u", rig_folder(), runs);
    snprintf(
        script, sizeof script,
        "#!/bin/sh\n"
        "set -eu\n"
        "umask 077\n"
        "here='%s/${INTENT}'\n"
        "mkdir -p \"$here\"\n"
        "echo '${TOKEN}' | base64 -d > \"$here/join.token\"\n"
        "echo '${LAUNCH}' | base64 -d | sed \"s|/var/lib/muster|$here|g\" > \"$here/launch.json\"\n"
        "exec '%s' agent --spec \"$here/launch.json\"\n",
        machines, getenv("MUSTER_BIN"));
    rig_file(template, "user-data.sh", script);
    rig_file(token, "token", TOKEN "\n");
    assert_int_equal(chmod(token, 0600), 0);
    snprintf(state, sizeof state, "%s/state%u", rig_folder(), runs);
    buf_printf(&text,
               "controller: { state: %s, tick: 100ms, drain: 20s }\n"
               "clouds:\n"
               "  - name: eu\n"
               "    kind: hetzner\n"
               "    endpoint: http://127.0.0.1:%u/v1\n"
               "    credentials_file: %s\n"
               "    image: debian-12\n"
               "    user_data: %s\n"
               "    exchange_rates: [EUR=1.08]\n"
               "    poll: 300ms\n"
               "    calls_per_s: 50\n"
               "%s    offers:\n" OFFER "services:\n"
               "  - name: chat\n"
               "    model: %s\n"
               "    scale: static\n"
               "    count: 0\n"
               "    stabilisation: 1s\n"
               "    pools: [ { name: only, provider: eu, offers: [small], max: 4 } ]\n",
               state, fake.port, token, template, more, model);
    rig_file(config, "muster.yaml", text.data);
    controller.port = rig_port();
    controller = rig_server("controller", controller.port, ARGS("--config", config));
}

static void scale(int count)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char secret[RIG_PATH + 16], bearer[RIG_BEARER], body[64];
    snprintf(secret, sizeof secret, "%s/secret", state);
    rig_bearer(secret, bearer);
    snprintf(body, sizeof body, "{\"pool\":\"only\",\"count\":%d}", count);
    int status =
        rig_call_with(controller.port, "/api/v1/services/chat/scale", bearer, body, &reply);
    if (status != 200) fail_msg("%d: %s", status, reply.data);
}

struct wanted {
    uint32_t ready, there;
};

static uint32_t count_words(const char *path, const char *words)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    uint32_t n = 0;
    if (rig_call(controller.port, path, NULL, &reply) != 200) return UINT32_MAX;
    for (const char *at = reply.data; (at = strstr(at, words)); at++)
        n++;
    return n;
}

static bool is_so(void *arg)
{
    const struct wanted *w = arg;
    boot_all();
    return count_words("/api/v1/instances", "\"phase\":\"ready\"") == w->ready &&
           rig_number(fake.port, "/fake/state", "running") == w->there;
}

static void wait_for(uint32_t ready, uint32_t there, const char *what)
{
    struct wanted w = { ready, there };
    rig_wait(is_so, &w, what);
}

/* Nothing that any part wrote has the token. */
static void check_secrecy(void)
{
    char command[2 * RIG_PATH];
    snprintf(command, sizeof command, "! grep -rl '" TOKEN "' '%s' | grep -v '/token$' | grep .",
             rig_folder());
    assert_int_equal(system(command), 0);
    assert_int_equal(rig_number(fake.port, "/fake/state", "refused_form"), 0);
}

static int set_up(void **unused)
{
    (void)unused;
    booted_count = 0;
    runs++;
    start_fake();
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    rig_stop(&controller);
    rig_stop(&fake);
    return 0;
}

/* ---- tests ---- */

static void up_and_down(void **unused)
{
    (void)unused;
    CLEANUP(buf_fini) struct buf out = { 0 };
    start_controller("");
    scale(2);
    wait_for(2, 2, "two machines serve");
    assert_true(count_words("/api/v1/offers", "\"price_per_h\":0.00756") == 1); /* 0.007 euros */
    assert_true(rig_metric(controller.port,
                           "muster_controller_cloud_requests_total{provider=\"eu\","
                           "call=\"create\",result=\"2xx\"}") == 2);
    assert_true(rig_metric(controller.port, "muster_controller_cloud_request_seconds_count") > 2);
    int rc = rig_run(&out, ARGS("doctor", "-f", config));
    (void)rc; /* no router runs */
    if (!strstr(out.data, "they are taken, and")) fail_msg("%s", out.data);
    scale(0);
    wait_for(0, 0, "none is left");
    assert_int_equal(rig_number(fake.port, "/fake/state", "made"), 2);
    assert_true(rig_number(fake.port, "/fake/state", "bill_udollars") > 0);
    check_secrecy();
}

/* A reply that is lost, a throttle, a stock-out of the first location and a controller that is killed in the middle:
 * one machine an intent all the same. */
static void faults_on_the_way(void **unused)
{
    (void)unused;
    order("/fake/stock", "{\"type\":\"cx22\",\"zone\":\"fsn1\",\"count\":0}");
    order("/fake/script",
          "{\"rows\":[{\"op\":\"create\",\"zone\":\"nbg1\",\"nth\":1,\"fault\":\"lost_reply\"},"
          "{\"op\":\"list\",\"nth\":2,\"fault\":\"throttle\",\"delay_ms\":1000},"
          "{\"op\":\"list\",\"nth\":4,\"fault\":\"server_error\"},"
          "{\"op\":\"remove\",\"nth\":1,\"fault\":\"lost_reply\"}]}");
    start_controller("");
    scale(2);
    wait_for(2, 2, "two machines serve in spite of faults");
    rig_kill(&controller);
    controller = rig_server("controller", controller.port, ARGS("--config", config));
    wait_for(2, 2, "the next controller has them");
    scale(0);
    wait_for(0, 0, "none is left");
    assert_int_equal(rig_number(fake.port, "/fake/state", "made"), 2);
    check_secrecy();
}

/* A machine that the provider takes away is replaced. */
static void a_machine_is_taken_away(void **unused)
{
    (void)unused;
    char body[64];
    start_controller("");
    scale(1);
    wait_for(1, 1, "one machine serves");
    snprintf(body, sizeof body, "{\"name\":\"%s\",\"notice_ms\":2000}", booted[0]);
    order("/fake/preempt", body);
    rig_wait_number(fake.port, "/fake/state", "made", 2);
    wait_for(1, 1, "another one serves");
    scale(0);
    wait_for(0, 0, "none is left");
    check_secrecy();
}

int main(void)
{
    static const char *const needs[] = { "MUSTER_BIN", "FAKE_CLOUD_BIN", MODEL, NULL };
    if (!rig_can_run(needs)) return RIG_SKIP;
    rig_hurry_agents();
    must(realpath(MODEL, model));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(up_and_down, set_up, tear_down),
        cmocka_unit_test_setup_teardown(faults_on_the_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_machine_is_taken_away, set_up, tear_down),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
