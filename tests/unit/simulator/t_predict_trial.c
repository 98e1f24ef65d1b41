/* t_predict_trial.c - tests that trials link turns and learn nothing before it ended, and that on
 * the recorded traces predictors order requests as their documents say. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/input_file.h"
#include "simulator/predict_trial.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define DELAY_US 10000000

static void link_turns(const char *text, struct trace **ret_trace, struct trace_features **ret)
{
    struct err err = { 0 };
    assert_int_equal(trace_parse(str_from(text), TRACE_AUTO, ret_trace, &err), 0);
    assert_int_equal(trace_features_new(*ret_trace, ret, &err), 0);
}

static uint32_t previous_of(const struct trace_features *f, uint32_t request)
{
    struct predict_features made;
    trace_features_of(f, request, 0, &made);
    return made.previous_tokens;
}

static void sessions_link_their_turns(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = NULL;
    CLEANUP(trace_features_freep) struct trace_features *f = NULL;
#define TURN(at, session, turn, out)                                                               \
    "{\"timestamp\":" #at ",\"session\":" #session ",\"turn\":" #turn ",\"group\":7,\"tenant\":3," \
    "\"prompt\":\"Say it\",\"input_length\":9,\"output_length\":" #out "}\n"
    link_turns(TURN(0, 1, 0, 11) TURN(1, 2, 0, 22) TURN(2, 1, 1, 33) TURN(3, 1, 2, 44), &t, &f);
    assert_int_equal(previous_of(f, 0), 0);
    assert_int_equal(previous_of(f, 1), 0);
    assert_int_equal(previous_of(f, 2), 11);
    assert_int_equal(previous_of(f, 3), 33);
    struct predict_features made;
    trace_features_of(f, 3, 0, &made);
    assert_true(str_eq(made.text, STR("Say it")));
    assert_true(made.tenant != 0 && made.group != 0 && made.ask != 0 && made.prefix != 0);
    trace_features_of(f, 3, 77, &made);
    assert_int_equal(made.prefix, 77);
    assert_int_equal(f->have, PREDICT_TEXT | PREDICT_TENANT | PREDICT_GROUP | PREDICT_PREVIOUS |
                                  PREDICT_TRUTH);
}

/* The first block is a system prompt that unrelated requests share: only deeper blocks link. */
static void blocks_link_what_goes_on(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = NULL;
    CLEANUP(trace_features_freep) struct trace_features *f = NULL;
#define BLOCKS(at, in, out, ...)                                              \
    "{\"timestamp\":" #at ",\"input_length\":" #in ",\"output_length\":" #out \
    ",\"hash_ids\":[" #__VA_ARGS__ "]}\n"
    link_turns(BLOCKS(0, 600, 11, 1, 2)            /* one whole block: the system prompt */
               BLOCKS(1, 1100, 22, 1, 3, 4)        /* two whole blocks */
               BLOCKS(2, 700, 33, 1, 5)            /* shares block 1 alone */
               BLOCKS(3, 1700, 44, 1, 3, 6, 7)     /* continues the second */
               BLOCKS(4, 2100, 55, 1, 3, 6, 8, 9), /* continues the fourth */
               &t, &f);
    assert_int_equal(previous_of(f, 1), 0);
    assert_int_equal(previous_of(f, 2), 0);
    assert_int_equal(previous_of(f, 3), 22);
    assert_int_equal(previous_of(f, 4), 44);
    assert_int_equal(f->have, PREDICT_PREVIOUS | PREDICT_TRUTH);
}

/* A policy that learned each end at once would predict the second request of the pair exactly. */
static void nothing_is_learned_before_it_ended(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = NULL;
    CLEANUP(trace_features_freep) struct trace_features *f = NULL;
    struct err err = { 0 };
    struct predict_trial early, late;
    const struct predict_policy *policy = predict_find(STR(PREDICT_DEFAULT));
    link_turns("{\"timestamp\":0,\"input_length\":9,\"output_length\":1000,\"hash_ids\":[1]}\n"
               "{\"timestamp\":5000,\"input_length\":9,\"output_length\":1000,\"hash_ids\":[1]}\n",
               &t, &f);
    void *state_of = malloc(policy->state_size);
    policy->init(state_of);
    assert_int_equal(predict_trial_run(f, policy, 5000000, NULL, state_of, &early, &err), 0);
    policy->init(state_of);
    assert_int_equal(predict_trial_run(f, policy, 5000001, NULL, state_of, &late, &err), 0);
    assert_true(early.mae_tokens < late.mae_tokens);
    free(state_of);
}

