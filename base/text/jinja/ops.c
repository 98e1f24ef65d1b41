/* ops.c - implements operators, comparison, membership, attributes, items and slices as in Python.
 *
 * It leaves out powers, // and % of floats, repetition of lists and formatting by %, because no chat
 * template of current models uses them. Each is an error. */
#include "base/core/bits.h"
#include "base/text/jinja/ast.h"
#include "base/text/jinja/row.h"

static int overflow(struct jinja_run *run)
{
    return jinja_fail(run, -EDOM, "an integer of more than 64 bits");
}

/* Divides as Python's // and %: the remainder has the sign of the divisor. */
static int divide_ints(struct jinja_run *run, enum jinja_op op, int64_t a, int64_t b,
                       struct jinja_value *ret)
{
    if (b == 0) return jinja_fail(run, -EDOM, "division by zero");
    if (b == -1) { /* INT64_MIN / -1 does not fit */
        if (op == OP_MOD) {
            *ret = jinja_int(0);
            return 0;
        }
        if (__builtin_sub_overflow((int64_t)0, a, &a)) return overflow(run);
        *ret = jinja_int(a);
        return 0;
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) quotient--, rest += b;
    *ret = jinja_int(op == OP_MOD ? rest : quotient);
    return 0;
}

static int arithmetic_ints(struct jinja_run *run, enum jinja_op op, int64_t a, int64_t b,
                           struct jinja_value *ret)
{
    int64_t result;
    if (op == OP_FLOORDIV || op == OP_MOD) return divide_ints(run, op, a, b, ret);
    if (op == OP_DIV) {
        if (b == 0) return jinja_fail(run, -EDOM, "division by zero");
        *ret = jinja_float((double)a / (double)b);
        return 0;
    }
    bool wraps = op == OP_ADD   ? __builtin_add_overflow(a, b, &result)
                 : op == OP_SUB ? __builtin_sub_overflow(a, b, &result)
                                : __builtin_mul_overflow(a, b, &result);
    if (wraps) return overflow(run);
    *ret = jinja_int(result);
    return 0;
}

static int arithmetic_floats(struct jinja_run *run, enum jinja_op op, double a, double b,
                             struct jinja_value *ret)
{
    if (op == OP_FLOORDIV || op == OP_MOD)
        return jinja_fail(run, -EDOM, "// and %% are for integers here");
    if (b == 0 && op == OP_DIV) return jinja_fail(run, -EDOM, "division by zero");
    double result = op == OP_ADD ? a + b : op == OP_SUB ? a - b : op == OP_MUL ? a * b : a / b;
    *ret = jinja_float(result);
    return 0;
}

static void put_escaped(struct jinja_builder *b, struct jinja_text t)
{
    static const char specials[] = "&<>'\"";
    static const char *const names[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    size_t done = 0;
    for (size_t i = 0; i < t.len; i++) {
        const char *special = t.data[i] ? strchr(specials, t.data[i]) : NULL;
        if (!special) continue;
        jinja_put(b, jinja_slice(t, done, i - done));
        jinja_put_marked(b, str_from(names[special - specials]), t.mark && t.mark[i]);
        done = i + 1;
    }
    jinja_put(b, jinja_slice(t, done, t.len - done));
}

/* Joins two strings. Markup + str escapes the str, as markupsafe does. */
static int add_texts(struct jinja_run *run, struct jinja_text a, struct jinja_text b,
                     struct jinja_value *ret)
{
    struct jinja_builder out = { .run = run };
    bool safe = a.safe || b.safe;
    const struct jinja_text parts[] = { a, b };
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (safe && !parts[i].safe)
            put_escaped(&out, parts[i]);
        else
            jinja_put(&out, parts[i]);
    }
    int rc = jinja_built(&out, ret);
    if (rc == 0) ret->text.safe = safe;
    return rc;
}

static int add_lists(struct jinja_run *run, const struct jinja_value *a,
                     const struct jinja_value *b, struct jinja_value *ret)
{
    struct jinja_list *list = NULL;
    int rc = jinja_list_new(run, a->list->count + b->list->count, &list);
    for (size_t i = 0; i < a->list->count && rc == 0; i++)
        rc = jinja_list_push(run, list, a->list->items[i]);
    for (size_t i = 0; i < b->list->count && rc == 0; i++)
        rc = jinja_list_push(run, list, b->list->items[i]);
    if (rc == 0) *ret = jinja_list_value(a->kind, list);
    return rc;
}

