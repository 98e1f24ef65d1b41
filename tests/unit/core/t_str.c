/* t_str.c - tests strict numbers, cutting, UTF-8 at its edges, the nearest name, and buffers. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/core/str.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void i64_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
        int rc;
        int64_t value;
    } rows[] = {
        { "0", "zero", 0, 0 },
        { "-0", "minus zero is zero", 0, 0 },
        { "007", "leading zeros are decimal", 0, 7 },
        { "9223372036854775807", "largest", 0, INT64_MAX },
        { "-9223372036854775808", "smallest", 0, INT64_MIN },
        { "9223372036854775808", "one above", -ERANGE, 0 },
        { "-9223372036854775809", "one below", -ERANGE, 0 },
        { "99999999999999999999999999", "far above", -ERANGE, 0 },
        { "99999999999999999999999999x", "not a number at all", -EINVAL, 0 },
        { "", "empty", -EINVAL, 0 },
        { "-", "sign alone", -EINVAL, 0 },
        { "+1", "plus", -EINVAL, 0 },
        { " 1", "leading blank", -EINVAL, 0 },
        { "1 ", "trailing blank", -EINVAL, 0 },
        { "12x", "trailing text", -EINVAL, 0 },
        { "0x10", "hexadecimal", -EINVAL, 0 },
        { "1.0", "fraction", -EINVAL, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t v = 42;
        int rc = str_to_i64(str_from(rows[i].text), &v);
        if (rc != rows[i].rc || v != (rc == 0 ? rows[i].value : 42))
            fail_msg("%s (%s): rc %d value %lld", rows[i].text, rows[i].why, rc, (long long)v);
    }
    uint64_t u = 42;
    assert_int_equal(str_to_u64(STR("18446744073709551615"), &u), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(str_to_u64(STR("18446744073709551616"), &u), -ERANGE);
    assert_int_equal(str_to_u64(STR("-1"), &u), -EINVAL);
}

static void f64_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
        int rc;
        double value;
    } rows[] = {
        { "0", "zero", 0, 0 },
        { "-1.5e3", "all parts", 0, -1500 },
        { "1e400", "infinite", -ERANGE, 0 },
        { "1e-400", "underflow is zero", 0, 0 },
        { "1.7976931348623157e308", "largest", 0, DBL_MAX },
        { "inf", "word", -EINVAL, 0 },
        { "nan", "word", -EINVAL, 0 },
        { "0x1p3", "hexadecimal", -EINVAL, 0 },
        { ".5", "no leading digit", -EINVAL, 0 },
        { "5.", "no trailing digit", -EINVAL, 0 },
        { "1e", "no exponent", -EINVAL, 0 },
        { "1e+", "no exponent digits", -EINVAL, 0 },
        { "1,5", "comma", -EINVAL, 0 },
        { " 1", "blank", -EINVAL, 0 },
        { "", "empty", -EINVAL, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        double v = 42;
        int rc = str_to_f64(str_from(rows[i].text), &v);
        if (rc != rows[i].rc || v != (rc == 0 ? rows[i].value : 42))
            fail_msg("%s (%s): rc %d value %g", rows[i].text, rows[i].why, rc, v);
    }
    char many[600];
    memset(many, '1', sizeof many);
    double v;
    assert_int_equal(str_to_f64(str_of(many, sizeof many), &v), -ERANGE);
    assert_int_equal(str_to_f64(str_of(many, 300), &v), 0);
}

static void comparisons(void **state)
{
    (void)state;
    struct str none = { 0 };
    assert_true(str_eq(none, STR("")));
    assert_false(str_eq(STR("a"), STR("b")));
    assert_true(str_eq_nocase(STR("Content-LENGTH"), STR("content-length")));
    assert_false(str_eq_nocase(STR("["), STR("{"))); /* differ in the case bit only */
    assert_true(str_starts(STR("abc"), STR("ab")) && str_starts(STR("abc"), none));
    assert_false(str_starts(STR("a"), STR("ab")));
    assert_true(str_ends(STR("abc"), STR("bc")) && str_ends(none, none));
    assert_false(str_ends(STR("c"), STR("bc")));
    assert_true(str_cmp(STR("ab"), STR("abc")) < 0 && str_cmp(STR("b"), STR("abc")) > 0);
    assert_true(str_cmp(STR("\xff"), STR("a")) > 0); /* bytes are unsigned */
    assert_int_equal(str_cmp(none, STR("")), 0);
    assert_true(str_eq(str_trim(STR(" \t a b\t ")), STR("a b")));
    assert_int_equal(str_trim(STR(" \t ")).len, 0);
    assert_int_equal(str_find(STR("aaab"), STR("ab")), 2);
    assert_int_equal(str_find(STR("aaab"), none), 0);
    assert_true(str_find(STR("aaab"), STR("ba")) == SIZE_MAX);
}