static struct trace_features *load(const char *path, struct trace **ret_trace)
{
    struct trace_features *f = NULL;
    struct err err = { 0 };
    assert_int_equal(trace_file_load(path, TRACE_AUTO, ret_trace, &err), 0);
    assert_int_equal(trace_features_new(*ret_trace, &f, &err), 0);
    return f;
}

static struct predict_trial trial(const struct trace_features *f, const char *name)
{
    const struct predict_policy *policy = predict_find(str_from(name));
    struct predict_trial t;
    struct err err = { 0 };
    assert_non_null(policy);
    assert_null(predict_missing(policy, f->have));
    void *state = malloc(policy->state_size);
    assert_non_null(state);
    policy->init(state);
    assert_int_equal(predict_trial_run(f, policy, DELAY_US, NULL, state, &t, &err), 0);
    free(state);
    print_message("%-20s concordance %.3f, of follow-ups %.3f, P90 covers %.3f, MAE %.1f\n", name,
                  t.concordance, t.follow_concordance, t.p90_coverage, t.mae_tokens);
    return t;
}

static void chat_of_azure_is_ordered(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = NULL;
    CLEANUP(trace_features_freep) struct trace_features *f = load("azure-2023-conv.csv", &t);
    struct predict_trial got = trial(f, PREDICT_DEFAULT);
    assert_true(got.concordance >= 0.79);
    assert_true(got.p90_coverage >= 0.88 && got.p90_coverage <= 0.92);
    assert_true(trial(f, "noisy_oracle").concordance < trial(f, "oracle").concordance);
}

static void follow_ups_of_mooncake_are_ordered(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = NULL;
    CLEANUP(trace_features_freep)
    struct trace_features *f = load("mooncake-conversation.jsonl", &t);
    struct predict_trial got = trial(f, PREDICT_DEFAULT), previous = trial(f, "previous_turn");
    assert_true(got.follow_concordance >= 0.70 && previous.follow_concordance >= 0.70);
    assert_true(got.p90_coverage >= 0.88 && got.p90_coverage <= 0.92);
    assert_true(trial(f, "prompt_histogram").follow_concordance < 0.60);
}

/* Policies that read the text beat the keys on text, and those that read neither lose; classes of
 * 200 tokens gain little, because nearly all outputs are shorter. */
static void text_is_read(void **state)
{
    (void)state;
    static const char *const better[] = { "ngram",         "ngram_rank",  "ssjf",
                                          "ssjf_pairwise", "mu_serve",    "intelligent_router",
                                          "forest",        "skip_predict" };
    static const char *const worse[] = { "prompt_histogram", "client_mean", "previous_turn",
                                         "task_mean", "tetri" };
    CLEANUP(trace_freep) struct trace *t = NULL;
    CLEANUP(trace_features_freep) struct trace_features *f = load("traces/text-5000.jsonl", &t);
    assert_non_null(f);
    double keys = trial(f, PREDICT_DEFAULT).concordance, ngram = 0;
    for (uint32_t i = 0; i < COUNT_OF(better); i++) {
        struct predict_trial got = trial(f, better[i]);
        if (i == 0) ngram = got.concordance;
        assert_true(got.concordance >= keys + 0.05);
        assert_true(got.p90_coverage >= 0.88 && got.p90_coverage <= 0.92);
    }
    assert_true(trial(f, "s3").concordance > keys);
    assert_true(trial(f, "ssjf_classes").concordance >= keys + 0.03);
    assert_true(trial(f, "ssjf_ordinal").concordance >= keys + 0.03);
    /* Its one class edge lies above nearly all of these outputs. */
    assert_true(trial(f, "ssjf_binary").concordance > 0.58);
    for (uint32_t i = 0; i < COUNT_OF(worse); i++)
        assert_true(trial(f, worse[i]).concordance < keys);
    struct predict_trial skip = trial(f, "skip_predict");
    /* Measured 0.89 and 0.51; the paper has 0.95 and 0.30. */
    assert_true(skip.concordance - keys >= 0.85 * (ngram - keys) && skip.costly_share <= 0.55);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_link_their_turns),
        cmocka_unit_test(blocks_link_what_goes_on),
        cmocka_unit_test(nothing_is_learned_before_it_ended),
        cmocka_unit_test(chat_of_azure_is_ordered),
        cmocka_unit_test(follow_ups_of_mooncake_are_ordered),
        cmocka_unit_test(text_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
