/* opt.c - parses a command's options by rows of the same kind as the configuration's.
 *
 * Every option is looked up in the command's own rows and then in its section's. Own values are
 * written at once; a section's values are checked here, so that a mistake is a usage error, and
 * handed on as flags for config_load, which alone knows which source is stronger.
 */
#include "base/io/config/opt.h"

#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/config/config_value.h"

#include <stdio.h>

struct parser {
    const struct opt_command *cmd;
    char *values;
    struct opt_parsed *out;
    struct err *err;
    char *const *argv;
    int argc, at; /* at: the next argument */
    size_t positionals;
    bool ended; /* behind "--" */
};

/* An option that was found: a copy of the leaf, whose path lives in the parser's arena. */
struct match {
    struct config_leaf leaf;
    size_t index; /* among own options */
    bool found;
    bool config;
};

struct search {
    struct str name; /* "max-num-seqs" */
    char letter;
    size_t index;
    bool found;
    struct config_leaf leaf;
    char path[CONFIG_PATH_MAX];
    char nearest[CONFIG_PATH_MAX];
};

static void nearest_keep(struct search *s, const char *name)
{
    const char *pair[2] = { s->nearest, name };
    bool first = s->nearest[0] == 0;
    if (str_nearest(s->name, first ? pair + 1 : pair, first ? 1 : 2) == name)
        snprintf(s->nearest, sizeof s->nearest, "%s", name);
}

static bool search_leaf(void *ctx, const struct config_leaf *leaf)
{
    struct search *s = ctx;
    CLEANUP(buf_fini) struct buf flag = { 0 };
    if (config_flag_name(leaf->path, &flag) < 0) return true;
    s->found = s->letter ? leaf->field->letter == s->letter : str_eq(s->name, buf_view(&flag));
    if (s->found) {
        s->leaf = *leaf;
        snprintf(s->path, sizeof s->path, "%s", leaf->path);
        return false;
    }
    if (!s->letter) nearest_keep(s, flag.data);
    s->index++;
    return true;
}

/* Finds an option: own ones first, then the section's. s->nearest holds a near name when there is none. */
static struct match match_find(const struct opt_command *cmd, struct search *s)
{
    bool config = false;
    s->index = 0;
    if (cmd->options) config_leaves(cmd->options, NULL, search_leaf, s);
    if (!s->found && cmd->section && !s->letter) {
        config = true;
        config_leaves(cmd->section->record, NULL, search_leaf, s);
    }
    return (
        struct match){ .leaf = s->leaf, .index = s->index, .found = s->found, .config = config };
}

static int no_memory(struct parser *p)
{
    return err_set(p->err, -ENOMEM, "the options need more than %zu bytes", OPT_MEMORY_BYTES_MAX);
}

/* ---- storing a value ---- */

static int texts_join(struct parser *p, struct config_texts *all, struct config_texts more)
{
    struct str *items = arena_array(&p->out->arena, all->count + more.count, sizeof *items);
    if (!items) return no_memory(p);
    for (size_t i = 0; i < all->count; i++)
        items[i] = all->items[i];
    for (size_t i = 0; i < more.count; i++)
        items[all->count + i] = more.items[i];
    *all = (struct config_texts){ items, all->count + more.count };
    return 0;
}

/* Returns true for an empty text, or a list with an empty item: taken as a value, it would silently mean
 * the default. */
static bool says_nothing(const struct config_field *f, const char *value)
{
    struct str rest = str_from(value);
    if (f->type == CONFIG_TEXT) return rest.len == 0;
    if (f->type != CONFIG_TEXTS) return false;
    do {
        if (str_trim(str_cut(&rest, ',')).len == 0) return true;
    } while (rest.data);
    return false;
}

