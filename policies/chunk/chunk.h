/* chunk.h - the interface of chunk policies: how many tokens of a prompt go into this step?
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) decoding sessions were given their token before anybody is asked
 *          (2) the answer is at most min(tokens_left, budget_left); 0: not in this step
 *          (3) with an empty shape the answer is at least 1: a step that holds nothing is no step
 */
#pragma once
#include "base/core/str.h"
#include "base/perf/perf.h"

struct chunk_view {
    uint32_t tokens_left;      /* of this session's known tokens; at least 1 */
    uint32_t budget_left;      /* of the step's token budget; at least 1 */
    uint32_t computed;         /* this session's tokens that the chunk will attend to */
    struct perf_shape planned; /* what the step holds already */
    struct perf_coef perf;
    double step_s_max; /* promised time for each token of an output; 0: nothing is */
    uint32_t aim;      /* what the policy's `aim` said for this step; 0 without one */
};

/* One session's SLO. Before its first token: `owed` prompt tokens are to be computed within
 * `hand_s`, below 0 when it is too late. After it owed is 0, and hand_s is what the mean time per
 * token leaves until it is more than promised; -INFINITY when the first token came too late. */
struct chunk_session {
    uint32_t owed;
    double hand_s;
    double output; /* its expected length, tokens; at least 1 */
};

/* All SLOs of an engine; of the waiting sessions, in the order of arrival, as many as it shows. */
struct chunk_scene {
    const struct chunk_session *session;
    uint32_t count;
    double owed;           /* prompt tokens, of all of them */
    double ttft_s_max;     /* promised time to the first token; above 0 */
    double arrivals_s;     /* in the long run: requests a second, */
    double arrived_owed_s; /* and the prompt tokens that they brought */
    double output;         /* and the mean of outputs */
};

struct chunk_policy {
    const char *name;
    const char *about;
    const char *source;
    /* A session that answered so many tokens since it was admitted goes back to the queue when
     * somebody waits; 0: it runs to its end. */
    uint32_t slice_tokens;
    /* Optional: prompt tokens that this step should hold, 0 for no wish. Asked once a step, with
     * the view of the first prompt in it, where a time to the first token is promised. */
    uint32_t (*aim)(const struct chunk_view *view, const struct chunk_scene *scene);
    uint32_t (*decide)(const struct chunk_view *view);
};

#define POLICY(name) extern const struct chunk_policy chunk_##name;
#include "policies/chunk/chunk.def"
#undef POLICY

extern const struct chunk_policy *const chunk_table[];
extern const uint32_t chunk_count;
#define CHUNK_DEFAULT "deadline"

const struct chunk_policy *chunk_find(struct str name); /* NULL when there is none */
