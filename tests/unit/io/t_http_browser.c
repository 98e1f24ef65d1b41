/* t_http_browser.c - pages of other sites, rebound names, plain requests, and who is local. */
#include "base/core/bits.h"
#include "base/io/http/http_browser.h"
#include "base/io/http/http_peers.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

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

/* Which address counts as whom, and how often it may come. */

static struct addr at(const char *text)
{
    struct addr a;
    if (addr_from_literal(&a, str_from(text), 4711) < 0) fail_msg("%s", text);
    return a;
}

static int enter(struct http_peers *p, const char *text)
{
    struct addr a = at(text);
    return http_peers_enter(p, &a);
}

static void leave(struct http_peers *p, const char *text)
{
    struct addr a = at(text);
    http_peers_leave(p, &a);
}

static void each_address_has_its_own_bound(void **state)
{
    (void)state;
    struct http_peers p;
    http_peers_init(&p, 100, 2, 4);
    assert_int_equal(enter(&p, "192.0.2.1"), 0);
    assert_int_equal(enter(&p, "192.0.2.1"), 0);
    assert_int_equal(enter(&p, "192.0.2.1"), -EDQUOT);
    assert_int_equal(enter(&p, "192.0.2.2"), 0);
    leave(&p, "192.0.2.1");
    assert_int_equal(enter(&p, "192.0.2.1"), 0);
    assert_int_equal(p.count.count, 2);
    leave(&p, "192.0.2.1");
    leave(&p, "192.0.2.1");
    leave(&p, "192.0.2.2");
    assert_int_equal(p.count.count, 0); /* an address that has left takes no memory */
    http_peers_fini(&p);
}

static void an_ipv6_network_of_64_bits_counts_as_one(void **state)
{
    (void)state;
    struct http_peers p;
    http_peers_init(&p, 100, 2, 4);
    assert_int_equal(enter(&p, "2001:db8:0:1::1"), 0);
    assert_int_equal(enter(&p, "2001:db8:0:1:ffff::2"), 0);
    assert_int_equal(enter(&p, "2001:db8:0:1::3"), -EDQUOT);
    assert_int_equal(enter(&p, "2001:db8:0:2::1"), 0);
    http_peers_fini(&p);
}

static void loopback_and_proxies_have_a_bound_of_their_own(void **state)
{
    (void)state;
    static const char *const trusted[] = { "127.0.0.1", "::1", "10.9.8.7", "198.51.100.7" };
    struct http_peers p;
    http_peers_init(&p, 100, 1, 3);
    p.proxy_count = 2;
    assert_int_equal(http_net_parse(&p.proxies[0], STR("10.0.0.0/8"), NULL), 0);
    assert_int_equal(http_net_parse(&p.proxies[1], STR("198.51.100.7"), NULL), 0);
    for (size_t i = 0; i < COUNT_OF(trusted); i++) {
        for (int n = 0; n < 3; n++)
            assert_int_equal(enter(&p, trusted[i]), 0);
        assert_int_equal(enter(&p, trusted[i]), -EDQUOT);
    }
    assert_int_equal(enter(&p, "198.51.100.8"), 0);
    assert_int_equal(enter(&p, "198.51.100.8"), -EDQUOT);
    http_peers_fini(&p);
}

static void a_full_table_is_an_answer(void **state)
{
    (void)state;
    struct http_peers p;
    http_peers_init(&p, 1, 1, 1);
    assert_int_equal(enter(&p, "192.0.2.1"), 0);
    assert_int_equal(enter(&p, "192.0.2.2"), -ENOMEM);
    http_peers_fini(&p);
}

static void networks_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *net, *address;
        bool has;
    } rows[] = {
        { "0.0.0.0/0", "203.0.113.9", true },
        { "0.0.0.0/0", "2001:db8::1", false },
        { "203.0.113.128/25", "203.0.113.128", true },
        { "203.0.113.128/25", "203.0.113.127", false },
        { "203.0.112.0/23", "203.0.113.9", true },
        { "203.0.112.0/23", "203.0.114.9", false },
        { "203.0.113.9", "203.0.113.9", true },
        { "203.0.113.9/32", "203.0.113.8", false },
        { "fd00::/8", "fdff::1", true },
        { "fd00::/8", "fc00::1", false },
        { "::1", "::1", true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_net n;
        struct addr a = at(rows[i].address);
        assert_int_equal(http_net_parse(&n, str_from(rows[i].net), NULL), 0);
        if (http_net_has(&n, &a) != rows[i].has) fail_msg("%s, %s", rows[i].net, rows[i].address);
    }
    static const char *const bad[] = { "",           "/8",       "10.0.0.0/", "10.0.0.0/33",
                                       "fd00::/129", "10.0.0/8", "a.example", "10.0.0.0/-1" };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct http_net n;
        struct err err = { 0 };
        if (http_net_parse(&n, str_from(bad[i]), &err) != -EINVAL) fail_msg("'%s'", bad[i]);
        assert_true(strlen(err.text) > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_other_sites_are_refused),
        cmocka_unit_test(the_port_of_a_scheme_is_a_port),
        cmocka_unit_test(who_is_local),
        cmocka_unit_test(each_address_has_its_own_bound),
        cmocka_unit_test(an_ipv6_network_of_64_bits_counts_as_one),
        cmocka_unit_test(loopback_and_proxies_have_a_bound_of_their_own),
        cmocka_unit_test(a_full_table_is_an_answer),
        cmocka_unit_test(networks_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
