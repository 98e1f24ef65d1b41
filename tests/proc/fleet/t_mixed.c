/* t_mixed.c - runs our engine, vLLM and SGLang in one fleet: requests, hits predicted and reported, KV events that are
 * lost, an engine that dies, one that is adopted, one that is drained, and two tenants.
 *
 * Real controller, router, agents and our engine with the shipped model. vLLM and SGLang are stand-ins
 * (rig/fake_server.c) that use the model's real tokenizer; tests/bench/engines.sh runs the real ones.
 *
 * The policy is round_robin: of three requests each engine gets one. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/fleet_rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define ENGINES 3
#define PREFIXES 6
#define LONG_TOKENS 300

static char tokenizer[RIG_PATH];

static int setup(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf yaml = { 0 }, out = { 0 };
    snprintf(tokenizer, sizeof tokenizer, "%s/tiny.tokenizer", rig_folder());
    assert_int_equal(rig_run(&out, ARGS("tokenizer", MODEL, "-o", tokenizer)), 0);
    buf_printf(&yaml, "router: { sync: 100ms, route: round_robin }\n"
                      "local:\n"
                      "  cores: 2\n"
                      "  offers: [ { name: bit, share: 0.2, price_per_hour: 1 } ]\n"
                      "services:\n"
                      "  - name: tiny\n"
                      "    model: " MODEL "\n"
                      "    scale: static\n"
                      "    count: 4\n"
                      "    stabilisation: 1s\n"
                      "    pools:\n"
                      "      - { name: ours, offers: [bit], min: 1, max: 1,\n"
                      "          engine_flags: [--max-num-seqs, '4', --threads, '1'] }\n");
    for (int i = 0; i < 2; i++)
        buf_printf(
            &yaml,
            "      - { name: %s, offers: [bit], min: 1, max: 1, engine_kind: %s,\n"
            "          engine_command: ['%s', --plays, %s], model: /srv/tiny, tokenizer: '%s',\n"
            "          context: 2048, max_num_seqs: 4,\n"
            "          engine_flags: [--tokenizer, '%s', --tokens, '100000', --token-ms, '5'] }\n",
            i ? "sglang" : "vllm", i ? "sglang" : "vllm", getenv("FAKE_SERVER_BIN"),
            i ? "sglang" : "vllm", tokenizer, tokenizer);
    buf_text(&yaml, "      - { name: theirs, provider: adopted, offers: [adopted], max: 1, "
                    "engine_kind: vllm }\n");
    fleet_open("100ms", yaml.data);
    rig_wait_endpoints(&router, ENGINES);
    return 0;
}

/* ---- requests ---- */

/* Asks with the long prefix of that number, as chat or as text, and a tail of its own, streamed or not. */
static void ask_as(const char *header, uint32_t prefix, uint32_t tail)
{
    CLEANUP(buf_fini) struct buf text = { 0 }, body = { 0 }, reply = { 0 };
    bool chat = prefix % 2, stream = tail % 2;
    for (uint32_t i = 0; i < 25; i++)
        buf_printf(&text, "Story %u has a fox that lives in house number %u. ", prefix,
                   i * i + prefix);
    buf_printf(&text, "The end of it is %u.", tail);
    buf_text(&body, chat ? "{\"messages\":[{\"role\":\"user\",\"content\":\"" : "{\"prompt\":\"");
    buf_str(&body, buf_view(&text));
    buf_text(&body, chat ? "\"}]" : "\"");
    buf_printf(&body, ",\"model\":\"tiny\",\"max_tokens\":6,\"stream\":%s}",
               stream ? "true" : "false");
    int status = rig_call_with(router.port, chat ? CHAT : TEXT, header, body.data, &reply);
    if (status != 200) fail_msg("status %d: %s", status, reply.len ? reply.data : "");
    if (stream ? !strstr(reply.data, "data: [DONE]") : !strstr(reply.data, "\"usage\""))
        fail_msg("an answer is cut: %s", reply.data);
}

static void ask(uint32_t prefix, uint32_t tail)
{
    ask_as(NULL, prefix, tail);
}

/* Asks so often that each engine has one of the prefix. */
static void ask_each(uint32_t prefix, uint32_t *tail)
{
    for (int i = 0; i < ENGINES; i++)
        ask(prefix, ++*tail);
}

