/* web_bearer.h - speaks to APIs that take one token as a bearer, and JSON.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure, but for what web_host reads
 */
#pragma once
#include "controller/cloud/web/web_step.h"

/* A login without a request: the credentials are the token. OFFER_AUTH if they are not one line without blanks. */
void web_bearer_login(struct web_provider *p, struct web_op *op, struct web_step *ret);

/* Asks for a path below the endpoint, with the token. -ENOMEM ends the op; so does `path` in error. */
int web_bearer_ask(const struct web_provider *p, struct web_op *op, const char *method,
                   const struct buf *path, struct web_step *ret);

/* The same with a JSON body, which is wiped: user data has a key in it. */
int web_bearer_send(const struct web_provider *p, struct web_op *op, const char *method,
                    const struct buf *path, struct buf *body, struct web_step *ret);

/* Copies a text of a JSON document into the arena; empty: it has none there. */
struct str web_text_at(struct arena *arena, struct str json, const char *path);

/* Returns true if the text at the path is this one. */
bool web_text_is(struct str json, const char *path, struct str want);
