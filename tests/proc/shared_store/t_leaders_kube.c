/* t_leaders_kube.c - takes the leading controller away, and the API server, from a fleet whose store is in Kubernetes
 * objects, while clients ask: another controller leads, the fleet stays as it is, and no request fails.
 *
 * The API server is tests/proc/rig/fake_kube; tests/kube/t_leaders does the like on a real one. With MUSTER_HOLD_S a
 * pause lasts that long. */
#include "base/core/own.h"
#include "tests/proc/kube/kube_rig.h"
#include "tests/proc/shared_store/shared_rig.h"

static struct kube_server server;

static int setup(void **state)
{
    (void)state;
    setenv("KUBECONFIG", server.kubeconfig, 1);
    shared_open("kubernetes://" KUBE_RIG_NS "/fleet");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shared_close();
    kube_rig_end(&server);
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

static void the_leader_is_stopped_in_the_middle_of_a_launch(void **state)
{
    (void)state;
    static const uint32_t after_us[] = { 0, 10000, 60000 };
    shared_leader_stopped_in_launches(after_us, COUNT_OF(after_us));
}

/* ---- the API server ---- */

static void paused(void)
{
    kube_rig_pause(&server);
    shared_wait_leader(
        2); /* each controller answers, though a call to the server takes its bound */
    shared_hold(0);
    shared_wait_answers();
    kube_rig_resume(&server);
}

static void the_api_server_is_paused(void **state)
{
    (void)state;
    shared_under("the API server paused", paused);
}

static double terms_of_both(void)
{
    double sum = 0;
    for (uint32_t i = 0; i < 2; i++)
        sum += rig_metric(shared_controller[i].port, "muster_controller_terms_total");
    return sum;
}

static bool another_term_began(void *arg)
{
    return terms_of_both() > *(const double *)arg;
}

/* The last leader takes the lease that was lost at once, so that nobody sees a fleet without one. */
static void emptied(void)
{
    double before = terms_of_both();
    kube_rig_post(&server, "/restart", "{\"empty\":true}");
    rig_wait(another_term_began, &before, "a term begins in the empty store");
    (void)shared_leader();
}

/* The override of the pool's count comes back with the rest: the fleet stays at it. */
static void the_api_server_returns_empty(void **state)
{
    (void)state;
    shared_under("the API server emptied", emptied);
    assert_int_equal(rig_number(shared_controller[shared_leader()].port, "/api/v1/pools", "manual"),
                     SHARED_INSTANCES);
}

/* While the server is away nobody can say that an instance is not wanted: idle ones outlive their grace. */
static void idle_instances_outlive_a_server_that_is_away(void **state)
{
    (void)state;
    shared_wait_instances(SHARED_INSTANCES);
    uint32_t ended = shared_ended();
    kube_rig_pause(&server);
    shared_wait_leader(2);
    shared_hold(SHARED_GRACE_S * SHARED_KUBE_SLOWER * 5 / 2); /* well past the grace */
    shared_expect(SHARED_INSTANCES, ended);
    kube_rig_resume(&server);
    shared_wait_instances(SHARED_INSTANCES);
    shared_expect(SHARED_INSTANCES, ended);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (!kube_rig_fake(&server, ARGS(NULL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_leader_is_stopped_and_returns),
        cmocka_unit_test(the_leader_is_killed),
        cmocka_unit_test(the_api_server_is_paused),
        cmocka_unit_test(the_api_server_returns_empty),
        cmocka_unit_test(idle_instances_outlive_a_server_that_is_away),
        cmocka_unit_test(the_leader_is_stopped_in_the_middle_of_a_launch),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
