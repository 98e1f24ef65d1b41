/* t_sched_aside.c - tests sessions that are paused, held or imported from another engine. */
#include "base/core/bits.h"
#include "tests/unit/engine/sched_rig.h"

#include <stdlib.h>
#include <string.h>

static void t_paused_keeps_pages_until_others_need_them(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = rig_config();
    config.pages = 10;
    load_fill(&l, 12);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 2; i++)
        l.count[i] = 100, l.output_max[i] = 20;
    load_submit(&r, &l, 0, 0, false);
    rig_step(&r), rig_step(&r);
    uint32_t held = l.session[0]->page_count;
    sched_pause(r.s, l.session[0], true);
    assert_false(rig_step(&r));
    assert_false(sched_has_work(r.s));
    assert_int_equal(l.session[0]->page_count, held);
    load_submit(&r, &l, 1, 0, false); /* needs more pages than are left */
    assert_true(rig_step(&r));
    assert_int_equal(l.session[0]->state, SESSION_WAITING);
    assert_int_equal(l.session[0]->page_count, 0);
    while (rig_step(&r)) {
    }
    sched_pause(r.s, l.session[0], false);
    while (rig_step(&r)) {
    }
    load_collect(&r, &l);
    assert_int_equal(l.ended[0] + l.ended[1], 2);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t want[OUTPUT_MAX];
        assert_int_equal(rig_truth(l.ids[i], 100, 20, want), l.answer_count[i]);
        assert_memory_equal(want, l.output[i], l.answer_count[i] * sizeof *want);
    }
    rig_fini(&r);
}

/* One engine computes a prompt and its first token, another continues: with none, half or most of
 * the prompt in its own cache, and with so few pages that imported sessions are preempted. */
static void t_imported_tokens_are_not_computed_again(void **state)
{
    (void)state;
    static struct load l;
    for (uint32_t seed = 0; seed < 20; seed++) {
        struct rig from, to;
        struct sched_config config = rig_config();
        load_fill(&l, 100 + seed);
        rig_init(&from, &config);
        if (seed % 2) config.pages = 10; /* one context and no more */
        rig_init(&to, &config);
        uint64_t brought[8][PROMPT_MAX];
        for (uint32_t i = 0; i < 8; i++) {
            struct session *session;
            struct err err;
            struct sched_request req = {
                .ids = l.ids[i], .prompt_tokens = l.count[i], .output_max = 1, .keep_pages = true
            };
            assert_int_equal(sched_submit(from.s, &req, &session, &err), 0);
            while (rig_step(&from)) {
            }
            session = sched_next_ended(from.s);
            assert_true(sched_check(from.s) && session->page_count > 0);
            for (uint32_t k = 0; k < l.count[i]; k++)
                brought[i][k] = *rig_slot(&from, session, k);
            uint32_t ids[PROMPT_MAX + 1];
            memcpy(ids, session->ids, session->total * sizeof *ids);
            bool ended = session->end == SESSION_END_STOP;
            sched_release(from.s, session);
            assert_true(sched_check(from.s));
            if (ended) continue;
            struct sched_request next = { .id = i,
                                          .owner = brought[i],
                                          .ids = ids,
                                          .prompt_tokens = l.count[i] + 1,
                                          .output_max = OUTPUT_MAX - 1,
                                          .imported_tokens = l.count[i] };
            assert_int_equal(sched_submit(to.s, &next, &session, &err), 0);
        }
        while (rig_step(&to)) {
        }
        for (struct session *s; (s = sched_next_ended(to.s)); sched_release(to.s, s)) {
            uint32_t expected[OUTPUT_MAX];
            uint32_t n = rig_truth(l.ids[s->id], l.count[s->id], OUTPUT_MAX, expected);
            assert_int_equal(s->total - l.count[s->id], n);
            assert_memory_equal(s->ids + l.count[s->id], expected, n * sizeof *expected);
        }
        rig_fini(&from);
        rig_fini(&to);
    }
}

/* An ended session keeps its pages while they are copied elsewhere: sessions that need them wait,
 * and are neither admitted nor preempted; a session that needs fewer runs. */
