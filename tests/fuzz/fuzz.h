/* fuzz.h - declares what a fuzz target gives to its harness, and reads the input as choices.
 *
 * Layer:   tests
 * Threads: one
 * Rules:   (1) a run is a function of its bytes: it reads no clock, draws no chance and keeps nothing
 *          (2) a run whose cost is above its target's bound aborts with a sentence (harness.c)
 */
#pragma once
#include "base/core/err.h" /* must */
#include "base/core/str.h"

#include <stdint.h>

/* Gives one input to the code under test; aborts, by must() or itself, where a contract is broken. */
void fuzz_one(const uint8_t *data, size_t len);

/* The most a run may cost, in units of work and comparisons: flat + per_byte * bytes. Each target
 * defines its own. */
struct fuzz_cost {
    uint64_t flat, per_byte;
};
extern const struct fuzz_cost fuzz_cost;

/* Reads the rest of an input as a sequence of choices; an exhausted input gives zeros. */
struct fuzz_choices {
    const uint8_t *data;
    size_t len;
};

static inline uint8_t fuzz_u8(struct fuzz_choices *c)
{
    if (c->len == 0) return 0;
    c->len--;
    return *c->data++;
}

static inline uint32_t fuzz_u16(struct fuzz_choices *c)
{
    uint32_t high = fuzz_u8(c);
    return high << 8 | fuzz_u8(c);
}

/* Returns a choice below `count`, which is at most 256. */
static inline uint32_t fuzz_below(struct fuzz_choices *c, uint32_t count)
{
    return fuzz_u8(c) % count;
}

/* Takes up to `len` bytes as they stand. */
static inline struct str fuzz_bytes(struct fuzz_choices *c, size_t len)
{
    struct str s = str_of(c->data, len < c->len ? len : c->len);
    c->data += s.len;
    c->len -= s.len;
    return s;
}
