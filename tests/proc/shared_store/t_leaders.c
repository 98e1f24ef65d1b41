/* t_leaders.c - takes the leading controller away, and Redis, while clients ask: another controller leads, the fleet
 * stays as it is, and no request fails.
 *
 * The lease is short, so that a fault outlasts it within seconds. With MUSTER_HOLD_S a stop lasts that long
 * (`./check --gates`: 30 s). */
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/shared_store/shared_rig.h"

#include <signal.h>

static struct redis_server redis;
static const char *const keeps_all[] = { "--appendonly", "yes", "--appendfsync", "always", NULL };

static void start_redis(const char *const *more)
{
    redis_start(&redis, rig_folder(), "redis", more);
    assert_true(redis_await(&redis, "PING", "PONG"));
}

static int setup(void **state)
{
    (void)state;
    static char url[128];
    start_redis(keeps_all);
    snprintf(url, sizeof url, "redis+unix://%s", redis.socket);
    shared_open(url);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shared_close();
    redis_remove(&redis);
    return 0;
}

/* ---- the leader ---- */

static void the_leader_is_stopped_and_returns(void **state)
{
    (void)state;
    shared_under("the leader stopped", shared_leader_stopped);
}

static void the_leader_is_killed(void **state)
{
    (void)state;
    shared_under("the leader killed", shared_leader_killed);
}

/* It gives the lease back: the other need not wait for its end. */
static void leaving(void)
{
    uint32_t leader = shared_leader(), other = 1 - leader;
    assert_int_equal(rig_stop(&shared_controller[leader]), 0);
    shared_wait_leader(other);
    shared_start_controller(leader);
    shared_wait_standby(leader);
}

static void the_leader_leaves(void **state)
{
    (void)state;
    shared_under("the leader leaves", leaving);
}

static void the_leader_is_stopped_in_the_middle_of_a_launch(void **state)
{
    (void)state;
    static const uint32_t after_us[] = { 0, 5000, 20000, 60000, 250000 };
    shared_leader_stopped_in_launches(after_us, COUNT_OF(after_us));
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(rig_call(shared_controller[shared_leader()].port, "/metrics", NULL, &reply),
                     200);
    assert_null(strstr(reply.data, "\nmuster_controller_duplicates_total 1"));
}

/* A controller that stands by takes no orders, and commands find the leader through it. */
static void commands_find_the_leader(void **state)
{
    (void)state;
    uint32_t other = 1 - shared_leader();
    CLEANUP(buf_fini) struct buf out = { 0 };
    char folder[160];
    snprintf(folder, sizeof folder, "%s/state", rig_folder());
    int rc = rig_run(&out, ARGS("get", "instances", "--controller", shared_controller[other].at,
                                "--state", folder));
    if (rc != 0 || !strstr(out.data, "registered")) {
        if (rc != 0 || !strstr(out.data, "tiny")) fail_msg("%d %s", rc, out.data);
    }
    assert_int_equal(rig_call(shared_controller[other].port, "/api/v1/status", NULL, &out), 503);
    assert_non_null(strstr(out.data, shared_controller[1 - other].at));
}

static bool has_slo(void *arg)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    return rig_call(shared_controller[*(const uint32_t *)arg].port, "/api/v1/config", NULL, &out) ==
               200 &&
           strstr(out.data, "\"slo_ttft\":\"3s\"");
}

static void expect_config(uint32_t index, const char *source, const char *slo)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(rig_call(shared_controller[index].port, "/api/v1/config", NULL, &out), 200);
    if (!strstr(out.data, source) || !strstr(out.data, slo)) fail_msg("%s", out.data);
}

/* An order to one leader holds under the next, whose file has another text: each has settings of its own. When
 * the file of one that leads says something else about the fleet, that holds. */