static void pages_under_way(const char *admit)
{
    struct rig r;
    struct sched_config config = rig_config();
    config.pages = 10;
    config.policies.admit = admit_find(str_from(admit));
    rig_init(&r, &config);
    uint32_t ids[PROMPT_MAX] = { 0 };
    struct session *first, *large, *small;
    struct sched_counts counts;
    struct sched_request req = {
        .ids = ids, .prompt_tokens = 80, .output_max = 1, .keep_pages = true
    };
    assert_int_equal(sched_submit(r.s, &req, &first, NULL), 0);
    while (rig_step(&r)) {
    }
    assert_ptr_equal(sched_next_ended(r.s), first);
    ids[0] = 1;
    req.prompt_tokens = 100;
    assert_int_equal(sched_submit(r.s, &req, &large, NULL), 0);
    for (int i = 0; i < 5; i++)
        assert_false(rig_step(&r));
    sched_counts_get(r.s, &counts);
    assert_int_equal(counts.preemptions, 0);
    assert_int_equal(large->state, SESSION_WAITING);
    assert_false(large->admitted_once);
    sched_abort(r.s, large);
    assert_false(rig_step(&r));
    assert_ptr_equal(sched_next_ended(r.s), large);
    sched_release(r.s, large);

    ids[0] = 2;
    req.prompt_tokens = 50;
    assert_int_equal(sched_submit(r.s, &req, &small, NULL), 0);
    ids[0] = 1;
    req.prompt_tokens = 100;
    assert_int_equal(sched_submit(r.s, &req, &large, NULL), 0);
    while (rig_step(&r)) {
    }
    assert_ptr_equal(sched_next_ended(r.s), small);
    assert_int_equal(large->state, SESSION_WAITING);
    sched_release(r.s, small);
    sched_release(r.s, first);
    while (rig_step(&r)) {
    }
    assert_ptr_equal(sched_next_ended(r.s), large);
    sched_counts_get(r.s, &counts);
    assert_int_equal(counts.preemptions, 0);
    sched_release(r.s, large);
    rig_fini(&r);
}

static void t_pages_under_way_are_waited_for(void **state)
{
    (void)state;
    pages_under_way(ADMIT_DEFAULT);
    pages_under_way("fit");
}

/* With admit policy "all" a session is admitted without pages, and that is no preemption. */
static void t_who_had_no_pages_is_not_preempted(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = rig_config();
    config.pages = 10;
    config.policies.admit = admit_find(STR("all"));
    rig_init(&r, &config);
    uint32_t ids[160] = { 0 };
    struct session *first, *next;
    struct sched_counts counts;
    struct sched_request req = {
        .ids = ids, .prompt_tokens = 159, .output_max = 1, .keep_pages = true
    };
    assert_int_equal(sched_submit(r.s, &req, &first, NULL), 0);
    while (rig_step(&r)) {
    }
    assert_ptr_equal(sched_next_ended(r.s), first);
    ids[0] = 1;
    req.prompt_tokens = 40;
    assert_int_equal(sched_submit(r.s, &req, &next, NULL), 0);
    for (int i = 0; i < 5; i++)
        assert_false(rig_step(&r));
    assert_true(next->admitted_once && next->state == SESSION_WAITING);
    sched_counts_get(r.s, &counts);
    assert_int_equal(counts.preemptions + next->preemptions, 0);
    sched_release(r.s, first);
    while (rig_step(&r)) {
    }
    assert_ptr_equal(sched_next_ended(r.s), next);
    sched_release(r.s, next);
    rig_fini(&r);
}

static void t_an_import_is_one_step_and_leaves_a_token(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = rig_config();
    rig_init(&r, &config);
    uint32_t ids[65] = { 0 };
    uint64_t brought[65] = { 0 };
    struct session *session;
    struct sched_request req = {
        .owner = brought, .ids = ids, .prompt_tokens = 65, .output_max = 4, .imported_tokens = 64
    };
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
    const struct sched_batch *batch = sched_plan(r.s, ++r.now_us, &rig_perf);
    assert_int_equal(batch->tokens, 1);
    assert_int_equal(batch->item[0].import_from, 0);
    assert_int_equal(batch->item[0].start, 64);
    assert_int_equal(batch->shape.decoding_seqs, 1); /* it decodes at once */
    rig_execute(&r, batch);
    sched_commit(r.s, r.result, r.now_us);
    batch = sched_plan(r.s, ++r.now_us, &rig_perf);
    assert_int_equal(batch->item[0].import_from, batch->item[0].start); /* imported once */
    sched_discard(r.s, r.now_us);

    /* The prefix before the imported part is not cached, so all of it is computed. */
    req.imported_from = 32;
    ids[0] = 1;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
    batch = sched_plan(r.s, ++r.now_us, &rig_perf);
    assert_int_equal(batch->item[0].start, 0);
    assert_int_equal(batch->item[0].import_from, 0);
    sched_discard(r.s, r.now_us);
    req.imported_tokens = 65;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -EINVAL);
    rig_fini(&r);
}

