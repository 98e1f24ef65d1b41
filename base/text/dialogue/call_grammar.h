/* call_grammar.h - reads a request's tools, and writes the structural tag that binds an output's calls to them.
 *
 * Layer:    base/text (base/core)
 * Lifetime: names are copied into the arena, schemas point into the tools' JSON
 * Rules:    (1) a forced call (`required`) is an output of calls only, behind reasoning if there is some. Its
 *               schemas are enforced, or the request is refused when the tag is compiled
 *           (2) else the text is free, and bound from the mark of a call on. A schema that grammars do not
 *               support then allows any object, unless its tool is `strict`
 *           (3) the tag is written in the form of base/grammar/tags.c
 */
#pragma once
#include "base/core/arena.h"
#include "base/text/dialogue/dialect.h"

#define CALL_TOOLS_MAX 512
#define CALL_TOOL_NAME_BYTES_MAX 64

struct call_tool {
    struct str name;
    struct str schema; /* JSON; empty: no arguments */
    bool strict;
};

struct call_tools {
    struct call_tool *tool;
    struct str *name; /* the same, for a parser */
    uint32_t count;
};

/* Reads OpenAI's list of tools. -EINVAL: a tool is no function, has no name of 1 to 64 letters, digits, _, - or .,
 * or one that stands there twice; -ENOMEM. */
int call_tools_read(struct str json, struct arena *arena, struct call_tools *ret, struct err *err);

struct call_grammar {
    struct dialogue dialects;
    const struct call_tools *tools;
    struct str only; /* the tool that must be called; empty: any */
    bool required;
    bool parallel; /* there may be several calls */
    bool thinking; /* the prompt has begun the reasoning */
};

/* Appends the structural tag. -ENOTSUP: the model has no dialect for calls; -EINVAL: no such tool; or out->rc. */
int call_grammar_write(const struct call_grammar *g, struct buf *out, struct err *err);
