/* exec.c - executes statements, keeps scopes, and calls macros and functions.
 *
 * Scopes are jinja2's: each round of a loop, each macro and each captured block has its own; an if has
 * none. Assigning writes to the innermost, reading goes outwards, so a variable set in a loop is gone
 * after the round: templates carry values out of loops in a namespace.
 */
#include "base/core/bits.h"
#include "base/text/jinja/eval.h"

typedef int (*exec_fn)(struct jinja_run *run, struct jinja_scope *scope,
                       const struct jinja_node *node);

int jinja_scope_new(struct jinja_run *run, struct jinja_scope *parent, struct jinja_scope **ret)
{
    void *scope;
    int rc = jinja_alloc(run, 1, sizeof **ret, &scope);
    if (rc < 0) return rc;
    *ret = scope;
    (*ret)->parent = parent;
    return 0;
}

int jinja_scope_set(struct jinja_run *run, struct jinja_scope *scope, struct str name,
                    uint64_t hash, struct jinja_value value)
{
    int rc = jinja_charge(run, scope->count / JINJA_SCAN_STEP);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < scope->count; i++) {
        if (scope->variables[i].hash != hash || !str_eq(scope->variables[i].name, name)) continue;
        scope->variables[i].value = value;
        return 0;
    }
    if (scope->count == scope->cap) {
        uint32_t cap = scope->cap ? 2 * scope->cap : 4;
        void *variables;
        rc = jinja_alloc(run, cap, sizeof *scope->variables, &variables);
        if (rc < 0) return rc;
        if (scope->count > 0)
            memcpy(variables, scope->variables, scope->count * sizeof *scope->variables);
        scope->variables = variables;
        scope->cap = cap;
    }
    scope->variables[scope->count++] = (struct jinja_variable){ hash, name, value };
    return 0;
}

static int read_name(struct jinja_run *run, struct jinja_scope *scope,
                     const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_node name = { .kind = JINJA_NAME, .line = node->line };
    name.name = node->name;
    name.hash = node->hash;
    return jinja_eval(run, scope, &name, ret);
}

static int assign_attribute(struct jinja_run *run, struct jinja_scope *scope,
                            const struct jinja_node *target, struct jinja_value value)
{
    struct jinja_value object;
    int rc = read_name(run, scope, target, &object);
    if (rc < 0) return rc;
    if (object.kind != JINJA_NAMESPACE)
        return jinja_type_error(run, "attributes are set on a namespace only", &object);
    return jinja_dict_set(run, object.dict, target->attribute, value);
}

static int assign(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *target,
                  struct jinja_value value)
{
    if (target->kind == JINJA_NAME)
        return jinja_scope_set(run, scope, target->name, target->hash, value);
    if (target->kind == JINJA_NSREF) return assign_attribute(run, scope, target, value);
    struct jinja_list *items = NULL;
    int rc = jinja_items(run, &value, &items);
    if (rc < 0) return rc;
    size_t wanted = 0;
    for (const struct jinja_node *n = target->list; n; n = n->next)
        wanted++;
    if (wanted != items->count)
        return jinja_fail(run, -EDOM, "%zu values for %zu names", items->count, wanted);
    size_t i = 0;
    for (const struct jinja_node *n = target->list; n && rc == 0; n = n->next)
        rc = assign(run, scope, n, items->items[i++]);
    return rc;
}

static int exec_data(struct jinja_run *run, struct jinja_scope *scope,
                     const struct jinja_node *node)
{
    (void)scope;
    jinja_put(run->out, node->constant.text);
    return run->out->rc;
}

static int exec_print(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node)
{
    struct jinja_value v;
    int rc = jinja_eval(run, scope, node->a, &v);
    if (rc < 0) return rc;
    jinja_put_value(run->out, &v);
    return run->out->rc;
}

static int exec_if(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *node)
{
    for (const struct jinja_node *branch = node->list; branch; branch = branch->next) {
        struct jinja_value test;
        int rc = jinja_eval(run, scope, branch->a, &test);
        if (rc < 0) return rc;
        if (jinja_truth(&test)) return jinja_exec(run, scope, branch->list);
    }
    return jinja_exec(run, scope, node->other);
}

