/* config_docs.c - prints the schema (--help, the docs page, a JSON Schema) and values in effect.
 *
 * The JSON Schema accepts what the loader accepts, as far as JSON Schema can say it: bounds of
 * sizes and durations written with units, and keys that must differ, are checked by the loader
 * alone.
 */
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/config/config_value.h"

#include <inttypes.h>
#include <stdio.h>

#define HELP_COLUMN 30 /* where sentences start */
#define HELP_WIDTH 100
#define SCHEMA_MEMORY_BYTES_MAX ((size_t)1 << 20)

/* ---- the check of a table ---- */

static bool is_name(const char *name)
{
    if (!name || name[0] < 'a' || name[0] > 'z') return false;
    for (const char *c = name; *c; c++)
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9') && *c != '_') return false;
    return true;
}

static const size_t type_sizes[CONFIG_TYPE_COUNT] = {
    [CONFIG_BOOL] = sizeof(bool),
    [CONFIG_INT] = sizeof(int64_t),
    [CONFIG_FLOAT] = sizeof(double),
    [CONFIG_TEXT] = sizeof(struct str),
    [CONFIG_ENUM] = sizeof(int),
    [CONFIG_DURATION] = sizeof(int64_t),
    [CONFIG_BYTES] = sizeof(int64_t),
    [CONFIG_TEXTS] = sizeof(struct config_texts),
    [CONFIG_RECORDS] = sizeof(struct config_records),
};

static void field_check(const struct config_field *f, size_t record_size)
{
    must(is_name(f->name));
    must(f->about && *f->about);
    must(f->type < CONFIG_TYPE_COUNT);
    must(f->min <= f->max);
    must((f->type == CONFIG_ENUM) == (f->names != NULL));
    must(config_is_record(f) == (f->record != NULL));
    size_t size = f->type == CONFIG_RECORD ? f->record->size : type_sizes[f->type];
    must(f->offset + size <= record_size);
    if (config_is_record(f) || f->required) {
        must(f->default_text == NULL);
        return;
    }
    must(f->default_text || f->type == CONFIG_TEXT || f->type == CONFIG_TEXTS);
    if (!f->default_text) return;
    _Alignas(max_align_t) char value[sizeof(struct config_texts)];
    must(config_value_parse(f, str_from(f->default_text), NULL, value, NULL) == 0);
}

void config_record_check(const struct config_record *record, uint32_t depth)
{
    must(depth < CONFIG_DEPTH_MAX);
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        field_check(f, record->size);
        for (size_t j = 0; j < i; j++)
            must(strcmp(f->name, record->fields[j].name) != 0);
        if (f->record) config_record_check(f->record, depth + 1);
    }
    if (!record->key) return;
    const struct config_field *key = config_field_find(record, str_from(record->key), NULL);
    must(key && key->type == CONFIG_TEXT);
}

struct name_count {
    const struct config_record *record;
    struct str flag;
    uint32_t found;
};

static bool flag_count(void *ctx, const struct config_leaf *leaf)
{
    struct name_count *n = ctx;
    CLEANUP(buf_fini) struct buf flag = { 0 };
    config_flag_name(leaf->path, &flag);
    n->found += str_eq(buf_view(&flag), n->flag);
    return true;
}

/* Checks that no other value has the same flag: kv.pages and kv_pages would share flag and variable. */
static bool flag_is_alone(void *ctx, const struct config_leaf *leaf)
{
    CLEANUP(buf_fini) struct buf flag = { 0 };
    config_flag_name(leaf->path, &flag);
    struct name_count n = { .flag = buf_view(&flag) };
    config_leaves(ctx, NULL, flag_count, &n);
    must(n.found == 1);
    return true;
}

void config_schema_check(const struct config_schema *schema)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SCHEMA_MEMORY_BYTES_MAX);
    struct config_record root;
    must(config_root(schema, &arena, &root) == 0);
    config_record_check(&root, 0);
    config_leaves(&root, NULL, flag_is_alone, &root);
}

/* ---- --help ---- */

