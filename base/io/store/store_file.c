/* store_file.c - keeps the store of one machine in an SQLite file that one process owns.
 *
 * It uses SQLite and not files of our own, because SQLite is built to survive a torn write, a full disk
 * and a crash between two writes; store_sql.c speaks to it. Two locks keep other owners out: a lock file,
 * which lets the refusal name the holder, and SQLite's exclusive locking mode.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/store/store_backend.h"
#include "base/io/store/store_sql.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct file_store {
    struct store store;
    struct sql sql;
    uint64_t revision; /* the last version given; ours alone, so it need not be read again */
    int lock_fd;
};

static struct file_store *file_of(struct store *s)
{
    return (struct file_store *)(void *)s;
}

/* ---- entries ---- */

/* Gets the version of a key; 0 for a key that does not exist. */
static int version_of(struct file_store *f, struct str key, uint64_t *ret, struct err *err)
{
    STATEMENT(&f->sql, ST_VERSION);
    sql_bind_blob(st, 1, key);
    int rc = sql_step(&f->sql, st, err);
    if (rc >= 0) *ret = rc > 0 ? sql_column_number(st, 0) : 0;
    return rc < 0 ? rc : 0;
}

static int absent(struct str key, struct err *err)
{
    return err_set(err, -ENOENT, "store: no '%.*s'", (int)min_size(key.len, 80), key.data);
}

static int file_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
                    struct err *err)
{
    struct file_store *f = file_of(s);
    STATEMENT(&f->sql, ST_GET);
    sql_bind_blob(st, 1, key);
    int rc = sql_step(&f->sql, st, err);
    if (rc <= 0) return rc < 0 ? rc : absent(key, err);
    if (value && buf_str(value, sql_column_blob(st, 1)) < 0)
        return err_set(err, value->rc, "store: no room for the value");
    if (ret_version) *ret_version = sql_column_number(st, 0);
    return 0;
}

static int entry_write(struct file_store *f, struct str key, struct str value, uint64_t version,
                       struct err *err)
{
    STATEMENT(&f->sql, ST_PUT);
    sql_bind_blob(st, 1, key);
    sql_bind_blob(st, 2, value);
    sql_bind_number(st, 3, version);
    return sql_step(&f->sql, st, err);
}

static int revision_write(struct file_store *f, uint64_t revision, struct err *err)
{
    STATEMENT(&f->sql, ST_REVISION_SET);
    sql_bind_number(st, 1, revision);
    return sql_step(&f->sql, st, err);
}

static int file_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                       uint64_t *ret_version, struct err *err)
{
    struct file_store *f = file_of(s);
    uint64_t version, next = f->revision + 1;
    int rc = sql_run(&f->sql, ST_BEGIN, err);
    if (rc < 0) return rc;
    rc = version_of(f, key, &version, err);
    if (rc == 0) rc = store_version_check(key, version, expected, err);
    if (rc == 0) rc = entry_write(f, key, value, next, err);
    if (rc == 0) rc = revision_write(f, next, err);
    rc = sql_finish(&f->sql, rc, err);
    if (rc < 0) return rc;
    f->revision = next;
    *ret_version = next;
    return 0;
}

static int entry_delete(struct file_store *f, struct str key, struct err *err)
{
    STATEMENT(&f->sql, ST_DELETE);
    sql_bind_blob(st, 1, key);
    return sql_step(&f->sql, st, err);
}

static int file_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    struct file_store *f = file_of(s);
    uint64_t version;
    int rc = sql_run(&f->sql, ST_BEGIN, err);
    if (rc < 0) return rc;
    rc = version_of(f, key, &version, err);
    if (rc == 0 && version == 0) rc = absent(key, err);
    if (rc == 0) rc = store_version_check(key, version, expected, err);
    if (rc == 0) rc = entry_delete(f, key, err);
    return sql_finish(&f->sql, rc, err);
}

