/* t_place_move.c - devices to new places, and where weights are loaded; what the choices are worth is in
 * t_remap and t_loads. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/load/load.h"
#include "policies/move/move.h"
#include "tests/unit/unit.h"

#include <math.h>

static struct move_memory work;

static double brute(const struct move_problem *p, uint32_t from, uint32_t used)
{
    if (from == p->from_count) return 0;
    double best = brute(p, from + 1, used); /* without a place */
    for (uint32_t to = 0; to < p->to_count; to++)
        if (!(used >> to & 1))
            best = fmax(best, p->reused_bytes[from][to] + brute(p, from + 1, used | 1u << to));
    return best;
}

static double greedy(const struct move_problem *p)
{
    double sum = 0;
    uint32_t used = 0;
    for (uint32_t from = 0; from < p->from_count; from++) {
        uint32_t best = MOVE_NONE;
        for (uint32_t to = 0; to < p->to_count; to++) {
            if (used >> to & 1) continue;
            if (best == MOVE_NONE || p->reused_bytes[from][to] > p->reused_bytes[from][best])
                best = to;
        }
        if (best == MOVE_NONE) continue;
        used |= 1u << best;
        sum += p->reused_bytes[from][best];
    }
    return sum;
}

static void most_bytes_are_reused(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 8);
    double ours = 0, simple = 0;
    for (int i = 0; i < 300; i++) {
        static struct move_problem p;
        p = (struct move_problem){ .from_count = 1 + (uint32_t)rng_below(&rng, 7),
                                   .to_count = 1 + (uint32_t)rng_below(&rng, 7),
                                   .bytes_s = 1e9 };
        for (uint32_t t = 0; t < p.to_count; t++) {
            p.needed_bytes[t] = 2e9;
            for (uint32_t f = 0; f < p.from_count; f++)
                p.reused_bytes[f][t] = rng_below(&rng, 3) ? 2e9 * rng_f64(&rng) : 0;
        }
        struct move_verdict v;
        move_spotserve.map(&p, &work, &v);
        double truth = brute(&p, 0, 0), sum = 0;
        uint32_t used = 0, placed = 0;
        for (uint32_t f = 0; f < p.from_count; f++) {
            if (v.to[f] == MOVE_NONE) continue;
            assert_false(used >> v.to[f] & 1);
            used |= 1u << v.to[f];
            sum += p.reused_bytes[f][v.to[f]];
            placed++;
        }
        assert_int_equal(placed, min_u32(p.from_count, p.to_count));
        assert_true(fabs(sum - v.reused_bytes) < 1);
        assert_true(fabs(truth - v.reused_bytes) < 1);
        assert_true(fabs(v.sent_bytes + v.reused_bytes - 2e9 * p.to_count) < 1);
        assert_true(v.seconds <= 2 + 1e-9);
        ours += v.reused_bytes;
        simple += greedy(&p);
    }
    print_message("bytes reused: %.1f %% more than first come, first served\n",
                  100 * (ours / simple - 1));
    assert_true(ours > simple * 1.02);
}

static void devices_in_order_take_places_in_order(void **state)
{
    (void)state;
    static struct move_problem p;
    p = (struct move_problem){ .from_count = 3, .to_count = 2, .bytes_s = 2 };
    p.needed_bytes[0] = p.needed_bytes[1] = 10;
    p.reused_bytes[0][1] = p.reused_bytes[2][0] = 10;
    p.reused_bytes[1][1] = 4;
    struct move_verdict v;
    move_in_order.map(&p, &work, &v);
    assert_int_equal(v.to[0], 0);
    assert_int_equal(v.to[1], 1);
    assert_int_equal(v.to[2], MOVE_NONE);
    assert_true(fabs(v.sent_bytes - 16) < 1e-9 && fabs(v.reused_bytes - 4) < 1e-9);
    assert_true(fabs(v.seconds - 5) < 1e-9);
    move_spotserve.map(&p, &work, &v);
    assert_int_equal(v.to[0], 1);
    assert_int_equal(v.to[1], MOVE_NONE);
    assert_int_equal(v.to[2], 0);
    assert_true(v.sent_bytes < 1e-9 && v.seconds < 1e-9);
    p.from_count = 1; /* a place that nobody takes is loaded whole */
    move_in_order.map(&p, &work, &v);
    assert_true(fabs(v.sent_bytes - 20) < 1e-9);
}

static void weights_are_loaded_where_each_row_says(void **state)
{
    (void)state;
    struct load_problem p = {
        .server_count = 3, .model_bytes = 16e9, .start_s = 1, .bytes_s = { 20e9, 5e9, 1e9 }
    };
    p.server[0] = (struct load_server){ .usable = true,
                                        .tier = LOAD_MEMORY,
                                        .queued_bytes = { [LOAD_STORE] = 16e9 } };
    p.server[1] = (struct load_server){ .usable = true,
                                        .tier = LOAD_DISK,
                                        .queued_bytes = { [LOAD_MEMORY] = 2e9 } };
    p.server[2] = (struct load_server){ .usable = true, .tier = LOAD_STORE };
    struct load_verdict v;
    load_serverlessllm.choose(&p, &v);
    assert_int_equal(v.server, 1); /* 1 + 0.1 + 3.2 s; 1 + 16 + 0.8 s in memory behind others */
    assert_true(fabs(v.ready_s - 4.3) < 1e-9 && fabs(v.runner_up_s - 17) < 1e-9);
    load_nearest_tier.choose(&p, &v);
    assert_int_equal(v.server, 0);
    assert_true(fabs(v.ready_s - 17.8) < 1e-9 && fabs(v.runner_up_s - 4.3) < 1e-9);
    load_least_loaded.choose(&p, &v);
    assert_int_equal(v.server, 2);
    assert_true(fabs(v.ready_s - 17) < 1e-9 && fabs(v.runner_up_s - 4.3) < 1e-9);
    p.server[0].queued_bytes[LOAD_STORE] = 0;
    load_serverlessllm.choose(&p, &v);
    assert_int_equal(v.server, 0);
    p.server[2].tier = LOAD_MEMORY; /* of two in memory the shorter queue */
    p.server[0].queued_bytes[LOAD_DISK] = 1;
    load_nearest_tier.choose(&p, &v);
    assert_int_equal(v.server, 2);
    p.server[0].usable = p.server[1].usable = false;
    for (uint32_t i = 0; i < load_count; i++) {
        load_table[i]->choose(&p, &v);
        assert_int_equal(v.server, 2);
        assert_true(v.runner_up_s < 0);
    }
    p.server[2].usable = false;
    for (uint32_t i = 0; i < load_count; i++) {
        load_table[i]->choose(&p, &v);
        assert_int_equal(v.server, LOAD_NONE);
        assert_true(v.ready_s < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_bytes_are_reused),
        cmocka_unit_test(devices_in_order_take_places_in_order),
        cmocka_unit_test(weights_are_loaded_where_each_row_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
