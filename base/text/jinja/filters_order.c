/* filters_order.c - filters that compare the items of a sequence or mapping with each other.
 *
 * All of them compare by a key: the item or its attribute, strings in lower case unless asked.
 */
#include "base/core/bits.h"
#include "base/text/jinja/text.h"

/* What to sort or compare by: the item or its attribute, strings in lower case unless asked. */
static int sort_key(struct jinja_run *run, const struct jinja_value *item,
                    const struct jinja_value *attribute, bool case_sensitive,
                    struct jinja_value *ret)
{
    int rc = jinja_follow_path(run, *item, attribute, ret);
    if (rc == 0 && ret->kind == JINJA_STRING && !case_sensitive)
        rc = jinja_change_case(run, ret->text, JINJA_LOWER, ret);
    return rc;
}

/* "a,b": several keys. Always a list, as jinja2's sort has it: lists look for equality before
 * order, so that items without the attribute can be sorted. */
static int sort_keys(struct jinja_run *run, const struct jinja_value *item,
                     const struct jinja_value *attribute, bool case_sensitive,
                     struct jinja_value *ret)
{
    struct jinja_list *keys = NULL;
    struct jinja_value key;
    int rc = jinja_list_new(run, 1, &keys);
    bool text = attribute->kind == JINJA_STRING;
    struct str rest = text ? jinja_bytes(attribute->text) : STR("");
    while (rest.data && rc == 0) {
        struct jinja_value part = jinja_string(jinja_text_of(str_cut(&rest, ',')));
        rc = sort_key(run, item, text ? &part : attribute, case_sensitive, &key);
        if (rc == 0) rc = jinja_list_push(run, keys, key);
    }
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, keys);
    return rc;
}

struct keyed {
    struct jinja_value key, item;
};

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

/* Stable merge sort: comparing may fail, which qsort cannot say. */
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

typedef int (*key_fn)(struct jinja_run *run, const struct jinja_value *item,
                      const struct jinja_value *attribute, bool case_sensitive,
                      struct jinja_value *ret);

static int keyed_items(struct jinja_run *run, const struct jinja_list *list, key_fn key_of,
                       const struct jinja_value *attribute, bool case_sensitive, bool reverse,
                       struct keyed **ret)
{
    void *memory;
    int rc = jinja_alloc(run, list->count, sizeof **ret, &memory);
    struct keyed *keyed = memory;
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        keyed[i].item = list->items[i];
        rc = key_of(run, &list->items[i], attribute, case_sensitive, &keyed[i].key);
    }
    if (rc == 0) rc = sort_keyed(run, &keyed, list->count, reverse);
    if (rc == 0) *ret = keyed;
    return rc;
}

static int filter_sort(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *list = NULL, *sorted = NULL;
    struct keyed *keyed = NULL;
    int rc = jinja_items(run, self, &list);
    if (rc == 0)
        rc = keyed_items(run, list, sort_keys, &args->at[2], jinja_arg_true(args, 1),
                         jinja_arg_true(args, 0), &keyed);
    if (rc == 0) rc = jinja_list_new(run, list->count, &sorted);
    for (size_t i = 0; rc == 0 && i < list->count; i++)
        rc = jinja_list_push(run, sorted, keyed[i].item);
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, sorted);
    return rc;
}

static int filter_dictsort(struct jinja_run *run, struct jinja_value *self,
                           const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *pairs = NULL, *sorted = NULL;
    struct keyed *keyed = NULL;
    struct jinja_text by = jinja_text_of(STR("key"));
    if (self->kind != JINJA_DICT) return jinja_type_error(run, "dictsort needs a mapping", self);
    int rc = jinja_arg_given(args, 1) ? jinja_arg_text(run, args, 1, &by) : 0;
    if (rc < 0) return rc;
    bool by_value = str_eq(jinja_bytes(by), STR("value"));
    if (!by_value && !str_eq(jinja_bytes(by), STR("key")))
        return jinja_fail(run, -EDOM, "dictsort goes by \"key\" or \"value\"");
    struct jinja_value position = jinja_int(by_value);
    rc = jinja_dict_pairs(run, self->dict, &pairs);
    if (rc == 0)
        rc = keyed_items(run, pairs, sort_key, &position, jinja_arg_true(args, 0),
                         jinja_arg_true(args, 2), &keyed);
    if (rc == 0) rc = jinja_list_new(run, pairs->count, &sorted);
    for (size_t i = 0; rc == 0 && i < pairs->count; i++)
        rc = jinja_list_push(run, sorted, keyed[i].item);
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, sorted);
    return rc;
}

static int filter_unique(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
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
    if (rc == 0) *ret = jinja_list_value(JINJA_ITERATOR, list);
    return rc;
}

/* The first of the smallest (sign 1) or largest (sign -1). */
static int extreme(struct jinja_run *run, const struct jinja_value *self,
                   const struct jinja_args *args, int sign, struct jinja_value *ret)
{
    struct jinja_list *items = NULL;
    struct jinja_value best, key;
    int rc = jinja_items(run, self, &items);
    if (rc < 0) return rc;
    *ret = jinja_undefined(STR("the extreme of nothing"));
    for (size_t i = 0; i < items->count; i++) {
        int order = -1;
        rc = sort_key(run, &items->items[i], &args->at[1], jinja_arg_true(args, 0), &key);
        if (rc == 0 && i > 0) rc = jinja_order(run, &key, &best, &order);
        if (rc < 0) return rc;
        if (i > 0 && order * sign >= 0) continue;
        best = key;
        *ret = items->items[i];
    }
    return 0;
}

static int filter_min(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    return extreme(run, self, args, 1, ret);
}

static int filter_max(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    return extreme(run, self, args, -1, ret);
}

static int filter_groupby(struct jinja_run *run, struct jinja_value *self,
                          const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *items = NULL, *groups = NULL, *group = NULL;
    struct keyed *keyed = NULL;
    int rc = jinja_items(run, self, &items);
    if (rc == 0)
        rc =
            keyed_items(run, items, sort_key, &args->at[0], jinja_arg_true(args, 2), false, &keyed);
    if (rc == 0) rc = jinja_list_new(run, 0, &groups);
    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        bool same = false;
        if (i > 0) rc = jinja_equal(run, &keyed[i - 1].key, &keyed[i].key, &same);
        if (rc == 0 && !same) {
            struct jinja_value name, pair;
            rc = jinja_follow_path(run, keyed[i].item, &args->at[0], &name);
            if (rc == 0) rc = jinja_list_new(run, 0, &group);
            if (rc == 0) rc = jinja_pair(run, name, jinja_list_value(JINJA_LIST, group), &pair);
            if (rc == 0) rc = jinja_list_push(run, groups, pair);
        }
        if (rc == 0) rc = jinja_list_push(run, group, keyed[i].item);
    }
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, groups);
    return rc;
}

const struct jinja_row jinja_filters_order[] = {
    { "dictsort", "case_sensitive,by,reverse", 0, filter_dictsort },
    { "groupby", "attribute,default,case_sensitive", 1, filter_groupby },
    { "max", "case_sensitive,attribute", 0, filter_max },
    { "min", "case_sensitive,attribute", 0, filter_min },
    { "sort", "reverse,case_sensitive,attribute", 0, filter_sort },
    { "unique", "case_sensitive,attribute", 0, filter_unique },
    { 0 },
};
