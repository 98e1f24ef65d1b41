/* tests.c - what may stand behind "is". */
#include "base/core/bits.h"
#include "base/text/jinja/ast.h"
#include "base/text/jinja/text.h"

#define TEST(name, condition)                                                      \
    static int test_##name(struct jinja_run *run, struct jinja_value *self,        \
                           const struct jinja_args *args, struct jinja_value *ret) \
    {                                                                              \
        (void)run, (void)args;                                                     \
        *ret = jinja_bool(condition);                                              \
        return 0;                                                                  \
    }

/* jinja2's Undefined has a call function (that fails), so it counts. */
static bool is_callable(enum jinja_kind kind)
{
    return kind == JINJA_UNDEFINED || kind == JINJA_LOOP || kind == JINJA_MACRO ||
           kind == JINJA_FUNCTION || kind == JINJA_METHOD || kind == JINJA_JOINER;
}

/* jinja2's Undefined has a length and an item function, so it counts. */
static bool is_sequence(enum jinja_kind kind)
{
    return kind == JINJA_STRING || kind == JINJA_LIST || kind == JINJA_TUPLE ||
           kind == JINJA_DICT || kind == JINJA_RANGE || kind == JINJA_UNDEFINED;
}

static bool is_iterable(enum jinja_kind kind)
{
    return is_sequence(kind) || kind == JINJA_VIEW || kind == JINJA_ITERATOR || kind == JINJA_LOOP;
}

TEST(defined, self->kind != JINJA_UNDEFINED)
TEST(undefined, self->kind == JINJA_UNDEFINED)
TEST(none, self->kind == JINJA_NONE)
TEST(boolean, self->kind == JINJA_BOOL)
TEST(true, self->kind == JINJA_BOOL && self->boolean)
TEST(false, self->kind == JINJA_BOOL && !self->boolean)
TEST(integer, self->kind == JINJA_INT)
TEST(float, self->kind == JINJA_FLOAT)
TEST(number, jinja_is_number(self))
TEST(string, self->kind == JINJA_STRING)
TEST(mapping, self->kind == JINJA_DICT)
TEST(sequence, is_sequence(self->kind))
TEST(iterable, is_iterable(self->kind))
TEST(callable, is_callable(self->kind))
TEST(escaped, self->kind == JINJA_STRING && self->text.safe)

static int test_case(struct jinja_run *run, const struct jinja_value *self, bool upper,
                     struct jinja_value *ret)
{
    struct jinja_text t;
    int rc = jinja_to_text(run, self, &t);
    if (rc == 0) *ret = jinja_bool(jinja_is_case(t, upper));
    return rc;
}

static int test_lower(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    return test_case(run, self, false, ret);
}

static int test_upper(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    return test_case(run, self, true, ret);
}

static int remainder_is(struct jinja_run *run, struct jinja_value *self, struct jinja_value by,
                        int64_t wanted, struct jinja_value *ret)
{
    struct jinja_value rest, number = jinja_int(wanted);
    bool equal = false;
    int rc = jinja_arithmetic(run, OP_MOD, self, &by, &rest);
    if (rc == 0) rc = jinja_equal(run, &rest, &number, &equal);
    if (rc == 0) *ret = jinja_bool(equal);
    return rc;
}

static int test_odd(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                    struct jinja_value *ret)
{
    (void)args;
    return remainder_is(run, self, jinja_int(2), 1, ret);
}

static int test_even(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                     struct jinja_value *ret)
{
    (void)args;
    return remainder_is(run, self, jinja_int(2), 0, ret);
}

static int test_divisibleby(struct jinja_run *run, struct jinja_value *self,
                            const struct jinja_args *args, struct jinja_value *ret)
{
    return remainder_is(run, self, args->at[0], 0, ret);
}

#define COMPARISON(name, op)                                                       \
    static int test_##name(struct jinja_run *run, struct jinja_value *self,        \
                           const struct jinja_args *args, struct jinja_value *ret) \
    {                                                                              \
        bool holds = false;                                                        \
        int rc = jinja_compare(run, op, self, &args->at[0], &holds);               \
        if (rc == 0) *ret = jinja_bool(holds);                                     \
        return rc;                                                                 \
    }

COMPARISON(eq, OP_EQ)
COMPARISON(ne, OP_NE)
COMPARISON(lt, OP_LT)
COMPARISON(le, OP_LE)
COMPARISON(gt, OP_GT)
COMPARISON(ge, OP_GE)
COMPARISON(in, OP_IN)

/* Python's "is": the same object. Numbers and strings have no identity here but their value. */
static int test_sameas(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_value *other = &args->at[0];
    bool equal = self->kind == other->kind;
    bool container =
        self->kind == JINJA_LIST || self->kind == JINJA_TUPLE || self->kind == JINJA_DICT;
    int rc = 0;
    if (equal && container)
        equal = self->list == other->list; /* list and dict share the place of their pointer */
    else if (equal)
        rc = jinja_equal(run, self, other, &equal);
    if (rc == 0) *ret = jinja_bool(equal);
    return rc;
}

static int test_filter(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    (void)run, (void)args;
    *ret = jinja_bool(self->kind == JINJA_STRING && jinja_filter_find(jinja_bytes(self->text)));
    return 0;
}

static int test_test(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                     struct jinja_value *ret)
{
    (void)run, (void)args;
    *ret = jinja_bool(self->kind == JINJA_STRING && jinja_test_find(jinja_bytes(self->text)));
    return 0;
}

static const struct jinja_row table[] = {
    { "defined", "", 0, test_defined },
    { "undefined", "", 0, test_undefined },
    { "none", "", 0, test_none },
    { "boolean", "", 0, test_boolean },
    { "true", "", 0, test_true },
    { "false", "", 0, test_false },
    { "integer", "", 0, test_integer },
    { "float", "", 0, test_float },
    { "number", "", 0, test_number },
    { "string", "", 0, test_string },
    { "mapping", "", 0, test_mapping },
    { "sequence", "", 0, test_sequence },
    { "iterable", "", 0, test_iterable },
    { "callable", "", 0, test_callable },
    { "escaped", "", 0, test_escaped },
    { "lower", "", 0, test_lower },
    { "upper", "", 0, test_upper },
    { "odd", "", 0, test_odd },
    { "even", "", 0, test_even },
    { "divisibleby", "num", 1, test_divisibleby },
    { "eq", "b", 1, test_eq },
    { "==", "b", 1, test_eq },
    { "equalto", "b", 1, test_eq },
    { "ne", "b", 1, test_ne },
    { "!=", "b", 1, test_ne },
    { "lt", "b", 1, test_lt },
    { "<", "b", 1, test_lt },
    { "lessthan", "b", 1, test_lt },
    { "le", "b", 1, test_le },
    { "<=", "b", 1, test_le },
    { "gt", "b", 1, test_gt },
    { ">", "b", 1, test_gt },
    { "greaterthan", "b", 1, test_gt },
    { "ge", "b", 1, test_ge },
    { ">=", "b", 1, test_ge },
    { "in", "seq", 1, test_in },
    { "sameas", "other", 1, test_sameas },
    { "filter", "", 0, test_filter },
    { "test", "", 0, test_test },
};

const struct jinja_row *jinja_test_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (str_eq(name, str_from(table[i].name))) return &table[i];
    return NULL;
}
