/* store_redis.c - keeps the store of several controllers in Redis: its keys, its transactions, and a copy of it
 * in memory.
 *
 *     {FLEET}:state     "1 LIFE REVISION COUNT WRITES": the format; an id of this content; the last version
 *                       given; the number of entries; the number of writes ever
 *     {FLEET}:lease     "EPOCH BEAT HELD TERM_US HOLDER ADDRESS"
 *     {FLEET}:keys      the keys of all entries, a sorted set with equal scores: it lists them in bytewise order
 *     {FLEET}:e:KEY     "VERSION\nVALUE"
 *     {FLEET}:logs      a hash from a log's name to "LAST DROPPED"
 *     {FLEET}:log:NAME  a sorted set of "SEQ\nVALUE" by SEQ
 *
 * A write is optimistic: it watches state, lease and the entry, reads them, checks that the term is ours, and
 * commits all its changes in one transaction, which fails if anybody touched what was read. No script is used:
 * the server may forbid them.
 *
 * `state` detects what Redis alone would hide: content that is gone (no state), that belongs to another
 * beginning (LIFE), that went back to an older time (WRITES), or of which keys were evicted (COUNT). A term
 * ends then. The handle that acquires the lease next writes the content anew from its copy, if its copy is
 * newer than what is stored.
 *
 * Rejected: one key for each fact about the content; a server that evicts keys would take some and leave
 * others. Rejected: keys that expire; see store_election.c. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/io/store/store_backend.h"
#include "base/io/store/store_redis_link.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define FORMAT "1"
#define ENTRIES_MAX 16384
#define LOGS_MAX 16
#define LOG_NAME_BYTES 64
#define FLEET_BYTES_MAX 64
#define LIFE_BYTES 17 /* 16 hexadecimal digits */
#define VERSION_BYTES 21
#define PAGE_ENTRIES 64             /* of a listing; each value is a reply of its own */
#define WALK_CALLS_MAX 8            /* timeouts that a whole listing may take */
#define PAGE_RECORDS 4              /* of a log; they come in one reply */
#define COUNT_UNFINISHED UINT64_MAX /* the content is being written anew */
#define WAIT_SHARE 2                /* half of the timeout at most waits for a replica */
#define KEY_BYTES (FLEET_BYTES_MAX + 16 + STORE_KEY_BYTES_MAX)

struct state {
    bool present;
    char life[LIFE_BYTES];
    uint64_t revision, count, writes;
};

struct copied_log {
    char name[LOG_NAME_BYTES];
    uint64_t last, dropped;
};

/* The content as this process saw it last. */
struct copy {
    struct store *entries; /* NULL: there is none */
    struct state state;
    struct copied_log log[LOGS_MAX];
    uint32_t log_count;
};

struct redis_store {
    struct store store;
    struct redis_link *link;
    int64_t timeout_us;
    char prefix[FLEET_BYTES_MAX + 4];
    char state_key[FLEET_BYTES_MAX + 16], lease_key[FLEET_BYTES_MAX + 16];
    char keys_key[FLEET_BYTES_MAX + 16], logs_key[FLEET_BYTES_MAX + 16];

    /* of the term */
    struct store_lease lease;
    uint64_t beat_tried; /* of a renewal whose reply was lost; else lease.beat */
    char life[LIFE_BYTES];
    uint64_t writes;

    struct copy copy;
    bool busy; /* in a walk, whose function must not call the store */
};

static struct redis_store *redis_of(struct store *s)
{
    return (struct redis_store *)(void *)s;
}

/* ---- keys and records ---- */

static struct str entry_key(const struct redis_store *r, struct str key, char ret[KEY_BYTES])
{
    int n = snprintf(ret, KEY_BYTES, "%se:", r->prefix);
    memcpy(ret + n, key.data, key.len);
    return str_of(ret, (size_t)n + key.len);
}

static struct str log_key(const struct redis_store *r, const char *name, char ret[KEY_BYTES])
{
    snprintf(ret, KEY_BYTES, "%slog:%s", r->prefix, name);
    return str_from(ret);
}

static bool cut_number(struct str *rest, uint64_t *ret)
{
    return str_to_u64(str_cut(rest, ' '), ret) == 0;
}

static bool cut_name(struct str *rest, char *to, size_t size)
{
    struct str word = str_cut(rest, ' ');
    if (word.len == 0 || word.len >= size) return false;
    memcpy(to, word.data, word.len);
    to[word.len] = 0;
    return true;
}

static int damaged(const struct redis_store *r, const char *what, struct err *err)
{
    return err_set(
        err, -EILSEQ,
        "store: %s of %s in Redis cannot be read, or is gone; does the server evict keys "
        "(maxmemory-policy must be noeviction), or does another program write there?",
        what, r->prefix);
}

static int read_state(const struct redis_store *r, struct str text, struct state *ret,
                      struct err *err)
{
    struct state s = { .present = text.data != NULL };
    struct str rest = text;
    if (!s.present) {
        *ret = s;
        return 0;
    }
    if (!str_eq(str_cut(&rest, ' '), STR(FORMAT)))
        return err_set(err, -EILSEQ, "store: %s in Redis is of another release", r->prefix);
    if (!cut_name(&rest, s.life, sizeof s.life) || !cut_number(&rest, &s.revision) ||
        !cut_number(&rest, &s.count) || !cut_number(&rest, &s.writes))
        return damaged(r, "state", err);
    *ret = s;
    return 0;
}

