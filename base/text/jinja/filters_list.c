/* filters_list.c - filters whose subject is a sequence or a mapping, item by item.
 *
 * What jinja2 makes lazily (map, select, unique, batch, items ...) is made at once here and
 * handed on as an iterator, which behaves the same: true even when empty, no length, runs once.
 */
#include "base/core/bits.h"
#include "base/text/jinja/ast.h"
#include "base/text/jinja/text.h"

#define PATH_PARTS_MAX 32

static struct jinja_value iterator(struct jinja_list *list)
{
    return jinja_list_value(JINJA_ITERATOR, list);
}

int jinja_follow_path(struct jinja_run *run, struct jinja_value item,
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

static int filter_items(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_list *pairs = NULL;
    int rc = self->kind == JINJA_DICT        ? jinja_dict_pairs(run, self->dict, &pairs)
             : self->kind == JINJA_UNDEFINED ? jinja_list_new(run, 0, &pairs)
                                             : jinja_type_error(run, "items needs a mapping", self);
    if (rc == 0) *ret = iterator(pairs);
    return rc;
}

static int filter_join(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *list = NULL, *parts = NULL;
    struct jinja_text between = { 0 };
    int rc = jinja_items(run, self, &list);
    if (rc == 0 && jinja_arg_given(args, 0)) rc = jinja_to_text(run, &args->at[0], &between);
    if (rc < 0) return rc;
    if (!jinja_arg_given(args, 1)) return jinja_join(run, between, list, true, ret);
    rc = jinja_list_new(run, list->count, &parts);
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        struct jinja_value part;
        rc = jinja_follow_path(run, list->items[i], &args->at[1], &part);
        if (rc == 0) rc = jinja_list_push(run, parts, part);
    }
    return rc < 0 ? rc : jinja_join(run, between, parts, true, ret);
}

static int filter_length(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    int64_t len;
    int rc = jinja_length(run, self, &len);
    if (rc == 0) *ret = jinja_int(len);
    return rc;
}

static int filter_first(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_list *list = NULL;
    *ret = jinja_undefined(STR("the first item"));
    if (self->kind == JINJA_ITERATOR) {
        if (self->list->next < self->list->count) *ret = self->list->items[self->list->next++];
        return 0;
    }
    if (self->kind == JINJA_STRING) {
        if (self->text.len > 0) *ret = jinja_string(jinja_head(self->text, 1));
        return 0;
    }
    int rc = jinja_items(run, self, &list);
    if (rc == 0 && list->count > 0) *ret = list->items[0];
    return rc;
}

static int filter_last(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_list *list = NULL;
    if (self->kind == JINJA_ITERATOR) return jinja_type_error(run, "last needs a sequence", self);
    int rc = jinja_items(run, self, &list);
    if (rc < 0) return rc;
    *ret = list->count > 0 ? list->items[list->count - 1] : jinja_undefined(STR("the last item"));
    return 0;
}

static int copy_list(struct jinja_run *run, const struct jinja_list *from, bool reverse,
                     struct jinja_list **ret)
{
    struct jinja_list *list = NULL;
    int rc = jinja_list_new(run, from->count, &list);
    for (size_t i = 0; i < from->count && rc == 0; i++)
        rc = jinja_list_push(run, list, from->items[reverse ? from->count - 1 - i : i]);
    if (rc == 0) *ret = list;
    return rc;
}

static int filter_list(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_list *items = NULL, *list = NULL;
    int rc = jinja_items(run, self, &items);
    if (rc == 0) rc = copy_list(run, items, false, &list);
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, list);
    return rc;
}

static int filter_reverse(struct jinja_run *run, struct jinja_value *self,
                          const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_list *items = NULL, *list = NULL;
    int rc = jinja_items(run, self, &items);
    if (rc == 0) rc = copy_list(run, items, true, &list);
    if (rc < 0) return rc;
    if (self->kind == JINJA_STRING)
        return jinja_join(run, (struct jinja_text){ 0 }, list, true, ret);
    *ret = self->kind == JINJA_ITERATOR ? jinja_list_value(JINJA_LIST, list) : iterator(list);
    return 0;
}

static int filter_sum(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *items = NULL;
    struct jinja_value sum = jinja_arg_given(args, 1) ? args->at[1] : jinja_int(0);
    int rc = jinja_items(run, self, &items);
    if (rc == 0 && sum.kind == JINJA_STRING)
        return jinja_fail(run, -EDOM, "sum cannot start with a string: join joins strings");
    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        struct jinja_value item = items->items[i];
        rc = jinja_follow_path(run, item, &args->at[0], &item);
        if (rc == 0) rc = jinja_arithmetic(run, OP_ADD, &sum, &item, &sum);
    }
    if (rc == 0) *ret = sum;
    return rc;
}

/* map(attribute="a", default=d) */
static int map_attribute(struct jinja_run *run, const struct jinja_args *args,
                         const struct jinja_value *attribute, struct jinja_value *item)
{
    int rc = jinja_follow_path(run, *item, attribute, item);
    for (size_t i = 0; rc == 0 && i < args->named_count; i++)
        if (str_eq(args->named[i].name, STR("default")) && item->kind == JINJA_UNDEFINED)
            *item = args->named[i].value;
    return rc;
}

/* The filter or test that args->at[skip] names, and the arguments behind it. */
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

/* jinja2 looks at the truth first: none and 0 have no items, where a loop would fail. */
static int items_if_true(struct jinja_run *run, const struct jinja_value *v,
                         struct jinja_list **ret)
{
    return jinja_truth(v) ? jinja_items(run, v, ret) : jinja_list_new(run, 0, ret);
}

