/* config.c - joins the sources into the roles' structs, and remembers where each value came from.
 *
 *     defaults -> file -> environment -> flags        later wins; a slot per value names the source
 *
 * The sections become the fields of one root record, so that a section, a record in it and an
 * item of a list are the same thing to the code that fills, checks and prints them. Problems
 * are collected instead of ending the load, so that `config check` shows all of them at once.
 */
#include "base/io/config/config.h"

#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/config/config_value.h"
#include "base/io/file.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* The state of loading, shared by the sources. A mistake in a source is a problem, and loading goes on;
 * `rc` stops it. */
struct config_loader {
    struct config *c;
    struct config_problems *problems;
    struct buf path; /* of the value at hand */
    int rc;          /* -ENOMEM: loading stops */
};

/* Adds a problem: a sentence behind `where`; kept up to CONFIG_PROBLEMS_MAX, then only counted. */
static void problem_add(struct config_loader *l, const char *where, const char *what, va_list ap)
    __attribute__((format(printf, 3, 0)));
static void problem(struct config_loader *l, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

static void problem_add(struct config_loader *l, const char *where, const char *what, va_list ap)
{
    struct config_problems *p = l->problems;
    if (p->count++ >= CONFIG_PROBLEMS_MAX) return;
    buf_text(&p->text, where);
    buf_vprintf(&p->text, what, ap);
    buf_byte(&p->text, '\n');
}

static void problem(struct config_loader *l, const char *what, ...)
{
    va_list ap;
    va_start(ap, what);
    problem_add(l, "", what, ap);
    va_end(ap);
}

/* ---- the schema as one record ---- */

/* These functions make one record of a schema: its sections are fields, its leaves can be walked. */

int config_root(const struct config_schema *schema, struct arena *arena, struct config_record *ret)
{
    struct config_field *rows = arena_array(arena, schema->count, sizeof *rows);
    if (!rows) return -ENOMEM;
    size_t size = 0;
    for (size_t i = 0; i < schema->count; i++) {
        const struct config_section *s = schema->sections[i];
        rows[i] = (struct config_field){
            .name = s->name,
            .about = s->about,
            .type = s->list ? CONFIG_RECORDS : CONFIG_RECORD,
            .record = s->record,
            .offset = size,
        };
        size += s->list ? sizeof(struct config_records) : s->record->size;
        size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    }
    *ret = (struct config_record){
        .fields = rows, .field_count = schema->count, .size = size, .absent = schema->absent
    };
    return 0;
}

const struct config_field *config_field_find(const struct config_record *record, struct str name,
                                             size_t *ret_index)
{
    for (size_t i = 0; i < record->field_count; i++) {
        if (!str_eq(name, str_from(record->fields[i].name))) continue;
        if (ret_index) *ret_index = i;
        return &record->fields[i];
    }
    return NULL;
}

const char *config_field_nearest(const struct config_record *record, struct str name)
{
    const char *best = NULL;
    for (size_t i = 0; i < record->field_count; i++) {
        const char *pair[2] = { best, record->fields[i].name };
        best = best ? str_nearest(name, pair, 2) : str_nearest(name, pair + 1, 1);
    }
    return best;
}

struct leaf_walk {
    config_leaf_fn fn;
    void *ctx;
};

static bool leaves_walk(const struct leaf_walk *w, const struct config_record *record,
                        struct config_slot *slots, size_t offset, const char *prefix)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        if (f->type == CONFIG_RECORDS) continue;
        char path[CONFIG_PATH_MAX];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", f->name);
        struct config_slot *slot = slots ? &slots[i] : NULL;
        struct config_leaf leaf = { path, f, offset + f->offset, slot };
        bool more = f->type == CONFIG_RECORD
                        ? leaves_walk(w, f->record, slot ? slot->slots : NULL, leaf.offset, path)
                        : w->fn(w->ctx, &leaf);
        if (!more) return false;
    }
    return true;
}

bool config_leaves(const struct config_record *record, struct config_slot *slots, config_leaf_fn fn,
                   void *ctx)
{
    return leaves_walk(&(struct leaf_walk){ fn, ctx }, record, slots, 0, "");
}

/* ---- defaults ---- */

static int set_defaults(struct arena *arena, const struct config_record *record, char *base,
                        struct config_slot *slots)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        int rc = 0;
        if (f->type == CONFIG_RECORD) {
            slots[i].slots = arena_array(arena, f->record->field_count, sizeof *slots);
            if (!slots[i].slots) return -ENOMEM;
            rc = set_defaults(arena, f->record, base + f->offset, slots[i].slots);
        } else if (f->type != CONFIG_RECORDS) {
            rc = config_value_default(f, arena, base + f->offset);
        }
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- the file ---- */

/* Copies a YAML tree into the roles' structs, row by row.
 *
 * A record, an item of a list of records and the whole file are handled alike: each is a mapping over a
 * record. Every sentence names the line and the path of its value. */

