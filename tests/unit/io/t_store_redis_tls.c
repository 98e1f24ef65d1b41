/* t_store_redis_tls.c - tests the store on real Redis servers that speak TLS: whose certificate is accepted, ours and
 * theirs, Sentinel and Cluster. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/store/store.h"
#include "tests/certs.h"
#include "tests/redis_server.h"
#include "tests/unit/io/store_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PATIENT_US 20000000 /* where no test waits for its end */
#define FAILOVER_US 1000000
#define NODES 3
#define OPTIONS_MAX 32

static char folder[] = "/tmp/t_store_redis_tls.XXXXXX";
static int number; /* of the fleet in use: each test has one of its own */

struct client {
    const char *ca, *certificate; /* names of certs.h; NULL: none */
};

static const struct client ours = { "ca", "client" };
static const struct client without = { "ca", NULL };

static const char *path(const char *name, const char *ending, char to[128])
{
    if (name)
        snprintf(to, 128, "%s/%s.%s", folder, name, ending);
    else
        to[0] = 0;
    return to;
}

static struct store *open_at(const char *url, const struct client *c, int64_t timeout_us)
{
    char fleet[32], ca[128], certificate[128], key[128];
    struct store *s = NULL;
    struct err err = { 0 };
    snprintf(fleet, sizeof fleet, "fleet-%d", number);
    const struct store_redis_config config = { .url = str_from(url),
                                               .fleet = str_from(fleet),
                                               .ca = str_from(path(c->ca, "pem", ca)),
                                               .certificate = str_from(
                                                   path(c->certificate, "pem", certificate)),
                                               .key = str_from(path(c->certificate, "key", key)),
                                               .timeout_us = timeout_us };
    if (store_redis_open(&config, &s, &err) < 0) fail_msg("%s", err.text);
    return s;
}

/* ---- servers ---- */

struct tls_server {
    struct redis_server plain; /* its own port and socket, for the test's commands */
    uint16_t port;             /* TLS */
    uint16_t bus;              /* of a cluster; 0: none */
};

static struct tls_server one;
static char url[160];

/* Starts a server with the certificate `name`. `more`: further options, NULL-terminated. */
static void start(struct tls_server *s, const char *at, const char *name, const char *const *more)
{
    char file[3][128], port[8];
    const char *option[OPTIONS_MAX] = { NULL };
    size_t n = 0;
    if (!s->port) s->port = free_port();
    snprintf(port, sizeof port, "%u", s->port);
    bool sentinel = more && more[0] && more[0][0] == '/';
    if (sentinel) option[n++] = *more++;
    if (sentinel) option[n++] = *more++;
    const char *const own[] = { "--tls-port",         port,
                                "--tls-cert-file",    path(name, "pem", file[0]),
                                "--tls-key-file",     path(name, "key", file[1]),
                                "--tls-ca-cert-file", path("ca", "pem", file[2]) };
    for (size_t i = 0; i < COUNT_OF(own); i++)
        option[n++] = own[i];
    while (more && *more && n + 1 < OPTIONS_MAX)
        option[n++] = *more++;
    redis_start(&s->plain, folder, at, option);
    assert_true(redis_await(&s->plain, "PING", "PONG"));
    snprintf(url, sizeof url, "rediss://localhost:%u", s->port);
}

static int stop(void **state)
{
    (void)state;
    redis_remove(&one.plain);
    one = (struct tls_server){ 0 };
    return 0;
}

static const char *const asks_nobody[] = { "--tls-auth-clients", "no", NULL };

static struct store *open_new(void)
{
    number++;
    return open_at(url, &ours, PATIENT_US);
}

static struct store *join(struct store *first)
{
    (void)first;
    return open_at(url, &ours, PATIENT_US);
}

/* ---- tests ---- */

/* The server asks for a certificate and is shown one. */
static void it_answers_as_without_tls(void **state)
{
    (void)state;
    start(&one, "one", "good", NULL);
    suite_run(open_new);
    suite_share(open_new, join);
    struct store *s = open_new(), *memory;
    assert_int_equal(store_memory_open(100, &memory, NULL), 0);
    suite_lead(s, "a");
    suite_random(s, memory, 500);
    suite_same(s, memory);
    store_close(s);
    store_close(memory);
}

