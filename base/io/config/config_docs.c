/* config_docs.c - prints the schema: --help, the docs page, a JSON Schema.
 *
 * The JSON Schema accepts what the loader accepts, as far as JSON Schema can say it: bounds of
 * sizes and durations written with units, and keys that must differ, are checked by the loader
 * alone.
 */
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/config/config_value.h"

#include <string.h>

#define HELP_COLUMN 30 /* where sentences start */
#define HELP_WIDTH 100

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
    arena_init(&arena, CONFIG_SCHEMA_BYTES_MAX);
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
