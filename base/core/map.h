/* map.h - hash map with open addressing, from fixed-size keys to fixed-size values, with a bound on its count.
 *
 * Layer:    base/core (libc, xxHash)
 * Lifetime: values move when the map grows or an entry is removed: a returned pointer lives
 *           until the next map_put or map_remove; keys and values are aligned to 8
 * Design:   linear probing with backward-shift deletion: no tombstones, so a map that is
 *           emptied and filled for weeks probes as fast as a new one
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum map_keys {
    MAP_FOREIGN, /* clients or peers influence the keys: hash_keyed */
    MAP_OWN,     /* the keys are ours, or a model's: XXH3 */
};

struct map {
    char *slots; /* key, used byte, value (aligned to 8) for each slot */
    size_t key_bytes, value_bytes, slot_bytes, value_offset;
    size_t capacity; /* power of two, or 0 before the first put */
    size_t count;
    size_t count_max;
    enum map_keys keys;
};

/* Keys are compared and hashed bytewise, so they may hold no padding. */
void map_init(struct map *m, size_t key_bytes, size_t value_bytes, size_t count_max,
              enum map_keys keys);
void map_fini(struct map *m);

void *map_get(const struct map *m, const void *key); /* NULL when absent */

/* Finds the key, or inserts it with a zeroed value; *is_new (may be NULL) is true if it was inserted.
 * NULL at count_max or without memory. */
void *map_put(struct map *m, const void *key, bool *is_new);
bool map_remove(struct map *m, const void *key);

/* Walks all entries: *cursor starts at 0; false at the end. A put or remove ends the walk. */
bool map_next(const struct map *m, size_t *cursor, const void **ret_key, void **ret_value);
