/* t_buf.c - growth to the bound and no further, sticky errors, sentences. */
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/fault.h"
#include "base/core/own.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
    assert_string_equal(small.data, "12345678"); /* a refused append leaves the content */
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
        cmocka_unit_test(grows_to_its_bound),
        cmocka_unit_test(printf_fits_exactly),
        cmocka_unit_test(consume_moves_the_rest),
        cmocka_unit_test(no_memory_is_an_answer),
        cmocka_unit_test(sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
