/* t_clock_fleet.c - the rows of clocks in a running fleet: one service each under mu_serve, max and
 * polca, from `muster up` to what `muster get instances` says of them.
 *
 * Real binary, real model. Nothing is timed: what must come about is waited for. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "base/io/file.h"
#include "tests/proc/rig.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MODEL "models/muster-tiny-q8_0.gguf"
#define BEGIN "{\"instance\":\""
#define ANSWERS 150 /* enough for one in a hundred to show */

static char state_dir[128], config_path[160], router_at[32], controller_at[32];
static uint16_t router_port, controller_port;

/* What `muster get instances NAME -o json` says of the only instance of `service`: its own object. */
static void instance_of(const char *service, struct buf *ret)
{
    CLEANUP(buf_fini) struct buf all = { 0 };
    char name[64];
    const char *args[] = { "get", "instances", "--state", state_dir, "-o", "json", NULL };
    buf_clear(ret);
    buf_text(ret, "");
    if (rig_run(&all, args) != 0) return;
    snprintf(name, sizeof name, "\"service\":\"%s\"", service);
    const char *at = strstr(all.data, name);
    if (!at) return;
    const char *end = strstr(at, BEGIN); /* of the next one */
    while (strncmp(at, BEGIN, strlen(BEGIN)) != 0)
        at--; /* its name stands before its service's, within the list */
    buf_append(ret, at, end ? (size_t)(end - at) : strlen(at));
    buf_byte(ret, 0);
}

static void await(const char *service, const char *says, struct buf *ret)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    do {
        instance_of(service, ret);
        if (ret->data && strstr(ret->data, says)) return;
        usleep(100000);
    } while (clock_mono_us() < until_us);
    fail_msg("%s never said '%s': %s", service, says, ret->data ? ret->data : "");
}

static double number(const struct buf *text, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(text->data, name);
    if (!at) fail_msg("no %s in %s", key, text->data);
    return strtod(at + strlen(name), NULL);
}

static void ask(const char *service, struct buf *reply)
{
    char body[256];
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"The moon is\",\"max_tokens\":4,\"temperature\":0,"
             "\"ignore_eos\":true}",
             service);
    assert_int_equal(rig_call(router_port, "/v1/completions", body, reply), 200);
}

/* The words of an answer. */
static void words_of(const struct buf *reply, char *ret, size_t size)
{
    const char *at = strstr(reply->data, "\"text\":\"");
    assert_non_null(at);
    at += strlen("\"text\":\"");
    snprintf(ret, size, "%.*s", (int)strcspn(at, "\""), at);
    assert_true(ret[0] != 0);
}

static int write_config(void)
{
    static const char *const rows[][2] = { { "lazy", "power: mu_serve" },
                                           { "full", "power: max" },
                                           { "capped", "power: polca, row_watts: 1" } };
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text, "controller: { tick: 200ms }\n"
                    "local:\n"
                    "  cores: 1\n"
                    "  offers: [ { name: bit, share: 0.3, price_per_hour: 0.1 } ]\n"
                    "services:\n");
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        buf_printf(&text,
                   "  - { name: %s, %s, model: " MODEL ", slo_ttft: 60s, slo_tpot: 20s,\n"
                   "      engine_flags: [--threads, '1', --max-num-seqs, '4'],\n"
                   "      pools: [ { name: only, offers: [bit], min: 1, max: 1 } ] }\n",
                   rows[i][0], rows[i][1]);
    return file_write_atomic(config_path, buf_view(&text), 0600, NULL);
}

static int make_fleet(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    router_port = rig_port();
    controller_port = rig_port();
    snprintf(router_at, sizeof router_at, "127.0.0.1:%u", router_port);
    snprintf(controller_at, sizeof controller_at, "127.0.0.1:%u", controller_port);
    snprintf(state_dir, sizeof state_dir, "%s/state", rig_folder());
    snprintf(config_path, sizeof config_path, "%s/muster.yaml", rig_folder());
    const char *args[] = { "up",       "-f",      config_path,           "--state",     state_dir,
                           "--listen", router_at, "--controller-listen", controller_at, NULL };
    if (write_config() < 0 || rig_run(&out, args) != 0) {
        fprintf(stderr, "%s\n", out.data ? out.data : "");
        return -1;
    }
    return 0;
}

static int end_fleet(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    const char *args[] = { "down", "--state", state_dir, "--now", NULL };
    return rig_run(&out, args) == 0 ? 0 : -1;
}

/* A breaker of a watt is overdrawn by an idle machine: the brake, and it holds for an engine that
 * starts again; answers are the same as at the full clock. */
static void a_cap_is_kept_by_the_engine_that_is_there(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 }, slow = { 0 }, full = { 0 };
    char path[256], words[2][256];
    await("full", "\"clock\":1,", &text);
    await("capped", "\"clock\":0.2,", &text);
    assert_true(number(&text, "watts") > 1);
    ask("capped", &slow);
    ask("full", &full);
    words_of(&slow, words[0], sizeof words[0]);
    words_of(&full, words[1], sizeof words[1]);
    assert_string_equal(words[0], words[1]);
    assert_true(rig_metric(controller_port, "muster_controller_breaker_trips_total") >= 1);

    const char *name = text.data + strlen(BEGIN);
    snprintf(path, sizeof path, "%s/instances/%.*s/engine.id", state_dir, (int)strcspn(name, "\""),
             name);
    CLEANUP(buf_fini) struct buf id = { 0 };
    assert_int_equal(file_read(path, 256, &id, NULL), 0);
    buf_byte(&id, 0);
    long pid = 0;
    assert_int_equal(sscanf(id.data, "pid %ld", &pid), 1);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    await("capped", "\"restarts\":1,", &text);
    await("capped", "\"clock\":0.2,", &text);
}

/* Light load and much slack: a rung down, then another; beside it the full clock stays. */
static void slack_lowers_the_clock(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    for (int i = 0; i < ANSWERS; i++)
        ask("lazy", &text);
    await("lazy", "\"clock\":0.9", &text); /* 0.95, or further down by now */
    double clock = number(&text, "clock");
    assert_true(clock >= 0.9 && clock < 0.96);
    assert_true(number(&text, "watts") > 0);
    await("full", "\"clock\":1,", &text);

    const char *args[] = { "get", "instances", "--state", state_dir, NULL };
    assert_int_equal(rig_run(&text, args), 0);
    assert_non_null(strstr(text.data, "CLOCK"));
    const char *services[] = {
        "get", "services", "lazy", "--state", state_dir, "-o", "json", NULL
    };
    assert_int_equal(rig_run(&text, services), 0);
    assert_non_null(strstr(text.data, "\"power\":\"mu_serve\""));
    assert_non_null(strstr(text.data, "\"unmodelled\":0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cap_is_kept_by_the_engine_that_is_there),
        cmocka_unit_test(slack_lowers_the_clock),
    };
    return rig_end(cmocka_run_group_tests(tests, make_fleet, end_fleet));
}
