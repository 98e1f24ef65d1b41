/* t_scheduler.c - tests that every output is the one its ids alone give, whatever the scheduler
 * does. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "tests/unit/engine/sched_rig.h"

#include <stdlib.h>
#include <string.h>

/* Runs a load with random arrivals, aborts, deadlines and pauses. */
static void run_load(const struct sched_config *config, uint64_t seed, bool predicted,
                     const char *why, struct sched_counts *ret, uint64_t *ret_stored)
{
    struct rig r;
    static struct load l;
    struct rng rng;
    rng_seed(&rng, seed * 31 + 1);
    load_fill(&l, seed);
    rig_init(&r, config);
    uint32_t sent = 0, idle = 0;
    while (idle < 3) {
        uint32_t arrivals = (uint32_t)rng_below(&rng, 4);
        for (; sent < REQUESTS && arrivals > 0; arrivals--, sent++) {
            int64_t deadline = 0;
            if (rng_below(&rng, 20) == 0) {
                deadline = r.now_us + (int64_t)rng_below(&rng, 60) * STEP_US + 1;
                l.cut[sent] = true;
            }
            load_submit(&r, &l, sent, deadline, predicted);
        }
        if (sent > 0) {
            uint32_t i = (uint32_t)rng_below(&rng, sent);
            if (l.session[i] && rng_below(&rng, 12) == 0) {
                sched_abort(r.s, l.session[i]);
                l.cut[i] = true;
            }
            i = (uint32_t)rng_below(&rng, sent);
            if (l.session[i] && rng_below(&rng, 6) == 0) sched_pause(r.s, l.session[i], true);
        }
        for (uint32_t i = 0; i < sent; i++) { /* readers resume after some steps */
            if (l.session[i] && l.session[i]->paused && rng_below(&rng, 8) == 0) {
                sched_pause(r.s, l.session[i], false);
            }
        }
        bool had_work = sched_has_work(r.s);
        bool ran = rig_step(&r);
        load_collect(&r, &l);
        if (!had_work) assert_false(ran);
        /* No step is empty while a session could use it. */
        if (!ran && sched_has_work(r.s))
            fail_msg("%s: idle at step %lu", why, (unsigned long)r.steps);
        bool open = false;
        for (uint32_t i = 0; i < sent; i++)
            open |= l.session[i] != NULL;
        idle = sent == REQUESTS && !open ? idle + 1 : 0;
        if (r.steps > 200000) fail_msg("%s: no end in sight", why);
    }
    load_check(&r, &l, why);
    assert_int_equal(sched_index(r.s)->pool->held_count, 0);
    sched_counts_get(r.s, ret);
    *ret_stored = r.stored;
    assert_int_equal(ret->running + ret->waiting + ret->paused, 0);
    assert_null(sched_next_ended(r.s));
    uint64_t ended = 0;
    for (int i = 0; i < SESSION_END_COUNT; i++)
        ended += ret->ended[i];
    assert_int_equal(ended, REQUESTS);
    rig_fini(&r);
}

