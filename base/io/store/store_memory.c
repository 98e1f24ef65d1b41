/* store_memory.c - keeps a store in memory, for the simulator and for tests; several handles may share it.
 *
 * A shared one behaves as Redis does: it knows a lease, refuses writes of a term that is over, and may lose
 * its content (store_memory_lose), which begins a new life of it.
 *
 * Entries are an array sorted by key: a simulation holds hundreds, walks them in order all the
 * time, and must not depend on the order of a hash. It gives the same answers as store_file.c;
 * t_store runs the same rows against both.
 */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/store/store_backend.h"

#include <stdio.h>
#include <stdlib.h>

#define LOGS_MAX 16
#define NAME_BYTES_MAX 64

struct blob {
    char *data;
    size_t len;
};

struct entry {
    struct blob key, value;
    uint64_t version;
};

struct memory_log {
    char name[NAME_BYTES_MAX];
    struct blob *records; /* of seq first .. first + count - 1 */
    uint64_t first, count, dropped;
};

struct content {
    uint32_t handles;
    struct entry *entries;
    uint32_t count, count_max;
    uint32_t records; /* in all logs; bounded by count_max as well */
    uint64_t revision;
    struct memory_log logs[LOGS_MAX];
    uint64_t life; /* counts the losses of all content */
    struct store_lease lease;
};

struct memory_store {
    struct store store;
    struct content *content;
    uint64_t life; /* of the content, when the handle's term began */
    bool away;
    char holder[STORE_HOLDER_BYTES];
};

static struct memory_store *memory_of(struct store *s)
{
    return (struct memory_store *)(void *)s;
}

static struct content *content_of(struct store *s)
{
    return memory_of(s)->content;
}

static int full(const struct content *m, struct err *err)
{
    return err_set(err, -ENOSPC, "store: full, %u values are the bound", m->count_max);
}

/* Copies a value. The fault point stands where a disk would be written. */
static int blob_make(struct str s, struct blob *ret, struct err *err)
{
    if (FAULT("store.write")) return err_set(err, -ENOSPC, "store: no space left");
    char *data = malloc(s.len + 1);
    if (!data) return err_set(err, -ENOMEM, "store: no memory");
    if (s.len > 0) memcpy(data, s.data, s.len);
    *ret = (struct blob){ data, s.len };
    return 0;
}

static struct str blob_str(const struct blob *b)
{
    return str_of(b->data, b->len);
}

/* Returns the place where `key` is or would be; *ret_found says which. */
static uint32_t entry_at(const struct content *m, struct str key, bool *ret_found)
{
    uint32_t low = 0, high = m->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (str_cmp(blob_str(&m->entries[middle].key), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_found = low < m->count && str_eq(blob_str(&m->entries[low].key), key);
    return low;
}

/* ---- terms ---- */

static int reach(struct store *s, struct err *err)
{
    return memory_of(s)->away ? err_set(err, -ENETDOWN, "store: cannot be reached") : 0;
}

/* Refuses calls of a term on content that was lost since. */
static int same_life(struct store *s, struct err *err)
{
    const struct memory_store *m = memory_of(s);
    int rc = reach(s, err);
    if (rc < 0) return rc;
    if (!s->shared || !s->epoch || m->life == m->content->life) return 0;
    return store_deposed(err, "the store lost its content");
}

/* Refuses writes of a term that is over. */
static int in_term(struct store *s, struct err *err)
{
    const struct memory_store *m = memory_of(s);
    const struct store_lease *l = &m->content->lease;
    int rc = same_life(s, err);
    if (rc < 0 || !s->shared) return rc;
    if (l->held && l->epoch == s->epoch && strcmp(l->holder, m->holder) == 0) return 0;
    return store_deposed(err, "the lease is another's");
}

static int memory_lease_see(struct store *s, struct store_lease *ret, struct err *err)
{
    int rc = reach(s, err);
    if (rc < 0) return rc;
    *ret = content_of(s)->lease;
    ret->line = content_of(s)->life; /* another server, as it were */
    return 0;
}

static void copy_name(char *to, struct str from)
{
    if (from.len) memcpy(to, from.data, from.len);
    to[from.len] = 0;
}

static int memory_lease_acquire(struct store *s, const struct store_claim *claim,
                                const struct store_lease *seen, uint64_t epoch, struct err *err)
{
    struct memory_store *m = memory_of(s);
    struct store_lease *l = &m->content->lease, now;
    int rc = memory_lease_see(s, &now, err);
    if (rc < 0) return rc;
    if (!store_lease_same(&now, seen)) return err_set(err, -EBUSY, "store: the lease has changed");
    *l = (struct store_lease){ .epoch = epoch, .held = true, .term_us = claim->term_us };
    copy_name(l->holder, claim->holder);
    copy_name(l->address, claim->address);
    copy_name(m->holder, claim->holder);
    m->life = m->content->life;
    return 0;
}

static int memory_lease_renew(struct store *s, struct err *err)
{
    int rc = in_term(s, err);
    if (rc == 0) content_of(s)->lease.beat++;
    return rc;
}

static void memory_lease_release(struct store *s)
{
    if (in_term(s, NULL) == 0) content_of(s)->lease.held = false;
}

/* ---- entries ---- */

static void content_clear(struct content *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        free(m->entries[i].key.data);
        free(m->entries[i].value.data);
    }
    for (size_t i = 0; i < LOGS_MAX; i++) {
        for (uint64_t j = 0; j < m->logs[i].count; j++)
            free(m->logs[i].records[j].data);
        free(m->logs[i].records);
        m->logs[i] = (struct memory_log){ 0 };
    }
    m->count = m->records = 0;
}

static void memory_close(struct store *s)
{
    struct content *c = content_of(s);
    if (--c->handles == 0) {
        content_clear(c);
        free(c->entries);
        free(c);
    }
    free(s);
}

void store_memory_cut(struct store *s, bool away)
{
    memory_of(s)->away = away;
}

void store_memory_lose(struct store *s)
{
    struct content *c = content_of(s);
    content_clear(c);
    c->lease = (struct store_lease){ 0 };
    c->life++;
}

static int memory_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
                      struct err *err)
{
    struct content *m = content_of(s);
    bool found;
    int rc = same_life(s, err);
    if (rc < 0) return rc;
    uint32_t at = entry_at(m, key, &found);
    if (!found)
        return err_set(err, -ENOENT, "store: no '%.*s'", (int)min_size(key.len, 80), key.data);
    if (value && buf_str(value, blob_str(&m->entries[at].value)) < 0) return value->rc;
    if (ret_version) *ret_version = m->entries[at].version;
    return 0;
}

