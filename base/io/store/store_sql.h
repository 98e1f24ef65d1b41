/* store_sql.h - opens and checks the SQLite file behind store_file.c, and runs its statements.
 *
 * Layer: base/io, private to store_file.c
 * Use:   STATEMENT(q, ST_GET); sql_bind_blob(st, 1, key); sql_step(q, st, err);
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"

#include <limits.h>

struct sqlite3;
struct sqlite3_stmt;

enum statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_REVISION_GET,
    ST_REVISION_SET,
    ST_EPOCH_GET,
    ST_EPOCH_SET,
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

struct sql {
    struct sqlite3 *db;
    struct sqlite3_stmt *statements[ST_COUNT];
    char path[PATH_MAX];
};

/* Opens or creates q->path, with the errors of store_file_open. Call sql_close also after a failure. */
int sql_open(struct sql *q, uint64_t bytes_max, struct err *err);
void sql_close(struct sql *q);

/* Declares `st`, a prepared statement, which is reset at the end of the scope. */
#define STATEMENT(q, which) CLEANUP(sql_reset) struct sqlite3_stmt *st = (q)->statements[which]
void sql_reset(struct sqlite3_stmt **st);

/* Parameters count from 1. A bound value is borrowed until the reset. */
void sql_bind_blob(struct sqlite3_stmt *st, int at, struct str s);
void sql_bind_text(struct sqlite3_stmt *st, int at, const char *text);
void sql_bind_number(struct sqlite3_stmt *st, int at, uint64_t v);

/* Steps a statement. Returns 1: there is a row; 0: no row, or no more; or the failure. */
int sql_step(struct sql *q, struct sqlite3_stmt *st, struct err *err);

/* Columns of the row count from 0; a blob lives until the next step. */
uint64_t sql_column_number(struct sqlite3_stmt *st, int at);
struct str sql_column_blob(struct sqlite3_stmt *st, int at);

/* Runs one step of a statement without parameters. */
int sql_run(struct sql *q, enum statement which, struct err *err);

/* Ends the transaction: by COMMIT if rc is 0, by ROLLBACK otherwise or when COMMIT fails. Returns rc, or
 * the error of COMMIT. */
int sql_finish(struct sql *q, int rc, struct err *err);

/* Returns how many rows the last statement changed. */
uint64_t sql_changes(const struct sql *q);
