/* t_loop_metrics.c - tests that metrics of several loops add their counts once and show gauges as they
 * stand, and that services and tenants have their series. */
#include "base/core/bits.h"
#include "router/metrics.h"
#include "tests/unit/io/server_rig.h"

#define LOOPS 3
#define TURNS 5

struct rig {
    struct metrics *metrics;
    struct loop *loop[LOOPS];
    struct http_client *client[LOOPS];
    struct loop_metrics loop_metrics;
    uint32_t ended;
};

static void on_end(void *arg, enum http_end end)
{
    struct rig *r = arg;
    assert_int_equal(end, HTTP_END_CONNECT_FAILED);
    r->ended++;
}

/* Calls port 1 of this machine, where no server listens; whether the failure comes at once or
 * later, no connection stays. */
static void call_nobody(struct rig *r, uint32_t i)
{
    struct err err;
    const struct http_call_request req = {
        .host = STR("127.0.0.1"), .port = 1, .path = STR("/"), .on_end = on_end, .arg = r
    };
    uint32_t ended = r->ended;
    assert_non_null(http_call_start(r->client[i], &req, &err));
    while (r->ended == ended)
        assert_int_equal(loop_turn(r->loop[i], 10000), 0);
}

static void rig_start(struct rig *r)
{
    struct err err;
    *r = (struct rig){ 0 };
    assert_int_equal(metrics_new(router_metric_table, RM_COUNT, NULL, 0, &r->metrics, &err), 0);
    r->loop_metrics.metrics = r->metrics;
    for (uint32_t i = 0; i < LOOPS; i++) {
        assert_int_equal(loop_new(&r->loop[i], &err), 0);
        assert_int_equal(http_client_new(r->loop[i], NULL, &r->client[i], &err), 0);
        loop_metrics_add(&r->loop_metrics, &(struct loop_metrics_source){ .loop = r->loop[i],
                                                                          .client = r->client[i] });
    }
}

static void rig_stop(struct rig *r)
{
    for (uint32_t i = 0; i < LOOPS; i++) {
        http_client_free(r->client[i]);
        loop_free(r->loop[i]);
    }
    metrics_free(r->metrics);
}

static double told(const struct rig *r, enum router_metric metric)
{
    return metric_value(metric_of(r->metrics, metric));
}

static void all_loops_are_summed_and_nothing_is_told_twice(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r);
    for (uint32_t i = 0; i < LOOPS; i++)
        for (uint32_t k = 0; k < TURNS; k++)
            assert_int_equal(loop_turn(r.loop[i], 0), 0);
    loop_metrics_tell(&r.loop_metrics);
    assert_true(told(&r, RM_LOOP_TURNS) == LOOPS * TURNS);
    assert_true(told(&r, RM_UPSTREAM_CONNECTS) == 0);
    loop_metrics_tell(&r.loop_metrics);
    assert_true(told(&r, RM_LOOP_TURNS) == LOOPS * TURNS);

    for (uint32_t i = 0; i < LOOPS; i++)
        call_nobody(&r, i);
    call_nobody(&r, 0);
    loop_metrics_tell(&r.loop_metrics);
    assert_true(told(&r, RM_UPSTREAM_CONNECTS) == LOOPS + 1);
    assert_true(told(&r, RM_UPSTREAM_REUSED) == 0 && told(&r, RM_UPSTREAM_REFUSED) == 0);
    assert_true(told(&r, RM_LOOP_TURNS) > LOOPS * TURNS);
    const struct str states[] = { STR("busy"), STR("idle") };
    for (size_t i = 0; i < COUNT_OF(states); i++)
        assert_true(metric_value(metric_series(r.metrics, RM_UPSTREAM_CONNECTIONS, &states[i])) ==
                    0);
    rig_stop(&r);
}

static void ignore(void *arg)
{
    (void)arg;
}

static void refused_posts_are_told(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < LOOP_POSTS_MAX + 3; i++)
        refused += loop_post(r.loop[1], ignore, NULL) < 0;
    assert_true(refused > 0);
    loop_metrics_tell(&r.loop_metrics);
    assert_true(told(&r, RM_LOOP_POSTS_REFUSED) == refused);
    rig_stop(&r);
}

/* A loop with a server and a client reports their counts beside loops without any. */
static void what_servers_count_is_told(void **state)
{
    (void)state;
    const struct str request = STR(GET("/wait"));
    struct rig r;
    rig_start(&r);
    struct fixture *f = begin((struct http_limits){ 0 });
    struct http_client *client;
    assert_int_equal(http_client_new(f->loop, NULL, &client, NULL), 0);
    loop_metrics_add(&r.loop_metrics, &(struct loop_metrics_source){ f->loop, client, f->server });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, request);
    TURN_UNTIL(f->loop, f->held);
    loop_metrics_tell(&r.loop_metrics);
    assert_true(told(&r, RM_HTTP_REQUESTS) == 1 && told(&r, RM_HTTP_SENT) == 0);
    assert_true(told(&r, RM_HTTP_RECEIVED) == (double)request.len);
    assert_true(told(&r, RM_HTTP_HELD) >= (double)request.len);
    http_reply(f->held, 200, STR("text/plain"), STR("here"));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "here"));
    size_t got = p.got.len;
    peer_close(&p);
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    loop_metrics_tell(&r.loop_metrics);
    assert_true(told(&r, RM_HTTP_REQUESTS) == 1 && told(&r, RM_HTTP_SENT) == (double)got);
    assert_true(told(&r, RM_HTTP_RECEIVED) == (double)request.len);
    assert_true(told(&r, RM_HTTP_HELD) == 0);
    http_client_free(client);
    end(f);
    rig_stop(&r);
}

