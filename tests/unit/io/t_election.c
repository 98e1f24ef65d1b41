/* t_election.c - tests the election: its rules one by one, and by seed with processes that stop, clocks of
 * different speeds, lost replies, and a store that stops, empties or goes back. No two ever believe at one
 * time, and epochs rise. */
#include "base/core/bits.h"
#include "base/core/rng.h"
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

/* ---- by seed ---- */

#define PROCESSES 3
#define STEP (SECOND / 50)
#define RUN (600 * SECOND)
#define PAST_MAX 64
#define SEEDS 200

/* The store as a server keeps it: the lease, and some of its past, to which it may go back. */
struct server {
    struct store_lease lease, past[PAST_MAX];
    uint32_t past_count;
    uint64_t line;        /* of connections since its last start */
    int64_t away_until;   /* answers nothing until then */
    uint64_t epoch_spent; /* highest epoch ever given out */
};

struct process {
    struct election e;
    int64_t fast_ppm, ahead_us; /* of its clock */
    int64_t stopped_until;
    uint64_t beat; /* of its own term */
    bool unsure;   /* the reply of its last renewal was lost */
};

/* Bugs that are planted, to show that the check can fail. */
enum mutant {
    MUTANT_NONE,
    MUTANT_HASTE,      /* a candidate does not wait */
    MUTANT_FROM_REPLY, /* a term counts from the reply of a renewal, not from its sending */
    MUTANT_ANY_LINE,   /* a free lease is taken over a new connection */
    MUTANT_COUNT
};

struct trial {
    struct rng rng;
    int64_t now_us;
    struct server server;
    struct process process[PROCESSES];
    uint32_t terms;
    enum mutant mutant;
    char problem[96]; /* empty: all was well */
};

static int64_t clock_of(const struct trial *t, const struct process *p)
{
    return p->ahead_us + t->now_us + t->now_us * p->fast_ppm / 1000000;
}

static bool happens(struct trial *t, double each_s)
{
    return rng_f64(&t->rng) < (double)STEP / 1e6 / each_s;
}

static void keep_past(struct server *s)
{
    s->past[s->past_count++ % PAST_MAX] = s->lease;
}

/* Makes a call of a process; each way takes time, and its reply may be lost. */
static int call(struct trial *t, struct process *p, enum election_act act, struct store_lease *ret)
{
    struct server *s = &t->server;
    bool lost = rng_below(&t->rng, 20) == 0;
    if (t->now_us < s->away_until || rng_below(&t->rng, 20) == 0) return -ETIMEDOUT; /* not done */
    const char *me = p->e.holder;
    bool mine = s->lease.held && strcmp(s->lease.holder, me) == 0 && s->lease.epoch == p->e.epoch;
    *ret = s->lease;
    ret->line = s->line;
    if (act == ELECTION_SEE) return lost ? -ETIMEDOUT : 0;
    if (act == ELECTION_RENEW_IT) {
        bool as_known = s->lease.beat == p->beat || (p->unsure && s->lease.beat == p->beat + 1);
        if (!mine || !as_known) return -EKEYREVOKED;
        p->beat = s->lease.beat;
        s->lease.beat++;
        p->unsure = lost;
        if (!lost) p->beat = s->lease.beat;
    } else {
        struct store_lease now = s->lease;
        now.line = s->line;
        if (!store_lease_same(&now, &p->e.seen)) return -EBUSY;
        uint64_t epoch = max_u64(s->lease.epoch + 1, p->e.epoch + 1);
        /* As with the date: a store that was emptied gives higher epochs than before. */
        epoch = max_u64(epoch, 1 + (uint64_t)(t->now_us / SECOND));
        s->lease = (struct store_lease){ .epoch = epoch, .held = true, .term_us = TERM };
        snprintf(s->lease.holder, sizeof s->lease.holder, "%s", me);
        p->beat = 0;
        p->unsure = false;
        *ret = s->lease;
    }
    keep_past(s);
    return lost ? -EREMOTEIO : 0;
}

static void check(struct trial *t)
{
    uint32_t believers = 0;
    for (uint32_t i = 0; i < PROCESSES; i++)
        believers += election_leads(&t->process[i].e, clock_of(t, &t->process[i]));
    if (believers > 1)
        snprintf(t->problem, sizeof t->problem, "%u believe at %d ms", believers,
                 (int)(t->now_us / 1000));
}

static void plant(struct trial *t, struct process *p, int64_t asked_us, int64_t now_us)
{
    if (t->mutant == MUTANT_HASTE) p->e.since_us = -RUN;
    if (t->mutant == MUTANT_ANY_LINE) p->e.line_us = -RUN;
    if (t->mutant == MUTANT_FROM_REPLY && p->e.until_us == asked_us + TERM)
        p->e.until_us = now_us + TERM;
}

