/* t_up.c - runs a fleet through all its commands, from up to down; nothing is left behind.
 *
 * Real binary, real model, free ports, a state directory of its own. The commands print into a file, as
 * into a pipe. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/up_rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define QUESTION "What is the moon?"

static void write_config(const char *more)
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
    buf_byte(&text, 0);
    places_config(text.data);
}

static int make_fleet(void **state)
{
    places_make(state);
    write_config("");
    return 0;
}

/* Ends all processes of the fleet, however the test ended. */
static int end_fleet(void **state)
{
    return places_end(state) == 0 && rig_count(NULL) == 0 ? 0 : -1;
}

static void up(void)
{
    WANT(0, "API", UP);
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
    WANT(0, "SHAPER", "get", "services", STATE, "-o", "wide");
    WANT(0, "- service: tiny\n", "get", "services", STATE, "-o", "yaml");
    WANT(0, "DIGEST", "get", "instances", STATE, "-o", "wide");
    WANT(0, "DIGEST", "status", STATE, "-o", "wide");
    WANT(0, "observed: true\n", "status", STATE, "-o", "yaml");
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

/* Asks the router; `key` NULL: without one. */
static void ask(const char *key, int status, const char *says)
{
    char url[64];
    snprintf(url, sizeof url, "http://%s", places.router_at);
    if (key)
        WANT(status, says, "chat", "--url", url, "--api-key", key, "--max-tokens", "8", QUESTION);
    else
        WANT(status, says, "chat", "--url", url, "--max-tokens", "8", QUESTION);
}

/* Makes a tenant and reads its key from the JSON. */
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
    while (rig_call(places.router_port, "/v1/models", NULL, NULL) != 401)
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
    WANT(0, "already runs", "up", "-f", places.config, STATE);
    ask(NULL, 0, "generated");
    look();
    order();
    use_keys();
    WANT(1, "send the fleet's secret", "status", "--controller", places.controller_at, "--state",
         "/nonexistent");
    WANT(0, "is down", "down", STATE);
    assert_int_equal(rig_count(NULL), 0);
    WANT(0, "Nothing of", "down", STATE);
    WANT(1, "no controller answers", "status", "--controller", places.controller_at);

    up(); /* removes the counts of 0 that down has set; the fleet's records are still there */
    WANT(0, "launch ", "explain", "1", STATE);
    AWAIT("\"manual\":null", "get", "pools", STATE, "-o", "json");
    WANT(0, "is down", "down", "--now", STATE);
    assert_int_equal(rig_count(NULL), 0);
}

/* An up that finds a port in use tells the reason and leaves nothing behind. */
static void a_failed_up_takes_itself_back(void **state)
{
    (void)state;
    up();
    char other[160];
    snprintf(other, sizeof other, "%s/other", rig_folder());
    WANT(1, "name another place with --controller-listen", "up", "-f", places.config, "--state",
         other, "--controller-listen", places.controller_at);
    char free_at[32], free_router_at[32];
    snprintf(free_at, sizeof free_at, "127.0.0.1:%u", rig_port());
    snprintf(free_router_at, sizeof free_router_at, "127.0.0.1:%u", rig_port());
    WANT(1, "name another place with --listen", "up", "-f", places.config, "--state", other,
         "--controller-listen", free_at, "--listen", places.router_at);
    write_config("router: { record: /nonexistent/record }\n"); /* found by the router, not before */
    WANT(1, "muster router has ended", "up", "-f", places.config, "--state", other,
         "--controller-listen", free_at, "--listen", free_router_at);
    WANT(1, "no controller answers", "status", "--state", other, "--controller", free_at);
    WANT(0, "Nothing of", "down", "--state", other);
    WANT(0, "is down", "down", STATE);
}

static void run_talks_and_cleans_up(void **state)
{
    (void)state;
    WANT(0, "generated", "run", MODEL, "--max-tokens", "8", "What is the sun?");
    WANT(1, "the engine has ended", "run", places.config, "What?");
    assert_int_equal(rig_count(NULL), 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_command_to_the_other, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(a_failed_up_takes_itself_back, make_fleet, end_fleet),
        cmocka_unit_test_setup_teardown(run_talks_and_cleans_up, make_fleet, end_fleet),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