static void the_timer_tells(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r);
    assert_int_equal(loop_turn(r.loop[0], 0), 0);
    assert_int_equal(loop_metrics_start(&r.loop_metrics, r.loop[2]), 0);
    while (told(&r, RM_LOOP_TURNS) == 0)
        assert_int_equal(loop_turn(r.loop[2], -1), 0);
    assert_true(loop_timer_is_set(&r.loop_metrics.timer));
    loop_timer_clear(r.loop[2], &r.loop_metrics.timer);
    rig_stop(&r);
}

static double valued(struct metrics *m, enum router_metric metric, struct str a, struct str b)
{
    const struct str labels[] = { a, b };
    return metric_value(metric_series(m, metric, labels));
}

/* A service's series are there with zeros before its first request; one without a name has its own. */
static void a_service_has_its_series_from_the_start(void **state)
{
    (void)state;
    struct metrics *m = NULL;
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(metrics_new(router_metric_table, RM_COUNT, NULL, 0, &m, NULL), 0);
    router_metrics_service(m, STR("chat"));
    router_metrics_service(m, STR("chat"));
    assert_int_equal(metrics_render(m, METRICS_CLASSIC, &text), 0);
    static const char *const lines[] = {
        "muster_router_slo_requests_total{result=\"met\",service=\"chat\"} 0\n",
        "muster_router_slo_requests_total{result=\"missed\",service=\"chat\"} 0\n",
        "muster_router_requests_total{outcome=\"client_left\",service=\"chat\"} 0\n",
        "muster_router_generated_tokens_total{service=\"chat\"} 0\n",
        "muster_router_time_to_first_token_seconds_count{service=\"chat\"} 0\n",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        if (!strstr(text.data, lines[i])) fail_msg("there is no %s", lines[i]);
    assert_null(strstr(text.data, "service=\"other\""));
    router_metric_count(m, RM_REQUESTS, "refused", (struct str){ 0 });
    router_metric_count(m, RM_REQUESTS, "ok", STR("chat"));
    assert_true(valued(m, RM_REQUESTS, STR("refused"), STR("none")) == 1);
    assert_true(valued(m, RM_REQUESTS, STR("refused"), STR("chat")) == 0);
    assert_true(valued(m, RM_REQUESTS, STR("ok"), STR("chat")) == 1);
    metrics_free(m);
}

/* Tenants that never asked have no series; usage is added once, whatever is told how often. */
static void a_tenant_has_series_once_it_asks(void **state)
{
    (void)state;
    struct metrics *m = NULL;
    struct tenant_meters acme = { 0 }, anonymous = { 0 }, idle = { 0 };
    assert_int_equal(metrics_new(router_metric_table, RM_COUNT, NULL, 0, &m, NULL), 0);
    struct tenant_usage usage = { .tenant = STR("acme"),
                                  .requests_total = 3,
                                  .rejected_total = 1,
                                  .prompt_tokens_total = 100,
                                  .cached_tokens_total = 40,
                                  .generated_tokens_total = 7 };
    const struct tenant_usage nothing = { .tenant = STR("idle") };
    const struct tenant_usage open = { .requests_total = 2 };
    router_metrics_tenant(m, &idle, &nothing, 0);
    assert_null(idle.requests);
    router_metrics_tenant(m, &acme, &usage, 2);
    router_metrics_tenant(m, &acme, &usage, 1);
    usage.requests_total = 5;
    router_metrics_tenant(m, &acme, &usage, 0);
    router_metrics_tenant(m, &anonymous, &open, 0);
    struct str name = STR("acme"), no_key = STR("(no key)");
    assert_true(metric_value(metric_series(m, RM_TENANT_REQUESTS, &name)) == 5);
    assert_true(metric_value(metric_series(m, RM_TENANT_REJECTED, &name)) == 1);
    assert_true(metric_value(metric_series(m, RM_TENANT_IN_FLIGHT, &name)) == 0);
    assert_true(metric_value(metric_series(m, RM_TENANT_REQUESTS, &no_key)) == 2);
    assert_true(valued(m, RM_TENANT_TOKENS, name, STR("prompt")) == 100);
    assert_true(valued(m, RM_TENANT_TOKENS, name, STR("cached")) == 40);
    assert_true(valued(m, RM_TENANT_TOKENS, name, STR("generated")) == 7);
    metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_loops_are_summed_and_nothing_is_told_twice),
        cmocka_unit_test(a_service_has_its_series_from_the_start),
        cmocka_unit_test(a_tenant_has_series_once_it_asks),
        cmocka_unit_test(refused_posts_are_told),
        cmocka_unit_test(what_servers_count_is_told),
        cmocka_unit_test(the_timer_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
