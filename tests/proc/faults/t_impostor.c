/* t_impostor.c - lets an impostor listen at the port of a dead controller, engine or router: it learns
 * nothing useful, and its replies are not believed.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/fleet_rig.h"

#include <glob.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define TEXT "/v1/completions"
#define KEPT_MAX 64
#define LIES_MORE 8 /* further requests to the impostor: several reports and syncs */
#define LIES "lies of an impostor"

/* ---- the impostor ---- */

struct impostor {
    int listener;
    pthread_t thread;
    pthread_mutex_t lock;
    struct buf heard;          /* all bytes it got */
    struct buf kept[KEPT_MAX]; /* the requests, one by one */
    uint32_t count;
    struct str (*answer)(struct str request);
};

static bool whole(const struct buf *in)
{
    const char *end = in->data ? strstr(in->data, "\r\n\r\n") : NULL;
    const char *at = in->data ? strstr(in->data, "content-length: ") : NULL;
    size_t body = end && at && at < end ? strtoul(at + 16, NULL, 10) : 0;
    return end && in->len >= (size_t)(end - in->data) + 4 + body;
}

static void serve_one(struct impostor *m, int fd)
{
    CLEANUP(buf_fini) struct buf in = { 0 }, out = { 0 };
    while (!whole(&in)) {
        char chunk[4096];
        ssize_t n = recv(fd, chunk, sizeof chunk, 0);
        if (n <= 0) break;
        buf_append(&in, chunk, (size_t)n);
        buf_byte(&in, '\0');
        in.len--;
    }
    pthread_mutex_lock(&m->lock);
    buf_str(&m->heard, buf_view(&in));
    if (m->count < KEPT_MAX && in.len > 0) buf_str(&m->kept[m->count++], buf_view(&in));
    pthread_mutex_unlock(&m->lock);
    struct str body = m->answer(buf_view(&in));
    buf_printf(&out,
               "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
               "muster-reply: epoch=0000000000000001, time=1, body=stream, mac=%064d\r\n"
               "content-length: %zu\r\n\r\n" STR_FMT,
               0, body.len, STR_ARG(body));
    (void)send(fd, out.data, out.len, MSG_NOSIGNAL);
}

static void *impostor_main(void *arg)
{
    struct impostor *m = arg;
    int fd;
    while ((fd = accept(m->listener, NULL, NULL)) >= 0) {
        serve_one(m, fd);
        close(fd);
    }
    return NULL;
}

static void impostor_start(struct impostor *m, uint16_t port, struct str (*answer)(struct str))
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int on = 1;
    *m = (struct impostor){ .answer = answer };
    pthread_mutex_init(&m->lock, NULL);
    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(m->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(m->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(m->listener, 64), 0);
    assert_int_equal(pthread_create(&m->thread, NULL, impostor_main, m), 0);
}

static void impostor_stop(struct impostor *m)
{
    shutdown(m->listener, SHUT_RDWR);
    pthread_join(m->thread, NULL);
    close(m->listener);
}

static void impostor_fini(struct impostor *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        buf_fini(&m->kept[i]);
    buf_fini(&m->heard);
    pthread_mutex_destroy(&m->lock);
}

static bool heard(struct impostor *m, const char *what)
{
    pthread_mutex_lock(&m->lock);
    bool found = m->heard.len > 0 && str_find(buf_view(&m->heard), str_from(what)) != SIZE_MAX;
    pthread_mutex_unlock(&m->lock);
    return found;
}

/* Returns the number of requests that it has answered. */
static uint32_t answered(struct impostor *m)
{
    pthread_mutex_lock(&m->lock);
    uint32_t count = m->count;
    pthread_mutex_unlock(&m->lock);
    return count;
}

struct patience {
    struct impostor *m;
    uint32_t wanted;
};

static bool has_lied(void *arg)
{
    const struct patience *p = arg;
    return answered(p->m) >= p->wanted;
}

struct hearing {
    struct impostor *m;
    const char *what;
};

static bool has_heard(void *arg)
{
    const struct hearing *h = arg;
    return heard(h->m, h->what);
}

/* ---- the fleet ---- */

static char secret[128];

