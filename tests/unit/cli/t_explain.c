/* t_explain.c - decisions in words: what is known is told, what is not is said to be unknown. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/cmd_explain.h"
#include "tests/unit/unit.h"

/* As /api/v1/decisions has them. */
static const char whole[] =
    "{\"id\":7,\"decision\":{\"at_us\":1000000,\"service\":\"chat\",\"policy\":\"work\","
    "\"reason\":\"work exceeds the fleet\",\"blocked\":\"the budget\",\"hold_s\":12,"
    "\"inputs\":{\"demand_known\":true,\"arrivals_per_s\":2.5,\"late_refused_per_s\":0.4,"
    "\"uncached_prompt_tokens_mean\":100,"
    "\"output_tokens_mean\":40,\"in_flight\":3,\"waiting\":1,\"held\":0,\"idle_s\":0.2,\"demand_"
    "age_s\":1.5,"
    "\"expected\":{\"count\":30,\"prompt_tokens_p90\":400,\"output_tokens_p90\":90},\"queued\":"
    "null,"
    "\"routers_fresh\":true,\"reports_fresh\":2,\"reports_expected\":2},"
    "\"ready\":{\"small\":1,\"large\":0},\"have\":{\"small\":2,\"large\":0},"
    "\"want\":{\"small\":2,\"large\":1},\"target\":{\"small\":2,\"large\":1},\"load\":2.4,"
    "\"estimate_ttft_s\":0.4,\"runner_up\":{\"want\":{\"small\":4,\"large\":0},"
    "\"cost_per_h\":0.4,\"why_not\":\"dearer\"},\"cost_per_h\":0.2,\"cost_per_h_after\":0.42,"
    "\"budget_per_h\":0.5,\"place\":\"joint\",\"placed\":[{\"pool\":\"small\",\"reason\":"
    "\"spot\",\"cost_per_h\":0.1,\"short_share\":0.02},{\"pool\":\"large\",\"reason\":"
    "\"first\",\"cost_per_h\":0.2,\"short_share\":null}],\"actions\":[{\"act\":\"launch\",\"pool\":"
    "\"large\",\"offer\":\"big\","
    "\"instance\":\"i-1\",\"price_per_h\":0.22,\"lead_s\":5},"
    "{\"act\":\"drain\",\"pool\":\"small\",\"instance\":\"i-2\"}]}}";

static const char bare[] =
    "{\"id\":8,\"decision\":{\"at_us\":1000000,\"service\":\"chat\",\"policy\":\"static\","
    "\"reason\":\"keep\",\"blocked\":null,\"inputs\":{\"demand_known\":false,"
    "\"routers_fresh\":false,\"reports_fresh\":0,\"reports_expected\":1},\"ready\":{\"a\":1},"
    "\"have\":{\"a\":1},\"want\":{\"a\":1},\"target\":{\"a\":1},\"load\":0,"
    "\"estimate_ttft_s\":null,\"runner_up\":null,\"cost_per_h\":0.1,\"cost_per_h_after\":0.1,"
    "\"actions\":[]}}";

static const char of_roles[] =
    "{\"id\":9,\"decision\":{\"at_us\":1000000,\"service\":\"chat\",\"kind\":\"role\","
    "\"policy\":\"distserve\",\"reason\":\"as many of each\",\"inputs\":{\"demand_known\":true,"
    "\"arrivals_per_s\":2.5,\"uncached_prompt_tokens_mean\":100,\"output_tokens_mean\":40,"
    "\"in_flight\":3,\"waiting\":1,\"held\":0,\"idle_s\":0.2,\"demand_age_s\":1.5,"
    "\"link_bytes_per_s\":1000000000,\"kv_token_bytes\":2048},\"goodput_rps\":3.5,"
    "\"runner_up_rps\":3.25,\"actions\":[{\"act\":\"role\",\"pool\":\"large\",\"instance\":"
    "\"i-1\",\"was\":\"both\",\"role\":\"prefill\"}]}}";

static const char of_held_roles[] =
    "{\"id\":9,\"decision\":{\"at_us\":1000000,\"service\":\"chat\",\"kind\":\"role\","
    "\"policy\":null,\"reason\":\"as the pools have them\",\"inputs\":{\"demand_known\":false,"
    "\"link_bytes_per_s\":1000000000,\"kv_token_bytes\":2048},\"goodput_rps\":null,"
    "\"runner_up_rps\":null,\"actions\":[]}}";

