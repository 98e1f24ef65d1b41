/* t_bounds.c - tests that the simulator's bounds and periods are the configuration's defaults, and
 * that it refuses and counts requests at a bound. */
#include "agent/agent.h"
#include "base/core/own.h"
#include "cli/schema.h"
#include "cli/simulate/sim_config.h"
#include "controller/config.h"
#include "engine/config.h"
#include "fleet/defaults.h"
#include "router/config.h"
#include "simulator/sim.h"
#include "tests/unit/unit.h"

#include <string.h>

static void numbers_are_the_configurations(void **state)
{
    (void)state;
    CLEANUP(config_freep) struct config *file = NULL;
    CLEANUP(trace_freep) struct trace *none = NULL;
    struct config_sources nothing = { 0 };
    assert_int_equal(config_load(&schema, &nothing, &file, NULL, NULL), 0);
    assert_int_equal(trace_new(&none, NULL), 0);
    const struct router_config *router = config_section_get(file, router_section.name);
    const struct agent_config *agent = config_section_get(file, agent_section.name);
    const struct controller_section *controller = config_section_get(file, controller_section.name);
    const struct config_section *engine = &engine_section;
    const struct sim_config open = { 0 };
    const struct sim_config c = sim_config_resolved(&open, none);
    const struct {
        const char *what;
        int64_t product, simulator;
    } rows[] = {
        { "router.requests_max", router->requests_max, c.bounds.requests_max },
        { "router.held_max", router->held_max, c.bounds.held_max },
        { "router.hold_max", router->hold_us_max, c.bounds.hold_us_max },
        { "router.index_bytes", router->index_bytes, (int64_t)c.bounds.index_bytes },
        { "router.sync", router->sync_us, SYNC_PERIOD_US },
        { "agent.report", agent->report_us, REPORT_PERIOD_US },
        { "an engine's word to routers", agent->report_us, c.report_delay_us },
        { "controller.tick", controller->tick_us, TICK_PERIOD_US },
        { "engine.max_waiting",
          ((const struct engine_config *)config_section_get(file, engine->name))->max_waiting,
          c.bounds.waiting_max },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].product != rows[i].simulator)
            fail_msg("%s is %lld, the simulator's %lld", rows[i].what, (long long)rows[i].product,
                     (long long)rows[i].simulator);
}

static const char *default_of(const struct config_record *record, const char *name)
{
    for (size_t i = 0; i < record->field_count; i++)
        if (strcmp(record->fields[i].name, name) == 0) return record->fields[i].default_text;
    fail_msg("no setting %s", name);
    return NULL;
}

/* Without a flag the simulator uses the configuration's default. */
static void flags_have_the_same_defaults(void **state)
{
    (void)state;
    static const struct {
        const struct config_section *section;
        const char *setting, *flag;
    } rows[] = {
        { &router_section, "requests_max", "requests_max" },
        { &router_section, "held_max", "held_max" },
        { &router_section, "hold_max", "hold_max" },
        { &router_section, "index_bytes", "index_bytes" },
        { &engine_section, "max_waiting", "max_waiting" },
        { &agent_section, "report", "report_delay" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_string_equal(default_of(rows[i].section->record, rows[i].setting),
                            default_of(&sim_options_record, rows[i].flag));
}

/* Runs 400 requests within 0.8 s on one A100. */
static struct sim_result crowd(const struct sim_bounds *bounds, struct trace *t)
{
    struct sim_config c = { .seed = 1,
                            .pool_count = 1,
                            .routers = 1,
                            .slo_ttft_s = 1,
                            .slo_tpot_s = 1,
                            .has_bounds = true,
                            .bounds = *bounds };
    c.pool[0] = (struct sim_pool){ .hardware = hardware_find(STR("a100")), .tp = 1, .count = 1 };
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &c.model, NULL), 0);
    struct sim_result r;
    struct err err = { 0 };
    if (sim_run(&c, t, &r, &err) < 0) fail_msg("%s", err.text);
    return r;
}

static void a_bound_that_is_reached_is_an_answer(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        uint32_t requests_max, waiting_max;
        uint64_t refused_429, refused_503; /* at least so many; 0: none */
    } rows[] = {
        { "there is room for all", 4096, 4096, 0, 0 },
        { "the router is full", 100, 4096, 200, 0 },
        { "the engine's queue is full: elsewhere is nowhere", 4096, 20, 0, 50 },
    };
    CLEANUP(trace_freep) struct trace *t = NULL;
    assert_int_equal(trace_new(&t, NULL), 0);
    for (uint32_t i = 0; i < 400; i++) {
        const struct trace_request r = { .at_us = i * 2000,
                                         .prompt_tokens = 500,
                                         .output_tokens = 200 };
        assert_int_equal(trace_append(t, &r, NULL, (struct str){ 0 }, NULL), 0);
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sim_bounds bounds = sim_bounds_default;
        bounds.requests_max = rows[i].requests_max;
        bounds.waiting_max = rows[i].waiting_max;
        struct sim_result r = crowd(&bounds, t);
        bool right = r.refused_429 >= rows[i].refused_429 && r.refused_503 >= rows[i].refused_503;
        right &= (r.refused_429 > 0) == (rows[i].refused_429 > 0);
        right &= (r.refused_503 > 0) == (rows[i].refused_503 > 0);
        right &= r.ended[SIM_REJECTED] == r.refused_429 + r.refused_503;
        right &= r.ended[SIM_REJECTED] + r.ended[SIM_COMPLETED] == 400;
        if (!right)
            fail_msg("%s: %u rejected, %llu by 429, %llu by 503, %u completed", rows[i].why,
                     r.ended[SIM_REJECTED], (unsigned long long)r.refused_429,
                     (unsigned long long)r.refused_503, r.ended[SIM_COMPLETED]);
        sim_result_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_the_configurations),
        cmocka_unit_test(flags_have_the_same_defaults),
        cmocka_unit_test(a_bound_that_is_reached_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
