/* t_file.c - tests that a file is the old or the new one at every failing step, and locks and
 * secrets shared by processes. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/file.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/t_file.XXXXXX";
static char path[128];

static size_t entries(void)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int clean(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (const struct dirent *e; (e = readdir(d));) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') remove(name);
    }
    closedir(d);
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static void assert_content(const char *text)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(file_read(path, 1000, &out, NULL), 0);
    assert_string_equal(out.data, text);
}

static void reads_whole_within_bounds(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct err err = { 0 };
    assert_int_equal(file_read(path, 10, &out, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(file_write_atomic(path, STR("0123456789"), 0640, NULL), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    buf_text(&out, "before ");
    assert_int_equal(file_read(path, 10, &out, NULL), 0);
    assert_string_equal(out.data, "before 0123456789");
    assert_int_equal(file_read(path, 9, &out, &err), -EFBIG);
    assert_int_equal(out.len, 17);
    assert_int_equal(file_read(folder, 10, &out, NULL), -EISDIR);
    fault_arm("file.read", 1);
    assert_int_equal(file_read(path, 10, &out, NULL), -EIO);
    fault_disarm();
    assert_int_equal(out.len, 17);
    buf_clear(&out);
    assert_int_equal(file_read("/proc/self/stat", 4096, &out, NULL), 0); /* reports size 0 */
    assert_true(out.len > 10);
    assert_int_equal(file_write_atomic(path, STR(""), 0600, NULL), 0);
    assert_content("");
}