static void read_id(const char *file, struct proc_id *ret)
{
    char pattern[256];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/instances/*/%s", fleet_state, file);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(file_read(found.gl_pathv[0], 4096, &text, NULL), 0);
    struct str rest = buf_view(&text);
    assert_int_equal(proc_id_parse(str_trim(str_cut(&rest, '\n')), ret), 0);
    globfree(&found);
}

static int setup(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    fleet_open("200ms", "router: { sync: 100ms, hold_max: 2s }\n"
                        "local:\n"
                        "  cores: 1\n"
                        "  offers:\n"
                        "    - { name: third, share: 0.33, price_per_hour: 1,\n"
                        "        launch_delay: 100ms }\n"
                        "services:\n"
                        "  - name: tiny\n"
                        "    model: " MODEL "\n"
                        "    engine_flags: ['--threads', '1']\n"
                        "    pools: [ { name: only, offers: [third], max: 1 } ]\n");
    fleet_scale(1);
    fleet_wait(1);
    assert_int_equal(file_read(fleet_secret, 128, &text, NULL), 0);
    snprintf(secret, sizeof secret, "%.64s", text.data);
    assert_int_equal(strlen(secret), 64);
    return 0;
}

static int complete(struct buf *reply)
{
    return rig_call(router.port, TEXT, "{\"prompt\":\"once\",\"max_tokens\":4,\"temperature\":0}",
                    reply);
}

static bool completes(void *arg)
{
    (void)arg;
    return complete(NULL) == 200;
}

static void expect_nothing_useful(struct impostor *m)
{
    assert_false(heard(m, secret));
    assert_false(heard(m, "Bearer "));
    assert_true(heard(m, "Muster-HMAC id="));
}

/* Replays the caught requests to the process that is back at the port: each is refused. */
static void expect_no_replay(struct impostor *m, uint16_t port)
{
    for (uint32_t i = 0; i < m->count; i++) {
        CLEANUP(buf_fini) struct buf reply = { 0 }, bytes = { 0 };
        struct str head = buf_view(&m->kept[i]), line = str_cut(&head, '\n');
        if (str_find(line, STR("/health")) != SIZE_MAX) continue;
        buf_str(&bytes, line);
        buf_text(&bytes, "\nConnection: close\r\n");
        buf_str(&bytes, head);
        assert_int_equal(rig_raw(port, buf_view(&bytes), &reply), 0);
        if (strncmp(reply.data, "HTTP/1.1 401", 12) != 0)
            fail_msg("%.*s: %.100s", (int)line.len, line.data, reply.data);
    }
}

/* ---- at the controller's port ---- */

static struct str as_controller(struct str request)
{
    if (str_find(request, STR("/routers/sync")) != SIZE_MAX)
        return str_from("{\"v\":1,\"keys_required\":false,\"keys_opened\":true,\"again_ms\":1,"
                        "\"endpoints\":[],\"complete\":true}");
    return str_from("{\"v\":1,\"known\":true,\"stop\":true,\"drain\":true,\"lease_ms\":1}");
}

static void a_dead_controller_s_port(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 }, out = { 0 };
    struct proc_id engine, after;
    struct impostor m;
    read_id("engine.id", &engine);
    rig_kill(&controller);
    impostor_start(&m, controller.port, as_controller);
    struct hearing report = { &m, "/api/v1/agents/report" }, sync = { &m, "/api/v1/routers/sync" };
    rig_wait(has_heard, &report, "the agent reports to the impostor");
    rig_wait(has_heard, &sync, "the router asks it");
    /* A command reveals nothing to the impostor, and says that another party is there. */
    assert_int_not_equal(
        rig_run(&out, ARGS("status", "--controller", controller.at, "--state", fleet_state)), 0);
    assert_non_null(strstr(out.data, "does not know the secret"));
    assert_int_not_equal(rig_run(&out, ARGS("scale", "tiny", "0", "--controller", controller.at,
                                            "--state", fleet_state)),
                         0);
    struct patience lies = { &m, min_u32(answered(&m) + LIES_MORE, KEPT_MAX) };
    rig_wait(has_lied, &lies, "several reports and syncs are lied to");
    expect_nothing_useful(&m);
    read_id("engine.id", &after);
    assert_true(proc_id_eq(&engine, &after) && proc_is_alive(&after));
    assert_int_equal(complete(&reply), 200);
    impostor_stop(&m);
    fleet_start_controller();
    expect_no_replay(&m, controller.port);
    assert_true(
        rig_metric(controller.port, "muster_controller_signed_requests_total{verdict=\"stale\"}") >=
        m.count);
    fleet_wait(1);
    read_id("engine.id", &after);
    assert_true(proc_id_eq(&engine, &after) && proc_is_alive(&after));
    impostor_fini(&m);
}