static int file_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx,
                     struct err *err)
{
    struct file_store *f = file_of(s);
    STATEMENT(&f->sql, ST_LIST);
    sql_bind_blob(st, 1, prefix);
    for (;;) {
        int rc = sql_step(&f->sql, st, err);
        if (rc <= 0) return rc;
        struct store_entry e = { .version = sql_column_number(st, 0),
                                 .value = sql_column_blob(st, 1),
                                 .key = sql_column_blob(st, 2) };
        if (!str_starts(e.key, prefix)) return 0;
        rc = fn(ctx, &e);
        if (rc != 0) return rc;
    }
}

/* ---- logs ---- */

static int log_get(struct file_store *f, const char *name, uint64_t *ret_last,
                   uint64_t *ret_dropped, struct err *err)
{
    STATEMENT(&f->sql, ST_LOG_GET);
    sql_bind_text(st, 1, name);
    int rc = sql_step(&f->sql, st, err);
    if (rc < 0) return rc;
    *ret_last = rc > 0 ? sql_column_number(st, 0) : 0;
    *ret_dropped = rc > 0 ? sql_column_number(st, 1) : 0;
    return 0;
}

static int log_set(struct file_store *f, const char *name, uint64_t last, uint64_t dropped,
                   struct err *err)
{
    STATEMENT(&f->sql, ST_LOG_SET);
    sql_bind_text(st, 1, name);
    sql_bind_number(st, 2, last);
    sql_bind_number(st, 3, dropped);
    return sql_step(&f->sql, st, err);
}

static int record_write(struct file_store *f, const char *name, uint64_t seq, struct str value,
                        struct err *err)
{
    STATEMENT(&f->sql, ST_RECORD_PUT);
    sql_bind_text(st, 1, name);
    sql_bind_number(st, 2, seq);
    sql_bind_blob(st, 3, value);
    return sql_step(&f->sql, st, err);
}

static int records_drop(struct file_store *f, const char *name, uint64_t to_seq, uint64_t *dropped,
                        struct err *err)
{
    STATEMENT(&f->sql, ST_RECORD_DROP);
    sql_bind_text(st, 1, name);
    sql_bind_number(st, 2, to_seq);
    int rc = sql_step(&f->sql, st, err);
    if (rc == 0) *dropped += sql_changes(&f->sql);
    return rc;
}

static int file_append(struct store *s, const struct store_log *log, struct str value,
                       uint64_t *ret_seq, struct err *err)
{
    struct file_store *f = file_of(s);
    uint64_t last, dropped;
    int rc = sql_run(&f->sql, ST_BEGIN, err);
    if (rc < 0) return rc;
    rc = log_get(f, log->name, &last, &dropped, err);
    if (rc == 0) rc = record_write(f, log->name, ++last, value, err);
    if (rc == 0 && last > log->count_max)
        rc = records_drop(f, log->name, last - log->count_max, &dropped, err);
    if (rc == 0) rc = log_set(f, log->name, last, dropped, err);
    rc = sql_finish(&f->sql, rc, err);
    if (rc == 0) *ret_seq = last;
    return rc;
}

static int file_log_read(struct store *s, const struct store_log *log, uint64_t from_seq,
                         uint64_t max, store_record_fn fn, void *ctx, struct err *err)
{
    struct file_store *f = file_of(s);
    STATEMENT(&f->sql, ST_RECORD_LIST);
    sql_bind_text(st, 1, log->name);
    sql_bind_number(st, 2, from_seq);
    sql_bind_number(st, 3, max);
    for (;;) {
        int rc = sql_step(&f->sql, st, err);
        if (rc <= 0) return rc;
        struct store_record r = { .seq = sql_column_number(st, 0),
                                  .value = sql_column_blob(st, 1) };
        rc = fn(ctx, &r);
        if (rc != 0) return rc;
    }
}

