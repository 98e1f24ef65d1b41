/* t_dispatch.c - tests requests through arrival, hold, failure and end: each ends once, and leaves
 * nothing behind. */
#include "base/core/bits.h"
#include "tests/unit/router/dispatch_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static int fresh(void **state)
{
    (void)state;
    const struct dispatch_config c = dispatch_config_default();
    return core_open(&c);
}

static uint32_t endpoint(const char *name, bool ready)
{
    struct dispatch_endpoint ep = endpoint_of(name);
    ep.ready = ready;
    return endpoint_put(&ep);
}

static struct dispatch_request request(void)
{
    return request_of(100);
}

static void held_until_an_instance_is_ready(void **state)
{
    (void)state;
    struct dispatch_request r = request();
    struct dispatch_verdict v = dispatch_arrive(dispatch, &r, 0);
    assert_int_equal(v.answer, DISPATCH_WAIT);
    assert_null(dispatch_held_next(dispatch, SECOND, &v));
    assert_int_equal(dispatch_held_deadline_us(dispatch, SECOND), 10 * SECOND);
    endpoint("a", false);
    assert_null(dispatch_held_next(dispatch, SECOND, &v));
    uint32_t slot = endpoint("a", true);
    assert_ptr_equal(dispatch_held_next(dispatch, SECOND, &v), &r);
    assert_int_equal(v.answer, DISPATCH_SEND);
    assert_int_equal(r.slot, slot);
    dispatch_end(dispatch, &r, 5, false, 2 * SECOND);
}

/* One at risk gets requests only where no other takes them. */
static void one_at_risk_is_the_last_that_is_chosen(void **state)
{
    (void)state;
    struct dispatch_endpoint risk = endpoint_of("a"), other = endpoint_of("b");
    struct dispatch_request r[3];
    risk.at_risk = true;
    risk.perf.step_s = 0.001; /* it would be the better one */
    uint32_t a = endpoint_put(&risk), b = endpoint_put(&other);
    for (int i = 0; i < 3; i++) {
        r[i] = request();
        if (i == 2) { /* the other has gone */
            other.ready = false;
            endpoint_put(&other);
        }
        assert_int_equal(dispatch_arrive(dispatch, &r[i], 0).answer, DISPATCH_SEND);
        assert_int_equal(r[i].slot, i < 2 ? b : a);
    }
    for (int i = 0; i < 3; i++)
        dispatch_end(dispatch, &r[i], 5, false, SECOND);
}

static void a_service_that_says_so_refuses_late_requests_in_an_overload(void **state)
{
    (void)state;
    endpoint("a", true);
    struct dispatch_request first = request_of(200000), late = request(), patient = request();
    first.slo_ttft_s = late.slo_ttft_s = patient.slo_ttft_s = 2;
    first.refuse_late = late.refuse_late = true;
    struct dispatch_verdict v = dispatch_arrive(dispatch, &first, 0);
    assert_int_equal(v.answer, DISPATCH_SEND); /* late by its own length, but no request waits */
    v = dispatch_arrive(dispatch, &late, SECOND);
    assert_int_equal(v.answer, DISPATCH_REFUSE);
    assert_int_equal(v.status, 429);
    assert_int_equal(v.why, REFUSAL_LATE);
    assert_true(late.route.late);
    assert_true(v.retry_after_s > 150 && v.retry_after_s < 250); /* the queued work, less the SLO */
    v = dispatch_arrive(dispatch, &patient, SECOND);
    assert_int_equal(v.answer, DISPATCH_SEND);
    dispatch_end(dispatch, &first, 5, false, 2 * SECOND);
    dispatch_end(dispatch, &patient, 5, false, 2 * SECOND);
}

