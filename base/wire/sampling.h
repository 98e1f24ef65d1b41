/* sampling.h - holds the sampling parameters that clients send and routers pass on to engines.
 *
 * Layer: base/wire (base/core). Plain values; the ranges are in the table of openai.c, and again
 * in generate.c for requests from a peer.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Members for which a model may have defaults of its own. */
enum {
    SAMPLING_TEMPERATURE = 1,
    SAMPLING_TOP_P = 2,
    SAMPLING_TOP_K = 4,
    SAMPLING_MIN_P = 8,
    SAMPLING_REPETITION_PENALTY = 16,
    SAMPLING_ALL = 31,
};

struct sampling {
    double temperature;        /* 0: always the most likely token */
    double top_p;              /* 1: off */
    double min_p;              /* 0: off */
    double presence_penalty;   /* 0: off */
    double frequency_penalty;  /* 0: off */
    double repetition_penalty; /* 1: off */
    uint32_t top_k;            /* 0: off */
    bool has_seed;             /* false: the router or engine draws one, and then sets it */
    uint64_t seed;
    /* Of a request: the members that it does not name; they have the values of SAMPLING_DEFAULT until the engine
     * puts in the model's own. Of a model: those for which it has none. */
    uint32_t unnamed;
};

/* A token with a number: its log-probability, or what a request adds to its logit. */
struct token_value {
    uint32_t id;
    float value; /* finite */
};

#define LOGPROB_NONE (-9999.0f) /* stands for less: JSON has no infinity. vLLM's number */

/* Stands for that of the first token of a prompt, which has none: no logarithm of a probability is above 0. */
#define LOGPROB_ABSENT 1.0f

#define SAMPLING_DEFAULT \
    ((struct sampling){ .temperature = 1, .top_p = 1, .repetition_penalty = 1 })

/* Puts the model's defaults where a request names nothing. */
static inline void sampling_settle(struct sampling *s, const struct sampling *model)
{
    const uint32_t take = s->unnamed & ~model->unnamed;
    if (take & SAMPLING_TEMPERATURE) s->temperature = model->temperature;
    if (take & SAMPLING_TOP_P) s->top_p = model->top_p;
    if (take & SAMPLING_TOP_K) s->top_k = model->top_k;
    if (take & SAMPLING_MIN_P) s->min_p = model->min_p;
    if (take & SAMPLING_REPETITION_PENALTY) s->repetition_penalty = model->repetition_penalty;
    s->unnamed = 0;
}
