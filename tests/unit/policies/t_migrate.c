/* t_migrate.c - tests migrate policies: which session goes where, and the cost of its copy. */
#include "base/core/bits.h"
#include "policies/migrate/migrate.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define PAGE_TOKENS 16
#define PAGE_BYTES (16.0 * 131072) /* an 8B model with grouped heads */

static struct migrate_config config;

static const struct migrate_session sessions[] = {
    { .id = 10, .tokens = 900, .movable = true },
    { .id = 11, .tokens = 100, .movable = false }, /* its prompt is not computed yet */
    { .id = 12, .tokens = 300, .movable = true },
    { .id = 13, .tokens = 500, .movable = true },
};

static struct migrate_instance an_instance(uint32_t id, uint32_t pages_free, uint32_t running)
{
    return (struct migrate_instance){
        .id = id,
        .present = true,
        .accepts = true,
        .pages_free = pages_free,
        .running = running,
        .step_s = 0.02,
        .session = sessions,
        .session_count = running ? COUNT_OF(sessions) : 0,
    };
}

static struct migrate_view a_view(const struct migrate_instance *in, uint32_t count)
{
    return (struct migrate_view){ .instance = in,
                                  .instance_count = count,
                                  .page_tokens = PAGE_TOKENS,
                                  .page_bytes = PAGE_BYTES,
                                  .link_bytes_s = 10e9 };
}

static struct migrate_verdict decide(const char *name, const struct migrate_view *view)
{
    struct migrate_verdict v;
    struct rng rng;
    rng_seed(&rng, 1);
    const struct migrate_policy *p = migrate_find(str_from(name));
    assert_non_null(p);
    assert_int_equal(p->state_size, 0);
    memset(&v, 0xa5, sizeof v);
    p->decide(NULL, &config, view, 1000, &rng, &v);
    return v;
}

static void the_table_has_its_default(void **state)
{
    (void)state;
    assert_non_null(migrate_find(STR(MIGRATE_DEFAULT)));
    assert_null(migrate_find(STR("lumnix")));
    for (uint32_t i = 0; i < migrate_count; i++)
        assert_true(migrate_table[i]->about[0] && migrate_table[i]->source[0]);
}

static void none_moves_nothing(void **state)
{
    (void)state;
    struct migrate_instance in[] = { an_instance(0, 0, 4), an_instance(1, 9999, 0) };
    struct migrate_view view = a_view(in, 2);
    struct migrate_verdict v = decide("none", &view);
    assert_int_equal(v.count, 0);
    assert_true(v.again_us == INT64_MAX);
}

static void freeness_is_pages_a_session(void **state)
{
    (void)state;
    struct migrate_instance in = an_instance(0, 100, 4);
    assert_true(migrate_freeness(&in) == 25);
    in.queue_pages = 120; /* the first in the queue needs more than is free */
    assert_true(migrate_freeness(&in) == -5);
    in.receiving_pages = 40;
    assert_true(migrate_freeness(&in) == -15);
    in.running = 0;
    assert_true(migrate_freeness(&in) == -60);
    in.draining = true;
    assert_true(isinf(migrate_freeness(&in)));
}

static void the_least_free_gives_its_shortest_to_the_freest(void **state)
{
    (void)state;
    struct migrate_instance in[] = { an_instance(5, 8, 4), an_instance(6, 400, 4),
                                     an_instance(7, 900, 4), an_instance(8, 4, 4) };
    struct migrate_view view = a_view(in, 4);
    struct migrate_verdict v = decide("llumnix", &view);
    assert_int_equal(v.count, 2);
    assert_int_equal(v.move[0].from, 8); /* one page a session */
    assert_int_equal(v.move[0].to, 7);
    assert_int_equal(v.move[0].session, 12); /* not 11, which cannot move */
    assert_int_equal(v.move[1].from, 5);
    assert_int_equal(v.move[1].to, 6);
    assert_int_equal(v.again_us, 1000 + config.period_us);
}

