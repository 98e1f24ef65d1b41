/* t_gpu_fleet.c - GPUs fail under a fleet: a fault of the program costs an engine's restart, one of the memory a
 * machine once another serves, and a lost GPU its machine at once.
 *
 * Real controller, router, agents and engines with the shipped model; the agents' NVIDIA library is a stand-in,
 * opened as the real one is, which says what this test writes. Each line of faults names the instance that it is
 * for. */
#include "base/core/own.h"
#include "tests/proc/rig/fleet_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANCES "/api/v1/instances"
#define FAULTS(code) ((char[]){ "muster_controller_gpu_faults_total{code=\"" code "\"}" })
#define RESTARTS \
    ((char[]){ "muster_controller_engine_restarts_total{service=\"tiny\",pool=\"only\"}" })

static char xids[1024];

static void tell(const char *instance, uint32_t xid)
{
    char path[RIG_PATH];
    size_t len = strlen(xids);
    snprintf(xids + len, sizeof xids - len, "%s 0 %u\n", instance, xid);
    rig_file(path, "nvml.xids", xids);
}

/* Copies the id of the only instance. */
static void the_instance(char ret[32])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(rig_call(controller.port, INSTANCES, NULL, &text), 200);
    const char *at = strstr(text.data, "\"instance\":\"");
    assert_non_null(at);
    at += strlen("\"instance\":\"");
    snprintf(ret, 32, "%.*s", (int)strcspn(at, "\""), at);
}

static bool shows(const char *path, const char *what)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    return rig_call(controller.port, path, NULL, &text) == 200 && strstr(text.data, what);
}

static bool has_gpu(void *arg)
{
    (void)arg;
    return shows(INSTANCES, "1 x NVIDIA H100 80GB HBM3");
}

static bool is_counted(void *arg)
{
    return rig_metric(controller.port, arg) >= 1;
}

/* Returns true if one instance serves, and it is another than `arg`. */
static bool is_replaced(void *arg)
{
    return fleet_is_at(1) && !shows(INSTANCES, arg);
}

/* Runs a command of the fleet's and requires a part of its output. */
static void expect(const char *command, const char *what, const char *option, const char *says)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(rig_run(&out, ARGS(command, "--controller", controller.at, "--state",
                                        fleet_state, what, option)),
                     0);
    if (!strstr(out.data, says)) fail_msg("%s: no '%s' in: %s", command, says, out.data);
}

static void gpus_that_fail_are_survived(void **state)
{
    (void)state;
    char first[32], second[32], path[RIG_PATH], libraries[RIG_PATH];
    rig_file(path, "nvml.gpus", "NVIDIA H100 80GB HBM3|GPU-11aa22bb|81559|0\n");
    rig_file(path, "nvml.xids", "");
    rig_file(path, "nvml.state", "0 ecc 0\n0 used 40000\n0 busy 12\n0 celsius 55\n0 watts 240\n");
    snprintf(libraries, sizeof libraries, "%s/new", getenv("FAKE_NVML_LIBS"));
    setenv("LD_LIBRARY_PATH", libraries, 1);
    setenv("FAKE_NVML", rig_folder(), 1);
    setenv("MUSTER_AGENT_BACK_OFF_MIN", "100ms", 1);
    rig_hurry_agents();
    fleet_open("200ms",
               "router: { sync: 200ms }\n"
               "local:\n"
               "  poll: 200ms\n"
               "  offers: [ { name: third, share: 0.33, price_per_hour: 1, max_num_seqs: 4 } ]\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    engine_flags: ['--max-num-seqs', '4', '--threads', '1']\n"
               "    pools: [ { name: only, offers: [third], min: 1, max: 1 } ]\n");
    fleet_wait(1);
    rig_wait(has_gpu, NULL, "the agent reports its GPU");
    the_instance(first);

    tell(first, 13);
    rig_wait(is_counted, RESTARTS, "the engine is started again");
    rig_wait(is_counted, FAULTS("xid_13"), "the fault is counted");
    fleet_wait(1);
    assert_true(shows(INSTANCES, first)); /* the machine stays */

    tell(first, 48);
    rig_wait(is_replaced, first, "another serves in its place");
    assert_true(
        shows("/api/v1/events", "its machine is failing and has been replaced: GPU 0: Xid 48"));
    assert_true(shows("/api/v1/events", "\"what\":\"machine_failing\""));
    the_instance(second);
    expect("explain", "--last", "40", "its machine is failing and has been replaced");
    expect("get", "instances", "--output=wide", "1 x NVIDIA H100 80GB HBM3");

    tell(second, 79);
    rig_wait(is_replaced, second, "a third serves");
    assert_true(shows("/api/v1/events", "its machine is broken: GPU 0: Xid 79, it has fallen off"));
    assert_true(rig_metric(controller.port, FAULTS("xid_79")) == 1);
    assert_true(rig_metric(controller.port, FAULTS("xid_13")) == 1);
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_NVML_LIBS", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = { cmocka_unit_test(gpus_that_fail_are_survived) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
