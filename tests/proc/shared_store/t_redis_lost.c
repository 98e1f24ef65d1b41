/* t_redis_lost.c - kills Redis and starts it empty, again and again, while people give orders and clients ask: no order
 * that was acknowledged is missing afterwards, and no instance was launched twice.
 *
 * The Redis keeps nothing. It comes back at once, or after the leader's term is over; the leader may be killed later
 * and the other go on. Orders are tokens that are made (each has a name of its own) and the count of the pool. */
#include "base/core/own.h"
#include "tests/proc/shared_store/shared_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#define ORDERS_MAX 90 /* a fleet has 100 tokens at most */
#define ROUNDS 6
#define OF_A_ROUND 12
#define UNDER_WAY 1 /* orders that are given beyond those that are waited for: while Redis goes */

_Static_assert(ROUNDS *(OF_A_ROUND + UNDER_WAY + 1 + UNDER_WAY) <= ORDERS_MAX,
               "however slow a round is, orders are left for the last");

static struct redis_server redis;

static void start_redis(void)
{
    redis_start(&redis, rig_folder(), "redis", NULL);
    assert_true(redis_await(&redis, "PING", "PONG"));
}

static int setup(void **state)
{
    (void)state;
    static char url[128];
    start_redis();
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

/* ---- people who give orders ---- */

static struct giver {
    pthread_t thread;
    atomic_uint given;             /* acknowledged so far */
    atomic_uint allowed;           /* to be given so far */
    bool acknowledged[ORDERS_MAX]; /* the others may hold or not */
    atomic_bool over;
    char bearer[RIG_BEARER];
} giver;

/* Gives one order to whichever controller takes it. Returns true if it was acknowledged. */
static bool give(uint32_t number)
{
    char body[64];
    snprintf(body, sizeof body, "{\"name\":\"order-%u\",\"role\":\"read\"}", number);
    for (uint32_t i = 0; i < 2; i++) {
        int status =
            rig_call_with(shared_controller[i].port, "/api/v1/tokens", giver.bearer, body, NULL);
        if (status == 200 || status == 409) return true; /* an earlier try was carried out */
    }
    return false;
}

static void *give_orders(void *arg)
{
    (void)arg;
    for (uint32_t n = 0; n < ORDERS_MAX && !giver.over; usleep(20000)) {
        if (n >= giver.allowed) continue;
        giver.acknowledged[n] = give(n);
        giver.given += giver.acknowledged[n];
        n += giver.acknowledged[n];
    }
    return NULL;
}

static bool were_given(void *arg)
{
    return giver.given >= *(const uint32_t *)arg;
}

static void wait_orders(uint32_t more)
{
    uint32_t goal = giver.given + more;
    giver.allowed = goal + UNDER_WAY;
    rig_wait(were_given, &goal, "orders are acknowledged");
}

static void assert_all_hold(void)
{
    CLEANUP(buf_fini) struct buf list = { 0 };
    char name[32];
    uint16_t port = shared_controller[shared_leader()].port;
    assert_int_equal(rig_call_with(port, "/api/v1/tokens", giver.bearer, NULL, &list), 200);
    uint32_t missing = 0;
    for (uint32_t n = 0; n < ORDERS_MAX; n++) {
        snprintf(name, sizeof name, "\"order-%u\"", n);
        if (!giver.acknowledged[n] || strstr(list.data, name)) continue;
        print_message("%s is missing\n", name);
        missing++;
    }
    assert_int_equal(missing, 0);
}

/* ---- Redis ---- */

static void lose(int64_t away_us)
{
    redis_kill(&redis);
    usleep((unsigned)away_us);
    start_redis();
}

static bool is_whole(void *arg)
{
    (void)arg;
    return redis_says(&redis, "GET {muster}:state", "1 ") &&
           !redis_says(&redis, "GET {muster}:state", "18446744073709551615");
}

/* Half of the rounds are shorter than the leader's term, so that it takes the lease again at once; in the others all
 * stand by when Redis returns. */
static void rounds(void)
{
    static const int64_t away_us[ROUNDS] = { 0, 300000, 3000000, 0, 4500000, 1000000 };
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t leader = shared_leader();
        wait_orders(OF_A_ROUND);
        usleep(1000u * (unsigned)(7 * i)); /* another moment each time */
        lose(away_us[i]);
        wait_orders(1);
        rig_wait(is_whole, NULL, "the store is written anew");
        assert_all_hold();
        assert_int_equal(shared_leader(), leader); /* it alone has all of it */
    }
}

static void orders_outlive_a_redis_that_forgets(void **state)
{
    (void)state;
    char secret[160];
    snprintf(secret, sizeof secret, "%s/state/secret", rig_folder());
    rig_bearer(secret, giver.bearer);
    assert_int_equal(pthread_create(&giver.thread, NULL, give_orders, NULL), 0);
    shared_under("Redis emptied again and again", rounds);
    giver.over = true;
    pthread_join(giver.thread, NULL);
    assert_all_hold();
    print_message("%u orders were acknowledged, and hold\n", giver.given);
    assert_true(giver.given >= ROUNDS * OF_A_ROUND);
}

/* The order to launch was acknowledged, and Redis is lost in different steps of its launch. */
static void a_launch_outlives_it_and_happens_once(void **state)
{
    (void)state;
    static const uint32_t after_us[] = { 0, 5000, 30000, 250000 };
    uint32_t ended = shared_ended();
    for (size_t i = 0; i < COUNT_OF(after_us); i++) {
        shared_scale(SHARED_INSTANCES + 1);
        usleep(after_us[i]);
        lose(i % 2 ? 3000000 : 0);
        shared_wait_instances(SHARED_INSTANCES + 1);
        shared_expect(SHARED_INSTANCES + 1, ended);
        assert_int_equal(
            rig_number(shared_controller[shared_leader()].port, "/api/v1/pools", "manual"),
            SHARED_INSTANCES + 1);
        shared_scale(SHARED_INSTANCES);
        shared_wait_instances(SHARED_INSTANCES);
        ended++;
        while (rig_count("agent") > SHARED_INSTANCES)
            usleep(20000);
    }
    assert_all_hold();
}

/* The leader is lost with Redis: the other goes on with the copy that it has, a term later, and says so. */
static void without_the_leader_the_other_goes_on_and_says_so(void **state)
{
    (void)state;
    uint32_t leader = shared_leader(), other = 1 - leader;
    usleep(3000000); /* the copy of the other is as new as the store */
    rig_kill(&shared_controller[leader]);
    lose(0);
    shared_wait_leader(other);
    shared_wait_instances(SHARED_INSTANCES);
    CLEANUP(buf_fini) struct buf events = { 0 };
    uint16_t port = shared_controller[other].port;
    assert_int_equal(rig_call_with(port, "/api/v1/events", giver.bearer, NULL, &events), 200);
    assert_non_null(strstr(events.data, "its last leader did not come back"));
    assert_all_hold(); /* no order was given in the last seconds */
    shared_start_controller(leader);
    shared_wait_standby(leader);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (!redis_server_exists()) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_outlive_a_redis_that_forgets),
        cmocka_unit_test(a_launch_outlives_it_and_happens_once),
        cmocka_unit_test(without_the_leader_the_other_goes_on_and_says_so),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
