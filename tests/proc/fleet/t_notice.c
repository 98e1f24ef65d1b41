/* t_notice.c - a machine's metadata service recommends to replace it: another is made, serves, and takes its place. The
 * service announces the end of that one while an output runs: the agent hears it, the controller has a third made, and
 * the output is whole.
 *
 * Real controller, router, agents and engines with the shipped model; the service is a thread of this test that
 * speaks as EC2's does. Each agent gets a token of its own: the first one's machine is at risk, the second's is
 * taken. */
#include "tests/proc/rig/fleet_rig.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LOST "muster_controller_instances_lost_total{offer=\"spot\"}"
/* Of the notice: an engine starts meanwhile on a slow machine, or the output continues later. */
#define LEFT_S 20
#define TOKENS 1800

static struct {
    int fd;
    uint16_t port;
    atomic_uint tokens; /* given */
    atomic_bool risks, takes;
    atomic_long until_s;
} service;

/* Answers one request of one agent. */
static void answer(int fd)
{
    char q[4096], date[32], body[128], reply[512];
    size_t len = 0;
    while (len + 1 < sizeof q) {
        ssize_t n = read(fd, q + len, sizeof q - 1 - len);
        if (n <= 0) return;
        len += (size_t)n;
        q[len] = 0;
        if (strstr(q, "\r\n\r\n")) break;
    }
    int status = 404;
    body[0] = 0;
    if (strncmp(q, "PUT /latest/api/token ", 22) == 0 && strstr(q, "ttl-seconds: 21600")) {
        status = 200;
        snprintf(body, sizeof body, "token-%u", atomic_fetch_add(&service.tokens, 1));
    } else if (!strstr(q, "x-aws-ec2-metadata-token: token-")) {
        status = 401;
    } else if (strncmp(q, "GET /latest/meta-data/events/recommendations/rebalance ", 55) == 0) {
        status = strstr(q, "token-0\r\n") && service.risks ? 200 : 404;
        snprintf(body, sizeof body, "{\"noticeTime\":\"2026-03-01T12:00:00Z\"}");
    } else if (strstr(q, "token-1\r\n") && service.takes) {
        time_t until = service.until_s;
        struct tm t;
        gmtime_r(&until, &t);
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &t);
        status = 200;
        snprintf(body, sizeof body, "{\"action\":\"terminate\",\"time\":\"%s\"}", date);
    }
    int n = snprintf(reply, sizeof reply,
                     "HTTP/1.1 %d x\r\ncontent-length: %zu\r\nconnection: close\r\n\r\n%s", status,
                     strlen(body), body);
    if (write(fd, reply, (size_t)n) != n) perror("the metadata service");
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(service.fd, NULL, NULL);
        if (fd < 0) return NULL;
        answer(fd);
        close(fd);
    }
}

static void open_service(pthread_t *thread)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof at;
    service.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(service.fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(service.fd, 64), 0);
    assert_int_equal(getsockname(service.fd, (struct sockaddr *)&at, &len), 0);
    service.port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(thread, NULL, serve, NULL), 0);
}

struct output {
    int status;
    struct buf text;
};

static void *ask(void *arg)
{
    struct output *o = arg;
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\":\"Two sisters lived in a house by the sea\",\"max_tokens\":%d,"
             "\"ignore_eos\":true,\"temperature\":0}",
             TOKENS);
    o->status = rig_call(router.port, "/v1/completions", body, &o->text);
    return NULL;
}

static bool is_lost(void *arg)
{
    (void)arg;
    return rig_metric(controller.port, LOST) >= 1;
}

static bool is_replaced(void *arg)
{
    (void)arg;
    return fleet_is_at(1);
}

/* The second agent has asked for its token: it is there, and the first has gone. */
static bool is_relieved(void *arg)
{
    (void)arg;
    return service.tokens >= 2 && fleet_is_at(1);
}

static void has_event(const char *words)
{
    struct buf text = { 0 };
    assert_int_equal(rig_call(controller.port, "/api/v1/events", NULL, &text), 200);
    if (!strstr(text.data, words)) fail_msg("no %s in %s", words, text.data);
    buf_fini(&text);
}

static pthread_t thread;

static void a_machine_at_risk_is_replaced_before_it_goes(void **state)
{
    (void)state;
    char url[64];
    open_service(&thread);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", service.port);
    assert_int_equal(setenv("MUSTER_AGENT_NOTICE", "ec2", 1), 0);
    assert_int_equal(setenv("MUSTER_AGENT_NOTICE_URL", url, 1), 0);
    rig_hurry_agents();
    fleet_open("200ms", "router: { sync: 200ms, migrate: spotserve }\n"
                        "local:\n"
                        "  poll: 200ms\n"
                        "  offers: [ { name: spot, spot: true, share: 0.33, price_per_hour: 1, "
                        "max_num_seqs: 4 } ]\n"
                        "services:\n"
                        "  - name: tiny\n"
                        "    model: " MODEL "\n"
                        "    engine_flags: ['--max-num-seqs', '4', '--threads', '1']\n"
                        "    pools: [ { name: only, offers: [spot], min: 1, max: 1 } ]\n");
    fleet_wait(1);
    service.risks = true;
    rig_wait(is_relieved, NULL, "another has the place of the one at risk");
    has_event("rebalance recommendation of 2026-03-01T12:00:00Z");
    assert_true(!is_lost(NULL)); /* it was no loss */
}

static void a_machine_that_is_told_of_its_end_is_replaced(void **state)
{
    (void)state;
    pthread_t asker;
    struct output o = { 0 };
    assert_int_equal(pthread_create(&asker, NULL, ask, &o), 0);
    service.until_s = time(NULL) + LEFT_S;
    service.takes = true;
    rig_wait(is_lost, NULL, "the controller counts the loss");
    pthread_join(asker, NULL);
    assert_int_equal(o.status, 200);
    assert_non_null(strstr(o.text.data, "\"completion_tokens\":1800"));
    buf_fini(&o.text);
    rig_wait(is_replaced, NULL, "another instance is there");
    assert_true(service.tokens >= 3); /* the other one asks, too */
    has_event("announced by the provider");
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
    shutdown(service.fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(service.fd);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_at_risk_is_replaced_before_it_goes),
        cmocka_unit_test(a_machine_that_is_told_of_its_end_is_replaced),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
