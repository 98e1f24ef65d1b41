/* t_place_move.c - devices to new places, and where weights are loaded. */
#include "base/core/bits.h"
#include "policies/place_move.h"
#include "policies/place_rows.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

static struct place_move_work work;

static double brute(const struct place_move *p, uint32_t from, uint32_t used)
{
    if (from == p->from_count) return 0;
    double best = brute(p, from + 1, used); /* without a place */
    for (uint32_t to = 0; to < p->to_count; to++)
        if (!(used >> to & 1))
            best = fmax(best, p->reused_bytes[from][to] + brute(p, from + 1, used | 1u << to));
    return best;
}

static double greedy(const struct place_move *p)
{
    double sum = 0;
    uint32_t used = 0;
    for (uint32_t from = 0; from < p->from_count; from++) {
        uint32_t best = PLACE_NONE;
        for (uint32_t to = 0; to < p->to_count; to++) {
            if (used >> to & 1) continue;
            if (best == PLACE_NONE || p->reused_bytes[from][to] > p->reused_bytes[from][best])
                best = to;
        }
        if (best == PLACE_NONE) continue;
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
        static struct place_move p;
        p = (struct place_move){ .from_count = 1 + (uint32_t)rng_below(&rng, 7),
                                 .to_count = 1 + (uint32_t)rng_below(&rng, 7),
                                 .bytes_s = 1e9 };
        for (uint32_t t = 0; t < p.to_count; t++) {
            p.needed_bytes[t] = 2e9;
            for (uint32_t f = 0; f < p.from_count; f++)
                p.reused_bytes[f][t] = rng_below(&rng, 3) ? 2e9 * rng_f64(&rng) : 0;
        }
        struct place_move_verdict v;
        place_spotserve.move(&p, &work, &v);
        double truth = brute(&p, 0, 0), sum = 0;
        uint32_t used = 0, placed = 0;
        for (uint32_t f = 0; f < p.from_count; f++) {
            if (v.to[f] == PLACE_NONE) continue;
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

static void weights_are_loaded_where_they_are_ready_first(void **state)
{
    (void)state;
    struct place_load p = {
        .server_count = 3, .model_bytes = 16e9, .start_s = 1, .bytes_s = { 20e9, 5e9, 1e9, 0.1e9 }
    };
    p.server[0] = (struct load_server){ .usable = true, .tier = 0, .queued_bytes = { 0, 0, 16e9 } };
    p.server[1] = (struct load_server){ .usable = true, .tier = 1 };
    p.server[2] = (struct load_server){ .usable = true, .tier = 3 };
    struct place_load_verdict v;
    place_serverlessllm.load(&p, &v);
    assert_int_equal(v.server, 1); /* 1 + 3.2 s beats 1 + 16 + 0.8 s */
    assert_true(fabs(v.ready_s - 4.2) < 1e-9 && fabs(v.runner_up_s - 17.8) < 1e-9);
    p.server[0].queued_bytes[2] = 0;
    place_serverlessllm.load(&p, &v);
    assert_int_equal(v.server, 0);
    p.server[0].usable = p.server[1].usable = false;
    place_serverlessllm.load(&p, &v);
    assert_int_equal(v.server, 2);
    assert_true(v.runner_up_s < 0);
    p.server[2].usable = false;
    place_serverlessllm.load(&p, &v);
    assert_int_equal(v.server, PLACE_NONE);
}

/* ---- what the choice of a machine is worth ---- */

#define SERVERS 8
#define MODELS 40
#define IN_MEMORY 3 /* models that a server keeps, the latest used */
#define ON_DISK 12
#define LOADS 4000

struct server {
    uint32_t model[ON_DISK]; /* the latest used first */
    uint32_t models;
    double free_s; /* its loads come one after the other */
};

enum rule { READY_FIRST, LEAST_LOADED, NEAREST_TIER };

static uint32_t tier_of(const struct server *s, uint32_t model)
{
    for (uint32_t i = 0; i < s->models; i++)
        if (s->model[i] == model) return i < IN_MEMORY ? 0 : 1;
    return 3;
}

static void use(struct server *s, uint32_t model)
{
    uint32_t at = 0;
    while (at < s->models && s->model[at] != model)
        at++;
    if (at == s->models) at = s->models < ON_DISK ? s->models++ : ON_DISK - 1;
    memmove(&s->model[1], &s->model[0], at * sizeof s->model[0]);
    s->model[0] = model;
}

static uint32_t pick(const struct place_load *p, enum rule rule)
{
    struct place_load_verdict v = { .server = 0 };
    if (rule == READY_FIRST) {
        place_serverlessllm.load(p, &v);
        return v.server;
    }
    for (uint32_t i = 1; i < p->server_count; i++) {
        const struct load_server *a = &p->server[i], *b = &p->server[v.server];
        if (rule == NEAREST_TIER && a->tier != b->tier) {
            if (a->tier < b->tier) v.server = i;
        } else if (a->queued_bytes[0] < b->queued_bytes[0]) {
            v.server = i;
        }
    }
    return v.server;
}

/* Mean seconds from a model's being asked for to its engine's being ready: 16 GB models, some asked
 * for more often, from memory, disk or a shared store. */
static double mean_start_s(enum rule rule, double rate_s, uint64_t seed)
{
    static struct server server[SERVERS];
    struct place_load p = { .server_count = SERVERS,
                            .model_bytes = 16e9,
                            .start_s = 1,
                            .bytes_s = { 20e9, 5e9, 2e9, 1e9 } };
    struct rng rng;
    double now_s = 0, sum = 0;
    rng_seed(&rng, seed);
    memset(server, 0, sizeof server);
    for (int i = 0; i < LOADS; i++) {
        now_s += rng_exp(&rng, 1 / rate_s);
        uint32_t model = (uint32_t)(MODELS * pow(rng_f64(&rng), 2.5));
        for (uint32_t k = 0; k < SERVERS; k++) {
            double queue_s = fmax(0, server[k].free_s - now_s);
            p.server[k] = (struct load_server){ .usable = true,
                                                .tier = tier_of(&server[k], model),
                                                .queued_bytes = { queue_s * p.bytes_s[0] } };
        }
        uint32_t at = pick(&p, rule);
        double load_s = p.model_bytes / p.bytes_s[p.server[at].tier];
        server[at].free_s = fmax(server[at].free_s, now_s) + load_s;
        sum += server[at].free_s + p.start_s - now_s;
        use(&server[at], model);
    }
    return sum / LOADS;
}

static void ready_first_starts_sooner_than_least_loaded(void **state)
{
    (void)state;
    static const double rates_s[] = { 0.2, 0.5, 1.0 };
    for (size_t r = 0; r < COUNT_OF(rates_s); r++) {
        double mean_s[3] = { 0 };
        for (uint64_t seed = 1; seed <= 5; seed++)
            for (int rule = 0; rule < 3; rule++)
                mean_s[rule] += mean_start_s((enum rule)rule, rates_s[r], seed) / 5;
        print_message("%.1f loads a second on %d servers: mean start %.2f s ready first, %.2f s "
                      "least loaded, %.2f s nearest tier\n",
                      rates_s[r], SERVERS, mean_s[0], mean_s[1], mean_s[2]);
        assert_true(mean_s[READY_FIRST] < 0.9 * mean_s[LEAST_LOADED]);
        assert_true(mean_s[READY_FIRST] < mean_s[NEAREST_TIER]);
    }
}

/* ---- what the mapping is worth after a loss ---- */

/* Bytes of layers that a stage of one split has in common with a stage of another, in the unit of
 * a layer. */
static double shared_layers(uint32_t layers, uint32_t a, uint32_t of_a, uint32_t b, uint32_t of_b)
{
    uint32_t from = max_u32(layers * a / of_a, layers * b / of_b);
    uint32_t to = min_u32(layers * (a + 1) / of_a, layers * (b + 1) / of_b);
    return to > from ? to - from : 0;
}

/* 16 devices run 80 layers as 4 pipelines of 4 stages; some are lost and the rest become pipelines
 * of 4, 3 or 2 stages. Weights and KV of a layer that lies there already need not be sent. */
static void mapping_moves_less_than_a_restart(void **state)
{
    (void)state;
    enum { LAYERS = 80, DEVICES = 16, RUNS = 200 };
    double mapped = 0, in_order = 0, restart = 0;
    struct rng rng;
    rng_seed(&rng, 6);
    for (int run = 0; run < RUNS; run++) {
        static struct place_move p;
        uint32_t stage[DEVICES], lost = 1 + (uint32_t)rng_below(&rng, 6);
        uint32_t stages = 2 + (uint32_t)rng_below(&rng, 3);
        p = (struct place_move){ .from_count = DEVICES, .bytes_s = 1 };
        for (uint32_t i = 0; i < DEVICES; i++)
            stage[i] = i % 4;
        for (; lost > 0; lost--) {
            stage[rng_below(&rng, p.from_count)] = stage[p.from_count - 1];
            p.from_count--;
        }
        p.to_count = p.from_count / stages * stages;
        for (uint32_t t = 0; t < p.to_count; t++) {
            p.needed_bytes[t] = shared_layers(LAYERS, t % stages, stages, 0, 1);
            for (uint32_t f = 0; f < p.from_count; f++)
                p.reused_bytes[f][t] = shared_layers(LAYERS, stage[f], 4, t % stages, stages);
            restart += p.needed_bytes[t];
            in_order += p.needed_bytes[t] - p.reused_bytes[t][t];
        }
        struct place_move_verdict v, again;
        place_spotserve.move(&p, &work, &v);
        place_spotserve.move(&p, &work, &again);
        assert_memory_equal(&v, &again, sizeof v);
        mapped += v.sent_bytes;
    }
    print_message("bytes sent after a loss: %.1f %% of a restart's, %.1f %% of those of devices in "
                  "order\n",
                  100 * mapped / restart, 100 * mapped / in_order);
    assert_true(mapped < 0.5 * restart);
    assert_true(mapped < 0.7 * in_order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_bytes_are_reused),
        cmocka_unit_test(mapping_moves_less_than_a_restart),
        cmocka_unit_test(weights_are_loaded_where_they_are_ready_first),
        cmocka_unit_test(ready_first_starts_sooner_than_least_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
