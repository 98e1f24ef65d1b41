/* store_file.c - the store of one machine: an SQLite file that one process owns.
 *
 * SQLite and not files of our own, because a torn write, a full disk and a crash between two
 * writes are its daily bread. Write-ahead log, synchronous=FULL: COMMIT returns after fsync.
 * The owner is guarded twice: a lock file whose holder can be named in the refusal, and SQLite's
 * exclusive locking mode, which also keeps other programs from writing and needs no shared
 * memory file. The only file that includes sqlite3.h.
 *
 *     meta(revision)   entries(key, value, version)   records(log, seq, value)
 *     logs(name, last, dropped)
 */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/store_backend.h"

#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define APPLICATION_ID 0x4d555354 /* "MUST", in the file's header */
#define SCHEMA_VERSION 1          /* user_version; a newer one is refused */
#define PAGE_BYTES 4096
#define PAGES_MIN 16                    /* an empty store's tables fit */
#define WAL_BYTES_MAX ((size_t)8 << 20) /* kept after a checkpoint */

enum statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_REVISION_GET,
    ST_REVISION_SET,
    ST_GET,
    ST_VERSION,
    ST_PUT,
    ST_DELETE,
    ST_LIST,
    ST_LOG_GET,
    ST_LOG_SET,
    ST_LOG_FIRST,
    ST_RECORD_PUT,
    ST_RECORD_DROP,
    ST_RECORD_LIST,
    ST_COUNT
};

static const char *const statement_texts[ST_COUNT] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
    [ST_REVISION_GET] = "SELECT value FROM meta WHERE name = 'revision'",
    [ST_REVISION_SET] = "UPDATE meta SET value = ?1 WHERE name = 'revision'",
    [ST_GET] = "SELECT version, value FROM entries WHERE key = ?1",
    [ST_VERSION] = "SELECT version FROM entries WHERE key = ?1",
    [ST_PUT] = "INSERT INTO entries(key, value, version) VALUES(?1, ?2, ?3) "
               "ON CONFLICT(key) DO UPDATE SET value = ?2, version = ?3",
    [ST_DELETE] = "DELETE FROM entries WHERE key = ?1",
    [ST_LIST] = "SELECT version, value, key FROM entries WHERE key >= ?1 ORDER BY key",
    [ST_LOG_GET] = "SELECT last, dropped FROM logs WHERE name = ?1",
    [ST_LOG_SET] = "INSERT INTO logs(name, last, dropped) VALUES(?1, ?2, ?3) "
                   "ON CONFLICT(name) DO UPDATE SET last = ?2, dropped = ?3",
    [ST_LOG_FIRST] = "SELECT min(seq) FROM records WHERE log = ?1",
    [ST_RECORD_PUT] = "INSERT INTO records(log, seq, value) VALUES(?1, ?2, ?3)",
    [ST_RECORD_DROP] = "DELETE FROM records WHERE log = ?1 AND seq <= ?2",
    [ST_RECORD_LIST] = "SELECT seq, value FROM records WHERE log = ?1 AND seq >= ?2 "
                       "ORDER BY seq LIMIT ?3",
};

