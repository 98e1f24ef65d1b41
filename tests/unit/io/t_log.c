/* t_log.c - tests log lines: one a call, values that cannot forge keys or lines, and files within
 * their bounds. */
#include "base/core/bits.h"
#include "base/core/str.h"
#include "base/io/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TIME_BYTES 28 /* "2026-03-01T12:00:00.000123Z " */

static int ends[2];

static int open_pipe(void **state)
{
    (void)state;
    if (pipe2(ends, O_NONBLOCK) < 0) return -1;
    log_set_fd(ends[1]);
    log_set_level(LOG_INFO);
    return 0;
}

static int close_pipe(void **state)
{
    (void)state;
    log_set_fd(STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* Returns what was written since the last call. */
static const char *written(void)
{
    static char text[65536];
    ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static void line_has_its_form(void **state)
{
    (void)state;
    log_event(LOG_WARN, "instance_up", "id=%s port=%d", "i-7", 8201);
    const char *line = written();
    for (int i = 0; i < TIME_BYTES; i++) {
        static const char form[] = "0000-00-00T00:00:00.000000Z ";
        if (form[i] == '0')
            assert_true(line[i] >= '0' && line[i] <= '9');
        else
            assert_int_equal(line[i], form[i]);
    }
    assert_string_equal(line + TIME_BYTES, "warn instance_up id=i-7 port=8201\n");
    log_event(LOG_INFO, "ready", "%s", "");
    assert_string_equal(written() + TIME_BYTES, "info ready \"\"\n");
}

static void conversions_are_libcs(void **state)
{
    (void)state;
    char expected[512];
    log_event(LOG_INFO, "e",
              "a=%d b=%5u c=%-4x d=%ld e=%llu f=%zu g=%" PRId64 " h=%hhd i=%c j=%.3f k=%g l=%.*s "
              "m=%*d n=%%%d o=%jd p=%td q=%+d",
              -1, 2u, 255u, -3L, 4ULL, (size_t)5, (int64_t)-6, (signed char)7, 'y', 1.5, 2.25, 3,
              "abcdef", 4, 9, 50, (intmax_t)8, (ptrdiff_t)9, 1);
    snprintf(expected, sizeof expected,
             "info e a=-1 b=\"    2\" c=\"ff  \" d=-3 e=4 f=5 g=-6 h=7 i=y j=1.500 k=2.25 l=abc "
             "m=\"   9\" n=%%50 o=8 p=9 q=+1\n");
    assert_string_equal(written() + TIME_BYTES, expected);
}

static void values_cannot_forge(void **state)
{
    (void)state;
    static const struct {
        const char *value, *shown, *why;
    } rows[] = {
        { "plain", "plain", "as it is" },
        { "", "\"\"", "empty" },
        { "a b", "\"a b\"", "blank" },
        { "a=b", "\"a=b\"", "a key inside" },
        { "x\n2026 info forged", "\"x\\n2026 info forged\"", "a line inside" },
        { "\r\t", "\"\\r\\t\"", "other controls" },
        { "q\"q\\", "\"q\\\"q\\\\\"", "quote and backslash" },
        { "\x1b[31m", "\"\\x1b[31m\"", "terminal escape" },
        { "\x7f", "\"\\x7f\"", "delete" },
        { "\xc2\x9b"
          "31m",
          "\"\\x9b31m\"", "8-bit terminal escape" },
        { "\xff\xc3", "\"\\xff\\xc3\"", "not UTF-8" },
        { "\xc3\xa9\xe4\xb8\xad", "\xc3\xa9\xe4\xb8\xad", "letters of the world" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char expected[128];
        log_event(LOG_INFO, "e", "v=%s w=%d", rows[i].value, 1);
        snprintf(expected, sizeof expected, "info e v=%s w=1\n", rows[i].shown);
        if (strcmp(written() + TIME_BYTES, expected) != 0) fail_msg("%s", rows[i].why);
    }
}

static void level_is_kept(void **state)
{
    (void)state;
    log_event(LOG_DEBUG, "e", "a=%d", 1);
    assert_string_equal(written(), "");
    log_set_level(LOG_ERROR);
    log_event(LOG_WARN, "e", "a=%d", 1);
    assert_string_equal(written(), "");
    log_event(LOG_ERROR, "e", "a=%d", 1);
    assert_int_not_equal(written()[0], 0);
    log_set_level(LOG_DEBUG);
    log_event(LOG_DEBUG, "e", "a=%d", 1);
    assert_string_equal(written() + TIME_BYTES, "debug e a=1\n");
    assert_string_equal(log_level_names[LOG_WARN], "warn");
    assert_null(log_level_names[LOG_LEVEL_COUNT]);
}

/* At every length around the bound the output is one line of at most LOG_LINE_MAX, with closed
 * quotes. */
static void long_lines_are_cut(void **state)
{
    (void)state;
    static char value[LOG_LINE_MAX * 2];
    for (int kind = 0; kind < 3; kind++) {
        for (size_t len = LOG_LINE_MAX - 80; len < LOG_LINE_MAX + 40; len++) {
            memset(value, kind == 0 ? 'x' : kind == 1 ? ' ' : '\n', len);
            value[len] = 0;
            log_event(LOG_INFO, "e", "a=%s b=%s", value, "x y");
            const char *line = written();
            size_t n = strlen(line), quotes = 0;
            assert_true(n <= LOG_LINE_MAX && line[n - 1] == '\n');
            assert_ptr_equal(strchr(line, '\n'), line + n - 1);
            for (size_t i = 0; i < n; i++)
                quotes += line[i] == '"';
            assert_int_equal(quotes % 2, 0);
            bool whole = str_ends(str_of(line, n), STR(" b=\"x y\"\n"));
            bool cut = str_ends(str_of(line, n), STR(" cut=true\n"));
            assert_true(whole != cut);
        }
    }
}

static void errno_is_kept_and_losses_counted(void **state)
{
    (void)state;
    uint64_t before = log_lost();
    errno = ENOENT;
    log_event(LOG_INFO, "e", "a=%d", 1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(log_lost(), before);
    log_set_fd(-1);
    log_event(LOG_INFO, "e", "a=%d", 1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(log_lost(), before + 1);
    /* When the pipe is full, lines are dropped and counted, and the caller never waits. */
    log_set_fd(ends[1]);
    for (int i = 0; i < 100; i++)
        log_event(LOG_INFO, "e", "a=%s", "0123456789012345678901234567");
    while (log_lost() < before + 2)
        log_event(LOG_INFO, "e", "a=%*d", LOG_LINE_MAX / 2, 1);
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < 100; i++)
        log_event(LOG_INFO, "e", "thread=%d i=%d", *(int *)arg, i);
    return NULL;
}

static void threads_do_not_mix(void **state)
{
    (void)state;
    pthread_t threads[4];
    int numbers[4];
    for (int i = 0; i < 4; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, write_lines, &numbers[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    struct str rest = str_from(written());
    size_t lines = 0;
    while (rest.len > 0) {
        int thread, i;
        struct str line = str_cut(&rest, '\n');
        assert_true(line.len > TIME_BYTES);
        assert_int_equal(sscanf(line.data + TIME_BYTES, "info e thread=%d i=%d", &thread, &i), 2);
        lines++;
    }
    assert_int_equal(lines, 400);
}

static void one_passes_per_interval(void **state)
{
    (void)state;
    struct log_limit limit = { 0 };
    uint64_t skipped = 99;
    assert_true(log_pass(&limit, 10, 100, &skipped));
    assert_int_equal(skipped, 0);
    for (int i = 0; i < 7; i++)
        assert_false(log_pass(&limit, 10 + i, 100, &skipped));
    assert_false(log_pass(&limit, 109, 100, &skipped));
    assert_true(log_pass(&limit, 110, 100, &skipped));
    assert_int_equal(skipped, 8);
}

/* ---- files ---- */

static off_t size_of(const char *path, int number)
{
    char name[128];
    struct stat st;
    snprintf(name, sizeof name, number ? "%s.%d" : "%s", path, number);
    return stat(name, &st) == 0 ? st.st_size : -1;
}

static void *fill_file(void *arg)
{
    for (int i = 0; i < 2000; i++)
        log_event(LOG_INFO, "line", "of=%d number=%d", *(const int *)arg, i);
    return NULL;
}

#define BOUND 65536

/* The file and the older ones are bounded, and every kept line is whole. Threads that write while
 * one of them turns the file only make it a little larger. */
static void a_file_is_turned_at_its_bound(void **state)
{
    (void)state;
    char folder[] = "/tmp/t_log_XXXXXX", path[64], other[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/some.log", folder);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    log_set_fd(fd);
    log_set_max(BOUND);
    for (int t = 0; t < 4; t++)
        fill_file(&t);
    assert_true(size_of(path, 0) >= 0 && size_of(path, 0) < BOUND);
    for (int k = 1; k <= 3; k++)
        assert_true(size_of(path, k) >= BOUND && size_of(path, k) < BOUND + 256);
    assert_int_equal(size_of(path, 4), -1);
    pthread_t thread[4];
    int number[4];
    uint64_t lost = log_lost();
    for (int t = 0; t < 4; t++) {
        number[t] = t;
        assert_int_equal(pthread_create(&thread[t], NULL, fill_file, &number[t]), 0);
    }
    for (int t = 0; t < 4; t++)
        pthread_join(thread[t], NULL);
    for (int k = 1; k <= 3; k++)
        assert_true(size_of(path, k) >= BOUND);
    assert_int_equal(log_lost(), lost);
    for (int k = 0; k <= 3; k++) {
        char line[256], name[128];
        int of, n;
        snprintf(name, sizeof name, k ? "%s.%d" : "%s", path, k);
        FILE *f = fopen(name, "re");
        assert_non_null(f);
        while (fgets(line, sizeof line, f))
            if (sscanf(line + TIME_BYTES, "info line of=%d number=%d", &of, &n) != 2)
                fail_msg("%s: %s", name, line);
        fclose(f);
    }

    /* A file that another process moved is left to it: the log goes on writing to that file and
     * makes no new one. */
    snprintf(other, sizeof other, "%s/moved", folder);
    assert_int_equal(rename(path, other), 0);
    fill_file(&number[0]);
    assert_int_equal(size_of(path, 0), -1);
    assert_true(size_of(other, 0) > BOUND);

    log_set_max(0);
    log_set_fd(STDERR_FILENO);
    close(fd);
    for (int k = 0; k <= 3; k++) {
        char name[128];
        snprintf(name, sizeof name, k ? "%s.%d" : "%s", path, k);
        unlink(name);
    }
    unlink(other);
    rmdir(folder);
}

/* A pipe has no size to bound. */
static void a_pipe_is_left_alone(void **state)
{
    (void)state;
    log_set_max(1);
    for (int i = 0; i < 10; i++)
        log_event(LOG_INFO, "line", "number=%d", i);
    assert_non_null(strstr(written(), "number=9"));
    log_set_max(0);
}

int main(void)
{
#define LINE_TEST(name) cmocka_unit_test_setup_teardown(name, open_pipe, close_pipe)
    const struct CMUnitTest tests[] = {
        LINE_TEST(line_has_its_form),    LINE_TEST(conversions_are_libcs),
        LINE_TEST(values_cannot_forge),  LINE_TEST(level_is_kept),
        LINE_TEST(long_lines_are_cut),   LINE_TEST(errno_is_kept_and_losses_counted),
        LINE_TEST(threads_do_not_mix),   LINE_TEST(one_passes_per_interval),
        LINE_TEST(a_pipe_is_left_alone), cmocka_unit_test(a_file_is_turned_at_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
