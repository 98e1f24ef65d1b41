/* t_store.c - tests that two backends behave alike, and the cases only a file has: owners, damage,
 * full disks, kill -9. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/io/file.h"
#include "base/io/store/store.h"

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

static struct store *open_backend(int backend)
{
    if (backend == 0) {
        remove_files();
        return open_file();
    }
    struct store *s = NULL;
    assert_int_equal(store_memory_open(1000, &s, NULL), 0);
    return s;
}

static void assert_value(struct store *s, struct str key, struct str value, uint64_t version)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    uint64_t v = 0;
    assert_int_equal(store_get(s, key, &out, &v, NULL), 0);
    assert_true(str_eq(buf_view(&out), value));
    assert_int_equal(v, version);
}

/* ---- both backends ---- */

static void versions(struct store *s)
{
    uint64_t v1 = 0, v2 = 0, v3 = 0;
    struct err err = { 0 };
    assert_int_equal(store_get(s, STR("a"), NULL, NULL, &err), -ENOENT);
    assert_int_equal(store_put_if(s, STR("a"), STR("one"), STORE_ABSENT, &v1, NULL), 0);
    assert_true(v1 > 0);
    assert_value(s, STR("a"), STR("one"), v1);
    assert_int_equal(store_put_if(s, STR("a"), STR("x"), STORE_ABSENT, &v2, &err), -EEXIST);
    assert_string_equal(err.text, "store: a exists already");
    assert_int_equal(v2, 0);
    assert_int_equal(store_put_if(s, STR("a"), STR("two"), v1, &v2, NULL), 0);
    assert_true(v2 > v1);
    assert_int_equal(store_put_if(s, STR("a"), STR("x"), v1, NULL, &err), -ESTALE);
    assert_non_null(strstr(err.text, "was changed meanwhile"));
    assert_value(s, STR("a"), STR("two"), v2);
    assert_int_equal(store_delete_if(s, STR("a"), v1, NULL), -ESTALE);
    assert_int_equal(store_delete_if(s, STR("a"), v2, NULL), 0);
    assert_int_equal(store_delete_if(s, STR("a"), STORE_ANY, NULL), -ENOENT);
    assert_int_equal(store_put_if(s, STR("a"), STR("x"), v2, NULL, &err), -ESTALE);
    assert_string_equal(err.text, "store: a is gone");
    /* A key made again gets a new version, so a holder of the old one cannot win. */
    assert_int_equal(store_put_if(s, STR("a"), STR("new"), STORE_ANY, &v3, NULL), 0);
    assert_true(v3 > v2);
    assert_int_equal(store_put_if(s, STR("a"), STR(""), STORE_ANY, &v3, NULL), 0);
    assert_value(s, STR("a"), STR(""), v3);
}

static void sizes(struct store *s)
{
    char *big = calloc(1, STORE_VALUE_BYTES_MAX + 1);
    char key[STORE_KEY_BYTES_MAX + 1];
    memset(key, 'k', sizeof key);
    assert_int_equal(store_put_if(s, STR(""), STR("x"), STORE_ANY, NULL, NULL), -EINVAL);
    assert_int_equal(store_get(s, str_of(key, sizeof key), NULL, NULL, NULL), -EINVAL);
    assert_int_equal(store_put_if(s, str_of(key, sizeof key - 1), STR("x"), STORE_ANY, NULL, NULL),
                     0);
    assert_int_equal(
        store_put_if(s, STR("b"), str_of(big, STORE_VALUE_BYTES_MAX + 1), STORE_ANY, NULL, NULL),
        -EFBIG);
    uint64_t v;
    assert_int_equal(
        store_put_if(s, STR("b"), str_of(big, STORE_VALUE_BYTES_MAX), STORE_ANY, &v, NULL), 0);
    assert_value(s, STR("b"), str_of(big, STORE_VALUE_BYTES_MAX), v);
    free(big);
}

static int keep_key(void *ctx, const struct store_entry *e)
{
    assert_true(e->version > 0);
    buf_str(ctx, e->key);
    buf_byte(ctx, '=');
    buf_str(ctx, e->value);
    buf_byte(ctx, ' ');
    return str_eq(e->value, STR("stop")) ? -ECANCELED : 0;
}

