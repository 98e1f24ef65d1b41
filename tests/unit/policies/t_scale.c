/* t_scale.c - tests the default scaling policy: against a simulated engine, against brute force,
 * and on hand-made views. The other policies are tested in t_scale_signals.c and
 * t_scale_steps.c. */
#include "base/core/bits.h"
#include "policies/scale/capacity.h"
#include "policies/scale/parts/forecast_paths.h"
#include "policies/scale/parts/mix.h"
#include "policies/scale/scale.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND ((int64_t)1000000)

static struct scale_pool a_pool(double price_h, double speed)
{
    return (struct scale_pool){
        .max = 8,
        .available = true,
        .price_h = price_h,
        .lead_s = 20,
        .perf_known = true,
        .perf = { .step_s = 0.010 / speed,
                  .prefill_token_s = 0.0005 / speed,
                  .decode_seq_s = 0.001 / speed,
                  .kv_read_s = 1e-6 / speed },
        .seqs_max = 16,
    };
}

static struct scale_view a_view(uint32_t pools)
{
    struct scale_view v = { .pool_count = pools, .ttft_slo_s = 2, .tpot_slo_s = 0.1 };
    for (uint32_t i = 0; i < pools; i++)
        v.pool[i] = a_pool(1 + i * 0.8, 1 + i);
    v.demand = (struct scale_demand){
        .present = true, .arrivals_s = 1, .prompt_tokens = 200, .output_tokens = 100
    };
    return v;
}

/* Returns an empty state, so that earlier decisions play no part. */
static void *work_state(void)
{
    static _Alignas(8) char bytes[SCALE_STATE_BYTES_MAX];
    memset(bytes, 0, sizeof bytes);
    return bytes;
}

static void load_one(const struct scale_view *v, uint32_t pool, struct scale_load *ret)
{
    struct lengths l = { 0 };
    lengths_add(&l, v->demand.prompt_tokens, v->demand.output_tokens, 1);
    lengths_mean(&l);
    scale_load_of(&v->pool[pool], &l, ret);
}

static double rate_at(const struct scale_view *v, uint32_t pool, double utilisation_max)
{
    struct scale_load l;
    load_one(v, pool, &l);
    return scale_load_rate(&l, v->ttft_slo_s, v->tpot_slo_s, utilisation_max);
}

static double rate_one(const struct scale_view *v, uint32_t pool)
{
    return rate_at(v, pool, 0.85);
}

/* ---- the formula against an engine simulated step by step ---- */

struct session {
    double arrived;
    uint32_t prompt, output, done;
    double first;
};

/* Simulates the model's engine at `rate`; writes mean TTFT and TPOT. Every waiting prompt is
 * computed whole in the next step, as the formula assumes. */
static void simulate(const struct scale_pool *pool, const struct scale_demand *d, double rate,
                     double *ret_ttft, double *ret_tpot)
{
    enum { SESSIONS = 4096, ARRIVALS = 20000, WARM = 2000 };
    static struct session run[SESSIONS];
    uint32_t running = 0, finished = 0;
    struct rng rng;
    rng_seed(&rng, 7);
    double now = 0, next = rng_exp(&rng, 1 / rate), ttft = 0, tpot = 0;

    while (finished < ARRIVALS && running < SESSIONS - 1) {
        if (running == 0 && next > now) now = next;
        uint64_t kv = 0;
        uint32_t prefill = 0, decoding = 0;
        while (next <= now && running < SESSIONS - 1) {
            run[running++] = (struct session){ .arrived = next,
                                               .prompt = (uint32_t)d->prompt_tokens,
                                               .output = (uint32_t)d->output_tokens };
            next += rng_exp(&rng, 1 / rate);
        }
        for (uint32_t i = 0; i < running; i++) {
            if (run[i].done == 0)
                prefill += run[i].prompt;
            else
                decoding++, kv += run[i].prompt + run[i].done;
        }
        struct perf_shape shape = { .prefill_tokens = prefill,
                                    .decoding_seqs = decoding,
                                    .kv_tokens_read = kv,
                                    .kv_tokens_decoding = kv };
        now += perf_step_s(&pool->perf, &shape);
        for (uint32_t i = 0; i < running;) {
            struct session *s = &run[i];
            if (s->done++ == 0) s->first = now;
            if (s->done < s->output) {
                i++;
                continue;
            }
            if (finished++ >= WARM) {
                ttft += s->first - s->arrived;
                tpot += (now - s->first) / (s->output - 1);
            }
            run[i] = run[--running];
        }
    }
    if (finished < ARRIVALS) { /* the queue grew without bound */
        *ret_ttft = *ret_tpot = HUGE_VAL;
        return;
    }
    *ret_ttft = ttft / (ARRIVALS - WARM);
    *ret_tpot = tpot / (ARRIVALS - WARM);
}

