/* t_dispatch_legs.c - tests requests that continue at another endpoint: which endpoints may take
 * them, what they count as there, and the link speed that policies see. */
#include "tests/unit/router/dispatch_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The last view and request that the policy saw. */
static struct {
    double link_bytes_s;
    uint32_t kv_bytes_per_token, instances, accept;
    double output_left; /* sum over all instances */
    struct route_req req;
} asked;

static void on_decided(void *arg, uint64_t id, const struct route_view *view,
                       const struct route_req *req, const struct route_verdict *verdict,
                       int64_t now_us)
{
    (void)arg, (void)id, (void)verdict, (void)now_us;
    asked.link_bytes_s = view->link_bytes_s;
    asked.kv_bytes_per_token = view->kv_bytes_per_token;
    asked.instances = view->instance_count;
    asked.req = *req;
    asked.accept = 0;
    asked.output_left = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        asked.accept += view->instance[i].accepts;
        asked.output_left += view->instance[i].output_left;
    }
}

static void on_event(void *arg, uint64_t id, const struct route_event *ev)
{
    (void)arg, (void)id, (void)ev;
}

static int fresh(void **state)
{
    (void)state;
    static const struct dispatch_watch watch = { .decided = on_decided, .event = on_event };
    struct dispatch_config c = dispatch_config_default();
    c.route = route_find(STR("mooncake_fetch"));
    c.watch = &watch;
    return core_open(&c);
}

static struct dispatch_endpoint endpoint(const char *name)
{
    struct dispatch_endpoint ep = endpoint_of(name);
    ep.takes_ids = true;
    return ep;
}

static struct dispatch_request request(void)
{
    return request_of(640);
}

/* A view shows the slowest link among its model's endpoints that have one, and their bytes of KV a
 * token. */
static void links_are_those_of_the_model_s_endpoints(void **state)
{
    (void)state;
    static const struct {
        double link[3];
        uint32_t bytes[3];
        double want;
        uint32_t want_bytes;
    } rows[] = {
        { { 0, 0, 5e9 }, { 0, 0, 7 }, 0, 0 },
        { { 2e9, 1e9, 5e8 }, { 100, 100, 7 }, 1e9, 100 },
        { { 0, 3e9, 5e8 }, { 0, 100, 7 }, 3e9, 100 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint32_t k = 0; k < 3; k++) {
            char name[8];
            snprintf(name, sizeof name, "e%u", k);
            struct dispatch_endpoint ep = endpoint(name);
            ep.model = 1 + k / 2;
            ep.link_bytes_s = rows[i].link[k];
            ep.kv_bytes_per_token = rows[i].bytes[k];
            endpoint_put(&ep);
        }
        struct dispatch_request r = request();
        assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
        assert_int_equal(asked.instances, 2);
        assert_true(asked.link_bytes_s == rows[i].want);
        assert_int_equal(asked.kv_bytes_per_token, rows[i].want_bytes);
        dispatch_end(dispatch, &r, 1, false, 0);
    }
}

/* Where endpoints have a link, a prefix that a peer holds is fetched and counts as a hit. */
static void a_peer_s_run_is_fetched_over_the_link(void **state)
{
    (void)state;
    struct block_key keys[40];
    for (uint64_t i = 0; i < 40; i++)
        keys[i] = (struct block_key){ i + 1, 2 * i + 1 };
    for (uint32_t linked = 0; linked < 2; linked++) {
        struct dispatch_endpoint a = endpoint("a"), b = endpoint("b");
        a.link_bytes_s = b.link_bytes_s = linked ? 1e9 : 0;
        a.kv_bytes_per_token = b.kv_bytes_per_token = 1000;
        uint32_t holder = endpoint_put(&a), other = endpoint_put(&b);
        for (uint32_t i = 0; i < 40; i++)
            prefix_index_add(dispatch_index(dispatch), holder, keys[i]);
        struct dispatch_request r = request();
        const struct reported_load full = { .running = 8, .waiting = 50, .prefill_tokens = 100000 };
        dispatch_endpoint_report(dispatch, holder, &full, 0, 0);
        r.keys = keys;
        r.key_count = 40;
        assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
        assert_int_equal(r.slot, other);
        assert_int_equal(r.route.fetch_from_id, linked ? holder : ROUTE_NONE);
        assert_int_equal(r.hit_tokens, linked ? 639 : 0);
        dispatch_end(dispatch, &r, 1, false, 0);
        dispatch_endpoint_remove(dispatch, holder);
        dispatch_endpoint_remove(dispatch, other);
    }
}

