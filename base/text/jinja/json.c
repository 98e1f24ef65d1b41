/* json.c - converts JSON to values, and values to JSON as Python's json.dumps does.
 *
 * Reading marks every string as content by pointing into one array of ones that is as long as
 * the longest string can be; so slices of the strings need no marks of their own. Integers of more
 * than 64 bits become floats; Python would keep them exact.
 *
 * Writing marks all of its output when anything in the value is content: a quote between two
 * marked strings must not be able to complete a marker either.
 */
#include "base/core/json.h"

#include "base/core/bits.h"
#include "base/text/jinja/row.h"
#include "base/text/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct loader {
    struct jinja_run *run;
    struct json_reader reader;
    const uint8_t *ones; /* NULL: not content */
};

static int load_value(struct loader *l, struct jinja_value *ret);

static int load_text(struct loader *l, struct jinja_value *ret)
{
    struct str raw = l->reader.raw;
    struct jinja_text t = { .mark = l->ones, .data = raw.data, .len = raw.len };
    if (l->reader.escaped) {
        void *copy;
        int rc = jinja_alloc(l->run, raw.len, 1, &copy);
        if (rc < 0) return rc;
        t.data = copy;
        t.len = json_unescape_to(raw, copy);
        must(t.len <= raw.len);
    }
    *ret = jinja_string(t);
    return 0;
}

/* Loads a number. With a point or an exponent it is a float even when it is whole. */
static int load_number(struct loader *l, struct jinja_value *ret)
{
    struct str raw = l->reader.raw;
    bool whole = true;
    for (size_t i = 0; i < raw.len; i++)
        if (raw.data[i] == '.' || (raw.data[i] | 32) == 'e') whole = false;
    int64_t i;
    if (whole && json_i64(&l->reader, &i) == 0) {
        *ret = jinja_int(i);
        return 0;
    }
    double d;
    if (json_f64(&l->reader, &d) < 0) return jinja_fail(l->run, -EINVAL, "a number is too large");
    *ret = jinja_float(d);
    return 0;
}

static int load_array(struct loader *l, struct jinja_value *ret)
{
    struct jinja_list *list = NULL;
    int rc = jinja_list_new(l->run, 0, &list);
    while (rc == 0 && json_next(&l->reader) != JSON_ARRAY_END) {
        struct jinja_value item;
        rc = load_value(l, &item);
        if (rc == 0) rc = jinja_list_push(l->run, list, item);
    }
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, list);
    return rc;
}

static int load_object(struct loader *l, struct jinja_value *ret)
{
    struct jinja_dict *dict = NULL;
    int rc = jinja_dict_new(l->run, &dict);
    while (rc == 0 && json_next(&l->reader) == JSON_KEY) {
        struct jinja_value key, value;
        rc = load_text(l, &key);
        json_next(&l->reader);
        if (rc == 0) rc = load_value(l, &value);
        if (rc == 0) rc = jinja_dict_put(l->run, dict, key, value);
    }
    if (rc == 0 && l->reader.token != JSON_OBJECT_END) rc = -EINVAL;
    if (rc == 0) *ret = (struct jinja_value){ .kind = JINJA_DICT, .dict = dict };
    return rc;
}

/* Loads a value; the current token is its first. The reader bounds the depth. */
static int load_value(struct loader *l, struct jinja_value *ret)
{
    int rc = jinja_charge(l->run, 1);
    if (rc < 0) return rc;
    enum json_token token = l->reader.token;
    if (token == JSON_STRING) return load_text(l, ret);
    if (token == JSON_NUMBER) return load_number(l, ret);
    if (token == JSON_ARRAY) return load_array(l, ret);
    if (token == JSON_OBJECT) return load_object(l, ret);
    if (token != JSON_TRUE && token != JSON_FALSE && token != JSON_NULL) return -EINVAL;
    *ret = token == JSON_NULL ? jinja_none() : jinja_bool(token == JSON_TRUE);
    return 0;
}

