/* t_layers.c - tests policies of `muster plan`: layers over devices, moves of layers, loading of
 * weights. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/layers/layers.h"
#include "policies/load/load.h"
#include "policies/move/move.h"
#include "tests/unit/policies/place_cases.h"
#include "tests/unit/unit.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- layers on unequal devices: against brute force, against bounds ---- */

#define NO_PART UINT32_MAX

static struct layers_memory work;

static struct layers_layout lay(const struct layers_policy *policy, const struct layers_problem *p,
                                uint64_t seed)
{
    struct layers_layout r;
    struct rng rng;
    rng_seed(&rng, seed);
    policy->lay(p, &work, &rng, &r);
    return r;
}

static void draw(struct rng *rng, uint32_t layers, uint32_t devices, struct layers_problem *p)
{
    *p = (struct layers_problem){
        .layers = layers, .device_count = devices, .token_bytes = 1e4, .split_efficiency = 0.9
    };
    double sum = 0;
    for (uint32_t l = 0; l < layers; l++)
        sum += p->cost[l] = 0.5 + rng_f64(rng);
    for (uint32_t l = 0; l < layers; l++)
        p->cost[l] *= layers / sum;
    for (uint32_t d = 0; d < devices; d++) {
        p->device[d] = (struct layers_device){ 1000 + 9000 * rng_f64(rng),
                                               1 + (uint32_t)rng_below(rng, layers), d / 2 };
        for (uint32_t e = 0; e < devices; e++)
            p->bytes_s[d][e] = 1e4 * (500 + 5000 * rng_f64(rng));
    }
}

static double brute(const struct layers_problem *p, uint32_t first, uint32_t used, uint32_t last)
{
    if (first == p->layers) return INFINITY;
    double best = 0;
    for (uint32_t d = 0; d < p->device_count; d++) {
        if (used >> d & 1) continue;
        double link = last == NO_PART ? (double)INFINITY : p->bytes_s[last][d] / p->token_bytes;
        for (uint32_t n = 1; first + n <= p->layers; n++) {
            struct layers_part part = { first, n, 1u << d };
            double rate = fmin(layers_part_rate(p, &part), link);
            if (rate <= best) continue;
            best = fmax(best, fmin(rate, brute(p, first + n, used | 1u << d, d)));
        }
    }
    return best;
}

/* Checks that parts hold whole layers, that inflow equals outflow, and that no part carries more
 * than it can. */
static void check(const struct layers_problem *p, const struct layers_layout *l)
{
    double in = 0, out = 0;
    for (uint32_t i = 0; i < l->part_count; i++) {
        double to = l->flow_in[i], from = l->flow_out[i];
        for (uint32_t j = 0; j < l->part_count; j++) {
            to += l->flow[j][i];
            from += l->flow[i][j];
        }
        assert_true(fabs(to - from) <= 1e-6 * l->rate_s);
        assert_true(to <= layers_part_rate(p, &l->part[i]) + 1e-6 * l->rate_s);
        assert_true(l->part[i].first + l->part[i].count <= p->layers);
        in += l->flow_in[i];
        out += l->flow_out[i];
    }
    assert_true(fabs(in - l->rate_s) <= 1e-6 * l->rate_s);
    assert_true(fabs(out - l->rate_s) <= 1e-6 * l->rate_s);
}

static void pipedream_equals_brute_force(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 12);
    double gain = 0;
    uint32_t compared = 0;
    for (int i = 0; i < 100; i++) {
        struct layers_problem p;
        draw(&rng, 2 + (uint32_t)rng_below(&rng, 11), 1 + (uint32_t)rng_below(&rng, 4), &p);
        struct layers_layout r = lay(&layers_pipedream, &p, 1);
        double truth = brute(&p, 0, 0, NO_PART);
        assert_int_equal(r.found, truth > 0);
        assert_true(fabs(r.rate_s - truth) <= 1e-9 * truth);
        if (r.found) check(&p, &r);
        struct layers_layout equal = lay(&layers_gpipe, &p, 1);
        assert_true(!equal.found || equal.rate_s <= r.rate_s * (1 + 1e-9));
        if (!equal.found) continue;
        gain += r.rate_s / equal.rate_s - 1;
        compared++;
    }
    print_message("against equal stages: %.0f %% more in the mean, where those fit (%u of 100)\n",
                  100 * gain / compared, compared);
    assert_true(gain / compared > 0.15);
}

