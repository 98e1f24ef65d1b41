/* t_json_suite.c - JSONTestSuite: every y_ file is accepted, every n_ file refused, and no i_ file
 * does harm. Each text is read again cut short at every length, and again from an allocation that
 * ends where the text ends, so that a sanitizer sees any step beyond it. */
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/core/own.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

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
    assert_int_equal(json_next(&r), token); /* both are where it stays */
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
    /* A folder that lost files would pass otherwise. */
    assert_int_equal(count[0], 95);
    assert_int_equal(count[1], 186);
    assert_int_equal(count[2], 35);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(whole_suite) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
