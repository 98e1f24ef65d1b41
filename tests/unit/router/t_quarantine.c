/* t_quarantine.c - tests quarantine of prompts that kill engines: the table, and the dispatch that
 * runs suspects apart so that a second death tells the guilty one. */
#include "base/core/bits.h"
#include "tests/unit/router/dispatch_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define HOUR ((int64_t)3600 * SECOND)
#define POISON 77

/* ---- the table ---- */

static struct quarantine *table;

static int fresh_table(void **state)
{
    (void)state;
    return quarantine_new(HOUR, &table, NULL);
}

static int drop_table(void **state)
{
    (void)state;
    quarantine_free(table);
    return 0;
}

static void blame(uint64_t fingerprint, uint64_t instance, uint64_t boot, int64_t at_us)
{
    quarantine_blame(table, fingerprint, instance, boot, 0, at_us);
}

static int64_t left(int64_t now_us)
{
    return quarantine_left_us(table, POISON, now_us);
}

static void two_engines_are_refused_one_is_not(void **state)
{
    (void)state;
    blame(POISON, 1, 10, SECOND);
    blame(POISON, 1, 10, 2 * SECOND); /* another copy of the prompt, at the same engine */
    assert_int_equal(left(3 * SECOND), 0);
    assert_int_equal(quarantine_suspects(table, POISON, 3 * SECOND), 1);
    blame(POISON, 2, 20, 4 * SECOND);
    assert_true(left(5 * SECOND) > 0);
    assert_int_equal(quarantine_left_us(table, POISON + 1, 5 * SECOND), 0);
    assert_int_equal(quarantine_left_us(table, 0, 5 * SECOND), 0);
}

static void the_same_engine_started_again_is_a_second_one(void **state)
{
    (void)state;
    blame(POISON, 1, 10, SECOND);
    quarantine_boot(table, 1, 11);
    blame(POISON, 1, 11, 9 * SECOND);
    assert_true(left(10 * SECOND) > 0);
}

static void a_death_is_proven_by_another_boot(void **state)
{
    (void)state;
    struct quarantine_item item;
    blame(POISON, 1, 10, 0);
    blame(POISON, 2, 20, 0);
    assert_int_equal(left(SECOND), QUARANTINE_PROOF_US - SECOND);
    quarantine_boot(table, 1, 10); /* the same boot proves nothing */
    quarantine_boot(table, 1, 11);
    quarantine_boot(table, 3, 30);
    assert_int_equal(left(SECOND), QUARANTINE_PROOF_US - SECOND);
    quarantine_boot(table, 2, 21);
    assert_int_equal(left(SECOND), HOUR - SECOND);
    assert_int_equal(quarantine_list(table, SECOND, &item, 1), 1);
    assert_true(item.refused && item.proven == 2 && item.fingerprint == POISON);
    assert_int_equal(left(HOUR), 0); /* and expires */
    assert_int_equal(quarantine_list(table, HOUR, &item, 1), 0);
}

static void what_is_never_proven_is_void(void **state)
{
    (void)state;
    blame(POISON, 1, 10, 0);
    blame(POISON, 2, 20, 0);
    assert_int_equal(left(QUARANTINE_PROOF_US), 0);
    assert_int_equal(quarantine_suspects(table, POISON, QUARANTINE_PROOF_US), 0);
    blame(POISON, 3, 30, QUARANTINE_PROOF_US + SECOND); /* counts from zero again */
    assert_int_equal(left(QUARANTINE_PROOF_US + SECOND), 0);
}

