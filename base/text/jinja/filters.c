/* filters.c - implements filters, the names behind "|", and tests, the names behind "is".
 *
 * These are the ones that chat templates of current models use; a template that names another one is
 * refused with its name. jinja2 makes some results lazily (map, select, unique, items ...); here they
 * are made at once and returned as an iterator, which behaves the same: true even when empty, no
 * length, runs once.
 */
#include "base/core/bits.h"
#include "base/text/jinja/ast.h"
#include "base/text/jinja/text.h"

#include <stdlib.h>

#define INDENT_MAX 1000
#define PATH_PARTS_MAX 32

enum { IS_SAFE = 1 };
enum { BY_ATTRIBUTE = 1, REJECTS = 2 };

/* ---- text: applied to str() of any value, as jinja2's soft_str does ---- */

/* form: an enum jinja_case. */
JINJA_FN(filter_case)
{
    struct jinja_text t;
    int rc = jinja_to_text(run, self, &t);
    return rc < 0 ? rc : jinja_change_case(run, t, form, ret);
}

JINJA_FN(filter_trim)
{
    struct jinja_text t, chars = { 0 };
    int rc = jinja_to_text(run, self, &t);
    if (rc == 0 && jinja_arg_given(args, 0)) rc = jinja_arg_text(run, args, 0, &chars);
    if (rc == 0) *ret = jinja_string(jinja_strip(t, jinja_bytes(chars), JINJA_LEFT | JINJA_RIGHT));
    return rc;
}

JINJA_FN(filter_replace)
{
    struct jinja_text t, from, to;
    int64_t count;
    int rc = jinja_to_text(run, self, &t);
    if (rc == 0) rc = jinja_to_text(run, &args->at[0], &from);
    if (rc == 0) rc = jinja_to_text(run, &args->at[1], &to);
    if (rc == 0) rc = jinja_arg_int(run, args, 2, -1, &count);
    return rc < 0 ? rc : jinja_replace(run, t, from, to, count, ret);
}

/* form: IS_SAFE, or 0 for a string that stays what it is. */
JINJA_FN(filter_string)
{
    struct jinja_text t;
    int rc = jinja_to_text(run, self, &t);
    if (form == IS_SAFE) t.safe = true;
    if (rc == 0) *ret = jinja_string(t);
    return rc;
}

/* Returns the text that goes before each line. */
static int indention(struct jinja_run *run, const struct jinja_args *args, struct jinja_text *ret)
{
    static const char blanks[INDENT_MAX + 1] = { [0 ... INDENT_MAX - 1] = ' ' };
    int64_t width;
    if (args->at[0].kind == JINJA_STRING) {
        *ret = args->at[0].text;
        return 0;
    }
    int rc = jinja_arg_int(run, args, 0, 4, &width);
    if (rc < 0) return rc;
    if (width > INDENT_MAX) return jinja_fail(run, -E2BIG, "indent of more than %d", INDENT_MAX);
    *ret = jinja_text_of(str_of(blanks, width > 0 ? (size_t)width : 0));
    return 0;
}

JINJA_FN(filter_indent)
{
    struct jinja_text before;
    struct jinja_value text;
    struct jinja_list *lines = NULL;
    if (self->kind != JINJA_STRING) return jinja_type_error(run, "indent needs a string", self);
    /* jinja2 adds a line end before it splits, so a last line end stays visible. */
    struct jinja_builder with_end = { .run = run }, b = { .run = run };
    jinja_put(&with_end, self->text);
    jinja_put_text(&with_end, "\n");
    int rc = jinja_built(&with_end, &text);
    if (rc == 0) rc = indention(run, args, &before);
    if (rc == 0) rc = jinja_split_lines(run, text.text, &lines);
    if (rc < 0) return rc;
    bool first = jinja_arg_true(args, 1), blank = jinja_arg_true(args, 2);
    for (size_t i = 0; i < lines->count && b.rc == 0; i++) {
        struct jinja_text line = lines->items[i].text;
        if (i > 0) jinja_put_text(&b, "\n");
        if (i == 0 ? first : blank || line.len > 0) jinja_put(&b, before);
        jinja_put(&b, line);
    }
    rc = jinja_built(&b, ret);
    if (rc == 0) ret->text.safe = self->text.safe;
    return rc;
}