void config_help_words(struct buf *out, struct str text, size_t indent)
{
    size_t column = indent;
    while (text.len > 0) {
        struct str word = str_cut(&text, ' ');
        if (column > indent && column + 1 + word.len > HELP_WIDTH) {
            buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            buf_byte(out, ' ');
            column++;
        }
        buf_str(out, word);
        column += word.len;
    }
    buf_byte(out, '\n');
}

void config_help_about(struct buf *out, struct str text, size_t column)
{
    if (column + 2 > HELP_COLUMN) {
        buf_byte(out, '\n');
        column = 0;
    }
    buf_printf(out, "%*s", (int)(HELP_COLUMN - column), "");
    config_help_words(out, text, HELP_COLUMN);
}

static const char *const placeholders[CONFIG_TYPE_COUNT] = {
    [CONFIG_BOOL] = NULL,    [CONFIG_INT] = "N",     [CONFIG_FLOAT] = "X",
    [CONFIG_TEXT] = "TEXT",  [CONFIG_ENUM] = "NAME", [CONFIG_DURATION] = "TIME",
    [CONFIG_BYTES] = "SIZE", [CONFIG_TEXTS] = "A,B",
};

static bool is_bool(const struct config_field *f, const char *default_text)
{
    return f->type == CONFIG_BOOL && f->default_text && strcmp(f->default_text, default_text) == 0;
}

void config_field_facts(const struct config_field *f, struct buf *out)
{
    const char *between = " (";
    if (f->unit) buf_printf(out, "%s%s", between, f->unit), between = "; ";
    size_t before = out->len;
    buf_text(out, between);
    size_t start = out->len;
    config_value_range(f, out);
    if (out->len > start)
        between = "; ";
    else
        out->len = before;
    if (f->required)
        buf_printf(out, "%srequired", between), between = "; ";
    else if (f->default_text && !is_bool(f, "false"))
        buf_printf(out, "%sdefault: %s", between, f->default_text), between = "; ";
    if (*between == ';') buf_byte(out, ')');
}

struct options {
    config_option_fn fn;
    void *ctx;
    bool debug;
    int rc;
};

static bool option_leaf(void *ctx, const struct config_leaf *leaf)
{
    struct options *o = ctx;
    const struct config_field *f = leaf->field;
    if (f->debug != o->debug) return true;
    CLEANUP(buf_fini) struct buf flag = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    /* The flag of a value that is on by default turns it off. */
    buf_text(&flag, is_bool(f, "true") ? "--no-" : "--");
    config_flag_name(leaf->path, &flag);
    buf_text(&text, f->about);
    config_field_facts(f, &text);
    o->rc = flag.rc < 0 ? flag.rc : text.rc;
    const struct config_option option = { flag.data, placeholders[f->type], buf_view(&text), f };
    if (o->rc == 0) o->rc = o->fn(o->ctx, &option);
    return o->rc >= 0;
}

int config_options_each(const struct config_record *record, config_option_fn fn, void *ctx)
{
    struct options o = { .fn = fn, .ctx = ctx };
    config_leaves(record, NULL, option_leaf, &o);
    o.debug = true;
    if (o.rc >= 0) config_leaves(record, NULL, option_leaf, &o);
    return o.rc < 0 ? o.rc : 0;
}

struct help {
    struct buf *out;
    bool debug; /* the heading of diagnostics is out */
};

static int help_option(void *ctx, const struct config_option *option)
{
    struct help *h = ctx;
    if (option->field->debug && !h->debug) buf_text(h->out, "\nDiagnostics:\n");
    h->debug = option->field->debug;
    size_t start = h->out->len;
    if (option->field->letter)
        buf_printf(h->out, "  -%c, %s", option->field->letter, option->flag);
    else
        buf_printf(h->out, "      %s", option->flag);
    if (option->placeholder) buf_printf(h->out, " %s", option->placeholder);
    config_help_about(h->out, option->text, h->out->len - start);
    return h->out->rc;
}

int config_help(const struct config_record *record, struct buf *out)
{
    int rc = config_options_each(record, help_option, &(struct help){ .out = out });
    if (rc < 0 && out->rc == 0) out->rc = rc;
    return out->rc;
}

/* ---- the docs page ---- */

/* Appends a table cell, with bars escaped: a bar would end it. */
static void cell(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|') buf_byte(out, '\\');
        buf_byte(out, *text == '\n' ? ' ' : *text);
    }
}

