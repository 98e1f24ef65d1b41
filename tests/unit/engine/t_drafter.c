/* t_drafter.c - tests what a draft model is asked for and how it keeps in step: right and wrong models, load, long
 * prompts, few pages, sleep; and which models are refused. That outputs stay the same is tested on every road in
 * t_generate.c, and here wherever something special happens. */
#include "base/core/bits.h"
#include "engine/serve/executor.h"
#include "tests/unit/engine/tiny_model.h"
#include "tests/unit/text/small_vocab.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SESSIONS 6
#define OUTPUT 80
#define CONTEXT 256
#define STEPS_MAX 10000

static struct model *target, *small, *stranger; /* small: of the same logits; stranger: of others */

static struct model *load(uint32_t layers, uint64_t seed)
{
    char path[64];
    struct model *m = NULL;
    int fd = layered_model_path(layers, seed, path);
    assert_int_equal(model_load(path, NULL, &m, NULL), 0);
    close(fd);
    return m;
}

static int setup(void **state)
{
    (void)state;
    target = load(4, 11);
    small = load(1, 11);
    stranger = load(1, 12);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    model_free(target);
    model_free(small);
    model_free(stranger);
    return 0;
}

/* ---- an executor, and sessions that run to their end ---- */

struct request {
    struct output output;
    struct output_spec spec;
    uint32_t prompt[CONTEXT], prompt_tokens;
    uint32_t got[CONTEXT], got_count;
};

struct run {
    struct model *draft; /* NULL: none */
    uint32_t seqs, batch, draft_pages, sessions, prompt;
    float temperature;
    /* seconds that steps of the target take: each, and each token */
    double step_s, token_s;
    struct sched_counts counts;
    struct drafter_counts drafted, half; /* at the end; when half of the steps were done */
    uint32_t steps;
    uint32_t pages_most; /* of the draft model, held at once */
};

static int64_t now_us;

/* A pass of the draft model takes a microsecond. */
static int64_t pass_clock(void)
{
    return now_us++;
}

static uint32_t open_count;

static void on_token(void *arg, struct output *output, const struct session *session,
                     const struct sampler_result *got)
{
    struct request *r = CONTAINER_OF(output, struct request, output);
    (void)arg, (void)session;
    must(r->got_count < CONTEXT);
    r->got[r->got_count++] = got->chosen.id;
    buf_clear(&output->text);
}

static void on_end(void *arg, struct output *output, const struct session *session)
{
    (void)arg, (void)session;
    output_fini(output);
    open_count--;
}

static struct executor *open_executor(const struct run *run)
{
    struct executor *x = NULL;
    struct err err = { "" };
    const char *policy = run->draft ? "model" : "none";
    const struct executor_config config = {
        .sched = { .pages = 200,
                   .page_tokens = 16,
                   .context_max = CONTEXT,
                   .seqs_max = run->seqs,
                   .batch_tokens_max = run->batch,
                   .waiting_max = SESSIONS,
                   .events_max = 64,
                   .prefix_cache = true,
                   .policies = { .draft = draft_find(str_from(policy)) } },
        .perf = perf_find(STR("linear")),
        .draft_model = run->draft,
        .draft_pages = run->draft_pages ? run->draft_pages : 200,
    };
    const struct executor_events events = { .on_token = on_token, .on_end = on_end };
    int rc = executor_new(target, &config, &events, &x, &err);
    if (rc < 0) fail_msg("%s", err_text(&err, rc));
    executor_measure(x, pass_clock);
    return x;
}

