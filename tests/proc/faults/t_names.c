/* t_names.c - takes the resolver away from a fleet of parts that know each other by name.
 *
 * Each look-up then takes ten seconds and fails (slow_names.c). Agents do not take a silent resolver for a
 * sick engine, routers go on with the last good addresses, and no request waits for a name.
 */
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/fleet_rig.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT "/v1/completions"
#define ASK(model) "{\"model\":\"" model "\",\"prompt\":\"a\",\"max_tokens\":2}"
#define DOWN_US 8000000 /* four times the silence that the agent allows its engine */
#define LATE_US 5000000 /* half a look-up at the resolver that is gone */

static struct rig_process fake, named; /* a scripted engine, and a router that knows it by name */
static char down[128], seen[128];
static struct proc_id engine;

static void open_named_router(void)
{
    char engines[48], at[48];
    fake = rig_fake_engine(rig_port(), ARGS("--secret-file", fleet_secret));
    snprintf(engines, sizeof engines, "engine.test:%u", fake.port);
    snprintf(at, sizeof at, "controller.test:%u", controller.port);
    named = rig_server("router", rig_port(),
                       ARGS("--endpoints", engines, "--controller", at, "--secret-file",
                            fleet_secret, "--sync", "100ms", "--hold-max", "2s"));
    rig_wait_endpoints(&named, 1);
}

static int setup(void **state)
{
    (void)state;
    char reach[48];
    snprintf(down, sizeof down, "%s/down", rig_folder());
    snprintf(seen, sizeof seen, "%s/seen", rig_folder());
    setenv("LD_PRELOAD", getenv("SLOW_NAMES_LIB"), 1);
    setenv("SLOW_NAMES_DOWN", down, 1);
    setenv("SLOW_NAMES_SEEN", seen, 1);
    setenv("MUSTER_AGENT_SICK", "2s", 1);
    controller.port = rig_port();
    snprintf(reach, sizeof reach, "agents.test:%u", controller.port);
    setenv("MUSTER_CONTROLLER_AGENTS_REACH", reach, 1); /* and not among controller.hosts */
    fleet_open("200ms", FLEET_OF_THIRDS_WITH("", "1"));
    open_named_router();
    fleet_scale(1);
    fleet_wait(1); /* the agent has reached the controller by its name */
    fleet_ids("engine.id", &engine, 1);
    return 0;
}

static bool resolver_is_asked(void *arg)
{
    struct stat st;
    (void)arg;
    return stat(seen, &st) == 0 && st.st_size >= 2;
}

static bool agent_speaks(void *arg)
{
    (void)arg;
    return rig_number(controller.port, "/api/v1/instances", "report_age_s") == 0;
}

static bool named_is_answered(void *arg)
{
    (void)arg;
    return rig_call(named.port, TEXT, ASK("fake"), NULL) == 200;
}

static bool is_counted(void *arg)
{
    (void)arg;
    return rig_metric(named.port, "muster_router_name_lookups_failed_total") > 0 &&
           rig_metric(named.port, "muster_router_name_stale_total") > 0;
}

static void ask_in_time(const struct rig_process *r, const char *body)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int64_t from_us = clock_mono_us();
    int status = rig_call(r->port, TEXT, body, &reply);
    if (status != 200) fail_msg("status %d: %s", status, reply.len ? reply.data : "");
    if (clock_mono_us() - from_us > LATE_US) fail_msg("a request waited for the resolver");
}

/* The controller is gone as well, so that all parts that call it look its name up again. */
static void nothing_waits_for_a_resolver_that_is_gone(void **state)
{
    (void)state;
    struct proc_id now;
    char path[RIG_PATH];
    rig_file(path, "down", "");
    rig_kill(&controller);
    rig_wait(resolver_is_asked, NULL, "the agent and the router ask the resolver");
    int64_t until_us = clock_mono_us() + DOWN_US;
    while (clock_mono_us() < until_us) {
        ask_in_time(&router, ASK("tiny"));
        ask_in_time(&named, ASK("fake"));
        usleep(100000);
    }
    fleet_ids("engine.id", &now, 1);
    assert_true(proc_id_eq(&now, &engine) && proc_is_alive(&engine));
}

/* Engine and controller come back while their names cannot be resolved: they are reached at their last good
 * addresses. */
static void the_last_good_address_leads_to_who_comes_back(void **state)
{
    (void)state;
    rig_kill(&fake);
    assert_false(named_is_answered(NULL));
    fake = rig_fake_engine(fake.port, ARGS("--secret-file", fleet_secret));
    rig_wait(named_is_answered, NULL, "the engine that came back is found");
    fleet_start_controller();
    rig_wait(agent_speaks, NULL, "the agent finds the controller that came back");
    struct proc_id now;
    fleet_ids("engine.id", &now, 1);
    assert_true(proc_id_eq(&now, &engine) && proc_is_alive(&engine));
    assert_int_equal(rig_number(controller.port, "/api/v1/instances", "restarts"), 0);
    rig_wait(is_counted, NULL, "addresses that cannot be refreshed are counted");
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN", "SLOW_NAMES_LIB", MODEL)))
        return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_waits_for_a_resolver_that_is_gone),
        cmocka_unit_test(the_last_good_address_leads_to_who_comes_back),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
