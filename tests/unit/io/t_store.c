/* t_store.c - tests that the backends of one machine behave alike, and the cases only a file has: owners,
 * damage, full disks, kill -9. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/store/store.h"
#include "tests/unit/io/store_suite.h"

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

static char folder[] = "/tmp/t_store.XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/state.db", folder);
    return 0;
}

static void remove_files(void)
{
    static const char *const ends[] = { "", "-wal", "-shm", "-journal", ".lock" };
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

static struct store *open_file(void)
{
    struct store *s = NULL;
    struct err err = { 0 };
    if (store_file_open(path, 0, &s, &err) < 0) fail_msg("%s", err.text);
    return s;
}

static struct store *open_new_file(void)
{
    remove_files();
    return open_file();
}

static struct store *open_memory(void)
{
    struct store *s = NULL;
    assert_int_equal(store_memory_open(1000, &s, NULL), 0);
    return s;
}

static struct store *join_memory(struct store *first)
{
    struct store *s = NULL;
    assert_int_equal(store_memory_join(first, &s, NULL), 0);
    return s;
}

static struct store *open_shared(void)
{
    struct store *first = open_memory(), *s = join_memory(first);
    store_close(first);
    return s;
}

static void backends_answer_alike(void **state)
{
    (void)state;
    suite_run(open_new_file);
    suite_run(open_memory);
    suite_run(open_shared);
}

static void one_of_two_handles_writes(void **state)
{
    (void)state;
    suite_share(open_shared, join_memory);
}

/* A memory store that loses its content is no empty one for the term that had it. */
static void a_lost_content_ends_the_term(void **state)
{
    (void)state;
    struct store *a = open_shared(), *b = join_memory(a);
    struct store_lease seen;
    CLEANUP(buf_fini) struct buf out = { 0 };
    suite_lead(a, "a");
    assert_int_equal(store_put_if(a, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    store_memory_lose(b);
    assert_int_equal(store_get(a, STR("k"), NULL, NULL, NULL), -EKEYREVOKED);
    assert_int_equal(store_epoch(a), 0);
    assert_int_equal(store_lease_see(a, &seen, NULL), 0);
    assert_int_equal(seen.epoch, 0);
    suite_lead(b, "b");
    assert_int_equal(store_list(b, STR(""), keep_key, &out, NULL), 0);
    assert_int_equal(out.len, 0);
    store_close(a);
    store_close(b);
}

/* The same random operations on both give the same results, versions and walks. */
static void random_operations_agree(void **state)
{
    (void)state;
    struct store *file = open_new_file(), *memory = open_memory();
    suite_random(file, memory, 400);
    suite_same(file, memory);
    store_close(file);
    store_close(memory);
}

static void memory_is_bounded(void **state)
{
    (void)state;
    struct store *s = NULL;
    struct err err = { 0 };
    assert_int_equal(store_memory_open(1, &s, NULL), 0);
    assert_int_equal(store_put_if(s, STR("a"), STR("1"), STORE_ANY, NULL, NULL), 0);
    assert_int_equal(store_put_if(s, STR("b"), STR("1"), STORE_ANY, NULL, &err), -ENOSPC);
    assert_int_equal(store_put_if(s, STR("a"), STR("2"), STORE_ANY, NULL, NULL), 0);
    store_close(s);
}

/* ---- the file only ---- */

static void survives_closing(void **state)
{
    (void)state;
    static const struct store_log log = { "log", 2 };
    uint64_t v1 = 0, v2 = 0;
    remove_files();
    struct store *s = open_file();
    assert_int_equal(store_put_if(s, STR("a"), STR("1"), STORE_ABSENT, &v1, NULL), 0);
    assert_int_equal(store_put_if(s, STR("gone"), STR("1"), STORE_ABSENT, &v2, NULL), 0);
    assert_int_equal(store_delete_if(s, STR("gone"), v2, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_append(s, &log, STR("x"), NULL, NULL), 0);
    store_close(s);
    s = open_file();
    uint64_t v3 = 0;
    struct store_log_stat log_stat;
    assert_value(s, STR("a"), STR("1"), v1);
    assert_int_equal(store_put_if(s, STR("gone"), STR("2"), STORE_ABSENT, &v3, NULL), 0);
    assert_true(v3 > v2);
    assert_int_equal(store_log_stat(s, &log, &log_stat, NULL), 0);
    assert_int_equal(log_stat.last, 3);
    assert_int_equal(log_stat.dropped, 1);
    store_close(s);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void one_owner(void **state)
{
    (void)state;
    remove_files();
    struct store *s = open_file(), *second = NULL;
    struct err err = { 0 };
    assert_int_equal(store_file_open(path, 0, &second, &err), -EBUSY);
    assert_null(second);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %d ", (int)getpid());
    if (!strstr(err.text, path) || !strstr(err.text, pid) || !strstr(err.text, "stop it"))
        fail_msg("%s", err.text);
    store_close(s);
    s = open_file();
    store_close(s);
}

/* A writer is killed right after an acknowledgement: everything acknowledged is stored. */
static void killed_writer_loses_nothing(void **state)
{
    (void)state;
    remove_files();
    for (int round = 0; round < 5; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct store *s = NULL;
            if (store_file_open(path, 0, &s, NULL) < 0) _exit(1);
            for (uint32_t i = 1;; i++) {
                uint64_t version;
                if (store_put_if(s, STR("n"), str_of(&i, sizeof i), STORE_ANY, &version, NULL) < 0)
                    _exit(2);
                if (write(ends[1], &i, sizeof i) != sizeof i) _exit(3);
            }
        }
        close(ends[1]);
        uint32_t acknowledged = 0, stored = 0;
        for (int i = 0; i < 3 + round; i++)
            assert_int_equal(read(ends[0], &acknowledged, sizeof acknowledged),
                             sizeof acknowledged);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        while (read(ends[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged) {
        }
        close(ends[0]);
        struct store *s = open_file();
        CLEANUP(buf_fini) struct buf value = { 0 };
        assert_int_equal(store_get(s, STR("n"), &value, NULL, NULL), 0);
        assert_int_equal(value.len, sizeof stored);
        memcpy(&stored, value.data, sizeof stored);
        /* The last write may be stored and not yet acknowledged. */
        assert_true(stored == acknowledged || stored == acknowledged + 1);
        store_close(s);
    }
}

static void write_file(struct str data)
{
    remove_files();
    assert_int_equal(file_write_atomic(path, data, 0600, NULL), 0);
}

static void foreign_and_damaged_files(void **state)
{
    (void)state;
    struct store *s = NULL;
    struct err err = { 0 };
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    write_file(str_of(junk, sizeof junk));
    assert_int_equal(store_file_open(path, 0, &s, &err), -EILSEQ);
    assert_non_null(strstr(err.text, "it is no Muster store"));

    /* Another application's sqlite3 file is refused; the test makes one by changing the id. */
    remove_files();
    s = open_file();
    for (int i = 0; i < 50; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        assert_int_equal(store_put_if(s, str_from(key), str_of(junk, 500), STORE_ANY, NULL, NULL),
                         0);
    }
    store_close(s);
    CLEANUP(buf_fini) struct buf good = { 0 };
    assert_int_equal(file_read(path, 1 << 20, &good, NULL), 0);
    CLEANUP(buf_fini) struct buf bad = { 0 };
    buf_str(&bad, buf_view(&good));
    bad.data[68] ^= 1; /* application_id, big-endian, in the header at 68 */
    write_file(buf_view(&bad));
    assert_int_equal(store_file_open(path, 0, &s, &err), -EILSEQ);
    assert_non_null(strstr(err.text, "a database of another program"));
    bad.data[68] ^= 1;
    bad.data[63] = 9; /* user_version at 60 */
    write_file(buf_view(&bad));
    assert_int_equal(store_file_open(path, 0, &s, &err), -EILSEQ);
    assert_non_null(strstr(err.text, "of version 9, this program knows 1"));
    bad.data[63] = 1;
    memset(bad.data + 4096 * 2, 0xa5, 4096 * 4);
    write_file(buf_view(&bad));
    int rc = store_file_open(path, 0, &s, &err);
    assert_int_equal(rc, -EILSEQ);
    write_file(str_of(good.data, good.len / 2)); /* cut as by a lost disk */
    assert_int_equal(store_file_open(path, 0, &s, &err), -EILSEQ);
    write_file(buf_view(&good));
    s = open_file();
    store_close(s);
    assert_true(store_file_open("/nonexistent/state.db", 0, &s, &err) < 0);
}

/* With a real file size limit writes fail and the old values stay. */
static void full_file_answers(void **state)
{
    (void)state;
    remove_files();
    struct store *s = NULL;
    struct err err = { 0 };
    char value[4000];
    memset(value, 'v', sizeof value);
    assert_int_equal(store_file_open(path, 1 << 18, &s, NULL), 0);
    int rc = 0, stored = 0;
    for (int i = 0; i < 100 && rc == 0; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        rc = store_put_if(s, str_from(key), str_of(value, sizeof value), STORE_ABSENT, NULL, &err);
        stored += rc == 0;
    }
    assert_int_equal(rc, -ENOSPC);
    assert_non_null(strstr(err.text, "nothing was changed"));
    assert_in_range(stored, 30, 63);
    assert_int_equal(store_get(s, STR("0"), NULL, NULL, NULL), 0);
    assert_int_equal(store_delete_if(s, STR("0"), STORE_ANY, NULL), 0);
    assert_int_equal(
        store_put_if(s, STR("0"), str_of(value, sizeof value), STORE_ABSENT, NULL, NULL), 0);
    store_close(s);
}

int main(void)
{
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_answer_alike),
        cmocka_unit_test(one_of_two_handles_writes),
        cmocka_unit_test(a_lost_content_ends_the_term),
        cmocka_unit_test(random_operations_agree),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(survives_closing),
        cmocka_unit_test(one_owner),
        cmocka_unit_test(killed_writer_loses_nothing),
        cmocka_unit_test(foreign_and_damaged_files),
        cmocka_unit_test(full_file_answers),
    };
    int failed = cmocka_run_group_tests(tests, make_folder, NULL);
    remove_files();
    rmdir(folder);
    return failed;
}
