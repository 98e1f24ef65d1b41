/* t_fair.c - sends requests of two tenants to one engine with a full queue: each request gets one response.
 *
 * One request of the first tenant runs without end and three wait, which fill the queue. The second tenant's
 * request takes the place of the last one; the router retries that one like any refused request, and then
 * answers it 503.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/proc/rig/fleet_rig.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define WAITING_MAX 3

static char heavy[96], light[96]; /* header lines with the tenants' keys */

static int setup(void **state)
{
    (void)state;
    fleet_open("200ms", "router: { sync: 100ms }\n"
                        "local:\n"
                        "  cores: 1\n"
                        "  offers: [ { name: bit, share: 0.05, price_per_hour: 1 } ]\n"
                        "services:\n"
                        "  - name: tiny\n"
                        "    model: " MODEL "\n"
                        "    scale: static\n"
                        "    count: 1\n"
                        "    engine: { fair: vtc }\n"
                        "    engine_flags: ['--max-num-seqs', '1', '--max-waiting', '3']\n"
                        "    pools: [ { name: only, offers: [bit], max: 1 } ]\n");
    fleet_wait(1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_scale(0);
    rig_stop(&router);
    rig_stop(&controller);
    return 0;
}

/* Returns true once the router has heard of the first key; until then it serves requests without one. */
static bool is_closed(void *arg)
{
    (void)arg;
    return rig_call_with(router.port, "/v1/models", NULL, NULL, NULL) == 401;
}

static bool is_let_in(void *arg)
{
    return rig_call_with(router.port, "/v1/models", arg, NULL, NULL) == 200;
}

static void add_tenant(const char *name, char header[96])
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    char line[512], word[64];
    snprintf(line, sizeof line, "create %s --controller %s --state %s", name, controller.at,
             fleet_state);
    assert_int_equal(rig_muster("keys", line, &out), 0);
    const char *at = strstr(out.data, "\nmuster-");
    assert_non_null(at);
    assert_int_equal(sscanf(at + 1, "%63s", word), 1);
    snprintf(header, 96, "authorization: Bearer %s", word);
    rig_wait(is_closed, NULL, "a key is needed");
    rig_wait(is_let_in, header, "the key is known");
}

/* Sends a request on a connection of its own. */
static int ask(const char *key, const char *tokens, bool stream)
{
    CLEANUP(buf_fini) struct buf body = { 0 }, bytes = { 0 };
    buf_printf(&body,
               "{\"prompt\":\"once upon a time\",\"max_tokens\":%s,\"ignore_eos\":true,"
               "\"stream\":%s}",
               tokens, stream ? "true" : "false");
    buf_printf(&bytes,
               "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s\r\nConnection: close\r\n"
               "Content-Length: %zu\r\n\r\n%s",
               router.port, key, body.len, body.data);
    int fd = rig_connect(router.port, 0);
    assert_int_equal(send(fd, bytes.data, bytes.len, MSG_NOSIGNAL), (ssize_t)bytes.len);
    return fd;
}

/* Reads into `seen` until `word` has come, or with NULL to the end. */
static void hear(int fd, const char *word, struct buf *seen)
{
    const struct timeval limit = { .tv_sec = RIG_WAIT_US / 1000000 };
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    for (;;) {
        char bytes[4096];
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        assert_true(n >= 0);
        if (n == 0) break;
        buf_append(seen, bytes, (size_t)n);
        buf_append(seen, "", 1);
        seen->len--;
        if (word && strstr(seen->data, word)) return;
    }
    if (word) fail_msg("no %s in %s", word, seen->data);
}

/* Reads the whole reply and returns its status. */
static int answered(int fd, struct buf *reply)
{
    int status = 0;
    hear(fd, NULL, reply);
    close(fd);
    assert_int_equal(sscanf(reply->data, "HTTP/1.1 %d", &status), 1);
    assert_null(strstr(reply->data + 1, "HTTP/1.1")); /* once */
    return status;
}

static void a_full_queue_is_shared(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf begun = { 0 }, other = { 0 };
    struct buf replies[WAITING_MAX] = { { 0 } };
    add_tenant("heavy", heavy);
    add_tenant("light", light);
    int endless = ask(heavy, "2000", true), waits[WAITING_MAX];
    hear(endless, "data: ", &begun);
    for (int i = 0; i < WAITING_MAX; i++) {
        waits[i] = ask(heavy, "4", false);
        rig_wait_number(controller.port, "/api/v1/instances", "waiting", i + 1);
    }
    int comes = ask(light, "4", false);
    assert_int_equal(answered(waits[WAITING_MAX - 1], &replies[WAITING_MAX - 1]), 503);
    assert_non_null(strstr(replies[WAITING_MAX - 1].data, "retry-after:"));
    assert_true(rig_metric(router.port, "muster_router_retries_total{failure=\"overloaded\"}") >=
                1);
    close(endless); /* the client leaves, so that the other requests run */
    assert_int_equal(answered(comes, &other), 200);
    for (int i = 0; i < WAITING_MAX - 1; i++)
        assert_int_equal(answered(waits[i], &replies[i]), 200);
    for (int i = 0; i < WAITING_MAX; i++)
        buf_fini(&replies[i]);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_is_shared),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
