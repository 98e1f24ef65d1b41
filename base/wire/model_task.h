/* model_task.h - says what a model is for, and so which endpoints answer for it.
 *
 * Layer:   base/wire (base/core)
 * Threads: any
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

/* All but the first are encoders: every token of a text sees all others, so a text is computed whole, in one
 * step, and nothing of it is kept: no K and V, no logits. */
enum model_task {
    MODEL_GENERATE, /* decoders: text, and vectors of texts */
    MODEL_EMBED,    /* vectors of texts */
    MODEL_SCORE,    /* how well a text fits another: cross-encoders, from both in one sequence */
    MODEL_TASK_COUNT
};

extern const char *const model_task_names[MODEL_TASK_COUNT + 1]; /* "generate", "embed", "score" */

/* -EINVAL with a sentence for the client who asks an encoder for text: it says what can be asked instead. */
int model_task_generates(enum model_task task, struct str model, struct err *err);