/* The least free instance has no movable session, so the freest one goes to the next. */
static void the_freest_goes_to_one_that_can_give(void **state)
{
    (void)state;
    static const struct migrate_session fixed = { .id = 99, .tokens = 50 };
    struct migrate_instance in[] = { an_instance(5, 8, 4), an_instance(7, 900, 4),
                                     an_instance(8, 4, 4) };
    in[2].session = &fixed;
    in[2].session_count = 1;
    struct migrate_view view = a_view(in, 3);
    struct migrate_verdict v = decide("llumnix", &view);
    assert_int_equal(v.count, 1);
    assert_int_equal(v.move[0].from, 5);
    assert_int_equal(v.move[0].to, 7);
}

/* Each row has one source and one target, and says whether a session moves. */
static void what_moves_and_what_does_not(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        uint32_t from_free, from_queue, to_free, to_queue, to_receiving;
        bool absent, refuses, draining, no_link, moves;
    } rows[] = {
        { "short of pages", 4, 0, 400, 0, 0, false, false, false, false, true },
        { "a queue that asks for more than is free", 100, 200, 400, 0, 0, 0, 0, 0, 0, true },
        { "pages enough", 12, 0, 400, 0, 0, false, false, false, false, false },
        { "no room: 19 pages, with one to spare", 4, 0, 20, 0, 0, 0, 0, 0, 0, false },
        { "room after the move", 4, 0, 25, 0, 0, 0, 0, 0, 0, true },
        { "the target's own queue comes first", 4, 0, 400, 395, 0, 0, 0, 0, 0, false },
        { "what is on its way is taken", 4, 0, 400, 0, 390, 0, 0, 0, 0, false },
        { "an absent target", 4, 0, 400, 0, 0, true, false, false, false, false },
        { "a target that accepts nothing", 4, 0, 400, 0, 0, false, true, false, false, false },
        { "no link", 4, 0, 400, 0, 0, false, false, false, true, false },
        { "a draining source gives all it has", 4000, 0, 400, 0, 0, 0, 0, true, 0, true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct migrate_instance in[] = { an_instance(0, rows[i].from_free, 4),
                                         an_instance(1, rows[i].to_free, 4) };
        in[0].queue_pages = rows[i].from_queue;
        in[1].queue_pages = rows[i].to_queue;
        in[1].receiving_pages = rows[i].to_receiving;
        in[1].present = !rows[i].absent;
        in[1].accepts = !rows[i].refuses;
        in[0].draining = rows[i].draining;
        in[0].accepts = !rows[i].draining;
        struct migrate_view view = a_view(in, 2);
        if (rows[i].no_link) view.link_bytes_s = 0;
        struct migrate_verdict v = decide("llumnix", &view);
        if ((v.count == 1) != rows[i].moves) fail_msg("%s: %u moves", rows[i].why, v.count);
    }
}

static void a_copy_is_staged(void **state)
{
    (void)state;
    struct migrate_view view = a_view(NULL, 0);
    struct migrate_move m = { 0 };
    migrate_estimate(&config, &view, 16 * 16, 0.02, &m); /* few pages: stops at once */
    assert_int_equal(m.stages, 1);
    assert_true(fabs(m.copy_s - 16 * PAGE_BYTES / 10e9) < 1e-9);
    assert_true(m.stall_s == m.copy_s);

    migrate_estimate(&config, &view, 4096, 0.02, &m); /* 256 pages take 54 ms: 3 tokens */
    assert_int_equal(m.stages, 2);
    assert_true(fabs(m.stall_s - 2 * PAGE_BYTES / 10e9) < 1e-9);
    assert_true(m.stall_s < 0.02 * 2); /* two decode steps at most */

    view.link_bytes_s = 2e7; /* 27 s: the session grows by 84 pages, then by 28, then stops */
    migrate_estimate(&config, &view, 4096, 0.02, &m);
    assert_int_equal(m.stages, config.stages_max);
    assert_true(m.stall_s > 1);
}

static void stages_end(void **state)
{
    (void)state;
    for (uint32_t left = 1; left < 1000; left++) {
        assert_int_equal(migrate_stops(&config, 0, left), left <= 16);
        assert_int_equal(migrate_stops(&config, 1, left), left <= 16);
        assert_true(migrate_stops(&config, 2, left));
    }
}

