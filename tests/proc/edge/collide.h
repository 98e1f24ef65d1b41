/* collide.h - JSON keys that fall into one slot of any table hashed by XXH3 with a seed that is known.
 *
 * XXH3 of 8 bytes is a bijection, so it is run backwards: any wanted hash has its key. Where the seed
 * is drawn at start, as it must be for names that strangers choose, these are keys like any other.
 */
#pragma once
#include "base/core/buf.h"

/* {"KEY":0,...} with `count` keys whose hashes with seed 1 agree in their lowest 20 bits. */
void collide_object(struct buf *out, uint32_t count);

/* The same number of keys k0, k1, ... that do not collide. */
void plain_object(struct buf *out, uint32_t count);
