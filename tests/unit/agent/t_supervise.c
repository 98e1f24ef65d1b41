/* t_supervise.c - tests every cell of the supervisor's state table, its timers, and long random
 * lives against a model of the engine that knows when the engine serves. */
#include "agent/core/supervise.h"
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define SECOND ((int64_t)1000000)

static struct sup_config config(void)
{
    struct sup_config c = SUP_CONFIG_DEFAULT;
    c.grace_us = 60 * SECOND;
    return c;
}

/* ---- cells ---- */

/* One line a state, one word an event in the order of the enum. "-" is impossible; otherwise the
 * next state's two letters and the actions: s spawn, t term, k kill, r report, e end, w wait,
 * f forgive. Written by hand from the prologue's rules, not from the table. */
// clang-format off
static const char *const expected[SUP_STATE_COUNT] = {
    /*            up     down   drain  keep exited fault ready sick  empty late  stopl retry hopel stab  forsk aged */
    [SUP_DOWN] = "STsr   ENer   ENer   DO   DO     DO    -     -     -     -     -     -     -     -     ENer  ENer",
    [SUP_STARTING] = "ST SPtr   SPtr   ST   BOwr   CUkr  UPr   CUkr  -     -     -     -     -     -     SPtr  SPtr",
    [SUP_UP] = "UP       SPtr   DRr    UP   BOwr   CUkr  -     CUkr  -     -     -     -     -     UPf   SPtr  SPtr",
    [SUP_DRAINING] = "DR SPtr   DR     UPr  ENer   SPkr  -     SPkr  SPtr  SPtr  -     -     -     -     SPtr  SPtr",
    [SUP_CURING] = "CU   SPkr   SPkr   CU   BOwr   CU    -     -     -     -     CUk   -     -     -     -     -",
    [SUP_BACK_OFF] = "BO ENer   ENer   BO   BO     BO    -     -     -     -     -     STsr  ENer  -     ENer  ENer",
    [SUP_STOPPING] = "SP SP     SP     SP   ENer   SP    -     -     -     -     SPk   -     -     -     -     -",
    [SUP_ENDED] = "EN    EN     EN     EN   EN     EN    -     -     -     -     -     -     -     -     -     -",
};
// clang-format on
static const char *const letters[SUP_STATE_COUNT] = {
    [SUP_DOWN] = "DO",   [SUP_STARTING] = "ST", [SUP_UP] = "UP",       [SUP_DRAINING] = "DR",
    [SUP_CURING] = "CU", [SUP_BACK_OFF] = "BO", [SUP_STOPPING] = "SP", [SUP_ENDED] = "EN",
};

static void print_cell(struct sup_cell c, char ret[16])
{
    if (!c.possible) {
        snprintf(ret, 16, "-");
        return;
    }
    snprintf(ret, 16, "%s%s%s%s%s%s%s%s", letters[c.next], c.actions & SUP_ACT_SPAWN ? "s" : "",
             c.actions & SUP_ACT_TERM ? "t" : "", c.actions & SUP_ACT_KILL ? "k" : "",
             c.actions & SUP_ACT_END ? "e" : "", c.actions & SUP_ACT_WAIT ? "w" : "",
             c.actions & SUP_ACT_FORGIVE ? "f" : "", c.actions & SUP_ACT_REPORT ? "r" : "");
}

static void every_cell_is_as_written(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SUP_STATE_COUNT; s++) {
        const char *at = expected[s];
        for (uint32_t e = 0; e < SUP_EVENT_COUNT; e++) {
            at += strspn(at, " ");
            size_t len = strcspn(at, " ");
            char got[16];
            print_cell(sup_cell(s, e), got);
            if (strlen(got) != len || memcmp(got, at, len) != 0)
                fail_msg("%s, %s: %s, expected %.*s", sup_state_text(s), sup_event_text(e), got,
                         (int)len, at);
            at += len;
        }
        assert_int_equal(strspn(at, " "), strlen(at)); /* no surplus word */
    }
}

