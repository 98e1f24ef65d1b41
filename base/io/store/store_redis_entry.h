/* store_redis_entry.h - the calls of a store on Redis for entries (store_redis_entry.c) and logs (store_redis_log.c),
 * as store_backend.h says.
 *
 * Layer:   base/io, private to the store_redis files
 */
#pragma once
#include "base/io/store/store_redis_term.h"

int redis_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
              struct err *err);
int redis_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                 uint64_t *ret_version, struct err *err);
int redis_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err);
int redis_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx, struct err *err);

/* Lists, and says in *ret_state (may be NULL) which content the last page was of. */
int redis_walk(struct redis_store *r, struct str prefix, store_entry_fn fn, void *ctx,
               struct redis_state *ret_state, struct err *err);

int redis_append(struct store *s, const struct store_log *log, struct str value, uint64_t *ret_seq,
                 struct err *err);
int redis_log_read(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                   store_record_fn fn, void *ctx, struct err *err);
int redis_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                   struct err *err);
