/* t_sched_round.c - tests closed batches: their members, when the next opens, and that memory
 * suffices. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "tests/unit/engine/sched_rig.h"

#include <string.h>

#define SLICE 8

static struct chunk_policy slices; /* scls, with slices shorter than the rig's outputs */

static struct sched_config closed_config(void)
{
    struct sched_config config = rig_config();
    slices = *chunk_find(STR("scls"));
    slices.slice_tokens = SLICE;
    config.policies.order = order_find(STR("round_robin"));
    config.policies.admit = admit_find(STR("scls"));
    config.policies.chunk = &slices;
    return config;
}

static struct session *ask(struct rig *r, uint32_t prompt, uint32_t output)
{
    static const uint32_t ids[PROMPT_MAX];
    struct session *ret = NULL;
    struct sched_counts n;
    sched_counts_get(r->s, &n);
    struct sched_request req = { .id = n.submitted,
                                 .ids = ids,
                                 .prompt_tokens = prompt,
                                 .output_max = output,
                                 .arrival_us = r->now_us };
    assert_int_equal(sched_submit(r->s, &req, &ret, NULL), 0);
    return ret;
}

/* Runs a step in which no session stops by itself. */
static void step(struct rig *r)
{
    const struct sched_batch *b = sched_plan(r->s, r->now_us, &rig_perf);
    assert_true(b->count > 0 && sched_check(r->s));
    rig_execute(r, b);
    for (uint32_t i = 0; i < b->count; i++)
        r->result[i].stop = false;
    r->now_us += STEP_US;
    sched_commit(r->s, r->result, r->now_us);
}

static bool runs(const struct session *x)
{
    return x->state == SESSION_RUNNING;
}

static void t_a_batch_is_closed_and_a_round_is_served_whole(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = closed_config();
    config.seqs_max = 2;
    config.prefix_cache = false;
    rig_init(&r, &config);
    struct session *a = ask(&r, 4, 3), *b = ask(&r, 30, 2 * SLICE), *c = ask(&r, 6, 3);
    step(&r);
    assert_true(runs(a) && runs(c) && !runs(b)); /* neighbours in length; quickest batch first */
    struct session *late = ask(&r, 2, 1);
    step(&r), step(&r);
    assert_true(a->state == SESSION_ENDED && c->state == SESSION_ENDED);
    step(&r);
    assert_true(runs(b) && !runs(late)); /* a place is free, but b's batch is closed */
    for (uint32_t i = 1; i < SLICE; i++)
        step(&r);
    assert_true(runs(b) && session_generated(b) == SLICE);
    step(&r); /* b's slice is over: both are in the next round's batch */
    assert_true(late->state == SESSION_ENDED && runs(b));
    assert_int_equal(session_generated(b), SLICE + 1);
    rig_fini(&r);
}

static void t_alone_a_session_goes_on_behind_its_slice(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = closed_config();
    rig_init(&r, &config);
    struct session *a = ask(&r, 4, 4 * SLICE);
    for (uint32_t i = 0; i < SLICE + 3; i++)
        step(&r);
    assert_true(runs(a) && session_generated(a) == SLICE + 3);
    struct session *late = ask(&r, 4, 2);
    step(&r); /* the new one does not wait for the slice */
    assert_true(runs(a) && session_generated(late) == 1);
    rig_fini(&r);
}

static void t_members_that_leave_hold_up_nobody(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = closed_config();
    config.seqs_max = 1;
    rig_init(&r, &config);
    struct session *a = ask(&r, 4, 2), *b = ask(&r, 8, 2), *c = ask(&r, 12, 2), *d = ask(&r, 16, 2);
    step(&r);
    assert_true(runs(a));
    sched_abort(r.s, b);
    sched_pause(r.s, c, true);
    step(&r), step(&r);
    assert_true(runs(d) && b->state == SESSION_ENDED && c->state == SESSION_WAITING);
    sched_pause(r.s, c, false);
    step(&r), step(&r), step(&r);
    assert_true(c->state == SESSION_ENDED && d->state == SESSION_ENDED);
    rig_fini(&r);
}

/* With little memory a running session keeps its pages to the end of its slice, and every output is
 * the one that the ids alone give. */
static void t_no_slice_runs_out_of_memory(void **state)
{
    (void)state;
    static struct load l;
    uint64_t returned = 0, reclaimed = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct rig r;
        struct rng rng;
        struct sched_config config = closed_config();
        rng_seed(&rng, seed);
        config.pages = 10 + (uint32_t)rng_below(&rng, 14);
        config.swap_pages = seed % 2 ? 0 : 60;
        load_fill(&l, seed);
        rig_init(&r, &config);
        for (uint32_t sent = 0; sent < REQUESTS || sched_has_work(r.s);) {
            for (uint64_t n = rng_below(&rng, 3); n > 0 && sent < REQUESTS; n--)
                load_submit(&r, &l, sent++, 0, false);
            bool ran[REQUESTS];
            for (uint32_t i = 0; i < sent; i++) {
                const struct session *x = l.session[i];
                ran[i] = x && runs(x) && session_generated(x) - x->slice_from < SLICE;
            }
            bool had_work = sched_has_work(r.s);
            assert_true(rig_step(&r) == had_work);
            for (uint32_t i = 0; i < sent; i++)
                if (ran[i] && l.session[i]->state == SESSION_WAITING) fail_msg("%u lost pages", i);
            load_collect(&r, &l);
        }
        load_check(&r, &l, "closed batches");
        struct sched_counts counts;
        sched_counts_get(r.s, &counts);
        returned += counts.parked;
        reclaimed += counts.preemptions;
        rig_fini(&r);
    }
    assert_true(returned > 1000 && reclaimed > 100); /* else memory was not short */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_a_batch_is_closed_and_a_round_is_served_whole),
        cmocka_unit_test(t_alone_a_session_goes_on_behind_its_slice),
        cmocka_unit_test(t_members_that_leave_hold_up_nobody),
        cmocka_unit_test(t_no_slice_runs_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
