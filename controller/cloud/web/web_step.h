/* web_step.h - has what the steps of kinds share: ends, tables of codes, requests, credentials, and APIs that take one token
 * as a bearer, and JSON.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure, but for what web_host reads
 */
#pragma once

#include "controller/cloud/web/provider.h"

/* One row of a kind's table of codes. */
struct web_code {
    const char *code;
    enum offer_error class;
    bool login_refused;
};

/* Returns a header of the reply; empty: it has none. */
struct str web_reply_header(const struct web_reply *r, const char *name);

/* Returns the errno that stands for a class. */
int web_class_errno(enum offer_error class);

/* Ends the op with an error. */
void web_refuse(struct web_step *ret, enum offer_error class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Ends the op with what a reply means that is no success: the row of its code, else its status, else
 * OFFER_TRANSIENT. `codes` ends with a NULL code; `message` is the provider's own and may be empty. Retry-After
 * in seconds becomes wait_us. */
void web_refuse_reply(const struct web_provider *p, const struct web_op *op,
                      const struct web_reply *r, const struct web_code *codes, struct str code,
                      struct str message, struct web_step *ret);

/* Ends the op well. */
void web_succeed(struct web_step *ret);

/* Begins a request: WEB_ASK with this method and a URL printed into the op's arena. -ENOMEM ends the op. */
int web_ask(struct web_op *op, struct web_step *ret, const char *method, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a header with a value printed into the op's arena. */
int web_ask_header(struct web_op *op, struct web_step *ret, const char *name, const char *format,
                   ...) __attribute__((format(printf, 4, 5)));

/* Sets the body, copied into the op's arena. */
int web_ask_body(struct web_op *op, struct web_step *ret, const char *content_type,
                 const struct buf *body);

/* Returns what the section names as credentials, or the kind's variable, without white space at its ends, in the
 * arena of the op. -EACCES and a sentence that says where one was looked for. */
int web_credentials(const struct web_provider *p, struct web_op *op, struct str *ret,
                    struct err *err);

/* Returns a variable of the environment; data NULL: it is not set. */
struct str web_environment(const struct web_host *host, struct str name);

/* Overwrites each occurrence of a secret in a text that others wrote. One below 6 bytes is none. */
void web_blot(char *text, size_t len, struct str secret);

/* Appends a text as a part of a URL: all but letters, digits and -._~ is percent-encoded. */
int web_url_part(struct buf *out, struct str text);

/* Copies a text of a reply into a field of `bytes`; a longer one is cut at a character. */
void web_text_copy(char *to, size_t bytes, struct str from);

/* ---- one token as a bearer, and JSON ---- */

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
