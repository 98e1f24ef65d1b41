/* t_legs.c - answers that go on at another engine: after a failure, after their prompt, because
 * theirs has no room. Whatever engines took part, the client gets the text that one alone gives.
 *
 * Scripted engines first, which refuse ids that they would not have made; then real ones with the
 * shipped model, sampled, so that a lost seed or position would be seen. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "tests/proc/rig.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define MODEL "models/muster-tiny-q8_0.gguf"
#define TEXT "/v1/completions"
#define ENGINES 3
#define TRIES 8 /* of requests until one met what was scripted */

static struct rig_process engine[ENGINES], router;

static void start_fake(uint32_t i, const char *fail, const char *count)
{
    char port[16];
    engine[i].port = rig_port();
    snprintf(port, sizeof port, "%u", engine[i].port);
    const char *argv[] = { getenv("FAKE_ENGINE_BIN"),
                           "--port",
                           port,
                           "--tokens",
                           "12",
                           "--fail",
                           fail,
                           "--fail-count",
                           count,
                           NULL };
    engine[i] = rig_start("engine", argv, engine[i].port, "/seen", 200);
}

static void start_real(uint32_t i, const char *kv_bytes, const char *share)
{
    char listen[32];
    if (engine[i].port == 0) engine[i].port = rig_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%u", engine[i].port);
    const char *argv[] = { getenv("MUSTER_BIN"),
                           "engine",
                           "--listen",
                           listen,
                           "--model",
                           MODEL,
                           "--threads",
                           "1",
                           "--max-num-seqs",
                           "8",
                           "--hardware",
                           "cpu",
                           "--seed",
                           "1",
                           "--kv-cache-memory-bytes",
                           kv_bytes,
                           "--cpu-share",
                           share,
                           NULL };
    engine[i] = rig_start("engine", argv, engine[i].port, "/health", 200);
}

static bool is_listed(void *arg)
{
    return rig_metric(router.port, "muster_router_endpoints") == *(double *)arg;
}

/* Sends to the engines up to the first NULL role; "" is both. Those that run are waited for. */
static void start_router(const char *const role[ENGINES], const char *more, const char *value)
{
    char listen[64], list[256] = "";
    double count = 0;
    for (uint32_t i = 0; i < ENGINES && role[i]; i++) {
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s127.0.0.1:%u%s%s", i ? "," : "", engine[i].port,
                 role[i][0] ? "/" : "", role[i]);
        count += engine[i].log[0] != 0;
    }
    uint16_t port = rig_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    const char *argv[] = { getenv("MUSTER_BIN"),
                           "router",
                           "--listen",
                           listen,
                           "--endpoints",
                           list,
                           "--sync",
                           "100ms",
                           more,
                           value,
                           NULL };
    router = rig_start("router", argv, port, "/health", 200);
    rig_wait(is_listed, &count, "all engines are known");
}

static int cleanup(void **state)
{
    (void)state;
    int code = router.port > 0 ? rig_stop(&router) : 0;
    router.port = 0;
    for (uint32_t i = 0; i < ENGINES; i++) {
        rig_kill(&engine[i]);
        engine[i] = (struct rig_process){ 0 };
    }
    assert_int_equal(code, 0);
    return 0;
}

/* What stands behind every "text":" of a reply, as it is escaped. */
static void gather(const struct buf *reply, struct buf *text)
{
    static const char key[] = "\"text\":\"";
    buf_clear(text);
    for (const char *at = reply->data; (at = strstr(at, key));) {
        const char *end = at += sizeof key - 1;
        while (*end != '"')
            end += 1 + (*end == '\\');
        buf_str(text, str_of(at, (size_t)(end - at)));
        at = end;
    }
    buf_byte(text, 0);
}

/* One answer; `text` and the reply are C strings. True when it is whole. */
static bool is_answered(uint16_t port, const char *prompt, uint32_t tokens, bool stream,
                        struct buf *text, struct buf *reply)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body,
               "{\"prompt\":\"%s\",\"max_tokens\":%u,\"ignore_eos\":true,\"temperature\":0.8,"
               "\"seed\":7,\"stream\":%s%s}",
               prompt, tokens, stream ? "true" : "false",
               stream ? ",\"stream_options\":{\"include_usage\":true}" : "");
    buf_byte(&body, 0);
    int status = rig_call(port, TEXT, body.data, reply);
    if (status != 200) return false;
    gather(reply, text);
    return !stream || strstr(reply->data, "[DONE]");
}