static double tokens(const char *what, const char *kind)
{
    char name[128];
    snprintf(name, sizeof name, "muster_router_kind_%s_tokens_total{kind=\"%s\"}", what, kind);
    double v = rig_metric(router.port, name);
    return v < 0 ? 0 : v;
}

/* ---- places ---- */

/* Finds the port of a pool's engine or agent among the scraper's targets; 0: there is none. */
static uint16_t port_of(const char *job, const char *pool)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char job_label[64], pool_label[64];
    unsigned port = 0;
    snprintf(job_label, sizeof job_label, "\"job\":\"%s\"", job);
    snprintf(pool_label, sizeof pool_label, "\"pool\":\"%s\"", pool);
    assert_int_equal(rig_call(controller.port, "/api/v1/targets", NULL, &reply), 200);
    for (char *at = strstr(reply.data, "{\"targets\""); at;) {
        char *next = strstr(at + 1, "{\"targets\"");
        if (next) next[-1] = 0;
        if (strstr(at, job_label) && strstr(at, pool_label) &&
            sscanf(at, "{\"targets\":[\"127.0.0.1:%u", &port) == 1)
            return (uint16_t)port;
        at = next;
    }
    return 0;
}

static double agent_metric(const char *pool, const char *name)
{
    uint16_t port = port_of("muster-agent", pool);
    return port ? rig_metric(port, name) : -1;
}

struct wanted {
    const char *pool, *metric;
    double least, most;
};

static bool is_within(void *arg)
{
    const struct wanted *w = arg;
    double v = agent_metric(w->pool, w->metric);
    return v >= w->least && v <= w->most;
}

static void wait_agent(const char *pool, const char *metric, double least, double most)
{
    struct wanted w = { pool, metric, least, most };
    rig_wait(is_within, &w, metric);
}

/* Returns the process of the engine with that argument among the fleet's instances. */
static pid_t pid_of(const char *plays, uint32_t instances)
{
    struct proc_id id[FLEET_INSTANCES_MAX];
    fleet_ids("engine.id", id, instances);
    for (uint32_t i = 0; i < instances; i++) {
        CLEANUP(buf_fini) struct buf line = { 0 };
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld/cmdline", (long)id[i].pid);
        if (file_read(path, 8192, &line, NULL) < 0) continue;
        for (size_t k = 0; k < line.len; k += strlen(line.data + k) + 1)
            if (strcmp(line.data + k, plays) == 0) return (pid_t)id[i].pid;
    }
    fail_msg("no engine plays %s", plays);
    return 0;
}

static void scale(const char *pool, int count)
{
    char body[96], bearer[RIG_BEARER];
    rig_bearer(fleet_secret, bearer);
    snprintf(body, sizeof body, "{\"pool\":\"%s\",\"count\":%d}", pool, count);
    assert_int_equal(
        rig_call_with(controller.port, "/api/v1/services/tiny/scale", bearer, body, NULL), 200);
}

/* ---- cases ---- */

static uint32_t tail;

static void hits_are_those_that_were_predicted(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++)
        for (uint32_t prefix = 0; prefix < PREFIXES; prefix++)
            ask_each(prefix, &tail);
    static const char *const kinds[] = { "muster", "vllm", "sglang" };
    double requests = 3 * PREFIXES;
    for (int k = 0; k < ENGINES; k++) {
        double expected = tokens("expected", kinds[k]), cached = tokens("cached", kinds[k]),
               prompt = tokens("prompt", kinds[k]);
        print_message("%-8s prompt %6.0f  expected %6.0f  cached %6.0f\n", kinds[k], prompt,
                      expected, cached);
        assert_true(prompt > 1000 * 3);
        assert_true(cached > prompt / 2); /* two of three found their prefix there */
        /* SGLang's pages have one token, and keys cover sixteen. */
        double slack = k == 2 ? 15 * requests : 0;
        assert_true(cached - expected >= 0 && cached - expected <= slack);
    }
}

