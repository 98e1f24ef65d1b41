/* t_legs_draft.c - hands outputs on between engines with a draft model: at a handoff, at a killed engine and at a
 * migration. Each output is that of one engine without drafts, greedy and sampled. */
#include "base/core/own.h"
#include "tests/proc/router/router_rig.h"
#include "tests/unit/engine/tiny_model.h"

#include <stdio.h>
#include <unistd.h>

/* The target is deep, so that guesses are worth their price on any machine. The draft model has the same first layer,
 * which alone adds anything: it is right where the choice is greedy. */
#define LAYERS 48
#define SEED 5

static const char *const prompts[] = { "once upon a time", "hello hello",
                                       "tell me of the moon and of the sun and of the sea" };
static char target[64], guesses[64];
static int fds[2];

/* The share of a core of engines whose outputs must not end before something happens to them. */
#ifdef __SANITIZE_ADDRESS__
#    define SHARE "0"
#else
#    define SHARE "0.3"
#endif
#define TOKENS 80
#define LONG_TOKENS 300

static int setup(void **state)
{
    (void)state;
    fds[0] = layered_model_path(LAYERS, SEED, target);
    fds[1] = layered_model_path(1, SEED, guesses);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(fds[0]);
    close(fds[1]);
    return 0;
}

static void start(uint32_t i, bool drafts, const char *kv_bytes, const char *share)
{
    if (engine[i].port == 0) engine[i].port = rig_port();
    engine[i] = rig_server("engine", engine[i].port,
                           ARGS("--model", target, "--served-model-name", "m", "--threads", "1",
                                "--max-num-seqs", "4", "--max-model-len", "512", "--hardware",
                                "cpu", "--seed", "1", "--kv-cache-memory-bytes", kv_bytes,
                                "--cpu-share", share, "--draft", drafts ? "model" : "none",
                                drafts ? "--draft-model" : NULL, guesses));
}

static double metric_of(uint32_t i, const char *name)
{
    return rig_metric(engine[i].port, name);
}

static double generated_by(uint32_t i)
{
    return metric_of(i, "muster_engine_generation_tokens_total");
}

static double accepted_by(uint32_t i)
{
    return metric_of(i, "muster_engine_draft_accepted_tokens_total");
}

/* Starts an engine with the draft model, and has it learn that the guesses come true. Until then it may find none worth
 * its price, and asks in vain only for a sequence that is shorter than the steps without a guess so far. */
static void start_learned(uint32_t i, const char *kv_bytes, const char *share)
{
    const char *temperature = ask_temperature;
    start(i, true, kv_bytes, share);
    ask_temperature = "0";
    for (uint32_t k = 0; k < TRIES && accepted_by(i) < 10; k++) {
        CLEANUP(buf_fini) struct buf text = { 0 }, reply = { 0 };
        ask_at(engine[i].port, "a b", 100, false, &text, &reply);
    }
    ask_temperature = temperature;
    assert_true(accepted_by(i) >= 10);
}

/* What an engine without drafts says alone. */
static void alone(struct buf text[COUNT_OF(prompts)], uint32_t tokens)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start(0, false, "64MiB", "0");
    for (size_t i = 0; i < COUNT_OF(prompts); i++)
        ask_at(engine[0].port, prompts[i], tokens, i % 2, &text[i], &reply);
    rig_kill(&engine[0]);
}

static void a_handoff_and_its_drafts(const char *temperature)
{
    static const char *const split[ENGINES] = { "prefill", "decode" };
    struct buf want[COUNT_OF(prompts)] = { 0 };
    ask_temperature = temperature;
    alone(want, TOKENS);
    start_learned(0, "64MiB", "0");
    start_learned(1, "64MiB", "0");
    start_router(split, ARGS(NULL));
    const double generated = generated_by(1), accepted = accepted_by(1);
    for (size_t i = 0; i < 2 * COUNT_OF(prompts); i++)
        expect(prompts[i / 2], TOKENS, i % 2, &want[i / 2]);
    print_message("temperature %s: %.0f guesses accepted at the second engine\n", temperature,
                  accepted_by(1) - accepted);
    assert_true(counted("pd_handoffs") == 2 * COUNT_OF(prompts));
    assert_true(generated_by(1) - generated == 2 * COUNT_OF(prompts) * (TOKENS - 1));
    assert_true(accepted_by(1) > accepted);
    for (size_t i = 0; i < COUNT_OF(prompts); i++)
        buf_fini(&want[i]);
}