static void print_state(const struct state *s, char ret[128])
{
    snprintf(ret, 128, FORMAT " %s %" PRIu64 " %" PRIu64 " %" PRIu64, s->life, s->revision,
             s->count, s->writes);
}

static int read_lease(const struct redis_store *r, struct str text, struct store_lease *ret,
                      struct err *err)
{
    struct store_lease l = { .line = redis_line(r->link) };
    uint64_t held, term_us;
    struct str rest = text;
    if (text.data) {
        bool whole = cut_number(&rest, &l.epoch) && cut_number(&rest, &l.beat) &&
                     cut_number(&rest, &held) && cut_number(&rest, &term_us) &&
                     term_us < INT64_MAX && cut_name(&rest, l.holder, sizeof l.holder) &&
                     cut_name(&rest, l.address, sizeof l.address);
        if (!whole) return damaged(r, "lease", err);
        l.held = held != 0;
        l.term_us = (int64_t)term_us;
        if (strcmp(l.address, "-") == 0) l.address[0] = 0;
    }
    *ret = l;
    return 0;
}

static void print_lease(const struct store_lease *l, char ret[STORE_ADDRESS_BYTES + 128])
{
    snprintf(ret, STORE_ADDRESS_BYTES + 128, "%" PRIu64 " %" PRIu64 " %d %lld %s %s", l->epoch,
             l->beat, l->held, (long long)l->term_us, l->holder, l->address[0] ? l->address : "-");
}

/* Splits "NUMBER\nREST". */
static int split_number(const struct redis_store *r, struct str text, uint64_t *ret,
                        struct str *rest, struct err *err)
{
    struct str tail = text, number = str_cut(&tail, '\n');
    if (str_to_u64(number, ret) < 0 || number.len == text.len) return damaged(r, "an entry", err);
    *rest = str_of(text.data + number.len + 1, text.len - number.len - 1);
    return 0;
}

/* ---- calls ---- */

typedef int (*attempt_fn)(struct redis_store *r, void *job, struct err *err);

/* Makes the call, again while another server is named or another writer came between. */
static int run(struct redis_store *r, attempt_fn fn, void *job, struct err *err)
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

struct seen {
    struct state state;
    struct store_lease lease;
};

static void ask_seen(struct redis_store *r)
{
    REDIS_SEND(r->link, STR("MGET"), str_from(r->state_key), str_from(r->lease_key));
}

static int take_seen(struct redis_store *r, struct seen *ret, struct err *err)
{
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = read_state(r, redis_text(r->link, 0), &ret->state, err);
    if (rc == 0) rc = read_lease(r, redis_text(r->link, 1), &ret->lease, err);
    return rc;
}

/* Refuses a call of a term whose content is not there any more. */
static int check_life(const struct redis_store *r, const struct state *s, struct err *err)
{
    if (!r->store.epoch) return 0;
    if (!s->present) return store_deposed(err, "Redis has lost the store");
    if (strcmp(s->life, r->life) != 0) return store_deposed(err, "Redis has another store by now");
    if (s->writes < r->writes) return store_deposed(err, "Redis went back to an older store");
    return 0;
}

/* Refuses a write of a term that is over. */
static int check_term(const struct redis_store *r, const struct seen *seen, struct err *err)
{
    const struct store_lease *l = &seen->lease;
    int rc = check_life(r, &seen->state, err);
    if (rc < 0) return rc;
    bool ours = l->held && l->epoch == r->lease.epoch && strcmp(l->holder, r->lease.holder) == 0;
    bool known = l->beat == r->lease.beat || l->beat == r->beat_tried;
    if (!ours) return store_deposed(err, "the lease is another's");
    if (!known || seen->state.writes != r->writes)
        return store_deposed(err, "Redis went back to an older store");
    return 0;
}

static void watch(struct redis_store *r, struct str key)
{
    REDIS_SEND(r->link, STR("WATCH"), str_from(r->state_key), str_from(r->lease_key), key);
}

/* Ends a transaction that was not begun, after a refusal of our own. */
static int unwatch(struct redis_store *r, int rc)
{
    REDIS_SEND(r->link, STR("UNWATCH"));
    (void)redis_take(r->link, NULL);
    return rc;
}

static void put_state(struct redis_store *r, const struct state *s)
{
    char text[128];
    print_state(s, text);
    REDIS_SEND(r->link, STR("SET"), str_from(r->state_key), str_from(text));
}

static void put_lease(struct redis_store *r, const struct store_lease *l)
{
    char text[STORE_ADDRESS_BYTES + 128];
    print_lease(l, text);
    REDIS_SEND(r->link, STR("SET"), str_from(r->lease_key), str_from(text));
}

/* Sends EXEC and takes the replies of MULTI, of `commands` and of EXEC. -EAGAIN: somebody wrote meanwhile, and
 * nothing was changed. -EREMOTEIO: the reply did not come. */