static int filter_map(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *items = NULL, *list = NULL;
    const struct jinja_value *attribute = NULL;
    const struct jinja_row *row = NULL;
    struct jinja_args rest;
    int rc = jinja_list_new(run, 0, &list);
    if (rc == 0) rc = items_if_true(run, self, &items);
    for (size_t i = 0; args->count == 0 && i < args->named_count; i++)
        if (str_eq(args->named[i].name, STR("attribute"))) attribute = &args->named[i].value;
    if (rc == 0 && !attribute) rc = named_row(run, args, 0, jinja_filter_find, &row, &rest);
    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        struct jinja_value item = items->items[i], made;
        if (attribute) {
            rc = map_attribute(run, args, attribute, &item);
            made = item;
        } else {
            rc = jinja_call_row(run, row, &item, &rest, &made);
        }
        if (rc == 0) rc = jinja_list_push(run, list, made);
    }
    if (rc == 0) *ret = iterator(list);
    return rc;
}

/* select, reject and their attr forms in one: `wanted` is the test's answer that keeps. */
static int choose(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                  bool by_attribute, bool wanted, struct jinja_value *ret)
{
    struct jinja_list *items = NULL, *list = NULL;
    const struct jinja_row *row = NULL;
    struct jinja_args rest;
    size_t skip = by_attribute;
    if (by_attribute && args->count == 0)
        return jinja_fail(run, -EDOM, "the name of an attribute is missing");
    int rc = jinja_list_new(run, 0, &list);
    if (rc == 0) rc = items_if_true(run, self, &items);
    if (rc == 0 && args->count > skip)
        rc = named_row(run, args, skip, jinja_test_find, &row, &rest);
    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        struct jinja_value item = items->items[i], answer;
        if (by_attribute) rc = jinja_follow_path(run, item, &args->at[0], &item);
        answer = item;
        if (rc == 0 && row) rc = jinja_call_row(run, row, &item, &rest, &answer);
        if (rc == 0 && jinja_truth(&answer) == wanted)
            rc = jinja_list_push(run, list, items->items[i]);
    }
    if (rc == 0) *ret = iterator(list);
    return rc;
}

static int filter_select(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    return choose(run, self, args, false, true, ret);
}

static int filter_reject(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    return choose(run, self, args, false, false, ret);
}

static int filter_selectattr(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    return choose(run, self, args, true, true, ret);
}

static int filter_rejectattr(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    return choose(run, self, args, true, false, ret);
}

static int push_part(struct jinja_run *run, struct jinja_list *into, const struct jinja_list *items,
                     size_t start, size_t count, struct jinja_list **ret)
{
    struct jinja_list *part = NULL;
    int rc = jinja_list_new(run, count, &part);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = jinja_list_push(run, part, items->items[start + i]);
    if (rc == 0) rc = jinja_list_push(run, into, jinja_list_value(JINJA_LIST, part));
    if (rc == 0) *ret = part;
    return rc;
}

static bool given(const struct jinja_value *v)
{
    return v->kind != JINJA_ABSENT && v->kind != JINJA_NONE;
}

static int filter_batch(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *items = NULL, *list = NULL, *part = NULL;
    int64_t width;
    int rc = jinja_items(run, self, &items);
    if (rc == 0) rc = jinja_arg_int(run, args, 0, 1, &width);
    if (rc == 0) rc = jinja_list_new(run, 0, &list);
    if (rc < 0) return rc;
    if (width < 1) return jinja_fail(run, -EDOM, "batch needs a positive size");
    size_t size = (size_t)width;
    for (size_t at = 0; at < items->count && rc == 0; at += min_size(size, items->count - at))
        rc = push_part(run, list, items, at, min_size(size, items->count - at), &part);
    bool fill = part && given(&args->at[1]);
    while (rc == 0 && fill && part->count < size)
        rc = jinja_list_push(run, part, args->at[1]);
    if (rc == 0) *ret = iterator(list);
    return rc;
}

static int filter_slice(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *items = NULL, *list = NULL, *part = NULL;
    int64_t slices;
    int rc = jinja_items(run, self, &items);
    if (rc == 0) rc = jinja_arg_int(run, args, 0, 1, &slices);
    if (rc == 0) rc = jinja_list_new(run, 0, &list);
    if (rc < 0) return rc;
    if (slices < 1) return jinja_fail(run, -EDOM, "slice needs a positive number");
    size_t each = items->count / (size_t)slices, longer = items->count % (size_t)slices, at = 0;
    for (size_t i = 0; i < (size_t)slices && rc == 0; i++) {
        size_t count = each + (i < longer);
        rc = push_part(run, list, items, at, count, &part);
        if (rc == 0 && i >= longer && given(&args->at[1]))
            rc = jinja_list_push(run, part, args->at[1]);
        at += count;
    }
    if (rc == 0) *ret = iterator(list);
    return rc;
}

const struct jinja_row jinja_filters_list[] = {
    { "batch", "linecount,fill_with", 1, filter_batch },
    { "count", "", 0, filter_length },
    { "first", "", 0, filter_first },
    { "items", "", 0, filter_items },
    { "join", "d,attribute", 0, filter_join },
    { "last", "", 0, filter_last },
    { "length", "", 0, filter_length },
    { "list", "", 0, filter_list },
    { "map", NULL, 0, filter_map },
    { "reject", NULL, 0, filter_reject },
    { "rejectattr", NULL, 0, filter_rejectattr },
    { "reverse", "", 0, filter_reverse },
    { "select", NULL, 0, filter_select },
    { "selectattr", NULL, 0, filter_selectattr },
    { "slice", "slices,fill_with", 1, filter_slice },
    { "sum", "attribute,start", 0, filter_sum },
    { 0 },
};
