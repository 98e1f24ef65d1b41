/* t_arena.c - arena and pool: alignment, zeroing, bounds, reuse, double give. */
#include "base/core/arena.h"
#include "base/core/err.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/core/rng.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool all_zero(const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i]) return false;
    return true;
}

static void hands_out_zeroed_memory(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 1);
    CLEANUP(arena_fini) struct arena a = { 0 };
    arena_init(&a, (size_t)16 << 20);
    for (int round = 0; round < 20; round++) {
        char *last = NULL;
        size_t last_size = 0;
        for (int i = 0; i < 200; i++) {
            size_t size = (size_t)rng_below(&rng, i % 50 == 0 ? 200000 : 300);
            char *p = arena_alloc(&a, size);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
            assert_true(all_zero(p, size));
            memset(p, 0xa5, size);
            for (size_t k = 0; k < last_size; k++)
                assert_int_equal((uint8_t)last[k], 0xa5); /* nobody else's */
            last = p, last_size = size;
        }
        arena_reset(&a);
        assert_int_equal(a.bytes_used, 0);
    }
}

static void keeps_its_bound(void **state)
{
    (void)state;
    CLEANUP(arena_fini) struct arena a = { 0 };
    arena_init(&a, 1000);
    assert_null(arena_alloc(&a, 1001));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_array(&a, SIZE_MAX / 2, 4));
    assert_non_null(arena_alloc(&a, 0));
    size_t got = 0;
    while (arena_alloc(&a, 16))
        got++;
    assert_int_equal(got, 61); /* 62 times 16 fit into 1000, one went to the empty one */
    arena_reset(&a);
    assert_non_null(arena_alloc(&a, 992));
    struct arena none = { 0 };
    assert_null(arena_alloc(&none, 1)); /* bytes_max 0 */
}

static void copies_strings(void **state)
{
    (void)state;
    CLEANUP(arena_fini) struct arena a = { 0 };
    arena_init(&a, 64);
    struct str s = arena_str(&a, STR("abc"));
    assert_string_equal(s.data, "abc");
    assert_int_equal(s.len, 3);
    s = arena_str(&a, (struct str){ 0 });
    assert_string_equal(s.data, "");
    char longer[64] = { 0 };
    assert_null(arena_str(&a, str_of(longer, sizeof longer)).data);
    fault_arm("arena.alloc", 1);
    assert_null(arena_str(&a, STR("x")).data);
    assert_int_equal(fault_hits(), 1);
    fault_disarm();
    assert_non_null(arena_str(&a, STR("x")).data);
}

static void pool_gives_each_once(void **state)
{
    (void)state;
    CLEANUP(pool_fini) struct pool p = { 0 };
    assert_null(pool_take(&p)); /* { 0 } is an empty pool */
    assert_int_equal(pool_init(&p, 24, 5), 0);
    char *got[5];
    for (uint32_t i = 0; i < 5; i++) {
        got[i] = pool_take(&p);
        assert_non_null(got[i]);
        assert_true(all_zero(got[i], 24));
        assert_int_equal((uintptr_t)got[i] % _Alignof(max_align_t), 0);
        assert_ptr_equal(pool_at(&p, pool_index(&p, got[i])), got[i]);
        for (uint32_t k = 0; k < i; k++)
            assert_ptr_not_equal(got[i], got[k]);
        memset(got[i], 1, 24);
    }
    assert_null(pool_take(&p));
    pool_give(&p, got[3]);
    assert_int_equal(p.used, 4);
    char *again = pool_take(&p);
    assert_ptr_equal(again, got[3]);
    assert_true(all_zero(again, 24));
}

static void pool_without_memory(void **state)
{
    (void)state;
    struct pool p = { 0 };
    fault_arm("pool.init", 1);
    assert_int_equal(pool_init(&p, 24, 5), -ENOMEM);
    fault_disarm();
    assert_int_equal(pool_init(&p, SIZE_MAX / 2, 5), -ENOMEM);
    assert_int_equal(pool_init(&p, SIZE_MAX, 1), -ENOMEM);
    assert_null(pool_take(&p));
    pool_fini(&p);
}

static void twice(struct pool *p)
{
    void *object = pool_take(p);
    pool_give(p, object);
    pool_give(p, object);
}

static void foreign(struct pool *p)
{
    char other[16] = { 0 };
    pool_give(p, other);
}

static void inside(struct pool *p)
{
    pool_give(p, (char *)pool_take(p) + 1);
}

/* A misuse ends the process by SIGABRT: seen from a child. */
static void pool_catches_misuse(void **state)
{
    (void)state;
    void (*const misuse[])(struct pool *) = { twice, foreign, inside };
    for (size_t i = 0; i < 3; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(STDERR_FILENO);
            struct pool p;
            if (pool_init(&p, 16, 2) == 0) misuse[i](&p);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hands_out_zeroed_memory), cmocka_unit_test(keeps_its_bound),
        cmocka_unit_test(copies_strings),          cmocka_unit_test(pool_gives_each_once),
        cmocka_unit_test(pool_without_memory),     cmocka_unit_test(pool_catches_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
