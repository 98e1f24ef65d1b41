/* store.h - stores durable state: keys with versions, and bounded logs.
 *
 * Layer:    base/io (base/core; SQLite in store_sql.c only)
 * Threads:  the owner's only; calls block until the change is durable (fsync)
 * Rules:    (1) a call that returned 0 is on disk; one that failed changed nothing
 *           (2) a version is never given twice in a store's life, so a key that was deleted and
 *               made again cannot be mistaken for the old one
 *           (3) one owner: a second opener of the same file is refused with a sentence
 * Values are bytes, JSON by convention.
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#define STORE_KEY_BYTES_MAX 512
#define STORE_VALUE_BYTES_MAX ((size_t)1 << 20)
#define STORE_FILE_BYTES_MAX ((uint64_t)1 << 30) /* when the opener names none: -ENOSPC beyond */

#define STORE_ABSENT ((uint64_t)0) /* expected version: the key must not exist */
#define STORE_ANY UINT64_MAX       /* expected version: whatever is there */

struct store; /* from store_file_open or store_memory_open */

struct store_entry {
    struct str key, value; /* borrowed for the callback */
    uint64_t version;
};

struct store_record {
    uint64_t seq; /* 1, 2, ... within the log, never reused */
    struct str value;
};

/* A log, declared static by its writer. Appending beyond count_max drops the oldest record. */
struct store_log {
    const char *name;
    uint64_t count_max;
};

struct store_log_stat {
    uint64_t first, last; /* seq of the oldest and newest kept; 0, 0 when empty */
    uint64_t count;
    uint64_t dropped; /* ever, by the bound */
};

/* Non-zero stops the walk and becomes its result. */
typedef int (*store_entry_fn)(void *ctx, const struct store_entry *e);
typedef int (*store_record_fn)(void *ctx, const struct store_record *r);

/* Opens or creates a store. -EBUSY: another process owns it. -EILSEQ: not a Muster store, damaged, or
 * written by a newer version. bytes_max 0: STORE_FILE_BYTES_MAX. */
int store_file_open(const char *path, uint64_t bytes_max, struct store **ret, struct err *err);

/* Makes a store that behaves the same and has no file, for the simulator and tests. entries_max bounds
 * keys and records. */
int store_memory_open(uint32_t entries_max, struct store **ret, struct err *err);

void store_close(struct store *s);
/* Appends the key's value to *value (may be NULL). -ENOENT. */
int store_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
              struct err *err);

/* Writes a value if the key has the expected version. -EEXIST: STORE_ABSENT was expected and the key
 * exists. -ESTALE: the key has another version, or does not exist. -ENOSPC when the disk or the bound is
 * full: the old value stays. */
int store_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                 uint64_t *ret_version, struct err *err);

/* Deletes a key if it has the expected version. -ENOENT, -ESTALE. */
int store_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err);

/* Calls fn for each key with the prefix, in bytewise order. fn must not change the store. */
int store_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx, struct err *err);

int store_append(struct store *s, const struct store_log *log, struct str value, uint64_t *ret_seq,
                 struct err *err);

/* Calls fn for up to `max` records with seq >= from_seq, oldest first. */
int store_log_read(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                   store_record_fn fn, void *ctx, struct err *err);
int store_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                   struct err *err);
