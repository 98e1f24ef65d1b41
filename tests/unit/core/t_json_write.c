/* t_json_write.c - structure, escapes and repair, and doubles that read back equal. */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/core/rng.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void structure(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object(&w);
    json_kv_i64(&w, "i", INT64_MIN);
    json_kv_u64(&w, "u", UINT64_MAX);
    json_kv_text(&w, "t", "x");
    json_kv_text(&w, "none", NULL);
    json_key_str(&w, STR("a\"b"));
    json_array(&w);
    json_put_bool(&w, true);
    json_array(&w);
    json_array_end(&w);
    json_object(&w);
    json_object_end(&w);
    json_put_null(&w);
    json_array_end(&w);
    json_key(&w, "raw");
    json_put_raw(&w, STR("{\"z\":[1]}"));
    json_kv_bool(&w, "b", false);
    json_kv_str(&w, "s", STR("y"));
    json_kv_f64(&w, "f", 0.5);
    json_object_end(&w);
    assert_int_equal(out.rc, 0);
    assert_string_equal(out.data,
                        "{\"i\":-9223372036854775808,\"u\":18446744073709551615,\"t\":\"x\","
                        "\"none\":null,\"a\\\"b\":[true,[],{},null],\"raw\":{\"z\":[1]},"
                        "\"b\":false,\"s\":\"y\",\"f\":0.5}");
}

static void strings(void **state)
{
    (void)state;
    static const struct {
        struct str in;
        const char *out;
    } rows[] = {
        { { "", 0 }, "\"\"" },
        { { "a\"\\/\b\f\n\r\t\x01\x1f\x7f", 12 },
          "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"" },
        { { "a\0b", 3 }, "\"a\\u0000b\"" },
        { { "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9 },
          "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"" },
        /* One U+FFFD for each maximal subpart: the example of the Unicode standard, table 3-8. */
        { { "\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", 9 },
          "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
          "\xef\xbf\xbd"
          "A\"" },
        { { "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", 9 },
          "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
          "A\"" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct json_writer w;
        json_writer_init(&w, &out);
        json_put_str(&w, rows[i].in);
        assert_string_equal(out.data, rows[i].out);
    }
}

/* Any bytes at all: what comes out is well-formed, and valid text comes back as it was. */
static void any_bytes(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 11);
    static const char alphabet[] = "a\"\\\n\x01\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\xff";
    for (int i = 0; i < 20000; i++) {
        char bytes[24];
        size_t len = (size_t)rng_below(&rng, sizeof bytes);
        for (size_t k = 0; k < len; k++)
            bytes[k] = alphabet[rng_below(&rng, sizeof alphabet)]; /* its NUL, too */
        struct str in = str_of(bytes, len);
        CLEANUP(buf_fini) struct buf out = { 0 };
        CLEANUP(buf_fini) struct buf back = { 0 };
        struct json_writer w;
        struct json_reader r;
        json_writer_init(&w, &out);
        json_put_str(&w, in);
        json_reader_init(&r, buf_view(&out));
        assert_int_equal(json_next(&r), JSON_STRING);
        assert_int_equal(json_text(&r, &back), 0);
        assert_int_equal(json_next(&r), JSON_END);
        assert_true(str_utf8_valid(buf_view(&back)));
        if (str_utf8_valid(in)) assert_true(str_eq(buf_view(&back), in));
    }
}

static struct str written(struct buf *out, double v)
{
    struct json_writer w;
    buf_clear(out);
    json_writer_init(&w, out);
    json_put_f64(&w, v);
    return buf_view(out);
}

/* Of a number's mantissa, without zeros at its ends. */
static int digits_of(const char *text)
{
    int digits = 0, zeros = 0;
    for (const char *c = text; *c && *c != 'e'; c++) {
        if (*c < '0' || *c > '9') continue;
        zeros = *c == '0' ? zeros + 1 : 0;
        digits += digits > 0 || *c != '0';
    }
    return digits > zeros ? digits - zeros : 0;
}

static void doubles_read_back(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } rows[] = {
        { 0, "0" },
        { -0.0, "-0" },
        { 0.1, "0.1" },
        { 1, "1" },
        { 100, "100" },
        { -17, "-17" },
        { 999999999999999, "999999999999999" },
        { -999999999999999, "-999999999999999" },
        { 1e15, "1e+15" },
        { 1e22, "1e+22" },
        { 1.0 / 3, "0.3333333333333333" },
        { 0.1 + 0.2, "0.30000000000000004" },
        { 5e-324, "5e-324" },
        { DBL_MAX, "1.7976931348623157e+308" },
        { DBL_MIN, "2.2250738585072014e-308" },
        { NAN, "null" },
        { INFINITY, "null" },
        { -INFINITY, "null" },
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_true(str_eq(written(&out, rows[i].v), str_from(rows[i].text)));

    struct rng rng;
    rng_seed(&rng, 13);
    for (int i = 0; i < 100000; i++) {
        union {
            uint64_t bits;
            double v;
        } any = { rng_u64(&rng) };
        if (!isfinite(any.v)) continue;
        double back = 0;
        assert_int_equal(str_to_f64(written(&out, any.v), &back), 0);
        assert_memory_equal(&back, &any.v, sizeof back);
        /* And one digit less would be another number. */
        char less[320]; /* as gcc reckons */
        int digits = digits_of(out.data);
        snprintf(less, sizeof less, "%.*g", digits - 1, any.v);
        if (digits > 1) assert_true(strtod(less, NULL) != any.v);
    }
    for (int i = 0; i < 100000; i++) {
        /* Whole numbers, which are written as integers, come as printf writes them. */
        char slow[32];
        double v = (double)rng_below(&rng, UINT64_C(1) << rng_below(&rng, 56));
        snprintf(slow, sizeof slow, "%.15g", v);
        if (v < 1e15) assert_true(str_eq(written(&out, v), str_from(slow)));
    }
    for (int i = 0; i < 100000; i++) {
        /* A short decimal comes back as it was typed. */
        char typed[32];
        int n = snprintf(typed, sizeof typed, "0.%d", (int)rng_below(&rng, 1000000)) - 2;
        while (n > 1 && typed[n + 1] == '0')
            typed[n-- + 1] = 0;
        double v = 0;
        assert_int_equal(str_to_f64(str_from(typed), &v), 0);
        if (v != 0) assert_true(str_eq(written(&out, v), str_from(typed)));
    }
}

static void bound_is_sticky(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { .max = 10 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_array(&w);
    for (int i = 0; i < 100; i++)
        json_put_i64(&w, i);
    json_array_end(&w);
    assert_int_equal(out.rc, -E2BIG);
    assert_true(out.len <= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structure),       cmocka_unit_test(strings),
        cmocka_unit_test(any_bytes),       cmocka_unit_test(doubles_read_back),
        cmocka_unit_test(bound_is_sticky),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
