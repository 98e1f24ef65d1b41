/* parse_expr.c - expressions by recursive descent, with jinja2's levels of binding:
 *
 *     if-else, or, and, not, comparison, + -, ~, * / // %, **, unary, postfix, | filter, is test
 *
 * Two of them surprise: ~ binds tighter than +, and a filter binds tighter than any operator
 * before it but not inside a negative number ("-1|abs" filters 1's negative, "-x.y|f" is -(x.y)
 * filtered).
 */
#include "base/core/bits.h"
#include "base/text/jinja/parse.h"

typedef int (*parse_fn)(struct jinja_parser *p, struct jinja_node **ret);

static int parse_condition(struct jinja_parser *p, struct jinja_node **ret);
static int parse_or(struct jinja_parser *p, struct jinja_node **ret);
static int parse_unary(struct jinja_parser *p, bool with_filter, struct jinja_node **ret);

int jinja_parse_expression(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = jinja_parse_enter(p);
    if (rc < 0) return rc;
    rc = parse_condition(p, ret);
    p->depth--;
    return rc;
}

int jinja_parse_operation(struct jinja_parser *p, enum jinja_node_kind kind, enum jinja_op op,
                          struct jinja_node *a, struct jinja_node *b, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, kind, &node);
    if (rc < 0) return rc;
    node->op = op;
    node->a = a;
    node->b = b;
    if (a) node->line = a->line;
    *ret = node;
    return 0;
}

static int parse_condition(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parse_or(p, ret);
    while (rc == 0 && jinja_skip_name(p, "if")) {
        struct jinja_node *test = NULL, *other = NULL;
        rc = parse_or(p, &test);
        if (rc == 0 && jinja_skip_name(p, "else")) rc = jinja_parse_expression(p, &other);
        if (rc == 0) rc = jinja_parse_operation(p, JINJA_COND, OP_NONE, *ret, test, ret);
        if (rc == 0) (*ret)->c = other;
    }
    return rc;
}

static int parse_not(struct jinja_parser *p, struct jinja_node **ret);

static int parse_and(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parse_not(p, ret);
    while (rc == 0 && jinja_skip_name(p, "and")) {
        struct jinja_node *right = NULL;
        rc = parse_not(p, &right);
        if (rc == 0) rc = jinja_parse_operation(p, JINJA_AND, OP_NONE, *ret, right, ret);
    }
    return rc;
}

static int parse_or(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parse_and(p, ret);
    while (rc == 0 && jinja_skip_name(p, "or")) {
        struct jinja_node *right = NULL;
        rc = parse_and(p, &right);
        if (rc == 0) rc = jinja_parse_operation(p, JINJA_OR, OP_NONE, *ret, right, ret);
    }
    return rc;
}

static int parse_concat(struct jinja_parser *p, struct jinja_node **ret);

static int parse_sum(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parse_concat(p, ret);
    while (rc == 0 && (jinja_at_op(p, "+") || jinja_at_op(p, "-"))) {
        enum jinja_op op = jinja_at_op(p, "+") ? OP_ADD : OP_SUB;
        struct jinja_node *right = NULL;
        jinja_next(p);
        rc = parse_concat(p, &right);
        if (rc == 0) rc = jinja_parse_operation(p, JINJA_BINARY, op, *ret, right, ret);
    }
    return rc;
}

/* The comparison at hand, skipped; OP_NONE when there is none. */
static enum jinja_op take_comparison(struct jinja_parser *p)
{
    static const struct {
        const char *text;
        enum jinja_op op;
    } ops[] = { { "==", OP_EQ }, { "!=", OP_NE }, { "<", OP_LT },
                { "<=", OP_LE }, { ">", OP_GT },  { ">=", OP_GE } };
    for (size_t i = 0; i < COUNT_OF(ops); i++)
        if (jinja_skip_op(p, ops[i].text)) return ops[i].op;
    if (jinja_skip_name(p, "in")) return OP_IN;
    bool not_in = jinja_at_name(p, "not") && p->at[1].kind == JINJA_TOKEN_NAME &&
                  str_eq(p->at[1].text, STR("in"));
    if (!not_in) return OP_NONE;
    jinja_next(p);
    jinja_next(p);
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
            rc = jinja_parse_operation(p, JINJA_COMPARE, OP_NONE, *ret, NULL, &compare);
            if (rc == 0) tail = &compare->list;
        }
        if (rc == 0) rc = jinja_parse_operation(p, JINJA_OPERAND, op, right, NULL, &operand);
        if (rc < 0) return rc;
        *tail = operand;
        tail = &operand->next;
        *ret = compare;
    }
    return rc;
}

static int parse_not(struct jinja_parser *p, struct jinja_node **ret)
{
    if (!jinja_skip_name(p, "not")) return parse_compare(p, ret);
    struct jinja_node *inner = NULL;
    int rc = jinja_parse_enter(p);
    if (rc < 0) return rc;
    rc = parse_not(p, &inner);
    p->depth--;
    return rc < 0 ? rc : jinja_parse_operation(p, JINJA_UNARY, OP_NOT, inner, NULL, ret);
}

