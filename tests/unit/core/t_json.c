/* t_json.c - tests reading and writing JSON. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/core/rng.h"

#include <dirent.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- reading: tokens in order, values as C values, refusals with their position ---- */

static void tokens_in_order(void **state)
{
    (void)state;
    struct json_reader r;
    json_reader_init(&r, STR(" {\"a\" : [1, {\"b\":null}, []], \"c\": \"x\\ny\", \"d\":true} "));
    static const enum json_token want[] = {
        JSON_OBJECT, JSON_KEY,        JSON_ARRAY, JSON_NUMBER,     JSON_OBJECT,    JSON_KEY,
        JSON_NULL,   JSON_OBJECT_END, JSON_ARRAY, JSON_ARRAY_END,  JSON_ARRAY_END, JSON_KEY,
        JSON_STRING, JSON_KEY,        JSON_TRUE,  JSON_OBJECT_END, JSON_END,       JSON_END,
    };
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        enum json_token got = json_next(&r);
        if (got != want[i]) fail_msg("token %zu: %d, not %d (%s)", i, got, want[i], r.problem);
        if (got == JSON_STRING) {
            CLEANUP(buf_fini) struct buf text = { 0 };
            assert_true(r.escaped);
            assert_int_equal(json_text(&r, &text), 0);
            assert_string_equal(text.data, "x\ny");
        }
    }
}

static void refusals_name_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "", "what: the text ends too early at byte 0" },
        { "{\"a\":1,}", "what: expected a key in quotes at byte 7" },
        { "[1,]", "what: not a JSON value at byte 3" },
        { "[1 2]", "what: expected a comma or ] at byte 3" },
        { "{\"a\" 1}", "what: expected a colon behind the key at byte 5" },
        { "{\"a\":1]", "what: expected a comma or } at byte 6" },
        { "01", "what: a number may not start with 0 at byte 2" },
        { "1 2", "what: text behind the end of the value at byte 2" },
        { "\"\\ud800x\"", "what: a malformed escape or a lone surrogate at byte 1" },
        { "\"\\udc00\"", "what: a malformed escape or a lone surrogate at byte 1" },
        { "\"a\xff\"", "what: malformed UTF-8 at byte 2" },
        { "\"a\nb\"", "what: a control character must be escaped at byte 2" },
        { "\"abc", "what: a string that does not end at byte 4" },
        { "-", "what: a malformed number at byte 1" },
        { "nul", "what: not a JSON value at byte 0" },
        { "NaN", "what: not a JSON value at byte 0" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct json_reader r;
        struct err err = { 0 };
        json_reader_init(&r, str_from(rows[i].text));
        enum json_token t;
        do {
            t = json_next(&r);
        } while (t != JSON_ERROR && t != JSON_END);
        assert_int_equal(t, JSON_ERROR);
        assert_int_equal(json_fail(&r, &err, "what"), -EINVAL);
        assert_string_equal(err.text, rows[i].says);
        assert_int_equal(json_next(&r), JSON_ERROR);
        assert_int_equal(json_skip(&r), JSON_ERROR);
    }
}

static void depth_is_bounded(void **state)
{
    (void)state;
    enum { N = 100000 };
    char *deep = malloc(N);
    assert_non_null(deep);
    memset(deep, '[', N);
    struct json_reader r;
    json_reader_init(&r, str_of(deep, N));
    int opened = 0;
    while (json_next(&r) == JSON_ARRAY)
        opened++;
    assert_int_equal(opened, JSON_DEPTH_MAX);
    assert_string_equal(r.problem, "nested deeper than 64 levels");
    for (size_t i = 0; i + 5 <= N; i += 5)
        memcpy(deep + i, "{\"\":\n", 5);
    json_reader_init(&r, str_of(deep, N));
    while (json_next(&r) > JSON_ERROR)
        assert_true(r.depth <= JSON_DEPTH_MAX);
    assert_string_equal(r.problem, "nested deeper than 64 levels");
    free(deep);
    /* The deepest level is usable, as array and as object. */
    char text[2 * JSON_DEPTH_MAX + 1];
    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    text[JSON_DEPTH_MAX - 1] = '{', text[JSON_DEPTH_MAX] = '}';
    json_reader_init(&r, str_of(text, 2 * JSON_DEPTH_MAX));
    assert_int_equal(json_skip(&r), JSON_ARRAY_END);
    assert_int_equal(json_next(&r), JSON_END);
}

