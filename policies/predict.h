/* predict.h - the interface of output-length predictors: how long will the answer be?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router's decision thread or the simulator calls
 * Rules:   (1) predictors learn at finish time only (observe), never from the future
 *          (2) an answer cut by its limit or by a client that left is a lower bound (censored)
 *          (3) the state is plain bytes of a fixed size: it can be saved and copied
 *
 * Lengths are tokens. Hashes are 64-bit and salted by the caller; 0 means absent.
 */
#pragma once
#include "base/core/str.h"

#include <stdint.h>

struct predict_features {
    uint64_t tenant;
    uint64_t prefix; /* the first block of the prompt: system prompt or conversation */
    uint64_t ask;    /* the first words of what is asked last */
    uint32_t prompt_tokens;
    uint32_t output_max; /* the request's own limit; at least 1 */
};

struct predict_verdict {
    double mean, p50, p90; /* within [1, output_max] */
    double samples;        /* decayed finishes behind the most specific key that knew this one */
};

struct predict_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size;
    void (*init)(void *state);
    void (*decide)(const void *state, const struct predict_features *f,
                   struct predict_verdict *ret);
    void (*observe)(void *state, const struct predict_features *f, uint32_t tokens, bool censored);

    /* Expected tokens still to come after `generated` were seen: E[L | L > generated] minus it. */
    double (*remaining)(const void *state, const struct predict_features *f, uint32_t generated);
};

extern const struct predict_policy *const predict_table[];
extern const uint32_t predict_count;
#define PREDICT_DEFAULT "key_table"

const struct predict_policy *predict_find(struct str name); /* NULL when there is none */