/* Keeps the items that pass the condition of the loop. */
static int filter_items(struct jinja_run *run, struct jinja_scope *scope,
                        const struct jinja_node *node, struct jinja_list **items)
{
    struct jinja_list *kept = NULL;
    int rc = jinja_list_new(run, 0, &kept);
    for (size_t i = 0; rc == 0 && i < (*items)->count; i++) {
        struct jinja_scope *inner = NULL;
        struct jinja_value test = { 0 };
        rc = jinja_scope_new(run, scope, &inner);
        if (rc == 0) rc = assign(run, inner, node->b, (*items)->items[i]);
        if (rc == 0) rc = jinja_eval(run, inner, node->c, &test);
        if (rc == 0 && jinja_truth(&test)) rc = jinja_list_push(run, kept, (*items)->items[i]);
    }
    if (rc == 0) *items = kept;
    return rc;
}

static int exec_round(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node, struct jinja_loop *loop)
{
    static const struct str loop_name = STR("loop");
    struct jinja_scope *inner = NULL;
    struct jinja_value value = { .kind = JINJA_LOOP, .loop = loop };
    int rc = jinja_scope_new(run, scope, &inner);
    if (rc == 0) rc = jinja_scope_set(run, inner, loop_name, jinja_name_hash(loop_name), value);
    if (rc == 0) rc = assign(run, inner, node->b, loop->items->items[loop->index0]);
    if (rc == 0) rc = jinja_exec(run, inner, node->list);
    return rc;
}

static int exec_for(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *node)
{
    struct jinja_value iterable;
    struct jinja_list *items = NULL;
    void *memory;
    int rc = jinja_eval(run, scope, node->a, &iterable);
    if (rc == 0) rc = jinja_items(run, &iterable, &items);
    if (rc == 0 && node->c) rc = filter_items(run, scope, node, &items);
    if (rc == 0) rc = jinja_alloc(run, 1, sizeof(struct jinja_loop), &memory);
    if (rc < 0) return rc;
    if (items->count == 0) return jinja_exec(run, scope, node->other);
    struct jinja_loop *loop = memory;
    loop->items = items;
    for (; rc == 0 && loop->index0 < items->count; loop->index0++) {
        rc = exec_round(run, scope, node, loop);
        enum jinja_flow flow = run->flow;
        run->flow = JINJA_NEXT;
        if (flow == JINJA_BREAK) break;
    }
    return rc;
}

static int exec_set(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *node)
{
    struct jinja_value v;
    int rc = jinja_eval(run, scope, node->a, &v);
    return rc < 0 ? rc : assign(run, scope, node->b, v);
}

int jinja_capture(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *body,
                  struct jinja_value *ret)
{
    struct jinja_builder b = { .run = run };
    struct jinja_builder *outer = run->out;
    run->out = &b;
    int rc = jinja_exec(run, scope, body);
    run->out = outer;
    return rc < 0 ? rc : jinja_built(&b, ret);
}

/* Applies the filter chain of a block to its text: the innermost filter has no operand of its own. */
static int filter_text(struct jinja_run *run, struct jinja_scope *scope,
                       const struct jinja_node *filter, struct jinja_value *text)
{
    int rc = jinja_enter(run);
    if (rc < 0) return rc;
    if (filter->a) rc = filter_text(run, scope, filter->a, text);
    struct jinja_value self = *text;
    if (rc == 0) rc = jinja_apply_filter(run, scope, filter, &self, text);
    jinja_leave(run);
    return rc;
}

static int captured_block(struct jinja_run *run, struct jinja_scope *scope,
                          const struct jinja_node *node, struct jinja_value *ret)
{
    struct jinja_scope *inner = NULL;
    int rc = jinja_scope_new(run, scope, &inner);
    if (rc == 0) rc = jinja_capture(run, inner, node->list, ret);
    if (rc == 0 && node->a) rc = filter_text(run, inner, node->a, ret);
    return rc;
}