static void ask_at(uint16_t port, const char *prompt, uint32_t tokens, bool stream,
                   struct buf *text, struct buf *reply)
{
    if (!is_answered(port, prompt, tokens, stream, text, reply))
        fail_msg("%s", reply->len ? reply->data : "no reply");
}

/* Asks the router and compares the text and the usage with what was answered alone. */
static void expect(const char *prompt, uint32_t tokens, bool stream, const struct buf *alone)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char usage[64];
    ask_at(router.port, prompt, tokens, stream, &text, &reply);
    assert_string_equal(text.data, alone->data);
    snprintf(usage, sizeof usage, "\"completion_tokens\":%u", tokens);
    if (!strstr(reply.data, usage)) fail_msg("no %s in %s", usage, reply.data);
}

static int64_t seen(uint32_t i, const char *what)
{
    return rig_number(engine[i].port, "/seen", what);
}

static double counted(const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "muster_router_%s_total", what);
    return rig_metric(router.port, name);
}

/* ---- scripted engines ------------------------------------------------------------------------ */

#define PROMPT "the king of the house"

/* What an engine without any failure says, by itself. */
static void fake_alone(struct buf *text)
{
    static const char *const one[ENGINES] = { "" };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_fake(0, "none", "0");
    start_router(one, NULL, NULL);
    ask_at(router.port, PROMPT, 12, false, text, &reply);
    cleanup(NULL);
}

static void what_breaks_in_the_midst_goes_on_elsewhere(void **state)
{
    (void)state;
    static const char *const modes[] = { "cut", "die_late", "garbage" };
    static const char *const both[ENGINES] = { "", "" };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    fake_alone(&alone);
    for (size_t i = 0; i < 2 * COUNT_OF(modes); i++) {
        start_fake(0, modes[i / 2], "1");
        start_fake(1, "none", "0");
        start_router(both, "--route", "round_robin");
        for (uint32_t k = 0; k < TRIES && counted("continued") < 1; k++)
            expect(PROMPT, 12, i % 2, &alone);
        assert_true(counted("continued") == 1);
        assert_int_equal(seen(1, "continued"), 1);
        cleanup(NULL);
    }
}

static void a_prompt_s_instance_hands_over_after_the_first_token(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill", "decode" };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    fake_alone(&alone);
    start_fake(0, "none", "0");
    start_fake(1, "none", "0");
    start_router(split, NULL, NULL);
    for (int64_t i = 1; i <= 4; i++) {
        expect(PROMPT, 12, i % 2, &alone);
        assert_int_equal(seen(0, "calls"), i);
        assert_int_equal(seen(0, "handed"), i);
        assert_int_equal(seen(1, "calls"), i);
        assert_int_equal(seen(1, "continued"), i);
    }
    assert_int_equal(seen(1, "kv_port"), engine[0].port);
    assert_int_equal(seen(0, "kv_port"), 0);
    assert_true(counted("handovers") == 4);
    /* An answer of one token is whole with the prompt. */
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    ask_at(router.port, PROMPT, 1, true, &text, &reply);
    assert_int_equal(strncmp(text.data, alone.data, text.len - 1), 0);
    assert_int_equal(seen(0, "handed"), 4);
    assert_int_equal(seen(1, "calls"), 4);
}

static void without_anybody_who_decodes_the_prompt_s_instance_goes_on(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill" };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    fake_alone(&alone);
    start_fake(0, "none", "0");
    start_router(split, NULL, NULL);
    expect(PROMPT, 12, true, &alone);
    expect(PROMPT, 12, false, &alone);
    assert_int_equal(seen(0, "handed"), 2);
    assert_int_equal(seen(0, "continued"), 2);
    assert_int_equal(seen(0, "kv_port"), 0);
    assert_true(counted("handovers") == 0);
}

