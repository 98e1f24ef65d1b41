/* t_table.c - tests output for a terminal: ages, cells, columns, and text of a model. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/table.h"
#include "tests/unit/unit.h"

/* ---- ages, cells and columns ---- */

static void ages_are_short(void **state)
{
    static const struct {
        double seconds;
        const char *text, *why;
    } rows[] = {
        { 0, "0.0s", "now" },
        { -3, "0.0s", "clocks differ: nothing is from the future" },
        { 9.94, "9.9s", "a digit while it says something" },
        { 9.95, "10s", "rounds up into the next form" },
        { 59.4, "59s", "below a minute" },
        { 59.6, "1m00s", "rounds into a minute, never 60s" },
        { 192, "3m12s", "minutes and seconds" },
        { 3599.7, "1h00m", "rounds into an hour" },
        { 7500, "2h05m", "hours and minutes" },
        { 86400.0 * 4 + 3600 * 3, "4d03h", "days and hours" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        age_text(rows[i].seconds, &out);
        if (strcmp(out.data, rows[i].text) != 0)
            fail_msg("%s: %s, want %s", rows[i].why, out.data, rows[i].text);
    }
}

static void cells_follow_their_form(void **state)
{
    static const struct {
        enum table_form form;
        const char *row, *path, *text, *why;
    } rows[] = {
        { TABLE_TEXT, "{\"a\":\"x\"}", "a", "x", "text" },
        { TABLE_TEXT, "{\"a\":\"x\\ny\\u001b[2J\"}", "a", "x y [2J", "no line ends, no escapes" },
        { TABLE_TEXT, "{\"a\":\"\"}", "a", "-", "empty" },
        { TABLE_TEXT, "{\"a\":null}", "a", "-", "null is absent" },
        { TABLE_TEXT, "{}", "a", "-", "missing is absent" },
        { TABLE_TEXT, "{\"a\":3}", "a", "-", "of another type" },
        { TABLE_COUNT, "{\"a\":{\"b\":12}}", "a.b", "12", "a member of a member" },
        { TABLE_COUNT, "{\"a\":null}", "a.b", "-", "nothing inside of null" },
        { TABLE_COUNT, "{\"a\":0}", "a", "0", "zero is not absent" },
        { TABLE_DECIMAL, "{\"a\":1.005}", "a", "1.00", "two digits" },
        { TABLE_FACTOR, "{\"a\":3.8899e-05}", "a", "3.89e-05", "four digits of any size" },
        { TABLE_MONEY, "{\"a\":0.1}", "a", "$0.10", "whole cents" },
        { TABLE_MONEY, "{\"a\":0.00012}", "a", "$0.0001", "less than a cent" },
        { TABLE_MONEY, "{\"a\":12.345}", "a", "$12.35", "dollars" },
        { TABLE_AGE, "{\"a\":75}", "a", "1m15s", "seconds" },
        { TABLE_SINCE, "{\"a\":940000000}", "a", "1m00s", "from then to now" },
        { TABLE_YES, "{\"a\":true}", "a", "yes", "bool" },
        { TABLE_YES, "{\"a\":false}", "a", "no", "bool" },
        { TABLE_LIST, "{\"a\":[\"x\",\"y\"]}", "a", "x,y", "joined" },
        { TABLE_LIST, "{\"a\":[]}", "a", "-", "an empty list" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        table_cell(rows[i].form, str_from(rows[i].row), rows[i].path, 1000000000, &out);
        if (strcmp(out.data, rows[i].text) != 0)
            fail_msg("%s: %s, want %s", rows[i].why, out.data, rows[i].text);
    }
}

static const struct table_column columns[] = {
    { "NAME", "name", TABLE_TEXT },
    { "N", "n", TABLE_COUNT },
    { "PHASE", "phase", TABLE_STATE },
};

static void columns_line_up(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct table t = { columns, COUNT_OF(columns), 0, false };
    (void)state;
    assert_int_equal(table_print(&t,
                                 STR("[{\"name\":\"b\\u00e4r\",\"n\":7,\"phase\":\"ready\"},"
                                     "{\"name\":\"longer\",\"n\":123,\"phase\":null}]"),
                                 &out),
                     0);
    assert_string_equal(out.data, "NAME      N  PHASE\n"
                                  "b\303\244r       7  ready\n" /* two bytes, one column */
                                  "longer  123  -\n");
}

static void a_rare_column_is_left_out(void **state)
{
    static const struct table_column rare[] = {
        { "NAME", "name", TABLE_TEXT },
        { "CLOCK", "clock", TABLE_RARE },
        { "N", "n", TABLE_COUNT },
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct table t = { rare, COUNT_OF(rare), 0, false };
    (void)state;
    assert_int_equal(table_print(&t, STR("[{\"name\":\"a\",\"clock\":null,\"n\":1}]"), &out), 0);
    assert_string_equal(out.data, "NAME  N\na     1\n");
    buf_clear(&out);
    assert_int_equal(table_print(&t,
                                 STR("[{\"name\":\"a\",\"n\":1},"
                                     "{\"name\":\"b\",\"clock\":0.85,\"n\":2}]"),
                                 &out),
                     0);
    assert_string_equal(out.data, "NAME  CLOCK  N\n"
                                  "a         -  1\n"
                                  "b      0.85  2\n");
}

static void colour_is_only_where_asked(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct table t = { columns + 2, 1, 0, true };
    (void)state;
    assert_int_equal(table_print(&t, STR("[{\"phase\":\"ready\"},{\"phase\":\"new\"}]"), &out), 0);
    assert_string_equal(out.data, "\033[1mPHASE\033[0m\n\033[32mready\033[0m\nnew\n");
}

static void what_is_no_list_is_refused(void **state)
{
    static const char *const texts[] = { "{}", "[1", "", "[{\"name\":\"x\"},", "null" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct table t = { columns, COUNT_OF(columns), 0, false };
        if (table_print(&t, str_from(texts[i]), &out) >= 0) fail_msg("taken: %s", texts[i]);
    }
}

static int table_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ages_are_short),
        cmocka_unit_test(cells_follow_their_form),
        cmocka_unit_test(columns_line_up),
        cmocka_unit_test(a_rare_column_is_left_out),
        cmocka_unit_test(colour_is_only_where_asked),
        cmocka_unit_test(what_is_no_list_is_refused),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}

/* ---- text of a model: no control character reaches a terminal, wherever the text is cut ---- */

#define NO "\xef\xbf\xbd"

static const struct {
    const char *why, *text, *shown;
} rows[] = {
    { "text", "Hello,\n\tworld", "Hello,\n\tworld" },
    { "letters of all lengths", "a \xc3\xa4 \xe4\xbd\xa0 \xf0\x9f\x98\x80",
      "a \xc3\xa4 \xe4\xbd\xa0 \xf0\x9f\x98\x80" },
    { "a colour", "\x1b[31mred\x1b[0m", NO "[31mred" NO "[0m" },
    { "the title and the clipboard", "\x1b]0;x\x07\x1b]52;c;QQ==\x1b\\",
      NO "]0;x" NO NO "]52;c;QQ==" NO "\\" },
    { "other C0", "a\x01\b\rb\x7f", "a" NO NO NO "b" NO },
    { "C1 as UTF-8",
      "\xc2\x9b"
      "2J \xc2\x80 \xc2\x9f \xc2\xa0",
      NO "2J " NO " " NO " \xc2\xa0" },
    { "C1 as a byte",
      "\x9b"
      "2J",
      NO "2J" },
    { "overrides of direction",
      "\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8f\xd8\x9c", NO NO NO NO NO NO },
    { "their neighbours", "\xe2\x80\xa9 \xe2\x80\xaf \xe2\x81\xa5 \xe2\x81\xaa \xe2\x80\x8d",
      "\xe2\x80\xa9 \xe2\x80\xaf \xe2\x81\xa5 \xe2\x81\xaa \xe2\x80\x8d" },
    { "longer than needed: ESC in two and three bytes", "\xc0\x9b \xe0\x80\x9b", NO NO " " NO },
    { "a surrogate, and beyond the last", "\xed\xa0\x80 \xf4\x90\x80\x80 \xff", NO " " NO " " NO },
    { "torn by an ESC", "\xe4\xbd\x1b[1m", NO NO "[1m" },
    { "torn at the end", "a\xf0\x9f\x98", "a" NO },
};

static void what_is_shown_does_not_hang_on_the_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str text = str_from(rows[i].text);
        for (size_t cut = 0; cut <= text.len; cut++) {
            CLEANUP(buf_fini) struct buf out = { 0 };
            struct plain p = { 0 };
            assert_int_equal(plain_add(&p, str_of(text.data, cut), &out), 0);
            assert_int_equal(plain_add(&p, str_of(text.data + cut, text.len - cut), &out), 0);
            assert_int_equal(plain_end(&p, &out), 0);
            if (!str_eq(buf_view(&out), str_from(rows[i].shown)))
                fail_msg("%s, cut at %zu", rows[i].why, cut);
        }
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct plain p = { 0 };
        for (size_t at = 0; at < text.len; at++)
            plain_add(&p, str_of(text.data + at, 1), &out);
        assert_int_equal(plain_end(&p, &out), 0);
        if (!str_eq(buf_view(&out), str_from(rows[i].shown))) fail_msg("%s", rows[i].why);
    }
}

/* No pair of bytes yields a character that a terminal obeys. */
static void no_pair_of_bytes_gets_through(void **state)
{
    (void)state;
    for (uint32_t pair = 0; pair < 65536; pair++) {
        char text[2] = { (char)(pair >> 8), (char)pair };
        CLEANUP(buf_fini) struct buf out = { 0 };
        assert_int_equal(plain_whole(str_of(text, 2), &out), 0);
        for (size_t i = 0; i < out.len; i++) {
            unsigned char c = (unsigned char)out.data[i];
            bool c1 = c == 0xc2 && (unsigned char)out.data[i + 1] < 0xa0;
            if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || c1) fail_msg("%04x", pair);
        }
    }
}

static int plain_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_shown_does_not_hang_on_the_cuts),
        cmocka_unit_test(no_pair_of_bytes_gets_through),
    };
    return cmocka_run_group_tests_name("plain", tests, NULL, NULL);
}

int main(void)
{
    return table_tests() + plain_tests();
}