static const char *const type_names[CONFIG_TYPE_COUNT] = {
    [CONFIG_BOOL] = "bool",      [CONFIG_INT] = "integer",
    [CONFIG_FLOAT] = "number",   [CONFIG_TEXT] = "text",
    [CONFIG_ENUM] = "name",      [CONFIG_DURATION] = "duration",
    [CONFIG_BYTES] = "size",     [CONFIG_TEXTS] = "list of text",
    [CONFIG_RECORD] = "mapping", [CONFIG_RECORDS] = "list of mappings",
};

const char *config_type_name(enum config_type type)
{
    return type_names[type];
}

static void markdown_row(const struct config_field *f, const char *path, struct buf *out)
{
    CLEANUP(buf_fini) struct buf range = { 0 };
    config_value_range(f, &range);
    buf_printf(out, "| `%s` | %s", path, type_names[f->type]);
    if (f->unit) buf_printf(out, ", %s", f->unit);
    buf_text(out, " | ");
    if (f->required)
        buf_text(out, "*required*");
    else if (!f->default_text || !*f->default_text)
        buf_text(out, f->default_text ? "empty" : "-");
    else
        buf_byte(out, '`'), cell(out, f->default_text), buf_byte(out, '`');
    buf_text(out, " | ");
    if (range.len) cell(out, range.data);
    buf_printf(out, " | %s | ", f->reloadable ? "yes" : "no");
    cell(out, f->about);
    if (f->debug) buf_text(out, " (diagnostics)");
    buf_text(out, " |\n");
}

/* Appends the rows of this record and of the mappings in it; lists of mappings follow as tables. */
static void markdown_rows(const struct config_record *record, const char *prefix, struct buf *out)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        CLEANUP(buf_fini) struct buf path = { 0 };
        if (buf_printf(&path, "%s%s", prefix, f->name) < 0) return;
        if (f->type != CONFIG_RECORD) {
            markdown_row(f, path.data, out);
        } else if (buf_byte(&path, '.') == 0) {
            markdown_rows(f->record, path.data, out);
        }
    }
}

static void markdown_record(const struct config_record *record, const char *title,
                            const char *about, int level, struct buf *out);

static void markdown_lists(const struct config_record *record, const char *title, int level,
                           struct buf *out)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        if (!config_is_record(f)) continue;
        CLEANUP(buf_fini) struct buf name = { 0 };
        bool list = f->type == CONFIG_RECORDS;
        if (buf_printf(&name, "%s.%s%s", title, f->name, list ? "[]" : "") < 0) return;
        if (list)
            markdown_record(f->record, name.data, f->about, level + 1, out);
        else
            markdown_lists(f->record, name.data, level, out);
    }
}

static void markdown_record(const struct config_record *record, const char *title,
                            const char *about, int level, struct buf *out)
{
    buf_printf(out, "\n%.*s `%s`\n\n%s\n", level < 6 ? level : 6, "######", title, about);
    if (record->key) buf_printf(out, "\nItems differ in their `%s`.\n", record->key);
    buf_text(out,
             "\n| key | type | default | allowed | reloadable | |\n|---|---|---|---|---|---|\n");
    markdown_rows(record, "", out);
    markdown_lists(record, title, level, out);
}

int config_markdown(const struct config_schema *schema, struct buf *out)
{
    buf_text(
        out,
        "# Configuration\n\n"
        "Generated from the schema in the code. A value comes from, strongest first: a flag "
        "(`--max-num-seqs` of the role's command), the environment "
        "(`MUSTER_ENGINE_MAX_NUM_SEQS`), the file, the default. Lists of mappings are set in "
        "the file only. A key that is unknown, repeated or out of range refuses to start, "
        "with its line. Durations are written `250ms`, `10s`, `2m`, `1h`; sizes `512`, "
        "`64MiB`, `1GB`. A reloadable value can be changed in a running fleet: by `muster apply`, "
        "by a change of the controller's file, or by an order to the part itself.\n");
    for (size_t i = 0; i < schema->count; i++) {
        const struct config_section *s = schema->sections[i];
        CLEANUP(buf_fini) struct buf title = { 0 };
        if (buf_printf(&title, "%s%s", s->name, s->list ? "[]" : "") < 0) return title.rc;
        markdown_record(s->record, title.data, s->about, 2, out);
    }
    return out->rc;
}

