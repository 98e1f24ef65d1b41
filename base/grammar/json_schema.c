/* json_schema.c - turns a JSON Schema into rules, and refuses what it cannot turn.
 *
 *     schema ──► collect: itself, its $ref, its allOf ──► shape ──► one branch for each anyOf / oneOf
 *                                                           └──► one expression for each type
 *
 * A shape holds all restrictions that meet in one value. Properties of merged schemas keep their owners
 * (struct part), because additionalProperties speaks of its own schema's properties only. A schema becomes a
 * rule at its first use, by its place in the text, so recursion through $ref is recursion of rules.
 *
 * The texts described are valid; not every valid text is described. Members come in the order of
 * `properties`, further members behind them; a schema with properties and without additionalProperties gets
 * no further ones; a schema without `type` gets the types that its keywords speak of; all of prefixItems is
 * written. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/map.h"
#include "base/core/work.h"
#include "base/grammar/expr.h"
#include "base/grammar/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PARTS_MAX 16
#define GROUPS_MAX 8
#define BRANCHES_MAX 256
#define REQUIRED_MAX 512
#define VALUES_MAX 4096
#define PROPERTIES_MAX 1024
#define NAME_BYTES_MAX 256 /* of a property, where other names are allowed */
#define COLLECT_DEPTH_MAX 32
#define SHAPE_STEPS 256 /* that one shape costs */
#define WHOLE_MOST 1e15
#define DECIMAL_MOST 999999999.0
#define MILLION 1e6

enum type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8, /* beside TYPE_INTEGER */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127
};

/* A place in the schema, for messages: the keys on the way to it. */
struct place {
    const struct place *up;
    struct str key;
};

/* A value in the schema, and its place. */
struct source {
    struct str raw;
    const struct place *place;
};

enum extra { EXTRA_UNSAID, EXTRA_NONE, EXTRA_SCHEMA };

/* Properties of one schema and what it says of other names. */
struct part {
    struct source properties; /* an object, or empty */
    enum extra extra;
    struct source other;
};

/* The branches of an anyOf or oneOf. */
struct group {
    struct source list;
    bool one;
};

struct shape {
    uint32_t types;
    uint32_t said; /* types that a keyword other than `type` speaks of */
    bool typed, never;
    struct part part[PARTS_MAX];
    uint32_t part_count;
    struct str required[REQUIRED_MAX];
    uint32_t required_count;
    struct source items, prefix;
    uint64_t min_items, max_items, min_length, max_length, min_members, max_members;
    struct source pattern, format;
    struct str *value; /* raw, of enum and const */
    uint32_t value_count;
    bool has_values;
    double low, high; /* infinite: no bound */
    bool low_open, high_open;
    struct group group[GROUPS_MAX];
    uint32_t group_count;
    const struct place *members_place; /* of minProperties or maxProperties */
    const struct place *length_place;  /* of minLength or maxLength */
};

/* A rule whose body is still to be made of these schemas. */
struct todo {
    uint32_t rule;
    struct source *source;
    uint32_t count;
    struct todo *next;
};

struct schema {
    struct builder *b;
    struct str root;
    struct json_rules json;
    struct map rules; /* address of a schema -> rule */
    struct todo *first, **last;
    uint32_t any_key_rest; /* rule: the rest of a member's name; 0: not made yet */
};

/* ---- places and messages ---- */

static const struct place *inside(struct schema *s, const struct place *up, struct str key)
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
    return inside(s, up, arena_str(&s->b->arena, str_from(text)));
}

#define POINTER_BYTES 256

