/* call.c - bind arguments to parameters and call. */
#include "base/core/bits.h"
#include "base/text/jinja/eval.h"

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

/* The place of a named argument, or JINJA_PARAMS_MAX; *ret_count: how many parameters there are. */
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
    if (!row->params) return row->fn(run, self, args, ret);
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
    return row->fn(run, self, &all, ret);
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
