/* store_redis_term.h - the handle of a store on Redis, its term, and the calls and transactions made in it.
 *
 * Layer:   base/io, private to the store_redis files
 * Use:     redis_run calls a function, which watches, reads, checks, and commits; again, when another server is
 *          named or another writer came between
 * Rules:   a function that redis_run calls sends nothing before its checks that it would not send twice
 */
#pragma once
#include "base/io/store/store_backend.h"
#include "base/io/store/store_redis_copy.h"
#include "base/io/store/store_redis_link.h"
#include "base/io/store/store_redis_record.h"

struct redis_store {
    struct store store;
    struct redis_link *link;
    struct redis_keys keys;
    int64_t timeout_us;

    /* of the term */
    struct store_lease lease;
    uint64_t beat_tried; /* of a renewal whose reply was lost; else lease.beat */
    char life[REDIS_LIFE_BYTES];
    uint64_t writes;

    struct redis_copy copy;
    bool busy; /* in a walk, whose function must not call the store */
};

static inline struct redis_store *redis_of(struct store *s)
{
    return (struct redis_store *)(void *)s;
}

typedef int (*redis_attempt_fn)(struct redis_store *r, void *job, struct err *err);

/* Makes the call, again while another server is named (-EXDEV) or another writer came between (-EAGAIN), up to
 * REDIS_TRIES_MAX times; -EBUSY then. */
int redis_run(struct redis_store *r, redis_attempt_fn fn, void *job, struct err *err);

struct redis_seen {
    struct redis_state state;
    struct store_lease lease;
};

/* Ask for state and lease, and take the reply. */
void redis_ask_seen(struct redis_store *r);
int redis_take_seen(struct redis_store *r, struct redis_seen *ret, struct err *err);
int redis_seen_once(struct redis_store *r, void *seen, struct err *err); /* both, for redis_run */

/* Refuses a call of a term whose content is not there any more (-EKEYREVOKED). */
int redis_check_life(const struct redis_store *r, const struct redis_state *s, struct err *err);

/* Refuses a write of a term that is over (-EKEYREVOKED). */
int redis_check_term(const struct redis_store *r, const struct redis_seen *seen, struct err *err);

/* ---- transactions ---- */

/* Watches state, lease and one more key; one reply. */
void redis_watch(struct redis_store *r, struct str key);

/* Watches the content, and checks that our term goes on. */
int redis_watch_term(struct redis_store *r, struct redis_seen *ret, struct err *err);

/* Ends a transaction that was not begun, after a refusal of our own; returns rc. */
int redis_unwatch(struct redis_store *r, int rc);

void redis_multi(struct redis_store *r); /* begins */
void redis_put_state(struct redis_store *r, const struct redis_state *s);
void redis_put_lease(struct redis_store *r, const struct store_lease *l);

/* Sends EXEC and takes the replies of MULTI, of `commands` and of EXEC. -EAGAIN: somebody wrote meanwhile, and
 * nothing was changed. -EREMOTEIO: the reply did not come. */
int redis_commit(struct redis_store *r, uint32_t commands, struct err *err);
