/* t_history.c - tests each rule with histories that keep it and histories that break it. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/history/history.h"
#include "tests/unit/unit.h"

#include <string.h>

#define S 1000000
#define EVENTS_MAX 8

enum what { NOTHING, SENT, TOKENS, OVER, ENDED, SPEND };

struct event {
    enum what what;
    double at_s;
    uint32_t request;
    int kind; /* the key, or the outcome */
    uint64_t index, count;
    const char *text; /* of tokens, or the reason of an end */
    double dollars_h;
};

struct row {
    const char *why;
    enum history_rule rule; /* HISTORY_RULE_COUNT: all is well */
    struct event event[EVENTS_MAX];
    double end_s;
};

#define ASK(at, key)                        \
    {                                       \
        SENT, at, .kind = HISTORY_KEY_##key \
    }
#define PIECE(at, from, n, what)                            \
    {                                                       \
        TOKENS, at, .index = from, .count = n, .text = what \
    }
#define DONE(at, how)                   \
    {                                   \
        OVER, at, .kind = HISTORY_##how \
    }

/* Request 0 expects the output "abcdef" of 6 tokens. Limits are 10 s to the first token, 2 s between
 * tokens and $3 an hour; accepted reasons for an instance's end are "planned" and "lost". */
static const struct row rows[] = {
    { "a whole answer",
      HISTORY_RULE_COUNT,
      { ASK(0, VALID), PIECE(1, 0, 2, "ab"), PIECE(2, 2, 4, "cdef"), DONE(2, FINISHED) },
      100 },
    { "an open service asks for no key",
      HISTORY_RULE_COUNT,
      { ASK(0, NOT_ASKED), PIECE(1, 0, 6, "abcdef"), DONE(2, FINISHED) },
      100 },
    { "refused without a key", HISTORY_RULE_COUNT, { ASK(0, MISSING), DONE(1, ERROR) }, 100 },
    { "tokens without a key",
      HISTORY_KEYS,
      { ASK(0, MISSING), PIECE(1, 0, 2, "ab"), DONE(2, ERROR) },
      100 },
    { "tokens with a revoked key",
      HISTORY_KEYS,
      { ASK(0, INVALID), PIECE(1, 0, 2, "ab"), DONE(2, ERROR) },
      100 },
    { "success without tokens and without a key",
      HISTORY_KEYS,
      { ASK(0, MISSING), DONE(1, FINISHED) },
      100 },

    { "cut off by an error",
      HISTORY_RULE_COUNT,
      { ASK(0, VALID), PIECE(1, 0, 2, "ab"), DONE(2, ERROR) },
      100 },
    { "a piece came twice",
      HISTORY_TOKENS,
      { ASK(0, VALID), PIECE(1, 0, 2, "ab"), PIECE(2, 0, 2, "ab") },
      2 },
    { "a piece is missing",
      HISTORY_TOKENS,
      { ASK(0, VALID), PIECE(1, 0, 2, "ab"), PIECE(2, 3, 3, "def") },
      2 },
    { "the end is missing",
      HISTORY_TOKENS,
      { ASK(0, VALID), PIECE(1, 0, 5, "abcde"), DONE(2, FINISHED) },
      100 },
    { "more than the whole",
      HISTORY_TOKENS,
      { ASK(0, VALID), PIECE(1, 0, 6, "abcdef"), PIECE(2, 6, 1, "g") },
      2 },
    { "another text under the right indices",
      HISTORY_TOKENS,
      { ASK(0, VALID), PIECE(1, 0, 2, "ab"), PIECE(2, 2, 1, "x") },
      2 },
    { "tokens nobody asked for", HISTORY_TOKENS, { PIECE(1, 0, 1, "a") }, 2 },
    { "indices alone: a token is lost",
      HISTORY_TOKENS,
      { { SENT, 0, .request = 1 },
        { TOKENS, 1, .request = 1, .index = 0, .count = 1, .text = "?" },
        { TOKENS, 1, .request = 1, .index = 2, .count = 1, .text = "?" } },
      2 },
    { "text alone: without indices a repeat shows in the text",
      HISTORY_TOKENS,
      { ASK(0, VALID), PIECE(1, HISTORY_INDEX_UNKNOWN, 0, "ab"),
        PIECE(2, HISTORY_INDEX_UNKNOWN, 0, "b") },
      2 },

    { "slow, within the limits",
      HISTORY_RULE_COUNT,
      { ASK(0, VALID), PIECE(10, 0, 2, "ab"), PIECE(12, 2, 4, "cdef"), DONE(14, FINISHED) },
      100 },
    { "the first token is late", HISTORY_GAPS, { ASK(0, VALID), PIECE(10.1, 0, 2, "ab") }, 11 },
    { "a gap in the stream",
      HISTORY_GAPS,
      { ASK(0, VALID), PIECE(1, 0, 2, "ab"), PIECE(3.1, 2, 1, "c") },
      4 },
    { "a gap before the end",
      HISTORY_GAPS,
      { ASK(0, VALID), PIECE(1, 0, 6, "abcdef"), DONE(3.1, FINISHED) },
      4 },
    { "a gap that an error ends",
      HISTORY_RULE_COUNT,
      { ASK(0, VALID), PIECE(1, 0, 2, "ab"), DONE(30, ERROR) },
      100 },
    { "a client that has waited for longer leaves",
      HISTORY_GAPS,
      { ASK(0, VALID), DONE(10.1, LEFT) },
      100 },
    { "a client leaves before", HISTORY_RULE_COUNT, { ASK(0, VALID), DONE(10, LEFT) }, 100 },
    { "a gap that lasts", HISTORY_GAPS, { ASK(0, VALID), PIECE(1, 0, 2, "ab") }, 3.1 },

    { "no outcome", HISTORY_OUTCOMES, { ASK(0, VALID), PIECE(1, 0, 2, "ab") }, 2 },
    { "two outcomes",
      HISTORY_OUTCOMES,
      { ASK(0, VALID), PIECE(1, 0, 6, "abcdef"), DONE(2, FINISHED), DONE(2, ERROR) },
      100 },
    { "tokens after the outcome",
      HISTORY_OUTCOMES,
      { ASK(0, VALID), DONE(1, ERROR), PIECE(2, 0, 1, "a") },
      100 },
    { "an outcome of nothing", HISTORY_OUTCOMES, { DONE(1, ERROR) }, 100 },

    { "ends that were wanted",
      HISTORY_RULE_COUNT,
      { { ENDED, 1, .text = "planned: two are enough" }, { ENDED, 1, .text = "lost" } },
      2 },
    { "an end without a reason", HISTORY_REASONS, { { ENDED, 1, .text = NULL } }, 2 },
    { "an end with an empty reason", HISTORY_REASONS, { { ENDED, 1, .text = "" } }, 2 },
    { "an end for a reason that is none",
      HISTORY_REASONS,
      { { ENDED, 1, .text = "over its deadline" } },
      2 },

    { "within the budget", HISTORY_RULE_COUNT, { { SPEND, 1, .dollars_h = 3 } }, 2 },
    { "over the budget",
      HISTORY_SPEND,
      { { SPEND, 1, .dollars_h = 1 }, { SPEND, 1, .dollars_h = 3.01 } },
      2 },
};