static int repeat(struct jinja_run *run, struct jinja_text t, int64_t times,
                  struct jinja_value *ret)
{
    struct jinja_builder b = { .run = run };
    for (int64_t i = 0; i < times && t.len > 0 && b.rc == 0; i++)
        jinja_put(&b, t);
    return jinja_built(&b, ret);
}

static bool is_sequence(const struct jinja_value *v)
{
    return v->kind == JINJA_STRING || v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}

int jinja_arithmetic(struct jinja_run *run, int operation, struct jinja_value *a,
                     struct jinja_value *b, struct jinja_value *ret)
{
    static const char *const signs[] = {
        [OP_ADD] = "+", [OP_SUB] = "-",       [OP_MUL] = "*",
        [OP_DIV] = "/", [OP_FLOORDIV] = "//", [OP_MOD] = "%",
    };
    enum jinja_op op = (enum jinja_op)operation;
    int64_t i, j;
    if (jinja_as_int(a, &i) && jinja_as_int(b, &j)) return arithmetic_ints(run, op, i, j, ret);
    if (jinja_is_number(a) && jinja_is_number(b))
        return arithmetic_floats(run, op, jinja_as_float(a), jinja_as_float(b), ret);
    if (op == OP_ADD && a->kind == b->kind && a->kind == JINJA_STRING)
        return add_texts(run, a->text, b->text, ret);
    if (op == OP_ADD && a->kind == b->kind && is_sequence(a)) return add_lists(run, a, b, ret);
    if (op == OP_MUL && a->kind == JINJA_STRING && jinja_as_int(b, &j))
        return repeat(run, a->text, j, ret);
    if (a->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, a);
    if (b->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, b);
    return jinja_fail(run, -EDOM, "'%s' %s '%s' is not possible", jinja_type_name(a), signs[op],
                      jinja_type_name(b));
}

static int contains_item(struct jinja_run *run, const struct jinja_list *items,
                         const struct jinja_value *item, bool *ret)
{
    int rc = jinja_charge(run, items->count / JINJA_SCAN_STEP);
    *ret = false;
    for (size_t i = 0; i < items->count && rc == 0 && !*ret; i++)
        rc = jinja_equal(run, &items->items[i], item, ret);
    return rc;
}

static int contains(struct jinja_run *run, struct jinja_value *container,
                    const struct jinja_value *item, bool *ret)
{
    if (container->kind == JINJA_STRING) {
        if (item->kind != JINJA_STRING)
            return jinja_type_error(run, "'in' a string needs a string", item);
        *ret = str_find(jinja_bytes(container->text), jinja_bytes(item->text)) != SIZE_MAX;
        return jinja_charge(run, container->text.len / JINJA_STEP_BYTES);
    }
    if (container->kind == JINJA_DICT) {
        const struct jinja_value *found = NULL;
        int rc = jinja_dict_get(run, container->dict, item, &found);
        *ret = found != NULL;
        return rc;
    }
    struct jinja_list *items = NULL;
    int rc = jinja_items(run, container, &items);
    return rc < 0 ? rc : contains_item(run, items, item, ret);
}

int jinja_compare(struct jinja_run *run, int operation, struct jinja_value *a,
                  struct jinja_value *b, bool *ret)
{
    enum jinja_op op = (enum jinja_op)operation;
    int order, rc;
    if (op == OP_EQ || op == OP_NE) {
        rc = jinja_equal(run, a, b, ret);
        if (op == OP_NE) *ret = !*ret;
        return rc;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        rc = contains(run, b, a, ret);
        if (op == OP_NOT_IN) *ret = !*ret;
        return rc;
    }
    rc = jinja_order(run, a, b, &order);
    if (rc < 0) return rc;
    *ret = op == OP_LT   ? order < 0
           : op == OP_LE ? order <= 0
           : op == OP_GT ? order > 0
                         : order >= 0;
    return 0;
}

