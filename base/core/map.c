/* map.c - implements the map by linear probing and backward-shift deletion, at most three quarters full.
 *
 * A removal closes the gap by moving back every later entry of the run that may stand nearer to its
 * home slot; so every probe ends at the first unused slot and only growth rebuilds the table.
 * Rejected: tombstones (probes lengthen over weeks of insert and remove), chaining (one
 * malloc an entry). */
#include "base/core/map.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "base/core/work.h"

#include <stdlib.h>

#define CAPACITY_MIN 16

void map_init(struct map *m, size_t key_bytes, size_t value_bytes, size_t count_max,
              enum map_keys keys)
{
    must(key_bytes > 0);
    *m = (struct map){
        .key_bytes = key_bytes, .value_bytes = value_bytes, .count_max = count_max, .keys = keys
    };
    must(align_fits(key_bytes + 1, 8, &m->value_offset));
    must(align_fits(m->value_offset + value_bytes, 8, &m->slot_bytes));
}

void map_fini(struct map *m)
{
    free(m->slots);
    m->slots = NULL;
    m->capacity = m->count = 0;
}

static char *slot_at(const struct map *m, size_t i)
{
    return m->slots + i * m->slot_bytes;
}

static bool slot_used(const struct map *m, const char *slot)
{
    return slot[m->key_bytes] != 0;
}

static size_t home_of(const struct map *m, const void *key)
{
    uint64_t hash =
        m->keys == MAP_OWN ? hash64(key, m->key_bytes, 0) : hash_keyed(key, m->key_bytes);
    return (size_t)hash & (m->capacity - 1);
}

/* Returns the slot that holds `key`, or the unused one where it would go. Needs one unused slot. */
static char *probe(const struct map *m, const void *key)
{
    uint64_t probes = 1;
    for (size_t i = home_of(m, key);; i = (i + 1) & (m->capacity - 1), probes++) {
        char *slot = slot_at(m, i);
        if (slot_used(m, slot) && memcmp(slot, key, m->key_bytes) != 0) continue;
        work_add(probes);
        return slot;
    }
}

void *map_get(const struct map *m, const void *key)
{
    if (m->count == 0) return NULL;
    char *slot = probe(m, key);
    return slot_used(m, slot) ? slot + m->value_offset : NULL;
}

static int grow(struct map *m)
{
    struct map wide = *m;
    wide.capacity = m->capacity ? m->capacity * 2 : CAPACITY_MIN;
    size_t bytes;
    if (!mul_fits(wide.capacity, m->slot_bytes, &bytes) || FAULT("map.grow")) return -ENOMEM;
    wide.slots = calloc(1, bytes);
    if (!wide.slots) return -ENOMEM;
    for (size_t i = 0; i < m->capacity; i++) {
        const char *slot = slot_at(m, i);
        if (slot_used(m, slot)) memcpy(probe(&wide, slot), slot, m->slot_bytes);
    }
    free(m->slots);
    *m = wide;
    return 0;
}

void *map_put(struct map *m, const void *key, bool *is_new)
{
    void *value = map_get(m, key);
    if (value) {
        if (is_new) *is_new = false;
        return value;
    }
    if (m->count >= m->count_max) return NULL;
    if (m->count >= m->capacity / 4 * 3 && grow(m) < 0) return NULL;

    char *slot = probe(m, key);
    memcpy(slot, key, m->key_bytes);
    slot[m->key_bytes] = 1;
    m->count++;
    if (is_new) *is_new = true;
    return memset(slot + m->value_offset, 0, m->value_bytes);
}

bool map_remove(struct map *m, const void *key)
{
    if (m->count == 0) return false;
    char *hole = probe(m, key);
    if (!slot_used(m, hole)) return false;

    size_t mask = m->capacity - 1;
    size_t at = (size_t)(hole - m->slots) / m->slot_bytes;
    for (size_t next = (at + 1) & mask; slot_used(m, slot_at(m, next)); next = (next + 1) & mask) {
        /* An entry may move back only as far as its home: it stays when the hole lies before that. */
        size_t from_home = (next - home_of(m, slot_at(m, next))) & mask;
        size_t from_hole = (next - at) & mask;
        if (from_home < from_hole) continue;
        memcpy(slot_at(m, at), slot_at(m, next), m->slot_bytes);
        at = next;
    }
    memset(slot_at(m, at), 0, m->slot_bytes);
    m->count--;
    return true;
}

bool map_next(const struct map *m, size_t *cursor, const void **ret_key, void **ret_value)
{
    while (*cursor < m->capacity) {
        char *slot = slot_at(m, (*cursor)++);
        if (!slot_used(m, slot)) continue;
        *ret_key = slot;
        *ret_value = slot + m->value_offset;
        return true;
    }
    return false;
}
