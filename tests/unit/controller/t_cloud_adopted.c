/* t_cloud_adopted.c - tests the provider of adopted engines: its list is what agents report. */
#include "base/core/own.h"
#include "controller/cloud/cloud_adopted.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000)

static struct cloud cloud;
static int64_t now_us;

static int set_up(void **state)
{
    (void)state;
    now_us = 1000 * SECOND;
    return cloud_adopted_open(&cloud, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    cloud_close(&cloud);
    return 0;
}

static void report(const char *instance, enum agent_state state)
{
    const struct agent_report r = { .instance = str_from(instance),
                                    .service = STR("chat"),
                                    .pool = STR("theirs"),
                                    .state = state };
    cloud_adopted_heard(cloud.ctx, &r, now_us);
}

/* Carries out one call; *ret gets its event. */
static void call(const struct cloud_call *c, struct cloud_event *ret)
{
    struct cloud_event more;
    assert_int_equal(cloud.driver->submit(cloud.ctx, c, now_us, NULL), 0);
    assert_true(cloud.driver->next(cloud.ctx, now_us, ret));
    assert_false(cloud.driver->next(cloud.ctx, now_us, &more));
    assert_int_equal(ret->op, c->op);
    assert_int_equal(ret->id, c->id);
}

static uint32_t listed(struct cloud_event *ret)
{
    call(&(struct cloud_call){ .op = CLOUD_LIST, .id = 7 }, ret);
    assert_int_equal(ret->rc, 0);
    return ret->count;
}

static void what_reports_is_listed(void **state)
{
    (void)state;
    struct cloud_event ev;
    assert_int_equal(listed(&ev), 0);
    report("a-1", AGENT_STARTING);
    now_us += 5 * SECOND;
    report("a-2", AGENT_UP);
    report("a-1", AGENT_UP);
    assert_int_equal(listed(&ev), 2);
    assert_string_equal(ev.item[0].intent, "a-1");
    assert_string_equal(ev.item[0].handle, "a-1");
    assert_string_equal(ev.item[0].service, "chat");
    assert_string_equal(ev.item[0].pool, "theirs");
    assert_string_equal(ev.item[0].offer, ADOPTED_NAME);
    assert_int_equal(ev.item[0].created_us, 1000 * SECOND); /* of its first report */
    report("a-1", AGENT_STOPPED);
    assert_int_equal(listed(&ev), 1);
    assert_string_equal(ev.item[0].intent, "a-2");
    report("a-9", AGENT_STOPPED); /* never known: nothing to list */
    assert_int_equal(listed(&ev), 1);
}

static void one_that_is_silent_leaves_the_list(void **state)
{
    (void)state;
    struct cloud_event ev;
    report("a-1", AGENT_UP);
    report("a-2", AGENT_UP);
    now_us += ADOPTED_SILENT_US / 2;
    report("a-2", AGENT_UP);
    now_us += ADOPTED_SILENT_US / 2;
    assert_int_equal(listed(&ev), 1);
    assert_string_equal(ev.item[0].intent, "a-2");
}

static void nothing_can_be_bought(void **state)
{
    (void)state;
    struct cloud_event ev;
    struct offer offer;
    cloud_adopted_offer(&offer);
    assert_string_equal(offer.name, ADOPTED_NAME);
    call(&(struct cloud_call){ .op = CLOUD_CREATE,
                               .id = 3,
                               .create = { .intent = "i-1", .offer = &offer } },
         &ev);
    assert_int_equal(ev.rc, -ENOSPC);
    assert_int_equal(ev.class, OFFER_CAPACITY); /* as sold out: the pool's other offers are tried */
    assert_non_null(strstr(ev.err.text, "somebody else"));
    call(&(struct cloud_call){ .op = CLOUD_PRICES, .id = 4 }, &ev);
    assert_int_equal(ev.count, 1);
    assert_true(ev.price[0].known && ev.price[0].price_h == 0);
}

static void a_removed_one_is_off_the_list(void **state)
{
    (void)state;
    struct cloud_event ev;
    report("a-1", AGENT_UP);
    call(&(struct cloud_call){ .op = CLOUD_REMOVE, .id = 5, .handle = "a-1", .intent = "a-1" },
         &ev);
    assert_int_equal(ev.rc, 0);
    assert_int_equal(listed(&ev), 0);
    call(&(struct cloud_call){ .op = CLOUD_REMOVE, .id = 6, .handle = "", .intent = "a-1" }, &ev);
    assert_int_equal(ev.rc, 0); /* again: it is gone, which is what was asked for */
}

static void the_list_and_the_calls_are_bounded(void **state)
{
    (void)state;
    struct cloud_event ev;
    char name[16];
    for (int i = 0; i < ADOPTED_MAX + 5; i++) {
        snprintf(name, sizeof name, "a-%d", i);
        report(name, AGENT_UP);
    }
    assert_int_equal(listed(&ev), ADOPTED_MAX);
    report("a-0", AGENT_STOPPED);
    report("a-new", AGENT_UP);
    assert_int_equal(listed(&ev), ADOPTED_MAX);
    const struct cloud_call list = { .op = CLOUD_LIST };
    for (int i = 0; i < CLOUD_CALLS_MAX; i++)
        assert_int_equal(cloud.driver->submit(cloud.ctx, &list, now_us, NULL), 0);
    assert_int_equal(cloud.driver->submit(cloud.ctx, &list, now_us, NULL), -EBUSY);
    for (int i = 0; i < CLOUD_CALLS_MAX; i++)
        assert_true(cloud.driver->next(cloud.ctx, now_us, &ev));
    assert_false(cloud.driver->next(cloud.ctx, now_us, &ev));
}

int main(void)
{
#define ROW(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ROW(what_reports_is_listed),
        ROW(one_that_is_silent_leaves_the_list),
        ROW(nothing_can_be_bought),
        ROW(a_removed_one_is_off_the_list),
        ROW(the_list_and_the_calls_are_bounded),
    };
    return cmocka_run_group_tests_name("cloud_adopted", tests, NULL, NULL);
}
