/* t_measure.c - tests the controller's metrics of decisions, launches, refusals and orphans, and the list
 * of targets that a scraper reads. */
#include "base/core/bits.h"
#include "controller/metrics.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the value of the sample line that starts with `name`, which must be there. */
static double metric(const struct world *w, const char *name)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char line[256];
    snprintf(line, sizeof line, "\n%s ", name);
    assert_int_equal(metrics_render(control_metrics(w->control), METRICS_CLASSIC, &text), 0);
    const char *at = strstr(text.data, line);
    if (!at) fail_msg("there is no %s in\n%s", name, text.data);
    at += strlen(line);
    if (strncmp(at, "NaN", 3) == 0) return (double)NAN;
    double v = 0;
    assert_int_equal(str_to_f64(str_of(at, strcspn(at, "\n")), &v), 0);
    return v;
}

static bool has_metric(const struct world *w, const char *words)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(metrics_render(control_metrics(w->control), METRICS_CLASSIC, &text), 0);
    return strstr(text.data, words) != NULL;
}

/* Returns how many series of a metric are 1. */
static uint32_t ones(const struct world *w, const char *name)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint32_t count = 0;
    assert_int_equal(metrics_render(control_metrics(w->control), METRICS_CLASSIC, &text), 0);
    struct str rest = buf_view(&text);
    while (rest.len > 0) {
        struct str line = str_cut(&rest, '\n');
        count += str_starts(line, str_from(name)) && str_ends(line, STR(" 1"));
    }
    return count;
}

#define LOADED(w)  \
    (w)->rate = 8; \
    (w)->held = 1; \
    world_run(w, 30)

static void launches_are_measured_by_phase(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    LOADED(w);
#define READY(part, phase)                                    \
    metric(w, "muster_controller_time_to_ready_seconds_" part \
              "{service=\"chat\",pool=\"small\",phase=\"" phase "\"}")
    double launches = READY("count", "total");
    assert_true(launches >= 1);
    assert_true(READY("count", "boot") == launches && READY("count", "load") == launches);
    double boot_s = READY("sum", "boot") / launches, total_s = READY("sum", "total") / launches;
    assert_true(boot_s >= WORLD_BOOT_US / 1e6 - 1 && boot_s <= WORLD_BOOT_US / 1e6 + 2);
    double parts =
        READY("sum", "call") + READY("sum", "create") + READY("sum", "boot") + READY("sum", "load");
    assert_true(fabs(parts / launches - total_s) < 1e-6); /* nothing is counted twice */
#undef READY
    world_kill(w);
    world_run(w, 30); /* restored instances were not watched all the way */
    assert_false(has_metric(w, "muster_controller_time_to_ready_seconds_count{"));
    world_free(w);
}

static void refusals_are_counted_by_offer_and_class(void **state)
{
    (void)state;
    const struct fake_config sold_out = { .boot_us = WORLD_BOOT_US,
                                          .script = { { FAKE_CREATE, 0, FAKE_STOCK_OUT, 0, "s1" },
                                                      { FAKE_CREATE, 0, FAKE_AUTH, 0, "s2" } },
                                          .step_count = 2 };
#define FAILED(offer, class)                                                             \
    metric(w, "muster_controller_create_failures_total{provider=\"fake\",offer=\"" offer \
              "\",class=\"" class "\"}")
#define AVAILABLE(offer) \
    metric(w, "muster_controller_offer_available{provider=\"fake\",offer=\"" offer "\"}")
    struct world *w = world_new(&sold_out);
    world_second(w);
    assert_true(FAILED("s1", "capacity") ==
                0); /* there before the first refusal: a rate needs it */
    assert_true(AVAILABLE("s1") == 1);
    LOADED(w);
    assert_true(FAILED("s1", "capacity") >= 1 && FAILED("s1", "auth") == 0);
    assert_true(FAILED("s2", "auth") >= 1 && FAILED("s2", "capacity") == 0);
    assert_true(FAILED("l1", "capacity") == 0 && AVAILABLE("l1") == 1);
    assert_true(AVAILABLE("s2") == 0);
#undef FAILED
#undef AVAILABLE
    world_free(w);
}

static void one_reason_holds_at_a_time(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    world_run(w, 3);
    assert_int_equal(ones(w, "muster_controller_reason_info{service=\"chat\""), 1);
    LOADED(w);
    assert_int_equal(ones(w, "muster_controller_reason_info{service=\"chat\""), 1);
    assert_true(ones(w, "muster_controller_blocked_info{service=\"chat\"") <= 1);
    w->router_silent = true;
    world_run(w, 10);
    const char *silent = "muster_controller_reason_info{service=\"chat\",reason=\"no router has "
                         "reported its demand: keep what there is\"}";
    assert_true(metric(w, silent) == 1);
    w->router_silent = false;
    world_run(w, 5);
    assert_true(metric(w, silent) == 0);
    assert_int_equal(ones(w, "muster_controller_reason_info{service=\"chat\""), 1);
    world_free(w);
}

static void unknown_demand_is_no_number(void **state)
{
    (void)state;
    static const char arrivals[] = "muster_controller_arrivals_per_second{service=\"chat\"}";
    static const char held[] = "muster_controller_requests{service=\"chat\",state=\"held\"}";
    static const char forecast[] =
        "muster_controller_forecast_arrivals_per_second{service=\"chat\"}";
    struct world *w = world_new(NULL);
    w->router_silent = true;
    world_run(w, 3);
    assert_true(isnan(metric(w, arrivals)) && isnan(metric(w, held)) && isnan(metric(w, forecast)));
    w->router_silent = false;
    LOADED(w);
    assert_true(metric(w, arrivals) > 7.9 && metric(w, arrivals) < 8.1);
    assert_true(metric(w, forecast) > 4 && metric(w, forecast) < 12);
    assert_true(metric(w, held) == 0);
    world_free(w);
}