/* Returns the byte offset of character `index` (counted from 0); t.len when beyond the end. */
static size_t char_offset(struct jinja_text t, size_t index)
{
    size_t at = 0;
    for (; at < t.len; at++)
        if (((unsigned char)t.data[at] & 0xC0) != 0x80 && index-- == 0) break;
    return at;
}

static struct jinja_text char_range(struct jinja_text t, size_t start, size_t count)
{
    size_t from = char_offset(t, start);
    struct jinja_text rest = jinja_slice(t, from, t.len - from);
    return jinja_slice(rest, 0, char_offset(rest, count));
}

/* Returns v[index] of a sequence; *ret is UNDEFINED when it is out of range. */
static int numbered_item(struct jinja_run *run, const struct jinja_value *v, int64_t index,
                         struct jinja_value *ret)
{
    int64_t len;
    int rc = jinja_length(run, v, &len);
    if (rc < 0) return rc;
    if (index < 0) index += len;
    if (index < 0 || index >= len) {
        *ret = (struct jinja_value){ .kind = JINJA_UNDEFINED,
                                     .missing = { jinja_type_name(v), STR("that index") } };
        return 0;
    }
    if (v->kind == JINJA_STRING)
        *ret = jinja_string(char_range(v->text, (size_t)index, 1));
    else
        *ret = v->list->items[index];
    return 0;
}

static int loop_attribute(struct jinja_run *run, const struct jinja_loop *loop, struct str name,
                          struct jinja_value *ret)
{
    int64_t index = (int64_t)loop->index0, count = (int64_t)loop->items->count;
    const struct {
        const char *name;
        struct jinja_value value;
    } attributes[] = {
        { "index0", jinja_int(index) },
        { "index", jinja_int(index + 1) },
        { "revindex0", jinja_int(count - index - 1) },
        { "revindex", jinja_int(count - index) },
        { "length", jinja_int(count) },
        { "first", jinja_bool(index == 0) },
        { "last", jinja_bool(index + 1 >= count) },
    };
    (void)run;
    for (size_t i = 0; i < COUNT_OF(attributes); i++)
        if (str_eq(name, str_from(attributes[i].name))) {
            *ret = attributes[i].value;
            return 0;
        }
    if (str_eq(name, STR("previtem")) && index > 0) *ret = loop->items->items[index - 1];
    if (str_eq(name, STR("nextitem")) && index + 1 < count) *ret = loop->items->items[index + 1];
    return 0;
}

/* Finds what Python's getattr would; *ret stays UNDEFINED when there is no such attribute. */
static int own_attribute(struct jinja_run *run, struct jinja_value *v, struct str name,
                         struct jinja_value *ret)
{
    const struct jinja_row *method = jinja_method_find(v->kind, name);
    if (method) {
        void *memory;
        int rc = jinja_alloc(run, 1, sizeof(struct jinja_bound), &memory);
        if (rc < 0) return rc;
        struct jinja_bound *bound = memory;
        *bound = (struct jinja_bound){ *v, method };
        *ret = (struct jinja_value){ .kind = JINJA_METHOD, .bound = bound };
        return 0;
    }
    if (v->kind == JINJA_NAMESPACE) {
        const struct jinja_value *found = NULL;
        int rc = jinja_dict_find(run, v->dict, name, &found);
        if (rc == 0 && found) *ret = *found;
        return rc;
    }
    if (v->kind == JINJA_LOOP) return loop_attribute(run, v->loop, name, ret);
    return 0;
}

static void missing_attribute(const struct jinja_value *v, struct str name, struct jinja_value *ret)
{
    *ret = (struct jinja_value){ .kind = JINJA_UNDEFINED, .missing = { jinja_type_name(v), name } };
}

int jinja_attribute(struct jinja_run *run, struct jinja_value *v, struct str name,
                    struct jinja_value *ret)
{
    if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, v);
    struct jinja_value object = *v;
    missing_attribute(&object, name, ret);
    int rc = own_attribute(run, &object, name, ret);
    if (rc < 0 || ret->kind != JINJA_UNDEFINED || object.kind != JINJA_DICT) return rc;
    const struct jinja_value *found = NULL;
    rc = jinja_dict_find(run, object.dict, name, &found);
    if (rc == 0 && found) *ret = *found;
    return rc;
}