static int commit(struct redis_store *r, uint32_t commands, struct err *err)
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

static void begin(struct redis_store *r)
{
    REDIS_SEND(r->link, STR("MULTI"));
}

/* ---- the copy ---- */

static void copy_drop(struct copy *c)
{
    if (c->entries) store_close(c->entries);
    *c = (struct copy){ 0 };
}

static struct copied_log *copy_log(struct copy *c, struct str name)
{
    for (uint32_t i = 0; i < c->log_count; i++)
        if (str_eq(str_from(c->log[i].name), name)) return &c->log[i];
    if (c->log_count == LOGS_MAX || name.len >= LOG_NAME_BYTES) return NULL;
    struct copied_log *l = &c->log[c->log_count++];
    memcpy(l->name, name.data, name.len);
    return l;
}

/* Notes a write of our own. A copy that cannot follow, for want of memory, is given up. */
static void copy_follow(struct redis_store *r, const struct state *now, int rc)
{
    r->writes = now->writes;
    r->copy.state = *now;
    if (rc < 0) copy_drop(&r->copy);
}

/* ---- reading ---- */

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
    char name[KEY_BYTES];
    struct state state;
    uint64_t version;
    struct str value;
    REDIS_SEND(r->link, STR("MGET"), str_from(r->state_key), entry_key(r, j->key, name));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = read_state(r, redis_text(r->link, 0), &state, err);
    if (rc == 0) rc = check_life(r, &state, err);
    if (rc == 0 && (!state.present || !redis_has(r->link, 1))) rc = absent(j->key, err);
    if (rc == 0) rc = split_number(r, redis_text(r->link, 1), &version, &value, err);
    if (rc < 0) return rc;
    if (j->value && buf_str(j->value, value) < 0)
        return err_set(err, j->value->rc, "store: no room for the value");
    if (j->ret_version) *j->ret_version = version;
    return 0;
}

static int redis_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
                     struct err *err)
{
    struct get_job j = { key, value, ret_version };
    return run(redis_of(s), get_once, &j, err);
}

/* A walk over the entries from `from` on, a page a call. */
struct page_job {
    char from[STORE_KEY_BYTES_MAX + 1]; /* "[KEY" begins with it, "(KEY" behind it */
    size_t from_len;
    struct str prefix;
    store_entry_fn fn;
    void *ctx;
    struct state state; /* as the page saw it */
    uint32_t count;     /* of the page; below PAGE_ENTRIES: the last one */
    bool over;          /* beyond the prefix */
    int result;         /* of fn */
};

static void ask_values(struct redis_store *r, struct buf *names, size_t *len, uint32_t count)
{
    char name[KEY_BYTES];
    size_t at = 0;
    for (uint32_t i = 0; i < count; at += len[i], i++)
        REDIS_SEND(r->link, STR("GET"), entry_key(r, str_of(names->data + at, len[i]), name));
}

static int give(struct redis_store *r, struct page_job *j, struct str key, struct err *err)
{
    struct store_entry e = { .key = key };
    /* Without a term another process may be deleting it in this moment. */
    if (redis_is_nil(r->link)) return r->store.epoch ? damaged(r, "an entry", err) : 0;
    int rc = split_number(r, redis_whole(r->link), &e.version, &e.value, err);
    if (rc == 0 && j->result == 0) j->result = j->fn(j->ctx, &e);
    return rc;
}

