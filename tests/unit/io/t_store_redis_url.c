/* t_store_redis_url.c - tests how the store on Redis finds its server and logs in: URLs, users, names, Sentinel and
 * Cluster. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/unit/io/redis_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* ---- log-in and URLs ---- */

static void users_and_passwords(void **state)
{
    (void)state;
    char right[128], wrong[128];
    struct err err = { 0 };
    struct store *s = NULL;
    snprintf(right, sizeof right, "%s/password", folder);
    snprintf(wrong, sizeof wrong, "%s/wrong", folder);
    assert_int_equal(file_write_atomic(right, STR("open sesame\n"), 0600, NULL), 0);
    assert_int_equal(file_write_atomic(wrong, STR("close\n"), 0600, NULL), 0);
    /* The user of docs/controllers.md; its keys are those of the test's fleets. */
    static const char *const users[] = { "--user",
                                         "default",
                                         "on",
                                         ">open sesame",
                                         "~*",
                                         "+@all",
                                         "--user",
                                         "muster",
                                         "on",
                                         ">open sesame",
                                         "~{fleet-*",
                                         "-@all",
                                         "+multi",
                                         "+exec",
                                         "+watch",
                                         "+unwatch",
                                         "+get",
                                         "+mget",
                                         "+set",
                                         "+del",
                                         "+getrange",
                                         "+zadd",
                                         "+zrem",
                                         "+zcard",
                                         "+zcount",
                                         "+zrange",
                                         "+zrangebylex",
                                         "+zrangebyscore",
                                         "+zremrangebyscore",
                                         "+hget",
                                         "+hset",
                                         "+hgetall",
                                         "+select",
                                         "+role",
                                         "+wait",
                                         NULL };
    redis_start(&server, folder, "one", users);
    use_tcp();
    number++;
    assert_int_equal(open_at(url, "", &s, NULL), 0);
    assert_int_equal(store_get(s, STR("k"), NULL, NULL, &err), -EACCES);
    assert_non_null(strstr(err.text, "store_password_file"));
    store_close(s);
    assert_int_equal(open_at(url, wrong, &s, NULL), 0);
    assert_int_equal(store_get(s, STR("k"), NULL, NULL, &err), -EACCES);
    store_close(s);
    assert_int_equal(open_at(url, right, &s, NULL), 0);
    suite_lead(s, "a");
    store_close(s);
    password = right;
    snprintf(url, sizeof url, "redis://muster@127.0.0.1:%u/0", server.port);
    suite_run(open_new);
    suite_share(open_new, join);
    password = "";
    assert_int_equal(open_at(url, "/nonexistent", &s, NULL), 0);
    assert_int_equal(store_get(s, STR("k"), NULL, NULL, &err), -EHOSTUNREACH);
    store_close(s);
    s = open_or_fail("redis+unix:///nonexistent");
    assert_int_equal(store_get(s, STR("k"), NULL, NULL, &err), -EHOSTUNREACH);
    store_close(s);
}

static void urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *says;
    } rows[] = {
        { "mysql://x", "this is no store" },
        { "redis://", "a host is missing" },
        { "redis://host:0", "the port" },
        { "redis://host:http", "the port" },
        { "redis://host/x", "the database" },
        { "redis://user:word@host", "store_password_file" },
        { "redis://@host", "the user" },
        { "redis+unix://", "the path" },
        { "redis+unix:///x?timeout=1", "only ?db=N" },
        { "redis+sentinel://a,b", "the master's name" },
        { "redis://1,2,3,4,5,6,7,8,9", "too many hosts" },
    };
    struct store *s = NULL;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        assert_int_equal(open_at(rows[i].url, "", &s, &err), -EINVAL);
        if (!strstr(err.text, rows[i].says)) fail_msg("%s: %s", rows[i].url, err.text);
    }
    static const char *const good[] = {
        "redis://host",         "redis://u@[::1]:7/3",
        "redis+unix:///a?db=1", "redis+sentinel://a,b:1,[::1]:2/main/2",
        "rediss://host",        "rediss+sentinel://a,b/main"
    };
    for (size_t i = 0; i < COUNT_OF(good); i++)
        store_close(open_or_fail(good[i]));
    struct err err = { 0 };
    const struct store_redis_config odd = { .url = STR("redis://host"), .fleet = STR("a}b") };
    assert_int_equal(store_redis_open(&odd, &s, &err), -EINVAL);
}

/* A name that the system cannot resolve in time costs the bound, like a server that hangs. */
static void names_are_resolved_within_the_bound(void **state)
{
    (void)state;
    struct err err = { 0 };
    start(NULL);
    char at[64];
    snprintf(at, sizeof at, "redis://ip6-localhost:%u,localhost:%u", server.port, server.port);
    number++;
    timeout_us = TIMEOUT_US;
    struct store *s = open_or_fail("redis://no-such-host.invalid");
    int64_t before = clock_mono_us();
    int rc = store_get(s, STR("k"), NULL, NULL, &err);
    assert_true(rc == -EHOSTUNREACH || rc == -ETIMEDOUT); /* not -ENOENT: the key may be there */
    assert_true(clock_mono_us() - before <= TIMEOUT_US + SLACK_US);
    store_close(s);
    /* The second name is tried when the first does not serve. */
    s = open_or_fail(at);
    rc = -1;
    for (int i = 0; i < 500 && rc != -ENOENT; i++, usleep(20000))
        rc = store_get(s, STR("k"), NULL, NULL, &err);
    if (rc != -ENOENT) fail_msg("%s", err.text);
    assert_true(store_is_reached(s));
    store_close(s);
}

