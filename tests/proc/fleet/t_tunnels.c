/* t_tunnels.c - runs engines that no router can reach: their agents dial the router, which calls them through that.
 *
 * First a router over scripted engines, to which only their agents connect: many streams at once, a client that does
 * not read, agents that die, hang and come back in the midst of streams, an agent with a foreign key, TLS. Then a
 * fleet with a controller, from which agents learn where the routers are; and two networks, where the kernel
 * permits. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/certs.h"
#include "tests/proc/rig/fleet_rig.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT "/v1/completions"
#define CLIENTS 200
#define FEWER 60 /* of which an engine gets half */
#define TOKENS 8
#define SLOW_MS "400" /* between tokens: streams are open for three seconds */

static struct rig_process engine[2], agent[2];
static char secret[RIG_PATH];
static bool tls; /* the router's port speaks it */

/* ---- a router, and engines behind agents ---- */

static void start_engine(uint32_t i, const char *token_ms)
{
    if (!engine[i].port) engine[i].port = rig_port();
    engine[i] =
        rig_fake_engine(engine[i].port, ARGS("--secret-file", secret, "--running-max", "256",
                                             "--tokens", "100000", "--token-ms", token_ms));
}

/* Starts the agent of engine i under the name eI, with this key and CA. */
static void start_agent(uint32_t i, const char *key, const char *ca)
{
    char name[8], url[64], at[64];
    snprintf(name, sizeof name, "e%u", i);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", engine[i].port);
    snprintf(at, sizeof at, "%s127.0.0.1:%u", tls ? "https://" : "", router.port);
    const char *args[RIG_ARGS_MAX] = { getenv("MUSTER_BIN"),
                                       "agent",
                                       "--adopt",
                                       url,
                                       "--engine-kind",
                                       "muster",
                                       "--name",
                                       name,
                                       "--secret-file",
                                       key,
                                       "--tunnel",
                                       "--routers",
                                       at };
    rig_add_args(args, 13, ca ? ARGS("--tls-ca", ca) : ARGS(NULL));
    agent[i] = rig_start(name, args, 0, NULL, 0);
}

static double metric(const char *name);

static bool is_there(void *arg)
{
    (void)arg;
    return metric("muster_router_tunnels") >= 0;
}

/* Starts the router over the tunnels of the first `count` agents. */
static void start_router(uint32_t count, const char *const *more)
{
    char list[128], at[32];
    uint16_t port = rig_port();
    snprintf(list, sizeof list, "tunnel:e0:%u", engine[0].port);
    if (count > 1)
        snprintf(list + strlen(list), sizeof list - strlen(list), ",tunnel:e1:%u", engine[1].port);
    snprintf(at, sizeof at, "127.0.0.1:%u", port);
    const char *args[RIG_ARGS_MAX] = { getenv("MUSTER_BIN"), "router", "--listen", at,
                                       "--endpoints",        list,     "--sync",   "100ms",
                                       "--secret-file",      secret };
    rig_add_args(args, 10, more);
    router = rig_start("router", args, port, NULL, 0);
    router.port = port;
    rig_wait(is_there, NULL, "the router replies");
}

/* Makes one call, over TLS where the router speaks it. */
static int call(const char *path, const char *body, struct buf *reply)
{
    char ca[RIG_PATH + 16];
    if (!tls) return rig_call(router.port, path, body, reply);
    snprintf(ca, sizeof ca, "%s/ca.pem", rig_folder());
    const struct http_fetch_request req = { .host = STR("127.0.0.1"),
                                            .port = router.port,
                                            .tls = true,
                                            .files = { .ca = str_from(ca) },
                                            .path = str_from(path),
                                            .body = str_from(body ? body : ""),
                                            .json = body != NULL,
                                            .timeout_us = RIG_WAIT_US };
    int status = 0;
    buf_clear(reply);
    if (http_fetch(&req, &status, reply, NULL) < 0) return 0;
    buf_byte(reply, 0);
    return status;
}

static double metric(const char *name)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char line[128];
    if (call("/metrics", NULL, &reply) != 200) return -1;
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(reply.data, line);
    return at ? strtod(at + strlen(line), NULL) : -1;
}

struct wanted {
    const char *metric;
    double least;
};

static bool is_met(void *arg)
{
    const struct wanted *w = arg;
    return metric(w->metric) >= w->least;
}

static void wait_for(const char *name, double least)
{
    rig_wait(is_met, &(struct wanted){ name, least }, name);
}