/* A held session keeps its pages and computes nothing while others starve for pages; released, it
 * goes on with the same tokens. */
static void t_held_keeps_pages_and_takes_no_step(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = rig_config();
    config.pages = 12;
    load_fill(&l, 33);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 3; i++) {
        l.count[i] = 60, l.output_max[i] = OUTPUT_MAX;
        load_submit(&r, &l, i, 0, false);
    }
    assert_true(rig_step(&r));
    struct session *held = l.session[0];
    assert_int_equal(held->state, SESSION_RUNNING);
    sched_hold(r.s, held, true);
    uint32_t pages = held->page_count, computed = held->computed;
    while (rig_step(&r)) {
    }
    assert_int_equal(held->state, SESSION_RUNNING);
    assert_int_equal(held->page_count, pages);
    assert_int_equal(held->computed, computed);
    sched_hold(r.s, held, false);
    while (rig_step(&r)) {
    }
    load_collect(&r, &l);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t want[OUTPUT_MAX], n = rig_truth(l.ids[i], 60, OUTPUT_MAX, want);
        assert_int_equal(l.ended[i], 1);
        assert_int_equal(l.answer_count[i], n);
        assert_memory_equal(l.output[i], want, n * sizeof *want);
    }
    rig_fini(&r);
}

/* Runs two decoding sessions and a third whose short prompt joins a higher level; there are pages
 * for all three. Steps until the third runs; returns the pages copied out by then. */
static uint64_t swapped_before_need(bool early, struct rig *r, struct load *l)
{
    static struct order_policy order;
    order = *order_find(STR("mlfq"));
    order.swaps_early = early;
    struct sched_config config = rig_config();
    config.pages = 18;
    config.seqs_max = 2;
    config.swap_pages = 32;
    config.swap_page_s = 1e-6;
    config.policies.order = &order;
    config.policies.admit = admit_find(STR("all"));
    rig_init(r, &config);
    load_fill(l, 22);
    for (uint32_t i = 0; i < 3; i++)
        l->count[i] = i < 2 ? 110 : 16, l->output_max[i] = OUTPUT_MAX;
    for (uint32_t i = 0; i < 2; i++)
        load_submit(r, l, i, 0, false);
    for (uint32_t i = 0; i < 8; i++)
        assert_true(rig_step(r));
    load_submit(r, l, 2, 0, false);
    struct sched_counts c;
    do {
        assert_true(rig_step(r));
        sched_counts_get(r->s, &c);
    } while (l->session[2]->state != SESSION_RUNNING);
    assert_int_equal(c.parked, 1);
    assert_true(kv_index_available(sched_index(r->s)) > 0); /* pages were never short */
    return c.swapped_out;
}

static void t_pages_of_who_stands_aside_leave_early(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    assert_int_equal(swapped_before_need(false, &r, &l), 0);
    rig_fini(&r);
    assert_true(swapped_before_need(true, &r, &l) > 0);
    while (rig_step(&r)) {
    }
    load_collect(&r, &l);
    for (uint32_t i = 0; i < 3; i++) { /* their content is swapped in again */
        uint32_t want[OUTPUT_MAX], n = rig_truth(l.ids[i], l.count[i], OUTPUT_MAX, want);
        assert_int_equal(l.answer_count[i], n);
        assert_memory_equal(l.output[i], want, n * sizeof *want);
    }
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_paused_keeps_pages_until_others_need_them),
        cmocka_unit_test(t_imported_tokens_are_not_computed_again),
        cmocka_unit_test(t_pages_under_way_are_waited_for),
        cmocka_unit_test(t_who_had_no_pages_is_not_preempted),
        cmocka_unit_test(t_an_import_is_one_step_and_leaves_a_token),
        cmocka_unit_test(t_held_keeps_pages_and_takes_no_step),
        cmocka_unit_test(t_pages_of_who_stands_aside_leave_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
