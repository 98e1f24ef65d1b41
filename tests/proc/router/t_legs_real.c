/* t_legs_real.c - continues outputs at another engine, with real engines and the shipped model. Outputs
 * are sampled, so that a lost seed or position would be seen in the text. */
#include "base/core/own.h"
#include "tests/proc/router/router_rig.h"

#include <stdio.h>
#include <unistd.h>

static const char *const prompts[] = {
    "Once upon a time there was a king",
    "Tell me of the moon and of the sun. Tell me of the sea and of the ships that sail on it, of "
    "those who row and of those who watch the stars, and of the long way home that they all take.",
    "List three fruits:",
    "\\u00e4\\u00f6\\u00fc \\u4f60\\u597d",
};
#define REAL_TOKENS 60
#define LONG_TOKENS 600

/* The share of a core for engines that must not finish before another one is up. */
#ifdef __SANITIZE_ADDRESS__
#    define SHARE "0"
#else
#    define SHARE "0.2"
#endif

static const char *draft = "none"; /* policy of the second engine; the first, the truth, has none */

static void start_preset(uint32_t i, const char *kv_bytes, const char *share, const char *preset)
{
    if (engine[i].port == 0) engine[i].port = rig_port();
    engine[i] =
        rig_server("engine", engine[i].port,
                   ARGS("--model", MODEL, "--threads", "1", "--max-num-seqs", "8", "--hardware",
                        "cpu", "--seed", "1", "--kv-cache-memory-bytes", kv_bytes, "--cpu-share",
                        share, "--preset", preset, "--draft", i == 1 ? draft : "none"));
}

static void start_real(uint32_t i, const char *kv_bytes, const char *share)
{
    start_preset(i, kv_bytes, share, "muster");
}

static void real_alone(struct buf text[COUNT_OF(prompts)])
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    for (size_t i = 0; i < COUNT_OF(prompts); i++)
        ask_at(engine[0].port, prompts[i], REAL_TOKENS, i % 2, &text[i], &reply);
}

static double generated_by(uint32_t i)
{
    return rig_metric(engine[i].port, "muster_engine_generation_tokens_total");
}

static double fetched_by(uint32_t i)
{
    return rig_metric(engine[i].port, "muster_engine_kv_fetched_tokens_total");
}

static void real_engines_split_a_request_and_say_what_one_says(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill", "decode" };
    struct buf alone[COUNT_OF(prompts)] = { 0 };
    start_real(0, "16MiB", "0");
    start_real(1, "16MiB", "0");
    real_alone(alone);
    start_router(split, ARGS(NULL));
    double before[2] = { generated_by(0), generated_by(1) }, pulled = fetched_by(1);
    for (size_t i = 0; i < 2 * COUNT_OF(prompts); i++)
        expect(prompts[i / 2], REAL_TOKENS, i % 2, &alone[i / 2]);
    assert_true(counted("pd_handoffs") == 2 * COUNT_OF(prompts));
    assert_true(fetched_by(1) - pulled >= 16); /* the second prompt has whole pages */
    assert_true(generated_by(0) - before[0] == 2 * COUNT_OF(prompts));
    assert_true(generated_by(1) - before[1] == 2 * COUNT_OF(prompts) * (REAL_TOKENS - 1));
    for (size_t i = 0; i < COUNT_OF(prompts); i++)
        buf_fini(&alone[i]);
}

static void drafts_at_one_engine_change_nothing(void **state)
{
    draft = "ngram";
    real_engines_split_a_request_and_say_what_one_says(state);
    assert_true(rig_metric(engine[1].port, "muster_engine_draft_tokens_total") > 0);
    assert_true(rig_metric(engine[0].port, "muster_engine_draft_tokens_total") <= 0);
    draft = "none";
}

static bool is_decoding(void *arg)
{
    return generated_by(1) > *(const double *)arg + 5;
}

/* Returns the items of every list named `key` of a reply, one list behind the other. */
static struct str lists_of(const struct buf *reply, const char *key, struct buf *ret)
{
    for (const char *at = reply->data; (at = strstr(at, key));) {
        at += strlen(key);
        const char *end = strchr(at, ']');
        buf_str(ret, str_of(at, (size_t)(end - at)));
        buf_byte(ret, ',');
    }
    return buf_view(ret);
}

/* The log-probabilities of the reply are those of an engine alone, each once. */
static void same_logprobs(const struct buf *alone, const struct buf *reply)
{
    static const char *const keys[] = { "\"token_logprobs\":[", "\"tokens\":[",
                                        "\"text_offset\":[" };
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        CLEANUP(buf_fini) struct buf a = { 0 };
        CLEANUP(buf_fini) struct buf b = { 0 };
        assert_true(lists_of(alone, keys[i], &a).len > LONG_TOKENS);
        assert_true(str_eq(lists_of(reply, keys[i], &b), buf_view(&a)));
    }
}

