/* t_prefix_index.c - the index against a naive model, its bound, and its tentative entries. */
#include "base/core/bits.h"
#include "router/core/prefix_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SLOTS 256

static struct block_key key_of(uint64_t n)
{
    uint8_t seed[8];
    memcpy(seed, &n, sizeof n);
    struct hash128 h = hash128(seed, sizeof seed, 7);
    return (struct block_key){ h.lo, h.hi };
}

static void run_stops_at_the_first_gap(void **state)
{
    (void)state;
    struct prefix_index *ix = NULL;
    assert_int_equal(prefix_index_new(1 << 20, SLOTS, &ix, NULL), 0);
    struct block_key keys[4] = { key_of(1), key_of(2), key_of(3), key_of(4) };
    for (uint32_t i = 0; i < 4; i++)
        prefix_index_add(ix, 9, keys[i]);
    prefix_index_add(ix, 200, keys[0]);
    prefix_index_add(ix, 200, keys[2]); /* unreachable without block 1 */
    uint32_t blocks[SLOTS];
    prefix_index_match(ix, keys, 4, 0, blocks);
    assert_int_equal(blocks[9], 4);
    assert_int_equal(blocks[200], 1);
    assert_int_equal(blocks[0], 0);

    prefix_index_drop(ix, 9, keys[1]);
    prefix_index_match(ix, keys, 4, 0, blocks);
    assert_int_equal(blocks[9], 1);

    prefix_index_drop_slot(ix, 9);
    prefix_index_match(ix, keys, 4, 0, blocks);
    assert_int_equal(blocks[9], 0);
    assert_int_equal(blocks[200], 1);
    prefix_index_free(ix);
}

static void expectation_ends_unless_confirmed(void **state)
{
    (void)state;
    struct prefix_index *ix = NULL;
    assert_int_equal(prefix_index_new(1 << 20, SLOTS, &ix, NULL), 0);
    struct block_key keys[2] = { key_of(1), key_of(2) };
    uint32_t blocks[SLOTS];
    prefix_index_expect(ix, 3, keys, 2, 0, 1000);
    prefix_index_match(ix, keys, 2, 999, blocks);
    assert_int_equal(blocks[3], 2);
    prefix_index_add(ix, 3, keys[0]);
    prefix_index_match(ix, keys, 2, 1000, blocks);
    assert_int_equal(blocks[3], 1);
    /* Nor does it come back when another is expected. */
    prefix_index_expect(ix, 4, keys, 2, 1000, 2000);
    prefix_index_match(ix, keys, 2, 1500, blocks);
    assert_int_equal(blocks[3], 1);
    assert_int_equal(blocks[4], 2);
    prefix_index_free(ix);
}

static void bound_forgets_the_oldest(void **state)
{
    (void)state;
    struct prefix_index *ix = NULL;
    assert_int_equal(prefix_index_new(64 << 10, SLOTS, &ix, NULL), 0);
    struct prefix_index_stats st;
    prefix_index_stats(ix, &st);
    assert_true(st.bytes <= 64 << 10);
    uint32_t blocks[SLOTS];
    struct block_key first = key_of(0);
    for (uint64_t n = 0; n < 3 * (uint64_t)st.blocks_max; n++) {
        prefix_index_add(ix, 1, key_of(n));
        prefix_index_match(ix, &first, 1, 0, blocks); /* keeps block 0 young */
        assert_int_equal(blocks[1], 1);
    }
    struct prefix_index_stats after;
    prefix_index_stats(ix, &after);
    assert_int_equal(after.blocks, st.blocks_max);
    assert_int_equal(after.bytes, st.bytes);
    assert_int_equal(after.evicted, 2 * (uint64_t)st.blocks_max);
    struct block_key old = key_of(1);
    prefix_index_match(ix, &old, 1, 0, blocks);
    assert_int_equal(blocks[1], 0);
    prefix_index_free(ix);
}

enum { MODEL_KEYS = 300, MODEL_SLOTS = 5 };

