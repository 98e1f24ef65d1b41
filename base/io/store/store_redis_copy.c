/* store_redis_copy.c - keeps the content of a store on Redis in memory, and writes it anew from there.
 *
 * Half of a content is never taken for the whole: while it is written anew its count says so. */
#include "base/io/store/store_redis_copy.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/store/store_redis_entry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void redis_copy_drop(struct redis_copy *c)
{
    if (c->entries) store_close(c->entries);
    *c = (struct redis_copy){ 0 };
}

struct redis_copied_log *redis_copy_log(struct redis_copy *c, struct str name)
{
    for (uint32_t i = 0; i < c->log_count; i++)
        if (str_eq(str_from(c->log[i].name), name)) return &c->log[i];
    if (c->log_count == REDIS_LOGS_MAX || name.len >= REDIS_LOG_NAME_BYTES) return NULL;
    struct redis_copied_log *l = &c->log[c->log_count++];
    memcpy(l->name, name.data, name.len);
    return l;
}

void redis_copy_follow(struct redis_store *r, const struct redis_state *now, int rc)
{
    r->writes = now->writes;
    r->copy.state = *now;
    if (rc < 0) redis_copy_drop(&r->copy);
}

/* ---- reading all of it ---- */

static int keep_entry(void *ctx, const struct store_entry *e)
{
    return store_put_if(ctx, e->key, e->value, STORE_ANY, NULL, NULL);
}

static int logs_once(struct redis_store *r, void *arg, struct err *err)
{
    struct redis_copy *c = arg;
    REDIS_SEND(r->link, STR("GET"), str_from(r->keys.state));
    REDIS_SEND(r->link, STR("HGETALL"), str_from(r->keys.logs));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_read_state(&r->keys, redis_whole(r->link), &c->state, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    c->log_count = 0;
    for (size_t i = 0; i + 1 < redis_count(r->link); i += 2) {
        struct redis_copied_log *l = redis_copy_log(c, redis_text(r->link, i));
        rc = l ? redis_read_log(&r->keys, redis_text(r->link, i + 1), &l->last, &l->dropped, err)
               : 0;
        if (rc < 0) return rc;
    }
    return 0;
}

int redis_load(struct redis_store *r, struct redis_copy *ret, struct err *err)
{
    struct redis_copy c = { 0 };
    int rc = store_memory_open(REDIS_ENTRIES_MAX, &c.entries, err);
    if (rc < 0) return rc;
    struct redis_state before = { 0 };
    rc = redis_walk(r, STR(""), keep_entry, c.entries, &before, err);
    if (rc == 0) rc = redis_run(r, logs_once, &c, err);
    bool same = rc == 0 && c.state.present && strcmp(before.life, c.state.life) == 0 &&
                before.writes == c.state.writes;
    if (rc == 0 && !same) rc = err_set(err, -EBUSY, "store: it changed while it was read");
    if (rc < 0) {
        redis_copy_drop(&c);
        return rc;
    }
    *ret = c;
    return 0;
}

static int count_entry(void *ctx, const struct store_entry *e)
{
    (void)e;
    (*(uint64_t *)ctx)++;
    return 0;
}

static uint64_t copied_count(const struct redis_copy *c)
{
    uint64_t count = 0;
    (void)store_list(c->entries, STR(""), count_entry, &count, NULL);
    return count;
}

bool redis_copy_is_whole(const struct redis_copy *c)
{
    return c->entries && c->state.count == copied_count(c);
}

bool redis_copy_is_newer(const struct redis_copy *c, const struct redis_state *s)
{
    if (!c->entries) return false;
    if (!s->present) return true;
    bool same = strcmp(c->state.life, s->life) == 0;
    if (s->count == REDIS_COUNT_UNFINISHED) return same || strcmp(c->state.life, s->from) == 0;
    return same && c->state.writes > s->writes;
}

/* ---- writing it anew ---- */

/* A part of the content: entries of the copy, and keys that it does not have (version 0). */
struct part {
    struct redis_store *r;
    struct store_entry entry[REDIS_PAGE_ENTRIES];
    uint32_t count;
    bool last;
    struct err *err;
};

static void send_entry(struct redis_store *r, const struct store_entry *e, uint64_t version)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char name[REDIS_KEY_BYTES];
    struct str key = redis_entry_key(&r->keys, e->key, name);
    if (e->version == 0) {
        REDIS_SEND(r->link, STR("DEL"), key);
        REDIS_SEND(r->link, STR("ZREM"), str_from(r->keys.keys), e->key);
        return;
    }
    buf_printf(&text, "%" PRIu64 "\n", version);
    buf_str(&text, e->value);
    must(text.rc == 0);
    REDIS_SEND(r->link, STR("SET"), key, buf_view(&text));
    REDIS_SEND(r->link, STR("ZADD"), str_from(r->keys.keys), STR("0"), e->key);
}