static int file_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                         struct err *err)
{
    struct file_store *f = file_of(s);
    struct store_log_stat stat = { 0 };
    int rc = log_get(f, log->name, &stat.last, &stat.dropped, err);
    if (rc < 0) return rc;
    STATEMENT(&f->sql, ST_LOG_FIRST);
    sql_bind_text(st, 1, log->name);
    rc = sql_step(&f->sql, st, err);
    if (rc < 0) return rc;
    stat.first = sql_column_number(st, 0); /* min() of nothing is NULL and reads as 0 */
    stat.count = stat.first > 0 && stat.last >= stat.first ? stat.last - stat.first + 1 : 0;
    *ret = stat;
    return 0;
}

/* ---- the lease, which is the owner's by the lock ---- */

static int file_lease_see(struct store *s, struct store_lease *ret, struct err *err)
{
    struct file_store *f = file_of(s);
    STATEMENT(&f->sql, ST_EPOCH_GET);
    int rc = sql_step(&f->sql, st, err);
    if (rc < 0) return rc;
    *ret = (struct store_lease){ .epoch = rc > 0 ? sql_column_number(st, 0) : 0 };
    return 0;
}

static int file_lease_acquire(struct store *s, const struct store_claim *claim,
                              const struct store_lease *seen, uint64_t epoch, struct err *err)
{
    (void)claim, (void)seen;
    struct file_store *f = file_of(s);
    STATEMENT(&f->sql, ST_EPOCH_SET);
    sql_bind_number(st, 1, epoch);
    return sql_step(&f->sql, st, err);
}

static int file_lease_renew(struct store *s, struct err *err)
{
    (void)s, (void)err;
    return 0;
}

static void file_lease_release(struct store *s)
{
    (void)s;
}

/* ---- open and close ---- */

static void file_close(struct store *s)
{
    struct file_store *f = file_of(s);
    sql_close(&f->sql);
    file_unlock(f->lock_fd); /* last: the next owner finds the file closed */
    free(f);
}

static void file_store_freep(struct file_store **f)
{
    if (*f) file_close(&(*f)->store);
}

static int revision_read(struct file_store *f, struct err *err)
{
    STATEMENT(&f->sql, ST_REVISION_GET);
    int rc = sql_step(&f->sql, st, err);
    if (rc < 0) return rc;
    if (rc == 0) return err_set(err, -EILSEQ, "store %s: damaged (no revision)", f->sql.path);
    f->revision = sql_column_number(st, 0);
    return 0;
}

static const struct store_ops file_ops = {
    .close = file_close,
    .get = file_get,
    .put_if = file_put_if,
    .delete_if = file_delete_if,
    .list = file_list,
    .append = file_append,
    .log_read = file_log_read,
    .log_stat = file_log_stat,
    .lease_see = file_lease_see,
    .lease_acquire = file_lease_acquire,
    .lease_renew = file_lease_renew,
    .lease_release = file_lease_release,
};

int store_file_open(const char *path, uint64_t bytes_max, struct store **ret, struct err *err)
{
    char lock_path[PATH_MAX];
    CLEANUP(file_store_freep) struct file_store *f = calloc(1, sizeof *f);
    if (!f) return err_set(err, -ENOMEM, "store: no memory");
    f->store.ops = &file_ops;
    f->lock_fd = -1;
    if ((size_t)snprintf(f->sql.path, sizeof f->sql.path, "%s", path) >= sizeof f->sql.path ||
        (size_t)snprintf(lock_path, sizeof lock_path, "%s.lock", path) >= sizeof lock_path)
        return err_set(err, -ENAMETOOLONG, "store %.100s...: the path is too long", path);
    int rc = file_lock(lock_path, &f->lock_fd, err);
    if (rc == -EBUSY)
        return err_prefix(err, rc,
                          "the store %s has an owner already, stop it or choose another "
                          "file",
                          path);
    if (rc == 0) rc = sql_open(&f->sql, bytes_max, err);
    if (rc == 0) rc = revision_read(f, err);
    if (rc < 0) return rc;
    struct file_store *done = TAKE(f);
    *ret = &done->store;
    return 0;
}
