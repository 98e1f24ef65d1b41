/* dict.c - implements a template's dicts: entries in insertion order, and an index once they are many.
 *
 * Equal keys are one key, as in Python: True, 1 and 1.0. A value that can change cannot be a key.
 *
 * Keys come from messages, tools and kwargs, so the hash is keyed; and probes are charged like every
 * other step, so that collisions cost only the steps of the request that makes them.
 */
#include "base/core/hash.h"
#include "base/core/work.h"
#include "base/text/jinja/run.h"
#include "base/text/jinja/value.h"

#define DICT_INDEX_FROM 9 /* entries; with fewer, a linear search is quicker than an index */

int jinja_dict_new(struct jinja_run *run, struct jinja_dict **ret)
{
    void *dict;
    int rc = jinja_alloc(run, 1, sizeof **ret, &dict);
    if (rc == 0) *ret = dict;
    return rc;
}

typedef int (*hash_fn)(struct jinja_run *run, const struct jinja_value *key, uint64_t *ret);
static const hash_fn hashes[JINJA_KIND_COUNT];

static int hash_key(struct jinja_run *run, const struct jinja_value *key, uint64_t *ret)
{
    if (hashes[key->kind]) return hashes[key->kind](run, key, ret);
    return jinja_fail(run, -EDOM, "'%s' cannot be a key: unhashable", jinja_type_name(key));
}

static int hash_text(struct jinja_run *run, const struct jinja_value *key, uint64_t *ret)
{
    (void)run;
    *ret = hash_keyed(key->text.data, key->text.len);
    return 0;
}

/* Equal keys have equal hashes: numbers hash by their value as a double. */
static int hash_number(struct jinja_run *run, const struct jinja_value *key, uint64_t *ret)
{
    (void)run;
    double number = jinja_as_float(key) + 0.0; /* -0.0 becomes 0.0 */
    *ret = hash_keyed(&number, sizeof number);
    return 0;
}

static int hash_kind(struct jinja_run *run, const struct jinja_value *key, uint64_t *ret)
{
    (void)run;
    *ret = (uint64_t)key->kind;
    return 0;
}

/* The hash functions of the kinds; a kind without one cannot be a key. */
static const hash_fn hashes[JINJA_KIND_COUNT] = {
    [JINJA_STRING] = hash_text,  [JINJA_BOOL] = hash_number,    [JINJA_INT] = hash_number,
    [JINJA_FLOAT] = hash_number, [JINJA_UNDEFINED] = hash_kind, [JINJA_NONE] = hash_kind,
};

static int key_equal(struct jinja_run *run, const struct jinja_entry *e,
                     const struct jinja_value *key, uint64_t hash, bool *ret)
{
    *ret = false;
    if (e->hash != hash) return 0;
    if (e->key.kind == JINJA_STRING && key->kind == JINJA_STRING) {
        *ret = str_eq(jinja_bytes(e->key.text), jinja_bytes(key->text));
        return 0;
    }
    return jinja_equal(run, &e->key, key, ret);
}

/* Charges a lookup that probed so many entries or slots. */
static int charge_probes(struct jinja_run *run, size_t probes)
{
    work_add(probes);
    return jinja_charge(run, probes / JINJA_SCAN_STEP);
}

static int walk_entries(struct jinja_run *run, const struct jinja_dict *d,
                        const struct jinja_value *key, uint64_t hash, size_t *ret)
{
    bool equal = false;
    size_t at = 0;
    int rc = 0;
    for (; at < d->count; at++) {
        rc = key_equal(run, &d->entries[at], key, hash, &equal);
        if (rc < 0 || equal) break;
    }
    *ret = at;
    return rc < 0 ? rc : charge_probes(run, at);
}