/* The server's certificate is checked, and the name in it. */
static void a_server_is_who_it_says(void **state)
{
    static const struct {
        const char *certificate, *host, *ca, *says; /* NULL: accepted */
    } rows[] = {
        { "good", "localhost", "ca", NULL },
        { "good", "127.0.0.1", "ca", NULL },
        { "other", "localhost", "ca", "hostname mismatch" },
        { "other", "127.0.0.1", "ca", "IP address mismatch" },
        { "stranger", "localhost", "ca", "unable to get local issuer certificate" },
        /* The server shows its CA, too, which is none of the given ones, or of the system's. */
        { "good", "localhost", "ca2", "self-signed certificate in certificate chain" },
        { "good", "localhost", NULL, "self-signed certificate in certificate chain" },
        { "old", "localhost", "ca", "certificate has expired" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct client c = { rows[i].ca, NULL };
        char at[96];
        struct err err = { 0 };
        start(&one, "one", rows[i].certificate, asks_nobody);
        snprintf(at, sizeof at, "rediss://%s:%u", rows[i].host, one.port);
        number++;
        struct store *s = open_at(at, &c, PATIENT_US);
        int rc = store_get(s, STR("k"), NULL, NULL, &err);
        print_message("%s at %s: %s\n", rows[i].certificate, rows[i].host, err.text);
        assert_int_equal(rc, rows[i].says ? -EKEYREJECTED : -ENOENT);
        if (rows[i].says) assert_non_null(strstr(err.text, rows[i].says));
        if (rows[i].says) assert_non_null(strstr(err.text, "controller.store_ca"));
        assert_true(store_is_reached(s) == !rows[i].says);
        store_close(s);
        stop(state);
    }
}

/* Whether the server is content with our certificate is known with TLS 1.2 at the handshake, with TLS 1.3 only at the
 * first reply. */
static void a_server_may_ask_for_our_certificate(void **state)
{
    static const struct {
        const char *version, *certificate;
        int rc;
    } rows[] = {
        { "TLSv1.3", "client", -ENOENT },   { "TLSv1.2", "client", -ENOENT },
        { "TLSv1.3", NULL, -ENOKEY },       { "TLSv1.3", "stranger", -ENOKEY },
        { "TLSv1.2", "stranger", -ENOKEY }, { "TLSv1.3", "old", -ENOKEY },
        { "TLSv1.2", NULL, -ENOKEY },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct client c = { "ca", rows[i].certificate };
        struct err err = { 0 };
        start(&one, "one", "good",
              (const char *const[]){ "--tls-protocols", rows[i].version, NULL });
        number++;
        struct store *s = open_at(url, &c, PATIENT_US);
        int rc = store_get(s, STR("k"), NULL, NULL, &err);
        print_message("%s %s: %s\n", rows[i].version,
                      rows[i].certificate ? rows[i].certificate : "-", err.text);
        assert_int_equal(rc, rows[i].rc);
        if (rc == -ENOKEY) assert_non_null(strstr(err.text, "controller.store_certificate"));
        store_close(s);
        stop(state);
    }
}

static void files_that_cannot_be_used_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *ca, *certificate, *key, *says;
    } rows[] = {
        { "absent", NULL, NULL, "absent.pem" },
        { "ca", "client", NULL, "a certificate without a key" },
        { "ca", NULL, "client", "a key without a certificate" },
        { "ca", "client", "good", "good.key" }, /* of another certificate */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char ca[128], certificate[128], key[128];
        struct store *s = NULL;
        struct err err = { 0 };
        const struct store_redis_config config = {
            .url = STR("rediss://localhost"),
            .fleet = STR("f"),
            .ca = str_from(path(rows[i].ca, "pem", ca)),
            .certificate = str_from(path(rows[i].certificate, "pem", certificate)),
            .key = str_from(path(rows[i].key, "key", key)),
        };
        assert_true(store_redis_open(&config, &s, &err) < 0);
        if (!strstr(err.text, rows[i].says)) fail_msg("%s", err.text);
    }
}

