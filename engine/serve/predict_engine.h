/* predict_engine.h - predicts output lengths in the engine, from the model's hidden state at the end
 * of the prompt and while it decodes.
 *
 * Layer:    engine/serve (policies, engine/core)
 * Threads:  the device thread
 * Lifetime: created with the executor; learns from every end; the state outlives it in a file
 * Rules:    (1) until PREDICT_ENGINE_ENDS outputs have ended the router's word stands
 *           (2) what it says goes into the session's predicted_*, so that every row of the step sees
 *               it as it sees the router's
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "engine/core/session.h"
#include "engine/model/model.h"
#include "policies/predict/predict.h"

#define PREDICT_ENGINE_ENDS 64
#define PREDICT_ENGINE_TOKENS 32 /* between two looks at a running answer */

/* What an engine can feed; a row that needs more is refused where it is named. */
#define PREDICT_ENGINE_HAVE PREDICT_HIDDEN

struct predict_engine;

/* `path`, NUL-terminated, is borrowed; empty: nothing is kept. A file of another predictor, or one that
 * cannot be read, is left as it is and named in the log; so is a damaged one. */
int predict_engine_new(const struct predict_policy *row, struct str path,
                       struct predict_engine **ret, struct err *err);
/* Writes what was learned, if enough ended to predict by. */
void predict_engine_save(const struct predict_engine *f);
void predict_engine_free(struct predict_engine *f);
CLEANUP_FREEP(predict_engine, struct predict_engine)

/* True when the row reads the hidden state. */
bool predict_engine_wants_hidden(const struct predict_engine *f);

/* The prompt is computed; `hidden` is its last token's state. */
void predict_engine_prompt(struct predict_engine *f, struct session *s,
                           const float hidden[MODEL_HIDDEN]);

/* A token came; looks again at every PREDICT_ENGINE_TOKENS-th. */
void predict_engine_token(struct predict_engine *f, struct session *s,
                          const float hidden[MODEL_HIDDEN]);

/* It ended. Ends by limit, deadline or abort are lower bounds; errors teach nothing. */
void predict_engine_end(struct predict_engine *f, const struct session *s,
                        const float hidden[MODEL_HIDDEN]);
