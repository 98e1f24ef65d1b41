/* t_dates.c - tests that dates are read with any fraction and zone, and none that the calendar does not have. */
#include "base/core/bits.h"
#include "base/io/date.h"
#include "tests/unit/unit.h"

static void dates_are_read_and_written(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us; /* -1: refused */
    } rows[] = {
        { "1970-01-01T00:00:00Z", 0 },
        { "2026-03-01T12:00:00Z", 1772366400000000 },
        { "2026-03-01T12:00:00.5Z", 1772366400500000 },
        { "2026-03-01T12:00:00.123456789Z", 1772366400123456 },
        { "2026-03-01T14:30:00+02:30", 1772366400000000 },
        { "2026-03-01T05:00:00-07:00", 1772366400000000 },
        { "2024-02-29T00:00:00Z", 1709164800000000 },
        { "2026-02-29T00:00:00Z", -1 },
        { "2026-04-31T00:00:00Z", -1 },
        { "2026-13-01T00:00:00Z", -1 },
        { "2026-03-01T24:00:00Z", -1 },
        { "2026-03-01T12:00:00", -1 },
        { "2026-03-01T12:00:00.Z", -1 },
        { "2026-03-01 12:00:00Z", -1 },
        { "2026-03-01T12:00:00Zx", -1 },
        { "2026-03-01T12:00:00+2:30", -1 },
        { "", -1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t us = -1;
        int rc = date_parse(str_from(rows[i].text), &us);
        if (us != rows[i].us || (rc == 0) != (rows[i].us >= 0))
            fail_msg("row %zu: %ld", i, (long)us);
    }
    char text[DATE_BYTES];
    date_print(1772366400000007, text);
    assert_string_equal(text, "2026-03-01T12:00:00.000007Z");
}

static void dates_of_headers_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us; /* -1: refused */
    } rows[] = {
        { "Sun, 06 Nov 1994 08:49:37 GMT", 784111777000000 },
        { "Thu, 01 Jan 1970 00:00:00 GMT", 0 },
        { "Thu, 29 Feb 2024 23:59:59 GMT", 1709251199000000 },
        { "Sun, 29 Feb 2026 00:00:00 GMT", -1 },
        { "Sun, 06 anF 1994 08:49:37 GMT", -1 },
        { "Sun, 06 Nov 1994 24:00:00 GMT", -1 },
        { "Sun, 06 Nov 1994 08:49:37 UTC", -1 },
        { "Sunday, 06-Nov-94 08:49:37 GMT", -1 },
        { "Sun Nov  6 08:49:37 1994", -1 },
        { "", -1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t us = -1;
        int rc = date_parse_http(str_from(rows[i].text), &us);
        if (us != rows[i].us || (rc == 0) != (rows[i].us >= 0))
            fail_msg("row %zu: %ld", i, (long)us);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dates_are_read_and_written),
        cmocka_unit_test(dates_of_headers_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
