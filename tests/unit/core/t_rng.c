/* t_rng.c - chance: published reference values, uniformity, streams; fault points. */
#include "base/core/err.h"
#include "base/core/fault.h"
#include "base/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The authors' C code (public domain) prints these for the state 1, 2, 3, 4, and for splitmix64
 * seeded with 1234567. */
static void reference_values(void **state)
{
    (void)state;
    struct rng r = { .s = { 1, 2, 3, 4 } };
    static const uint64_t want[] = { 11520u, 0u, 1509978240u, 1215971899390074240u };
    for (size_t i = 0; i < 4; i++)
        assert_true(rng_u64(&r) == want[i]);
    rng_seed(&r, 1234567);
    assert_true(r.s[0] == 6457827717110365317u);
    assert_true(r.s[1] == 3203168211198807973u);
}

static void below_is_uniform(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 3);
    assert_true(rng_below(&r, 0) == 0);
    assert_true(rng_below(&r, 1) == 0);
    uint32_t seen[7] = { 0 };
    for (int i = 0; i < 70000; i++) {
        uint64_t v = rng_below(&r, 7);
        assert_true(v < 7);
        seen[v]++;
    }
    double chi2 = 0;
    for (int i = 0; i < 7; i++)
        chi2 += (seen[i] - 10000.0) * (seen[i] - 10000.0) / 10000.0;
    assert_true(chi2 < 22.5); /* 6 degrees of freedom: 0.1 % */
    for (int i = 0; i < 1000; i++)
        assert_true(rng_below(&r, UINT64_MAX) < UINT64_MAX);
}

static void moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    struct rng r;
    rng_seed(&r, 5);
    double unit = 0, expo = 0, sum = 0, square = 0;
    for (int i = 0; i < N; i++) {
        double u = rng_f64(&r);
        assert_true(u >= 0 && u < 1);
        double e = rng_exp(&r, 3);
        assert_true(e >= 0 && isfinite(e));
        double z = rng_normal(&r);
        unit += u, expo += e, sum += z, square += z * z;
    }
    /* Four standard errors each. */
    assert_true(fabs(unit / N - 0.5) < 4 * 0.2887 / sqrt(N));
    assert_true(fabs(expo / N - 3) < 4 * 3 / sqrt(N));
    assert_true(fabs(sum / N) < 4 / sqrt(N));
    assert_true(fabs(square / N - 1) < 4 * 1.4142 / sqrt(N));
}

static void positions_are_apart(void **state)
{
    (void)state;
    assert_true(rng_at(1, 2) == rng_at(1, 2));
    /* Pairs that a plain sum or xor of seed and position would confuse. */
    assert_true(rng_at(1, 2) != rng_at(2, 1));
    assert_true(rng_at(0, 0) != rng_at(1, 1));
    assert_true(rng_at(0, 1) != rng_at(0x9e3779b97f4a7c15u, 0));
    double sum = 0;
    for (uint64_t p = 0; p < 100000; p++) {
        double u = rng_at_f64(42, p);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 4 * 0.2887 / sqrt(100000));
    struct rng a, b, c;
    rng_stream(&a, 1, 2, 3);
    rng_stream(&b, 1, 2, 3);
    rng_stream(&c, 1, 3, 2);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
}

static bool point_a(void)
{
    return FAULT("t.a");
}

static bool point_b(void)
{
    return FAULT("t.b");
}

static void faults_fire_once(void **state)
{
    (void)state;
    assert_false(point_a());
    fault_arm("t.a", 2);
    assert_false(point_b()); /* another's name does not count */
    assert_false(point_a());
    assert_true(point_a());
    assert_false(point_a());
    assert_true(fault_hits() == 3);
    fault_arm(NULL, 2); /* any point, counted anew */
    assert_true(fault_hits() == 0);
    assert_false(point_b());
    assert_true(point_a());
    fault_disarm();
    assert_false(point_a());
    assert_true(fault_hits() == 2); /* nothing is counted while disarmed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_values), cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(moments),          cmocka_unit_test(positions_are_apart),
        cmocka_unit_test(faults_fire_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