static void take_turn(struct trial *t, struct process *p)
{
    int64_t asked_us = clock_of(t, p);
    enum election_act act = election_turn(&p->e, asked_us);
    if (act == ELECTION_WAIT) return;
    struct store_lease l = { 0 };
    int rc = call(t, p, act, &l);
    int64_t now_us = asked_us + (int64_t)rng_below(&t->rng, 1000);
    if (rng_below(&t->rng, 200) == 0) now_us += (int64_t)rng_below(&t->rng, 2 * TERM);
    p->stopped_until = t->now_us + (now_us - asked_us); /* it waits for the reply */
    if (act == ELECTION_SEE) election_saw(&p->e, rc, &l, asked_us, now_us);
    if (act == ELECTION_RENEW_IT) election_renewed(&p->e, rc, asked_us, now_us);
    if (act == ELECTION_ACQUIRE) election_acquired(&p->e, rc, l.epoch, asked_us, now_us);
    plant(t, p, asked_us, now_us);
    if (act != ELECTION_ACQUIRE || rc < 0) return;
    if (l.epoch <= t->server.epoch_spent)
        snprintf(t->problem, sizeof t->problem, "epoch %d again", (int)l.epoch);
    t->server.epoch_spent = l.epoch;
    t->terms++;
}

static void disturb(struct trial *t)
{
    struct server *s = &t->server;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *p = &t->process[i];
        if (happens(t, 40)) p->stopped_until = t->now_us + (int64_t)rng_below(&t->rng, 4 * TERM);
        if (happens(t, 60) && p->e.leads && t->now_us >= s->away_until) { /* gives it back */
            bool mine = strcmp(s->lease.holder, p->e.holder) == 0 && s->lease.epoch == p->e.epoch;
            if (mine) s->lease.held = false;
            keep_past(s);
            election_lost(&p->e, clock_of(t, p));
        }
    }
    if (happens(t, 60)) s->away_until = t->now_us + (int64_t)rng_below(&t->rng, 3 * TERM);
    if (!happens(t, 80)) return;
    s->line++; /* restarted: with its data, empty, or with older data */
    uint64_t what = rng_below(&t->rng, 3);
    if (what == 1) s->lease = (struct store_lease){ 0 };
    if (what == 2 && s->past_count > 0)
        s->lease = s->past[rng_below(&t->rng, min_u32(s->past_count, PAST_MAX))];
}

static struct trial run_seed(uint64_t seed, enum mutant mutant)
{
    struct trial t = { .mutant = mutant, .server = { .line = 1 } };
    rng_seed(&t.rng, seed);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%u", i);
        t.process[i].e = candidate(name);
        t.process[i].fast_ppm = (int64_t)rng_below(&t.rng, 100001) - 50000; /* five percent */
        t.process[i].ahead_us = (int64_t)rng_below(&t.rng, 1000) * SECOND;
    }
    for (; t.now_us < RUN && !t.problem[0]; t.now_us += STEP) {
        disturb(&t);
        for (uint32_t i = 0; i < PROCESSES; i++) {
            if (t.now_us < t.process[i].stopped_until) continue;
            take_turn(&t, &t.process[i]);
        }
        check(&t);
    }
    return t;
}

static void no_two_believe_at_one_time_whatever_happens(void **state)
{
    (void)state;
    uint32_t terms = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        struct trial t = run_seed((uint64_t)seed, MUTANT_NONE);
        if (t.problem[0]) fail_msg("seed %d: %s", seed, t.problem);
        terms += t.terms;
    }
    print_message("%u terms\n", terms);
    assert_true(terms > 5 * SEEDS);
}

static void each_planted_bug_is_found(void **state)
{
    (void)state;
    for (enum mutant m = MUTANT_NONE + 1; m < MUTANT_COUNT; m++) {
        int seed = 0;
        while (seed < SEEDS && !run_seed((uint64_t)seed, m).problem[0])
            seed++;
        print_message("mutant %d: seed %d\n", m, seed);
        assert_true(seed < SEEDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_is_taken_when_it_stood_still_for_a_term_and_the_slack),
        cmocka_unit_test(a_renewal_another_connection_a_late_look_begin_the_wait_anew),
        cmocka_unit_test(a_free_lease_is_taken_at_once_over_an_old_connection_only),
        cmocka_unit_test(a_store_without_a_lease_is_waited_for_unless_it_is_ours_alone),
        cmocka_unit_test(a_term_counts_from_the_sending_of_its_last_good_renewal),
        cmocka_unit_test(no_two_believe_at_one_time_whatever_happens),
        cmocka_unit_test(each_planted_bug_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