static void rate_keeps_the_slo_in_a_simulated_engine(void **state)
{
    (void)state;
    static const struct {
        double ttft, tpot, prompt, output;
        const char *why;
    } rows[] = {
        { 2, 0.05, 200, 100, "the time between tokens binds" },
        { 2, 0.03, 50, 200, "long answers, tight steps" },
        { 0.5, 1, 400, 20, "the first token binds" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct scale_view v = a_view(1);
        v.pool[0].seqs_max = 4000;
        v.ttft_slo_s = rows[i].ttft;
        v.tpot_slo_s = rows[i].tpot;
        v.demand.prompt_tokens = rows[i].prompt;
        v.demand.output_tokens = rows[i].output;
        double rate = rate_at(&v, 0, 0.95);
        assert_true(rate > 0);

        double ttft, tpot;
        simulate(&v.pool[0], &v.demand, rate * 0.95, &ttft, &tpot);
        if (ttft > rows[i].ttft || tpot > rows[i].tpot)
            fail_msg("%s: ttft %g tpot %g below the rate", rows[i].why, ttft, tpot);
        /* The rate is not timid: twice the rate misses the SLO. */
        simulate(&v.pool[0], &v.demand, rate * 2, &ttft, &tpot);
        if (ttft <= rows[i].ttft && tpot <= rows[i].tpot)
            fail_msg("%s: twice the rate still keeps the SLO", rows[i].why);
    }
}

static void slots_bound_the_rate(void **state)
{
    (void)state;
    struct scale_view v = a_view(1);
    double wide = rate_at(&v, 0, 0.85);
    v.pool[0].seqs_max = 1;
    double narrow = rate_at(&v, 0, 0.85);
    assert_true(narrow < wide);
    /* With one slot a request takes output * a + w seconds. */
    double w = (200 * v.pool[0].perf.prefill_token_s +
                100 * (v.pool[0].perf.decode_seq_s + v.pool[0].perf.kv_read_s * 250));
    assert_true(fabs(narrow - 0.85 / (100 * 0.010 + 0.85 * w)) < 1e-9);
}

/* ---- the mix against brute force ---- */

static double cost_with_lead(const struct scale_view *v, const uint32_t *want)
{
    double cost = 0;
    for (uint32_t i = 0; i < v->pool_count; i++) {
        const struct scale_pool *p = &v->pool[i];
        uint32_t fresh = want[i] > scale_have(p) ? want[i] - scale_have(p) : 0;
        cost += want[i] * p->price_h + fresh * p->price_h * p->lead_s / 600;
    }
    return cost;
}

static double rate_of(const struct scale_view *v, const uint32_t *want)
{
    double rate = 0;
    for (uint32_t i = 0; i < v->pool_count; i++)
        rate += want[i] * rate_one(v, i);
    return rate;
}

static void brute(const struct scale_view *v, double need, double *ret_cost, double *ret_gap)
{
    double best_cost = HUGE_VAL, best_gap = HUGE_VAL;
    uint32_t n[SCALE_POOLS_MAX] = { 0 };
    for (n[0] = v->pool[0].min; n[0] <= scale_reach(&v->pool[0]); n[0]++)
        for (n[1] = v->pool[1].min; n[1] <= scale_reach(&v->pool[1]); n[1]++)
            for (n[2] = v->pool[2].min; n[2] <= scale_reach(&v->pool[2]); n[2]++) {
                if (v->budget_h > 0 && scale_cost_h(v, n) > v->budget_h) continue;
                double gap = fmax(need - rate_of(v, n), 0);
                if (gap < need * 1e-9) gap = 0;
                double cost = cost_with_lead(v, n);
                if (gap > best_gap || (gap >= best_gap && cost >= best_cost)) continue;
                best_gap = gap;
                best_cost = cost;
            }
    *ret_cost = best_cost;
    *ret_gap = best_gap;
}

static void mix_is_the_cheapest(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    const struct scale_config config = SCALE_CONFIG_DEFAULT;
    for (uint32_t round = 0; round < 400; round++) {
        struct scale_view v = a_view(3);
        for (uint32_t i = 0; i < 3; i++) {
            struct scale_pool *p = &v.pool[i];
            *p = a_pool(0.5 + rng_f64(&rng) * 3, 0.7 + rng_f64(&rng) * 3);
            p->min = (uint32_t)rng_below(&rng, 2);
            p->ready = (uint32_t)rng_below(&rng, 4);
            p->available = rng_below(&rng, 5) != 0;
        }
        v.demand.arrivals_s = rng_f64(&rng) * 20;
        if (rng_below(&rng, 3) == 0) v.budget_h = 5 + rng_f64(&rng) * 10;

        double rate[SCALE_POOLS_MAX] = { 0 };
        for (uint32_t i = 0; i < 3; i++)
            rate[i] = rate_one(&v, i);
        double need = v.demand.arrivals_s;
        struct scale_mixed got;
        scale_mix(&config, &v, rate, need, &got);

        double cost, gap;
        brute(&v, need, &cost, &gap);
        if (isinf(cost)) continue; /* the minimums alone exceed the budget */
        double got_gap = fmax(need - rate_of(&v, got.best.want), 0);
        if (got_gap < need * 1e-9) got_gap = 0;
        if (fabs(got_gap - gap) > need * 1e-6 ||
            cost_with_lead(&v, got.best.want) > cost * (1 + 1e-9))
            fail_msg("round %u: cost %g gap %g, brute force %g %g", round,
                     cost_with_lead(&v, got.best.want), got_gap, cost, gap);
    }
}

/* ---- policies ---- */

struct work_row {
    uint32_t ready, starting;
    double arrivals;
    uint32_t held, in_flight, waiting;
    double idle_s;
    bool absent, unknown, unavailable;
    uint32_t min;
    uint32_t want_low, want_high;
    const char *why;
};

static void work_answers(void **state)
{
    (void)state;
    static const struct work_row rows[] = {
        { .idle_s = 1e9, .why = "nobody ever asked: nothing" },
        { .held = 1, .want_low = 1, .want_high = 1, .why = "one held request wakes one instance" },
        { .ready = 1, .idle_s = 30, .want_low = 1, .want_high = 1, .why = "silence, not long yet" },
        { .ready = 1, .idle_s = 61, .why = "silence for longer than zero_after_s" },
        { .ready = 1, .idle_s = 61, .min = 1, .want_low = 1, .want_high = 1, .why = "the minimum" },
        { .ready = 1,
          .idle_s = 61,
          .in_flight = 1,
          .want_low = 1,
          .want_high = 1,
          .why = "somebody is being served" },
        { .ready = 3, .absent = true, .want_low = 3, .want_high = 3, .why = "absent is not zero" },
        { .ready = 2,
          .unknown = true,
          .arrivals = 100,
          .want_low = 2,
          .want_high = 2,
          .why = "no speed known: keep" },
        { .unknown = true,
          .held = 5,
          .want_low = 1,
          .want_high = 1,
          .why = "no speed known, nothing runs: one to learn from" },
        { .ready = 1, .arrivals = 20, .want_low = 5, .want_high = 8, .why = "work of many" },
        { .ready = 1, .arrivals = 1000, .want_low = 8, .want_high = 8, .why = "the maximum" },
        { .ready = 2,
          .arrivals = 1000,
          .unavailable = true,
          .want_low = 2,
          .want_high = 2,
          .why = "nothing can be bought" },
        { .ready = 1,
          .arrivals = 1,
          .waiting = 400,
          .in_flight = 400,
          .want_low = 2,
          .want_high = 8,
          .why = "a backlog that one instance does not clear" },
        { .ready = 1,
          .arrivals = 0.1,
          .waiting = 3,
          .in_flight = 3,
          .want_low = 1,
          .want_high = 1,
          .why = "a backlog that is gone before help could come" },
    };
    const struct scale_config config = SCALE_CONFIG_DEFAULT;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct work_row *r = &rows[i];
        struct scale_view v = a_view(1);
        v.pool[0].ready = r->ready;
        v.pool[0].starting = r->starting;
        v.pool[0].min = r->min;
        v.pool[0].perf_known = !r->unknown;
        v.pool[0].available = !r->unavailable;
        v.demand.present = !r->absent;
        v.demand.arrivals_s = r->arrivals;
        v.demand.held = r->held;
        v.demand.in_flight = r->in_flight;
        v.demand.waiting = r->waiting;
        v.demand.idle_s = r->idle_s;
        struct scale_verdict got;
        scale_work.decide(work_state(), &config, &v, SECOND, NULL, &got);
        if (got.choice.want[0] < r->want_low || got.choice.want[0] > r->want_high)
            fail_msg("%s: want %u, expected %u to %u", r->why, got.choice.want[0], r->want_low,
                     r->want_high);
        assert_non_null(got.reason);
        assert_true(got.again_us > SECOND);
    }
}

