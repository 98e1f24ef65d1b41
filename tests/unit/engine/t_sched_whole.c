/* t_sched_whole.c - tests that prompts of an encoder are computed whole, by every policy that cuts prompts. */
#include "base/core/rng.h"
#include "policies/catalog.h"
#include "tests/unit/engine/sched_rig.h"

#include <stdlib.h>

/* Plans and commits one step, in which every item must be a whole prompt. */
static uint32_t step(struct rig *r)
{
    r->now_us += STEP_US;
    const struct sched_batch *batch = sched_plan(r->s, r->now_us, &rig_perf);
    const uint32_t count = batch->count;
    assert_true(sched_check(r->s));
    assert_true(batch->tokens <= r->config.batch_tokens_max);
    for (uint32_t i = 0; i < count; i++) {
        const struct sched_item *item = &batch->item[i];
        assert_int_equal(item->start, 0);
        assert_int_equal(item->count, item->session->prompt_tokens);
        assert_true(item->sample);
        r->result[i] = (struct sched_result){ .done = true };
    }
    if (count > 0) sched_commit(r->s, r->result, r->now_us);
    return count;
}

static void run(const struct sched_config *config, const char *why)
{
    static struct load l;
    struct rig r;
    struct rng rng;
    uint32_t sent = 0, ended = 0, most = 0;
    load_fill(&l, 7);
    rig_init(&r, config);
    rng_seed(&rng, 11);
    while (ended < REQUESTS) {
        for (uint64_t n = rng_below(&rng, 6); n > 0 && sent < REQUESTS; n--, sent++) {
            l.output_max[sent] = 1;
            load_submit(&r, &l, sent, 0, false);
            ended += l.ended[sent]; /* a full queue refused it */
        }
        const uint32_t count = step(&r);
        most = count > most ? count : most;
        if (count == 0 && sched_has_work(r.s)) fail_msg("%s: idle", why);
        for (struct session *s; (s = sched_next_ended(r.s)); ended++) {
            assert_int_equal(s->end, SESSION_END_STOP);
            sched_release(r.s, s);
        }
    }
    if (most < 2) fail_msg("%s: never two texts in one step", why);
    assert_int_equal(sched_index(r.s)->pool->held_count, 0);
    rig_fini(&r);
}

static void every_policy_leaves_prompts_whole(void **state)
{
    (void)state;
    for (const struct chunk_policy *const *chunk = chunk_table; *chunk; chunk++) {
        struct sched_config config = rig_config();
        config.policies.chunk = *chunk;
        config.whole_prompts = true;
        config.prefix_cache = false;
        config.context_max = PROMPT_MAX + 1;
        config.batch_tokens_max = PROMPT_MAX;
        config.step_s_max = 5e-3; /* fifty tokens: less than many prompts have */
        config.ttft_s_max = 1;
        run(&config, (*chunk)->name);
        config.pages = 9; /* one prompt's and a bit */
        run(&config, (*chunk)->name);
    }
}

static void a_step_must_hold_any_prompt(void **state)
{
    (void)state;
    struct sched_config config = rig_config();
    struct scheduler *s = NULL;
    struct err err = { { 0 } };
    config.whole_prompts = true;
    config.context_max = config.batch_tokens_max + 2;
    assert_int_equal(sched_new(&config, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "do not hold a whole prompt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_leaves_prompts_whole),
        cmocka_unit_test(a_step_must_hold_any_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