static int exec_set_block(struct jinja_run *run, struct jinja_scope *scope,
                          const struct jinja_node *node)
{
    struct jinja_value v;
    int rc = captured_block(run, scope, node, &v);
    return rc < 0 ? rc : assign(run, scope, node->b, v);
}

static int exec_filter_block(struct jinja_run *run, struct jinja_scope *scope,
                             const struct jinja_node *node)
{
    struct jinja_value v;
    int rc = captured_block(run, scope, node, &v);
    if (rc < 0) return rc;
    jinja_put_value(run->out, &v);
    return run->out->rc;
}

static int exec_scope(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node)
{
    struct jinja_scope *inner = NULL;
    int rc = jinja_scope_new(run, scope, &inner);
    return rc < 0 ? rc : jinja_exec(run, inner, node->list);
}

static int exec_macro(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node)
{
    void *memory;
    int rc = jinja_alloc(run, 1, sizeof(struct jinja_macro), &memory);
    if (rc < 0) return rc;
    struct jinja_macro *macro = memory;
    *macro = (struct jinja_macro){ node, scope };
    return jinja_scope_set(run, scope, node->name, node->hash,
                           (struct jinja_value){ .kind = JINJA_MACRO, .macro = macro });
}

static int exec_break(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node)
{
    (void)scope;
    run->flow = node->kind == JINJA_BREAK_LOOP ? JINJA_BREAK : JINJA_CONTINUE;
    return 0;
}

static const exec_fn table[JINJA_NODE_KIND_COUNT] = {
    [JINJA_DATA] = exec_data,
    [JINJA_PRINT] = exec_print,
    [JINJA_IF] = exec_if,
    [JINJA_FOR] = exec_for,
    [JINJA_SET] = exec_set,
    [JINJA_SET_BLOCK] = exec_set_block,
    [JINJA_SCOPE] = exec_scope,
    [JINJA_MACRO_DEF] = exec_macro,
    [JINJA_FILTER_BLOCK] = exec_filter_block,
    [JINJA_BREAK_LOOP] = exec_break,
    [JINJA_CONTINUE_LOOP] = exec_break,
};

int jinja_exec(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *body)
{
    int rc = jinja_enter(run);
    if (rc < 0) return rc;
    for (const struct jinja_node *node = body; node && rc == 0 && run->flow == JINJA_NEXT;
         node = node->next) {
        must(table[node->kind] != NULL);
        run->line = node->line;
        rc = jinja_charge(run, 1);
        if (rc == 0) rc = table[node->kind](run, scope, node);
    }
    jinja_leave(run);
    return rc;
}

static const struct jinja_value *named_arg(const struct jinja_args *args, struct str name)
{
    for (size_t i = 0; i < args->named_count; i++)
        if (str_eq(args->named[i].name, name)) return &args->named[i].value;
    return NULL;
}

static bool has_param(const struct jinja_node *node, struct str name)
{
    for (const struct jinja_node *n = node->other; n; n = n->next)
        if (str_eq(n->name, name)) return true;
    return false;
}

static int set_params(struct jinja_run *run, const struct jinja_node *node,
                      const struct jinja_args *args, struct jinja_scope *scope, size_t *ret_count)
{
    size_t i = 0;
    int rc = 0;
    for (const struct jinja_node *n = node->other; n && rc == 0; n = n->next, i++) {
        const struct jinja_value *named = named_arg(args, n->name);
        struct jinja_value v = jinja_undefined(n->name);
        if (i < args->count)
            v = args->at[i];
        else if (named)
            v = *named;
        else if (n->a)
            rc = jinja_eval(run, scope, n->a, &v); /* may refer to earlier parameters */
        if (rc == 0) rc = jinja_scope_set(run, scope, n->name, n->hash, v);
    }
    *ret_count = i;
    return rc;
}

/* Refuses arguments for which the macro has no parameter. */
static int check_args(struct jinja_run *run, const struct jinja_node *node,
                      const struct jinja_args *args, size_t param_count)
{
    if (args->count > param_count)
        return jinja_fail(run, -EDOM, "macro '%.*s' takes not more than %zu arguments",
                          STR_ARG(node->name), param_count);
    for (size_t i = 0; i < args->named_count; i++)
        if (!has_param(node, args->named[i].name))
            return jinja_fail(run, -EDOM, "macro '%.*s' has no parameter '%.*s'",
                              STR_ARG(node->name), STR_ARG(args->named[i].name));
    return 0;
}

int jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                     const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_scope *scope = NULL;
    size_t param_count;
    int rc = jinja_scope_new(run, macro->scope, &scope);
    if (rc == 0) rc = set_params(run, macro->node, args, scope, &param_count);
    if (rc == 0) rc = check_args(run, macro->node, args, param_count);
    if (rc < 0) return rc;
    return jinja_capture(run, scope, macro->node->list, ret);
}

/* The functions below bind arguments to parameters and call. */

int jinja_arg_int(struct jinja_run *run, const struct jinja_args *args, size_t i, int64_t otherwise,
                  int64_t *ret)
{
    *ret = otherwise;
    if (!jinja_arg_given(args, i) || jinja_as_int(&args->at[i], ret)) return 0;
    return jinja_type_error(run, "an argument must be an integer", &args->at[i]);
}

int jinja_arg_text(struct jinja_run *run, const struct jinja_args *args, size_t i,
                   struct jinja_text *ret)
{
    if (args->at[i].kind != JINJA_STRING)
        return jinja_type_error(run, "an argument must be a string", &args->at[i]);
    *ret = args->at[i].text;
    return 0;
}

/* Returns the index of a named parameter, or JINJA_PARAMS_MAX; *ret_count is the number of parameters. */
static size_t param_index(const char *params, struct str name, size_t *ret_count)
{
    struct str rest = str_from(params);
    size_t found = JINJA_PARAMS_MAX, i = 0;
    for (; rest.len > 0; i++)
        if (str_eq(str_cut(&rest, ','), name)) found = i;
    *ret_count = i;
    return found;
}

int jinja_call_row(struct jinja_run *run, const struct jinja_row *row, struct jinja_value *self,
                   const struct jinja_args *args, struct jinja_value *ret)
{
    if (!row->params) return row->fn(run, row->form, self, args, ret);
    struct jinja_value bound[JINJA_PARAMS_MAX] = { 0 };
    size_t count;
    param_index(row->params, STR(""), &count);
    if (args->count > count)
        return jinja_fail(run, -EDOM, "%s takes at most %zu arguments, %zu given", row->name, count,
                          args->count);
    for (size_t i = 0; i < args->count; i++)
        bound[i] = args->at[i];
    for (size_t i = 0; i < args->named_count; i++) {
        struct str name = args->named[i].name;
        size_t at = param_index(row->params, name, &count);
        if (at == JINJA_PARAMS_MAX || bound[at].kind != JINJA_ABSENT)
            return jinja_fail(run, -EDOM, "%s: unexpected argument '%.*s'", row->name,
                              (int)min_size(name.len, 64), name.data);
        bound[at] = args->named[i].value;
    }
    for (size_t i = 0; i < row->required; i++)
        if (bound[i].kind == JINJA_ABSENT)
            return jinja_fail(run, -EDOM, "%s needs %zu arguments", row->name, row->required);
    struct jinja_args all = { .at = bound, .count = count };
    return row->fn(run, row->form, self, &all, ret);
}

int jinja_call_value(struct jinja_run *run, struct jinja_value *callee,
                     const struct jinja_args *args, struct jinja_value *ret)
{
    if (callee->kind == JINJA_MACRO) {
        int rc = jinja_enter(run);
        if (rc < 0) return rc;
        rc = jinja_call_macro(run, callee->macro, args, ret);
        jinja_leave(run);
        return rc;
    }
    if (callee->kind == JINJA_FUNCTION)
        return jinja_call_row(run, callee->function, NULL, args, ret);
    if (callee->kind == JINJA_METHOD) {
        struct jinja_value self = callee->bound->self;
        return jinja_call_row(run, callee->bound->method, &self, args, ret);
    }
    return jinja_type_error(run, "only functions, methods and macros can be called", callee);
}