static void work_names_its_runner_up(void **state)
{
    (void)state;
    struct scale_view v = a_view(2);
    v.demand.arrivals_s = 6;
    const struct scale_config config = SCALE_CONFIG_DEFAULT;
    struct scale_verdict got;
    scale_work.decide(work_state(), &config, &v, SECOND, NULL, &got);
    assert_true(got.has_runner_up);
    assert_non_null(got.runner_why);
    assert_int_not_equal(0, memcmp(&got.choice.want, &got.runner_up.want, sizeof got.choice.want));
    assert_true(got.estimate_s > 0 && got.estimate_s <= v.ttft_slo_s);
}

/* Misses that the model does not expect raise its estimate of the load, at most to twice. */
static void misses_are_believed(void **state)
{
    (void)state;
    _Alignas(8) char bytes[SCALE_STATE_BYTES_MAX] = { 0 };
    const struct scale_config config = SCALE_CONFIG_DEFAULT;
    struct scale_view v = a_view(1);
    struct scale_verdict got;
    v.pool[0].ready = 4;
    v.demand.arrivals_s = 4;
    v.demand.in_flight = 12;
    v.demand.slo_known = true;
    double before = 0, load = 0;
    for (int64_t t = 1; t < 600; t++) {
        v.demand.slo_met_total += t > 200 ? 3 : 4;
        v.demand.slo_missed_total += t > 200 ? 1 : 0;
        scale_work.decide(bytes, &config, &v, t * SECOND, NULL, &got);
        if (t == 200) before = got.load;
        load = got.load;
    }
    assert_true(before > 0 && load > before * 1.2);
    assert_true(load <= before * 2.2);
}

