/* store_sql.h - the SQLite file behind store_file.c: opened and checked, its statements at hand.
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

/* Opens or creates q->path, as store_file_open promises. sql_close also after a failure. */
int sql_open(struct sql *q, uint64_t bytes_max, struct err *err);
void sql_close(struct sql *q);

/* A prepared statement as `st`, ready again at the end of the scope. */
#define STATEMENT(q, which) CLEANUP(sql_reset) struct sqlite3_stmt *st = (q)->statements[which]
void sql_reset(struct sqlite3_stmt **st);

/* Parameters count from 1. What is bound is borrowed until the reset. */
void sql_bind_blob(struct sqlite3_stmt *st, int at, struct str s);
void sql_bind_text(struct sqlite3_stmt *st, int at, const char *text);
void sql_bind_number(struct sqlite3_stmt *st, int at, uint64_t v);

/* 1: a row, 0: none (any more), or the failure. */
int sql_step(struct sql *q, struct sqlite3_stmt *st, struct err *err);

/* Of the row, from 0; a blob lives until the next step. */
uint64_t sql_column_number(struct sqlite3_stmt *st, int at);
struct str sql_column_blob(struct sqlite3_stmt *st, int at);

/* One step of a statement without parameters. */
int sql_run(struct sql *q, enum statement which, struct err *err);

/* Ends the transaction: with rc 0 by COMMIT, else, and when that fails, by ROLLBACK. Returns rc, or
 * why the COMMIT failed. */
int sql_finish(struct sql *q, int rc, struct err *err);

/* Rows that the last statement changed. */
uint64_t sql_changes(const struct sql *q);