static void one_side_without_tls_is_told(void **state)
{
    (void)state;
    char at[96];
    struct err err = { 0 };
    start(&one, "one", "good", asks_nobody);
    number++;
    snprintf(at, sizeof at, "rediss://localhost:%u", one.plain.port);
    struct store *s = open_at(at, &without, FAILOVER_US);
    int rc = store_get(s, STR("k"), NULL, NULL, &err);
    print_message("%s\n", err.text);
    assert_int_equal(rc, -ETIMEDOUT); /* Redis waits for the end of a line */
    assert_non_null(strstr(err.text, "does the server speak TLS"));
    store_close(s);
    snprintf(at, sizeof at, "redis://localhost:%u", one.port);
    s = open_at(at, &without, PATIENT_US);
    rc = store_get(s, STR("k"), NULL, NULL, &err);
    print_message("%s\n", err.text);
    assert_true(rc == -EPROTO || rc == -ECONNRESET);
    store_close(s);
}

/* A server that hangs within the handshake costs the bound, as one that hangs later does. */
static void a_handshake_is_bounded(void **state)
{
    (void)state;
    struct err err = { 0 };
    start(&one, "one", "good", asks_nobody);
    number++;
    struct store *s = open_at(url, &without, FAILOVER_US);
    redis_signal(&one.plain, SIGSTOP);
    assert_int_equal(store_get(s, STR("k"), NULL, NULL, &err), -ETIMEDOUT);
    assert_int_equal(store_get(s, STR("k"), NULL, NULL, &err), -ENETDOWN);
    redis_signal(&one.plain, SIGCONT);
    int rc = -1;
    for (int i = 0; i < 1000 && rc != -ENOENT; i++, usleep(20000))
        rc = store_get(s, STR("k"), NULL, NULL, &err);
    if (rc != -ENOENT) fail_msg("%s", err.text);
    store_close(s);
}

/* ---- Sentinel and Cluster ---- */

static void fill(struct store *s)
{
    for (int i = 0; i < 50; i++) {
        char key[16];
        snprintf(key, sizeof key, "k/%03d", i);
        assert_int_equal(store_put_if(s, str_from(key), STR("v"), STORE_ABSENT, NULL, NULL), 0);
    }
}

static void assert_filled(struct store *s)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(store_list(s, STR("k/"), keep_key, &out, NULL), 0);
    assert_int_equal(out.len, 50 * strlen("k/000=v "));
}

/* All of it is TLS, with certificates of both sides: Sentinel, the servers among themselves, and the store. */
static void sentinel_names_the_master_and_the_next(void **state)
{
    (void)state;
    struct tls_server replica = { 0 }, sentinel = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    char port[8], conf[128], at[128];
    static const char *const among[] = { "--tls-replication", "yes", NULL };
    start(&one, "one", "good", among);
    snprintf(port, sizeof port, "%u", one.port);
    start(&replica, "two", "again",
          (const char *const[]){ "--tls-replication", "yes", "--replicaof", "127.0.0.1", port,
                                 NULL });
    assert_true(redis_await(&replica.plain, "INFO replication", "master_link_status:up"));
    buf_printf(&text,
               "sentinel monitor main 127.0.0.1 %u 1\nsentinel down-after-milliseconds main 500\n"
               "sentinel failover-timeout main 3000\n",
               one.port);
    assert_int_equal(file_write_atomic(path("sentinel", "conf", conf), buf_view(&text), 0600, NULL),
                     0);
    start(&sentinel, "three", "good",
          (const char *const[]){ conf, "--sentinel", "--tls-replication", "yes", NULL });
    assert_true(redis_await(&sentinel.plain, "SENTINEL master main", "num-slaves\r\n$1\r\n1"));
    /* The first sentinel does not exist. */
    snprintf(at, sizeof at, "rediss+sentinel://127.0.0.1:1,localhost:%u/main", sentinel.port);
    number++;
    struct store *s = open_at(at, &ours, FAILOVER_US);
    suite_lead_again(s, REDIS_STARTS_US);
    fill(s);
    redis_signal(&one.plain, SIGSTOP); /* the old master hangs */
    assert_true(redis_await(&replica.plain, "ROLE", "master"));
    suite_lead_again(s, REDIS_STARTS_US);
    assert_filled(s);
    assert_int_equal(store_put_if(s, STR("new"), STR("v"), STORE_ABSENT, NULL, NULL), 0);
    /* The new master took it, and not the old one. */
    char line[64];
    snprintf(line, sizeof line, "EXISTS {fleet-%d}:e:new", number);
    assert_true(redis_says(&replica.plain, line, ":1"));
    redis_signal(&one.plain, SIGCONT);
    store_close(s);
    redis_remove(&sentinel.plain);
    redis_remove(&replica.plain);
}

