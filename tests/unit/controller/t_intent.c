/* t_intent.c - tests intents: every cell of the state table, the stored form, the cost, and the
 * merge with listings and agents. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/core/charge.h"
#include "controller/core/join.h"
#include "controller/core/merge.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- an intent's state table, stored form and cost; the back-off of offers ---- */

#define SECOND ((int64_t)1000000)

/* One line a state, one word an event in the order of the enum: "-" impossible, else the next
 * state's two letters, and c (create), r (remove), s (stop) or t (start). Written by hand. */
// clang-format off
static const char *const expected[INTENT_STATE_COUNT] = {
    /*                      go   made refu unsu list abse repo drain keep done end  late park halt wake */
    [INTENT_WANTED]     = " CGc  -    -    -    CD   WA   RG   EN    WA   EDr  EN   EN   -    -    -",
    [INTENT_CREATING]   = " CG   CD   EN   CG   CD   CGc  RG   EDr   CG   EDr  EDr  EDr  -    -    -",
    [INTENT_CREATED]    = " CD   CD   CD   CD   CD   EN   RG   EDr   CD   EDr  EDr  EDr  -    -    -",
    [INTENT_REGISTERED] = " RG   RG   RG   RG   RG   EN   RG   DR    RG   EDr  EDr  EDr  -    -    -",
    [INTENT_DRAINING]   = " DR   DR   DR   DR   DR   EN   DR   DR    RG   EDr  EDr  EDr  SGs  -    -",
    [INTENT_STOPPING]   = " SG   SG   EDr  SG   SGs  EN   SG   SG    SG   SG   EDr  EDr  SG   SD   -",
    [INTENT_STOPPED]    = " SD   SD   SD   SD   EDr  EN   EDr  EDr   SD   SD   EDr  EDr  -    SD   STt",
    [INTENT_STARTING]   = " ST   ST   SD   ST   CD   EN   RG   EDr   ST   EDr  EDr  EDr  -    STt  -",
    [INTENT_ENDING]     = " ED   EDr  ED   ED   EDr  EN   ED   ED    ED   ED   ED   EDr  -    ED   -",
    [INTENT_ENDED]      = " EN   EDr  EN   EN   EDr  EN   EDr  EN    EN   EN   EN   EN   -    -    -",
};

static const char *const letters[INTENT_STATE_COUNT] = {
    [INTENT_WANTED] = "WA", [INTENT_CREATING] = "CG", [INTENT_CREATED] = "CD",
    [INTENT_REGISTERED] = "RG", [INTENT_DRAINING] = "DR", [INTENT_ENDING] = "ED",
    [INTENT_STOPPING] = "SG", [INTENT_STOPPED] = "SD", [INTENT_STARTING] = "ST",
    [INTENT_ENDED] = "EN",
};

// clang-format on

static void every_cell_is_as_written(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < INTENT_STATE_COUNT; s++) {
        const char *at = expected[s];
        for (uint32_t e = 0; e < INTENT_EVENT_COUNT; e++) {
            at += strspn(at, " ");
            size_t len = strcspn(at, " ");
            struct intent_cell c = intent_cell(s, e);
            char got[8] = "-";
            if (c.possible)
                snprintf(got, sizeof got, "%s%s", letters[c.next],
                         c.action == INTENT_CALL_CREATE   ? "c"
                         : c.action == INTENT_CALL_REMOVE ? "r"
                         : c.action == INTENT_CALL_STOP   ? "s"
                         : c.action == INTENT_CALL_START  ? "t"
                                                          : "");
            if (strlen(got) != len || memcmp(got, at, len) != 0)
                fail_msg("%s, %s: %s, expected %.*s", intent_state_names[s], intent_event_names[e],
                         got, (int)len, at);
            at += len;
        }
        assert_int_equal(strspn(at, " "), strlen(at));
    }
}

static void no_create_call_after_an_end(void **state)
{
    (void)state;
    /* Once an intent is to end, no event in any order buys for it again. */
    for (uint32_t s = INTENT_ENDING; s < INTENT_STATE_COUNT; s++)
        for (uint32_t e = 0; e < INTENT_EVENT_COUNT; e++) {
            struct intent_cell c = intent_cell(s, e);
            if (!c.possible) continue;
            assert_int_not_equal(c.action, INTENT_CALL_CREATE);
            assert_in_range(c.next, INTENT_ENDING, INTENT_ENDED);
        }
}

static struct intent sample(void)
{
    struct intent i = { .price_h = 3.6, .wanted_us = 10 * SECOND };
    snprintf(i.id, sizeof i.id, "i-0123456789ab");
    snprintf(i.service, sizeof i.service, "chat");
    snprintf(i.pool, sizeof i.pool, "small");
    snprintf(i.provider, sizeof i.provider, "local");
    snprintf(i.offer, sizeof i.offer, "share20");
    return i;
}