static int entry_insert(struct content *m, uint32_t at, struct str key, struct blob value,
                        struct err *err)
{
    struct blob name;
    if (m->count == m->count_max) return full(m, err);
    int rc = blob_make(key, &name, err);
    if (rc < 0) return rc;
    memmove(m->entries + at + 1, m->entries + at, (m->count - at) * sizeof *m->entries);
    m->entries[at] = (struct entry){ .key = name, .value = value };
    m->count++;
    return 0;
}

static int memory_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                         uint64_t *ret_version, struct err *err)
{
    struct content *m = content_of(s);
    bool found;
    struct blob copy;
    uint32_t at = entry_at(m, key, &found);
    int rc = in_term(s, err);
    if (rc == 0) rc = store_version_check(key, found ? m->entries[at].version : 0, expected, err);
    if (rc == 0) rc = blob_make(value, &copy, err);
    if (rc < 0) return rc;
    if (found) {
        free(m->entries[at].value.data);
        m->entries[at].value = copy;
    } else {
        rc = entry_insert(m, at, key, copy, err);
        if (rc < 0) {
            free(copy.data);
            return rc;
        }
    }
    m->entries[at].version = ++m->revision;
    *ret_version = m->revision;
    return 0;
}

static int memory_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    struct content *m = content_of(s);
    bool found;
    int rc = in_term(s, err);
    if (rc < 0) return rc;
    uint32_t at = entry_at(m, key, &found);
    if (!found)
        return err_set(err, -ENOENT, "store: no '%.*s'", (int)min_size(key.len, 80), key.data);
    rc = store_version_check(key, m->entries[at].version, expected, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc < 0) return rc;
    free(m->entries[at].key.data);
    free(m->entries[at].value.data);
    m->count--;
    memmove(m->entries + at, m->entries + at + 1, (m->count - at) * sizeof *m->entries);
    return 0;
}

static int memory_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx,
                       struct err *err)
{
    struct content *m = content_of(s);
    bool found;
    int rc = same_life(s, err);
    if (rc < 0) return rc;
    for (uint32_t at = entry_at(m, prefix, &found); at < m->count; at++) {
        const struct entry *e = &m->entries[at];
        if (!str_starts(blob_str(&e->key), prefix)) break;
        struct store_entry view = { blob_str(&e->key), blob_str(&e->value), e->version };
        rc = fn(ctx, &view);
        if (rc != 0) return rc;
    }
    return 0;
}