static void submit(struct executor *x, const struct run *run, struct request *r, uint32_t i)
{
    struct session *session;
    *r = (struct request){ .prompt_tokens = run->prompt + i };
    for (uint32_t k = 0; k < r->prompt_tokens; k++)
        r->prompt[k] = 10 + (k * (i + 3) + k * k) % 200;
    r->spec.prompt_tokens = r->prompt_tokens;
    r->spec.ignore_eos = true;
    r->spec.sampling.temperature = run->temperature;
    r->spec.sampling.seed = i;
    const struct sched_request req = { .id = i,
                                       .owner = &r->output,
                                       .ids = r->prompt,
                                       .prompt_tokens = r->prompt_tokens,
                                       .output_max = OUTPUT,
                                       .arrival_us = i + 1 };
    assert_int_equal(
        output_init(&r->output, model_info(target)->vocab, &r->spec, r->prompt, r->prompt_tokens),
        0);
    assert_int_equal(sched_submit(executor_sched(x), &req, &session, NULL), 0);
    open_count++;
}

static void one_step(struct executor *x, struct run *run)
{
    struct executor_step_info info;
    struct err err = { "" };
    now_us += 1000;
    int rc = executor_step(x, pass_clock, &info, &err);
    if (rc < 0) fail_msg("%s", err_text(&err, rc));
    if (rc == 0) return;
    assert_true(!run->draft || info.draft_s < 1e-3);
    executor_observe(x, &info.shape, run->step_s + run->token_s * info.tokens);
    executor_observe_draft(x, 1);
    run->steps++;
    if (!run->draft) return;
    drafter_counts_get(executor_drafter(x), &run->drafted);
    run->pages_most = max_u32(run->pages_most, run->drafted.pages_held);
}

/* Runs all sessions to their end with one executor. */
static void go(struct executor *x, struct run *run, struct request r[SESSIONS])
{
    run->steps = 0;
    for (uint32_t i = 0; i < run->sessions; i++)
        submit(x, run, &r[i], i);
    while (open_count > 0) {
        one_step(x, run);
        if (r[0].got_count <= OUTPUT / 2) run->half = run->drafted;
        assert_true(run->steps < STEPS_MAX);
    }
    sched_counts_get(executor_sched(x), &run->counts);
    if (run->draft) assert_int_equal(run->drafted.pages_held, 0);
}

static void do_run(struct run *run, struct request r[SESSIONS])
{
    struct executor *x = open_executor(run);
    go(x, run, r);
    executor_free(x);
}

/* Runs with and without the draft model, and compares. */
static void same_as_without(struct run *run)
{
    static struct request with[SESSIONS], without[SESSIONS];
    struct run plain = *run;
    plain.draft = NULL;
    do_run(&plain, without);
    do_run(run, with);
    for (uint32_t i = 0; i < run->sessions; i++) {
        assert_int_equal(with[i].got_count, without[i].got_count);
        assert_memory_equal(with[i].got, without[i].got, with[i].got_count * sizeof *with[i].got);
    }
}

/* ---- what it is asked for ---- */

static void t_a_right_model_is_always_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        uint32_t seqs, batch, sessions;
    } rows[] = {
        { "alone", 1, 64, 1 },
        { "one after the other", 1, 64, SESSIONS },
        { "batched", 4, 256, SESSIONS },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct run run = { .draft = small,
                           .seqs = rows[i].seqs,
                           .batch = rows[i].batch,
                           .sessions = rows[i].sessions,
                           .prompt = 20,
                           .step_s = 1e-2 };
        same_as_without(&run);
        if (run.counts.accepted_tokens != run.counts.drafted_tokens ||
            run.counts.drafted_tokens < run.counts.generated_tokens / 2)
            fail_msg("%s: %lu of %lu guesses accepted, %lu tokens", rows[i].why,
                     (unsigned long)run.counts.accepted_tokens,
                     (unsigned long)run.counts.drafted_tokens,
                     (unsigned long)run.counts.generated_tokens);
        /* Each token once, and the prompts: nothing is computed again after an accepted guess. */
        uint64_t all = run.counts.prompt_tokens + run.counts.generated_tokens;
        if (run.drafted.computed > all)
            fail_msg("%s: %lu tokens computed of %lu", rows[i].why,
                     (unsigned long)run.drafted.computed, (unsigned long)all);
    }
}

