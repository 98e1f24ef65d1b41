/* ranking.h - tokens from the likeliest down, as many as are asked for.
 *
 * Layer:    engine/core (base/core)
 * Threads:  a ranking (scratch for one vocabulary) belongs to one thread
 * Order:    higher logit first, then lower id; what is not above -infinity is left out, NaN too
 * Cost:     a few are popped off a heap; from 1/RANKING_POPS of the vocabulary on, the rest is
 *           sorted by its bits. So all of it costs a constant times the vocabulary, not its
 *           logarithm more: about RANKING_MOVES_MAX moves of an element for each token
 */
#pragma once
#include "base/core/err.h"

#include <stdint.h>

#define RANKING_POPS 64
#define RANKING_MOVES_MAX 8 /* a token, on the average */

struct ranked {
    float logit;
    uint32_t id;
};

struct ranking {
    uint32_t vocab_size;
    const float *logit;   /* of ranking_begin */
    struct ranked *heap;  /* then the one of the two that is sorted into */
    struct ranked *spare; /* sorted, once that was done */
    uint32_t count;       /* in the heap, or in all where it is sorted */
    uint32_t pops, next;
    bool sorted;
    struct ranked last; /* given out */
    uint64_t moves;     /* of elements, ever: what it has cost */
};

int ranking_init(struct ranking *r, uint32_t vocab_size); /* -ENOMEM; ranking_fini also then */
void ranking_fini(struct ranking *r);

/* `logit` (vocab_size of them) is read until the next begin. Returns how many can be given out. */
uint32_t ranking_begin(struct ranking *r, const float *logit);
struct ranked ranking_next(struct ranking *r); /* at most so many times */
