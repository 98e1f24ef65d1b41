/* t_place_mix.c - rows that choose a mix, the evaluator behind them, and the list of prices. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/perf/prices.h"
#include "policies/mix/eval.h"
#include "policies/mix/mix.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct mix_memory memory;

/* Types that differ by what they are good at: prompts or answers. */
struct speeds {
    double prompt[MIX_TYPES_MAX], answer[MIX_TYPES_MAX];
};

static void score(const void *ctx, uint32_t type, const struct mix_bucket *b, struct mix_score *ret)
{
    const struct speeds *s = ctx;
    double seconds = b->prompt_tokens / s->prompt[type] + b->output_tokens / s->answer[type];
    *ret = (struct mix_score){ .rate_s = 1 / seconds, .ttft_s = seconds, .tpot_s = 0.01 };
}

static void draw(struct rng *rng, struct mix_problem *m, struct speeds *s)
{
    *m = (struct mix_problem){ .eval = score,
                               .ctx = s,
                               .type_count = 2 + (uint32_t)rng_below(rng, 3) };
    for (uint32_t t = 0; t < m->type_count; t++) {
        double size = 1 + 5 * rng_f64(rng);
        s->prompt[t] = 8000 * size * (0.5 + rng_f64(rng));
        s->answer[t] = 800 * size * (0.5 + rng_f64(rng));
        m->type[t] =
            (struct mix_type){ .price_h = round(100 * size * (0.7 + 0.6 * rng_f64(rng))) / 100,
                               .max = SOLVER_COUNT_MAX };
    }
    m->bucket_count = 1 + (uint32_t)rng_below(rng, 12);
    for (uint32_t b = 0; b < m->bucket_count; b++)
        m->bucket[b] = (struct mix_bucket){ 32 * pow(2, 8 * rng_f64(rng)),
                                            16 * pow(2, 6 * rng_f64(rng)), 4 * rng_f64(rng) };
}

static double load_on(const struct mix_problem *m, const struct mix_verdict *v, uint32_t t)
{
    double load = 0;
    for (uint32_t b = 0; b < m->bucket_count; b++) {
        struct mix_score s;
        m->eval(m->ctx, t, &m->bucket[b], &s);
        load += v->share[b][t] * m->bucket[b].rate_s / s.rate_s;
    }
    return load;
}

static void a_mix_is_never_dearer_than_one_type(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    double saved = 0, most = 0;
    enum { RUNS = 200 };
    for (int i = 0; i < RUNS; i++) {
        struct mix_problem m;
        struct speeds s;
        struct mix_verdict mix, one, again;
        draw(&rng, &m, &s);
        mix_melange.choose(&m, &memory, &mix);
        mix_melange.choose(&m, &memory, &again);
        mix_single_type.choose(&m, &memory, &one);
        assert_true(mix.found && one.found && mix.optimal);
        assert_memory_equal(&mix, &again, sizeof mix);
        assert_true(mix.cost_h <= one.cost_h + 1e-9);
        for (uint32_t t = 0; t < m.type_count; t++)
            assert_true(load_on(&m, &mix, t) <= mix.count[t] + 1e-6);
        saved += 1 - mix.cost_h / one.cost_h;
        most = fmax(most, 1 - mix.cost_h / one.cost_h);
    }
    print_message("melange against the best single type: %.1f %% cheaper in the mean, %.1f %% at "
                  "most, over %d workloads\n",
                  100 * saved / RUNS, 100 * most, RUNS);
    assert_true(saved / RUNS > 0.025); /* 3.6 % when it was set */
}

static void joint_keeps_to_the_budget_and_takes_spot(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 4);
    for (int i = 0; i < 100; i++) {
        struct mix_problem m;
        struct speeds s;
        struct mix_verdict free, bound, again;
        draw(&rng, &m, &s);
        mix_joint.choose(&m, &memory, &free);
        mix_joint.choose(&m, &memory, &again);
        assert_memory_equal(&free, &again, sizeof free);
        assert_true(free.found && free.served >= 1);
        m.budget_h = free.cost_h * (0.3 + 0.6 * rng_f64(&rng));
        mix_joint.choose(&m, &memory, &bound);
        assert_true(bound.cost_h <= m.budget_h + 1e-9);
        assert_true(bound.served < 1);
        m.budget_h = 0;

        uint32_t spot = m.type_count++; /* the first type again, cheaper, now and then lost */
        m.type[spot] = m.type[0];
        m.type[spot].price_h *= 0.35;
        m.type[spot].spot = true;
        m.type[spot].hazard_h = 1 / 8.0;
        m.type[spot].lead_s = 120;
        s.prompt[spot] = s.prompt[0];
        s.answer[spot] = s.answer[0];
        struct mix_verdict with;
        mix_joint.choose(&m, &memory, &with);
        assert_int_equal(with.count[0], 0);
        assert_true(with.cost_h <= free.cost_h + 1e-9);
        m.type[spot].hazard_h = 2; /* too often away for the promise */
        mix_joint.choose(&m, &memory, &with);
        assert_int_equal(with.count[spot], 0);
    }
}