/* ---- JSON Schema ---- */

#define DURATION_PATTERN "^(0|[0-9]+(\\.[0-9]{1,6})?(d|h|m|s|ms|us))$"
#define BYTES_PATTERN "^([0-9]+|[0-9]+(\\.[0-9]{1,6})?(TiB|GiB|MiB|KiB|TB|GB|MB|KB|B))$"

static void schema_bounds(struct json_writer *w, const struct config_field *f, const char *min,
                          const char *max)
{
    if (!(f->min < f->max)) return;
    json_kv_f64(w, min, f->min);
    if (f->max < CONFIG_NO_MAX) json_kv_f64(w, max, f->max);
}

/* Writes the schema of a size or a duration: text with a unit, or a plain integer (0 only, for a
 * duration). */
static void schema_scaled(struct json_writer *w, const struct config_field *f)
{
    bool bytes = f->type == CONFIG_BYTES;
    json_key(w, "anyOf");
    json_array(w);
    json_object(w);
    json_kv_text(w, "type", "string");
    json_kv_text(w, "pattern", bytes ? BYTES_PATTERN : DURATION_PATTERN);
    json_object_end(w);
    json_object(w);
    json_kv_text(w, "type", "integer");
    if (bytes) {
        json_kv_f64(w, "minimum", f->min < f->max ? f->min : 0);
        if (f->min < f->max && f->max < CONFIG_NO_MAX) json_kv_f64(w, "maximum", f->max);
    } else {
        json_kv_i64(w, "const", 0);
    }
    json_object_end(w);
    json_array_end(w);
}

static void schema_record(struct json_writer *w, const struct config_record *record, bool in_list);
static void schema_members(struct json_writer *w, const struct config_record *record, bool in_list);

static void schema_list(struct json_writer *w, const struct config_field *f, bool in_list)
{
    json_kv_text(w, "type", "array");
    schema_bounds(w, f, "minItems", "maxItems");
    if (!(f->min < f->max)) json_kv_i64(w, "maxItems", CONFIG_LIST_MAX);
    json_key(w, "items");
    json_object(w);
    if (f->type == CONFIG_RECORDS)
        json_kv_text(w, "type", "object"), schema_members(w, f->record, in_list);
    else
        json_kv_text(w, "type", "string");
    json_object_end(w);
}

static void schema_type(struct json_writer *w, const struct config_field *f, bool in_list)
{
    switch (f->type) {
    case CONFIG_BOOL:
        json_kv_text(w, "type", "boolean");
        return;
    case CONFIG_INT:
    case CONFIG_FLOAT:
        json_kv_text(w, "type", f->type == CONFIG_INT ? "integer" : "number");
        schema_bounds(w, f, "minimum", "maximum");
        return;
    case CONFIG_TEXT:
        json_kv_text(w, "type", "string");
        if (f->min < f->max) json_kv_f64(w, "maxLength", f->max); /* characters, at most bytes */
        return;
    case CONFIG_ENUM:
        json_key(w, "enum");
        json_array(w);
        for (size_t i = 0; f->names[i]; i++)
            json_put_text(w, f->names[i]);
        json_array_end(w);
        return;
    case CONFIG_DURATION:
    case CONFIG_BYTES:
        schema_scaled(w, f);
        return;
    case CONFIG_TEXTS:
    case CONFIG_RECORDS:
        schema_list(w, f, true);
        return;
    case CONFIG_RECORD:
        schema_record(w, f->record, in_list);
        return;
    case CONFIG_TYPE_COUNT:
        break;
    }
}

static void schema_default(struct json_writer *w, const struct config_field *f)
{
    if (!f->default_text || f->type == CONFIG_TEXTS) return;
    bool bare = f->type == CONFIG_BOOL || f->type == CONFIG_INT || f->type == CONFIG_FLOAT;
    json_key(w, "default");
    if (bare)
        json_put_raw(w, str_from(f->default_text));
    else
        json_put_text(w, f->default_text);
}