static void t_every_way_the_same_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *why, *order, *admit, *preempt, *chunk, *evict;
        uint32_t pages, page_tokens, seqs, batch;
        bool cache, predicted;
        uint32_t preemptions_min, stored_min; /* these must occur at least so often */
    } rows[] = {
        // clang-format off
        { "usual", "fcfs", "reserve", "newest", "budget", "lru", 64, 16, 8, 64, 1, 0, 0, 5 },
        { "one at a time", "fcfs", "reserve", "newest", "budget", "lru", 64, 16, 1, 64, 1, 0, 0, 5 },
        { "no cache", "fcfs", "fit", "newest", "budget", "lru", 64, 16, 8, 64, 0, 0, 0, 0 },
        { "chunks of one token", "fcfs", "fit", "newest", "budget", "lru", 64, 16, 1, 1, 1, 0, 0, 3 },
        { "barely one context of pages", "fcfs", "fit", "newest", "budget", "lru",
          10, 16, 8, 64, 1, 0, 40, 1 },
        { "few pages, the cheapest victim", "fcfs", "fit", "least_computed", "budget", "lru",
          14, 16, 8, 64, 1, 0, 40, 1 },
        { "few pages, nothing found again", "fcfs", "fit", "newest", "budget", "lru",
          12, 16, 8, 64, 0, 0, 40, 0 },
        { "large pages", "fcfs", "fit", "newest", "budget", "probation_2hit",
          12, 32, 8, 64, 1, 0, 10, 0 },
        { "larger pages", "response_ratio", "fit", "newest", "slack", "lru",
          6, 64, 6, 40, 1, 1, 10, 0 },
        { "time in hand", "response_ratio", "reserve", "newest", "deadline", "probation_2hit",
          24, 16, 8, 256, 1, 0, 10, 5 },
        { "predicted lengths", "sjf_work", "reserve", "newest", "budget", "lru",
          34, 16, 8, 64, 1, 1, 0, 5 },
        { "time as the budget", "sjf_work", "reserve", "least_computed", "slack",
          "probation_2hit", 24, 16, 8, 256, 1, 0, 0, 5 },
        // clang-format on
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sched_config config = rig_config();
        config.policies.order = order_find(str_from(rows[i].order));
        config.policies.admit = admit_find(str_from(rows[i].admit));
        config.policies.preempt = preempt_find(str_from(rows[i].preempt));
        config.policies.chunk = chunk_find(str_from(rows[i].chunk));
        config.policies.evict = evict_find(str_from(rows[i].evict));
        config.pages = rows[i].pages;
        config.page_tokens = rows[i].page_tokens;
        config.seqs_max = rows[i].seqs;
        config.batch_tokens_max = rows[i].batch;
        config.prefix_cache = rows[i].cache;
        config.step_s_max = 5e-3;
        struct sched_counts total = { 0 };
        uint64_t stored = 0;
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct sched_counts c;
            uint64_t more;
            run_load(&config, seed * 100 + i, rows[i].predicted, rows[i].why, &c, &more);
            total.preemptions += c.preemptions;
            total.hit_tokens += c.hit_tokens;
            stored += more;
        }
        /* The rows must reach these cases. */
        if (total.preemptions < rows[i].preemptions_min) {
            fail_msg("%s: %lu preemptions", rows[i].why, (unsigned long)total.preemptions);
        }
        if (rows[i].cache != (total.hit_tokens > 0)) fail_msg("%s: hits", rows[i].why);
        if (stored < rows[i].stored_min) fail_msg("%s: whole hits", rows[i].why);
    }
}

/* Under every order policy and preset tokens are the same, every page is accounted for, and every
 * request ends. */
static void t_every_row_the_same_tokens(void **state)
{
    (void)state;
    static const struct {
        uint32_t pages, seqs, swap;
        bool cache;
    } sizes[] = { { 64, 8, 0, true },
                  { 14, 8, 0, true },
                  { 14, 8, 40, true },
                  { 12, 4, 9, false },
                  { 24, 3, 100, true } };
    uint64_t swapped = 0, parked = 0;
    for (uint32_t row = 0; row < order_count + preset_count; row++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            struct sched_config config = rig_config();
            config.pages = sizes[i].pages;
            config.seqs_max = sizes[i].seqs;
            config.swap_pages = sizes[i].swap;
            config.prefix_cache = sizes[i].cache;
            config.swap_page_s = 1e-6;
            config.step_s_max = 5e-3;
            const char *why;
            if (row < order_count) {
                config.policies.order = order_table[row];
                config.policies.admit = i % 2 ? admit_find(STR("fit")) : NULL;
                why = order_table[row]->name;
            } else {
                config.preset = preset_table[row - order_count];
                why = config.preset->name;
                if (config.preset->swap_ratio > 0 && config.swap_pages == 0)
                    config.swap_pages = config.pages;
            }
            struct sched_counts c, again;
            uint64_t stored;
            run_load(&config, row * 100 + i, row % 2, why, &c, &stored);
            run_load(&config, row * 100 + i, row % 2, why, &again, &stored);
            if (memcmp(&c, &again, sizeof c) != 0) fail_msg("%s: not twice the same", why);
            swapped += c.swapped_in;
            parked += c.parked;
        }
    }
    if (swapped < 1000 || parked < 500)
        fail_msg("%lu pages swapped, %lu parked", (unsigned long)swapped, (unsigned long)parked);
}

/* One session runs; the head of the queue is the first by rank, and asks for no page it has or
 * finds cached. */