static void lists(struct store *s)
{
    static const struct {
        struct str key, value;
    } rows[] = { { STR("i/2"), STR("b") },   { STR("i/10"), STR("a") }, { STR("j"), STR("z") },
                 { STR("i\xff"), STR("c") }, { STR("h/9"), STR("y") },  { STR("i"), STR("0") } };
    CLEANUP(buf_fini) struct buf out = { 0 };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(store_put_if(s, rows[i].key, rows[i].value, STORE_ABSENT, NULL, NULL), 0);
    assert_int_equal(store_list(s, STR("i"), keep_key, &out, NULL), 0);
    assert_string_equal(out.data, "i=0 i/10=a i/2=b i\xff=c ");
    buf_clear(&out);
    assert_int_equal(store_list(s, STR(""), keep_key, &out, NULL), 0);
    assert_string_equal(out.data, "h/9=y i=0 i/10=a i/2=b i\xff=c j=z ");
    buf_clear(&out);
    assert_int_equal(store_list(s, STR("k"), keep_key, &out, NULL), 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(store_put_if(s, STR("i/1"), STR("stop"), STORE_ANY, NULL, NULL), 0);
    assert_int_equal(store_list(s, STR("i/"), keep_key, &out, NULL), -ECANCELED);
    assert_string_equal(out.data, "i/1=stop ");
    /* A walk that was stopped leaves the store usable. */
    assert_int_equal(store_delete_if(s, STR("i/1"), STORE_ANY, NULL), 0);
}

static int keep_record(void *ctx, const struct store_record *r)
{
    return buf_printf(ctx, "%d:" STR_FMT " ", (int)r->seq, STR_ARG(r->value));
}

static void logs(struct store *s)
{
    static const struct store_log decisions = { "decisions", 3 }, other = { "other", 2 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct store_log_stat stat;
    assert_int_equal(store_log_stat(s, &decisions, &stat, NULL), 0);
    assert_int_equal(stat.first + stat.last + stat.count + stat.dropped, 0);
    for (int i = 1; i <= 5; i++) {
        char text[16];
        uint64_t seq = 0;
        snprintf(text, sizeof text, "d%d", i);
        assert_int_equal(store_append(s, &decisions, str_from(text), &seq, NULL), 0);
        assert_int_equal(seq, i);
    }
    assert_int_equal(store_append(s, &other, STR(""), NULL, NULL), 0);
    assert_int_equal(store_log_read(s, &decisions, 0, 10, keep_record, &out, NULL), 0);
    assert_string_equal(out.data, "3:d3 4:d4 5:d5 ");
    buf_clear(&out);
    assert_int_equal(store_log_read(s, &decisions, 4, 1, keep_record, &out, NULL), 0);
    assert_string_equal(out.data, "4:d4 ");
    buf_clear(&out);
    assert_int_equal(store_log_read(s, &decisions, 6, 10, keep_record, &out, NULL), 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(store_log_stat(s, &decisions, &stat, NULL), 0);
    assert_int_equal(stat.first, 3);
    assert_int_equal(stat.last, 5);
    assert_int_equal(stat.count, 3);
    assert_int_equal(stat.dropped, 2);
    /* A smaller bound takes effect with the next record. */
    static const struct store_log smaller = { "decisions", 1 };
    assert_int_equal(store_append(s, &smaller, STR("d6"), NULL, NULL), 0);
    assert_int_equal(store_log_stat(s, &smaller, &stat, NULL), 0);
    assert_int_equal(stat.count, 1);
    assert_int_equal(stat.dropped, 5);
}

/* A full disk at each kind of write gives an error and changes nothing. */
static void full_disk(struct store *s)
{
    static const struct store_log log = { "log", 2 };
    uint64_t version = 0;
    struct store_log_stat before, after;
    struct err err = { 0 };
    assert_int_equal(store_put_if(s, STR("k"), STR("old"), STORE_ANY, &version, NULL), 0);
    assert_int_equal(store_append(s, &log, STR("1"), NULL, NULL), 0);
    assert_int_equal(store_log_stat(s, &log, &before, NULL), 0);
    for (int i = 0; i < 4; i++) {
        fault_arm("store.write", 1);
        int rc = i == 0   ? store_put_if(s, STR("k"), STR("new"), version, NULL, &err)
                 : i == 1 ? store_put_if(s, STR("n"), STR("new"), STORE_ABSENT, NULL, &err)
                 : i == 2 ? store_delete_if(s, STR("k"), version, &err)
                          : store_append(s, &log, STR("2"), NULL, &err);
        fault_disarm();
        assert_int_equal(rc, -ENOSPC);
    }
    assert_value(s, STR("k"), STR("old"), version);
    assert_int_equal(store_get(s, STR("n"), NULL, NULL, NULL), -ENOENT);
    assert_int_equal(store_log_stat(s, &log, &after, NULL), 0);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(store_put_if(s, STR("k"), STR("new"), version, NULL, NULL), 0);
}

static void (*const both[])(struct store *) = { versions, sizes, lists, logs, full_disk };

static void both_backends_answer_alike(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        for (size_t i = 0; i < COUNT_OF(both); i++) {
            struct store *s = open_backend(backend);
            both[i](s);
            store_close(s);
        }
    }
}

/* The same random operations on both give the same results, versions and walks. */
static void random_operations_agree(void **state)
{
    (void)state;
    static const struct store_log log = { "log", 5 };
    struct store *s[2] = { open_backend(0), open_backend(1) };
    struct rng rng;
    rng_seed(&rng, 7);
    for (int i = 0; i < 400; i++) {
        char key[8], value[24];
        int rc[2];
        uint64_t version[2] = { 0 }, op = rng_below(&rng, 4), expect = rng_below(&rng, 20);
        uint64_t expected = expect == 0 ? STORE_ANY : expect;
        snprintf(key, sizeof key, "k%d", (int)rng_below(&rng, 6));
        snprintf(value, sizeof value, "v%d", i);
        for (int b = 0; b < 2; b++) {
            rc[b] = op == 0   ? store_put_if(s[b], str_from(key), str_from(value), STORE_ABSENT,
                                             &version[b], NULL)
                    : op == 1 ? store_put_if(s[b], str_from(key), str_from(value), expected,
                                             &version[b], NULL)
                    : op == 2 ? store_delete_if(s[b], str_from(key), expected, NULL)
                              : store_append(s[b], &log, str_from(value), &version[b], NULL);
        }
        assert_int_equal(rc[0], rc[1]);
        assert_int_equal(version[0], version[1]);
    }
    CLEANUP(buf_fini) struct buf a = { 0 }, b = { 0 };
    assert_int_equal(store_list(s[0], STR(""), keep_key, &a, NULL), 0);
    assert_int_equal(store_list(s[1], STR(""), keep_key, &b, NULL), 0);
    assert_int_equal(store_log_read(s[0], &log, 0, 9, keep_record, &a, NULL), 0);
    assert_int_equal(store_log_read(s[1], &log, 0, 9, keep_record, &b, NULL), 0);
    assert_true(a.len > 10);
    assert_string_equal(a.data, b.data);
    store_close(s[0]);
    store_close(s[1]);
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
        cmocka_unit_test(both_backends_answer_alike),
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