static void greedy_outputs_are_handed_on(void **state)
{
    (void)state;
    a_handoff_and_its_drafts("0");
}

static void sampled_outputs_are_handed_on(void **state)
{
    (void)state;
    a_handoff_and_its_drafts("0.8");
}

static bool is_decoding(void *arg)
{
    return generated_by(1) > *(const double *)arg + 20;
}

/* The decode instance dies amid an output, whose guesses die with it; the prefill instance goes on. */
static void an_output_outlives_its_drafter(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill", "decode" };
    struct asker a = { .tokens = LONG_TOKENS, .prompt = prompts[2] };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    ask_temperature = "0";
    start(0, false, "64MiB", "0");
    ask_at(engine[0].port, a.prompt, a.tokens, false, &a.alone, &reply);
    rig_kill(&engine[0]);
    start_learned(0, "64MiB", "0");
    start_learned(1, "64MiB", SHARE);
    start_router(split, ARGS(NULL));
    double before = generated_by(1), accepted = accepted_by(0);
    assert_int_equal(pthread_create(&a.thread, NULL, asker_run, &a), 0);
    rig_wait(is_decoding, &before, "the second engine decodes");
    rig_kill(&engine[1]);
    pthread_join(a.thread, NULL);
    if (!a.whole) fail_msg("%s", a.reply.len ? a.reply.data : "no reply");
    assert_string_equal(a.text.data, a.alone.data);
    assert_true(counted("continued") == 1);
    print_message("%.0f guesses accepted at the first engine\n", accepted_by(0) - accepted);
    assert_true(accepted_by(0) > accepted);
    asker_fini(&a);
}

/* ---- migrations ---- */

#define ASKERS 3

/* More sequences run than the first engine has pages for, and each has pages of the draft model, too. A second engine
 * comes up, and sequences move there amid their guesses. */
static void outputs_move_between_engines_with_drafts(void **state)
{
    (void)state;
    static const char *const both[ENGINES] = { "", "" };
    static struct asker asker[ASKERS];
    char prompt[ASKERS][64];
    CLEANUP(buf_fini) struct buf reply = { 0 };
    ask_temperature = "0";
    start(0, false, "64MiB", "0");
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        *a = (struct asker){ .number = i, .tokens = LONG_TOKENS, .prompt = prompt[i] };
        snprintf(prompt[i], sizeof prompt[i], "%u brothers lived in a house by the sea", i + 2);
        ask_at(engine[0].port, a->prompt, LONG_TOKENS, false, &a->alone, &reply);
    }
    rig_kill(&engine[0]);
    start_learned(0, "15MiB", SHARE);
    engine[1].port = rig_port();
    start_router(both, ARGS("--migrate", "llumnix"));
    for (uint32_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&asker[i].thread, NULL, asker_run, &asker[i]), 0);
    wait_all_at_first(ASKERS);
    set_clock(0, "0.2"); /* its sequences must not end before the second engine is there */
    const double before = accepted_by(0);
    start_learned(1, "64MiB", SHARE);
    const double learned = accepted_by(1);
    rig_wait(one_has_moved, NULL, "a request moves to the second engine");
    set_clock(0, "1");
    for (uint32_t i = 0; i < ASKERS; i++)
        pthread_join(asker[i].thread, NULL);
    print_message("moves %.0f, pulled %.0f tokens, accepted %.0f and %.0f guesses\n",
                  counted("migrations"), metric_of(1, "muster_engine_kv_fetched_tokens_total"),
                  accepted_by(0), accepted_by(1) - learned);
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        if (!a->whole) fail_msg("%u: %s", i, a->reply.len ? a->reply.data : "no reply");
        assert_string_equal(a->text.data, a->alone.data);
        asker_fini(a);
    }
    /* What moved with few tokens left is not worth the draft model's catching up. */
    assert_true(accepted_by(0) > before && accepted_by(1) >= learned);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN"))) return RIG_SKIP;
#define CASE(fn) cmocka_unit_test_teardown(fn, cleanup)
    const struct CMUnitTest tests[] = {
        CASE(greedy_outputs_are_handed_on),
        CASE(sampled_outputs_are_handed_on),
        CASE(an_output_outlives_its_drafter),
        CASE(outputs_move_between_engines_with_drafts),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, teardown));
}
