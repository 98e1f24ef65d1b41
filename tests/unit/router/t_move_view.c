/* t_move_view.c - what the migrate row sees of an endpoint, from what its engine tells. */
#include "router/core/move_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND 1000000

static struct dispatch_endpoint endpoint(void)
{
    return (struct dispatch_endpoint){
        .ready = true,
        .has_perf = true,
        .perf = { .step_s = 0.01, .decode_seq_s = 0.001, .kv_read_s = 1e-6 },
        .kv_tokens_max = 1600
    };
}

static void pages_are_what_the_engine_says(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        struct reported_load load;
        uint32_t free, queue, running;
    } rows[] = {
        { "nothing runs", { 0 }, 100, 0, 0 },
        { "half is held", { .running = 4, .kv_tokens = 800 }, 50, 0, 4 },
        { "a partial page is a page", { .running = 1, .kv_tokens = 801 }, 49, 0, 1 },
        { "more than there is", { .running = 1, .kv_tokens = UINT64_MAX }, 0, 0, 1 },
        { "one waits",
          { .running = 4, .waiting = 1, .prefill_tokens = 320, .kv_tokens = 1600 },
          0,
          21,
          4 },
        { "three wait",
          { .running = 4, .waiting = 3, .prefill_tokens = 320, .kv_tokens = 1600 },
          0,
          7,
          4 },
        { "who waits computes nothing anew",
          { .running = 4, .waiting = 1, .kv_tokens = 1600 },
          0,
          1,
          4 },
        { "nonsense of a peer", { .waiting = 1, .prefill_tokens = UINT64_MAX }, 100, 101, 0 },
    };
    struct dispatch_endpoint ep = endpoint();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct move_place p = { .ep = &ep,
                                .page_tokens = 16,
                                .incoming_pages = 3,
                                .sending_pages = 5,
                                .load = &rows[i].load,
                                .told_us = SECOND };
        struct migrate_instance in = { .id = 7 };
        move_view_fill(&p, SECOND, &in);
        if (in.pages_free != rows[i].free || in.queue_pages != rows[i].queue ||
            in.running != rows[i].running || !in.present || !in.accepts || in.id != 7)
            fail_msg("%s: %u %u %u", rows[i].why, in.pages_free, in.queue_pages, in.running);
        assert_true(in.receiving_pages == 3);
        assert_true(in.sending_pages == 5);
        assert_true(in.step_s >= 0.01);
    }
}

static void who_does_not_tell_is_not_present(void **state)
{
    (void)state;
    static const struct reported_load busy = { .running = 1, .kv_tokens = 160 }, idle = { 0 };
    static const struct {
        const char *why;
        const struct reported_load *load;
        int64_t told_us, moved_us, now_us;
        bool present;
    } rows[] = {
        { "no stream", NULL, 0, 0, SECOND, false },
        { "just told", &busy, SECOND, 0, SECOND, true },
        { "told long ago", &busy, SECOND, 0, SECOND + LOAD_FRESH_US, false },
        { "had nothing long ago", &idle, SECOND, 0, 100 * SECOND, true },
        { "told before the last move", &busy, SECOND, SECOND + 1, SECOND + 2, false },
        { "told after it", &busy, SECOND + 2, SECOND + 1, SECOND + 2, true },
        { "nothing new since", &idle, SECOND, SECOND + 1, 2 * SECOND + 2, true },
    };
    struct dispatch_endpoint ep = endpoint();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct move_place p = { .ep = &ep,
                                .page_tokens = 16,
                                .load = rows[i].load,
                                .told_us = rows[i].told_us,
                                .moved_us = rows[i].moved_us };
        struct migrate_instance in = { 0 };
        move_view_fill(&p, rows[i].now_us, &in);
        if (in.present != rows[i].present) fail_msg("%s", rows[i].why);
    }
    struct move_place p = { .ep = &ep, .page_tokens = 16, .load = &busy };
    struct migrate_instance in = { 0 };
    ep.kv_tokens_max = 0;
    move_view_fill(&p, 1, &in);
    assert_false(in.present); /* pages that are not known are not none */
}

/* Prompts' instances and those that end get nothing; those that end give all they can. */
static void roles_and_drains_say_who_takes(void **state)
{
    (void)state;
    static const struct reported_load busy = { .running = 2, .kv_tokens = 160 };
    for (uint32_t role = 0; role < ROLE_COUNT; role++) {
        for (uint32_t drains = 0; drains < 2; drains++) {
            struct dispatch_endpoint ep = endpoint();
            ep.role = (enum role)role;
            ep.ready = !drains;
            struct move_place p = {
                .ep = &ep, .page_tokens = 16, .draining = drains, .load = &busy, .told_us = 1
            };
            struct migrate_instance in = { 0 };
            move_view_fill(&p, 1, &in);
            assert_int_equal(in.accepts, !drains && role != ROLE_PREFILL);
            assert_int_equal(in.draining, drains);
            assert_true(in.present);
            assert_int_equal(migrate_freeness(&in) < 0, drains);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_what_the_engine_says),
        cmocka_unit_test(who_does_not_tell_is_not_present),
        cmocka_unit_test(roles_and_drains_say_who_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