static int close_all(void **state)
{
    (void)state;
    int code = router.port ? rig_stop(&router) : 0;
    for (uint32_t i = 0; i < 2; i++) {
        rig_kill(&agent[i]);
        rig_kill(&engine[i]);
        engine[i] = agent[i] = (struct rig_process){ 0 };
    }
    router = (struct rig_process){ 0 };
    tls = false;
    assert_int_equal(code, 0);
    return 0;
}

/* ---- clients ---- */

struct client {
    pthread_t thread;
    struct buf text;
    bool whole;
    char reply[200]; /* of one that is not whole */
};

/* Gathers the texts of a reply's pieces. */
static void gather(const char *reply, struct buf *text)
{
    static const char key[] = "\"text\":\"";
    for (const char *at = reply; (at = strstr(at, key));) {
        at += sizeof key - 1;
        const char *end = strchr(at, '"');
        buf_str(text, str_of(at, (size_t)(end - at)));
        at = end;
    }
    buf_byte(text, 0);
}

static void *run_client(void *arg)
{
    struct client *c = arg;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char body[160];
    snprintf(body, sizeof body,
             "{\"prompt\":\"The tunnel\",\"max_tokens\":%d,\"ignore_eos\":true,\"seed\":7,"
             "\"stream\":true}",
             TOKENS);
    int status = call(TEXT, body, &reply);
    c->whole = status == 200 && strstr(reply.data, "[DONE]");
    if (c->whole) gather(reply.data, &c->text);
    snprintf(c->reply, sizeof c->reply, "%d %.180s", status, reply.data ? reply.data : "");
    return NULL;
}

/* Runs the clients, calls `meanwhile` while they read, and checks that each got what one alone gets. */
static void run_clients(uint32_t count, void (*meanwhile)(void))
{
    struct client *c = calloc(count + 1, sizeof *c);
    run_client(&c[count]);
    if (!c[count].whole) fail_msg("alone: %s", c[count].reply);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&c[i].thread, NULL, run_client, &c[i]), 0);
    if (meanwhile) meanwhile();
    for (uint32_t i = 0; i < count; i++)
        pthread_join(c[i].thread, NULL);
    for (uint32_t i = 0; i < count; i++) {
        if (!c[i].whole) fail_msg("client %u: %s", i, c[i].reply);
        assert_string_equal(c[i].text.data, c[count].text.data);
        buf_fini(&c[i].text);
    }
    buf_fini(&c[count].text);
    free(c);
}

static bool are_open(void *arg)
{
    return rig_number(engine[0].port, "/seen", "open") >= *(const int *)arg;
}

static void wait_open(int streams)
{
    rig_wait(are_open, &streams, "so many streams are open at the first engine");
}

/* ---- tests ---- */

static void most_are_open(void)
{
    wait_open(CLIENTS / 2);
}

/* Two hundred streams through one connection, beside one that its client does not read. */
static void many_streams(void **state)
{
    (void)state;
    start_engine(0, SLOW_MS);
    start_router(1, ARGS(NULL));
    start_agent(0, secret, NULL);
    wait_for("muster_router_endpoints", 1);
    char idle[256];
    int n = snprintf(idle, sizeof idle,
                     "POST " TEXT " HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                     "content-type: application/json\r\ncontent-length: 80\r\n\r\n%-80s",
                     "{\"prompt\":\"x\",\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":true}");
    int fd = rig_connect(router.port, 2048);
    assert_int_equal(send(fd, idle, (size_t)n, 0), n);
    wait_open(1);
    run_clients(CLIENTS, most_are_open);
    assert_true(metric("muster_router_tunnel_streams") > 0);
    assert_int_equal(metric("muster_router_tunnels"), 1);
    assert_int_equal(metric("muster_router_tunnels_lost_total"), 0);
    assert_int_equal(rig_number(engine[0].port, "/seen", "left"), 0); /* it is still being served */
    close(fd);
    rig_wait_number(engine[0].port, "/seen", "left", 1); /* its end reaches the engine */
}

static void kill_agent(void)
{
    wait_open(FEWER / 4);
    rig_kill(&agent[0]);
}

static void stop_agent(void)
{
    wait_open(FEWER / 4);
    assert_int_equal(proc_signal(&agent[0].proc.id, SIGSTOP, NULL), 0);
}

static void start_two(void)
{
    start_engine(0, SLOW_MS);
    start_engine(1, SLOW_MS);
    start_router(2, ARGS("--route", "round_robin", "--tunnel-silence", "3s"));
    start_agent(0, secret, NULL);
    start_agent(1, secret, NULL);
    wait_for("muster_router_endpoints", 2);
}