static void events_that_were_lost_are_asked_for(void **state)
{
    (void)state;
    uint16_t vllm = port_of("vllm-engine", "vllm");
    double cached = tokens("cached", "vllm"), expected = tokens("expected", "vllm");
    assert_int_equal(rig_call(vllm, "/lose", "{\"count\":2}", NULL), 200);
    for (uint32_t prefix = 100; prefix < 103; prefix++)
        ask_each(prefix, &tail);
    wait_agent("vllm", "muster_agent_kv_gaps", 1, 1);
    for (uint32_t prefix = 100; prefix < 103; prefix++)
        ask_each(prefix, &tail);
    assert_true(tokens("cached", "vllm") > cached);
    assert_true(tokens("cached", "vllm") - cached == tokens("expected", "vllm") - expected);
    assert_true(agent_metric("vllm", "muster_agent_kv_malformed") == 0);
}

static void a_cache_that_was_emptied_is_known_to_be_empty(void **state)
{
    (void)state;
    double cached = tokens("cached", "vllm"), expected = tokens("expected", "vllm");
    assert_true(agent_metric("vllm", "muster_agent_kv_keys") > 0);
    assert_int_equal(rig_call(port_of("vllm-engine", "vllm"), "/clear", "{}", NULL), 200);
    wait_agent("vllm", "muster_agent_kv_keys", 0, 0);
    rig_wait_more(controller.port, "muster_controller_router_syncs_total", 3);
    ask_each(100, &tail);
    assert_true(tokens("cached", "vllm") == cached);
    assert_true(tokens("expected", "vllm") == expected);
}

static void an_engine_that_dies_is_started_again(void **state)
{
    (void)state;
    double cached = tokens("cached", "vllm"), expected = tokens("expected", "vllm");
    assert_true(agent_metric("vllm", "muster_agent_kv_keys") > 0);
    kill(pid_of("vllm", ENGINES), SIGKILL);
    for (uint32_t i = 0; i < 2; i++)
        ask_each(100 + i, &tail); /* what was for it goes elsewhere */
    wait_agent("vllm", "muster_agent_engine_restarts", 1, 1);
    wait_agent("vllm", "muster_agent_kv_connected", 1, 1);
    rig_wait_endpoints(&router, ENGINES);
    assert_true(agent_metric("vllm", "muster_agent_kv_keys") == 0);
    for (uint32_t i = 0; i < 2; i++)
        ask_each(102, &tail);
    assert_true(tokens("cached", "vllm") - cached == tokens("expected", "vllm") - expected);
    assert_true(tokens("cached", "vllm") > cached);
}

static void an_engine_of_somebody_else_is_adopted(void **state)
{
    (void)state;
    char number[8], url[64], serve[32], events[RIG_PATH], replay[RIG_PATH], config[4 * RIG_PATH];
    uint16_t port = rig_port(), own = rig_port();
    snprintf(number, sizeof number, "%u", port);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    snprintf(serve, sizeof serve, "127.0.0.1:%u", own);
    snprintf(events, sizeof events, "ipc://%s/e", rig_folder());
    snprintf(replay, sizeof replay, "ipc://%s/r", rig_folder());
    snprintf(config, sizeof config,
             "{\"enable_kv_cache_events\":true,\"endpoint\":\"%s\",\"replay_endpoint\":\"%s\"}",
             events, replay);
    struct rig_process theirs =
        rig_start("theirs",
                  ARGS(getenv("FAKE_SERVER_BIN"), "--tokenizer", tokenizer, "--port", number,
                       "--served-model-name", "another-name", "--enable-prompt-tokens-details",
                       "--kv-events-config", config),
                  port, "/health", 200);
    struct rig_process agent =
        rig_start("adopter",
                  ARGS(getenv("MUSTER_BIN"), "agent", "--adopt", url, "--engine-kind", "vllm",
                       "--service", "tiny", "--pool", "theirs", "--controller", controller.at,
                       "--secret-file", fleet_secret, "--tokenizer", tokenizer, "--kv-events",
                       events, "--kv-replay", replay, "--serve", serve),
                  own, "/health", 200);
    rig_wait_endpoints(&router, ENGINES + 1);
    wait_agent("theirs", "muster_agent_kv_connected", 1, 1);
    for (uint32_t i = 0; i < 4 * (ENGINES + 1); i++)
        ask(200 + i / (ENGINES + 1) % 2, ++tail);
    assert_true(rig_number(port, "/seen", "calls") >= 4);
    assert_true(rig_number(port, "/seen", "cached") > 0);
    scale("theirs", 0);
    rig_wait_endpoints(&router, ENGINES);
    for (uint32_t i = 0; i < ENGINES; i++)
        ask(200, ++tail);
    assert_true(rig_is_alive(&theirs)); /* it is not ours to end */
    assert_int_equal(rig_call(port, "/health", NULL, NULL), 200);
    rig_kill(&theirs);
    rig_kill(&agent);
}

