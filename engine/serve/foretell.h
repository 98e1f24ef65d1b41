/* foretell.h - the engine's own word on how long an answer will be: from the model's state at the
 * prompt's end, and again while it decodes.
 *
 * Layer:    engine/serve (policies, engine/core)
 * Threads:  the device thread
 * Lifetime: created with the executor; learns from every end
 * Rules:    (1) until FORETELL_ENDS answers have ended the router's word stands
 *           (2) what it says goes into the session's predicted_*, so that every row of the step sees
 *               it as it sees the router's
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "engine/core/session.h"
#include "engine/model/hidden.h"
#include "policies/predict.h"

#define FORETELL_ENDS 64
#define FORETELL_TOKENS 32 /* between two looks at a running answer */

/* What an engine can feed; a row that needs more is refused where it is named. */
#define FORETELL_HAVE PREDICT_HIDDEN

struct foretell;

int foretell_new(const struct predict_policy *row, struct foretell **ret, struct err *err);
void foretell_free(struct foretell *f);
CLEANUP_FREEP(foretell, struct foretell)

/* True when the row reads the hidden state. */
bool foretell_wants_hidden(const struct foretell *f);

/* The prompt is computed; `hidden` is its last token's state. */
void foretell_prompt(struct foretell *f, struct session *s, const float hidden[MODEL_HIDDEN]);

/* A token came; looks again at every FORETELL_TOKENS-th. */
void foretell_token(struct foretell *f, struct session *s, const float hidden[MODEL_HIDDEN]);

/* It ended. Ends by limit, deadline or abort are lower bounds; errors teach nothing. */
void foretell_end(struct foretell *f, const struct session *s, const float hidden[MODEL_HIDDEN]);
