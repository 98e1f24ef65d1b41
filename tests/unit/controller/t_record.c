/* t_record.c - a decision as a record: what it holds as JSON, and which decisions are news. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/core/record.h"
#include "tests/unit/controller/plan_scene.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void records_are_json_and_only_news(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_busy(s, 20);
    s->demand.sum.age_s = 0.5;
    const struct plan_decision *d = scene_decide(s);
    double priced = 0; /* a row's price is of what should stand: nothing stands yet, all starts */
    for (uint32_t p = 0; p < s->service.pool_count; p++) {
        assert_non_null(d->placed[p].reason);
        priced += d->placed[p].cost_h;
    }
    assert_true(priced > 0 && fabs(priced - (d->cost_h_after - d->cost_h)) < 1e-9);
    CLEANUP(buf_fini) struct buf text = { 0 };
    char launched[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { "i-new" };
    const char(*ids)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])launched;
    assert_int_equal(record_encode(&s->view, &s->plan, d, ids, 5, &text), 0);
    struct json_reader r;
    json_reader_init(&r, buf_view(&text));
    assert_int_equal(json_next(&r), JSON_OBJECT);
    assert_int_equal(json_skip_rest(&r), JSON_OBJECT_END);
    assert_int_equal(json_next(&r), JSON_END);
    static const char *const members[] = { "\"reason\":",
                                           "\"runner_up\":",
                                           "\"i-new\"",
                                           "\"cost_per_h_after\":",
                                           "\"arrivals_per_s\":20",
                                           "\"place\":\"joint\",\"placed\":[{\"pool\":\"",
                                           "\"short_share\":0}",
                                           "\"demand_age_s\":0.5" };
    for (size_t i = 0; i < COUNT_OF(members); i++)
        if (!strstr(text.data, members[i])) fail_msg("no %s in %s", members[i], text.data);

    struct record_last last = { 0 };
    assert_true(record_is_news(&last, d));
    struct plan_decision quiet = { .reason = d->reason };
    assert_false(record_is_news(&last, &quiet));
    quiet.blocked = "a";
    assert_true(record_is_news(&last, &quiet));
    assert_false(record_is_news(&last, &quiet));
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_json_and_only_news),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
