/* t_containers.c - tests the arena, the pool, the map and the heap: bounds and reuse, and random
 * operations against naive models. */
#include "base/core/arena.h"
#include "base/core/err.h"
#include "base/core/fault.h"
#include "base/core/heap.h"
#include "base/core/list.h"
#include "base/core/map.h"
#include "base/core/own.h"
#include "base/core/rng.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- arena and pool: alignment, zeroing, bounds, reuse, double free ---- */

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
                assert_int_equal((uint8_t)last[k], 0xa5); /* the previous allocation is untouched */
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
    assert_int_equal(got, 61); /* 62 times 16 bytes fit into 1000; the empty one took one */
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

/* A misuse ends the process by SIGABRT, so it happens in a child. */
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

static int arena_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hands_out_zeroed_memory), cmocka_unit_test(keeps_its_bound),
        cmocka_unit_test(copies_strings),          cmocka_unit_test(pool_gives_each_once),
        cmocka_unit_test(pool_without_memory),     cmocka_unit_test(pool_catches_misuse),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}

/* ---- the map and the heap against naive models under random operations ---- */

#define KEYS 300 /* few distinct keys, so that runs collide and wrap */

struct key {
    uint32_t number;
    uint16_t more;
    uint16_t most;
};

static struct key key_of(uint32_t n)
{
    return (struct key){ n, (uint16_t)(n * 7), 3 };
}

static void check_all(const struct map *m, const bool *there, const uint64_t *value)
{
    size_t count = 0, cursor = 0;
    for (uint32_t n = 0; n < KEYS; n++) {
        struct key k = key_of(n);
        const uint64_t *v = map_get(m, &k);
        assert_int_equal(v != NULL, there[n]);
        if (v) assert_true(*v == value[n]);
        count += there[n];
    }
    assert_int_equal(m->count, count);
    const void *key;
    void *found;
    while (map_next(m, &cursor, &key, &found)) {
        uint32_t n = ((const struct key *)key)->number;
        assert_true(n < KEYS && there[n]);
        assert_true(*(uint64_t *)found == value[n]);
        count--;
    }
    assert_int_equal(count, 0);
}

static void map_equals_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        CLEANUP(map_fini) struct map m;
        map_init(&m, sizeof(struct key), sizeof(uint64_t), 250, seed % 2 ? MAP_FOREIGN : MAP_OWN);
        bool there[KEYS] = { false };
        uint64_t value[KEYS] = { 0 };
        size_t count = 0;
        struct rng rng;
        rng_seed(&rng, seed);
        for (int step = 0; step < 20000; step++) {
            /* Phases alternate between mostly filling and mostly emptying, so that runs grow and
             * dissolve. */
            bool fill = rng_below(&rng, 100) < (step / 2000 % 2 ? 30u : 70u);
            uint32_t n = (uint32_t)rng_below(&rng, KEYS);
            struct key k = key_of(n);
            if (fill) {
                bool is_new = false;
                uint64_t *v = map_put(&m, &k, &is_new);
                assert_int_equal(v != NULL, there[n] || count < 250);
                if (!v) continue;
                assert_int_equal(is_new, !there[n]);
                assert_true(*v == (there[n] ? value[n] : 0)); /* new entries are zeroed */
                count += is_new;
                there[n] = true;
                *v = value[n] = rng_u64(&rng);
            } else {
                assert_int_equal(map_remove(&m, &k), there[n]);
                count -= there[n];
                there[n] = false;
            }
            if (step % 500 == 0) check_all(&m, there, value);
        }
        check_all(&m, there, value);
    }
}

static void map_without_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        CLEANUP(map_fini) struct map m;
        map_init(&m, 4, 0, SIZE_MAX, MAP_OWN);
        fault_arm("map.grow", n);
        uint32_t k = 0;
        while (k < 200 && map_put(&m, &k, NULL))
            k++;
        bool reached = fault_hits() >= n;
        fault_disarm();
        if (!reached) break;
        assert_true(k < 200);
        assert_int_equal(m.count, k); /* earlier entries stay */
        for (uint32_t i = 0; i < k; i++)
            assert_non_null(map_get(&m, &i));
        assert_non_null(map_put(&m, &k, NULL)); /* the next try succeeds */
        assert_true(n < 20);
    }
}

