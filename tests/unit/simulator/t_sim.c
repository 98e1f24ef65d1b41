/* t_sim.c - runs of the simulator whose outcome can be said beforehand. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "simulator/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Prompts of one to five blocks; every third shares its first two with the others. */
static struct trace *make_trace(uint32_t count, int64_t gap_us, bool blocks)
{
    struct trace *t;
    assert_int_equal(trace_new(&t, NULL), 0);
    t->block_tokens = blocks ? 512 : 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = 1 + i % 5;
        uint64_t id[5];
        for (uint32_t b = 0; b < n; b++)
            id[b] = i % 3 == 0 && b < 2 ? b : 1000 + 10 * (uint64_t)i + b;
        struct trace_request r = { .at_us = i * gap_us,
                                   .prompt_tokens = n * 512 - i % 7,
                                   .output_tokens = 1 + (uint32_t)(rng_at(7, i) % 300),
                                   .block_count = blocks ? n : 0 };
        assert_int_equal(trace_append(t, &r, blocks ? id : NULL, (struct str){ 0 }, NULL), 0);
    }
    return t;
}

static struct sim_config config_of(const char *hardware, uint32_t count)
{
    struct sim_config c = { .seed = 3, .pool_count = 1, .routers = 1, .slo_tpot_s = 0.1 };
    c.pool[0] = (struct sim_pool){ .count = count, .tp = 1, .price_h = 3.6 };
    if (hardware) c.pool[0].hardware = hardware_find(str_from(hardware));
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &c.model, NULL), 0);
    if (hardware) c.bias_sigma = c.residual_sigma = 0.05;
    return c;
}

static struct sim_result run(const struct sim_config *c, const struct trace *t)
{
    struct sim_result r;
    struct err err = { 0 };
    assert_int_equal(sim_run(c, t, &r, &err), 0);
    uint32_t ended = 0;
    for (uint32_t i = 0; i < SIM_END_COUNT; i++)
        ended += r.ended[i];
    assert_int_equal(ended, t->count);
    return r;
}

static void equal_inputs_give_equal_digests_and_other_seeds_do_not(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(400, 20000, true);
    struct sim_config c = config_of("a100", 4);
    struct sim_result a = run(&c, t), b = run(&c, t);
    assert_true(a.digest == b.digest);
    assert_int_equal(a.ended[SIM_COMPLETED], 400);
    c.seed = 4;
    struct sim_result other = run(&c, t);
    assert_true(other.digest != a.digest);
    sim_result_fini(&a);
    sim_result_fini(&b);
    sim_result_fini(&other);
}

static void the_serial_reference_is_arithmetic(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t;
    assert_int_equal(trace_new(&t, NULL), 0);
    t->block_tokens = 512;
    /* The second waits for the first and finds one of its two blocks. */
    uint64_t first[] = { 1, 2 }, second[] = { 1, 3 };
    struct trace_request r[] = {
        { .at_us = 0, .prompt_tokens = 1024, .output_tokens = 3, .block_count = 2 },
        { .at_us = 1000, .prompt_tokens = 1000, .output_tokens = 1, .block_count = 2 },
    };
    assert_int_equal(trace_append(t, &r[0], first, (struct str){ 0 }, NULL), 0);
    assert_int_equal(trace_append(t, &r[1], second, (struct str){ 0 }, NULL), 0);
    struct sim_config c = config_of(NULL, 1);
    struct sim_result got = run(&c, t);
    assert_int_equal(got.outcome[0].first_us, 128000);
    assert_int_equal(got.outcome[0].last_us, 168000);
    assert_int_equal(got.outcome[1].cached_tokens, 512);
    assert_int_equal(got.outcome[1].first_us, 128000 + 488 * 125);
    assert_int_equal(got.hit_tokens, 512);
    sim_result_fini(&got);
}

static void shared_blocks_are_found_and_others_are_not(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(300, 100000, true);
    struct sim_config c = config_of("a100", 1);
    struct sim_result r = run(&c, t);
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t shared = i % 3 == 0 ? min_u32(t->request[i].prompt_tokens, 1024) : 0;
        assert_true(r.outcome[i].cached_tokens <= shared);
        if (i > 30 && shared == 1024) assert_true(r.outcome[i].cached_tokens >= 1008);
    }
    sim_result_fini(&r);
}

/* What has not happened cannot matter: with other lengths and other arrivals from `cut` on, all
 * that was sent before is the same. Lengths of requests under way at the cut may differ too, as
 * long as they agree in the tokens that came before it. */
static void the_future_never_enters_a_view(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < route_count; p++) {
        CLEANUP(trace_freep) struct trace *t = make_trace(600, 8000, true);
        struct sim_config c = config_of("a100", 4);
        c.route = route_table[p];
        struct sim_result a = run(&c, t);
        int64_t cut_us = t->request[300].at_us;
        for (uint32_t i = 0; i < t->count; i++) {
            if (i >= 300) t->request[i].at_us += 3000 * (i - 299);
            if (i >= 300 || a.outcome[i].last_us > cut_us) t->request[i].output_tokens += 100;
        }
        struct sim_result b = run(&c, t);
        for (uint32_t i = 0; i < 300; i++) {
            if (a.outcome[i].first_us > cut_us) continue;
            assert_int_equal(a.outcome[i].instance, b.outcome[i].instance);
            assert_int_equal(a.outcome[i].first_us, b.outcome[i].first_us);
        }
        sim_result_fini(&a);
        sim_result_fini(&b);
    }
}

