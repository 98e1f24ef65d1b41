/* row.h - filters, tests, methods and global functions: all are rows of one shape.
 *
 * Layer: base/text/jinja, private to the chat template
 */
#pragma once
#include "base/text/jinja/run.h"

#define JINJA_PARAMS_MAX 6

struct jinja_named {
    struct str name;
    struct jinja_value value;
};

struct jinja_args {
    struct jinja_value *at;
    size_t count;
    struct jinja_named *named;
    size_t named_count;
};

/* self: the filtered or tested value, the method's object; NULL for global functions. */
typedef int (*jinja_fn)(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret);

struct jinja_row {
    const char *name;
    const char *params; /* "width,first": names of the parameters; NULL: any, fn checks */
    size_t required;    /* how many of them must be given */
    jinja_fn fn;
};

/* Puts named arguments into their places and calls: fn sees args->at[i] for each parameter,
 * ABSENT where it was not given. */
int jinja_call_row(struct jinja_run *run, const struct jinja_row *row, struct jinja_value *self,
                   const struct jinja_args *args, struct jinja_value *ret);

/* Calls any callable value. */
int jinja_call_value(struct jinja_run *run, struct jinja_value *callee,
                     const struct jinja_args *args, struct jinja_value *ret);

/* NULL when there is none of that name. */
const struct jinja_row *jinja_filter_find(struct str name);
const struct jinja_row *jinja_test_find(struct str name);

/* The method of a value of that kind, or NULL. */
const struct jinja_row *jinja_method_find(enum jinja_kind kind, struct str name);

/* Puts range, namespace, raise_exception ... into run->globals. */
int jinja_add_globals(struct jinja_run *run);

/* Tables of the files that hold the rows; each ends with a NULL name. */
extern const struct jinja_row jinja_filters_text[], jinja_filters_value[];
extern const struct jinja_row jinja_filters_list[], jinja_filters_order[];
extern const struct jinja_row jinja_methods_text[], jinja_methods_list[], jinja_methods_dict[];

/* Attributes and items with jinja2's rules (attribute first for ".", item first for "[]"). */
int jinja_attribute(struct jinja_run *run, struct jinja_value *v, struct str name,
                    struct jinja_value *ret);
int jinja_item(struct jinja_run *run, struct jinja_value *v, const struct jinja_value *key,
               struct jinja_value *ret);
int jinja_slice_value(struct jinja_run *run, const struct jinja_value *v,
                      const struct jinja_value *start, const struct jinja_value *stop,
                      const struct jinja_value *step, struct jinja_value *ret);

/* What filters mean by an attribute: item[part] for each part of "a.b.0"; an integer is one part.
 * NONE and ABSENT: the item itself. */
int jinja_follow_path(struct jinja_run *run, struct jinja_value item,
                      const struct jinja_value *attribute, struct jinja_value *ret);

/* Operators. `op` is an enum jinja_op. */
int jinja_arithmetic(struct jinja_run *run, int op, struct jinja_value *a, struct jinja_value *b,
                     struct jinja_value *ret);
int jinja_compare(struct jinja_run *run, int op, struct jinja_value *a, struct jinja_value *b,
                  bool *ret);

/* HTML escape; the result is safe. */
int jinja_escape(struct jinja_run *run, struct jinja_text t, struct jinja_value *ret);

/* str.format and the % of strings. */
int jinja_format(struct jinja_run *run, struct jinja_text form, const struct jinja_args *args,
                 struct jinja_value *ret);
int jinja_percent(struct jinja_run *run, struct jinja_text form, struct jinja_value *args,
                  struct jinja_value *ret);

/* JSON in: strings are marked as content when `marked`. Out: as json.dumps. */
int jinja_from_json(struct jinja_run *run, struct str json, const char *what, bool marked,
                    struct jinja_value *ret);
struct jinja_json_style {
    bool ascii, sort_keys;
    struct jinja_value indent;                /* NONE, INT or STRING */
    struct str item_separator, key_separator; /* NULL data: the usual ones */
};
int jinja_to_json(struct jinja_run *run, const struct jinja_value *v,
                  const struct jinja_json_style *style, struct jinja_value *ret);

/* An argument as a C value; the default when ABSENT. -EDOM when it is of another type. */
int jinja_arg_int(struct jinja_run *run, const struct jinja_args *args, size_t i, int64_t otherwise,
                  int64_t *ret);
int jinja_arg_text(struct jinja_run *run, const struct jinja_args *args, size_t i,
                   struct jinja_text *ret); /* must be a string */
static inline bool jinja_arg_true(const struct jinja_args *args, size_t i)
{
    return jinja_truth(&args->at[i]);
}
static inline bool jinja_arg_given(const struct jinja_args *args, size_t i)
{
    return args->at[i].kind != JINJA_ABSENT;
}