/* A drawn fleet of eight instances with up to six sessions each; one in `draining_one_in`
 * drains. */
struct drawn {
    struct migrate_session session[8][6];
    struct migrate_instance in[8];
};

static void draw(struct rng *rng, uint32_t draining_one_in, struct drawn *ret)
{
    for (uint32_t i = 0; i < 8; i++) {
        struct migrate_instance *in = &ret->in[i];
        uint32_t running = (uint32_t)rng_below(rng, 7);
        *in = an_instance(i, (uint32_t)rng_below(rng, 80), running);
        in->present = rng_below(rng, 8) > 0;
        in->draining = rng_below(rng, draining_one_in) == 0;
        in->accepts = !in->draining && rng_below(rng, 8) > 0;
        in->queue_pages = rng_below(rng, 3) ? 0 : (uint32_t)rng_below(rng, 60);
        in->session = ret->session[i];
        in->session_count = running;
        for (uint32_t k = 0; k < running; k++)
            ret->session[i][k] = (struct migrate_session){ .id = i * 100 + k,
                                                           .tokens = (uint32_t)rng_below(rng, 600),
                                                           .movable = rng_below(rng, 3) > 0 };
    }
}

/* In random fleets moved sessions are movable and fit, leave the target no worse off than the
 * source was, and equal views give equal moves. */
static void moves_keep_the_rules(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 77);
    uint32_t moved = 0;
    for (uint32_t round = 0; round < 2000; round++) {
        struct drawn fleet;
        draw(&rng, 10, &fleet);
        const struct migrate_instance *in = fleet.in;
        struct migrate_view view = a_view(in, 8);
        struct migrate_verdict v = decide("llumnix", &view), again = decide("llumnix", &view);
        assert_int_equal(v.count, again.count);
        assert_memory_equal(v.move, again.move, v.count * sizeof *v.move);
        bool used[8] = { false };
        for (uint32_t m = 0; m < v.count; m++) {
            const struct migrate_instance *from = &in[v.move[m].from], *to = &in[v.move[m].to];
            const struct migrate_session *moving = &from->session[v.move[m].session % 100];
            assert_true(from != to && !used[from->id] && !used[to->id]);
            used[from->id] = used[to->id] = true;
            assert_true(from->present && to->present && to->accepts && moving->movable);
            assert_true(migrate_freeness(from) < config.low);
            assert_true(ceil_div_u32(moving->tokens, PAGE_TOKENS) + to->queue_pages <=
                        to->pages_free);
            for (uint32_t k = 0; k < from->session_count; k++)
                assert_true(!from->session[k].movable || from->session[k].tokens >= moving->tokens);
            moved++;
        }
    }
    assert_true(moved > 500);
}

static struct migrate_verdict at(int64_t now_us, const struct migrate_view *view)
{
    struct migrate_verdict v;
    struct rng rng;
    rng_seed(&rng, 1);
    migrate_find(STR("spotserve"))->decide(NULL, &config, view, now_us, &rng, &v);
    return v;
}

/* 1,700 tokens at 10 GB/s are 23 ms. */
static void a_notice_is_used_as_late_as_it_may_be(void **state)
{
    (void)state;
    struct migrate_instance in[] = { an_instance(0, 0, 4), an_instance(1, 400, 0),
                                     an_instance(2, 900, 0) };
    struct migrate_view view = a_view(in, 3);
    in[0].draining = true;
    in[0].accepts = false;
    in[0].leaves_us = 30000000;
    assert_int_equal(at(1, &view).count, 0);
    assert_int_equal(at(28900000, &view).count, 0);
    struct migrate_verdict v = at(29500000, &view);
    assert_int_equal(v.count, 3); /* all movable sessions, the shortest first */
    assert_int_equal(v.move[0].session, 12);
    assert_int_equal(v.move[1].session, 13);
    assert_int_equal(v.move[2].session, 10);
    for (uint32_t i = 0; i < v.count; i++)
        assert_true(v.move[i].from == 0 && v.move[i].to == 2);
    assert_int_equal(at(29999990, &view).count, 0); /* no copy would arrive in time */

    in[0].leaves_us = 0; /* a drain without a known end */
    assert_int_equal(at(1, &view).count, 3);
    in[0].draining = false;
    assert_int_equal(at(1, &view).count, 0);
}