static int store_own(struct parser *p, const struct match *m, const char *shown, const char *value)
{
    const struct config_field *f = m->leaf.field;
    if (says_nothing(f, value) && value[0])
        return err_set(p->err, -EINVAL, "%s: an item of '%.80s' is empty", shown, value);
    if (says_nothing(f, value))
        return err_set(p->err, -EINVAL, "%s is empty: give it a value or leave it out", shown);
    struct config_texts more = { 0 };
    bool joined = f->type == CONFIG_TEXTS && p->out->said[m->index];
    void *into = joined ? (void *)&more : p->values + m->leaf.offset;
    int rc = config_value_parse(f, str_from(value), &p->out->arena, into, p->err);
    if (rc < 0) return err_prefix(p->err, rc, "%s", shown);
    p->out->said[m->index] = true;
    return joined ? texts_join(p, (void *)(p->values + m->leaf.offset), more) : 0;
}

static const char *arena_print(struct parser *p, const char *a, char between, const char *b)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (buf_printf(&text, "%s%c%s", a, between, b) < 0) return NULL;
    return arena_str(&p->out->arena, buf_view(&text)).data;
}

/* Keeps the value as a flag for config_load. It is parsed here only to check it. */
static int store_config(struct parser *p, const struct match *m, const char *shown,
                        const char *value)
{
    const struct config_field *f = m->leaf.field;
    _Alignas(max_align_t) char place[sizeof(struct config_texts)];
    int rc = config_value_parse(f, str_from(value), NULL, place, p->err);
    if (rc < 0) return err_prefix(p->err, rc, "%s", shown);
    const char *path = arena_print(p, p->cmd->section->name, '.', m->leaf.path);
    if (!path) return no_memory(p);
    for (size_t i = 0; i < p->out->flag_count; i++) {
        struct config_flag *flag = &p->out->flags[i];
        if (strcmp(flag->path, path) != 0) continue;
        flag->value = f->type == CONFIG_TEXTS ? arena_print(p, flag->value, ',', value) : value;
        return flag->value ? 0 : no_memory(p);
    }
    if (p->out->flag_count == OPT_CONFIG_FLAGS_MAX)
        return err_set(p->err, -EINVAL, "more than %d options at once", OPT_CONFIG_FLAGS_MAX);
    struct str name = arena_str(&p->out->arena, str_from(shown));
    if (!name.data) return no_memory(p);
    p->out->flags[p->out->flag_count++] =
        (struct config_flag){ .path = path, .value = value, .shown = name.data };
    return 0;
}

static int store(struct parser *p, const struct match *m, const char *shown, const char *value)
{
    return m->config ? store_config(p, m, shown, value) : store_own(p, m, shown, value);
}

/* Takes the argument behind an option. An argument that looks like an option is refused, because more
 * likely the value was forgotten. */
static int value_take(struct parser *p, const struct match *m, const char *shown, const char **ret)
{
    if (p->at >= p->argc)
        return err_set(p->err, -EINVAL, "%s needs %s", shown,
                       config_type_text(m->leaf.field->type));
    const char *next = p->argv[p->at];
    if (strncmp(next, "--", 2) == 0)
        return err_set(p->err, -EINVAL, "%s needs %s but %s follows; if that is meant, write %s=%s",
                       shown, config_type_text(m->leaf.field->type), next, shown, next);
    p->at++;
    *ret = next;
    return 0;
}

/* ---- the forms ---- */

static int unknown(struct parser *p, struct str name, const char *nearest)
{
    return err_set(p->err, -EINVAL, "unknown option --%.*s%s%s%s", (int)min_size(name.len, 80),
                   name.data, *nearest ? ": did you mean --" : "", nearest, *nearest ? "?" : "");
}