static void says(const struct buf *out, const char *part)
{
    if (!strstr(out->data, part)) fail_msg("'%s' is missing in:\n%s", part, out->data);
}

static void everything_known_is_told(void **state)
{
    static const char *const parts[] = {
        "decision 7 for chat, 1m00s ago",
        "0.40 of them a second were refused, because the fleet is overloaded",
        "2.50 requests a second of 100 uncached prompt tokens and 40 expected answer tokens",
        "3 in flight, 1 of them waiting, 0 held for an instance; last arrival 0.2s before,",
        "as routers told it at most 1.5s before\n",
        "lengths of 30 in five minutes: nine in ten prompts below 400 tokens, answers below 90\n",
        "2 of 2 ready instances and of every router were fresh",
        "1 small, 0 large ready; with those starting 2 small, 0 large",
        "wanted     2 small, 1 large; decided 2 small, 1 large",
        "work exceeds the fleet (policy work, load of 2.40 instances)",
        "held back  the budget, for another 12s",
        "first token after 0.40 s",
        "instead of 4 small, 0 large at $0.40 an hour: dearer",
        "$0.20 an hour then, $0.42 an hour after; the budget is $0.50",
        "placed     small: spot, $0.10 an hour for what should stand, short of it for a share of "
        "0.02\n",
        "placed     large: first, $0.20 an hour for what should stand\n",
        "launch i-1 in pool large, offer big at $0.22 an hour, ready in about 5.0s",
        "drain i-2 in pool small\n",
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    assert_int_equal(explain_decision(str_from(whole), 61000000, &out), 0);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        says(&out, parts[i]);
}

static void the_unknown_is_no_zero(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    assert_int_equal(explain_decision(str_from(bare), 1000000, &out), 0);
    says(&out, "no demand: no router had reported lately");
    says(&out, "0 of 1 ready instances were fresh; not every router's was");
    says(&out, "instead of nothing: there was no other choice");
    says(&out, "done       nothing");
    assert_null(strstr(out.data, "held back"));
    assert_null(strstr(out.data, "expected"));
    assert_null(strstr(out.data, "budget"));
    assert_null(strstr(out.data, "placed"));
}

static void what_is_no_decision_is_refused(void **state)
{
    static const char *const texts[] = { "", "{}", "[]", "{\"id\":1,\"decision\":{}}",
                                         "{\"id\":1,\"decision\":{\"actions\":{}}}" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        if (explain_decision(str_from(texts[i]), 0, &out) >= 0) fail_msg("taken: %s", texts[i]);
    }
}

/* Every prefix of a decision is refused, but for the one that lacks only the outermost brace. */
static void cut_answers_do_no_harm(void **state)
{
    (void)state;
    for (size_t len = 0; len < sizeof whole - 2; len++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        assert_true(explain_decision(str_of(whole, len), 0, &out) < 0);
    }
}

static void roles_are_told(void **state)
{
    static const char *const parts[] = {
        "decision 9 for chat, 1m00s ago",
        "seen       2.50 requests a second of 100 uncached prompt tokens",
        "K and V of a token are 2048 bytes, 1000000000 of them copied in a second\n",
        "reason     as many of each (role policy distserve)\n",
        "expected   3.50 requests a second within the SLO; 3.25 by the next best\n",
        "           i-1 in pool large: prefill, was both\n",
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    assert_int_equal(explain_decision(str_from(of_roles), 61000000, &out), 0);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        says(&out, parts[i]);
    buf_clear(&out);
    assert_int_equal(explain_decision(str_from(of_held_roles), 61000000, &out), 0);
    says(&out, "seen       no demand: no router had reported lately");
    says(&out, "reason     as the pools have them\n");
    assert_null(strstr(out.data, "expected"));
    assert_null(strstr(out.data, "role policy"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_known_is_told),
        cmocka_unit_test(the_unknown_is_no_zero),
        cmocka_unit_test(roles_are_told),
        cmocka_unit_test(what_is_no_decision_is_refused),
        cmocka_unit_test(cut_answers_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