/* Finds an entry: *ret is its position, or d->count when absent. */
static int find_entry(struct jinja_run *run, const struct jinja_dict *d,
                      const struct jinja_value *key, uint64_t hash, size_t *ret)
{
    if (!d->index) return walk_entries(run, d, key, hash, ret);
    bool equal = false;
    size_t found = d->count, probes = 1;
    for (size_t slot = hash & (d->index_cap - 1); d->index[slot];
         slot = (slot + 1) & (d->index_cap - 1), probes++) {
        size_t at = d->index[slot] - 1;
        int rc = key_equal(run, &d->entries[at], key, hash, &equal);
        if (rc < 0) return rc;
        if (!equal) continue;
        found = at;
        break;
    }
    *ret = found;
    return charge_probes(run, probes);
}

/* Adds an entry to the index; returns the number of slots probed. */
static size_t index_entry(struct jinja_dict *d, size_t at)
{
    size_t slot = d->entries[at].hash & (d->index_cap - 1), probes = 1;
    for (; d->index[slot]; probes++)
        slot = (slot + 1) & (d->index_cap - 1);
    d->index[slot] = (uint32_t)at + 1;
    return probes;
}

/* Adds all entries to an empty index. */
static int index_all(struct jinja_run *run, struct jinja_dict *d)
{
    size_t probes = 0;
    for (size_t i = 0; i < d->count; i++)
        probes += index_entry(d, i);
    return charge_probes(run, probes);
}

static int grow_dict(struct jinja_run *run, struct jinja_dict *d)
{
    size_t cap = d->cap ? 2 * d->cap : 4;
    void *entries, *index = NULL;
    int rc = jinja_alloc(run, cap, sizeof *d->entries, &entries);
    if (rc == 0 && cap >= DICT_INDEX_FROM) rc = jinja_alloc(run, 2 * cap, sizeof *d->index, &index);
    if (rc < 0) return rc;
    if (d->count > 0) memcpy(entries, d->entries, d->count * sizeof *d->entries);
    d->entries = entries;
    d->cap = cap;
    d->index = index;
    d->index_cap = index ? 2 * cap : 0;
    return index ? index_all(run, d) : 0;
}

int jinja_dict_put(struct jinja_run *run, struct jinja_dict *d, struct jinja_value key,
                   struct jinja_value value)
{
    uint64_t hash;
    size_t at;
    int rc = hash_key(run, &key, &hash);
    if (rc == 0) rc = find_entry(run, d, &key, hash, &at);
    if (rc < 0) return rc;
    if (at < d->count) {
        d->entries[at].value = value;
        return 0;
    }
    if (d->count == d->cap) rc = grow_dict(run, d);
    if (rc < 0) return rc;
    d->entries[d->count++] = (struct jinja_entry){ hash, key, value };
    return d->index ? charge_probes(run, index_entry(d, d->count - 1)) : 0;
}

int jinja_dict_get(struct jinja_run *run, const struct jinja_dict *d, const struct jinja_value *key,
                   const struct jinja_value **ret)
{
    uint64_t hash;
    size_t at;
    int rc = hash_key(run, key, &hash);
    if (rc == 0) rc = find_entry(run, d, key, hash, &at);
    if (rc == 0) *ret = at < d->count ? &d->entries[at].value : NULL;
    return rc;
}

int jinja_dict_find(struct jinja_run *run, const struct jinja_dict *d, struct str key,
                    const struct jinja_value **ret)
{
    struct jinja_value wanted = jinja_string(jinja_text_of(key));
    return jinja_dict_get(run, d, &wanted, ret);
}

int jinja_dict_set(struct jinja_run *run, struct jinja_dict *d, struct str key,
                   struct jinja_value value)
{
    return jinja_dict_put(run, d, jinja_string(jinja_text_of(key)), value);
}

int jinja_dict_pairs(struct jinja_run *run, const struct jinja_dict *d, struct jinja_list **ret)
{
    struct jinja_list *pairs = NULL;
    int rc = jinja_list_new(run, d->count, &pairs);
    for (size_t i = 0; i < d->count && rc == 0; i++) {
        struct jinja_value pair;
        rc = jinja_pair(run, d->entries[i].key, d->entries[i].value, &pair);
        if (rc == 0) rc = jinja_list_push(run, pairs, pair);
    }
    if (rc == 0) *ret = pairs;
    return rc;
}
