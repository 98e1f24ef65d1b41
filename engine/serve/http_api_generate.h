/* http_api_generate.h - the steps of a router's call that http_api_text.c and http_api_fleet.c share.
 *
 * Layer:   engine/serve, private to http_api*.c
 * Threads: generate_ids: any; the others: the loop's
 *
 * A call without a grammar is started at once. One with a grammar goes to a text worker first, which
 * compiles it, so that a costly one delays nobody else.
 */
#pragma once
#include "engine/serve/http_api_call.h"

/* Starts a call of a router, on the loop; ids and grammar are taken. */
void generate_start(struct http_api *api, struct http_exchange *x, const struct generate_request *r,
                    struct ids *ids, struct grammar **grammar, bool entered);

/* Checks the ids of biases against the vocabulary. */
int generate_check_bias(const struct http_api *api, const struct token_value *bias, uint32_t count,
                        struct err *err);

/* Checks the model and the ids of a generate request against the vocabulary, and copies them. */
int generate_ids(const struct http_api *api, const struct generate_request *r, struct ids *ret,
                 struct err *err);

/* Compiles the grammar of a generate request on a text worker, then starts its call. */
void generate_with_grammar(struct http_api *api, struct http_exchange *x);