static void times_follow_the_life(void **state)
{
    (void)state;
    struct intent i = sample();
    assert_int_equal(intent_step(&i, INTENT_GO, NULL, 11 * SECOND), INTENT_CALL_CREATE);
    assert_int_equal(i.calls, 1);
    assert_true(intent_is_billed(&i));
    intent_step(&i, INTENT_UNSURE, NULL, 12 * SECOND);
    assert_int_equal(intent_step(&i, INTENT_ABSENT, NULL, 15 * SECOND), INTENT_CALL_CREATE);
    assert_int_equal(i.calls, 2);
    intent_step(&i, INTENT_MADE, NULL, 20 * SECOND);
    intent_step(&i, INTENT_REPORTED, NULL, 25 * SECOND);
    assert_int_equal(i.registered_us, 25 * SECOND);
    intent_step(&i, INTENT_DRAIN, "too many", 100 * SECOND);
    assert_string_equal(i.why, "too many");
    intent_step(&i, INTENT_KEEP, NULL, 101 * SECOND);
    assert_int_equal(i.drain_us, 0);
    intent_step(&i, INTENT_DRAIN, NULL, 110 * SECOND);
    assert_int_equal(intent_step(&i, INTENT_DRAINED, NULL, 115 * SECOND), INTENT_CALL_REMOVE);
    intent_step(&i, INTENT_ABSENT, NULL, 120 * SECOND);
    assert_int_equal(i.state, INTENT_ENDED);
    /* 15 s to 120 s at 3.6 dollars an hour: it may have been there since the call */
    assert_true(fabs(charge_total(&i, 500 * SECOND) - 0.105) < 1e-9);
    assert_true(fabs(charge_unsure(&i, 500 * SECOND) - 0.005) < 1e-9);
}

static void refused_intents_cost_nothing(void **state)
{
    (void)state;
    struct intent i = sample();
    assert_true(charge_total(&i, 500 * SECOND) <= 0);
    intent_step(&i, INTENT_GO, NULL, 11 * SECOND);
    assert_true(charge_total(&i, 12 * SECOND) > 0); /* it may exist until a refusal comes */
    intent_step(&i, INTENT_REFUSED, "sold out", 12 * SECOND);
    assert_true(charge_total(&i, 500 * SECOND) <= 0);
}

static void stored_form_reads_back(void **state)
{
    (void)state;
    struct intent i = sample();
    intent_step(&i, INTENT_GO, NULL, 11 * SECOND);
    intent_step(&i, INTENT_MADE, "a \"quoted\" reason", 12 * SECOND);
    name_copy(i.handle, sizeof i.handle, STR("pid 7"));
    i.adopted = true;
    i.age_limit_us = 3600 * SECOND;
    name_copy(i.joined, sizeof i.joined, STR("0123456789abcdef0123456789abcdef"));
    i.joined_us = 13 * SECOND;
    i.contested_us = 14 * SECOND;

    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(intent_encode(&i, &text), 0);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 65536);
    struct intent back = { .version = 9 };
    struct err err;
    assert_int_equal(intent_decode(buf_view(&text), &arena, &back, &err), 0);
    assert_int_equal(back.version, 9);
    back.version = i.version;
    assert_memory_equal(&back.state, &i.state, sizeof back.state);
    assert_string_equal(back.id, i.id);
    assert_string_equal(back.why, i.why);
    assert_string_equal(back.handle, i.handle);
    assert_int_equal(back.made_us, i.made_us);
    assert_int_equal(back.age_limit_us, i.age_limit_us);
    assert_true(back.adopted);
    assert_string_equal(back.joined, i.joined);
    assert_true(back.joined_us == i.joined_us && back.contested_us == i.contested_us);
    assert_true(fabs(back.price_h - i.price_h) < 1e-12);
}

/* A sentence cut within a character reads back, and is then written the same way. */
static void torn_sentences_read_back(void **state)
{
    (void)state;
    static const char *const tails[] = { "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\x80\x80\xff" };
    for (size_t t = 0; t < COUNT_OF(tails); t++)
        for (size_t cut = 0; cut <= 8; cut++) {
            struct intent i = sample();
            size_t keep = sizeof i.why - 1 - strlen(tails[t]) - cut;
            memset(i.why, 'x', keep);
            for (size_t k = keep; k + strlen(tails[t]) < sizeof i.why; k += strlen(tails[t]))
                memcpy(i.why + k, tails[t], strlen(tails[t]));
            i.why[sizeof i.why - 1] = 0;
            CLEANUP(buf_fini) struct buf text = { 0 }, again = { 0 };
            CLEANUP(arena_fini) struct arena arena;
            arena_init(&arena, 65536);
            struct intent back = { 0 };
            struct err err = { 0 };
            assert_int_equal(intent_encode(&i, &text), 0);
            if (intent_decode(buf_view(&text), &arena, &back, &err) < 0)
                fail_msg("tail %zu, %zu left out: %s", t, cut, err.text);
            assert_memory_equal(back.why, i.why, keep);
            assert_int_equal(intent_encode(&back, &again), 0);
            assert_true(str_eq(buf_view(&text), buf_view(&again)));
        }
}

static void every_state_reads_back(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < INTENT_STATE_COUNT; s++) {
        struct intent i = sample();
        i.state = (enum intent_state)s;
        CLEANUP(buf_fini) struct buf text = { 0 };
        CLEANUP(arena_fini) struct arena arena;
        arena_init(&arena, 65536);
        struct intent back = { 0 };
        assert_int_equal(intent_encode(&i, &text), 0);
        assert_int_equal(intent_decode(buf_view(&text), &arena, &back, NULL), 0);
        assert_int_equal(back.state, s);
    }
}

