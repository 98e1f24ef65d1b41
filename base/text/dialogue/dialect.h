/* dialect.h - names how models write their reasoning and their tool calls.
 *
 * Layer:    base/text (base/core)
 * Threads:  tables are constant
 * Rules:    (1) a dialect is a row; parser and grammar read rows and know no dialect by name
 *           (2) white space at the ends of a mark is written by a grammar, and not asked of an output
 *           (3) a model's dialects are found in its chat template, or named by the operator
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/str.h"

/* The shape of one call. */
enum call_shape {
    CALL_JSON, /* {"name": "f", "arguments": {..}}, in any order of members; "parameters" counts too */
    CALL_NAMED,  /* f, name_end, {..} */
    CALL_PYTHON, /* f(key=value, ..) in Python's literals */
    CALL_SHAPE_COUNT
};

#define DIALECT_SIGNS 3
#define DIALECT_SILENT 4

struct call_dialect {
    const char *name; /* as vLLM's --tool-call-parser where it has one */
    const char *about;
    const char *sign[DIALECT_SIGNS]; /* all stand in the templates of such models */
    const char *not_sign;            /* this does not; NULL: nothing is excluded */
    enum call_shape shape;
    bool list;                           /* calls stand in [ ], with commas */
    bool bare;                           /* calls need no mark, and are an output's first text */
    const char *calls_begin, *calls_end; /* around all of them; NULL: none */
    const char *call_begin, *call_end;   /* around each; NULL: none */
    const char *call_begin_too;          /* another way to begin one; NULL: none */
    const char *separator;               /* written between two */
    const char *name_end;     /* CALL_NAMED; between a name and this, anything is passed over */
    const char *name_pad;     /* written between a name and name_end */
    const char *name_pad_too; /* the same behind call_begin_too */
    const char *arguments;    /* CALL_JSON: the key that is written */
    const char *silent[DIALECT_SILENT]; /* marks that belong to no part of an answer */
};

struct think_dialect {
    const char *name; /* as vLLM's --reasoning-parser where it has one */
    const char *about;
    const char *sign[DIALECT_SIGNS];
    const char *begin, *end;
    const char *answer; /* written before an answer that follows; NULL: none */
};

/* NULL behind the last. */
const struct call_dialect *call_dialect_at(size_t index);
const struct think_dialect *think_dialect_at(size_t index);

/* A model's dialects; NULL: it has none. */
struct dialogue {
    const struct call_dialect *call;
    const struct think_dialect *think;
    bool marked; /* some of the vocabulary's control tokens are marks */
};

#define DIALECT_AUTO "auto" /* found in the template */
#define DIALECT_NONE "none"

/* Finds a model's dialects. A name that is empty or "auto" is looked for in the template, "none" is none.
 * -EINVAL: an unknown name; err lists the known ones. */
int dialogue_find(struct str template, struct str call_name, struct str think_name,
                  struct dialogue *ret, struct err *err);

/* Returns true if a text is a mark of some dialect, or stands in one: a control token of that text is
 * written to outputs that are parsed, though control tokens are silent. */
bool dialect_is_mark(struct str text);

/* Returns true if a prompt that ends with `tail` has begun the reasoning, which the output goes on with. */
bool dialogue_is_thinking(const struct dialogue *d, struct str tail);

/* Returns a mark as an output is searched for it: without white space at its ends. NULL: empty. */
struct str dialect_mark(const char *text);
