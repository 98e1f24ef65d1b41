/* t_election.c - tests the rules of the election one by one; t_election_seeds.c runs them all together. */
#include "base/core/bits.h"
#include "base/io/store/store_election.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND ((int64_t)1000000)
#define TERM (8 * SECOND)
#define WAIT (TERM + TERM / ELECTION_SLACK)

static struct election candidate(const char *name)
{
    struct election e = { .term_us = TERM, .shared = true };
    snprintf(e.holder, sizeof e.holder, "%s", name);
    return e;
}

static struct store_lease lease(uint64_t epoch, uint64_t beat, bool held)
{
    return (struct store_lease){ .epoch = epoch,
                                 .beat = beat,
                                 .held = held,
                                 .term_us = TERM,
                                 .holder = "other",
                                 .address = "other:1",
                                 .line = 1 };
}

/* Looks as often as the election wants, at a lease that stays as it is, and returns when it is taken. */
static int64_t taken_at(struct election *e, const struct store_lease *l, int64_t from_us)
{
    for (int64_t now = from_us; now < from_us + 10 * WAIT;
         now = max_i64(now, election_again_us(e))) {
        enum election_act act = election_turn(e, now);
        if (act == ELECTION_ACQUIRE) return now;
        if (act == ELECTION_SEE) election_saw(e, 0, l, now, now);
    }
    return -1;
}

static void a_lease_is_taken_when_it_stood_still_for_a_term_and_the_slack(void **state)
{
    (void)state;
    struct election e = candidate("me");
    struct store_lease l = lease(5, 9, true);
    int64_t at = taken_at(&e, &l, SECOND);
    assert_true(at >= SECOND + WAIT && at <= SECOND + WAIT + TERM / ELECTION_LOOKS);
    assert_true(str_eq(election_leader(&e), STR("other:1")));

    e = candidate("me"); /* the holder's own term is longer: it counts */
    l.term_us = 2 * TERM;
    assert_true(taken_at(&e, &l, 0) >= 2 * WAIT);
}

static void a_renewal_another_connection_a_late_look_begin_the_wait_anew(void **state)
{
    (void)state;
    for (int what = 0; what < 4; what++) {
        struct election e = candidate("me");
        struct store_lease l = lease(5, 9, true);
        int64_t step = TERM / ELECTION_LOOKS, now = 0;
        for (; now < WAIT - step; now += step) {
            assert_int_equal(election_turn(&e, now), ELECTION_SEE);
            election_saw(&e, 0, &l, now, now);
        }
        if (what == 0) l.beat++;
        if (what == 1) l.line++;
        if (what == 2) now += TERM;
        if (what == 3) election_saw(&e, -ETIMEDOUT, NULL, now, now);
        int64_t at = taken_at(&e, &l, now);
        assert_true(at >= now + WAIT);
    }
}

static void a_free_lease_is_taken_at_once_over_an_old_connection_only(void **state)
{
    (void)state;
    struct election e = candidate("me");
    struct store_lease l = lease(5, 9, false);
    assert_true(taken_at(&e, &l, 0) >= WAIT); /* a new connection */

    e = candidate("me");
    int64_t now = 0;
    for (; now < 2 * WAIT; now += TERM / ELECTION_LOOKS) {
        l = lease(5, (uint64_t)now, true); /* renewed all the time */
        assert_int_equal(election_turn(&e, now), ELECTION_SEE);
        election_saw(&e, 0, &l, now, now);
    }
    l = lease(5, 1, false);
    assert_int_equal(taken_at(&e, &l, now), now);
}

static void a_store_without_a_lease_is_waited_for_unless_it_is_ours_alone(void **state)
{
    (void)state;
    struct store_lease none = { .line = 1 };
    struct election e = candidate("me");
    assert_true(taken_at(&e, &none, 0) >= WAIT);
    e = candidate("me");
    e.shared = false;
    assert_int_equal(taken_at(&e, &none, 0), 0);
    election_acquired(&e, 0, 1, 0, 0);
    assert_true(election_leads(&e, INT64_MAX - 1));
    assert_int_equal(election_turn(&e, 1000 * TERM), ELECTION_WAIT);
}

