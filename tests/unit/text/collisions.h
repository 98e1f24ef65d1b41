/* collisions.h - makes keys that all fall into one place of a table whose hash is known. */
#pragma once
#include <stdint.h>

/* Writes eight printable characters and a NUL; hash64(key, 8, 1) ends in the same `bits` bits for
 * all keys. *state starts at any odd number and carries on. */
void collision_fast(unsigned bits, uint64_t *state, char ret[9]);

/* Does the same for hash_keyed, by trial, with the process's key; nobody without that key can. */
void collision_keyed(unsigned bits, uint64_t *state, char ret[9]);
