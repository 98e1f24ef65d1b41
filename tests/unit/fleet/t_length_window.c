/* t_length_window.c - lengths that arrived and lengths that wait, against sums by hand. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "fleet/length_window.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define SECOND ((int64_t)1000000)

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

static void lengths_are_those_that_came(void **state)
{
    (void)state;
    struct length_window r = { 0 };
    struct lengths l;
    length_window_expected(&r, LENGTH_BUCKETS, 10 * SECOND, &l);
    assert_true(l.count <= 0);
    length_window_arrived(&r, 10, 20, 10 * SECOND);   /* bins 0, 0 */
    length_window_arrived(&r, 100, 40, 12 * SECOND);  /* bins 2, 1 */
    length_window_arrived(&r, 1e9, 1e9, 13 * SECOND); /* the last ones have no end */
    length_window_expected(&r, LENGTH_BUCKETS, 15 * SECOND, &l);
    assert_true(near(l.count, 3) && near(l.age_s, 2));
    assert_true(near(l.prompt, (110 + 1e9) / 3) && near(l.output, (60 + 1e9) / 3));
    assert_true(near(l.cross, (200 + 4000 + 1e18) / 3));
    assert_true(near(l.bin[0][0], 1) && near(l.bin[2][1], 1));
    assert_true(near(l.bin[LENGTH_BINS - 1][LENGTH_BINS - 1], 1));
}

static void what_left_waits_no_more(void **state)
{
    (void)state;
    struct length_window r = { 0 };
    struct lengths l;
    length_window_arrived(&r, 100, 50, 1);
    length_window_arrived(&r, 300, 70, 2);
    length_window_left(&r, 100, 50);
    length_window_queued(&r, &l);
    assert_true(near(l.count, 1) && near(l.prompt, 300) && near(l.output, 70));
    assert_true(near(l.prompt_sq, 90000) && near(l.bin[2][1], 0) && near(l.bin[4][2], 1));
    length_window_left(&r, 300, 70);
    length_window_queued(&r, &l);
    assert_true(l.count <= 0);
    length_window_expected(&r, LENGTH_BUCKETS, 3, &l);
    assert_true(near(l.count, 2)); /* it did arrive */
}

/* The oracle keeps every arrival and sums those of the buckets that count. */
static void windows_forget_by_the_bucket(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static struct length_window r;
    static double prompt[COUNT], output[COUNT];
    static int64_t at_us[COUNT];
    struct rng rng;
    rng_seed(&rng, 9);
    int64_t now_us = SECOND;
    for (uint32_t i = 0; i < COUNT; i++) {
        now_us += (int64_t)(rng_u64(&rng) % (i % 500 == 499 ? 400 * SECOND : SECOND));
        prompt[i] = 1 + (double)(rng_u64(&rng) % 5000);
        output[i] = 1 + (double)(rng_u64(&rng) % 1000);
        at_us[i] = now_us;
        length_window_arrived(&r, prompt[i], output[i], now_us);
        if (i % 37 != 0) continue;
        for (uint32_t buckets = 12; buckets <= LENGTH_BUCKETS; buckets += 48) {
            double n = 0, p = 0, po = 0;
            for (uint32_t k = 0; k <= i; k++) {
                if (now_us / LENGTH_BUCKET_US - at_us[k] / LENGTH_BUCKET_US >= buckets) continue;
                n++;
                p += prompt[k];
                po += prompt[k] * output[k];
            }
            struct lengths l;
            length_window_expected(&r, buckets, now_us, &l);
            assert_true(near(l.count, n) && near(l.prompt, p / n) && near(l.cross, po / n));
        }
    }
}

static void two_joined_are_one(void **state)
{
    (void)state;
    struct length_window a = { 0 }, b = { 0 }, both = { 0 };
    struct lengths x, y, sum, want, none = { 0 };
    for (uint32_t i = 1; i <= 40; i++) {
        length_window_arrived(i % 3 ? &a : &b, i * 50, i * 7, i * SECOND);
        length_window_arrived(&both, i * 50, i * 7, i * SECOND);
    }
    length_window_expected(&a, LENGTH_BUCKETS, 41 * SECOND, &x);
    length_window_expected(&b, LENGTH_BUCKETS, 41 * SECOND, &y);
    length_window_expected(&both, LENGTH_BUCKETS, 41 * SECOND, &want);
    lengths_join(&x, &y, &sum);
    assert_true(near(sum.count, 40) && near(sum.prompt, want.prompt) && near(sum.age_s, 1));
    assert_true(near(sum.output_sq, want.output_sq) && near(sum.cross, want.cross));
    assert_memory_equal(sum.bin, want.bin, sizeof sum.bin);
    lengths_join(&none, &y, &sum); /* what is absent has no age */
    assert_true(near(sum.age_s, 2) && near(sum.count, y.count));
    lengths_join(&y, &none, &sum);
    assert_true(near(sum.age_s, 2) && near(sum.prompt, y.prompt));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_those_that_came),
        cmocka_unit_test(what_left_waits_no_more),
        cmocka_unit_test(windows_forget_by_the_bucket),
        cmocka_unit_test(two_joined_are_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