static uint32_t calls_of(const char *plays)
{
    char job[32];
    snprintf(job, sizeof job, "%s-engine", plays);
    return (uint32_t)rig_number(port_of(job, plays), "/seen", "calls");
}

/* Three outputs of each of two prompts come from engines of three kinds, whole and streamed: each is a request of its
 * own, and all are there. */
static void several_outputs_come_from_all_kinds(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        for (int chat = 0; chat < 2; chat++) {
            CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
            const uint32_t outputs = 6, vllm = calls_of("vllm"), sglang = calls_of("sglang");
            buf_printf(&body, "{\"model\":\"tiny\",\"max_tokens\":5,\"seed\":7,\"stream\":%s,",
                       stream ? "true" : "false");
            buf_text(&body, chat
                                ? "\"n\":6,\"messages\":[{\"role\":\"user\",\"content\":\"Tell\"}]}"
                                : "\"n\":3,\"prompt\":[\"It was long ago\",\"Once upon a time\"]}");
            int status = rig_call(router.port, chat ? CHAT : TEXT, body.data, &reply);
            if (status != 200) fail_msg("status %d: %s", status, reply.data);
            for (uint32_t i = 0; i < outputs; i++) {
                char index[32];
                snprintf(index, sizeof index, "\"index\":%u", i);
                if (!strstr(reply.data, index)) fail_msg("no %s: %s", index, reply.data);
            }
            uint32_t ends = 0;
            for (const char *at = reply.data; (at = strstr(at, "\"finish_reason\":\"")); at++)
                ends++;
            assert_int_equal(ends, outputs);
            if (stream) assert_non_null(strstr(reply.data, "data: [DONE]"));
            if (!stream) assert_null(strstr(reply.data, "\"text\":\"\""));
            assert_true(calls_of("vllm") > vllm && calls_of("sglang") > sglang);
        }
    }
}

/* vLLM is asked for what SGLang is not able to; ours does it itself. */
static void log_probabilities_of_the_prompt_come_from_who_has_them(void **state)
{
    (void)state;
    for (int chat = 0; chat < 2; chat++) {
        uint32_t theirs = 0, ours = 0, refused = 0;
        for (int i = 0; i < ENGINES; i++) {
            CLEANUP(buf_fini) struct buf reply = { 0 };
            const char *body =
                chat ? "{\"model\":\"tiny\",\"max_tokens\":2,\"prompt_logprobs\":1,\"messages\":"
                       "[{\"role\":\"user\",\"content\":\"Tell\"}]}"
                     : "{\"model\":\"tiny\",\"max_tokens\":2,\"prompt_logprobs\":1,\"prompt\":\"It "
                       "was\"}";
            int status = rig_call(router.port, chat ? CHAT : TEXT, body, &reply);
            bool has = strstr(reply.data, "\"prompt_logprobs\":[null,") != NULL;
            bool stand_in = strstr(reply.data, "\"logprob\":-1.5,\"rank\":2,") != NULL;
            theirs += status == 200 && has && stand_in;
            ours += status == 200 && has && !stand_in;
            refused +=
                status == 400 && strstr(reply.data, "prompt_logprobs are not served by the engine "
                                                    "of this model, SGLang.");
        }
        if (theirs != 1 || ours != 1 || refused != 1)
            fail_msg("chat %d: %u of vLLM, %u of ours, %u refused", chat, theirs, ours, refused);
    }
}

struct asker {
    pthread_t thread;
    struct buf reply;
    int status;
};

static void *ask_long(void *arg)
{
    struct asker *a = arg;
    char body[128];
    snprintf(
        body, sizeof body,
        "{\"prompt\":\"It was long ago\",\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":true}",
        LONG_TOKENS);
    a->status = rig_call(router.port, TEXT, body, &a->reply);
    return NULL;
}

static bool all_run(void *arg)
{
    (void)arg;
    return rig_metric(router.port, "muster_router_in_flight_requests") == ENGINES;
}