/* Writes the schema of a record. It may be null: a mapping with every line commented out. */
static void schema_record(struct json_writer *w, const struct config_record *record, bool in_list)
{
    json_key(w, "type");
    json_put_raw(w, STR("[\"object\",\"null\"]"));
    schema_members(w, record, in_list);
}

/* Writes the members of a record. In plain sections none is required, because a flag may set it. */
static void schema_members(struct json_writer *w, const struct config_record *record, bool in_list)
{
    bool any_required = false;
    json_kv_bool(w, "additionalProperties", false);
    json_key(w, "properties");
    json_object(w);
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        any_required = any_required || (f->required && in_list);
        json_key(w, f->name);
        json_object(w);
        json_kv_text(w, "description", f->about);
        schema_type(w, f, in_list);
        schema_default(w, f);
        json_object_end(w);
    }
    json_object_end(w);
    if (!any_required) return;
    json_key(w, "required");
    json_array(w);
    for (size_t i = 0; i < record->field_count; i++)
        if (record->fields[i].required) json_put_text(w, record->fields[i].name);
    json_array_end(w);
}

int config_json_schema(const struct config_schema *schema, struct buf *out)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SCHEMA_MEMORY_BYTES_MAX);
    struct config_record root;
    if (config_root(schema, &arena, &root) < 0) return -ENOMEM;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "$schema", "https://json-schema.org/draft/2020-12/schema");
    json_kv_text(&w, "title", "Muster configuration");
    schema_record(&w, &root, false);
    json_object_end(&w);
    buf_byte(out, '\n');
    return out->rc;
}

/* ---- what is in effect ---- */

/* The functions below print a loaded configuration: all of it, or one value.
 *
 * The YAML loads back to the same values (the tests do so), therefore texts are quoted wherever plain
 * YAML could read them as something else or libyaml would refuse a raw byte. */

#define ORIGIN_COLUMN 40 /* where `# origin` starts, when the line is shorter */

static int origin_print(const struct config *c, const struct config_slot *slot, struct buf *out)
{
    switch (slot->from) {
    case CONFIG_FROM_FILE:
        return buf_printf(out, "file %s:%u", c->path, slot->line);
    case CONFIG_FROM_ENV:
        return buf_printf(out, "env %s", slot->name);
    case CONFIG_FROM_FLAG:
        return buf_printf(out, "flag %s", slot->name);
    case CONFIG_FROM_DEFAULT:
        break;
    }
    return buf_text(out, "default");
}

/* ---- YAML ---- */

static bool is_word(struct str s)
{
    if (s.len == 0 || str_eq(s, STR("null"))) return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        bool inside = c == '-' || c == '+' || c == '@' || (c == ':' && i + 1 < s.len);
        if (!alnum && c != '_' && c != '.' && c != '/' && !(inside && i > 0)) return false;
    }
    return !str_eq(s, STR("...")); /* would end the document */
}

static int yaml_text(struct str s, struct buf *out)
{
    if (is_word(s)) return buf_str(out, s);
    buf_byte(out, '"');
    while (s.len > 0) {
        uint32_t c = 0;
        size_t n = utf8_decode(s, &c);
        if (n == 0) n = 1, c = 0xfffd;
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", (char)c);
        else if (c >= 0x20 && c < 0x7f)
            buf_byte(out, (char)c);
        else if (c > 0xa0 && c < 0xd800 && c != 0x2028 && c != 0x2029)
            buf_append(out, s.data, n);
        else
            buf_printf(out, "\\U%08" PRIX32, c);
        s.data += n;
        s.len -= n;
    }
    return buf_byte(out, '"');
}

static void yaml_leaf(const struct config_field *f, const void *from, struct buf *out)
{
    if (f->type == CONFIG_TEXT) {
        yaml_text(*(const struct str *)from, out);
    } else if (f->type == CONFIG_TEXTS) {
        const struct config_texts *texts = from;
        buf_byte(out, '[');
        for (size_t i = 0; i < texts->count; i++) {
            if (i > 0) buf_text(out, ", ");
            yaml_text(texts->items[i], out);
        }
        buf_byte(out, ']');
    } else {
        config_value_print(f, from, out);
    }
}