static void an_answer_outlives_the_instance_that_decodes_it(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill", "decode", "decode" };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    fake_alone(&alone);
    for (uint32_t more = 0; more < 2; more++) {
        const char *const role[ENGINES] = { split[0], split[1], more ? split[2] : NULL };
        start_fake(0, "none", "0");
        start_fake(1, "die_late", "1");
        start_fake(2, "none", "0");
        start_router(role, NULL, NULL);
        for (uint32_t k = 0; k < TRIES && counted("continued") < 1; k++)
            expect(PROMPT, 12, true, &alone);
        assert_true(counted("continued") == 1);
        assert_false(rig_is_alive(&engine[1]));
        if (more) assert_true(seen(2, "continued") >= 1);
        if (!more) cleanup(NULL);
    }
}

static void a_role_that_is_none_is_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    const char *const args[] = {
        "router", "--listen", "127.0.0.1:0", "--endpoints", "127.0.0.1:1/prefills", NULL
    };
    assert_int_not_equal(rig_run(&out, args), 0);
    buf_byte(&out, 0);
    assert_non_null(strstr(out.data, "there are both, prefill and decode"));
}

/* ---- real engines ---------------------------------------------------------------------------- */

static const char *const prompts[] = {
    "Once upon a time there was a king",
    "Tell me of the moon and of the sun. Tell me of the sea and of the ships that sail on it, of "
    "those who row and of those who watch the stars, and of the long way home that they all take.",
    "List three fruits:",
    "\\u00e4\\u00f6\\u00fc \\u4f60\\u597d",
};
#define REAL_TOKENS 60

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

static void real_engines_split_a_request_and_say_what_one_says(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill", "decode" };
    struct buf alone[COUNT_OF(prompts)] = { 0 };
    if (access(MODEL, R_OK) < 0) skip();
    start_real(0, "16MiB", "0");
    start_real(1, "16MiB", "0");
    real_alone(alone);
    start_router(split, NULL, NULL);
    double before[2] = { generated_by(0), generated_by(1) };
    for (size_t i = 0; i < 2 * COUNT_OF(prompts); i++)
        expect(prompts[i / 2], REAL_TOKENS, i % 2, &alone[i / 2]);
    assert_true(counted("handovers") == 2 * COUNT_OF(prompts));
    assert_true(generated_by(0) - before[0] == 2 * COUNT_OF(prompts));
    assert_true(generated_by(1) - before[1] == 2 * COUNT_OF(prompts) * (REAL_TOKENS - 1));
    for (size_t i = 0; i < COUNT_OF(prompts); i++)
        buf_fini(&alone[i]);
}

/* ---- moves ----------------------------------------------------------------------------------- */

#define ASKERS 6
#define LONG_TOKENS 600

struct asker {
    pthread_t thread;
    uint32_t number, tokens;
    const char *prompt;
    struct buf alone, text, reply;
    bool whole;
};

static void *asker_run(void *arg)
{
    struct asker *a = arg;
    a->whole = is_answered(router.port, a->prompt, a->tokens, a->number % 2, &a->text, &a->reply);
    return NULL;
}

static void asker_fini(struct asker *a)
{
    buf_fini(&a->alone);
    buf_fini(&a->text);
    buf_fini(&a->reply);
}

static bool all_run(void *arg)
{
    (void)arg;
    return rig_number(engine[0].port, "/internal/info", "running") +
               rig_number(engine[0].port, "/internal/info", "waiting") ==
           ASKERS;
}

/* ---- and with scripted engines --------------------------------------------------------------- */

static void start_mover(uint32_t i, const char *how)
{
    char port[16];
    if (engine[i].port == 0) engine[i].port = rig_port();
    snprintf(port, sizeof port, "%u", engine[i].port);
    const char *argv[] = {
        getenv("FAKE_ENGINE_BIN"), "--port", port, "--tokens", "100", "--token-ms", "20", how, NULL
    };
    engine[i] = rig_start("engine", argv, engine[i].port, "/seen", 200);
}

/* A prompt of more pages than the last stage copies, at an engine without room. The other one either
 * says that it has them, and the answer goes on there, or knows of no such thing: then it stays. */
