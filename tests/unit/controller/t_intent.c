/* t_intent.c - every cell of an intent's table, its stored form, its cost; offers' back-off. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/core/offer.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SECOND ((int64_t)1000000)

/* One line a state, one word an event in the order of the enum: "-" impossible, else the next
 * state's two letters, and c (create) or r (remove). Written by hand. */
// clang-format off
static const char *const expected[INTENT_STATE_COUNT] = {
    /*                      go   made refu unsu list abse repo drain keep done end  late */
    [INTENT_WANTED]     = " CGc  -    -    -    CD   WA   RG   EN    WA   EDr  EN   EN",
    [INTENT_CREATING]   = " CG   CD   EN   CG   CD   CGc  RG   EDr   CG   EDr  EDr  EDr",
    [INTENT_CREATED]    = " CD   CD   CD   CD   CD   EN   RG   EDr   CD   EDr  EDr  EDr",
    [INTENT_REGISTERED] = " RG   RG   RG   RG   RG   EN   RG   DR    RG   EDr  EDr  EDr",
    [INTENT_DRAINING]   = " DR   DR   DR   DR   DR   EN   DR   DR    RG   EDr  EDr  EDr",
    [INTENT_ENDING]     = " ED   EDr  ED   ED   EDr  EN   ED   ED    ED   ED   ED   EDr",
    [INTENT_ENDED]      = " EN   EDr  EN   EN   EDr  EN   EDr  EN    EN   EN   EN   EN",
};
static const char *const letters[INTENT_STATE_COUNT] = {
    [INTENT_WANTED] = "WA", [INTENT_CREATING] = "CG", [INTENT_CREATED] = "CD",
    [INTENT_REGISTERED] = "RG", [INTENT_DRAINING] = "DR", [INTENT_ENDING] = "ED",
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
    /* Whatever comes, in any order: once an intent is to end, nothing is bought for it again. */
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
    /* 20 s to 120 s at 3.6 dollars an hour */
    assert_true(fabs(intent_cost(&i, 500 * SECOND) - 0.1) < 1e-9);
}

static void refused_intents_cost_nothing(void **state)
{
    (void)state;
    struct intent i = sample();
    assert_true(intent_cost(&i, 500 * SECOND) <= 0);
    intent_step(&i, INTENT_GO, NULL, 11 * SECOND);
    assert_true(intent_cost(&i, 12 * SECOND) > 0); /* it may exist: counted until it is known */
    intent_step(&i, INTENT_REFUSED, "sold out", 12 * SECOND);
    assert_true(intent_cost(&i, 500 * SECOND) <= 0);
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
    assert_true(fabs(back.price_h - i.price_h) < 1e-12);
}

/* A sentence that was cut within a character reads back, and what reads back is written alike. */
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
    assert_int_equal(h.until_us, 380 * SECOND); /* the cap: three minutes */
    offer_answered(&h, OFFER_THROTTLE, NULL, 200 * SECOND);
    assert_int_equal(h.until_us, 201 * SECOND); /* another class begins anew */
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

int main(void)
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
