/* t_restart.c - shows that routers keep their endpoints when the controller starts again. Until it has heard
 * all agents, an endpoint that it does not name stays; a stored record that it cannot read stops nothing
 * else.
 *
 * A router has two real instances; in the first test their agents are stopped, so that the new controller
 * hears only the router. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/store/store.h"
#include "tests/proc/rig/fleet_rig.h"

#include <signal.h>
#include <stdio.h>

#define INSTANCES 2
#define LOG_BYTES_MAX ((size_t)16 << 20)

static void signal_agents(const struct proc_id *ids, int signo)
{
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert_int_equal(proc_signal(&ids[i], signo, NULL), 0);
}

static uint32_t lines_with(const char *log, const char *word)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint32_t count = 0;
    assert_int_equal(file_read(log, LOG_BYTES_MAX, &text, NULL), 0);
    buf_byte(&text, 0);
    for (const char *at = text.data; (at = strstr(at, word)); at++)
        count++;
    return count;
}

static bool status_has(const char *text)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    return rig_call(controller.port, "/api/v1/status", NULL, &reply) == 200 &&
           strstr(reply.data, text);
}

static bool is_complete(void *arg)
{
    (void)arg;
    return status_has("\"complete\":true");
}

static double syncs(void)
{
    return rig_metric(controller.port, "muster_controller_router_syncs_total");
}

static bool synced(void *arg)
{
    return syncs() >= *(const double *)arg;
}

static void expect_answer(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int status = rig_call(router.port, "/v1/completions",
                          "{\"prompt\":\"a\",\"max_tokens\":4,\"ignore_eos\":true}", &reply);
    if (status != 200) fail_msg("%d %s", status, reply.len ? reply.data : "");
}

static void agents_that_are_not_heard_go_on_being_routed_to(void **state)
{
    (void)state;
    struct proc_id agents[INSTANCES], engines[INSTANCES], after[INSTANCES];
    fleet_ids("agent.lock", agents, INSTANCES);
    fleet_ids("engine.id", engines, INSTANCES);
    assert_true(is_complete(NULL));
    for (uint32_t i = 0; i < 4; i++)
        expect_answer(); /* fills the router's index with blocks */
    double blocks = rig_metric(router.port, "muster_router_index_blocks");
    signal_agents(agents, SIGSTOP);
    rig_kill(&controller);
    fleet_start_controller();
    double goal = syncs() + 6;
    rig_wait(synced, &goal, "the router has asked the new controller");
    assert_true(status_has("\"complete\":false"));
    assert_true(rig_metric(router.port, "muster_router_endpoints") == INSTANCES);
    assert_true(rig_metric(router.port, "muster_router_endpoints_unnamed") == INSTANCES);
    assert_true(rig_metric(router.port, "muster_router_index_blocks") >= blocks);
    expect_answer();
    signal_agents(agents, SIGCONT);
    rig_wait(is_complete, NULL, "everybody was heard");
    fleet_wait(INSTANCES);
    goal = syncs() + 2;
    rig_wait(synced, &goal, "the router has the complete list");
    assert_true(rig_metric(router.port, "muster_router_endpoints_unnamed") == 0);
    assert_int_equal(lines_with(router.log, "endpoint_gone"), 0);
    expect_answer();
    fleet_ids("engine.id", after, INSTANCES);
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert_true(proc_id_eq(&engines[i], &after[i]));
}

/* An agent that adopts an engine knows nothing about it until its first probe succeeds: its reports before
 * that take no endpoint away. */
static void an_agent_that_starts_again_takes_no_endpoint(void **state)
{
    (void)state;
    struct proc_id agents[INSTANCES];
    for (uint32_t i = 0; i < 3; i++) {
        fleet_ids("agent.lock", agents, INSTANCES);
        struct fleet_successor next = { "agent.lock", agents[0] };
        assert_int_equal(proc_signal(&agents[0], SIGKILL, NULL), 0);
        rig_wait(fleet_has_successor, &next, "another agent comes");
        fleet_wait(INSTANCES);
        double goal = syncs() + 4;
        rig_wait(synced, &goal, "the router has asked since");
    }
    assert_int_equal(lines_with(router.log, "endpoint_gone"), 0);
    expect_answer();
}

