/* store_redis.c - keeps the store of several controllers in Redis: its lease, and the handle's life.
 *
 * store_redis_record.h says which keys there are. `state` detects what Redis alone would hide: content that is gone
 * (no state), that belongs to another beginning (LIFE), that went back to an older time (WRITES), or of which keys
 * were evicted (COUNT). A term ends then. The handle that acquires the lease next writes the content anew from its
 * copy, if its copy is newer than what is stored.
 *
 * Rejected: one key for each fact about the content; a server that evicts keys would take some and leave
 * others. Rejected: keys that expire; see store_election.c. */
#include "base/core/bits.h"
#include "base/io/store/store_redis_entry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define WAIT_SHARE 2 /* half of the timeout at most waits for a replica */

static int redis_refresh(struct store *s, struct err *err)
{
    struct redis_store *r = redis_of(s);
    struct redis_seen seen;
    struct redis_copy now;
    if (s->epoch) return 0;
    int rc = redis_run(r, redis_seen_once, &seen, err);
    if (rc < 0 || !seen.state.present || seen.state.count == REDIS_COUNT_UNFINISHED) return rc;
    const struct redis_state *had = &r->copy.state;
    bool same = r->copy.entries && strcmp(had->life, seen.state.life) == 0 &&
                had->writes >= seen.state.writes;
    if (same) return 0; /* or the store went back: what is copied is the newer */
    rc = redis_load(r, &now, err);
    if (rc < 0) return rc;
    if (!redis_copy_is_whole(&now)) {
        redis_copy_drop(&now);
        return redis_damaged(&r->keys, "an entry", err);
    }
    redis_copy_drop(&r->copy);
    r->copy = now;
    return 0;
}

/* ---- the lease ---- */

static int redis_lease_see(struct store *s, struct store_lease *ret, struct err *err)
{
    struct redis_seen seen;
    struct redis_store *r = redis_of(s);
    int rc = redis_run(r, redis_seen_once, &seen, err);
    /* A store that lost its content has no lease either, whatever is left of it. */
    if (rc == 0 && !seen.state.present)
        seen.lease = (struct store_lease){ .line = seen.lease.line };
    if (rc < 0) return rc;
    *ret = seen.lease;
    ret->lost = !seen.state.present || seen.state.count == REDIS_COUNT_UNFINISHED ||
                redis_copy_is_newer(&r->copy, &seen.state);
    return 0;
}

struct lease_job {
    const struct store_claim *claim;
    const struct store_lease *seen;
    uint64_t epoch;
    struct redis_state before; /* as it was when the lease was taken */
};

static void copy_name(char *to, struct str from)
{
    if (from.len) memcpy(to, from.data, from.len);
    to[from.len] = 0;
}

static int random_life(char ret[REDIS_LIFE_BYTES], struct err *err)
{
    uint64_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id)
        return err_set(err, -EIO, "the system gives no random bytes");
    snprintf(ret, REDIS_LIFE_BYTES, "%016" PRIx64, id);
    return 0;
}

/* Makes the state of content that begins now: empty, or what the copy has, not written yet. */
static int first_state(const struct redis_store *r, struct redis_state *ret, struct err *err)
{
    struct redis_state s = { .present = true };
    if (r->copy.entries) {
        s.revision = r->copy.state.revision;
        s.writes = r->copy.state.writes;
        s.count = REDIS_COUNT_UNFINISHED;
        memcpy(s.from, r->copy.state.life, sizeof s.from);
    }
    int rc = random_life(s.life, err);
    if (rc == 0) *ret = s;
    return rc;
}

/* Waits until a replica has what was written, where one is connected: a server that Sentinel replaces takes
 * what it alone knew with it. */
static int replicated(struct redis_store *r, struct err *err)
{
    char wait[24];
    if (!redis_has_replicas(r->link)) return 0;
    snprintf(wait, sizeof wait, "%lld", (long long)max_i64(r->timeout_us / WAIT_SHARE / 1000, 1));
    REDIS_SEND(r->link, STR("WAIT"), STR("1"), str_from(wait));
    int rc = redis_take(r->link, err);
    if (rc == 0 && redis_number(r->link) < 1)
        return err_set(err, -EREMOTEIO, "store: no replica has it");
    return rc < 0 ? -EREMOTEIO : 0;
}

/* Goes on from the numbers that the copy knows: no version is given twice, whatever the server forgot. */
static void number_on(struct redis_state *s, const struct redis_state *copied)
{
    s->revision = max_u64(s->revision, copied->revision);
    s->writes = max_u64(s->writes, copied->writes);
}

/* Makes the state with which a term begins of the stored one. -EILSEQ: there is content that cannot be taken. */
static int now_state(const struct redis_store *r, bool has_keys, struct redis_state *now,
                     struct err *err)
{
    bool newer = redis_copy_is_newer(&r->copy, now);
    if (!now->present && has_keys && !newer) return redis_damaged(&r->keys, "state", err);
    if (!now->present) return first_state(r, now, err);
    if (newer) number_on(now, &r->copy.state);
    if (newer || now->count != REDIS_COUNT_UNFINISHED) return 0;
    return err_set(err, -EILSEQ,
                   "store: %s in Redis was being written anew when its writer ended, and this "
                   "process has no copy of it; where no other has one, restore a backup, or delete "
                   "its keys to start empty",
                   r->keys.prefix);
}