static void integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc_i, rc_u;
        int64_t i;
        uint64_t u;
    } rows[] = {
        { "12", 0, 0, 12, 12 },
        { "-12", 0, -ERANGE, -12, 0 },
        { "1e3", 0, 0, 1000, 1000 },
        { "1.0", 0, 0, 1, 1 },
        { "-0", 0, 0, 0, 0 },
        { "-0.0", 0, 0, 0, 0 },
        { "1.5", -EINVAL, -EINVAL, 0, 0 },
        { "9223372036854775807", 0, 0, INT64_MAX, INT64_MAX },
        { "9223372036854775808", -ERANGE, 0, 0, (uint64_t)1 << 63 },
        { "9.3e18", -ERANGE, 0, 0, 9300000000000000000u },
        { "18446744073709551615", -ERANGE, 0, 0, UINT64_MAX },
        { "18446744073709551616", -ERANGE, -ERANGE, 0, 0 },
        { "1e20", -ERANGE, -ERANGE, 0, 0 },
        { "1e999", -ERANGE, -ERANGE, 0, 0 },
        { "\"1\"", -EINVAL, -EINVAL, 0, 0 },
        { "true", -EINVAL, -EINVAL, 0, 0 },
    };
    for (size_t n = 0; n < COUNT_OF(rows); n++) {
        struct json_reader r;
        json_reader_init(&r, str_from(rows[n].text));
        json_next(&r);
        int64_t i = 0;
        uint64_t u = 0;
        int rc_i = json_i64(&r, &i), rc_u = json_u64(&r, &u);
        if (rc_i != rows[n].rc_i || rc_u != rows[n].rc_u || i != rows[n].i || u != rows[n].u)
            fail_msg("%s: %d %lld, %d %llu", rows[n].text, rc_i, (long long)i, rc_u,
                     (unsigned long long)u);
    }
}

static void other_values(void **state)
{
    (void)state;
    struct json_reader r;
    bool yes = false;
    double v = 0;
    json_reader_init(&r, STR("[true,false,-2.5e-1,\"s\",1e400]"));
    json_next(&r), json_next(&r);
    assert_int_equal(json_bool(&r, &yes), 0);
    assert_true(yes);
    assert_int_equal(json_f64(&r, &v), -EINVAL);
    json_next(&r);
    assert_int_equal(json_bool(&r, &yes), 0);
    assert_false(yes);
    json_next(&r);
    assert_int_equal(json_bool(&r, &yes), -EINVAL);
    assert_int_equal(json_f64(&r, &v), 0);
    assert_true(v == -0.25);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(json_text(&r, &text), -EINVAL);
    json_next(&r);
    assert_int_equal(json_text(&r, &text), 0);
    json_next(&r);
    assert_int_equal(json_f64(&r, &v), -ERANGE); /* well-formed, but no finite double */
}

static void skipping_and_slices(void **state)
{
    (void)state;
    struct json_reader r;
    struct str raw;
    json_reader_init(&r, STR("{\"a\":[1,[2,{}]],\"b\": {\"x\" : 1} ,\"c\":\"q\\\"q\"}"));
    assert_int_equal(json_next(&r), JSON_OBJECT);
    assert_int_equal(json_next(&r), JSON_KEY);
    assert_int_equal(json_skip(&r), JSON_ARRAY_END);
    assert_int_equal(json_next(&r), JSON_KEY);
    assert_int_equal(json_raw_value(&r, &raw), 0);
    assert_true(str_eq(raw, STR("{\"x\" : 1}")));
    assert_int_equal(json_next(&r), JSON_KEY);
    assert_int_equal(json_raw_value(&r, &raw), 0);
    assert_true(str_eq(raw, STR("\"q\\\"q\"")));
    assert_int_equal(json_raw_value(&r, &raw), -EINVAL); /* no value is left */
    assert_int_equal(json_next(&r), JSON_END);

    json_reader_init(&r, STR("[[1,2],[3,4]]"));
    json_next(&r), json_next(&r);
    assert_int_equal(json_skip_rest(&r), JSON_ARRAY_END);
    assert_int_equal(r.depth, 1);
    assert_int_equal(json_skip(&r), JSON_ARRAY_END);
    assert_int_equal(r.depth, 1);
    assert_int_equal(json_skip(&r), JSON_ARRAY_END); /* the outer one */
    assert_int_equal(r.depth, 0);

    json_reader_init(&r, STR("[{\"a\":tru}]"));
    json_next(&r);
    assert_int_equal(json_raw_value(&r, &raw), -EINVAL);
    assert_int_equal(r.token, JSON_ERROR);
}

