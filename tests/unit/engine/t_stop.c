/* t_stop.c - tests stop strings: in any split into tokens, the text is that of a search over the whole. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "engine/serve/output.h"
#include "tests/unit/unit.h"

static void t_rows(void **state)
{
    (void)state;
    static const struct {
        const char *why, *stop[3], *tokens[6], *shown;
        bool met;
    } rows[] = {
        { "no stop strings: everything passes", { NULL }, { "a", "b" }, "ab", false },
        { "inside one token", { "END" }, { "xENDy" }, "x", true },
        { "across three tokens", { "END" }, { "xE", "N", "Dy" }, "x", true },
        { "a false start is given back", { "END" }, { "E", "N", "x" }, "ENx", false },
        { "a false start followed by a true one", { "aab" }, { "a", "a", "a", "b" }, "a", true },
        { "the end of the answer flushes what was held", { "END" }, { "xEN" }, "xEN", false },
        { "the one that ends first wins", { "bcde", "cd" }, { "abcde" }, "ab", true },
        { "of two that end together the longer", { "cd", "bcd" }, { "abcde" }, "a", true },
        { "whole characters: a stop string beyond ASCII",
          { "é!" },
          { "caf", "é", "!x" },
          "caf",
          true },
        { "whole characters: held and given back", { "é!" }, { "caf", "é", "?" }, "café?", false },
        { "at the very start nothing is shown", { "\n" }, { "\n", "x" }, "", true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str stop[3];
        uint32_t count = 0;
        while (count < 3 && rows[i].stop[count]) {
            stop[count] = str_from(rows[i].stop[count]);
            count++;
        }
        struct stop_matcher m;
        struct buf out = { 0 };
        bool met = false;
        stop_init(&m, stop, count);
        for (size_t k = 0; k < 6 && rows[i].tokens[k] && !met; k++) {
            met = stop_push(&m, str_from(rows[i].tokens[k]), &out) == 1;
        }
        if (!met) assert_int_equal(stop_flush(&m, &out), 0);
        if (met != rows[i].met || !str_eq(buf_view(&out), str_from(rows[i].shown))) {
            fail_msg("%s: showed \"" STR_FMT "\"", rows[i].why, STR_ARG(buf_view(&out)));
        }
        stop_fini(&m);
        buf_fini(&out);
    }
}

/* Searches byte by byte; returns where the shown text ends, or SIZE_MAX. */
static size_t stopped_at(struct str all, const struct str stop[2])
{
    for (size_t end = 1; end <= all.len; end++) {
        size_t at = SIZE_MAX;
        for (int k = 0; k < 2; k++) {
            if (!str_ends(str_of(all.data, end), stop[k])) continue;
            at = min_size(at, end - stop[k].len);
        }
        if (at != SIZE_MAX) return at;
    }
    return SIZE_MAX;
}

static void t_any_split(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    for (int round = 0; round < 3000; round++) {
        char text[24], stops[2][4];
        struct str all = { text, 1 + rng_below(&rng, sizeof text - 1) }, stop[2];
        for (size_t i = 0; i < all.len; i++)
            text[i] = (char)('a' + rng_below(&rng, 2));
        for (int k = 0; k < 2; k++) {
            stop[k] = (struct str){ stops[k], 2 + rng_below(&rng, 3) };
            for (size_t i = 0; i < stop[k].len; i++)
                stops[k][i] = (char)('a' + rng_below(&rng, 2));
        }
        size_t first = stopped_at(all, stop);

        struct stop_matcher m;
        struct buf out = { 0 };
        int met = 0;
        stop_init(&m, stop, 2);
        for (size_t at = 0; at < all.len && !met;) {
            size_t len = min_size(1 + rng_below(&rng, 3), all.len - at);
            met = stop_push(&m, str_of(text + at, len), &out);
            assert_true(met >= 0 && m.held.len < 4);
            at += len;
        }
        if (!met) stop_flush(&m, &out);
        assert_int_equal(met, first != SIZE_MAX);
        assert_true(str_eq(buf_view(&out), str_of(text, first == SIZE_MAX ? all.len : first)));
        stop_fini(&m);
        buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(t_rows), cmocka_unit_test(t_any_split) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
