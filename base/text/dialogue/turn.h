/* turn.h - plans how the output of one request is parsed and bound: by its tools and its model's dialects.
 *
 * Layer:    base/text (base/core); router and engine share it
 * Lifetime: names and tag live in the arena, schemas in the tools' JSON
 */
#pragma once
#include "base/text/dialogue/call_grammar.h"
#include "base/text/dialogue/parser.h"
#include "base/text/vocab.h"

struct turn_ask {
    struct str tools; /* JSON array; empty: none may be called */
    struct str only;  /* the tool that must be called; empty: any */
    bool required, parallel;
    bool bound; /* a grammar of the client's binds the whole output, which then is content */
};

struct turn {
    bool parses; /* else the output is content, byte for byte */
    bool thinking;
    bool marks; /* the engine writes control tokens that are marks of the dialects */
    struct dialogue dialects;
    const struct vocab *vocab; /* borrowed; with `parses` */
    struct call_tools tools;
    struct str tag; /* structural tag; empty: the text is free */
};

/* Makes the plan. `ids` are the prompt's. -EINVAL: the tools are wrong; -ENOTSUP: a call is required of a model
 * whose way to write calls is not known; -E2BIG, -ENOMEM. */
int turn_plan(const struct dialogue *d, const struct vocab *v, const struct turn_ask *ask,
              const uint32_t *ids, size_t count, struct arena *arena, struct turn *ret,
              struct err *err);

/* Tells whether a prompt has begun the reasoning. -ENOMEM. */
int turn_is_thinking(const struct dialogue *d, const struct vocab *v, const uint32_t *ids,
                     size_t count, bool *ret);

#define TURN_MARKS_MAX 64

/* Lists the control tokens that are marks of dialects and end no output, up to TURN_MARKS_MAX; returns how many. */
uint32_t turn_marks(const struct vocab *v, uint32_t ret[TURN_MARKS_MAX]);
