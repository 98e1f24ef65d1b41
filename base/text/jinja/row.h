/* row.h - declares the table row of filters, tests, methods and global functions, and what they call.
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

/* The type of the functions in these rows. self: the filtered or tested value, the method's object; NULL for
 * global functions. form: the row's. */
typedef int (*jinja_fn)(struct jinja_run *run, unsigned form, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret);

/* Writes the head of a jinja_fn: JINJA_FN(filter_upper) { ... } */
#define JINJA_FN(name)                                                     \
    static int name(struct jinja_run *run __attribute__((unused)),         \
                    unsigned form __attribute__((unused)),                 \
                    struct jinja_value *self __attribute__((unused)),      \
                    const struct jinja_args *args __attribute__((unused)), \
                    struct jinja_value *ret __attribute__((unused)))

struct jinja_row {
    const char *name;
    const char *params; /* "width,first": names of the parameters; NULL: any, checked by fn */
    size_t required;    /* the first so many must be given */
    jinja_fn fn;
    unsigned form; /* which of several alike: the function says what it means */
};

/* Puts named arguments into their places and calls the function: it sees args->at[i] for each parameter,
 * ABSENT where it was not given. */
int jinja_call_row(struct jinja_run *run, const struct jinja_row *row, struct jinja_value *self,
                   const struct jinja_args *args, struct jinja_value *ret);

/* Calls any callable value. */
int jinja_call_value(struct jinja_run *run, struct jinja_value *callee,
                     const struct jinja_args *args, struct jinja_value *ret);

/* Find a filter or test by name; NULL when there is none. */
const struct jinja_row *jinja_filter_find(struct str name);
const struct jinja_row *jinja_test_find(struct str name);

/* Finds a method of values of that kind; NULL when there is none. */
const struct jinja_row *jinja_method_find(enum jinja_kind kind, struct str name);

/* Puts range, namespace, raise_exception ... into run->globals. */
int jinja_add_globals(struct jinja_run *run);

/* Look up attributes and items with jinja2's rules (attribute first for ".", item first for "[]"). */
int jinja_attribute(struct jinja_run *run, struct jinja_value *v, struct str name,
                    struct jinja_value *ret);
int jinja_item(struct jinja_run *run, struct jinja_value *v, const struct jinja_value *key,
               struct jinja_value *ret);
int jinja_slice_value(struct jinja_run *run, const struct jinja_value *v,
                      const struct jinja_value *start, const struct jinja_value *stop,
                      const struct jinja_value *step, struct jinja_value *ret);

/* Apply an operator; `op` is an enum jinja_op. */
int jinja_arithmetic(struct jinja_run *run, int op, struct jinja_value *a, struct jinja_value *b,
                     struct jinja_value *ret);
int jinja_compare(struct jinja_run *run, int op, struct jinja_value *a, struct jinja_value *b,
                  bool *ret);

/* Convert JSON to values, with strings marked as content when `marked`, and values to JSON as json.dumps
 * does. */
int jinja_from_json(struct jinja_run *run, struct str json, const char *what, bool marked,
                    struct jinja_value *ret);
struct jinja_json_style {
    bool ascii;
    int64_t indent; /* blanks for each level; negative: all in one line */
};
int jinja_to_json(struct jinja_run *run, const struct jinja_value *v,
                  const struct jinja_json_style *style, struct jinja_value *ret);

/* Return an argument as a C value; `otherwise` when it is ABSENT. -EDOM when it is of another type. */
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