/* Raises the logs to the numbers that they had, so that none is given twice. Records that are lost stay so. */
static uint32_t send_logs(struct redis_store *r)
{
    const struct redis_copy *c = &r->copy;
    for (uint32_t i = 0; i < c->log_count; i++) {
        char stat[2 * REDIS_VERSION_BYTES];
        snprintf(stat, sizeof stat, "%" PRIu64 " %" PRIu64, c->log[i].last, c->log[i].dropped);
        REDIS_SEND(r->link, STR("HSET"), str_from(r->keys.logs), str_from(c->log[i].name),
                   str_from(stat));
    }
    return c->log_count;
}

static int part_once(struct redis_store *r, void *arg, struct err *err)
{
    struct part *p = arg;
    struct redis_seen seen;
    int rc = redis_watch_term(r, &seen, err);
    if (rc < 0) return rc;
    struct redis_state now = seen.state;
    now.writes++;
    now.count = p->last ? copied_count(&r->copy) : REDIS_COUNT_UNFINISHED;
    if (p->last) now.from[0] = 0;
    redis_multi(r);
    for (uint32_t i = 0; i < p->count; i++)
        send_entry(r, &p->entry[i], ++now.revision);
    uint32_t logs = p->last ? send_logs(r) : 0;
    redis_put_state(r, &now);
    rc = redis_commit(r, 2 * p->count + logs + 1, err);
    if (rc < 0) return rc;
    r->writes = now.writes;
    if (p->last) r->copy.state = now;
    return 0;
}

/* Takes an entry into the part, which is written when it is full. */
static int part_add(struct part *p, const struct store_entry *e)
{
    p->entry[p->count++] = *e;
    if (p->count < REDIS_PAGE_ENTRIES) return 0;
    int rc = redis_run(p->r, part_once, p, p->err);
    p->count = 0;
    return rc;
}

static int add_entry(void *ctx, const struct store_entry *e)
{
    return part_add(ctx, e);
}

/* Looks for stored keys that the copy does not have, a page a call. */
struct stale_job {
    char from[STORE_KEY_BYTES_MAX + 1]; /* "-" for the beginning, "(KEY" behind it */
    size_t from_len;
    uint32_t count; /* of the page; below REDIS_PAGE_ENTRIES: the last one */
    struct part *part;
    struct buf names; /* of this page */
};

/* Reads a page of stored keys. */
static int names_once(struct redis_store *r, void *arg, struct err *err)
{
    struct stale_job *j = arg;
    char most[8];
    snprintf(most, sizeof most, "%d", REDIS_PAGE_ENTRIES);
    buf_clear(&j->names);
    REDIS_SEND(r->link, STR("ZRANGEBYLEX"), str_from(r->keys.keys), str_of(j->from, j->from_len),
               STR("+"), STR("LIMIT"), STR("0"), str_from(most));
    int rc = redis_take(r->link, err);
    j->count = rc == 0 ? (uint32_t)min_size(redis_count(r->link), REDIS_PAGE_ENTRIES) : 0;
    for (uint32_t i = 0; i < j->count; i++) {
        struct str key = redis_text(r->link, i);
        if (key.len == 0 || key.len > STORE_KEY_BYTES_MAX)
            return redis_damaged(&r->keys, "a key", err);
        buf_u32(&j->names, (uint32_t)key.len);
        buf_str(&j->names, key);
    }
    return rc < 0 ? rc : j->names.rc;
}

/* Drops the entries of a page that the copy does not have. */
static int drop_stale(struct redis_store *r, struct stale_job *j)
{
    int rc = 0;
    for (size_t at = 0; at < j->names.len && rc == 0;) {
        uint32_t len;
        memcpy(&len, j->names.data + at, sizeof len);
        struct str key = str_of(j->names.data + at + sizeof len, len);
        struct store_entry e = { .key = key };
        at += sizeof len + len;
        if (store_get(r->copy.entries, key, NULL, NULL, NULL) < 0) rc = part_add(j->part, &e);
        j->from[0] = '(';
        memcpy(j->from + 1, key.data, len);
        j->from_len = len + 1;
    }
    /* The keys live in this page. */
    if (rc == 0 && j->part->count > 0) rc = redis_run(r, part_once, j->part, j->part->err);
    j->part->count = 0;
    return rc;
}

int redis_write_anew(struct redis_store *r, struct err *err)
{
    struct part p = { .r = r, .err = err };
    struct stale_job j = { .from = "-", .from_len = 1, .count = REDIS_PAGE_ENTRIES, .part = &p };
    int rc = 0;
    while (rc == 0 && j.count == REDIS_PAGE_ENTRIES) {
        rc = redis_run(r, names_once, &j, err);
        if (rc == 0) rc = drop_stale(r, &j);
    }
    buf_fini(&j.names);
    if (rc == 0) rc = store_list(r->copy.entries, STR(""), add_entry, &p, NULL);
    p.last = true;
    return rc < 0 ? rc : redis_run(r, part_once, &p, err);
}