static int page_once(struct redis_store *r, void *arg, struct err *err)
{
    struct page_job *j = arg;
    CLEANUP(buf_fini) struct buf names = { 0 };
    size_t len[PAGE_ENTRIES], at = 0;
    char most[8];
    snprintf(most, sizeof most, "%d", PAGE_ENTRIES);
    REDIS_SEND(r->link, STR("GET"), str_from(r->state_key));
    REDIS_SEND(r->link, STR("ZRANGEBYLEX"), str_from(r->keys_key), str_of(j->from, j->from_len),
               STR("+"), STR("LIMIT"), STR("0"), str_from(most));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = read_state(r, redis_whole(r->link), &j->state, err);
    if (rc == 0) rc = check_life(r, &j->state, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    j->count = (uint32_t)min_size(redis_count(r->link), PAGE_ENTRIES);
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

static int walk(struct redis_store *r, struct page_job *j, struct err *err)
{
    must(j->prefix.len <= STORE_KEY_BYTES_MAX);
    j->from[0] = '[';
    if (j->prefix.len) memcpy(j->from + 1, j->prefix.data, j->prefix.len);
    j->from_len = j->prefix.len + 1;
    int64_t until_us = clock_mono_us() + WALK_CALLS_MAX * r->timeout_us;
    /* A page that failed half way is not repeated: fn has seen a part of it. */
    for (uint32_t pages = 0; pages <= ENTRIES_MAX / PAGE_ENTRIES; pages++) {
        if (clock_mono_us() > until_us)
            return err_set(err, -ETIMEDOUT, "store: Redis: its entries were not read in time");
        int rc = run(r, page_once, j, err);
        if (rc < 0) return rc;
        if (j->result != 0) return j->result;
        if (j->over || j->count < PAGE_ENTRIES) return 0;
    }
    return err_set(err, -EFBIG, "store: %s holds more than %d entries", r->prefix, ENTRIES_MAX);
}

static int redis_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx,
                      struct err *err)
{
    struct page_job j = { .prefix = prefix, .fn = fn, .ctx = ctx };
    return walk(redis_of(s), &j, err);
}

/* ---- writing ---- */

struct write_job {
    struct str key, value;
    uint64_t expected, version;
};

/* Watches, and reads the term and the entry's version. */
static int look_at(struct redis_store *r, struct str name, struct seen *seen, uint64_t *ret_version,
                   struct err *err)
{
    struct str rest;
    watch(r, name);
    ask_seen(r);
    REDIS_SEND(r->link, STR("GETRANGE"), name, STR("0"), STR("20"));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = take_seen(r, seen, err);
    if (rc == 0) rc = redis_take(r->link, err);
    *ret_version = 0;
    if (rc == 0 && redis_whole(r->link).len > 0)
        rc = split_number(r, redis_whole(r->link), ret_version, &rest, err);
    return rc;
}

static int put_once(struct redis_store *r, void *arg, struct err *err)
{
    struct write_job *j = arg;
    CLEANUP(buf_fini) struct buf text = { 0 };
    char name[KEY_BYTES];
    struct seen seen;
    uint64_t version;
    struct str key = entry_key(r, j->key, name);
    int rc = look_at(r, key, &seen, &version, err);
    if (rc < 0) return rc;
    struct state now = seen.state;
    now.revision++;
    now.writes++;
    now.count += version == 0;
    buf_printf(&text, "%" PRIu64 "\n", now.revision);
    buf_str(&text, j->value);
    rc = check_term(r, &seen, err);
    if (rc == 0) rc = store_version_check(j->key, version, j->expected, err);
    if (rc == 0 && now.count > ENTRIES_MAX)
        rc = err_set(err, -ENOSPC, "store: full, %d entries are the bound", ENTRIES_MAX);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc == 0 && text.rc < 0) rc = err_set(err, text.rc, "store: no memory");
    if (rc < 0) return unwatch(r, rc);
    begin(r);
    REDIS_SEND(r->link, STR("SET"), key, buf_view(&text));
    REDIS_SEND(r->link, STR("ZADD"), str_from(r->keys_key), STR("0"), j->key);
    put_state(r, &now);
    rc = commit(r, 3, err);
    if (rc < 0) return rc;
    j->version = now.revision;
    bool has = r->copy.entries != NULL;
    copy_follow(r, &now,
                has ? store_put_if(r->copy.entries, j->key, j->value, STORE_ANY, NULL, NULL) : 0);
    return 0;
}

static int redis_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                        uint64_t *ret_version, struct err *err)
{
    struct write_job j = { .key = key, .value = value, .expected = expected };
    int rc = run(redis_of(s), put_once, &j, err);
    if (rc == 0) *ret_version = j.version;
    return rc;
}

static int delete_once(struct redis_store *r, void *arg, struct err *err)
{
    struct write_job *j = arg;
    char name[KEY_BYTES];
    struct seen seen;
    uint64_t version;
    struct str key = entry_key(r, j->key, name);
    int rc = look_at(r, key, &seen, &version, err);
    if (rc < 0) return rc;
    struct state now = seen.state;
    now.writes++;
    now.count--;
    rc = check_term(r, &seen, err);
    if (rc == 0 && version == 0) rc = absent(j->key, err);
    if (rc == 0) rc = store_version_check(j->key, version, j->expected, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc < 0) return unwatch(r, rc);
    begin(r);
    REDIS_SEND(r->link, STR("DEL"), key);
    REDIS_SEND(r->link, STR("ZREM"), str_from(r->keys_key), j->key);
    put_state(r, &now);
    rc = commit(r, 3, err);
    if (rc < 0) return rc;
    if (r->copy.entries) (void)store_delete_if(r->copy.entries, j->key, STORE_ANY, NULL);
    copy_follow(r, &now, 0);
    return 0;
}

static int redis_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    struct write_job j = { .key = key, .expected = expected };
    return run(redis_of(s), delete_once, &j, err);
}

/* ---- logs ---- */

struct log_job {
    const struct store_log *log;
    struct str value;
    uint64_t seq; /* read: the next one; append: the one given */
    uint64_t max;
    store_record_fn fn;
    void *ctx;
    uint32_t count;
    int result;
    struct store_log_stat stat;
};

static int read_log(const struct redis_store *r, struct str text, uint64_t *ret_last,
                    uint64_t *ret_dropped, struct err *err)
{
    struct str rest = text;
    *ret_last = *ret_dropped = 0;
    if (text.len == 0) return 0;
    if (cut_number(&rest, ret_last) && cut_number(&rest, ret_dropped)) return 0;
    return damaged(r, "a log", err);
}