/* After a cut network the same engine, alive, answers other requests. */
static void a_cut_network_is_no_death(void **state)
{
    (void)state;
    blame(POISON, 1, 10, SECOND);
    blame(POISON, 2, 20, 5 * SECOND);
    quarantine_alive(table, 2, 20, 5 * SECOND); /* sent before the cut: its tokens lay unread */
    quarantine_alive(table, 2, 19, 9 * SECOND);
    assert_true(left(9 * SECOND) > 0);
    quarantine_alive(table, 2, 20, 6 * SECOND);
    assert_int_equal(left(9 * SECOND), 0);
    assert_true(quarantine_suspects(table, POISON, 9 * SECOND) > 0);
    quarantine_alive(table, 1, 10, 6 * SECOND);
    assert_int_equal(quarantine_suspects(table, POISON, 9 * SECOND), 0);
    blame(POISON, 1, 10, 10 * SECOND);
    quarantine_boot(table, 1, 11);
    quarantine_alive(table, 1, 10, 12 * SECOND); /* a proven death stays */
    assert_true(quarantine_suspects(table, POISON, 13 * SECOND) > 0);
}

static void going_on_past_the_death_acquits(void **state)
{
    (void)state;
    quarantine_blame(table, POISON, 1, 10, 40, SECOND);
    assert_int_equal(quarantine_suspects(table, POISON, 2 * SECOND), 41);
    quarantine_passed(table, POISON);
    assert_int_equal(quarantine_suspects(table, POISON, 2 * SECOND), 0);
    struct quarantine_counts n;
    quarantine_counts_get(table, 2 * SECOND, &n);
    assert_true(n.acquitted == 1 && n.suspects == 0);
}

static void clearing_lets_in_again(void **state)
{
    (void)state;
    for (uint64_t f = 1; f <= 3; f++) {
        blame(f, 1, 10, 0);
        blame(f, 2, 20, 0);
    }
    uint64_t before = quarantine_changes(table);
    assert_true(quarantine_refuses(table, 2, SECOND) > 0);
    assert_int_equal(quarantine_clear(table, 2), 1);
    assert_true(quarantine_changes(table) > before);
    assert_int_equal(quarantine_refuses(table, 2, SECOND), 0);
    assert_int_equal(quarantine_clear(table, 2), 0);
    assert_int_equal(quarantine_clear(table, 0), 2);
    struct quarantine_counts n;
    quarantine_counts_get(table, SECOND, &n);
    assert_true(n.refusals == 1 && n.caught == 3 && n.refused_now == 0);
}

/* A router takes over what others refuse, and keeps its own findings when others are silent about
 * them. */
static void what_others_refuse_is_refused_here_too(void **state)
{
    (void)state;
    const struct quarantine_item list[] = { { .fingerprint = POISON, .left_us = 9 * SECOND },
                                            { .fingerprint = 5, .left_us = HOUR } };
    struct quarantine_item item[4];
    struct quarantine_counts n;
    blame(5, 1, 10, 0);
    blame(5, 2, 20, 0); /* unproven: refused for less than the hour that the other has proven */
    quarantine_told(table, list, 2, SECOND);
    assert_int_equal(left(SECOND), 9 * SECOND);
    assert_int_equal(quarantine_left_us(table, 5, SECOND), HOUR);
    assert_true(quarantine_refuses(table, POISON, SECOND) > 0);
    quarantine_told(table, list, 2, 2 * SECOND); /* repeated a second later */
    assert_int_equal(quarantine_list(table, 2 * SECOND, item, 4), 2);
    assert_true(item[0].fingerprint == 5 && !item[0].told && item[0].blames == 2);
    assert_true(item[1].told && item[1].refused && item[1].refusals == 1 && item[1].blames == 0);
    quarantine_counts_get(table, 2 * SECOND, &n);
    assert_true(n.refused_now == 2 && n.caught == 1 && n.suspects == 0);
    assert_int_equal(left(11 * SECOND), 0);
    quarantine_told(table, NULL, 0, 3 * SECOND);
    assert_int_equal(left(3 * SECOND), 0);
    assert_true(quarantine_left_us(table, 5, 3 * SECOND) > 0);
    quarantine_told(table, list, 2, 4 * SECOND);
    assert_int_equal(quarantine_clear(table, POISON), 1);
    assert_int_equal(left(4 * SECOND), 0);
    assert_int_equal(quarantine_clear(table, 0), 2); /* 5, from here and from the other */
}

