/* fuzz.h - what a fuzz target gives to its harness, and a reader of the input as choices.
 *
 * Layer:   tests
 * Threads: one
 * Rules:   (1) a run is a function of its bytes: no clock, no chance of its own, nothing kept
 *          (2) a run whose cost is above its target's bound aborts with a sentence (harness.c)
 */
#pragma once
#include "base/core/err.h" /* must */
#include "base/core/str.h"

#include <stdint.h>

/* Gives one input to the code under test; must() or abort where a promise is broken. */
void fuzz_one(const uint8_t *data, size_t len);

/* What a run may cost, in units of work and comparisons: each target defines its own line. */
struct fuzz_cost {
    uint64_t flat, per_byte;
};
extern const struct fuzz_cost fuzz_cost;

/* The rest of an input that is read as a sequence of choices; an exhausted one gives zeros. */
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

/* A choice among `count`, at most 256. */
static inline uint32_t fuzz_below(struct fuzz_choices *c, uint32_t count)
{
    return fuzz_u8(c) % count;
}

/* Up to `len` bytes as they stand. */
static inline struct str fuzz_bytes(struct fuzz_choices *c, size_t len)
{
    struct str s = str_of(c->data, len < c->len ? len : c->len);
    c->data += s.len;
    c->len -= s.len;
    return s;
}
