/* t_plain.c - what a model may write and what a terminal gets of it, in every way of cutting it. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/plain.h"
#include "tests/unit/unit.h"

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

/* Whatever the bytes, nothing that a terminal obeys comes out. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_shown_does_not_hang_on_the_cuts),
        cmocka_unit_test(no_pair_of_bytes_gets_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