static void holds_are_bounded_in_count_and_time(void **state)
{
    (void)state;
    struct dispatch_request r[5];
    struct dispatch_verdict v;
    for (uint32_t i = 0; i < 5; i++) {
        r[i] = request();
        v = dispatch_arrive(dispatch, &r[i], 0);
    }
    assert_int_equal(v.answer, DISPATCH_REFUSE);
    assert_int_equal(v.status, 503);
    assert_int_equal(v.why, REFUSAL_HELD_FULL);
    assert_true(v.retry_after_s >= 1);
    for (uint32_t i = 1; i < 4; i++)
        r[i].eta_s = 7 * i;                    /* each of its own service */
    dispatch_end(dispatch, &r[0], 0, true, 0); /* the client left */
    for (uint32_t i = 1; i < 4; i++) {
        assert_ptr_equal(dispatch_held_next(dispatch, 10 * SECOND, &v), &r[i]);
        assert_int_equal(v.status, 503);
        assert_int_equal(v.why, REFUSAL_HELD_LONG);
        assert_true(v.retry_after_s == 7 * i);
    }
    assert_null(dispatch_held_next(dispatch, 10 * SECOND, &v));
}

static struct dispatch_request request_by(uint64_t tenant, double weight)
{
    struct dispatch_request r = request();
    r.features.tenant = tenant;
    r.weight = weight;
    return r;
}

/* Lets a request arrive without endpoints, so that it is held. Returns the request it displaced, or
 * NULL. */
static struct dispatch_request *hold(struct dispatch_request *r, enum dispatch_answer answer)
{
    struct dispatch_verdict lost;
    assert_int_equal(dispatch_arrive(dispatch, r, 0).answer, answer);
    struct dispatch_request *out = dispatch_displaced(dispatch, &lost);
    assert_null(dispatch_displaced(dispatch, &lost)); /* only once */
    if (!out) return NULL;
    assert_int_equal(lost.answer, DISPATCH_REFUSE);
    assert_int_equal(lost.status, 503);
    assert_int_equal(lost.why, REFUSAL_DISPLACED);
    assert_true(lost.retry_after_s >= 1);
    assert_int_equal(out->state, DISPATCH_ENDED);
    return out;
}

static void the_last_place_of_who_holds_most_is_given_to_another(void **state)
{
    (void)state;
    struct dispatch_request greedy[6], small[3], heavy = request_by(3, 4), stranger;
    for (uint32_t i = 0; i < 6; i++)
        greedy[i] = request_by(1, 1);
    for (uint32_t i = 0; i < 3; i++)
        small[i] = request_by(2, 0); /* no weight counts as 1 */
    for (uint32_t i = 0; i < 4; i++)
        assert_null(hold(&greedy[i], DISPATCH_WAIT));
    assert_null(hold(&greedy[4], DISPATCH_REFUSE)); /* its own tenant has all places */
    assert_ptr_equal(hold(&small[0], DISPATCH_WAIT), &greedy[3]);
    assert_ptr_equal(hold(&small[1], DISPATCH_WAIT), &greedy[2]);
    assert_null(hold(&small[2], DISPATCH_REFUSE));             /* 3 to 2 would be 2 to 3 */
    assert_null(hold(&greedy[5], DISPATCH_REFUSE));            /* and this as well */
    assert_ptr_equal(hold(&heavy, DISPATCH_WAIT), &greedy[1]); /* the first of two that hold 2 */
    stranger = request_by(4, 0.25);
    assert_null(hold(&stranger, DISPATCH_REFUSE)); /* one place counts as four for it */
    struct dispatch_request *left[] = { &greedy[0], &small[0], &small[1], &heavy };
    for (uint32_t i = 0; i < COUNT_OF(left); i++)
        dispatch_end(dispatch, left[i], 0, true, 0);
}

/* Held requests whose clients have read a part of the output are never displaced, so the newcomer
 * is refused. */
static void a_held_output_that_has_begun_keeps_its_place(void **state)
{
    (void)state;
    uint32_t slot = endpoint("a", true);
    struct dispatch_request begun[4], other = request_by(2, 1);
    for (uint32_t i = 0; i < 4; i++) {
        begun[i] = request_by(1, 1);
        assert_int_equal(dispatch_arrive(dispatch, &begun[i], 0).answer, DISPATCH_SEND);
    }
    dispatch_endpoint_remove(dispatch, slot);
    for (uint32_t i = 0; i < 4; i++) {
        begun[i].generated = 1;
        assert_int_equal(dispatch_fail(dispatch, &begun[i], RETRY_TAKEN, 1).answer, DISPATCH_WAIT);
    }
    assert_null(hold(&other, DISPATCH_REFUSE));
    for (uint32_t i = 0; i < 4; i++)
        dispatch_end(dispatch, &begun[i], 1, true, 2);
}

