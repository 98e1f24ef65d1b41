/* generate.h - makes of a chat or completion body what a decision needs: ids, block keys, features.
 *
 * Layer:   router
 * Threads: the byte loop of the request, or for a large body a text worker that has it alone;
 *          features_of is pure
 * Errors:  negative, and r->client.problem tells the client why
 */
#pragma once
#include "policies/predict/predict.h"
#include "router/request.h"
#include "router/snapshot.h"

/* The next two return -E2BIG for more work than a byte loop does; a text worker then takes it up. */

/* Makes ids, keys and features of r->client.api for a model; without its tokenizer it guesses the
 * prompt's length from the bytes. */
int prompt_ready(struct request *r, const struct snapshot_model *m);

/* Frees the further prompts of a client's request. */
void prompt_drop_more(struct request *r);

/* Fills the arrival of a request whose ids and keys are there. */
void prompt_placed(struct request *r, const struct snapshot_model *m);

/* Fills r->client.ids; refuses a prompt longer than context_tokens (0: not known). */
int prompt_tokenize(struct request *r, const struct bundle_entry *bundle, uint32_t context_tokens);

/* Checks that prompt and output fit into context_tokens (0: not known). */
int prompt_check_context(struct request *r, uint32_t context_tokens);

#define FEATURE_PREFIX_BYTES 96 /* of the prompt's beginning, where no block key is known */

/* The features that a router has; a predictor that needs more is refused at start. */
#define FEATURES_HAVE \
    (PREDICT_TEXT | PREDICT_TENANT | PREDICT_PREVIOUS | PREDICT_GROUP | PREDICT_REPORTED)

/* Fills all fields but output_max, which the caller knows. The text lives in the arena or is a part
 * of api->prompt; without memory it is empty. */
void features_of(const struct openai_request *api, struct str tenant, uint32_t prompt_tokens,
                 struct arena *arena, struct predict_features *ret);
