/* t_serve_draft.c - tests an engine with a draft model as a client sees it: outputs, metrics, refusals at start. */
#include "base/core/bits.h"
#include "tests/unit/engine/serve_rig.h"
#include "tests/unit/engine/tiny_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A target whose first layer alone adds anything, a draft model that has the same first layer, and one that has
 * another. The target is deep, so that guesses are worth their price on any machine. */
static char target[64], right[64], wrong[64];
static int fds[3];

static int setup(void **state)
{
    (void)state;
    fds[0] = layered_model_path(48, 5, target);
    fds[1] = layered_model_path(1, 5, right);
    fds[2] = layered_model_path(1, 6, wrong);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        close(fds[i]);
    return 0;
}

static void open_with(struct engine *e, const char *model, const char *draft)
{
    const char *const args[] = { "--served-model-name",
                                 "m",
                                 "--threads",
                                 "1",
                                 "--max-model-len",
                                 "512",
                                 "--draft",
                                 draft ? "model" : "none",
                                 draft ? "--draft-model" : NULL,
                                 draft,
                                 NULL };
    *e = (struct engine){ .model_fd = -1 };
    engine_spawn(e, model, args);
    assert_true(engine_log_has(e, "engine_ready"));
    engine_read_port(e);
}

static const char *const bodies[] = {
    "{\"prompt\":\"once upon a time\",\"max_tokens\":300,\"temperature\":0,\"ignore_eos\":true}",
    "{\"prompt\":\"hello hello\",\"max_tokens\":200,\"temperature\":0.7,\"seed\":3,"
    "\"ignore_eos\":true}",
    "{\"prompt\":\"the king\",\"max_tokens\":120,\"temperature\":0,\"logprobs\":2,"
    "\"frequency_penalty\":0.5}",
    "{\"prompt\":\"a list:\",\"max_tokens\":60,\"temperature\":0,"
    "\"guided_regex\":\"[a-z]{3,9}( [a-z]{2,9}){4,9}\"}",
};

/* The reply from its choices on: what is before differs from request to request. */
static void complete(struct engine *e, const char *body, struct buf *ret)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(post(e, "/v1/completions", body, &reply), 200);
    buf_byte(&reply, 0);
    const char *at = strstr(reply.data, "\"choices\"");
    assert_non_null(at);
    buf_clear(ret);
    buf_text(ret, at);
    buf_byte(ret, 0);
}

/* After 300 greedy tokens: all guesses of the right draft model came true, and the wrong one is hardly asked. */
static void assert_greedy_guesses(struct engine *e, bool is_right)
{
    double drafted = metric(e, "muster_engine_draft_tokens_total");
    double accepted = metric(e, "muster_engine_draft_accepted_tokens_total");
    if (is_right) {
        assert_true(drafted >= 30);
        assert_true(accepted == drafted);
    } else {
        assert_true(drafted <= 30);
        assert_true(accepted <= 3);
    }
}

static void t_outputs_are_those_without(void **state)
{
    (void)state;
    const char *const drafts[] = { right, wrong };
    struct engine plain;
    open_with(&plain, target, NULL);
    for (size_t k = 0; k < COUNT_OF(drafts); k++) {
        struct engine e;
        open_with(&e, target, drafts[k]);
        for (size_t i = 0; i < COUNT_OF(bodies); i++) {
            CLEANUP(buf_fini) struct buf want = { 0 }, got = { 0 };
            complete(&plain, bodies[i], &want);
            complete(&e, bodies[i], &got);
            assert_string_equal(got.data, want.data);
            if (i == 0) assert_greedy_guesses(&e, drafts[k] == right);
        }
        assert_true(metric(&e, "muster_engine_draft_guessed_tokens_total") > 0);
        assert_true(metric(&e, "muster_engine_draft_model_tokens_total") > 0);
        assert_true(metric(&e, "muster_engine_draft_model_seconds_total") > 0);
        assert_true(metric(&e, "muster_engine_draft_kv_bytes") > 0);
        until_metric(&e, "muster_engine_draft_kv_pages{state=\"held\"}", 0);
        engine_close(&e);
    }
    engine_close(&plain);
}

static void t_refused_at_start(void **state)
{
    (void)state;
    static const struct {
        const char *args[5], *says;
    } rows[] = {
        { { "--draft", "model" },
          "--draft model needs --draft-model: the small model that guesses" },
        { { "--draft-model", right },
          "--draft-model needs --draft model: no other policy asks it" },
        { { "--draft", "ngram", "--draft-model", right }, "--draft-model needs --draft model" },
        { { "--draft", "model", "--draft-model", "models/muster-tiny-q8_0.gguf" },
          "--draft-model models/muster-tiny-q8_0.gguf: its " },
        { { "--draft", "model", "--draft-model", "/nowhere.gguf" },
          "--draft-model /nowhere.gguf: " },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct engine e = { .model_fd = -1 };
        engine_spawn(&e, target, rows[i].args);
        if (!engine_log_has(&e, rows[i].says))
            fail_msg("%s is not in %s", rows[i].says, e.log.data);
        assert_int_equal(engine_wait(&e), 1);
        engine_fini(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_outputs_are_those_without),
        cmocka_unit_test(t_refused_at_start),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