/* ---- logs ---- */

/* Returns the log of that name, or a new one if `make`. Only our code names logs, so LOGS_MAX is known to
 * be enough. */
static struct memory_log *log_find(struct content *m, const char *name, bool make)
{
    for (size_t i = 0; i < LOGS_MAX; i++) {
        struct memory_log *l = &m->logs[i];
        if (strcmp(l->name, name) == 0) return l;
        if (l->name[0] != 0) continue;
        if (!make) return NULL;
        must(strlen(name) < sizeof l->name);
        snprintf(l->name, sizeof l->name, "%s", name);
        l->first = 1;
        return l;
    }
    must(!make);
    return NULL;
}

static void log_drop_oldest(struct content *m, struct memory_log *l)
{
    free(l->records[0].data);
    l->count--;
    l->first++;
    l->dropped++;
    m->records--;
    memmove(l->records, l->records + 1, l->count * sizeof *l->records);
}

static int memory_append(struct store *s, const struct store_log *log, struct str value,
                         uint64_t *ret_seq, struct err *err)
{
    struct content *m = content_of(s);
    struct blob copy;
    int rc = in_term(s, err);
    if (rc < 0) return rc;
    struct memory_log *l = log_find(m, log->name, true);
    if (l->count < log->count_max && m->records == m->count_max) return full(m, err);
    rc = blob_make(value, &copy, err);
    if (rc < 0) return rc;
    struct blob *more = realloc(l->records, (l->count + 1) * sizeof *more);
    if (!more) {
        free(copy.data);
        return err_set(err, -ENOMEM, "store: no memory");
    }
    l->records = more;
    l->records[l->count++] = copy;
    m->records++;
    while (l->count > log->count_max)
        log_drop_oldest(m, l);
    *ret_seq = l->first + l->count - 1;
    return 0;
}

static int memory_log_read(struct store *s, const struct store_log *log, uint64_t from_seq,
                           uint64_t max, store_record_fn fn, void *ctx, struct err *err)
{
    const struct memory_log *l = log_find(content_of(s), log->name, false);
    int rc = same_life(s, err);
    if (rc < 0 || !l) return rc;
    uint64_t seq = from_seq > l->first ? from_seq : l->first;
    for (; max > 0 && seq < l->first + l->count; seq++, max--) {
        struct store_record r = { seq, blob_str(&l->records[seq - l->first]) };
        rc = fn(ctx, &r);
        if (rc != 0) return rc;
    }
    return 0;
}

static int memory_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                           struct err *err)
{
    const struct memory_log *l = log_find(content_of(s), log->name, false);
    int rc = same_life(s, err);
    if (rc < 0) return rc;
    *ret = (struct store_log_stat){ 0 };
    if (!l || l->count == 0) return 0;
    *ret = (struct store_log_stat){
        .first = l->first, .last = l->first + l->count - 1, .count = l->count, .dropped = l->dropped
    };
    return 0;
}

static const struct store_ops memory_ops = {
    .close = memory_close,
    .get = memory_get,
    .put_if = memory_put_if,
    .delete_if = memory_delete_if,
    .list = memory_list,
    .append = memory_append,
    .log_read = memory_log_read,
    .log_stat = memory_log_stat,
    .lease_see = memory_lease_see,
    .lease_acquire = memory_lease_acquire,
    .lease_renew = memory_lease_renew,
    .lease_release = memory_lease_release,
};

static int handle_new(struct content *c, struct store **ret, struct err *err)
{
    struct memory_store *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, -ENOMEM, "store: no memory for a handle");
    *m = (struct memory_store){ .store = { .ops = &memory_ops }, .content = c };
    c->handles++;
    *ret = &m->store;
    return 0;
}

int store_memory_open(uint32_t entries_max, struct store **ret, struct err *err)
{
    struct content *c = calloc(1, sizeof *c);
    struct entry *entries = calloc(entries_max ? entries_max : 1, sizeof *entries);
    int rc = c && entries ? 0 : -ENOMEM;
    if (rc < 0) err_set(err, rc, "store: no memory for %u entries", entries_max);
    if (rc == 0) {
        *c = (struct content){ .entries = entries, .count_max = entries_max };
        rc = handle_new(c, ret, err);
    }
    if (rc == 0) return 0;
    free(entries);
    free(c);
    return rc;
}

int store_memory_join(struct store *first, struct store **ret, struct err *err)
{
    must(first->ops == &memory_ops);
    int rc = handle_new(content_of(first), ret, err);
    if (rc == 0) first->shared = (*ret)->shared = true;
    return rc;
}
