/* collide.c - inverts XXH3 of 8 bytes.
 *
 *     x = bytes ^ flip        (halves swapped; flip depends on the seed)
 *     x ^= rotl(x, 49) ^ rotl(x, 24);  x *= M;  x ^= (x >> 35) + 8;  x *= M;  x ^= x >> 28
 *
 * Each step is undone. The rotations are a polynomial f in GF(2)[r] / (r^64 - 1) with f^64 = 1, so its
 * inverse is f^63 = f * f^2 * f^4 * ... * f^32, and f^(2^k) is again three terms. flip is read off the
 * hash of eight zero bytes. The first key of each object is checked against the library. */
#include "tests/proc/edge/collide.h"

#include "base/core/hash.h"
#include "base/core/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEED 1
#define SAME_BITS 20
#define MULTIPLIER 0x9FB21C651E98DF25ULL

static uint64_t rotl(uint64_t x, unsigned by)
{
    return by == 0 ? x : x << by | x >> (64 - by);
}

static uint64_t undo_rotations(uint64_t x)
{
    for (unsigned k = 0; k < 6; k++)
        x ^= rotl(x, (49U << k) % 64) ^ rotl(x, (24U << k) % 64);
    return x;
}

static uint64_t inverse_of(uint64_t odd)
{
    uint64_t inverse = odd; /* right in 3 bits; each step doubles them */
    for (int i = 0; i < 5; i++)
        inverse *= 2 - odd * inverse;
    return inverse;
}

/* Returns the input, before flip, that has this hash. */
static uint64_t undo_hash(uint64_t hash)
{
    uint64_t inverse = inverse_of(MULTIPLIER);
    hash ^= hash >> 28 ^ hash >> 56;
    hash *= inverse;
    hash ^= (hash >> 35) + 8;
    hash *= inverse;
    return undo_rotations(hash);
}

/* Appends the key as JSON; returns false unless all its bytes are from 1 to 0x7e, and so are UTF-8. */
static bool put_key(struct buf *out, const char key[8])
{
    for (int i = 0; i < 8; i++)
        if (key[i] <= 0 || key[i] == 0x7f) return false;
    buf_byte(out, '"');
    for (int i = 0; i < 8; i++) {
        if (key[i] < 0x20 || key[i] == '"' || key[i] == '\\')
            buf_printf(out, "\\u%04x", (unsigned)key[i]);
        else
            buf_byte(out, key[i]);
    }
    buf_text(out, "\":0");
    return true;
}

void collide_object(struct buf *out, uint32_t count)
{
    const uint64_t low = 5;
    uint64_t flip = undo_hash(hash64("\0\0\0\0\0\0\0\0", 8, SEED));
    struct rng rng;
    rng_seed(&rng, count);
    buf_byte(out, '{');
    for (uint32_t made = 0; made < count;) {
        uint64_t in = undo_hash(rng_u64(&rng) << SAME_BITS | low) ^ flip;
        uint32_t halves[2] = { (uint32_t)(in >> 32), (uint32_t)in };
        char key[8];
        memcpy(key, halves, sizeof key);
        size_t before = out->len;
        if (made > 0) buf_byte(out, ',');
        if (!put_key(out, key)) {
            out->len = before;
            continue;
        }
        if (made++ == 0) assert_true((hash64(key, 8, SEED) & ((1U << SAME_BITS) - 1)) == low);
    }
    buf_byte(out, '}');
}

void plain_object(struct buf *out, uint32_t count)
{
    buf_byte(out, '{');
    for (uint32_t i = 0; i < count; i++)
        buf_printf(out, "%s\"k%u\":0", i ? "," : "", i);
    buf_byte(out, '}');
}