static void t_the_head_of_the_queue_says_its_pages(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = rig_config();
    config.seqs_max = 1;
    config.policies.order = order_find(STR("sjf_prompt"));
    load_fill(&l, 3);
    rig_init(&r, &config);
    assert_int_equal(sched_head_pages(r.s), 0);
    static const uint32_t prompts[] = { 40, 100, 60, 16 };
    for (uint32_t i = 0; i < COUNT_OF(prompts); i++) {
        l.count[i] = prompts[i], l.output_max[i] = 20;
        for (uint32_t k = 0; k < prompts[i]; k++)
            l.ids[i][k] = 100 * i + k; /* no common prefix */
    }
    load_submit(&r, &l, 0, 0, false);
    assert_int_equal(sched_head_pages(r.s), 3); /* not planned yet */
    assert_true(rig_step(&r));
    assert_int_equal(sched_head_pages(r.s), 0); /* it runs */
    load_submit(&r, &l, 1, 0, false);
    assert_true(rig_step(&r));
    assert_int_equal(sched_head_pages(r.s), 7);
    load_submit(&r, &l, 2, 0, false);
    assert_int_equal(sched_head_pages(r.s), 7); /* it has no rank yet: behind the head */
    assert_true(rig_step(&r));
    assert_int_equal(sched_head_pages(r.s), 4);
    load_submit(&r, &l, 3, 0, false);
    memcpy(l.ids[4], l.ids[0], sizeof l.ids[4]);
    l.count[4] = 32, l.output_max[4] = 20; /* the first two pages of the running one */
    load_submit(&r, &l, 4, 0, false);
    assert_true(rig_step(&r));
    assert_int_equal(sched_head_pages(r.s), 1);
    sched_abort(r.s, l.session[3]);
    assert_true(rig_step(&r));
    assert_int_equal(sched_head_pages(r.s), 1); /* all but its last token is cached */
    sched_pause(r.s, l.session[4], true);
    assert_int_equal(sched_head_pages(r.s), 4); /* a paused session is no head */
    rig_fini(&r);
}

static void t_decodes_go_before_prompts(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = rig_config();
    config.batch_tokens_max = 16;
    load_fill(&l, 4);
    rig_init(&r, &config);
    l.count[0] = 8, l.output_max[0] = OUTPUT_MAX;
    load_submit(&r, &l, 0, 0, false);
    assert_true(rig_step(&r));
    l.count[1] = PROMPT_MAX, l.output_max[1] = 1;
    load_submit(&r, &l, 1, 0, false);
    uint32_t steps = 0;
    while (l.session[0] && l.session[1]) {
        uint32_t before = session_generated(l.session[0]);
        const struct sched_batch *batch = sched_plan(r.s, ++r.now_us, &rig_perf);
        assert_ptr_equal(batch->item[0].session, l.session[0]); /* it decodes first */
        assert_int_equal(batch->item[0].count, 1);
        if (batch->count == 2) assert_int_equal(batch->tokens, 16); /* the prompt fills the rest */
        if (batch->count == 2) assert_int_equal(batch->shape.prefill_tokens, 15);
        assert_int_equal(batch->shape.decoding_seqs, 1);
        rig_execute(&r, batch);
        r.result[0].stop = false;
        sched_commit(r.s, r.result, r.now_us);
        assert_int_equal(session_generated(l.session[0]), before + 1);
        load_collect(&r, &l);
        if (++steps == 8) assert_null(l.session[1]); /* 120 tokens in chunks of 15 */
    }
    rig_fini(&r);
}

/* Submits the first prompt, of 64 tokens, once more as request `i`. */
static void submit_same(struct rig *r, struct load *l, uint32_t i, uint32_t output_max)
{
    l->count[i] = 64, l->output_max[i] = output_max;
    memcpy(l->ids[i], l->ids[0], sizeof l->ids[0]);
    load_submit(r, l, i, 0, false);
}

static void t_hits_leave_one_token(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = rig_config();
    load_fill(&l, 8);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 2; i++) {
        submit_same(&r, &l, i, 1);
        const struct sched_batch *batch = sched_plan(r.s, ++r.now_us, &rig_perf);
        assert_int_equal(batch->tokens, i == 0 ? 64 : 1); /* prompt - 1 tokens at most */
        assert_int_equal(l.session[i]->cached_tokens, i == 0 ? 0 : 63);
        rig_execute(&r, batch);
        assert_int_equal(r.stored, i); /* the last page is read, not written */
        sched_commit(r.s, r.result, r.now_us);
        load_collect(&r, &l);
    }
    assert_memory_equal(l.output[0], l.output[1], sizeof(uint32_t));
    rig_fini(&r);
}

/* Outputs of one prompt hold its whole pages together, and one page of their own each for what they generate. */
static void t_samples_share_every_whole_page(void **state)
{
    enum { SAMPLES = 4 };
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = rig_config();
    load_fill(&l, 9);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        submit_same(&r, &l, i, 16);
        sched_plan(r.s, ++r.now_us, &rig_perf);
        for (uint32_t k = 0; k <= i; k++)
            r.result[k] = (struct sched_result){ .id = 7 };
        sched_commit(r.s, r.result, r.now_us);
    }
    sched_plan(r.s, ++r.now_us, &rig_perf);
    assert_int_equal(sched_index(r.s)->pool->held_count, 64 / 16 + SAMPLES);
    rig_fini(&r);
}