static void cut_leaves_the_rest(void **state)
{
    (void)state;
    struct str rest = STR("a,,b");
    assert_true(str_eq(str_cut(&rest, ','), STR("a")));
    assert_true(str_eq(str_cut(&rest, ','), STR("")));
    assert_non_null(rest.data);
    assert_true(str_eq(str_cut(&rest, ','), STR("b")));
    assert_null(rest.data);
    rest = STR("a,");
    str_cut(&rest, ',');
    assert_non_null(rest.data); /* an empty last field is a field */
    assert_int_equal(rest.len, 0);
}

static void host_and_port(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host; /* NULL: refused */
        uint16_t port;
    } rows[] = {
        { "a:1", "a", 1 },         { "h.example:65535", "h.example", 65535 },
        { "[::1]:80", "::1", 80 }, { "::1:80", "::1", 80 },
        { "a:0", "a", 0 },         { "[a:1", "[a", 1 },
        { "", NULL, 0 },           { ":", NULL, 0 },
        { ":80", NULL, 0 },        { "a", NULL, 0 },
        { "a:", NULL, 0 },         { "a:65536", NULL, 0 },
        { "a:-1", NULL, 0 },       { "a: 1", NULL, 0 },
        { "[]:80", NULL, 0 },      { "a:18446744073709551617", NULL, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str host = STR("kept");
        uint16_t port = 7;
        int rc = str_host_port(str_from(rows[i].text), &host, &port);
        if (rc != (rows[i].host ? 0 : -EINVAL)) fail_msg("'%s': %d", rows[i].text, rc);
        assert_true(str_eq(host, rows[i].host ? str_from(rows[i].host) : STR("kept")));
        assert_int_equal(port, rows[i].host ? rows[i].port : 7);
    }
}

