/* t_up.c - a fleet from one command to the other: up, look, ask, order, down; nothing is left.
 *
 * Real binary, real model, free ports, a state directory of its own. What a command prints is read
 * back from a file, as a person's pipe would. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "base/io/file.h"
#include "tests/proc/rig.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MODEL "models/muster-tiny-q8_0.gguf"
#define QUESTION "What is the moon?"

static char state_dir[128], config_path[160], router_at[32], controller_at[32];
static uint16_t router_port, controller_port;

#define MUSTER(out, ...) rig_run(out, (const char *const[]){ __VA_ARGS__, NULL })
#define STATE "--state", state_dir

/* Runs it and wants the exit status and a part of what it says. */
#define WANT(status, says, ...) want(status, says, (const char *const[]){ __VA_ARGS__, NULL })
static void want(int status, const char *says, const char *const *args)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    int got = rig_run(&out, args);
    if (got != status || !strstr(out.data, says))
        fail_msg("muster %s %s: exit %d, want %d and '%s':\n%s", args[0], args[1] ? args[1] : "",
                 got, status, says, out.data);
}

/* Polls a command until it says something. */
#define AWAIT(says, ...) await(says, (const char *const[]){ __VA_ARGS__, NULL })
static void await(const char *says, const char *const *args)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    do {
        if (rig_run(&out, args) == 0 && strstr(out.data, says)) return;
        usleep(100000);
    } while (clock_mono_us() < until_us);
    fail_msg("muster %s %s never said '%s':\n%s", args[0], args[1], says, out.data);
}

/* Living processes whose command line names our folder. */
static uint32_t processes_left(void)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        CLEANUP(buf_fini) struct buf line = { 0 };
        char path[64];
        if (e->d_name[0] < '1' || e->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%.20s/cmdline", e->d_name);
        if (file_read(path, 1 << 20, &line, NULL) < 0) continue;
        count += str_find(buf_view(&line), str_from(rig_folder())) != SIZE_MAX;
    }
    closedir(dir);
    return count;
}

static int write_config(const char *more)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(&text,
               "controller: { tick: 200ms, require_secret: true }\n"
               "%slocal:\n"
               "  cores: 1\n"
               "  offers: [ { name: bit, share: 0.3, price_per_hour: 0.1, launch_delay: 100ms } ]\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    stabilisation: 1s\n"
               "    engine_flags: [\"--threads\", \"1\", \"--max-num-seqs\", \"4\"]\n"
               "    pools: [ { name: only, offers: [bit], min: 1, max: 2 } ]\n",
               more);
    return file_write_atomic(config_path, buf_view(&text), 0600, NULL);
}

static int make_fleet(void **state)
{
    (void)state;
    router_port = rig_port();
    controller_port = rig_port();
    snprintf(router_at, sizeof router_at, "127.0.0.1:%u", router_port);
    snprintf(controller_at, sizeof controller_at, "127.0.0.1:%u", controller_port);
    snprintf(state_dir, sizeof state_dir, "%s/state", rig_folder());
    snprintf(config_path, sizeof config_path, "%s/muster.yaml", rig_folder());
    return write_config("");
}

/* However a test ends: nothing of it runs on. */
static int end_fleet(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    return MUSTER(&out, "down", STATE, "--now") == 0 && processes_left() == 0 ? 0 : -1;
}

static void up(void)
{
    WANT(0, "API", "up", "-f", config_path, STATE, "--listen", router_at, "--controller-listen",
         controller_at);
}

static void look(void)
{
    static const char *const kinds[] = { "services", "pools",   "instances", "intents",
                                         "offers",   "tenants", "decisions" };
    WANT(0, "tiny", "status", STATE);
    WANT(0, "\"uptime_s\":", "status", STATE, "-o", "json");
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        WANT(0, "[", "get", kinds[i], STATE, "-o", "json");
    AWAIT("\"owed_prompt_tokens\":0", "get", "instances", STATE, "-o", "json");
    WANT(0, "\"step_tokens\":256", "get", "instances", STATE, "-o", "json");
    AWAIT("\"expected\":{\"count\":1,", "get", "services", STATE, "-o", "json");
    AWAIT("\"policy_lacks\":null", "get", "services", STATE, "-o", "json");
    WANT(0, "READY", "get", "services", "tiny", STATE);
    WANT(0, "bit", "get", "offers", STATE);
    WANT(1, "no 'nobody' among the instances", "get", "instances", "nobody", STATE);
    WANT(2, "did you mean 'pools'?", "get", "poolz", STATE);
    WANT(0, "launch ", "explain", "1", STATE);
    WANT(0, "\"runner_up\":", "explain", STATE, "-o", "json");
    WANT(1, "no decision 999 is kept", "explain", "999", STATE);
}