/* ---- Sentinel and Cluster ---- */

static void write_sentinel(const char *path, const struct redis_server *master)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(&text,
               "sentinel monitor main 127.0.0.1 %u 1\nsentinel down-after-milliseconds main 500\n"
               "sentinel failover-timeout main 3000\n",
               master->port);
    assert_int_equal(file_write_atomic(path, buf_view(&text), 0600, NULL), 0);
}

static void sentinel_names_the_master_and_the_next(void **state)
{
    (void)state;
    struct redis_server replica = { 0 }, sentinel = { 0 };
    char port[8], path[96], at[96];
    start(NULL);
    timeout_us = FAILOVER_US; /* of the master that is stopped */
    snprintf(port, sizeof port, "%u", server.port);
    redis_start(&replica, folder, "two",
                (const char *const[]){ "--replicaof", "127.0.0.1", port, NULL });
    assert_true(redis_await(&replica, "INFO replication", "master_link_status:up"));
    snprintf(path, sizeof path, "%s/sentinel.conf", folder);
    write_sentinel(path, &server);
    redis_start(&sentinel, folder, "three", (const char *const[]){ path, "--sentinel", NULL });
    assert_true(redis_await(&sentinel, "SENTINEL master main", "num-slaves\r\n$1\r\n1"));
    /* The first sentinel does not exist. */
    snprintf(at, sizeof at, "redis+sentinel://127.0.0.1:1,127.0.0.1:%u/main", sentinel.port);
    number++;
    struct store *s = open_or_fail(at);
    uint64_t version = 0;
    lead_again(s);
    suite_fill(s, &version);

    redis_signal(&server, SIGSTOP); /* the old master hangs, and comes back as a replica */
    assert_true(redis_await(&replica, "ROLE", "master"));
    lead_again(s);
    suite_assert_whole(s, version);
    redis_signal(&server, SIGCONT);
    store_close(s);
    redis_remove(&sentinel);
    redis_remove(&replica);
    unlink(path);
}

static void a_cluster_has_a_fleet_in_one_slot(void **state)
{
    (void)state;
    struct redis_server other = { 0 };
    char reply[256], line[64], bus[2][8];
    for (int i = 0; i < 2; i++) {
        snprintf(bus[i], sizeof bus[i], "%u", free_port());
        const char *const cluster[] = { "--cluster-enabled", "yes", "--cluster-port", bus[i],
                                        NULL };
        redis_start(i ? &other : &server, folder, i ? "two" : "one", cluster);
    }
    assert_true(redis_await(&server, "PING", "PONG") && redis_await(&other, "PING", "PONG"));
    assert_true(redis_says(&server, "CLUSTER ADDSLOTSRANGE 0 8191", "OK"));
    assert_true(redis_says(&other, "CLUSTER ADDSLOTSRANGE 8192 16383", "OK"));
    snprintf(line, sizeof line, "CLUSTER MEET 127.0.0.1 %u %s", other.port, bus[1]);
    assert_true(redis_says(&server, line, "OK"));
    assert_true(redis_await(&server, "CLUSTER INFO", "cluster_state:ok"));
    assert_true(redis_await(&other, "CLUSTER INFO", "cluster_state:ok"));
    uint32_t here = 0;
    for (int i = 0; i < 8; i++) { /* fleets of both halves, asked for at one server */
        use_tcp();
        struct store *s = open_new();
        snprintf(line, sizeof line, "CLUSTER KEYSLOT {fleet-%d}:state", number);
        assert_true(redis_ask(&server, line, reply, sizeof reply));
        here += strtol(reply + 1, NULL, 10) < 8192;
        suite_lead(s, "a");
        uint64_t version = 0;
        suite_fill(s, &version);
        suite_assert_whole(s, version);
        store_close(s);
    }
    print_message("%u of 8 fleets have their slot at the server that was named\n", here);
    assert_true(here > 0 && here < 8);
    redis_remove(&other);
}

int main(void)
{
    if (!redis_server_exists()) return 77;
    if (!folder_make()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(users_and_passwords, stop),
        cmocka_unit_test(urls),
        cmocka_unit_test_teardown(names_are_resolved_within_the_bound, stop),
        cmocka_unit_test_teardown(sentinel_names_the_master_and_the_next, stop),
        cmocka_unit_test_teardown(a_cluster_has_a_fleet_in_one_slot, stop),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed == 0) folder_remove();
    return failed;
}
