/* t_store_redis.c - tests the store on real Redis servers: the cases of every backend, then servers that hang,
 * restart, lose their data or go back in time, and replies that are lost. How a server is found and logged in to,
 * Sentinel and Cluster are in t_store_redis_url, TLS in t_store_redis_tls. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/unit/io/redis_store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#define KEEPS_ALL ((const char *const[]){ "--appendonly", "yes", "--appendfsync", "always", NULL })

/* ---- the cases of every backend ---- */

static void it_answers_as_the_others_do(void **state)
{
    (void)state;
    start(NULL);
    suite_run(open_new);
    use_socket();
    suite_run(open_new);
    suite_share(open_new, join);
}

static void random_operations_agree_with_memory(void **state)
{
    (void)state;
    start(NULL);
    struct store *s = open_new(), *memory;
    assert_int_equal(store_memory_open(100, &memory, NULL), 0);
    suite_lead(s, "a");
    suite_random(s, memory, 1000);
    suite_same(s, memory);
    store_close(s);
    store_close(memory);
}

static void fleets_do_not_meet(void **state)
{
    (void)state;
    start(NULL);
    struct store *a = open_new(), *b = open_new();
    CLEANUP(buf_fini) struct buf out = { 0 };
    suite_lead(a, "a");
    suite_lead(b, "b");
    assert_int_equal(store_put_if(a, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    assert_int_equal(store_list(b, STR(""), keep_key, &out, NULL), 0);
    assert_int_equal(out.len, 0);
    store_close(a);
    store_close(b);
}

/* ---- a server that is away ---- */

static void a_server_that_hangs_costs_the_bound_and_then_nothing(void **state)
{
    (void)state;
    start(NULL);
    timeout_us = TIMEOUT_US;
    struct store *s = open_new();
    struct err err = { 0 };
    lead_again(s);
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    redis_signal(&server, SIGSTOP);
    int64_t began = clock_mono_us(), longest = 0;
    uint32_t calls = 0, at_once = 0;
    while (clock_mono_us() - began < 4000000) {
        int64_t before = clock_mono_us();
        int rc = store_get(s, STR("k"), NULL, NULL, &err);
        int64_t took = clock_mono_us() - before;
        assert_true(rc == -ETIMEDOUT || rc == -ENETDOWN);
        longest = max_i64(longest, took);
        calls++;
        at_once += took < TIMEOUT_US / 4;
        usleep(10000);
    }
    print_message("%u calls, %u at once, the longest took %d ms\n", calls, at_once,
                  (int)(longest / 1000));
    assert_true(longest <= TIMEOUT_US + SLACK_US);
    assert_true(at_once > calls * 3 / 4);
    assert_false(store_is_reached(s));
    redis_signal(&server, SIGCONT);
    int rc = -1;
    for (int64_t until = clock_mono_us() + REDIS_STARTS_US; rc < 0 && clock_mono_us() < until;
         usleep(20000))
        rc = store_put_if(s, STR("k"), STR("2"), STORE_ANY, NULL, &err);
    assert_int_equal(rc, 0); /* nobody took the lease: the term goes on */
    assert_true(store_is_reached(s));
    store_close(s);
}

static void a_server_that_restarts_with_its_data_goes_on(void **state)
{
    (void)state;
    start(KEEPS_ALL);
    assert_true(redis_await(&server, "PING", "PONG"));
    struct store *s = open_new();
    uint64_t v1 = 0, v2 = 0;
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, &v1, NULL), 0);
    redis_kill(&server);
    struct err err = { 0 };
    assert_true(store_put_if(s, STR("k"), STR("2"), v1, NULL, &err) < 0);
    assert_true(store_epoch(s) > 0); /* nothing was sent: the term holds */
    start(KEEPS_ALL);
    int rc = -1;
    for (int64_t until = clock_mono_us() + REDIS_STARTS_US; rc < 0 && clock_mono_us() < until;
         usleep(20000))
        rc = store_put_if(s, STR("k"), STR("2"), v1, &v2, &err);
    if (rc < 0) fail_msg("%s", err.text);
    assert_value(s, STR("k"), STR("2"), v2);
    store_close(s);
}

