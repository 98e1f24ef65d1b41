/* t_legs.c - continues outputs at another engine: after a failure, after the prefill, after a slice, or
 * because the first engine has no room. Whatever engines take part, the client gets the text of one alone.
 *
 * The engines are scripted and refuse ids that they would not have generated. */
#include "base/core/hash.h"
#include "base/core/own.h"
#include "tests/proc/router/router_rig.h"
#include "tests/unit/text/small_vocab.h"

#include <stdio.h>

#define PROMPT "the king of the house"
#define IDS 256 /* of the scripted engine's tokens */

static void start_scripted(uint32_t i, const char *fail, const char *count)
{
    start_fake(i, ARGS("--tokens", "12", "--fail", fail, "--fail-count", count));
}

/* Gets the output of an engine without any failure. */
static void fake_alone(struct buf *text)
{
    static const char *const one[ENGINES] = { "" };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_scripted(0, "none", "0");
    start_router(one, ARGS(NULL));
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
        start_scripted(0, modes[i / 2], "1");
        start_scripted(1, "none", "0");
        start_router(both, ARGS("--route", "round_robin"));
        for (uint32_t k = 0; k < TRIES && counted("continued") < 1; k++)
            expect(PROMPT, 12, i % 2, &alone);
        assert_true(counted("continued") == 1);
        assert_int_equal(seen(1, "continued"), 1);
        cleanup(NULL);
    }
}

/* Finds a prompt of one id whose first three tokens are printable bytes of the scripted engine's
 * vocabulary; `bytes` gets them. */
static uint32_t printable_prompt(char bytes[4])
{
    for (uint32_t prompt = SMALL_BYTE0;; prompt++) {
        uint64_t hash = hash64(&prompt, sizeof prompt, 0);
        uint32_t found = 0;
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t id = hash64(&i, sizeof i, hash) % IDS;
            bool letter = (id >= SMALL_BYTE0 + 'a' && id <= SMALL_BYTE0 + 'z') ||
                          (id >= SMALL_BYTE0 + '0' && id <= SMALL_BYTE0 + '9');
            bytes[i] = (char)(id - SMALL_BYTE0);
            found += letter;
        }
        bytes[3] = '\0';
        if (found == 3) return prompt;
    }
}

/* An engine dies after the last token that a grammar allows and before its final frame: the output is
 * complete, and no other engine is asked to continue it. */
static void a_finished_grammar_needs_no_other_engine(void **state)
{
    (void)state;
    static const char *const one[ENGINES] = { "" };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char bytes[4], body[256];
    uint32_t prompt = printable_prompt(bytes);
    start_scripted(0, "die_late", "1");
    start_router(one, ARGS(NULL));
    snprintf(
        body, sizeof body,
        "{\"prompt\":[%u],\"max_tokens\":12,\"ignore_eos\":true,\"guided_choice\":[\"%s\",\"xy\"]}",
        prompt, bytes);
    int status = rig_call(router.port, "/v1/completions", body, &reply);
    if (status != 200) fail_msg("%d %.*s", status, (int)reply.len, reply.data);
    buf_byte(&reply, 0);
    assert_non_null(strstr(reply.data, "\"finish_reason\":\"stop\""));
    assert_non_null(strstr(reply.data, "\"completion_tokens\":3"));
}

static void a_prompt_s_instance_hands_over_after_the_first_token(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill", "decode" };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    fake_alone(&alone);
    start_scripted(0, "none", "0");
    start_scripted(1, "none", "0");
    start_router(split, ARGS(NULL));
    for (int64_t i = 1; i <= 4; i++) {
        expect(PROMPT, 12, i % 2, &alone);
        assert_int_equal(seen(0, "calls"), i);
        assert_int_equal(seen(0, "handed"), i);
        assert_int_equal(seen(1, "calls"), i);
        assert_int_equal(seen(1, "continued"), i);
    }
    assert_int_equal(seen(1, "kv_port"), engine[0].port);
    assert_int_equal(seen(0, "kv_port"), 0);
    assert_true(counted("pd_handoffs") == 4);
    /* An output of one token is complete after the prefill. */
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
    start_scripted(0, "none", "0");
    start_router(split, ARGS(NULL));
    expect(PROMPT, 12, true, &alone);
    expect(PROMPT, 12, false, &alone);
    assert_int_equal(seen(0, "handed"), 2);
    assert_int_equal(seen(0, "continued"), 2);
    assert_int_equal(seen(0, "kv_port"), 0);
    assert_true(counted("pd_handoffs") == 0);
}

static void an_answer_outlives_the_instance_that_decodes_it(void **state)
{
    (void)state;
    static const char *const split[ENGINES] = { "prefill", "decode", "decode" };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    fake_alone(&alone);
    for (uint32_t more = 0; more < 2; more++) {
        const char *const role[ENGINES] = { split[0], split[1], more ? split[2] : NULL };
        start_scripted(0, "none", "0");
        start_scripted(1, "die_late", "1");
        start_scripted(2, "none", "0");
        start_router(role, ARGS(NULL));
        for (uint32_t k = 0; k < TRIES && counted("continued") < 1; k++)
            expect(PROMPT, 12, true, &alone);
        assert_true(counted("continued") == 1);
        assert_false(rig_is_alive(&engine[1]));
        if (more) assert_true(seen(2, "continued") >= 1);
        if (!more) cleanup(NULL);
    }
}