static void settings_are_told_and_no_budget_is_none(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    world_second(w);
    assert_true(metric(w, "muster_controller_slo_seconds{service=\"chat\",of=\"ttft\"}") == 2);
    assert_true(metric(w, "muster_controller_slo_seconds{service=\"chat\",of=\"tpot\"}") == 0.1);
    assert_true(metric(w, "muster_controller_slo_objective_ratio{service=\"chat\"}") == 0.99);
    assert_false(has_metric(w, "muster_controller_budget_per_hour_dollars{"));
    world_free(w);
    w = world_new(NULL);
    w->service.budget_h = 3.5;
    world_second(w);
    assert_true(metric(w, "muster_controller_budget_per_hour_dollars{service=\"chat\"}") == 3.5);
    world_free(w);
}

static void orphans_are_counted_while_they_are_there(void **state)
{
    (void)state;
    static const char orphans[] = "muster_controller_orphans{provider=\"fake\"}";
    struct world *w = world_new(NULL);
    world_second(w);
    assert_true(metric(w, orphans) == 0);
    fake_cloud_plant(w->fake, "i-old", "nobody", "small", "s1", w->now);
    world_run(w, 30);
    assert_true(metric(w, orphans) == 1);
    world_run(w, 60);
    assert_true(metric(w, orphans) == 0);
    assert_true(metric(w, "muster_controller_strays_removed_total{provider=\"fake\"}") >= 1);
    world_free(w);
}

static void report(struct world *w, const char *id, uint64_t boot, uint64_t seq, uint32_t restarts)
{
    const struct agent_report r = { .instance = str_from(id),
                                    .intent = str_from(id),
                                    .boot = boot,
                                    .seq = seq,
                                    .restarts = restarts,
                                    .state = AGENT_UP };
    struct agent_reply reply;
    control_report(w->control, &r, w->now, &reply);
    assert_true(reply.known);
}

static void restarts_are_counted_once(void **state)
{
    (void)state;
    static const char restarts[] =
        "muster_controller_engine_restarts_total{service=\"chat\",pool=\"small\"}";
    struct world *w = world_new(NULL);
    LOADED(w);
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    const char *id = NULL;
    for (uint32_t i = 0; i < count && !id; i++)
        if (strcmp(in[i].pool, "small") == 0 && !in[i].removed_us) id = in[i].intent;
    assert_non_null(id);
    assert_true(metric(w, restarts) == 0);
    report(w, id, 1, 1000, 2);
    report(w, id, 1, 1001, 2);
    assert_true(metric(w, restarts) == 2);
    report(w, id, 1, 999, 9); /* overtaken */
    assert_true(metric(w, restarts) == 2);
    report(w, id, 5, 1, 1); /* another agent began anew */
    assert_true(metric(w, restarts) == 3);
    world_kill(w);
    world_start(w);
    report(w, id, 5, 2, 4); /* what was before its start is not known */
    report(w, id, 5, 3, 6);
    assert_true(metric(w, restarts) == 2);
    world_free(w);
}

static void a_scraper_is_told_of_engines_and_routers(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    CLEANUP(buf_fini) struct buf none = { 0 }, text = { 0 };
    world_start(w);
    assert_int_equal(control_targets(w->control, &none), 0);
    assert_true(str_eq(buf_view(&none), STR("[]")));
    LOADED(w);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    static const struct {
        const char *id, *host;
    } routers[] = { { "r6", "fd00::7" }, { "everywhere", "0.0.0.0" } };
    for (size_t i = 0; i < COUNT_OF(routers); i++) {
        const struct router_sync s = { .router = str_from(routers[i].id),
                                       .host = str_from(routers[i].host),
                                       .port = 8080,
                                       .boot = 9,
                                       .seq = 1 };
        struct router_rules rules;
        assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, NULL), 0);
    }
    assert_int_equal(control_targets(w->control, &text), 0);
    assert_non_null(
        strstr(text.data, "{\"targets\":[\"127.0.0.1:8200\"],\"labels\":{\"job\":\"muster-engine\","
                          "\"instance\":\"i-"));
    assert_non_null(
        strstr(text.data,
               "\"service\":\"chat\",\"pool\":\"small\",\"provider\":\"fake\",\"offer\":\"s1\""));
    assert_non_null(
        strstr(text.data, "{\"targets\":[\"[fd00::7]:8080\"],\"labels\":{\"job\":\"muster-router\","
                          "\"instance\":\"r6\"}}"));
    assert_null(strstr(text.data, "everywhere")); /* listens on all addresses: none is known */
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_are_measured_by_phase),
        cmocka_unit_test(refusals_are_counted_by_offer_and_class),
        cmocka_unit_test(one_reason_holds_at_a_time),
        cmocka_unit_test(unknown_demand_is_no_number),
        cmocka_unit_test(settings_are_told_and_no_budget_is_none),
        cmocka_unit_test(orphans_are_counted_while_they_are_there),
        cmocka_unit_test(restarts_are_counted_once),
        cmocka_unit_test(a_scraper_is_told_of_engines_and_routers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
