/* prompt.h - what a request asks a model to go on from: token ids, block keys, features.
 *
 * Layer:   router
 * Threads: the byte loop of the request, or for a large body a text worker that has it alone
 * Errors:  negative, and r->problem says to the client why
 */
#pragma once
#include "router/face.h"
#include "router/request.h"

/* -E2BIG, of both: more work than a byte loop does; a text worker takes it up. */

/* Ids, keys and features of r->api for a model; without its tokenizer a guess from the bytes. */
int prompt_ready(struct request *r, const struct face_model *m);

/* Fills r->ids; more than a context of so many tokens (0: not known) are refused. */
int prompt_tokenize(struct request *r, const struct bundle_entry *bundle, uint32_t context_tokens);

/* Prompt and answer fit into so many tokens; 0: not known. */
int prompt_check_context(struct request *r, uint32_t context_tokens);