/* ---- time ---- */

static struct sup_view view_at(int64_t now)
{
    return (struct sup_view){ .now_us = now, .born_us = 1, .lease_until_us = INT64_MAX };
}

static struct sup up_since(int64_t now)
{
    struct sup s = { 0 };
    struct sup_config c = config();
    sup_feed(&s, &c, SUP_WANT_UP, now);
    struct sup_view v = view_at(now);
    v.healthy_us = now;
    sup_tick(&s, &c, &v);
    assert_int_equal(s.state, SUP_UP);
    return s;
}

static void back_off_doubles_to_its_cap_and_is_forgiven(void **state)
{
    (void)state;
    struct sup s = { 0 };
    struct sup_config c = config();
    c.back_off_min_us = SECOND;
    c.back_off_max_us = 4 * SECOND;
    c.failures_max = 100;
    int64_t now = SECOND;
    assert_true(sup_feed(&s, &c, SUP_WANT_UP, now) & SUP_ACT_SPAWN);
    static const int64_t waits[] = { 1, 2, 4, 4, 4 };
    for (size_t i = 0; i < COUNT_OF(waits); i++) {
        sup_feed(&s, &c, SUP_EXITED, now);
        assert_int_equal(s.state, SUP_BACK_OFF);
        struct sup_view v = view_at(now + waits[i] * SECOND - 1);
        assert_int_equal(sup_tick(&s, &c, &v), 0);
        v.now_us++;
        assert_true(sup_tick(&s, &c, &v) & SUP_ACT_SPAWN);
        now = v.now_us;
    }
    struct sup_view v = view_at(now);
    v.healthy_us = now;
    sup_tick(&s, &c, &v);
    v.now_us = v.healthy_us = now + c.stable_us;
    sup_tick(&s, &c, &v);
    assert_int_equal(s.failures, 0);
    sup_feed(&s, &c, SUP_EXITED, v.now_us);
    assert_int_equal(s.retry_us - v.now_us, SECOND);
}

static void hopeless_engines_end_the_instance(void **state)
{
    (void)state;
    struct sup s = { 0 };
    struct sup_config c = config();
    c.failures_max = 3;
    int64_t now = SECOND;
    sup_feed(&s, &c, SUP_WANT_UP, now);
    uint32_t actions = 0;
    while (s.state != SUP_ENDED && s.engines < 10) {
        sup_feed(&s, &c, SUP_EXITED, now);
        now += 60 * SECOND;
        struct sup_view v = view_at(now);
        actions = sup_tick(&s, &c, &v);
    }
    assert_int_equal(sup_restarts(&s), 2);
    assert_true(actions & SUP_ACT_END);
}

static void silence_is_sickness(void **state)
{
    (void)state;
    struct sup_config c = config();
    struct sup s = up_since(SECOND);
    struct sup_view v = view_at(SECOND + c.sick_us - 1);
    v.healthy_us = SECOND;
    assert_int_equal(sup_tick(&s, &c, &v), 0);
    v.now_us++;
    assert_true(sup_tick(&s, &c, &v) & SUP_ACT_KILL);
    v.now_us += c.stop_us; /* the kill had no effect: kill again */
    assert_true(sup_tick(&s, &c, &v) & SUP_ACT_KILL);
    v.now_us++;
    assert_int_equal(sup_tick(&s, &c, &v), 0);
    sup_feed(&s, &c, SUP_EXITED, v.now_us);
    assert_int_equal(s.state, SUP_BACK_OFF);
}

/* Returns the view of an agent that has not looked for `gap`, so its knowledge of the engine is
 * that old. */
static struct sup_view view_after(const struct sup *s, int64_t gap, int64_t healthy_us)
{
    struct sup_view v = view_at(s->looked_us + gap);
    v.healthy_us = healthy_us;
    return v;
}

/* Looks every second at an engine last seen healthy at `healthy_us`, until the supervisor kills it;
 * returns how long that took. */