static void problem_at(struct config_loader *l, uint32_t line, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds "muster.yaml:14: services[0].name: sentence". */
static void problem_at(struct config_loader *l, uint32_t line, const char *what, ...)
{
    char where[2 * CONFIG_PATH_MAX];
    snprintf(where, sizeof where, "%s:%u: %.*s%s", l->c->path, line, CONFIG_PATH_MAX,
             l->path.len ? l->path.data : "", l->path.len ? ": " : "");
    va_list ap;
    va_start(ap, what);
    problem_add(l, where, what, ap);
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

/* Adds a problem for each required value of a record, and of the records in it, that no source set. */
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
        l->rc = set_defaults(&l->c->arena, record, item, slots);
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

static int load_file(struct config_loader *l, const struct config_sources *src, struct err *err)
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
        problem(l, "%s", syntax.text);
    else if (root && !is_empty_scalar(root))
        apply_map(l, &l->c->root, root, l->c->values, l->c->slots);
    return 0;
}

/* ---- environment and flags ---- */

struct find {
    const char *name; /* the variable, or the path */
    bool env;
    struct config_leaf found;
    const char *nearest;
    char near_text[CONFIG_PATH_MAX + 16];
};

static bool find_leaf(void *ctx, const struct config_leaf *leaf)
{
    struct find *f = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 };
    if (f->env)
        config_env_name(leaf->path, &name);
    else
        buf_text(&name, leaf->path);
    if (name.rc < 0) return true;
    if (strcmp(name.data, f->name) == 0) {
        f->found = *leaf;
        return false;
    }
    const char *pair[2] = { f->near_text, name.data };
    bool first = f->nearest == NULL;
    const char *best = str_nearest(str_from(f->name), first ? pair + 1 : pair, first ? 1 : 2);
    if (best == name.data) {
        snprintf(f->near_text, sizeof f->near_text, "%s", name.data);
        f->nearest = f->near_text;
    }
    return true;
}

/* Parses `value` into the leaf; `subject` is the variable or flag as the user knows it. */
static void apply_text(struct config_loader *l, const struct find *f, const char *value,
                       enum config_origin from, const char *subject)
{
    struct err err = { 0 };
    struct str name = arena_str(&l->c->arena, str_from(subject));
    int rc = name.data ? config_value_parse(f->found.field, str_from(value), &l->c->arena,
                                            (char *)l->c->values + f->found.offset, &err)
                       : -ENOMEM;
    if (rc == -ENOMEM) {
        l->rc = rc;
    } else if (rc < 0) {
        bool link = from == CONFIG_FROM_ENV && strncmp(value, "tcp://", 6) == 0;
        problem(l, "%s: %s%s", subject, err.text,
                link ? " (a Kubernetes service link? set enableServiceLinks: false)" : "");
    } else {
        *f->found.slot = (struct config_slot){ .from = from, .name = name.data };
    }
}

/* Returns true if a variable's name begins like one of our sections, so that a mistyped variable of ours
 * is told from one of another program. */
static bool env_is_ours(const struct config *c, struct str name)
{
    for (size_t i = 0; i < c->schema->count; i++) {
        CLEANUP(buf_fini) struct buf prefix = { 0 };
        config_env_name(c->schema->sections[i]->name, &prefix);
        if (buf_byte(&prefix, '_') == 0 && str_starts(name, buf_view(&prefix))) return true;
    }
    return false;
}

static void load_env(struct config_loader *l, const char *const *environ)
{
    for (; environ && *environ && l->rc == 0; environ++) {
        struct str value = str_from(*environ);
        struct str name = str_cut(&value, '=');
        if (!env_is_ours(l->c, name)) continue;
        CLEANUP(buf_fini) struct buf text = { 0 };
        if (buf_str(&text, name) < 0) {
            l->rc = -ENOMEM;
            return;
        }
        struct find f = { .name = text.data, .env = true };
        config_leaves(&l->c->root, l->c->slots, find_leaf, &f);
        if (f.found.field)
            apply_text(l, &f, value.data ? value.data : "", CONFIG_FROM_ENV, text.data);
        else
            problem(l, "the environment variable %s is no setting%s%s%s", text.data,
                    f.nearest ? ": did you mean " : "", f.nearest ? f.nearest : "",
                    f.nearest ? "?" : "");
    }
}