static const char schema_text[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('revision', 0);"
    "CREATE TABLE entries(key BLOB PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL);"
    "CREATE TABLE records(log TEXT NOT NULL, seq INTEGER NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY(log, seq));"
    "CREATE TABLE logs(name TEXT PRIMARY KEY, last INTEGER NOT NULL, dropped INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "PRAGMA application_id = 1297437524;"
    "PRAGMA user_version = 1;"
    "COMMIT";
_Static_assert(APPLICATION_ID == 1297437524 && SCHEMA_VERSION == 1, "as written in schema_text");

struct file_store {
    struct store store;
    sqlite3 *db;
    sqlite3_stmt *statements[ST_COUNT];
    uint64_t revision; /* the last version given; ours alone, so it need not be read again */
    int lock_fd;
    char path[PATH_MAX];
};

static struct file_store *file_of(struct store *s)
{
    return (struct file_store *)(void *)s;
}

/* ---- errors ---- */

static const struct {
    int code, rc;
    const char *next; /* what to do about it */
} failures[] = {
    { SQLITE_FULL, -ENOSPC, "; nothing was changed" },
    { SQLITE_BUSY, -EBUSY, "; is it open in another program?" },
    { SQLITE_LOCKED, -EBUSY, "" },
    { SQLITE_CORRUPT, -EILSEQ, "; restore a copy, or move it away to start empty" },
    { SQLITE_NOTADB, -EILSEQ, "; it is no Muster store" },
    { SQLITE_NOMEM, -ENOMEM, "" },
    { SQLITE_READONLY, -EROFS, "" },
    { SQLITE_CANTOPEN, -EACCES, "" },
    { SQLITE_TOOBIG, -EFBIG, "" },
};

static int fail(const struct file_store *f, int code, struct err *err)
{
    int rc = -EIO;
    const char *next = "";
    for (size_t i = 0; i < COUNT_OF(failures); i++)
        if (failures[i].code == (code & 0xff)) rc = failures[i].rc, next = failures[i].next;
    bool said = f->db && (sqlite3_errcode(f->db) & 0xff) == (code & 0xff);
    return err_set(err, rc, "store %s: %s%s", f->path,
                   said ? sqlite3_errmsg(f->db) : sqlite3_errstr(code), next);
}

/* ---- statements ---- */

static void statement_reset(sqlite3_stmt **st)
{
    sqlite3_reset(*st);
    sqlite3_clear_bindings(*st);
}

#define STATEMENT(f, which) CLEANUP(statement_reset) sqlite3_stmt *st = (f)->statements[which]

static void bind_blob(sqlite3_stmt *st, int at, struct str s)
{
    /* A NULL pointer would bind SQL's NULL. Borrowed: bindings are cleared before we return. */
    must(sqlite3_bind_blob(st, at, s.data ? s.data : "", (int)s.len, SQLITE_STATIC) == SQLITE_OK);
}

static void bind_text(sqlite3_stmt *st, int at, const char *text)
{
    must(sqlite3_bind_text(st, at, text, -1, SQLITE_STATIC) == SQLITE_OK);
}

static void bind_number(sqlite3_stmt *st, int at, uint64_t v)
{
    must(sqlite3_bind_int64(st, at, (sqlite3_int64)min_size(v, INT64_MAX)) == SQLITE_OK);
}

static uint64_t column_number(sqlite3_stmt *st, int at)
{
    sqlite3_int64 v = sqlite3_column_int64(st, at);
    return v > 0 ? (uint64_t)v : 0;
}

static struct str column_blob(sqlite3_stmt *st, int at)
{
    const void *data = sqlite3_column_blob(st, at); /* before the length, as SQLite asks */
    return str_of(data ? data : "", (size_t)sqlite3_column_bytes(st, at));
}

/* 1: a row, 0: none (any more), or the failure. */
static int step(struct file_store *f, sqlite3_stmt *st, struct err *err)
{
    int code = sqlite3_step(st);
    if (code == SQLITE_ROW) return 1;
    return code == SQLITE_DONE ? 0 : fail(f, code, err);
}

static int run(struct file_store *f, enum statement which, struct err *err)
{
    STATEMENT(f, which);
    return step(f, st, err);
}

/* Ends the transaction: with rc 0 by COMMIT, else, and when that fails, by ROLLBACK. */
static int finish(struct file_store *f, int rc, struct err *err)
{
    if (rc == 0 && FAULT("store.write")) rc = fail(f, SQLITE_FULL, err);
    if (rc == 0) rc = run(f, ST_COMMIT, err);
    /* Some failures have rolled back already. */
    if (rc < 0 && !sqlite3_get_autocommit(f->db)) run(f, ST_ROLLBACK, NULL);
    return rc;
}

/* ---- entries ---- */

/* 0 for a key that is not there. */
static int version_of(struct file_store *f, struct str key, uint64_t *ret, struct err *err)
{
    STATEMENT(f, ST_VERSION);
    bind_blob(st, 1, key);
    int rc = step(f, st, err);
    if (rc >= 0) *ret = rc > 0 ? column_number(st, 0) : 0;
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
    STATEMENT(f, ST_GET);
    bind_blob(st, 1, key);
    int rc = step(f, st, err);
    if (rc <= 0) return rc < 0 ? rc : absent(key, err);
    if (value && buf_str(value, column_blob(st, 1)) < 0)
        return err_set(err, value->rc, "store: no room for the value");
    if (ret_version) *ret_version = column_number(st, 0);
    return 0;
}

static int entry_write(struct file_store *f, struct str key, struct str value, uint64_t version,
                       struct err *err)
{
    STATEMENT(f, ST_PUT);
    bind_blob(st, 1, key);
    bind_blob(st, 2, value);
    bind_number(st, 3, version);
    return step(f, st, err);
}

static int revision_write(struct file_store *f, uint64_t revision, struct err *err)
{
    STATEMENT(f, ST_REVISION_SET);
    bind_number(st, 1, revision);
    return step(f, st, err);
}

static int file_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                       uint64_t *ret_version, struct err *err)
{
    struct file_store *f = file_of(s);
    uint64_t version, next = f->revision + 1;
    int rc = run(f, ST_BEGIN, err);
    if (rc < 0) return rc;
    rc = version_of(f, key, &version, err);
    if (rc == 0) rc = store_version_check(key, version, expected, err);
    if (rc == 0) rc = entry_write(f, key, value, next, err);
    if (rc == 0) rc = revision_write(f, next, err);
    rc = finish(f, rc, err);
    if (rc < 0) return rc;
    f->revision = next;
    *ret_version = next;
    return 0;
}

