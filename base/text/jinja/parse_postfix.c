/* parse_postfix.c - what may follow an operand: .name, [index or slice], (arguments), | filter, is test.
 */
#include "base/text/jinja/parse.h"
#include "base/text/jinja/row.h"

static int parse_slice_part(struct jinja_parser *p, struct jinja_node **ret)
{
    if (jinja_at_op(p, ":") || jinja_at_op(p, "]") || jinja_at_op(p, ",")) return 0;
    return jinja_parse_expression(p, ret);
}

/* x, x:y, x:y:z with any part left out */
static int parse_subscript(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *start = NULL, *slice = NULL;
    int rc = parse_slice_part(p, &start);
    if (rc < 0) return rc;
    if (!jinja_at_op(p, ":")) {
        if (!start) return jinja_parse_fail(p, -EINVAL, "an index is missing");
        *ret = start;
        return 0;
    }
    rc = jinja_parse_operation(p, JINJA_SLICE, OP_NONE, start, NULL, &slice);
    jinja_next(p);
    if (rc == 0) rc = parse_slice_part(p, &slice->b);
    if (rc == 0 && jinja_skip_op(p, ":")) rc = parse_slice_part(p, &slice->c);
    if (rc == 0) *ret = slice;
    return rc;
}

static int parse_attribute(struct jinja_parser *p, struct jinja_node **node)
{
    struct str name = { 0 };
    jinja_next(p);
    if (p->at->kind == JINJA_TOKEN_INT) { /* a.0 is a[0] */
        struct jinja_node *index = NULL;
        int rc = jinja_parse_number(p, &index);
        return rc < 0 ? rc : jinja_parse_operation(p, JINJA_GETITEM, OP_NONE, *node, index, node);
    }
    int rc = jinja_expect_name(p, &name);
    if (rc == 0) rc = jinja_parse_operation(p, JINJA_GETATTR, OP_NONE, *node, NULL, node);
    if (rc == 0) (*node)->name = name;
    return rc;
}

static int parse_index(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *index = NULL;
    jinja_next(p);
    int rc = parse_subscript(p, &index);
    if (rc == 0 && jinja_at_op(p, ","))
        return jinja_parse_fail(p, -ENOTSUP, "an index of several values");
    if (rc == 0) rc = jinja_expect_op(p, "]");
    return rc < 0 ? rc : jinja_parse_operation(p, JINJA_GETITEM, OP_NONE, *node, index, node);
}

static int parse_keyword(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_KEYWORD, &node);
    if (rc < 0) return rc;
    node->name = p->at->text;
    node->hash = jinja_name_hash(node->name);
    jinja_next(p);
    jinja_next(p);
    rc = jinja_parse_expression(p, &node->a);
    if (rc == 0) *ret = node;
    return rc;
}

/* (a, b, name=c, *d, **e) into node->list, other, b and c. The bracket is at hand. */
static int parse_arguments(struct jinja_parser *p, struct jinja_node *node)
{
    struct jinja_node **list = &node->list, **other = &node->other;
    int rc = 0;
    jinja_next(p);
    for (bool more = true; rc == 0 && !jinja_at_op(p, ")");) {
        if (!more) return jinja_parse_fail(p, -EINVAL, "arguments need a comma between them");
        bool named = p->at->kind == JINJA_TOKEN_NAME && p->at[1].kind == JINJA_TOKEN_OPERATOR &&
                     str_eq(p->at[1].text, STR("="));
        if (jinja_at_op(p, "*") && !node->b && !node->c) {
            jinja_next(p);
            rc = jinja_parse_expression(p, &node->b);
        } else if (jinja_at_op(p, "**") && !node->c) {
            jinja_next(p);
            rc = jinja_parse_expression(p, &node->c);
        } else if (named && !node->c) {
            rc = parse_keyword(p, other);
            if (rc == 0) other = &(*other)->next;
        } else if (!node->other && !node->b && !node->c) {
            rc = jinja_parse_expression(p, list);
            if (rc == 0) list = &(*list)->next;
        } else {
            return jinja_parse_fail(p, -EINVAL, "an argument by position behind named ones");
        }
        more = jinja_skip_op(p, ",");
    }
    if (rc == 0) rc = jinja_expect_op(p, ")");
    return rc;
}

