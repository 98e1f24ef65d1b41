/* parse.h - tokens to the tree: statements in parse.c, expressions in parse_expr.c, what follows
 *           an operand in parse_postfix.c.
 *
 * Layer: base/text/jinja, private to the chat template
 */
#pragma once
#include "base/text/jinja/ast.h"
#include "base/text/jinja/lex.h"

#define JINJA_PARSE_DEPTH_MAX 200 /* nested brackets, operators and blocks */

struct jinja_parser {
    struct chat_template *template;
    struct jinja_token *at; /* the current token; never behind END */
    uint32_t depth;
    uint32_t loops; /* open for loops of this frame: break and continue need one */
    uint32_t soft;  /* open ifs: in one an unknown filter is an error only when reached */
    uint8_t uses;   /* of the macro that is open */
    struct err *err;
};

/* Parses all of `tokens` into template->body. -EINVAL, -ENOTSUP, -E2BIG or -ENOMEM. */
int jinja_parse(struct chat_template *template, const struct jinja_tokens *tokens, struct err *err);

/* Shared by the three files. */
int jinja_parse_fail(struct jinja_parser *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
int jinja_parse_enter(struct jinja_parser *p);
int jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **ret);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_at_op(const struct jinja_parser *p, const char *op);
bool jinja_skip_name(struct jinja_parser *p, const char *name);
bool jinja_skip_op(struct jinja_parser *p, const char *op);
int jinja_expect_op(struct jinja_parser *p, const char *op);
int jinja_expect_name(struct jinja_parser *p, struct str *ret);
void jinja_next(struct jinja_parser *p);

/* stop: a name that ends a tuple ("in"); with_if false: no "a if b". */
int jinja_parse_tuple(struct jinja_parser *p, bool with_if, const char *stop,
                      struct jinja_node **ret);
int jinja_parse_expression(struct jinja_parser *p, struct jinja_node **ret);
int jinja_parse_number(struct jinja_parser *p, struct jinja_node **ret);
int jinja_parse_primary(struct jinja_parser *p, struct jinja_node **ret); /* without what follows */

/* A node with its operands. */
int jinja_parse_operation(struct jinja_parser *p, enum jinja_node_kind kind, enum jinja_op op,
                          struct jinja_node *a, struct jinja_node *b, struct jinja_node **ret);

/* Goes on behind *node while attributes, indices and calls follow; filters, tests and calls. */
int jinja_parse_postfix(struct jinja_parser *p, struct jinja_node **node);
int jinja_parse_applied(struct jinja_parser *p, struct jinja_node **node);
int jinja_parse_filters(struct jinja_parser *p, bool start_inline, struct jinja_node **ret);
int jinja_parse_target(struct jinja_parser *p, bool with_namespace, const char *stop,
                       struct jinja_node **ret);
