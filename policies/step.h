/* step.h - what the rows of the engine's step may know about a session.
 *
 * Layer: policies (base/core)
 *
 * The step is one fixed pipeline: order -> admit -> preempt -> chunk, and evict where a page is
 * needed. Each stage asks one row; none of them knows the scheduler's own structs.
 */
#pragma once
#include "base/core/str.h"

#include <stdint.h>

struct step_session {
    int64_t arrival_us;
    int64_t deadline_us; /* 0: none */
    uint32_t prompt_tokens;
    uint32_t generated;     /* tokens answered so far */
    uint32_t computed;      /* tokens whose K and V are in pages now */
    uint32_t output_max;    /* the request's own limit */
    uint32_t predicted_p50; /* output tokens; 0: nobody predicted */
    uint32_t pages;         /* held now */
    double work_s;          /* estimated seconds of engine time until it is done, > 0 */
    bool paused;            /* its reader is slow; it cannot use a step now */
};