static void failed_writes_leave_the_old(void **state)
{
    (void)state;
    static const char *const points[] = { "file.create", "file.write", "file.sync", "file.rename" };
    assert_int_equal(file_write_atomic(path, STR("old"), 0600, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        struct err err = { 0 };
        fault_arm(points[i], 1);
        int rc = file_write_atomic(path, STR("new"), 0600, &err);
        assert_int_equal(fault_hits(), 1);
        fault_disarm();
        assert_true(rc < 0 && err.text[0]);
        assert_content("old");
        assert_int_equal(entries(), 1);
    }
    fault_arm("file.sync_folder", 1);
    assert_int_equal(file_write_atomic(path, STR("new"), 0600, NULL), -EIO);
    fault_disarm();
    assert_content("new"); /* whole, but perhaps not yet safe from a power cut */
    assert_int_equal(entries(), 1);
    assert_int_equal(file_write_atomic("/nonexistent/x", STR(""), 0600, NULL), -ENOENT);
}

static void folders_are_made(void **state)
{
    (void)state;
    char deep[160];
    struct stat st;
    snprintf(deep, sizeof deep, "%s/a/b//c/", folder);
    assert_int_equal(file_make_folders(deep, 0700, NULL), 0);
    assert_int_equal(file_make_folders(deep, 0755, NULL), 0);
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(file_write_atomic(path, STR("x"), 0600, NULL), 0);
    snprintf(deep, sizeof deep, "%s/below", path);
    assert_int_equal(file_make_folders(deep, 0700, NULL), -ENOTDIR);
    assert_true(file_make_folders("", 0700, NULL) < 0);
    static const char *const made[] = { "a/b/c", "a/b", "a" };
    for (size_t i = 0; i < COUNT_OF(made); i++) {
        snprintf(deep, sizeof deep, "%s/%s", folder, made[i]);
        assert_int_equal(rmdir(deep), 0);
    }
}

static void lock_has_one_holder(void **state)
{
    (void)state;
    int fd = -1, second = -1;
    struct err err = { 0 };
    assert_int_equal(file_lock(path, &fd, &err), 0);
    assert_int_equal(file_lock(path, &second, &err), -EBUSY);
    char pid[32];
    snprintf(pid, sizeof pid, "(pid %d start ", (int)getpid());
    assert_non_null(strstr(err.text, pid));
    file_unlock(fd);
    assert_int_equal(file_lock(path, &fd, &err), 0);
    file_unlock(fd);
    assert_int_equal(access(path, F_OK), 0);
    file_unlock(-1);
}

static void a_shared_lock_keeps_exclusive_ones_off(void **state)
{
    (void)state;
    int one = -1, two = -1, alone = -1;
    struct err err = { 0 };
    assert_int_equal(file_lock_shared(path, &one, &err), 0);
    assert_int_equal(file_lock_shared(path, &two, &err), 0);
    assert_int_equal(file_lock(path, &alone, &err), -EBUSY);
    file_unlock(one);
    assert_int_equal(file_lock(path, &alone, &err), -EBUSY);
    file_unlock(two);
    assert_int_equal(file_lock(path, &alone, &err), 0);
    assert_int_equal(file_lock_shared(path, &one, &err), -EBUSY);
    file_unlock(alone);
}

static void lock_ends_with_its_holder(void **state)
{
    (void)state;
    int ends[2], fd = -1;
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (file_lock(path, &fd, NULL) == 0 && write(ends[1], "x", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(file_lock(path, &fd, NULL), -EBUSY);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(file_lock(path, &fd, NULL), 0);
    file_unlock(fd);
    close(ends[0]);
    close(ends[1]);
}

static void secret_is_made_once(void **state)
{
    (void)state;
    char first[2 * FILE_SECRET_BYTES + 1], second[2 * FILE_SECRET_BYTES + 1];
    struct stat st;
    struct err err = { 0 };
    static const char *const points[] = { "file.random", "file.create", "file.write", "file.sync" };
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        fault_arm(points[i], 1);
        assert_true(file_secret(path, first, &err) < 0);
        fault_disarm();
        assert_int_equal(entries(), 0);
    }
    assert_int_equal(file_secret(path, first, NULL), 0);
    assert_int_equal(strlen(first), 2 * FILE_SECRET_BYTES);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(entries(), 1);
    assert_int_equal(file_secret(path, second, NULL), 0);
    assert_string_equal(first, second);
    chmod(path, 0640);
    assert_int_equal(file_secret(path, second, &err), -EPERM);
    assert_non_null(strstr(err.text, "chmod 600"));
    static const char *const wrong[] = { "", "abc", "zz" };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_int_equal(file_write_atomic(path, str_from(wrong[i]), 0600, NULL), 0);
        assert_int_equal(file_secret(path, second, &err), -EINVAL);
    }
    remove(path);
    assert_int_equal(file_secret(path, second, NULL), 0);
    assert_string_not_equal(first, second);
}

static void makers_of_a_secret_agree(void **state)
{
    (void)state;
    enum { MAKERS = 8 };
    int ends[2];
    char got[MAKERS][2 * FILE_SECRET_BYTES + 1];
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < MAKERS; i++) {
        if (fork() != 0) continue;
        char mine[2 * FILE_SECRET_BYTES + 1];
        if (file_secret(path, mine, NULL) < 0) _exit(1);
        _exit(write(ends[1], mine, sizeof mine) != sizeof mine);
    }
    for (int i = 0; i < MAKERS; i++)
        assert_int_equal(read(ends[0], got[i], sizeof got[i]), sizeof got[i]);
    while (wait(NULL) > 0) {
    }
    for (int i = 1; i < MAKERS; i++)
        assert_string_equal(got[i], got[0]);
    assert_int_equal(entries(), 1);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    if (!mkdtemp(folder)) return 1;
#define FILE_TEST(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        FILE_TEST(reads_whole_within_bounds), FILE_TEST(failed_writes_leave_the_old),
        FILE_TEST(folders_are_made),          FILE_TEST(lock_has_one_holder),
        FILE_TEST(lock_ends_with_its_holder), FILE_TEST(a_shared_lock_keeps_exclusive_ones_off),
        FILE_TEST(secret_is_made_once),       FILE_TEST(makers_of_a_secret_agree),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    clean(NULL);
    rmdir(folder);
    return failed;
}