static int entry_delete(struct file_store *f, struct str key, struct err *err)
{
    STATEMENT(f, ST_DELETE);
    bind_blob(st, 1, key);
    return step(f, st, err);
}

static int file_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    struct file_store *f = file_of(s);
    uint64_t version;
    int rc = run(f, ST_BEGIN, err);
    if (rc < 0) return rc;
    rc = version_of(f, key, &version, err);
    if (rc == 0 && version == 0) rc = absent(key, err);
    if (rc == 0) rc = store_version_check(key, version, expected, err);
    if (rc == 0) rc = entry_delete(f, key, err);
    return finish(f, rc, err);
}

static int file_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx,
                     struct err *err)
{
    struct file_store *f = file_of(s);
    STATEMENT(f, ST_LIST);
    bind_blob(st, 1, prefix);
    for (;;) {
        int rc = step(f, st, err);
        if (rc <= 0) return rc;
        struct store_entry e = { .version = column_number(st, 0),
                                 .value = column_blob(st, 1),
                                 .key = column_blob(st, 2) };
        if (!str_starts(e.key, prefix)) return 0;
        rc = fn(ctx, &e);
        if (rc != 0) return rc;
    }
}

/* ---- logs ---- */

static int log_get(struct file_store *f, const char *name, uint64_t *ret_last,
                   uint64_t *ret_dropped, struct err *err)
{
    STATEMENT(f, ST_LOG_GET);
    bind_text(st, 1, name);
    int rc = step(f, st, err);
    if (rc < 0) return rc;
    *ret_last = rc > 0 ? column_number(st, 0) : 0;
    *ret_dropped = rc > 0 ? column_number(st, 1) : 0;
    return 0;
}

static int log_set(struct file_store *f, const char *name, uint64_t last, uint64_t dropped,
                   struct err *err)
{
    STATEMENT(f, ST_LOG_SET);
    bind_text(st, 1, name);
    bind_number(st, 2, last);
    bind_number(st, 3, dropped);
    return step(f, st, err);
}

static int record_write(struct file_store *f, const char *name, uint64_t seq, struct str value,
                        struct err *err)
{
    STATEMENT(f, ST_RECORD_PUT);
    bind_text(st, 1, name);
    bind_number(st, 2, seq);
    bind_blob(st, 3, value);
    return step(f, st, err);
}

