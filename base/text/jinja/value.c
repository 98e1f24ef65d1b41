/* value.c - implements lists, equality and order of a template's values, and the bounds of a rendering.
 *
 * Values behave as in Python: True == 1 == 1.0, an iterator is true even when empty, strings count
 * characters and not bytes. Integers have 64 bits; where Python's would grow, the operation fails.
 */
#include "base/text/jinja/value.h"

#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>

/* Python's name of a kind, its items and its length; NULL: it is not iterable, it has no len(). */
struct type {
    const char *name;
    int (*items)(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret);
    int (*length)(struct jinja_run *run, const struct jinja_value *v, int64_t *ret);
};
static const struct type types[JINJA_KIND_COUNT];

const char *jinja_type_name(const struct jinja_value *v)
{
    return types[v->kind].name;
}

int jinja_fail(struct jinja_run *run, int code, const char *format, ...)
{
    if (run->failed) return code;
    run->failed = true;
    char text[ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return err_set(run->err, code, "chat template, line %u: %s", run->line, text);
}

int jinja_charge(struct jinja_run *run, uint64_t steps)
{
    run->steps += steps;
    work_add(steps * WORK_STEP);
    if (run->steps <= run->limits.steps_max) return 0;
    return jinja_fail(run, -E2BIG, "more than %llu steps (steps_max)",
                      (unsigned long long)run->limits.steps_max);
}

int jinja_enter(struct jinja_run *run)
{
    if (run->depth >= run->limits.depth_max)
        return jinja_fail(run, -E2BIG, "nested deeper than %u (depth_max)", run->limits.depth_max);
    run->depth++;
    return 0;
}

int jinja_type_error(struct jinja_run *run, const char *what, const struct jinja_value *v)
{
    if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, v);
    return jinja_fail(run, -EDOM, "%s, not '%s'", what, jinja_type_name(v));
}

int jinja_undefined_error(struct jinja_run *run, const struct jinja_value *v)
{
    int len = (int)min_size(v->missing.name.len, 100);
    if (!v->missing.owner)
        return jinja_fail(run, -EDOM, "'%.*s' is undefined", len, v->missing.name.data);
    return jinja_fail(run, -EDOM, "'%s' has no attribute '%.*s'", v->missing.owner, len,
                      v->missing.name.data);
}

int jinja_alloc(struct jinja_run *run, size_t count, size_t size, void **ret)
{
    size_t bytes;
    bool fits = mul_fits(count, size, &bytes) && bytes <= run->limits.memory_bytes_max;
    void *memory = fits ? arena_alloc(&run->arena, bytes) : NULL;
    if (memory) {
        *ret = memory;
        return jinja_charge(run, bytes / JINJA_STEP_BYTES);
    }
    if (fits && run->arena.bytes_used + bytes < run->limits.memory_bytes_max)
        return jinja_fail(run, -ENOMEM, "no memory");
    return jinja_fail(run, -E2BIG, "more than %zu bytes of memory (memory_bytes_max)",
                      run->limits.memory_bytes_max);
}

bool jinja_truth(const struct jinja_value *v)
{
    if (jinja_is_number(v)) return jinja_as_float(v) != 0;
    if (v->kind == JINJA_STRING) return v->text.len > 0;
    if (v->kind == JINJA_LIST || v->kind == JINJA_TUPLE || v->kind == JINJA_VIEW)
        return v->list->count > 0;
    if (v->kind == JINJA_DICT) return v->dict->count > 0;
    return v->kind != JINJA_ABSENT && v->kind != JINJA_UNDEFINED && v->kind != JINJA_NONE;
}

int jinja_list_new(struct jinja_run *run, size_t cap, struct jinja_list **ret)
{
    void *list, *items = NULL;
    int rc = jinja_alloc(run, 1, sizeof **ret, &list);
    if (rc == 0 && cap > 0) rc = jinja_alloc(run, cap, sizeof(struct jinja_value), &items);
    if (rc < 0) return rc;
    *ret = list;
    (*ret)->items = items;
    (*ret)->cap = cap;
    return 0;
}

