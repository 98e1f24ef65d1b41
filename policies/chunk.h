/* chunk.h - the interface of chunk rows: how many tokens of a prompt go into this step?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) decoding sessions were given their token before anybody is asked
 *          (2) the answer is at most min(tokens_left, budget_left); 0: not in this step
 *          (3) with an empty shape the answer is at least 1: a step that holds nothing is no step
 */
#pragma once
#include "base/core/str.h"
#include "policies/perf.h"

struct chunk_view {
    uint32_t tokens_left;      /* of this session's known tokens; at least 1 */
    uint32_t budget_left;      /* of the step's token budget; at least 1 */
    uint32_t computed;         /* this session's tokens that the chunk will attend to */
    struct perf_shape planned; /* what the step holds already */
    struct perf_coef perf;
    double step_s_max; /* what a step may take while sessions decode; 0: no limit */
    /* Until the first decoding session that has kept step_s_max on average would not any more;
     * INFINITY: none has. Only for rows with needs_slack. */
    double slack_s;
};

struct chunk_policy {
    const char *name;
    const char *about;
    const char *source;
    /* A session that answered so many tokens since it was admitted goes back to the queue when
     * somebody waits; 0: it runs to its end. */
    uint32_t slice_tokens;
    bool needs_slack;
    uint32_t (*decide)(const struct chunk_view *view);
};

extern const struct chunk_policy *const chunk_table[];
extern const uint32_t chunk_count;
#define CHUNK_DEFAULT "deadline"

const struct chunk_policy *chunk_find(struct str name); /* NULL when there is none */