static int append_once(struct redis_store *r, void *arg, struct err *err)
{
    struct log_job *j = arg;
    CLEANUP(buf_fini) struct buf text = { 0 };
    char name[KEY_BYTES], seq[VERSION_BYTES], bound[VERSION_BYTES], stat[2 * VERSION_BYTES];
    struct str key = log_key(r, j->log->name, name), log = str_from(j->log->name);
    struct seen seen;
    uint64_t last, dropped;
    REDIS_SEND(r->link, STR("WATCH"), str_from(r->state_key), str_from(r->lease_key),
               str_from(r->logs_key));
    ask_seen(r);
    REDIS_SEND(r->link, STR("HGET"), str_from(r->logs_key), log);
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = take_seen(r, &seen, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc == 0) rc = read_log(r, redis_whole(r->link), &last, &dropped, err);
    if (rc < 0) return rc;
    last++;
    snprintf(seq, sizeof seq, "%" PRIu64, last);
    snprintf(bound, sizeof bound, "%" PRIu64,
             last > j->log->count_max ? last - j->log->count_max : 0);
    REDIS_SEND(r->link, STR("ZCOUNT"), key, STR("-inf"), str_from(bound));
    rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    dropped += (uint64_t)max_i64(redis_number(r->link), 0);
    struct state now = seen.state;
    now.writes++;
    snprintf(stat, sizeof stat, "%" PRIu64 " %" PRIu64, last, dropped);
    buf_printf(&text, "%s\n", seq);
    buf_str(&text, j->value);
    rc = check_term(r, &seen, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc == 0 && text.rc < 0) rc = err_set(err, text.rc, "store: no memory");
    if (rc < 0) return unwatch(r, rc);
    begin(r);
    REDIS_SEND(r->link, STR("ZADD"), key, str_from(seq), buf_view(&text));
    REDIS_SEND(r->link, STR("ZREMRANGEBYSCORE"), key, STR("-inf"), str_from(bound));
    REDIS_SEND(r->link, STR("HSET"), str_from(r->logs_key), log, str_from(stat));
    put_state(r, &now);
    rc = commit(r, 4, err);
    if (rc < 0) return rc;
    j->seq = last;
    struct copied_log *copied = copy_log(&r->copy, log);
    if (copied) copied->last = last, copied->dropped = dropped;
    copy_follow(r, &now, 0);
    return 0;
}

static int redis_append(struct store *s, const struct store_log *log, struct str value,
                        uint64_t *ret_seq, struct err *err)
{
    struct log_job j = { .log = log, .value = value };
    int rc = run(redis_of(s), append_once, &j, err);
    if (rc == 0) *ret_seq = j.seq;
    return rc;
}

static int records_once(struct redis_store *r, void *arg, struct err *err)
{
    struct log_job *j = arg;
    char name[KEY_BYTES], from[VERSION_BYTES], most[VERSION_BYTES];
    struct state state;
    snprintf(from, sizeof from, "%" PRIu64, j->seq);
    snprintf(most, sizeof most, "%d", (int)min_size(j->max, PAGE_RECORDS));
    REDIS_SEND(r->link, STR("GET"), str_from(r->state_key));
    REDIS_SEND(r->link, STR("ZRANGEBYSCORE"), log_key(r, j->log->name, name), str_from(from),
               STR("+inf"), STR("LIMIT"), STR("0"), str_from(most));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = read_state(r, redis_whole(r->link), &state, err);
    if (rc == 0) rc = check_life(r, &state, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    j->count = (uint32_t)redis_count(r->link);
    for (uint32_t i = 0; i < j->count && j->result == 0; i++) {
        struct store_record record;
        rc = split_number(r, redis_text(r->link, i), &record.seq, &record.value, err);
        if (rc < 0) return rc;
        j->seq = record.seq + 1;
        r->busy = true;
        j->result = j->fn(j->ctx, &record);
        r->busy = false;
    }
    return 0;
}

static int redis_log_read(struct store *s, const struct store_log *log, uint64_t from_seq,
                          uint64_t max, store_record_fn fn, void *ctx, struct err *err)
{
    struct log_job j = { .log = log, .seq = from_seq, .max = max, .fn = fn, .ctx = ctx };
    while (j.max > 0) {
        uint64_t page = min_size(j.max, PAGE_RECORDS);
        int rc = run(redis_of(s), records_once, &j, err);
        if (rc < 0) return rc;
        if (j.result != 0) return j.result;
        if (j.count < page) return 0;
        j.max -= j.count;
    }
    return 0;
}

static int log_stat_once(struct redis_store *r, void *arg, struct err *err)
{
    struct log_job *j = arg;
    char name[KEY_BYTES];
    struct state state;
    struct store_log_stat stat = { 0 };
    struct str key = log_key(r, j->log->name, name);
    REDIS_SEND(r->link, STR("GET"), str_from(r->state_key));
    REDIS_SEND(r->link, STR("HGET"), str_from(r->logs_key), str_from(j->log->name));
    REDIS_SEND(r->link, STR("ZCARD"), key);
    REDIS_SEND(r->link, STR("ZRANGE"), key, STR("0"), STR("0"), STR("WITHSCORES"));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = read_state(r, redis_whole(r->link), &state, err);
    if (rc == 0) rc = check_life(r, &state, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc == 0) rc = read_log(r, redis_whole(r->link), &stat.last, &stat.dropped, err);
    if (rc == 0) rc = redis_take(r->link, err);
    stat.count = rc == 0 ? (uint64_t)redis_number(r->link) : 0;
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    if (stat.count > 0 && str_to_u64(redis_text(r->link, 1), &stat.first) < 0)
        return damaged(r, "a log", err);
    j->stat = stat;
    return 0;
}

static int redis_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                          struct err *err)
{
    struct log_job j = { .log = log };
    int rc = run(redis_of(s), log_stat_once, &j, err);
    if (rc == 0) *ret = j.stat;
    return rc;
}

