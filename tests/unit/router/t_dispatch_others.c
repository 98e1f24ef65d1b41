/* t_dispatch_others.c - tests what the dispatch learns of engines of other kinds: how long a prefix may be
 * believed, and step times. */
#include "base/core/bits.h"
#include "base/core/block_key.h"
#include "tests/unit/router/dispatch_rig.h"
#include "tests/unit/unit.h"

#define KEYS 8 /* of the prompt: 128 tokens */
#define PROMPT (KEYS * BLOCK_TOKENS + 5)

static struct block_key keys[KEYS];

static int fresh(void **state)
{
    (void)state;
    const struct dispatch_config c = dispatch_config_default();
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = (struct block_key){ i + 1, 77 };
    return core_open(&c);
}

static uint32_t other(const char *name)
{
    struct dispatch_endpoint ep = endpoint_of(name);
    ep.cache_guessed = ep.perf_learned = true;
    ep.has_perf = false;
    ep.perf = (struct perf_coef){ 0 };
    return endpoint_put(&ep);
}

/* Sends a request with the prompt at `at_us` and ends it a second later, when its reply names `cached` cached
 * tokens; below 0: it names none. Returns the tokens that were believed to be cached. */
static uint32_t ask(int64_t at_us, int64_t cached)
{
    struct dispatch_request r = request_of(PROMPT);
    r.keys = keys;
    r.key_count = KEYS;
    assert_int_equal(dispatch_arrive(dispatch, &r, at_us).answer, DISPATCH_SEND);
    r.cached_known = cached >= 0;
    r.cached_tokens = cached >= 0 ? (uint32_t)cached : 0;
    uint32_t believed = r.hit_tokens;
    dispatch_end(dispatch, &r, 5, false, at_us + SECOND);
    return believed;
}

static void a_prefix_is_believed_for_two_minutes_at_first(void **state)
{
    (void)state;
    other("a");
    assert_int_equal(ask(0, -1), 0);
    assert_int_equal(ask(100 * SECOND, -1), KEYS * BLOCK_TOKENS);
    assert_int_equal(ask(230 * SECOND, -1), 0);
}

/* An engine that keeps blocks of 48 tokens uses 96 of the 128 that are known to be there. */
static void of_a_prefix_whole_blocks_of_the_engine_count(void **state)
{
    (void)state;
    struct dispatch_endpoint ep = endpoint_of("a");
    ep.cache_guessed = true;
    ep.hit_tokens = 48;
    endpoint_put(&ep);
    ask(0, -1);
    assert_int_equal(ask(SECOND * 5, -1), 96);
}

/* Our own engines' events come in milliseconds: an unconfirmed block is not believed for long. */
static void one_whose_events_confirm_is_believed_for_less(void **state)
{
    (void)state;
    struct dispatch_endpoint ep = endpoint_of("a");
    endpoint_put(&ep);
    ask(0, -1);
    assert_int_equal(ask(40 * SECOND, -1), 0);
}

/* Finds the longest pause after which the prefix is believed, in seconds, by asking at growing pauses. It
 * answers truly to nobody: replies say nothing. */
static int64_t belief_s(int64_t *now_us)
{
    ask(*now_us, -1);
    for (int64_t pause = 1; pause < 10000; pause = pause + pause / 8 + 1) {
        *now_us += pause * SECOND;
        if (ask(*now_us, -1) == 0) return pause;
    }
    return 10000;
}

static void true_hits_prolong_the_belief_and_false_ones_shorten_it(void **state)
{
    (void)state;
    int64_t now_us = 0;
    other("a");
    int64_t before = belief_s(&now_us);
    for (int i = 0; i < 6; i++, now_us += 2 * SECOND)
        ask(now_us, KEYS * BLOCK_TOKENS);
    int64_t longer = belief_s(&now_us);
    if (longer < 2 * before) fail_msg("%ld after %ld", (long)longer, (long)before);
    for (int i = 0; i < 6; i++, now_us += 2 * SECOND)
        ask(now_us, 0);
    int64_t shorter = belief_s(&now_us);
    if (shorter > before) fail_msg("%ld after %ld", (long)shorter, (long)before);
    for (int i = 0; i < 40; i++, now_us += 2 * SECOND)
        ask(now_us, 0);
    shorter = belief_s(&now_us); /* even one that is always wrong is asked again soon */
    if (shorter < 4 || shorter > 10) fail_msg("%ld", (long)shorter);
}