/* ---- sequences and mappings ---- */

static struct jinja_value iterator(struct jinja_list *list)
{
    return jinja_list_value(JINJA_ITERATOR, list);
}

/* Follows the `attribute` of a filter: item[part] for each part of "a.b.0"; an integer is one part. NONE
 * and ABSENT give the item itself. */
static int follow_path(struct jinja_run *run, struct jinja_value item,
                       const struct jinja_value *attribute, struct jinja_value *ret)
{
    if (attribute->kind == JINJA_NONE || attribute->kind == JINJA_ABSENT) {
        *ret = item;
        return 0;
    }
    if (attribute->kind != JINJA_STRING) return jinja_item(run, &item, attribute, ret);
    struct str path = jinja_bytes(attribute->text);
    int rc = 0;
    for (size_t parts = 0; path.data && rc == 0; parts++) {
        struct str part = str_cut(&path, '.');
        uint64_t index;
        struct jinja_value key = jinja_string(jinja_text_of(part));
        if (parts == PATH_PARTS_MAX)
            return jinja_fail(run, -E2BIG, "an attribute of too many parts");
        if (str_to_u64(part, &index) == 0 && index <= INT64_MAX) key = jinja_int((int64_t)index);
        rc = jinja_item(run, &item, &key, &item);
    }
    if (rc == 0) *ret = item;
    return rc;
}

JINJA_FN(filter_items)
{
    struct jinja_list *pairs = NULL;
    int rc = self->kind == JINJA_DICT        ? jinja_dict_pairs(run, self->dict, &pairs)
             : self->kind == JINJA_UNDEFINED ? jinja_list_new(run, 0, &pairs)
                                             : jinja_type_error(run, "items needs a mapping", self);
    if (rc == 0) *ret = iterator(pairs);
    return rc;
}

JINJA_FN(filter_join)
{
    struct jinja_list *list = NULL;
    struct jinja_text between = { 0 };
    int rc = jinja_items(run, self, &list);
    if (rc == 0 && jinja_arg_given(args, 0)) rc = jinja_to_text(run, &args->at[0], &between);
    if (rc == 0) rc = jinja_charge(run, list->count / JINJA_SCAN_STEP);
    struct jinja_builder b = { .run = run };
    for (size_t i = 0; rc == 0 && i < list->count && b.rc == 0; i++) {
        if (i > 0) jinja_put(&b, between);
        jinja_put_value(&b, &list->items[i]);
    }
    return rc < 0 ? rc : jinja_built(&b, ret);
}

JINJA_FN(filter_length)
{
    int64_t len;
    int rc = jinja_length(run, self, &len);
    if (rc == 0) *ret = jinja_int(len);
    return rc;
}

JINJA_FN(filter_first)
{
    struct jinja_list *list = NULL;
    *ret = jinja_undefined(STR("the first item"));
    if (self->kind == JINJA_ITERATOR) {
        if (self->list->next < self->list->count) *ret = self->list->items[self->list->next++];
        return 0;
    }
    int rc = jinja_items(run, self, &list);
    if (rc == 0 && list->count > 0) *ret = list->items[0];
    return rc;
}

JINJA_FN(filter_last)
{
    struct jinja_list *list = NULL;
    if (self->kind == JINJA_ITERATOR) return jinja_type_error(run, "last needs a sequence", self);
    int rc = jinja_items(run, self, &list);
    if (rc < 0) return rc;
    *ret = list->count > 0 ? list->items[list->count - 1] : jinja_undefined(STR("the last item"));
    return 0;
}