static int parse_long(struct parser *p, const char *arg)
{
    struct str value = str_from(arg + 2);
    struct search s = { .name = str_cut(&value, '=') };
    if (str_eq(s.name, STR("help")) && !value.data) {
        p->out->help = true;
        return 0;
    }
    struct match m = match_find(p->cmd, &s);
    m.leaf.path = s.path;
    struct search no = { 0 };
    if (!m.found && str_starts(s.name, STR("no-")) && !value.data) {
        no.name = str_of(s.name.data + 3, s.name.len - 3);
        m = match_find(p->cmd, &no);
        m.leaf.path = no.path;
        m.found = m.found && m.leaf.field->type == CONFIG_BOOL;
    }
    if (!m.found) return unknown(p, s.name, s.nearest);
    char shown[CONFIG_PATH_MAX];
    snprintf(shown, sizeof shown, "--" STR_FMT, STR_ARG(s.name));
    const char *text = value.data;
    if (no.found) return store(p, &m, shown, "false");
    if (!text && m.leaf.field->type == CONFIG_BOOL) return store(p, &m, shown, "true");
    int rc = text ? 0 : value_take(p, &m, shown, &text);
    return rc < 0 ? rc : store(p, &m, shown, text);
}

/* Parses -x, -xvalue, -x value, and several flags in one: -abc. */
static int parse_short(struct parser *p, const char *arg)
{
    for (const char *c = arg + 1; *c; c++) {
        const char shown[] = { '-', *c, 0 };
        struct search s = { .letter = *c };
        struct match m = match_find(p->cmd, &s);
        m.leaf.path = s.path;
        if (!m.found && *c == 'h') {
            p->out->help = true;
            return 0;
        }
        if (!m.found) return err_set(p->err, -EINVAL, "unknown option %s", shown);
        if (m.leaf.field->type == CONFIG_BOOL) {
            int rc = store(p, &m, shown, "true");
            if (rc < 0) return rc;
            continue;
        }
        const char *text = c + 1;
        int rc = *text ? 0 : value_take(p, &m, shown, &text);
        return rc < 0 ? rc : store(p, &m, shown, text);
    }
    return 0;
}

static int parse_positional(struct parser *p, const char *arg)
{
    const struct opt_command *cmd = p->cmd;
    struct str text = str_from(arg);
    if (cmd->positional_count == 0)
        return err_set(p->err, -EINVAL, "'%.80s': no arguments are expected, only options", arg);
    size_t i = min_size(p->positionals, cmd->positional_count - 1);
    const struct opt_positional *row = &cmd->positionals[i];
    if (p->positionals++ > i && !row->many)
        return err_set(p->err, -EINVAL, "'%.80s': %zu arguments are expected, not more", arg,
                       cmd->positional_count);
    if (row->many)
        return texts_join(p, (void *)(p->values + row->offset), (struct config_texts){ &text, 1 });
    *(struct str *)(void *)(p->values + row->offset) = text;
    return 0;
}

/* ---- the whole ---- */

struct own_rows {
    struct parser *p;
    size_t index;
    int rc;
};

static bool default_leaf(void *ctx, const struct config_leaf *leaf)
{
    struct own_rows *o = ctx;
    must(o->index++ < OPT_OPTIONS_MAX);
    o->rc = config_value_default(leaf->field, &o->p->out->arena, o->p->values + leaf->offset);
    return o->rc == 0;
}

static bool required_leaf(void *ctx, const struct config_leaf *leaf)
{
    struct own_rows *o = ctx;
    if (o->p->out->said[o->index++] || !leaf->field->required) return true;
    CLEANUP(buf_fini) struct buf flag = { 0 };
    if (config_flag_name(leaf->path, &flag) < 0)
        o->rc = no_memory(o->p);
    else
        o->rc = err_set(o->p->err, -EINVAL, "--%s is missing: %s", flag.data, leaf->field->about);
    return false;
}

static int check_required(struct parser *p)
{
    struct own_rows own = { .p = p };
    if (p->cmd->options) config_leaves(p->cmd->options, NULL, required_leaf, &own);
    if (own.rc < 0) return own.rc;
    size_t i = p->positionals;
    if (i >= p->cmd->positional_count || !p->cmd->positionals[i].required) return 0;
    return err_set(p->err, -EINVAL, "%s is missing: %s", p->cmd->positionals[i].name,
                   p->cmd->positionals[i].about);
}