int jinja_item(struct jinja_run *run, struct jinja_value *v, const struct jinja_value *key,
               struct jinja_value *ret)
{
    int64_t index;
    if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, v);
    struct jinja_value object = *v, wanted = *key;
    if (is_sequence(&object) && jinja_as_int(&wanted, &index))
        return numbered_item(run, &object, index, ret);
    bool hashable = wanted.kind != JINJA_LIST && wanted.kind != JINJA_DICT;
    if (object.kind == JINJA_DICT && hashable) {
        const struct jinja_value *found = NULL;
        int rc = jinja_dict_get(run, object.dict, &wanted, &found);
        if (rc < 0) return rc;
        if (found) {
            *ret = *found;
            return 0;
        }
    }
    missing_attribute(&object, wanted.kind == JINJA_STRING ? jinja_bytes(wanted.text) : STR("that"),
                      ret);
    if (wanted.kind != JINJA_STRING) return 0;
    return own_attribute(run, &object, jinja_bytes(wanted.text), ret);
}

static int slice_bound(struct jinja_run *run, const struct jinja_value *v, int64_t otherwise,
                       int64_t len, int64_t low, int64_t high, int64_t *ret)
{
    int64_t i;
    *ret = otherwise;
    if (v->kind == JINJA_NONE) return 0;
    if (!jinja_as_int(v, &i)) return jinja_type_error(run, "a slice needs integers", v);
    if (i < 0) i += len;
    *ret = i < low ? low : i > high ? high : i;
    return 0;
}

static int slice_text(struct jinja_run *run, struct jinja_text t, int64_t start, int64_t count,
                      int64_t step, struct jinja_value *ret)
{
    if (step == 1) {
        *ret = jinja_string(char_range(t, (size_t)start, (size_t)count));
        ret->text.safe = false;
        return 0;
    }
    struct jinja_value whole = jinja_string(t);
    struct jinja_list *chars = NULL;
    int rc = jinja_items(run, &whole, &chars);
    struct jinja_builder b = { .run = run };
    for (int64_t i = 0; i < count && rc == 0; i++)
        jinja_put(&b, chars->items[start + i * step].text);
    return rc < 0 ? rc : jinja_built(&b, ret);
}

int jinja_slice_value(struct jinja_run *run, const struct jinja_value *v,
                      const struct jinja_value *start, const struct jinja_value *stop,
                      const struct jinja_value *step, struct jinja_value *ret)
{
    int64_t len = 0, from = 0, to = 0, by = 1;
    if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, v);
    if (!is_sequence(v)) return jinja_type_error(run, "only sequences have slices", v);
    int rc = jinja_length(run, v, &len);
    if (rc < 0) return rc;
    if (step->kind != JINJA_NONE && !jinja_as_int(step, &by))
        return jinja_type_error(run, "a slice needs integers", step);
    if (by == 0) return jinja_fail(run, -EDOM, "a slice cannot have the step 0");
    bool up = by > 0;
    rc = slice_bound(run, start, up ? 0 : len - 1, len, up ? 0 : -1, up ? len : len - 1, &from);
    if (rc == 0)
        rc = slice_bound(run, stop, up ? len : -1, len, up ? 0 : -1, up ? len : len - 1, &to);
    if (rc < 0) return rc;
    uint64_t width =
        up ? (to > from ? (uint64_t)(to - from) : 0) : (from > to ? (uint64_t)(from - to) : 0);
    uint64_t stride = up ? (uint64_t)by : 0 - (uint64_t)by;
    int64_t count = width ? (int64_t)((width - 1) / stride + 1) : 0;
    if (count <= 1) by = 1; /* a huge stride is never multiplied */
    if (v->kind == JINJA_STRING) return slice_text(run, v->text, from, count, by, ret);
    struct jinja_list *list = NULL;
    rc = jinja_list_new(run, (size_t)count, &list);
    for (int64_t i = 0; i < count && rc == 0; i++) {
        struct jinja_value item;
        rc = numbered_item(run, v, from + i * by, &item);
        if (rc == 0) rc = jinja_list_push(run, list, item);
    }
    if (rc == 0) *ret = jinja_list_value(v->kind == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST, list);
    return rc;
}
