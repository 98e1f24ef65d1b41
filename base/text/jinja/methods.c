/* methods.c - implements the methods of strings, lists and dicts.
 *
 * append and pop change a list of this rendering. The sandbox that transformers uses forbids them;
 * templates made for other servers use them, and here no list outlives the rendering.
 */
#include "base/core/bits.h"
#include "base/text/jinja/text.h"

/* ---- strings ---- */

/* form: JINJA_LEFT, JINJA_RIGHT or both. */
JINJA_FN(method_strip)
{
    struct jinja_text chars = { 0 };
    bool named = jinja_arg_given(args, 0) && args->at[0].kind != JINJA_NONE;
    int rc = named ? jinja_arg_text(run, args, 0, &chars) : 0;
    if (rc < 0) return rc;
    if (named && !chars.data) chars.data = "";
    *ret = jinja_string(jinja_strip(self->text, jinja_bytes(chars), (int)form));
    return 0;
}

/* form: an enum jinja_case. */
JINJA_FN(method_case)
{
    return jinja_change_case(run, self->text, form, ret);
}

/* Tests for a prefix (form: JINJA_LEFT) or suffix, or for any of a tuple of them. */
JINJA_FN(method_has_end)
{
    const struct jinja_value *end = &args->at[0], *ends = end;
    size_t count = 1;
    if (end->kind == JINJA_TUPLE) ends = end->list->items, count = end->list->count;
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        if (ends[i].kind != JINJA_STRING)
            return jinja_type_error(run, "a string or a tuple of strings is needed", &ends[i]);
        struct str s = jinja_bytes(self->text), part = jinja_bytes(ends[i].text);
        found = found || (form == JINJA_LEFT ? str_starts(s, part) : str_ends(s, part));
    }
    *ret = jinja_bool(found);
    return 0;
}

JINJA_FN(method_replace)
{
    struct jinja_text from, to;
    int64_t count;
    int rc = jinja_arg_text(run, args, 0, &from);
    if (rc == 0) rc = jinja_arg_text(run, args, 1, &to);
    if (rc == 0) rc = jinja_arg_int(run, args, 2, -1, &count);
    return rc < 0 ? rc : jinja_replace(run, self->text, from, to, count, ret);
}

JINJA_FN(method_split)
{
    struct jinja_text t = self->text, separator = { 0 };
    struct jinja_list *list = NULL;
    int64_t max;
    t.safe = false;
    int rc = jinja_arg_text(run, args, 0, &separator);
    if (rc == 0) rc = jinja_arg_int(run, args, 1, -1, &max);
    if (rc == 0) rc = jinja_list_new(run, 0, &list);
    if (rc == 0) rc = jinja_charge(run, t.len / JINJA_STEP_BYTES);
    if (rc == 0 && separator.len == 0) rc = jinja_fail(run, -EDOM, "empty separator");
    for (bool more = true; rc == 0 && more;) {
        size_t at = max-- == 0 ? SIZE_MAX : str_find(jinja_bytes(t), jinja_bytes(separator));
        more = at != SIZE_MAX;
        rc = jinja_list_push(run, list, jinja_string(more ? jinja_slice(t, 0, at) : t));
        if (more) t = jinja_slice(t, at + separator.len, t.len - at - separator.len);
    }
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, list);
    return rc;
}

/* ---- lists ---- */

JINJA_FN(method_append)
{
    *ret = jinja_none();
    return jinja_list_push(run, self->list, args->at[0]);
}

JINJA_FN(method_pop)
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

/* ---- dicts ---- */

enum { KEYS = 1, VALUES = 2 };

/* Makes a view of a dict: of its KEYS, its VALUES or both. It is a snapshot, which no template can notice: no method
 * changes a dict. */
JINJA_FN(method_view)
{
    static const char *const names[] = {
        [KEYS] = "dict_keys", [VALUES] = "dict_values", [KEYS | VALUES] = "dict_items"
    };
    const struct jinja_dict *d = self->dict;
    struct jinja_list *list = NULL;
    int rc = jinja_list_new(run, d->count, &list);
    for (size_t i = 0; rc == 0 && i < d->count; i++) {
        const struct jinja_entry *e = &d->entries[i];
        struct jinja_value item = form & KEYS ? e->key : e->value;
        if (form == (KEYS | VALUES)) rc = jinja_pair(run, e->key, e->value, &item);
        if (rc == 0) rc = jinja_list_push(run, list, item);
    }
    if (rc < 0) return rc;
    list->view = names[form];
    *ret = jinja_list_value(JINJA_VIEW, list);
    return 0;
}

JINJA_FN(method_get)
{
    const struct jinja_value *found = NULL;
    int rc = jinja_dict_get(run, self->dict, &args->at[0], &found);
    if (rc < 0) return rc;
    *ret = found ? *found : jinja_arg_given(args, 1) ? args->at[1] : jinja_none();
    return 0;
}

static const struct {
    enum jinja_kind kind;
    struct jinja_row row;
} table[] = {
    { JINJA_STRING, { "capitalize", "", 0, method_case, JINJA_CAPITALIZE } },
    { JINJA_STRING, { "endswith", "suffix", 1, method_has_end, JINJA_RIGHT } },
    { JINJA_STRING, { "lower", "", 0, method_case, JINJA_LOWER } },
    { JINJA_STRING, { "lstrip", "chars", 0, method_strip, JINJA_LEFT } },
    { JINJA_STRING, { "replace", "old,new,count", 2, method_replace, 0 } },
    { JINJA_STRING, { "rstrip", "chars", 0, method_strip, JINJA_RIGHT } },
    { JINJA_STRING, { "split", "sep,maxsplit", 1, method_split, 0 } },
    { JINJA_STRING, { "startswith", "prefix", 1, method_has_end, JINJA_LEFT } },
    { JINJA_STRING, { "strip", "chars", 0, method_strip, JINJA_LEFT | JINJA_RIGHT } },
    { JINJA_STRING, { "upper", "", 0, method_case, JINJA_UPPER } },
    { JINJA_LIST, { "append", "object", 1, method_append, 0 } },
    { JINJA_LIST, { "pop", "index", 0, method_pop, 0 } },
    { JINJA_DICT, { "get", "key,default", 1, method_get, 0 } },
    { JINJA_DICT, { "items", "", 0, method_view, KEYS | VALUES } },
    { JINJA_DICT, { "keys", "", 0, method_view, KEYS } },
    { JINJA_DICT, { "values", "", 0, method_view, VALUES } },
};

const struct jinja_row *jinja_method_find(enum jinja_kind kind, struct str name)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (table[i].kind == kind && str_eq(name, str_from(table[i].row.name)))
            return &table[i].row;
    return NULL;
}