static void put_pointer(const struct place *p, struct buf *out)
{
    const struct place *path[COLLECT_DEPTH_MAX * 4];
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

static int schema_fail(struct schema *s, int rc, const struct place *place, const char *sentence)
{
    CLEANUP(buf_fini) struct buf pointer = { .max = POINTER_BYTES };
    if (s->b->rc < 0) return s->b->rc;
    put_pointer(place, &pointer);
    builder_fail(s->b, rc, "schema %.*s: %s", (int)pointer.len, pointer.data, sentence);
    return rc;
}

static int wrong(struct schema *s, const struct place *place, const char *sentence)
{
    return schema_fail(s, -EINVAL, place, sentence);
}

static int unserved(struct schema *s, const struct place *place, const char *sentence)
{
    return schema_fail(s, -ENOTSUP, place, sentence);
}

static int no_memory(struct schema *s)
{
    builder_fail(s->b, -E2BIG, "the schema needs more memory than one may use");
    return s->b->rc;
}

static int steps(struct schema *s, uint32_t count)
{
    s->b->steps += count;
    work_add(count);
    if (s->b->rc == 0 && s->b->steps > GRAMMAR_STEPS_MAX)
        builder_fail(s->b, -E2BIG, "the schema takes more than %u steps to compile",
                     GRAMMAR_STEPS_MAX);
    return s->b->rc;
}

/* ---- values of the schema's text ---- */

static enum json_token token_of(struct str raw, struct json_reader *r)
{
    json_reader_init(r, raw);
    return json_next(r);
}

static uint32_t type_of_value(struct str raw)
{
    struct json_reader r;
    int64_t whole;
    switch (token_of(raw, &r)) {
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

static int text_of(struct schema *s, struct source v, struct str *ret)
{
    struct json_reader r;
    if (token_of(v.raw, &r) != JSON_STRING) return wrong(s, v.place, "this must be a string");
    return json_text_arena(&r, &s->b->arena, ret) < 0 ? no_memory(s) : 0;
}

static int count_of(struct schema *s, struct source v, uint64_t *ret)
{
    struct json_reader r;
    if (token_of(v.raw, &r) != JSON_NUMBER || json_u64(&r, ret) < 0)
        return wrong(s, v.place, "this must be a whole number of at least 0");
    return 0;
}

/* Reads the next member of an object; false at its end. The reader stands behind the opening bracket. */
static bool next_member(struct schema *s, struct json_reader *r, const struct place *up,
                        struct str *ret_name, struct source *ret)
{
    if (s->b->rc < 0 || json_next(r) != JSON_KEY) return false;
    if (json_text_arena(r, &s->b->arena, ret_name) < 0 || json_raw_value(r, &ret->raw) < 0) {
        no_memory(s);
        return false;
    }
    ret->place = inside(s, up, *ret_name);
    steps(s, 4 + (uint32_t)ret->raw.len / 32);
    work_add(ret->raw.len);
    return s->b->rc == 0;
}

/* Reads the next item of an array; false at its end. */
static bool next_item(struct schema *s, struct json_reader *r, const struct place *up,
                      uint32_t *index, struct source *ret)
{
    struct json_reader ahead = *r;
    if (s->b->rc < 0 || json_next(&ahead) == JSON_ARRAY_END) return false;
    if (json_raw_value(r, &ret->raw) < 0) return false;
    ret->place = inside_item(s, up, (*index)++);
    steps(s, 4 + (uint32_t)ret->raw.len / 32);
    work_add(ret->raw.len);
    return s->b->rc == 0;
}

static bool member(struct schema *s, struct source object, struct str name, struct source *ret)
{
    struct json_reader r;
    struct str key;
    if (token_of(object.raw, &r) != JSON_OBJECT) return false;
    while (next_member(s, &r, object.place, &key, ret))
        if (str_eq(key, name)) return true;
    return false;
}

/* Returns the text of a value without blanks, and with strings written one way. */
static int canonical(struct schema *s, struct str raw, struct str *ret)
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
    steps(s, 4 + (uint32_t)raw.len / 8);
    *ret = arena_str(&s->b->arena, buf_view(&out));
    return out.rc < 0 || text.rc < 0 || !ret->data ? no_memory(s) : 0;
}

/* Returns true if both values are surely equal; numbers count by value. */
static bool same_value(struct schema *s, struct str a, struct str z)
{
    struct json_reader ra, rz;
    double x, y;
    struct str text_a, text_z;
    if (token_of(a, &ra) == JSON_NUMBER && token_of(z, &rz) == JSON_NUMBER &&
        json_f64(&ra, &x) == 0 && json_f64(&rz, &y) == 0)
        return !(x < y) && !(x > y);
    if (canonical(s, a, &text_a) < 0 || canonical(s, z, &text_z) < 0) return true;
    return str_eq(text_a, text_z);
}

/* ---- keywords ---- */

struct visit {
    struct schema *s;
    struct shape *shape;
    struct part *part; /* of the schema at hand; NULL: none yet */
    const struct place *place;
    uint32_t depth;
};

static int collect(struct schema *s, struct shape *shape, struct source source, uint32_t depth);

static struct part *part_of(struct visit *v)
{
    if (v->part) return v->part;
    if (v->shape->part_count == PARTS_MAX) {
        unserved(v->s, v->place, "more than 16 schemas with properties meet in one value");
        return NULL;
    }
    return v->part = &v->shape->part[v->shape->part_count++];
}

static uint32_t type_named(struct str name)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = { { "null", TYPE_NULL },       { "boolean", TYPE_BOOLEAN },
                  { "integer", TYPE_INTEGER }, { "number", TYPE_NUMBER | TYPE_INTEGER },
                  { "string", TYPE_STRING },   { "array", TYPE_ARRAY },
                  { "object", TYPE_OBJECT } };
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (str_eq(name, str_from(types[i].name))) return types[i].type;
    return 0;
}

static int take_type(struct visit *v, struct source value)
{
    static const char sentence[] =
        "a type is one of null, boolean, integer, number, string, array, object";
    struct json_reader r;
    struct str name;
    uint32_t types = 0, index = 0;
    struct source item;
    if (token_of(value.raw, &r) == JSON_STRING) {
        if (text_of(v->s, value, &name) < 0) return v->s->b->rc;
        types = type_named(name);
    } else if (r.token == JSON_ARRAY) {
        while (next_item(v->s, &r, value.place, &index, &item)) {
            if (text_of(v->s, item, &name) < 0) return v->s->b->rc;
            if (!type_named(name)) return wrong(v->s, item.place, sentence);
            types |= type_named(name);
        }
    }
    if (types == 0) return wrong(v->s, value.place, sentence);
    v->shape->types &= types;
    v->shape->typed = true;
    return 0;
}

/* Keeps of the values that the shape has those that are in this list too. */
static int take_values(struct visit *v, const struct str *value, uint32_t count)
{
    struct shape *shape = v->shape;
    struct str *kept = arena_array(&v->s->b->arena, (size_t)count + 1, sizeof *kept);
    uint32_t kept_count = 0;
    if (!kept) return no_memory(v->s);
    for (uint32_t i = 0; i < count; i++) {
        bool stays = !shape->has_values;
        for (uint32_t k = 0; !stays && k < shape->value_count; k++)
            stays = same_value(v->s, value[i], shape->value[k]);
        if (v->s->b->rc < 0) return v->s->b->rc;
        if (stays) kept[kept_count++] = value[i];
    }
    shape->value = kept;
    shape->value_count = kept_count;
    shape->has_values = true;
    return 0;
}

static int take_const(struct visit *v, struct source value)
{
    return take_values(v, &value.raw, 1);
}

static int take_enum(struct visit *v, struct source value)
{
    struct json_reader r;
    struct source item;
    uint32_t count = 0;
    struct str *list = arena_array(&v->s->b->arena, VALUES_MAX, sizeof *list);
    if (!list) return no_memory(v->s);
    if (token_of(value.raw, &r) != JSON_ARRAY)
        return wrong(v->s, value.place, "this must be an array");
    while (next_item(v->s, &r, value.place, &count, &item)) {
        if (count > VALUES_MAX) return unserved(v->s, value.place, "more than 4096 values");
        list[count - 1] = item.raw;
    }
    return v->s->b->rc < 0 ? v->s->b->rc : take_values(v, list, count);
}

static int take_properties(struct visit *v, struct source value)
{
    struct json_reader r;
    struct part *part = part_of(v);
    if (token_of(value.raw, &r) != JSON_OBJECT)
        return wrong(v->s, value.place, "this must be an object");
    if (!part) return v->s->b->rc;
    part->properties = value;
    v->shape->said |= TYPE_OBJECT;
    return 0;
}

static int take_additional(struct visit *v, struct source value)
{
    struct part *part = part_of(v);
    if (!part) return v->s->b->rc;
    part->extra = str_eq(value.raw, STR("false")) ? EXTRA_NONE : EXTRA_SCHEMA;
    part->other = value;
    v->shape->said |= TYPE_OBJECT;
    return 0;
}

static int take_required(struct visit *v, struct source value)
{
    struct json_reader r;
    struct source item;
    struct str name;
    uint32_t index = 0;
    struct shape *shape = v->shape;
    if (token_of(value.raw, &r) != JSON_ARRAY)
        return wrong(v->s, value.place, "this must be an array");
    shape->said |= TYPE_OBJECT;
    while (next_item(v->s, &r, value.place, &index, &item)) {
        bool known = false;
        if (text_of(v->s, item, &name) < 0) return v->s->b->rc;
        for (uint32_t i = 0; i < shape->required_count && !known; i++)
            known = str_eq(shape->required[i], name);
        steps(v->s, shape->required_count / 8);
        if (known) continue;
        if (shape->required_count == REQUIRED_MAX)
            return unserved(v->s, value.place, "more than 512 names are required");
        shape->required[shape->required_count++] = name;
    }
    return v->s->b->rc;
}

static int take_items(struct visit *v, struct source value)
{
    struct json_reader r;
    v->shape->said |= TYPE_ARRAY;
    if (token_of(value.raw, &r) == JSON_ARRAY)
        return unserved(v->s, value.place, "an array of schemas is not supported; say prefixItems");
    if (v->shape->items.raw.len > 0)
        return unserved(v->s, value.place, "items of two schemas meet in one value");
    v->shape->items = value;
    return 0;
}

static int take_prefix_items(struct visit *v, struct source value)
{
    struct json_reader r;
    v->shape->said |= TYPE_ARRAY;
    if (token_of(value.raw, &r) != JSON_ARRAY)
        return wrong(v->s, value.place, "this must be an array");
    if (v->shape->prefix.raw.len > 0)
        return unserved(v->s, value.place, "prefixItems of two schemas meet in one value");
    v->shape->prefix = value;
    return 0;
}

static int take_min(struct visit *v, struct source value, uint64_t *to)
{
    uint64_t n;
    if (count_of(v->s, value, &n) < 0) return v->s->b->rc;
    *to = max_u64(*to, n);
    return 0;
}

static int take_max(struct visit *v, struct source value, uint64_t *to)
{
    uint64_t n;
    if (count_of(v->s, value, &n) < 0) return v->s->b->rc;
    *to = min_u64(*to, n);
    return 0;
}

static int take_min_items(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_ARRAY;
    return take_min(v, value, &v->shape->min_items);
}

static int take_max_items(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_ARRAY;
    return take_max(v, value, &v->shape->max_items);
}

static int take_min_length(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_STRING;
    v->shape->length_place = value.place;
    return take_min(v, value, &v->shape->min_length);
}

static int take_max_length(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_STRING;
    v->shape->length_place = value.place;
    return take_max(v, value, &v->shape->max_length);
}

static int take_min_members(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_OBJECT;
    v->shape->members_place = value.place;
    return take_min(v, value, &v->shape->min_members);
}

static int take_max_members(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_OBJECT;
    v->shape->members_place = value.place;
    return take_max(v, value, &v->shape->max_members);
}

static int take_pattern(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_STRING;
    if (v->shape->pattern.raw.len > 0)
        return unserved(v->s, value.place, "two patterns meet in one value");
    v->shape->pattern = value;
    return 0;
}

static int take_format(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_STRING;
    if (v->shape->format.raw.len > 0)
        return unserved(v->s, value.place, "two formats meet in one value");
    v->shape->format = value;
    return 0;
}

static int number_of(struct visit *v, struct source value, double *ret)
{
    struct json_reader r;
    v->shape->said |= TYPE_INTEGER | TYPE_NUMBER;
    if (token_of(value.raw, &r) != JSON_NUMBER || json_f64(&r, ret) < 0)
        return wrong(v->s, value.place, "this must be a number");
    return 0;
}

static int take_low(struct visit *v, struct source value, bool open)
{
    double x;
    struct shape *shape = v->shape;
    if (number_of(v, value, &x) < 0) return v->s->b->rc;
    if (x < shape->low) return 0;
    shape->low_open = open || (shape->low_open && !(x > shape->low));
    shape->low = x;
    return 0;
}

static int take_high(struct visit *v, struct source value, bool open)
{
    double x;
    struct shape *shape = v->shape;
    if (number_of(v, value, &x) < 0) return v->s->b->rc;
    if (x > shape->high) return 0;
    shape->high_open = open || (shape->high_open && !(x < shape->high));
    shape->high = x;
    return 0;
}

static int take_minimum(struct visit *v, struct source value)
{
    return take_low(v, value, false);
}

static int take_exclusive_minimum(struct visit *v, struct source value)
{
    return take_low(v, value, true);
}

static int take_maximum(struct visit *v, struct source value)
{
    return take_high(v, value, false);
}

static int take_exclusive_maximum(struct visit *v, struct source value)
{
    return take_high(v, value, true);
}

static int take_all_of(struct visit *v, struct source value)
{
    struct json_reader r;
    struct source item;
    uint32_t index = 0;
    if (token_of(value.raw, &r) != JSON_ARRAY)
        return wrong(v->s, value.place, "this must be an array");
    while (next_item(v->s, &r, value.place, &index, &item))
        if (collect(v->s, v->shape, item, v->depth + 1) < 0) break;
    return v->s->b->rc;
}

static int take_group(struct visit *v, struct source value, bool one)
{
    struct json_reader r;
    if (token_of(value.raw, &r) != JSON_ARRAY || json_next(&r) == JSON_ARRAY_END)
        return wrong(v->s, value.place, "this must be an array of at least one schema");
    if (v->shape->group_count == GROUPS_MAX)
        return unserved(v->s, value.place, "more than 8 anyOf and oneOf meet in one value");
    v->shape->group[v->shape->group_count++] = (struct group){ value, one };
    return 0;
}

static int take_any_of(struct visit *v, struct source value)
{
    return take_group(v, value, false);
}

static int take_one_of(struct visit *v, struct source value)
{
    return take_group(v, value, true);
}

/* Undoes ~0, ~1 and %XX of a step of a reference. */
static int unescape_step(struct schema *s, struct str step, struct str *ret)
{
    char *out = arena_alloc(&s->b->arena, step.len + 1);
    size_t len = 0;
    if (!out) return no_memory(s);
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
    if (token_of(array.raw, &r) != JSON_ARRAY || str_to_u64(step, &wanted) < 0) return false;
    while (next_item(s, &r, array.place, &index, ret))
        if (index == wanted + 1) return true;
    return false;
}

static int find_reference(struct schema *s, struct source value, struct source *ret)
{
    struct str path, step;
    struct source at = { s->root, inside(s, NULL, (struct str){ 0 }) };
    if (text_of(s, value, &path) < 0) return s->b->rc;
    if (path.len == 0 || path.data[0] != '#' || (path.len > 1 && path.data[1] != '/'))
        return unserved(s, value.place, "only references into this schema are supported (#/...)");
    struct str rest = path.len > 1 ? str_of(path.data + 2, path.len - 2) : (struct str){ 0 };
    while (rest.data) {
        struct source next;
        struct str cut = str_cut(&rest, '/');
        if (unescape_step(s, cut, &step) < 0) return s->b->rc;
        if (!member(s, at, step, &next) && !item_at(s, at, step, &next))
            return wrong(s, value.place, "there is nothing at this reference");
        at = next;
    }
    *ret = at;
    return s->b->rc;
}

static int take_ref(struct visit *v, struct source value)
{
    struct source target;
    if (find_reference(v->s, value, &target) < 0) return v->s->b->rc;
    return collect(v->s, v->shape, target, v->depth + 1);
}

static int take_false_only(struct visit *v, struct source value)
{
    if (str_eq(value.raw, STR("false"))) return 0;
    return unserved(v->s, value.place, "this keyword is not supported");
}

static int take_id(struct visit *v, struct source value)
{
    if (!v->place->up) return 0;
    return unserved(v->s, value.place, "$id is supported at the root only");
}

static const struct keyword {
    const char *name;
    int (*take)(struct visit *v, struct source value); /* NULL: it restricts nothing */
} keywords[] = {
    { "type", take_type },
    { "properties", take_properties },
    { "required", take_required },
    { "additionalProperties", take_additional },
    { "items", take_items },
    { "prefixItems", take_prefix_items },
    { "minItems", take_min_items },
    { "maxItems", take_max_items },
    { "enum", take_enum },
    { "const", take_const },
    { "anyOf", take_any_of },
    { "oneOf", take_one_of },
    { "allOf", take_all_of },
    { "$ref", take_ref },
    { "minLength", take_min_length },
    { "maxLength", take_max_length },
    { "pattern", take_pattern },
    { "format", take_format },
    { "minimum", take_minimum },
    { "maximum", take_maximum },
    { "exclusiveMinimum", take_exclusive_minimum },
    { "exclusiveMaximum", take_exclusive_maximum },
    { "minProperties", take_min_members },
    { "maxProperties", take_max_members },
    { "uniqueItems", take_false_only },
    { "$id", take_id },
    { "$defs", NULL },
    { "definitions", NULL },
    { "$schema", NULL },
    { "$comment", NULL },
    { "$anchor", NULL },
    { "title", NULL },
    { "description", NULL },
    { "default", NULL },
    { "example", NULL },
    { "examples", NULL },
    { "deprecated", NULL },
    { "readOnly", NULL },
    { "writeOnly", NULL },
    { "contentEncoding", NULL },
    { "contentMediaType", NULL },
    { "discriminator", NULL },
};

static const struct keyword *find_keyword(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(keywords); i++)
        if (str_eq(name, str_from(keywords[i].name))) return &keywords[i];
    return NULL;
}

