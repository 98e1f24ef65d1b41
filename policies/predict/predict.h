/* predict.h - the interface of output-length predictors: how long will the output be?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router's decision thread, the engine's device thread or the simulator calls
 * Rules:   (1) predictors learn at finish time only (observe), never from the future
 *          (2) an output cut by its limit or by a client that left is a lower bound (censored)
 *          (3) the state is plain bytes of a fixed size: it can be saved, copied, and merged with
 *              what another router learned
 *          (4) a policy whose `needs` the caller cannot feed is not applicable and refused by name
 *
 * Lengths are tokens. Hashes are 64-bit and salted by the caller; 0 means absent.
 */
#pragma once
#include "base/core/str.h"

#include <stdint.h>

#define PREDICT_HIDDEN_DIMS 32
#define PREDICT_STATE_BYTES_MAX (8u << 20)
#define PREDICT_BELIEFS 20

/* What a policy cannot do without. The prompt's length and limit are always known. */
enum predict_need {
    PREDICT_TEXT = 1,      /* the text asked last */
    PREDICT_TENANT = 2,    /* of the request */
    PREDICT_PREVIOUS = 4,  /* how long the output before was, in a conversation */
    PREDICT_GROUP = 8,     /* the task: what many prompts begin with */
    PREDICT_HIDDEN = 16,   /* the model's pooled hidden state: the engine alone has it */
    PREDICT_REPORTED = 32, /* the model's own answer to "how long will it be?" */
    PREDICT_TRUTH = 64,    /* the true length: the simulator's oracles */
};
#define PREDICT_NEEDS 7

/* What a policy that refines a running output remembers of it between two looks; the caller's memory,
 * zeros at first. */
struct predict_belief {
    float share[PREDICT_BELIEFS];
    uint32_t looks; /* at states of the running output */
    bool held;
};

struct predict_features {
    uint64_t tenant;
    uint64_t prefix; /* the first block of the prompt: system prompt or conversation */
    uint64_t ask;    /* the first words of what is asked last */
    uint32_t prompt_tokens;
    uint32_t output_max; /* the request's own limit; at least 1 */

    uint64_t group;                /* the task or system prompt */
    uint32_t previous_tokens;      /* of the output before in this conversation; 0: none */
    struct str text;               /* asked last; borrowed for the call */
    const float *hidden;           /* PREDICT_HIDDEN_DIMS numbers; NULL: absent */
    uint32_t hidden_at;            /* output tokens when `hidden` was read; 0: the prompt's end */
    struct predict_belief *belief; /* NULL: nothing is remembered; decide and remaining write it */
    uint32_t reported_tokens;      /* what the model said of itself; 0: not asked, or no number */

    /* The simulator's alone, 0 elsewhere: a policy without PREDICT_TRUTH must not read it
     * (t_predict feeds two worlds that differ in it and compares every verdict). */
    uint32_t truth_tokens;
};

struct predict_verdict {
    double mean, p50, p90; /* within [1, output_max] */
    double samples;        /* decayed finishes behind the most specific key that knew this one */
    bool costly;           /* of a policy with two stages: the second one was asked */
    bool has_rank;         /* the policy learns an order: `rank` is its score */
    double rank;           /* without a unit; lower is shorter */

    /* What this prediction costs the engine itself, before the request's own tokens. */
    uint32_t extra_prompt_tokens, extra_output_tokens;
};

struct predict_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t needs; /* of enum predict_need */
    uint32_t state_size;
    void (*init)(void *state);
    void (*decide)(const void *state, const struct predict_features *f,
                   struct predict_verdict *ret);
    void (*observe)(void *state, const struct predict_features *f, uint32_t tokens, bool censored);

    /* Optional: an output of `tokens` ended that had `hidden` at its hidden_at-th; after observe. */
    void (*observe_look)(void *state, const struct predict_features *f, uint32_t tokens,
                         bool censored);

    /* Takes in what `other`, a state of the same policy, learned elsewhere. Ends that both have
     * learned count twice: states that were merged before are not merged again. */
    void (*merge)(void *state, const void *other);

    /* Optional: expected tokens still to come after `generated` were seen; call it through
     * predict_remaining. */
    double (*remaining)(const void *state, const struct predict_features *f, uint32_t generated);
};

#define POLICY(name) extern const struct predict_policy predict_##name;
#include "policies/predict/predict.def"
#undef POLICY

extern const struct predict_policy *const predict_table[];
extern const uint32_t predict_count;
#define PREDICT_DEFAULT "key_table"

const struct predict_policy *predict_find(struct str name); /* NULL when there is none */

/* The first of the policy's needs that is not in `have`, as "text"; NULL when there is none. */
const char *predict_missing(const struct predict_policy *row, uint32_t have);

/* E[L | L > generated] - generated, at least 1: the policy's own, or that of a lognormal through
 * the verdict's P50 and P90. */
double predict_remaining(const struct predict_policy *row, const void *state,
                         const struct predict_features *f, uint32_t generated);

/* For policies that learn nothing: a state of no bytes could not be saved. */
struct predict_nothing {
    uint32_t unused;
};
void predict_init_nothing(void *state);
void predict_observe_nothing(void *state, const struct predict_features *f, uint32_t tokens,
                             bool censored);
void predict_merge_nothing(void *state, const void *other);

/* A saved state is this header and the state's bytes. Bytes of another policy, size, byte order or
 * version are refused (-EINVAL); those of this one that are not what was written, or not all of it,
 * are damaged (-EBADMSG). */
#define PREDICT_HEADER_BYTES 64
void predict_header(const struct predict_policy *row, const void *state,
                    uint8_t ret[PREDICT_HEADER_BYTES]);
int predict_header_check(const struct predict_policy *row, struct str saved);
