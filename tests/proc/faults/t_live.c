/* t_live.c - shows when an agent kills its engine, in a fleet of one instance: when the engine's process is
 * stopped or its device hangs behind a loop that answers, and not when the agent itself was stopped.
 *
 * Real controller, router, agent and engine with the shipped model; the agent allows an engine two
 * seconds. A prompt of HANGS_AT tokens hangs the device of each engine that computes it.
 */
#include "base/core/own.h"
#include "tests/proc/rig/fleet_rig.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define TEXT "/v1/completions"
#define HANGS_AT 61
#define HANGS_AT_TEXT "device.hang_at_61:1"
#define STOPPED_US 5000000 /* more than twice the time that an engine may be silent */

static struct proc_id engine, agent;

static int setup(void **state)
{
    (void)state;
    setenv("MUSTER_AGENT_SICK", "2s", 1);
    fleet_open("200ms", FLEET_OF_THIRDS_WITH(", '--fault', '" HANGS_AT_TEXT "'", "1"));
    fleet_scale(1);
    fleet_wait(1);
    return 0;
}

static bool is_answered(void *arg)
{
    (void)arg;
    return rig_call(router.port, TEXT, "{\"prompt\":\"a\",\"max_tokens\":2}", NULL) == 200;
}

/* Returns true if the controller has a report of this second. */
static bool agent_speaks(void *arg)
{
    (void)arg;
    return rig_number(controller.port, "/api/v1/instances", "report_age_s") == 0;
}

/* An agent that wakes from a stop leaves its engine alone, although it has heard nothing for longer than an
 * engine may be silent. */
static void a_stopped_agent_takes_its_engine_for_well(void **state)
{
    (void)state;
    struct proc_id now;
    fleet_ids("engine.id", &engine, 1);
    fleet_ids("agent.lock", &agent, 1);
    assert_int_equal(proc_signal(&agent, SIGSTOP, NULL), 0);
    usleep(STOPPED_US);
    assert_false(agent_speaks(NULL));
    assert_true(is_answered(NULL));
    assert_int_equal(proc_signal(&agent, SIGCONT, NULL), 0);
    rig_wait(agent_speaks, NULL, "the agent speaks again");
    rig_wait(is_answered, NULL, "the engine serves");
    fleet_wait(1);
    fleet_ids("engine.id", &now, 1);
    assert_true(proc_id_eq(&now, &engine) && proc_is_alive(&engine));
    assert_int_equal(rig_number(controller.port, "/api/v1/instances", "restarts"), 0);
}

static void a_stopped_engine_is_killed_and_started_again(void **state)
{
    (void)state;
    fleet_ids("engine.id", &engine, 1);
    struct fleet_successor next = { "engine.id", engine };
    assert_int_equal(proc_signal(&engine, SIGSTOP, NULL), 0);
    rig_wait(fleet_has_successor, &next, "the agent starts another engine");
    rig_wait(is_answered, NULL, "the next engine serves");
    assert_false(proc_is_alive(&engine));
    fleet_wait(1);
}

/* The device hangs while the loop goes on answering. The engine reports the hang, the agent kills it, and
 * a request that has hung two engines is not tried again. */
static void a_hung_device_is_killed_and_its_request_tried_once_more(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    fleet_ids("engine.id", &engine, 1);
    int64_t restarts = rig_number(controller.port, "/api/v1/instances", "restarts");
    fleet_prompt(HANGS_AT, &body);
    int status = rig_call(router.port, TEXT, body.data, &reply);
    if (status != 422) fail_msg("%d %s", status, reply.len ? reply.data : "");
    struct fleet_successor next = { "engine.id", engine };
    rig_wait(fleet_has_successor, &next, "the agent starts another engine");
    rig_wait(is_answered, NULL, "the next engine serves");
    fleet_wait(1);
    rig_wait_number(controller.port, "/api/v1/instances", "restarts", restarts + 2);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_agent_takes_its_engine_for_well),
        cmocka_unit_test(a_stopped_engine_is_killed_and_started_again),
        cmocka_unit_test(a_hung_device_is_killed_and_its_request_tried_once_more),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
