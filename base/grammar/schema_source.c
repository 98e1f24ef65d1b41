/* schema_source.c - reads the text of a schema: values, members, items, references; says where a fault is.
 *
 * The text is read again at each use, so that a schema costs no tree. Reading counts steps, because a small text
 * can refer to itself many times. */
#include "base/grammar/schema_source.h"

#include "base/core/bits.h"
#include "base/core/work.h"

#include <stdio.h>

/* ---- places and messages ---- */

const struct place *place_inside(struct schema *s, const struct place *up, struct str key)
{
    struct place *p = arena_alloc(&s->b->arena, sizeof *p);
    if (!p) {
        builder_fail(s->b, -E2BIG, "the schema needs more memory than one may use");
        return up;
    }
    *p = (struct place){ up, key };
    return p;
}

static const struct place *inside_item(struct schema *s, const struct place *up, uint32_t index)
{
    char text[16];
    snprintf(text, sizeof text, "%u", index);
    return place_inside(s, up, arena_str(&s->b->arena, str_from(text)));
}

void place_put(const struct place *p, struct buf *out)
{
    const struct place *path[SCHEMA_DEPTH_MAX * 4];
    uint32_t count = 0;
    for (; p && p->up; p = p->up) {
        if (count == COUNT_OF(path)) break;
        path[count++] = p;
    }
    buf_byte(out, '#');
    while (count-- > 0) {
        buf_byte(out, '/');
        for (size_t i = 0; i < path[count]->key.len; i++) {
            char c = path[count]->key.data[i];
            buf_text(out, c == '~' ? "~0" : c == '/' ? "~1" : "");
            if (c != '~' && c != '/') buf_byte(out, c);
        }
    }
}

int schema_fail(struct schema *s, int rc, const struct place *place, const char *sentence)
{
    CLEANUP(buf_fini) struct buf pointer = { .max = SCHEMA_POINTER_BYTES };
    if (s->b->rc < 0) return s->b->rc;
    place_put(place, &pointer);
    builder_fail(s->b, rc, "schema %.*s: %s", (int)pointer.len, pointer.data, sentence);
    return rc;
}

int schema_wrong(struct schema *s, const struct place *place, const char *sentence)
{
    return schema_fail(s, -EINVAL, place, sentence);
}

int schema_unserved(struct schema *s, const struct place *place, const char *sentence)
{
    return schema_fail(s, -ENOTSUP, place, sentence);
}

int schema_no_memory(struct schema *s)
{
    builder_fail(s->b, -E2BIG, "the schema needs more memory than one may use");
    return s->b->rc;
}

int schema_steps(struct schema *s, uint32_t count)
{
    s->b->steps += count;
    work_add(count);
    if (s->b->rc == 0 && s->b->steps > GRAMMAR_STEPS_MAX)
        builder_fail(s->b, -E2BIG, "the schema takes more than %u steps to compile",
                     GRAMMAR_STEPS_MAX);
    return s->b->rc;
}

/* ---- values ---- */

enum json_token value_token(struct str raw, struct json_reader *r)
{
    json_reader_init(r, raw);
    return json_next(r);
}

uint32_t value_type(struct str raw)
{
    struct json_reader r;
    int64_t whole;
    switch (value_token(raw, &r)) {
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_NUMBER:
        return json_i64(&r, &whole) == 0 ? TYPE_INTEGER : TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_ERROR:
    case JSON_OBJECT_END:
    case JSON_ARRAY_END:
    case JSON_KEY:
    case JSON_END:
    case JSON_TOKEN_COUNT:
        break;
    }
    return 0;
}

int source_text(struct schema *s, struct source v, struct str *ret)
{
    struct json_reader r;
    if (value_token(v.raw, &r) != JSON_STRING)
        return schema_wrong(s, v.place, "this must be a string");
    return json_text_arena(&r, &s->b->arena, ret) < 0 ? schema_no_memory(s) : 0;
}

int source_count(struct schema *s, struct source v, uint64_t *ret)
{
    struct json_reader r;
    if (value_token(v.raw, &r) != JSON_NUMBER || json_u64(&r, ret) < 0)
        return schema_wrong(s, v.place, "this must be a whole number of at least 0");
    return 0;
}

bool source_next_member(struct schema *s, struct json_reader *r, const struct place *up,
                        struct str *ret_name, struct source *ret)
{
    if (s->b->rc < 0 || json_next(r) != JSON_KEY) return false;
    if (json_text_arena(r, &s->b->arena, ret_name) < 0 || json_raw_value(r, &ret->raw) < 0) {
        schema_no_memory(s);
        return false;
    }
    ret->place = place_inside(s, up, *ret_name);
    schema_steps(s, 4 + (uint32_t)ret->raw.len / 32);
    work_add(ret->raw.len);
    return s->b->rc == 0;
}

