/* parse.c - parses tokens to the tree: statements, and expressions by recursive descent with jinja2's
 * precedence, from the loosest:
 *
 *     if-else, or, and, not, comparison, + -, ~, * / // %, | filter and is test, sign, postfix
 *
 * Two levels may surprise: ~ binds tighter than +, and a filter binds tighter than any binary operator
 * but looser than a sign ("-1|abs" is (-1)|abs, and "-x.y|f" is (-(x.y))|f).
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/text/jinja/ast.h"
#include "base/text/jinja/lex.h"
#include "base/text/jinja/row.h"

#include <stdarg.h>
#include <stdio.h>

#define PARSE_DEPTH_MAX 200 /* nested brackets, operators and blocks */
#define ENDS_MAX 4          /* tags that may end a body: elif, else, endif */

struct parser {
    struct chat_template *template;
    struct jinja_token *at; /* the current token; never behind END */
    uint32_t depth;
    uint32_t loops; /* open for loops of this macro or template: break and continue need one */
    uint32_t soft;  /* open ifs: inside, an unknown filter is an error only when executed */
    struct err *err;
};

typedef int (*parse_fn)(struct parser *p, struct jinja_node **ret);

static int parse_body(struct parser *p, const char *const ends[ENDS_MAX], struct jinja_node **ret);
static int parse_expression(struct parser *p, struct jinja_node **ret);
static int parse_or(struct parser *p, struct jinja_node **ret);
static int parse_filters(struct parser *p, bool start_inline, struct jinja_node **ret);

/* ---- tokens and nodes ---- */

uint64_t jinja_name_hash(struct str name)
{
    return hash_keyed(name.data, name.len);
}

static int fail(struct parser *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

static int fail(struct parser *p, int code, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return err_set(p->err, code, "chat template, line %u: %s", p->at->line, text);
}

static int enter(struct parser *p)
{
    if (p->depth >= PARSE_DEPTH_MAX)
        return fail(p, -E2BIG, "nested deeper than %d", PARSE_DEPTH_MAX);
    p->depth++;
    return 0;
}

static int make_node(struct parser *p, enum jinja_node_kind kind, struct jinja_node **ret)
{
    struct jinja_node *node = arena_alloc(&p->template->arena, sizeof *node);
    if (!node) {
        fail(p, -ENOMEM, "no memory");
        return -ENOMEM; /* a constant shows gcc that *ret is set in every success */
    }
    node->kind = kind;
    node->line = p->at->line;
    *ret = node;
    return 0;
}

/* Makes a node with its operands. */
static int make_operation(struct parser *p, enum jinja_node_kind kind, enum jinja_op op,
                          struct jinja_node *a, struct jinja_node *b, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = make_node(p, kind, &node);
    if (rc < 0) return rc;
    node->op = op;
    node->a = a;
    node->b = b;
    if (a) node->line = a->line;
    *ret = node;
    return 0;
}

static void set_name(struct jinja_node *node, struct str name)
{
    node->name = name;
    node->hash = jinja_name_hash(name);
}

static void next(struct parser *p)
{
    if (p->at->kind != JINJA_TOKEN_END) p->at++;
}

/* Returns true if the token is the name or operator `text`; no operator is spelt like a name. */
static bool is_word(const struct jinja_token *token, const char *text)
{
    return (token->kind == JINJA_TOKEN_NAME || token->kind == JINJA_TOKEN_OPERATOR) &&
           str_eq(token->text, str_from(text));
}

static bool at(const struct parser *p, const char *text)
{
    return is_word(p->at, text);
}

static bool skip(struct parser *p, const char *text)
{
    if (!at(p, text)) return false;
    next(p);
    return true;
}

static int unexpected(struct parser *p, const char *wanted)
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
    return fail(p, -EINVAL, "'%s' expected, found '%.*s'", wanted, (int)min_size(got.len, 64),
                got.data);
}

static int expect(struct parser *p, const char *text)
{
    return skip(p, text) ? 0 : unexpected(p, text);
}

