/* t_pretokenizer.c - the hand-written rules against the words that a regex engine makes.
 *
 * tests/vectors/tokenizer/make.py has the expressions and wrote the words. */
#include "base/core/buf.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/text/pretokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define RECORDS_MIN 600

/* Writes each word with a bar behind it; none of the texts has one. */
static int put_word(void *arg, struct str word)
{
    buf_str(arg, word);
    return buf_byte(arg, '|');
}

static int check_line(struct str line)
{
    CLEANUP(buf_fini) struct buf pre = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf want = { 0 };
    CLEANUP(buf_fini) struct buf got = { 0 };
    struct json_reader r;
    json_reader_init(&r, line);
    assert_int_equal(json_next(&r), JSON_OBJECT);
    while (json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "pre")) {
            json_next(&r);
            json_text(&r, &pre);
            continue;
        }
        assert_int_equal(json_next(&r), JSON_ARRAY);
        while (json_next(&r) == JSON_STRING) {
            json_text(&r, &text);
            json_text(&r, &want);
            buf_byte(&want, '|');
        }
    }
    const struct pretokenizer *p = pretokenizer_find(buf_view(&pre));
    assert_non_null(p);
    assert_int_equal(pretokenizer_run(p, buf_view(&text), put_word, &got), 0);
    if (str_eq(buf_view(&got), buf_view(&want))) return 0;
    fprintf(stderr, "%s\n  want %.*s\n  got  %.*s\n", pre.data, STR_ARG(buf_view(&want)),
            STR_ARG(buf_view(&got)));
    return 1;
}

static void test_words_of_regex_engine(void **state)
{
    (void)state;
    FILE *f = fopen("tests/vectors/tokenizer/words.ndjson", "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int records = 0, differ = 0;
    for (; (len = getline(&line, &cap, f)) > 0; records++)
        differ += check_line(str_of(line, (size_t)len - 1));
    free(line);
    fclose(f);
    assert_int_equal(differ, 0);
    assert_true(records >= RECORDS_MIN);
}

static int stop_at_second(void *arg, struct str word)
{
    (void)word;
    int *left = arg;
    return --*left == 0 ? -7 : 0;
}

static int take_first(void *arg, struct str word)
{
    struct str *first = arg;
    if (!first->data) *first = word;
    return 0;
}

/* Letters are looked for eight at a time: a run ends before any byte that is none, wherever it stands. */
static void test_runs_of_letters(void **state)
{
    (void)state;
    const struct pretokenizer *p = pretokenizer_find(STR("gpt-2"));
    for (size_t letters = 1; letters < 40; letters++) {
        for (int byte = 0; byte < 128; byte++) {
            char text[64];
            for (size_t i = 0; i < sizeof text; i++)
                text[i] = (char)((i % 3 ? 'a' : 'A') + (int)((i * 7 + letters) % 26));
            text[letters] = (char)byte;
            bool letter = (byte | 32) >= 'a' && (byte | 32) <= 'z';
            size_t want = letter ? letters + 1 + letters % 3 : letters;
            struct str first = { 0 };
            struct str all = str_of(text, letters + 1 + letters % 3);
            assert_int_equal(pretokenizer_run(p, all, take_first, &first), 0);
            assert_int_equal(first.len, want);
        }
    }
}

static void test_stops_when_told(void **state)
{
    (void)state;
    int left = 2;
    const struct pretokenizer *p = pretokenizer_find(STR("falcon"));
    assert_int_equal(pretokenizer_run(p, STR("a b c d"), stop_at_second, &left), -7);
    assert_int_equal(left, 0);
}

/* Every name in the list is found, and none other. */
static void test_names(void **state)
{
    (void)state;
    size_t count = 0;
    for (; pretokenizer_name(count); count++)
        assert_non_null(pretokenizer_find(str_from(pretokenizer_name(count))));
    assert_true(count >= 9);
    assert_null(pretokenizer_find(STR("gpt-9")));
    assert_null(pretokenizer_find((struct str){ 0 }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_of_regex_engine),
        cmocka_unit_test(test_runs_of_letters),
        cmocka_unit_test(test_stops_when_told),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
