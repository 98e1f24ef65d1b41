/* step.h - the view of a session and the events that the policies of the engine's step get.
 *
 * Layer: policies (base/core)
 * Rules: (1) a state of all zeros is a new one; it is plain bytes of the policy's fixed size
 *        (2) a request carries 32 bytes of scratch; each kind writes its own part
 *        (3) absent is not zero: see has_rank, and the fields where 0 means "absent"
 *
 * The step is one fixed pipeline: fair -> order -> admit -> preempt -> chunk, and evict where a
 * page is needed. Each stage asks one policy; none of them knows the scheduler's own structs.
 */
#pragma once
#include "base/core/str.h"

#include <stdint.h>

struct step_scratch {
    uint64_t order[3];
    uint64_t admit;
};

struct step_session {
    uint64_t id;
    int64_t arrival_us;
    int64_t waiting_us; /* when it last began to wait */
    uint64_t group;     /* sessions of one group share the beginning of their prompts; 0: none */
    uint32_t prompt_tokens;
    uint32_t generated;     /* output tokens so far */
    uint32_t computed;      /* tokens whose K and V are in pages now */
    uint32_t uncached;      /* known tokens that are still to be computed, less expected hits */
    uint32_t output_max;    /* the request's own limit */
    uint32_t slice_left;    /* output tokens left to its limit, or to its slice; at least 1 */
    uint32_t predicted_p50; /* output tokens; 0: no prediction (all three) */
    uint32_t predicted_p90;
    uint32_t predicted_mean;
    uint32_t pages;   /* held now */
    double remaining; /* output tokens expected to come, at least 1; without a prediction from the
                       * running mean of outputs */
    double rank;      /* score of a learned ranker: lower is shorter; valid with has_rank */
    double prefill_s; /* estimated engine seconds of the uncached tokens */
    double decode_s;  /* and of the rest of the output, as its share of each step */
    double work_s;    /* prefill_s + decode_s, > 0 */
    bool has_rank;
    bool running;
    struct step_scratch *scratch;
};

enum step_event_kind {
    STEP_ARRIVED,   /* waits for the first time */
    STEP_ADMITTED,  /* input_tokens in its prompt, cached_tokens of them cached; both 0 later on */
    STEP_RAN,       /* was part of a step that computed input_tokens and gave output_tokens */
    STEP_PREEMPTED, /* waits again */
    STEP_ENDED,     /* output_tokens in all; whole: it stopped by itself or at its limit */
    STEP_DONE,      /* a step took `seconds`; session is NULL */
    STEP_EVENT_COUNT
};

struct step_event {
    enum step_event_kind kind;
    const struct step_session *session;
    double seconds; /* of the step, for STEP_RAN and STEP_DONE */
    /* STEP_DONE: cost of preemptions since the last, copying or computing again */
    double preempt_s;
    uint32_t input_tokens, cached_tokens, output_tokens;
    bool whole;
};