static void t_tenants_do_not_share(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = rig_config();
    rig_init(&r, &config);
    uint32_t ids[64] = { 0 };
    uint64_t hits[3];
    const char *const tenants[] = { "one", "two", "one" };
    for (int i = 0; i < 3; i++) {
        struct session *session;
        struct sched_request req = {
            .ids = ids,
            .prompt_tokens = 64,
            .output_max = 1,
            .salt = block_salt(99, STR("w"), STR(""), str_from(tenants[i])),
        };
        assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
        while (rig_step(&r)) {
        }
        session = sched_next_ended(r.s);
        hits[i] = session->cached_tokens;
        sched_release(r.s, session);
    }
    assert_int_equal(hits[0], 0);
    assert_int_equal(hits[1], 0);
    assert_int_equal(hits[2], 63);
    rig_fini(&r);
}

static void t_abort_and_deadline_free_at_the_next_plan(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = rig_config();
    load_fill(&l, 9);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 2; i++)
        l.count[i] = 40, l.output_max[i] = OUTPUT_MAX;
    load_submit(&r, &l, 0, 0, false);
    load_submit(&r, &l, 1, r.now_us + 2 * STEP_US, false);
    rig_step(&r);
    assert_true(sched_index(r.s)->pool->held_count >= 5);
    assert_int_equal(sched_next_deadline_us(r.s), l.session[1]->deadline_us);
    sched_abort(r.s, l.session[0]);
    assert_true(sched_has_work(r.s));
    rig_step(&r); /* also reaches the deadline */
    assert_int_equal(sched_index(r.s)->pool->held_count, 0);
    load_collect(&r, &l);
    assert_int_equal(l.end[0], SESSION_END_ABORT);
    assert_int_equal(l.end[1], SESSION_END_DEADLINE);
    assert_false(sched_has_work(r.s));
    rig_fini(&r);
}

static void t_bounds_are_answers(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = rig_config();
    config.waiting_max = 2;
    rig_init(&r, &config);
    uint32_t ids[PROMPT_MAX + OUTPUT_MAX] = { 0 };
    struct session *session = NULL;
    struct sched_request req = { .ids = ids, .prompt_tokens = 4, .output_max = 1000000 };
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
    assert_int_equal(session->total_max, config.context_max);
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -EAGAIN);
    req.prompt_tokens = config.context_max;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -E2BIG);
    req.prompt_tokens = 0;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -EINVAL);
    req.prompt_tokens = 4, req.output_max = 0;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -EINVAL);
    struct sched_counts c;
    sched_counts_get(r.s, &c);
    assert_int_equal(c.refused, 1);
    rig_fini(&r);
}

static void t_config_is_checked(void **state)
{
    (void)state;
    const struct sched_config good = rig_config();
    struct sched_config bad[6];
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        bad[i] = good;
    bad[0].page_tokens = 20;
    bad[1].page_tokens = 128;
    bad[2].seqs_max = 0;
    bad[3].batch_tokens_max = good.seqs_max - 1;
    bad[4].pages = 9; /* 144 tokens for a context of 160 */
    bad[5].waiting_max = 0;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct scheduler *s = NULL;
        struct err err = { "" };
        assert_int_equal(sched_new(&bad[i], &s, &err), -EINVAL);
        assert_true(err.text[0] != '\0' && s == NULL);
    }
}

static void t_a_failed_step_ends_its_sessions(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = rig_config();
    config.seqs_max = 2;
    config.policies.order = order_find(STR("fcfs"));
    load_fill(&l, 14);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 3; i++) {
        l.count[i] = 20;
        load_submit(&r, &l, i, 0, false);
    }
    assert_int_equal(sched_plan(r.s, ++r.now_us, &rig_perf)->count, 2);
    sched_discard(r.s, r.now_us);
    assert_true(sched_check(r.s));
    load_collect(&r, &l);
    assert_int_equal(l.end[0], SESSION_END_ERROR);
    assert_int_equal(l.end[1], SESSION_END_ERROR);
    assert_non_null(l.session[2]); /* was not in the failed batch */
    while (rig_step(&r)) {
    }
    load_collect(&r, &l);
    assert_int_equal(l.ended[2], 1);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_every_way_the_same_tokens),
        cmocka_unit_test(t_every_row_the_same_tokens),
        cmocka_unit_test(t_the_head_of_the_queue_says_its_pages),
        cmocka_unit_test(t_decodes_go_before_prompts),
        cmocka_unit_test(t_hits_leave_one_token),
        cmocka_unit_test(t_samples_share_every_whole_page),
        cmocka_unit_test(t_tenants_do_not_share),
        cmocka_unit_test(t_abort_and_deadline_free_at_the_next_plan),
        cmocka_unit_test(t_bounds_are_answers),
        cmocka_unit_test(t_config_is_checked),
        cmocka_unit_test(t_a_failed_step_ends_its_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