JINJA_FN(filter_list)
{
    struct jinja_list *items = NULL, *list = NULL;
    int rc = jinja_items(run, self, &items);
    if (rc == 0) rc = jinja_list_new(run, items->count, &list);
    for (size_t i = 0; rc == 0 && i < items->count; i++)
        rc = jinja_list_push(run, list, items->items[i]);
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, list);
    return rc;
}

/* Finds the filter or test that args->at[skip] names; *rest are the arguments behind it. */
static int named_row(struct jinja_run *run, const struct jinja_args *args, size_t skip,
                     const struct jinja_row *(*find)(struct str), const struct jinja_row **row,
                     struct jinja_args *rest)
{
    if (args->count <= skip || args->at[skip].kind != JINJA_STRING)
        return jinja_fail(run, -EDOM, "the name of a filter or test is missing");
    struct str name = jinja_bytes(args->at[skip].text);
    *row = find(name);
    if (!*row)
        return jinja_fail(run, -EDOM, "no filter or test is named '%.*s'",
                          (int)min_size(name.len, 64), name.data);
    *rest = *args;
    rest->at += skip + 1;
    rest->count -= skip + 1;
    return 0;
}

/* Returns the items of a value, none if it is false: jinja2 tests the truth first, so that none and 0 have
 * no items, where a loop would fail. */
static int items_if_true(struct jinja_run *run, const struct jinja_value *v,
                         struct jinja_list **ret)
{
    return jinja_truth(v) ? jinja_items(run, v, ret) : jinja_list_new(run, 0, ret);
}

/* Implements map("filter", ...) and map(attribute="a"). */
JINJA_FN(filter_map)
{
    struct jinja_list *items = NULL, *list = NULL;
    const struct jinja_value *attribute = NULL;
    const struct jinja_row *row = NULL;
    struct jinja_args rest;
    int rc = jinja_list_new(run, 0, &list);
    if (rc == 0) rc = items_if_true(run, self, &items);
    for (size_t i = 0; args->count == 0 && i < args->named_count; i++) {
        if (!str_eq(args->named[i].name, STR("attribute")))
            return jinja_fail(run, -EDOM, "map: unexpected argument '%.*s'",
                              STR_ARG(args->named[i].name));
        attribute = &args->named[i].value;
    }
    if (rc == 0 && !attribute) rc = named_row(run, args, 0, jinja_filter_find, &row, &rest);
    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        struct jinja_value made;
        rc = attribute ? follow_path(run, items->items[i], attribute, &made)
                       : jinja_call_row(run, row, &items->items[i], &rest, &made);
        if (rc == 0) rc = jinja_list_push(run, list, made);
    }
    if (rc == 0) *ret = iterator(list);
    return rc;
}

/* Implements select, reject and their attr forms: keeps the items for which the test is true, or with REJECTS false. */
JINJA_FN(filter_select)
{
    struct jinja_list *items = NULL, *list = NULL;
    const struct jinja_row *row = NULL;
    struct jinja_args rest;
    size_t skip = form & BY_ATTRIBUTE;
    if (skip && args->count == 0)
        return jinja_fail(run, -EDOM, "the name of an attribute is missing");
    int rc = jinja_list_new(run, 0, &list);
    if (rc == 0) rc = items_if_true(run, self, &items);
    if (rc == 0 && args->count > skip)
        rc = named_row(run, args, skip, jinja_test_find, &row, &rest);
    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        struct jinja_value item = items->items[i], answer;
        if (skip) rc = follow_path(run, item, &args->at[0], &item);
        answer = item;
        if (rc == 0 && row) rc = jinja_call_row(run, row, &item, &rest, &answer);
        if (rc == 0 && jinja_truth(&answer) == !(form & REJECTS))
            rc = jinja_list_push(run, list, items->items[i]);
    }
    if (rc == 0) *ret = iterator(list);
    return rc;
}

/* ---- order ---- */

