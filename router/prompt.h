/* prompt.h - what a request asks a model to go on from: token ids, block keys, features.
 *
 * Layer:   router
 * Threads: the byte loop of the request
 * Errors:  negative, and r->problem says to the client why
 */
#pragma once
#include "router/face.h"
#include "router/request.h"

/* Ids, keys and features of r->api for a model; without its tokenizer a guess from the bytes. */
int prompt_ready(struct request *r, const struct face_model *m);

/* Fills r->ids. */
int prompt_tokenize(struct request *r, const struct bundle_entry *bundle);

/* Prompt and answer fit into so many tokens; 0: not known. */
int prompt_check_context(struct request *r, uint32_t context_tokens);
