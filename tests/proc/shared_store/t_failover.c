/* t_failover.c - lets Sentinel replace the Redis of a fleet with two controllers while clients ask: the controllers
 * find the new master, what the old one had not passed on is written anew, and no request fails. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/shared_store/shared_rig.h"

#include <signal.h>

static struct redis_server server[2], sentinel;
static uint32_t master;

static void start_server(uint32_t index, uint32_t of)
{
    char name[8], port[8];
    snprintf(name, sizeof name, "redis-%u", index);
    snprintf(port, sizeof port, "%u", server[of].port);
    const char *const replica[] = { "--replicaof", "127.0.0.1", port, NULL };
    redis_start(&server[index], rig_folder(), name, index == of ? NULL : replica);
}

static void wait_replica(uint32_t index)
{
    assert_true(redis_await(&server[index], "INFO replication", "master_link_status:up"));
    assert_true(redis_await(&sentinel, "SENTINEL master main", "num-slaves\r\n$1\r\n1"));
}

static int setup(void **state)
{
    (void)state;
    char path[RIG_PATH], text[256], url[96];
    start_server(0, 0);
    start_server(1, 0);
    snprintf(text, sizeof text,
             "sentinel monitor main 127.0.0.1 %u 1\nsentinel down-after-milliseconds main 700\n"
             "sentinel failover-timeout main 4000\n",
             server[0].port);
    rig_file(path, "sentinel.conf", text);
    redis_start(&sentinel, rig_folder(), "sentinel",
                (const char *const[]){ path, "--sentinel", NULL });
    wait_replica(1);
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%u/main", sentinel.port);
    shared_open(url);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shared_close();
    redis_remove(&sentinel);
    for (uint32_t i = 0; i < 2; i++)
        redis_remove(&server[i]);
    return 0;
}

/* The old master hangs, is replaced, and comes back to be a replica. */
static void hangs(void)
{
    uint32_t next = 1 - master;
    redis_signal(&server[master], SIGSTOP);
    assert_true(redis_await(&server[next], "ROLE", "master"));
    shared_wait_answers();
    redis_signal(&server[master], SIGCONT);
    wait_replica(master);
    master = next;
}

static void the_master_hangs_and_is_replaced(void **state)
{
    (void)state;
    shared_under("failover from a master that hangs", hangs);
}

static void dies(void)
{
    uint32_t next = 1 - master;
    redis_kill(&server[master]);
    assert_true(redis_await(&server[next], "ROLE", "master"));
    shared_wait_answers();
    start_server(master, next);
    wait_replica(master);
    master = next;
}

static void the_master_dies_and_is_replaced(void **state)
{
    (void)state;
    shared_under("failover from a master that died", dies);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (!redis_server_exists()) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_master_hangs_and_is_replaced),
        cmocka_unit_test(the_master_dies_and_is_replaced),
        cmocka_unit_test(the_master_hangs_and_is_replaced),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