/* At the bound suspects are forgotten before prompts that are known to kill. */
static void the_bound_forgets_suspects_first(void **state)
{
    (void)state;
    struct quarantine_counts n;
    blame(POISON, 1, 10, 0);
    blame(POISON, 2, 20, 0);
    for (uint64_t f = 1000; f < 1000 + 2 * QUARANTINE_MAX; f++)
        blame(f, 3, 30, (int64_t)f);
    quarantine_counts_get(table, SECOND, &n);
    assert_int_equal(n.suspects + n.refused_now, QUARANTINE_MAX);
    assert_int_equal(n.forgotten, QUARANTINE_MAX + 1);
    assert_true(left(SECOND) > 0);
    assert_int_equal(quarantine_suspects(table, 1000, SECOND), 0);
    assert_true(quarantine_suspects(table, 999 + 2 * QUARANTINE_MAX, SECOND) > 0);
}

static void no_time_is_no_quarantine(void **state)
{
    (void)state;
    struct quarantine *off;
    assert_int_equal(quarantine_new(0, &off, NULL), 0);
    quarantine_blame(off, POISON, 1, 10, 0, SECOND);
    quarantine_blame(off, POISON, 2, 20, 0, SECOND);
    assert_int_equal(quarantine_left_us(off, POISON, SECOND), 0);
    assert_int_equal(quarantine_suspects(off, POISON, SECOND), 0);
    quarantine_free(off);
}

/* ---- the dispatch ---- */

static int fresh(void **state)
{
    (void)state;
    struct dispatch_config c = dispatch_config_default();
    c.quarantine_us = HOUR;
    return core_open(&c);
}

static uint32_t engine_up(const char *name, uint64_t boot)
{
    struct dispatch_endpoint ep = endpoint_of(name);
    ep.boot = boot;
    return endpoint_put(&ep);
}

static struct dispatch_request asks(uint64_t fingerprint)
{
    struct dispatch_request r = request_of(100);
    r.fingerprint = fingerprint;
    return r;
}

static void a_prompt_that_killed_two_is_refused_for_everybody(void **state)
{
    (void)state;
    engine_up("a", 1);
    engine_up("b", 1);
    struct dispatch_request r = asks(POISON), again = asks(POISON), other = asks(POISON + 1);
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    assert_int_equal(dispatch_fail(dispatch, &r, RETRY_DIED, SECOND).answer, DISPATCH_SEND);
    struct dispatch_verdict v = dispatch_fail(dispatch, &r, RETRY_DIED, 2 * SECOND);
    assert_int_equal(v.answer, DISPATCH_REFUSE);
    assert_int_equal(v.status, 422);
    assert_true(v.retry_after_s > 0);
    v = dispatch_arrive(dispatch, &again, 3 * SECOND);
    assert_int_equal(v.answer, DISPATCH_REFUSE);
    assert_int_equal(v.status, 422);
    engine_up("a", 2);
    engine_up("b", 2);
    assert_int_equal(dispatch_arrive(dispatch, &other, 4 * SECOND).answer, DISPATCH_SEND);
    dispatch_end(dispatch, &other, 3, false, 5 * SECOND);
    struct dispatch_request later = asks(POISON), after = asks(POISON);
    assert_int_equal(dispatch_arrive(dispatch, &later, HOUR).status, 422);
    assert_int_equal(dispatch_arrive(dispatch, &after, HOUR + 3 * SECOND).answer, DISPATCH_SEND);
    dispatch_end(dispatch, &after, 3, false, HOUR + 4 * SECOND);
}

/* Earns one retry by traffic, because retry budgets are not under test here. */
static void earn_retry(void)
{
    for (uint32_t i = 0; i < RETRY_REQUESTS; i++) {
        struct dispatch_request one = asks(1);
        one.model = 2; /* held, as no endpoint serves it, then gone */
        assert_int_equal(dispatch_arrive(dispatch, &one, 0).answer, DISPATCH_WAIT);
        dispatch_end(dispatch, &one, 0, true, 0);
    }
}

