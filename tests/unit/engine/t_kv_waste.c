/* t_kv_waste.c - measures how much of the KV memory that the scheduler holds has no token in it, at the lengths of
 * Azure's chat requests, and how much several samples of one prompt hold.
 *
 * The executor is none: every step succeeds, outputs have the lengths that the trace names. */
#include "base/core/own.h"
#include "cli/input_file.h"
#include "engine/core/scheduler.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define PAGE 16u
#define SEQS 64u
#define CHATS 2000u /* of the trace, from its beginning */
#define CONTEXT 32768u

static const struct perf_coef perf = { .step_s = 2e-3,
                                       .prefill_token_s = 1e-4,
                                       .decode_seq_s = 3e-4,
                                       .kv_read_s = 1e-7,
                                       .attend_s = 1e-7 };

/* Sums over steps. */
struct held {
    uint64_t tokens, slots;
    uint32_t pages_max;
};

static struct scheduler *scheduler_of(uint32_t pages, bool prefix_cache)
{
    const struct sched_config config = { .pages = pages,
                                         .page_tokens = PAGE,
                                         .context_max = CONTEXT,
                                         .seqs_max = SEQS,
                                         .batch_tokens_max = 2048,
                                         .waiting_max = CHATS,
                                         .events_max = 64,
                                         .prefix_cache = prefix_cache,
                                         .key_seed = 7 };
    struct scheduler *s = NULL;
    struct err err;
    if (sched_new(&config, &s, &err) < 0) fail_msg("%s", err.text);
    return s;
}

static struct session *submit(struct scheduler *s, const uint32_t *ids, uint32_t prompt,
                              uint32_t output)
{
    const struct sched_request ask = { .ids = ids, .prompt_tokens = prompt, .output_max = output };
    struct session *session = NULL;
    struct err err;
    if (sched_submit(s, &ask, &session, &err) < 0) fail_msg("%s", err.text);
    return session;
}

/* Does one step and adds what all running sessions hold after it. Returns false when nothing could run. */
static bool step(struct scheduler *s, int64_t *now_us, struct session *const *all, uint32_t count,
                 struct held *held)
{
    static const struct sched_result result[SEQS] = { { .id = 1 } };
    const struct sched_batch *batch = sched_plan(s, *now_us, &perf);
    const bool ran = batch->count > 0;
    *now_us += 1000;
    if (ran) sched_commit(s, result, *now_us);
    const struct kv_pool *pool = sched_index(s)->pool;
    for (uint32_t i = 0; i < count; i++) {
        if (!all[i] || all[i]->state != SESSION_RUNNING) continue;
        held->tokens += all[i]->computed;
        held->slots += (uint64_t)all[i]->page_count * PAGE;
    }
    held->pages_max = max_u32(held->pages_max, pool->held_count);
    return ran;
}

static uint32_t collect(struct scheduler *s, struct session **all, uint32_t count)
{
    uint32_t ended = 0;
    for (struct session *session; (session = sched_next_ended(s)); ended++) {
        assert_int_equal(session->end, SESSION_END_LENGTH);
        for (uint32_t i = 0; i < count; i++)
            if (all[i] == session) all[i] = NULL;
        sched_release(s, session);
    }
    return ended;
}

static void less_than_four_per_cent_is_empty_at_azure_s_lengths(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = NULL;
    CLEANUP(sched_freep) struct scheduler *s = scheduler_of(8192, false);
    struct session **all = calloc(CHATS, sizeof *all);
    uint32_t *ids = calloc(CONTEXT, sizeof *ids), ended = 0;
    int64_t now_us = 1;
    struct held held = { 0 };
    struct err err;
    must(all && ids);
    if (trace_file_load("azure-2023-conv.csv", TRACE_AZURE, &t, &err) < 0) fail_msg("%s", err.text);
    assert_true(t->count >= CHATS);
    for (uint32_t i = 0; i < CHATS; i++)
        all[i] = submit(s, ids, t->request[i].prompt_tokens, t->request[i].output_tokens);
    while (ended < CHATS) {
        assert_true(step(s, &now_us, all, CHATS, &held));
        ended += collect(s, all, CHATS);
    }
    const double empty = 1 - (double)held.tokens / (double)held.slots;
    print_message("%.2f %% of what running sequences hold is empty; at most %u of 8192 pages\n",
                  100 * empty, held.pages_max);
    assert_true(held.pages_max > 2000);
    assert_true(empty > 0.001 && empty < 0.04);
    free(all);
    free(ids);
}

/* Returns the most pages that so many samples of 1,024 tokens and 128 more hold. As the engine does, the others start
 * when the first has its first token. */
static uint32_t samples(uint32_t count)
{
    CLEANUP(sched_freep) struct scheduler *s = scheduler_of(8192, true);
    struct session *all[4] = { NULL };
    uint32_t ids[1024], ended = 0;
    int64_t now_us = 1;
    struct held held = { 0 };
    for (uint32_t i = 0; i < 1024; i++)
        ids[i] = i * 7 % 1000;
    all[0] = submit(s, ids, 1024, 128);
    while (session_generated(all[0]) == 0)
        assert_true(step(s, &now_us, all, count, &held));
    for (uint32_t i = 1; i < count; i++)
        all[i] = submit(s, ids, 1024, 128);
    while (ended < count) {
        assert_true(step(s, &now_us, all, count, &held));
        ended += collect(s, all, count);
    }
    return held.pages_max;
}

static void four_samples_hold_a_third_more_than_one(void **state)
{
    (void)state;
    const uint32_t one = samples(1), four = samples(4);
    print_message("one sample holds %u pages, four hold %u: %.3f times\n", one, four,
                  (double)four / one);
    assert_int_equal(one, 72);
    assert_true(four < 1.35 * one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(less_than_four_per_cent_is_empty_at_azure_s_lengths),
        cmocka_unit_test(four_samples_hold_a_third_more_than_one),
    };
    return cmocka_run_group_tests_name("kv_waste", tests, NULL, NULL);
}
