/* t_step.c - tests the other policies of the engine's step: which session is preempted and which
 * page is evicted; and presets, which name a policy of each kind. */
#include "policies/preset.h"
#include "tests/unit/unit.h"

static void t_preempt(void **state)
{
    (void)state;
    struct step_session old = { .arrival_us = 1, .computed = 10 };
    struct step_session young = { .arrival_us = 2, .computed = 20 };
    const struct preempt_policy *newest = preempt_find(STR("newest"));
    const struct preempt_policy *least = preempt_find(STR("least_computed"));
    assert_true(newest->rank(&young) > newest->rank(&old));
    assert_true(least->rank(&old) > least->rank(&young));
    old.work_s = 3, young.work_s = 2;
    assert_true(preempt_find(STR("most_remaining"))->rank(&old) >
                preempt_find(STR("most_remaining"))->rank(&young));
}

static void t_preempt_how(void **state)
{
    (void)state;
    struct step_session longer = { .work_s = 10 }, shorter = { .work_s = 4 };
    const struct preempt_policy *checked = preempt_find(STR("cost_checked"));
    struct preempt_view v = {
        .victim = &longer, .can_swap = true, .swap_s = 0.5, .recompute_s = 0.4, .running = 11
    };
    assert_null(preempt_find(STR("newest"))->how);
    assert_int_equal(preempt_cheaper(&v), PREEMPT_RECOMPUTE);
    assert_int_equal(checked->how(&v), PREEMPT_RECOMPUTE);
    v.recompute_s = 0.5;
    assert_int_equal(preempt_cheaper(&v), PREEMPT_SWAP);
    v.newcomer = &shorter; /* saves 6 s; copies cost 12 sessions half a second each */
    assert_int_equal(checked->how(&v), PREEMPT_NOT);
    v.running = 10;
    assert_int_equal(checked->how(&v), PREEMPT_SWAP);
    v.can_swap = false;
    assert_int_equal(checked->how(&v), PREEMPT_NOT);
    assert_int_equal(preempt_cheaper(&v), PREEMPT_RECOMPUTE);
}

static void t_evict(void **state)
{
    (void)state;
    const struct evict_policy *lru = evict_find(STR("lru"));
    const struct evict_policy *probation = evict_find(STR("probation_2hit"));
    struct evict_page cold = { .releases = 50, .pages_total = 100 };
    struct evict_page hot = { .releases = 10, .hits = 1, .pages_total = 100 };
    assert_true(lru->rank(&hot) < lru->rank(&cold));
    assert_true(probation->rank(&cold) < probation->rank(&hot));
    cold.releases = 111; /* more than one turnover later */
    assert_true(probation->rank(&hot) < probation->rank(&cold));

    const struct evict_policy *gdsf = evict_find(STR("gdsf"));
    const struct evict_policy *weighted = evict_find(STR("gdsf_cost"));
    struct evict_page once = { .hits = 0, .cost = 1 }, thrice = { .hits = 2, .cost = 1 };
    assert_true(gdsf->rank(&once) < gdsf->rank(&thrice));
    once.floor = gdsf->rank(&thrice); /* pages dropped since then were worth as much */
    assert_true(gdsf->rank(&thrice) < gdsf->rank(&once));
    struct evict_page deep = { .hits = 0, .cost = 2.5 }, twice = { .hits = 1, .cost = 1 };
    assert_true(gdsf->rank(&deep) < gdsf->rank(&twice));
    assert_true(weighted->rank(&twice) < weighted->rank(&deep));
}

/* Two equal presets would be one system under two names. */
static void t_no_two_presets_are_one(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < preset_count; i++) {
        struct step_policies rows = { 0 };
        preset_fill(preset_table[i], &rows);
        for (uint32_t k = 0; k < i; k++) {
            struct step_policies other = { 0 };
            preset_fill(preset_table[k], &other);
            bool same = rows.fair == other.fair && rows.order == other.order &&
                        rows.admit == other.admit && rows.preempt == other.preempt &&
                        rows.chunk == other.chunk && rows.evict == other.evict;
            if (same && preset_table[i]->swap_ratio == preset_table[k]->swap_ratio)
                fail_msg("%s is %s", preset_table[i]->name, preset_table[k]->name);
        }
    }
}

static void t_presets(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < preset_count; i++) {
        struct step_policies rows = { 0 };
        preset_fill(preset_table[i], &rows);
        if (!rows.fair || !rows.order || !rows.admit || !rows.preempt || !rows.chunk || !rows.evict)
            fail_msg("%s names a row that is not there", preset_table[i]->name);
        assert_ptr_equal(preset_find(str_from(preset_table[i]->name)), preset_table[i]);
    }
    struct step_policies rows = { .order = order_find(STR("fcfs")) };
    preset_fill(preset_find(STR("fastserve")), &rows);
    assert_string_equal(rows.order->name, "fcfs"); /* an explicit policy wins over the preset */
    rows = (struct step_policies){ 0 };
    preset_fill(NULL, &rows);
    assert_string_equal(rows.order->name, ORDER_DEFAULT);
    assert_string_equal(rows.chunk->name, CHUNK_DEFAULT);
    assert_string_equal(rows.evict->name, EVICT_DEFAULT);
}

static void t_tables(void **state)
{
    (void)state;
    assert_non_null(order_find(STR(ORDER_DEFAULT)));
    assert_non_null(admit_find(STR(ADMIT_DEFAULT)));
    assert_non_null(chunk_find(STR(CHUNK_DEFAULT)));
    assert_non_null(preempt_find(STR(PREEMPT_DEFAULT)));
    assert_non_null(evict_find(STR(EVICT_DEFAULT)));
    assert_null(order_find(STR("")));
    assert_null(admit_find(STR("Fit")));
    assert_null(chunk_find(STR("budgets")));
    assert_null(preempt_find(STR("newes")));
    assert_null(evict_find(STR("none")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_preempt), cmocka_unit_test(t_preempt_how),
        cmocka_unit_test(t_evict),   cmocka_unit_test(t_no_two_presets_are_one),
        cmocka_unit_test(t_presets), cmocka_unit_test(t_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