static void damaged_records_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "", "empty" },
        { "{}", "no version" },
        { "{\"v\":1,\"id\":\"x\"}", "members missing" },
        { "{\"v\":1,\"id\":\"x\",\"service\":\"s\",\"pool\":\"p\",\"provider\":\"l\","
          "\"offer\":\"o\",\"state\":\"flying\"}",
          "no such state" },
        { "{\"v\":1,\"id\":\"0123456789abcdef0123\",\"service\":\"s\",\"pool\":\"p\","
          "\"provider\":\"l\",\"offer\":\"o\",\"state\":\"wanted\"}",
          "an id that does not fit" },
        { "{\"v\":1,\"id\":\"x\",\"service\":\"s\",\"pool\":\"p\",\"provider\":\"l\","
          "\"offer\":\"o\",\"state\":\"wanted\",\"price_h\":-1}",
          "a negative price" },
    };
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        CLEANUP(arena_fini) struct arena arena;
        arena_init(&arena, 65536);
        struct intent back = { .version = 5 };
        struct err err;
        int rc = intent_decode(str_from(rows[r].text), &arena, &back, &err);
        if (rc >= 0 || back.version != 5 || back.id[0]) fail_msg("%s: %d", rows[r].why, rc);
    }
}

static void back_off_depends_on_the_error(void **state)
{
    (void)state;
    struct offer_health h = { 0 };
    assert_true(offer_may_be_asked(&h, 0));
    offer_answered(&h, OFFER_CAPACITY, "sold out", 100 * SECOND);
    assert_int_equal(h.until_us, 120 * SECOND);
    assert_false(offer_may_be_asked(&h, 119 * SECOND));
    assert_true(offer_may_be_asked(&h, 120 * SECOND));
    offer_answered(&h, OFFER_CAPACITY, NULL, 120 * SECOND);
    assert_int_equal(h.until_us, 160 * SECOND); /* doubled */
    for (int i = 0; i < 10; i++)
        offer_answered(&h, OFFER_CAPACITY, NULL, 200 * SECOND);
    assert_int_equal(h.until_us, 380 * SECOND); /* the maximum: three minutes */
    offer_answered(&h, OFFER_THROTTLE, NULL, 200 * SECOND);
    assert_int_equal(h.until_us, 201 * SECOND); /* another class starts its own back-off */
    offer_answered(&h, OFFER_OK, NULL, 200 * SECOND);
    assert_int_equal(h.failures, 0);
    assert_true(offer_may_be_asked(&h, 200 * SECOND));
}

static void lead_time_is_learned(void **state)
{
    (void)state;
    struct offer o = { .lead_s = 100 };
    for (int i = 0; i < 20; i++)
        offer_learn_lead(&o, 10);
    assert_true(o.lead_s > 10 && o.lead_s < 11);
    offer_learn_lead(&o, NAN);
    assert_true(o.lead_s < 11);
}

static void a_token_lets_one_agent_in(void **state)
{
    (void)state;
    static const struct {
        enum intent_state is;
        const char *joined, *mark;
        int64_t called_s, made_s;
        bool adopted;
        enum join_verdict want;
        const char *why;
    } rows[] = {
        { INTENT_CREATING, "", "a", 100, 0, false, JOIN_FIRST, "before the create's reply" },
        { INTENT_CREATED, "", "a", 100, 0, false, JOIN_FIRST, "as it should be" },
        { INTENT_CREATED, "", "a", 39, 0, false, JOIN_LATE, "its minute is over" },
        { INTENT_CREATED, "", "a", 40, 0, false, JOIN_FIRST, "the last moment" },
        { INTENT_CREATED, "", "a", 10, 90, false, JOIN_FIRST, "the machine was long in coming" },
        { INTENT_CREATED, "a", "a", 100, 0, false, JOIN_AGAIN, "the reply was lost" },
        { INTENT_REGISTERED, "a", "a", 1, 0, false, JOIN_AGAIN, "the same agent, much later" },
        { INTENT_CREATED, "a", "b", 100, 0, false, JOIN_TAKEN, "two have the token" },
        { INTENT_REGISTERED, "a", "b", 100, 0, false, JOIN_TAKEN, "and one of them serves" },
        { INTENT_DRAINING, "a", "b", 100, 0, false, JOIN_TAKEN, "or leaves" },
        { INTENT_REGISTERED, "a", "b", 39, 0, false, JOIN_LATE, "old user data contests nothing" },
        { INTENT_WANTED, "", "a", 0, 0, false, JOIN_CLOSED, "no token was given out" },
        { INTENT_REGISTERED, "", "a", 100, 0, false, JOIN_CLOSED, "its agent has a key" },
        { INTENT_CREATED, "", "a", 100, 0, true, JOIN_CLOSED,
          "the record was lost: it may be used" },
        { INTENT_ENDING, "a", "a", 100, 0, false, JOIN_CLOSED, "nobody comes any more" },
        { INTENT_ENDED, "", "a", 100, 0, false, JOIN_CLOSED, "likewise" },
    };
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        struct intent i = { .state = rows[r].is,
                            .adopted = rows[r].adopted,
                            .called_us = rows[r].called_s * SECOND,
                            .made_us = rows[r].made_s * SECOND };
        must(name_copy(i.joined, sizeof i.joined, str_from(rows[r].joined)) == 0);
        enum join_verdict got = join_judge(&i, rows[r].mark, 60 * SECOND, 100 * SECOND);
        if (got != rows[r].want) fail_msg("%s: %s", rows[r].why, join_verdict_names[got]);
    }
}