int jinja_list_push(struct jinja_run *run, struct jinja_list *list, struct jinja_value v)
{
    if (list->count == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 8;
        void *items;
        int rc = jinja_alloc(run, cap, sizeof v, &items);
        if (rc < 0) return rc;
        if (list->count > 0) memcpy(items, list->items, list->count * sizeof v);
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = v;
    return 0;
}

int jinja_pair(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
               struct jinja_value *ret)
{
    struct jinja_list *pair = NULL;
    int rc = jinja_list_new(run, 2, &pair);
    if (rc == 0) rc = jinja_list_push(run, pair, a);
    if (rc == 0) rc = jinja_list_push(run, pair, b);
    if (rc == 0) *ret = jinja_list_value(JINJA_TUPLE, pair);
    return rc;
}

static int equal_items(struct jinja_run *run, const struct jinja_list *a,
                       const struct jinja_list *b, bool *ret)
{
    *ret = a->count == b->count;
    int rc = 0;
    for (size_t i = 0; i < a->count && *ret && rc == 0; i++)
        rc = jinja_equal(run, &a->items[i], &b->items[i], ret);
    return rc;
}

static int equal_dicts(struct jinja_run *run, const struct jinja_dict *a,
                       const struct jinja_dict *b, bool *ret)
{
    *ret = a->count == b->count;
    int rc = 0;
    for (size_t i = 0; i < a->count && *ret && rc == 0; i++) {
        const struct jinja_value *other = NULL;
        rc = jinja_dict_get(run, b, &a->entries[i].key, &other);
        if (rc == 0 && !other) *ret = false;
        if (rc == 0 && other) rc = jinja_equal(run, &a->entries[i].value, other, ret);
    }
    return rc;
}

static bool equal_numbers(const struct jinja_value *a, const struct jinja_value *b)
{
    int64_t x, y;
    if (jinja_as_int(a, &x) && jinja_as_int(b, &y)) return x == y;
    return jinja_as_float(a) == jinja_as_float(b);
}

/* Compares values without contents: they are equal when they are the same object. */
static bool equal_identity(const struct jinja_value *a, const struct jinja_value *b)
{
    if (a->kind == JINJA_UNDEFINED || a->kind == JINJA_NONE) return true;
    return a->list == b->list; /* any of the union's pointers */
}

int jinja_equal(struct jinja_run *run, const struct jinja_value *a, const struct jinja_value *b,
                bool *ret)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *ret = equal_numbers(a, b);
        return 0;
    }
    *ret = false;
    if (a->kind != b->kind) return 0;
    if (a->kind == JINJA_STRING) {
        *ret = str_eq(jinja_bytes(a->text), jinja_bytes(b->text));
        return 0;
    }
    bool items = a->kind == JINJA_LIST || a->kind == JINJA_TUPLE;
    if (!items && a->kind != JINJA_DICT) {
        *ret = equal_identity(a, b);
        return 0;
    }
    int rc = jinja_charge(run, 1);
    if (rc == 0) rc = jinja_enter(run);
    if (rc < 0) return rc;
    rc = items ? equal_items(run, a->list, b->list, ret) : equal_dicts(run, a->dict, b->dict, ret);
    jinja_leave(run);
    return rc;
}

static int order_numbers(const struct jinja_value *a, const struct jinja_value *b)
{
    int64_t i, j;
    if (jinja_as_int(a, &i) && jinja_as_int(b, &j)) return (i > j) - (i < j);
    double x = jinja_as_float(a), y = jinja_as_float(b);
    return (x > y) - (x < y);
}

static int order_items(struct jinja_run *run, const struct jinja_list *a,
                       const struct jinja_list *b, int *ret)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        bool equal;
        int rc = jinja_equal(run, &a->items[i], &b->items[i], &equal);
        if (rc < 0) return rc;
        if (!equal) return jinja_order(run, &a->items[i], &b->items[i], ret);
    }
    *ret = (a->count > b->count) - (a->count < b->count);
    return 0;
}

int jinja_order(struct jinja_run *run, const struct jinja_value *a, const struct jinja_value *b,
                int *ret)
{
    int rc = jinja_charge(run, 1);
    if (rc < 0) return rc;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *ret = order_numbers(a, b);
        return 0;
    }
    if (a->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, a);
    if (b->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, b);
    if (a->kind == JINJA_STRING && b->kind == JINJA_STRING) {
        *ret = str_cmp(jinja_bytes(a->text),
                       jinja_bytes(b->text)); /* UTF-8 sorts as its code points do */
        return 0;
    }
    if (a->kind == b->kind && (a->kind == JINJA_LIST || a->kind == JINJA_TUPLE)) {
        rc = jinja_enter(run);
        if (rc < 0) return rc;
        rc = order_items(run, a->list, b->list, ret);
        jinja_leave(run);
        return rc;
    }
    return jinja_fail(run, -EDOM, "'%s' and '%s' have no order", jinja_type_name(a),
                      jinja_type_name(b));
}