struct keyed {
    struct jinja_value key, item;
};

/* Returns the key to sort or compare by: the item or its attribute, strings in lower case unless
 * case_sensitive. */
static int sort_key(struct jinja_run *run, const struct jinja_value *item,
                    const struct jinja_value *attribute, bool case_sensitive,
                    struct jinja_value *ret)
{
    int rc = follow_path(run, *item, attribute, ret);
    if (rc == 0 && ret->kind == JINJA_STRING && !case_sensitive)
        rc = jinja_change_case(run, ret->text, JINJA_LOWER, ret);
    return rc;
}

static int merge(struct jinja_run *run, struct keyed *from, struct keyed *to, size_t start,
                 size_t middle, size_t end, bool reverse)
{
    size_t a = start, b = middle;
    for (size_t i = start; i < end; i++) {
        int order = -1;
        if (a < middle && b < end) {
            int rc = jinja_order(run, &from[a].key, &from[b].key, &order);
            if (rc < 0) return rc;
            if (reverse) order = -order;
        }
        bool take_left = b >= end || (a < middle && order <= 0);
        to[i] = take_left ? from[a++] : from[b++];
    }
    return 0;
}

/* Sorts by a stable merge sort: comparing may fail, which qsort cannot report. */
static int sort_keyed(struct jinja_run *run, struct keyed **items, size_t count, bool reverse)
{
    void *memory;
    int rc = jinja_alloc(run, count, sizeof **items, &memory);
    struct keyed *from = *items, *to = memory;
    for (size_t width = 1; width < count && rc == 0; width *= 2) {
        for (size_t at = 0; at < count && rc == 0; at += 2 * width)
            rc = merge(run, from, to, at, min_size(at + width, count),
                       min_size(at + 2 * width, count), reverse);
        struct keyed *swap = from;
        from = to;
        to = swap;
    }
    *items = from;
    return rc;
}

static int sorted_items(struct jinja_run *run, const struct jinja_list *list,
                        const struct jinja_value *attribute, bool case_sensitive, bool reverse,
                        struct jinja_value *ret)
{
    void *memory;
    struct jinja_list *sorted = NULL;
    int rc = jinja_alloc(run, list->count, sizeof(struct keyed), &memory);
    struct keyed *keyed = memory;
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        keyed[i].item = list->items[i];
        rc = sort_key(run, &list->items[i], attribute, case_sensitive, &keyed[i].key);
    }
    if (rc == 0) rc = sort_keyed(run, &keyed, list->count, reverse);
    if (rc == 0) rc = jinja_list_new(run, list->count, &sorted);
    for (size_t i = 0; rc == 0 && i < list->count; i++)
        rc = jinja_list_push(run, sorted, keyed[i].item);
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, sorted);
    return rc;
}

JINJA_FN(filter_sort)
{
    struct jinja_list *list = NULL;
    const struct jinja_value *by = &args->at[2];
    int rc = jinja_items(run, self, &list);
    if (rc < 0) return rc;
    if (by->kind == JINJA_STRING && str_find(jinja_bytes(by->text), STR(",")) != SIZE_MAX)
        return jinja_fail(run, -EDOM, "sort goes by one attribute here");
    return sorted_items(run, list, by, jinja_arg_true(args, 1), jinja_arg_true(args, 0), ret);
}

JINJA_FN(filter_dictsort)
{
    struct jinja_list *pairs = NULL;
    struct jinja_value by_key = jinja_int(0);
    if (self->kind != JINJA_DICT) return jinja_type_error(run, "dictsort needs a mapping", self);
    int rc = jinja_dict_pairs(run, self->dict, &pairs);
    return rc < 0 ? rc : sorted_items(run, pairs, &by_key, jinja_arg_true(args, 0), false, ret);
}

