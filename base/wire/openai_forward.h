/* openai_forward.h - rewrites a client's request for an engine of another kind that speaks OpenAI's API.
 *
 * Layer: base/wire (base/core)
 * Rules: (1) the body was parsed and checked (openai.h); members that we do not know go on as they are:
 *            an engine may know more sampling parameters than we do
 *        (2) members that reach behind the request are left out: those that choose whose cache is read,
 *            where K and V come from, or which rank computes. A client must not set them
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/wire/engine_kind.h"
#include "base/wire/openai.h"

struct openai_forward {
    struct str model;      /* as the engine calls it */
    struct str cache_salt; /* keeps this tenant's cache apart; empty: none is sent */
    bool stream;           /* asks for the usage at the end of the stream */
    enum engine_kind kind;
    /* A grammar goes on as it is where the engine knows the client's member, else in its own form. */
    struct grammar_spec grammar;
    const char *grammar_key; /* the client's member, as in openai_request; NULL: no grammar */
    /* One output of several: `prompt` of a completion in place of the client's list, NULL of a chat, and the
     * seed of this output if the client gave one; n and best_of are left out. */
    bool one_output, has_seed;
    const struct openai_prompt *prompt;
    uint64_t seed;
};

/* Returns the form in which the engine takes the grammar. */
struct grammar_way grammar_way_of(enum engine_kind kind, const struct grammar_spec *grammar);

/* Appends the request to `out`. -EINVAL: no object; -ENOTSUP: the engine takes no such
 * grammar; or out->rc. */
int openai_forward(struct str body, const struct openai_forward *f, struct buf *out);