/* ---- a server that forgets ---- */

static void an_empty_server_is_no_empty_store(void **state)
{
    (void)state;
    start(NULL);
    struct store *s = open_new();
    struct err err = { 0 };
    uint64_t version = 0;
    suite_lead(s, "a");
    suite_fill(s, &version);
    redis_kill(&server);
    start(NULL);
    assert_int_equal(store_get(s, STR("k/000"), NULL, NULL, &err), -EKEYREVOKED);
    assert_non_null(strstr(err.text, "Redis has lost the store"));
    assert_int_equal(store_epoch(s), 0);
    assert_int_equal(store_put_if(s, STR("x"), STR("v"), STORE_ANY, NULL, &err), -EKEYREVOKED);
    lead_again(s);
    suite_assert_whole(s, version);
    store_close(s);
}

static void a_process_that_stood_by_writes_the_lost_store_anew(void **state)
{
    (void)state;
    start(NULL);
    struct store *a = open_new(), *b = join(a);
    uint64_t version = 0;
    suite_lead(a, "a");
    suite_fill(a, &version);
    assert_int_equal(store_refresh(b, NULL), 0);
    store_close(a); /* it dies: nothing is given back */
    redis_kill(&server);
    start(NULL);
    lead_again(b);
    suite_assert_whole(b, version);
    store_close(b);
}

static void an_empty_server_without_any_copy_is_an_empty_store(void **state)
{
    (void)state;
    start(NULL);
    struct store *a = open_new(), *b = join(a);
    uint64_t version = 0;
    suite_lead(a, "a");
    suite_fill(a, &version);
    redis_kill(&server);
    start(NULL);
    lead_again(b);
    assert_int_equal(suite_count(b, STR("")), 0);
    /* The other's copy is of a content that is over. */
    assert_int_equal(store_get(a, STR("k/000"), NULL, NULL, NULL), -EKEYREVOKED);
    assert_int_equal(store_put_if(b, STR("n"), STR("v"), STORE_ABSENT, NULL, NULL), 0);
    store_lease_release(b);
    lead_again(a);
    assert_int_equal(suite_count(a, STR("")), 1);
    store_close(a);
    store_close(b);
}

/* The server restarts from a snapshot that is older than the last writes. */
static void go_back(bool by_read)
{
    start(NULL);
    struct store *s = open_new();
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    uint64_t version = 0;
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("old"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    assert_int_equal(store_append(s, &suite_log, STR("d"), NULL, NULL), 0);
    assert_true(redis_says(&server, "SAVE", "OK"));
    assert_int_equal(store_put_if(s, STR("new"), STR("1"), STORE_ABSENT, &version, NULL), 0);
    assert_int_equal(store_delete_if(s, STR("old"), STORE_ANY, NULL), 0);
    assert_int_equal(store_append(s, &suite_log, STR("e"), NULL, NULL), 0);
    redis_kill(&server);
    start(NULL);
    /* A read of the old content is refused as a write is. */
    if (by_read)
        assert_int_equal(store_get(s, STR("old"), NULL, NULL, &err), -EKEYREVOKED);
    else
        assert_int_equal(store_put_if(s, STR("x"), STR("1"), STORE_ANY, NULL, &err), -EKEYREVOKED);
    assert_non_null(strstr(err.text, "went back"));
    lead_again(s);
    assert_int_equal(store_list(s, STR(""), keep_key, &out, NULL), 0);
    assert_string_equal(out.data, "new=1 ");
    uint64_t seq = 0, later = 0;
    assert_int_equal(store_append(s, &suite_log, STR("f"), &seq, NULL), 0);
    assert_int_equal(seq, 3); /* the second was given once */
    assert_int_equal(store_put_if(s, STR("new"), STR("2"), STORE_ANY, &later, NULL), 0);
    assert_true(later > version);
    store_close(s);
}

static void a_server_that_goes_back_is_brought_up_to_date(void **state)
{
    for (int by_read = 0; by_read < 2; by_read++) {
        go_back(by_read);
        stop(state);
    }
}

/* The copy knows of versions that the server forgot: they are not given again. */
static void versions_that_were_forgotten_are_not_given_again(void **state)
{
    (void)state;
    start(NULL);
    struct store *s = open_new();
    uint64_t version = 0, later = 0;
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("k"), STR("0"), STORE_ABSENT, NULL, NULL), 0);
    assert_true(redis_says(&server, "SAVE", "OK"));
    for (int i = 0; i < 50; i++)
        assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ANY, &version, NULL), 0);
    redis_kill(&server);
    start(NULL);
    assert_int_equal(store_get(s, STR("k"), NULL, NULL, NULL), -EKEYREVOKED);
    lead_again(s);
    assert_int_equal(store_get(s, STR("k"), NULL, &later, NULL), 0);
    assert_true(later > version);
    store_close(s);
}