static void a_machine_tells_where_its_launch_went(void **state)
{
    (void)state;
    static const struct {
        struct agent_report r; /* ms */
        int64_t launched_s;
        double want[LEAD_PHASE_COUNT]; /* below 0: not known */
        const char *why;
    } rows[] = {
        { { .booted_ms = 70000, .begun_ms = 50000, .started_ms = 30000, .loaded_ms = 10000 },
          100,
          { -1, 30, 20, 20, 20, -1 },
          "a machine that was made" },
        { { .booted_ms = 70000, .begun_ms = 50000, .started_ms = 30000 },
          100,
          { -1, 30, 20, 20, -1, -1 },
          "its engine still loads" },
        { { .booted_ms = 5000000, .begun_ms = 50000, .started_ms = 30000, .loaded_ms = 10000 },
          100,
          { 50, -1, -1, 20, 20, -1 },
          "one that ran before" },
        { { .begun_ms = 50000, .started_ms = 30000, .loaded_ms = 10000 },
          100,
          { 50, -1, -1, 20, 20, -1 },
          "a container" },
        { { .begun_ms = 50000, .started_ms = 60000, .loaded_ms = 70000 },
          10,
          { 0, -1, -1, 0, 0, -1 },
          "times that cannot be" },
        { { .booted_ms = 70000, .started_ms = 1 },
          100,
          { -1, -1, -1, -1, -1, -1 },
          "a later boot" },
        { { .begun_ms = 50000 }, 0, { -1, -1, -1, -1, -1, -1 }, "it was never called for" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct lead l = { 0 };
        lead_take(&rows[i].r, rows[i].launched_s * SECOND, &l);
        for (int p = 0; p < LEAD_PHASE_COUNT; p++)
            if (l.known[p] != (rows[i].want[p] >= 0) ||
                (l.known[p] && fabs(l.s[p] - rows[i].want[p]) > 1e-6))
                fail_msg("%s: %s is %d %g", rows[i].why, lead_phase_names[p], l.known[p], l.s[p]);
    }
}

static void phases_of_a_lead_are_learned(void **state)
{
    (void)state;
    struct offer o = { 0 };
    struct lead launch = { .known = { [LEAD_NODE] = true, [LEAD_PULL] = true },
                           .s = { [LEAD_NODE] = 60, [LEAD_PULL] = 10, [LEAD_LOAD] = 5 } };
    offer_learn_phases(&o, &launch);
    assert_true(o.lead.known[LEAD_NODE] &&
                o.lead.s[LEAD_NODE] > 59.9); /* the first is all that is known */
    assert_false(o.lead.known[LEAD_LOAD] || o.lead.known[LEAD_SCHEDULE]);
    launch.s[LEAD_NODE] = 0;
    for (int i = 0; i < 20; i++)
        offer_learn_phases(&o, &launch);
    assert_true(o.lead.s[LEAD_NODE] < 1 && o.lead.s[LEAD_PULL] > 9.9);
    launch.s[LEAD_PULL] = NAN;
    offer_learn_phases(&o, &launch);
    assert_true(o.lead.s[LEAD_PULL] > 9.9);
}

/* What is left of a launch: of the whole, of its last phases once the agent has reported, of one that is late. */
static void what_is_left_of_a_launch_is_told(void **state)
{
    (void)state;
    const int64_t s = 1000000;
    struct offer o = { .lead_s = 100 };
    struct intent i = { 0 };
    assert_float_equal(offer_left_s(&o, &i, 5000 * s), 100, 1e-9); /* not asked for yet */
    i.called_us = 1000 * s;
    assert_float_equal(offer_left_s(&o, &i, 1030 * s), 70, 1e-9);
    assert_float_equal(offer_left_s(&o, &i, 1200 * s), 50, 1e-9); /* late: a quarter of 200 */
    i.registered_us = 1030 * s;
    assert_float_equal(offer_left_s(&o, &i, 1040 * s), 60, 1e-9); /* phases are not known */
    o.lead.known[LEAD_LOAD] = o.lead.known[LEAD_WARM] = true;
    o.lead.s[LEAD_LOAD] = 20;
    o.lead.s[LEAD_WARM] = 2;
    assert_float_equal(offer_left_s(&o, &i, 1040 * s), 12, 1e-9);
    assert_float_equal(offer_left_s(&o, &i, 1130 * s), 25, 1e-9);
    o.lead.s[LEAD_LOAD] = 0;
    o.lead.s[LEAD_WARM] = 0;
    assert_float_equal(offer_left_s(&o, &i, 1030 * s), 1, 1e-9);
}

static int intent_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_as_written),
        cmocka_unit_test(no_create_call_after_an_end),
        cmocka_unit_test(times_follow_the_life),
        cmocka_unit_test(refused_intents_cost_nothing),
        cmocka_unit_test(stored_form_reads_back),
        cmocka_unit_test(torn_sentences_read_back),
        cmocka_unit_test(every_state_reads_back),
        cmocka_unit_test(damaged_records_are_refused),
        cmocka_unit_test(back_off_depends_on_the_error),
        cmocka_unit_test(lead_time_is_learned),
        cmocka_unit_test(a_token_lets_one_agent_in),
        cmocka_unit_test(a_machine_tells_where_its_launch_went),
        cmocka_unit_test(phases_of_a_lead_are_learned),
        cmocka_unit_test(what_is_left_of_a_launch_is_told),
    };
    return cmocka_run_group_tests_name("intent", tests, NULL, NULL);
}

/* ---- the event that follows from intent, listing and agent; the intent of a listed instance
 * ---- */

#define NOW (1000 * SECOND)
#define NONE INTENT_EVENT_COUNT

/* Times are seconds before NOW; 0: never. */
struct row {
    enum intent_state state;
    int wanted, called, made, removed, drained, ended, since, age;
    int heard;
    enum agent_state agent;
    bool listed, gone, stopped, banned, broken, routed;
    int taken; /* of the listing, before NOW */
    int lag;
    enum intent_event event;
    const char *why;
};