static void utf8_edges(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *why;
        uint32_t code; /* 0: not well-formed */
        size_t invalid, complete;
    } rows[] = {
        { "\x7f", "last ASCII", 0x7f, 0, 1 },
        { "\xc2\x80", "first of two bytes", 0x80, 0, 2 },
        { "\xdf\xbf", "last of two bytes", 0x7ff, 0, 2 },
        { "\xe0\xa0\x80", "first of three bytes", 0x800, 0, 3 },
        { "\xed\x9f\xbf", "before the surrogates", 0xd7ff, 0, 3 },
        { "\xee\x80\x80", "behind the surrogates", 0xe000, 0, 3 },
        { "\xf0\x90\x80\x80", "first of four bytes", 0x10000, 0, 4 },
        { "\xf4\x8f\xbf\xbf", "last code point", 0x10ffff, 0, 4 },
        { "\xc0\x80", "overlong NUL", 0, 1, 2 },
        { "\xc1\xbf", "overlong", 0, 1, 2 },
        { "\xe0\x9f\xbf", "overlong of three", 0, 1, 3 },
        { "\xf0\x8f\xbf\xbf", "overlong of four", 0, 1, 4 },
        { "\xed\xa0\x80", "surrogate", 0, 1, 3 },
        { "\xf4\x90\x80\x80", "above U+10FFFF", 0, 1, 4 },
        { "\xf5\x80\x80\x80", "no such lead", 0, 1, 4 },
        { "\x80", "continuation alone", 0, 1, 1 },
        { "\xff", "never a byte of UTF-8", 0, 1, 1 },
        { "\xc3", "torn two", 0, 1, 0 },
        { "\xe2\x82", "torn three", 0, 2, 0 },
        { "\xf0\x9f\x98", "torn four", 0, 3, 0 },
        { "\xf0\x9f", "torn four, two bytes", 0, 2, 0 },
        { "\xe0\x80", "can never be completed", 0, 1, 2 },
        { "\xe2\x28\xa1", "lead, then ASCII", 0, 1, 3 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str s = str_from(rows[i].bytes);
        uint32_t code = 0;
        size_t n = utf8_decode(s, &code);
        if (code != rows[i].code || (n == s.len) != (rows[i].code != 0))
            fail_msg("%s: decoded %zu bytes to %x", rows[i].why, n, code);
        if (str_utf8_valid(s) != (rows[i].code != 0)) fail_msg("%s: valid", rows[i].why);
        if (utf8_invalid(s) != rows[i].invalid)
            fail_msg("%s: invalid %zu", rows[i].why, utf8_invalid(s));
        if (str_utf8_complete(s) != rows[i].complete)
            fail_msg("%s: complete %zu", rows[i].why, str_utf8_complete(s));
    }
    assert_int_equal(str_utf8_complete(STR("")), 0);
    assert_int_equal(str_utf8_complete(STR("abc\xe2\x82")), 3);
    assert_int_equal(str_utf8_complete(STR("abc\xe2\x82\xac")), 6);
}

static void utf8_goes_round(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char bytes[4];
        uint32_t back = 0;
        size_t n = utf8_encode(c, bytes);
        bool surrogate = c >= 0xd800 && c <= 0xdfff;
        size_t m = utf8_decode(str_of(bytes, n), &back);
        if (surrogate ? m != 0 : m != n || back != c) fail_msg("U+%04X", c);
    }
}

static void nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = { "listen", "model", "max_seqs", "tp" };
    assert_string_equal(str_nearest(STR("modle"), names, 4), "model");
    assert_string_equal(str_nearest(STR("max-seqs"), names, 4), "max_seqs");
    assert_string_equal(str_nearest(STR("pt"), names, 4), "tp"); /* one swap */
    assert_null(str_nearest(STR("temperature"), names, 4));
    assert_null(str_nearest(STR("xy"), names, 4));
    assert_null(str_nearest(STR("model"), names, 0));
    char lengthy[200];
    memset(lengthy, 'm', sizeof lengthy);
    assert_null(str_nearest(str_of(lengthy, sizeof lengthy), names, 4));
}

static void lists_end_before_what_does_not_fit(void **state)
{
    (void)state;
    static const char *const names[] = { "one", "two", "three" };
    char text[16];
    str_list(names, 3, text, sizeof text);
    assert_string_equal(text, "one, two, three");
    str_list(names, 3, text, sizeof text - 1);
    assert_string_equal(text, "one, two");
    str_list(names, 3, text, 3);
    assert_string_equal(text, "");
    str_list(names, 0, text, sizeof text);
    assert_string_equal(text, "");
}

/* ---- buffers: growth up to the bound, sticky errors, formatted text ---- */

