/* t_http_peers.c - which address counts as whom, and how often it may come. */
#include "base/core/bits.h"
#include "base/io/http/http_peers.h"
#include "tests/unit/unit.h"

#include <string.h>

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
        cmocka_unit_test(each_address_has_its_own_bound),
        cmocka_unit_test(an_ipv6_network_of_64_bits_counts_as_one),
        cmocka_unit_test(loopback_and_proxies_have_a_bound_of_their_own),
        cmocka_unit_test(a_full_table_is_an_answer),
        cmocka_unit_test(networks_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