static void order(void)
{
    WANT(0, "is paused", "pause", "tiny", STATE);
    WANT(0, "yes", "get", "services", STATE);
    WANT(0, "follows its load again", "resume", "tiny", STATE);
    WANT(1, "no service 'huge'", "pause", "huge", STATE);
    WANT(0, "is set to 2", "scale", "tiny", "2", STATE);
    AWAIT("\"ready\":2", "get", "services", STATE, "-o", "json");
    AWAIT("counts set by hand", "explain", STATE); /* two may have been there already */
    WANT(0, "follows its policy", "scale", "tiny/only", "auto", STATE);
    WANT(1, "no pool", "scale", "tiny/other", "1", STATE);
}

/* Asks the router; key NULL: without one. */
static void ask(const char *key, int status, const char *says)
{
    char url[64];
    snprintf(url, sizeof url, "http://%s", router_at);
    if (key)
        WANT(status, says, "chat", "--url", url, "--api-key", key, "--max-tokens", "8", QUESTION);
    else
        WANT(status, says, "chat", "--url", url, "--max-tokens", "8", QUESTION);
}

/* The key of a fresh tenant, out of the JSON. */
static void make_key(char ret[128])
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(
        MUSTER(&out, "keys", "create", "alice", "--concurrency", "3", STATE, "-o", "json"), 0);
    const char *at = strstr(out.data, "\"key\":\"");
    assert_non_null(at);
    snprintf(ret, 128, "%.*s", (int)strcspn(at + 7, "\""), at + 7);
}

static void use_keys(void)
{
    char key[128];
    make_key(key);
    WANT(1, "exists already", "keys", "create", "alice", STATE);
    WANT(0, "alice", "keys", "list", STATE);
    WANT(0, "\"concurrency\":3", "get", "tenants", "alice", STATE, "-o", "json");
    int64_t until_us = clock_mono_us() + RIG_WAIT_US; /* routers learn it with their next sync */
    while (rig_call(router_port, "/v1/models", NULL, NULL) != 401)
        if (clock_mono_us() > until_us) fail_msg("the router asks for no key");
    ask("wrong", 1, "muster chat:");
    ask(key, 0, "generated");
    WANT(0, "revoked", "keys", "revoke", "alice", STATE);
    WANT(1, "no tenant 'alice'", "keys", "revoke", "alice", STATE);
}

static void one_command_to_the_other(void **state)
{
    (void)state;
    up();
    WANT(0, "already runs", "up", "-f", config_path, STATE);
    ask(NULL, 0, "generated");
    look();
    order();
    use_keys();
    WANT(1, "send the fleet's secret", "status", "--controller", controller_at, "--state",
         "/nonexistent");
    WANT(0, "is down", "down", STATE);
    assert_int_equal(processes_left(), 0);
    WANT(0, "Nothing of", "down", STATE);
    WANT(1, "no controller answers", "status", "--controller", controller_at);

    up(); /* the zeros of down are given back, and what the fleet knows is still there */
    WANT(0, "launch ", "explain", "1", STATE);
    AWAIT("\"manual\":null", "get", "pools", STATE, "-o", "json");
    WANT(0, "is down", "down", "--now", STATE);
    assert_int_equal(processes_left(), 0);
}

/* A port that is taken: the reason is told, and nothing stays behind. */
static void a_failed_up_takes_itself_back(void **state)
{
    (void)state;
    up();
    char other[160];
    snprintf(other, sizeof other, "%s/other", rig_folder());
    WANT(1, "name another place with --controller-listen", "up", "-f", config_path, "--state",
         other, "--controller-listen", controller_at);
    char free_at[32], free_router_at[32];
    snprintf(free_at, sizeof free_at, "127.0.0.1:%u", rig_port());
    snprintf(free_router_at, sizeof free_router_at, "127.0.0.1:%u", rig_port());
    WANT(1, "name another place with --listen", "up", "-f", config_path, "--state", other,
         "--controller-listen", free_at, "--listen", router_at);
    write_config("router: { record: /nonexistent/record }\n"); /* found by the router, not before */
    WANT(1, "muster router has ended", "up", "-f", config_path, "--state", other,
         "--controller-listen", free_at, "--listen", free_router_at);
    WANT(1, "no controller answers", "status", "--state", other, "--controller", free_at);
    WANT(0, "Nothing of", "down", "--state", other);
    WANT(0, "is down", "down", STATE);
}

static void run_talks_and_cleans_up(void **state)
{
    (void)state;
    WANT(0, "generated", "run", MODEL, "--max-tokens", "8", "What is the sun?");
    WANT(1, "the engine has ended", "run", config_path, "What?");
    assert_int_equal(processes_left(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_command_to_the_other, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(a_failed_up_takes_itself_back, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(run_talks_and_cleans_up, make_fleet, end_fleet),
    };
    if (access(MODEL, R_OK) < 0) {
        printf("skipped: %s is not there\n", MODEL);
        return 77;
    }
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