static void tell(struct history *h, const struct event *e)
{
    int64_t at_us = (int64_t)(e->at_s * S);
    switch (e->what) {
    case SENT:
        history_sent(h, e->request, (enum history_key)e->kind, at_us);
        break;
    case TOKENS:
        history_tokens(h, e->request, e->index, e->count, str_from(e->text), at_us);
        break;
    case OVER:
        history_over(h, e->request, (enum history_outcome)e->kind, at_us);
        break;
    case ENDED:
        history_instance_ended(h, "i-1", e->text, at_us);
        break;
    case SPEND:
        history_spend(h, e->dollars_h, at_us);
        break;
    case NOTHING:
        break;
    }
}

static void begin(struct history *h)
{
    static const char *const reasons[] = { "planned", "lost", NULL };
    const struct history_limits limits = {
        .first_us_max = 10 * S, .gap_us_max = 2 * S, .spend_h_max = 3, .reasons = reasons
    };
    history_init(h, &limits);
    history_expects(h, 0, 6, STR("abcdef"));
}

static void each_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(history_fini) struct history h;
        begin(&h);
        for (uint32_t e = 0; e < EVENTS_MAX; e++)
            tell(&h, &rows[i].event[e]);
        const char *said = history_judge(&h, (int64_t)(rows[i].end_s * S));
        enum history_rule rule = said ? h.rule : HISTORY_RULE_COUNT;
        if (rule != rows[i].rule)
            fail_msg("%s: %s", rows[i].why, said ? said : "no violation was found");
    }
}

static void the_first_violation_stays(void **state)
{
    (void)state;
    CLEANUP(history_fini) struct history h;
    begin(&h);
    history_spend(&h, 4, 5 * S);
    history_instance_ended(&h, "i-7", NULL, 6 * S);
    assert_string_equal(history_judge(&h, 7 * S),
                        "the fleet costs $4.0000/h, the budget is $3.0000/h");
    assert_int_equal(h.rule, HISTORY_SPEND);
    assert_int_equal(h.at_us, 5 * S);
}

/* A history without limits and expectations judges nothing. */
static void nothing_known_nothing_judged(void **state)
{
    (void)state;
    CLEANUP(history_fini) struct history h;
    history_init(&h, &(struct history_limits){ 0 });
    history_sent(&h, 0, HISTORY_KEY_VALID, 0);
    history_tokens(&h, 0, HISTORY_INDEX_UNKNOWN, 0, STR("anything"), 1000 * S);
    history_over(&h, 0, HISTORY_FINISHED, 2000 * S);
    history_instance_ended(&h, "i-1", "whatever it was", 0);
    history_spend(&h, 1e9, 0);
    assert_null(history_judge(&h, 9000 * (int64_t)S));
}

/* The table of requests grows beyond its first entries, and each request is judged by itself. */
static void many_requests(void **state)
{
    (void)state;
    CLEANUP(history_fini) struct history h;
    history_init(&h, &(struct history_limits){ 0 });
    for (uint32_t i = 0; i < 5000; i++) {
        history_sent(&h, i, HISTORY_KEY_VALID, i);
        history_tokens(&h, i, 0, 1, STR("a"), i);
    }
    for (uint32_t i = 0; i < 5000; i++)
        if (i != 3210) history_over(&h, i, HISTORY_FINISHED, 5000);
    assert_string_equal(history_judge(&h, 6000), "request 3210 has no outcome");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule),
        cmocka_unit_test(the_first_violation_stays),
        cmocka_unit_test(nothing_known_nothing_judged),
        cmocka_unit_test(many_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