static int64_t silent_until_killed(struct sup *s, const struct sup_config *c, int64_t healthy_us)
{
    int64_t from = s->looked_us;
    for (uint32_t i = 0; i < 1000; i++) {
        struct sup_view v = view_after(s, SECOND, healthy_us);
        if (sup_tick(s, c, &v) & SUP_ACT_KILL) return v.now_us - from;
    }
    return -1;
}

static void own_lateness_is_not_sickness(void **state)
{
    (void)state;
    struct sup_config c = config();
    c.late_us = 2 * SECOND;
    struct sup s = up_since(SECOND);
    struct sup_view v = view_after(&s, 60 * SECOND, SECOND);
    assert_int_equal(sup_tick(&s, &c, &v), 0);
    assert_int_equal(s.lates, 1);
    /* An engine that falls silent now is killed as late as one that was well up to here. */
    assert_int_equal(silent_until_killed(&s, &c, SECOND), c.sick_us);

    /* A gap below the limit of lateness counts as silence of the engine. */
    s = up_since(SECOND);
    v = view_after(&s, c.late_us, SECOND);
    assert_int_equal(sup_tick(&s, &c, &v), 0);
    assert_int_equal(s.lates, 0);
    assert_int_equal(silent_until_killed(&s, &c, SECOND), c.sick_us - c.late_us);
}

/* While every turn is late, nothing is known about the engine. */
static void late_turns_in_a_row_prove_nothing(void **state)
{
    (void)state;
    struct sup_config c = config();
    c.late_us = 2 * SECOND;
    struct sup s = up_since(SECOND);
    for (uint32_t i = 0; i < 20; i++) {
        struct sup_view v = view_after(&s, 10 * SECOND, SECOND);
        assert_int_equal(sup_tick(&s, &c, &v), 0);
        assert_int_equal(s.state, SUP_UP);
    }
    assert_int_equal(s.lates, 20);
}

/* A state's deadline counts only time in which the agent looked; idle time starts from zero. */
static void deadlines_wait_for_a_late_agent(void **state)
{
    (void)state;
    struct sup_config c = config();
    c.late_us = 2 * SECOND;
    struct sup s = { 0 };
    sup_feed(&s, &c, SUP_WANT_UP, SECOND);
    struct sup_view v = view_at(SECOND);
    sup_tick(&s, &c, &v);
    v = view_after(&s, 2 * c.start_us, 0);
    assert_int_equal(sup_tick(&s, &c, &v), 0);
    assert_int_equal(silent_until_killed(&s, &c, 0), c.start_us);

    s = up_since(SECOND);
    sup_feed(&s, &c, SUP_WANT_DOWN, SECOND);
    v = view_after(&s, c.stop_us + SECOND, SECOND);
    assert_int_equal(sup_tick(&s, &c, &v), 0);
    assert_int_equal(silent_until_killed(&s, &c, SECOND), c.stop_us);

    s = up_since(SECOND);
    v = view_after(&s, SECOND, 2 * SECOND);
    v.load_known = true;
    v.lease_until_us = SECOND;
    assert_int_equal(sup_tick(&s, &c, &v), 0);
    v = view_after(&s, 2 * c.grace_us, 2 * SECOND);
    v.load_known = true;
    v.lease_until_us = SECOND;
    assert_int_equal(sup_tick(&s, &c, &v), 0);
    assert_int_equal(s.state, SUP_UP);
}

static void a_start_has_a_deadline(void **state)
{
    (void)state;
    struct sup_config c = config();
    struct sup s = { 0 };
    sup_feed(&s, &c, SUP_WANT_UP, SECOND);
    struct sup_view v = view_at(SECOND + c.start_us);
    assert_true(sup_tick(&s, &c, &v) & SUP_ACT_KILL);
    assert_int_equal(s.state, SUP_CURING);
}

struct drain_row {
    bool known;
    uint32_t in_flight;
    int64_t after_us; /* since the drain began, with the same view throughout */
    enum sup_state state;
    const char *why;
};

