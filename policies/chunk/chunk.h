/* chunk.h - the interface of chunk policies, which size the part of a prompt that a step computes.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) decoding sessions get their token before the policy is asked
 *          (2) the result is at most min(tokens_left, budget_left); 0: not in this step
 *          (3) with an empty shape the result is at least 1, so that no step is empty
 */
#pragma once
#include "base/core/str.h"
#include "base/perf/perf.h"

struct chunk_view {
    uint32_t tokens_left;      /* of this session's known tokens; at least 1 */
    uint32_t budget_left;      /* of the step's token budget; at least 1 */
    uint32_t computed;         /* this session's tokens before the chunk, which it attends to */
    struct perf_shape planned; /* the step so far */
    struct perf_coef perf;
    double step_s_max; /* TPOT of the SLO; 0: none */
    uint32_t aim;      /* result of the policy's `aim` for this step; 0 without one */
};

/* One session's state against its SLO. Before the first token, `owed` prompt tokens are to be
 * computed within `slack_s`, which is below 0 when that is too late. After the first token owed is 0
 * and slack_s is the time in hand until the session's TPOT exceeds the SLO; -INFINITY if the first
 * token came too late. */
struct chunk_session {
    uint32_t owed;
    double slack_s;
    double output; /* its expected length, tokens; at least 1 */
};

/* The sessions of an engine against their SLOs: running, then parked, then waiting ones in the
 * order of arrival, as many as the engine shows. */
struct chunk_scene {
    const struct chunk_session *session;
    uint32_t count;
    double owed;           /* prompt tokens of all these sessions */
    double ttft_s_max;     /* TTFT of the SLO; above 0 */
    double arrivals_s;     /* long-run means: requests a second, */
    double arrived_owed_s; /* their prompt tokens a second, */
    double output;         /* and tokens of an output */
};

struct chunk_policy {
    const char *name;
    const char *about;
    const char *source;
    /* A session that has generated so many tokens since it was admitted returns to the queue if
     * another waits; 0: it runs to its end. */
    uint32_t slice_tokens;
    /* Optional: returns the prompt tokens that this step should hold; 0: no wish. Asked once a
     * step, with the view of the first prompt in it, if the SLO has both a TTFT and a TPOT. */
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
