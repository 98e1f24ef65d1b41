/* store_sql.c - opens the SQLite file of store_file.c, makes its tables and runs its statements. The
 * only file that includes sqlite3.h.
 *
 *     meta(revision, epoch)   entries(key, value, version)   records(log, seq, value)
 *     logs(name, last, dropped)
 *
 * Write-ahead log, synchronous=FULL: COMMIT returns after fsync. SQLite's exclusive locking mode
 * keeps other programs from writing and needs no shared memory file. */
#include "base/io/store/store_sql.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/store/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#define APPLICATION_ID 0x4d555354 /* "MUST", in the file's header */
#define SCHEMA_VERSION 1          /* user_version; a newer one is refused */
#define PAGE_BYTES 4096
#define PAGES_MIN 16                    /* an empty store's tables fit */
#define WAL_BYTES_MAX ((size_t)8 << 20) /* kept after a checkpoint */

static const char *const statement_texts[ST_COUNT] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
    [ST_REVISION_GET] = "SELECT value FROM meta WHERE name = 'revision'",
    [ST_REVISION_SET] = "UPDATE meta SET value = ?1 WHERE name = 'revision'",
    [ST_EPOCH_GET] = "SELECT value FROM meta WHERE name = 'epoch'",
    [ST_EPOCH_SET] = "INSERT INTO meta(name, value) VALUES('epoch', ?1) "
                     "ON CONFLICT(name) DO UPDATE SET value = ?1",
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

static int fail(const struct sql *q, int code, struct err *err)
{
    int rc = -EIO;
    const char *next = "";
    for (size_t i = 0; i < COUNT_OF(failures); i++)
        if (failures[i].code == (code & 0xff)) rc = failures[i].rc, next = failures[i].next;
    bool said = q->db && (sqlite3_errcode(q->db) & 0xff) == (code & 0xff);
    return err_set(err, rc, "store %s: %s%s", q->path,
                   said ? sqlite3_errmsg(q->db) : sqlite3_errstr(code), next);
}

/* ---- statements ---- */

void sql_reset(struct sqlite3_stmt **st)
{
    sqlite3_reset(*st);
    sqlite3_clear_bindings(*st);
}

void sql_bind_blob(struct sqlite3_stmt *st, int at, struct str s)
{
    /* A NULL pointer would bind SQL's NULL. Borrowed: bindings are cleared before we return. */
    must(sqlite3_bind_blob(st, at, s.data ? s.data : "", (int)s.len, SQLITE_STATIC) == SQLITE_OK);
}

void sql_bind_text(struct sqlite3_stmt *st, int at, const char *text)
{
    must(sqlite3_bind_text(st, at, text, -1, SQLITE_STATIC) == SQLITE_OK);
}

void sql_bind_number(struct sqlite3_stmt *st, int at, uint64_t v)
{
    must(sqlite3_bind_int64(st, at, (sqlite3_int64)min_size(v, INT64_MAX)) == SQLITE_OK);
}

uint64_t sql_column_number(struct sqlite3_stmt *st, int at)
{
    sqlite3_int64 v = sqlite3_column_int64(st, at);
    return v > 0 ? (uint64_t)v : 0;
}

struct str sql_column_blob(struct sqlite3_stmt *st, int at)
{
    const void *data = sqlite3_column_blob(st, at); /* before the length, as SQLite asks */
    return str_of(data ? data : "", (size_t)sqlite3_column_bytes(st, at));
}

int sql_step(struct sql *q, struct sqlite3_stmt *st, struct err *err)
{
    int code = sqlite3_step(st);
    if (code == SQLITE_ROW) return 1;
    return code == SQLITE_DONE ? 0 : fail(q, code, err);
}

int sql_run(struct sql *q, enum statement which, struct err *err)
{
    STATEMENT(q, which);
    return sql_step(q, st, err);
}

int sql_finish(struct sql *q, int rc, struct err *err)
{
    if (rc == 0 && FAULT("store.write")) rc = fail(q, SQLITE_FULL, err);
    if (rc == 0) rc = sql_run(q, ST_COMMIT, err);
    /* Some failures have rolled back already. */
    if (rc < 0 && !sqlite3_get_autocommit(q->db)) sql_run(q, ST_ROLLBACK, NULL);
    return rc;
}

uint64_t sql_changes(const struct sql *q)
{
    return (uint64_t)sqlite3_changes(q->db);
}

/* ---- open and close ---- */

