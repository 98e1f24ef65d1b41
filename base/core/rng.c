/* rng.c - implements xoshiro256** for streams, and a stateless mix for (seed, position).
 *
 * rng_below takes the high half of a 128-bit product and rejects the few draws that would favour
 * small numbers (Lemire 2019), so it is exactly uniform. rng_normal draws a fresh pair every time
 * (Box and Muller 1958) instead of keeping the second: a generator's state is its four words. */
#include "base/core/rng.h"

#include <math.h>

#define GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio: splitmix64's step */

/* splitmix64's output function: every input bit changes about half of the output bits. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double unit(uint64_t v)
{
    return (double)(v >> 11) * 0x1p-53;
}

void rng_seed(struct rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += GOLDEN;
        r->s[i] = mix(seed);
    }
}

void rng_stream(struct rng *r, uint64_t seed, uint64_t entity, uint64_t purpose)
{
    rng_seed(r, rng_at(rng_at(seed, entity), purpose));
}

static uint64_t rotate(uint64_t v, int by)
{
    return v << by | v >> (64 - by);
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *r, uint64_t bound)
{
    if (bound == 0) return 0;
    uint64_t reject_below = (0 - bound) % bound; /* 2^64 mod bound */
    for (;;) {
        unsigned __int128 product = (unsigned __int128)rng_u64(r) * bound;
        if ((uint64_t)product >= reject_below) return (uint64_t)(product >> 64);
    }
}

double rng_f64(struct rng *r)
{
    return unit(rng_u64(r));
}

double rng_exp(struct rng *r, double mean)
{
    return -mean * log1p(-rng_f64(r)); /* rng_f64 < 1: the argument stays above -1 */
}

double rng_normal(struct rng *r)
{
    double radius = sqrt(rng_exp(r, 2.0));
    return radius * cos(2.0 * M_PI * rng_f64(r));
}

uint64_t rng_at(uint64_t seed, uint64_t position)
{
    /* Seed and position are mixed separately first: with a plain sum, (seed, position + 1) and
     * (seed + step, position) would give the same number. */
    return mix(mix(seed + GOLDEN) ^ mix(position * GOLDEN + 1));
}

double rng_at_f64(uint64_t seed, uint64_t position)
{
    return unit(rng_at(seed, position));
}