/* Returns the text of one of several outputs of a reply. */
static struct str output_of(const struct buf *reply, uint32_t index, struct buf *ret)
{
    char key[32];
    snprintf(key, sizeof key, "\"index\":%u,\"text\":\"", index);
    for (const char *at = reply->data; (at = strstr(at, key));) {
        const char *end = at += strlen(key);
        while (*end != '"')
            end += 1 + (*end == '\\');
        buf_str(ret, str_of(at, (size_t)(end - at)));
    }
    return buf_view(ret);
}

#define OUTPUTS 3

/* Each of several outputs is that of an engine alone; they may come in another order. */
static void same_outputs(const struct buf *alone, const struct buf *reply)
{
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        CLEANUP(buf_fini) struct buf a = { 0 };
        CLEANUP(buf_fini) struct buf b = { 0 };
        assert_true(output_of(alone, i, &a).len > LONG_TOKENS);
        if (!str_eq(output_of(reply, i, &b), buf_view(&a)))
            fail_msg("output %u: " STR_FMT "\nand not " STR_FMT, i, STR_ARG(buf_view(&b)),
                     STR_ARG(buf_view(&a)));
    }
}

/* The decode instance is killed within an output: the prefill instance continues it itself. */
static void outlives(void (*also)(const struct buf *alone, const struct buf *reply))
{
    static const char *const split[ENGINES] = { "prefill", "decode" };
    static struct asker a;
    for (uint32_t i = 0; i < 2; i++) {
        a = (struct asker){ .number = i, .tokens = LONG_TOKENS, .prompt = prompts[1] };
        CLEANUP(buf_fini) struct buf reply = { 0 };
        start_real(0, "16MiB", "0");
        start_real(1, "16MiB", SHARE);
        ask_at(engine[0].port, a.prompt, a.tokens, i, &a.alone, &reply);
        start_router(split, ARGS(NULL));
        double before = generated_by(1);
        assert_int_equal(pthread_create(&a.thread, NULL, asker_run, &a), 0);
        rig_wait(is_decoding, &before, "the second engine decodes");
        rig_kill(&engine[1]);
        pthread_join(a.thread, NULL);
        assert_true(a.whole);
        if (also != same_outputs) {
            assert_string_equal(a.text.data, a.alone.data);
            assert_true(counted("continued") == 1);
        }
        assert_true(counted("continued") >= 1);
        if (also) also(&reply, &a.reply);
        asker_fini(&a);
        cleanup(NULL);
    }
}

static void an_answer_outlives_a_real_instance_too(void **state)
{
    (void)state;
    outlives(NULL);
}

static void so_do_several_outputs(void **state)
{
    (void)state;
    ask_more = ",\"n\":3";
    outlives(same_outputs);
    ask_more = "";
}

/* The instance that goes on replays the grammar from the ids: the text is the one of an engine alone. */
static void so_does_one_under_a_grammar(void **state)
{
    (void)state;
    ask_more = ",\"guided_regex\":\"([A-Z][a-z]{2,8}( [a-z]{2,8}){3,9}[.!] ){60}\"";
    outlives(NULL);
    ask_more = "";
}

/* What an engine with drafts began, one without them continues. */
static void so_does_one_with_drafts(void **state)
{
    (void)state;
    draft = "suffix";
    ask_more = ",\"logprobs\":2,\"frequency_penalty\":0.2";
    outlives(same_logprobs);
    ask_more = "";
    draft = "none";
}

static void so_do_log_probabilities(void **state)
{
    (void)state;
    ask_more = ",\"logprobs\":2,\"logit_bias\":{\"20\":3,\"300\":4.5,\"7\":-100}";
    outlives(same_logprobs);
    ask_more = "";
}

/* The first instance scores the prompt and hands the output on; what goes on elsewhere scores it no more. */
static void so_do_those_of_the_prompt(void **state)
{
    (void)state;
    ask_more = ",\"echo\":true,\"logprobs\":2";
    outlives(same_logprobs);
    ask_more = "";
}

/* The prefill instance fetches the K and V of a long prompt that it has lost and the other one still
 * holds. */
static void a_peer_s_cache_is_fetched(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill", "decode" };
    CLEANUP(buf_fini) struct buf prompt = { 0 };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    for (uint32_t i = 0; i < 60; i++)
        buf_printf(&prompt, "%u ships sail over the sea to the moon and the sun. ", i);
    buf_byte(&prompt, 0);
    start_real(0, "16MiB", "0");
    start_real(1, "16MiB", "0");
    ask_at(engine[0].port, prompt.data, REAL_TOKENS, false, &alone, &reply);
    start_router(split, ARGS("--route", "mooncake_fetch"));
    for (uint32_t i = 0; i < TRIES && counted("kv_fetches") < 1; i++) {
        expect(prompt.data, REAL_TOKENS, i % 2, &alone);
        assert_int_equal(rig_call(engine[0].port, "/reset_prefix_cache", "{}", NULL), 200);
        usleep(300000); /* until the router hears of speeds and of the blocks that are gone */
    }
    assert_true(counted("kv_fetches") >= 1);
    assert_true(fetched_by(0) >= 16);
}

