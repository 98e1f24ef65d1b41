/* step.h - what the policies of the engine's step may know about a session, and what they hear.
 *
 * Layer: policies (base/core)
 * Rules: (1) a state of all zeros is a new one; it is plain bytes of the policy's fixed size
 *        (2) a request carries 32 bytes of scratch; each kind writes its own part
 *        (3) absent is not zero: see has_rank, and the fields whose 0 says "absent"
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
    uint64_t group;     /* those with equal ones share the beginning of their prompts; 0: none */
    uint32_t prompt_tokens;
    uint32_t generated;     /* tokens answered so far */
    uint32_t computed;      /* tokens whose K and V are in pages now */
    uint32_t uncached;      /* known tokens that are still to be computed, less expected hits */
    uint32_t output_max;    /* the request's own limit */
    uint32_t slice_left;    /* tokens that its limit, or its slice, still allows; at least 1 */
    uint32_t predicted_p50; /* output tokens; 0: nobody predicted, and below */
    uint32_t predicted_p90;
    uint32_t predicted_mean;
    uint32_t pages;   /* held now */
    double remaining; /* output tokens expected to come, at least 1; without a prediction from the
                       * running mean of outputs */
    double rank;      /* by a learned ranker: lower is shorter; valid with has_rank */
    double prefill_s; /* estimated engine seconds for the uncached tokens */
    double decode_s;  /* and for the rest of the output, its share of each step */
    double work_s;    /* both, > 0 */
    bool has_rank;
    bool running;
    struct step_scratch *scratch;
};

enum step_event_kind {
    STEP_ARRIVED,   /* waits for the first time */
    STEP_ADMITTED,  /* input_tokens of its known tokens, cached_tokens of them found in the cache */
    STEP_RAN,       /* was part of a step: input_tokens, output_tokens */
    STEP_PREEMPTED, /* waits again */
    STEP_ENDED,     /* output_tokens answered; whole: by itself or by its limit */
    STEP_DONE,      /* a step took `seconds`; no session */
    STEP_EVENT_COUNT
};

struct step_event {
    enum step_event_kind kind;
    const struct step_session *session;
    double seconds; /* of the step, for STEP_RAN and STEP_DONE */
    double
        preempt_s; /* STEP_DONE: cost of preemptions since the last, copying or computing again */
    uint32_t input_tokens, cached_tokens, output_tokens;
    bool whole;
};