/* After jumps like those before, a service with a long lead has more instances ready for the next
 * one. */
static void long_leads_are_planned_for(void **state)
{
    (void)state;
    const struct scale_config config = SCALE_CONFIG_DEFAULT;
    uint32_t want[2];
    for (int k = 0; k < 2; k++) {
        _Alignas(8) char bytes[SCALE_STATE_BYTES_MAX] = { 0 };
        struct scale_view v = a_view(1);
        struct scale_verdict got;
        v.pool[0].max = 64;
        v.pool[0].ready = 3;
        v.pool[0].lead_s = k ? 250 : 2;
        for (int64_t t = 1; t < 900; t++) {
            uint32_t rate = 4 + 4 * (uint32_t)(t / 300);
            v.demand.arrivals_total += rate;
            v.demand.arrivals_s = rate;
            v.demand.in_flight = rate * 2;
            scale_work.decide(bytes, &config, &v, t * SECOND, NULL, &got);
        }
        want[k] = got.choice.want[0];
    }
    assert_true(want[1] > want[0]);
}

static void the_level_follows_jumps_and_not_noise(void **state)
{
    (void)state;
    struct forecast_paths o = { 0 };
    struct rng rng;
    rng_seed(&rng, 5);
    uint64_t total = 0;
    double next = 0, worst = 0;
    for (int t = 0; t < 600; t++) {
        double rate = t < 400 ? 4 : 8;
        for (; next < t + 1; next += rng_exp(&rng, 1 / rate))
            total++;
        paths_observe(&o, total, (t + 1) * SECOND);
        if (t > 120 && t < 400) worst = fmax(worst, fabs(paths_level(&o) - 4));
        if (t == 420) assert_true(paths_level(&o) > 6);
    }
    assert_true(worst < 2);
    assert_true(fabs(paths_level(&o) - 8) < 1);
    /* Some path that continues as before the jump rises by four, and none by more than twice
     * that. */
    float path[20];
    double most = 0;
    for (uint32_t p = 0; p < 12; p++) {
        paths_draw(&o, p, 12, 20, path);
        for (int k = 0; k < 20; k++)
            most = fmax(most, (double)path[k]);
    }
    assert_true(most > 10.5 && most < 16);
}

