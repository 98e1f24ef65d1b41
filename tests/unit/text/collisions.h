/* collisions.h - keys that a table with a known hash puts into one place. */
#pragma once
#include <stdint.h>

/* Eight printable characters and a NUL; hash64(key, 8, 1) ends in the same `bits` bits for all.
 * *state starts at any odd number and carries on. */
void collision_fast(unsigned bits, uint64_t *state, char ret[9]);

/* The same for hash_keyed, by trial: what nobody can do who does not know the key. */
void collision_keyed(unsigned bits, uint64_t *state, char ret[9]);
