/* store_memory.c - keeps a store in memory, for the simulator and for tests.
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

struct memory_store {
    struct store store;
    struct entry *entries;
    uint32_t count, count_max;
    uint32_t records; /* in all logs; bounded by count_max as well */
    uint64_t revision;
    struct memory_log logs[LOGS_MAX];
};

static struct memory_store *memory_of(struct store *s)
{
    return (struct memory_store *)(void *)s;
}

static int full(const struct memory_store *m, struct err *err)
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
static uint32_t entry_at(const struct memory_store *m, struct str key, bool *ret_found)
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

static void memory_close(struct store *s)
{
    struct memory_store *m = memory_of(s);
    for (uint32_t i = 0; i < m->count; i++) {
        free(m->entries[i].key.data);
        free(m->entries[i].value.data);
    }
    for (size_t i = 0; i < LOGS_MAX; i++) {
        for (uint64_t j = 0; j < m->logs[i].count; j++)
            free(m->logs[i].records[j].data);
        free(m->logs[i].records);
    }
    free(m->entries);
    free(m);
}

static int memory_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
                      struct err *err)
{
    struct memory_store *m = memory_of(s);
    bool found;
    uint32_t at = entry_at(m, key, &found);
    if (!found)
        return err_set(err, -ENOENT, "store: no '%.*s'", (int)min_size(key.len, 80), key.data);
    if (value && buf_str(value, blob_str(&m->entries[at].value)) < 0) return value->rc;
    if (ret_version) *ret_version = m->entries[at].version;
    return 0;
}

static int entry_insert(struct memory_store *m, uint32_t at, struct str key, struct blob value,
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
    struct memory_store *m = memory_of(s);
    bool found;
    struct blob copy;
    uint32_t at = entry_at(m, key, &found);
    int rc = store_version_check(key, found ? m->entries[at].version : 0, expected, err);
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
    struct memory_store *m = memory_of(s);
    bool found;
    uint32_t at = entry_at(m, key, &found);
    if (!found)
        return err_set(err, -ENOENT, "store: no '%.*s'", (int)min_size(key.len, 80), key.data);
    int rc = store_version_check(key, m->entries[at].version, expected, err);
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
    (void)err;
    struct memory_store *m = memory_of(s);
    bool found;
    for (uint32_t at = entry_at(m, prefix, &found); at < m->count; at++) {
        const struct entry *e = &m->entries[at];
        if (!str_starts(blob_str(&e->key), prefix)) break;
        struct store_entry view = { blob_str(&e->key), blob_str(&e->value), e->version };
        int rc = fn(ctx, &view);
        if (rc != 0) return rc;
    }
    return 0;
}

/* ---- logs ---- */

/* Returns the log of that name, or a new one if `make`. Only our code names logs, so LOGS_MAX is known to
 * be enough. */
static struct memory_log *log_find(struct memory_store *m, const char *name, bool make)
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

static void log_drop_oldest(struct memory_store *m, struct memory_log *l)
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
    struct memory_store *m = memory_of(s);
    struct memory_log *l = log_find(m, log->name, true);
    struct blob copy;
    if (l->count < log->count_max && m->records == m->count_max) return full(m, err);
    int rc = blob_make(value, &copy, err);
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
    (void)err;
    const struct memory_log *l = log_find(memory_of(s), log->name, false);
    if (!l) return 0;
    uint64_t seq = from_seq > l->first ? from_seq : l->first;
    for (; max > 0 && seq < l->first + l->count; seq++, max--) {
        struct store_record r = { seq, blob_str(&l->records[seq - l->first]) };
        int rc = fn(ctx, &r);
        if (rc != 0) return rc;
    }
    return 0;
}

static int memory_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                           struct err *err)
{
    (void)err;
    const struct memory_log *l = log_find(memory_of(s), log->name, false);
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
};

int store_memory_open(uint32_t entries_max, struct store **ret, struct err *err)
{
    struct memory_store *m = calloc(1, sizeof *m);
    struct entry *entries = calloc(entries_max ? entries_max : 1, sizeof *entries);
    if (!m || !entries) {
        free(m);
        free(entries);
        return err_set(err, -ENOMEM, "store: no memory for %u entries", entries_max);
    }
    *m = (struct memory_store){ .store = { &memory_ops },
                                .entries = entries,
                                .count_max = entries_max };
    *ret = &m->store;
    return 0;
}