/* All places in flight are taken by one model's requests when another model's instance starts: a
 * request held for it is sent when one of them ends, and refused in time when none does. */
static void the_held_wait_for_a_place_in_flight(void **state)
{
    (void)state;
    enum { PLACES = 64 };
    static struct dispatch_request busy[PLACES];
    struct dispatch_request r[2] = { request(), request() };
    struct dispatch_verdict v;
    r[0].model = r[1].model = 2;
    endpoint("a", true);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(dispatch_arrive(dispatch, &r[i], 0).answer, DISPATCH_WAIT);
    for (uint32_t i = 0; i < PLACES; i++) {
        busy[i] = request();
        assert_int_equal(dispatch_arrive(dispatch, &busy[i], 0).answer, DISPATCH_SEND);
    }
    struct dispatch_endpoint ep = *dispatch_endpoint_at(dispatch, 0);
    ep.model = 2;
    snprintf(ep.name, sizeof ep.name, "b");
    endpoint_put(&ep);
    assert_null(dispatch_held_next(dispatch, SECOND, &v));
    dispatch_end(dispatch, &busy[0], 1, false, SECOND);
    assert_ptr_equal(dispatch_held_next(dispatch, SECOND, &v), &r[0]);
    assert_int_equal(v.answer, DISPATCH_SEND);
    assert_null(dispatch_held_next(dispatch, SECOND, &v));
    assert_ptr_equal(dispatch_held_next(dispatch, 10 * SECOND, &v), &r[1]);
    assert_int_equal(v.status, 503);
    dispatch_end(dispatch, &r[0], 1, false, SECOND);
    for (uint32_t i = 1; i < PLACES; i++)
        dispatch_end(dispatch, &busy[i], 1, false, SECOND);
}

/* When there are more models than places, the one that was sent work longest ago is not measured
 * any more. */
static void the_work_of_the_latest_models_is_measured(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= LOAD_MODELS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%u", i);
        struct dispatch_endpoint ep = endpoint_of(name);
        struct dispatch_request r = request();
        r.model = ep.model = 100 + i;
        endpoint_put(&ep);
        assert_int_equal(dispatch_arrive(dispatch, &r, i * 1000).answer, DISPATCH_SEND);
        dispatch_end(dispatch, &r, 1, false, i * 1000);
    }
    const int64_t now_us = LOAD_MODELS_MAX * 1000;
    assert_true(dispatch_work_rate(dispatch, 100, now_us) < 0);
    for (uint32_t i = 1; i <= LOAD_MODELS_MAX; i++)
        assert_true(dispatch_work_rate(dispatch, 100 + i, now_us) > 0);
}

static void a_failure_goes_elsewhere_and_a_second_crash_is_422(void **state)
{
    (void)state;
    endpoint("a", true);
    endpoint("b", true);
    endpoint("c", true);
    struct dispatch_request r = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    uint32_t first = r.slot;
    assert_int_equal(dispatch_fail(dispatch, &r, RETRY_DIED, 1).answer, DISPATCH_SEND);
    assert_int_not_equal(r.slot, first);
    struct dispatch_verdict v = dispatch_fail(dispatch, &r, RETRY_DIED, 2);
    assert_int_equal(v.answer, DISPATCH_REFUSE);
    assert_int_equal(v.status, 422);
    assert_int_equal(v.why, REFUSAL_QUARANTINED);
}

static void an_unreachable_fleet_holds_and_comes_back(void **state)
{
    (void)state;
    uint32_t slot = endpoint("a", true);
    struct dispatch_request r = request();
    struct dispatch_verdict v = dispatch_arrive(dispatch, &r, 0);
    v = dispatch_fail(dispatch, &r, RETRY_UNREACHABLE, SECOND);
    assert_int_equal(v.answer, DISPATCH_WAIT);
    assert_int_equal(dispatch_held_deadline_us(dispatch, SECOND),
                     2 * SECOND); /* the end of its rest */
    assert_null(dispatch_held_next(dispatch, 2 * SECOND - 1, &v));
    assert_ptr_equal(dispatch_held_next(dispatch, 2 * SECOND, &v), &r);
    assert_int_equal(r.slot, slot);
    dispatch_end(dispatch, &r, 1, false, 2 * SECOND);
}

