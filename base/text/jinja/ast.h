/* ast.h - defines the tree of a compiled template.
 *
 * Layer:    base/text/jinja, private to the chat template
 * Lifetime: in the template's arena; read-only once parsed
 *
 * All kinds of node share one struct; the members that a kind uses are listed beside it. Lists are chains
 * of `next`.
 */
#pragma once
#include "base/text/jinja/value.h"

enum jinja_node_kind {
    /* expressions */
    JINJA_CONST,   /* constant */
    JINJA_NAME,    /* name, hash */
    JINJA_ITEMS,   /* list; op: OP_LIST or OP_TUPLE */
    JINJA_PAIRS,   /* list: key, value, key, value ... */
    JINJA_UNARY,   /* op, a */
    JINJA_BINARY,  /* op, a, b */
    JINJA_AND,     /* a, b */
    JINJA_OR,      /* a, b */
    JINJA_CONCAT,  /* list */
    JINJA_COMPARE, /* a, list of OPERAND */
    JINJA_OPERAND, /* op, a */
    JINJA_COND,    /* a if b else c; c may be NULL */
    JINJA_GETATTR, /* a, name */
    JINJA_GETITEM, /* a, b */
    JINJA_SLICE,   /* a, b, c, each may be NULL; only as b of GETITEM */
    JINJA_CALL,    /* a, list of arguments, other: KEYWORDs */
    JINJA_KEYWORD, /* name, a */
    JINJA_FILTER,  /* a (NULL: the block's text), name, row, arguments as CALL */
    JINJA_TEST,    /* a, name, row, arguments as CALL */
    /* statements */
    JINJA_DATA,         /* constant: text of the template */
    JINJA_PRINT,        /* a */
    JINJA_IF,           /* list of BRANCH, other: else */
    JINJA_BRANCH,       /* a: condition, list: body */
    JINJA_FOR,          /* target b, iterable a, filter c, list: body, other: else */
    JINJA_SET,          /* target b, a */
    JINJA_SET_BLOCK,    /* target b, a: filter or NULL, list: body */
    JINJA_NSREF,        /* name, attribute: a target only */
    JINJA_SCOPE,        /* list: body (generation) */
    JINJA_MACRO_DEF,    /* name, other: parameters as KEYWORD (a: default), list: body */
    JINJA_FILTER_BLOCK, /* a: filter, list: body */
    JINJA_BREAK_LOOP,
    JINJA_CONTINUE_LOOP,
    JINJA_NODE_KIND_COUNT
};

enum jinja_op {
    OP_NONE,
    OP_LIST,
    OP_TUPLE,
    OP_NEG,
    OP_POS,
    OP_NOT,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

struct jinja_node {
    enum jinja_node_kind kind;
    enum jinja_op op;
    uint32_t line;
    struct jinja_node *next;
    struct jinja_node *a, *b, *c, *list, *other;
    struct str name, attribute;
    uint64_t hash;               /* of name */
    const struct jinja_row *row; /* NULL: no such filter or test; reaching it is an error */
    struct jinja_value constant;
};

struct chat_template {
    struct arena arena;
    struct str source;
    struct jinja_node *body;
};

uint64_t jinja_name_hash(struct str name);

struct jinja_tokens;

/* Parses all of `tokens` into template->body. -EINVAL, -ENOTSUP, -E2BIG or -ENOMEM. */
int jinja_parse(struct chat_template *template, const struct jinja_tokens *tokens, struct err *err);