static void keys_and_escapes(void **state)
{
    (void)state;
    struct json_reader r;
    json_reader_init(&r,
                     STR("{\"str\\u0065am\":1,\"stream\":2,\"\\ud83d\\ude00\":3,\"a\\u0000\":4}"));
    json_next(&r), json_next(&r);
    assert_true(json_key_is(&r, "stream"));
    assert_false(json_key_is(&r, "strea"));
    assert_false(json_key_is(&r, "streams"));
    json_skip(&r);
    assert_false(json_key_is(&r, "stream")); /* the current token is the number */
    json_next(&r);
    assert_true(json_key_is(&r, "stream"));
    assert_false(json_key_is(&r, "strea"));
    json_skip(&r), json_next(&r);
    assert_true(json_key_is(&r, "\xf0\x9f\x98\x80"));
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(json_text(&r, &text), 0);
    assert_string_equal(text.data, "\xf0\x9f\x98\x80");
    json_skip(&r), json_next(&r);
    assert_false(json_key_is(&r, "a")); /* "a NUL" is not "a" */

    buf_clear(&text);
    assert_int_equal(json_unescape(STR("a\\/\\b\\f\\r\\t\\u00e4"), &text), 0);
    assert_string_equal(text.data, "a/\b\f\r\t\xc3\xa4");
    assert_int_equal(json_unescape(STR("\\x"), &text), -EINVAL);
    assert_int_equal(json_unescape(STR("abc\\"), &text), -EINVAL);
    assert_int_equal(json_unescape(STR("\\u12"), &text), -EINVAL);
    struct buf small = { .max = 2 };
    assert_int_equal(json_unescape(STR("abc"), &small), -E2BIG);
    buf_fini(&small);
}

/* Looks at one byte at a time: the slow reference for json_plain, which looks at eight. */
static size_t plain_slowly(struct str s)
{
    size_t at = 0;
    while (at < s.len && json_is_plain(s.data[at]))
        at++;
    return at;
}

static void plain_runs(void **state)
{
    (void)state;
    char text[40];
    for (size_t at = 0; at < sizeof text; at++) {
        for (int byte = 0; byte < 256; byte++) {
            memset(text, 'a' + (int)at % 26, sizeof text);
            text[at] = (char)byte;
            for (size_t from = 0; from <= at && from < 9; from++) {
                struct str s = str_of(text + from, sizeof text - from - at % 3);
                assert_int_equal(json_plain(s), plain_slowly(s));
            }
        }
    }
    struct rng rng;
    rng_seed(&rng, 14);
    for (int i = 0; i < 200000; i++) {
        size_t len = rng_below(&rng, sizeof text + 1);
        uint64_t plainness = 1 + rng_below(&rng, 16);
        for (size_t k = 0; k < len; k++)
            text[k] = (char)(rng_below(&rng, plainness) ? ' ' + (int)rng_below(&rng, 96)
                                                        : (int)rng_below(&rng, 256));
        assert_int_equal(json_plain(str_of(text, len)), plain_slowly(str_of(text, len)));
    }
}

/* ---- JSONTestSuite: y_ files are accepted, n_ files refused, i_ files do no harm ----
 *
 * Each text is read again cut short at every length, and again from an allocation that ends where
 * the text ends, so that a sanitizer sees any read beyond it. */

#define FOLDER "tests/vectors/json"
#define FILE_BYTES_MAX 65536

static bool accepts(struct str text)
{
    struct json_reader r;
    json_reader_init(&r, text);
    enum json_token token;
    do {
        token = json_next(&r);
    } while (token != JSON_END && token != JSON_ERROR);
    assert_int_equal(json_next(&r), token); /* both tokens are final */
    return token == JSON_END;
}

static bool accepts_exact(const char *data, size_t len)
{
    char *exact = malloc(len ? len : 1);
    assert_non_null(exact);
    memcpy(exact, data, len);
    bool yes = accepts(str_of(exact, len));
    free(exact);
    return yes;
}

static size_t read_file(const char *name, char data[FILE_BYTES_MAX])
{
    char path[512];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t len = fread(data, 1, FILE_BYTES_MAX, file);
    fclose(file);
    assert_true(len < FILE_BYTES_MAX);
    return len;
}

