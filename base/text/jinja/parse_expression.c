/* parse_expression.c - parses expressions by recursive descent with jinja2's precedence, from the loosest:
 *
 *     if-else, or, and, not, comparison, + -, ~, * / // %, | filter and is test, sign, postfix
 *
 * Two levels may surprise: ~ binds tighter than +, and a filter binds tighter than any binary operator
 * but looser than a sign ("-1|abs" is (-1)|abs, and "-x.y|f" is (-(x.y))|f).
 */
#include "base/core/bits.h"
#include "base/text/jinja/parser.h"
#include "base/text/jinja/row.h"

/* ---- operands ---- */

static int parse_name(struct jinja_parser *p, struct jinja_node **ret)
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
    int rc = parser_node(p, JINJA_NAME, ret);
    if (rc < 0) return rc;
    parser_next(p);
    parser_name(*ret, name);
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if (!str_eq(name, str_from(words[i].name))) continue;
        (*ret)->kind = JINJA_CONST;
        (*ret)->constant = words[i].value;
    }
    return 0;
}

static int parse_constant(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_node(p, JINJA_CONST, ret);
    if (rc < 0) return rc;
    const struct jinja_token *t = p->at;
    (*ret)->constant = t->kind == JINJA_TOKEN_INT     ? jinja_int(t->integer)
                       : t->kind == JINJA_TOKEN_FLOAT ? jinja_float(t->real)
                                                      : jinja_string(jinja_text_of(t->text));
    parser_next(p);
    return 0;
}

static int parse_list(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_node(p, JINJA_ITEMS, ret);
    if (rc < 0) return rc;
    (*ret)->op = OP_LIST;
    struct jinja_node **tail = &(*ret)->list;
    parser_next(p);
    while (!parser_at(p, "]")) {
        if ((*ret)->list && (rc = parser_expect(p, ",")) < 0) return rc;
        if (parser_at(p, "]")) break;
        if ((rc = parser_expression(p, tail)) < 0) return rc;
        tail = &(*tail)->next;
    }
    parser_next(p);
    return 0;
}

static int parse_dict(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_node(p, JINJA_PAIRS, ret);
    if (rc < 0) return rc;
    struct jinja_node **tail = &(*ret)->list;
    parser_next(p);
    while (!parser_at(p, "}")) {
        if ((*ret)->list && (rc = parser_expect(p, ",")) < 0) return rc;
        if (parser_at(p, "}")) break;
        rc = parser_expression(p, tail);
        if (rc == 0) rc = parser_expect(p, ":");
        if (rc == 0) rc = parser_expression(p, &(*tail)->next);
        if (rc < 0) return rc;
        tail = &(*tail)->next->next;
    }
    parser_next(p);
    return 0;
}

static bool at_tuple_end(const struct jinja_parser *p, const char *stop)
{
    return p->at->kind == JINJA_TOKEN_PRINT_END || p->at->kind == JINJA_TOKEN_BLOCK_END ||
           parser_at(p, ")") || (stop && parser_at(p, stop));
}

/* Parses items separated by commas: a tuple when there is a comma, else the one item. The name `stop`
 * ends them too. */