/* MODEL_SLOTS of so many, from the first to the last. */
static void compare_with_table(uint32_t slots, uint32_t steps)
{
    struct prefix_index *ix = NULL;
    const uint32_t apart = (slots - 1) / (MODEL_SLOTS - 1);
    assert_int_equal(prefix_index_new(4 << 20, slots, &ix, NULL), 0);
    static uint32_t blocks[ROUTE_INSTANCES_MAX];
    static bool holds[MODEL_SLOTS][MODEL_KEYS];
    memset(holds, 0, sizeof holds);
    struct rng rng;
    rng_seed(&rng, 42);
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t slot = (uint32_t)rng_below(&rng, MODEL_SLOTS);
        uint64_t n = rng_below(&rng, MODEL_KEYS);
        uint64_t what = rng_below(&rng, 100);
        if (what < 55) {
            prefix_index_add(ix, slot * apart, key_of(n));
            holds[slot][n] = true;
        } else if (what < 99) {
            prefix_index_drop(ix, slot * apart, key_of(n));
            holds[slot][n] = false;
        } else {
            prefix_index_drop_slot(ix, slot * apart);
            memset(holds[slot], 0, sizeof holds[slot]);
        }
        struct block_key chain[8];
        uint64_t from = rng_below(&rng, MODEL_KEYS - 8);
        for (uint32_t i = 0; i < 8; i++)
            chain[i] = key_of(from + i);
        prefix_index_match(ix, chain, 8, 0, blocks);
        for (uint32_t s = 0; s < MODEL_SLOTS; s++) {
            uint32_t run = 0;
            while (run < 8 && holds[s][from + run])
                run++;
            assert_int_equal(blocks[s * apart], run);
        }
    }
    prefix_index_free(ix);
}

static void random_operations_agree_with_a_naive_table(void **state)
{
    (void)state;
    compare_with_table(5, 10000);
    compare_with_table(64, 10000);
    compare_with_table(65, 10000);
    compare_with_table(SLOTS, 50000);
    compare_with_table(ROUTE_INSTANCES_MAX, 10000);
}

/* More slots, the same bytes: what was touched last stays, with its holders and expectations. */
static void a_wider_index_keeps_the_youngest(void **state)
{
    (void)state;
    enum { FEW = 64, MANY = 1024 };
    struct prefix_index *ix = NULL;
    assert_int_equal(prefix_index_new(64 << 10, FEW, &ix, NULL), 0);
    struct prefix_index_stats narrow, wide;
    prefix_index_stats(ix, &narrow);
    for (uint64_t n = 0; n < narrow.blocks_max; n++)
        prefix_index_add(ix, (uint32_t)n % FEW, key_of(n));
    struct block_key last = key_of(narrow.blocks_max - 1), first = key_of(0);
    prefix_index_expect(ix, 5, &last, 1, 0, 1000);
    assert_int_equal(prefix_index_widen(ix, FEW), 0); /* wide enough */
    prefix_index_stats(ix, &wide);
    assert_int_equal(wide.blocks, narrow.blocks_max);
    assert_int_equal(prefix_index_widen(ix, MANY - 100), 0);
    prefix_index_stats(ix, &wide);
    assert_true(wide.bytes <= 64 << 10);
    assert_true(wide.blocks == wide.blocks_max && wide.blocks < narrow.blocks_max);
    assert_int_equal(wide.evicted, narrow.blocks_max - wide.blocks);
    static uint32_t blocks[MANY];
    prefix_index_match(ix, &last, 1, 500, blocks);
    assert_int_equal(blocks[(narrow.blocks_max - 1) % FEW], 1);
    assert_int_equal(blocks[5], 1);
    prefix_index_match(ix, &last, 1, 1500, blocks);
    assert_int_equal(blocks[5], (narrow.blocks_max - 1) % FEW == 5);
    prefix_index_match(ix, &first, 1, 0, blocks);
    for (uint32_t s = 0; s < MANY; s++)
        assert_int_equal(blocks[s], 0);
    /* The order of last touch went along: the next to go is the oldest that stayed. */
    struct block_key oldest = key_of(narrow.blocks_max - wide.blocks);
    prefix_index_match(ix, &oldest, 1, 0, blocks);
    assert_int_equal(blocks[(narrow.blocks_max - wide.blocks) % FEW], 1);
    prefix_index_add(ix, MANY - 1, first);
    prefix_index_match(ix, &first, 1, 0, blocks);
    assert_int_equal(blocks[MANY - 1], 1);
    struct block_key second = key_of(narrow.blocks_max - wide.blocks + 1);
    prefix_index_match(ix, &second, 1, 0, blocks);
    assert_int_equal(blocks[(narrow.blocks_max - wide.blocks + 1) % FEW], 0);
    prefix_index_free(ix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_stops_at_the_first_gap),
        cmocka_unit_test(expectation_ends_unless_confirmed),
        cmocka_unit_test(bound_forgets_the_oldest),
        cmocka_unit_test(a_wider_index_keeps_the_youngest),
        cmocka_unit_test(random_operations_agree_with_a_naive_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
