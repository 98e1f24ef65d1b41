/* tests.c - tests, the names behind "is". */
#include "base/core/bits.h"
#include "base/text/jinja/ast.h"
#include "base/text/jinja/text.h"

#define TEST(name, condition)         \
    JINJA_FN(test_##name)             \
    {                                 \
        *ret = jinja_bool(condition); \
        return 0;                     \
    }

/* jinja2's Undefined has a length and an item function, so it counts. */
static bool is_sequence(enum jinja_kind kind)
{
    return kind == JINJA_STRING || kind == JINJA_LIST || kind == JINJA_TUPLE ||
           kind == JINJA_DICT || kind == JINJA_UNDEFINED;
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

#define COMPARISON(name, op)                                         \
    JINJA_FN(test_##name)                                            \
    {                                                                \
        bool holds = false;                                          \
        int rc = jinja_compare(run, op, self, &args->at[0], &holds); \
        if (rc == 0) *ret = jinja_bool(holds);                       \
        return rc;                                                   \
    }

COMPARISON(eq, OP_EQ)
COMPARISON(ne, OP_NE)
COMPARISON(in, OP_IN)

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
    { "eq", "b", 1, test_eq },
    { "==", "b", 1, test_eq },
    { "equalto", "b", 1, test_eq },
    { "ne", "b", 1, test_ne },
    { "!=", "b", 1, test_ne },
    { "in", "seq", 1, test_in },
};

const struct jinja_row *jinja_test_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (str_eq(name, str_from(table[i].name))) return &table[i];
    return NULL;
}