static void grows_to_its_bound(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf b = { 0 };
    buf_init(&b, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(buf_byte(&b, 'x'), 0);
    assert_int_equal(b.len, 100);
    assert_true(b.cap <= 101);
    assert_int_equal(buf_byte(&b, 'x'), -E2BIG);
    assert_int_equal(b.len, 100);
    assert_int_equal(buf_append(&b, "", 0), -E2BIG); /* sticky */
    buf_clear(&b);
    assert_int_equal(buf_text(&b, "again"), 0);
    assert_string_equal(b.data, "again");
    assert_int_equal(buf_append(&b, "", SIZE_MAX), -E2BIG); /* the sum would wrap */
}

/* A reused buffer may have more memory than its next bound; the bound counts. */
static void a_bound_that_is_lowered_counts(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf b = { .max = 100 };
    assert_int_equal(buf_text(&b, "more than eight"), 0);
    buf_clear(&b);
    b.max = 8;
    assert_int_equal(buf_text(&b, "eight..."), 0);
    assert_int_equal(buf_text(&b, "!"), -E2BIG);
    assert_string_equal(b.data, "eight...");
}

static void printf_fits_exactly(void **state)
{
    (void)state;
    for (int width = 0; width < 200; width++) {
        CLEANUP(buf_fini) struct buf b = { 0 };
        assert_int_equal(buf_printf(&b, "%*s|", width, ""), 0);
        assert_int_equal(buf_printf(&b, "%d", 12345), 0);
        assert_int_equal(b.len, (size_t)width + 6);
        assert_string_equal(b.data + width, "|12345");
    }
    CLEANUP(buf_fini) struct buf small = { .max = 8 };
    assert_int_equal(buf_printf(&small, "%s", "12345678"), 0);
    assert_int_equal(buf_printf(&small, "%s", "9"), -E2BIG);
    assert_string_equal(small.data, "12345678"); /* a refused append changes nothing */
}

static void consume_moves_the_rest(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf b = { 0 };
    buf_consume(&b, 0);
    buf_text(&b, "abcdef");
    buf_consume(&b, 2);
    assert_string_equal(b.data, "cdef");
    buf_consume(&b, 4);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
}

static void no_memory_is_an_answer(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        CLEANUP(buf_fini) struct buf b = { 0 };
        fault_arm("buf.grow", n);
        size_t before = 0;
        int rc = 0;
        for (int i = 0; i < 40 && rc == 0; i++)
            before = b.len, rc = buf_text(&b, "0123456789");
        bool reached = fault_hits() >= n;
        fault_disarm();
        if (!reached) break;
        assert_int_equal(rc, -ENOMEM);
        assert_int_equal(b.len, before);
        assert_int_equal(b.rc, -ENOMEM);
        assert_true(n < 20);
    }
}

static void sentences(void **state)
{
    (void)state;
    struct err err = { 0 };
    assert_int_equal(err_set(NULL, -EINVAL, "x"), -EINVAL);
    assert_int_equal(err_prefix(NULL, -EINVAL, "x"), -EINVAL);
    assert_string_equal(err_text(&err, -ENOENT), "No such file or directory");
    assert_string_equal(err_text(NULL, -ENOENT), "No such file or directory");
    assert_string_equal(err_text(NULL, -99999), "unknown error");
    assert_int_equal(err_prefix(&err, -ENOENT, "opening %s", "f"), -ENOENT);
    assert_string_equal(err.text, "opening f: No such file or directory");
    err_set(&err, -EINVAL, "port %d", 0);
    err_prefix(&err, -EINVAL, "config");
    assert_string_equal(err.text, "config: port 0");
    for (int i = 0; i < 100; i++)
        err_prefix(&err, -EINVAL, "a long way in");
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    assert_true(str_starts(str_from(err.text), STR("a long way in: a long")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(i64_is_strict),
        cmocka_unit_test(f64_is_strict),
        cmocka_unit_test(comparisons),
        cmocka_unit_test(cut_leaves_the_rest),
        cmocka_unit_test(host_and_port),
        cmocka_unit_test(utf8_edges),
        cmocka_unit_test(utf8_goes_round),
        cmocka_unit_test(nearest_name),
        cmocka_unit_test(lists_end_before_what_does_not_fit),
        cmocka_unit_test(grows_to_its_bound),
        cmocka_unit_test(a_bound_that_is_lowered_counts),
        cmocka_unit_test(printf_fits_exactly),
        cmocka_unit_test(consume_moves_the_rest),
        cmocka_unit_test(no_memory_is_an_answer),
        cmocka_unit_test(sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