static int acquire_once(struct redis_store *r, void *arg, struct err *err)
{
    struct lease_job *j = arg;
    struct redis_seen seen;
    redis_watch(r, str_from(r->keys.keys));
    redis_ask_seen(r);
    REDIS_SEND(r->link, STR("ZCARD"), str_from(r->keys.keys));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_take_seen(r, &seen, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    struct redis_state now = seen.state;
    if (!now.present) seen.lease = (struct store_lease){ .line = seen.lease.line };
    rc = now_state(r, redis_number(r->link) > 0, &now, err);
    if (rc == 0 && !store_lease_same(&seen.lease, j->seen))
        rc = err_set(err, -EBUSY, "store: the lease has changed");
    if (rc < 0) return redis_unwatch(r, rc);
    struct store_lease l = { .epoch = j->epoch, .held = true, .term_us = j->claim->term_us };
    copy_name(l.holder, j->claim->holder);
    copy_name(l.address, j->claim->address);
    redis_multi(r);
    redis_put_state(r, &now);
    redis_put_lease(r, &l);
    rc = redis_commit(r, 2, err);
    if (rc == 0) rc = replicated(r, err);
    if (rc < 0) return rc;
    j->before = seen.state;
    r->lease = l;
    r->beat_tried = 0;
    r->writes = now.writes;
    memcpy(r->life, now.life, sizeof r->life);
    return 0;
}

/* Makes store and copy the same, after the lease was taken. */
static int settle(struct redis_store *r, const struct redis_state *before, struct err *err)
{
    struct redis_copy now;
    if (redis_copy_is_newer(&r->copy, before)) return redis_write_anew(r, err);
    int rc = redis_load(r, &now, err);
    if (rc < 0) return rc;
    if (!redis_copy_is_whole(&now)) {
        redis_copy_drop(&now);
        return redis_damaged(&r->keys, "an entry", err);
    }
    redis_copy_drop(&r->copy);
    r->copy = now;
    return 0;
}

static int redis_lease_acquire(struct store *s, const struct store_claim *claim,
                               const struct store_lease *seen, uint64_t epoch, struct err *err)
{
    struct redis_store *r = redis_of(s);
    struct lease_job j = { .claim = claim, .seen = seen, .epoch = epoch };
    int rc = redis_run(r, acquire_once, &j, err);
    if (rc < 0) return rc;
    s->epoch = epoch;
    rc = settle(r, &j.before, err);
    if (rc < 0) store_lease_release(s);
    return rc;
}

static int renew_once(struct redis_store *r, void *arg, struct err *err)
{
    const bool *gives_back = arg;
    struct redis_seen seen;
    int rc = redis_watch_term(r, &seen, err);
    if (rc < 0) return rc;
    struct store_lease l = seen.lease;
    l.beat++;
    l.held = !*gives_back;
    r->lease.beat = seen.lease.beat;
    r->beat_tried = l.beat;
    redis_multi(r);
    redis_put_lease(r, &l);
    rc = redis_commit(r, 1, err);
    if (rc == 0) rc = replicated(r, err);
    if (rc == 0) r->lease.beat = l.beat;
    return rc;
}

static int redis_lease_renew(struct store *s, struct err *err)
{
    bool gives_back = false;
    return redis_run(redis_of(s), renew_once, &gives_back, err);
}

static void redis_lease_release(struct store *s)
{
    bool gives_back = true;
    (void)redis_run(redis_of(s), renew_once, &gives_back, NULL);
}

/* ---- open and close ---- */

static bool redis_is_reached(const struct store *s)
{
    return redis_is_up(((const struct redis_store *)(const void *)s)->link);
}

static void redis_close(struct store *s)
{
    struct redis_store *r = redis_of(s);
    redis_copy_drop(&r->copy);
    redis_link_free(r->link);
    free(r);
}

static const struct store_ops redis_ops = {
    .close = redis_close,
    .get = redis_get,
    .put_if = redis_put_if,
    .delete_if = redis_delete_if,
    .list = redis_list,
    .append = redis_append,
    .log_read = redis_log_read,
    .log_stat = redis_log_stat,
    .lease_see = redis_lease_see,
    .lease_acquire = redis_lease_acquire,
    .lease_renew = redis_lease_renew,
    .lease_release = redis_lease_release,
    .refresh = redis_refresh,
    .is_reached = redis_is_reached,
};

int store_redis_open(const struct store_redis_config *config, struct store **ret, struct err *err)
{
    struct redis_keys keys;
    int rc = redis_keys_make(config->fleet, &keys, err);
    if (rc < 0) return rc;
    struct redis_store *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, -ENOMEM, "store: no memory");
    r->store = (struct store){ .ops = &redis_ops, .shared = true };
    r->timeout_us = config->timeout_us;
    r->keys = keys;
    rc = redis_link_new(config, &r->link, err);
    if (rc < 0) {
        free(r);
        return rc;
    }
    *ret = &r->store;
    return 0;
}
