/* t_kernels_element.c - tests the operations that go element by element against op_ref: norm, RoPE, gates, caps. */
#include "tests/unit/engine/kernels_rig.h"

#include <math.h>

static void norms_equal_the_reference(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 1, 7, 8, 15, 16, 17, 31, 32, 33, 256, 259 };
    struct rng rng;
    rng_seed(&rng, 2);
    EACH_FAST(o)
    {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            OWNED float *x = random_floats(sizes[i], &rng);
            OWNED float *w = random_floats(sizes[i], &rng);
            float truth[300], fast[300];
            op_ref.rms_norm(x, w, 1e-5f, sizes[i], truth);
            o->rms_norm(x, w, 1e-5f, sizes[i], fast);
            assert_true(nmse(fast, truth, sizes[i]) < NMSE_MAX);
        }
    }
}

static void rope_equals_the_reference(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    static const uint32_t pairs[] = { 1, 3, 8, 31, 32 };
    EACH_FAST(o)
    {
        for (size_t i = 0; i < COUNT_OF(pairs); i++) {
            OWNED float *truth = random_floats(3 * 64, &rng);
            float fast[3 * 64], angle_cos[32], angle_sin[32];
            memcpy(fast, truth, sizeof fast);
            for (uint32_t p = 0; p < pairs[i]; p++) {
                double angle = rng_f64(&rng) * 100;
                angle_cos[p] = (float)cos(angle), angle_sin[p] = (float)sin(angle);
            }
            op_ref.rope(truth, 3, 64, angle_cos, angle_sin, pairs[i]);
            o->rope(fast, 3, 64, angle_cos, angle_sin, pairs[i]);
            assert_true(nmse(fast, truth, 3 * 64) < NMSE_MAX);
            if (pairs[i] < 32) assert_true(fast[63] == truth[63]); /* unchanged */
        }
    }
}

typedef void (*gate_fn)(float *gate, const float *up, uint32_t n);

/* Each value stays near its own truth, from the overflow of an exponential to its underflow. */
static void check_gate(gate_fn truth_fn, gate_fn fast_fn, float off)
{
    for (float g = -100; g < 100; g += 0.37f * 16) {
        float truth[16], fast[16], up[16];
        for (uint32_t i = 0; i < 16; i++) {
            truth[i] = fast[i] = g + 0.37f * (float)i;
            up[i] = 1.5f - 0.9f * (float)i; /* and beyond the limit of clamped_mul, on both sides */
        }
        truth_fn(truth, up, 16);
        fast_fn(fast, up, 16);
        for (uint32_t i = 0; i < 16; i++)
            assert_true(fabsf(fast[i] - truth[i]) <= off * fabsf(truth[i]) + 1e-35f);
    }
    float not_a_number[16] = { NAN, 1 }, up[16] = { 1, 1 };
    fast_fn(not_a_number, up, 16);
    assert_true(isnan(not_a_number[0]) && !isnan(not_a_number[1]));
}

static void gates_equal_the_reference_everywhere(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        check_gate(op_ref.silu_mul, o->silu_mul, 4e-7f);
        /* ALPHA * g is rounded, by up to 170 * 2^-24, before the exponential. */
        check_gate(op_ref.clamped_mul, o->clamped_mul, 1.1e-5f);
    }
}

/* The reference's 1 + tanh loses the digits of a vanishing gate, so the bound is absolute there. */
static void gelu_equals_the_reference(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        for (float g = -20; g < 20; g += 0.07f * 16) {
            float truth[16], fast[16], up[16];
            for (uint32_t i = 0; i < 16; i++) {
                truth[i] = fast[i] = g + 0.07f * (float)i;
                up[i] = 0.25f * (float)i - 1;
            }
            op_ref.gelu_mul(truth, up, 16);
            o->gelu_mul(fast, up, 16);
            for (uint32_t i = 0; i < 16; i++)
                assert_true(fabsf(fast[i] - truth[i]) <= 1e-6f * fabsf(truth[i]) + 1e-7f);
        }
    }
}

static void soft_caps_equal_the_reference(void **state)
{
    (void)state;
    static const float caps[] = { 1, 30, 50 };
    EACH_FAST(o)
    {
        for (size_t c = 0; c < COUNT_OF(caps); c++) {
            for (float x = -300; x < 300; x += 0.31f * 16) {
                float truth[16], fast[16];
                for (uint32_t i = 0; i < 16; i++)
                    truth[i] = fast[i] = x + 0.31f * (float)i;
                op_ref.soft_cap(truth, caps[c], 16);
                o->soft_cap(fast, caps[c], 16);
                for (uint32_t i = 0; i < 16; i++)
                    assert_true(fabsf(fast[i] - truth[i]) <= 3e-7f * caps[c]);
            }
        }
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_equal_the_reference),
        cmocka_unit_test(rope_equals_the_reference),
        cmocka_unit_test(gates_equal_the_reference_everywhere),
        cmocka_unit_test(gelu_equals_the_reference),
        cmocka_unit_test(soft_caps_equal_the_reference),
    };
    return cmocka_run_group_tests_name("kernels_element", tests, NULL, NULL);
}