static void rows_are_sound_and_repeat(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 13);
    for (int i = 0; i < 30; i++) {
        struct layers_problem p;
        draw(&rng, 8 + (uint32_t)rng_below(&rng, 24), 2 + (uint32_t)rng_below(&rng, 8), &p);
        p.rounds_max = 40;
        struct layers_layout chain = lay(&layers_pipedream, &p, 1);
        struct layers_layout helix = lay(&layers_helix, &p, 7), again = lay(&layers_helix, &p, 7);
        struct layers_layout hexgen = lay(&layers_hexgen, &p, 1);
        struct layers_layout other = lay(&layers_hexgen, &p, 1);
        assert_memory_equal(hexgen.part, other.part, sizeof hexgen.part);
        other = lay(&layers_pipedream, &p, 1);
        assert_memory_equal(chain.part, other.part, sizeof chain.part);
        assert_true(fabs(helix.rate_s - again.rate_s) <= 0);
        assert_memory_equal(helix.part, again.part, sizeof helix.part);
        if (p.device_count > 5) assert_true(helix.rate_s >= chain.rate_s * (1 - 1e-9));
        if (helix.found) check(&p, &helix);
        if (hexgen.found) check(&p, &hexgen);
    }
}

/* Returns the rate with all devices always busy, which no layout exceeds. */
static double ceiling(const struct layers_problem *p)
{
    double sum = 0;
    for (uint32_t d = 0; d < p->device_count; d++)
        sum += p->device[d].layer_tokens_s;
    return sum / p->layers;
}

static void the_cluster_of_helix(void **state)
{
    (void)state;
    struct layers_problem p;
    place_case_helix(&p);
    double top = ceiling(&p);
    const struct layers_policy *rows[] = { &layers_gpipe, &layers_pipedream, &layers_hexgen,
                                           &layers_helix };
    double rate[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct layers_layout r = lay(rows[i], &p, 1);
        rate[i] = r.rate_s;
        print_message("%-10s %6.0f tokens/s, %5.1f %% of the ceiling\n", rows[i]->name, r.rate_s,
                      100 * r.rate_s / top);
        if (r.found) check(&p, &r);
    }
    assert_true(rate[3] >= 0.8 * top);
    for (size_t i = 1; i < COUNT_OF(rows); i++) /* equal stages are the simple alternative */
        assert_true(rate[i] >= 1.3 * rate[0]);
    assert_true(rate[3] >= rate[1] * (1 - 1e-9) && rate[2] >= rate[1] * (1 - 1e-9));

    p.device[0].layers_max = 0; /* an A100 is lost */
    struct layers_layout after = lay(&layers_helix, &p, 1);
    assert_true(after.found && after.rate_s >= 0.5 * rate[3]);
}

/* Where links between regions are thin, a chain crosses one link at a time and a flow many:
 * measured 2,511 tokens/s by the chain, 3,133 to 3,432 by the flow, of 4,587 that no layout can
 * exceed. */
static void a_flow_beats_the_chain_over_thin_links(void **state)
{
    (void)state;
    struct layers_problem p;
    place_case_regions(&p);
    double top = ceiling(&p);
    struct layers_layout chain = lay(&layers_pipedream, &p, 1);
    check(&p, &chain);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct layers_layout flow = lay(&layers_helix, &p, seed);
        print_message("seed %u: chain %.0f, flow %.0f tokens/s, %.1f %% of the ceiling\n",
                      (unsigned)seed, chain.rate_s, flow.rate_s, 100 * flow.rate_s / top);
        check(&p, &flow);
        assert_true(flow.rate_s >= 1.2 * chain.rate_s);
        assert_true(flow.rate_s >= 0.66 * top);
    }
}

typedef uint64_t taken_ways[LAYERS_PARTS_MAX + 1][LAYERS_PARTS_MAX + 1];

static double flow_between(const struct layers_layout *l, uint32_t from, uint32_t to)
{
    if (from == NO_PART) return to < l->part_count ? l->flow_in[to] : 0;
    return to < l->part_count ? l->flow[from][to] : l->flow_out[from];
}

/* Returns the next part for a request, by interleaved weighted round robin on the flows, as Helix
 * does: the one with the least (taken + 1) / flow. `from` is a part, or NO_PART for the first;
 * NO_PART as the result is the client. */