static void a_term_counts_from_the_sending_of_its_last_good_renewal(void **state)
{
    (void)state;
    struct election e = candidate("me");
    election_acquired(&e, 0, 7, SECOND, 3 * SECOND);
    assert_true(election_leads(&e, SECOND + TERM - 1));
    assert_false(election_leads(&e, SECOND + TERM));
    assert_int_equal(election_turn(&e, SECOND + TERM / ELECTION_RENEW), ELECTION_RENEW_IT);
    election_renewed(&e, 0, 4 * SECOND, 5 * SECOND);
    assert_true(election_leads(&e, 4 * SECOND + TERM - 1));
    election_renewed(&e, -EREMOTEIO, 6 * SECOND,
                     7 * SECOND); /* nobody knows: the older one counts */
    assert_true(election_leads(&e, 4 * SECOND + TERM - 1));
    assert_int_equal(election_turn(&e, 4 * SECOND + TERM), ELECTION_SEE);
    assert_false(election_leads(&e, 4 * SECOND + TERM));
    election_acquired(&e, 0, 9, 20 * SECOND, 20 * SECOND);
    election_renewed(&e, -EKEYREVOKED, 21 * SECOND, 21 * SECOND);
    assert_false(election_leads(&e, 21 * SECOND));
}

/* Leads, renews once, and meets a store that has lost all of it. */
static struct election led_until_the_loss(int64_t renewed_us)
{
    struct election e = candidate("me");
    election_acquired(&e, 0, 7, SECOND, SECOND);
    election_renewed(&e, 0, renewed_us, renewed_us);
    return e;
}

static struct store_lease own(uint64_t epoch, uint64_t beat)
{
    struct store_lease l = lease(epoch, beat, true);
    snprintf(l.holder, sizeof l.holder, "me");
    return l;
}

static const struct store_lease nothing = { .line = 2, .lost = true };

static void the_last_leader_takes_a_lost_lease_at_once_within_its_term(void **state)
{
    (void)state;
    struct election e = led_until_the_loss(3 * SECOND);
    election_renewed(&e, -EKEYREVOKED, 4 * SECOND, 4 * SECOND);
    assert_false(election_leads(&e, 4 * SECOND));
    assert_int_equal(taken_at(&e, &nothing, 4 * SECOND), 4 * SECOND);
    assert_true(election_is_last(&e));

    /* The same where the store went back: to a lease of its own, of the leader before, or to less content. */
    struct store_lease older[] = { own(7, 0), lease(5, 99, true), own(7, 1) };
    older[2].lost = true;
    for (int i = 0; i < 3; i++) {
        e = led_until_the_loss(3 * SECOND);
        election_lost(&e, false, 4 * SECOND);
        assert_int_equal(taken_at(&e, &older[i], 4 * SECOND), 4 * SECOND);
    }
}

static void the_last_leader_waits_where_another_may_lead(void **state)
{
    (void)state;
    struct election e = led_until_the_loss(3 * SECOND);
    election_lost(&e, false, 4 * SECOND);
    int64_t from = 3 * SECOND + TERM; /* its term is over */
    int64_t at = taken_at(&e, &nothing, from);
    assert_true(at >= from + WAIT && at < from + WAIT + TERM);

    e = led_until_the_loss(3 * SECOND);
    election_lost(&e, true,
                  4 * SECOND); /* it gave the lease back: another took it, before the loss */
    assert_true(taken_at(&e, &nothing, 4 * SECOND) >= 4 * SECOND + WAIT);

    e = led_until_the_loss(3 * SECOND);
    election_lost(&e, false, 4 * SECOND); /* nothing is lost: a reply was */
    struct store_lease mine = own(7, 1);
    assert_true(taken_at(&e, &mine, 4 * SECOND) >= 4 * SECOND + WAIT);
}