/* An output of 300 tokens is three slices, one of 128 tokens is one; each slice is placed anew, and the
 * client sees one output. */
static void an_output_comes_back_after_every_slice(void **state)
{
    (void)state;
    static const char *const both[ENGINES] = { "", "" };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_fake(0, ARGS("--tokens", "400"));
    start_router((const char *const[ENGINES]){ "" }, ARGS(NULL));
    ask_at(router.port, PROMPT, 300, true, &alone, &reply);
    cleanup(NULL);
    start_fake(0, ARGS("--tokens", "400"));
    start_fake(1, ARGS("--tokens", "400"));
    start_router(both, ARGS("--route", "scls"));
    for (int64_t i = 1; i <= 6; i++) {
        expect(PROMPT, 300, i % 2, &alone);
        assert_int_equal(seen(0, "calls") + seen(1, "calls"), 3 * i);
        assert_int_equal(seen(0, "continued") + seen(1, "continued"), 2 * i);
        assert_int_equal(seen(0, "handed") + seen(1, "handed"), 2 * i);
    }
    assert_true(counted("slices") > 0 && counted("continued") == 0);
    ask_at(router.port, PROMPT, 128, true, &text, &reply);
    assert_int_equal(seen(0, "calls") + seen(1, "calls"), 19);
    assert_int_equal(seen(0, "handed") + seen(1, "handed"), 12);
}

/* A connection that breaks within a slice is a failure like any other: the slice continues when the
 * engine has rested, and the next slices are placed as usual. */
static void a_slice_outlives_its_connection(void **state)
{
    (void)state;
    static const char *const one[ENGINES] = { "" };
    CLEANUP(buf_fini) struct buf alone = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_fake(0, ARGS("--tokens", "400"));
    start_router(one, ARGS(NULL));
    ask_at(router.port, PROMPT, 300, true, &alone, &reply);
    cleanup(NULL);
    start_fake(0, ARGS("--tokens", "400", "--fail", "cut", "--fail-count", "1"));
    start_router(one, ARGS("--route", "scls"));
    expect(PROMPT, 300, true, &alone);
    assert_true(counted("continued") == 1);
    assert_int_equal(seen(0, "calls"), 4);
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

/* ---- migrations ------------------------------------------------------------------------------ */

static void start_mover(uint32_t i, const char *how)
{
    start_fake(i, ARGS("--tokens", "100", "--token-ms", "20", how));
}

/* The prompt has more pages than the last stage of a migration copies, and its engine has no room. The
 * other engine either claims to have pulled them, and the output continues there, or answers 404, and the
 * request stays. */
static void a_move_that_comes_to_nothing_costs_nothing(void **state)
{
    (void)state;
    static const char *const both[ENGINES] = { "", "" };
    static struct asker a;
    char prompt[512];
    memset(prompt, 'k', sizeof prompt);
    prompt[sizeof prompt - 1] = 0;
    CLEANUP(buf_fini) struct buf alone = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_mover(0, NULL);
    start_router((const char *const[ENGINES]){ "" }, ARGS(NULL));
    ask_at(router.port, prompt, 100, true, &alone, &reply);
    cleanup(NULL);
    for (uint32_t i = 0; i < 4; i++) {
        bool pulls = i / 2;
        a = (struct asker){ .number = i, .tokens = 100, .prompt = prompt };
        start_mover(0, "--crowded");
        engine[1].port = rig_port();
        start_router(both, ARGS("--migrate", "llumnix"));
        assert_int_equal(pthread_create(&a.thread, NULL, asker_run, &a), 0);
        rig_wait_number(engine[0].port, "/seen", "open", 1);
        start_mover(1, pulls ? "--pulls" : NULL);
        pthread_join(a.thread, NULL);
        assert_true(a.whole);
        assert_string_equal(a.text.data, alone.data);
        assert_true(seen(1, "pulls") >= 1);
        assert_int_equal(seen(1, "continued"), pulls);
        assert_int_equal(seen(0, "left"), pulls);
        assert_int_equal(seen(1, "kv_port"), pulls ? engine[0].port : 0);
        assert_true(counted("migrations") == pulls);
        assert_int_equal(counted("migrations_dropped") >= 1, !pulls);
        asker_fini(&a);
        cleanup(NULL);
    }
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN"))) return RIG_SKIP;
#define CASE(fn) cmocka_unit_test_teardown(fn, cleanup)
    const struct CMUnitTest tests[] = {
        CASE(what_breaks_in_the_midst_goes_on_elsewhere),
        CASE(a_finished_grammar_needs_no_other_engine),
        CASE(a_prompt_s_instance_hands_over_after_the_first_token),
        CASE(without_anybody_who_decodes_the_prompt_s_instance_goes_on),
        CASE(an_answer_outlives_the_instance_that_decodes_it),
        CASE(an_output_comes_back_after_every_slice),
        CASE(a_slice_outlives_its_connection),
        CASE(a_role_that_is_none_is_refused),
        CASE(a_move_that_comes_to_nothing_costs_nothing),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
