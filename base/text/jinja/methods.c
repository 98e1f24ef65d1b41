/* methods.c - methods of lists, dicts, loops and cyclers, and finding a method.
 *
 * append, extend, insert and pop change a list or dict of this rendering. The sandbox that
 * transformers uses forbids them; templates made for other servers use them, and here they can
 * change nothing that outlives the rendering.
 */
#include "base/text/jinja/text.h"

static int method_append(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    *ret = jinja_none();
    return jinja_list_push(run, self->list, args->at[0]);
}

static int method_extend(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *more = NULL;
    int rc = jinja_items(run, &args->at[0], &more);
    size_t count = rc == 0 ? more->count : 0; /* a list may extend itself */
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = jinja_list_push(run, self->list, more->items[i]);
    *ret = jinja_none();
    return rc;
}

static int method_insert(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *list = self->list;
    int64_t index, count = (int64_t)list->count;
    int rc = jinja_arg_int(run, args, 0, 0, &index);
    if (rc == 0) rc = jinja_list_push(run, list, args->at[1]);
    if (rc < 0) return rc;
    if (index < 0) index += count;
    index = index < 0 ? 0 : index > count ? count : index;
    memmove(&list->items[index + 1], &list->items[index],
            (size_t)(count - index) * sizeof *list->items);
    list->items[index] = args->at[1];
    *ret = jinja_none();
    return jinja_charge(run, (uint64_t)count / JINJA_SCAN_STEP);
}

static int method_list_pop(struct jinja_run *run, struct jinja_value *self,
                           const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *list = self->list;
    int64_t index, count = (int64_t)list->count;
    int rc = jinja_arg_int(run, args, 0, -1, &index);
    if (rc < 0) return rc;
    if (index < 0) index += count;
    if (index < 0 || index >= count) return jinja_fail(run, -EDOM, "pop index out of range");
    *ret = list->items[index];
    memmove(&list->items[index], &list->items[index + 1],
            (size_t)(count - index - 1) * sizeof *list->items);
    list->count--;
    return jinja_charge(run, (uint64_t)count / JINJA_SCAN_STEP);
}

static int find_item(struct jinja_run *run, const struct jinja_list *list,
                     const struct jinja_value *wanted, int64_t *ret_first, int64_t *ret_count)
{
    int rc = jinja_charge(run, list->count / JINJA_SCAN_STEP);
    *ret_first = -1;
    *ret_count = 0;
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        bool equal = false;
        rc = jinja_equal(run, &list->items[i], wanted, &equal);
        if (rc < 0 || !equal) continue;
        if (*ret_first < 0) *ret_first = (int64_t)i;
        ++*ret_count;
    }
    return rc;
}

static int method_list_index(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    int64_t first, count;
    int rc = find_item(run, self->list, &args->at[0], &first, &count);
    if (rc < 0) return rc;
    if (first < 0) return jinja_fail(run, -EDOM, "the value is not in the list");
    *ret = jinja_int(first);
    return 0;
}

static int method_list_count(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    int64_t first, count;
    int rc = find_item(run, self->list, &args->at[0], &first, &count);
    if (rc == 0) *ret = jinja_int(count);
    return rc;
}

static int method_list_copy(struct jinja_run *run, struct jinja_value *self,
                            const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_list *list = NULL;
    int rc = jinja_list_new(run, self->list->count, &list);
    for (size_t i = 0; rc == 0 && i < self->list->count; i++)
        rc = jinja_list_push(run, list, self->list->items[i]);
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, list);
    return rc;
}

/* A view is a snapshot: what no template can tell, as dicts change by these methods only. */
static int view(struct jinja_run *run, const struct jinja_dict *d, const char *name, bool keys,
                bool values, struct jinja_value *ret)
{
    struct jinja_list *list = NULL;
    int rc = jinja_list_new(run, d->count, &list);
    for (size_t i = 0; rc == 0 && i < d->count; i++) {
        const struct jinja_entry *e = &d->entries[i];
        struct jinja_value item = keys ? e->key : e->value;
        if (keys && values) rc = jinja_pair(run, e->key, e->value, &item);
        if (rc == 0) rc = jinja_list_push(run, list, item);
    }
    if (rc < 0) return rc;
    list->view = name;
    *ret = jinja_list_value(JINJA_VIEW, list);
    return 0;
}

static int method_items(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    return view(run, self->dict, "dict_items", true, true, ret);
}

static int method_keys(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    return view(run, self->dict, "dict_keys", true, false, ret);
}

static int method_values(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    return view(run, self->dict, "dict_values", false, true, ret);
}

static int method_get(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    const struct jinja_value *found = NULL;
    int rc = jinja_dict_get(run, self->dict, &args->at[0], &found);
    if (rc < 0) return rc;
    *ret = found ? *found : jinja_arg_given(args, 1) ? args->at[1] : jinja_none();
    return 0;
}

static int method_dict_copy(struct jinja_run *run, struct jinja_value *self,
                            const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_dict *dict = NULL;
    int rc = jinja_dict_new(run, &dict);
    for (size_t i = 0; rc == 0 && i < self->dict->count; i++)
        rc = jinja_dict_put(run, dict, self->dict->entries[i].key, self->dict->entries[i].value);
    if (rc == 0) *ret = (struct jinja_value){ .kind = JINJA_DICT, .dict = dict };
    return rc;
}