static void slo_out_of_reach_still_serves(void **state)
{
    (void)state;
    struct scale_view v = a_view(1);
    v.tpot_slo_s = 0.001; /* a step alone takes ten times that */
    v.demand.arrivals_s = 3;
    const struct scale_config config = SCALE_CONFIG_DEFAULT;
    assert_true(rate_at(&v, 0, 0.85) <= 0);
    struct scale_verdict got;
    scale_work.decide(work_state(), &config, &v, SECOND, NULL, &got);
    assert_true(got.choice.want[0] >= 1);
    assert_non_null(strstr(got.reason, "best effort"));
}

static void search_stops_at_its_bound(void **state)
{
    (void)state;
    struct scale_view v = a_view(SCALE_POOLS_MAX);
    for (uint32_t i = 0; i < v.pool_count; i++) {
        v.pool[i] = a_pool(1 + i * 1e-4, 1 + i * 1e-3); /* nearly equal, so hard to prune */
        v.pool[i].max = SCALE_COUNT_MAX;
    }
    v.demand.arrivals_s = 700;
    const struct scale_config config = SCALE_CONFIG_DEFAULT;
    struct scale_verdict got;
    scale_work.decide(work_state(), &config, &v, SECOND, NULL, &got);
    assert_true(rate_of(&v, got.choice.want) >= 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_keeps_the_slo_in_a_simulated_engine),
        cmocka_unit_test(slots_bound_the_rate),
        cmocka_unit_test(mix_is_the_cheapest),
        cmocka_unit_test(work_answers),
        cmocka_unit_test(work_names_its_runner_up),
        cmocka_unit_test(misses_are_believed),
        cmocka_unit_test(long_leads_are_planned_for),
        cmocka_unit_test(the_level_follows_jumps_and_not_noise),
        cmocka_unit_test(slo_out_of_reach_still_serves),
        cmocka_unit_test(search_stops_at_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