/* ---- reading all of it ---- */

static int keep_entry(void *ctx, const struct store_entry *e)
{
    return store_put_if(ctx, e->key, e->value, STORE_ANY, NULL, NULL);
}

static int logs_once(struct redis_store *r, void *arg, struct err *err)
{
    struct copy *c = arg;
    REDIS_SEND(r->link, STR("GET"), str_from(r->state_key));
    REDIS_SEND(r->link, STR("HGETALL"), str_from(r->logs_key));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = read_state(r, redis_whole(r->link), &c->state, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    c->log_count = 0;
    for (size_t i = 0; i + 1 < redis_count(r->link); i += 2) {
        struct copied_log *l = copy_log(c, redis_text(r->link, i));
        rc = l ? read_log(r, redis_text(r->link, i + 1), &l->last, &l->dropped, err) : 0;
        if (rc < 0) return rc;
    }
    return 0;
}

/* Reads the whole content. -EBUSY: it changed meanwhile. */
static int load(struct redis_store *r, struct copy *ret, struct err *err)
{
    struct copy c = { 0 };
    int rc = store_memory_open(ENTRIES_MAX, &c.entries, err);
    if (rc < 0) return rc;
    struct page_job j = { .fn = keep_entry, .ctx = c.entries };
    rc = walk(r, &j, err);
    struct state before = j.state;
    if (rc == 0) rc = run(r, logs_once, &c, err);
    bool same = rc == 0 && c.state.present && strcmp(before.life, c.state.life) == 0 &&
                before.writes == c.state.writes;
    if (rc == 0 && !same) rc = err_set(err, -EBUSY, "store: it changed while it was read");
    if (rc < 0) {
        copy_drop(&c);
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

static uint64_t copied_count(const struct copy *c)
{
    uint64_t count = 0;
    (void)store_list(c->entries, STR(""), count_entry, &count, NULL);
    return count;
}

/* Returns true if the copy has all entries that its state counts. */
static bool is_whole(const struct copy *c)
{
    return c->entries && c->state.count == copied_count(c);
}

/* Returns true if the copy is of this content, and of a later moment than `s`. */
static bool is_newer(const struct copy *c, const struct state *s)
{
    if (!c->entries) return false;
    if (!s->present) return true;
    return strcmp(c->state.life, s->life) == 0 &&
           (c->state.writes > s->writes || s->count == COUNT_UNFINISHED);
}

static int seen_once(struct redis_store *r, void *arg, struct err *err)
{
    ask_seen(r);
    return take_seen(r, arg, err);
}

static int redis_refresh(struct store *s, struct err *err)
{
    struct redis_store *r = redis_of(s);
    struct seen seen;
    struct copy now;
    if (s->epoch) return 0;
    int rc = run(r, seen_once, &seen, err);
    if (rc < 0 || !seen.state.present || seen.state.count == COUNT_UNFINISHED) return rc;
    const struct state *had = &r->copy.state;
    bool same = r->copy.entries && strcmp(had->life, seen.state.life) == 0 &&
                had->writes >= seen.state.writes;
    if (same) return 0; /* or the store went back: what is copied is the newer */
    rc = load(r, &now, err);
    if (rc < 0) return rc;
    if (!is_whole(&now)) {
        copy_drop(&now);
        return damaged(r, "an entry", err);
    }
    copy_drop(&r->copy);
    r->copy = now;
    return 0;
}

/* ---- writing it anew ---- */

/* A part of the content: entries of the copy, and keys that it does not have (version 0). */
struct part {
    struct redis_store *r;
    struct store_entry entry[PAGE_ENTRIES];
    uint32_t count;
    bool last;
    struct err *err;
};

static void send_entry(struct redis_store *r, const struct store_entry *e, uint64_t version)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char name[KEY_BYTES];
    struct str key = entry_key(r, e->key, name);
    if (e->version == 0) {
        REDIS_SEND(r->link, STR("DEL"), key);
        REDIS_SEND(r->link, STR("ZREM"), str_from(r->keys_key), e->key);
        return;
    }
    buf_printf(&text, "%" PRIu64 "\n", version);
    buf_str(&text, e->value);
    must(text.rc == 0);
    REDIS_SEND(r->link, STR("SET"), key, buf_view(&text));
    REDIS_SEND(r->link, STR("ZADD"), str_from(r->keys_key), STR("0"), e->key);
}

/* Raises the logs to the numbers that they had, so that none is given twice. Records that are lost stay so. */
static uint32_t send_logs(struct redis_store *r)
{
    const struct copy *c = &r->copy;
    for (uint32_t i = 0; i < c->log_count; i++) {
        char stat[2 * VERSION_BYTES];
        snprintf(stat, sizeof stat, "%" PRIu64 " %" PRIu64, c->log[i].last, c->log[i].dropped);
        REDIS_SEND(r->link, STR("HSET"), str_from(r->logs_key), str_from(c->log[i].name),
                   str_from(stat));
    }
    return c->log_count;
}

/* Watches the content, and checks that our term goes on. */
static int watch_term(struct redis_store *r, struct seen *ret, struct err *err)
{
    watch(r, str_from(r->keys_key));
    ask_seen(r);
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = take_seen(r, ret, err);
    if (rc < 0) return rc;
    rc = check_term(r, ret, err);
    return rc < 0 ? unwatch(r, rc) : 0;
}

static int part_once(struct redis_store *r, void *arg, struct err *err)
{
    struct part *p = arg;
    struct seen seen;
    int rc = watch_term(r, &seen, err);
    if (rc < 0) return rc;
    struct state now = seen.state;
    now.writes++;
    now.count = p->last ? copied_count(&r->copy) : COUNT_UNFINISHED;
    begin(r);
    for (uint32_t i = 0; i < p->count; i++)
        send_entry(r, &p->entry[i], ++now.revision);
    uint32_t logs = p->last ? send_logs(r) : 0;
    put_state(r, &now);
    rc = commit(r, 2 * p->count + logs + 1, err);
    if (rc < 0) return rc;
    r->writes = now.writes;
    if (p->last) r->copy.state = now;
    return 0;
}

/* Takes an entry into the part, which is written when it is full. */
static int part_add(struct part *p, const struct store_entry *e)
{
    p->entry[p->count++] = *e;
    if (p->count < PAGE_ENTRIES) return 0;
    int rc = run(p->r, part_once, p, p->err);
    p->count = 0;
    return rc;
}

static int add_entry(void *ctx, const struct store_entry *e)
{
    return part_add(ctx, e);
}

struct stale_job {
    struct page_job page;
    struct part *part;
    struct buf names; /* of this page */
};

/* Reads a page of stored keys. */
static int names_once(struct redis_store *r, void *arg, struct err *err)
{
    struct stale_job *j = arg;
    char most[8];
    snprintf(most, sizeof most, "%d", PAGE_ENTRIES);
    buf_clear(&j->names);
    REDIS_SEND(r->link, STR("ZRANGEBYLEX"), str_from(r->keys_key),
               str_of(j->page.from, j->page.from_len), STR("+"), STR("LIMIT"), STR("0"),
               str_from(most));
    int rc = redis_take(r->link, err);
    j->page.count = rc == 0 ? (uint32_t)min_size(redis_count(r->link), PAGE_ENTRIES) : 0;
    for (uint32_t i = 0; i < j->page.count; i++) {
        struct str key = redis_text(r->link, i);
        if (key.len == 0 || key.len > STORE_KEY_BYTES_MAX) return damaged(r, "a key", err);
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
        j->page.from[0] = '(';
        memcpy(j->page.from + 1, key.data, len);
        j->page.from_len = len + 1;
    }
    /* The keys live in this page. */
    if (rc == 0 && j->part->count > 0) rc = run(r, part_once, j->part, j->part->err);
    j->part->count = 0;
    return rc;
}

/* Writes the content anew from the copy, in our term. Half of it is never taken for the whole: the count says
 * so until the end. */
static int write_anew(struct redis_store *r, struct err *err)
{
    struct part p = { .r = r, .err = err };
    struct stale_job j = { .page = { .from = "-", .from_len = 1, .count = PAGE_ENTRIES },
                           .part = &p };
    int rc = 0;
    while (rc == 0 && j.page.count == PAGE_ENTRIES) {
        rc = run(r, names_once, &j, err);
        if (rc == 0) rc = drop_stale(r, &j);
    }
    buf_fini(&j.names);
    if (rc == 0) rc = store_list(r->copy.entries, STR(""), add_entry, &p, NULL);
    p.last = true;
    return rc < 0 ? rc : run(r, part_once, &p, err);
}

/* ---- the lease ---- */

static int redis_lease_see(struct store *s, struct store_lease *ret, struct err *err)
{
    struct seen seen;
    int rc = run(redis_of(s), seen_once, &seen, err);
    /* A store that lost its content has no lease either, whatever is left of it. */
    if (rc == 0 && !seen.state.present)
        seen.lease = (struct store_lease){ .line = seen.lease.line };
    if (rc == 0) *ret = seen.lease;
    return rc;
}

struct lease_job {
    const struct store_claim *claim;
    const struct store_lease *seen;
    uint64_t epoch;
    struct state before; /* as it was when the lease was taken */
};

static void copy_name(char *to, struct str from)
{
    if (from.len) memcpy(to, from.data, from.len);
    to[from.len] = 0;
}

static int random_life(char ret[LIFE_BYTES], struct err *err)
{
    uint64_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id)
        return err_set(err, -EIO, "the system gives no random bytes");
    snprintf(ret, LIFE_BYTES, "%016" PRIx64, id);
    return 0;
}

/* Makes the state of content that begins now: empty, or what the copy has, not written yet. */
static int first_state(const struct redis_store *r, struct state *ret, struct err *err)
{
    struct state s = { .present = true };
    if (r->copy.entries) {
        s.revision = r->copy.state.revision;
        s.writes = r->copy.state.writes;
        s.count = COUNT_UNFINISHED;
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

static int acquire_once(struct redis_store *r, void *arg, struct err *err)
{
    struct lease_job *j = arg;
    struct seen seen;
    watch(r, str_from(r->keys_key));
    ask_seen(r);
    REDIS_SEND(r->link, STR("ZCARD"), str_from(r->keys_key));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = take_seen(r, &seen, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    struct state now = seen.state;
    if (!now.present) {
        seen.lease = (struct store_lease){ .line = seen.lease.line };
        rc = first_state(r, &now, err);
        if (rc == 0 && redis_number(r->link) > 0 && !r->copy.entries) rc = damaged(r, "state", err);
    }
    if (rc == 0 && !store_lease_same(&seen.lease, j->seen))
        rc = err_set(err, -EBUSY, "store: the lease has changed");
    if (rc < 0) return unwatch(r, rc);
    struct store_lease l = { .epoch = j->epoch, .held = true, .term_us = j->claim->term_us };
    copy_name(l.holder, j->claim->holder);
    copy_name(l.address, j->claim->address);
    begin(r);
    put_state(r, &now);
    put_lease(r, &l);
    rc = commit(r, 2, err);
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
static int settle(struct redis_store *r, const struct state *before, struct err *err)
{
    struct copy now;
    if (is_newer(&r->copy, before)) return write_anew(r, err);
    if (before->count == COUNT_UNFINISHED)
        return err_set(
            err, -EILSEQ,
            "store: %s in Redis was being written anew when its writer ended, and nobody else "
            "has a copy; restore a backup, or delete its keys to start empty",
            r->prefix);
    int rc = load(r, &now, err);
    if (rc < 0) return rc;
    if (!is_whole(&now)) {
        copy_drop(&now);
        return damaged(r, "an entry", err);
    }
    copy_drop(&r->copy);
    r->copy = now;
    return 0;
}

static int redis_lease_acquire(struct store *s, const struct store_claim *claim,
                               const struct store_lease *seen, uint64_t epoch, struct err *err)
{
    struct redis_store *r = redis_of(s);
    struct lease_job j = { .claim = claim, .seen = seen, .epoch = epoch };
    int rc = run(r, acquire_once, &j, err);
    if (rc < 0) return rc;
    s->epoch = epoch;
    rc = settle(r, &j.before, err);
    if (rc < 0) store_lease_release(s);
    return rc;
}

static int renew_once(struct redis_store *r, void *arg, struct err *err)
{
    const bool *gives_back = arg;
    struct seen seen;
    int rc = watch_term(r, &seen, err);
    if (rc < 0) return rc;
    struct store_lease l = seen.lease;
    l.beat++;
    l.held = !*gives_back;
    r->lease.beat = seen.lease.beat;
    r->beat_tried = l.beat;
    begin(r);
    put_lease(r, &l);
    rc = commit(r, 1, err);
    if (rc == 0) rc = replicated(r, err);
    if (rc == 0) r->lease.beat = l.beat;
    return rc;
}

static int redis_lease_renew(struct store *s, struct err *err)
{
    bool gives_back = false;
    return run(redis_of(s), renew_once, &gives_back, err);
}

static void redis_lease_release(struct store *s)
{
    bool gives_back = true;
    (void)run(redis_of(s), renew_once, &gives_back, NULL);
}

/* ---- open and close ---- */

static bool redis_is_reached(const struct store *s)
{
    return redis_is_up(((const struct redis_store *)(const void *)s)->link);
}

static void redis_close(struct store *s)
{
    struct redis_store *r = redis_of(s);
    copy_drop(&r->copy);
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

static int check_fleet(struct str fleet, struct err *err)
{
    bool good = fleet.len > 0 && fleet.len <= FLEET_BYTES_MAX;
    for (size_t i = 0; good && i < fleet.len; i++) {
        char ch = fleet.data[i];
        bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
        good = letter || (ch >= '0' && ch <= '9') || ch == '-' || ch == '_' || ch == '.';
    }
    if (good) return 0;
    return err_set(err, -EINVAL, "a fleet's name has 1 to %d letters, digits, '-', '_' and '.'",
                   FLEET_BYTES_MAX);
}

int store_redis_open(const struct store_redis_config *config, struct store **ret, struct err *err)
{
    int rc = check_fleet(config->fleet, err);
    if (rc < 0) return rc;
    struct redis_store *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, -ENOMEM, "store: no memory");
    r->store = (struct store){ .ops = &redis_ops, .shared = true };
    r->timeout_us = config->timeout_us;
    snprintf(r->prefix, sizeof r->prefix, "{" STR_FMT "}:", STR_ARG(config->fleet));
    snprintf(r->state_key, sizeof r->state_key, "%sstate", r->prefix);
    snprintf(r->lease_key, sizeof r->lease_key, "%slease", r->prefix);
    snprintf(r->keys_key, sizeof r->keys_key, "%skeys", r->prefix);
    snprintf(r->logs_key, sizeof r->logs_key, "%slogs", r->prefix);
    rc = redis_link_new(config, &r->link, err);
    if (rc < 0) {
        free(r);
        return rc;
    }
    *ret = &r->store;
    return 0;
}