static void t_a_wrong_model_is_left_alone(void **state)
{
    (void)state;
    struct run run = { .draft = stranger,
                       .seqs = 4,
                       .batch = 256,
                       .sessions = SESSIONS,
                       .prompt = 20,
                       .step_s = 1e-2 };
    same_as_without(&run);
    assert_true(run.drafted.guessed > 0);
    assert_true(run.counts.accepted_tokens * 10 < run.counts.drafted_tokens + 10);
    /* After it was found out it is tried once in 32 steps, then in 64, ... */
    assert_true(run.drafted.guessed - run.half.guessed <= 3 * DRAFT_PROBE_TOKENS);
    assert_true(run.drafted.guessed * 8 < run.counts.generated_tokens);
}

static void t_sampled_outputs_are_the_same(void **state)
{
    (void)state;
    struct run run = { .draft = small,
                       .seqs = 4,
                       .batch = 256,
                       .sessions = SESSIONS,
                       .prompt = 20,
                       .temperature = 0.4f,
                       .step_s = 1e-2 };
    same_as_without(&run);
    assert_true(run.counts.accepted_tokens > 0);
    assert_true(run.counts.accepted_tokens < run.counts.drafted_tokens);
}

/* Where each token costs its arithmetic, no guess is worth it, however right; a few are tried in 32 steps. */
static void t_load_turns_it_off(void **state)
{
    (void)state;
    struct run run = { .draft = small,
                       .seqs = SESSIONS,
                       .batch = 256,
                       .sessions = SESSIONS,
                       .prompt = 20,
                       .step_s = 1e-5,
                       .token_s = 1e-3 };
    same_as_without(&run);
    assert_true(run.steps > 2 * DRAFT_PROBE_STEPS);
    assert_true(run.drafted.guessed - run.half.guessed <=
                DRAFT_PROBE_TOKENS * (1 + run.steps / DRAFT_PROBE_STEPS / 2));
    assert_true(run.counts.accepted_tokens * 20 < run.counts.generated_tokens);
}

/* ---- keeping in step ---- */

/* A prompt is longer than a step of the draft model: it catches up in pieces. */
static void t_long_prompts_are_caught_up_in_pieces(void **state)
{
    (void)state;
    struct run run = {
        .draft = small, .seqs = 2, .batch = 16, .sessions = 2, .prompt = 130, .step_s = 1e-2
    };
    same_as_without(&run);
    assert_true(run.counts.drafted_tokens > OUTPUT / 2);
    assert_int_equal(run.counts.accepted_tokens, run.counts.drafted_tokens);
}

/* Pages for one context, and four sessions at once: they take them from each other. */
static void t_few_pages(void **state)
{
    (void)state;
    struct run run = { .draft = small,
                       .seqs = 4,
                       .batch = 256,
                       .draft_pages = CONTEXT / 16,
                       .sessions = SESSIONS,
                       .prompt = 90,
                       .step_s = 1e-2 };
    same_as_without(&run);
    assert_int_equal(run.pages_most, CONTEXT / 16);
    assert_true(run.counts.drafted_tokens > 0);
    assert_int_equal(run.counts.accepted_tokens, run.counts.drafted_tokens);
}

static void t_it_sleeps_and_wakes(void **state)
{
    (void)state;
    static struct request before[SESSIONS], after[SESSIONS];
    char path[64];
    struct model *sleeper = NULL, *kept = target;
    int fd = layered_model_path(1, 11, path), target_fd;
    assert_int_equal(model_load(path, NULL, &sleeper, NULL), 0);
    char target_path[64];
    target_fd = layered_model_path(4, 11, target_path);
    assert_int_equal(model_load(target_path, NULL, &target, NULL), 0);
    struct run run = {
        .draft = sleeper, .seqs = 2, .batch = 64, .sessions = 2, .prompt = 20, .step_s = 1e-2
    };
    struct executor *x = open_executor(&run);
    go(x, &run, before);
    executor_sleep(x);
    assert_int_equal(executor_wake(x, NULL), 0);
    go(x, &run, after);
    assert_memory_equal(before[1].got, after[1].got, sizeof before[1].got);
    assert_int_equal(run.counts.accepted_tokens, run.counts.drafted_tokens);
    executor_sleep(x);
    close(fd); /* the draft model's file is gone: the engine sleeps on */
    struct err err = { "" };
    assert_true(executor_wake(x, &err) < 0);
    assert_non_null(strstr(err.text, "draft model"));
    executor_free(x);
    model_free(sleeper);
    model_free(target);
    close(target_fd);
    target = kept;
}

