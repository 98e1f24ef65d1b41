/* openai_reply.h - answers in OpenAI's shapes, whole and streamed, and the way back for clients.
 *
 * Layer: base/wire (base/core)
 * Order: a chat stream is  role, text ..., finish, [usage], done;  a completion stream has no
 *        role. Each openai_chunk_* appends one framed event; nothing but the caller holds state.
 * Errors: sticky in out->rc, returned as well
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/wire/openai.h"
#include "base/wire/usage.h"

/* What all chunks of one answer share. */
struct openai_reply {
    enum openai_surface surface;
    struct str id;     /* bare: "chatcmpl-" or "cmpl-" is put before it */
    int64_t created_s; /* wall clock */
    struct str model;
    struct str fingerprint; /* numerics id; empty: null */
    bool include_usage;     /* other chunks then carry "usage":null, as OpenAI's do */
};

/* FINISH_ABORT, FINISH_ERROR and FINISH_REFUSED have no name at OpenAI: a whole reply is an error object instead,
 * and a broken stream ends with openai_chunk_error. */
const char *openai_finish_name(enum finish finish); /* "stop", "length"; NULL for the others */

int openai_reply_whole(const struct openai_reply *r, struct str text, enum finish finish,
                       const struct usage *usage, struct buf *out);
int openai_chunk_role(const struct openai_reply *r, struct buf *out); /* chat only */
int openai_chunk_text(const struct openai_reply *r, struct str text, struct buf *out);
int openai_chunk_finish(const struct openai_reply *r, enum finish finish, struct buf *out);
int openai_chunk_usage(const struct openai_reply *r, const struct usage *usage, struct buf *out);
int openai_chunk_error(const struct openai_error *e, struct buf *out);
int openai_chunk_done(struct buf *out); /* data: [DONE] */

/* The same chunk of text as openai_chunk_text's, of which all but the text is rendered once for an
 * answer: `bytes` before and behind the text, which stands at `head`. */
struct openai_text_form {
    struct buf bytes;
    size_t head;
};
int openai_text_form_make(const struct openai_reply *r, struct openai_text_form *ret);
int openai_text_form_put(const struct openai_text_form *f, struct str text, struct buf *out);

struct openai_model {
    struct str id;
    int64_t created_s;
    uint32_t context_tokens; /* max_model_len; 0: not known yet, left out */
};
int openai_models_render(const struct openai_model *model, uint32_t count, struct buf *out);

/* --- the way back: what a client or a router reads from any OpenAI-like server --- */

struct openai_delta {
    bool has_text;  /* text was appended to the buffer given */
    bool has_usage; /* usage is written */
    bool has_error; /* an error object; its message was appended to the buffer instead */
    enum finish finish;
    struct usage usage;
};

/* Reads one chunk or one whole reply (chat or completion): appends choice 0's text to `text`.
 * -EINVAL when it is none. "[DONE]" is the caller's to recognise (SSE_DONE). */
int openai_delta_parse(struct str json, struct buf *text, struct openai_delta *ret,
                       struct err *err);