/* One that stood by, or has just begun, leaves the lost lease to the last leader for a term. */
static void the_others_wait_a_term_longer_and_no_more(void **state)
{
    (void)state;
    struct election e = candidate("me");
    int64_t look = TERM / ELECTION_LOOKS, at = taken_at(&e, &nothing, 0);
    assert_true(at >= WAIT + TERM && at <= WAIT + TERM + look);
    /* What is left: nothing, an older lease, or the same over another connection: some content may be gone. */
    struct store_lease left[] = { nothing, lease(5, 3, true), lease(5, 9, true) };
    left[2].line = 2;
    for (int i = 0; i < 3; i++) {
        struct store_lease l = lease(5, 9, true);
        e = candidate("me");
        assert_int_equal(election_turn(&e, 0), ELECTION_SEE);
        election_saw(&e, 0, &l, 0, 0);
        at = taken_at(&e, &left[i], look);
        assert_true(at >= WAIT + TERM && at <= WAIT + TERM + 2 * look);
        assert_false(election_is_last(&e));
    }
    /* One that led before somebody else did is not the last. */
    e = led_until_the_loss(3 * SECOND);
    election_lost(&e, false, 4 * SECOND);
    struct store_lease l = lease(9, 2, true);
    assert_int_equal(election_turn(&e, 5 * SECOND), ELECTION_SEE);
    election_saw(&e, 0, &l, 5 * SECOND, 5 * SECOND);
    assert_true(taken_at(&e, &nothing, 6 * SECOND) >= 6 * SECOND + WAIT + TERM);
}

/* A connection that is renewed beside a living leader costs nothing: the next renewal shows that all is well. */
static void a_renewal_over_the_new_connection_ends_the_doubt(void **state)
{
    (void)state;
    struct election e = candidate("me");
    struct store_lease l = lease(5, 9, true);
    int64_t look = TERM / ELECTION_LOOKS, now = 0;
    for (int i = 0; i < 3; i++, now += look) {
        assert_int_equal(election_turn(&e, now), ELECTION_SEE);
        election_saw(&e, 0, &l, now, now);
        assert_true(e.moved == (i == 1));
        if (i == 0) l.line++;
        if (i == 1) l.beat++;
    }
    int64_t at = taken_at(&e, &l, now);
    assert_true(at >= now - look + WAIT && at <= now + WAIT);
}

/* A leader whose writing anew was cut off tries again, over the lease that it had taken for it. */
static void a_content_that_is_half_written_is_its_writers(void **state)
{
    (void)state;
    struct election e = led_until_the_loss(3 * SECOND);
    election_lost(&e, false, 4 * SECOND);
    assert_int_equal(taken_at(&e, &nothing, 4 * SECOND), 4 * SECOND);
    election_acquired(&e, -ETIMEDOUT, 0, 4 * SECOND, 5 * SECOND);
    struct store_lease half = own(8, 0);
    half.lost = true;
    assert_true(taken_at(&e, &half, 5 * SECOND) <= 5 * SECOND + TERM / ELECTION_LOOKS);
    assert_true(election_is_last(&e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_is_taken_when_it_stood_still_for_a_term_and_the_slack),
        cmocka_unit_test(a_renewal_another_connection_a_late_look_begin_the_wait_anew),
        cmocka_unit_test(a_free_lease_is_taken_at_once_over_an_old_connection_only),
        cmocka_unit_test(a_store_without_a_lease_is_waited_for_unless_it_is_ours_alone),
        cmocka_unit_test(a_term_counts_from_the_sending_of_its_last_good_renewal),
        cmocka_unit_test(the_last_leader_takes_a_lost_lease_at_once_within_its_term),
        cmocka_unit_test(the_last_leader_waits_where_another_may_lead),
        cmocka_unit_test(the_others_wait_a_term_longer_and_no_more),
        cmocka_unit_test(a_renewal_over_the_new_connection_ends_the_doubt),
        cmocka_unit_test(a_content_that_is_half_written_is_its_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