/* ---- at the engine's port ---- */

static struct str as_engine(struct str request)
{
    if (str_find(request, STR("/internal/generate")) != SIZE_MAX)
        return str_from("{\"ids\":[5],\"text\":\"" LIES "\"}\n"
                        "{\"finish\":\"stop\",\"usage\":{\"prompt_tokens\":1,"
                        "\"cached_tokens\":0,\"generated_tokens\":1}}\n");
    return str_from("{}");
}

static void a_dead_engine_s_port(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct proc_id engine, agent;
    struct impostor m;
    int64_t port;
    while ((port = rig_number(controller.port, "/api/v1/instances", "port")) <= 0)
        usleep(10000); /* until its agent has reported */
    read_id("engine.id", &engine);
    read_id("agent.lock", &agent);
    assert_int_equal(proc_signal(&agent, SIGSTOP, NULL), 0); /* else it starts another engine */
    assert_int_equal(proc_signal(&engine, SIGKILL, NULL), 0);
    while (rig_call((uint16_t)port, "/health", NULL, NULL) != 0)
        usleep(10000);
    impostor_start(&m, (uint16_t)port, as_engine);
    int status = rig_call(router.port, TEXT,
                          "{\"prompt\":\"a secret\",\"max_tokens\":4,\"stream\":true}", &reply);
    if (reply.len > 0) assert_null(strstr(reply.data, LIES));
    assert_int_not_equal(status, 200);
    assert_true(heard(&m, "/internal/generate"));
    assert_int_equal(proc_signal(&agent, SIGCONT, NULL), 0);
    struct hearing probe = { &m, "/internal/events" };
    rig_wait(has_heard, &probe, "the router asks for block events");
    expect_nothing_useful(&m);
    impostor_stop(&m);
    fleet_wait(1);
    rig_wait(completes, NULL, "the router trusts the engine again");
    impostor_fini(&m);
}

/* ---- at the router's port ---- */

static struct str as_router(struct str request)
{
    (void)request;
    return str_from("{\"quarantine\":[]}");
}

static void a_dead_router_s_port(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct impostor m;
    rig_kill(&router);
    impostor_start(&m, router.port, as_router);
    int rc = rig_run(
        &out, ARGS("quarantine", "list", "--controller", controller.at, "--state", fleet_state));
    if (rc == 0) fail_msg("believed: %s", out.data);
    expect_nothing_useful(&m);
    impostor_stop(&m);
    fleet_start_router();
    expect_no_replay(&m, router.port);
    impostor_fini(&m);
}

/* An instance's folder holds the instance's own key and not the fleet's secret. */
static void an_instance_holds_its_own_key_alone(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf key = { 0 }, spec = { 0 };
    char pattern[256];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/instances/*/key", fleet_state);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(file_read(found.gl_pathv[0], 4096, &key, NULL), 0);
    globfree(&found);
    assert_non_null(strstr(key.data, "muster-instance-key 1\n"));
    assert_null(strstr(key.data, secret));
    snprintf(pattern, sizeof pattern, "%s/instances/*/spec.json", fleet_state);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(file_read(found.gl_pathv[0], 1 << 16, &spec, NULL), 0);
    globfree(&found);
    assert_null(strstr(spec.data, fleet_secret));
    assert_null(strstr(spec.data, secret));
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_instance_holds_its_own_key_alone),
        cmocka_unit_test(a_dead_controller_s_port),
        cmocka_unit_test(a_dead_engine_s_port),
        cmocka_unit_test(a_dead_router_s_port),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