static int make_ones(struct jinja_run *run, size_t len, const uint8_t **ret)
{
    void *ones;
    int rc = jinja_alloc(run, len, 1, &ones);
    if (rc < 0) return rc;
    memset(ones, 1, len);
    *ret = ones;
    return 0;
}

int jinja_from_json(struct jinja_run *run, struct str json, const char *what, bool marked,
                    struct jinja_value *ret)
{
    struct loader l = { .run = run };
    struct jinja_value v;
    int rc = marked ? make_ones(run, json.len, &l.ones) : 0;
    if (rc < 0) return rc;
    json_reader_init(&l.reader, json);
    json_next(&l.reader);
    rc = load_value(&l, &v);
    if (rc == 0 && json_next(&l.reader) != JSON_END) rc = -EINVAL;
    if (rc == -EINVAL && !run->failed) {
        struct err err = { 0 };
        json_fail(&l.reader, &err, what);
        return jinja_fail(run, -EINVAL, "%s", err.text);
    }
    if (rc == 0) *ret = v;
    return rc;
}

struct dumper {
    struct jinja_builder out;
    const struct jinja_json_style *style;
    uint32_t level;
};

static void dump(struct dumper *d, const struct jinja_value *v);

static void put_unicode_escape(struct dumper *d, uint32_t cp)
{
    char text[16];
    if (cp >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                 0xDC00 + ((cp - 0x10000) & 0x3FF));
    else
        snprintf(text, sizeof text, "\\u%04x", cp);
    jinja_put_text(&d->out, text);
}

