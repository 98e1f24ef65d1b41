/* t_embedding.c - tests sessions that want the states of their tokens instead of an output: alone, beside
 * others, in chunks, preempted and with a warm cache they bring the same bits. */
#include "base/core/bits.h"
#include "engine/serve/executor.h"
#include "tests/unit/engine/tiny_model.h"
#include "tests/unit/unit.h"

#include <unistd.h>

#define TEXTS 6
#define EMBD_MAX 512

static struct model *model;
static int64_t now_us;

static int64_t step_clock(void)
{
    return now_us += 1000;
}

struct text {
    struct output output;
    struct embedding embedding;
    double sum[EMBD_MAX];
    uint32_t tokens, generated;
    enum session_end end;
    uint32_t cached;
};

static void on_token(void *arg, struct output *output, const struct session *session,
                     const struct sampler_result *got)
{
    (void)arg, (void)session, (void)got;
    buf_clear(&output->text);
}

static void on_end(void *arg, struct output *output, const struct session *session)
{
    (void)arg;
    struct text *t = CONTAINER_OF(output, struct text, output);
    t->end = session->end;
    t->generated = session_generated(session);
    t->cached = session->cached_tokens;
    output_fini(output);
}

static struct executor *open_executor(uint32_t pages, uint32_t batch_tokens)
{
    struct err err = { "" };
    struct executor *x = NULL;
    const struct executor_config config = {
        .sched = { .pages = pages,
                   .page_tokens = 16,
                   .context_max = TINY_CONTEXT,
                   .seqs_max = 8,
                   .batch_tokens_max = batch_tokens,
                   .waiting_max = 16,
                   .events_max = 64,
                   .prefix_cache = true },
        .threads = 2,
    };
    const struct executor_events events = { .on_token = on_token, .on_end = on_end };
    if (executor_new(model, &config, &events, &x, &err) < 0) fail_msg("%s", err.text);
    return x;
}

/* Queues a text; with `output_max` above 0 it generates instead. */
static void submit(struct executor *x, struct text *t, enum pooling pooling, uint32_t first,
                   uint32_t tokens, uint32_t output_max)
{
    uint32_t ids[TINY_CONTEXT];
    struct session *session;
    *t = (struct text){ .tokens = tokens };
    t->embedding = (struct embedding){ .sum = t->sum, .pooling = pooling };
    for (uint32_t i = 0; i < tokens; i++)
        ids[i] = 6 + (first * 31 + i * 13 + i / 16) % 250;
    const struct output_spec spec = { .embedding = output_max ? NULL : &t->embedding,
                                      .prompt_tokens = tokens,
                                      .ignore_eos = true };
    const struct sched_request req = {
        .id = first,
        .owner = &t->output,
        .ids = ids,
        .prompt_tokens = tokens,
        .output_max = max_u32(output_max, 1),
        .salt = { .lo = pooling == POOLING_MEAN ? first + 1 : 0 }, /* as the HTTP API salts them */
        .arrival_us = first,
    };
    assert_int_equal(output_init(&t->output, model_info(model)->vocab, &spec, ids, tokens), 0);
    assert_int_equal(sched_submit(executor_sched(x), &req, &session, NULL), 0);
}

static void run(struct executor *x)
{
    struct executor_step_info info;
    struct err err = { "" };
    while (sched_has_work(executor_sched(x)))
        if (executor_step(x, step_clock, &info, &err) < 0) fail_msg("%s", err.text);
    assert_true(sched_check(executor_sched(x)));
}

static void same(const struct text *a, const struct text *b, const char *what)
{
    assert_int_equal(a->end, SESSION_END_STOP);
    assert_int_equal(a->generated, 0);
    if (memcmp(a->sum, b->sum, sizeof a->sum) != 0) fail_msg("%s changes bits", what);
}

static uint32_t tokens_of(uint32_t i)
{
    static const uint32_t tokens[TEXTS] = { 1, 16, 17, 40, 100, 200 };
    return tokens[i];
}

/* Computes every text by itself, in one step. */
static void compute_alone(enum pooling pooling, struct text *ret)
{
    for (uint32_t i = 0; i < TEXTS; i++) {
        struct executor *x = open_executor(20, 256);
        submit(x, &ret[i], pooling, i, tokens_of(i), 0);
        run(x);
        assert_int_equal(ret[i].end, SESSION_END_STOP);
        executor_free(x);
    }
}

static void company_chunks_and_preemption_change_no_bit(void **state)
{
    (void)state;
    static const struct {
        uint32_t pages, batch_tokens;
        bool preempts;
    } worlds[] = { { 60, 256, false }, { 60, 8, false }, { 60, 37, false }, { 17, 64, true } };
    static struct text alone[TEXTS], t[TEXTS], others[3];
    for (int p = POOLING_LAST; p <= POOLING_MEAN; p++) {
        compute_alone((enum pooling)p, alone);
        for (size_t w = 0; w < COUNT_OF(worlds); w++) {
            struct executor *x = open_executor(worlds[w].pages, worlds[w].batch_tokens);
            struct sched_counts counts;
            for (uint32_t i = 0; i < COUNT_OF(others); i++)
                submit(x, &others[i], POOLING_LAST, 20 + i, 30 + i, 60);
            for (uint32_t i = 0; i < TEXTS; i++)
                submit(x, &t[i], (enum pooling)p, i, tokens_of(i), 0);
            run(x);
            for (uint32_t i = 0; i < TEXTS; i++)
                same(&t[i], &alone[i], "company");
            for (uint32_t i = 0; i < COUNT_OF(others); i++)
                assert_int_equal(others[i].generated, 60);
            sched_counts_get(executor_sched(x), &counts);
            assert_int_equal(counts.generated_tokens, 180);
            if (worlds[w].preempts) assert_true(counts.preemptions > 0);
            executor_free(x);
        }
    }
}

static void the_last_state_comes_with_a_warm_cache(void **state)
{
    (void)state;
    static struct text cold, warm;
    struct executor *x = open_executor(20, 256);
    submit(x, &cold, POOLING_LAST, 5, 200, 0);
    run(x);
    submit(x, &warm, POOLING_LAST, 5, 200, 0);
    run(x);
    assert_int_equal(cold.cached, 0);
    assert_int_equal(warm.cached, 192);
    same(&warm, &cold, "the cache");
    executor_free(x);
}

static void a_mean_is_made_of_the_states_of_all_prefixes(void **state)
{
    (void)state;
    static struct text mean, last;
    static double sum[EMBD_MAX];
    const uint32_t tokens = 20, width = model_info(model)->n_embd;
    must(width <= EMBD_MAX);
    struct executor *x = open_executor(20, 256);
    submit(x, &mean, POOLING_MEAN, 3, tokens, 0);
    run(x);
    for (uint32_t n = 1; n <= tokens; n++) {
        submit(x, &last, POOLING_LAST, 3, n, 0);
        run(x);
        for (uint32_t i = 0; i < width; i++)
            sum[i] += last.sum[i];
    }
    assert_memory_equal(mean.sum, sum, sizeof sum);
    executor_free(x);
}

int main(void)
{
    char path[64];
    int fd = tiny_model_path(TINY_CONTEXT, path);
    const struct model_load_options opt = { 0 };
    if (model_load(path, &opt, &model, NULL) < 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(company_chunks_and_preemption_change_no_bit),
        cmocka_unit_test(the_last_state_comes_with_a_warm_cache),
        cmocka_unit_test(a_mean_is_made_of_the_states_of_all_prefixes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_free(model);
    close(fd);
    return failed;
}
