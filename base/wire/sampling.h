/* sampling.h - holds the sampling parameters that clients send and routers pass on to engines.
 *
 * Layer: base/wire (base/core). Plain values; the ranges are in the table of openai.c, and again
 * in generate.c for requests from a peer.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

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
};

/* A token with a number: its log-probability, or what a request adds to its logit. */
struct token_value {
    uint32_t id;
    float value; /* finite */
};

#define LOGPROB_NONE (-9999.0f) /* stands for less: JSON has no infinity. vLLM's number */

#define SAMPLING_DEFAULT \
    ((struct sampling){ .temperature = 1, .top_p = 1, .repetition_penalty = 1 })