/* Two services on pools of their own do what each does alone on the same arrivals. */
static void services_do_not_mix(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(200, 50000, false);
    for (uint32_t i = 0; i < t->count; i++)
        t->request[i].service = i % 2;
    struct sim_config c = config_of("a100", 2);
    struct sim_result r;
    struct err err = { 0 };
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL); /* nobody serves number 1 */
    c.pool[1] = c.pool[0];
    c.pool[1].service = 1;
    c.pool[1].has_model = true;
    assert_int_equal(model_spec_find(STR("llama-2-7b"), &c.pool[1].model, NULL), 0);
    c.pool_count = 2;
    r = run(&c, t);
    for (uint32_t i = 0; i < t->count; i++)
        assert_int_equal(r.outcome[i].instance / 2, i % 2);
    sim_result_fini(&r);
}

static void what_cannot_be_served_is_counted_as_such(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(10, 1000000, false);
    t->request[4].prompt_tokens = 3000000;
    struct sim_config c = config_of("l4", 1);
    struct sim_result r = run(&c, t);
    assert_int_equal(r.ended[SIM_TOO_LONG], 1);
    assert_int_equal(r.outcome[4].end, SIM_TOO_LONG);
    sim_result_fini(&r);

    c.drain_s = 1e-3;
    t->request[9].output_tokens = 300;
    r = run(&c, t);
    assert_int_equal(r.outcome[9].end, SIM_UNFINISHED);
    sim_result_fini(&r);
}

/* What is left after a second of draining was paid for until then. */
static void an_unfinished_run_is_billed_to_its_end(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(40, 1000, false);
    struct sim_config c = config_of("a100", 1);
    c.drain_s = 1;
    struct sim_result r = run(&c, t);
    assert_true(r.ended[SIM_UNFINISHED] > 0);
    assert_true(fabs(r.stood_s - (39 * 0.001 + 1)) < 1e-6);
    assert_true(fabs(r.cost_usd - 3.6 * r.stood_s / 3600) < 1e-9);
    sim_result_fini(&r);
}

/* Every third request shares its beginning, so one instance of three gets more than its part. */
static void the_hotspot_is_the_largest_part_times_instances(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(300, 5000, true);
    struct sim_config c = config_of("a100", 3);
    c.route = route_find(STR("prefix_affinity"));
    struct sim_result r = run(&c, t);
    double tokens[3] = { 0 }, sum = 0, most = 0;
    for (uint32_t i = 0; i < r.offered; i++) {
        assert_in_range(r.outcome[i].instance, 0, 2);
        tokens[r.outcome[i].instance] += t->request[i].prompt_tokens;
        sum += t->request[i].prompt_tokens;
    }
    for (uint32_t i = 0; i < 3; i++)
        most = fmax(most, tokens[i]);
    assert_true(fabs(r.hotspot - 3 * most / sum) < 1e-9);
    assert_true(r.hotspot > 1);
    sim_result_fini(&r);
}

static void what_no_table_stands_behind_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *hardware, *model;
        uint32_t tp, batch_tokens;
        bool extrapolated;
    } rows[] = {
        { "rtx4090", "llama-3.2-3b", 1, 2048, false },
        { "rtx4090", "llama-3.2-3b", 1, 4096, true },
        { "rtxpro6000", "llama-3-8b", 1, 2048, false },
        { "rtxpro6000", "llama-3-8b", 2, 2048, true }, /* its links were not measured */
        { "a100", "llama-3-8b", 1, 2048, true },       /* nor the attention of these */
        { "h100", "llama-3-8b", 1, 2048, true },
        { "a40", "llama-3-8b", 1, 2048, true },
        { "l4", "llama-3-8b", 1, 2048, true },
        { "a100", "mixtral-8x7b", 4, 2048, true },
    };
    CLEANUP(trace_freep) struct trace *t = make_trace(40, 100, false);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sim_config c = config_of(rows[i].hardware, 1);
        assert_int_equal(model_spec_find(str_from(rows[i].model), &c.model, NULL), 0);
        c.pool[0].tp = rows[i].tp;
        c.batch_tokens_max = rows[i].batch_tokens;
        c.step.chunk = chunk_find(STR("budget"));
        struct sim_result r = run(&c, t);
        assert_int_equal(r.extrapolated, rows[i].extrapolated);
        sim_result_fini(&r);
    }
}

static void configurations_that_cannot_run_are_refused(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = make_trace(3, 1000, true), *none = make_trace(0, 1, true);
    struct sim_result r;
    struct err err = { 0 };
    struct sim_config c = config_of("a100", 0);
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    c = config_of("a100", 1);
    assert_int_equal(sim_run(&c, none, &r, &err), -EINVAL);
    c.routers = 0;
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    c = config_of(NULL, 1);
    c.pool[c.pool_count++] = config_of("a100", 1).pool[0];
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    for (enum role role = ROLE_PREFILL; role <= ROLE_DECODE; role++) { /* nobody does the rest */
        c = config_of("a100", 2);
        c.pool[0].role = role;
        assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    }
    CLEANUP(trace_freep) struct trace *years = make_trace(3, 366LL * 86400 * 1000000, true);
    c = config_of("a100", 1);
    assert_int_equal(sim_run(&c, years, &r, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_inputs_give_equal_digests_and_other_seeds_do_not),
        cmocka_unit_test(the_serial_reference_is_arithmetic),
        cmocka_unit_test(shared_blocks_are_found_and_others_are_not),
        cmocka_unit_test(the_future_never_enters_a_view),
        cmocka_unit_test(services_do_not_mix),
        cmocka_unit_test(what_cannot_be_served_is_counted_as_such),
        cmocka_unit_test(an_unfinished_run_is_billed_to_its_end),
        cmocka_unit_test(the_hotspot_is_the_largest_part_times_instances),
        cmocka_unit_test(what_no_table_stands_behind_is_said),
        cmocka_unit_test(configurations_that_cannot_run_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
