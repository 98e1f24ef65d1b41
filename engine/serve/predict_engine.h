/* predict_engine.h - predicts output lengths in the engine, from the model's hidden state at the end
 * of the prompt and at every so many tokens while it decodes.
 *
 * Layer:    engine/serve (policies, engine/core)
 * Threads:  the device thread
 * Lifetime: created with the executor; learns from every end; the state outlives it in a file
 * Rules:    (1) until PREDICT_ENGINE_ENDS outputs have ended the router's prediction stands
 *           (2) its prediction goes into the session's predicted_*, so that every policy of the
 *               step sees it as it sees the router's
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "engine/core/session.h"
#include "engine/serve/output.h"

#define PREDICT_ENGINE_ENDS 64
#define PREDICT_ENGINE_TOKENS 32 /* between two refinements where no state is read while decoding */

/* The inputs that an engine has; a predict policy that needs more is refused at start. */
#define PREDICT_ENGINE_HAVE PREDICT_HIDDEN

struct predict_engine;

/* Returns the layer to read where none is configured: as deep as the TRAIL paper's 11th of 32. */
uint32_t predict_engine_layer(uint32_t layers);

/* `path`, NUL-terminated, is borrowed; empty: nothing is kept. A file of another predictor, or one that
 * cannot be read, is left as it is and named in the log; so is a damaged one. `every`: tokens between
 * two looks at the hidden state while decoding; 0: none is read after the prompt's end. */
int predict_engine_new(const struct predict_policy *policy, struct str path, uint32_t every,
                       struct predict_engine **ret, struct err *err);
/* Writes what was learned, if enough ended to predict by. */
void predict_engine_save(const struct predict_engine *f);
void predict_engine_free(struct predict_engine *f);
CLEANUP_FREEP(predict_engine, struct predict_engine)

/* Returns true if the state of the session's next token is to be written to looks->now. */
bool predict_engine_reads(const struct predict_engine *f, const struct session *s);

/* Predicts at the prompt's end, and anew when it is time. Call when the next token's logits are
 * there. */
void predict_engine_look(struct predict_engine *f, struct session *s, struct predict_looks *looks);

/* Learns from a session that ended. Ends by limit, deadline or abort are lower bounds; errors teach
 * nothing. */
void predict_engine_end(struct predict_engine *f, const struct session *s,
                        const struct predict_looks *looks);