static void cluster_make(struct tls_server node[NODES])
{
    static const char *const at[NODES] = { "one", "two", "three" };
    char line[96], bus[8];
    for (int i = 0; i < NODES; i++) {
        node[i].bus = free_port();
        snprintf(bus, sizeof bus, "%u", node[i].bus);
        start(&node[i], at[i], i ? "again" : "good",
              (const char *const[]){ "--cluster-enabled", "yes", "--cluster-port", bus,
                                     "--tls-cluster", "yes", "--tls-replication", "yes", NULL });
        int from = 16384 * i / NODES, to = 16384 * (i + 1) / NODES - 1;
        snprintf(line, sizeof line, "CLUSTER ADDSLOTSRANGE %d %d", from, to);
        assert_true(redis_says(&node[i].plain, line, "OK"));
        snprintf(line, sizeof line, "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        assert_true(redis_says(&node[i].plain, line, "OK"));
    }
    for (int i = 1; i < NODES; i++) {
        snprintf(line, sizeof line, "CLUSTER MEET 127.0.0.1 %u %u", node[i].port, node[i].bus);
        assert_true(redis_says(&node[0].plain, line, "OK"));
    }
    for (int i = 0; i < NODES; i++) {
        assert_true(redis_await(&node[i].plain, "CLUSTER INFO", "cluster_known_nodes:3"));
        assert_true(redis_await(&node[i].plain, "CLUSTER INFO", "cluster_state:ok"));
    }
}

/* Fleets are asked for at one server, which names the TLS port of the one that has their slot. */
static void a_cluster_has_a_fleet_in_one_slot(void **state)
{
    (void)state;
    struct tls_server node[NODES] = { 0 };
    char line[64], reply[256], at[96];
    uint32_t fleets_of[NODES] = { 0 };
    cluster_make(node);
    snprintf(at, sizeof at, "rediss://localhost:%u", node[0].port);
    for (int i = 0; i < 12; i++) {
        number++;
        struct store *s = open_at(at, &ours, PATIENT_US);
        suite_lead(s, "a");
        fill(s);
        assert_filled(s);
        store_close(s);
        snprintf(line, sizeof line, "CLUSTER KEYSLOT {fleet-%d}:state", number);
        assert_true(redis_ask(&node[0].plain, line, reply, sizeof reply));
        long slot = strtol(reply + 1, NULL, 10);
        for (int k = 0; k < NODES; k++)
            fleets_of[k] += slot >= 16384 * k / NODES && slot < 16384 * (k + 1) / NODES;
    }
    print_message("of 12 fleets the nodes have %u, %u and %u\n", fleets_of[0], fleets_of[1],
                  fleets_of[2]);
    for (int i = 0; i < NODES; i++)
        assert_true(fleets_of[i] > 0);
    for (int i = 0; i < NODES; i++)
        redis_remove(&node[i].plain);
}

int main(void)
{
    if (!redis_server_exists()) return 77;
    if (!mkdtemp(folder)) return 1;
    if (!certs_make(folder)) {
        printf("skipped: there is no openssl command\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(it_answers_as_without_tls, stop),
        cmocka_unit_test_teardown(a_server_is_who_it_says, stop),
        cmocka_unit_test_teardown(a_server_may_ask_for_our_certificate, stop),
        cmocka_unit_test(files_that_cannot_be_used_are_named),
        cmocka_unit_test_teardown(one_side_without_tls_is_told, stop),
        cmocka_unit_test_teardown(a_handshake_is_bounded, stop),
        cmocka_unit_test_teardown(sentinel_names_the_master_and_the_next, stop),
        cmocka_unit_test(a_cluster_has_a_fleet_in_one_slot),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char line[160];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    if (failed == 0 && system(line) != 0) printf("%s stays\n", folder);
    return failed;
}
