/* config_view.c - prints a loaded configuration: all of it as YAML or JSON, or one value.
 *
 * The YAML loads back to the same values (the tests do so), therefore texts are quoted wherever plain
 * YAML could read them as something else or libyaml would refuse a raw byte.
 */
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/config/config_value.h"

#include <inttypes.h>

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