static int expect_name(struct parser *p, struct str *ret)
{
    if (p->at->kind != JINJA_TOKEN_NAME) return unexpected(p, "a name");
    *ret = p->at->text;
    next(p);
    return 0;
}

static int expect_kind(struct parser *p, enum jinja_token_kind kind, const char *shown)
{
    if (p->at->kind != kind) return unexpected(p, shown);
    next(p);
    return 0;
}

/* ---- operands ---- */

static int parse_name(struct parser *p, struct jinja_node **ret)
{
    static const struct {
        const char *name;
        struct jinja_value value;
    } words[] = {
        { "true", { .kind = JINJA_BOOL, .boolean = true } },
        { "True", { .kind = JINJA_BOOL, .boolean = true } },
        { "false", { .kind = JINJA_BOOL } },
        { "False", { .kind = JINJA_BOOL } },
        { "none", { .kind = JINJA_NONE } },
        { "None", { .kind = JINJA_NONE } },
    };
    struct str name = p->at->text;
    int rc = make_node(p, JINJA_NAME, ret);
    if (rc < 0) return rc;
    next(p);
    set_name(*ret, name);
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if (!str_eq(name, str_from(words[i].name))) continue;
        (*ret)->kind = JINJA_CONST;
        (*ret)->constant = words[i].value;
    }
    return 0;
}

static int parse_constant(struct parser *p, struct jinja_node **ret)
{
    int rc = make_node(p, JINJA_CONST, ret);
    if (rc < 0) return rc;
    const struct jinja_token *t = p->at;
    (*ret)->constant = t->kind == JINJA_TOKEN_INT     ? jinja_int(t->integer)
                       : t->kind == JINJA_TOKEN_FLOAT ? jinja_float(t->real)
                                                      : jinja_string(jinja_text_of(t->text));
    next(p);
    return 0;
}

static int parse_list(struct parser *p, struct jinja_node **ret)
{
    int rc = make_node(p, JINJA_ITEMS, ret);
    if (rc < 0) return rc;
    (*ret)->op = OP_LIST;
    struct jinja_node **tail = &(*ret)->list;
    next(p);
    while (!at(p, "]")) {
        if ((*ret)->list && (rc = expect(p, ",")) < 0) return rc;
        if (at(p, "]")) break;
        if ((rc = parse_expression(p, tail)) < 0) return rc;
        tail = &(*tail)->next;
    }
    next(p);
    return 0;
}

static int parse_dict(struct parser *p, struct jinja_node **ret)
{
    int rc = make_node(p, JINJA_PAIRS, ret);
    if (rc < 0) return rc;
    struct jinja_node **tail = &(*ret)->list;
    next(p);
    while (!at(p, "}")) {
        if ((*ret)->list && (rc = expect(p, ",")) < 0) return rc;
        if (at(p, "}")) break;
        rc = parse_expression(p, tail);
        if (rc == 0) rc = expect(p, ":");
        if (rc == 0) rc = parse_expression(p, &(*tail)->next);
        if (rc < 0) return rc;
        tail = &(*tail)->next->next;
    }
    next(p);
    return 0;
}

static bool at_tuple_end(const struct parser *p, const char *stop)
{
    return p->at->kind == JINJA_TOKEN_PRINT_END || p->at->kind == JINJA_TOKEN_BLOCK_END ||
           at(p, ")") || (stop && at(p, stop));
}

/* Parses items separated by commas: a tuple when there is a comma, else the one item. The name `stop`
 * ends them too. */
