/* t_store_redis.c - tests the store on real Redis servers: the cases of every backend, then servers that hang,
 * restart, lose their data or go back in time, replies that are lost, log-in, Sentinel and Cluster. TLS has a file
 * of its own. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "base/io/store/store.h"
#include "tests/redis_server.h"
#include "tests/unit/io/store_suite.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#define PATIENT_US 20000000 /* where no test waits for its end */
#define FAILOVER_US 1000000
#define TIMEOUT_US 300000
#define SLACK_US 150000 /* of a busy machine, on top of a bound */
#define KEEPS_ALL ((const char *const[]){ "--appendonly", "yes", "--appendfsync", "always", NULL })

static char folder[] = "/tmp/t_store_redis.XXXXXX";
static struct redis_server server;
static char url[160];
static int number; /* of the fleet in use: each test has one of its own */
static const char *password = "";
static int64_t timeout_us = PATIENT_US;

static int open_at(const char *at, const char *password_file, struct store **ret, struct err *err)
{
    char fleet[32];
    snprintf(fleet, sizeof fleet, "fleet-%d", number);
    const struct store_redis_config config = { .url = str_from(at),
                                               .password_file = str_from(password_file),
                                               .fleet = str_from(fleet),
                                               .timeout_us = timeout_us };
    return store_redis_open(&config, ret, err);
}

static struct store *open_or_fail(const char *at)
{
    struct store *s = NULL;
    struct err err = { 0 };
    if (open_at(at, password, &s, &err) < 0) fail_msg("%s", err.text);
    return s;
}

/* An empty store, of another fleet than the last one. */
static struct store *open_new(void)
{
    number++;
    return open_or_fail(url);
}

static struct store *join(struct store *first)
{
    (void)first;
    return open_or_fail(url);
}

static void use_tcp(void)
{
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", server.port);
}

static void use_socket(void)
{
    snprintf(url, sizeof url, "redis+unix://%s?db=3", server.socket);
}

static void start(const char *const *more)
{
    redis_start(&server, folder, "one", more);
    use_tcp();
}

static int stop(void **state)
{
    (void)state;
    redis_remove(&server);
    server = (struct redis_server){ 0 };
    timeout_us = PATIENT_US;
    return 0;
}

/* Takes the lease as soon as the server can be reached again, and a replica has it where there is one. */
static void lead_again(struct store *s)
{
    suite_lead_again(s, REDIS_STARTS_US);
}

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
        at_once += took < 5000;
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

static const struct store_log decisions = { "decisions", 10 };

static void fill(struct store *s, uint64_t *ret_version)
{
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "k/%03d", i);
        assert_int_equal(store_put_if(s, str_from(key), STR("v"), STORE_ABSENT, ret_version, NULL),
                         0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_append(s, &decisions, STR("d"), NULL, NULL), 0);
}

static int count_entry(void *ctx, const struct store_entry *e)
{
    (void)e;
    ++*(uint32_t *)ctx;
    return 0;
}

static void assert_whole(struct store *s, uint64_t version)
{
    uint32_t count = 0;
    uint64_t seq = 0, later = 0;
    assert_int_equal(store_list(s, STR("k/"), count_entry, &count, NULL), 0);
    assert_int_equal(count, 100);
    /* Versions and numbers of records go on where they were. */
    assert_int_equal(store_append(s, &decisions, STR("e"), &seq, NULL), 0);
    assert_int_equal(seq, 4);
    assert_int_equal(store_put_if(s, STR("new"), STR("v"), STORE_ABSENT, &later, NULL), 0);
    assert_true(later > version);
}

static void an_empty_server_is_no_empty_store(void **state)
{
    (void)state;
    start(NULL);
    struct store *s = open_new();
    struct err err = { 0 };
    uint64_t version = 0;
    suite_lead(s, "a");
    fill(s, &version);
    redis_kill(&server);
    start(NULL);
    assert_int_equal(store_get(s, STR("k/000"), NULL, NULL, &err), -EKEYREVOKED);
    assert_non_null(strstr(err.text, "Redis has lost the store"));
    assert_int_equal(store_epoch(s), 0);
    assert_int_equal(store_put_if(s, STR("x"), STR("v"), STORE_ANY, NULL, &err), -EKEYREVOKED);
    lead_again(s);
    assert_whole(s, version);
    store_close(s);
}

static void a_process_that_stood_by_writes_the_lost_store_anew(void **state)
{
    (void)state;
    start(NULL);
    struct store *a = open_new(), *b = join(a);
    uint64_t version = 0;
    suite_lead(a, "a");
    fill(a, &version);
    assert_int_equal(store_refresh(b, NULL), 0);
    store_close(a); /* it dies: nothing is given back */
    redis_kill(&server);
    start(NULL);
    lead_again(b);
    assert_whole(b, version);
    store_close(b);
}

static void an_empty_server_without_any_copy_is_an_empty_store(void **state)
{
    (void)state;
    start(NULL);
    struct store *a = open_new(), *b = join(a);
    uint32_t count = 0;
    uint64_t version = 0;
    suite_lead(a, "a");
    fill(a, &version);
    redis_kill(&server);
    start(NULL);
    lead_again(b);
    assert_int_equal(store_list(b, STR(""), count_entry, &count, NULL), 0);
    assert_int_equal(count, 0);
    /* The other's copy is of a content that is over. */
    assert_int_equal(store_get(a, STR("k/000"), NULL, NULL, NULL), -EKEYREVOKED);
    assert_int_equal(store_put_if(b, STR("n"), STR("v"), STORE_ABSENT, NULL, NULL), 0);
    store_lease_release(b);
    lead_again(a);
    assert_int_equal(store_list(a, STR(""), count_entry, &count, NULL), 0);
    assert_int_equal(count, 1);
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
    assert_int_equal(store_append(s, &decisions, STR("d"), NULL, NULL), 0);
    assert_true(redis_says(&server, "SAVE", "OK"));
    assert_int_equal(store_put_if(s, STR("new"), STR("1"), STORE_ABSENT, &version, NULL), 0);
    assert_int_equal(store_delete_if(s, STR("old"), STORE_ANY, NULL), 0);
    assert_int_equal(store_append(s, &decisions, STR("e"), NULL, NULL), 0);
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
    assert_int_equal(store_append(s, &decisions, STR("f"), &seq, NULL), 0);
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
        fill(s, &version);
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
        fill(s, &version);
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
        assert_whole(writer, version);
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
    fill(s, &version);

    redis_signal(&server, SIGSTOP); /* the old master hangs, and comes back as a replica */
    assert_true(redis_await(&replica, "ROLE", "master"));
    lead_again(s);
    assert_whole(s, version);
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
        fill(s, &version);
        assert_whole(s, version);
        store_close(s);
    }
    print_message("%u of 8 fleets have their slot at the server that was named\n", here);
    assert_true(here > 0 && here < 8);
    redis_remove(&other);
}

int main(void)
{
    if (!redis_server_exists()) return 77;
    if (!mkdtemp(folder)) return 1;
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
        cmocka_unit_test_teardown(users_and_passwords, stop),
        cmocka_unit_test(urls),
        cmocka_unit_test_teardown(names_are_resolved_within_the_bound, stop),
        cmocka_unit_test_teardown(sentinel_names_the_master_and_the_next, stop),
        cmocka_unit_test_teardown(a_cluster_has_a_fleet_in_one_slot, stop),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char line[160];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    if (failed == 0 && system(line) != 0) printf("%s stays\n", folder);
    return failed;
}
