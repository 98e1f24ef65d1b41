/* t_demo.c - tests that the demo fits fleet, prompts and load to machines of every speed. */
#include "base/core/own.h"
#include "cli/demo/sizing.h"
#include "cli/schema.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>

static const struct demo_shape shape = {
    .largest = 1.2, .fixed = 0.8, .smallest = 0.2, .slo_ttft_s = 2
};

static struct demo_machine machine(double cores, double times_slower)
{
    return (struct demo_machine){ .cores = cores,
                                  .step_s = 4e-4 * times_slower,
                                  .prefill_token_s = 1e-4 * times_slower,
                                  .decode_seq_s = 1e-4 * times_slower };
}

static void t_a_fleet_stays_below_what_is_free(void **state)
{
    (void)state;
    static const struct {
        double cores, share;
        const char *why;
    } rows[] = {
        { 4, 1, "more than enough: the shares of the file" },
        { 2, 1, "two idle cores" },
        { 1, 0.5, "one core: 0.6 of it for the largest fleet" },
        { 0.05, 0.25, "hardly anything: no engine gets less than 0.05 of a core" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct demo_machine m = machine(rows[i].cores, 1);
        double share = demo_size(&m, &shape).share;
        if (fabs(share - rows[i].share) > 1e-9) fail_msg("%s: %g", rows[i].why, share);
    }
}

static void t_no_prompt_takes_longer_than_its_part_of_the_slo(void **state)
{
    (void)state;
    for (double slower = 0.25; slower <= 16; slower *= 2) {
        struct demo_machine m = machine(2, slower);
        struct demo_sizing s = demo_size(&m, &shape);
        double longest_s = s.lengths.tokens_max * m.prefill_token_s / (shape.smallest * s.share);
        if (longest_s > 0.3 * shape.slo_ttft_s + 1e-9 && s.lengths.tokens_max > 64)
            fail_msg("%g times slower: %g s", slower, longest_s);
        assert_true(s.lengths.tokens_max <= DEMO_PROMPT_MAX);
        assert_true(s.lengths.divide >= DEMO_DIVIDE_MIN && s.lengths.divide <= DEMO_DIVIDE_MAX);
    }
    struct demo_machine fast = machine(4, 0.5);
    assert_int_equal(demo_size(&fast, &shape).lengths.divide, DEMO_DIVIDE_MIN);
}

/* The trace has requests of 4,000 to 16,000 prompt tokens, one every 100 ms. */
static void t_the_load_is_the_wanted_part_of_the_machine(void **state)
{
    (void)state;
    enum { COUNT = 4000 };
    static struct trace_request request[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        request[i] = (struct trace_request){ .at_us = (int64_t)i * 100000,
                                             .prompt_tokens = 4000 + i % 7 * 2000 };
    }
    struct trace trace = { .request = request, .count = COUNT };
    for (double slower = 0.5; slower <= 8; slower *= 2) {
        struct demo_machine m = machine(2, slower);
        struct demo_lengths lengths = demo_size(&m, &shape).lengths;
        double speed = demo_speed(&m, &lengths, &trace, 100, 20000000, 0.5);
        double work_s = 0;
        for (uint32_t i = 100; i < COUNT && (double)(i - 100) * 0.1 < 20 * speed; i++)
            work_s += demo_request_s(&m, &lengths, request[i].prompt_tokens);
        if (fabs(work_s / 20 - 0.5) > 0.05) fail_msg("%g times slower: %g", slower, work_s / 20);
    }
}

static void t_the_ramp_and_its_inverse_agree(void **state)
{
    (void)state;
    int64_t last = -1;
    for (int64_t us = 0; us < 60000000; us += 250000) {
        int64_t passed = demo_ramp_passed_us(us);
        assert_true(passed > last && passed <= us);
        last = passed;
        assert_true(llabs(demo_ramp_us(passed) - us) < 100);
    }
    assert_int_equal(demo_ramp_passed_us(DEMO_BEFORE_US), DEMO_BEFORE_US / 5);
}

static const char file[] = "services:\n"
                           "  - name: s\n"
                           "    model: m.gguf\n"
                           "    slo_ttft: 1s\n"
                           "    pools:\n"
                           "      - {name: small, offers: [a], min: 1, max: 2}\n"
                           "      - {name: large, offers: [b], max: 2}\n"
                           "local:\n"
                           "  cores: 1.4\n"
                           "  offers:\n"
                           "    - name: a\n"
                           "      share: 0.2  # of a core\n"
                           "      price_per_hour: 0.1\n"
                           "      perf_prefill: 0.5\n"
                           "    - name: b\n"
                           "      share: 0.4\n"
                           "      price_per_hour: 0.2\n";

static struct config *load(struct str text)
{
    struct config *config = NULL;
    struct err err = { 0 };
    struct config_sources sources = { .path = "test", .text = text };
    if (config_load(&schema, &sources, &config, NULL, &err) < 0) fail_msg("%s", err.text);
    return config;
}

static void t_the_shape_is_read_from_pools_and_offers(void **state)
{
    (void)state;
    CLEANUP(config_freep) struct config *config = load(str_from(file));
    struct demo_shape s;
    assert_int_equal(demo_shape_of(config, &s, NULL), 0);
    assert_true(fabs(s.largest - 1.2) < 1e-9 && fabs(s.fixed - 0.8) < 1e-9);
    assert_true(fabs(s.smallest - 0.2) < 1e-9 && fabs(s.slo_ttft_s - 1) < 1e-9);
    assert_string_equal(demo_model_of(config), "m.gguf");
}

static void t_shares_are_scaled_and_nothing_else(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct demo_machine m = machine(1, 1);
    assert_int_equal(demo_config_scale(str_from(file), &m, 0.5, &out, NULL), 0);
    assert_non_null(strstr(out.data, "  cores: 0.7\n"));
    assert_non_null(strstr(out.data, "      share: 0.1\n"));
    assert_non_null(strstr(out.data, "      share: 0.2\n"));
    assert_non_null(strstr(out.data, "      perf_prefill: 0.001\n"));
    assert_non_null(strstr(out.data, "      price_per_hour: 0.1\n"));
    assert_non_null(strstr(out.data, "offers: [a], min: 1, max: 2"));
}

static void t_a_file_in_another_style_is_refused(void **state)
{
    (void)state;
    static const char flow[] = "local: {cores: 1, offers: [{name: a, share: 0.2, "
                               "price_per_hour: 1}]}\n";
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct err err = { 0 };
    struct demo_machine m = machine(1, 1);
    assert_int_equal(demo_config_scale(str_from(flow), &m, 0.5, &out, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--speed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_a_fleet_stays_below_what_is_free),
        cmocka_unit_test(t_no_prompt_takes_longer_than_its_part_of_the_slo),
        cmocka_unit_test(t_the_load_is_the_wanted_part_of_the_machine),
        cmocka_unit_test(t_the_ramp_and_its_inverse_agree),
        cmocka_unit_test(t_the_shape_is_read_from_pools_and_offers),
        cmocka_unit_test(t_shares_are_scaled_and_nothing_else),
        cmocka_unit_test(t_a_file_in_another_style_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