/* A local failure is the router's own shortage: the engine takes the next request at once. */
static void a_shortage_of_ours_rests_no_endpoint_and_waits_for_nothing(void **state)
{
    (void)state;
    endpoint("a", true);
    endpoint("b", true);
    struct dispatch_request r = request(), next = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    uint32_t first = r.slot;
    assert_int_equal(dispatch_fail(dispatch, &r, RETRY_LOCAL, 1).answer, DISPATCH_SEND);
    assert_int_not_equal(r.slot, first);
    struct dispatch_verdict v = dispatch_fail(dispatch, &r, RETRY_LOCAL, 2);
    assert_int_equal(v.answer, DISPATCH_REFUSE);
    assert_int_equal(v.status, 503);
    assert_int_equal(v.why, REFUSAL_FAILED);
    assert_true(v.retry_after_s > 0);
    assert_int_equal(dispatch_arrive(dispatch, &next, 3).answer, DISPATCH_SEND);
    first = next.slot;
    assert_int_equal(dispatch_fail(dispatch, &next, RETRY_OVERLOADED, 3).answer, DISPATCH_SEND);
    assert_int_not_equal(next.slot, first); /* neither endpoint rests */
    dispatch_end(dispatch, &next, 1, false, 3);

    /* A request whose output has begun is held instead of refused. */
    struct dispatch_request begun = request();
    assert_int_equal(dispatch_arrive(dispatch, &begun, 4).answer, DISPATCH_SEND);
    begun.generated = 5;
    assert_int_equal(dispatch_fail(dispatch, &begun, RETRY_LOCAL, 5).answer, DISPATCH_WAIT);
    dispatch_end(dispatch, &begun, 5, true, 6);
}

static void other_models_are_not_taken(void **state)
{
    (void)state;
    endpoint("a", true);
    struct dispatch_request other = request(), mine = request();
    other.model = 9;
    assert_int_equal(dispatch_arrive(dispatch, &other, 0).answer, DISPATCH_WAIT);
    assert_int_equal(dispatch_arrive(dispatch, &mine, 0).answer, DISPATCH_SEND);
    dispatch_end(dispatch, &other, 0, true, 0);
    dispatch_end(dispatch, &mine, 1, false, 0);
}

static void only_endpoints_with_its_adapter_take_a_request(void **state)
{
    (void)state;
    struct dispatch_endpoint ep = endpoint_of("b");
    endpoint("a", true);
    ep.adapter[0] = adapter_id(STR("other"));
    ep.adapter[1] = adapter_id(STR("sql"));
    ep.adapter_count = 2;
    const uint32_t has = endpoint_put(&ep);
    for (int i = 0; i < 4; i++) {
        struct dispatch_request r = request();
        r.adapter = adapter_id(STR("sql"));
        assert_int_equal(dispatch_arrive(dispatch, &r, i).answer, DISPATCH_SEND);
        assert_int_equal(r.slot, has);
        dispatch_end(dispatch, &r, 1, false, i);
    }
    struct dispatch_request held = request();
    struct dispatch_verdict v;
    held.adapter = adapter_id(STR("tone"));
    assert_int_equal(dispatch_arrive(dispatch, &held, 5).answer, DISPATCH_WAIT);
    ep.adapter[0] = held.adapter; /* it is loaded there */
    endpoint_put(&ep);
    assert_ptr_equal(dispatch_held_next(dispatch, 6, &v), &held);
    assert_int_equal(held.slot, has);
    dispatch_end(dispatch, &held, 1, false, 7);
}

