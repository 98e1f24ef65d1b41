/* t_date.c - steps the machine's date and stops parts for a while: no instance ends, no output
 * is cut, no time is billed twice.
 *
 * One fleet of three instances, of which at least two are idle at any moment, and a client that
 * asks for one stream after another. A library that is preloaded into every process of the fleet
 * moves the date (step_date.c). */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/fleet_rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define INSTANCES 3
#define PRICE_H 3600.0 /* dollars: one a second, so that a wrong second is seen */
#define SILENT_S 10    /* the controller's limit for instances without a router's requests */
#define PAUSE_S (SILENT_S + 8)

static char date_file[RIG_PATH];
static struct proc_id agents[INSTANCES], engines[INSTANCES];
static int64_t opened_us;

/* ---- the client ---- */

static atomic_bool client_stops;
static atomic_uint client_whole, client_cut;
#define TAIL 600 /* last bytes of a reply that was cut: they show the error */
static char client_says[TAIL + 32];
static pthread_t client;

static void *ask(void *arg)
{
    (void)arg;
    while (!client_stops) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        int status = rig_call(router.port, "/v1/completions",
                              "{\"prompt\":\"the king of the house\",\"max_tokens\":40,"
                              "\"ignore_eos\":true,\"stream\":true}",
                              &reply);
        bool whole =
            status == 200 && strstr(reply.data, "[DONE]") && !strstr(reply.data, "\"error\":");
        if (whole)
            client_whole++;
        else if (client_cut++ == 0) {
            size_t tail = reply.len > TAIL ? reply.len - TAIL : 0;
            snprintf(client_says, sizeof client_says, "%d ... %s", status,
                     reply.len ? reply.data + tail : "");
        }
    }
    return NULL;
}

static void begin_client(void)
{
    client_stops = false;
    client_whole = client_cut = 0;
    assert_int_equal(pthread_create(&client, NULL, ask, NULL), 0);
}

static void end_client(void)
{
    client_stops = true;
    pthread_join(client, NULL);
    if (client_cut) fail_msg("%u answers cut: %s", client_cut, client_says);
    assert_true(client_whole > 0);
}

/* ---- checks that nothing has changed ---- */

static double ticks(void)
{
    return rig_metric(controller.port, "muster_controller_tick_seconds_count");
}

static bool ticked(void *arg)
{
    return ticks() >= *(const double *)arg;
}

static void wait_ticks(uint32_t count)
{
    double goal = ticks() + count;
    rig_wait(ticked, &goal, "the controller ticks");
}

static void expect_the_same_instances(void)
{
    struct proc_id now[INSTANCES];
    fleet_ids("agent.lock", now, INSTANCES); /* fails when there are more or fewer */
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert_true(proc_id_eq(&agents[i], &now[i]) && proc_is_alive(&now[i]));
    fleet_ids("engine.id", now, INSTANCES);
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert_true(proc_id_eq(&engines[i], &now[i]) && proc_is_alive(&now[i]));
    assert_int_equal(rig_count("agent"), INSTANCES);
    assert_int_equal(rig_count("engine"), INSTANCES);
}

/* Checks the bill: a dollar a second for each instance, at most since the fleet was opened. */
static void expect_the_bill(void)
{
    double most = (double)(clock_mono_us() - opened_us) / 1e6 * INSTANCES;
    double billed = rig_metric(controller.port, "muster_controller_cost_dollars");
    if (billed <= 0 || billed > most) fail_msg("%g dollars, at most %g", billed, most);
}

/* ---- tests ---- */

static void step_date(int64_t seconds)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)seconds);
    assert_int_equal(file_write_atomic(date_file, str_from(text), 0600, NULL), 0);
}

static bool steps_are(void *arg)
{
    return rig_metric(controller.port, "muster_controller_date_steps_total") ==
           *(const double *)arg;
}

static void a_step_of_the_date_moves_nothing(void **state)
{
    (void)state;
    static const int64_t date_s[] = { 1200, 2400, 3600 + 2400, 2400, -1200, 0 };
    begin_client();
    for (size_t i = 0; i < COUNT_OF(date_s); i++) {
        double steps = (double)(i + 1);
        step_date(date_s[i]);
        rig_wait(steps_are, &steps, "the step is seen");
        wait_ticks(12);
        expect_the_same_instances();
        expect_the_bill();
    }
    end_client();
}

/* A controller that starts at another date continues to count time where the last one stopped. */
static void a_restart_at_another_date_goes_on(void **state)
{
    (void)state;
    begin_client();
    step_date(7200);
    rig_kill(&controller);
    fleet_start_controller();
    fleet_wait(INSTANCES);
    wait_ticks(12);
    step_date(0);
    wait_ticks(12);
    end_client();
    expect_the_same_instances();
    expect_the_bill();
}

static void signal_all(const struct proc_id *ids, uint32_t count, int signo)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(proc_signal(&ids[i], signo, NULL), 0);
}

static bool a_router_is_heard(void *arg)
{
    (void)arg;
    return rig_metric(controller.port, "muster_controller_routers{state=\"fresh\"}") == 1;
}

/* The controller is stopped for longer than instances may be silent, and then hears the router before it
 * hears the agents. */
static void a_stopped_controller_takes_nobody_for_dead(void **state)
{
    (void)state;
    begin_client();
    signal_all(&controller.proc.id, 1, SIGSTOP);
    signal_all(agents, INSTANCES, SIGSTOP);
    sleep(PAUSE_S); /* the fault itself */
    signal_all(&controller.proc.id, 1, SIGCONT);
    rig_wait(a_router_is_heard, NULL, "the router is heard");
    wait_ticks(10);
    expect_the_same_instances();
    signal_all(agents, INSTANCES, SIGCONT);
    fleet_wait(INSTANCES);
    wait_ticks(10);
    end_client();
    expect_the_same_instances();
    expect_the_bill();
    assert_true(rig_metric(controller.port, "muster_controller_late_ticks_total") >= 1);
}

static int open_fleet(void **state)
{
    (void)state;
    char text[8];
    rig_file(date_file, "date", "0");
    snprintf(text, sizeof text, "%ds", SILENT_S);
    setenv("MUSTER_CONTROLLER_SILENT", text, 1);
    setenv("DATE_STEP", date_file, 1);
    setenv("LD_PRELOAD", getenv("DATE_STEP_LIB"), 1);
    opened_us = clock_mono_us();
    CLEANUP(buf_fini) struct buf yaml = { 0 };
    buf_printf(&yaml,
               "local:\n"
               "  cores: 1\n"
               "  offers: [ { name: bit, share: 0.3, price_per_hour: %g, launch_delay: 100ms } ]\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    engine_flags: [\"--threads\", \"1\", \"--max-num-seqs\", \"4\"]\n"
               "    pools: [ { name: only, offers: [bit], max: %d } ]\n",
               PRICE_H, INSTANCES);
    buf_byte(&yaml, 0);
    fleet_open("200ms", yaml.data);
    fleet_scale(INSTANCES);
    fleet_wait(INSTANCES);
    fleet_ids("agent.lock", agents, INSTANCES);
    fleet_ids("engine.id", engines, INSTANCES);
    return 0;
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "DATE_STEP_LIB", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_the_date_moves_nothing),
        cmocka_unit_test(a_restart_at_another_date_goes_on),
        cmocka_unit_test(a_stopped_controller_takes_nobody_for_dead),
    };
    return rig_end(cmocka_run_group_tests(tests, open_fleet, NULL));
}