static void dump_text(struct dumper *d, struct str s)
{
    static const char specials[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    jinja_put_text(&d->out, "\"");
    size_t done = 0;
    for (size_t at = 0; at < s.len && d->out.rc == 0;) {
        uint32_t cp;
        size_t len = unicode_next(str_of(s.data + at, s.len - at), &cp);
        const char *special = cp > 0 && cp < 128 ? strchr(specials, (int)cp) : NULL;
        bool plain = cp >= 0x20 && !special && (cp < 128 || !d->style->ascii);
        if (plain) {
            at += len;
            continue;
        }
        jinja_put_str(&d->out, str_of(s.data + done, at - done));
        if (special) {
            char pair[2] = { '\\', letters[special - specials] };
            jinja_put_str(&d->out, str_of(pair, 2));
        } else {
            put_unicode_escape(d, cp);
        }
        at += len;
        done = at;
    }
    jinja_put_str(&d->out, str_of(s.data + done, s.len - done));
    jinja_put_text(&d->out, "\"");
}

/* Writes none, booleans and numbers as JSON; false for other values. */
static bool scalar_text(const struct jinja_value *v, char out[JINJA_FLOAT_LEN])
{
    const char *word = NULL;
    if (v->kind == JINJA_NONE) word = "null";
    if (v->kind == JINJA_BOOL) word = v->boolean ? "true" : "false";
    if (v->kind == JINJA_FLOAT && isnan(v->real)) word = "NaN";
    if (v->kind == JINJA_FLOAT && isinf(v->real)) word = v->real < 0 ? "-Infinity" : "Infinity";
    if (word)
        snprintf(out, JINJA_FLOAT_LEN, "%s", word);
    else if (v->kind == JINJA_INT)
        snprintf(out, JINJA_FLOAT_LEN, "%" PRId64, v->integer);
    else if (v->kind == JINJA_FLOAT)
        jinja_float_repr(v->real, out);
    else
        return false;
    return true;
}

static void new_line(struct dumper *d)
{
    if (d->style->indent < 0) return;
    jinja_put_text(&d->out, "\n");
    for (uint32_t i = 0; i < d->level; i++)
        for (int64_t k = 0; k < d->style->indent && d->out.rc == 0; k++)
            jinja_put_text(&d->out, " ");
}

static void separate(struct dumper *d, bool first)
{
    if (!first) jinja_put_text(&d->out, d->style->indent < 0 ? ", " : ",");
    new_line(d);
}

static void dump_list(struct dumper *d, const struct jinja_list *list)
{
    jinja_put_text(&d->out, "[");
    d->level++;
    for (size_t i = 0; i < list->count && d->out.rc == 0; i++) {
        separate(d, i == 0);
        dump(d, &list->items[i]);
    }
    d->level--;
    if (list->count > 0) new_line(d);
    jinja_put_text(&d->out, "]");
}

static void dump_entry(struct dumper *d, const struct jinja_entry *e)
{
    char text[JINJA_FLOAT_LEN];
    if (e->key.kind == JINJA_STRING)
        dump_text(d, jinja_bytes(e->key.text));
    else if (scalar_text(&e->key, text))
        dump_text(d, str_from(text));
    else
        d->out.rc = jinja_type_error(d->out.run, "a JSON key must be a string", &e->key);
    jinja_put_text(&d->out, ": ");
    dump(d, &e->value);
}

static void dump_dict(struct dumper *d, const struct jinja_dict *dict)
{
    jinja_put_text(&d->out, "{");
    d->level++;
    for (size_t i = 0; i < dict->count && d->out.rc == 0; i++) {
        separate(d, i == 0);
        dump_entry(d, &dict->entries[i]);
    }
    d->level--;
    if (dict->count > 0) new_line(d);
    jinja_put_text(&d->out, "}");
}

static void dump(struct dumper *d, const struct jinja_value *v)
{
    char text[JINJA_FLOAT_LEN];
    struct jinja_run *run = d->out.run;
    if (d->out.rc == 0) d->out.rc = jinja_charge(run, 1);
    if (d->out.rc == 0) d->out.rc = jinja_enter(run);
    if (d->out.rc < 0) return;
    if (v->kind == JINJA_STRING)
        dump_text(d, jinja_bytes(v->text));
    else if (v->kind == JINJA_LIST || v->kind == JINJA_TUPLE)
        dump_list(d, v->list);
    else if (v->kind == JINJA_DICT)
        dump_dict(d, v->dict);
    else if (scalar_text(v, text))
        jinja_put_text(&d->out, text);
    else if (v->kind == JINJA_UNDEFINED)
        d->out.rc = jinja_undefined_error(run, v);
    else
        d->out.rc = jinja_type_error(run, "JSON has no such value", v);
    jinja_leave(run);
}

static bool has_mark(struct jinja_run *run, const struct jinja_value *v);

static bool has_mark_inside(struct jinja_run *run, const struct jinja_value *v)
{
    if (v->kind == JINJA_LIST || v->kind == JINJA_TUPLE) {
        for (size_t i = 0; i < v->list->count; i++)
            if (has_mark(run, &v->list->items[i])) return true;
    } else if (v->kind == JINJA_DICT) {
        for (size_t i = 0; i < v->dict->count; i++)
            if (has_mark(run, &v->dict->entries[i].key) ||
                has_mark(run, &v->dict->entries[i].value))
                return true;
    }
    return false;
}

/* Returns true if any string of the value is content. Called only after dump has walked the value within
 * the bounds of depth and steps. */
static bool has_mark(struct jinja_run *run, const struct jinja_value *v)
{
    return v->kind == JINJA_STRING ? jinja_is_marked(v->text) : has_mark_inside(run, v);
}

int jinja_to_json(struct jinja_run *run, const struct jinja_value *v,
                  const struct jinja_json_style *style, struct jinja_value *ret)
{
    struct dumper d = { .out = { .run = run }, .style = style };
    dump(&d, v);
    if (d.out.rc == 0 && has_mark(run, v)) {
        void *marks;
        d.out.rc = jinja_alloc(run, d.out.cap, 1, &marks);
        if (d.out.rc == 0) d.out.mark = memset(marks, 1, d.out.len);
    }
    return jinja_built(&d.out, ret);
}
