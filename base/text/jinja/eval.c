/* eval.c - evaluates expressions.
 *
 * A table has one function for each kind of node. Every evaluation counts a step and a level, so that
 * no template runs or nests without bound; the line of the node is kept for messages.
 */
#include "base/text/jinja/eval.h"

#include "base/core/bits.h"

typedef int (*eval_fn)(struct jinja_run *run, struct jinja_scope *scope,
                       const struct jinja_node *node, struct jinja_value *ret);

static int eval_const(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node, struct jinja_value *ret)
{
    (void)run, (void)scope;
    *ret = node->constant;
    return 0;
}

static int eval_name(struct jinja_run *run, struct jinja_scope *scope,
                     const struct jinja_node *node, struct jinja_value *ret)
{
    for (struct jinja_scope *s = scope; s; s = s->parent) {
        for (uint32_t i = s->count; i-- > 0;) {
            if (s->variables[i].hash != node->hash || !str_eq(s->variables[i].name, node->name))
                continue;
            *ret = s->variables[i].value;
            return 0;
        }
        int rc = jinja_charge(run, s->count / JINJA_SCAN_STEP);
        if (rc < 0) return rc;
    }
    const struct jinja_value *global = NULL;
    int rc = jinja_dict_find(run, run->globals, node->name, &global);
    if (rc < 0) return rc;
    *ret = global ? *global : jinja_undefined(node->name);
    return 0;
}

static int eval_items(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_list *list = NULL;
    int rc = jinja_list_new(run, 0, &list);
    for (const struct jinja_node *n = node->list; n && rc == 0; n = n->next) {
        struct jinja_value item;
        rc = jinja_eval(run, scope, n, &item);
        if (rc == 0) rc = jinja_list_push(run, list, item);
    }
    if (rc == 0) *ret = jinja_list_value(node->op == OP_TUPLE ? JINJA_TUPLE : JINJA_LIST, list);
    return rc;
}

static int eval_pairs(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_dict *dict = NULL;
    int rc = jinja_dict_new(run, &dict);
    for (const struct jinja_node *n = node->list; n && rc == 0; n = n->next->next) {
        struct jinja_value key, value;
        rc = jinja_eval(run, scope, n, &key);
        if (rc == 0) rc = jinja_eval(run, scope, n->next, &value);
        if (rc == 0) rc = jinja_dict_put(run, dict, key, value);
    }
    if (rc == 0) *ret = (struct jinja_value){ .kind = JINJA_DICT, .dict = dict };
    return rc;
}

static int eval_unary(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_value v;
    int64_t i;
    int rc = jinja_eval(run, scope, node->a, &v);
    if (rc < 0) return rc;
    if (node->op == OP_NOT) {
        *ret = jinja_bool(!jinja_truth(&v));
    } else if (v.kind == JINJA_FLOAT) {
        *ret = jinja_float(node->op == OP_NEG ? -v.real : v.real);
    } else if (jinja_as_int(&v, &i)) {
        if (node->op == OP_NEG && __builtin_sub_overflow((int64_t)0, i, &i))
            return jinja_fail(run, -EDOM, "an integer of more than 64 bits");
        *ret = jinja_int(i);
    } else {
        return jinja_type_error(run, "a sign needs a number", &v);
    }
    return 0;
}

static int eval_binary(struct jinja_run *run, struct jinja_scope *scope,
                       const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_value a, b;
    int rc = jinja_eval(run, scope, node->a, &a);
    if (rc == 0) rc = jinja_eval(run, scope, node->b, &b);
    if (rc < 0) return rc;
    run->line = node->line;
    return jinja_arithmetic(run, node->op, &a, &b, ret);
}

static int eval_logic(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node, struct jinja_value *ret)
{
    int rc = jinja_eval(run, scope, node->a, ret);
    if (rc < 0 || jinja_truth(ret) == (node->kind == JINJA_OR)) return rc;
    return jinja_eval(run, scope, node->b, ret);
}

static int eval_concat(struct jinja_run *run, struct jinja_scope *scope,
                       const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_builder b = { .run = run };
    for (const struct jinja_node *n = node->list; n; n = n->next) {
        struct jinja_value v;
        int rc = jinja_eval(run, scope, n, &v);
        if (rc < 0) return rc;
        jinja_put_value(&b, &v);
    }
    return jinja_built(&b, ret);
}

static int eval_compare(struct jinja_run *run, struct jinja_scope *scope,
                        const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_value left, right;
    bool holds = true;
    int rc = jinja_eval(run, scope, node->a, &left);
    for (const struct jinja_node *n = node->list; n && rc == 0 && holds; n = n->next) {
        rc = jinja_eval(run, scope, n->a, &right);
        if (rc == 0) rc = jinja_compare(run, n->op, &left, &right, &holds);
        left = right;
    }
    if (rc == 0) *ret = jinja_bool(holds);
    return rc;
}

static int eval_cond(struct jinja_run *run, struct jinja_scope *scope,
                     const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_value test;
    int rc = jinja_eval(run, scope, node->b, &test);
    if (rc < 0) return rc;
    if (jinja_truth(&test)) return jinja_eval(run, scope, node->a, ret);
    if (node->c) return jinja_eval(run, scope, node->c, ret);
    *ret = jinja_undefined(STR("the value of an if without else"));
    return 0;
}

