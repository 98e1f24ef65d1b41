/* trace_features.h - what a length predictor may know of a trace's request.
 *
 * Layer:    simulator (policies, base/core)
 * Lifetime: borrows the trace, which must outlive it
 * Rules:    (1) the truth is filled in for the oracles alone; other rows do not read it
 *           (2) a conversation's earlier answer is known: it stands in the prompt
 *
 * Where a trace names sessions, the answer before is that of the session's turn before. Where it has
 * prefix blocks, a request follows the one whose last whole block is the deepest of its own blocks,
 * from the second on: the first is a system prompt that strangers share.
 */
#pragma once
#include "policies/predict/predict.h"
#include "simulator/trace.h"

struct trace_features {
    const struct trace *trace;
    uint32_t *previous; /* of each request: 1 + the index of the turn before; 0: none */
    uint32_t have;      /* enum predict_need that some request of the trace can feed */
};

int trace_features_new(const struct trace *t, struct trace_features **ret, struct err *err);
void trace_features_free(struct trace_features *f);
CLEANUP_FREEP(trace_features, struct trace_features)

/* `prefix` is the caller's name of the first block; 0 where the trace has none. */
void trace_features_of(const struct trace_features *f, uint32_t request, uint64_t prefix,
                       struct predict_features *ret);