static void whole_suite(void **state)
{
    (void)state;
    static char data[FILE_BYTES_MAX];
    int count[3] = { 0 };
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        if (!str_ends(str_from(e->d_name), STR(".json"))) continue;
        size_t len = read_file(e->d_name, data);
        bool yes = accepts_exact(data, len);
        if (e->d_name[0] == 'y' && !yes) fail_msg("refused: %s", e->d_name);
        if (e->d_name[0] == 'n' && yes) fail_msg("accepted: %s", e->d_name);
        count[e->d_name[0] == 'y' ? 0 : e->d_name[0] == 'n' ? 1 : 2]++;
        for (size_t cut = 0; cut < len; cut++)
            accepts_exact(data, cut);
    }
    closedir(folder);
    /* These counts fail if the folder lost files. */
    assert_int_equal(count[0], 95);
    assert_int_equal(count[1], 186);
    assert_int_equal(count[2], 35);
}

static int json_read_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_in_order),  cmocka_unit_test(refusals_name_the_place),
        cmocka_unit_test(depth_is_bounded), cmocka_unit_test(integers),
        cmocka_unit_test(other_values),     cmocka_unit_test(skipping_and_slices),
        cmocka_unit_test(keys_and_escapes), cmocka_unit_test(plain_runs),
        cmocka_unit_test(whole_suite),
    };
    return cmocka_run_group_tests_name("json_read", tests, NULL, NULL);
}

/* ---- writing: structure, escapes and repair, and doubles that read back equal ---- */

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

/* Random bytes come out as well-formed UTF-8, and valid text comes out unchanged. */
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
            bytes[k] = alphabet[rng_below(&rng, sizeof alphabet)]; /* including its NUL */
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

/* Returns the number of digits of the mantissa, without zeros at its ends. */
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
        /* One digit less would be another number. */
        char less[320]; /* the most that gcc expects of %.*g */
        int digits = digits_of(out.data);
        snprintf(less, sizeof less, "%.*g", digits - 1, any.v);
        if (digits > 1) assert_true(strtod(less, NULL) != any.v);
    }
    for (int i = 0; i < 100000; i++) {
        /* Whole numbers are written as integers, as printf writes them. */
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

/* ---- values by path ---- */

static int add_item(void *ctx, struct str item)
{
    return buf_str(ctx, item) < 0 ? -ENOMEM : buf_byte(ctx, ';');
}

static int add_member(void *ctx, struct str name, struct str value)
{
    buf_str(ctx, name);
    buf_byte(ctx, '=');
    return add_item(ctx, value);
}

static void values_by_path(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int rc;
        const char *value;
    } rows[] = {
        { "a.b", 0, "[1, {\"c\":2}]" }, { "a.n", -ENOENT, "" },   { "a.missing", -ENOENT, "" },
        { "d", 0, "\"x\\ty\"" },        { "a.b.c", -ENOENT, "" }, { "a.bad", -EINVAL, "" },
    };
    const struct str text = STR("{\"a\": {\"b\": [1, {\"c\":2}], \"n\": null, \"k/l\": true}, "
                                "\"d\":\"x\\ty\", \"f\": 1.5}");
    const struct str broken = STR("{\"a\": {\"b\": 1, ]}");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str value = { 0 };
        bool bad = rows[i].rc == -EINVAL;
        assert_int_equal(json_path(bad ? broken : text, rows[i].path, &value), rows[i].rc);
        assert_true(str_eq(value, str_from(rows[i].value)));
    }
    CLEANUP(buf_fini) struct buf out = { 0 };
    uint64_t whole;
    double number;
    bool yes;
    assert_int_equal(json_path_text(text, "d", &out), 0);
    assert_true(str_eq(buf_view(&out), STR("x\ty")));
    assert_int_equal(json_path_f64(text, "f", &number), 0);
    assert_true(number > 1.49 && number < 1.51);
    assert_int_equal(json_path_u64(text, "f", &whole), -EINVAL);
    assert_int_equal(json_path_bool(text, "d", &yes), -EINVAL);
    buf_clear(&out);
    assert_int_equal(json_path_each(text, "a.b", add_item, &out), 0);
    assert_true(str_eq(buf_view(&out), STR("1;{\"c\":2};")));
    assert_int_equal(json_path_each(text, "a", add_item, &out), -EINVAL);
    buf_clear(&out);
    assert_int_equal(json_path_each_member(text, "a", add_member, &out), 0);
    assert_true(str_eq(buf_view(&out), STR("b=[1, {\"c\":2}];n=null;k/l=true;")));
}

static int json_write_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structure),       cmocka_unit_test(strings),
        cmocka_unit_test(any_bytes),       cmocka_unit_test(doubles_read_back),
        cmocka_unit_test(bound_is_sticky), cmocka_unit_test(values_by_path),
    };
    return cmocka_run_group_tests_name("json_write", tests, NULL, NULL);
}

int main(void)
{
    return json_read_tests() + json_write_tests();
}
