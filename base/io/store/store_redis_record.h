/* store_redis_record.h - names the keys of a fleet in Redis, and reads and prints what they hold.
 *
 *     {FLEET}:state     "1 LIFE REVISION COUNT WRITES [FROM]": the format; an id of this content; the last version
 *                       given; the number of entries; the number of writes ever; while it is written anew the
 *                       LIFE of the content that is written
 *     {FLEET}:lease     "EPOCH BEAT HELD TERM_US HOLDER ADDRESS"
 *     {FLEET}:keys      the keys of all entries, a sorted set with equal scores: it lists them in bytewise order
 *     {FLEET}:e:KEY     "VERSION\nVALUE"
 *     {FLEET}:logs      a hash from a log's name to "LAST DROPPED"
 *     {FLEET}:log:NAME  a sorted set of "SEQ\nVALUE" by SEQ
 *
 * Layer:   base/io, private to the store_redis files: no I/O
 * Rules:   a text that cannot be read is -EILSEQ with a sentence, and an absent one is what the function says
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"
#include "base/io/store/store.h"

#define REDIS_ENTRIES_MAX 16384
#define REDIS_FLEET_BYTES_MAX 64
#define REDIS_LIFE_BYTES 17 /* 16 hexadecimal digits */
#define REDIS_VERSION_BYTES 21
#define REDIS_STATE_BYTES 128
#define REDIS_LEASE_BYTES (STORE_ADDRESS_BYTES + 128)
#define REDIS_KEY_BYTES (REDIS_FLEET_BYTES_MAX + 16 + STORE_KEY_BYTES_MAX)
#define REDIS_COUNT_UNFINISHED UINT64_MAX /* the content is being written anew */

struct redis_keys {
    char prefix[REDIS_FLEET_BYTES_MAX + 4];
    char state[REDIS_FLEET_BYTES_MAX + 16], lease[REDIS_FLEET_BYTES_MAX + 16];
    char keys[REDIS_FLEET_BYTES_MAX + 16], logs[REDIS_FLEET_BYTES_MAX + 16];
};

struct redis_state {
    bool present;
    char life[REDIS_LIFE_BYTES];
    uint64_t revision, count, writes;
    char from[REDIS_LIFE_BYTES]; /* empty: nothing is being written anew, or without a copy */
};

/* Names the keys of a fleet. -EINVAL. */
int redis_keys_make(struct str fleet, struct redis_keys *ret, struct err *err);
struct str redis_entry_key(const struct redis_keys *k, struct str key, char ret[REDIS_KEY_BYTES]);
struct str redis_log_key(const struct redis_keys *k, const char *name, char ret[REDIS_KEY_BYTES]);

/* -EILSEQ: `what` of the fleet cannot be read, or is gone. */
int redis_damaged(const struct redis_keys *k, const char *what, struct err *err);

/* An absent state is not present; an absent lease has epoch 0. */
int redis_read_state(const struct redis_keys *k, struct str text, struct redis_state *ret,
                     struct err *err);
void redis_print_state(const struct redis_state *s, char ret[REDIS_STATE_BYTES]);
int redis_read_lease(const struct redis_keys *k, struct str text, struct store_lease *ret,
                     struct err *err);
void redis_print_lease(const struct store_lease *l, char ret[REDIS_LEASE_BYTES]);

/* Splits "NUMBER\nREST": an entry, or a record of a log. *rest is a part of `text`. */
int redis_split_number(const struct redis_keys *k, struct str text, uint64_t *ret, struct str *rest,
                       struct err *err);

/* An absent log has 0, 0. */
int redis_read_log(const struct redis_keys *k, struct str text, uint64_t *ret_last,
                   uint64_t *ret_dropped, struct err *err);