static bool is_unset(const struct config_field *f, const void *from)
{
    return f->type == CONFIG_TEXT && ((const struct str *)from)->data == NULL;
}

struct view {
    const struct config *c;
    struct buf *out;
    bool origin;
};

static void yaml_end_line(const struct view *v, const struct config_slot *slot, size_t line_start)
{
    if (v->origin) {
        size_t width = v->out->len - line_start;
        buf_printf(v->out, "%*s# ", width < ORIGIN_COLUMN ? (int)(ORIGIN_COLUMN - width) : 2, "");
        origin_print(v->c, slot, v->out);
    }
    buf_byte(v->out, '\n');
}

static void yaml_record(const struct view *v, const struct config_record *record, const char *base,
                        const struct config_slot *slots, int indent, bool item);

static void yaml_records(const struct view *v, const struct config_field *f,
                         const struct config_records *list, const struct config_slot *slot,
                         int indent)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->items + i * f->record->size;
        const struct config_slot *slots = slot->slots + i * f->record->field_count;
        yaml_record(v, f->record, item, slots, indent + 4, true);
    }
}

/* Prints a record. `item`: the first line written gets the dash of a list. An unset text is a comment,
 * which cannot carry the dash. */
static void yaml_record(const struct view *v, const struct config_record *record, const char *base,
                        const struct config_slot *slots, int indent, bool item)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        const char *from = base + f->offset;
        const struct config_records *list = (const void *)from;
        size_t start = v->out->len;
        bool unset = !config_is_record(f) && is_unset(f, from);
        bool empty = f->type == CONFIG_RECORDS && list->count == 0;
        if (unset) {
            buf_printf(v->out, "%*s# %s is not set\n", indent, "", f->name);
            continue;
        }
        buf_printf(v->out, "%*s%s%s:", item ? indent - 2 : indent, "", item ? "- " : "", f->name);
        item = false;
        if (!config_is_record(f)) {
            buf_byte(v->out, ' ');
            yaml_leaf(f, from, v->out);
        } else if (empty) {
            buf_text(v->out, " []");
        }
        if (config_is_record(f) && !empty)
            buf_byte(v->out, '\n');
        else
            yaml_end_line(v, &slots[i], start);
        if (f->type == CONFIG_RECORD)
            yaml_record(v, f->record, from, slots[i].slots, indent + 2, false);
        else if (f->type == CONFIG_RECORDS)
            yaml_records(v, f, list, &slots[i], indent);
    }
    if (item) buf_printf(v->out, "%*s- {}\n", indent - 2, "");
}

/* ---- JSON ---- */

static void json_leaf(struct json_writer *w, const struct config_field *f, const void *from)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    const struct config_texts *texts = from;
    switch (f->type) {
    case CONFIG_BOOL:
        json_put_bool(w, *(const bool *)from);
        return;
    case CONFIG_INT:
        json_put_i64(w, *(const int64_t *)from);
        return;
    case CONFIG_FLOAT:
        json_put_f64(w, *(const double *)from);
        return;
    case CONFIG_TEXTS:
        json_array(w);
        for (size_t i = 0; i < texts->count; i++)
            json_put_str(w, texts->items[i]);
        json_array_end(w);
        return;
    case CONFIG_TEXT:
    case CONFIG_ENUM:
    case CONFIG_DURATION:
    case CONFIG_BYTES:
    case CONFIG_RECORD:
    case CONFIG_RECORDS:
    case CONFIG_TYPE_COUNT:
        break;
    }
    if (is_unset(f, from)) {
        json_put_null(w);
        return;
    }
    if (config_value_print(f, from, &text) < 0) w->out->rc = text.rc;
    json_put_str(w, buf_view(&text));
}

static void json_record(const struct view *v, struct json_writer *w,
                        const struct config_record *record, const char *base,
                        const struct config_slot *slots);