/* Only a crash is blamed; silence, a full engine or an error is not. */
static void other_failures_are_no_blame(void **state)
{
    (void)state;
    static const enum retry_failure failures[] = { RETRY_UNREACHABLE, RETRY_TAKEN, RETRY_SILENT,
                                                   RETRY_OVERLOADED,  RETRY_ERROR, RETRY_BROKEN,
                                                   RETRY_LOCAL };
    engine_up("a", 1);
    for (size_t i = 0; i < COUNT_OF(failures); i++) {
        int64_t now = (int64_t)(i + 1) * 60 * SECOND;
        struct dispatch_request r = asks(POISON);
        assert_int_equal(dispatch_arrive(dispatch, &r, now).answer, DISPATCH_SEND);
        struct dispatch_verdict v = dispatch_fail(dispatch, &r, failures[i], now + 1);
        assert_int_equal(quarantine_suspects(dispatch_quarantine(dispatch), POISON, now + 2), 0);
        if (v.answer != DISPATCH_REFUSE) dispatch_end(dispatch, &r, 0, true, now + 2);
    }
}

/* One engine dies with four requests, one of which kills. From then on they run one at a time, so
 * that the second death tells the guilty one, and the other three are served. */
static void the_guilty_is_found_among_four(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    struct dispatch_request r[COUNT];
    engine_up("a", 1);
    for (uint32_t i = 0; i < COUNT; i++)
        earn_retry();
    for (uint64_t i = 0; i < COUNT; i++) {
        r[i] = asks(POISON + i);
        assert_int_equal(dispatch_arrive(dispatch, &r[i], 0).answer, DISPATCH_SEND);
    }
    uint32_t b = engine_up("b", 1);
    uint32_t sent = 0;
    for (uint64_t i = 0; i < COUNT; i++)
        sent += dispatch_fail(dispatch, &r[i], RETRY_DIED, SECOND).answer == DISPATCH_SEND;
    assert_int_equal(sent, 1);
    assert_int_equal(dispatch_in_flight(dispatch, b), 1);
    /* A prompt that was near no death is not delayed. */
    struct dispatch_request stranger = asks(1);
    assert_int_equal(dispatch_arrive(dispatch, &stranger, SECOND + 1).answer, DISPATCH_SEND);

    int64_t now = 2 * SECOND;
    uint32_t answered = 0, refused = 0;
    struct dispatch_request *next = &r[0];
    while (next) {
        struct dispatch_verdict v;
        now += SECOND;
        if (next->fingerprint == POISON + 2) {
            v = dispatch_fail(dispatch, next, RETRY_DIED, now);
            assert_int_equal(v.status, 422);
            refused++;
            engine_up("b", 2);
            now += SECOND;
        } else {
            assert_true(dispatch_tokens(dispatch, next, 1, now));
            answered++;
        }
        next = dispatch_held_next(dispatch, now, &v);
    }
    assert_int_equal(answered, COUNT - 1);
    assert_int_equal(refused, 1);
    for (uint64_t i = 0; i < COUNT; i++) {
        if (r[i].state == DISPATCH_SENT) dispatch_end(dispatch, &r[i], 5, false, now);
        struct dispatch_request again = asks(POISON + i);
        struct dispatch_verdict v = dispatch_arrive(dispatch, &again, now);
        assert_int_equal(v.answer, i == 2 ? DISPATCH_REFUSE : DISPATCH_SEND);
        if (v.answer == DISPATCH_SEND) dispatch_end(dispatch, &again, 5, false, now);
    }
    dispatch_end(dispatch, &stranger, 5, false, now);
}

