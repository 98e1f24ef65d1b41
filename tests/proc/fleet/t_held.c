/* t_held.c - requests for services without an instance: while they are held, a comment in the stream says how long an
 * instance will take; a refusal says it in its sentence and in Retry-After; and the output comes in the same stream.
 *
 * Real controller, router, agent and engine with the shipped model. No clock is compared: the estimates are those of
 * the delays that the configuration gives to its offers. */
#include "tests/proc/rig/fleet_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FAR_S 3600 /* launch_delay of the offer that never comes */
#define LEAD_S 3   /* from the machine to readiness: what an offer's lead says unless it is set */
#define WAITING ": waiting for an instance, about "

static int ask(const char *model, struct buf *out)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body,
               "{\"model\":\"%s\",\"prompt\":\"Once\",\"max_tokens\":3,\"ignore_eos\":true,"
               "\"stream\":true}",
               model);
    buf_printf(&bytes,
               "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
               router.port, body.len, body.data);
    int fd = rig_connect(router.port, 0);
    assert_int_equal(write(fd, bytes.data, bytes.len), (ssize_t)bytes.len);
    buf_clear(out);
    return fd;
}

/* Reads until the text is there as often, or the other end closes. */
static void read_until(int fd, const char *text, uint32_t times, struct buf *out)
{
    for (;;) {
        char piece[4096];
        uint32_t n = 0;
        for (const char *at = out->data; at && (at = strstr(at, text)); at++)
            n++;
        if (n >= times) return;
        ssize_t got = read(fd, piece, sizeof piece);
        if (got <= 0) fail_msg("%s: never %u times in %s", text, times, out->len ? out->data : "");
        buf_append(out, piece, (size_t)got);
    }
}

static double seconds_behind(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    if (!at) fail_msg("no '%s' in %s", words, text);
    return at ? strtod(at + strlen(words), NULL) : 0;
}

/* The launch began a moment ago, and nothing was learned: the estimate is the offer's delay and lead. */
static bool is_far(double seconds)
{
    return seconds > FAR_S / 2.0 && seconds <= FAR_S + LEAD_S;
}

static void a_held_stream_says_how_long(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf refused = { 0 };
    int fd = ask("far", &text);
    read_until(fd, WAITING, 2, &text);
    assert_non_null(strstr(text.data, "200 OK"));
    assert_non_null(strstr(text.data, "text/event-stream"));
    assert_true(is_far(seconds_behind(text.data, WAITING)));

    /* There is place for one: another is refused, and told the same. */
    int other = ask("far", &refused);
    read_until(other, "\"error\"", 1, &refused);
    assert_non_null(strstr(refused.data, "HTTP/1.1 503"));
    assert_true(is_far(seconds_behind(refused.data, "retry-after: ")));
    assert_true(is_far(seconds_behind(refused.data, "the next is expected in about ")));
    close(other);
    close(fd);
}

static bool has_place(void *arg)
{
    (void)arg;
    return rig_metric(router.port, "muster_router_held_requests") == 0;
}

static void the_output_comes_in_the_same_stream(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    rig_wait(has_place, NULL, "the other client has left");
    int fd = ask("tiny", &text);
    read_until(fd, "data: [DONE]", 1, &text);
    double told_s = seconds_behind(text.data, WAITING);
    assert_true(told_s >= 1 && told_s <= 2 + LEAD_S); /* its own service's, not the other's hour */
    assert_true(strstr(text.data, WAITING) < strstr(text.data, "data: {"));
    assert_non_null(strstr(text.data, "\"finish_reason\":\"length\""));
    close(fd);
}

/* True once the controller has told the router its services, and that no keys are needed. */
static bool is_informed(void *arg)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    (void)arg;
    rig_call(router.port, "/v1/completions", "{\"model\":\"nobody\",\"prompt\":\"a\"}", &reply);
    return reply.data && !strstr(reply.data, "has not said yet");
}

static int open_fleet(void **state)
{
    (void)state;
    rig_hurry_agents();
    fleet_open("100ms", "router: { sync: 100ms, held_max: 1, held_comment: 200ms }\n"
                        "local:\n"
                        "  cores: 1\n"
                        "  offers:\n"
                        "    - { name: far, share: 0.2, price_per_hour: 1, launch_delay: 1h }\n"
                        "    - { name: near, share: 0.3, price_per_hour: 1, launch_delay: 2s }\n"
                        "services:\n"
                        "  - name: far\n"
                        "    model: " MODEL "\n"
                        "    pools: [ { name: only, offers: [far], max: 1 } ]\n"
                        "  - name: tiny\n"
                        "    model: " MODEL "\n"
                        "    engine_flags: ['--max-num-seqs', '4', '--threads', '1']\n"
                        "    pools: [ { name: only, offers: [near], max: 1 } ]\n");
    rig_wait(is_informed, NULL, "the router knows the services");
    return 0;
}

static int close_fleet(void **state)
{
    (void)state;
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
    return 0;
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_stream_says_how_long),
        cmocka_unit_test(the_output_comes_in_the_same_stream),
    };
    return rig_end(cmocka_run_group_tests(tests, open_fleet, close_fleet));
}