bool source_next_item(struct schema *s, struct json_reader *r, const struct place *up,
                      uint32_t *index, struct source *ret)
{
    struct json_reader ahead = *r;
    if (s->b->rc < 0 || json_next(&ahead) == JSON_ARRAY_END) return false;
    if (json_raw_value(r, &ret->raw) < 0) return false;
    ret->place = inside_item(s, up, (*index)++);
    schema_steps(s, 4 + (uint32_t)ret->raw.len / 32);
    work_add(ret->raw.len);
    return s->b->rc == 0;
}

bool source_member(struct schema *s, struct source object, struct str name, struct source *ret)
{
    struct json_reader r;
    struct str key;
    if (value_token(object.raw, &r) != JSON_OBJECT) return false;
    while (source_next_member(s, &r, object.place, &key, ret))
        if (str_eq(key, name)) return true;
    return false;
}

int value_canonical(struct schema *s, struct str raw, struct str *ret)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct json_reader r;
    struct json_writer w;
    json_reader_init(&r, raw);
    json_writer_init(&w, &out);
    for (enum json_token t = json_next(&r); t != JSON_END && t != JSON_ERROR; t = json_next(&r)) {
        buf_clear(&text);
        if (t == JSON_KEY || t == JSON_STRING) json_text(&r, &text);
        switch (t) {
        case JSON_OBJECT:
            json_object(&w);
            break;
        case JSON_OBJECT_END:
            json_object_end(&w);
            break;
        case JSON_ARRAY:
            json_array(&w);
            break;
        case JSON_ARRAY_END:
            json_array_end(&w);
            break;
        case JSON_KEY:
            json_key_str(&w, buf_view(&text));
            break;
        case JSON_STRING:
            json_put_str(&w, buf_view(&text));
            break;
        case JSON_NUMBER:
            json_put_raw(&w, r.raw);
            break;
        case JSON_TRUE:
        case JSON_FALSE:
            json_put_bool(&w, t == JSON_TRUE);
            break;
        case JSON_NULL:
            json_put_null(&w);
            break;
        case JSON_ERROR:
        case JSON_END:
        case JSON_TOKEN_COUNT:
            break;
        }
    }
    schema_steps(s, 4 + (uint32_t)raw.len / 8);
    *ret = arena_str(&s->b->arena, buf_view(&out));
    return out.rc < 0 || text.rc < 0 || !ret->data ? schema_no_memory(s) : 0;
}

bool value_equals(struct schema *s, struct str a, struct str z)
{
    struct json_reader ra, rz;
    double x, y;
    struct str text_a, text_z;
    if (value_token(a, &ra) == JSON_NUMBER && value_token(z, &rz) == JSON_NUMBER &&
        json_f64(&ra, &x) == 0 && json_f64(&rz, &y) == 0)
        return !(x < y) && !(x > y);
    if (value_canonical(s, a, &text_a) < 0 || value_canonical(s, z, &text_z) < 0) return true;
    return str_eq(text_a, text_z);
}

/* ---- references ---- */

/* Undoes ~0, ~1 and %XX of a step of a reference. */
static int unescape_step(struct schema *s, struct str step, struct str *ret)
{
    char *out = arena_alloc(&s->b->arena, step.len + 1);
    size_t len = 0;
    if (!out) return schema_no_memory(s);
    for (size_t i = 0; i < step.len; i++) {
        char c = step.data[i], next = i + 1 < step.len ? step.data[i + 1] : '\0';
        unsigned hex;
        char digits[3] = { next, i + 2 < step.len ? step.data[i + 2] : '\0', '\0' };
        if (c == '~' && (next == '0' || next == '1')) {
            out[len++] = next == '0' ? '~' : '/';
            i++;
        } else if (c == '%' && sscanf(digits, "%2x", &hex) == 1) {
            out[len++] = (char)hex;
            i += 2;
        } else {
            out[len++] = c;
        }
    }
    *ret = str_of(out, len);
    return 0;
}

static bool item_at(struct schema *s, struct source array, struct str step, struct source *ret)
{
    struct json_reader r;
    uint64_t wanted;
    uint32_t index = 0;
    if (value_token(array.raw, &r) != JSON_ARRAY || str_to_u64(step, &wanted) < 0) return false;
    while (source_next_item(s, &r, array.place, &index, ret))
        if (index == wanted + 1) return true;
    return false;
}

int source_reference(struct schema *s, struct source value, struct source *ret)
{
    struct str path, step;
    struct source at = { s->root, place_inside(s, NULL, (struct str){ 0 }) };
    if (source_text(s, value, &path) < 0) return s->b->rc;
    if (path.len == 0 || path.data[0] != '#' || (path.len > 1 && path.data[1] != '/'))
        return schema_unserved(s, value.place,
                               "only references into this schema are supported (#/...)");
    struct str rest = path.len > 1 ? str_of(path.data + 2, path.len - 2) : (struct str){ 0 };
    while (rest.data) {
        struct source next;
        struct str cut = str_cut(&rest, '/');
        if (unescape_step(s, cut, &step) < 0) return s->b->rc;
        if (!source_member(s, at, step, &next) && !item_at(s, at, step, &next))
            return schema_wrong(s, value.place, "there is nothing at this reference");
        at = next;
    }
    *ret = at;
    return s->b->rc;
}