JINJA_FN(filter_unique)
{
    struct jinja_list *items = NULL, *list = NULL;
    struct jinja_dict *seen = NULL;
    int rc = jinja_items(run, self, &items);
    if (rc == 0) rc = jinja_list_new(run, 0, &list);
    if (rc == 0) rc = jinja_dict_new(run, &seen);
    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        struct jinja_value key;
        const struct jinja_value *found = NULL;
        rc = sort_key(run, &items->items[i], &args->at[1], jinja_arg_true(args, 0), &key);
        if (rc == 0) rc = jinja_dict_get(run, seen, &key, &found);
        if (rc < 0 || found) continue;
        rc = jinja_dict_put(run, seen, key, jinja_none());
        if (rc == 0) rc = jinja_list_push(run, list, items->items[i]);
    }
    if (rc == 0) *ret = iterator(list);
    return rc;
}

/* ---- any value ---- */

JINJA_FN(filter_default)
{
    bool missing = self->kind == JINJA_UNDEFINED || (jinja_arg_true(args, 1) && !jinja_truth(self));
    *ret = *self;
    if (missing)
        *ret = jinja_arg_given(args, 0) ? args->at[0] : jinja_string(jinja_text_of(STR("")));
    return 0;
}

/* Parses as Python's int(text), with blanks around. */
static bool text_to_int(struct jinja_text t, int64_t *ret)
{
    struct str s = jinja_bytes(jinja_strip(t, (struct str){ 0 }, JINJA_LEFT | JINJA_RIGHT));
    char text[32], *end;
    if (s.len == 0 || s.len >= sizeof text) return false;
    memcpy(text, s.data, s.len);
    text[s.len] = '\0';
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return end == text + s.len && errno == 0;
}

JINJA_FN(filter_int)
{
    int64_t value;
    bool is_int = jinja_as_int(self, &value);
    if (self->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, self);
    if (self->kind == JINJA_FLOAT && self->real > -9.2e18 && self->real < 9.2e18)
        is_int = true, value = (int64_t)self->real;
    if (self->kind == JINJA_STRING) is_int = text_to_int(self->text, &value);
    *ret = is_int ? jinja_int(value) : jinja_arg_given(args, 0) ? args->at[0] : jinja_int(0);
    return 0;
}

JINJA_FN(filter_tojson)
{
    struct jinja_json_style style = { .ascii = jinja_arg_true(args, 0), .indent = -1 };
    const struct jinja_value *indent = &args->at[1];
    bool compact = indent->kind == JINJA_ABSENT || indent->kind == JINJA_NONE;
    if (!compact && !jinja_as_int(indent, &style.indent))
        return jinja_type_error(run, "indent must be a number here", indent);
    if (!compact && style.indent < 0) style.indent = 0;
    return jinja_to_json(run, self, &style, ret);
}

/* Parses JSON. jinja2 has no such filter; some templates use it for tool calls with arguments as text. */
JINJA_FN(filter_from_json)
{
    if (self->kind != JINJA_STRING) return jinja_type_error(run, "from_json needs a string", self);
    return jinja_from_json(run, jinja_bytes(self->text), "from_json", jinja_is_marked(self->text),
                           ret);
}

static const struct jinja_row *find_row(const struct jinja_row *row, size_t count, struct str name)
{
    for (size_t i = 0; i < count; i++)
        if (str_eq(name, str_from(row[i].name))) return &row[i];
    return NULL;
}

