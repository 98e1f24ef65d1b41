/* parser.h - the state of a parse: reads tokens, makes nodes, and says what is wrong, with the line.
 *
 * Layer:    base/text/jinja, private to parser.c, parse_expression.c and parse.c
 * Lifetime: of one jinja_parse
 * Errors:   every function that fails has set the sentence
 */
#pragma once
#include "base/core/err.h"
#include "base/text/jinja/ast.h"
#include "base/text/jinja/lex.h"

struct jinja_parser {
    struct chat_template *template;
    struct jinja_token *at; /* the current token; never behind END */
    uint32_t depth;
    uint32_t loops; /* open for loops of this macro or template: break and continue need one */
    uint32_t soft;  /* open ifs: inside, an unknown filter is an error only when executed */
    struct err *err;
};

int parser_fail(struct jinja_parser *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
int parser_enter(struct jinja_parser *p); /* a level deeper; the caller lowers `depth`. -E2BIG */

/* ---- nodes ---- */

int parser_node(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **ret);
/* Makes a node with its operands. */
int parser_operation(struct jinja_parser *p, enum jinja_node_kind kind, enum jinja_op op,
                     struct jinja_node *a, struct jinja_node *b, struct jinja_node **ret);
void parser_name(struct jinja_node *node, struct str name);

/* ---- tokens ---- */

/* Returns true if the token is the name or operator `text`; no operator is spelt like a name. */
bool parser_is_word(const struct jinja_token *token, const char *text);
bool parser_at(const struct jinja_parser *p, const char *text);
void parser_next(struct jinja_parser *p);
bool parser_skip(struct jinja_parser *p, const char *text); /* true: it was there */
int parser_unexpected(struct jinja_parser *p, const char *wanted);
int parser_expect(struct jinja_parser *p, const char *text);
int parser_expect_name(struct jinja_parser *p, struct str *ret);
int parser_expect_kind(struct jinja_parser *p, enum jinja_token_kind kind, const char *shown);

/* ---- parse_expression.c ---- */

typedef int (*parse_fn)(struct jinja_parser *p, struct jinja_node **ret);

int parser_expression(struct jinja_parser *p, struct jinja_node **ret);
int parser_or(struct jinja_parser *p, struct jinja_node **ret); /* an expression without if-else */
/* Parses items separated by commas: a tuple when there is a comma, else the one item. The name `stop`
 * ends them too. */
int parser_items(struct jinja_parser *p, parse_fn item, const char *stop, bool may_be_empty,
                 struct jinja_node **ret);
/* Parses | name, | name(args) and so on. start_inline: the first filter has no bar before it. */
int parser_filters(struct jinja_parser *p, bool start_inline, struct jinja_node **ret);