/* An agent dies in the midst of streams: their outputs go on at the other engine. The next agent dials again. */
static void an_agent_dies(void **state)
{
    (void)state;
    start_two();
    run_clients(FEWER, kill_agent);
    assert_int_equal(metric("muster_router_tunnels_lost_total"), 1);
    assert_int_equal(metric("muster_router_endpoints"), 1);
    start_agent(0, secret, NULL);
    wait_for("muster_router_endpoints", 2);
    assert_int_equal(metric("muster_router_tunnels"), 2);
}

/* The connection stays and nothing comes through it: the tunnel is given up, and outputs go on elsewhere. */
static void an_agent_hangs(void **state)
{
    (void)state;
    start_two();
    run_clients(FEWER, stop_agent);
    assert_true(metric("muster_router_tunnels_lost_total") >= 1);
    assert_int_equal(proc_signal(&agent[0].proc.id, SIGCONT, NULL), 0);
    wait_for("muster_router_endpoints", 2); /* it finds its connection closed, and dials again */
}

static bool is_refused(void *arg)
{
    CLEANUP(buf_fini) struct buf log = { 0 };
    return file_read(((const struct rig_process *)arg)->log, 1 << 20, &log, NULL) == 0 &&
           str_find(buf_view(&log), STR("tunnel_down")) != SIZE_MAX;
}

/* An agent with the key of another fleet, and callers without any, get no tunnel. */
static void strangers_are_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char foreign[RIG_PATH];
    rig_file(foreign, "foreign",
             "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n");
    start_engine(0, "1");
    start_router(1, ARGS(NULL));
    start_agent(0, foreign, NULL);
    rig_wait(is_refused, &agent[0], "the agent says that it was refused");
    const char raw[] = "GET /internal/tunnel HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                       "connection: upgrade, close\r\nupgrade: muster-tunnel/1\r\n\r\n";
    assert_int_equal(rig_raw(router.port, str_from(raw), &reply), 0);
    assert_true(str_starts(buf_view(&reply), STR("HTTP/1.1 401 ")));
    assert_int_equal(metric("muster_router_tunnels"), 0);
    assert_int_equal(metric("muster_router_endpoints"), 0);
}

/* The tunnel speaks the TLS of the router's port, and an agent accepts only a router of its CA. */
static void over_tls(void **state)
{
    (void)state;
    char ca[RIG_PATH + 16], ca2[RIG_PATH + 16], good[RIG_PATH + 16], key[RIG_PATH + 16];
    start_engine(0, "1");
    tls = certs_make(rig_folder());
    snprintf(ca, sizeof ca, "%s/ca.pem", rig_folder());
    snprintf(ca2, sizeof ca2, "%s/ca2.pem", rig_folder());
    snprintf(good, sizeof good, "%s/good.pem", rig_folder());
    snprintf(key, sizeof key, "%s/good.key", rig_folder());
    start_router(1, tls ? ARGS("--tls-certificate", good, "--tls-key", key) : ARGS(NULL));
    if (!tls) {
        printf("skipped: no openssl command that makes certificates\n");
        skip();
    }
    start_agent(0, secret, ca2);
    rig_wait(is_refused, &agent[0], "the agent says that it does not know the router's CA");
    assert_int_equal(metric("muster_router_tunnels"), 0);
    rig_kill(&agent[0]);
    start_agent(0, secret, ca);
    wait_for("muster_router_endpoints", 1);
    run_clients(4, NULL);
    assert_int_equal(metric("muster_router_tunnels"), 1);
}

/* ---- a fleet: the controller names the routers to the agents ---- */

static void ask_fleet(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int status =
        rig_call(router.port, TEXT,
                 "{\"model\":\"tiny\",\"prompt\":\"The moon is\",\"max_tokens\":4}", &reply);
    if (status != 200) fail_msg("%d %s", status, reply.data ? reply.data : "");
}

static void agents_learn_of_routers(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf yaml = { 0 };
    router.port = rig_port();
    buf_printf(&yaml,
               "router: { sync: 100ms, agents_reach: '127.0.0.1:%u' }\n"
               "local: { cores: 1, offers: [ { name: third, share: 0.33, price_per_hour: 1 } ] }\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    engine_flags: ['--max-num-seqs', '4', '--threads', '1']\n"
               "    pools: [ { name: only, offers: [third], max: 2, tunnel: true } ]\n",
               router.port);
    fleet_open("200ms", yaml.data);
    fleet_scale(1);
    fleet_wait(1);
    ask_fleet();
    assert_int_equal(rig_call(controller.port, "/api/v1/instances", NULL, &reply), 200);
    if (!strstr(reply.data, "\"host\":\"tunnel:i-")) fail_msg("%s", reply.data);
    /* A scraper would not reach the engine. */
    assert_int_equal(rig_call(controller.port, "/api/v1/targets", NULL, &reply), 200);
    if (strstr(reply.data, "tunnel")) fail_msg("%s", reply.data);
    /* A router that comes back is dialled again. */
    rig_kill(&router);
    fleet_start_router();
    fleet_wait(1);
    ask_fleet();
    fleet_scale(0);
    fleet_wait(0);
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
    router = controller = (struct rig_process){ 0 };
}