static void siblings_follow_a_prefix_that_is_still_being_computed(void **state)
{
    (void)state;
    dispatch_route_set(dispatch, route_find(STR("shortest_ttft")));
    endpoint("a", true);
    endpoint("b", true);
    struct block_key keys[6];
    for (uint64_t i = 0; i < 6; i++)
        keys[i] = (struct block_key){ i * 77 + 1, i };
    struct dispatch_request r[2] = { request(), request() };
    for (uint32_t i = 0; i < 2; i++) {
        r[i].keys = keys;
        r[i].key_count = 6;
    }
    assert_int_equal(dispatch_arrive(dispatch, &r[0], 0).answer, DISPATCH_SEND);
    dispatch_tokens(dispatch, &r[0], 1, SECOND);
    assert_int_equal(dispatch_arrive(dispatch, &r[1], SECOND).answer, DISPATCH_SEND);
    assert_int_equal(r[1].slot, r[0].slot);
    assert_int_equal(r[1].hit_tokens, 96);
    /* A new boot of the engine has none of those blocks. */
    struct dispatch_endpoint ep = *dispatch_endpoint_at(dispatch, r[0].slot);
    ep.boot = 2;
    uint32_t slot, blocks[DISPATCH_ENDPOINTS];
    dispatch_endpoint_put(dispatch, &ep, &slot);
    prefix_index_match(dispatch_index(dispatch), keys, 6, SECOND, blocks);
    assert_int_equal(blocks[slot], 0);
    dispatch_end(dispatch, &r[0], 1, false, SECOND);
    dispatch_end(dispatch, &r[1], 1, false, SECOND);
}

/* An endpoint that returns under its name gets back its slot, its requests in flight and its
 * rest. */
static void an_endpoint_that_returns_has_its_slot_again(void **state)
{
    (void)state;
    endpoint("a", true);
    struct dispatch_request r[2] = { request(), request() };
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(dispatch_arrive(dispatch, &r[i], 0).answer, DISPATCH_SEND);
    struct dispatch_verdict v = dispatch_fail(dispatch, &r[1], RETRY_DIED, 0); /* and it rests */
    assert_int_equal(v.answer, DISPATCH_WAIT);
    struct dispatch_endpoint ep = *dispatch_endpoint_at(dispatch, 0);
    for (uint32_t i = 0; i < 3; i++) {
        dispatch_endpoint_remove(dispatch, 0);
        assert_null(dispatch_endpoint_at(dispatch, 0));
        assert_int_equal(endpoint("b", true), 1); /* the slot with a request in flight stays */
        dispatch_endpoint_remove(dispatch, 1);
        assert_int_equal(endpoint_put(&ep), 0);
        assert_int_equal(dispatch_in_flight(dispatch, 0), 1);
    }
    struct dispatch_request after = request();
    assert_int_equal(dispatch_arrive(dispatch, &after, 0).answer, DISPATCH_WAIT);
    dispatch_end(dispatch, &after, 0, true, 0);
    dispatch_end(dispatch, &r[0], 1, false, 0);
    dispatch_end(dispatch, &r[1], 0, true, 0);
    /* An empty slot may go to any endpoint. */
    dispatch_endpoint_remove(dispatch, 0);
    assert_int_equal(endpoint("b", true), 1);
    assert_int_equal(endpoint("c", true), 0);
}

static void as_many_endpoints_as_asked_for(void **state)
{
    (void)state;
    static const uint32_t asked[] = { 3, 0, ROUTE_INSTANCES_MAX };
    for (size_t k = 0; k < COUNT_OF(asked); k++) {
        struct dispatch_config c = { .route = route_find(STR("round_robin")),
                                     .predict = predict_find(STR(PREDICT_DEFAULT)),
                                     .index_bytes = 1 << 20,
                                     .endpoints_max = asked[k],
                                     .requests_max = 8,
                                     .held_max = 8 };
        struct dispatch *many;
        uint32_t slot, count = asked[k] ? asked[k] : DISPATCH_ENDPOINTS;
        assert_int_equal(dispatch_new(&c, &many, NULL), 0);
        struct dispatch_endpoint ep = {
            .ready = true, .boot = 1, .token_budget = 256, .seqs_max = 8
        };
        for (uint32_t i = 0; i <= count; i++) {
            snprintf(ep.name, sizeof ep.name, "e%u", i);
            assert_int_equal(dispatch_endpoint_put(many, &ep, &slot), i < count ? 0 : -ENOSPC);
            if (i < count) assert_int_equal(slot, i);
        }
        snprintf(ep.name, sizeof ep.name, "e%u", count - 1);
        assert_int_equal(dispatch_endpoint_find(many, ep.name), count - 1);
        uint64_t sum = 0; /* round_robin meets each endpoint once */
        for (uint32_t i = 0; i < count; i++) {
            struct dispatch_request r = { .prompt_tokens = 10 };
            assert_int_equal(dispatch_arrive(many, &r, 0).answer, DISPATCH_SEND);
            sum += r.slot;
            dispatch_end(many, &r, 1, false, 0);
        }
        assert_int_equal(sum, (uint64_t)count * (count - 1) / 2);
        dispatch_free(many);
    }
}