/* Keys that a server evicts, or that somebody deletes, are missed. */
static void a_store_with_holes_is_refused(void **state)
{
    (void)state;
    static const char *const holes[] = { "e:k/007", "keys", "state" };
    start(NULL);
    for (size_t i = 0; i < COUNT_OF(holes); i++) {
        struct store *s = open_new(), *other = join(s);
        struct store_lease seen;
        struct err err = { 0 };
        char line[64], reply[64];
        uint64_t version = 0, epoch;
        suite_lead(s, "a");
        suite_fill(s, &version);
        store_lease_release(s);
        snprintf(line, sizeof line, "DEL {fleet-%d}:%s", number, holes[i]);
        assert_true(redis_ask(&server, line, reply, sizeof reply));
        assert_string_equal(reply, ":1\r\n");
        const struct store_claim claim = { STR("b"), STR(""), 1000000, 0 };
        assert_int_equal(store_lease_see(other, &seen, NULL), 0);
        assert_int_equal(store_lease_acquire(other, &claim, &seen, &epoch, &err), -EILSEQ);
        assert_non_null(strstr(err.text, "noeviction"));
        assert_int_equal(store_epoch(other), 0);
        store_close(s);
        store_close(other);
    }
}

/* ---- replies that are lost, or too large ---- */

/* A relay before the server: after the word `stop_at` of the client it passes on no reply. */
struct relay {
    pthread_t thread;
    int listener;
    uint16_t port;
    const char *stop_at;
    atomic_bool over;
};

static bool relay_some(int from, int to, const char *stop_at, bool mute)
{
    char bytes[65536];
    ssize_t n = read(from, bytes, sizeof bytes);
    if (n <= 0) return false;
    bool stop = stop_at && memmem(bytes, (size_t)n, stop_at, strlen(stop_at));
    if (!mute && write(to, bytes, (size_t)n) != n) return false;
    return !stop;
}

static void *relay_run(void *arg)
{
    struct relay *r = arg;
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    snprintf(at.sun_path, sizeof at.sun_path, "%s", server.socket);
    while (!r->over) {
        struct pollfd l = { .fd = r->listener, .events = POLLIN };
        if (poll(&l, 1, 50) <= 0) continue;
        int client = accept(r->listener, NULL, NULL), to = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(to, (struct sockaddr *)&at, sizeof at) < 0) abort();
        bool mute = false, open = true;
        while (open && !r->over) {
            struct pollfd p[2] = { { .fd = client, .events = POLLIN },
                                   { .fd = to, .events = POLLIN } };
            if (poll(p, 2, 50) <= 0) continue;
            if (p[0].revents && !relay_some(client, to, mute ? NULL : r->stop_at, false)) {
                open = p[0].revents == POLLIN && !mute && r->stop_at;
                mute = true;
            }
            if (p[1].revents) open &= relay_some(to, client, NULL, mute);
        }
        close(client);
        close(to);
    }
    return NULL;
}