static int method_update(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    int rc = 0;
    *ret = jinja_none();
    if (args->count > 1 || (args->count == 1 && args->at[0].kind != JINJA_DICT))
        return jinja_fail(run, -EDOM, "update takes a mapping");
    const struct jinja_dict *more = args->count == 1 ? args->at[0].dict : NULL;
    for (size_t i = 0; rc == 0 && more && i < more->count; i++)
        rc = jinja_dict_put(run, self->dict, more->entries[i].key, more->entries[i].value);
    for (size_t i = 0; rc == 0 && i < args->named_count; i++)
        rc = jinja_dict_set(run, self->dict, args->named[i].name, args->named[i].value);
    return rc;
}

static int method_setdefault(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    const struct jinja_value *found = NULL;
    int rc = jinja_dict_get(run, self->dict, &args->at[0], &found);
    if (rc < 0) return rc;
    *ret = found ? *found : jinja_arg_given(args, 1) ? args->at[1] : jinja_none();
    return found ? 0 : jinja_dict_put(run, self->dict, args->at[0], *ret);
}

static int method_dict_pop(struct jinja_run *run, struct jinja_value *self,
                           const struct jinja_args *args, struct jinja_value *ret)
{
    const struct jinja_value *found = NULL;
    struct jinja_dict *d = self->dict;
    int rc = jinja_dict_get(run, d, &args->at[0], &found);
    if (rc < 0) return rc;
    if (!found && !jinja_arg_given(args, 1)) return jinja_fail(run, -EDOM, "pop of a missing key");
    *ret = found ? *found : args->at[1];
    if (!found) return 0;
    size_t offset = (size_t)((const char *)found - (const char *)&d->entries[0].value);
    rc = jinja_dict_remove(run, d, offset / sizeof d->entries[0]);
    return jinja_charge(run, d->count / JINJA_SCAN_STEP);
}

static int method_cycle(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    if (args->count == 0) return jinja_fail(run, -EDOM, "no items for cycling given");
    *ret = args->at[self->loop->index0 % args->count];
    return 0;
}

static int method_changed(struct jinja_run *run, struct jinja_value *self,
                          const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *now = NULL;
    struct jinja_loop *loop = self->loop;
    bool same = false;
    int rc = jinja_list_new(run, args->count, &now);
    for (size_t i = 0; i < args->count && rc == 0; i++)
        rc = jinja_list_push(run, now, args->at[i]);
    if (rc < 0) return rc;
    struct jinja_value value = jinja_list_value(JINJA_TUPLE, now);
    if (loop->last_changed.kind != JINJA_ABSENT)
        rc = jinja_equal(run, &loop->last_changed, &value, &same);
    if (!same) loop->last_changed = value;
    *ret = jinja_bool(!same);
    return rc;
}

static int method_next(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    (void)run, (void)args;
    struct jinja_cycler *c = self->cycler;
    *ret = c->items->items[c->pos];
    c->pos = (c->pos + 1) % c->items->count;
    return 0;
}

static int method_reset(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    (void)run, (void)args;
    self->cycler->pos = 0;
    *ret = jinja_none();
    return 0;
}

const struct jinja_row jinja_methods_list[] = {
    { "append", "object", 1, method_append },   { "copy", "", 0, method_list_copy },
    { "count", "value", 1, method_list_count }, { "extend", "iterable", 1, method_extend },
    { "index", "value", 1, method_list_index }, { "insert", "index,object", 2, method_insert },
    { "pop", "index", 0, method_list_pop },     { 0 },
};

static const struct jinja_row methods_tuple[] = {
    { "count", "value", 1, method_list_count },
    { "index", "value", 1, method_list_index },
    { 0 },
};

const struct jinja_row jinja_methods_dict[] = {
    { "copy", "", 0, method_dict_copy },
    { "get", "key,default", 1, method_get },
    { "items", "", 0, method_items },
    { "keys", "", 0, method_keys },
    { "pop", "key,default", 1, method_dict_pop },
    { "setdefault", "key,default", 1, method_setdefault },
    { "update", NULL, 0, method_update },
    { "values", "", 0, method_values },
    { 0 },
};

static const struct jinja_row methods_loop[] = {
    { "changed", NULL, 0, method_changed },
    { "cycle", NULL, 0, method_cycle },
    { 0 },
};

static const struct jinja_row methods_cycler[] = {
    { "next", "", 0, method_next },
    { "reset", "", 0, method_reset },
    { 0 },
};

const struct jinja_row *jinja_method_find(enum jinja_kind kind, struct str name)
{
    static const struct jinja_row *const tables[JINJA_KIND_COUNT] = {
        [JINJA_STRING] = jinja_methods_text, [JINJA_LIST] = jinja_methods_list,
        [JINJA_TUPLE] = methods_tuple,       [JINJA_DICT] = jinja_methods_dict,
        [JINJA_LOOP] = methods_loop,         [JINJA_CYCLER] = methods_cycler,
    };
    for (const struct jinja_row *row = tables[kind]; row && row->name; row++)
        if (str_eq(name, str_from(row->name))) return row;
    return NULL;
}
