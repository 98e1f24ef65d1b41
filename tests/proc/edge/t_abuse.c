/* t_abuse.c - measures a second client's latency while strangers abuse a router and an engine.
 *
 * Both servers run with RLIMIT_NOFILE at FILES, so that this program can hold twice as many connections.
 * While one thread abuses a server, another sends it short streamed chats and GET /health, each on a new
 * connection. Its P99 to the first byte has to stay within EXTRA_US of its value without abuse, which is
 * measured just before; every response has to be 200. The machine may be busy with other work, so a case
 * has ROUNDS tries. At the end the router has blamed no engine, and the memory is given back.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/edge/collide.h"
#include "tests/proc/edge/edge_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILES 512
#define FILES_TEXT "512"
#define IDLE (2 * FILES)
#define EXTRA_US 250000
#define ROUNDS 3
#define PROBES 150 /* the P99 is the second largest */
#define PROBE_PAUSE_US 10000
#define PROBE_US_MAX 20000000
#define TURN_PAUSE_US 5000
#ifdef __SANITIZE_ADDRESS__
#    define RSS_EXTRA_KIB (1024 * 1024) /* ASan keeps 256 MiB of freed memory and has a shadow */
#else
#    define RSS_EXTRA_KIB (64 * 1024) /* an allocator may keep this much */
#endif

static struct rig_process fake, router, engine;
static const struct edge_server servers[] = { { "router", &router }, { "engine", &engine } };

/* ---- the other client ---- */

struct probe {
    uint16_t port;
    atomic_bool done;
    int64_t us[PROBES];
    uint32_t failed; /* responses that were not 200 */
    char first_failure[160];
};

