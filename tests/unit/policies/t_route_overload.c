/* t_route_overload.c - a burst and an overload are told apart, and only late requests are refused. */
#include "policies/route/overload.h"
#include "tests/unit/policies/route_rig.h"

#define SECOND INT64_C(1000000)

/* Two instances of a thousand tokens a second; the rig asks for 1,000 tokens. */
static struct route_instance *queues(struct route_rig *rig, uint64_t first, uint64_t second)
{
    struct route_instance *in = route_rig_init(rig, "completion", 2);
    in[0].perf = in[1].perf = (struct perf_coef){ .prefill_token_s = 1e-3 };
    in[0].prefill_tokens = first;
    in[1].prefill_tokens = second;
    return in;
}

static bool overloaded_at(struct route_overload *o, const struct route_rig *rig, int64_t now_us)
{
    route_overload_observe(o, &rig->view, now_us);
    return route_is_overloaded(o, &rig->view, now_us);
}

static void a_queue_that_stands_for_a_minute_is_an_overload(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_overload o = { 0 };
    struct route_instance *in = queues(&rig, 5000, 5000);
    assert_false(overloaded_at(&o, &rig, 100 * SECOND)); /* seen for the first time */
    assert_false(overloaded_at(&o, &rig, 159 * SECOND));
    assert_true(overloaded_at(&o, &rig, 160 * SECOND));
    in[1].prefill_tokens = 0; /* one is free */
    assert_false(overloaded_at(&o, &rig, 170 * SECOND));
    in[1].prefill_tokens = 10;
    assert_false(overloaded_at(&o, &rig, 229 * SECOND));
    assert_true(overloaded_at(&o, &rig, 230 * SECOND));
    assert_false(overloaded_at(&o, &rig, 100 * SECOND)); /* a clock that was set back */
}

static void more_work_than_the_fleet_does_is_one_at_once(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_overload o = { 0 };
    struct route_instance *in = queues(&rig, 5000, 5000);
    rig.view.has_load = true;
    rig.view.load = 0.99;
    overloaded_at(&o, &rig, 0);
    assert_false(overloaded_at(&o, &rig, SECOND));
    rig.view.load = 1;
    assert_true(overloaded_at(&o, &rig, SECOND));
    in[0].prefill_tokens = 0; /* while one is free the load is a burst's */
    assert_false(overloaded_at(&o, &rig, 2 * SECOND));
}

static void slots_are_waited_for_like_prompts_and_those_that_take_nothing_do_not_count(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_overload o = { 0 };
    struct route_instance *in = queues(&rig, 5000, 0);
    in[1].accepts = false;
    overloaded_at(&o, &rig, 0);
    assert_true(overloaded_at(&o, &rig, 60 * SECOND));
    in[1].accepts = true;
    in[1].slot_wait_s = 3;
    assert_true(overloaded_at(&o, &rig, 61 * SECOND));
    in[0].accepts = in[1].accepts = false; /* nobody: what comes is held */
    assert_false(overloaded_at(&o, &rig, 62 * SECOND));
}

static void only_what_is_late_wherever_it_goes_is_refused(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_verdict v = { .instance_id = 7 };
    queues(&rig, 3000, 9000); /* 4 s and 10 s */
    rig.req.slo_ttft_s = 4.1;
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
    assert_int_equal(v.instance_id, 7);
    rig.req.slo_ttft_s = 1.5;
    assert_true(route_refuse_late(&rig.view, &rig.req, &v));
    assert_int_equal(v.instance_id, ROUTE_NONE);
    assert_true(v.reject && v.late);
    assert_float_equal(v.retry_after_s, 2.5, 1e-9);
    rig.req.slo_ttft_s = 3.9;
    assert_true(route_refuse_late(&rig.view, &rig.req, &v));
    assert_float_equal(v.retry_after_s, 1, 1e-9); /* at least */
}

static void nothing_is_refused_without_an_slo_or_a_speed(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_verdict v;
    struct route_instance *in = queues(&rig, 3000, 9000);
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
    rig.req.slo_ttft_s = 1;
    in[0].has_perf = false; /* the other's speed stands in */
    assert_true(route_refuse_late(&rig.view, &rig.req, &v));
    in[1].has_perf = false;
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
    in[0].accepts = in[1].accepts = false;
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_that_stands_for_a_minute_is_an_overload),
        cmocka_unit_test(more_work_than_the_fleet_does_is_one_at_once),
        cmocka_unit_test(
            slots_are_waited_for_like_prompts_and_those_that_take_nothing_do_not_count),
        cmocka_unit_test(only_what_is_late_wherever_it_goes_is_refused),
        cmocka_unit_test(nothing_is_refused_without_an_slo_or_a_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