static bool vllm_has_ended(void *arg)
{
    (void)arg;
    return rig_count("vllm") == 0;
}

static void a_drain_waits_for_the_answers_that_run(void **state)
{
    (void)state;
    struct asker asker[ENGINES];
    assert_true(rig_count("vllm") == 1);
    for (int i = 0; i < ENGINES; i++) {
        asker[i] = (struct asker){ 0 };
        assert_int_equal(pthread_create(&asker[i].thread, NULL, ask_long, &asker[i]), 0);
    }
    rig_wait(all_run, NULL, "all answers run");
    assert_int_equal(rig_number(port_of("vllm-engine", "vllm"), "/seen", "open"), 1);
    scale("vllm", 0);
    rig_wait(vllm_has_ended, NULL, "the drained engine has ended");
    for (int i = 0; i < ENGINES; i++) {
        pthread_join(asker[i].thread, NULL);
        assert_int_equal(asker[i].status, 200);
        if (!strstr(asker[i].reply.data, "\"finish_reason\":\"length\"") ||
            !strstr(asker[i].reply.data, "data: [DONE]"))
            fail_msg("an answer is cut: %.300s", asker[i].reply.data);
        buf_fini(&asker[i].reply);
    }
    scale("vllm", 1);
    rig_wait_endpoints(&router, ENGINES);
    wait_agent("vllm", "muster_agent_kv_connected", 1, 1);
}

static void make_tenant(const char *name, char header[128])
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char body[64], bearer[RIG_BEARER], key[64];
    rig_bearer(fleet_secret, bearer);
    snprintf(body, sizeof body, "{\"name\":\"%s\"}", name);
    assert_int_equal(rig_call_with(controller.port, "/api/v1/tenants", bearer, body, &reply), 201);
    const char *at = strstr(reply.data, "\"key\":\"");
    assert_true(at && sscanf(at, "\"key\":\"%63[^\"]", key) == 1);
    snprintf(header, 128, "authorization: Bearer %s", key);
}

static bool is_known(void *arg)
{
    return rig_call_with(router.port, "/v1/models", arg, NULL, NULL) == 200;
}

static void tenants_do_not_share_a_cache(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf first = { 0 }, second = { 0 };
    char tenant[2][128];
    make_tenant("acme", tenant[0]);
    make_tenant("umbrella", tenant[1]);
    rig_wait(is_known, tenant[0], "the first key is known");
    rig_wait(is_known, tenant[1], "the second key is known");
    uint16_t vllm = port_of("vllm-engine", "vllm");
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < ENGINES; i++)
            ask_as(tenant[0], 300, ++tail);
    double cached = tokens("cached", "vllm"), expected = tokens("expected", "vllm"),
           others = tokens("cached", "sglang");
    assert_true(cached > 0 && cached == expected);
    assert_int_equal(rig_call(vllm, "/seen", NULL, &first), 200);
    for (int i = 0; i < ENGINES; i++)
        ask_as(tenant[1], 300, ++tail);
    assert_true(tokens("cached", "vllm") == cached && tokens("expected", "vllm") == expected);
    assert_true(tokens("cached", "sglang") == others);
    assert_int_equal(rig_call(vllm, "/seen", NULL, &second), 200);
    const char *a = strstr(first.data, "\"salt\":\""), *b = strstr(second.data, "\"salt\":\"");
    assert_true(a && b && a[8] != '"' && strcmp(a, b) != 0); /* each has a salt, and another one */
    assert_int_equal(rig_stop(&router), 0);
    assert_int_equal(rig_stop(&controller), 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_SERVER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_are_those_that_were_predicted),
        cmocka_unit_test(several_outputs_come_from_all_kinds),
        cmocka_unit_test(log_probabilities_of_the_prompt_come_from_who_has_them),
        cmocka_unit_test(events_that_were_lost_are_asked_for),
        cmocka_unit_test(a_cache_that_was_emptied_is_known_to_be_empty),
        cmocka_unit_test(an_engine_that_dies_is_started_again),
        cmocka_unit_test(an_engine_of_somebody_else_is_adopted),
        cmocka_unit_test(a_drain_waits_for_the_answers_that_run),
        cmocka_unit_test(tenants_do_not_share_a_cache),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
