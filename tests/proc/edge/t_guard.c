/* t_guard.c - tests the access of web pages, clients and other users of the machine to a router and an
 * engine. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/edge/edge_rig.h"

#include <stdio.h>

#define KEY "a-client-s-key-0123456789"
#define BEARER_KEY "Authorization: Bearer " KEY "\r\n"
#define JSON "Content-Type: application/json\r\n"
#define LOCAL "Host: localhost\r\n"
#define SCRAPER "Authorization: Bearer a-scraper-s-key\r\n"

static struct rig_process keyed; /* an engine with API keys and no secret */

static int setup(void **state)
{
    char path[RIG_PATH];
    rig_file(path, "keys", KEY "\n");
    keyed = rig_server("engine", rig_port(), ARGS("--model", MODEL, "--api-key-file", path));
    return edge_setup(state);
}

static int teardown(void **state)
{
    return edge_teardown(state) | rig_stop(&keyed);
}

static int ask(uint16_t port, const char *method, const char *path, const char *headers,
               const char *body, struct buf *reply)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    int status = 0;
    buf_clear(reply);
    buf_printf(&bytes, "%s %s HTTP/1.1\r\n%sConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
               method, path, headers, strlen(body), body);
    assert_int_equal(rig_raw(port, buf_view(&bytes), reply), 0);
    assert_int_equal(sscanf(reply->data, "HTTP/1.1 %d", &status), 1);
    return status;
}

struct row {
    int status;
    const char *method, *path, *headers, *body, *why;
};

static void check(const char *name, uint16_t port, const struct row *rows, size_t count)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    for (size_t i = 0; i < count; i++) {
        int status = ask(port, rows[i].method, rows[i].path, rows[i].headers, rows[i].body, &reply);
        if (status != rows[i].status)
            fail_msg("%s, %s: %d %.300s", name, rows[i].why, status, reply.data);
    }
}

#define BODY "{" HELLO ",\"max_tokens\":2}"

static void pages_use_no_model(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { 200, "POST", CHAT, LOCAL JSON, BODY, "a program" },
        { 200, "GET", "/v1/models", LOCAL, "", "a program looks" },
        { 200, "GET", "/metrics", LOCAL, "", "a scraper" },
        { 403, "POST", CHAT, "Host: evil.example\r\n" JSON, BODY, "a rebound name" },
        { 403, "POST", CHAT, LOCAL JSON "Origin: http://evil.example\r\n", BODY, "a page" },
        { 403, "POST", CHAT, LOCAL JSON "Origin: http://127.0.0.1\r\n", BODY, "port 80's page" },
        { 403, "POST", CHAT, LOCAL JSON "Origin: null\r\n", BODY, "a page from nowhere" },
        { 415, "POST", CHAT, LOCAL "Content-Type: text/plain\r\n", BODY, "no preflight" },
        { 415, "POST", CHAT, LOCAL, BODY, "no type" },
        { 415, "POST", CHAT, LOCAL "Content-Type: application/x-www-form-urlencoded\r\n", BODY,
          "a form" },
        { 403, "POST", TEXT, "Host: evil.example\r\n" JSON, "{\"prompt\":\"a\"}", "completions" },
        { 403, "POST", "/tokenize", "Host: evil.example\r\n" JSON, "{\"prompt\":\"a\"}", "tokens" },
        { 415, "POST", "/tokenize", LOCAL, "{\"prompt\":\"a\"}", "tokens blindly" },
        { 403, "POST", "/detokenize", "Host: evil.example\r\n" JSON, "{\"tokens\":[1]}", "text" },
        { 403, "GET", "/v1/models", "Host: evil.example\r\n", "", "models" },
        { 403, "GET", "/version", "Host: evil.example\r\n", "", "version" },
        { 403, "GET", "/metrics", "Host: evil.example\r\n", "", "metrics" },
        { 403, "GET", "/metrics", LOCAL "Origin: http://evil.example\r\n", "",
          "metrics of a page" },
    };
    for (size_t i = 0; i < COUNT_OF(edge_servers); i++)
        check(edge_servers[i].name, edge_servers[i].process->port, rows, COUNT_OF(rows));
}

static void an_engine_s_own_routes_are_for_nobody_s_page(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { 403, "POST", "/internal/drain", LOCAL JSON "Origin: http://localhost\r\n", "", "a page" },
        { 403, "POST", "/internal/drain", "Host: evil.example\r\n" JSON, "", "a rebound name" },
        { 415, "POST", "/internal/drain", LOCAL, "", "blindly" },
        { 415, "POST", "/reset_prefix_cache", LOCAL "Content-Type: text/plain\r\n", "{}",
          "blindly" },
        { 401, "POST", "/reset_prefix_cache", LOCAL JSON "X-Forwarded-For: 1.2.3.4\r\n", "{}",
          "a stranger behind a forwarder" },
        { 403, "GET", "/internal/info", "Host: evil.example\r\n", "", "a rebound name looks" },
        { 200, "GET", "/internal/info", LOCAL, "", "the machine's own" },
        { 200, "POST", "/internal/drain", LOCAL JSON, "", "drains" },
        { 503, "POST", CHAT, LOCAL JSON, BODY, "and takes nothing" },
        { 200, "POST", "/internal/undrain", LOCAL JSON, "", "and is taken back" },
        { 200, "POST", CHAT, LOCAL JSON, BODY, "and serves again" },
    };
    check("engine", edge_servers[1].process->port, rows, COUNT_OF(rows));
}