static void relay_start(struct relay *r, const char *stop_at)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t bytes = sizeof at;
    *r = (struct relay){ .stop_at = stop_at };
    r->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(r->listener, 8), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&at, &bytes), 0);
    r->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&r->thread, NULL, relay_run, r), 0);
}

static void relay_end(struct relay *r)
{
    r->over = true;
    pthread_join(r->thread, NULL);
    close(r->listener);
}

static void a_lost_reply_ends_the_term(void **state)
{
    (void)state;
    struct relay relay;
    struct err err = { 0 };
    start(NULL);
    number++;
    timeout_us = FAILOVER_US; /* the reply that does not come */
    relay_start(&relay, NULL);
    char at[64];
    snprintf(at, sizeof at, "redis://127.0.0.1:%u", relay.port);
    struct store *s = open_or_fail(at), *direct = join(s);
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    relay.stop_at = "EXEC";
    assert_int_equal(store_put_if(s, STR("k"), STR("2"), STORE_ANY, NULL, &err), -EREMOTEIO);
    assert_non_null(strstr(err.text, "may have been written"));
    assert_int_equal(store_epoch(s), 0);
    relay.stop_at = NULL;
    CLEANUP(buf_fini) struct buf value = { 0 };
    assert_int_equal(store_get(direct, STR("k"), &value, NULL, NULL), 0);
    assert_true(str_eq(buf_view(&value), STR("2"))); /* it was */

    /* A renewal whose reply is lost leaves the term as it is, and the next one finds it done. */
    lead_again(s);
    relay.stop_at = "EXEC";
    int rc = store_lease_renew(s, &err);
    assert_int_equal(rc, -EREMOTEIO);
    relay.stop_at = NULL;
    assert_true(store_epoch(s) > 0);
    rc = -1;
    for (int64_t until = clock_mono_us() + REDIS_STARTS_US; rc < 0 && clock_mono_us() < until;
         usleep(20000))
        rc = store_lease_renew(s, &err);
    assert_int_equal(rc, 0);
    assert_int_equal(store_put_if(s, STR("k"), STR("3"), STORE_ANY, NULL, NULL), 0);
    store_close(s);
    store_close(direct);
    relay_end(&relay);
}

/* The process that writes a lost store anew is cut off half way. What it began is no store; itself, or another that has
 * a copy of what was lost, writes it to its end, and one without does not take it. */
static void writing_anew_that_was_cut_off_is_done_by_whoever_has_a_copy(void **state)
{
    (void)state;
    for (int by_other = 0; by_other < 2; by_other++) {
        struct relay relay;
        struct err err = { 0 };
        struct store_lease seen;
        uint64_t version = 0, epoch;
        char at[64];
        start(NULL);
        number++;
        timeout_us = FAILOVER_US;
        relay_start(&relay, NULL);
        snprintf(at, sizeof at, "redis://127.0.0.1:%u", relay.port);
        struct store *s = open_or_fail(at), *other = join(s), *new = join(s);
        suite_lead(s, "a");
        suite_fill(s, &version);
        assert_int_equal(store_refresh(other, NULL), 0);
        redis_kill(&server);
        start(NULL);
        int rc = 0;
        for (int i = 0; i < 100 && rc != -EKEYREVOKED; i++, usleep(20000))
            rc = store_get(s, STR("k/000"), NULL, NULL, &err);
        assert_int_equal(rc, -EKEYREVOKED);
        relay.stop_at = "k/000"; /* of the first part */
        const struct store_claim claim = { STR("a"), STR(""), 1000000, 0 };
        assert_int_equal(store_lease_see(s, &seen, &err), 0);
        assert_true(seen.lost);
        assert_true(store_lease_acquire(s, &claim, &seen, &epoch, &err) < 0);
        relay.stop_at = NULL;
        rc = store_lease_see(new, &seen, &err);
        assert_int_equal(rc, 0);
        assert_true(seen.lost && seen.epoch > 0);
        assert_int_equal(store_lease_acquire(new, &claim, &seen, &epoch, &err), -EILSEQ);
        assert_non_null(strstr(err.text, "no copy of it"));
        struct store *writer = by_other ? other : s;
        lead_again(writer);
        suite_assert_whole(writer, version);
        assert_int_equal(store_lease_see(new, &seen, &err), 0);
        assert_false(seen.lost);
        store_close(s);
        store_close(other);
        store_close(new);
        relay_end(&relay);
        stop(state);
    }
}