/* ---- machines of their own: network namespaces ---- */

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void shell(const char *format, ...)
{
    char command[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(command, sizeof command, format, ap);
    va_end(ap);
    if (system(command) != 0) fail_msg("%s", command);
}

/* Starts a process that holds a network of its own; -1: not permitted here. */
static pid_t network_new(void)
{
    int told[2];
    char ok = 0;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ok = unshare(CLONE_NEWNET) == 0;
        if (write(told[1], &ok, 1) != 1 || !ok) _exit(1);
        for (;;)
            pause();
    }
    close(told[1]);
    if (read(told[0], &ok, 1) != 1) ok = 0;
    close(told[0]);
    if (ok) return pid;
    waitpid(pid, NULL, 0);
    return -1;
}

/* Engine and agent on a machine that has an address in the router's network and lets nobody in: the engine listens on
 * that machine's own loopback. */
static void another_machine(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char enter[32], port[8], url[48], at[48], list[64], bearer[RIG_BEARER];
    if (system("ip -V >/dev/null 2>&1 && nsenter --version >/dev/null") != 0 ||
        unshare(CLONE_NEWNET) != 0) {
        printf("skipped: no network namespaces here\n");
        skip();
    }
    pid_t far = network_new();
    assert_true(far > 0);
    snprintf(enter, sizeof enter, "%d", (int)far);
    shell("ip link set lo up && ip link add near type veth peer name far netns %s", enter);
    shell("ip addr add 10.77.0.1/24 dev near && ip link set near up");
    shell("nsenter -t %s -n sh -c 'ip link set lo up && ip addr add 10.77.0.2/24 dev far && "
          "ip link set far up'",
          enter);
    /* Ports of the other machine need not be free here, nor these there. */
    engine[0].port = rig_port();
    snprintf(port, sizeof port, "%u", engine[0].port);
    engine[0] = rig_start("engine",
                          ARGS("/usr/bin/nsenter", "-t", enter, "-n", getenv("FAKE_ENGINE_BIN"),
                               "--port", port, "--secret-file", secret),
                          0, NULL, 0);
    controller = rig_server("controller", rig_port(),
                            ARGS("--state", rig_folder(), "--secret-file", secret));
    router.port = rig_port();
    snprintf(at, sizeof at, "0.0.0.0:%u", router.port);
    snprintf(list, sizeof list, "tunnel:e0:%s", port);
    router = rig_start("router",
                       ARGS(getenv("MUSTER_BIN"), "router", "--listen", at, "--controller",
                            controller.at, "--endpoints", list, "--sync", "100ms", "--secret-file",
                            secret),
                       router.port, "/health", 200);
    snprintf(url, sizeof url, "http://127.0.0.1:%s", port);
    snprintf(at, sizeof at, "10.77.0.1:%u", router.port);
    agent[0] = rig_start("agent",
                         ARGS("/usr/bin/nsenter", "-t", enter, "-n", getenv("MUSTER_BIN"), "agent",
                              "--adopt", url, "--engine-kind", "muster", "--name", "e0",
                              "--secret-file", secret, "--tunnel", "--routers", at),
                         0, NULL, 0);
    wait_for("muster_router_endpoints", 1);
    rig_bearer(secret, bearer);
    int status = rig_call_with(router.port, TEXT, bearer,
                               "{\"prompt\":\"x\",\"max_tokens\":4,\"ignore_eos\":true}", &reply);
    if (status != 200) fail_msg("%d %s", status, reply.data ? reply.data : "");
    rig_kill(&controller);
    kill(far, SIGKILL);
    waitpid(far, NULL, 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN", MODEL))) return RIG_SKIP;
    rig_file(secret, "secret",
             "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n");
    rig_hurry_agents();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(many_streams, close_all),

        cmocka_unit_test_teardown(an_agent_dies, close_all),
        cmocka_unit_test_teardown(an_agent_hangs, close_all),
        cmocka_unit_test_teardown(strangers_are_refused, close_all),
        cmocka_unit_test_teardown(over_tls, close_all),
        cmocka_unit_test(agents_learn_of_routers),
        cmocka_unit_test_teardown(another_machine, close_all), /* the last: it changes networks */
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
