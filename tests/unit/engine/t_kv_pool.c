/* t_kv_pool.c - pages are conserved whatever is done with them. */
#include "base/core/rng.h"
#include "engine/core/kv_pool.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void t_bounds(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 0), -EINVAL);
    assert_int_equal(kv_pool_init(&p, KV_PAGES_MAX + 1), -EINVAL);
    assert_int_equal(kv_pool_init(&p, 3), 0);
    assert_int_equal(kv_pool_take(&p), 0);
    assert_int_equal(kv_pool_take(&p), 1);
    assert_int_equal(kv_pool_take(&p), 2);
    assert_int_equal(kv_pool_take(&p), KV_PAGE_NONE);
    assert_true(kv_pool_unref(&p, 1));
    assert_int_equal(kv_pool_take(&p), 1);
    kv_pool_fini(&p);
}

static void t_shared(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 2), 0);
    uint32_t page = kv_pool_take(&p);
    assert_false(kv_pool_shared(&p, page));
    kv_pool_ref(&p, page);
    assert_true(kv_pool_shared(&p, page)); /* two holders */
    assert_false(kv_pool_unref(&p, page));
    kv_pool_set_indexed(&p, page, true);
    assert_true(kv_pool_shared(&p, page)); /* one holder, but others may find it */
    assert_true(kv_pool_unref(&p, page));
    assert_int_equal(p.cached_count, 1);
    kv_pool_ref(&p, page);
    assert_int_equal(p.held_count, 1);
    kv_pool_set_indexed(&p, page, false);
    assert_true(kv_pool_unref(&p, page));
    assert_int_equal(p.free_count, 2);
    kv_pool_fini(&p);
}

/* Against a model: holders counted by hand. */
static void t_random_walk(void **state)
{
    (void)state;
    enum { PAGES = 17 };
    struct kv_pool p;
    struct rng rng;
    rng_seed(&rng, 1);
    assert_int_equal(kv_pool_init(&p, PAGES), 0);
    uint32_t holders[PAGES] = { 0 };
    bool named[PAGES] = { false };
    for (int i = 0; i < 20000; i++) {
        uint32_t page = (uint32_t)rng_below(&rng, PAGES);
        switch (rng_below(&rng, 5)) {
        case 0: {
            uint32_t got = kv_pool_take(&p);
            if (got == KV_PAGE_NONE) break;
            assert_true(holders[got] == 0 && !named[got]);
            holders[got] = 1;
            break;
        }
        case 1:
            if (holders[page] == 0 && !named[page]) break;
            kv_pool_ref(&p, page);
            holders[page]++;
            break;
        case 2:
            if (holders[page] > 0 && !named[page]) {
                kv_pool_set_indexed(&p, page, named[page] = true);
            } else if (named[page]) {
                kv_pool_set_indexed(&p, page, named[page] = false);
            }
            break;
        default:
            if (holders[page] == 0) break;
            assert_int_equal(kv_pool_unref(&p, page), --holders[page] == 0);
        }
        uint32_t held = 0, cached = 0;
        for (int k = 0; k < PAGES; k++) {
            held += holders[k] > 0;
            cached += holders[k] == 0 && named[k];
        }
        assert_int_equal(p.held_count, held);
        assert_int_equal(p.cached_count, cached);
        assert_int_equal(p.free_count, PAGES - held - cached);
        assert_true(kv_pool_check(&p));
    }
    kv_pool_fini(&p);
}

static void t_check_sees_damage(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 4), 0);
    uint32_t page = kv_pool_take(&p);
    assert_true(kv_pool_check(&p));
    p.refs[page] = 0; /* a page nobody holds and nobody can take */
    assert_false(kv_pool_check(&p));
    p.refs[page] = 1;
    p.free_stack[0] = page; /* a held page among the free ones */
    assert_false(kv_pool_check(&p));
    kv_pool_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_bounds),
        cmocka_unit_test(t_shared),
        cmocka_unit_test(t_random_walk),
        cmocka_unit_test(t_check_sees_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