/* A route policy that holds at first, refuses next, then sends, and counts the events it is
 * told. */
struct odd {
    uint32_t asked, told[ROUTE_EVENT_COUNT];
};
static struct odd odd;

static void odd_decide(void *policy, const struct route_view *view, const struct route_req *req,
                       int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)policy, (void)rng;
    route_answer(view, req, ROUTE_NONE, ROUTE_NONE, ret);
    odd.asked++;
    if (odd.asked == 1) ret->hold_until_us = now_us + SECOND;
    if (odd.asked == 2) {
        ret->reject = true;
        ret->retry_after_s = 7;
    }
    if (odd.asked > 2) ret->instance_id = view->instance[0].id;
    ret->scratch[3] = 5;
}

static void odd_observe(void *policy, const struct route_event *ev)
{
    (void)policy;
    assert_true(ev->scratch[3] > 4);
    odd.told[ev->kind]++;
    if (ev->kind == ROUTE_FIRST_TOKEN) assert_true(ev->ttft_s > 0.99 && ev->ttft_s < 1.01);
    if (ev->kind == ROUTE_FINISHED) assert_true(ev->tpot_s > 0.49 && ev->tpot_s < 0.51);
}

static void rows_may_hold_until_a_time_refuse_and_are_told_outcomes(void **state)
{
    (void)state;
    static const struct route_policy row = { .name = "odd",
                                             .decide = odd_decide,
                                             .observe = odd_observe };
    odd = (struct odd){ 0 };
    dispatch_route_set(dispatch, &row);
    endpoint("a", true);
    struct dispatch_request r = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_WAIT);
    assert_int_equal(dispatch_held_deadline_us(dispatch, 0), SECOND);
    struct dispatch_verdict v;
    assert_ptr_equal(dispatch_held_next(dispatch, SECOND, &v), &r);
    assert_int_equal(v.answer, DISPATCH_REFUSE);
    assert_int_equal(v.status, 429);
    assert_int_equal(v.why, REFUSAL_POLICY);
    assert_true(v.retry_after_s > 6.9);

    r = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, SECOND).answer, DISPATCH_SEND);
    dispatch_tokens(dispatch, &r, 1, 2 * SECOND);
    dispatch_tokens(dispatch, &r, 2, 3 * SECOND);
    dispatch_end(dispatch, &r, 3, false, 3 * SECOND);
    r = request();
    dispatch_arrive(dispatch, &r, 4 * SECOND);
    dispatch_end(dispatch, &r, 0, true, 4 * SECOND); /* the client left */
    assert_int_equal(odd.told[ROUTE_SENT], 2);
    assert_int_equal(odd.told[ROUTE_FIRST_TOKEN], 1);
    assert_int_equal(odd.told[ROUTE_FINISHED], 1);
    assert_int_equal(odd.told[ROUTE_FAILED], 1);
}

static struct route_event finished;

static void note_finished(void *policy, const struct route_event *ev)
{
    (void)policy;
    if (ev->kind == ROUTE_FINISHED) finished = *ev;
}

/* The output takes half a second a token at the first instance and a tenth at the one it moves
 * to. */
static void a_move_begins_a_new_measure_and_keeps_the_past(void **state)
{
    (void)state;
    struct route_policy row = *route_find(STR("round_robin"));
    row.observe = note_finished;
    dispatch_route_set(dispatch, &row);
    uint32_t slot[2] = { endpoint("a", true), endpoint("b", true) };
    struct dispatch_request r = request();
    assert_int_equal(dispatch_arrive(dispatch, &r, SECOND).answer, DISPATCH_SEND);
    r.route.scratch[0] = 1;
    dispatch_tokens(dispatch, &r, 1, 3 * SECOND);
    dispatch_tokens(dispatch, &r, 4, 5 * SECOND);
    dispatch_migrate(dispatch, &r, slot[1 - r.slot], 5 * SECOND);
    dispatch_tokens(dispatch, &r, 10, 6 * SECOND);
    dispatch_end(dispatch, &r, 15, false, 6 * SECOND);
    assert_int_equal(finished.instance_id, r.slot);
    assert_int_equal(finished.generated, 15);
    assert_int_equal(finished.hit_tokens, 0);
    assert_true(finished.scratch[0] == 0);
    assert_true(finished.ttft_s > 1.99 && finished.ttft_s < 2.01);
    assert_true(finished.tpot_s > 0.099 && finished.tpot_s < 0.101);
}

