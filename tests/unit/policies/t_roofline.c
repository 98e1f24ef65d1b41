/* t_roofline.c - tests the step-time model in closed form: by hand, in its limits, and as a
 * surrogate. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/perf/model_spec.h"
#include "base/perf/roofline.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct roofline make(const char *hardware, const char *model, uint32_t tp)
{
    struct model_spec m;
    struct roofline r;
    const struct hardware *h = hardware_find(str_from(hardware));
    assert_non_null(h);
    assert_int_equal(model_spec_find(str_from(model), &m, NULL), 0);
    assert_true(roofline_init(&r, h, &m, tp));
    return r;
}

static struct perf_shape decode(uint32_t seqs, uint32_t context)
{
    uint64_t kv = (uint64_t)seqs * context;
    return (
        struct perf_shape){ .decoding_seqs = seqs, .kv_tokens_read = kv, .kv_tokens_decoding = kv };
}

static struct perf_shape prefill(uint64_t tokens, uint64_t before)
{
    return (struct perf_shape){ .prefill_tokens = (uint32_t)tokens,
                                .prefill_chunks = 1,
                                .kv_tokens_read = tokens * before + tokens * (tokens + 1) / 2 };
}

static void t_table(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < hardware_count; i++) {
        const struct hardware *h = &hardware_table[i];
        const double eff[] = { h->eff_bytes, h->eff_flops, h->eff_rows, h->eff_attn };
        for (size_t k = 0; k < COUNT_OF(eff); k++)
            assert_true(eff[k] > 0 && eff[k] <= 1);
        assert_true(h->eff_link <= 1 && (h->eff_link > 0) == (h->link_bytes_s > 0));
        assert_true(h->watts_idle > 0 && h->watts_idle < h->watts_max);
        assert_true(h->validated == (h->tokens_validated_max > 0));
        assert_true(h->validated || !(h->attn_validated || h->link_validated));
        assert_ptr_equal(hardware_find(str_from(h->name)), h);
    }
    assert_ptr_equal(hardware_find(STR("a100")), hardware_find(STR("a100-80")));
    assert_null(hardware_find(STR("A100")));
}

/* A decode step of one sequence reads the weights, so bandwidth bounds it; a long prompt is bound
 * by compute. */
static void t_limits(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < hardware_count; i++) {
        const struct hardware *h = &hardware_table[i];
        struct roofline r = make(h->name, "llama-3-8b", 1);
        struct perf_shape one = decode(1, 1), whole = prefill(2048, 0);
        double bytes_least = 15e9 / h->bytes_s, flops_least = 2 * 7e9 * 2048 / h->flops;
        assert_true(roofline_step_s(&r, &one) > bytes_least);
        assert_true(roofline_step_s(&r, &one) < 2.5 * bytes_least + h->host_s + 32 * 60e-6);
        assert_true(roofline_step_s(&r, &whole) > flops_least);
        assert_true(roofline_step_s(&r, &whole) < 4 * flops_least + h->host_s + 32 * 60e-6);
    }
}

/* More work never takes less time. */
static void t_monotone(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    struct roofline r[] = { make("a100", "llama-3-8b", 1), make("h100", "mixtral-8x7b", 4),
                            make("cpu", "muster-tiny", 1), make("l4", "qwen3-30b-a3b", 1) };
    for (int n = 0; n < 2000; n++) {
        const struct roofline *at = &r[n % (int)COUNT_OF(r)];
        struct perf_shape less =
            decode(1 + (uint32_t)rng_below(&rng, 200), 1 + (uint32_t)rng_below(&rng, 4000));
        struct perf_shape chunk = prefill(1 + rng_below(&rng, 4096), rng_below(&rng, 8192));
        struct perf_shape more = less, both = less;
        more.decoding_seqs++, more.kv_tokens_read++, more.kv_tokens_decoding++;
        both.prefill_tokens = chunk.prefill_tokens, both.prefill_chunks = 1;
        both.kv_tokens_read += chunk.kv_tokens_read;
        assert_true(roofline_step_s(at, &more) > roofline_step_s(at, &less));
        assert_true(roofline_step_s(at, &both) > roofline_step_s(at, &chunk));
        assert_true(roofline_step_s(at, &both) > roofline_step_s(at, &less));
    }
}

