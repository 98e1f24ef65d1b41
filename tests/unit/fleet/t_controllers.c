/* t_controllers.c - tests which of several controllers is asked. */
#include "fleet/controllers.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static struct controllers three(void)
{
    struct controllers c = { 0 };
    assert_int_equal(controllers_add(&c, STR("a:1"), NULL), 0);
    assert_int_equal(controllers_add(&c, STR("b:2"), NULL), 0);
    assert_int_equal(controllers_add(&c, STR("https://[::1]:3"), NULL), 0);
    assert_int_equal(controllers_add(&c, STR("http://b:2"), NULL), 0); /* the same again */
    assert_int_equal(c.count, 3);
    return c;
}

static void assert_next(const struct controllers *c, const char *host)
{
    const struct controller_address *a = controllers_next(c);
    assert_non_null(a);
    assert_string_equal(a->host, host);
}

static void addresses(void **state)
{
    (void)state;
    static const char *const bad[] = { "", "a", "a:", ":1", "a:0", "a:65536", "a:b", "https://a" };
    struct controller_address a;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = { 0 };
        assert_int_equal(controller_address_parse(str_from(bad[i]), &a, &err), -EINVAL);
    }
    assert_int_equal(controller_address_parse(STR("https://[fe80::1]:443"), &a, NULL), 0);
    assert_string_equal(a.host, "fe80::1");
    assert_true(a.tls && a.port == 443);
    char text[200];
    snprintf(text, sizeof text, "%0180d:1", 7);
    assert_int_equal(controller_address_parse(str_from(text), &a, NULL), -EINVAL);
    struct controllers c = { 0 };
    for (int i = 0; i < CONTROLLERS_MAX; i++) {
        snprintf(text, sizeof text, "h%d:1", i);
        assert_int_equal(controllers_add(&c, str_from(text), NULL), 0);
    }
    assert_int_equal(controllers_add(&c, STR("more:1"), NULL), -ENOSPC);
}

static void each_is_asked_until_one_replies(void **state)
{
    (void)state;
    struct controllers none = { 0 }, c = three();
    assert_null(controllers_next(&none));
    controllers_missed(&none);
    assert_next(&c, "a");
    controllers_missed(&c);
    assert_next(&c, "b");
    controllers_missed(&c);
    assert_next(&c, "::1");
    assert_true(controllers_heard(&c, 0, 1));
    assert_next(&c, "::1"); /* the leader is asked again */
    controllers_missed(&c);
    assert_next(&c, "a");
}

static void one_that_stands_by_names_the_leader(void **state)
{
    (void)state;
    struct controllers c = three();
    assert_true(controllers_stands_by(&c, STR("b:2")));
    assert_next(&c, "b");
    assert_true(controllers_heard(&c, 5, 1));
    assert_next(&c, "b");
    /* One that is not configured is asked as well, as long as it leads. */
    assert_true(controllers_stands_by(&c, STR("elsewhere:9")));
    assert_next(&c, "elsewhere");
    assert_true(controllers_heard(&c, 6, 2));
    assert_next(&c, "elsewhere");
    controllers_missed(&c);
    assert_next(&c, "::1");
    /* Two that name each other are not asked for ever. */
    assert_true(controllers_stands_by(&c, STR("a:1")));
    assert_next(&c, "a");
    assert_false(controllers_stands_by(&c, STR("https://[::1]:3")));
    assert_next(&c, "b");
    /* One that knows none, or names itself or nonsense, is left. */
    assert_false(controllers_stands_by(&c, STR("")));
    assert_next(&c, "::1");
    assert_false(controllers_stands_by(&c, STR("https://[::1]:3")));
    assert_next(&c, "a");
    assert_false(controllers_stands_by(&c, STR("nonsense")));
    assert_next(&c, "b");
}

static void a_reply_of_an_earlier_term_is_not_heeded(void **state)
{
    (void)state;
    struct controllers c = three();
    int64_t t = 1000;
    assert_true(controllers_heard(&c, 7, t));
    assert_false(controllers_heard(&c, 6, t + 1));
    assert_next(&c, "b"); /* it is left */
    assert_true(controllers_heard(&c, 7, t + 2));
    assert_true(controllers_heard(&c, 0, t + 3)); /* a release that says no epoch */
    assert_true(controllers_heard(&c, 8, t + 4));
    /* A store that was lost may count anew. */
    assert_true(controllers_heard(&c, 1, t + 4 + CONTROLLERS_EPOCH_US));
    assert_int_equal(c.epoch, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(each_is_asked_until_one_replies),
        cmocka_unit_test(one_that_stands_by_names_the_leader),
        cmocka_unit_test(a_reply_of_an_earlier_term_is_not_heeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