/* After a failure generated tokens count as prompt and are no longer predicted, and only an
 * endpoint that takes ids may continue. Without generated tokens any endpoint may start the request
 * again. */
static void an_answer_goes_on_where_ids_are_taken(void **state)
{
    (void)state;
    struct dispatch_endpoint a = endpoint("a"), b = endpoint("b");
    b.takes_ids = false;
    uint32_t first = endpoint_put(&a);
    struct dispatch_request r = request(), other = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    assert_int_equal(dispatch_arrive(dispatch, &other, 0).answer, DISPATCH_SEND);
    uint32_t rest = endpoint_put(&b);
    dispatch_tokens(dispatch, &r, 5, 1);
    dispatch_tokens(dispatch, &other, 5, 1);
    double mean = r.length.mean;
    r.generated = 5;
    assert_int_equal(dispatch_fail(dispatch, &r, RETRY_DIED, 2).answer, DISPATCH_WAIT);
    assert_int_equal(dispatch_fail(dispatch, &other, RETRY_DIED, 2).answer, DISPATCH_SEND);
    assert_int_equal(other.slot, rest);
    assert_int_equal(asked.req.prompt_tokens, 640);
    struct dispatch_verdict v;
    assert_ptr_equal(dispatch_held_next(dispatch, 4000000, &v), &r);
    assert_int_equal(r.slot, first);
    assert_int_equal(asked.req.prompt_tokens, 645);
    assert_true(asked.req.output_mean == mean - 5);
    dispatch_tokens(dispatch, &r, 1, 4000001);
    dispatch_end(dispatch, &r, 6, false, 4000001);
    dispatch_end(dispatch, &other, 5, false, 4000001);
}

/* A prefill instance hands off to a decode instance that takes ids, and to no other. */
static void only_those_who_take_ids_are_handed_answers(void **state)
{
    (void)state;
    struct dispatch_endpoint prompts = endpoint("p"), others = endpoint("o"),
                             decodes = endpoint("d");
    prompts.role = ROLE_PREFILL;
    others.role = decodes.role = ROLE_DECODE;
    others.takes_ids = false;
    uint32_t from = endpoint_put(&prompts);
    endpoint_put(&others);
    struct dispatch_request r = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    assert_int_equal(r.slot, from);
    dispatch_tokens(dispatch, &r, 1, 1);
    assert_int_equal(dispatch_pd_handoff(dispatch, &r, 1), ROUTE_NONE);
    assert_int_equal(r.slot, from);
    uint32_t to = endpoint_put(&decodes);
    assert_int_equal(dispatch_pd_handoff(dispatch, &r, 2), to);
    assert_int_equal(dispatch_in_flight(dispatch, from), 0);
    assert_int_equal(dispatch_in_flight(dispatch, to), 1);
    dispatch_end(dispatch, &r, 2, false, 3);
}

#define SLICE 128

static void end_slice(struct dispatch_request *r, enum dispatch_answer expected, int64_t now_us)
{
    dispatch_tokens(dispatch, r, SLICE, now_us);
    r->generated += SLICE;
    assert_int_equal(dispatch_slice_end(dispatch, r, now_us).answer, expected);
}

/* Each slice is placed anew with its tokens so far, is no retry, and counts as one slice of
 * output. */