static void t_parallel(void **state)
{
    (void)state;
    struct roofline one = make("h100", "llama-3-70b", 1), four = make("h100", "llama-3-70b", 4);
    struct perf_shape s = decode(16, 500), long_prompt = prefill(4096, 0);
    double gain = roofline_step_s(&one, &s) / roofline_step_s(&four, &s);
    assert_true(gain > 1.5 && gain < 4);
    gain = roofline_step_s(&one, &long_prompt) / roofline_step_s(&four, &long_prompt);
    assert_true(gain > 1.5 && gain < 4);
    assert_int_equal(roofline_kv_tokens(&one), 0);       /* 141 GB do not fit 80 */
    assert_true(roofline_kv_tokens(&four) > 200 * 1000); /* 288 - 141 - 24 GB at 320 KiB */
    struct model_spec m;
    struct roofline r;
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &m, NULL), 0);
    assert_false(roofline_init(&r, hardware_find(STR("a100")), &m, 3));
    assert_false(roofline_init(&r, hardware_find(STR("cpu")), &m, 2));
}

static void t_kv_tokens(void **state)
{
    (void)state;
    /* 0.9 x 80 GiB - 16.06 GB - 5.5 GiB - 0.15 GB over 128 KiB a token. */
    struct roofline r = make("a100", "llama-3-8b", 1);
    double want = (0.9 * 80 * 1073741824 - 16.06e9 - 5.5 * 1073741824 - 0.15e9) / 131072;
    assert_true(fabs((double)roofline_kv_tokens(&r) / want - 1) < 0.01);
    r = make("l4", "llama-3-8b", 1);
    assert_in_range(roofline_kv_tokens(&r), 25000, 40000);
    /* Eight KV heads over sixteen devices are kept twice each. */
    double eight = make("a100", "llama-3-8b", 8).kv_token_bytes;
    assert_true(fabs(make("a100", "llama-3-8b", 16).kv_token_bytes / eight - 2) < 1e-12);
}

static void t_experts(void **state)
{
    (void)state;
    /* One token reads the experts it chooses; a thousand read all of them. */
    struct roofline r = make("a100", "mixtral-8x7b", 2);
    struct perf_shape one = decode(1, 1), many = decode(1000, 1);
    double read_one = r.layers * (r.weights_s + 2 * r.expert_s);
    double read_all = r.layers * (r.weights_s + 8 * r.expert_s);
    double rest = r.layers * (r.layer_s + 2 * r.reduce_s + 12e-6) + r.head_s + r.host_s;
    assert_true(fabs(roofline_step_s(&r, &one) / (read_one + rest) - 1) < 0.02);
    assert_true(roofline_step_s(&r, &many) > read_all + rest);
}

static void t_watts(void **state)
{
    (void)state;
    struct roofline r = make("a100", "llama-3-8b", 1);
    struct perf_shape none = { 0 }, one = decode(1, 100), whole = prefill(4096, 0);
    double w_one = roofline_watts(&r, &one, 1), w_whole = roofline_watts(&r, &whole, 1);
    assert_true(roofline_watts(&r, &none, 1) == r.watts_idle);
    assert_true(w_one > r.watts_idle && w_whole > 1.3 * w_one && w_whole <= r.watts_max);
    assert_true(w_whole > 0.8 * r.watts_max);
    /* A lower clock slows a prompt and hardly a decode step. */
    assert_true(roofline_watts(&r, &whole, 0.7) < 0.8 * w_whole);
    assert_true(roofline_step_clock_s(&r, &whole, 0.7) > 1.25 * roofline_step_s(&r, &whole));
    assert_true(roofline_step_clock_s(&r, &one, 0.7) < 1.02 * roofline_step_s(&r, &one));
}

