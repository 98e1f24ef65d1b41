/* collisions.c - computes colliding keys by running XXH3 of eight bytes backwards.
 *
 *     swap halves, xor a constant of the seed, L, * M, x ^= (x >> 35) + 8, * M, x ^= x >> 28
 *
 * L(x) = x ^ rotl(x, 49) ^ rotl(x, 24). As polynomials over GF(2) modulo z^64 + 1 a 64th power keeps
 * the parity of the number of terms only, so L^64 is the identity and L^63 undoes L. */
#include "tests/unit/text/collisions.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#include <stdbool.h>
#include <string.h>

#define M 0x9fb21c651e98df25u

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static uint64_t unmultiply(uint64_t x)
{
    uint64_t inverse = M; /* right in 3 bits, then in twice as many each round */
    for (int i = 0; i < 5; i++)
        inverse *= 2 - M * inverse;
    return x * inverse;
}

/* Returns the word that went into L, from the hash. */
static uint64_t unmix(uint64_t x)
{
    x ^= x >> 28 ^ x >> 56;
    x = unmultiply(x);
    x ^= (x >> 35) + 8;
    x = unmultiply(x);
    for (int i = 0; i < 63; i++)
        x ^= rotate(x, 49) ^ rotate(x, 24);
    return x;
}

static uint64_t step(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 8;
}

static bool is_plain(const char *key)
{
    for (int i = 0; i < 8; i++)
        if (key[i] < ' ' || key[i] > '~' || key[i] == '"' || key[i] == '\\') return false;
    return true;
}

void collision_fast(unsigned bits, uint64_t *state, char ret[9])
{
    static const char zeros[8];
    uint64_t constant = unmix(hash64(zeros, 8, 1));
    do {
        uint64_t hash = step(state) << bits | 5;
        store_u64(ret, rotate(unmix(hash) ^ constant, 32));
        ret[8] = '\0';
    } while (!is_plain(ret));
}

void collision_keyed(unsigned bits, uint64_t *state, char ret[9])
{
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    do {
        uint64_t number = step(state);
        for (int i = 0; i < 8; i++, number >>= 5)
            ret[i] = (char)('A' + number % 26);
        ret[8] = '\0';
    } while ((hash_keyed(ret, 8) & mask) != 5);
}