static int parse_call(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *call = NULL;
    int rc = jinja_parse_operation(p, JINJA_CALL, OP_NONE, *node, NULL, &call);
    if (rc == 0) rc = parse_arguments(p, call);
    if (rc == 0) *node = call;
    return rc;
}

int jinja_parse_postfix(struct jinja_parser *p, struct jinja_node **node)
{
    int rc = 0;
    while (rc == 0) {
        if (jinja_at_op(p, "."))
            rc = parse_attribute(p, node);
        else if (jinja_at_op(p, "["))
            rc = parse_index(p, node);
        else if (jinja_at_op(p, "("))
            rc = parse_call(p, node);
        else
            break;
    }
    return rc;
}

/* A name of one or more parts, with dots. */
static int parse_row_name(struct jinja_parser *p, struct str *ret)
{
    struct str name = { 0 }, part = { 0 };
    int rc = jinja_expect_name(p, &name);
    while (rc == 0 && jinja_skip_op(p, ".")) {
        rc = jinja_expect_name(p, &part);
        if (rc == 0) name.len = (size_t)(part.data + part.len - name.data);
    }
    *ret = name;
    return rc;
}

static int check_row(struct jinja_parser *p, const struct jinja_node *node, const char *what)
{
    if (node->row || p->soft > 0) return 0;
    return jinja_parse_fail(p, -ENOTSUP, "no %s is named '%.*s'", what, STR_ARG(node->name));
}

int jinja_parse_filters(struct jinja_parser *p, bool start_inline, struct jinja_node **ret)
{
    int rc = 0;
    while (rc == 0 && (start_inline || jinja_skip_op(p, "|"))) {
        struct jinja_node *node = NULL;
        start_inline = false;
        rc = jinja_parse_operation(p, JINJA_FILTER, OP_NONE, *ret, NULL, &node);
        if (rc == 0) rc = parse_row_name(p, &node->name);
        if (rc < 0) return rc;
        node->row = jinja_filter_find(node->name);
        rc = check_row(p, node, "filter");
        if (rc == 0 && jinja_at_op(p, "(")) rc = parse_arguments(p, node);
        *ret = node;
    }
    return rc;
}

static bool starts_test_argument(const struct jinja_parser *p)
{
    if (p->at->kind == JINJA_TOKEN_STRING || p->at->kind == JINJA_TOKEN_INT ||
        p->at->kind == JINJA_TOKEN_FLOAT || jinja_at_op(p, "[") || jinja_at_op(p, "{"))
        return true;
    return p->at->kind == JINJA_TOKEN_NAME && !jinja_at_name(p, "else") &&
           !jinja_at_name(p, "or") && !jinja_at_name(p, "and");
}

/* is [not] name, name(args) or name arg */
static int parse_test(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *test = NULL;
    jinja_next(p);
    bool negated = jinja_skip_name(p, "not");
    int rc = jinja_parse_operation(p, JINJA_TEST, OP_NONE, *node, NULL, &test);
    if (rc == 0) rc = parse_row_name(p, &test->name);
    if (rc < 0) return rc;
    test->row = jinja_test_find(test->name);
    rc = check_row(p, test, "test");
    if (rc == 0 && jinja_at_op(p, "(")) {
        rc = parse_arguments(p, test);
    } else if (rc == 0 && starts_test_argument(p)) {
        if (jinja_at_name(p, "is")) return jinja_parse_fail(p, -EINVAL, "tests cannot be chained");
        rc = jinja_parse_primary(p, &test->list);
        if (rc == 0) rc = jinja_parse_postfix(p, &test->list);
    }
    *node = test;
    if (rc == 0 && negated) rc = jinja_parse_operation(p, JINJA_UNARY, OP_NOT, test, NULL, node);
    return rc;
}

int jinja_parse_applied(struct jinja_parser *p, struct jinja_node **node)
{
    int rc = 0;
    while (rc == 0) {
        if (jinja_at_op(p, "|"))
            rc = jinja_parse_filters(p, false, node);
        else if (jinja_at_name(p, "is"))
            rc = parse_test(p, node);
        else if (jinja_at_op(p, "("))
            rc = parse_call(p, node);
        else
            break;
    }
    return rc;
}
