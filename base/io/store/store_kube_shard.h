/* store_kube_shard.h - a part of a store's content as it is kept in one ConfigMap or Secret: its values in memory,
 * and their JSON.
 *
 * Layer:   base/io, private to store_kube*.c. No I/O and no clock
 * Threads: the store's
 * Rules:   (1) a change is made in three steps: shard_add and shard_drop mark values, shard_print writes what the
 *              API is sent, and shard_keep or shard_undo says what came of it
 *          (2) a value's name in the object is its number, which is never given twice, so that a patch that
 *              removes one and adds another cannot mistake them
 *          (3) `head` counts the writes of the object: of two copies the one with more writes is newer
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/kube/kube_api.h"

#define SHARD_NAME_BYTES 96
#define SHARD_LIFE_BYTES 17 /* 16 hexadecimal digits */
#define SHARD_LOG_BYTES 64
#define SHARD_BYTES_MAX ((size_t)1 << 20)  /* of all values; the API refuses more */
#define SHARD_PART_BYTES ((size_t)1 << 19) /* a longer value is kept in several parts */
#define SHARD_PARTS_MAX 3
#define SHARD_ITEMS_MAX 900 /* JSON_KEYS_MAX bounds what can be read back */

struct shard_item {
    struct str key, value; /* both in `data`; a log's record has no key */
    uint64_t number;       /* version, or seq of a log's record */
    uint32_t part, parts;  /* 1 .. parts */
    bool binary;           /* in binaryData of a ConfigMap */
    bool is_new, gone;     /* marks of a change that is not made yet */
    bool pinned;           /* marked by shard_take: shard_undo leaves it so */
    char *data;
};

struct shard_head {
    char life[SHARD_LIFE_BYTES]; /* of the content; empty: nothing of ours was ever written here */
    uint64_t epoch, writes;
    uint64_t revision; /* the highest version that was given when this was written */
};

struct shard {
    char name[SHARD_NAME_BYTES];
    bool secret;
    bool exists; /* in the API, with this version */
    char version[KUBE_VERSION_BYTES];
    struct shard_head head;
    char log[SHARD_LOG_BYTES]; /* the log whose records these are; empty: none */
    uint64_t log_first;        /* older records are void */
    struct shard_item **item;
    uint32_t count, room;
    size_t bytes; /* of values that will be there after the change */
};

void shard_fini(struct shard *s);

/* Marks a new value, of which a copy is made. -ENOSPC when the object would be too large, -ENOMEM. */
int shard_add(struct shard *s, const struct shard_item *from, struct shard_item **ret,
              struct err *err);
void shard_drop(struct shard *s, struct shard_item *item);

/* Returns the bytes that a value takes. */
size_t shard_item_bytes(struct str key, size_t value_bytes);

/* Makes the marks final, or takes them back. */
void shard_keep(struct shard *s);
void shard_undo(struct shard *s);

/* Writes the body of a create, or of a merge patch if the object exists: it fails if the object has changed. */
int shard_print(const struct shard *s, const struct shard_head *head, struct buf *out);

/* Reads an object into an empty shard. -EILSEQ: it is not ours, or damaged. */
int shard_read(struct shard *s, struct str object, struct err *err);

/* Takes what is stored, `now`, into `s`: all of it, or, with `ours`, only the version, so that the next write makes
 * the object hold what `s` holds. Empties `now`. -ENOMEM. */
int shard_take(struct shard *s, struct shard *now, bool ours);