struct talker {
    int listener;
    uint16_t port;
    const char *says;
};

/* A server that sends what no Redis sends, for as long as it is listened to. */
static void *talk(void *arg)
{
    const struct talker *t = arg;
    char junk[65536];
    memset(junk, 'x', sizeof junk);
    int fd = accept(t->listener, NULL, NULL);
    if (read(fd, junk + 1, 1000) <= 0 || write(fd, t->says, strlen(t->says)) < 0) abort();
    while (send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0) {
    }
    close(fd);
    return NULL;
}

static void a_reply_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int rc;
    } rows[] = {
        { "$1000000000\r\n", -EMSGSIZE },
        { "*2000000000\r\n", -EPROTO },
        { "*-7\r\n", -EPROTO },
        { "hello\r\n", -EPROTO },
        { "$99999999999999999999\r\n", -EPROTO },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sockaddr_in at = { .sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t bytes = sizeof at;
        struct talker t = { .listener = socket(AF_INET, SOCK_STREAM, 0), .says = rows[i].says };
        assert_int_equal(bind(t.listener, (struct sockaddr *)&at, bytes), 0);
        assert_int_equal(listen(t.listener, 1), 0);
        assert_int_equal(getsockname(t.listener, (struct sockaddr *)&at, &bytes), 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, talk, &t), 0);
        char to[64];
        struct err err = { 0 };
        snprintf(to, sizeof to, "redis://127.0.0.1:%u", ntohs(at.sin_port));
        struct store *s = open_or_fail(to);
        int rc = store_get(s, STR("k"), NULL, NULL, &err);
        if (rc != rows[i].rc) fail_msg("%s: %d %s", rows[i].says, rc, err.text);
        store_close(s);
        pthread_join(thread, NULL);
        close(t.listener);
    }
}

int main(void)
{
    if (!redis_server_exists()) return 77;
    if (!folder_make()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(it_answers_as_the_others_do, stop),
        cmocka_unit_test_teardown(random_operations_agree_with_memory, stop),
        cmocka_unit_test_teardown(fleets_do_not_meet, stop),
        cmocka_unit_test_teardown(a_server_that_hangs_costs_the_bound_and_then_nothing, stop),
        cmocka_unit_test_teardown(a_server_that_restarts_with_its_data_goes_on, stop),
        cmocka_unit_test_teardown(an_empty_server_is_no_empty_store, stop),
        cmocka_unit_test_teardown(a_process_that_stood_by_writes_the_lost_store_anew, stop),
        cmocka_unit_test_teardown(an_empty_server_without_any_copy_is_an_empty_store, stop),
        cmocka_unit_test_teardown(a_server_that_goes_back_is_brought_up_to_date, stop),
        cmocka_unit_test_teardown(versions_that_were_forgotten_are_not_given_again, stop),
        cmocka_unit_test_teardown(a_store_with_holes_is_refused, stop),
        cmocka_unit_test_teardown(a_lost_reply_ends_the_term, stop),
        cmocka_unit_test_teardown(writing_anew_that_was_cut_off_is_done_by_whoever_has_a_copy,
                                  stop),
        cmocka_unit_test(a_reply_is_bounded),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed == 0) folder_remove();
    return failed;
}