static int parse_power(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parse_unary(p, true, ret);
    while (rc == 0 && jinja_skip_op(p, "**")) {
        struct jinja_node *right = NULL;
        rc = parse_unary(p, true, &right);
        if (rc == 0) rc = jinja_parse_operation(p, JINJA_BINARY, OP_POW, *ret, right, ret);
    }
    return rc;
}

static int parse_product(struct jinja_parser *p, struct jinja_node **ret)
{
    static const struct {
        const char *text;
        enum jinja_op op;
    } ops[] = { { "*", OP_MUL }, { "/", OP_DIV }, { "//", OP_FLOORDIV }, { "%", OP_MOD } };
    int rc = parse_power(p, ret);
    while (rc == 0) {
        enum jinja_op op = OP_NONE;
        for (size_t i = 0; i < COUNT_OF(ops) && op == OP_NONE; i++)
            if (jinja_skip_op(p, ops[i].text)) op = ops[i].op;
        if (op == OP_NONE) break;
        struct jinja_node *right = NULL;
        rc = parse_power(p, &right);
        if (rc == 0) rc = jinja_parse_operation(p, JINJA_BINARY, op, *ret, right, ret);
    }
    return rc;
}

static int parse_concat(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parse_product(p, ret);
    struct jinja_node *concat = NULL, *last = *ret;
    while (rc == 0 && jinja_skip_op(p, "~")) {
        if (!concat) {
            rc = jinja_parse_operation(p, JINJA_CONCAT, OP_NONE, NULL, NULL, &concat);
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

static void note_variable(struct jinja_parser *p, struct str name)
{
    if (str_eq(name, STR("varargs"))) p->uses |= JINJA_USES_VARARGS;
    if (str_eq(name, STR("kwargs"))) p->uses |= JINJA_USES_KWARGS;
    if (str_eq(name, STR("caller"))) p->uses |= JINJA_USES_CALLER;
}

static int parse_name(struct jinja_parser *p, struct jinja_node **ret)
{
    static const struct {
        const char *name;
        enum jinja_kind kind;
        bool boolean;
    } words[] = { { "true", JINJA_BOOL, true },   { "True", JINJA_BOOL, true },
                  { "false", JINJA_BOOL, false }, { "False", JINJA_BOOL, false },
                  { "none", JINJA_NONE, false },  { "None", JINJA_NONE, false } };
    struct str name = p->at->text;
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_NAME, &node);
    if (rc < 0) return rc;
    jinja_next(p);
    node->name = name;
    node->hash = jinja_name_hash(name);
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if (!str_eq(name, str_from(words[i].name))) continue;
        node->kind = JINJA_CONST;
        node->constant = words[i].kind == JINJA_BOOL ? jinja_bool(words[i].boolean) : jinja_none();
    }
    *ret = node;
    if (node->kind == JINJA_NAME) note_variable(p, name);
    return 0;
}

/* Strings that stand side by side are one. */
static int parse_strings(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_CONST, &node);
    if (rc < 0) return rc;
    size_t len = 0, count = 0;
    for (; p->at[count].kind == JINJA_TOKEN_STRING; count++)
        len += p->at[count].text.len;
    struct str text = p->at->text;
    if (count > 1) {
        char *joined = arena_alloc(&p->template->arena, len);
        if (!joined) return jinja_parse_fail(p, -ENOMEM, "no memory");
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            if (p->at[i].text.len > 0) memcpy(joined + at, p->at[i].text.data, p->at[i].text.len);
            at += p->at[i].text.len;
        }
        text = str_of(joined, len);
    }
    for (size_t i = 0; i < count; i++)
        jinja_next(p);
    node->constant = jinja_string(jinja_text_of(text));
    *ret = node;
    return 0;
}

static int parse_list(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_ITEMS, &node);
    if (rc < 0) return rc;
    node->op = OP_LIST;
    struct jinja_node **tail = &node->list;
    jinja_next(p);
    while (!jinja_at_op(p, "]")) {
        if (node->list && (rc = jinja_expect_op(p, ",")) < 0) return rc;
        if (jinja_at_op(p, "]")) break;
        if ((rc = jinja_parse_expression(p, tail)) < 0) return rc;
        tail = &(*tail)->next;
    }
    jinja_next(p);
    *ret = node;
    return 0;
}

static int parse_dict(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_PAIRS, &node);
    if (rc < 0) return rc;
    struct jinja_node **tail = &node->list;
    jinja_next(p);
    while (!jinja_at_op(p, "}")) {
        if (node->list && (rc = jinja_expect_op(p, ",")) < 0) return rc;
        if (jinja_at_op(p, "}")) break;
        rc = jinja_parse_expression(p, tail);
        if (rc == 0) rc = jinja_expect_op(p, ":");
        if (rc == 0) rc = jinja_parse_expression(p, &(*tail)->next);
        if (rc < 0) return rc;
        tail = &(*tail)->next->next;
    }
    jinja_next(p);
    *ret = node;
    return 0;
}

int jinja_parse_number(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_CONST, &node);
    if (rc < 0) return rc;
    node->constant =
        p->at->kind == JINJA_TOKEN_INT ? jinja_int(p->at->integer) : jinja_float(p->at->real);
    jinja_next(p);
    *ret = node;
    return 0;
}