/* Adds all that a schema says to the shape. */
static int collect(struct schema *s, struct shape *shape, struct source source, uint32_t depth)
{
    struct json_reader r;
    struct visit v = { .s = s, .shape = shape, .place = source.place, .depth = depth };
    struct str name;
    struct source value;
    if (depth > COLLECT_DEPTH_MAX)
        return schema_fail(
            s, -E2BIG, source.place,
            "more than 32 $ref and allOf lead to one value, or they run in a circle");
    if (steps(s, SHAPE_STEPS) < 0) return s->b->rc;
    enum json_token t = token_of(source.raw, &r);
    if (t == JSON_TRUE) return 0;
    if (t == JSON_FALSE) {
        shape->never = true;
        return 0;
    }
    if (t != JSON_OBJECT) return wrong(s, source.place, "a schema is an object, true or false");
    while (next_member(s, &r, source.place, &name, &value)) {
        const struct keyword *k = find_keyword(name);
        bool ours = k || str_starts(name, STR("x-"));
        if (!ours) return unserved(s, value.place, "this keyword is not supported");
        if (k && k->take && k->take(&v, value) < 0) return s->b->rc;
    }
    return s->b->rc;
}

/* ---- rules ---- */

static int add_todo(struct schema *s, uint32_t rule, const struct source *source, uint32_t count)
{
    struct todo *t = arena_alloc(&s->b->arena, sizeof *t);
    struct source *copy = arena_array(&s->b->arena, count, sizeof *copy);
    if (!t || !copy) return no_memory(s);
    memcpy(copy, source, count * sizeof *copy);
    *t = (struct todo){ .rule = rule, .source = copy, .count = count };
    *s->last = t;
    s->last = &t->next;
    return 0;
}

