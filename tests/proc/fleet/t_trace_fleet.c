/* t_trace_fleet.c - follows requests through a fleet of our engine and a stand-in for vLLM by their traces.
 *
 * The controller starts both with the settings of its file, and each request is one trace: our engine tells its
 * own part, and the router tells of the other what its stream showed. The policy is round_robin. */
#include "base/core/own.h"
#include "tests/proc/rig/fleet_rig.h"
#include "tests/proc/rig/trace_rig.h"

#include <stdio.h>

#define REQUESTS 4
#define BODY                                                                           \
    "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"the king\"}]," \
    "\"max_tokens\":6,\"stream\":true}"

static struct rig_process collector;
static char tokenizer[RIG_PATH];

static int setup(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf yaml = { 0 }, out = { 0 };
    snprintf(tokenizer, sizeof tokenizer, "%s/tiny.tokenizer", rig_folder());
    assert_int_equal(rig_run(&out, ARGS("tokenizer", MODEL, "-o", tokenizer)), 0);
    collector = trace_collector();
    buf_printf(&yaml,
               "router: { sync: 100ms, route: round_robin, trace_delay: 50ms,\n"
               "          trace_endpoint: 'http://%s' }\n"
               "engine: { trace_delay: 50ms, trace_endpoint: 'http://%s' }\n"
               "local:\n"
               "  cores: 2\n"
               "  offers: [ { name: bit, share: 0.2, price_per_hour: 1 } ]\n"
               "services:\n"
               "  - name: tiny\n"
               "    model: " MODEL "\n"
               "    scale: static\n"
               "    count: 2\n"
               "    stabilisation: 1s\n"
               "    pools:\n"
               "      - { name: ours, offers: [bit], min: 1, max: 1,\n"
               "          engine_flags: [--max-num-seqs, '4', --threads, '1'] }\n"
               "      - { name: vllm, offers: [bit], min: 1, max: 1, engine_kind: vllm,\n"
               "          engine_command: ['%s', --plays, vllm], model: /srv/tiny,\n"
               "          tokenizer: '%s', context: 2048, max_num_seqs: 4,\n"
               "          engine_flags: [--tokenizer, '%s', --tokens, '100', --token-ms, '5'] }\n",
               collector.at, collector.at, getenv("FAKE_SERVER_BIN"), tokenizer, tokenizer);
    fleet_open("100ms", yaml.data);
    rig_wait_endpoints(&router, 2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_kill(&collector);
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
    return 0;
}

static double kind_requests(const char *kind)
{
    char name[96];
    snprintf(name, sizeof name, "muster_router_kind_prompt_tokens_total{kind=\"%s\"}", kind);
    return rig_metric(router.port, name);
}

/* Returns true if the reply came from our engine: its counter has grown. */
static bool ask(uint32_t n)
{
    char header[TRACE_HEADER_BYTES];
    CLEANUP(buf_fini) struct buf reply = { 0 };
    double before = kind_requests("muster");
    trace_header(n, true, header);
    assert_int_equal(trace_ask(router.port, "/v1/chat/completions", header, BODY, &reply), 200);
    assert_non_null(strstr(reply.data, "[DONE]"));
    return kind_requests("muster") > before;
}

/* Returns the port of the pool's engine, which the controller names to scrapers. */
static uint16_t engine_port(const char *pool)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char label[64];
    unsigned port = 0;
    snprintf(label, sizeof label, "\"pool\":\"%s\"", pool);
    assert_int_equal(rig_call(controller.port, "/api/v1/targets", NULL, &reply), 200);
    for (char *at = strstr(reply.data, "{\"targets\""); at;) {
        char *next = strstr(at + 1, "{\"targets\"");
        if (next) next[-1] = 0;
        bool is_it = strstr(at, label) && !strstr(at, "\"job\":\"muster-agent\"");
        if (is_it && sscanf(at, "{\"targets\":[\"127.0.0.1:%u", &port) == 1) return (uint16_t)port;
        at = next;
    }
    fail_msg("no engine of pool %s in %s", pool, reply.data);
    return 0;
}

static void each_request_is_one_trace_whatever_engine_has_it(void **state)
{
    (void)state;
    bool ours[REQUESTS];
    uint32_t count = 0;
    for (uint32_t n = 0; n < REQUESTS; n++)
        count += ours[n] = ask(n + 1);
    assert_int_equal(count, REQUESTS / 2);
    for (uint32_t n = 0; n < REQUESTS; n++)
        trace_check(ours[n] ? "ours" : "other", n + 1);
    /* The other engine may make spans too: it is told the trace and the attempt's span. */
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char wanted[64];
    uint32_t last = REQUESTS - 1 - ours[REQUESTS - 1];
    snprintf(wanted, sizeof wanted, "\"traceparent\":\"00-4bf92f3577b34da6a3ce929d%08x-", last + 1);
    assert_int_equal(rig_call(engine_port("vllm"), "/seen", NULL, &reply), 200);
    assert_non_null(strstr(reply.data, wanted));
    assert_null(strstr(reply.data, TRACE_CLIENT_SPAN));
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_SERVER_BIN", MODEL)) || !trace_can_run())
        return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_is_one_trace_whatever_engine_has_it),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