static bool at_tuple_end(const struct jinja_parser *p, const char *stop)
{
    return p->at->kind == JINJA_TOKEN_PRINT_END || p->at->kind == JINJA_TOKEN_BLOCK_END ||
           jinja_at_op(p, ")") || (stop && jinja_at_name(p, stop));
}

/* Items separated by commas: a tuple when there is a comma, else the one item. */
static int parse_items(struct jinja_parser *p, parse_fn item, const char *stop, bool may_be_empty,
                       struct jinja_node **ret)
{
    struct jinja_node *first = NULL, **tail = &first, *tuple = NULL;
    bool is_tuple = false;
    int rc = 0;
    for (;;) {
        if (first && (rc = jinja_expect_op(p, ",")) < 0) return rc;
        if (at_tuple_end(p, stop)) break;
        if ((rc = item(p, tail)) < 0) return rc;
        tail = &(*tail)->next;
        if (!jinja_at_op(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && first) {
        *ret = first;
        return 0;
    }
    if (!first && !may_be_empty) return jinja_parse_fail(p, -EINVAL, "an expression is missing");
    rc = jinja_parse_node(p, JINJA_ITEMS, &tuple);
    if (rc < 0) return rc;
    tuple->op = OP_TUPLE;
    tuple->list = first;
    *ret = tuple;
    return 0;
}

int jinja_parse_tuple(struct jinja_parser *p, bool with_if, const char *stop,
                      struct jinja_node **ret)
{
    return parse_items(p, with_if ? jinja_parse_expression : parse_or, stop, false, ret);
}

int jinja_parse_primary(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = 0;
    switch (p->at->kind) {
    case JINJA_TOKEN_NAME:
        return parse_name(p, ret);
    case JINJA_TOKEN_STRING:
        return parse_strings(p, ret);
    case JINJA_TOKEN_INT:
    case JINJA_TOKEN_FLOAT:
        return jinja_parse_number(p, ret);
    case JINJA_TOKEN_OPERATOR:
        break;
    case JINJA_TOKEN_END:
    case JINJA_TOKEN_DATA:
    case JINJA_TOKEN_BLOCK:
    case JINJA_TOKEN_BLOCK_END:
    case JINJA_TOKEN_PRINT:
    case JINJA_TOKEN_PRINT_END:
        return jinja_parse_fail(p, -EINVAL, "an expression is missing");
    }
    if (jinja_at_op(p, "[")) return parse_list(p, ret);
    if (jinja_at_op(p, "{")) return parse_dict(p, ret);
    if (!jinja_skip_op(p, "("))
        return jinja_parse_fail(p, -EINVAL, "unexpected '%.*s'", STR_ARG(p->at->text));
    rc = parse_items(p, jinja_parse_expression, NULL, true, ret);
    return rc < 0 ? rc : jinja_expect_op(p, ")");
}

static int parse_unary(struct jinja_parser *p, bool with_filter, struct jinja_node **ret)
{
    int rc = jinja_parse_enter(p);
    if (rc < 0) return rc;
    enum jinja_op op = jinja_at_op(p, "-") ? OP_NEG : jinja_at_op(p, "+") ? OP_POS : OP_NONE;
    if (op == OP_NONE) {
        rc = jinja_parse_primary(p, ret);
    } else {
        struct jinja_node *inner = NULL;
        jinja_next(p);
        rc = parse_unary(p, false, &inner);
        if (rc == 0) rc = jinja_parse_operation(p, JINJA_UNARY, op, inner, NULL, ret);
    }
    if (rc == 0) rc = jinja_parse_postfix(p, ret);
    if (rc == 0 && with_filter) rc = jinja_parse_applied(p, ret);
    p->depth--;
    return rc;
}

static int parse_target_part(struct jinja_parser *p, struct jinja_node **ret)
{
    if (jinja_skip_op(p, "(")) {
        int rc = jinja_parse_enter(p);
        if (rc < 0) return rc;
        rc = parse_items(p, parse_target_part, NULL, true, ret);
        p->depth--;
        return rc < 0 ? rc : jinja_expect_op(p, ")");
    }
    struct jinja_node *node = NULL;
    struct str name = { 0 };
    int rc = jinja_parse_node(p, JINJA_NAME, &node);
    if (rc == 0) rc = jinja_expect_name(p, &name);
    if (rc < 0) return rc;
    node->name = name;
    node->hash = jinja_name_hash(name);
    if (jinja_skip_op(p, ".")) {
        node->kind = JINJA_NSREF;
        rc = jinja_expect_name(p, &node->attribute);
    }
    *ret = node;
    return rc;
}

int jinja_parse_target(struct jinja_parser *p, bool with_namespace, const char *stop,
                       struct jinja_node **ret)
{
    int rc = parse_items(p, parse_target_part, stop, false, ret);
    if (rc < 0) return rc;
    if ((*ret)->kind == JINJA_NSREF && !with_namespace)
        return jinja_parse_fail(p, -EINVAL, "an attribute cannot be assigned here");
    return 0;
}