static int records_drop(struct file_store *f, const char *name, uint64_t to_seq, uint64_t *dropped,
                        struct err *err)
{
    STATEMENT(f, ST_RECORD_DROP);
    bind_text(st, 1, name);
    bind_number(st, 2, to_seq);
    int rc = step(f, st, err);
    if (rc == 0) *dropped += (uint64_t)sqlite3_changes(f->db);
    return rc;
}

static int file_append(struct store *s, const struct store_log *log, struct str value,
                       uint64_t *ret_seq, struct err *err)
{
    struct file_store *f = file_of(s);
    uint64_t last, dropped;
    int rc = run(f, ST_BEGIN, err);
    if (rc < 0) return rc;
    rc = log_get(f, log->name, &last, &dropped, err);
    if (rc == 0) rc = record_write(f, log->name, ++last, value, err);
    if (rc == 0 && last > log->count_max)
        rc = records_drop(f, log->name, last - log->count_max, &dropped, err);
    if (rc == 0) rc = log_set(f, log->name, last, dropped, err);
    rc = finish(f, rc, err);
    if (rc == 0) *ret_seq = last;
    return rc;
}

static int file_log_read(struct store *s, const struct store_log *log, uint64_t from_seq,
                         uint64_t max, store_record_fn fn, void *ctx, struct err *err)
{
    struct file_store *f = file_of(s);
    STATEMENT(f, ST_RECORD_LIST);
    bind_text(st, 1, log->name);
    bind_number(st, 2, from_seq);
    bind_number(st, 3, max);
    for (;;) {
        int rc = step(f, st, err);
        if (rc <= 0) return rc;
        struct store_record r = { .seq = column_number(st, 0), .value = column_blob(st, 1) };
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
    STATEMENT(f, ST_LOG_FIRST);
    bind_text(st, 1, log->name);
    rc = step(f, st, err);
    if (rc < 0) return rc;
    stat.first = column_number(st, 0); /* min() of nothing is NULL and reads as 0 */
    stat.count = stat.first > 0 && stat.last >= stat.first ? stat.last - stat.first + 1 : 0;
    *ret = stat;
    return 0;
}

/* ---- open and close ---- */

static void file_close(struct store *s)
{
    struct file_store *f = file_of(s);
    for (int i = 0; i < ST_COUNT; i++)
        sqlite3_finalize(f->statements[i]);
    sqlite3_close(f->db);
    file_unlock(f->lock_fd); /* last: the next owner finds the file closed */
    free(f);
}

static void file_store_freep(struct file_store **f)
{
    if (*f) file_close(&(*f)->store);
}

static int execute(struct file_store *f, const char *sql, struct err *err)
{
    int code = sqlite3_exec(f->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : fail(f, code, err);
}

/* The first column of the first row, as a number and as text. */
static int ask(struct file_store *f, const char *sql, int64_t *ret, struct buf *text,
               struct err *err)
{
    sqlite3_stmt *st = NULL;
    int code = sqlite3_prepare_v2(f->db, sql, -1, &st, NULL);
    int rc = code == SQLITE_OK ? step(f, st, err) : fail(f, code, err);
    if (rc > 0) {
        if (ret) *ret = sqlite3_column_int64(st, 0);
        const char *column = (const char *)sqlite3_column_text(st, 0);
        rc = text && column ? buf_text(text, column) : 0;
    }
    sqlite3_finalize(st);
    return rc;
}

/* Whose file it is, before anything in it is changed. */
static int identity_check(struct file_store *f, bool *ret_empty, struct err *err)
{
    int64_t id = 0, version = 0, tables = 0;
    int rc = ask(f, "PRAGMA application_id", &id, NULL, err);
    if (rc == 0) rc = ask(f, "PRAGMA user_version", &version, NULL, err);
    if (rc == 0) rc = ask(f, "SELECT count(*) FROM sqlite_schema", &tables, NULL, err);
    if (rc < 0) return rc;
    *ret_empty = id == 0 && version == 0 && tables == 0;
    if (*ret_empty) return 0;
    if (id != APPLICATION_ID)
        return err_set(err, -EILSEQ, "store %s: a database of another program", f->path);
    if (version != SCHEMA_VERSION)
        return err_set(err, -EILSEQ, "store %s: of version %lld, this program knows %d", f->path,
                       (long long)version, SCHEMA_VERSION);
    return 0;
}

static int content_check(struct file_store *f, struct err *err)
{
    CLEANUP(buf_fini) struct buf verdict = { 0 };
    int rc = ask(f, "PRAGMA quick_check(1)", NULL, &verdict, err);
    if (rc < 0 || str_eq(buf_view(&verdict), STR("ok"))) return rc;
    return err_set(err, -EILSEQ, "store %s: damaged (%.200s); restore a copy, or move it away",
                   f->path, verdict.len ? verdict.data : "no verdict");
}

static int configure(struct file_store *f, uint64_t bytes_max, struct err *err)
{
    char text[256];
    uint64_t pages = (bytes_max ? bytes_max : STORE_FILE_BYTES_MAX) / PAGE_BYTES;
    snprintf(text, sizeof text,
             "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA max_page_count = %llu;"
             "PRAGMA journal_size_limit = %zu; PRAGMA cell_size_check = ON",
             (unsigned long long)(pages > PAGES_MIN ? pages : PAGES_MIN), WAL_BYTES_MAX);
    int rc = execute(f, text, err);
    if (rc < 0) return rc;
    CLEANUP(buf_fini) struct buf mode = { 0 };
    rc = ask(f, "PRAGMA journal_mode", NULL, &mode, err);
    if (rc < 0 || str_eq(buf_view(&mode), STR("wal"))) return rc;
    return err_set(err, -ENOTSUP, "store %s: this file system cannot hold a write-ahead log",
                   f->path);
}

static int statements_make(struct file_store *f, struct err *err)
{
    for (int i = 0; i < ST_COUNT; i++) {
        int code = sqlite3_prepare_v3(f->db, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                      &f->statements[i], NULL);
        if (code != SQLITE_OK) return fail(f, code, err);
    }
    STATEMENT(f, ST_REVISION_GET);
    int rc = step(f, st, err);
    if (rc < 0) return rc;
    if (rc == 0) return err_set(err, -EILSEQ, "store %s: damaged (no revision)", f->path);
    f->revision = column_number(st, 0);
    return 0;
}

static int database_open(struct file_store *f, uint64_t bytes_max, struct err *err)
{
    /* SQLite would make it readable for everybody; the log it writes beside follows this mode. */
    int fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, -errno, "cannot open the store %s: %s", f->path, strerror(errno));
    close(fd);
    int code = sqlite3_open_v2(f->path, &f->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) return fail(f, code, err);
    bool empty;
    int rc = execute(f, "PRAGMA trusted_schema = OFF; PRAGMA locking_mode = EXCLUSIVE", err);
    if (rc == 0) rc = identity_check(f, &empty, err);
    if (rc == 0) rc = configure(f, bytes_max, err);
    if (rc == 0) rc = empty ? execute(f, schema_text, err) : content_check(f, err);
    return rc < 0 ? rc : statements_make(f, err);
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
};

int store_file_open(const char *path, uint64_t bytes_max, struct store **ret, struct err *err)
{
    char lock_path[PATH_MAX];
    CLEANUP(file_store_freep) struct file_store *f = calloc(1, sizeof *f);
    if (!f) return err_set(err, -ENOMEM, "store: no memory");
    f->store.ops = &file_ops;
    f->lock_fd = -1;
    if ((size_t)snprintf(f->path, sizeof f->path, "%s", path) >= sizeof f->path ||
        (size_t)snprintf(lock_path, sizeof lock_path, "%s.lock", path) >= sizeof lock_path)
        return err_set(err, -ENAMETOOLONG, "store %.100s...: the path is too long", path);
    int rc = file_lock(lock_path, &f->lock_fd, err);
    if (rc == -EBUSY)
        return err_prefix(err, rc,
                          "the store %s has an owner already, stop it or choose another "
                          "file",
                          path);
    if (rc == 0) rc = database_open(f, bytes_max, err);
    if (rc < 0) return rc;
    struct file_store *done = TAKE(f);
    *ret = &done->store;
    return 0;
}
