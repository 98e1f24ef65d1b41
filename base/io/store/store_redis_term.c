/* store_redis_term.c - makes calls and transactions, each checked against the term of its handle.
 *
 * A write is optimistic: it watches state, lease and the entry, reads them, checks that the term is ours, and
 * commits all its changes in one transaction, which fails if anybody touched what was read. No script is used:
 * the server may forbid them. */
#include "base/io/store/store_redis_term.h"

#include "base/io/store/store_backend.h"

#include <string.h>

int redis_run(struct redis_store *r, redis_attempt_fn fn, void *job, struct err *err)
{
    must(!r->busy);
    int rc = redis_begin(r->link, err);
    if (rc < 0) return rc;
    rc = -EAGAIN;
    for (int tries = 0; tries < REDIS_TRIES_MAX && (rc == -EXDEV || rc == -EAGAIN); tries++) {
        rc = redis_ready(r->link, err);
        if (rc == 0) rc = fn(r, job, err);
    }
    redis_end(r->link, rc == -EXDEV);
    if (rc == -EXDEV) return err_prefix(err, -EBUSY, "after %d servers", REDIS_TRIES_MAX);
    if (rc == -EAGAIN) return err_set(err, -EBUSY, "store: others write to it all the time");
    return rc;
}

void redis_ask_seen(struct redis_store *r)
{
    REDIS_SEND(r->link, STR("MGET"), str_from(r->keys.state), str_from(r->keys.lease));
}

int redis_take_seen(struct redis_store *r, struct redis_seen *ret, struct err *err)
{
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_read_state(&r->keys, redis_text(r->link, 0), &ret->state, err);
    if (rc == 0) rc = redis_read_lease(&r->keys, redis_text(r->link, 1), &ret->lease, err);
    if (rc == 0) ret->lease.line = redis_line(r->link);
    return rc;
}

int redis_check_life(const struct redis_store *r, const struct redis_state *s, struct err *err)
{
    if (!r->store.epoch) return 0;
    if (!s->present) return store_deposed(err, "Redis has lost the store");
    if (strcmp(s->life, r->life) != 0) return store_deposed(err, "Redis has another store by now");
    if (s->writes < r->writes) return store_deposed(err, "Redis went back to an older store");
    return 0;
}

int redis_check_term(const struct redis_store *r, const struct redis_seen *seen, struct err *err)
{
    const struct store_lease *l = &seen->lease;
    int rc = redis_check_life(r, &seen->state, err);
    if (rc < 0) return rc;
    bool ours = l->held && l->epoch == r->lease.epoch && strcmp(l->holder, r->lease.holder) == 0;
    bool known = l->beat == r->lease.beat || l->beat == r->beat_tried;
    if (!ours) return store_deposed(err, "the lease is another's");
    if (!known || seen->state.writes != r->writes)
        return store_deposed(err, "Redis went back to an older store");
    return 0;
}

void redis_watch(struct redis_store *r, struct str key)
{
    REDIS_SEND(r->link, STR("WATCH"), str_from(r->keys.state), str_from(r->keys.lease), key);
}

int redis_unwatch(struct redis_store *r, int rc)
{
    REDIS_SEND(r->link, STR("UNWATCH"));
    (void)redis_take(r->link, NULL);
    return rc;
}

void redis_put_state(struct redis_store *r, const struct redis_state *s)
{
    char text[REDIS_STATE_BYTES];
    redis_print_state(s, text);
    REDIS_SEND(r->link, STR("SET"), str_from(r->keys.state), str_from(text));
}

void redis_put_lease(struct redis_store *r, const struct store_lease *l)
{
    char text[REDIS_LEASE_BYTES];
    redis_print_lease(l, text);
    REDIS_SEND(r->link, STR("SET"), str_from(r->keys.lease), str_from(text));
}

int redis_commit(struct redis_store *r, uint32_t commands, struct err *err)
{
    REDIS_SEND(r->link, STR("EXEC"));
    for (uint32_t i = 0; i < commands + 2; i++) {
        int rc = redis_take(r->link, err);
        if (rc == 0) continue;
        if (redis_was_refused(r->link)) return rc;
        return err_prefix(err, -EREMOTEIO, "it may have been written");
    }
    return redis_is_nil(r->link) ? -EAGAIN : 0;
}

void redis_multi(struct redis_store *r)
{
    REDIS_SEND(r->link, STR("MULTI"));
}

int redis_seen_once(struct redis_store *r, void *arg, struct err *err)
{
    redis_ask_seen(r);
    return redis_take_seen(r, arg, err);
}

int redis_watch_term(struct redis_store *r, struct redis_seen *ret, struct err *err)
{
    redis_watch(r, str_from(r->keys.keys));
    redis_ask_seen(r);
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_take_seen(r, ret, err);
    if (rc < 0) return rc;
    rc = redis_check_term(r, ret, err);
    return rc < 0 ? redis_unwatch(r, rc) : 0;
}
