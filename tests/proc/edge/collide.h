/* collide.h - makes JSON keys that fall into one slot of any table hashed by XXH3 with a known seed.
 *
 * XXH3 of 8 bytes is a bijection, so it can be run backwards: every hash has exactly one key. A table for
 * names that strangers choose must draw its seed at start; in such a table these keys collide no more
 * often than others.
 */
#pragma once
#include "base/core/buf.h"

/* Appends {"KEY":0,...} with `count` keys whose hashes with seed 1 agree in their lowest 20 bits. */
void collide_object(struct buf *out, uint32_t count);

/* Appends an object with the keys k0, k1, ..., which do not collide. */
void plain_object(struct buf *out, uint32_t count);
