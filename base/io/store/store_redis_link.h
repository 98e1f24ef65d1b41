/* store_redis_link.h - exchanges commands and replies with the Redis behind a store, and never for longer than a
 * call may block.
 *
 * Layer:   base/io, private to the store_redis files; store_redis_link.c is the only file that includes hiredis
 * Use:     redis_begin; until it is done: redis_ready, redis_send ..., redis_take ...; redis_end
 * Rules:   (1) a call has one deadline, for the name's resolution, the connection, the log-in and all
 *              replies together
 *          (2) after a failure calls fail at once for a while, which grows up to REDIS_BACK_OFF_MAX_US, or what
 *              the configuration says: a server that hangs costs a deadline now and then, and not at each call
 *          (3) a reply that is larger than its bounds ends the connection
 *          (4) with Sentinel, the server is the one that a sentinel names and that says itself that it
 *              is a master
 */
#pragma once
#include "base/io/store/store.h"

#define REDIS_REPLY_BYTES_MAX ((size_t)8 << 20)
#define REDIS_REPLY_ELEMENTS_MAX 1024
#define REDIS_BACK_OFF_MIN_US 100000
#define REDIS_BACK_OFF_MAX_US STORE_AGAIN_US_MAX
#define REDIS_TRIES_MAX 5 /* of one call: another server is named, or another writer came between */

struct redis_link;

/* Reads the URL and the other settings. Nothing is asked of a server. */
int redis_link_new(const struct store_redis_config *config, struct redis_link **ret,
                   struct err *err);
void redis_link_free(struct redis_link *l);

/* Begins a call. -ENETDOWN: the server could not be reached a moment ago. */
int redis_begin(struct redis_link *l, struct err *err);

/* Makes sure that there is a connection. -ETIMEDOUT, -ECONNREFUSED, -EHOSTUNREACH ..., -EACCES; never an error
 * that a call returns about its key. */
int redis_ready(struct redis_link *l, struct err *err);

/* Ends the call. `failed`: no server was found that takes it, so that the next calls wait. */
void redis_end(struct redis_link *l, bool failed);

/* Takes a command into the pipeline. */
void redis_send(struct redis_link *l, const struct str *word, size_t count);
#define REDIS_SEND(l, ...)                             \
    redis_send(l, (const struct str[]){ __VA_ARGS__ }, \
               sizeof((const struct str[]){ __VA_ARGS__ }) / sizeof(struct str))

/* Sends the pipeline and waits for its next reply, which lives until the next call of redis_take. An error
 * of the server is a failure with its text: -EXDEV when another server has the keys (redis_ready, then send
 * again), -EBUSY when it is not ready to serve, -ENOSPC, -EACCES, -EILSEQ, else -EIO. After a failure the
 * connection is gone, and with it what else was asked. */
int redis_take(struct redis_link *l, struct err *err);

/* Returns true if the last failure was an error of the server, false if its reply did not come. */
bool redis_was_refused(const struct redis_link *l);

/* The reply that was taken last, or the part of it at `at`. */
bool redis_is_nil(const struct redis_link *l);
size_t redis_count(const struct redis_link *l); /* of a list; 0 for anything else */
struct str redis_text(const struct redis_link *l, size_t at);
bool redis_has(const struct redis_link *l, size_t at); /* there is such a part, and it is not nil */
struct str redis_whole(const struct redis_link *l);    /* as text; empty for other kinds */
int64_t redis_number(const struct redis_link *l);

uint64_t redis_line(const struct redis_link *l);     /* counts connections */
bool redis_is_up(const struct redis_link *l);        /* the last try reached the server */
bool redis_has_replicas(const struct redis_link *l); /* replaced by a sentinel, and replicated */
