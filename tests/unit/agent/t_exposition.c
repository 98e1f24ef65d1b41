/* t_exposition.c - tests reading Prometheus' text format. */
#include "agent/engines/meters.h"
#include "base/core/bits.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- rows ---- */

struct row {
    const char *why, *text;
    const char *name, *labels;
    double value;
};

static const struct row good[] = {
    { "a bare row", "a_total 12", "a_total", "", 12 },
    { "a colon in the name, as engines have it", "vllm:num_requests_running 3.0",
      "vllm:num_requests_running", "", 3 },
    { "labels", "a{b=\"c\",d=\"e\"} 1.5e-3", "a", "b=\"c\",d=\"e\"", 1.5e-3 },
    { "Python's large numbers", "process_start_time_seconds 1.79552262377e+09",
      "process_start_time_seconds", "", 1.79552262377e+09 },
    { "a timestamp behind the value", "a 7 1395066363000", "a", "", 7 },
    { "blanks and a carriage return", "  a  {x=\"y\"}   7  \r", "a", "x=\"y\"", 7 },
    { "a brace within a label's value", "a{b=\"}\"} 2", "a", "b=\"}\"", 2 },
    { "an escaped quote", "a{b=\"x\\\"}\"} 2", "a", "b=\"x\\\"}\"", 2 },
    { "no labels between the braces", "a{} 2", "a", "", 2 },
    { "negative", "a -1", "a", "", -1 },
};

static void rows_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        struct exposition_reader r;
        struct exposition_row row;
        exposition_reader_init(&r, str_from(good[i].text));
        if (!exposition_next(&r, &row)) fail_msg("%s: not read", good[i].why);
        if (!str_eq(row.name, str_from(good[i].name)) ||
            !str_eq(row.labels, str_from(good[i].labels)) || row.value != good[i].value)
            fail_msg("%s: %.*s %.*s %g", good[i].why, STR_ARG(row.name), STR_ARG(row.labels),
                     row.value);
        assert_false(exposition_next(&r, &row));
        assert_int_equal(r.malformed, 0);
    }
}

static void malformed_lines_hide_no_others(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "a", "a b", "a{b=\"c\" 1", "a{b=\"c} 1", "{b=\"c\"} 1", "a 1x", "a{b=\"c\\", "= 5", "a  ",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char text[128];
        struct exposition_reader r;
        struct exposition_row row;
        snprintf(text, sizeof text, "# TYPE a gauge\n%s\n\ngood 5\n", bad[i]);
        exposition_reader_init(&r, str_from(text));
        if (!exposition_next(&r, &row) || !str_eq(row.name, STR("good")))
            fail_msg("behind '%s' the good row was lost", bad[i]);
        if (r.malformed != 1) fail_msg("'%s': %u malformed lines", bad[i], r.malformed);
    }
}

static void rows_without_a_number_are_left_out(void **state)
{
    (void)state;
    struct exposition_reader r;
    struct exposition_row row;
    exposition_reader_init(&r, STR("a NaN\nb +Inf\nc -Inf\nd 1\n"));
    assert_true(exposition_next(&r, &row));
    assert_true(str_eq(row.name, STR("d")));
    assert_int_equal(r.malformed, 0);
}

/* ---- labels ---- */

static void labels_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *why, *labels, *name, *want; /* want NULL: there is none */
    } rows[] = {
        { "the first", "a=\"1\",b=\"2\"", "a", "1" },
        { "the last", "a=\"1\",b=\"2\"", "b", "2" },
        { "blanks between", "a=\"1\" , b=\"2\"", "b", "2" },
        { "a comma at the end", "a=\"1\",", "a", "1" },
        { "a name that ends alike", "xa=\"1\"", "a", NULL },
        { "a name within a value", "x=\"a=\\\"1\\\"\"", "a", NULL },
        { "none", "", "a", NULL },
        { "malformed before it", "a,b=\"2\"", "b", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct exposition_row row = { .labels = str_from(rows[i].labels) };
        struct str value;
        bool found = exposition_label(&row, rows[i].name, &value);
        if (found != (rows[i].want != NULL)) fail_msg("%s: found %d", rows[i].why, found);
        if (found && !str_eq(value, str_from(rows[i].want)))
            fail_msg("%s: '%.*s'", rows[i].why, STR_ARG(value));
    }
}

static void no_cut_reads_beyond(void **state)
{
    (void)state;
    const char *text = "vllm:a{x=\"y\\\"\",z=\"w\"} 1.5e3 7\nb 2\n";
    for (size_t len = 0; len <= strlen(text); len++) {
        char *copy = malloc(len + 1); /* the sanitizer sees a read behind it */
        assert_non_null(copy);
        memcpy(copy, text, len);
        struct exposition_reader r;
        struct exposition_row row;
        struct str value;
        exposition_reader_init(&r, str_of(copy, len));
        while (exposition_next(&r, &row))
            (void)exposition_label(&row, "z", &value);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read),
        cmocka_unit_test(malformed_lines_hide_no_others),
        cmocka_unit_test(rows_without_a_number_are_left_out),
        cmocka_unit_test(labels_are_found),
        cmocka_unit_test(no_cut_reads_beyond),
    };
    return cmocka_run_group_tests_name("exposition", tests, NULL, NULL);
}