static void load_flags(struct config_loader *l, const struct config_flag *flags, size_t count)
{
    for (size_t i = 0; i < count && l->rc == 0; i++) {
        struct find f = { .name = flags[i].path };
        config_leaves(&l->c->root, l->c->slots, find_leaf, &f);
        CLEANUP(buf_fini) struct buf made = { 0 };
        const char *subject = flags[i].shown;
        if (!subject) {
            buf_text(&made, "--");
            if (config_flag_name(flags[i].path, &made) < 0) {
                l->rc = -ENOMEM;
                return;
            }
            subject = made.data;
        }
        if (f.found.field)
            apply_text(l, &f, flags[i].value, CONFIG_FROM_FLAG, subject);
        else
            problem(l, "%s: '%s' is no setting%s%s%s", subject, flags[i].path,
                    f.nearest ? ": did you mean '" : "", f.nearest ? f.nearest : "",
                    f.nearest ? "'?" : "");
    }
}

/* ---- the object ---- */

static int prepare(struct config *c)
{
    int rc = config_root(c->schema, &c->arena, &c->root);
    if (rc < 0) return rc;
    c->values = arena_alloc(&c->arena, c->root.size);
    c->slots = arena_array(&c->arena, c->root.field_count, sizeof *c->slots);
    if (!c->values || !c->slots) return -ENOMEM;
    return set_defaults(&c->arena, &c->root, c->values, c->slots);
}

/* Sets `err` to the first problem, with the number of the others. */
static int problems_result(const struct config_problems *p, struct err *err)
{
    struct str rest = buf_view(&p->text);
    struct str first = str_cut(&rest, '\n');
    if (p->count == 1) return err_set(err, -EINVAL, STR_FMT, STR_ARG(first));
    return err_set(err, -EINVAL, STR_FMT " (and %u more)", STR_ARG(first), p->count - 1);
}

/* Loads all sources, weakest first. Returns the error that stops the load (an unreadable file, no
 * memory); a mistake in a source is a problem. */
static int load_all(struct config_loader *l, const struct config_sources *src, struct err *err)
{
    struct config *c = l->c;
    l->rc = prepare(c);
    if (l->rc == 0 && (src->path || src->text.data)) {
        c->path = arena_str(&c->arena, str_from(src->path ? src->path : "config")).data;
        int rc = c->path ? load_file(l, src, err) : -ENOMEM;
        if (rc < 0 && rc != -ENOMEM) return rc;
        if (rc < 0) l->rc = rc;
    }
    if (l->rc == 0) load_env(l, src->environ);
    if (l->rc == 0) load_flags(l, src->flags, src->flag_count);
    if (l->path.rc < 0 || l->problems->text.rc < 0) l->rc = -ENOMEM;
    if (l->rc < 0)
        return err_set(err, l->rc, "the configuration needs more than %zu bytes of memory",
                       CONFIG_MEMORY_BYTES_MAX);
    return 0;
}

int config_load(const struct config_schema *schema, const struct config_sources *sources,
                struct config **ret, struct config_problems *problems, struct err *err)
{
    struct config_problems own = { 0 };
    CLEANUP(config_freep) struct config *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "no memory for the configuration");
    arena_init(&c->arena, CONFIG_MEMORY_BYTES_MAX);
    c->schema = schema;
    struct config_loader l = { .c = c, .problems = problems ? problems : &own };
    int rc = load_all(&l, sources, err);
    if (rc == 0 && l.problems->count > 0) rc = problems_result(l.problems, err);
    buf_fini(&l.path);
    buf_fini(&own.text);
    if (rc < 0) return rc;
    *ret = TAKE(c);
    return 0;
}

void config_free(struct config *c)
{
    if (!c) return;
    arena_fini(&c->arena);
    free(c);
}

const struct config_schema *config_schema_of(const struct config *c)
{
    return c->schema;
}

const void *config_section_get(const struct config *c, const char *name)
{
    const struct config_field *f = config_field_find(&c->root, str_from(name), NULL);
    must(f != NULL);
    return (const char *)c->values + f->offset;
}

struct require {
    const char *section;
    struct err *err;
    int rc;
};

static bool require_leaf(void *ctx, const struct config_leaf *leaf)
{
    struct require *r = ctx;
    if (!leaf->field->required || leaf->slot->from != CONFIG_FROM_DEFAULT) return true;
    CLEANUP(buf_fini) struct buf path = { 0 }, flag = { 0 }, env = { 0 };
    buf_printf(&path, "%s.%s", r->section, leaf->path);
    config_flag_name(leaf->path, &flag);
    if (path.rc == 0) config_env_name(path.data, &env);
    if (path.rc < 0 || flag.rc < 0 || env.rc < 0)
        r->rc = -ENOMEM;
    else
        r->rc = err_set(r->err, -EINVAL, "%s is not set: give it in the file, as --%s or as %s",
                        path.data, flag.data, env.data);
    return false;
}

int config_require(const struct config *c, const char *section, struct err *err)
{
    size_t i;
    const struct config_field *f = config_field_find(&c->root, str_from(section), &i);
    must(f != NULL && f->type == CONFIG_RECORD);
    struct require r = { .section = section, .err = err };
    config_leaves(f->record, c->slots[i].slots, require_leaf, &r);
    return r.rc;
}