/* ---- which models are refused ---- */

/* Checks a draft model of the target's vocabulary with another name for one token, or with more tokens of a type.
 * Returns the sentence. */
static const char *refused(const char *name, uint32_t more, uint8_t type)
{
    static const char *const padding[] = { "[PAD0]", "[PAD1]", "[PAD2]" };
    static char text[ERR_TEXT_MAX];
    struct vocab_parts parts = small_vocab_parts("gpt-2");
    size_t count = parts.token_count;
    struct str *tokens = calloc(count + more, sizeof *tokens);
    uint8_t *types = calloc(count + more, 1);
    memcpy(tokens, parts.tokens, count * sizeof *tokens);
    memcpy(types, parts.types, count);
    for (uint32_t i = 0; i < more; i++) {
        tokens[count + i] = str_from(padding[i]);
        types[count + i] = type;
    }
    if (name) tokens[SMALL_THINK] = str_from(name);
    parts.tokens = tokens, parts.types = types;
    parts.token_count = parts.type_count = count + more;
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    struct err err = { "" };
    int rc = vocab_build(&parts, &vocab, &err);
    if (rc < 0) fail_msg("%s", err_text(&err, rc));
    const struct model_info info = { .task = MODEL_GENERATE, .vocab = vocab };
    rc = drafter_check(&info, model_info(target), &err);
    /* Whichever of the two has more tokens. */
    if (!name) assert_int_equal(drafter_check(model_info(target), &info, NULL), rc);
    snprintf(text, sizeof text, "%s", rc < 0 ? err.text : "");
    free(tokens), free(types);
    return text;
}

static void t_other_vocabularies_are_refused(void **state)
{
    (void)state;
    assert_string_equal(refused(NULL, 0, 0), "");
    assert_non_null(
        strstr(refused("<|another|>", 0, 0), "its token 5 is '<|another|>', the model's is '"));
    assert_non_null(strstr(refused(NULL, 3, TOKEN_NORMAL), " tokens, the model's has "));
    assert_string_equal(refused(NULL, 3, TOKEN_UNUSED), ""); /* padding */
}

static void t_other_models_are_refused(void **state)
{
    (void)state;
    struct err err = { "" };
    struct model_info info = *model_info(small);
    info.vocab = NULL;
    assert_int_equal(drafter_check(&info, model_info(target), &err), -ENOTSUP);
    assert_string_equal(err.text, "it has no tokenizer to compare with the model's");
    info = *model_info(small);
    info.task = MODEL_EMBED;
    assert_int_equal(drafter_check(&info, model_info(target), &err), -ENOTSUP);
    assert_int_equal(drafter_check(model_info(small), &info, &err), -ENOTSUP);
    assert_string_equal(err.text, "the model is an encoder: it generates no tokens to guess");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_a_right_model_is_always_accepted),
        cmocka_unit_test(t_a_wrong_model_is_left_alone),
        cmocka_unit_test(t_sampled_outputs_are_the_same),
        cmocka_unit_test(t_load_turns_it_off),
        cmocka_unit_test(t_long_prompts_are_caught_up_in_pieces),
        cmocka_unit_test(t_few_pages),
        cmocka_unit_test(t_it_sleeps_and_wakes),
        cmocka_unit_test(t_other_vocabularies_are_refused),
        cmocka_unit_test(t_other_models_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