// clang-format off
static const struct row rows[] = {
    { .state = INTENT_WANTED, .wanted = 1, .event = INTENT_GO, .why = "nothing asked yet" },
    { .state = INTENT_WANTED, .wanted = 1, .banned = true, .event = NONE, .why = "offer in back-off" },
    { .state = INTENT_WANTED, .wanted = 400, .banned = true, .event = INTENT_LATE, .why = "waited too long" },
    { .state = INTENT_WANTED, .wanted = 1, .listed = true, .event = INTENT_LISTED, .why = "found after a restore" },
    { .state = INTENT_CREATING, .wanted = 9, .called = 8, .listed = true, .event = INTENT_LISTED, .why = "lost reply, but it is there" },
    { .state = INTENT_CREATING, .wanted = 9, .called = 8, .event = INTENT_ABSENT, .why = "proven absent: call again" },
    { .state = INTENT_CREATING, .wanted = 9, .called = 8, .lag = 8, .event = NONE, .why = "the listing may lag" },
    { .state = INTENT_CREATING, .wanted = 9, .called = 8, .taken = 8, .event = NONE, .why = "listed before the call" },
    { .state = INTENT_CREATING, .wanted = 9, .called = 8, .broken = true, .event = NONE, .why = "a failed listing proves nothing" },
    { .state = INTENT_CREATING, .wanted = 9, .called = 8, .banned = true, .event = NONE, .why = "absent, and not to be asked now" },
    { .state = INTENT_CREATING, .wanted = 9, .called = 8, .heard = 1, .agent = AGENT_STARTING, .event = INTENT_REPORTED, .why = "the agent was faster" },
    { .state = INTENT_CREATING, .wanted = 400, .called = 1, .event = INTENT_LATE, .why = "repeated calls do not put the deadline off" },
    { .state = INTENT_CREATED, .wanted = 9, .called = 8, .made = 7, .listed = true, .event = NONE, .why = "it boots" },
    { .state = INTENT_CREATED, .wanted = 9, .called = 8, .made = 7, .event = INTENT_ABSENT, .why = "vanished" },
    { .state = INTENT_CREATED, .wanted = 9, .called = 8, .made = 7, .listed = true, .gone = true, .event = INTENT_DRAINED, .why = "died while booting" },
    { .state = INTENT_CREATED, .wanted = 400, .called = 399, .made = 398, .listed = true, .event = INTENT_LATE, .why = "never reported" },
    { .state = INTENT_REGISTERED, .called = 50, .heard = 1, .agent = AGENT_UP, .listed = true, .event = NONE, .why = "all is well" },
    { .state = INTENT_REGISTERED, .called = 50, .heard = 1, .agent = AGENT_UP, .event = NONE, .why = "a fresh report outweighs a listing" },
    { .state = INTENT_REGISTERED, .called = 50, .heard = 20, .agent = AGENT_UP, .event = INTENT_ABSENT, .why = "silent and not listed" },
    { .state = INTENT_REGISTERED, .called = 50, .heard = 7, .lag = 8, .agent = AGENT_UP, .event = NONE, .why = "heard after what the listing shows" },
    { .state = INTENT_REGISTERED, .called = 50, .heard = 1, .agent = AGENT_STOPPED, .listed = true, .event = INTENT_DRAINED, .why = "it ended itself" },
    { .state = INTENT_REGISTERED, .called = 900, .heard = 599, .agent = AGENT_UP, .listed = true, .event = NONE, .why = "silent, not for long" },
    { .state = INTENT_REGISTERED, .called = 900, .heard = 600, .agent = AGENT_UP, .listed = true, .event = INTENT_LATE, .why = "silent for too long" },
    { .state = INTENT_REGISTERED, .called = 900, .heard = 600, .agent = AGENT_UP, .listed = true, .routed = true, .event = NONE, .why = "silent, but a router is served by it" },
    { .state = INTENT_DRAINING, .called = 900, .drained = 10, .heard = 1, .agent = AGENT_DRAINING, .listed = true, .event = NONE, .why = "it drains" },
    { .state = INTENT_DRAINING, .called = 900, .drained = 10, .heard = 1, .agent = AGENT_STOPPED, .listed = true, .event = INTENT_DRAINED, .why = "drained" },
    { .state = INTENT_DRAINING, .called = 900, .drained = 330, .heard = 1, .agent = AGENT_DRAINING, .listed = true, .event = INTENT_LATE, .why = "the drain's deadline" },
    { .state = INTENT_STOPPING, .called = 900, .removed = 4, .since = 4, .listed = true, .event = NONE, .why = "just asked" },
    { .state = INTENT_STOPPING, .called = 900, .removed = 5, .since = 5, .listed = true, .event = INTENT_LISTED, .why = "it runs on: ask again" },
    { .state = INTENT_STOPPING, .called = 900, .removed = 9, .since = 9, .listed = true, .lag = 9, .event = NONE, .why = "the listing cannot show the call yet" },
    { .state = INTENT_STOPPING, .called = 900, .removed = 4, .since = 4, .listed = true, .gone = true, .stopped = true, .event = INTENT_HALTED, .why = "it stands" },
    { .state = INTENT_STOPPING, .called = 900, .removed = 4, .since = 4, .event = INTENT_ABSENT, .why = "it ended in place of that" },
    { .state = INTENT_STOPPING, .called = 900, .removed = 9, .since = 301, .listed = true, .event = INTENT_LATE, .why = "it never stands" },
    { .state = INTENT_STOPPED, .called = 900, .removed = 50, .since = 40, .listed = true, .gone = true, .stopped = true, .event = NONE, .why = "at rest" },
    { .state = INTENT_STOPPED, .called = 900, .removed = 50, .since = 40, .event = INTENT_ABSENT, .why = "somebody has removed it" },
    { .state = INTENT_STOPPED, .called = 900, .removed = 50, .since = 40, .broken = true, .event = NONE, .why = "no listing proves nothing" },
    { .state = INTENT_STOPPED, .called = 900, .removed = 50, .since = 40, .listed = true, .event = INTENT_LISTED, .why = "somebody has started it" },
    { .state = INTENT_STOPPED, .called = 900, .removed = 50, .since = 4, .lag = 8, .listed = true, .event = NONE, .why = "the listing is of before the stop" },
    { .state = INTENT_STOPPED, .wanted = 100, .age = 100, .called = 90, .removed = 50, .since = 40, .listed = true, .gone = true, .stopped = true, .event = INTENT_LATE, .why = "beyond its age" },
    { .state = INTENT_STARTING, .called = 4, .since = 4, .listed = true, .event = INTENT_LISTED, .why = "it runs" },
    { .state = INTENT_STARTING, .called = 4, .since = 4, .lag = 8, .listed = true, .gone = true, .stopped = true, .event = NONE, .why = "the listing cannot show the start yet" },
    { .state = INTENT_STARTING, .called = 9, .since = 9, .lag = 8, .listed = true, .gone = true, .stopped = true, .event = INTENT_HALTED, .why = "the call came to nothing: again" },
    { .state = INTENT_STARTING, .called = 9, .since = 9, .listed = true, .gone = true, .stopped = true, .banned = true, .event = NONE, .why = "it is not to be asked now" },
    { .state = INTENT_STARTING, .called = 9, .since = 9, .heard = 1, .agent = AGENT_STARTING, .listed = true, .gone = true, .stopped = true, .event = INTENT_REPORTED, .why = "the agent was faster" },
    { .state = INTENT_STARTING, .called = 9, .since = 301, .listed = true, .gone = true, .stopped = true, .event = INTENT_LATE, .why = "repeated calls do not put the deadline off" },
    { .state = INTENT_STARTING, .called = 9, .since = 9, .event = INTENT_ABSENT, .why = "it is gone" },
    { .state = INTENT_ENDING, .called = 900, .removed = 4, .listed = true, .event = NONE, .why = "just asked" },
    { .state = INTENT_ENDING, .called = 900, .removed = 5, .listed = true, .event = INTENT_LISTED, .why = "still there: ask again" },
    { .state = INTENT_ENDING, .called = 900, .removed = 8, .lag = 8, .event = NONE, .why = "not listed, but a call now would put its proof off for ever" },
    { .state = INTENT_ENDING, .called = 900, .removed = 8, .lag = 8, .listed = true, .event = NONE, .why = "the listing cannot show the call yet" },
    { .state = INTENT_ENDING, .called = 900, .removed = 9, .lag = 8, .listed = true, .event = INTENT_LISTED, .why = "it could show it, and does not" },
    { .state = INTENT_ENDING, .called = 900, .removed = 4, .event = INTENT_ABSENT, .why = "gone" },
    { .state = INTENT_ENDING, .called = 900, .removed = 4, .taken = 4, .event = NONE, .why = "listed before the call" },
    { .state = INTENT_ENDING, .called = 900, .removed = 6, .broken = true, .event = INTENT_LATE, .why = "no listing: ask again anyway" },
    { .state = INTENT_ENDED, .called = 900, .removed = 50, .ended = 40, .event = NONE, .why = "at rest" },
    { .state = INTENT_ENDED, .called = 900, .removed = 50, .ended = 40, .listed = true, .event = INTENT_LISTED, .why = "late success" },
    { .state = INTENT_ENDED, .called = 900, .removed = 50, .ended = 4, .lag = 8, .listed = true, .event = NONE, .why = "the listing is of before the end" },
    { .state = INTENT_ENDED, .called = 900, .removed = 50, .ended = 40, .heard = 1, .agent = AGENT_UP, .event = INTENT_REPORTED, .why = "it lives" },
    { .state = INTENT_ENDED, .called = 900, .removed = 50, .ended = 40, .heard = 1, .agent = AGENT_STOPPED, .event = NONE, .why = "its last words" },
};