static void another_engine_in_its_place_is_believed_nothing(void **state)
{
    (void)state;
    struct dispatch_endpoint ep = endpoint_of("a");
    ep.cache_guessed = true;
    endpoint_put(&ep);
    ask(0, -1);
    ep.boot = 2;
    endpoint_put(&ep);
    assert_int_equal(ask(10 * SECOND, -1), 0);
}

/* Plays a request alone at the endpoint: `first_ms` to the first token, `gap_ms` between the others. */
static void stream(int64_t at_us, uint32_t prompt, int64_t first_ms, int64_t gap_ms)
{
    struct dispatch_request r = request_of(prompt);
    assert_int_equal(dispatch_arrive(dispatch, &r, at_us).answer, DISPATCH_SEND);
    at_us += first_ms * 1000;
    for (int i = 0; i < 40; i++, at_us += gap_ms * 1000) {
        dispatch_tokens(dispatch, &r, 1, at_us);
        r.generated++;
    }
    dispatch_end(dispatch, &r, 40, false, at_us);
}

static void step_times_are_learned_from_streams(void **state)
{
    (void)state;
    struct perf_coef c;
    uint32_t slot = other("a");
    assert_false(dispatch_learned_perf(dispatch, slot, &c));
    for (int i = 0; i < 50; i++) /* 10 ms a step and 0.1 ms a token of the prompt */
        stream(i * 10 * SECOND, 100 + 40 * (uint32_t)i, 20 + 4 * i, 10);
    assert_true(dispatch_learned_perf(dispatch, slot, &c));
    double prefill_s = perf_prefill_s(&c, 1000);
    if (prefill_s < 0.08 || prefill_s > 0.14) fail_msg("%g", prefill_s);
    struct dispatch_endpoint ep = endpoint_of("b");
    uint32_t ours = endpoint_put(&ep);
    assert_false(dispatch_learned_perf(dispatch, ours, &c)); /* it reports its own */
}

static void what_other_routers_learned_is_used_until_then(void **state)
{
    (void)state;
    struct dispatch_endpoint ep = endpoint_of("a");
    ep.perf_learned = true; /* has_perf: the controller has them from another router */
    uint32_t slot = endpoint_put(&ep);
    struct dispatch_request r = request_of(1000);
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    double queued = dispatch_queued_s(dispatch, slot, 0);
    if (queued < 0.9 || queued > 3) fail_msg("%g", queued); /* a millisecond a token */
    dispatch_end(dispatch, &r, 5, false, SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_prefix_is_believed_for_two_minutes_at_first, fresh,
                                        core_drop),
        cmocka_unit_test_setup_teardown(of_a_prefix_whole_blocks_of_the_engine_count, fresh,
                                        core_drop),
        cmocka_unit_test_setup_teardown(one_whose_events_confirm_is_believed_for_less, fresh,
                                        core_drop),
        cmocka_unit_test_setup_teardown(true_hits_prolong_the_belief_and_false_ones_shorten_it,
                                        fresh, core_drop),
        cmocka_unit_test_setup_teardown(another_engine_in_its_place_is_believed_nothing, fresh,
                                        core_drop),
        cmocka_unit_test_setup_teardown(step_times_are_learned_from_streams, fresh, core_drop),
        cmocka_unit_test_setup_teardown(what_other_routers_learned_is_used_until_then, fresh,
                                        core_drop),
    };
    return cmocka_run_group_tests_name("dispatch_others", tests, NULL, NULL);
}
