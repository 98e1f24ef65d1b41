/* config.c - join the sources into the roles' structs, and remember where each value came from.
 *
 *     defaults -> file -> environment -> flags        later wins; one slot a value says who did
 *
 * The sections become the fields of one root record, so that a section, a record in it and an
 * item of a list are the same thing to the code that fills, checks and prints them. Problems
 * are collected instead of ending the load, so that `config check` shows all of them at once.
 */
#include "base/io/config.h"

#include "base/core/own.h"
#include "base/io/config_load.h"
#include "base/io/config_value.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void config_problem_add(struct config_loader *l, const char *where, const char *what, va_list ap)
{
    struct config_problems *p = l->problems;
    if (p->count++ >= CONFIG_PROBLEMS_MAX) return;
    buf_text(&p->text, where);
    buf_vprintf(&p->text, what, ap);
    buf_byte(&p->text, '\n');
}

void config_problem(struct config_loader *l, const char *what, ...)
{
    va_list ap;
    va_start(ap, what);
    config_problem_add(l, "", what, ap);
    va_end(ap);
}

/* ---- defaults ---- */

int config_defaults(struct arena *arena, const struct config_record *record, char *base,
                    struct config_slot *slots)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        int rc = 0;
        if (f->type == CONFIG_RECORD) {
            slots[i].slots = arena_array(arena, f->record->field_count, sizeof *slots);
            if (!slots[i].slots) return -ENOMEM;
            rc = config_defaults(arena, f->record, base + f->offset, slots[i].slots);
        } else if (f->type != CONFIG_RECORDS) {
            rc = config_value_default(f, arena, base + f->offset);
        }
        if (rc < 0) return rc;
    }
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
        config_problem(l, "%s: %s%s", subject, err.text,
                       link ? " (a Kubernetes service link? set enableServiceLinks: false)" : "");
    } else {
        *f->found.slot = (struct config_slot){ .from = from, .name = name.data };
    }
}

/* The section a variable belongs to, so that a mistyped one is told from a stranger's. */
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
            config_problem(l, "the environment variable %s is no setting%s%s%s", text.data,
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
            config_problem(l, "%s: '%s' is no setting%s%s%s", subject, flags[i].path,
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
    return config_defaults(&c->arena, &c->root, c->values, c->slots);
}

/* The first problem as the sentence of `err`. */
static int problems_result(const struct config_problems *p, struct err *err)
{
    struct str rest = buf_view(&p->text);
    struct str first = str_cut(&rest, '\n');
    if (p->count == 1) return err_set(err, -EINVAL, STR_FMT, STR_ARG(first));
    return err_set(err, -EINVAL, STR_FMT " (and %u more)", STR_ARG(first), p->count - 1);
}

/* All sources, weakest first. What stops the load (an unreadable file, no memory) is returned;
 * what is wrong in a source is a problem. */
static int load_all(struct config_loader *l, const struct config_sources *src, struct err *err)
{
    struct config *c = l->c;
    l->rc = prepare(c);
    if (l->rc == 0 && (src->path || src->text.data)) {
        c->path = arena_str(&c->arena, str_from(src->path ? src->path : "config")).data;
        int rc = c->path ? config_file_load(l, src, err) : -ENOMEM;
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