/* Two routers of one fleet that know nothing of each other each fill their own half first, and the
 * halves are disjoint. */
static void two_routers_begin_at_different_instances(void **state)
{
    (void)state;
    uint32_t first[2] = { 0 };
    for (uint32_t who = 0; who < 2; who++) {
        const struct dispatch_config c = dispatch_config_default();
        struct dispatch *one = NULL;
        assert_int_equal(dispatch_new(&c, &one, NULL), 0);
        dispatch_free(dispatch);
        dispatch = one;
        dispatch_peers_set(dispatch, who, 2);
        for (uint32_t i = 0; i < 4; i++)
            endpoint(&"a\0b\0c\0d"[2 * i], true);
        struct dispatch_request r[2] = { request(), request() };
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(dispatch_arrive(dispatch, &r[i], 0).answer, DISPATCH_SEND);
            first[who] |= 1u << r[i].slot;
        }
        for (uint32_t i = 0; i < 2; i++)
            dispatch_end(dispatch, &r[i], 1, false, 0);
    }
    assert_int_equal(first[0] | first[1], 15);
}

static void what_others_sent_is_avoided(void **state)
{
    (void)state;
    uint32_t a = endpoint("a", true), b = endpoint("b", true);
    struct reported_load load = { .waiting = 3, .prefill_tokens = 3000 };
    dispatch_endpoint_report(dispatch, a, &load, 0, 0);
    struct dispatch_request r[3] = { request(), request(), request() };
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(dispatch_arrive(dispatch, &r[i], 1000).answer, DISPATCH_SEND);
        assert_int_equal(r[i].slot, b);
        dispatch_end(dispatch, &r[i], 1, false, 1000);
    }
    assert_true(dispatch_work_rate(dispatch, 1, 1000) > 0);
    assert_true(dispatch_work_rate(dispatch, 2, 1000) < 0); /* a model without requests */
}

enum { RANDOM_REQUESTS = 40 };

/* Takes one random step of clients and engines; the dispatch's must()s check it, and at the end all
 * must be empty. */
static bool random_step(struct rng *rng, struct dispatch_request *r, int64_t now_us,
                        uint32_t *ended)
{
    static const char *const names[] = { "a", "b", "c" };
    struct dispatch_request *one = &r[rng_below(rng, RANDOM_REQUESTS)];
    struct dispatch_verdict v;
    uint64_t what = rng_below(rng, 10);
    if (one->state == DISPATCH_NEW) {
        *ended += dispatch_arrive(dispatch, one, now_us).answer == DISPATCH_REFUSE;
    } else if (one->state == DISPATCH_SENT && what < 3) {
        dispatch_tokens(dispatch, one, 1, now_us);
    } else if (one->state == DISPATCH_SENT && what < 6) {
        enum retry_failure f = (enum retry_failure)rng_below(rng, RETRY_FAILURE_COUNT);
        *ended += dispatch_fail(dispatch, one, f, now_us).answer == DISPATCH_REFUSE;
    } else if (one->state == DISPATCH_SENT || (one->state == DISPATCH_HELD && what < 2)) {
        dispatch_end(dispatch, one, (uint32_t)what, what & 1, now_us);
        (*ended)++;
    } else if (one->state == DISPATCH_ENDED) {
        *one = request_by(rng_below(rng, 3), (double)rng_below(rng, 3));
    }
    bool displaced = dispatch_displaced(dispatch, &v) != NULL;
    *ended += displaced;
    if (what == 9) endpoint(names[rng_below(rng, 3)], rng_below(rng, 3) > 0);
    if (what == 8) {
        uint32_t slot = dispatch_endpoint_find(dispatch, names[rng_below(rng, 3)]);
        if (slot != ROUTE_NONE) dispatch_endpoint_remove(dispatch, slot);
    }
    while (dispatch_held_next(dispatch, now_us, &v))
        *ended += v.answer == DISPATCH_REFUSE;
    return displaced;
}