static int text_items(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret)
{
    struct jinja_text t = v->text;
    struct jinja_list *list;
    int rc = jinja_list_new(run, jinja_text_length(t), &list);
    t.safe = false;
    for (size_t at = 0; at < t.len && rc == 0;) {
        uint32_t cp;
        size_t len = utf8_decode(str_of(t.data + at, t.len - at), &cp);
        if (len == 0) len = 1;
        rc = jinja_list_push(run, list, jinja_string(jinja_slice(t, at, len)));
        at += len;
    }
    if (rc == 0) *ret = list;
    return rc;
}

static int dict_keys(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret)
{
    const struct jinja_dict *d = v->dict;
    struct jinja_list *list;
    int rc = jinja_list_new(run, d->count, &list);
    for (size_t i = 0; i < d->count && rc == 0; i++)
        rc = jinja_list_push(run, list, d->entries[i].key);
    if (rc == 0) *ret = list;
    return rc;
}

static int rest_of(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret)
{
    struct jinja_list *list, *iterator = v->list;
    size_t left = iterator->count - iterator->next;
    int rc = jinja_list_new(run, left, &list);
    if (rc < 0) return rc;
    if (left > 0) memcpy(list->items, iterator->items + iterator->next, left * sizeof *list->items);
    list->count = left;
    iterator->next = iterator->count;
    *ret = list;
    return 0;
}

static int own_items(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret)
{
    (void)run;
    *ret = v->list;
    return 0;
}

static int no_items(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret)
{
    (void)v;
    return jinja_list_new(run, 0, ret);
}

int jinja_items(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret)
{
    if (types[v->kind].items) return types[v->kind].items(run, v, ret);
    return jinja_fail(run, -EDOM, "'%s' object is not iterable", jinja_type_name(v));
}

size_t jinja_text_length(struct jinja_text t)
{
    size_t count = 0;
    for (size_t i = 0; i < t.len; i++)
        count += ((unsigned char)t.data[i] & 0xC0) != 0x80;
    return count;
}

static int text_length(struct jinja_run *run, const struct jinja_value *v, int64_t *ret)
{
    *ret = (int64_t)jinja_text_length(v->text);
    return jinja_charge(run, v->text.len / JINJA_STEP_BYTES);
}

static int list_length(struct jinja_run *run, const struct jinja_value *v, int64_t *ret)
{
    (void)run;
    *ret = (int64_t)v->list->count;
    return 0;
}

static int dict_length(struct jinja_run *run, const struct jinja_value *v, int64_t *ret)
{
    (void)run;
    *ret = (int64_t)v->dict->count;
    return 0;
}

static int loop_length(struct jinja_run *run, const struct jinja_value *v, int64_t *ret)
{
    (void)run;
    *ret = (int64_t)v->loop->items->count;
    return 0;
}

static int no_length(struct jinja_run *run, const struct jinja_value *v, int64_t *ret)
{
    (void)run, (void)v;
    *ret = 0;
    return 0;
}

int jinja_length(struct jinja_run *run, const struct jinja_value *v, int64_t *ret)
{
    if (types[v->kind].length) return types[v->kind].length(run, v, ret);
    return jinja_fail(run, -EDOM, "object of type '%s' has no len()", jinja_type_name(v));
}

// clang-format off
static const struct type types[JINJA_KIND_COUNT] = {
    /*                    name           items        length */
    [JINJA_ABSENT]    = { "nothing",     NULL,        NULL },
    [JINJA_UNDEFINED] = { "Undefined",   no_items,    no_length },
    [JINJA_NONE]      = { "NoneType",    NULL,        NULL },
    [JINJA_BOOL]      = { "bool",        NULL,        NULL },
    [JINJA_INT]       = { "int",         NULL,        NULL },
    [JINJA_FLOAT]     = { "float",       NULL,        NULL },
    [JINJA_STRING]    = { "str",         text_items,  text_length },
    [JINJA_LIST]      = { "list",        own_items,   list_length },
    [JINJA_TUPLE]     = { "tuple",       own_items,   list_length },
    [JINJA_DICT]      = { "dict",        dict_keys,   dict_length },
    [JINJA_VIEW]      = { "dict view",   own_items,   list_length },
    [JINJA_ITERATOR]  = { "generator",   rest_of,     NULL },
    [JINJA_NAMESPACE] = { "Namespace",   NULL,        NULL },
    [JINJA_MACRO]     = { "Macro",       NULL,        NULL },
    [JINJA_FUNCTION]  = { "function",    NULL,        NULL },
    [JINJA_METHOD]    = { "method",      NULL,        NULL },
    [JINJA_LOOP]      = { "LoopContext", NULL,        loop_length },
};
// clang-format on
