/* parser.c - reads tokens, makes nodes of the tree, and says what is wrong with a template. */
#include "base/text/jinja/parser.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#include <stdarg.h>
#include <stdio.h>

#define PARSE_DEPTH_MAX 200 /* nested brackets, operators and blocks */

uint64_t jinja_name_hash(struct str name)
{
    return hash_keyed(name.data, name.len);
}

int parser_fail(struct jinja_parser *p, int code, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return err_set(p->err, code, "chat template, line %u: %s", p->at->line, text);
}

int parser_enter(struct jinja_parser *p)
{
    if (p->depth >= PARSE_DEPTH_MAX)
        return parser_fail(p, -E2BIG, "nested deeper than %d", PARSE_DEPTH_MAX);
    p->depth++;
    return 0;
}

int parser_node(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **ret)
{
    struct jinja_node *node = arena_alloc(&p->template->arena, sizeof *node);
    if (!node) return parser_fail(p, -ENOMEM, "no memory");
    node->kind = kind;
    node->line = p->at->line;
    *ret = node;
    return 0;
}

/* Makes a node with its operands. */
int parser_operation(struct jinja_parser *p, enum jinja_node_kind kind, enum jinja_op op,
                     struct jinja_node *a, struct jinja_node *b, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = parser_node(p, kind, &node);
    if (rc < 0) return rc;
    node->op = op;
    node->a = a;
    node->b = b;
    if (a) node->line = a->line;
    *ret = node;
    return 0;
}

void parser_name(struct jinja_node *node, struct str name)
{
    node->name = name;
    node->hash = jinja_name_hash(name);
}

void parser_next(struct jinja_parser *p)
{
    if (p->at->kind != JINJA_TOKEN_END) p->at++;
}

/* Returns true if the token is the name or operator `text`; no operator is spelt like a name. */
bool parser_is_word(const struct jinja_token *token, const char *text)
{
    return (token->kind == JINJA_TOKEN_NAME || token->kind == JINJA_TOKEN_OPERATOR) &&
           str_eq(token->text, str_from(text));
}

bool parser_at(const struct jinja_parser *p, const char *text)
{
    return parser_is_word(p->at, text);
}

bool parser_skip(struct jinja_parser *p, const char *text)
{
    if (!parser_at(p, text)) return false;
    parser_next(p);
    return true;
}

int parser_unexpected(struct jinja_parser *p, const char *wanted)
{
    static const char *const names[] = {
        [JINJA_TOKEN_END] = "the end of the template",
        [JINJA_TOKEN_DATA] = "text",
        [JINJA_TOKEN_BLOCK] = "{%",
        [JINJA_TOKEN_BLOCK_END] = "%}",
        [JINJA_TOKEN_PRINT] = "{{",
        [JINJA_TOKEN_PRINT_END] = "}}",
        [JINJA_TOKEN_STRING] = "a string",
        [JINJA_TOKEN_INT] = "a number",
        [JINJA_TOKEN_FLOAT] = "a number",
    };
    struct str got = p->at->text;
    if (p->at->kind != JINJA_TOKEN_NAME && p->at->kind != JINJA_TOKEN_OPERATOR)
        got = str_from(names[p->at->kind]);
    return parser_fail(p, -EINVAL, "'%s' expected, found '%.*s'", wanted,
                       (int)min_size(got.len, 64), got.data);
}

int parser_expect(struct jinja_parser *p, const char *text)
{
    return parser_skip(p, text) ? 0 : parser_unexpected(p, text);
}

int parser_expect_name(struct jinja_parser *p, struct str *ret)
{
    if (p->at->kind != JINJA_TOKEN_NAME) return parser_unexpected(p, "a name");
    *ret = p->at->text;
    parser_next(p);
    return 0;
}

int parser_expect_kind(struct jinja_parser *p, enum jinja_token_kind kind, const char *shown)
{
    if (p->at->kind != kind) return parser_unexpected(p, shown);
    parser_next(p);
    return 0;
}