static int parse_items(struct parser *p, parse_fn item, const char *stop, bool may_be_empty,
                       struct jinja_node **ret)
{
    struct jinja_node *first = NULL, **tail = &first, *tuple = NULL;
    bool is_tuple = false;
    int rc = 0;
    for (;;) {
        if (first && (rc = expect(p, ",")) < 0) return rc;
        if (at_tuple_end(p, stop)) break;
        if ((rc = item(p, tail)) < 0) return rc;
        tail = &(*tail)->next;
        if (!at(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && first) {
        *ret = first;
        return 0;
    }
    if (!first && !may_be_empty) return fail(p, -EINVAL, "an expression is missing");
    rc = make_node(p, JINJA_ITEMS, &tuple);
    if (rc < 0) return rc;
    tuple->op = OP_TUPLE;
    tuple->list = first;
    *ret = tuple;
    return 0;
}

static int parse_primary(struct parser *p, struct jinja_node **ret)
{
    if (p->at->kind == JINJA_TOKEN_NAME) return parse_name(p, ret);
    if (p->at->kind == JINJA_TOKEN_STRING || p->at->kind == JINJA_TOKEN_INT ||
        p->at->kind == JINJA_TOKEN_FLOAT)
        return parse_constant(p, ret);
    if (p->at->kind != JINJA_TOKEN_OPERATOR) return fail(p, -EINVAL, "an expression is missing");
    if (at(p, "[")) return parse_list(p, ret);
    if (at(p, "{")) return parse_dict(p, ret);
    if (!skip(p, "(")) return fail(p, -EINVAL, "unexpected '%.*s'", STR_ARG(p->at->text));
    int rc = parse_items(p, parse_expression, NULL, true, ret);
    return rc < 0 ? rc : expect(p, ")");
}

/* ---- what may follow an operand: .name, [index or slice], (arguments), | filter, is test ---- */

static int parse_slice_part(struct parser *p, struct jinja_node **ret)
{
    return at(p, ":") || at(p, "]") ? 0 : parse_expression(p, ret);
}

/* Parses x, x:y or x:y:z, in a slice with any part left out. */
static int parse_subscript(struct parser *p, struct jinja_node **ret)
{
    struct jinja_node *start = NULL, *slice = NULL;
    int rc = parse_slice_part(p, &start);
    if (rc < 0) return rc;
    if (!at(p, ":")) {
        if (!start) return fail(p, -EINVAL, "an index is missing");
        *ret = start;
        return 0;
    }
    rc = make_operation(p, JINJA_SLICE, OP_NONE, start, NULL, &slice);
    next(p);
    if (rc == 0) rc = parse_slice_part(p, &slice->b);
    if (rc == 0 && skip(p, ":")) rc = parse_slice_part(p, &slice->c);
    if (rc == 0) *ret = slice;
    return rc;
}

static int parse_attribute(struct parser *p, struct jinja_node **node)
{
    struct str name = { 0 };
    next(p);
    if (p->at->kind == JINJA_TOKEN_INT) { /* a.0 is a[0] */
        struct jinja_node *index = NULL;
        int rc = parse_constant(p, &index);
        return rc < 0 ? rc : make_operation(p, JINJA_GETITEM, OP_NONE, *node, index, node);
    }
    int rc = expect_name(p, &name);
    if (rc == 0) rc = make_operation(p, JINJA_GETATTR, OP_NONE, *node, NULL, node);
    if (rc == 0) (*node)->name = name;
    return rc;
}

static int parse_index(struct parser *p, struct jinja_node **node)
{
    struct jinja_node *index = NULL;
    next(p);
    int rc = parse_subscript(p, &index);
    if (rc == 0) rc = expect(p, "]");
    return rc < 0 ? rc : make_operation(p, JINJA_GETITEM, OP_NONE, *node, index, node);
}

/* Parses (a, b, name=c) into node->list and node->other; the current token is the bracket. */
static int parse_arguments(struct parser *p, struct jinja_node *node)
{
    struct jinja_node **list = &node->list, **other = &node->other;
    int rc = 0;
    next(p);
    for (bool more = true; rc == 0 && !at(p, ")"); more = skip(p, ",")) {
        if (!more) return fail(p, -EINVAL, "arguments need a comma between them");
        if (p->at->kind == JINJA_TOKEN_NAME && is_word(p->at + 1, "=")) {
            rc = make_node(p, JINJA_KEYWORD, other);
            if (rc < 0) return rc;
            set_name(*other, p->at->text);
            p->at += 2;
            rc = parse_expression(p, &(*other)->a);
            other = &(*other)->next;
        } else if (!node->other) {
            rc = parse_expression(p, list);
            if (rc == 0) list = &(*list)->next;
        } else {
            return fail(p, -EINVAL, "an argument by position behind named ones");
        }
    }
    if (rc == 0) rc = expect(p, ")");
    return rc;
}

static int parse_call(struct parser *p, struct jinja_node **node)
{
    struct jinja_node *call = NULL;
    int rc = make_operation(p, JINJA_CALL, OP_NONE, *node, NULL, &call);
    if (rc == 0) rc = parse_arguments(p, call);
    if (rc == 0) *node = call;
    return rc;
}

static int parse_postfix(struct parser *p, struct jinja_node **node)
{
    int rc = 0;
    while (rc == 0) {
        if (at(p, "."))
            rc = parse_attribute(p, node);
        else if (at(p, "["))
            rc = parse_index(p, node);
        else if (at(p, "("))
            rc = parse_call(p, node);
        else
            break;
    }
    return rc;
}

static int check_row(struct parser *p, const struct jinja_node *node, const char *what)
{
    if (node->row || p->soft > 0) return 0;
    return fail(p, -ENOTSUP, "no %s is named '%.*s'", what, STR_ARG(node->name));
}

/* Parses | name, | name(args) and so on. start_inline: the first filter has no bar before it. */
static int parse_filters(struct parser *p, bool start_inline, struct jinja_node **ret)
{
    int rc = 0;
    while (rc == 0 && (start_inline || skip(p, "|"))) {
        struct jinja_node *node = NULL;
        start_inline = false;
        rc = make_operation(p, JINJA_FILTER, OP_NONE, *ret, NULL, &node);
        if (rc == 0) rc = expect_name(p, &node->name);
        if (rc < 0) return rc;
        node->row = jinja_filter_find(node->name);
        rc = check_row(p, node, "filter");
        if (rc == 0 && at(p, "(")) rc = parse_arguments(p, node);
        *ret = node;
    }
    return rc;
}

static bool starts_test_argument(const struct parser *p)
{
    if (p->at->kind == JINJA_TOKEN_STRING || p->at->kind == JINJA_TOKEN_INT ||
        p->at->kind == JINJA_TOKEN_FLOAT || at(p, "[") || at(p, "{"))
        return true;
    return p->at->kind == JINJA_TOKEN_NAME && !at(p, "else") && !at(p, "or") && !at(p, "and");
}

/* Parses is [not] name, name(args) or name arg. */
static int parse_test(struct parser *p, struct jinja_node **node)
{
    struct jinja_node *test = NULL;
    next(p);
    bool negated = skip(p, "not");
    int rc = make_operation(p, JINJA_TEST, OP_NONE, *node, NULL, &test);
    if (rc == 0) rc = expect_name(p, &test->name);
    if (rc < 0) return rc;
    test->row = jinja_test_find(test->name);
    rc = check_row(p, test, "test");
    if (rc == 0 && at(p, "(")) {
        rc = parse_arguments(p, test);
    } else if (rc == 0 && starts_test_argument(p)) {
        if (at(p, "is")) return fail(p, -EINVAL, "tests cannot be chained");
        rc = parse_primary(p, &test->list);
        if (rc == 0) rc = parse_postfix(p, &test->list);
    }
    *node = test;
    if (rc == 0 && negated) rc = make_operation(p, JINJA_UNARY, OP_NOT, test, NULL, node);
    return rc;
}

/* Parses filters and tests behind an operand. */
static int parse_applied(struct parser *p, struct jinja_node **node)
{
    int rc = 0;
    while (rc == 0 && (at(p, "|") || at(p, "is")))
        rc = at(p, "|") ? parse_filters(p, false, node) : parse_test(p, node);
    return rc;
}

/* ---- operators, from the tightest to the loosest ---- */

static int parse_unary_of(struct parser *p, bool with_filter, struct jinja_node **ret)
{
    int rc = enter(p);
    if (rc < 0) return rc;
    enum jinja_op op = at(p, "-") ? OP_NEG : at(p, "+") ? OP_POS : OP_NONE;
    if (op == OP_NONE) {
        rc = parse_primary(p, ret);
    } else {
        struct jinja_node *inner = NULL;
        next(p);
        rc = parse_unary_of(p, false, &inner);
        if (rc == 0) rc = make_operation(p, JINJA_UNARY, op, inner, NULL, ret);
    }
    if (rc == 0) rc = parse_postfix(p, ret);
    if (rc == 0 && with_filter) rc = parse_applied(p, ret);
    p->depth--;
    return rc;
}

static int parse_unary(struct parser *p, struct jinja_node **ret)
{
    return parse_unary_of(p, true, ret);
}

struct operator
{
    const char *text;
    enum jinja_node_kind kind;
    enum jinja_op op;
};

/* Parses operands joined by operators of one level, from the left. `ops` ends with a NULL text. */
static int parse_level(struct parser *p, const struct operator* ops, parse_fn operand,
                       struct jinja_node **ret)
{
    int rc = operand(p, ret);
    while (rc == 0) {
        const struct operator* found = ops;
        while (found->text && !at(p, found->text))
            found++;
        if (!found->text) break;
        struct jinja_node *right = NULL;
        next(p);
        rc = operand(p, &right);
        if (rc == 0) rc = make_operation(p, found->kind, found->op, *ret, right, ret);
    }
    return rc;
}

static int parse_product(struct parser *p, struct jinja_node **ret)
{
    static const struct operator ops[] = { { "*", JINJA_BINARY, OP_MUL },
                                           { "/", JINJA_BINARY, OP_DIV },
                                           { "//", JINJA_BINARY, OP_FLOORDIV },
                                           { "%", JINJA_BINARY, OP_MOD },
                                           { 0 } };
    return parse_level(p, ops, parse_unary, ret);
}

static int parse_concat(struct parser *p, struct jinja_node **ret)
{
    int rc = parse_product(p, ret);
    struct jinja_node *concat = NULL, *last = *ret;
    while (rc == 0 && skip(p, "~")) {
        if (!concat) {
            rc = make_operation(p, JINJA_CONCAT, OP_NONE, NULL, NULL, &concat);
            if (rc < 0) return rc;
            concat->line = last->line;
            concat->list = last;
            *ret = concat;
        }
        struct jinja_node *right = NULL;
        rc = parse_product(p, &right);
        if (rc < 0) return rc;
        last->next = right;
        last = right;
    }
    return rc;
}

static int parse_sum(struct parser *p, struct jinja_node **ret)
{
    static const struct operator ops[] = { { "+", JINJA_BINARY, OP_ADD },
                                           { "-", JINJA_BINARY, OP_SUB },
                                           { 0 } };
    return parse_level(p, ops, parse_concat, ret);
}

/* Skips a comparison operator and returns it; OP_NONE if the current token is none. */
static enum jinja_op take_comparison(struct parser *p)
{
    static const struct operator ops[] = {
        { "==", JINJA_OPERAND, OP_EQ }, { "!=", JINJA_OPERAND, OP_NE },
        { "<", JINJA_OPERAND, OP_LT },  { "<=", JINJA_OPERAND, OP_LE },
        { ">", JINJA_OPERAND, OP_GT },  { ">=", JINJA_OPERAND, OP_GE },
        { "in", JINJA_OPERAND, OP_IN },
    };
    for (size_t i = 0; i < COUNT_OF(ops); i++)
        if (skip(p, ops[i].text)) return ops[i].op;
    if (!at(p, "not") || !is_word(p->at + 1, "in")) return OP_NONE;
    p->at += 2;
    return OP_NOT_IN;
}

static int parse_compare(struct parser *p, struct jinja_node **ret)
{
    int rc = parse_sum(p, ret);
    struct jinja_node *compare = NULL, **tail = NULL;
    enum jinja_op op;
    while (rc == 0 && (op = take_comparison(p)) != OP_NONE) {
        struct jinja_node *right = NULL, *operand = NULL;
        rc = parse_sum(p, &right);
        if (rc == 0 && !compare) {
            rc = make_operation(p, JINJA_COMPARE, OP_NONE, *ret, NULL, &compare);
            if (rc == 0) tail = &compare->list;
        }
        if (rc == 0) rc = make_operation(p, JINJA_OPERAND, op, right, NULL, &operand);
        if (rc < 0) return rc;
        *tail = operand;
        tail = &operand->next;
        *ret = compare;
    }
    return rc;
}

static int parse_not(struct parser *p, struct jinja_node **ret)
{
    if (!skip(p, "not")) return parse_compare(p, ret);
    struct jinja_node *inner = NULL;
    int rc = enter(p);
    if (rc < 0) return rc;
    rc = parse_not(p, &inner);
    p->depth--;
    return rc < 0 ? rc : make_operation(p, JINJA_UNARY, OP_NOT, inner, NULL, ret);
}

static int parse_and(struct parser *p, struct jinja_node **ret)
{
    static const struct operator ops[] = { { "and", JINJA_AND, OP_NONE }, { 0 } };
    return parse_level(p, ops, parse_not, ret);
}

static int parse_or(struct parser *p, struct jinja_node **ret)
{
    static const struct operator ops[] = { { "or", JINJA_OR, OP_NONE }, { 0 } };
    return parse_level(p, ops, parse_and, ret);
}

static int parse_expression(struct parser *p, struct jinja_node **ret)
{
    int rc = enter(p);
    if (rc == 0) rc = parse_or(p, ret);
    while (rc == 0 && skip(p, "if")) {
        struct jinja_node *test = NULL, *other = NULL;
        rc = parse_or(p, &test);
        if (rc == 0 && skip(p, "else")) rc = parse_expression(p, &other);
        if (rc == 0) rc = make_operation(p, JINJA_COND, OP_NONE, *ret, test, ret);
        if (rc == 0) (*ret)->c = other;
    }
    p->depth--; /* wrong if enter failed, but parsing ends then */
    return rc;
}

/* ---- statements ---- */

static int parse_target_part(struct parser *p, struct jinja_node **ret)
{
    struct str name = { 0 };
    int rc = make_node(p, JINJA_NAME, ret);
    if (rc == 0) rc = expect_name(p, &name);
    if (rc < 0) return rc;
    set_name(*ret, name);
    if (!skip(p, ".")) return 0;
    (*ret)->kind = JINJA_NSREF;
    return expect_name(p, &(*ret)->attribute);
}

static int parse_target(struct parser *p, const char *stop, struct jinja_node **ret)
{
    return parse_items(p, parse_target_part, stop, false, ret);
}

/* Parses the body of a tag; the tag may end in a colon. The current token is then the name of the end tag. */
static int parse_tag_body(struct parser *p, const char *const ends[ENDS_MAX],
                          struct jinja_node **ret)
{
    skip(p, ":");
    int rc = expect_kind(p, JINJA_TOKEN_BLOCK_END, "%}");
    if (rc == 0) rc = enter(p);
    if (rc < 0) return rc;
    rc = parse_body(p, ends, ret);
    p->depth--;
    if (rc == 0 && p->at->kind == JINJA_TOKEN_END)
        rc = fail(p, -EINVAL, "the template ends, but {%% %s %%} is missing", ends[0]);
    return rc;
}

static int parse_to(struct parser *p, const char *end, struct jinja_node **ret)
{
    const char *const ends[ENDS_MAX] = { end };
    int rc = parse_tag_body(p, ends, ret);
    if (rc == 0) next(p);
    return rc;
}

/* Parses the body of {% else %} up to the end tag, or skips the end tag if that is the current token. */
static int parse_else(struct parser *p, const char *end, struct jinja_node **ret)
{
    if (skip(p, "else")) return parse_to(p, end, ret);
    next(p);
    return 0;
}

static int parse_if(struct parser *p, struct jinja_node **ret)
{
    static const char *const ends[ENDS_MAX] = { "endif", "elif", "else" };
    struct jinja_node **tail;
    int rc = make_node(p, JINJA_IF, ret);
    if (rc < 0) return rc;
    tail = &(*ret)->list;
    p->soft++;
    do {
        rc = make_node(p, JINJA_BRANCH, tail);
        if (rc == 0) rc = parse_items(p, parse_or, NULL, false, &(*tail)->a);
        if (rc == 0) rc = parse_tag_body(p, ends, &(*tail)->list);
        if (rc < 0) return rc;
        tail = &(*tail)->next;
    } while (skip(p, "elif"));
    rc = parse_else(p, "endif", &(*ret)->other);
    p->soft--;
    return rc;
}

static int parse_for(struct parser *p, struct jinja_node **ret)
{
    static const char *const ends[ENDS_MAX] = { "endfor", "else" };
    int rc = make_node(p, JINJA_FOR, ret);
    if (rc < 0) return rc;
    struct jinja_node *node = *ret;
    rc = parse_target(p, "in", &node->b);
    if (rc == 0 && node->b->kind == JINJA_NSREF)
        rc = fail(p, -EINVAL, "an attribute cannot be assigned here");
    if (rc == 0) rc = expect(p, "in");
    if (rc == 0) rc = parse_items(p, parse_or, "recursive", false, &node->a);
    if (rc == 0 && skip(p, "if")) rc = parse_expression(p, &node->c);
    if (rc < 0) return rc;
    if (at(p, "recursive")) return fail(p, -ENOTSUP, "recursive loops");
    p->loops++;
    rc = parse_tag_body(p, ends, &node->list);
    p->loops--;
    return rc < 0 ? rc : parse_else(p, "endfor", &node->other);
}

static int parse_set(struct parser *p, struct jinja_node **ret)
{
    int rc = make_node(p, JINJA_SET, ret);
    if (rc == 0) rc = parse_target(p, NULL, &(*ret)->b);
    if (rc < 0) return rc;
    if (skip(p, "=")) return parse_items(p, parse_expression, NULL, false, &(*ret)->a);
    (*ret)->kind = JINJA_SET_BLOCK;
    rc = parse_filters(p, false, &(*ret)->a);
    return rc < 0 ? rc : parse_to(p, "endset", &(*ret)->list);
}

/* Parses (a, b=1) of a macro, as KEYWORDs. */
static int parse_signature(struct parser *p, struct jinja_node *node)
{
    struct jinja_node **tail = &node->other;
    bool defaults = false;
    int rc = expect(p, "(");
    while (rc == 0 && !at(p, ")")) {
        struct str name = { 0 };
        if (node->other) rc = expect(p, ",");
        if (rc == 0) rc = make_node(p, JINJA_KEYWORD, tail);
        if (rc == 0) rc = expect_name(p, &name);
        if (rc < 0) return rc;
        set_name(*tail, name);
        if (skip(p, "=")) {
            rc = parse_expression(p, &(*tail)->a);
            defaults = true;
        } else if (defaults) {
            return fail(p, -EINVAL, "a parameter without default behind one with");
        }
        tail = &(*tail)->next;
    }
    return rc < 0 ? rc : expect(p, ")");
}

static int parse_macro(struct parser *p, struct jinja_node **ret)
{
    struct str name = { 0 };
    int rc = make_node(p, JINJA_MACRO_DEF, ret);
    if (rc == 0) rc = expect_name(p, &name);
    if (rc < 0) return rc;
    set_name(*ret, name);
    uint32_t loops = p->loops;
    p->loops = 0; /* the body cannot leave a loop around the macro */
    rc = parse_signature(p, *ret);
    if (rc == 0) rc = parse_to(p, "endmacro", &(*ret)->list);
    p->loops = loops;
    return rc;
}

static int parse_filter_block(struct parser *p, struct jinja_node **ret)
{
    int rc = make_node(p, JINJA_FILTER_BLOCK, ret);
    if (rc == 0) rc = parse_filters(p, true, &(*ret)->a);
    return rc < 0 ? rc : parse_to(p, "endfilter", &(*ret)->list);
}

/* Parses {% generation %}, which marks the assistant's output for training; it is printed like other text. */
static int parse_generation(struct parser *p, struct jinja_node **ret)
{
    int rc = make_node(p, JINJA_SCOPE, ret);
    return rc < 0 ? rc : parse_to(p, "endgeneration", &(*ret)->list);
}

static int parse_jump(struct parser *p, enum jinja_node_kind kind, struct jinja_node **ret)
{
    if (p->loops == 0) return fail(p, -EINVAL, "break or continue outside of a loop");
    return make_node(p, kind, ret);
}

static int parse_break(struct parser *p, struct jinja_node **ret)
{
    return parse_jump(p, JINJA_BREAK_LOOP, ret);
}

static int parse_continue(struct parser *p, struct jinja_node **ret)
{
    return parse_jump(p, JINJA_CONTINUE_LOOP, ret);
}

static const struct {
    const char *name;
    parse_fn parse; /* NULL: jinja2 has the tag, but chat templates do not use it */
} tags[] = {
    { "if", parse_if },
    { "for", parse_for },
    { "set", parse_set },
    { "macro", parse_macro },
    { "filter", parse_filter_block },
    { "generation", parse_generation },
    { "break", parse_break },
    { "continue", parse_continue },
    { "autoescape", NULL },
    { "block", NULL },
    { "call", NULL },
    { "do", NULL },
    { "extends", NULL },
    { "from", NULL },
    { "import", NULL },
    { "include", NULL },
    { "print", NULL },
    { "raw", NULL },
    { "with", NULL },
};

static int parse_statement(struct parser *p, struct jinja_node **ret)
{
    if (p->at->kind != JINJA_TOKEN_NAME) return unexpected(p, "the name of a tag");
    for (size_t i = 0; i < COUNT_OF(tags); i++) {
        if (!at(p, tags[i].name)) continue;
        if (!tags[i].parse)
            return fail(p, -ENOTSUP, "the tag '%s' is not for chat templates", tags[i].name);
        next(p);
        return tags[i].parse(p, ret);
    }
    struct str name = p->at->text;
    return fail(p, -EINVAL, "no tag is named '%.*s', or it stands where none is open",
                (int)min_size(name.len, 64), name.data);
}

static int parse_data(struct parser *p, struct jinja_node **ret)
{
    int rc = make_node(p, JINJA_DATA, ret);
    if (rc < 0) return rc;
    (*ret)->constant = jinja_string(jinja_text_of(p->at->text));
    next(p);
    return 0;
}

static int parse_output(struct parser *p, struct jinja_node **ret)
{
    int rc = make_node(p, JINJA_PRINT, ret);
    next(p);
    if (rc == 0) rc = parse_items(p, parse_expression, NULL, false, &(*ret)->a);
    return rc < 0 ? rc : expect_kind(p, JINJA_TOKEN_PRINT_END, "}}");
}

static bool at_end_tag(const struct parser *p, const char *const ends[ENDS_MAX])
{
    for (size_t i = 0; i < ENDS_MAX && ends[i]; i++)
        if (at(p, ends[i])) return true;
    return false;
}

/* Parses statements up to the end or to one of the end tags; the current token is then the name of the tag. */
static int parse_body(struct parser *p, const char *const ends[ENDS_MAX], struct jinja_node **ret)
{
    struct jinja_node **tail = ret;
    while (p->at->kind != JINJA_TOKEN_END) {
        int rc;
        if (p->at->kind == JINJA_TOKEN_DATA) {
            rc = parse_data(p, tail);
        } else if (p->at->kind == JINJA_TOKEN_PRINT) {
            rc = parse_output(p, tail);
        } else {
            next(p); /* {% */
            if (at_end_tag(p, ends)) return 0;
            rc = parse_statement(p, tail);
            /* The statement has read all but the %} of its last tag. */
            if (rc == 0) rc = expect_kind(p, JINJA_TOKEN_BLOCK_END, "%}");
        }
        if (rc < 0) return rc;
        tail = &(*tail)->next;
    }
    return 0;
}

int jinja_parse(struct chat_template *template, const struct jinja_tokens *tokens, struct err *err)
{
    static const char *const no_ends[ENDS_MAX] = { 0 };
    struct parser p = { .template = template, .at = tokens->at, .err = err };
    return parse_body(&p, no_ends, &template->body);
}