/* 300 tokens of 131 KB at 100 MB/s take .4 s, 500 take .7, 900 take 1.2. */
static void copies_go_one_behind_the_other(void **state)
{
    (void)state;
    struct migrate_instance in[] = { an_instance(0, 0, 4), an_instance(1, 900, 0) };
    struct migrate_view view = a_view(in, 2);
    view.link_bytes_s = 100e6;
    in[0].draining = true;
    in[0].leaves_us = 2000000;
    struct migrate_verdict v = at(1, &view);
    assert_int_equal(v.count, 1);
    assert_int_equal(v.move[0].session, 12);
    in[0].sending_pages = 20; /* a copy is under way */
    assert_int_equal(at(1, &view).count, 0);
    in[0].sending_pages = 0;
    assert_int_equal(at(1800000, &view).count, 0); /* not even the shortest arrives in time */
    in[1].pages_free = 10;
    assert_int_equal(at(1, &view).count, 0);
}

/* In random fleets only movable sessions leave, only from draining instances, each once, and all
 * that goes to a target fits. */
static void spotserve_keeps_the_rules(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 78);
    uint32_t moved = 0;
    for (uint32_t round = 0; round < 2000; round++) {
        struct drawn fleet;
        struct migrate_instance *in = fleet.in;
        draw(&rng, 3, &fleet);
        for (uint32_t i = 0; i < 8; i++) {
            in[i].leaves_us = rng_below(&rng, 2) ? (int64_t)rng_below(&rng, 3000000) : 0;
            in[i].sending_pages = (double)rng_below(&rng, 100);
            in[i].receiving_pages = (double)rng_below(&rng, 20);
        }
        struct migrate_view view = a_view(in, 8);
        struct migrate_verdict v = at(1000, &view), again = at(1000, &view);
        assert_int_equal(v.count, again.count);
        assert_memory_equal(v.move, again.move, v.count * sizeof *v.move);
        bool used[800] = { false };
        for (uint32_t m = 0; m < v.count; m++) {
            const struct migrate_instance *from = &in[v.move[m].from];
            struct migrate_instance *to = &in[v.move[m].to];
            const struct migrate_session *moving = &from->session[v.move[m].session % 100];
            assert_true(from->present && from->draining && moving->movable);
            assert_true(to->present && to->accepts && !used[moving->id]);
            used[moving->id] = true;
            to->receiving_pages += ceil_div_u32(moving->tokens, PAGE_TOKENS);
            assert_true(to->receiving_pages + to->queue_pages <= to->pages_free);
            moved++;
        }
    }
    assert_true(moved > 500);
}

/* Freeness and moves depend on tokens, whatever a page holds. */
static void the_numbers_are_of_tokens(void **state)
{
    (void)state;
    struct migrate_config c = migrate_config_for(64);
    assert_true(c.low == 0.75);
    assert_int_equal(c.stop_pages, 4);
    assert_int_equal(c.stages_max, 3);
    assert_int_equal(migrate_config_for(1024).stop_pages, 1);
}

int main(void)
{
    config = migrate_config_for(PAGE_TOKENS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_its_default),
        cmocka_unit_test(none_moves_nothing),
        cmocka_unit_test(freeness_is_pages_a_session),
        cmocka_unit_test(the_freest_goes_to_one_that_can_give),
        cmocka_unit_test(the_least_free_gives_its_shortest_to_the_freest),
        cmocka_unit_test(what_moves_and_what_does_not),
        cmocka_unit_test(a_copy_is_staged),
        cmocka_unit_test(stages_end),
        cmocka_unit_test(a_notice_is_used_as_late_as_it_may_be),
        cmocka_unit_test(copies_go_one_behind_the_other),
        cmocka_unit_test(spotserve_keeps_the_rules),
        cmocka_unit_test(the_numbers_are_of_tokens),
        cmocka_unit_test(moves_keep_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
