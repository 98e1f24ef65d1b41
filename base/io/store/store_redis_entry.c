/* store_redis_entry.c - reads, lists, writes and deletes the entries of a store on Redis. */
#include "base/io/store/store_redis_entry.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WALK_CALLS_MAX 8 /* timeouts that a whole listing may take */

struct get_job {
    struct str key;
    struct buf *value;
    uint64_t *ret_version;
};

static int absent(struct str key, struct err *err)
{
    return err_set(err, -ENOENT, "store: no '%.*s'", (int)min_size(key.len, 80), key.data);
}

static int get_once(struct redis_store *r, void *arg, struct err *err)
{
    struct get_job *j = arg;
    char name[REDIS_KEY_BYTES];
    struct redis_state state;
    uint64_t version;
    struct str value;
    REDIS_SEND(r->link, STR("MGET"), str_from(r->keys.state),
               redis_entry_key(&r->keys, j->key, name));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_read_state(&r->keys, redis_text(r->link, 0), &state, err);
    if (rc == 0) rc = redis_check_life(r, &state, err);
    if (rc == 0 && (!state.present || !redis_has(r->link, 1))) rc = absent(j->key, err);
    if (rc == 0) rc = redis_split_number(&r->keys, redis_text(r->link, 1), &version, &value, err);
    if (rc < 0) return rc;
    if (j->value && buf_str(j->value, value) < 0)
        return err_set(err, j->value->rc, "store: no room for the value");
    if (j->ret_version) *j->ret_version = version;
    return 0;
}

int redis_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
              struct err *err)
{
    struct get_job j = { key, value, ret_version };
    return redis_run(redis_of(s), get_once, &j, err);
}

/* A walk over the entries from `from` on, a page a call. */
struct page {
    char from[STORE_KEY_BYTES_MAX + 1]; /* "[KEY" begins with it, "(KEY" behind it */
    size_t from_len;
    struct str prefix;
    store_entry_fn fn;
    void *ctx;
    struct redis_state state; /* as the page saw it */
    uint32_t count;           /* of the page; below REDIS_PAGE_ENTRIES: the last one */
    bool over;                /* beyond the prefix */
    int result;               /* of fn */
};

static void ask_values(struct redis_store *r, struct buf *names, size_t *len, uint32_t count)
{
    char name[REDIS_KEY_BYTES];
    size_t at = 0;
    for (uint32_t i = 0; i < count; at += len[i], i++)
        REDIS_SEND(r->link, STR("GET"),
                   redis_entry_key(&r->keys, str_of(names->data + at, len[i]), name));
}

static int give(struct redis_store *r, struct page *j, struct str key, struct err *err)
{
    struct store_entry e = { .key = key };
    /* Without a term another process may be deleting it in this moment. */
    if (redis_is_nil(r->link)) return r->store.epoch ? redis_damaged(&r->keys, "an entry", err) : 0;
    int rc = redis_split_number(&r->keys, redis_whole(r->link), &e.version, &e.value, err);
    if (rc == 0 && j->result == 0) j->result = j->fn(j->ctx, &e);
    return rc;
}

static int page_once(struct redis_store *r, void *arg, struct err *err)
{
    struct page *j = arg;
    CLEANUP(buf_fini) struct buf names = { 0 };
    size_t len[REDIS_PAGE_ENTRIES], at = 0;
    char most[8];
    snprintf(most, sizeof most, "%d", REDIS_PAGE_ENTRIES);
    REDIS_SEND(r->link, STR("GET"), str_from(r->keys.state));
    REDIS_SEND(r->link, STR("ZRANGEBYLEX"), str_from(r->keys.keys), str_of(j->from, j->from_len),
               STR("+"), STR("LIMIT"), STR("0"), str_from(most));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_read_state(&r->keys, redis_whole(r->link), &j->state, err);
    if (rc == 0) rc = redis_check_life(r, &j->state, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    j->count = (uint32_t)min_size(redis_count(r->link), REDIS_PAGE_ENTRIES);
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < j->count; i++) {
        struct str key = redis_text(r->link, i);
        j->over = !str_starts(key, j->prefix) || key.len == 0 || key.len > STORE_KEY_BYTES_MAX;
        if (j->over) break;
        len[wanted++] = key.len;
        buf_str(&names, key);
    }
    if (names.rc < 0) return err_set(err, names.rc, "store: no memory");
    ask_values(r, &names, len, wanted);
    for (uint32_t i = 0; i < wanted && rc == 0; at += len[i], i++) {
        rc = redis_take(r->link, err);
        r->busy = true;
        if (rc == 0) rc = give(r, j, str_of(names.data + at, len[i]), err);
        r->busy = false;
    }
    if (wanted > 0) {
        size_t last = len[wanted - 1];
        j->from[0] = '(';
        memcpy(j->from + 1, names.data + names.len - last, last);
        j->from_len = last + 1;
    }
    return rc;
}

