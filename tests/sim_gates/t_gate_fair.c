/* t_gate_fair.c - judges how overload is shared among tenants, and what fairness costs the cache.
 *
 * Ten paired seeds of generated load. Service is what was computed, uncached prompt tokens + 2 * output
 * tokens, of requests that ended while others still arrived. VTC counts cached tokens as well, but its
 * load shares no prefix; DLPM's own measure leaves them out, because they cost nothing.
 */
#include "base/core/bits.h"
#include "simulator/sim.h"
#include "tests/sim_gates/gate.h"
#include "tests/sim_gates/judged.h"

#include <stdio.h>

#define TENANTS_MAX 8 /* numbered from 1 */
#define SEEDS 10

struct service {
    double tokens[TENANTS_MAX + 1];
    double hit_ratio;
};

static struct service serve_tenants(const struct gate *g, uint32_t arm, uint32_t seed)
{
    const struct sim_arm *a = &g->arms.arm[arm];
    struct sim_config config = a->config;
    CLEANUP(trace_freep) struct trace *t = NULL;
    struct err err;
    struct sim_result r;
    struct service ret = { 0 };
    config.seed += seed;
    assert_int_equal(generate_trace(&a->generate, config.seed, &t, &err), 0);
    assert_int_equal(sim_run(&config, t, &r, &err), 0);
    int64_t last_us = r.outcome[t->count - 1].arrival_us;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *q = &t->request[i];
        assert_in_range(q->tenant, 1, TENANTS_MAX);
        if (r.outcome[i].end != SIM_COMPLETED || r.outcome[i].last_us > last_us) continue;
        ret.tokens[q->tenant] +=
            q->prompt_tokens - r.outcome[i].cached_tokens + 2.0 * q->output_tokens;
    }
    ret.hit_ratio = (double)r.hit_tokens / (double)r.prompt_tokens;
    sim_result_fini(&r);
    return ret;
}

/* Returns the first tenant's service over the second's. */
static double ratio(const struct service *s)
{
    return s->tokens[1] / s->tokens[2];
}

/* Returns Jain's index: 1 when all are served alike, 1 / tenants when only one is. */
static double fairness(const struct service *s)
{
    double sum = 0, squares = 0;
    for (uint32_t t = 1; t <= TENANTS_MAX; t++)
        sum += s->tokens[t], squares += s->tokens[t] * s->tokens[t];
    return sum * sum / (TENANTS_MAX * squares);
}

static double hits(const struct service *s)
{
    return s->hit_ratio;
}

/* Prints and returns the interval of figure `of` of an arm over the seeds; with `against`, of the ratio
 * of the two arms' figures, seed by seed. */
static struct stats_mean judge(const char *what, double (*of)(const struct service *),
                               const struct service arm[SEEDS], const struct service against[SEEDS])
{
    double value[SEEDS];
    for (uint32_t s = 0; s < SEEDS; s++)
        value[s] = of(&arm[s]) / (against ? of(&against[s]) : 1);
    struct stats_mean ret = stats_mean(value, SEEDS);
    printf("%s: %.4f +- %.4f\n", what, ret.mean, ret.half);
    return ret;
}

static void serve_all(const char *command, uint32_t arms, struct service ret[][SEEDS])
{
    struct gate g = gate_prepare(command);
    assert_int_equal(g.arms.count, arms);
    for (uint32_t a = 0; a < arms; a++) {
        judged_add(g.arms.arm[a].name.data);
        for (uint32_t s = 0; s < SEEDS; s++)
            ret[a][s] = serve_tenants(&g, a, s);
    }
    gate_free(&g);
}

/* Two tenants each offer more than half of what the engine can serve, one three times the other. Most
 * is refused, because the queue has the 256 places that it ships with. */
static void counters_share_out_service(void **state)
{
    (void)state;
    static struct service arm[3][SEEDS];
    serve_all("--trace gen:poisson,rate=120,prompt=lognormal(300,1),output=lognormal(60,1),n=16000,"
              "tenants=2,heavy=3 --fleet 1xa100 "
              "--compare preset=vllm,vtc,dlpm",
              3, arm);
    struct stats_mean none = judge("first come, first served", ratio, arm[0], NULL);
    struct stats_mean vtc = judge("vtc", ratio, arm[1], NULL);
    gate_interval_above("without counters the heavy one has", none, 2.5);
    gate_interval_below("with them", vtc, 1.02); /* measured .997 +- .004 */
    gate_interval_above("and not less", vtc, 0.98);
    struct stats_mean dlpm = judge("dlpm", ratio, arm[2], NULL);
    gate_interval_below("with deficits", dlpm, 1.02);
    gate_interval_above("and not less", dlpm, 0.98);
}

/* Two tenants offer the same load, more than the engine can serve: service follows their weights. */
static void weights_share_out_service(void **state)
{
    (void)state;
    static struct service arm[2][SEEDS];
    serve_all("--trace gen:poisson,rate=120,prompt=lognormal(300,1),output=lognormal(60,1),n=8000,"
              "tenants=2 --fleet 1xa100 --tenant-weights 2,1 "
              "--compare preset=vtc,dlpm",
              2, arm);
    struct stats_mean vtc = judge("vtc, weights 2 to 1", ratio, arm[0], NULL);
    struct stats_mean dlpm = judge("dlpm, weights 2 to 1", ratio, arm[1], NULL);
    gate_interval_above("vtc serves the heavier", vtc, 1.95);
    gate_interval_below("and no more", vtc, 2.05);
    gate_interval_above("dlpm serves the heavier", dlpm, 1.95);
    gate_interval_below("and no more", dlpm, 2.05);
}

/* Eight system prompts fill the cache, so that running requests evict some of them; one tenant sends
 * three times its share. */
static void deficits_keep_locality(void **state)
{
    (void)state;
    static struct service arm[3][SEEDS];
    serve_all("--trace gen:poisson,rate=60,prompt=lognormal(200,1),output=lognormal(60,1),n=2500,"
              "tenants=8,heavy=3,system=3072,systems=8 --fleet 1xa100 --kv-tokens 24000 "
              "--order longest_prefix --compare fair=none,dlpm,vtc",
              3, arm);
    struct stats_mean kept = judge("hits of dlpm to those of none", hits, arm[1], arm[0]);
    struct stats_mean more = judge("hits of dlpm to those of vtc", hits, arm[1], arm[2]);
    struct stats_mean even = judge("Jain's index of dlpm", fairness, arm[1], NULL);
    struct stats_mean lead =
        judge("Jain's index of dlpm to that of none", fairness, arm[1], arm[0]);
    judge("Jain's index of none", fairness, arm[0], NULL);
    judge("Jain's index of vtc", fairness, arm[2], NULL);
    gate_interval_above("locality is kept", kept, 0.95); /* measured .963 +- .004 */
    gate_interval_above("counters alone lose it", more, 1.15);
    gate_interval_above("and service is even", even, 0.98); /* measured .994 +- .002 */
    /* Longest prefix alone had .831 +- .029 with an unbounded queue, and the claim was at most .87.
     * As it ships it has .878 +- .016, because the router refuses and retries; the claim now is
     * dlpm's lead, 1.133. */
    gate_interval_above("and more so than by longest prefix alone", lead, 1.1);
}

static void every_policy_is_held_against_something(void **state)
{
    (void)state;
    assert_int_equal(judged_missed("fair", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_share_out_service),
        cmocka_unit_test(weights_share_out_service),
        cmocka_unit_test(deficits_keep_locality),
        cmocka_unit_test(every_policy_is_held_against_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