static bool one_is_gone(void *arg)
{
    (void)arg;
    return lines_with(router.log, "endpoint_gone") == 1;
}

static int put_newer(struct store *s, struct str key)
{
    uint64_t version;
    return store_put_if(s, key, STR("{\"v\":2}"), STORE_ANY, &version, NULL);
}

static int take_key(void *key, const struct store_entry *e)
{
    return buf_str(key, e->key);
}

static void damage(void)
{
    CLEANUP(buf_fini) struct buf key = { 0 };
    char path[256];
    struct store *s = NULL;
    struct err err = { 0 };
    snprintf(path, sizeof path, "%s/muster.db", fleet_state);
    if (store_file_open(path, 0, &s, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(store_list(s, STR("intent/"), take_key, &key, NULL), 0);
    assert_int_equal(put_newer(s, buf_view(&key)), 0); /* the only intent's key */
    store_close(s);
    snprintf(path, sizeof path, "%s/instances/i-000000000bad", fleet_state);
    assert_int_equal(file_make_folders(path, 0700, NULL), 0);
    snprintf(path, sizeof path, "%s/instances/i-000000000bad/spec.json", fleet_state);
    assert_int_equal(file_write_atomic(path, STR("{\"v\":2}"), 0600, NULL), 0);
}

/* Returns true once the controller's status names both unreadable records, from its first listing on. */
static bool is_named(void *arg)
{
    (void)arg;
    return status_has("\"intent/i-") && status_has("\"instance/i-000000000bad\"");
}

/* A controller starts on a store with unreadable records, keeps them, and goes on with the rest: the
 * instance serves, and the fleet can grow. */
static void unreadable_records_stop_nothing_else(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf health = { 0 };
    struct proc_id engine, after[3];
    fleet_ids("engine.id", &engine, 1);
    rig_kill(&controller);
    damage();
    fleet_start_controller();
    fleet_wait(1);
    assert_int_equal(rig_call(controller.port, "/health", NULL, &health), 200);
    assert_non_null(strstr(health.data, "\"degraded\""));
    rig_wait(is_named, NULL, "the controller to name the records that it cannot read");
    assert_true(rig_metric(controller.port, "muster_controller_unreadable_records") == 2);
    expect_answer();
    fleet_scale(2);
    fleet_wait(2);
    expect_answer();
    fleet_ids("engine.id", after, 3); /* the unreadable folder is still there */
    uint32_t same = 0;
    for (uint32_t i = 0; i < 3; i++)
        same += proc_id_eq(&after[i], &engine) && proc_is_alive(&engine);
    assert_int_equal(same, 1);
}

/* An instance that has really ended is gone from a complete list, and from the router. */
static void what_ends_is_gone(void **state)
{
    (void)state;
    fleet_scale(1);
    fleet_wait(1);
    rig_wait(one_is_gone, NULL, "the router drops it"); /* after its drain */
    assert_true(rig_metric(router.port, "muster_router_endpoints") == 1);
    expect_answer();
}

static int open_fleet(void **state)
{
    (void)state;
    fleet_open("200ms",
               "local:\n"
               "  cores: 1\n"
               "  offers: [ { name: bit, share: 0.3, price_per_hour: 1, launch_delay: 100ms } ]\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    engine_flags: [\"--threads\", \"1\", \"--max-num-seqs\", \"4\"]\n"
               "    pools: [ { name: only, offers: [bit], max: 2 } ]\n");
    fleet_scale(INSTANCES);
    fleet_wait(INSTANCES);
    return 0;
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_that_are_not_heard_go_on_being_routed_to),
        cmocka_unit_test(an_agent_that_starts_again_takes_no_endpoint),
        cmocka_unit_test(what_ends_is_gone),
        cmocka_unit_test(unreadable_records_stop_nothing_else),
    };
    return rig_end(cmocka_run_group_tests(tests, open_fleet, NULL));
}