static const struct jinja_row table[] = {
    { "capitalize", "", 0, filter_case, JINJA_CAPITALIZE },
    { "count", "", 0, filter_length, 0 },
    { "d", "default_value,boolean", 0, filter_default, 0 },
    { "default", "default_value,boolean", 0, filter_default, 0 },
    { "dictsort", "case_sensitive", 0, filter_dictsort, 0 },
    { "first", "", 0, filter_first, 0 },
    { "from_json", "", 0, filter_from_json, 0 },
    { "indent", "width,first,blank", 0, filter_indent, 0 },
    { "int", "default", 0, filter_int, 0 },
    { "items", "", 0, filter_items, 0 },
    { "join", "d", 0, filter_join, 0 },
    { "last", "", 0, filter_last, 0 },
    { "length", "", 0, filter_length, 0 },
    { "list", "", 0, filter_list, 0 },
    { "lower", "", 0, filter_case, JINJA_LOWER },
    { "map", NULL, 0, filter_map, 0 },
    { "reject", NULL, 0, filter_select, REJECTS },
    { "rejectattr", NULL, 0, filter_select, REJECTS | BY_ATTRIBUTE },
    { "replace", "old,new,count", 2, filter_replace, 0 },
    { "safe", "", 0, filter_string, IS_SAFE },
    { "select", NULL, 0, filter_select, 0 },
    { "selectattr", NULL, 0, filter_select, BY_ATTRIBUTE },
    { "sort", "reverse,case_sensitive,attribute", 0, filter_sort, 0 },
    { "string", "", 0, filter_string, 0 },
    { "tojson", "ensure_ascii,indent", 0, filter_tojson, 0 },
    { "trim", "chars", 0, filter_trim, 0 },
    { "unique", "case_sensitive,attribute", 0, filter_unique, 0 },
    { "upper", "", 0, filter_case, JINJA_UPPER },
};

const struct jinja_row *jinja_filter_find(struct str name)
{
    return find_row(table, COUNT_OF(table), name);
}

/* ---- tests, the names behind "is" ---- */

#define KIND(name) (1u << JINJA_##name)

/* jinja2's Undefined has a length and an item function, so it is a sequence. */
#define SEQUENCES (KIND(STRING) | KIND(LIST) | KIND(TUPLE) | KIND(DICT) | KIND(UNDEFINED))
#define ITERABLES (SEQUENCES | KIND(VIEW) | KIND(ITERATOR) | KIND(LOOP))

/* form: the kinds for which it is true. */
JINJA_FN(test_kind)
{
    *ret = jinja_bool(form >> self->kind & 1);
    return 0;
}

/* form: the truth value that it wants of a boolean. */
JINJA_FN(test_boolean)
{
    *ret = jinja_bool(self->kind == JINJA_BOOL && self->boolean == (form == 1));
    return 0;
}

/* form: an enum jinja_op. */
JINJA_FN(test_compare)
{
    bool holds = false;
    int rc = jinja_compare(run, (int)form, self, &args->at[0], &holds);
    if (rc == 0) *ret = jinja_bool(holds);
    return rc;
}

static const struct jinja_row tests[] = {
    { "defined", "", 0, test_kind, ~KIND(UNDEFINED) },
    { "undefined", "", 0, test_kind, KIND(UNDEFINED) },
    { "none", "", 0, test_kind, KIND(NONE) },
    { "boolean", "", 0, test_kind, KIND(BOOL) },
    { "true", "", 0, test_boolean, true },
    { "false", "", 0, test_boolean, false },
    { "integer", "", 0, test_kind, KIND(INT) },
    { "float", "", 0, test_kind, KIND(FLOAT) },
    { "number", "", 0, test_kind, KIND(BOOL) | KIND(INT) | KIND(FLOAT) },
    { "string", "", 0, test_kind, KIND(STRING) },
    { "mapping", "", 0, test_kind, KIND(DICT) },
    { "sequence", "", 0, test_kind, SEQUENCES },
    { "iterable", "", 0, test_kind, ITERABLES },
    { "eq", "b", 1, test_compare, OP_EQ },
    { "==", "b", 1, test_compare, OP_EQ },
    { "equalto", "b", 1, test_compare, OP_EQ },
    { "ne", "b", 1, test_compare, OP_NE },
    { "!=", "b", 1, test_compare, OP_NE },
    { "in", "seq", 1, test_compare, OP_IN },
};

const struct jinja_row *jinja_test_find(struct str name)
{
    return find_row(tests, COUNT_OF(tests), name);
}