// clang-format on

static int64_t ago(int seconds)
{
    return seconds ? NOW - seconds * SECOND : 0;
}

static void events_follow_from_the_witnesses(void **state)
{
    (void)state;
    const struct merge_config config = MERGE_CONFIG_DEFAULT;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *r = &rows[i];
        struct intent intent = { .state = r->state,
                                 .wanted_us = ago(r->wanted),
                                 .called_us = ago(r->called),
                                 .made_us = ago(r->made),
                                 .registered_us = ago(r->called),
                                 .drain_us = ago(r->drained),
                                 .removed_us = ago(r->removed),
                                 .ended_us = ago(r->ended),
                                 .state_us = ago(r->since),
                                 .age_limit_us = r->age * SECOND };
        struct sighting seen = { .heard_us = ago(r->heard), .state = r->agent };
        struct listed item = { .gone = r->gone, .stopped = r->stopped };
        struct listing listing = { .provider = "local",
                                   .item = &item,
                                   .count = r->listed,
                                   .ok = !r->broken,
                                   .taken_us = r->taken ? ago(r->taken) : NOW,
                                   .lag_us = r->lag * SECOND };
        struct merge_view v = { .intent = &intent,
                                .seen = &seen,
                                .listing = &listing,
                                .item = r->listed ? &item : NULL,
                                .may_ask = !r->banned,
                                .routed = r->routed,
                                .listening_us = NOW - 950 * SECOND };
        enum intent_event got = merge_event(&v, &config, NOW);
        if (got != r->event)
            fail_msg("%s (%s): %s", r->why, intent_state_names[r->state],
                     got < NONE ? intent_event_names[got] : "nothing");
        if (got < NONE) assert_true(intent_cell(r->state, got).possible);
    }
}

