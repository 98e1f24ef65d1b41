/* openai_reply.h - writes responses in OpenAI's format, whole and streamed, and reads them for clients.
 *
 * Layer: base/wire (base/core)
 * Order: a chat stream is  role, text ..., finish, [usage], done;  a completion stream has no
 *        role. Each openai_chunk_* appends one framed event; only the caller holds state.
 * Errors: sticky in out->rc, returned as well
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/wire/openai.h"
#include "base/wire/usage.h"

/* The API in whose form a response is written; the request behind it is a chat in all. */
enum reply_style {
    REPLY_OPENAI,
    REPLY_ANTHROPIC, /* anthropic_reply.h; n is 1 */
    REPLY_RESPONSES, /* responses_reply.h; likewise */
};

/* Holds the members that all chunks of one response share. */
struct openai_reply {
    enum openai_surface surface;
    enum reply_style style;
    struct str id;     /* bare: "chatcmpl-" or "cmpl-" is put before it */
    int64_t created_s; /* wall clock */
    struct str model;
    struct str fingerprint; /* numerics id; empty: null */
    struct str repeated;    /* of REPLY_RESPONSES: members of the request, JSON behind a comma */
    uint32_t index;         /* of the choice that chunks are for */
    bool include_usage;     /* all other chunks then have "usage":null, as OpenAI's do */
    bool called; /* that choice called tools: the name of FINISH_STOP is then "tool_calls" */
};

/* Returns OpenAI's name of a finish. FINISH_ABORT, FINISH_ERROR and FINISH_REFUSED have none: a whole
 * response is an error object instead, and a broken stream ends with reply_error_event. */
const char *openai_finish_name(enum finish finish); /* "stop", "length"; NULL for the others */

/* One output of a response. */
struct openai_choice {
    struct str text;     /* of a chat with calls, empty: null */
    struct str logprobs; /* JSON, as openai_logprobs.h writes it; empty: null */
    /* Likewise; empty: no member. Of a chat those of its first choice are sent. */
    struct str prompt_logprobs;
    struct str reasoning;  /* of a chat: its text; empty: none */
    struct str tool_calls; /* of a chat: a JSON array; empty: none */
    enum finish finish;
    struct str stopped; /* the stop string that ended it; empty: none, or not known */
};

/* Writes `count` choices, numbered in their order. */
int openai_reply_whole(const struct openai_reply *r, const struct openai_choice *choice,
                       uint32_t count, const struct usage *usage, struct buf *out);

/* Writes a chunk whose delta has one member, given as a JSON value. */
int openai_chunk_member(const struct openai_reply *r, const char *name, struct str json,
                        struct buf *out);
int openai_chunk_role(const struct openai_reply *r, struct buf *out); /* chat only */
int openai_chunk_text(const struct openai_reply *r, struct str text, struct buf *out);
int openai_chunk_logprobs(const struct openai_reply *r, struct str text, struct str logprobs,
                          struct buf *out); /* text with the log-probabilities of its tokens */
int openai_chunk_finish(const struct openai_reply *r, enum finish finish, struct buf *out);
int openai_chunk_usage(const struct openai_reply *r, const struct usage *usage, struct buf *out);
int openai_chunk_done(struct buf *out); /* data: [DONE] */

/* Writes the same chunk as openai_chunk_text, but renders all except the text once for each response:
 * `bytes` are the chunk with an empty text, which begins at `head`. */
struct openai_text_form {
    struct buf bytes;
    size_t head;
};
int openai_text_form_make(const struct openai_reply *r, struct openai_text_form *ret);
int openai_text_form_put(const struct openai_text_form *f, struct str text, struct buf *out);

struct openai_model {
    struct str id;
    struct str parent; /* of an adapter: its base model; empty: not written */
    int64_t created_s;
    uint32_t context_tokens;         /* max_model_len; 0: not known yet, not written */
    const struct sampling *sampling; /* its defaults, as default_sampling; NULL: not known */
    const char *task; /* "generate", "embed" or "score"; NULL: not known, not written */
};
int openai_models_render(const struct openai_model *model, uint32_t count, struct buf *out);

/* --- reading: what a client or a router gets from any OpenAI-like server --- */

struct openai_delta {
    bool has_text;   /* text was appended to the buffer given */
    bool has_usage;  /* usage is written */
    bool has_error;  /* it is an error object; its message was appended instead of text */
    bool has_cached; /* usage.cached_tokens was given: absent is not zero */
    enum finish finish;
    struct usage usage;
    struct str logprobs;        /* of choice 0, as they stand in `json`; empty: none */
    struct str prompt_logprobs; /* likewise, of a completion's choice 0 or of a chat's response */
    bool called;                /* the finish was "tool_calls" */
    /* Of choice 0, JSON values in the text that is read; or empty. */
    struct str reasoning, tool_calls;
};

/* Reads one chunk or one whole response (chat or completion) and appends the text of choice 0 to `text`.
 * -EINVAL when `json` is neither. The caller has to recognise "[DONE]" (SSE_DONE). */
int openai_delta_parse(struct str json, struct buf *text, struct openai_delta *ret,
                       struct err *err);