static void random_worlds_end_every_request_once(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 2026);
    struct dispatch_request r[RANDOM_REQUESTS];
    for (uint32_t i = 0; i < RANDOM_REQUESTS; i++)
        r[i] = request();
    uint32_t ended = 0, displaced = 0;
    int64_t now_us = 0;
    for (uint32_t step = 0; step < 100000; step++) {
        now_us += (int64_t)rng_below(&rng, SECOND / 4);
        displaced += random_step(&rng, r, now_us, &ended);
    }
    assert_true(displaced > 100); /* displacement must occur */
    for (uint32_t i = 0; i < RANDOM_REQUESTS; i++) {
        if (r[i].state == DISPATCH_SENT || r[i].state == DISPATCH_HELD) {
            dispatch_end(dispatch, &r[i], 0, true, now_us);
            ended++;
        }
    }
    struct dispatch_demand d;
    dispatch_demand(dispatch, now_us, &d);
    assert_int_equal(d.arrivals, ended);
}

/* Half of the outputs end at 8 tokens, half at 400: one that reached 32 tokens is a long one. */
static void what_an_answer_has_come_to_refines_what_is_left(void **state)
{
    (void)state;
    struct dispatch_request r;
    uint32_t slot = endpoint("a", true);
    for (uint32_t i = 0; i < 40; i++) {
        r = request();
        r.features.output_max = 1000;
        dispatch_arrive(dispatch, &r, 0);
        dispatch_end(dispatch, &r, i % 2 ? 400 : 8, false, 0);
    }
    r = request();
    r.features.output_max = 1000;
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    dispatch_tokens(dispatch, &r, 1, 0);
    double before_s = dispatch_queued_s(dispatch, slot, 0);
    dispatch_tokens(dispatch, &r, DISPATCH_REFINE_TOKENS - 2, 0);
    double still_s = dispatch_queued_s(dispatch, slot, 0);
    dispatch_tokens(dispatch, &r, 1, 0);
    double after_s = dispatch_queued_s(dispatch, slot, 0);
    assert_true(still_s < before_s); /* generated tokens are no longer left */
    assert_true(after_s > 1.3 * before_s);
    dispatch_end(dispatch, &r, DISPATCH_REFINE_TOKENS, false, 0);
    assert_true(dispatch_queued_s(dispatch, slot, 0) < 1e-9);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, fresh, core_drop)
    const struct CMUnitTest tests[] = {
        CASE(held_until_an_instance_is_ready),
        CASE(one_at_risk_is_the_last_that_is_chosen),
        CASE(a_service_that_says_so_refuses_late_requests_in_an_overload),
        CASE(holds_are_bounded_in_count_and_time),
        CASE(the_last_place_of_who_holds_most_is_given_to_another),
        CASE(a_held_output_that_has_begun_keeps_its_place),
        CASE(a_failure_goes_elsewhere_and_a_second_crash_is_422),
        CASE(an_unreachable_fleet_holds_and_comes_back),
        CASE(a_shortage_of_ours_rests_no_endpoint_and_waits_for_nothing),
        CASE(other_models_are_not_taken),
        CASE(only_endpoints_with_its_adapter_take_a_request),
        CASE(siblings_follow_a_prefix_that_is_still_being_computed),
        CASE(rows_may_hold_until_a_time_refuse_and_are_told_outcomes),
        CASE(the_held_wait_for_a_place_in_flight),
        CASE(the_work_of_the_latest_models_is_measured),
        CASE(a_move_begins_a_new_measure_and_keeps_the_past),
        CASE(an_endpoint_that_returns_has_its_slot_again),
        cmocka_unit_test(as_many_endpoints_as_asked_for),
        CASE(two_routers_begin_at_different_instances),
        CASE(what_others_sent_is_avoided),
        CASE(what_an_answer_has_come_to_refines_what_is_left),
        CASE(random_worlds_end_every_request_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