/* A suspect runs apart until it has passed the token at which the engine died. */
static void a_suspect_keeps_others_away_until_it_has_passed(void **state)
{
    (void)state;
    struct dispatch_request r = asks(POISON), peer = asks(POISON + 1);
    engine_up("a", 1);
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    assert_int_equal(dispatch_arrive(dispatch, &peer, 0).answer, DISPATCH_SEND);
    dispatch_tokens(dispatch, &r, 10, 1);
    struct dispatch_endpoint ep = endpoint_of("b");
    ep.takes_ids = true;
    endpoint_put(&ep);
    r.generated = 10;
    assert_int_equal(dispatch_fail(dispatch, &r, RETRY_DIED, SECOND).answer, DISPATCH_SEND);
    assert_int_equal(dispatch_fail(dispatch, &peer, RETRY_DIED, SECOND).answer, DISPATCH_WAIT);
    assert_true(dispatch_tokens(dispatch, &r, 1, 2 * SECOND));
    struct dispatch_verdict v;
    assert_ptr_equal(dispatch_held_next(dispatch, 2 * SECOND, &v), &peer);
    dispatch_end(dispatch, &r, 11, false, 3 * SECOND);
    dispatch_end(dispatch, &peer, 1, true, 3 * SECOND); /* its client left; nothing stays behind */
    struct dispatch_request third = asks(POISON + 1);
    assert_int_equal(dispatch_arrive(dispatch, &third, 4 * SECOND).answer, DISPATCH_SEND);
    dispatch_end(dispatch, &third, 1, false, 5 * SECOND);
}

/* A request that passes the point of each death is not guilty of it, but its retries are
 * bounded. */
static void who_goes_on_each_time_is_tried_again_up_to_a_bound(void **state)
{
    (void)state;
    struct dispatch_endpoint ep = endpoint_of("a");
    ep.takes_ids = true;
    endpoint_put(&ep);
    struct dispatch_request r = asks(POISON);
    assert_int_equal(dispatch_arrive(dispatch, &r, 0).answer, DISPATCH_SEND);
    int64_t now = SECOND;
    for (uint32_t death = 1; death <= RETRY_DEATHS_MAX; death++) {
        dispatch_tokens(dispatch, &r, 5, now);
        r.generated += 5;
        earn_retry();
        struct dispatch_verdict v = dispatch_fail(dispatch, &r, RETRY_DIED, now);
        if (death == RETRY_DEATHS_MAX) {
            assert_int_equal(v.status, 422);
            break;
        }
        assert_int_equal(v.answer, DISPATCH_WAIT); /* its one endpoint has just died */
        ep.boot++;
        endpoint_put(&ep);
        now += SECOND;
        assert_ptr_equal(dispatch_held_next(dispatch, now, &v), &r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_engines_are_refused_one_is_not, fresh_table,
                                        drop_table),
        cmocka_unit_test_setup_teardown(the_same_engine_started_again_is_a_second_one, fresh_table,
                                        drop_table),
        cmocka_unit_test_setup_teardown(a_death_is_proven_by_another_boot, fresh_table, drop_table),
        cmocka_unit_test_setup_teardown(what_is_never_proven_is_void, fresh_table, drop_table),
        cmocka_unit_test_setup_teardown(a_cut_network_is_no_death, fresh_table, drop_table),
        cmocka_unit_test_setup_teardown(going_on_past_the_death_acquits, fresh_table, drop_table),
        cmocka_unit_test_setup_teardown(clearing_lets_in_again, fresh_table, drop_table),
        cmocka_unit_test_setup_teardown(what_others_refuse_is_refused_here_too, fresh_table,
                                        drop_table),
        cmocka_unit_test_setup_teardown(the_bound_forgets_suspects_first, fresh_table, drop_table),
        cmocka_unit_test(no_time_is_no_quarantine),
        cmocka_unit_test_setup_teardown(a_prompt_that_killed_two_is_refused_for_everybody, fresh,
                                        core_drop),
        cmocka_unit_test_setup_teardown(other_failures_are_no_blame, fresh, core_drop),
        cmocka_unit_test_setup_teardown(the_guilty_is_found_among_four, fresh, core_drop),
        cmocka_unit_test_setup_teardown(a_suspect_keeps_others_away_until_it_has_passed, fresh,
                                        core_drop),
        cmocka_unit_test_setup_teardown(who_goes_on_each_time_is_tried_again_up_to_a_bound, fresh,
                                        core_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