static void a_client_s_key_opens_no_internal_route(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { 200, "POST", CHAT, LOCAL BEARER_KEY, BODY, "what the key is for" },
        { 401, "POST", CHAT, LOCAL JSON, BODY, "no key" },
        { 401, "POST", CHAT, LOCAL JSON "Authorization: Bearer x\r\n", BODY, "a wrong key" },
        { 200, "POST", CHAT, LOCAL JSON "x-api-key: " KEY "\r\n", BODY, "Anthropic's header" },
        { 401, "POST", CHAT, LOCAL JSON "x-api-key: x\r\n", BODY, "a wrong key there" },
        { 401, "POST", CHAT, LOCAL JSON "Authorization: Bearer x\r\nx-api-key: " KEY "\r\n", BODY,
          "the first header goes before it" },
        { 401, "GET", "/internal/info", LOCAL JSON "x-api-key: " KEY "\r\n", "", "info by it" },
        { 401, "GET", "/internal/info", LOCAL BEARER_KEY, "", "info" },
        { 401, "GET", "/internal/tokenizer", LOCAL BEARER_KEY, "", "tokenizer" },
        { 401, "GET", "/internal/events", LOCAL BEARER_KEY, "", "events" },
        { 401, "POST", "/internal/generate", LOCAL JSON BEARER_KEY, "{}", "generate" },
        { 401, "POST", "/internal/kv/read", LOCAL JSON BEARER_KEY, "{}", "pages of others" },
        { 401, "POST", "/internal/kv/pull", LOCAL JSON BEARER_KEY, "{}", "a connection anywhere" },
        { 401, "POST", "/internal/clock", LOCAL JSON BEARER_KEY, "{}", "the clock" },
        { 401, "POST", "/reset_prefix_cache", LOCAL JSON BEARER_KEY, "{}", "the cache" },
        { 401, "POST", "/internal/undrain", LOCAL JSON BEARER_KEY, "", "undrain" },
        { 401, "POST", "/internal/drain", LOCAL JSON BEARER_KEY, "", "drain" },
        { 401, "POST", "/internal/drain", LOCAL JSON, "", "nor does nobody's" },
        { 200, "POST", CHAT, LOCAL BEARER_KEY, BODY, "and still serves" },
    };
    check("engine with keys", keyed.port, rows, COUNT_OF(rows));
}

/* A router that requires keys serves metrics to this machine only, and not to requests that a proxy
 * forwards, unless they have a scraper's key. */
static void metrics_are_no_client_s(void **state)
{
    (void)state;
    char path[RIG_PATH];
    rig_file(path, "scrapers", "a-scraper-s-key\n");
    struct rig_process r =
        rig_server("router", rig_port(),
                   ARGS("--endpoints", edge_fake.at, "--require-key", "--metrics-key-file", path));
    static const struct row rows[] = {
        { 401, "GET", "/v1/models", LOCAL, "", "a client without a key" },
        { 200, "GET", "/metrics", LOCAL, "", "a scraper of this machine" },
        { 403, "GET", "/metrics", "Host: evil.example\r\n", "", "a rebound name" },
        { 401, "GET", "/metrics", LOCAL "X-Forwarded-For: 1.2.3.4\r\n", "", "a stranger" },
        { 401, "GET", "/metrics", LOCAL "Via: 1.1 proxy\r\n", "", "another" },
        { 401, "GET", "/metrics", LOCAL BEARER_KEY, "", "an unknown key" },
        { 200, "GET", "/metrics", "Host: any.example\r\nVia: 1.1 proxy\r\n" SCRAPER, "",
          "its key" },
        { 401, "GET", "/v1/models", LOCAL SCRAPER, "", "its key opens nothing else" },
        { 401, "GET", "/admin/quarantine", LOCAL SCRAPER, "", "nor what is the fleet's" },
    };
    check("router with keys", r.port, rows, COUNT_OF(rows));
    assert_int_equal(rig_stop(&r), 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_use_no_model),
        cmocka_unit_test(an_engine_s_own_routes_are_for_nobody_s_page),
        cmocka_unit_test(a_client_s_key_opens_no_internal_route),
        cmocka_unit_test(metrics_are_no_client_s),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
