/* t_scale_bound.c - what a clairvoyant needs, on futures written down by hand. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/scale/bound.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define SECOND ((int64_t)1000000)

/* Gaps no longer than the lead are filled to the lower of their sides; then each second has the
 * most of the lead behind it. */
static void launched_so_early_that_it_is_ready(void **state)
{
    (void)state;
    static const struct {
        uint16_t need[10], plan[10];
        double lead_s;
        const char *why;
    } rows[] = {
        { { 1, 1, 4, 4, 1, 1, 1, 1, 1, 1 }, { 1, 1, 4, 4, 1, 1, 1, 1, 1, 1 }, 0, "no lead" },
        { { 1, 1, 1, 4, 1, 1, 1, 1, 1, 1 }, { 1, 4, 4, 4, 1, 1, 1, 1, 1, 1 }, 2, "two early" },
        { { 1, 1, 1, 4, 1, 1, 1, 1, 1, 1 },
          { 1, 4, 4, 4, 1, 1, 1, 1, 1, 1 },
          1.2,
          "a part is one" },
        { { 3, 1, 1, 2, 1, 1, 1, 1, 1, 2 }, { 3, 2, 2, 2, 1, 1, 2, 2, 2, 2 }, 3, "one gap of two" },
        { { 0, 0, 0, 0, 0, 0, 0, 0, 0, 5 },
          { 5, 5, 5, 5, 5, 5, 5, 5, 5, 5 },
          99,
          "the whole past" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint16_t got[10];
        memcpy(got, rows[i].need, sizeof got);
        scale_bound_plan(got, COUNT_OF(got), rows[i].lead_s);
        if (memcmp(got, rows[i].plan, sizeof got) != 0) fail_msg("%s", rows[i].why);
    }
    scale_bound_plan(NULL, 0, 5);
}

/* It is never less than what is needed, and once is enough. */
static void a_plan_covers_its_need(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 4);
    for (uint32_t round = 0; round < 200; round++) {
        uint16_t need[80], plan[80];
        for (uint32_t i = 0; i < COUNT_OF(need); i++)
            need[i] = (uint16_t)(rng_below(&rng, 3) ? 0 : rng_below(&rng, 9));
        memcpy(plan, need, sizeof plan);
        uint32_t lead = (uint32_t)rng_below(&rng, 12);
        scale_bound_plan(plan, COUNT_OF(plan), lead);
        for (uint32_t i = 0; i < COUNT_OF(need); i++)
            for (uint32_t k = i; k <= i + lead && k < COUNT_OF(need); k++)
                assert_true(plan[i] >= need[k]);
    }
}

static void need_is_the_rate_over_what_one_serves(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    static int64_t at_us[COUNT];
    static uint32_t prompt[COUNT], output[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) { /* ten a second for ten seconds */
        at_us[i] = i * SECOND / 10;
        prompt[i] = 1000;
        output[i] = 100;
    }
    const struct scale_future f = { at_us, prompt, output, COUNT };
    struct scale_pool p = {
        .perf = { .step_s = 0.01, .prefill_token_s = 1e-4, .decode_seq_s = 1e-4 }, .seqs_max = 256
    };
    double each = scale_bound_need(&f, &p, 1, 0.1, 5 * SECOND, 2);
    assert_true(each > 0 && isfinite(each));
    /* Behind the last request half of the window is empty, and behind that all of it. */
    assert_true(fabs(scale_bound_need(&f, &p, 1, 0.1, 10 * SECOND, 2) - each / 2) < 1e-9);
    assert_true(scale_bound_need(&f, &p, 1, 0.1, 50 * SECOND, 2) <= 0);
    assert_true(scale_bound_need(&f, &p, 1, 0.1, 0, 2) > 0); /* none before the first */
    assert_true(isinf(scale_bound_need(&f, &p, 1, 0.001, 5 * SECOND, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launched_so_early_that_it_is_ready),
        cmocka_unit_test(a_plan_covers_its_need),
        cmocka_unit_test(need_is_the_rate_over_what_one_serves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
