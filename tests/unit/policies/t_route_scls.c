/* t_route_scls.c - tests the offloader of slices: its estimate against batches played step by step,
 * its choice against the least of all, and its fleet's load against the best placement. */
#include "base/core/bits.h"
#include "tests/unit/policies/route_rig.h"

#include <float.h>

#define CASES 2000
#define SLICES 7 /* slices, few enough to try all placements on three instances */
#define INSTANCES 3

static uint32_t below(struct rng *rng, uint32_t bound)
{
    return (uint32_t)rng_below(rng, bound);
}

/* Plays the running batch, then the batches of waiting sequences with this request last, step by
 * step. `left` is the tokens each running sequence still generates, `own` those of every other
 * one. */
static double played_s(const struct route_instance *in, uint32_t left, uint32_t own,
                       uint32_t uncached, uint32_t places, uint32_t mean)
{
    struct perf_shape prompts = { .prefill_tokens = (uint32_t)in->prefill_tokens + uncached };
    double seconds = perf_step_s(&in->perf, &prompts) - in->perf.step_s;
    uint32_t queued = in->waiting + 1;
    for (uint32_t members = in->decoding, steps = left; queued > 0 || steps > 0;) {
        if (steps == 0) {
            members = min_u32(queued, places);
            queued -= members;
            steps = own;
        }
        struct perf_shape step = { .decoding_seqs = members,
                                   .kv_tokens_decoding = (uint64_t)members * mean,
                                   .kv_tokens_read = (uint64_t)members * mean };
        if (members > 0) seconds += perf_step_s(&in->perf, &step);
        steps--;
    }
    return seconds;
}

/* All sequences of a fleet are equal, so that nothing has to be estimated. */
static void the_least_serving_time_of_all(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    uint32_t met[ROUTE_RIG_INSTANCES] = { 0 };
    for (uint32_t n = 0; n < CASES; n++) {
        struct route_rig rig;
        struct route_instance *in = route_rig_init(&rig, "scls", ROUTE_RIG_INSTANCES);
        uint32_t mean = 64 + below(&rng, 500), own = 1 + below(&rng, 128), best = 0;
        double seconds[ROUTE_RIG_INSTANCES];
        rig.req.prompt_tokens = mean;
        rig.req.output_mean = own;
        for (uint32_t i = 0; i < ROUTE_RIG_INSTANCES; i++) {
            uint32_t left = below(&rng, 128), seqs = 1 + below(&rng, 8), room = 1 + below(&rng, 8);
            in[i].seqs_max = seqs;
            in[i].decoding = below(&rng, seqs + 1);
            if (in[i].decoding == 0) left = 0;
            in[i].waiting = below(&rng, 12);
            in[i].in_flight = in[i].decoding + in[i].waiting;
            in[i].active_tokens = (uint64_t)mean * in[i].in_flight;
            in[i].output_left = (double)left * in[i].decoding + (double)own * in[i].waiting;
            in[i].prefill_tokens = below(&rng, 3000);
            in[i].hit_tokens = below(&rng, mean);
            in[i].kv_tokens_max = (uint64_t)room * (mean + 128);
            in[i].perf.step_s = 1e-3 * (1 + below(&rng, 30));
            in[i].perf.prefill_token_s = 1e-4 * (1 + below(&rng, 9));
            in[i].perf.kv_read_s = 1e-7 * below(&rng, 50);
            seconds[i] = played_s(&in[i], left, own, mean - route_hit_tokens(&in[i], &rig.req),
                                  min_u32(seqs, room), mean);
            if (seconds[i] < seconds[best]) best = i;
        }
        uint32_t got = route_rig_ask(&rig).instance_id;
        if (seconds[got] > seconds[best] * (1 + 1e-9))
            fail_msg("case %u: %g s, least %g s", n, seconds[got], seconds[best]);
        met[got]++;
    }
    for (uint32_t i = 0; i < ROUTE_RIG_INSTANCES; i++)
        assert_true(met[i] > CASES / 20);
}