static void empty_map(void **state)
{
    (void)state;
    struct map m = { 0 };
    size_t cursor = 0;
    const void *key;
    void *value;
    uint32_t k = 1;
    assert_null(map_get(&m, &k));
    assert_false(map_remove(&m, &k));
    assert_false(map_next(&m, &cursor, &key, &value));
    map_fini(&m);
}

#define NODES 200

/* Returns the model's choice: the live node with the least (key, order of arrival). */
static int least(const struct heap_node *node, const bool *live, const uint64_t *arrived)
{
    int best = -1;
    for (int i = 0; i < NODES; i++) {
        if (!live[i]) continue;
        if (best < 0 || node[i].key < node[best].key ||
            (node[i].key == node[best].key && arrived[i] < arrived[best]))
            best = i;
    }
    return best;
}

static void heap_equals_model(void **state)
{
    (void)state;
    struct heap_node node[NODES] = { 0 };
    bool live[NODES] = { false };
    uint64_t arrived[NODES] = { 0 };
    CLEANUP(heap_fini) struct heap h;
    heap_init(&h, 150);
    struct rng rng;
    rng_seed(&rng, 7);
    size_t count = 0;
    for (uint64_t step = 1; step < 20000; step++) {
        uint64_t i = rng_below(&rng, NODES);
        uint64_t what = rng_below(&rng, 10);
        if (what < 5 && !live[i]) {
            /* Keys are few, because ties are the interesting case. */
            int rc = heap_push(&h, &node[i], (int64_t)rng_below(&rng, 20) - 10);
            assert_int_equal(rc, count < 150 ? 0 : -ENOSPC);
            if (rc < 0) continue;
            live[i] = true, arrived[i] = step, count++;
        } else if (what < 7 && live[i]) {
            heap_remove(&h, &node[i]);
            live[i] = false, count--;
        } else if (what == 9) {
            int want = least(node, live, arrived);
            struct heap_node *got = heap_pop(&h);
            assert_ptr_equal(got, want < 0 ? NULL : &node[want]);
            if (got) live[want] = false, count--;
        }
        int want = least(node, live, arrived);
        assert_ptr_equal(heap_peek(&h), want < 0 ? NULL : &node[want]);
        assert_int_equal(heap_has(&node[i]), live[i]);
        assert_int_equal(h.count, count);
    }
}

static void heap_without_memory(void **state)
{
    (void)state;
    struct heap_node node[40] = { 0 };
    struct heap h;
    heap_init(&h, 40);
    fault_arm("heap.grow", 2);
    int rc = 0, n = 0;
    while (n < 40 && (rc = heap_push(&h, &node[n], n)) == 0)
        n++;
    fault_disarm();
    assert_int_equal(rc, -ENOMEM);
    assert_false(heap_has(&node[n]));
    assert_int_equal(heap_push(&h, &node[n], -1), 0);
    assert_ptr_equal(heap_peek(&h), &node[n]);
    heap_fini(&h);
    assert_false(heap_has(&node[0])); /* a heap that ends releases its nodes */
}

static void list_links(void **state)
{
    (void)state;
    struct item {
        int number;
        struct list link;
    } item[4] = { 0 };
    struct list head;
    list_init(&head);
    assert_true(list_empty(&head) && !list_pop_front(&head));
    for (int i = 0; i < 4; i++) {
        item[i].number = i;
        assert_false(list_linked(&item[i].link));
        list_push_back(&head, &item[i].link);
    }
    list_remove(&item[1].link);
    list_push_front(&head, &item[1].link);
    int order[4], n = 0;
    LIST_EACH (&head, at)
        order[n++] = CONTAINER_OF(at, struct item, link)->number;
    assert_int_equal(n, 4);
    assert_memory_equal(order, ((int[]){ 1, 0, 2, 3 }), sizeof order);
    LIST_EACH_SAFE (&head, at)
        list_remove(at);
    assert_true(list_empty(&head));
    assert_false(list_linked(&item[2].link));
}

static int map_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_equals_model),    cmocka_unit_test(map_without_memory),
        cmocka_unit_test(empty_map),           cmocka_unit_test(heap_equals_model),
        cmocka_unit_test(heap_without_memory), cmocka_unit_test(list_links),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}

int main(void)
{
    return arena_tests() + map_tests();
}