static int execute(struct sql *q, const char *sql, struct err *err)
{
    int code = sqlite3_exec(q->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : fail(q, code, err);
}

/* Reads the first column of the first row, as a number and as text. */
static int ask(struct sql *q, const char *sql, int64_t *ret, struct buf *text, struct err *err)
{
    struct sqlite3_stmt *st = NULL;
    int code = sqlite3_prepare_v2(q->db, sql, -1, &st, NULL);
    int rc = code == SQLITE_OK ? sql_step(q, st, err) : fail(q, code, err);
    if (rc > 0) {
        if (ret) *ret = sqlite3_column_int64(st, 0);
        const char *column = (const char *)sqlite3_column_text(st, 0);
        rc = text && column ? buf_text(text, column) : 0;
    }
    sqlite3_finalize(st);
    return rc;
}

/* Checks that the file is a store of this version, or empty, before anything in it is changed. */
static int identity_check(struct sql *q, bool *ret_empty, struct err *err)
{
    int64_t id = 0, version = 0, tables = 0;
    int rc = ask(q, "PRAGMA application_id", &id, NULL, err);
    if (rc == 0) rc = ask(q, "PRAGMA user_version", &version, NULL, err);
    if (rc == 0) rc = ask(q, "SELECT count(*) FROM sqlite_schema", &tables, NULL, err);
    if (rc < 0) return rc;
    *ret_empty = id == 0 && version == 0 && tables == 0;
    if (*ret_empty) return 0;
    if (id != APPLICATION_ID)
        return err_set(err, -EILSEQ, "store %s: a database of another program", q->path);
    if (version != SCHEMA_VERSION)
        return err_set(err, -EILSEQ, "store %s: of version %lld, this program knows %d", q->path,
                       (long long)version, SCHEMA_VERSION);
    return 0;
}

static int content_check(struct sql *q, struct err *err)
{
    CLEANUP(buf_fini) struct buf verdict = { 0 };
    int rc = ask(q, "PRAGMA quick_check(1)", NULL, &verdict, err);
    if (rc < 0 || str_eq(buf_view(&verdict), STR("ok"))) return rc;
    return err_set(err, -EILSEQ, "store %s: damaged (%.200s); restore a copy, or move it away",
                   q->path, verdict.len ? verdict.data : "no verdict");
}

static int configure(struct sql *q, uint64_t bytes_max, struct err *err)
{
    char text[256];
    uint64_t pages = (bytes_max ? bytes_max : STORE_FILE_BYTES_MAX) / PAGE_BYTES;
    snprintf(text, sizeof text,
             "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA max_page_count = %llu;"
             "PRAGMA journal_size_limit = %zu; PRAGMA cell_size_check = ON",
             (unsigned long long)(pages > PAGES_MIN ? pages : PAGES_MIN), WAL_BYTES_MAX);
    int rc = execute(q, text, err);
    if (rc < 0) return rc;
    CLEANUP(buf_fini) struct buf mode = { 0 };
    rc = ask(q, "PRAGMA journal_mode", NULL, &mode, err);
    if (rc < 0 || str_eq(buf_view(&mode), STR("wal"))) return rc;
    return err_set(err, -ENOTSUP, "store %s: this file system cannot hold a write-ahead log",
                   q->path);
}

static int statements_make(struct sql *q, struct err *err)
{
    for (int i = 0; i < ST_COUNT; i++) {
        int code = sqlite3_prepare_v3(q->db, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                      &q->statements[i], NULL);
        if (code != SQLITE_OK) return fail(q, code, err);
    }
    return 0;
}

int sql_open(struct sql *q, uint64_t bytes_max, struct err *err)
{
    /* SQLite would make the file readable for all users; the log beside it gets the same mode. */
    int fd = open(q->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, -errno, "cannot open the store %s: %s", q->path, strerror(errno));
    close(fd);
    int code = sqlite3_open_v2(q->path, &q->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) return fail(q, code, err);
    bool empty;
    int rc = execute(q, "PRAGMA trusted_schema = OFF; PRAGMA locking_mode = EXCLUSIVE", err);
    if (rc == 0) rc = identity_check(q, &empty, err);
    if (rc == 0) rc = configure(q, bytes_max, err);
    if (rc == 0) rc = empty ? execute(q, schema_text, err) : content_check(q, err);
    return rc < 0 ? rc : statements_make(q, err);
}

void sql_close(struct sql *q)
{
    for (int i = 0; i < ST_COUNT; i++)
        sqlite3_finalize(q->statements[i]);
    sqlite3_close(q->db);
}
