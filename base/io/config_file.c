/* config_file.c - what a file says: a YAML tree into the roles' structs, row by row.
 *
 * A record, an item of a list of records and the whole file are one thing to it: a mapping over a
 * record. Every sentence names the line and the path of the value it is about.
 */
#include "base/core/own.h"
#include "base/io/config_load.h"
#include "base/io/config_value.h"
#include "base/io/file.h"

#include <stdarg.h>
#include <stdio.h>

static void problem_at(struct config_loader *l, uint32_t line, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/* "muster.yaml:14: services[0].name: sentence" */
static void problem_at(struct config_loader *l, uint32_t line, const char *what, ...)
{
    char where[2 * CONFIG_PATH_MAX];
    snprintf(where, sizeof where, "%s:%u: %.*s%s", l->c->path, line, CONFIG_PATH_MAX,
             l->path.len ? l->path.data : "", l->path.len ? ": " : "");
    va_list ap;
    va_start(ap, what);
    config_problem_add(l, where, what, ap);
    va_end(ap);
}

static size_t path_push(struct config_loader *l, struct str name)
{
    size_t before = l->path.len;
    if (before > 0) buf_byte(&l->path, '.');
    buf_str(&l->path, name);
    return before;
}

static size_t path_push_index(struct config_loader *l, size_t index)
{
    size_t before = l->path.len;
    buf_printf(&l->path, "[%zu]", index);
    return before;
}

static void path_pop(struct config_loader *l, size_t before)
{
    l->path.len = before;
    if (l->path.data) l->path.data[before] = 0;
}

static void say_unknown(struct config_loader *l, const struct config_record *record,
                        const struct config_node *n)
{
    const char *near = config_field_nearest(record, n->key);
    int len = (int)min_size(n->key.len, 80);
    for (const struct config_absent *a = record->absent; a && a->name; a++) {
        if (!str_eq(n->key, str_from(a->name))) continue;
        problem_at(l, n->key_line, "there is no key '%.*s': %s", len, n->key.data, a->why);
        return;
    }
    problem_at(l, n->key_line, "unknown key '%.*s'%s%s%s", len, n->key.data,
               near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static void apply_map(struct config_loader *l, const struct config_record *record,
                      const struct config_node *node, char *base, struct config_slot *slots);

static bool is_empty_scalar(const struct config_node *n)
{
    return n->kind == CONFIG_NODE_SCALAR && n->plain &&
           (n->text.len == 0 || str_eq(n->text, STR("~")) || str_eq(n->text, STR("null")));
}

static const char *node_text(const struct config_node *n)
{
    if (n->kind == CONFIG_NODE_MAP) return "a mapping";
    if (n->kind == CONFIG_NODE_LIST) return "a list";
    return n->plain ? "a plain value" : "quoted text";
}

static void keep_error(struct config_loader *l, const struct config_node *n, int rc,
                       const struct err *err)
{
    if (rc == -ENOMEM)
        l->rc = rc;
    else
        problem_at(l, n->line, "%s", err->text);
}

static void apply_scalar(struct config_loader *l, const struct config_field *f,
                         const struct config_node *n, void *into)
{
    struct err err = { 0 };
    bool number = f->type == CONFIG_BOOL || f->type == CONFIG_INT || f->type == CONFIG_FLOAT;
    if (n->kind != CONFIG_NODE_SCALAR || (number && !n->plain)) {
        problem_at(l, n->line, "is %s where %s is wanted", node_text(n), config_type_text(f->type));
        return;
    }
    int rc = config_value_parse(f, n->text, &l->c->arena, into, &err);
    if (rc < 0) keep_error(l, n, rc, &err);
}

static void apply_texts(struct config_loader *l, const struct config_field *f,
                        const struct config_node *n, struct config_texts *into)
{
    struct err err = { 0 };
    if (n->kind != CONFIG_NODE_LIST) {
        problem_at(l, n->line, "is %s where a list of text is wanted, such as [a, b]",
                   node_text(n));
        return;
    }
    int rc = config_count_check(f, n->count, &err);
    struct str *items = rc < 0 ? NULL : arena_array(&l->c->arena, n->count, sizeof *items);
    if (rc == 0 && !items) rc = -ENOMEM;
    if (rc < 0) {
        keep_error(l, n, rc, &err);
        return;
    }
    struct config_field item = { .name = f->name, .type = CONFIG_TEXT };
    size_t at = 0;
    for (const struct config_node *c = n->first; c; c = c->next, at++) {
        size_t before = path_push_index(l, at);
        apply_scalar(l, &item, c, &items[at]);
        path_pop(l, before);
    }
    *into = (struct config_texts){ items, n->count };
}

/* Required values of a record and of the records in it that no source gave. */
static void check_required(struct config_loader *l, const struct config_record *record,
                           const struct config_slot *slots, uint32_t line)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        if (f->required && slots[i].from == CONFIG_FROM_DEFAULT)
            problem_at(l, line, "'%s' is missing: %s", f->name, f->about);
        if (f->type != CONFIG_RECORD) continue;
        size_t before = path_push(l, str_from(f->name));
        check_required(l, f->record, slots[i].slots, line);
        path_pop(l, before);
    }
}

static void check_key(struct config_loader *l, const struct config_record *record,
                      const char *items, size_t count, const struct config_node *node)
{
    if (!record->key) return;
    const struct config_field *f = config_field_find(record, str_from(record->key), NULL);
    const struct config_node *n = node->first;
    for (size_t i = 0; i < count; i++, n = n->next) {
        const struct str *mine = (const void *)(items + i * record->size + f->offset);
        for (size_t j = 0; j < i; j++) {
            const struct str *other = (const void *)(items + j * record->size + f->offset);
            if (!mine->data || !other->data || !str_eq(*mine, *other)) continue;
            problem_at(l, n->line, "item %zu has the same %s '" STR_FMT "' as item %zu", i, f->name,
                       STR_ARG(*mine), j);
            break;
        }
    }
}

static void apply_records(struct config_loader *l, const struct config_field *f,
                          const struct config_node *n, struct config_records *into,
                          struct config_slot *slot)
{
    struct err err = { 0 };
    const struct config_record *record = f->record;
    if (n->kind != CONFIG_NODE_LIST) {
        problem_at(l, n->line, "is %s where a list of mappings is wanted", node_text(n));
        return;
    }
    int rc = config_count_check(f, n->count, &err);
    if (rc < 0) {
        keep_error(l, n, rc, &err);
        return;
    }
    char *items = arena_array(&l->c->arena, n->count, record->size);
    size_t slot_count;
    if (items && mul_fits(n->count, record->field_count, &slot_count))
        slot->slots = arena_array(&l->c->arena, slot_count, sizeof *slot->slots);
    if (!items || !slot->slots) {
        l->rc = -ENOMEM;
        return;
    }
    size_t at = 0;
    for (const struct config_node *c = n->first; c && l->rc == 0; c = c->next, at++) {
        char *item = items + at * record->size;
        struct config_slot *slots = slot->slots + at * record->field_count;
        size_t before = path_push_index(l, at);
        l->rc = config_defaults(&l->c->arena, record, item, slots);
        if (l->rc == 0) apply_map(l, record, c, item, slots);
        if (l->rc == 0 && c->kind == CONFIG_NODE_MAP) check_required(l, record, slots, c->line);
        path_pop(l, before);
    }
    if (l->rc == 0) check_key(l, record, items, n->count, n);
    *into = (struct config_records){ items, n->count };
}

static void apply_node(struct config_loader *l, const struct config_field *f,
                       const struct config_node *n, void *into, struct config_slot *slot)
{
    if (f->type == CONFIG_RECORD && is_empty_scalar(n)) return; /* all of it commented out */
    if (is_empty_scalar(n)) {
        problem_at(l, n->line, "is empty: give %s, or leave the line out",
                   config_type_text(f->type));
        return;
    }
    slot->from = CONFIG_FROM_FILE;
    slot->line = n->line;
    if (f->type == CONFIG_RECORD)
        apply_map(l, f->record, n, into, slot->slots);
    else if (f->type == CONFIG_RECORDS)
        apply_records(l, f, n, into, slot);
    else if (f->type == CONFIG_TEXTS)
        apply_texts(l, f, n, into);
    else
        apply_scalar(l, f, n, into);
}

static void apply_map(struct config_loader *l, const struct config_record *record,
                      const struct config_node *node, char *base, struct config_slot *slots)
{
    if (node->kind != CONFIG_NODE_MAP) {
        problem_at(l, node->line, "is %s where a mapping is wanted", node_text(node));
        return;
    }
    for (const struct config_node *n = node->first; n && l->rc == 0; n = n->next) {
        size_t i;
        const struct config_field *f = config_field_find(record, n->key, &i);
        if (!f) {
            say_unknown(l, record, n);
            continue;
        }
        size_t before = path_push(l, n->key);
        apply_node(l, f, n, base + f->offset, &slots[i]);
        path_pop(l, before);
    }
}

int config_file_load(struct config_loader *l, const struct config_sources *src, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, CONFIG_MEMORY_BYTES_MAX);
    struct str s = src->text;
    if (!s.data) {
        int rc = file_read(src->path, CONFIG_FILE_BYTES_MAX, &text, err);
        if (rc < 0) return rc;
        s = buf_view(&text);
    }
    struct config_node *root = NULL;
    struct err syntax = { 0 };
    int rc = config_tree_parse(s, l->c->path, &arena, &root, &syntax);
    if (rc == -ENOMEM) return err_set(err, rc, "%s", syntax.text);
    if (rc < 0)
        config_problem(l, "%s", syntax.text);
    else if (root && !is_empty_scalar(root))
        apply_map(l, &l->c->root, root, l->c->values, l->c->slots);
    return 0;
}
