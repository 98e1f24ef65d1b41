/* grammar.h - compiles a description of an output (GBNF, regex, choice, JSON, JSON Schema,
 * structural tags) to one
 * program of rules over bytes.
 *
 * Layer:    base/grammar (base/core)
 * Threads:  a compiled grammar is immutable: any number of threads may read it
 * Rules:    (1) what a front end does not support is refused with a sentence, never ignored; JSON Schema
 *               names the JSON pointer and the keyword
 *           (2) compiling is bounded in steps, states, edges and memory; beyond is -E2BIG with a sentence
 *           (3) no state of a program is a dead end: from each one a finite text leads to the end
 *           (4) a program holds no left recursion: it is refused. A front end may describe fewer texts
 *               than its source allows (one order of members, a bounded number of digits), never more
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"

#define GRAMMAR_TEXT_BYTES_MAX ((size_t)256 << 10) /* of a description */
#define GRAMMAR_STATES_MAX (1u << 17)
#define GRAMMAR_EDGES_MAX (1u << 19)
#define GRAMMAR_RULES_MAX (1u << 16)
#define GRAMMAR_STEPS_MAX (1u << 21) /* expressions made and edges laid while compiling */
#define GRAMMAR_DEPTH_MAX 64         /* of parentheses in GBNF and regex */
#define GRAMMAR_REPEAT_MAX 65536     /* of one count in a regex, GBNF or schema */

enum grammar_kind {
    GRAMMAR_NONE,
    GRAMMAR_JSON_OBJECT, /* any JSON object; no text */
    GRAMMAR_JSON_SCHEMA, /* a schema as JSON text */
    GRAMMAR_REGEX,       /* the whole output matches it */
    GRAMMAR_CHOICE,      /* one of a JSON array of strings */
    GRAMMAR_GBNF,        /* llama.cpp's format; the output derives from `root` */
    GRAMMAR_TAGS,        /* free text and parts that a grammar binds, as JSON (tags.c) */
    GRAMMAR_KIND_COUNT
};

extern const char *const grammar_kind_names[GRAMMAR_KIND_COUNT];

struct grammar_spec {
    enum grammar_kind kind;
    struct str text;
};

struct grammar;

/* Compiles a description. -EINVAL: it is wrong or describes nothing; -ENOTSUP: it asks for what is not
 * supported; -E2BIG: beyond a bound; -ENOMEM. err says which and where. */
int grammar_compile(const struct grammar_spec *spec, struct grammar **ret, struct err *err);
struct grammar *grammar_ref(struct grammar *g); /* one more owner; returns g */
void grammar_free(struct grammar *g);
CLEANUP_FREEP(grammar, struct grammar)
