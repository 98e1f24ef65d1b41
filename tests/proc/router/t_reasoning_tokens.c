/* t_reasoning_tokens.c - counts the tokens of reasoning of outputs at an engine with drafts and at a router, by what
 * the outputs' own tokens say, with and without a budget. */
#include "tests/proc/router/pair_rig.h"

#include <stdio.h>

#define CLIENT "tests/proc/router/reasoning_client.py"
#define FLAGS "--reasoning-parser", "deepseek_r1", "--tool-call-parser", "hermes"

static int setup(void **state)
{
    (void)state;
    pair_start(ARGS(FLAGS, "--draft", "ngram"));
    return 0;
}

/* Guesses come true often in such outputs. */
static void must_have_drafted(void)
{
    assert_true(rig_metric(pair.engine.port, "muster_engine_draft_accepted_tokens_total") > 100);
}

static void tokens_of_reasoning_are_counted(void **state)
{
    (void)state;
    char url[64];
    const char *at[] = { pair.engine.at, pair.router.at };
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        snprintf(url, sizeof url, "http://%s", at[i]);
        const char *argv[] = { "python3", CLIENT, url, NULL };
        assert_int_equal(rig_client("reasoning", argv, 4), 0);
    }
    must_have_drafted();
}

static void those_of_two_engines_are_added(void **state)
{
    (void)state;
    pair_killed(CLIENT, ARGS(FLAGS));
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (system("python3 -c pass 2>/dev/null") != 0) {
        print_message("skipped: there is no python3\n");
        return RIG_SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_reasoning_are_counted),
        cmocka_unit_test(those_of_two_engines_are_added),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, pair_end));
}