static void silence_after_a_restart_is_counted_from_it(void **state)
{
    (void)state;
    const struct merge_config config = MERGE_CONFIG_DEFAULT;
    struct intent intent = { .state = INTENT_REGISTERED, .registered_us = SECOND };
    struct sighting seen = { 0 };
    struct listed item = { 0 };
    struct listing listing = { .item = &item, .count = 1, .ok = true, .taken_us = NOW };
    struct merge_view v = { .intent = &intent,
                            .seen = &seen,
                            .listing = &listing,
                            .item = &item,
                            .may_ask = true,
                            .listening_us = NOW - 5 * SECOND };
    assert_int_equal(merge_event(&v, &config, NOW), NONE);
    assert_int_equal(merge_phase(&intent, &seen, &config, NOW), PHASE_READY);
}

/* The call's date may be another machine's, hours off: only a listing taken since our start
 * counts. */
static void absence_is_proven_by_listings_since_our_start(void **state)
{
    (void)state;
    const struct merge_config config = MERGE_CONFIG_DEFAULT;
    struct intent intent = { .state = INTENT_REGISTERED,
                             .called_us = SECOND,
                             .registered_us = SECOND };
    struct sighting seen = { 0 };
    struct listing listing = { .ok = true, .taken_us = NOW, .lag_us = 8 * SECOND };
    struct merge_view v = { .intent = &intent,
                            .seen = &seen,
                            .listing = &listing,
                            .item = NULL,
                            .may_ask = true,
                            .listening_us = NOW - 5 * SECOND };
    assert_int_equal(merge_event(&v, &config, NOW), NONE);
    v.listening_us = NOW - 10 * SECOND;
    assert_int_equal(merge_event(&v, &config, NOW), INTENT_ABSENT);
}

/* An intent that was over its limit when a late turn began gets its whole limit again. */
static void our_own_gap_is_no_evidence(void **state)
{
    (void)state;
    static const struct {
        enum intent_state state;
        int64_t limit_us;
        bool listed;
    } gap[] = {
        { INTENT_WANTED, 300 * SECOND, false },  { INTENT_CREATING, 300 * SECOND, false },
        { INTENT_CREATED, 300 * SECOND, true },  { INTENT_REGISTERED, 600 * SECOND, true },
        { INTENT_DRAINING, 330 * SECOND, true },
    };
    const struct merge_config config = MERGE_CONFIG_DEFAULT;
    for (size_t i = 0; i < COUNT_OF(gap); i++) {
        struct intent in = { .state = gap[i].state,
                             .wanted_us = SECOND,
                             .called_us = SECOND,
                             .made_us = SECOND,
                             .registered_us = SECOND,
                             .drain_us = SECOND };
        struct sighting seen = { .heard_us = gap[i].state >= INTENT_REGISTERED ? 2 * SECOND : 0,
                                 .state = AGENT_UP };
        struct listed item = { 0 };
        struct listing listing = { .item = &item, .count = gap[i].listed, .ok = true };
        struct merge_view v = { .intent = &in,
                                .seen = &seen,
                                .listing = &listing,
                                .item = gap[i].listed ? &item : NULL,
                                .listening_us = NOW };
        int64_t over_us = NOW + gap[i].limit_us;
        if (merge_event(&v, &config, NOW) != NONE || merge_event(&v, &config, over_us - 1) != NONE)
            fail_msg("%s: ended by our own gap", intent_state_names[gap[i].state]);
        if (merge_event(&v, &config, over_us) != INTENT_LATE)
            fail_msg("%s: never late", intent_state_names[gap[i].state]);
    }
}

static void phases(void **state)
{
    (void)state;
    static const struct {
        enum intent_state state;
        int heard;
        enum agent_state agent;
        bool engine;
        enum phase phase;
        const char *why;
    } p[] = {
        { INTENT_WANTED, 0, 0, false, PHASE_STARTING, "asked for" },
        { INTENT_CREATED, 0, 0, false, PHASE_STARTING, "boots" },
        { INTENT_REGISTERED, 1, AGENT_STARTING, false, PHASE_STARTING, "loads" },
        { INTENT_REGISTERED, 1, AGENT_UP, true, PHASE_READY, "serves" },
        { INTENT_REGISTERED, 1, AGENT_UP, false, PHASE_STARTING, "agent up, engine not" },
        { INTENT_REGISTERED, 1, AGENT_WAITING, false, PHASE_STARTING, "its engine comes back" },
        { INTENT_REGISTERED, 9, AGENT_UP, true, PHASE_READY, "silence is not death" },
        { INTENT_REGISTERED, 1, AGENT_STOPPED, false, PHASE_ENDING, "ended itself" },
        { INTENT_DRAINING, 1, AGENT_DRAINING, true, PHASE_DRAINING, "drains" },
        { INTENT_ENDING, 1, AGENT_UP, true, PHASE_ENDING, "ends" },
    };
    const struct merge_config config = MERGE_CONFIG_DEFAULT;
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        struct intent intent = { .state = p[i].state };
        struct sighting seen = { .heard_us = ago(p[i].heard),
                                 .state = p[i].agent,
                                 .engine_ready = p[i].engine };
        enum phase got = merge_phase(&intent, &seen, &config, NOW);
        if (got != p[i].phase) fail_msg("%s: %s", p[i].why, phase_names[got]);
    }
}