static void what_was_applied_outlives_its_leader(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char folder[160], next[RIG_PATH];
    uint32_t leader = shared_leader(), other = 1 - leader;
    snprintf(folder, sizeof folder, "%s/state", rig_folder());
    shared_write_config(next, "next.yaml", other, "slo_ttft: 9s");
    int rc = rig_run(&out, ARGS("apply", "--file", next, "--controller",
                                shared_controller[other].at, "--state", folder));
    if (rc != 0 || !strstr(out.data, "services[tiny].slo_ttft")) fail_msg("%d %s", rc, out.data);
    expect_config(leader, "\"source\":\"applied\"", "\"slo_ttft\":\"9s\"");
    assert_int_equal(rig_stop(&shared_controller[leader]), 0);
    shared_wait_leader(other);
    shared_wait_instances(SHARED_INSTANCES);
    expect_config(other, "\"source\":\"applied\"", "\"slo_ttft\":\"9s\"");
    shared_start_controller(leader);
    shared_wait_standby(leader);
    shared_write_config(next, other ? "muster-1.yaml" : "muster-0.yaml", other, "slo_ttft: 3s");
    rig_wait(has_slo, &other, "the changed file holds");
    expect_config(other, "\"source\":\"file\"", "\"slo_ttft\":\"3s\"");
}

/* While controllers have the folder, `muster gc` does not take it for one without. */
static void the_state_folder_is_not_free(void **state)
{
    (void)state;
    struct err err;
    char path[160];
    int fd;
    snprintf(path, sizeof path, "%s/state/muster.db.lock", rig_folder());
    assert_int_equal(file_lock(path, &fd, &err), -EBUSY);
}

/* ---- Redis ---- */

static void redis_dead(void)
{
    redis_kill(&redis);
    shared_wait_leader(2); /* both stand by, and requests go on */
    shared_wait_answers();
    start_redis(keeps_all);
}

static void redis_dies_and_returns(void **state)
{
    (void)state;
    shared_under("Redis killed", redis_dead);
}

static void redis_hanging(void)
{
    redis_signal(&redis, SIGSTOP);
    shared_wait_leader(2); /* each controller answers, though every call to Redis takes its bound */
    shared_hold(0);
    shared_wait_answers();
    redis_signal(&redis, SIGCONT);
}

static void redis_hangs(void **state)
{
    (void)state;
    shared_under("Redis stopped", redis_hanging);
}

static void redis_empty(void)
{
    char line[160];
    uint32_t leader = shared_leader();
    redis_kill(&redis);
    snprintf(line, sizeof line, "rm -rf '%s/appendonlydir'", redis.folder);
    assert_int_equal(system(line), 0);
    start_redis(keeps_all);
    assert_true(redis_await(&redis, "GET {muster}:state", "1 ")); /* its leader writes it anew */
    assert_int_equal(shared_leader(), leader);
}

/* The override of the pool's count comes back with the rest: the fleet stays at it. */
static void redis_returns_empty(void **state)
{
    (void)state;
    shared_under("Redis emptied", redis_empty);
    assert_int_equal(rig_number(shared_controller[shared_leader()].port, "/api/v1/pools", "manual"),
                     SHARED_INSTANCES);
}

/* While Redis is away nobody can say that an instance is not wanted: idle ones outlive their grace. */
static void idle_instances_outlive_a_redis_that_is_away(void **state)
{
    (void)state;
    shared_wait_instances(SHARED_INSTANCES);
    uint32_t ended = shared_ended();
    redis_kill(&redis);
    shared_wait_leader(2);
    shared_hold(SHARED_GRACE_S * 5 / 2); /* well past the grace */
    shared_expect(SHARED_INSTANCES, ended);
    start_redis(keeps_all);
    shared_wait_instances(SHARED_INSTANCES);
    shared_expect(SHARED_INSTANCES, ended);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (!redis_server_exists()) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_leader_is_stopped_and_returns),
        cmocka_unit_test(the_leader_is_killed),
        cmocka_unit_test(the_leader_leaves),
        cmocka_unit_test(commands_find_the_leader),
        cmocka_unit_test(what_was_applied_outlives_its_leader),
        cmocka_unit_test(the_state_folder_is_not_free),
        cmocka_unit_test(redis_dies_and_returns),
        cmocka_unit_test(redis_hangs),
        cmocka_unit_test(redis_returns_empty),
        cmocka_unit_test(idle_instances_outlive_a_redis_that_is_away),
        cmocka_unit_test(the_leader_is_stopped_in_the_middle_of_a_launch),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
