/* t_http_browser.c - pages of other sites, rebound names, plain requests, and who is local. */
#include "base/core/bits.h"
#include "base/io/http/http_browser.h"
#include "tests/unit/unit.h"

#include <stdio.h>

struct row {
    const char *method, *host, *origin, *type;
    enum browser_fault want;
    const char *why;
};

static void add(struct http_request *req, const char *name, const char *value)
{
    if (!value) return;
    req->headers[req->header_count++] = (struct http_header){ str_from(name), str_from(value) };
}

static struct http_request request(const struct row *r)
{
    struct http_request req = { .method = str_from(r->method), .host = str_from(r->host) };
    add(&req, "origin", r->origin);
    add(&req, "content-type", r->type);
    return req;
}

#define JSON "application/json"

static void pages_of_other_sites_are_refused(void **state)
{
    (void)state;
    static const struct str hosts[] = { { "fleet.example", 13 }, { "tunnel.example:9000", 19 } };
    static const struct str origins[] = { { "http://console.example:8090", 27 } };
    const struct http_names names = { STR("10.1.2.3"), 8080, hosts, 2, origins, 1 };
    static const struct row rows[] = {
        { "GET", "localhost:8080", NULL, NULL, BROWSER_OK, "loopback" },
        { "GET", "LocalHost:8080", NULL, NULL, BROWSER_OK, "case" },
        { "GET", "127.0.0.1", NULL, NULL, BROWSER_OK, "behind a forwarder" },
        { "GET", "[::1]:8080", NULL, NULL, BROWSER_OK, "IPv6" },
        { "GET", "[::1]", NULL, NULL, BROWSER_OK, "IPv6 without a port" },
        { "GET", "10.1.2.3:8080", NULL, NULL, BROWSER_OK, "our own address" },
        { "GET", "fleet.example", NULL, NULL, BROWSER_OK, "a further name" },
        { "GET", "fleet.example:8080", NULL, NULL, BROWSER_OK, "with our port" },
        { "GET", "tunnel.example:9000", NULL, NULL, BROWSER_OK, "a name with a port of its own" },
        { "GET", "evil.example:8080", NULL, NULL, BROWSER_HOST, "a rebound name" },
        { "GET", "localhost:8081", NULL, NULL, BROWSER_HOST, "another port" },
        { "GET", "localhost.evil.example", NULL, NULL, BROWSER_HOST, "begins like ours" },
        { "GET", "fleet.example.", NULL, NULL, BROWSER_HOST, "a dot more" },
        { "GET", "", NULL, NULL, BROWSER_HOST, "none" },
        { "GET", ":8080", NULL, NULL, BROWSER_HOST, "a port alone" },
        { "GET", "localhost:80800", NULL, NULL, BROWSER_HOST, "no port of ours" },
        { "GET", "localhost:x", NULL, NULL, BROWSER_HOST, "no port at all" },
        { "POST", "localhost:8080", NULL, JSON, BROWSER_OK, "a program" },
        { "POST", "localhost:8080", NULL, "Application/JSON; charset=utf-8", BROWSER_OK, "more" },
        { "POST", "localhost:8080", NULL, NULL, BROWSER_TYPE, "no type" },
        { "POST", "localhost:8080", NULL, "text/plain", BROWSER_TYPE, "needs no preflight" },
        { "POST", "localhost:8080", NULL, "application/jsonx", BROWSER_TYPE, "nearly" },
        { "POST", "localhost:8080", NULL, "text/plain;application/json", BROWSER_TYPE, "hidden" },
        { "DELETE", "localhost:8080", NULL, "text/plain", BROWSER_TYPE, "whatever is no GET" },
        { "POST", "localhost:8080", "http://localhost:8080", JSON, BROWSER_OK, "our own page" },
        { "POST", "localhost:8080", "http://127.0.0.1:8080", JSON, BROWSER_OK, "by another name" },
        { "POST", "fleet.example", "https://fleet.example", JSON, BROWSER_OK, "a TLS forwarder" },
        { "POST", "localhost:8080", "http://console.example:8090", JSON, BROWSER_OK, "listed" },
        { "POST", "localhost:8080", "http://localhost", JSON, BROWSER_ORIGIN, "port 80" },
        { "POST", "localhost:8080", "https://localhost", JSON, BROWSER_ORIGIN, "port 443" },
        { "POST", "localhost:8080", "http://localhost:3000", JSON, BROWSER_ORIGIN, "another port" },
        { "POST", "localhost:8080", "http://evil.example", JSON, BROWSER_ORIGIN, "a stranger" },
        { "POST", "localhost:8080", "http://localhost:8080.evil.example", JSON, BROWSER_ORIGIN,
          "begins like ours" },
        { "POST", "localhost:8080", "http://console.example", JSON, BROWSER_ORIGIN, "not listed" },
        { "POST", "localhost:8080", "null", JSON, BROWSER_ORIGIN, "from nowhere" },
        { "POST", "localhost:8080", "", JSON, BROWSER_ORIGIN, "empty" },
        { "POST", "localhost:8080", "ftp://localhost:8080", JSON, BROWSER_ORIGIN, "a scheme" },
        { "POST", "evil.example", "http://evil.example", JSON, BROWSER_HOST, "all of one name" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_request req = request(&rows[i]);
        enum browser_fault got = browser_check(&names, &req);
        if (got != rows[i].want) fail_msg("%s: %s", rows[i].why, browser_fault_info(got)->name);
    }
}

/* Port 80 is ours when we listen there, and then the page may leave it out. */
static void the_port_of_a_scheme_is_a_port(void **state)
{
    (void)state;
    const struct http_names names = { .own = STR("127.0.0.1"), .port = 80 };
    const struct row ours = { "GET", "127.0.0.1", "http://localhost", NULL, BROWSER_OK, "" };
    const struct row other = { "GET", "127.0.0.1", "http://localhost:8080", NULL, BROWSER_OK, "" };
    struct http_request req = request(&ours);
    assert_int_equal(browser_check(&names, &req), BROWSER_OK);
    req = request(&other);
    assert_int_equal(browser_check(&names, &req), BROWSER_ORIGIN);
}

static void who_is_local(void **state)
{
    (void)state;
    static const struct {
        const char *peer, *header;
        bool want;
    } rows[] = {
        { "127.0.0.1:4711", NULL, true },      { "[::1]:4711", NULL, true },
        { "127.8.0.1:4711", NULL, true },      { "10.0.0.1:4711", NULL, false },
        { "[::2]:4711", NULL, false },         { "1270.0.0.1:1", NULL, false },
        { "127.0.0.1:1", "forwarded", false }, { "127.0.0.1:1", "X-Forwarded-For", false },
        { "127.0.0.1:1", "Via", false },       { "127.0.0.1:1", "X-Real-IP", false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_request req = { .peer = str_from(rows[i].peer) };
        add(&req, rows[i].header ? rows[i].header : "accept", "1.2.3.4");
        if (browser_peer_is_local(&req) != rows[i].want)
            fail_msg("%s %s", rows[i].peer, rows[i].header ? rows[i].header : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_other_sites_are_refused),
        cmocka_unit_test(the_port_of_a_scheme_is_a_port),
        cmocka_unit_test(who_is_local),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
