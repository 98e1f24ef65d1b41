/* t_model_spec.c - a model's shape is read strictly, and the shipped ones have their known sizes. */
#include "base/core/bits.h"
#include "base/perf/model_spec.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SMALL "name: x\nlayers: 2\nhidden: 64\nheads: 4\nffn: 128\nvocab: 100\n"

static void t_defaults(void **state)
{
    (void)state;
    struct model_spec m;
    struct err err;
    assert_int_equal(model_spec_parse(STR("# a comment\r\n\n" SMALL), &m, &err), 0);
    assert_string_equal(m.name, "x");
    assert_int_equal(m.kv_heads, 4);
    assert_int_equal(m.head_dim, 16);
    assert_true(m.gated && !m.tied && m.experts == 0);
    assert_true(m.weight_bytes == 2 && m.kv_element_bytes == 2);
    assert_true(model_spec_kv_token_bytes(&m) == 2 * 2 * 64 * 2);
    assert_true(model_spec_weights(&m) == 2 * (64 * 256 + 3 * 64 * 128) + 2 * 6400);
}

/* Weights and cache have types of their own: weights of 4 bits are served with a cache of 16. */
static void t_types_are_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double weight, kv;
    } rows[] = {
        { SMALL "dtype: bf16\n", 2, 2 },
        { SMALL "dtype: fp16\nkv_dtype: fp8\n", 2, 1 },
        { SMALL "dtype: fp8\n", 1, 2 },
        { SMALL "dtype: int4\n", 0.5, 2 },
        { SMALL "dtype: q8_0\nkv_dtype: bf16\n", 34 / 32.0, 2 },
        { SMALL "dtype: fp32\nkv_element_bytes: 4\n", 4, 4 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct model_spec m;
        struct err err = { 0 };
        int rc = model_spec_parse(str_from(rows[i].text), &m, &err);
        if (rc != 0 || m.weight_bytes != rows[i].weight || m.kv_element_bytes != rows[i].kv)
            fail_msg("%s: %d %s", rows[i].text, rc, err.text);
    }
}

static void t_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text, *says;
    } rows[] = {
        { "an unknown key names its line and a near one", SMALL "layer: 3\n",
          "line 7: no key 'layer', did you mean 'layers'?" },
        { "a repeated key", SMALL "ffn: 1\n", "line 7: ffn is given twice" },
        { "a repeated name", SMALL "name: y\n", "line 7: name is given twice" },
        { "no colon", SMALL "ffn 1\n", "line 7: a line is `key: value`" },
        { "not a number", SMALL "head_dim: 1.5\n", "line 7: head_dim is a whole number" },
        { "out of range", SMALL "weight_bytes: 9\n", "line 7: weight_bytes is a number from 0.1" },
        { "not yes or no", SMALL "tied: true\n", "line 7: tied is yes or no" },
        { "a name that is too long",
          "name: 0123456789012345678901234567890123456789012345678901234567890123\n",
          "line 1: name has 1 to 63 bytes" },
        { "no name", "layers: 2\n", "name is missing" },
        { "a required key", "name: x\nlayers: 2\n", "x: hidden is missing" },
        { "heads that do not share", SMALL "kv_heads: 3\n", "do not share" },
        { "an unknown type", SMALL "dtype: fp12\n",
          "line 7: dtype is one of fp32, bf16, fp16, fp8, int8, fp4, int4, q8_0, q4_0, not "
          "'fp12'" },
        { "a type and bytes", SMALL "weight_bytes: 2\ndtype: bf16\n",
          "line 8: weight_bytes and dtype say the same" },
        { "bytes and a type, of the cache", SMALL "kv_dtype: fp8\nkv_element_bytes: 1\n",
          "line 8: kv_dtype and kv_element_bytes say the same" },
        { "active experts alone", SMALL "experts_active: 2\n", "experts_active" },
        { "more active than there are", SMALL "experts: 2\nexperts_active: 3\n", "experts_active" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct model_spec m = { .layers = 7 };
        struct err err = { 0 };
        int rc = model_spec_parse(str_from(rows[i].text), &m, &err);
        if (rc != -EINVAL || !strstr(err.text, rows[i].says) || m.layers != 7) {
            fail_msg("%s: %d, '%s'", rows[i].why, rc, err.text);
        }
    }
}

static void t_shipped(void **state)
{
    (void)state;
    /* Parameters in billions as their makers count them; norms and biases are not ours to count. */
    static const struct {
        const char *name;
        double billions;
    } rows[] = {
        { "llama-3-8b", 8.03 },    { "llama-3-70b", 70.6 }, { "llama-2-7b", 6.74 },
        { "mixtral-8x7b", 46.7 },  { "qwen3-32b", 32.8 },   { "qwen3-30b-a3b", 30.5 },
        { "opt-13b", 12.85 },      { "qwen2.5-7b", 7.62 },  { "llama-3.2-1b", 1.24 },
        { "muster-tiny", 0.0058 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct model_spec m;
        assert_int_equal(model_spec_find(str_from(rows[i].name), &m, NULL), 0);
        double off = model_spec_weights(&m) / (rows[i].billions * 1e9) - 1;
        if (fabs(off) > 0.01) fail_msg("%s: %+.1f %%", rows[i].name, 100 * off);
    }
    struct model_spec m, other;
    uint32_t count = 0;
    for (; model_spec_at(count, &m); count++) {
        assert_int_equal(model_spec_find(str_from(m.name), &other, NULL), 0);
        assert_memory_equal(m.name, other.name, sizeof m.name);
    }
    assert_true(count >= COUNT_OF(rows));
    struct err err;
    assert_int_equal(model_spec_find(STR("llama-3-8B"), &m, &err), -ENOENT);
    assert_non_null(strstr(err.text, "did you mean 'llama-3-8b'?"));
    assert_int_equal(model_spec_find(STR("another"), &m, &err), -ENOENT);
    assert_non_null(strstr(err.text, "'another'; there are llama-2-13b, "));
    for (uint32_t i = 0; model_spec_at(i, &m); i++)
        assert_non_null(strstr(err.text, m.name));
    char keys[256];
    model_spec_keys(keys, sizeof keys);
    assert_non_null(strstr(keys, "name, layers, hidden"));
    assert_non_null(strstr(keys, "dtype, kv_dtype"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_defaults),
        cmocka_unit_test(t_types_are_bytes),
        cmocka_unit_test(t_refusals),
        cmocka_unit_test(t_shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
