/* store_redis_copy.h - keeps the content of a store on Redis in memory, and writes it anew from there.
 *
 * Layer:   base/io, private to the store_redis files
 */
#pragma once
#include "base/io/store/store_redis_record.h"

#define REDIS_LOGS_MAX 16
#define REDIS_LOG_NAME_BYTES 64
#define REDIS_PAGE_ENTRIES 64 /* read or written at a time; each value is a reply of its own */

struct redis_store;

struct redis_copied_log {
    char name[REDIS_LOG_NAME_BYTES];
    uint64_t last, dropped;
};

/* The content as this process saw it last. */
struct redis_copy {
    struct store *entries; /* in memory; NULL: there is no copy */
    struct redis_state state;
    struct redis_copied_log log[REDIS_LOGS_MAX];
    uint32_t log_count;
};

void redis_copy_drop(struct redis_copy *c);

/* Finds the numbers of a log, or makes them; NULL: it has no room. */
struct redis_copied_log *redis_copy_log(struct redis_copy *c, struct str name);

/* Notes a write of our own: `rc` is that of the same write to the copy. A copy that cannot follow, for want of
 * memory, is given up. */
void redis_copy_follow(struct redis_store *r, const struct redis_state *now, int rc);

/* Returns true if the copy has all entries that its state counts. */
bool redis_copy_is_whole(const struct redis_copy *c);

/* Returns true if the copy is of this content, and of a later moment than `s`; also when `s` is being written anew
 * from such a copy, and is no whole content. */
bool redis_copy_is_newer(const struct redis_copy *c, const struct redis_state *s);

/* Reads the whole content. -EBUSY: it changed meanwhile. */
int redis_load(struct redis_store *r, struct redis_copy *ret, struct err *err);

/* Writes the content anew from the copy, in our term. */
int redis_write_anew(struct redis_store *r, struct err *err);