static int pages(struct redis_store *r, struct page *j, struct err *err)
{
    must(j->prefix.len <= STORE_KEY_BYTES_MAX);
    j->from[0] = '[';
    if (j->prefix.len) memcpy(j->from + 1, j->prefix.data, j->prefix.len);
    j->from_len = j->prefix.len + 1;
    int64_t until_us = clock_mono_us() + WALK_CALLS_MAX * r->timeout_us;
    /* A page that failed half way is not repeated: fn has seen a part of it. */
    for (uint32_t page = 0; page <= REDIS_ENTRIES_MAX / REDIS_PAGE_ENTRIES; page++) {
        if (clock_mono_us() > until_us)
            return err_set(err, -ETIMEDOUT, "store: Redis: its entries were not read in time");
        int rc = redis_run(r, page_once, j, err);
        if (rc < 0) return rc;
        if (j->result != 0) return j->result;
        if (j->over || j->count < REDIS_PAGE_ENTRIES) return 0;
    }
    return err_set(err, -EFBIG, "store: %s holds more than %d entries", r->keys.prefix,
                   REDIS_ENTRIES_MAX);
}

int redis_walk(struct redis_store *r, struct str prefix, store_entry_fn fn, void *ctx,
               struct redis_state *ret_state, struct err *err)
{
    struct page j = { .prefix = prefix, .fn = fn, .ctx = ctx };
    int rc = pages(r, &j, err);
    if (rc == 0 && ret_state) *ret_state = j.state;
    return rc;
}

int redis_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx, struct err *err)
{
    return redis_walk(redis_of(s), prefix, fn, ctx, NULL, err);
}

/* ---- writing ---- */

struct write_job {
    struct str key, value;
    uint64_t expected, version;
};

/* Watches, and reads the term and the entry's version. */
static int look_at(struct redis_store *r, struct str name, struct redis_seen *seen,
                   uint64_t *ret_version, struct err *err)
{
    struct str rest;
    redis_watch(r, name);
    redis_ask_seen(r);
    REDIS_SEND(r->link, STR("GETRANGE"), name, STR("0"), STR("20"));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_take_seen(r, seen, err);
    if (rc == 0) rc = redis_take(r->link, err);
    *ret_version = 0;
    if (rc == 0 && redis_whole(r->link).len > 0)
        rc = redis_split_number(&r->keys, redis_whole(r->link), ret_version, &rest, err);
    return rc;
}

static int put_once(struct redis_store *r, void *arg, struct err *err)
{
    struct write_job *j = arg;
    CLEANUP(buf_fini) struct buf text = { 0 };
    char name[REDIS_KEY_BYTES];
    struct redis_seen seen;
    uint64_t version;
    struct str key = redis_entry_key(&r->keys, j->key, name);
    int rc = look_at(r, key, &seen, &version, err);
    if (rc < 0) return rc;
    struct redis_state now = seen.state;
    now.revision++;
    now.writes++;
    now.count += version == 0;
    buf_printf(&text, "%" PRIu64 "\n", now.revision);
    buf_str(&text, j->value);
    rc = redis_check_term(r, &seen, err);
    if (rc == 0) rc = store_version_check(j->key, version, j->expected, err);
    if (rc == 0 && now.count > REDIS_ENTRIES_MAX)
        rc = err_set(err, -ENOSPC, "store: full, %d entries are the bound", REDIS_ENTRIES_MAX);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc == 0 && text.rc < 0) rc = err_set(err, text.rc, "store: no memory");
    if (rc < 0) return redis_unwatch(r, rc);
    redis_multi(r);
    REDIS_SEND(r->link, STR("SET"), key, buf_view(&text));
    REDIS_SEND(r->link, STR("ZADD"), str_from(r->keys.keys), STR("0"), j->key);
    redis_put_state(r, &now);
    rc = redis_commit(r, 3, err);
    if (rc < 0) return rc;
    j->version = now.revision;
    bool has = r->copy.entries != NULL;
    redis_copy_follow(
        r, &now, has ? store_put_if(r->copy.entries, j->key, j->value, STORE_ANY, NULL, NULL) : 0);
    return 0;
}

int redis_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                 uint64_t *ret_version, struct err *err)
{
    struct write_job j = { .key = key, .value = value, .expected = expected };
    int rc = redis_run(redis_of(s), put_once, &j, err);
    if (rc == 0) *ret_version = j.version;
    return rc;
}

static int delete_once(struct redis_store *r, void *arg, struct err *err)
{
    struct write_job *j = arg;
    char name[REDIS_KEY_BYTES];
    struct redis_seen seen;
    uint64_t version;
    struct str key = redis_entry_key(&r->keys, j->key, name);
    int rc = look_at(r, key, &seen, &version, err);
    if (rc < 0) return rc;
    struct redis_state now = seen.state;
    now.writes++;
    now.count--;
    rc = redis_check_term(r, &seen, err);
    if (rc == 0 && version == 0) rc = absent(j->key, err);
    if (rc == 0) rc = store_version_check(j->key, version, j->expected, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc < 0) return redis_unwatch(r, rc);
    redis_multi(r);
    REDIS_SEND(r->link, STR("DEL"), key);
    REDIS_SEND(r->link, STR("ZREM"), str_from(r->keys.keys), j->key);
    redis_put_state(r, &now);
    rc = redis_commit(r, 3, err);
    if (rc < 0) return rc;
    if (r->copy.entries) (void)store_delete_if(r->copy.entries, j->key, STORE_ANY, NULL);
    redis_copy_follow(r, &now, 0);
    return 0;
}

int redis_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    struct write_job j = { .key = key, .expected = expected };
    return redis_run(redis_of(s), delete_once, &j, err);
}
