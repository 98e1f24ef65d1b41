/* lex.h - cuts template text into tokens, with jinja2's rules for blanks around tags.
 *
 * Layer:    base/text/jinja, private to the chat template
 * Lifetime: tokens lie in the arena that is passed; their text lies there or in `source`
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/err.h"

enum jinja_token_kind {
    JINJA_TOKEN_END,
    JINJA_TOKEN_DATA,      /* text: printed unchanged */
    JINJA_TOKEN_BLOCK,     /* {% */
    JINJA_TOKEN_BLOCK_END, /* %} */
    JINJA_TOKEN_PRINT,     /* {{ */
    JINJA_TOKEN_PRINT_END, /* }} */
    JINJA_TOKEN_NAME,      /* text */
    JINJA_TOKEN_STRING,    /* text: unescaped */
    JINJA_TOKEN_INT,       /* integer */
    JINJA_TOKEN_FLOAT,     /* real */
    JINJA_TOKEN_OPERATOR,  /* text: one of + - / // * % ~ [ ] ( ) { } == != > >= < <= = . : | , ; */
};

struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t line;
    struct str text;
    int64_t integer;
    double real;
};

struct jinja_tokens {
    struct jinja_token *at; /* ends with JINJA_TOKEN_END */
    size_t count, cap;
};

/* Lexes `source`, which is valid UTF-8 and outlives the tokens. -EINVAL with the line, -ENOMEM, -E2BIG. */
int jinja_lex(struct arena *arena, struct str source, struct jinja_tokens *ret, struct err *err);