static void drains_end_empty_or_late(void **state)
{
    (void)state;
    struct sup_config c = config();
    const struct drain_row rows[] = {
        { true, 0, c.settle_us - 1, SUP_DRAINING, "routers may not have heard yet" },
        { true, 0, c.settle_us, SUP_STOPPING, "empty for long enough" },
        { true, 1, c.settle_us * 10, SUP_DRAINING, "it serves" },
        { false, 0, c.settle_us * 10, SUP_DRAINING, "absent is not zero" },
        { true, 1, c.drain_us, SUP_STOPPING, "the deadline" },
        { false, 0, c.drain_us, SUP_STOPPING, "the deadline, load unknown" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sup s = up_since(SECOND);
        sup_feed(&s, &c, SUP_DRAIN, SECOND);
        struct sup_view v = view_at(SECOND);
        v.load_known = rows[i].known;
        v.in_flight = rows[i].in_flight;
        v.healthy_us = SECOND;
        sup_tick(&s, &c, &v);
        v.now_us = v.healthy_us = SECOND + rows[i].after_us;
        sup_tick(&s, &c, &v);
        if (s.state != rows[i].state) fail_msg("%s: %s", rows[i].why, sup_state_text(s.state));
    }
}

struct lease_row {
    int64_t lease_s, age_s; /* end of lease and age limit; 0: none */
    bool known;
    uint32_t in_flight;
    int64_t at_s;
    bool ends;
    const char *why;
};

static void lease_and_age(void **state)
{
    (void)state;
    static const struct lease_row rows[] = {
        { 1000, 0, true, 0, 500, false, "idle with a lease is fine" },
        { 10, 0, true, 0, 69, false, "idle for the grace, without a lease for less" },
        { 10, 0, true, 0, 71, true, "no lease and idle for the grace" },
        { 0, 0, true, 0, 59, false, "never a lease, idle, within the grace" },
        { 0, 0, true, 0, 62, true, "never a lease, idle for the grace" },
        { 10, 0, true, 1, 900, false, "no lease, and it serves" },
        { 10, 0, false, 0, 900, false, "no lease, load unknown" },
        { 1000, 100, true, 0, 99, false, "young" },
        { 1000, 100, true, 0, 101, true, "too old and idle" },
        { 1000, 100, true, 3, 900, false, "too old, and it serves" },
        { 10, 100, true, 3, 900, false, "too old, no lease, and it serves" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct lease_row *r = &rows[i];
        struct sup_config c = config();
        c.age_us = r->age_s * SECOND;
        struct sup s = up_since(SECOND / 2);
        bool ended = false;
        for (int64_t t = 1; t <= r->at_s && !ended; t++) {
            struct sup_view v = { .now_us = t * SECOND,
                                  .born_us = 0,
                                  .lease_until_us = r->lease_s * SECOND,
                                  .healthy_us = t * SECOND,
                                  .load_known = r->known,
                                  .in_flight = r->in_flight };
            ended = sup_tick(&s, &c, &v) & SUP_ACT_TERM;
        }
        if (ended != r->ends) fail_msg("%s: %s", r->why, sup_state_text(s.state));
    }
}

static void drain_can_be_withdrawn_until_the_stop(void **state)
{
    (void)state;
    struct sup_config c = config();
    struct sup s = up_since(SECOND);
    sup_feed(&s, &c, SUP_DRAIN, SECOND);
    sup_feed(&s, &c, SUP_KEEP, SECOND);
    assert_int_equal(s.state, SUP_UP);
    sup_feed(&s, &c, SUP_WANT_DOWN, SECOND);
    sup_feed(&s, &c, SUP_KEEP, SECOND);
    assert_int_equal(s.state, SUP_STOPPING);
}

static void adoption_starts_no_second_engine(void **state)
{
    (void)state;
    struct sup_config c = config();
    struct sup s;
    sup_adopt(&s, SECOND);
    assert_int_equal(sup_feed(&s, &c, SUP_WANT_UP, SECOND), 0);
    struct sup_view v = view_at(2 * SECOND);
    v.healthy_us = 2 * SECOND;
    sup_tick(&s, &c, &v);
    assert_int_equal(s.state, SUP_UP);
    assert_int_equal(sup_restarts(&s), 0);
}

/* ---- long lives ---- */

struct model {
    bool alive, serving, term, killed;
    int64_t dies_us; /* when alive: 0 for never */
};

static void carry_out(struct model *m, uint32_t actions, struct rng *rng, int64_t now)
{
    if (actions & SUP_ACT_SPAWN) {
        assert_false(m->alive); /* never two engines */
        *m = (struct model){ .alive = true };
    }
    if (actions & (SUP_ACT_TERM | SUP_ACT_KILL)) assert_true(m->alive);
    if (actions & SUP_ACT_KILL) m->dies_us = now;
    if ((actions & SUP_ACT_TERM) && rng_below(rng, 4)) /* one in four ignores it */
        m->dies_us = now + (int64_t)rng_below(rng, 20) * SECOND;
    if (actions & SUP_ACT_END) assert_false(m->alive);
}

static void random_lives_keep_the_rules(void **state)
{
    (void)state;
    uint32_t ended = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct rng rng;
        rng_seed(&rng, seed);
        struct sup s = { 0 };
        struct sup_config c = config();
        c.age_us = rng_below(&rng, 2) ? 2000 * SECOND : 0;
        struct model m = { 0 };
        int64_t lease = 0;
        for (int64_t now = SECOND; now < 3000 * SECOND && s.state != SUP_ENDED; now += SECOND) {
            if (m.alive && ((m.dies_us && now >= m.dies_us) || rng_below(&rng, 400) == 0)) {
                m = (struct model){ 0 };
                carry_out(&m, sup_feed(&s, &c, SUP_EXITED, now), &rng, now);
            }
            if (rng_below(&rng, 100) == 0) {
                enum sup_event wish = (enum sup_event)rng_below(&rng, SUP_EXITED);
                carry_out(&m, sup_feed(&s, &c, wish, now), &rng, now);
            }
            if (rng_below(&rng, 3)) lease = now + 15 * SECOND;
            if (rng_below(&rng, 20) == 0) m.serving = m.alive && !m.serving;
            bool silent = rng_below(&rng, 30) == 0;
            struct sup_view v = { .now_us = now,
                                  .born_us = SECOND,
                                  .lease_until_us = lease,
                                  .healthy_us = m.alive && !silent ? now : 0,
                                  .load_known = !silent,
                                  .in_flight = m.serving };
            enum sup_state before = s.state;
            uint32_t actions = sup_tick(&s, &c, &v);
            /* Only a drain's deadline may stop an engine that serves. */
            if ((actions & SUP_ACT_TERM) && m.serving) assert_int_equal(before, SUP_DRAINING);
            carry_out(&m, actions, &rng, now);
        }
        if (s.state == SUP_ENDED) {
            ended++;
            assert_false(m.alive);
        }
    }
    assert_true(ended > 100); /* the walks reach the end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_as_written),
        cmocka_unit_test(back_off_doubles_to_its_cap_and_is_forgiven),
        cmocka_unit_test(hopeless_engines_end_the_instance),
        cmocka_unit_test(silence_is_sickness),
        cmocka_unit_test(own_lateness_is_not_sickness),
        cmocka_unit_test(late_turns_in_a_row_prove_nothing),
        cmocka_unit_test(deadlines_wait_for_a_late_agent),
        cmocka_unit_test(a_start_has_a_deadline),
        cmocka_unit_test(drains_end_empty_or_late),
        cmocka_unit_test(lease_and_age),
        cmocka_unit_test(drain_can_be_withdrawn_until_the_stop),
        cmocka_unit_test(adoption_starts_no_second_engine),
        cmocka_unit_test(random_lives_keep_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