static bool chat_is_known(const void *ctx, const char *service, const char *pool,
                          const char *provider)
{
    (void)ctx;
    return strcmp(service, "chat") == 0 && strcmp(pool, "small") == 0 &&
           strcmp(provider, "local") == 0;
}

static struct listed entry(const char *handle, const char *intent, const char *service, int age)
{
    struct listed l = { .created_us = ago(age) };
    snprintf(l.handle, sizeof l.handle, "%s", handle);
    snprintf(l.intent, sizeof l.intent, "%s", intent);
    snprintf(l.service, sizeof l.service, "%s", service);
    snprintf(l.pool, sizeof l.pool, "small");
    return l;
}

static void claims(void **state)
{
    (void)state;
    struct intent intents[2] = { { .state = INTENT_CREATING }, { .state = INTENT_REGISTERED } };
    snprintf(intents[0].id, sizeof intents[0].id, "i-a");
    snprintf(intents[1].id, sizeof intents[1].id, "i-b");
    snprintf(intents[1].handle, sizeof intents[1].handle, "h3");
    const struct {
        struct listed item;
        struct claimed claimed;
        const char *why;
    } r[] = {
        { entry("h1", "i-a", "chat", 5), { CLAIM_OWN, 0 }, "the first under an unknown handle" },
        { entry("h2", "i-a", "chat", 5), { CLAIM_DUPLICATE, 0 }, "the second" },
        { entry("h4", "i-b", "chat", 5), { CLAIM_DUPLICATE, 1 }, "first, but not the one we know" },
        { entry("h3", "i-b", "chat", 5), { CLAIM_OWN, 1 }, "the one we know" },
        { entry("h5", "i-c", "chat", 5), { CLAIM_ADOPT, UINT32_MAX }, "an orphan that serves" },
        { entry("h6", "i-d", "gone", 5), { CLAIM_WAIT, UINT32_MAX }, "nobody knows it, yet" },
        { entry("h7", "i-e", "gone", 60), { CLAIM_END, UINT32_MAX }, "nobody ever will" },
        { entry("h8", "", "chat", 60), { CLAIM_END, UINT32_MAX }, "no tag: no id to adopt" },
    };
    struct listed items[COUNT_OF(r)];
    for (size_t i = 0; i < COUNT_OF(r); i++)
        items[i] = r[i].item;
    struct listing l = { .provider = "local", .item = items, .count = COUNT_OF(r), .ok = true };
    struct claimed got[COUNT_OF(r)];
    const struct merge_config config = MERGE_CONFIG_DEFAULT;
    const struct merge_fleet fleet = { intents, 2, chat_is_known, NULL };
    merge_claims(&l, &fleet, &config, NOW, got);
    for (size_t i = 0; i < COUNT_OF(r); i++)
        if (got[i].claim != r[i].claimed.claim || got[i].owner != r[i].claimed.owner)
            fail_msg("%s: claim %d", r[i].why, got[i].claim);
}

/* A create that makes several things goes on until a reply says that all are there, whatever a listing says. */
static void a_create_in_parts_is_completed(void **state)
{
    (void)state;
    const struct merge_config config = MERGE_CONFIG_DEFAULT;
    struct intent intent = { .state = INTENT_CREATING,
                             .wanted_us = NOW - 20 * SECOND,
                             .called_us = NOW - 20 * SECOND };
    struct sighting seen = { 0 };
    struct listed item = { 0 };
    struct listing listing = { .item = &item, .count = 1, .ok = true, .taken_us = NOW };
    struct merge_view v = { .intent = &intent,
                            .seen = &seen,
                            .listing = &listing,
                            .item = &item,
                            .listening_us = NOW - 950 * SECOND };
    assert_int_equal(merge_event(&v, &config, NOW), INTENT_LISTED);
    v.in_parts = true; /* its offer is in back-off: nothing is bought, so that does not matter */
    assert_int_equal(merge_event(&v, &config, NOW), INTENT_ABSENT);
    v.answered_us = NOW - config.retry_us + 1;
    assert_int_equal(merge_event(&v, &config, NOW), NONE);
    v.answered_us = 0;
    v.calling = true;
    assert_int_equal(merge_event(&v, &config, NOW), NONE);
    v.calling = false;
    seen.heard_us = NOW; /* its agent reports: it has all that it needs */
    assert_int_equal(merge_event(&v, &config, NOW), INTENT_REPORTED);
    seen.heard_us = 0;
    intent.wanted_us = NOW - config.boot_us;
    assert_int_equal(merge_event(&v, &config, NOW), INTENT_LATE);
    intent.state = INTENT_CREATED;
    intent.made_us = NOW;
    assert_int_equal(merge_event(&v, &config, NOW), NONE);
}

static int merge_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_follow_from_the_witnesses),
        cmocka_unit_test(silence_after_a_restart_is_counted_from_it),
        cmocka_unit_test(absence_is_proven_by_listings_since_our_start),
        cmocka_unit_test(our_own_gap_is_no_evidence),
        cmocka_unit_test(phases),
        cmocka_unit_test(claims),
        cmocka_unit_test(a_create_in_parts_is_completed),
    };
    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}

int main(void)
{
    return intent_tests() + merge_tests();
}