/* Returns a call of the rule for a value that satisfies all of the schemas. */
static const struct expr *value_of(struct schema *s, const struct source *source, uint32_t count)
{
    bool is_new = true;
    uint64_t key = count == 1 ? (uint64_t)(uintptr_t)source->raw.data : 0;
    uint32_t made = 0, *rule = count == 1 ? map_put(&s->rules, &key, &is_new) : &made;
    if (count == 0) return json_part(s->b, &s->json, JSON_PART_VALUE);
    if (!rule) {
        no_memory(s);
        return expr_nothing(s->b);
    }
    if (is_new) {
        *rule = rule_add(s->b, (struct str){ 0 });
        if (add_todo(s, *rule, source, count) < 0) return expr_nothing(s->b);
    }
    return expr_call(s->b, *rule);
}

/* ---- scalars ---- */

static const struct expr *quoted(struct builder *b, const struct expr *x)
{
    const struct expr *quote = expr_text(b, "\"");
    return EXPR_SEQ_OF(b, quote, x, quote);
}

/* Dates keep to days that every year has. */
#define DATE_TEXT                                               \
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|" \
    "(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME_TEXT                                                                                  \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")"
#define BYTE_TEXT "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL_TEXT "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"

static const struct {
    const char *name, *regex;
} formats[] = {
    { "date", DATE_TEXT },
    { "time", TIME_TEXT },
    { "date-time", DATE_TEXT "T" TIME_TEXT },
    { "uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}" },
    { "ipv4", "(" BYTE_TEXT "\\.){3}" BYTE_TEXT },
    { "hostname", LABEL_TEXT "(\\." LABEL_TEXT "){0,4}" },
    { "email",
      "[a-z0-9_]{1,32}([.+-][a-z0-9_]{1,16}){0,2}@" LABEL_TEXT "(\\." LABEL_TEXT "){1,3}" },
};

static const struct expr *format_expr(struct schema *s, struct source format)
{
    struct str name;
    if (text_of(s, format, &name) < 0) return expr_nothing(s->b);
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (str_eq(name, str_from(formats[i].name)))
            return quoted(s->b, regex_expr(s->b, str_from(formats[i].regex), true, false));
    unserved(
        s, format.place,
        "this format is not supported; date, time, date-time, uuid, ipv4, hostname and email are");
    return expr_nothing(s->b);
}

static const struct expr *pattern_expr(struct schema *s, struct source pattern)
{
    struct builder *b = s->b;
    struct str text;
    if (text_of(s, pattern, &text) < 0) return expr_nothing(b);
    const struct expr *x = regex_expr(b, text, true, true);
    if (b->rc == -EINVAL || b->rc == -ENOTSUP) {
        CLEANUP(buf_fini) struct buf pointer = { .max = POINTER_BYTES };
        put_pointer(pattern.place, &pointer);
        err_prefix(b->err, b->rc, "schema %.*s", (int)pointer.len, pointer.data);
    }
    return quoted(b, x);
}

static uint32_t bound_of(uint64_t most)
{
    return most == UINT64_MAX ? EXPR_FOREVER
                              : (uint32_t)min_u64(most, (uint64_t)GRAMMAR_REPEAT_MAX + 1);
}

static const struct expr *string_expr(struct schema *s, const struct shape *shape)
{
    struct builder *b = s->b;
    bool bounded = shape->min_length > 0 || shape->max_length < UINT64_MAX;
    bool has_pattern = shape->pattern.raw.len > 0, has_format = shape->format.raw.len > 0;
    if ((has_pattern || has_format) && (bounded || (has_pattern && has_format))) {
        unserved(
            s, has_pattern ? shape->pattern.place : shape->format.place,
            "only one of pattern, format and a bound on the length is supported for one value");
        return expr_nothing(b);
    }
    if (has_pattern) return pattern_expr(s, shape->pattern);
    if (has_format) return format_expr(s, shape->format);
    if (!bounded) return json_part(b, &s->json, JSON_PART_STRING);
    return quoted(b, expr_repeat(b, json_part(b, &s->json, JSON_PART_CHAR),
                                 (uint32_t)min_u64(shape->min_length, GRAMMAR_REPEAT_MAX + 1),
                                 bound_of(shape->max_length)));
}

static const struct expr *whole_expr(struct schema *s, const struct shape *shape,
                                     const struct place *place)
{
    double low = fmax(shape->low, -WHOLE_MOST), high = fmin(shape->high, WHOLE_MOST);
    if (shape->low > WHOLE_MOST || shape->high < -WHOLE_MOST) {
        unserved(s, place, "bounds of whole numbers beyond 1e15 are not supported");
        return expr_nothing(s->b);
    }
    int64_t from = (int64_t)ceil(low), to = (int64_t)floor(high);
    if (shape->low_open && !((double)from > low)) from++;
    if (shape->high_open && !((double)to < high)) to--;
    return from > to ? expr_nothing(s->b) : json_whole_between(s->b, from, to);
}

static const struct expr *decimal_expr(struct schema *s, const struct shape *shape,
                                       const struct place *place)
{
    double low = fmax(shape->low, -DECIMAL_MOST), high = fmin(shape->high, DECIMAL_MOST);
    double from = nearbyint(low * MILLION), to = nearbyint(high * MILLION);
    bool exact = !(from / MILLION < low) && !(from / MILLION > low) && !(to / MILLION < high) &&
                 !(to / MILLION > high);
    if (shape->low > DECIMAL_MOST || shape->high < -DECIMAL_MOST || !exact) {
        unserved(
            s, place,
            "bounds of numbers are supported up to 999999999, with six digits behind the point");
        return expr_nothing(s->b);
    }
    int64_t first = (int64_t)from + (shape->low_open && shape->low >= low);
    int64_t last = (int64_t)to - (shape->high_open && shape->high <= high);
    return first > last ? expr_nothing(s->b) : json_millionths_between(s->b, first, last);
}

static const struct expr *number_expr(struct schema *s, const struct shape *shape, uint32_t types,
                                      const struct place *place)
{
    bool bounded = isfinite(shape->low) || isfinite(shape->high), whole = !(types & TYPE_NUMBER);
    if (!bounded) return json_part(s->b, &s->json, whole ? JSON_PART_INTEGER : JSON_PART_NUMBER);
    return whole ? whole_expr(s, shape, place) : decimal_expr(s, shape, place);
}

/* ---- arrays ---- */

static const struct expr *comma(struct schema *s)
{
    return EXPR_SEQ_OF(s->b, expr_text(s->b, ","), json_part(s->b, &s->json, JSON_PART_SPACE));
}

static const struct expr *brackets(struct schema *s, const char *open, const struct expr *x,
                                   const char *close)
{
    struct builder *b = s->b;
    return EXPR_SEQ_OF(b, expr_text(b, open), json_part(b, &s->json, JSON_PART_SPACE), x,
                       expr_text(b, close));
}

/* Items of one schema, from `min` to `max` of them, behind others or not. */
static const struct expr *item_list(struct schema *s, const struct expr *item, bool behind,
                                    uint64_t min, uint64_t max)
{
    struct builder *b = s->b;
    const struct expr *more = EXPR_SEQ_OF(b, comma(s), item);
    uint32_t low = (uint32_t)min_u64(min, GRAMMAR_REPEAT_MAX + 1), high = bound_of(max);
    if (behind) return expr_repeat(b, more, low, high);
    if (high == 0) return low == 0 ? expr_empty(b) : expr_nothing(b);
    uint32_t high_more = high == EXPR_FOREVER ? EXPR_FOREVER : high - 1;
    const struct expr *list =
        EXPR_SEQ_OF(b, item, expr_repeat(b, more, low > 0 ? low - 1 : 0, high_more));
    return low > 0 ? list : expr_optional(b, list);
}

static const struct expr *array_expr(struct schema *s, const struct shape *shape)
{
    struct builder *b = s->b;
    struct json_reader r;
    struct source item;
    struct expr_items items = { 0 };
    uint32_t index = 0;
    uint64_t min = shape->min_items, max = shape->max_items;
    bool said = shape->items.raw.len > 0, has_prefix = shape->prefix.raw.len > 0;
    if (min > max) return expr_nothing(b);
    if (has_prefix) token_of(shape->prefix.raw, &r);
    while (has_prefix && index < max && next_item(s, &r, shape->prefix.place, &index, &item)) {
        if (index > 1) expr_push(b, &items, comma(s));
        expr_push(b, &items, value_of(s, &item, 1));
    }
    uint64_t rest_min = min > index ? min - index : 0;
    uint64_t rest_max = has_prefix && !said ? rest_min : max == UINT64_MAX ? max : max - index;
    const struct expr *one =
        said ? value_of(s, &shape->items, 1) : json_part(b, &s->json, JSON_PART_VALUE);
    if (rest_max > 0) expr_push(b, &items, item_list(s, one, index > 0, rest_min, rest_max));
    expr_push(b, &items, json_part(b, &s->json, JSON_PART_SPACE));
    if (b->rc < 0) return expr_nothing(b);
    return brackets(s, "[", expr_of(b, EXPR_SEQ, &items), "]");
}

/* ---- objects ---- */

struct property {
    struct str name;
    const struct expr *member; /* name, colon, value */
    bool required;
};

struct members {
    struct property *property;
    uint32_t count, required;
};

/* Makes the member of a name: its value satisfies what each part says of it. Returns NULL where a part
 * forbids it. `found`: what part `from` says of it, or NULL. */
static const struct expr *member_expr(struct schema *s, const struct shape *shape, struct str name,
                                      uint32_t from, const struct source *found)
{
    struct source source[PARTS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < shape->part_count; i++) {
        const struct part *p = &shape->part[i];
        struct source own;
        if (found && i == from)
            source[count++] = *found;
        else if (p->properties.raw.len > 0 && member(s, p->properties, name, &own))
            source[count++] = own;
        else if (p->extra == EXTRA_NONE)
            return NULL;
        else if (p->extra == EXTRA_SCHEMA)
            source[count++] = p->other;
    }
    return EXPR_SEQ_OF(s->b, json_literal(s->b, name), expr_text(s->b, ":"),
                       json_part(s->b, &s->json, JSON_PART_SPACE), value_of(s, source, count));
}

static bool is_required(const struct shape *shape, struct str name)
{
    for (uint32_t i = 0; i < shape->required_count; i++)
        if (str_eq(shape->required[i], name)) return true;
    return false;
}

static int add_property(struct schema *s, const struct shape *shape, struct str name, uint32_t from,
                        const struct source *found, struct members *m)
{
    steps(s, 4 + (m->count + shape->required_count) / 8);
    for (uint32_t i = 0; i < m->count; i++)
        if (str_eq(m->property[i].name, name)) return 0;
    if (m->count == PROPERTIES_MAX) {
        builder_fail(s->b, -E2BIG, "the schema has an object of more than %d properties",
                     PROPERTIES_MAX);
        return s->b->rc;
    }
    bool required = is_required(shape, name);
    const struct expr *x = member_expr(s, shape, name, from, found);
    if (!x && !required) return s->b->rc; /* a part forbids it, and none asks for it */
    m->property[m->count++] = (struct property){ name, x ? x : expr_nothing(s->b), required };
    m->required += required;
    return s->b->rc;
}

static int find_members(struct schema *s, const struct shape *shape, struct members *m)
{
    struct json_reader r;
    struct str name;
    struct source value;
    m->property = arena_array(&s->b->arena, PROPERTIES_MAX, sizeof *m->property);
    if (!m->property) return no_memory(s);
    for (uint32_t i = 0; i < shape->part_count; i++) {
        if (token_of(shape->part[i].properties.raw, &r) != JSON_OBJECT) continue;
        while (next_member(s, &r, shape->part[i].properties.place, &name, &value))
            if (add_property(s, shape, name, i, &value, m) < 0) return s->b->rc;
    }
    for (uint32_t i = 0; i < shape->required_count; i++)
        if (add_property(s, shape, shape->required[i], 0, NULL, m) < 0) return s->b->rc;
    return s->b->rc;
}

/* ---- names of further members ---- */

static const struct expr *any_rest(struct schema *s)
{
    struct builder *b = s->b;
    if (s->any_key_rest == 0) {
        s->any_key_rest = rule_add(b, (struct str){ 0 });
        const struct expr *one = json_char_expr(b, code_set_make(b, NULL, 0, true));
        rule_set(b, s->any_key_rest, expr_repeat(b, one, 0, EXPR_FOREVER));
    }
    return expr_call(b, s->any_key_rest);
}

static int compare_names(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

/* The texts that are none of the sorted names, which agree in their first `at` bytes, from there on. Each
 * character is written one way only, so that no name hides behind an escape. */
static const struct expr *other_names(struct schema *s, const struct str *name, uint32_t count,
                                      size_t at)
{
    struct builder *b = s->b;
    struct expr_items items = { 0 };
    struct code_range *next = arena_array(&b->arena, count + 1, sizeof *next);
    uint32_t next_count = 0, i = 0;
    if (!next || steps(s, 4 + count) < 0) {
        if (!next) no_memory(s);
        return expr_nothing(b);
    }
    if (name[0].len == at)
        i++; /* a name ends here: the text may not */
    else
        expr_push(b, &items, expr_empty(b));
    while (i < count && b->rc == 0) {
        uint32_t c, other, from = i;
        size_t len = utf8_decode(str_of(name[i].data + at, name[i].len - at), &c);
        for (; i < count; i++) {
            utf8_decode(str_of(name[i].data + at, name[i].len - at), &other);
            if (other != c) break;
        }
        next[next_count++] = (struct code_range){ c, c };
        uint32_t rule = rule_add(b, (struct str){ 0 });
        rule_set(b, rule, other_names(s, name + from, i - from, at + len));
        struct code_set one = { &next[next_count - 1], 1 };
        expr_push(b, &items, EXPR_SEQ_OF(b, json_char_expr(b, one), expr_call(b, rule)));
    }
    struct code_set others = code_set_make(b, next, next_count, true);
    expr_push(b, &items, EXPR_SEQ_OF(b, json_char_expr(b, others), any_rest(s)));
    return b->rc == 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
}

/* A member whose name is none of the properties; NULL: there may be none. */
static const struct expr *further_member(struct schema *s, const struct shape *shape,
                                         const struct members *m)
{
    struct builder *b = s->b;
    struct source source[PARTS_MAX];
    uint32_t count = 0;
    bool asked = false, has_properties = false;
    for (uint32_t i = 0; i < shape->part_count; i++) {
        const struct part *p = &shape->part[i];
        if (p->extra == EXTRA_NONE) return NULL;
        asked = asked || p->extra == EXTRA_SCHEMA;
        has_properties = has_properties || p->properties.raw.len > 0;
        if (p->extra == EXTRA_SCHEMA) source[count++] = p->other;
    }
    if (!asked && (has_properties || m->count > 0)) return NULL;
    struct str *name = arena_array(&b->arena, (size_t)m->count + 1, sizeof *name);
    if (!name) {
        no_memory(s);
        return NULL;
    }
    for (uint32_t i = 0; i < m->count; i++) {
        name[i] = m->property[i].name;
        if (name[i].len > NAME_BYTES_MAX || !str_utf8_valid(name[i])) {
            unserved(s, shape->part[0].properties.place,
                     "a name of more than 256 bytes beside additionalProperties is not supported");
            return NULL;
        }
    }
    qsort(name, m->count, sizeof *name, compare_names);
    const struct expr *text = m->count > 0 ? other_names(s, name, m->count, 0) : any_rest(s);
    return EXPR_SEQ_OF(b, quoted(b, text), expr_text(b, ":"),
                       json_part(b, &s->json, JSON_PART_SPACE), value_of(s, source, count));
}

/* Chains the members: behind[i] is what may follow before member i where one was written already,
 * front[i] where none was. Both are rules, so the chain costs a few edges a member and not a power of two. */
static const struct expr *member_chain(struct schema *s, const struct members *m,
                                       const struct expr *further)
{
    struct builder *b = s->b;
    const struct expr *space = json_part(b, &s->json, JSON_PART_SPACE);
    const struct expr *behind = space, *front = expr_empty(b);
    if (further) {
        const struct expr *more = EXPR_SEQ_OF(b, comma(s), further);
        behind = EXPR_SEQ_OF(b, expr_repeat(b, more, 0, EXPR_FOREVER), space);
        front = expr_optional(b, EXPR_SEQ_OF(b, further, behind));
    }
    for (uint32_t i = m->count; i-- > 0 && b->rc == 0;) {
        const struct property *p = &m->property[i];
        uint32_t rule = rule_add(b, (struct str){ 0 });
        rule_set(b, rule, behind);
        const struct expr *after = expr_call(b, rule);
        const struct expr *later = EXPR_SEQ_OF(b, comma(s), p->member, after);
        const struct expr *first = EXPR_SEQ_OF(b, p->member, after);
        rule = rule_add(b, (struct str){ 0 });
        rule_set(b, rule, front);
        front = p->required ? first : EXPR_ALT_OF(b, first, expr_call(b, rule));
        behind = p->required ? later : EXPR_ALT_OF(b, later, after);
    }
    return front;
}

static const struct expr *object_expr(struct schema *s, const struct shape *shape)
{
    struct builder *b = s->b;
    struct members m = { 0 };
    if (shape->part_count == 0 && shape->required_count == 0 && shape->min_members == 0 &&
        shape->max_members == UINT64_MAX)
        return json_part(b, &s->json, JSON_PART_OBJECT);
    if (find_members(s, shape, &m) < 0) return expr_nothing(b);
    const struct expr *further = further_member(s, shape, &m);
    if (shape->min_members > m.required || (further && shape->max_members < UINT64_MAX) ||
        shape->max_members < m.count) {
        unserved(s, shape->members_place,
                 "a bound on the count of members is supported only where required and properties "
                 "satisfy it anyway");
        return expr_nothing(b);
    }
    return brackets(s, "{", member_chain(s, &m, further), "}");
}

/* ---- values and branches ---- */

static const struct expr *values_expr(struct schema *s, const struct shape *shape,
                                      const struct place *place)
{
    struct str *text = arena_array(&s->b->arena, (size_t)shape->value_count + 1, sizeof *text);
    uint32_t count = 0;
    if (!text) {
        no_memory(s);
        return expr_nothing(s->b);
    }
    for (uint32_t i = 0; i < shape->value_count; i++) {
        uint32_t type = type_of_value(shape->value[i]);
        if (!(shape->types & type)) continue;
        if (shape->said & type) {
            unserved(s, place,
                     "enum or const beside other restrictions of the same type is not supported");
            return expr_nothing(s->b);
        }
        if (canonical(s, shape->value[i], &text[count]) < 0) return expr_nothing(s->b);
        count++;
    }
    return count > 0 ? expr_strings(s->b, text, count) : expr_nothing(s->b);
}

static uint32_t types_written(const struct shape *shape)
{
    uint32_t types = 0;
    for (uint32_t i = 0; shape->has_values && i < shape->value_count; i++)
        types |= shape->types & type_of_value(shape->value[i]);
    if (shape->has_values) return types;
    return !shape->typed && shape->said ? shape->types & shape->said : shape->types;
}

static const struct expr *typed_expr(struct schema *s, const struct shape *shape,
                                     const struct place *place)
{
    struct builder *b = s->b;
    struct expr_items items = { 0 };
    uint32_t types = types_written(shape);
    if (shape->never) return expr_nothing(b);
    if (shape->has_values) return values_expr(s, shape, place);
    if (types == TYPE_ALL && !shape->said) return json_part(b, &s->json, JSON_PART_VALUE);
    if (types & TYPE_OBJECT) expr_push(b, &items, object_expr(s, shape));
    if (types & TYPE_ARRAY) expr_push(b, &items, array_expr(s, shape));
    if (types & TYPE_STRING) expr_push(b, &items, string_expr(s, shape));
    if (types & (TYPE_NUMBER | TYPE_INTEGER))
        expr_push(b, &items, number_expr(s, shape, types, place));
    if (types & TYPE_BOOLEAN)
        expr_push(b, &items, EXPR_ALT_OF(b, expr_text(b, "true"), expr_text(b, "false")));
    if (types & TYPE_NULL) expr_push(b, &items, expr_text(b, "null"));
    return b->rc == 0 && items.count > 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
}

static void shape_init(struct shape *shape)
{
    *shape = (struct shape){ .types = TYPE_ALL,
                             .max_items = UINT64_MAX,
                             .max_length = UINT64_MAX,
                             .max_members = UINT64_MAX,
                             .low = -INFINITY,
                             .high = INFINITY };
}

static bool values_meet(struct schema *s, const struct shape *a, const struct shape *z)
{
    if (!a->has_values || !z->has_values) return true;
    for (uint32_t i = 0; i < a->value_count; i++)
        for (uint32_t k = 0; k < z->value_count; k++) {
            if (steps(s, 8) < 0 || same_value(s, a->value[i], z->value[k])) return true;
        }
    return false;
}

/* Returns true if a required property tells the objects of both shapes apart: its values never meet. */
static bool tag_parts(struct schema *s, const struct shape *a, const struct shape *z)
{
    bool parted = false;
    struct shape *of = calloc(2, sizeof *of);
    const struct shape *both[2] = { a, z };
    if (!of) no_memory(s);
    for (uint32_t i = 0; of && i < a->required_count && !parted && s->b->rc == 0; i++) {
        uint32_t found = 0;
        if (!is_required(z, a->required[i])) continue;
        for (uint32_t side = 0; side < 2; side++) {
            shape_init(&of[side]);
            for (uint32_t k = 0; k < both[side]->part_count; k++) {
                struct source own;
                const struct part *p = &both[side]->part[k];
                if (!member(s, p->properties, a->required[i], &own)) continue;
                collect(s, &of[side], own, 0);
                found |= 1u << side;
            }
        }
        parted = found == 3 && !values_meet(s, &of[0], &of[1]);
    }
    free(of);
    return parted;
}

/* Returns true if no value written for `a` satisfies `z`. */
static bool are_parted(struct schema *s, const struct shape *a, const struct shape *z)
{
    uint32_t both = types_written(a) & z->types;
    if (a->never || z->never || both == 0) return true;
    if (!values_meet(s, a, z)) return true;
    return both == TYPE_OBJECT && tag_parts(s, a, z);
}

static const struct expr *shape_expr(struct schema *s, const struct shape *shape,
                                     const struct place *place, uint32_t depth);

/* Makes one shape for each branch of the last group, and checks that a oneOf parts them. */
static const struct expr *branches_expr(struct schema *s, const struct shape *shape,
                                        const struct place *place, uint32_t depth)
{
    struct builder *b = s->b;
    struct group group = shape->group[shape->group_count - 1];
    struct json_reader r;
    struct source item;
    struct expr_items items = { 0 };
    uint32_t index = 0;
    struct shape **branch = arena_array(&b->arena, BRANCHES_MAX, sizeof *branch);
    if (!branch) {
        no_memory(s);
        return expr_nothing(b);
    }
    token_of(group.list.raw, &r);
    while (next_item(s, &r, group.list.place, &index, &item)) {
        struct shape *one = index <= BRANCHES_MAX ? arena_alloc(&b->arena, sizeof *one) : NULL;
        if (!one) {
            builder_fail(b, -E2BIG, "the schema has more branches than are supported");
            break;
        }
        *one = *shape;
        one->group_count--;
        if (collect(s, one, item, 0) < 0) break;
        for (uint32_t i = 0; group.one && i + 1 < index && b->rc == 0; i++)
            if (!are_parted(s, branch[i], one) || !are_parted(s, one, branch[i]))
                unserved(
                    s, item.place,
                    "a value could satisfy this branch of oneOf and another; say anyOf, or give "
                    "both a required property with different const");
        branch[index - 1] = one;
        expr_push(b, &items, shape_expr(s, one, place, depth + 1));
    }
    return b->rc == 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
}

static const struct expr *shape_expr(struct schema *s, const struct shape *shape,
                                     const struct place *place, uint32_t depth)
{
    if (s->b->rc < 0 || shape->never) return expr_nothing(s->b);
    if (depth > COLLECT_DEPTH_MAX) {
        schema_fail(s, -E2BIG, place, "more than 32 anyOf and oneOf nest, or they run in a circle");
        return expr_nothing(s->b);
    }
    if (shape->group_count > 0) return branches_expr(s, shape, place, depth);
    return typed_expr(s, shape, place);
}

static void make_rule(struct schema *s, const struct todo *t)
{
    struct shape *shape = arena_alloc(&s->b->arena, sizeof *shape);
    if (!shape) {
        no_memory(s);
        return;
    }
    shape_init(shape);
    for (uint32_t i = 0; i < t->count; i++)
        if (collect(s, shape, t->source[i], 0) < 0) return;
    const struct expr *body = shape_expr(s, shape, t->source[0].place, 0);
    rule_set(s->b, t->rule, body);
}

void json_schema_build(struct builder *b, struct str text)
{
    struct json_reader r;
    struct str trimmed;
    struct schema s = { .b = b };
    s.last = &s.first;
    json_reader_init(&r, text);
    if (json_raw_value(&r, &trimmed) < 0 || json_next(&r) != JSON_END) {
        builder_fail(b, -EINVAL, "the schema is not valid JSON: %s at byte %zu",
                     r.problem ? r.problem : "more than one value", r.pos);
        return;
    }
    s.root = trimmed;
    map_init(&s.rules, sizeof(uint64_t), sizeof(uint32_t), GRAMMAR_RULES_MAX, MAP_OWN);
    work_add(text.len * 4);
    const struct source root = { s.root, inside(&s, NULL, (struct str){ 0 }) };
    rule_set(b, 0, value_of(&s, &root, 1));
    for (const struct todo *t = s.first; t && b->rc == 0; t = t->next)
        make_rule(&s, t);
    map_fini(&s.rules);
}