/* ---- migrations ------------------------------------------------------------------------------ */

#define ASKERS 6

static bool the_second_works(void *arg)
{
    (void)arg;
    return generated_by(1) > 0;
}

/* Starts the second engine while the first one is slow: its requests must not end before. */
static void join(void (*start)(void), bool (*joined)(void *), const char *what)
{
    wait_all_at_first(ASKERS);
    set_clock(0, "0.2");
    start();
    rig_wait(joined, NULL, what);
    set_clock(0, "1");
}

static void start_second(void)
{
    start_real(1, "24MiB", SHARE);
}

static void start_second_of_slices(void)
{
    start_preset(1, "24MiB", SHARE, "scls");
}

/* More requests run than the first engine has pages for; then a second engine comes up. Requests that
 * migrate there continue from their pages, and every text equals that of one engine alone. */
static void answers_move_from_where_there_is_no_room(void **state)
{
    (void)state;
    static const char *const both[ENGINES] = { "", "" };
    static struct asker asker[ASKERS];
    char prompt[ASKERS][64];
    start_real(0, "24MiB", "0");
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        *a = (struct asker){ .number = i, .tokens = LONG_TOKENS, .prompt = prompt[i] };
        snprintf(prompt[i], sizeof prompt[i], "%u brothers lived in a house by the sea", i + 2);
        ask_at(engine[0].port, a->prompt, LONG_TOKENS, a->number % 2, &a->alone, &a->reply);
    }
    rig_kill(&engine[0]);
    start_real(0, "7MiB", SHARE);
    engine[1].port = rig_port();
    start_router(both, ARGS("--migrate", "llumnix"));
    for (uint32_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&asker[i].thread, NULL, asker_run, &asker[i]), 0);
    join(start_second, one_has_moved, "a request moves to the second engine");
    for (uint32_t i = 0; i < ASKERS; i++)
        pthread_join(asker[i].thread, NULL);
    print_message("moves %.0f, dropped %.0f, continued %.0f, pulled %.0f tokens\n",
                  counted("migrations"), counted("migrations_dropped"), counted("continued"),
                  rig_metric(engine[1].port, "muster_engine_kv_fetched_tokens_total"));
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        if (!a->whole) fail_msg("%u: %s", i, a->reply.len ? a->reply.data : "no reply");
        assert_string_equal(a->text.data, a->alone.data);
        asker_fini(a);
    }
    assert_true(counted("migrations") >= 1);
    assert_true(generated_by(1) > 0);
    assert_true(generated_by(0) + generated_by(1) >= ASKERS * LONG_TOKENS);
}

/* One engine runs closed batches of slices, then a second one comes up: slices go there, and every text
 * equals that of one engine alone. */
static void slices_go_where_the_load_is_least(void **state)
{
    (void)state;
    static const char *const both[ENGINES] = { "", "" };
    static struct asker asker[ASKERS];
    char prompt[ASKERS][64];
    start_preset(0, "24MiB", "0", "scls");
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        *a = (struct asker){ .number = i, .tokens = LONG_TOKENS, .prompt = prompt[i] };
        snprintf(prompt[i], sizeof prompt[i], "%u sisters rowed to an island in the lake", i + 2);
        ask_at(engine[0].port, a->prompt, LONG_TOKENS, a->number % 2, &a->alone, &a->reply);
    }
    rig_kill(&engine[0]);
    start_preset(0, "7MiB", SHARE, "scls");
    engine[1].port = rig_port();
    start_router(both, ARGS("--route", "scls"));
    for (uint32_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&asker[i].thread, NULL, asker_run, &asker[i]), 0);
    join(start_second_of_slices, the_second_works, "slices go to the second engine");
    for (uint32_t i = 0; i < ASKERS; i++)
        pthread_join(asker[i].thread, NULL);
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        if (!a->whole) fail_msg("%u: %s", i, a->reply.len ? a->reply.data : "no reply");
        assert_string_equal(a->text.data, a->alone.data);
        asker_fini(a);
    }
    assert_true(counted("slices") > 0);
    assert_true(generated_by(1) > 0);
    assert_true(generated_by(0) + generated_by(1) == ASKERS * LONG_TOKENS);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
#define CASE(fn) cmocka_unit_test_teardown(fn, cleanup)
    const struct CMUnitTest tests[] = {
        CASE(real_engines_split_a_request_and_say_what_one_says),
        CASE(drafts_at_one_engine_change_nothing),
        CASE(an_answer_outlives_a_real_instance_too),
        CASE(so_does_one_under_a_grammar),
        CASE(so_does_one_with_drafts),
        CASE(so_do_log_probabilities),
        CASE(so_do_those_of_the_prompt),
        CASE(so_do_several_outputs),
        CASE(a_peer_s_cache_is_fetched),
        CASE(answers_move_from_where_there_is_no_room),
        CASE(slices_go_where_the_load_is_least),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