static int parse_one(struct parser *p)
{
    const char *arg = p->argv[p->at++];
    if (p->ended || arg[0] != '-' || arg[1] == 0) return parse_positional(p, arg);
    if (strcmp(arg, "--") == 0) {
        p->ended = true;
        return 0;
    }
    return arg[1] == '-' ? parse_long(p, arg) : parse_short(p, arg);
}

int opt_parse(const struct opt_command *cmd, int argc, char *const *argv, void *values,
              struct opt_parsed *ret, struct err *err)
{
    must(cmd->options || cmd->positional_count == 0);
    must((cmd->options != NULL) == (values != NULL));
    *ret = (struct opt_parsed){ 0 };
    arena_init(&ret->arena, OPT_MEMORY_BYTES_MAX);
    struct parser p = {
        .cmd = cmd, .values = values, .out = ret, .err = err, .argv = argv, .argc = argc
    };
    struct own_rows own = { .p = &p };
    if (cmd->options) {
        config_record_check(cmd->options, 0);
        memset(values, 0, cmd->options->size);
        config_leaves(cmd->options, NULL, default_leaf, &own);
    }
    int rc = own.rc < 0 ? no_memory(&p) : 0;
    while (rc == 0 && p.at < argc && !ret->help)
        rc = parse_one(&p);
    if (rc < 0 || ret->help) return rc;
    return check_required(&p);
}

void opt_parsed_fini(struct opt_parsed *p)
{
    arena_fini(&p->arena);
    *p = (struct opt_parsed){ 0 };
}

int opt_help(const struct opt_command *cmd, struct buf *out)
{
    buf_printf(out, "Usage: %s [options]", cmd->name);
    for (size_t i = 0; i < cmd->positional_count; i++) {
        const struct opt_positional *row = &cmd->positionals[i];
        buf_printf(out, row->required ? " %s%s" : " [%s%s]", row->name, row->many ? "..." : "");
    }
    buf_text(out, "\n\n");
    config_help_words(out, str_from(cmd->about), 0);
    if (cmd->positional_count > 0) buf_text(out, "\nArguments:\n");
    for (size_t i = 0; i < cmd->positional_count; i++) {
        buf_printf(out, "  %s", cmd->positionals[i].name);
        config_help_about(out, str_from(cmd->positionals[i].about),
                          2 + strlen(cmd->positionals[i].name));
    }
    buf_text(out, "\nOptions:\n");
    if (cmd->options) config_help(cmd->options, out);
    buf_printf(out, "  -h, --%-21s Show this and exit.\n", "help");
    if (cmd->section) {
        buf_printf(out, "\nConfiguration (section `%s` of the file):\n", cmd->section->name);
        config_help(cmd->section->record, out);
    }
    if (cmd->notes) buf_printf(out, "\n%s\n", cmd->notes);
    return out->rc;
}

int opt_fail(const struct opt_command *cmd, const struct err *err)
{
    fprintf(stderr, "%s: %s\nTry '%s --help'.\n", cmd->name, err_text(err, -EINVAL), cmd->name);
    return OPT_EXIT_USAGE;
}

static struct {
    opt_help_fn fn; /* NULL: help is printed */
    void *ctx;
} caught;

void opt_help_catch(opt_help_fn fn, void *ctx)
{
    caught.fn = fn;
    caught.ctx = ctx;
}

int opt_show_help(const struct opt_command *cmd)
{
    if (caught.fn) {
        caught.fn(caught.ctx, cmd);
        return 0;
    }
    CLEANUP(buf_fini) struct buf help = { 0 };
    if (opt_help(cmd, &help) == 0) fwrite(help.data, 1, help.len, stdout);
    return 0;
}