/* Returns the microseconds from connect to the first byte; PROBE_US_MAX for a failure. */
static int64_t ask_once(struct probe *p, struct str request)
{
    char reply[160] = "";
    struct timeval limit = { .tv_sec = PROBE_US_MAX / 1000000 };
    int64_t from_us = clock_mono_us();
    int fd = rig_connect(p->port, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ssize_t sent = send(fd, request.data, request.len, MSG_NOSIGNAL);
    ssize_t got = sent < 0 ? -1 : recv(fd, reply, sizeof reply - 1, 0);
    int64_t us = clock_mono_us() - from_us;
    for (char rest[4096]; got > 0 && recv(fd, rest, sizeof rest, 0) > 0;)
        continue;
    close(fd);
    if (got > 0 && edge_status(str_from(reply)) == 200) return us;
    if (p->failed++ == 0) {
        snprintf(p->first_failure, sizeof p->first_failure, "%zd %.120s", got,
                 got > 0 ? reply : strerror(errno));
    }
    return PROBE_US_MAX;
}

static void *probe_run(void *arg)
{
    struct probe *p = arg;
    CLEANUP(buf_fini) struct buf chat = { 0 };
    edge_post(&chat, CHAT, STR("{" HELLO ",\"stream\":true,\"max_tokens\":2}"));
    struct str health = STR("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    for (int i = 0; i < PROBES; i++) {
        p->us[i] = ask_once(p, i % 4 == 3 ? health : buf_view(&chat));
        usleep(PROBE_PAUSE_US);
    }
    atomic_store(&p->done, true);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t p99(struct probe *p)
{
    qsort(p->us, PROBES, sizeof p->us[0], by_size);
    return p->us[PROBES - 2];
}

/* ---- abuse ---- */

struct abuse {
    uint16_t port;
    int fd[IDLE];
    uint32_t count, turn;
    struct buf text[2]; /* prepared requests */
};

static void put_fd(struct abuse *a, int fd)
{
    assert_true(a->count < COUNT_OF(a->fd));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    a->fd[a->count++] = fd;
}

/* Sends as much of `bytes` as the socket takes now and drops the rest. */
static void send_part(int fd, struct str bytes)
{
    (void)!send(fd, bytes.data, bytes.len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends all of it, or as much as the server takes before it closes. */
static void send_whole(int fd, struct str bytes)
{
    while (bytes.len > 0) {
        ssize_t sent = send(fd, bytes.data, bytes.len, MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes = str_of(bytes.data + sent, bytes.len - (size_t)sent);
    }
}

static bool is_closed(int fd)
{
    char bytes[4096];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        continue;
    return got == 0 || errno != EAGAIN;
}

/* Replaces connections that the server has closed, at most `most` in a turn. */
static void renew(struct abuse *a, uint32_t most, struct str begin)
{
    for (uint32_t i = 0; i < a->count && most > 0; i++) {
        if (!is_closed(a->fd[i])) continue;
        close(a->fd[i]);
        a->fd[i] = rig_connect(a->port, 0);
        send_part(a->fd[i], begin);
        fcntl(a->fd[i], F_SETFL, O_NONBLOCK);
        most--;
    }
}

static void idle_begin(struct abuse *a)
{
    for (int i = 0; i < IDLE; i++)
        put_fd(a, rig_connect(a->port, 0));
}

static void idle_turn(struct abuse *a)
{
    renew(a, 20, (struct str){ 0 });
}

#define HALF_BODIES 34
#define HALF_BYTES 4300000

static void half_turn(struct abuse *a)
{
    if (a->text[0].len == 0) {
        buf_text(&a->text[0], POST "Content-Length: 8388608\r\n\r\n{\"prompt\":\"");
        for (int i = 0; i < HALF_BYTES; i++)
            buf_byte(&a->text[0], 'a');
    }
    if (a->count < HALF_BODIES) {
        int fd = rig_connect(a->port, 0);
        send_whole(fd, buf_view(&a->text[0]));
        put_fd(a, fd);
        return;
    }
    if (a->turn % 20 != 0) return; /* then about 5 MB/s until the end */
    uint32_t oldest = a->turn / 20 % HALF_BODIES;
    close(a->fd[oldest]);
    a->fd[oldest] = rig_connect(a->port, 0);
    send_whole(a->fd[oldest], buf_view(&a->text[0]));
    fcntl(a->fd[oldest], F_SETFL, O_NONBLOCK);
}

static void unread_begin(struct abuse *a)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    edge_repeat(&text, "{\"prompt\":\"", "ab ", 40000, "\"}");
    edge_post(&a->text[0], "/tokenize", buf_view(&text));
    edge_post(&a->text[1], TEXT,
              STR("{\"prompt\":\"hi\",\"stream\":true,\"max_tokens\":1500,\"ignore_eos\":true}"));
}

/* Opens readers that read a few bytes at a time: 15 of 16 ask for a reply of hundreds of kilobytes, the
 * last one for a stream. */
static void unread_turn(struct abuse *a)
{
    char bytes[64];
    if (a->count < 64 && a->turn % 4 == 0) {
        int fd = rig_connect(a->port, 4096);
        send_whole(fd, buf_view(&a->text[a->count % 16 == 15]));
        put_fd(a, fd);
    }
    for (uint32_t i = 0; a->turn % 20 == 0 && i < a->count; i++)
        (void)!recv(a->fd[i], bytes, sizeof bytes, MSG_DONTWAIT);
}

#define PROMPT_BYTES (8000000)

static void prompt_begin(struct abuse *a)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    edge_repeat(&text, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "abcd ",
                PROMPT_BYTES / 5, "\"}]}");
    edge_post(&a->text[0], CHAT, buf_view(&text));
    buf_clear(&text);
    edge_repeat(&text, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "a", PROMPT_BYTES,
                "\"}]}");
    edge_post(&a->text[1], CHAT, buf_view(&text));
}

/* Keeps two whole prompts at the server at all times, being sent or being computed. */
static void prompt_turn(struct abuse *a)
{
    uint32_t at = a->turn % 2;
    if (a->count == 2 && !is_closed(a->fd[at])) return;
    int fd = rig_connect(a->port, 0);
    send_whole(fd, buf_view(&a->text[at]));
    if (a->count < 2) {
        put_fd(a, fd);
        return;
    }
    close(a->fd[at]);
    a->fd[at] = fd;
}

/* Places in a request for an object of many keys; %s: the object. */
static const char *const fields[] = {
    HELLO ",\"chat_template_kwargs\":%s",
    HELLO ",\"metadata\":%s",
    HELLO ",\"logit_bias\":%s",
    HELLO ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":%s}}]",
    HELLO ",\"tools\":[%s]",
    HELLO ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"s\","
          "\"schema\":{\"type\":\"object\",\"properties\":%s}}}",
    HELLO ",\"stream_options\":%s",
    "\"messages\":[{\"role\":\"user\",\"content\":\"hi\",\"more\":%s}]",
    "\"messages\":[%s]",
    HELLO ",\"unknown\":%s",
    HELLO ",%s", /* at the top, without its braces */
};
#define FLOOD_KEYS 60000

static void flood_begin(struct abuse *a)
{
    collide_object(&a->text[0], FLOOD_KEYS);
    plain_object(&a->text[1], FLOOD_KEYS);
}

static void flood_turn(struct abuse *a)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    if (a->count == 2 && !is_closed(a->fd[a->turn % 2])) return;
    const char *field = fields[a->turn / 2 % COUNT_OF(fields)];
    struct str object = buf_view(&a->text[a->turn % 2]);
    if (strcmp(field, HELLO ",%s") == 0) object = str_of(object.data + 1, object.len - 2);
    const char *at = strstr(field, "%s");
    buf_text(&body, "{\"max_tokens\":1,");
    buf_append(&body, field, (size_t)(at - field));
    buf_str(&body, object);
    buf_printf(&body, "%s}", at + 2);
    edge_post(&bytes, CHAT, buf_view(&body));
    int fd = rig_connect(a->port, 0);
    send_whole(fd, buf_view(&bytes));
    if (a->count < 2) {
        put_fd(a, fd);
        return;
    }
    close(a->fd[a->turn % 2]);
    a->fd[a->turn % 2] = fd;
}

#define SLOW_HEADS 300

static void heads_begin(struct abuse *a)
{
    for (int i = 0; i < SLOW_HEADS; i++) {
        put_fd(a, rig_connect(a->port, 0));
        send_part(a->fd[i], STR("GET / HTTP/1.1\r\nX: "));
    }
}

static void heads_turn(struct abuse *a)
{
    for (uint32_t i = a->turn % 20; i < a->count; i += 20)
        send_part(a->fd[i], STR("x"));
    renew(a, 5, STR("GET / HTTP/1.1\r\nX: "));
}

/* Connects and leaves as fast as it can: without a byte, within the head, by reset, or after a request
 * without reading the reply. */
static void churn_turn(struct abuse *a)
{
    static const char *const begins[] = { "", "GET /heal", "POST /v1/completions HTTP/1.1\r\n",
                                          "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" };
    for (uint32_t i = 0; i < 20; i++) {
        int fd = rig_connect(a->port, 0);
        struct linger reset = { .l_onoff = 1 };
        send_part(fd, str_from(begins[i % COUNT_OF(begins)]));
        if (i / 4 % 2 == 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
    }
}

static const struct kind {
    const char *name;
    void (*begin)(struct abuse *a); /* optional */
    void (*turn)(struct abuse *a);
} kinds[] = {
    { "twice as many idle connections as descriptors", idle_begin, idle_turn },
    { "34 half bodies of 4.3 MB", NULL, half_turn },
    { "slow readers of large replies", unread_begin, unread_turn },
    { "prompts of 8 MB", prompt_begin, prompt_turn },
    { "objects of 60,000 keys, colliding ones and plain ones", flood_begin, flood_turn },
    { "slow headers", heads_begin, heads_turn },
    { "connection churn", NULL, churn_turn },
};

/* ---- one against the other ---- */

/* Runs all probes while abuse of this kind goes on; NULL: no abuse. */
static void probe_beside(struct probe *p, uint16_t port, const struct kind *kind)
{
    static struct abuse a;
    pthread_t thread;
    a = (struct abuse){ .port = port };
    *p = (struct probe){ .port = port };
    if (kind && kind->begin) kind->begin(&a);
    assert_int_equal(pthread_create(&thread, NULL, probe_run, p), 0);
    while (!atomic_load(&p->done)) {
        if (kind) kind->turn(&a);
        a.turn++;
        usleep(TURN_PAUSE_US);
    }
    pthread_join(thread, NULL);
    for (uint32_t i = 0; i < a.count; i++)
        close(a.fd[i]);
    for (size_t i = 0; i < COUNT_OF(a.text); i++)
        buf_fini(&a.text[i]);
}

static bool is_borne(const struct edge_server *to, const struct kind *kind)
{
    static struct probe quiet, beside;
    probe_beside(&quiet, to->process->port, NULL);
    probe_beside(&beside, to->process->port, kind);
    int64_t before_us = p99(&quiet), us = p99(&beside);
    print_message("%s, %s: P99 %.1f ms, %.1f ms without; %u and %u not answered 200 %s\n", to->name,
                  kind->name, (double)us / 1e3, (double)before_us / 1e3, beside.failed,
                  quiet.failed, beside.first_failure);
    return beside.failed == 0 && quiet.failed == 0 && us <= before_us + EXTRA_US;
}

static void bear(const struct kind *kind)
{
    for (size_t s = 0; s < COUNT_OF(servers); s++) {
        bool borne = false;
        for (int round = 0; !borne && round < ROUNDS; round++)
            borne = is_borne(&servers[s], kind);
        if (!borne) fail_msg("%s does not bear %s", servers[s].name, kind->name);
        assert_true(rig_is_alive(servers[s].process));
        edge_expect_service(&servers[s]);
    }
}

#define CASE(n, name)              \
    static void name(void **state) \
    {                              \
        (void)state;               \
        bear(&kinds[n]);           \
    }
CASE(0, idle_connections)
CASE(1, half_bodies)
CASE(2, slow_readers)
CASE(3, long_prompts)
CASE(4, key_floods)
CASE(5, slow_headers)
CASE(6, connection_churn)

/* ---- before and after ---- */

static int64_t rss_before[COUNT_OF(servers)];

static bool is_given_back(void *arg)
{
    size_t s = *(size_t *)arg;
    return rig_rss_kib(servers[s].process) <= 2 * rss_before[s] + RSS_EXTRA_KIB;
}

static void no_engine_was_blamed_and_memory_is_given_back(void **state)
{
    (void)state;
    static const char *const blames[] = { "unreachable", "died", "silent" };
    for (size_t i = 0; i < COUNT_OF(blames); i++) {
        char name[96];
        snprintf(name, sizeof name, "muster_router_retries_total{failure=\"%s\"}", blames[i]);
        double failed = rig_metric(router.port, name);
        if (failed > 0) fail_msg("%s %.0f", name, failed);
    }
    for (size_t s = 0; s < COUNT_OF(servers); s++) {
        int64_t after = rig_rss_kib(servers[s].process);
        print_message("%s: %lld KiB, %lld before\n", servers[s].name, (long long)after,
                      (long long)rss_before[s]);
        rig_wait(is_given_back, &s, "memory comes back");
    }
}

/* Starts a server as rig_server does, with at most FILES descriptors. */
static struct rig_process start_short_of_files(const char *role, const char *const *more)
{
    char listen[24];
    uint16_t port = rig_port();
    const char *argv[RIG_ARGS_MAX] = { "/bin/sh",
                                       "-c",
                                       "ulimit -n " FILES_TEXT " && exec \"$0\" \"$@\"",
                                       getenv("MUSTER_BIN"),
                                       role,
                                       "--listen",
                                       listen };
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    rig_add_args(argv, 7, more);
    return rig_start(role, argv, port, "/health", 200);
}

static int setup(void **state)
{
    (void)state;
    fake = rig_fake_engine(rig_port(), ARGS("--context", "4096"));
    router = start_short_of_files("router", ARGS("--endpoints", fake.at, "--sync", "100ms"));
    rig_wait_endpoints(&router, 1);
    engine = start_short_of_files("engine", ARGS("--model", MODEL, "--threads", "1"));
    for (size_t s = 0; s < COUNT_OF(servers); s++) {
        edge_expect_service(&servers[s]);
        rss_before[s] = rig_rss_kib(servers[s].process);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int router_code = rig_stop(&router), engine_code = rig_stop(&engine);
    rig_kill(&fake);
    return router_code != 0 || engine_code != 0;
}

int main(void)
{
    struct rlimit files;
    if (!rig_can_run((const char *const[]){ "/bin/sh", "MUSTER_BIN", "FAKE_ENGINE_BIN", NULL }))
        return RIG_SKIP;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max < IDLE + 256) {
        print_message("skipped: this program needs %d descriptors\n", IDLE + 256);
        return RIG_SKIP;
    }
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_connections),
        cmocka_unit_test(half_bodies),
        cmocka_unit_test(slow_readers),
        cmocka_unit_test(long_prompts),
        cmocka_unit_test(key_floods),
        cmocka_unit_test(slow_headers),
        cmocka_unit_test(connection_churn),
        cmocka_unit_test(no_engine_was_blamed_and_memory_is_given_back),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