/* The parts sum to the step, and scaling all parts scales it. */
static void t_parts(void **state)
{
    (void)state;
    static const double twice[ROOFLINE_PARTS] = { 2, 2, 2, 2, 2 };
    const struct roofline of[] = { make("a100", "llama-3-8b", 2), make("h100", "mixtral-8x7b", 4),
                                   make("cpu", "muster-tiny", 1) };
    for (size_t i = 0; i < COUNT_OF(of); i++) {
        struct perf_shape one = decode(1, 100), mixed = decode(20, 700);
        mixed.prefill_tokens = 300, mixed.prefill_chunks = 2;
        mixed.kv_tokens_read += 300 * 500;
        const struct perf_shape shape[] = { one, mixed, prefill(1000, 50) };
        for (size_t k = 0; k < COUNT_OF(shape); k++) {
            double part[ROOFLINE_PARTS], sum = 0, whole = roofline_step_s(&of[i], &shape[k]);
            struct roofline slow = of[i];
            roofline_parts(&of[i], &shape[k], part);
            for (int p = 0; p < ROOFLINE_PARTS; p++)
                sum += part[p];
            roofline_scale(&slow, twice);
            assert_true(fabs(sum / whole - 1) < 1e-12);
            assert_true(fabs(roofline_step_s(&slow, &shape[k]) / whole - 2) < 1e-12);
        }
    }
}

/* The surrogate is usable, and close to the closed form where decode steps usually are. */
static void t_linear(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < hardware_count; i++) {
        const char *model = hardware_table[i].cores > 0 ? "muster-tiny" : "llama-3-8b";
        struct roofline r = make(hardware_table[i].name, model, 1);
        struct perf_coef c;
        roofline_linear(&r, ROOFLINE_POINT_DEFAULT, &c);
        assert_true(perf_coef_valid(&c) && c.samples == 0 && c.ratio_p90 == 1);
        assert_true(c.step_s + c.prefill_token_s > 0 && c.kv_read_s > 0 && c.attend_s > 0);
        for (uint32_t seqs = 1; seqs <= 64; seqs *= 2) {
            struct perf_shape s = decode(seqs, 1024);
            double off = perf_step_s(&c, &s) / roofline_step_s(&r, &s) - 1;
            if (fabs(off) > 0.05)
                fail_msg("%s, %u: %+.1f %%", hardware_table[i].name, seqs, 100 * off);
        }
        struct perf_shape chunk = decode(32, 1024);
        chunk.prefill_tokens = 512, chunk.prefill_chunks = 1;
        chunk.kv_tokens_read += 512 * 300;
        double off = perf_step_s(&c, &chunk) / roofline_step_s(&r, &chunk) - 1;
        if (fabs(off) > 0.15) fail_msg("%s, a chunk: %+.1f %%", hardware_table[i].name, 100 * off);
    }
}

static void t_bytes(void **state)
{
    (void)state;
    struct roofline a, b;
    memset(&a, 0xff, sizeof a), memset(&b, 0, sizeof b);
    struct model_spec m;
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &m, NULL), 0);
    assert_true(roofline_init(&a, hardware_find(STR("a100")), &m, 2));
    assert_true(roofline_init(&b, hardware_find(STR("a100")), &m, 2));
    assert_memory_equal(&a, &b, sizeof a);
}

static void t_range(void **state)
{
    (void)state;
    struct roofline rtx = make("rtx4090", "llama-3-8b", 1), l4 = make("l4", "llama-3-8b", 1);
    struct roofline a100 = make("a100", "llama-3-8b", 1); /* its attention was not measured */
    struct perf_shape s = prefill(512, 0), beyond = prefill(100000, 0);
    assert_true(roofline_range_ok(&rtx, &s));
    assert_false(roofline_range_ok(&rtx, &beyond));
    assert_false(roofline_range_ok(&a100, &s));
    assert_false(roofline_range_ok(&l4, &s));
}

/* ---- a model's shape is read strictly, and the shipped ones have their known sizes ---- */

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

/* Weights and KV cache have separate types: 4-bit weights are served with a 16-bit cache. */
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
        cmocka_unit_test(t_table),           cmocka_unit_test(t_limits),
        cmocka_unit_test(t_monotone),        cmocka_unit_test(t_parallel),
        cmocka_unit_test(t_kv_tokens),       cmocka_unit_test(t_experts),
        cmocka_unit_test(t_watts),           cmocka_unit_test(t_bytes),
        cmocka_unit_test(t_range),           cmocka_unit_test(t_parts),
        cmocka_unit_test(t_linear),          cmocka_unit_test(t_defaults),
        cmocka_unit_test(t_types_are_bytes), cmocka_unit_test(t_refusals),
        cmocka_unit_test(t_shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
