/* predict.h - the interface of output-length predictors.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router's decision thread, the engine's device thread or the simulator calls
 * Rules:   (1) predictors learn when an output ends (observe), never from the future
 *          (2) an output that its limit or a leaving client cut short is a lower bound (censored)
 *          (3) the state is plain bytes of a fixed size: it can be saved, copied and merged with the
 *              state of another router
 *          (4) a policy that needs an input the caller lacks (`needs`) is refused by name
 *
 * Lengths are tokens. Hashes are 64-bit and salted by the caller; 0 means absent.
 */
#pragma once
#include "base/core/str.h"

#include <stdint.h>

#define PREDICT_HIDDEN_DIMS 32
#define PREDICT_STATE_BYTES_MAX (8u << 20)
#define PREDICT_POSTERIORS 20

/* Inputs that a policy may require. The prompt's length and limit are always known. */
enum predict_need {
    PREDICT_TEXT = 1,      /* the last message of the prompt */
    PREDICT_TENANT = 2,    /* of the request */
    PREDICT_PREVIOUS = 4,  /* length of the previous output in a conversation */
    PREDICT_GROUP = 8,     /* the task: the common beginning of many prompts */
    PREDICT_HIDDEN = 16,   /* the model's pooled hidden state, which only the engine has */
    PREDICT_REPORTED = 32, /* the model's own estimate, asked for in words */
    PREDICT_TRUTH = 64,    /* the true length, for the simulator's oracles */
};
#define PREDICT_NEEDS 7

/* Memory of a policy that refines its estimate of a running output, between two looks at it. It
 * belongs to the caller and starts as zeros. */
struct predict_posterior {
    float share[PREDICT_POSTERIORS];
    uint32_t looks; /* hidden states of the running output seen so far */
    bool held;
};

struct predict_features {
    uint64_t tenant;
    uint64_t prefix; /* first block of the prompt: its system prompt or conversation */
    uint64_t ask;    /* hash of the first words of the last line (text_ask) */
    uint32_t prompt_tokens;
    uint32_t output_max; /* the request's own limit; at least 1 */

    uint64_t group;           /* the task or system prompt */
    uint32_t previous_tokens; /* of the previous output in this conversation; 0: none */
    struct str text;          /* last message of the prompt; borrowed for the call */
    const float *hidden;      /* PREDICT_HIDDEN_DIMS numbers; NULL: absent */
    uint32_t hidden_at;       /* output tokens when `hidden` was read; 0: the prompt's end */
    struct predict_posterior *posterior; /* NULL: none is kept; decide and remaining write it */
    uint32_t reported_tokens;            /* the model's own estimate; 0: not asked, or no number */

    /* Set by the simulator alone, else 0. A policy without PREDICT_TRUTH must not read it
     * (t_predict feeds two worlds that differ in it and compares every verdict). */
    uint32_t truth_tokens;
};

struct predict_verdict {
    double mean, p50, p90; /* within [1, output_max] */
    double samples;        /* decayed count of outputs behind the most specific key used */
    bool costly;           /* a policy with two stages asked the second one */
    bool has_rank;         /* the policy learns an order: `rank` is its score */
    double rank;           /* without a unit; lower is shorter */

    /* Tokens that the prediction itself costs the engine, besides the request's own. */
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

    /* Optional: learns from an ended output of `tokens` tokens that had state `hidden` at its token
     * hidden_at; called after observe. */
    void (*observe_look)(void *state, const struct predict_features *f, uint32_t tokens,
                         bool censored);

    /* Adds what `other`, a state of the same policy, learned elsewhere. Outputs that both have
     * learned count twice, so states that were merged before are not merged again. */
    void (*merge)(void *state, const void *other);

    /* Optional: returns the expected tokens still to come after `generated`; call it through
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

/* Returns the name of the first of the policy's needs that is not in `have`, such as "text"; NULL
 * if there is none. */
const char *predict_missing(const struct predict_policy *policy, uint32_t have);

/* Returns E[L | L > generated] - generated, at least 1: by the policy itself, or of a lognormal
 * through the verdict's P50 and P90. */
double predict_remaining(const struct predict_policy *policy, const void *state,
                         const struct predict_features *f, uint32_t generated);

/* The state of policies that learn nothing: a state of no bytes could not be saved. */
struct predict_nothing {
    uint32_t unused;
};
void predict_init_nothing(void *state);
void predict_observe_nothing(void *state, const struct predict_features *f, uint32_t tokens,
                             bool censored);
void predict_merge_nothing(void *state, const void *other);

/* The header of a saved state, which the state's bytes follow. The check returns -EINVAL if the
 * bytes are those of another policy, size, byte order or version, and -EBADMSG if they are damaged
 * or cut off. */
#define PREDICT_HEADER_BYTES 64
void predict_header(const struct predict_policy *policy, const void *state,
                    uint8_t ret[PREDICT_HEADER_BYTES]);
int predict_header_check(const struct predict_policy *policy, struct str saved);
