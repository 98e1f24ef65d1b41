/* value.h - makes values, looks into them and compares them.
 *
 * Layer: base/text/jinja, private to the chat template
 */
#pragma once
#include "base/text/jinja/build.h"
#include "base/text/jinja/kinds.h"

static inline struct jinja_value jinja_undefined(struct str name)
{
    return (struct jinja_value){ .kind = JINJA_UNDEFINED, .missing = { NULL, name } };
}

static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){ .kind = JINJA_NONE };
}

static inline struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){ .kind = JINJA_BOOL, .boolean = b };
}

static inline struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){ .kind = JINJA_INT, .integer = i };
}

static inline struct jinja_value jinja_float(double d)
{
    return (struct jinja_value){ .kind = JINJA_FLOAT, .real = d };
}

static inline struct jinja_value jinja_string(struct jinja_text t)
{
    return (struct jinja_value){ .kind = JINJA_STRING, .text = t };
}

static inline struct jinja_text jinja_text_of(struct str s)
{
    return (struct jinja_text){ .data = s.data, .len = s.len };
}

static inline struct jinja_value jinja_list_value(enum jinja_kind kind, struct jinja_list *list)
{
    return (struct jinja_value){ .kind = kind, .list = list };
}

static inline struct str jinja_bytes(struct jinja_text t)
{
    return (struct str){ t.data, t.len };
}

/* Returns the bytes [start, start + len) with their marks. */
static inline struct jinja_text jinja_slice(struct jinja_text t, size_t start, size_t len)
{
    return (struct jinja_text){ t.data ? t.data + start : NULL, t.mark ? t.mark + start : NULL, len,
                                t.safe };
}

static inline bool jinja_is_number(const struct jinja_value *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

/* Returns a BOOL, INT or FLOAT as a double. */
static inline double jinja_as_float(const struct jinja_value *v)
{
    if (v->kind == JINJA_FLOAT) return v->real;
    return v->kind == JINJA_INT ? (double)v->integer : (double)v->boolean;
}

/* Returns a BOOL or INT as an integer in *ret; false for other kinds. */
static inline bool jinja_as_int(const struct jinja_value *v, int64_t *ret)
{
    if (v->kind != JINJA_INT && v->kind != JINJA_BOOL) return false;
    *ret = v->kind == JINJA_INT ? v->integer : v->boolean;
    return true;
}

/* Returns Python's name of the type, for messages. */
const char *jinja_type_name(const struct jinja_value *v);
bool jinja_truth(const struct jinja_value *v);

/* Allocates zeroed memory of the rendering; -E2BIG at its bound. */
int jinja_alloc(struct jinja_run *run, size_t count, size_t size, void **ret);

int jinja_list_new(struct jinja_run *run, size_t cap, struct jinja_list **ret);
int jinja_list_push(struct jinja_run *run, struct jinja_list *list, struct jinja_value v);

/* Makes the tuple (a, b). */
int jinja_pair(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
               struct jinja_value *ret);

int jinja_dict_new(struct jinja_run *run, struct jinja_dict **ret);

/* Keys are none, undefined, booleans, numbers and strings; -EDOM for others. Put replaces the value of an
 * equal key. */
int jinja_dict_put(struct jinja_run *run, struct jinja_dict *d, struct jinja_value key,
                   struct jinja_value value);
int jinja_dict_get(struct jinja_run *run, const struct jinja_dict *d, const struct jinja_value *key,
                   const struct jinja_value **ret); /* *ret NULL when absent */
int jinja_dict_find(struct jinja_run *run, const struct jinja_dict *d, struct str key,
                    const struct jinja_value **ret); /* likewise */
int jinja_dict_set(struct jinja_run *run, struct jinja_dict *d, struct str key,
                   struct jinja_value value); /* `key` must outlive the rendering */

/* Lists the tuples (key, value), in order. */
int jinja_dict_pairs(struct jinja_run *run, const struct jinja_dict *d, struct jinja_list **ret);

/* Compares as Python's ==. Containers deeper than the run's depth are -E2BIG. */
int jinja_equal(struct jinja_run *run, const struct jinja_value *a, const struct jinja_value *b,
                bool *ret);

/* Orders as Python's <: *ret is below, equal to or above 0; -EDOM when the types have no order. */
int jinja_order(struct jinja_run *run, const struct jinja_value *a, const struct jinja_value *b,
                int *ret);

/* Returns all items of an iterable as a list: the value's own list if it has one, else a new one. -EDOM
 * when it is not iterable. An iterator has run out afterwards. */
int jinja_items(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret);

/* Returns Python's len(); -EDOM for values without a length. */
int jinja_length(struct jinja_run *run, const struct jinja_value *v, int64_t *ret);
size_t jinja_text_length(struct jinja_text t); /* in characters */