static void a_move_that_comes_to_nothing_costs_nothing(void **state)
{
    (void)state;
    static const char *const both[ENGINES] = { "", "" };
    static struct asker a;
    char prompt[512];
    memset(prompt, 'k', sizeof prompt);
    prompt[sizeof prompt - 1] = 0;
    for (uint32_t i = 0; i < 4; i++) {
        bool pulls = i / 2;
        a = (struct asker){ .number = i, .tokens = 100, .prompt = prompt };
        start_mover(0, "--crowded");
        engine[1].port = rig_port();
        start_router(both, "--migrate", "llumnix");
        ask_at(router.port, prompt, 100, true, &a.alone, &a.reply);
        assert_int_equal(pthread_create(&a.thread, NULL, asker_run, &a), 0);
        rig_wait_number(engine[0].port, "/seen", "open", 1);
        start_mover(1, pulls ? "--pulls" : NULL);
        pthread_join(a.thread, NULL);
        assert_true(a.whole);
        assert_string_equal(a.text.data, a.alone.data);
        assert_true(seen(1, "pulls") >= 1);
        assert_int_equal(seen(1, "continued"), pulls);
        assert_int_equal(seen(0, "left"), pulls);
        assert_int_equal(seen(1, "kv_port"), pulls ? engine[0].port : 0);
        assert_true(counted("moves") == pulls);
        assert_int_equal(counted("moves_dropped") >= 1, !pulls);
        asker_fini(&a);
        cleanup(NULL);
    }
}

/* More answers than the first engine has pages for; then a second one comes up. What moves there is
 * gone on with from its pages, and every text is the one that it is alone. */
static void answers_move_from_where_there_is_no_room(void **state)
{
    (void)state;
    static const char *const both[ENGINES] = { "", "" };
    static struct asker asker[ASKERS];
    char prompt[ASKERS][64];
    if (access(MODEL, R_OK) < 0) skip();
    start_real(0, "24MiB", "0");
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        *a = (struct asker){ .number = i, .tokens = LONG_TOKENS, .prompt = prompt[i] };
        snprintf(prompt[i], sizeof prompt[i], "%u brothers lived in a house by the sea", i + 2);
        ask_at(engine[0].port, a->prompt, LONG_TOKENS, a->number % 2, &a->alone, &a->reply);
    }
    rig_kill(&engine[0]);
    start_real(0, "7MiB", "0.2");
    engine[1].port = rig_port();
    start_router(both, "--migrate", "llumnix");
    for (uint32_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&asker[i].thread, NULL, asker_run, &asker[i]), 0);
    rig_wait(all_run, NULL, "all answers are at the first engine");
    start_real(1, "24MiB", "0.2");
    for (uint32_t i = 0; i < ASKERS; i++)
        pthread_join(asker[i].thread, NULL);
    print_message("moves %.0f, dropped %.0f, continued %.0f, pulled %.0f tokens\n",
                  counted("moves"), counted("moves_dropped"), counted("continued"),
                  rig_metric(engine[1].port, "muster_engine_kv_pulled_tokens_total"));
    for (uint32_t i = 0; i < ASKERS; i++) {
        struct asker *a = &asker[i];
        if (!a->whole) fail_msg("%u: %s", i, a->reply.len ? a->reply.data : "no reply");
        assert_string_equal(a->text.data, a->alone.data);
        asker_fini(a);
    }
    assert_true(counted("moves") >= 1);
    assert_true(generated_by(1) > 0);
    assert_true(generated_by(0) + generated_by(1) >= ASKERS * LONG_TOKENS);
}

int main(void)
{
    if (!getenv("MUSTER_BIN") || !getenv("FAKE_ENGINE_BIN")) {
        print_message("skipped: MUSTER_BIN and FAKE_ENGINE_BIN are not set\n");
        return 77;
    }
#define CASE(fn) cmocka_unit_test_teardown(fn, cleanup)
    const struct CMUnitTest tests[] = {
        CASE(what_breaks_in_the_midst_goes_on_elsewhere),
        CASE(a_prompt_s_instance_hands_over_after_the_first_token),
        CASE(without_anybody_who_decodes_the_prompt_s_instance_goes_on),
        CASE(an_answer_outlives_the_instance_that_decodes_it),
        CASE(a_role_that_is_none_is_refused),
        CASE(real_engines_split_a_request_and_say_what_one_says),
        CASE(a_move_that_comes_to_nothing_costs_nothing),
        CASE(answers_move_from_where_there_is_no_room),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