int parser_items(struct jinja_parser *p, parse_fn item, const char *stop, bool may_be_empty,
                 struct jinja_node **ret)
{
    struct jinja_node *first = NULL, **tail = &first, *tuple = NULL;
    bool is_tuple = false;
    int rc = 0;
    for (;;) {
        if (first && (rc = parser_expect(p, ",")) < 0) return rc;
        if (at_tuple_end(p, stop)) break;
        if ((rc = item(p, tail)) < 0) return rc;
        tail = &(*tail)->next;
        if (!parser_at(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && first) {
        *ret = first;
        return 0;
    }
    if (!first && !may_be_empty) return parser_fail(p, -EINVAL, "an expression is missing");
    rc = parser_node(p, JINJA_ITEMS, &tuple);
    if (rc < 0) return rc;
    tuple->op = OP_TUPLE;
    tuple->list = first;
    *ret = tuple;
    return 0;
}

static int parse_primary(struct jinja_parser *p, struct jinja_node **ret)
{
    if (p->at->kind == JINJA_TOKEN_NAME) return parse_name(p, ret);
    if (p->at->kind == JINJA_TOKEN_STRING || p->at->kind == JINJA_TOKEN_INT ||
        p->at->kind == JINJA_TOKEN_FLOAT)
        return parse_constant(p, ret);
    if (p->at->kind != JINJA_TOKEN_OPERATOR)
        return parser_fail(p, -EINVAL, "an expression is missing");
    if (parser_at(p, "[")) return parse_list(p, ret);
    if (parser_at(p, "{")) return parse_dict(p, ret);
    if (!parser_skip(p, "("))
        return parser_fail(p, -EINVAL, "unexpected '%.*s'", STR_ARG(p->at->text));
    int rc = parser_items(p, parser_expression, NULL, true, ret);
    return rc < 0 ? rc : parser_expect(p, ")");
}

/* ---- what may follow an operand: .name, [index or slice], (arguments), | filter, is test ---- */

static int parse_slice_part(struct jinja_parser *p, struct jinja_node **ret)
{
    return parser_at(p, ":") || parser_at(p, "]") ? 0 : parser_expression(p, ret);
}

/* Parses x, x:y or x:y:z, in a slice with any part left out. */
static int parse_subscript(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *start = NULL, *slice = NULL;
    int rc = parse_slice_part(p, &start);
    if (rc < 0) return rc;
    if (!parser_at(p, ":")) {
        if (!start) return parser_fail(p, -EINVAL, "an index is missing");
        *ret = start;
        return 0;
    }
    rc = parser_operation(p, JINJA_SLICE, OP_NONE, start, NULL, &slice);
    parser_next(p);
    if (rc == 0) rc = parse_slice_part(p, &slice->b);
    if (rc == 0 && parser_skip(p, ":")) rc = parse_slice_part(p, &slice->c);
    if (rc == 0) *ret = slice;
    return rc;
}

static int parse_attribute(struct jinja_parser *p, struct jinja_node **node)
{
    struct str name = { 0 };
    parser_next(p);
    if (p->at->kind == JINJA_TOKEN_INT) { /* a.0 is a[0] */
        struct jinja_node *index = NULL;
        int rc = parse_constant(p, &index);
        return rc < 0 ? rc : parser_operation(p, JINJA_GETITEM, OP_NONE, *node, index, node);
    }
    int rc = parser_expect_name(p, &name);
    if (rc == 0) rc = parser_operation(p, JINJA_GETATTR, OP_NONE, *node, NULL, node);
    if (rc == 0) (*node)->name = name;
    return rc;
}

static int parse_index(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *index = NULL;
    parser_next(p);
    int rc = parse_subscript(p, &index);
    if (rc == 0) rc = parser_expect(p, "]");
    return rc < 0 ? rc : parser_operation(p, JINJA_GETITEM, OP_NONE, *node, index, node);
}

/* Parses (a, b, name=c) into node->list and node->other; the current token is the bracket. */
static int parse_arguments(struct jinja_parser *p, struct jinja_node *node)
{
    struct jinja_node **list = &node->list, **other = &node->other;
    int rc = 0;
    parser_next(p);
    for (bool more = true; rc == 0 && !parser_at(p, ")"); more = parser_skip(p, ",")) {
        if (!more) return parser_fail(p, -EINVAL, "arguments need a comma between them");
        if (p->at->kind == JINJA_TOKEN_NAME && parser_is_word(p->at + 1, "=")) {
            rc = parser_node(p, JINJA_KEYWORD, other);
            if (rc < 0) return rc;
            parser_name(*other, p->at->text);
            p->at += 2;
            rc = parser_expression(p, &(*other)->a);
            other = &(*other)->next;
        } else if (!node->other) {
            rc = parser_expression(p, list);
            if (rc == 0) list = &(*list)->next;
        } else {
            return parser_fail(p, -EINVAL, "an argument by position behind named ones");
        }
    }
    if (rc == 0) rc = parser_expect(p, ")");
    return rc;
}

static int parse_call(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *call = NULL;
    int rc = parser_operation(p, JINJA_CALL, OP_NONE, *node, NULL, &call);
    if (rc == 0) rc = parse_arguments(p, call);
    if (rc == 0) *node = call;
    return rc;
}

static int parse_postfix(struct jinja_parser *p, struct jinja_node **node)
{
    int rc = 0;
    while (rc == 0) {
        if (parser_at(p, "."))
            rc = parse_attribute(p, node);
        else if (parser_at(p, "["))
            rc = parse_index(p, node);
        else if (parser_at(p, "("))
            rc = parse_call(p, node);
        else
            break;
    }
    return rc;
}

static int check_row(struct jinja_parser *p, const struct jinja_node *node, const char *what)
{
    if (node->row || p->soft > 0) return 0;
    return parser_fail(p, -ENOTSUP, "no %s is named '%.*s'", what, STR_ARG(node->name));
}

/* Parses | name, | name(args) and so on. start_inline: the first filter has no bar before it. */
int parser_filters(struct jinja_parser *p, bool start_inline, struct jinja_node **ret)
{
    int rc = 0;
    while (rc == 0 && (start_inline || parser_skip(p, "|"))) {
        struct jinja_node *node = NULL;
        start_inline = false;
        rc = parser_operation(p, JINJA_FILTER, OP_NONE, *ret, NULL, &node);
        if (rc == 0) rc = parser_expect_name(p, &node->name);
        if (rc < 0) return rc;
        node->row = jinja_filter_find(node->name);
        rc = check_row(p, node, "filter");
        if (rc == 0 && parser_at(p, "(")) rc = parse_arguments(p, node);
        *ret = node;
    }
    return rc;
}

static bool starts_test_argument(const struct jinja_parser *p)
{
    if (p->at->kind == JINJA_TOKEN_STRING || p->at->kind == JINJA_TOKEN_INT ||
        p->at->kind == JINJA_TOKEN_FLOAT || parser_at(p, "[") || parser_at(p, "{"))
        return true;
    return p->at->kind == JINJA_TOKEN_NAME && !parser_at(p, "else") && !parser_at(p, "or") &&
           !parser_at(p, "and");
}

/* Parses is [not] name, name(args) or name arg. */
static int parse_test(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *test = NULL;
    parser_next(p);
    bool negated = parser_skip(p, "not");
    int rc = parser_operation(p, JINJA_TEST, OP_NONE, *node, NULL, &test);
    if (rc == 0) rc = parser_expect_name(p, &test->name);
    if (rc < 0) return rc;
    test->row = jinja_test_find(test->name);
    rc = check_row(p, test, "test");
    if (rc == 0 && parser_at(p, "(")) {
        rc = parse_arguments(p, test);
    } else if (rc == 0 && starts_test_argument(p)) {
        if (parser_at(p, "is")) return parser_fail(p, -EINVAL, "tests cannot be chained");
        rc = parse_primary(p, &test->list);
        if (rc == 0) rc = parse_postfix(p, &test->list);
    }
    *node = test;
    if (rc == 0 && negated) rc = parser_operation(p, JINJA_UNARY, OP_NOT, test, NULL, node);
    return rc;
}

/* Parses filters and tests behind an operand. */
static int parse_applied(struct jinja_parser *p, struct jinja_node **node)
{
    int rc = 0;
    while (rc == 0 && (parser_at(p, "|") || parser_at(p, "is")))
        rc = parser_at(p, "|") ? parser_filters(p, false, node) : parse_test(p, node);
    return rc;
}

/* ---- operators, from the tightest to the loosest ---- */

static int parse_unary_of(struct jinja_parser *p, bool with_filter, struct jinja_node **ret)
{
    int rc = parser_enter(p);
    if (rc < 0) return rc;
    enum jinja_op op = parser_at(p, "-") ? OP_NEG : parser_at(p, "+") ? OP_POS : OP_NONE;
    if (op == OP_NONE) {
        rc = parse_primary(p, ret);
    } else {
        struct jinja_node *inner = NULL;
        parser_next(p);
        rc = parse_unary_of(p, false, &inner);
        if (rc == 0) rc = parser_operation(p, JINJA_UNARY, op, inner, NULL, ret);
    }
    if (rc == 0) rc = parse_postfix(p, ret);
    if (rc == 0 && with_filter) rc = parse_applied(p, ret);
    p->depth--;
    return rc;
}

static int parse_unary(struct jinja_parser *p, struct jinja_node **ret)
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
static int parse_level(struct jinja_parser *p, const struct operator* ops, parse_fn operand,
                       struct jinja_node **ret)
{
    int rc = operand(p, ret);
    while (rc == 0) {
        const struct operator* found = ops;
        while (found->text && !parser_at(p, found->text))
            found++;
        if (!found->text) break;
        struct jinja_node *right = NULL;
        parser_next(p);
        rc = operand(p, &right);
        if (rc == 0) rc = parser_operation(p, found->kind, found->op, *ret, right, ret);
    }
    return rc;
}

static int parse_product(struct jinja_parser *p, struct jinja_node **ret)
{
    static const struct operator ops[] = { { "*", JINJA_BINARY, OP_MUL },
                                           { "/", JINJA_BINARY, OP_DIV },
                                           { "//", JINJA_BINARY, OP_FLOORDIV },
                                           { "%", JINJA_BINARY, OP_MOD },
                                           { 0 } };
    return parse_level(p, ops, parse_unary, ret);
}

static int parse_concat(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parse_product(p, ret);
    struct jinja_node *concat = NULL, *last = *ret;
    while (rc == 0 && parser_skip(p, "~")) {
        if (!concat) {
            rc = parser_operation(p, JINJA_CONCAT, OP_NONE, NULL, NULL, &concat);
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

static int parse_sum(struct jinja_parser *p, struct jinja_node **ret)
{
    static const struct operator ops[] = { { "+", JINJA_BINARY, OP_ADD },
                                           { "-", JINJA_BINARY, OP_SUB },
                                           { 0 } };
    return parse_level(p, ops, parse_concat, ret);
}

/* Skips a comparison operator and returns it; OP_NONE if the current token is none. */
static enum jinja_op take_comparison(struct jinja_parser *p)
{
    static const struct operator ops[] = {
        { "==", JINJA_OPERAND, OP_EQ }, { "!=", JINJA_OPERAND, OP_NE },
        { "<", JINJA_OPERAND, OP_LT },  { "<=", JINJA_OPERAND, OP_LE },
        { ">", JINJA_OPERAND, OP_GT },  { ">=", JINJA_OPERAND, OP_GE },
        { "in", JINJA_OPERAND, OP_IN },
    };
    for (size_t i = 0; i < COUNT_OF(ops); i++)
        if (parser_skip(p, ops[i].text)) return ops[i].op;
    if (!parser_at(p, "not") || !parser_is_word(p->at + 1, "in")) return OP_NONE;
    p->at += 2;
    return OP_NOT_IN;
}

static int parse_compare(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parse_sum(p, ret);
    struct jinja_node *compare = NULL, **tail = NULL;
    enum jinja_op op;
    while (rc == 0 && (op = take_comparison(p)) != OP_NONE) {
        struct jinja_node *right = NULL, *operand = NULL;
        rc = parse_sum(p, &right);
        if (rc == 0 && !compare) {
            rc = parser_operation(p, JINJA_COMPARE, OP_NONE, *ret, NULL, &compare);
            if (rc == 0) tail = &compare->list;
        }
        if (rc == 0) rc = parser_operation(p, JINJA_OPERAND, op, right, NULL, &operand);
        if (rc < 0) return rc;
        *tail = operand;
        tail = &operand->next;
        *ret = compare;
    }
    return rc;
}

static int parse_not(struct jinja_parser *p, struct jinja_node **ret)
{
    if (!parser_skip(p, "not")) return parse_compare(p, ret);
    struct jinja_node *inner = NULL;
    int rc = parser_enter(p);
    if (rc < 0) return rc;
    rc = parse_not(p, &inner);
    p->depth--;
    return rc < 0 ? rc : parser_operation(p, JINJA_UNARY, OP_NOT, inner, NULL, ret);
}

static int parse_and(struct jinja_parser *p, struct jinja_node **ret)
{
    static const struct operator ops[] = { { "and", JINJA_AND, OP_NONE }, { 0 } };
    return parse_level(p, ops, parse_not, ret);
}

int parser_or(struct jinja_parser *p, struct jinja_node **ret)
{
    static const struct operator ops[] = { { "or", JINJA_OR, OP_NONE }, { 0 } };
    return parse_level(p, ops, parse_and, ret);
}

int parser_expression(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_enter(p);
    if (rc == 0) rc = parser_or(p, ret);
    while (rc == 0 && parser_skip(p, "if")) {
        struct jinja_node *test = NULL, *other = NULL;
        rc = parser_or(p, &test);
        if (rc == 0 && parser_skip(p, "else")) rc = parser_expression(p, &other);
        if (rc == 0) rc = parser_operation(p, JINJA_COND, OP_NONE, *ret, test, ret);
        if (rc == 0) (*ret)->c = other;
    }
    p->depth--; /* wrong if enter failed, but parsing ends then */
    return rc;
}
