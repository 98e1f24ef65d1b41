/* t_ended.c - tests the record of requests that ended: the newest of an id, the bound, absent values. */
#include "base/core/own.h"
#include "router/ended.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static void put(struct ended_requests *e, const char *id, uint32_t tokens)
{
    struct ended_request r = { .ended = "answered",
                               .generated_tokens = tokens,
                               .ttft_us = tokens ? 1500000 : 0,
                               .estimate_s = -1 };
    snprintf(r.id, sizeof r.id, "%s", id);
    snprintf(r.service, sizeof r.service, "chat");
    if (tokens) snprintf(r.instance, sizeof r.instance, "i-1");
    ended_put(e, &r);
}

static void the_newest_of_an_id_is_shown(void **state)
{
    (void)state;
    struct ended_requests e;
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(ended_init(&e), 0);
    assert_int_equal(ended_render(&e, STR("a"), &out), -ENOENT);
    put(&e, "a", 1);
    put(&e, "b", 2);
    put(&e, "a", 3);
    assert_int_equal(ended_render(&e, STR("a"), &out), 0);
    assert_non_null(strstr(out.data, "\"generated_tokens\":3,"));
    assert_non_null(strstr(out.data, "\"ttft_s\":1.5,\"ttft_estimate_s\":null,"));
    buf_clear(&out);
    put(&e, "c", 0); /* refused before it was sent */
    assert_int_equal(ended_render(&e, STR("c"), &out), 0);
    assert_non_null(strstr(out.data, "\"instance\":null"));
    assert_non_null(strstr(out.data, "\"ttft_s\":null"));
    assert_non_null(strstr(out.data, "\"predicted_p50\":null"));
    ended_fini(&e);
}

static void the_oldest_goes_at_the_bound(void **state)
{
    (void)state;
    struct ended_requests e;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char id[16];
    assert_int_equal(ended_init(&e), 0);
    for (uint32_t i = 0; i < ENDED_MAX + 2; i++) {
        snprintf(id, sizeof id, "r%u", i);
        put(&e, id, i);
    }
    assert_int_equal(ended_render(&e, STR("r1"), &out), -ENOENT);
    assert_int_equal(ended_render(&e, STR("r2"), &out), 0);
    buf_clear(&out);
    assert_int_equal(ended_render(&e, str_from(id), &out), 0);
    ended_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_of_an_id_is_shown),
        cmocka_unit_test(the_oldest_goes_at_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
