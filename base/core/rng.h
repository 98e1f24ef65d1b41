/* rng.h - draws random numbers from a seed that the caller chooses.
 *
 * Layer: base/core (libc). struct rng is xoshiro256** (Blackman and Vigna 2018) seeded by
 * splitmix64; rng_at is stateless, for numbers that must be a function of (seed, position).
 */
#pragma once
#include <stdint.h>

struct rng {
    uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);

/* Seeds a separate stream for (seed, entity, purpose), so that two policies compared in a simulation
 * meet the same random events. */
void rng_stream(struct rng *r, uint64_t seed, uint64_t entity, uint64_t purpose);

uint64_t rng_u64(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t bound); /* uniform in [0, bound); 0 when bound is 0 */
double rng_f64(struct rng *r);                     /* uniform in [0, 1) */
double rng_exp(struct rng *r, double mean);        /* exponential */
double rng_normal(struct rng *r);                  /* mean 0, variance 1 */

/* Returns the number at (seed, position). The sampler uses it: a sequence draws the same numbers alone, in
 * a batch, or continued on another engine. */
uint64_t rng_at(uint64_t seed, uint64_t position);
double rng_at_f64(uint64_t seed, uint64_t position);