/* Returns the smallest possible largest load, over every placement of the slices. */
static uint32_t optimum(const uint32_t *size, uint32_t count)
{
    uint32_t ways = 1, least = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++)
        ways *= INSTANCES;
    for (uint32_t way = 0; way < ways; way++) {
        uint32_t load[INSTANCES] = { 0 }, most = 0, rest = way;
        for (uint32_t i = 0; i < count; i++, rest /= INSTANCES)
            load[rest % INSTANCES] += size[i];
        for (uint32_t k = 0; k < INSTANCES; k++)
            most = max_u32(most, load[k]);
        least = min_u32(least, most);
    }
    return least;
}

/* Slices in any order end within 2 - 1/m of the optimum, longest first within 4/3 - 1/3m
 * (Graham). */
static void the_largest_load_is_near_the_least_possible(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 9);
    for (uint32_t n = 0; n < 300; n++) {
        bool longest_first = n % 2;
        uint32_t size[SLICES], load[INSTANCES] = { 0 }, most = 0;
        for (uint32_t i = 0; i < SLICES; i++) {
            uint32_t at = i, one = 1 + below(&rng, 100);
            for (; longest_first && at > 0 && size[at - 1] < one; at--)
                size[at] = size[at - 1];
            size[at] = one;
        }
        struct route_rig rig;
        struct route_instance *in = route_rig_init(&rig, "scls", INSTANCES);
        for (uint32_t k = 0; k < INSTANCES; k++)
            in[k].perf = (struct perf_coef){ .decode_seq_s = 1e-3 };
        for (uint32_t i = 0; i < SLICES; i++) {
            rig.req.output_mean = size[i];
            uint32_t at = route_rig_ask(&rig).instance_id;
            in[at].waiting++, in[at].in_flight++;
            in[at].output_left += size[i];
            load[at] += size[i];
            most = max_u32(most, load[at]);
        }
        double bound = longest_first ? 4.0 / 3 - 1.0 / (3 * INSTANCES) : 2 - 1.0 / INSTANCES;
        double best = optimum(size, SLICES);
        if (most > bound * best + 1e-9) fail_msg("case %u: %u, the optimum is %g", n, most, best);
    }
}

static void a_slice_leaves_its_cache_for_a_shorter_queue_only(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "scls", 2);
    assert_int_equal(rig.policy->slice_tokens, 128);
    in[0].hit_tokens = 900; /* .9 s of prompt; a batch before it costs a second and more */
    ASSERT_ROUTED(&rig, 0);
    in[0].in_flight = in[0].decoding = 8;
    in[0].output_left = 8 * 20; /* .2 s of steps and .32 s of the others' decode */
    ASSERT_ROUTED(&rig, 0);
    in[0].output_left = 8 * 40;
    ASSERT_ROUTED(&rig, 1);
}

static void long_outputs_count_one_slice(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "scls", 2);
    in[1].prefill_tokens = 10;
    in[0].perf.decode_seq_s = 0.002 + 0.005 / 128; /* .005 s of a slice against .01 s of prompt */
    rig.req.output_mean = 128;
    ASSERT_ROUTED(&rig, 0);
    rig.req.output_mean = 1e6;
    ASSERT_ROUTED(&rig, 0);
}

static void unknown_speeds(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "scls", 2);
    in[0].has_perf = in[1].has_perf = false; /* tokens replace seconds */
    in[0].output_left = 300, in[1].prefill_tokens = 299;
    ASSERT_ROUTED(&rig, 1);
    in[1].prefill_tokens = 301;
    ASSERT_ROUTED(&rig, 0);
    in[1].has_perf = true; /* the fleet's speed replaces the missing one */
    in[1].prefill_tokens = 0;
    ASSERT_ROUTED(&rig, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_serving_time_of_all),
        cmocka_unit_test(the_largest_load_is_near_the_least_possible),
        cmocka_unit_test(a_slice_leaves_its_cache_for_a_shorter_queue_only),
        cmocka_unit_test(long_outputs_count_one_slice),
        cmocka_unit_test(unknown_speeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
