/* t_wait_queue.c - tests that the tournament finds what a walk over all nodes finds, at every
 * moment. */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/rng.h"
#include "engine/core/wait_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define NODES 600

static struct wait_node *walk(struct wait_node *nodes, int64_t now_us)
{
    struct wait_node *best = NULL;
    for (uint32_t i = 0; i < NODES; i++) {
        if (nodes[i].slot == 0) continue;
        if (!best || wait_before(&nodes[i], best, now_us)) best = &nodes[i];
    }
    return best;
}

static struct order_rank draw(struct rng *rng, uint32_t kind, int64_t now_us)
{
    int64_t from = now_us - (int64_t)rng_below(rng, 30000000);
    double work = 0.001 * (1 + (double)rng_below(rng, 20000));
    struct order_rank r = { .from_us = from, .tie_us = from };
    if (kind == 1) r.base = work, r.slope = -0.1;
    if (kind == 2) r.base = -1, r.slope = -1 / work;
    if (kind == 3) r.base = (double)rng_below(rng, 4), r.slope = -(double)rng_below(rng, 3);
    return r;
}

static void t_as_a_walk_finds(void **state)
{
    (void)state;
    static struct wait_node nodes[NODES];
    for (uint32_t kind = 0; kind < 4; kind++) { /* fcfs, aged, response ratio, many ties */
        struct rng rng;
        struct wait_queue q = { 0 };
        int64_t now = 1000000000;
        rng_seed(&rng, 7 + kind);
        memset(nodes, 0, sizeof nodes);
        uint32_t asked = 0;
        for (uint32_t i = 0; i < 60000; i++) {
            uint32_t at = (uint32_t)rng_below(&rng, NODES);
            if (nodes[at].slot) {
                wait_queue_remove(&q, &nodes[at]);
            } else if (rng_below(&rng, 3) > 0) {
                nodes[at] = (struct wait_node){ .rank = draw(&rng, kind, now), .id = at };
                assert_int_equal(wait_queue_reserve(&q, q.count + 1), 0);
                wait_queue_put(&q, &nodes[at]);
            }
            now += (int64_t)rng_below(&rng, rng_below(&rng, 50) ? 100 : 5000000);
            if (rng_below(&rng, 4)) continue;
            asked++;
            struct wait_node *first = wait_queue_first(&q, now);
            if (first != walk(nodes, now)) fail_msg("kind %u, change %u", kind, i);
        }
        assert_true(asked > 10000);
        wait_queue_fini(&q);
    }
}

static void t_empty_and_one(void **state)
{
    (void)state;
    struct wait_queue q = { 0 };
    struct wait_node n = { .id = 4 };
    assert_null(wait_queue_first(&q, 1));
    assert_int_equal(wait_queue_reserve(&q, 1), 0);
    wait_queue_put(&q, &n);
    assert_ptr_equal(wait_queue_first(&q, 1), &n);
    assert_int_equal(wait_queue_reserve(&q, 1000), 0); /* growing keeps the nodes */
    assert_ptr_equal(wait_queue_first(&q, 1), &n);
    wait_queue_remove(&q, &n);
    assert_null(wait_queue_first(&q, 1));
    assert_int_equal(q.count, 0);
    wait_queue_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_as_a_walk_finds),
        cmocka_unit_test(t_empty_and_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