static void json_field(const struct view *v, struct json_writer *w, const struct config_field *f,
                       const char *from, const struct config_slot *slot)
{
    if (f->type == CONFIG_RECORD) {
        json_record(v, w, f->record, from, slot->slots);
        return;
    }
    if (f->type == CONFIG_RECORDS) {
        const struct config_records *list = (const void *)from;
        json_array(w);
        for (size_t i = 0; i < list->count; i++)
            json_record(v, w, f->record, (const char *)list->items + i * f->record->size,
                        slot->slots + i * f->record->field_count);
        json_array_end(w);
        return;
    }
    if (!v->origin) {
        json_leaf(w, f, from);
        return;
    }
    CLEANUP(buf_fini) struct buf origin = { 0 };
    if (origin_print(v->c, slot, &origin) < 0) v->out->rc = origin.rc;
    json_object(w);
    json_key(w, "value");
    json_leaf(w, f, from);
    json_kv_str(w, "origin", buf_view(&origin));
    json_object_end(w);
}

static void json_record(const struct view *v, struct json_writer *w,
                        const struct config_record *record, const char *base,
                        const struct config_slot *slots)
{
    json_object(w);
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        json_key(w, f->name);
        json_field(v, w, f, base + f->offset, &slots[i]);
    }
    json_object_end(w);
}

int config_view(const struct config *c, enum config_form form, bool origin, struct buf *out)
{
    struct view v = { .c = c, .out = out, .origin = origin };
    if (form == CONFIG_YAML) {
        yaml_record(&v, &c->root, c->values, c->slots, 0, false);
    } else {
        struct json_writer w;
        json_writer_init(&w, out);
        json_record(&v, &w, &c->root, c->values, c->slots);
        buf_byte(out, '\n');
    }
    return out->rc;
}

/* ---- one value ---- */

/* Takes "name" or "name[3]" off the path; *ret_index is SIZE_MAX without brackets. */
static int step_take(struct str *path, struct str *ret_name, size_t *ret_index)
{
    struct str step = str_cut(path, '.');
    struct str index = step;
    *ret_name = str_cut(&index, '[');
    *ret_index = SIZE_MAX;
    if (!index.data) return 0;
    uint64_t n;
    if (index.len < 2 || index.data[index.len - 1] != ']') return -EINVAL;
    index.len--;
    if (str_to_u64(index, &n) < 0 || n >= SIZE_MAX) return -EINVAL;
    *ret_index = (size_t)n;
    return 0;
}

struct place {
    const struct config_field *field;
    const char *value;
    const struct config_slot *slot;
};

static int place_find(const struct config *c, const char *path, struct place *ret, struct err *err)
{
    const struct config_record *record = &c->root;
    const char *base = c->values;
    const struct config_slot *slots = c->slots;
    struct str rest = str_from(path);
    for (;;) {
        struct str name;
        size_t index, i;
        if (step_take(&rest, &name, &index) < 0)
            return err_set(err, -EINVAL, "'%s' is not a path such as services[0].name", path);
        const struct config_field *f = config_field_find(record, name, &i);
        if (!f) {
            const char *near = config_field_nearest(record, name);
            return err_set(err, -ENOENT, "%s: no '" STR_FMT "'%s%s%s", path, STR_ARG(name),
                           near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
        }
        *ret = (struct place){ f, base + f->offset, &slots[i] };
        if ((index != SIZE_MAX) != (f->type == CONFIG_RECORDS))
            return err_set(err, -ENOENT, "%s: %s is %s", path, f->name, config_type_text(f->type));
        if (!config_is_record(f)) {
            if (!rest.data) return 0;
            return err_set(err, -ENOENT, "%s: nothing is below %s", path, f->name);
        }
        if (!rest.data) return err_set(err, -ENOENT, "%s: holds several values", path);
        record = f->record;
        base = ret->value;
        slots = ret->slot->slots;
        if (f->type == CONFIG_RECORD) continue;
        const struct config_records *list = (const void *)ret->value;
        if (index >= list->count)
            return err_set(err, -ENOENT, "%s: %s has %zu items", path, f->name, list->count);
        base = (const char *)list->items + index * record->size;
        slots += index * record->field_count;
    }
}

int config_lookup(const struct config *c, const char *path, struct buf *value, struct buf *origin,
                  struct err *err)
{
    struct place p = { 0 };
    int rc = place_find(c, path, &p, err);
    if (rc == 0 && value) rc = config_value_print(p.field, p.value, value);
    if (rc == 0 && origin) rc = origin_print(c, p.slot, origin);
    return rc;
}