static uint32_t next_part(const struct layers_layout *l, uint32_t from, taken_ways taken)
{
    uint64_t *row = taken[from == NO_PART ? LAYERS_PARTS_MAX : from];
    uint32_t best = NO_PART;
    double least = DBL_MAX;
    for (uint32_t to = 0; to <= l->part_count; to++) { /* the last one is the client */
        double flow = flow_between(l, from, to);
        if (flow <= l->rate_s * 1e-9) continue;
        double turn = (double)(row[to] + 1) / flow;
        if (turn >= least) continue;
        least = turn;
        best = to;
    }
    if (best != NO_PART) row[best]++;
    return best < l->part_count ? best : NO_PART;
}

static void requests_follow_the_flow(void **state)
{
    (void)state;
    struct layers_problem p;
    place_case_helix(&p);
    struct layers_layout l = lay(&layers_helix, &p, 1);
    static taken_ways taken;
    memset(taken, 0, sizeof taken);
    enum { REQUESTS = 20000 };
    double through[LAYERS_PARTS_MAX] = { 0 };
    for (int i = 0; i < REQUESTS; i++) {
        uint32_t layer = 0, hops = 0;
        for (uint32_t at = next_part(&l, NO_PART, taken); at != NO_PART;
             at = next_part(&l, at, taken)) {
            assert_true(l.part[at].first <= layer);
            layer = l.part[at].first + l.part[at].count;
            through[at] += 1;
            assert_true(++hops <= l.part_count);
        }
        assert_int_equal(layer, p.layers);
    }
    for (uint32_t i = 0; i < l.part_count; i++) {
        double flow = l.flow_in[i];
        for (uint32_t j = 0; j < l.part_count; j++)
            flow += l.flow[j][i];
        assert_true(fabs(through[i] / REQUESTS - flow / l.rate_s) < 0.01);
    }
}

static int place_layers_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipedream_equals_brute_force),
        cmocka_unit_test(rows_are_sound_and_repeat),
        cmocka_unit_test(the_cluster_of_helix),
        cmocka_unit_test(a_flow_beats_the_chain_over_thin_links),
        cmocka_unit_test(requests_follow_the_flow),
    };
    return cmocka_run_group_tests_name("place_layers", tests, NULL, NULL);
}

/* ---- devices to new places, and where weights are loaded; t_planner measures what that saves
 * ---- */

static struct move_memory move_work;

static double move_brute(const struct move_problem *p, uint32_t from, uint32_t used)
{
    if (from == p->from_count) return 0;
    double best = move_brute(p, from + 1, used); /* device `from` gets no place */
    for (uint32_t to = 0; to < p->to_count; to++)
        if (!(used >> to & 1))
            best = fmax(best, p->reused_bytes[from][to] + move_brute(p, from + 1, used | 1u << to));
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
        move_spotserve.map(&p, &move_work, &v);
        double truth = move_brute(&p, 0, 0), sum = 0;
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
    move_in_order.map(&p, &move_work, &v);
    assert_int_equal(v.to[0], 0);
    assert_int_equal(v.to[1], 1);
    assert_int_equal(v.to[2], MOVE_NONE);
    assert_true(fabs(v.sent_bytes - 16) < 1e-9 && fabs(v.reused_bytes - 4) < 1e-9);
    assert_true(fabs(v.seconds - 5) < 1e-9);
    move_spotserve.map(&p, &move_work, &v);
    assert_int_equal(v.to[0], 1);
    assert_int_equal(v.to[1], MOVE_NONE);
    assert_int_equal(v.to[2], 0);
    assert_true(v.sent_bytes < 1e-9 && v.seconds < 1e-9);
    p.from_count = 1; /* a place without a former device is loaded whole */
    move_in_order.map(&p, &move_work, &v);
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
    assert_int_equal(v.server, 1); /* 1 + 0.1 + 3.2 s; in memory 1 + 16 + 0.8 s, behind others */
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
    p.server[2].tier = LOAD_MEMORY; /* two in memory: the shorter queue */
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

static int place_move_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_bytes_are_reused),
        cmocka_unit_test(devices_in_order_take_places_in_order),
        cmocka_unit_test(weights_are_loaded_where_each_row_says),
    };
    return cmocka_run_group_tests_name("place_move", tests, NULL, NULL);
}

int main(void)
{
    return place_layers_tests() + place_move_tests();
}