static void half_a_request(const void *ctx, uint32_t type, const struct mix_bucket *b,
                           struct mix_score *ret)
{
    (void)ctx, (void)type, (void)b;
    *ret = (struct mix_score){ .rate_s = 0.5, .ttft_s = 0.1, .tpot_s = 0.01 };
}

/* In binary three times 3.43 is a little more than 10.29. */
static void a_budget_of_whole_instances_is_used_up(void **state)
{
    (void)state;
    struct mix_problem m = { .eval = half_a_request, .type_count = 1, .bucket_count = 1 };
    struct mix_verdict v;
    m.type[0] = (struct mix_type){ .price_h = 3.43, .max = 10 };
    m.bucket[0] = (struct mix_bucket){ .prompt_tokens = 1, .output_tokens = 1, .rate_s = 1.5 };
    m.budget_h = 10.29;
    mix_joint.choose(&m, &memory, &v);
    assert_true(v.found && v.served >= 1);
    assert_int_equal(v.count[0], 3);
    m.budget_h = 10.28;
    mix_joint.choose(&m, &memory, &v);
    assert_true(v.served < 1 && v.cost_h < 10.28);
}

static void the_evaluator_is_monotone_and_keeps_the_promise(void **state)
{
    (void)state;
    struct model_spec model;
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &model, NULL), 0);
    struct eval_fleet f = { .slo_ttft_s = 1, .slo_tpot_s = 0.05 };
    assert_true(roofline_init(&f.type[0], hardware_find(STR("a100")), &model, 1));
    struct mix_bucket w = { 1155, 211, 1 };
    struct mix_score best, at;
    eval_score(&f, 0, &w, &best);
    assert_true(best.rate_s > 1 && best.ttft_s <= 1 && best.tpot_s <= 0.05);
    assert_true(!eval_at(&f.type[0], &w, best.rate_s * 1.02, &at) || at.ttft_s > 1 ||
                at.tpot_s > 0.05);
    double ttft = 0, tpot = 0;
    for (double r = 0.5; r < best.rate_s; r += 0.5) {
        assert_true(eval_at(&f.type[0], &w, r, &at));
        assert_true(at.ttft_s >= ttft * 0.99 && at.tpot_s >= tpot * 0.99);
        ttft = at.ttft_s;
        tpot = at.tpot_s;
    }
    struct mix_score tighter, longer;
    f.slo_tpot_s = 0.02;
    eval_score(&f, 0, &w, &tighter);
    assert_true(tighter.rate_s < best.rate_s);
    f.slo_tpot_s = 0.05;
    w.output_tokens *= 2;
    eval_score(&f, 0, &w, &longer);
    assert_true(longer.rate_s < best.rate_s);
    w.prompt_tokens = 1e6; /* more than the memory holds */
    eval_score(&f, 0, &w, &longer);
    assert_true(longer.rate_s <= 0);
}

static void prices_are_read_strictly(void **state)
{
    (void)state;
    static struct prices p;
    struct err err = { 0 };
    assert_int_equal(prices_parse(prices_text(), &p, &err), 0);
    assert_true(p.count > 20);
    assert_int_equal(
        prices_parse(STR("# none\n\n a100  lambda\t- on_demand 2.79 2026-09-25 x # y\r\n"), &p,
                     &err),
        0);
    assert_int_equal(p.count, 1);
    assert_string_equal(p.row[0].hardware, "a100-80"); /* by its alias */
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "", "no offer" },
        { "a100 x - on_demand 1 2026-01-01", "line 1: 6 words" },
        { "\na100 x - on_demand 1 2026-01-01 s more", "line 2: more than" },
        { "a10 x - on_demand 1 2026-01-01 s", "did you mean" },
        { "a100 x - sold 1 2026-01-01 s", "purchase" },
        { "a100 x - spot 0 2026-01-01 s", "price" },
        { "a100 x - spot -1 2026-01-01 s", "price" },
        { "a100 x - spot 1x 2026-01-01 s", "price" },
        { "a100 x - spot nan 2026-01-01 s", "price" },
        { "a100 x - spot 1 2026-02-29 s", "date" },
        { "a100 x - spot 1 2026-2-01 s", "date" },
        { "a100 an-extraordinarily-long-provider-name - spot 1 - s", "longer" },
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(prices_parse(str_from(bad[i].text), &p, &err), -EINVAL);
        if (!strstr(err.text, bad[i].says)) print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, bad[i].says));
        assert_int_equal(p.count, 1); /* untouched */
    }
    static const struct {
        const char *text;
        int32_t day;
    } days[] = {
        { "1970-01-01", 0 }, { "1972-02-29", 789 }, { "2000-03-01", 11017 }, { "2026-11-09", 20766 }
    };
    for (size_t i = 0; i < COUNT_OF(days); i++) {
        int32_t day;
        assert_int_equal(price_day(str_from(days[i].text), &day), 0);
        assert_int_equal(day, days[i].day);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mix_is_never_dearer_than_one_type),
        cmocka_unit_test(joint_keeps_to_the_budget_and_takes_spot),
        cmocka_unit_test(a_budget_of_whole_instances_is_used_up),
        cmocka_unit_test(the_evaluator_is_monotone_and_keeps_the_promise),
        cmocka_unit_test(prices_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