static void a_request_comes_back_after_each_slice(void **state)
{
    (void)state;
    dispatch_route_set(dispatch, route_find(STR("scls")));
    struct dispatch_endpoint a = endpoint("a"), b = endpoint("b");
    uint32_t slot[2] = { endpoint_put(&a), endpoint_put(&b) };
    struct dispatch_request r = request(), probe = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    assert_int_equal(r.slice_tokens, SLICE);
    for (uint32_t i = 1; i <= 2 * RETRY_ATTEMPTS_MAX; i++) {
        uint32_t from = r.slot;
        const struct reported_load busy = { .running = 1, .waiting = 50, .prefill_tokens = 50000 };
        dispatch_endpoint_report(dispatch, from, &busy, i * SECOND, i * SECOND);
        dispatch_endpoint_report(dispatch, slot[from == slot[0]], &(struct reported_load){ 0 },
                                 i * SECOND, i * SECOND);
        end_slice(&r, DISPATCH_SEND, i * SECOND);
        assert_int_not_equal(r.slot, from);
        assert_int_equal(asked.req.prompt_tokens, 640 + i * SLICE);
        assert_int_equal(r.retry.attempts, 1);
        assert_int_equal(
            dispatch_in_flight(dispatch, slot[0]) + dispatch_in_flight(dispatch, slot[1]), 1);
    }
    assert_int_equal(dispatch_arrive(dispatch, &probe, 0).answer, DISPATCH_SEND);
    assert_true(asked.output_left > 0 && asked.output_left <= SLICE);
    dispatch_end(dispatch, &probe, 1, false, 0);
    dispatch_end(dispatch, &r, r.generated, false, 0);
}

static void a_slice_that_finds_nobody_is_held(void **state)
{
    (void)state;
    dispatch_route_set(dispatch, route_find(STR("scls")));
    struct dispatch_endpoint a = endpoint("a");
    endpoint_put(&a);
    struct dispatch_request r = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    a.ready = false;
    endpoint_put(&a);
    end_slice(&r, DISPATCH_WAIT, 1);
    assert_int_equal(r.state, DISPATCH_HELD);
    struct dispatch_verdict v;
    assert_null(dispatch_held_next(dispatch, 2, &v));
    a.ready = true;
    endpoint_put(&a);
    assert_ptr_equal(dispatch_held_next(dispatch, 3, &v), &r);
    assert_int_equal(v.answer, DISPATCH_SEND);
    dispatch_end(dispatch, &r, r.generated, false, 4);
}

/* Without slices a request stays to its end: with a policy that has none, at an engine that takes
 * no ids, at a prefill instance, and after a migration. */
static void not_every_request_comes_back(void **state)
{
    (void)state;
    static const struct {
        const char *route;
        bool takes_ids;
        enum role role;
        uint32_t expected;
    } rows[] = { { "scls", true, ROLE_BOTH, SLICE },
                 { "completion", true, ROLE_BOTH, 0 },
                 { "scls", false, ROLE_BOTH, 0 },
                 { "scls", true, ROLE_PREFILL, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dispatch_route_set(dispatch, route_find(str_from(rows[i].route)));
        struct dispatch_endpoint a = endpoint("a");
        a.takes_ids = rows[i].takes_ids;
        a.role = rows[i].role;
        endpoint_put(&a);
        struct dispatch_request r = request();
        assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
        assert_int_equal(r.slice_tokens, rows[i].expected);
        dispatch_tokens(dispatch, &r, 1, 1);
        struct dispatch_endpoint b = endpoint("b");
        dispatch_migrate(dispatch, &r, endpoint_put(&b), 2);
        assert_int_equal(r.slice_tokens, 0);
        dispatch_end(dispatch, &r, 1, false, 3);
        dispatch_endpoint_remove(dispatch, dispatch_endpoint_find(dispatch, "b"));
    }
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, fresh, core_drop)
    const struct CMUnitTest tests[] = {
        CASE(links_are_those_of_the_model_s_endpoints),
        CASE(a_peer_s_run_is_fetched_over_the_link),
        CASE(an_answer_goes_on_where_ids_are_taken),
        CASE(only_those_who_take_ids_are_handed_answers),
        CASE(a_request_comes_back_after_each_slice),
        CASE(a_slice_that_finds_nobody_is_held),
        CASE(not_every_request_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