static int eval_attribute(struct jinja_run *run, struct jinja_scope *scope,
                          const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_value object;
    int rc = jinja_eval(run, scope, node->a, &object);
    if (rc < 0) return rc;
    run->line = node->line;
    return jinja_attribute(run, &object, node->name, ret);
}

static int eval_optional(struct jinja_run *run, struct jinja_scope *scope,
                         const struct jinja_node *node, struct jinja_value *ret)
{
    *ret = jinja_none();
    return node ? jinja_eval(run, scope, node, ret) : 0;
}

static int eval_item(struct jinja_run *run, struct jinja_scope *scope,
                     const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_value object, key, stop, step;
    int rc = jinja_eval(run, scope, node->a, &object);
    if (rc < 0) return rc;
    const struct jinja_node *index = node->b;
    if (index->kind != JINJA_SLICE) {
        rc = jinja_eval(run, scope, index, &key);
        run->line = node->line;
        return rc < 0 ? rc : jinja_item(run, &object, &key, ret);
    }
    rc = eval_optional(run, scope, index->a, &key);
    if (rc == 0) rc = eval_optional(run, scope, index->b, &stop);
    if (rc == 0) rc = eval_optional(run, scope, index->c, &step);
    return rc < 0 ? rc : jinja_slice_value(run, &object, &key, &stop, &step, ret);
}

static int named_args(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_args *ret)
{
    void *named;
    ret->named_count = dict->count;
    if (dict->count == 0) return 0;
    int rc = jinja_alloc(run, dict->count, sizeof *ret->named, &named);
    if (rc < 0) return rc;
    ret->named = named;
    for (size_t i = 0; i < dict->count; i++)
        ret->named[i] =
            (struct jinja_named){ jinja_bytes(dict->entries[i].key.text), dict->entries[i].value };
    return 0;
}

int jinja_eval_args(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *node,
                    struct jinja_args *ret)
{
    struct jinja_list *list = NULL;
    struct jinja_dict *dict = NULL;
    *ret = (struct jinja_args){ 0 };
    if (!node->list && !node->other) return 0;
    int rc = jinja_list_new(run, 4, &list);
    if (rc == 0) rc = jinja_dict_new(run, &dict);
    for (const struct jinja_node *n = node->list; n && rc == 0; n = n->next) {
        struct jinja_value v;
        rc = jinja_eval(run, scope, n, &v);
        if (rc == 0) rc = jinja_list_push(run, list, v);
    }
    for (const struct jinja_node *n = node->other; n && rc == 0; n = n->next) {
        struct jinja_value v;
        rc = jinja_eval(run, scope, n->a, &v);
        if (rc == 0) rc = jinja_dict_set(run, dict, n->name, v);
    }
    if (rc < 0) return rc;
    ret->at = list->items;
    ret->count = list->count;
    return named_args(run, dict, ret);
}

static int eval_call(struct jinja_run *run, struct jinja_scope *scope,
                     const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_value callee;
    struct jinja_args args;
    int rc = jinja_eval(run, scope, node->a, &callee);
    if (rc == 0) rc = jinja_eval_args(run, scope, node, &args);
    if (rc < 0) return rc;
    run->line = node->line;
    return jinja_call_value(run, &callee, &args, ret);
}

int jinja_apply_filter(struct jinja_run *run, struct jinja_scope *scope,
                       const struct jinja_node *node, struct jinja_value *self,
                       struct jinja_value *ret)
{
    struct jinja_args args;
    int rc = jinja_eval_args(run, scope, node, &args);
    if (rc < 0) return rc;
    run->line = node->line;
    if (!node->row)
        return jinja_fail(run, -EDOM, "no %s is named '%.*s'",
                          node->kind == JINJA_TEST ? "test" : "filter", STR_ARG(node->name));
    return jinja_call_row(run, node->row, self, &args, ret);
}

static int eval_row(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *node,
                    struct jinja_value *ret)
{
    struct jinja_value self;
    int rc = jinja_eval(run, scope, node->a, &self);
    return rc < 0 ? rc : jinja_apply_filter(run, scope, node, &self, ret);
}

static const eval_fn table[JINJA_NODE_KIND_COUNT] = {
    [JINJA_CONST] = eval_const,     [JINJA_NAME] = eval_name,   [JINJA_ITEMS] = eval_items,
    [JINJA_PAIRS] = eval_pairs,     [JINJA_UNARY] = eval_unary, [JINJA_BINARY] = eval_binary,
    [JINJA_AND] = eval_logic,       [JINJA_OR] = eval_logic,    [JINJA_CONCAT] = eval_concat,
    [JINJA_COMPARE] = eval_compare, [JINJA_COND] = eval_cond,   [JINJA_GETATTR] = eval_attribute,
    [JINJA_GETITEM] = eval_item,    [JINJA_CALL] = eval_call,   [JINJA_FILTER] = eval_row,
    [JINJA_TEST] = eval_row,
};

int jinja_eval(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *node,
               struct jinja_value *ret)
{
    must(table[node->kind] != NULL);
    run->line = node->line;
    int rc = jinja_charge(run, 1);
    if (rc == 0) rc = jinja_enter(run);
    if (rc < 0) return rc;
    rc = table[node->kind](run, scope, node, ret);
    jinja_leave(run);
    return rc;
}
