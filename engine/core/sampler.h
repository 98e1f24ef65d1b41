/* sampler.h - chooses the next token from the logits, over a ranking of the likeliest tokens.
 *
 * Layer:    engine/core (base/core, libm)
 * Threads:  a sampler (scratch for one vocabulary) belongs to one thread
 * Rules:    (1) the token is a function of (logits, parameters, tokens so far, position): the
 *               random number is rng_at(seed, position), so a request gets the same token alone,
 *               batched, preempted or continued elsewhere
 *           (2) every sum runs in a fixed order: by descending logit and ascending id where
 *               tokens are filtered, by ascending id where none is
 *           (3) equal logits: the lowest id wins
 *
 *     logits -> bias -> penalties, forbidden and allowed tokens -> temperature -> top-k -> top-p -> min-p
 *
 * Log-probabilities are the model's own: they are computed from the logits before any of these
 * steps.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/wire/sampling.h"

#include <stdbool.h>
#include <stdint.h>

#define SAMPLER_LOGPROBS_MAX 20 /* alternatives a client may ask for */

/* { 0 } with temperature 0 is greedy without any filter: repetition_penalty 0 means 1. */
struct sampler_params {
    float temperature; /* below SAMPLER_GREEDY_BELOW: the highest logit */
    uint32_t top_k;    /* 0: all */
    float top_p;       /* 0 or >= 1: all; the smallest set that reaches it, at least one token */
    float min_p;       /* drop tokens less likely than this share of the likeliest */
    float repetition_penalty; /* over prompt and output; divides positive, multiplies negative */
    float presence_penalty;   /* over the output; subtracted once */
    float frequency_penalty;  /* over the output; subtracted per occurrence */
    uint64_t seed;
    uint32_t logprobs; /* alternatives wanted, at most SAMPLER_LOGPROBS_MAX */
    bool want_logprob; /* of the chosen token; implied by logprobs > 0 */
};

#define SAMPLER_GREEDY_BELOW 1e-5f

struct sampler_input {
    const float *logits; /* vocabulary-size; not changed */
    const uint32_t *ids; /* prompt, then the output so far */
    uint32_t prompt_count, count;
    const struct token_value *bias; /* added to the logits, first of all */
    uint32_t bias_count;
    const uint32_t *forbidden; /* ids that must not be chosen now (end tokens under min_tokens) */
    uint32_t forbidden_count;
    const uint64_t *allowed; /* bit id % 64 of word id / 64: only these and `also`; NULL: all */
    const uint32_t *also;
    uint32_t also_count; /* at most SAMPLER_ALSO_MAX */
};

#define SAMPLER_ALSO_MAX 4

struct sampler_choice {
    uint32_t id;
    float logprob; /* when asked for */
};

struct sampler_result {
    struct sampler_choice chosen;
    struct sampler_choice top[SAMPLER_LOGPROBS_MAX]; /* likeliest first */
    uint32_t top_count;
};

struct sampler;

int sampler_new(uint32_t vocab_size, struct sampler **ret); /* -ENOMEM */
void sampler_free(struct sampler *s);
CLEANUP_FREEP(sampler, struct sampler)

/* Chooses the next token. The position of its random number is in->count, the place of the new
 * token in its sequence. -EDOM: no token can be chosen, because no logit is above -infinity. */
int sampler_pick(struct sampler *s, const struct sampler_params *p, const struct sampler_input *in,
                 struct sampler_result *ret);

/* Computes the log-probability of the token `id` by the logits before it, and of the likeliest, as
 * sampler_pick does for the token that it chooses. -EDOM: no logit is above -infinity. */
int sampler_score(struct sampler *s, const struct sampler_params *p, const float *logits,
                  uint32_t id, struct sampler_result *ret);

/* A ranking gives out tokens from the likeliest down, as many as the caller asks for.
 *
 * Threads:  a ranking (scratch for one vocabulary) belongs to one thread
 * Order:    higher logit first, then lower id; tokens not above -infinity are left out, NaN too
 * Cost:     the first 1/RANKING_POPS of the vocabulary are popped off a heap; after them the rest
 *           is sorted by its bits. Ranking all V tokens therefore costs O(V) and not O(V log V):
 *           about RANKING_MOVES_MAX moves of an element for each token
 */

#define RANKING_POPS 64
#define RANKING_MOVES_MAX 8 /* a token, on the average */

struct ranked {
    float logit;
    uint32_t id;
};

struct ranking {
    uint32_t vocab_size;
    const float *logit;   /* of ranking_begin */
    struct ranked *heap;  /* later the buffer that is sorted from */
    struct ranked *spare; /* the sorted rest, once it was sorted */
    uint32_t count;       /* elements in the heap or, once sorted, in `spare` */
    uint32_t pops, next;
    bool sorted;
    struct ranked last; /* given out */
    uint64_t moves;     /* of elements since ranking_init: the cost so far */
};

int ranking_init(struct ranking *r, uint32_t vocab_size); /* -ENOMEM; ranking_fini also then */
void ranking_fini(struct ranking *r);

/* Begins a ranking of `logit` (vocab_size of them), which is read until the next begin. Returns how
 * many tokens can be given out. */
uint32_t ranking_begin(struct ranking *r, const float *logit);
struct ranked ranking_next(struct ranking *r); /* at most that many times */
