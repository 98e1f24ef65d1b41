/* t_refused.c - tests that routers tell each other, through the controller, which prompts they refuse. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/control_state.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define POISON 0x77ULL

static struct arena arena;

static int setup(void **state)
{
    struct world *w = world_new(NULL);
    world_start(w);
    *state = w;
    arena_init(&arena, SYNC_BYTES_MAX);
    return 0;
}

static int teardown(void **state)
{
    world_free(*state);
    arena_fini(&arena);
    return 0;
}

/* Syncs one router with its refused prompts; writes the controller's reply to `rules`. */
static void say_refused(struct world *w, const char *router, uint64_t boot,
                        const struct refused_prompt *refused, uint32_t count,
                        struct router_rules *rules)
{
    static uint64_t seq;
    struct router_sync s = { .router = str_from(router),
                             .boot = boot,
                             .seq = ++seq,
                             .refused = refused,
                             .refused_count = count };
    arena_reset(&arena);
    assert_int_equal(control_sync(w->control, &s, w->now, &arena, rules, NULL), 0);
}

static const struct refused_prompt poison[] = { { POISON, 60000 } };

static void one_s_word_is_for_all_the_others(void **state)
{
    struct world *w = *state;
    struct router_rules rules;
    say_refused(w, "a", 1, poison, 1, &rules);
    assert_int_equal(rules.refused_count, 0); /* the router knows its own */
    w->now += 20000000;
    say_refused(w, "b", 2, NULL, 0, &rules);
    assert_int_equal(rules.refused_count, 1);
    assert_true(rules.refused[0].fingerprint == POISON && rules.refused[0].left_ms == 40000);
    say_refused(w, "a", 1, NULL, 0, &rules); /* cleared at its router */
    say_refused(w, "b", 2, NULL, 0, &rules);
    assert_int_equal(rules.refused_count, 0);
}

static void who_starts_again_is_told_its_own_word(void **state)
{
    struct world *w = *state;
    struct router_rules rules;
    say_refused(w, "a", 1, poison, 1, &rules);
    say_refused(w, "a", 9, NULL, 0, &rules);
    assert_int_equal(rules.refused_count, 1);
    say_refused(w, "b", 2, NULL, 0, &rules);
    assert_int_equal(rules.refused_count, 1);
    w->now += 60000000; /* the refusal has expired */
    say_refused(w, "a", 9, NULL, 0, &rules);
    assert_int_equal(rules.refused_count, 0);
}

static void people_clear_one_or_all(void **state)
{
    static const struct refused_prompt three[] = { { 1, 60000 }, { 2, 60000 }, { 3, 60000 } };
    struct world *w = *state;
    struct router_rules rules;
    say_refused(w, "a", 1, three, 3, &rules);
    say_refused(w, "a", 9, NULL, 0, &rules);
    control_quarantine_clear(w->control, 2);
    say_refused(w, "b", 2, NULL, 0, &rules);
    assert_int_equal(rules.refused_count, 2);
    assert_true(rules.refused[0].fingerprint == 1 && rules.refused[1].fingerprint == 3);
    control_quarantine_clear(w->control, 0);
    say_refused(w, "a", 9, NULL, 0, &rules);
    assert_int_equal(rules.refused_count, 0);
}

/* One router has at most SYNC_REFUSED_MAX prompts; the one that expires first makes room. */
static void a_router_has_so_many_at_most(void **state)
{
    struct world *w = *state;
    struct router_rules rules;
    struct refused_prompt many[SYNC_REFUSED_MAX];
    for (uint32_t i = 0; i < SYNC_REFUSED_MAX; i++)
        many[i] = (struct refused_prompt){ i + 1, 60000 + (i + 7) % SYNC_REFUSED_MAX };
    say_refused(w, "a", 1, many, SYNC_REFUSED_MAX, &rules);
    say_refused(w, "a", 9, poison, 1, &rules);
    say_refused(w, "b", 2, NULL, 0, &rules);
    assert_int_equal(rules.refused_count, SYNC_REFUSED_MAX);
    bool has_first = false, has_poison = false;
    for (uint32_t i = 0; i < rules.refused_count; i++) {
        has_first |= rules.refused[i].fingerprint == SYNC_REFUSED_MAX - 6; /* 60000 ms */
        has_poison |= rules.refused[i].fingerprint == POISON;
    }
    assert_true(has_poison && !has_first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_s_word_is_for_all_the_others, setup, teardown),
        cmocka_unit_test_setup_teardown(who_starts_again_is_told_its_own_word, setup, teardown),
        cmocka_unit_test_setup_teardown(people_clear_one_or_all, setup, teardown),
        cmocka_unit_test_setup_teardown(a_router_has_so_many_at_most, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
