/* schema_shape.c - collects the keywords of a schema, its $ref and its allOf into one shape.
 *
 * A keyword is a row of `keywords`. What two schemas say of one value is merged where the result is again one
 * restriction (types, bounds, values, required names) and refused where it is not (two patterns). */
#include "base/grammar/schema_shape.h"

#include "base/core/bits.h"

#include <math.h>

#define VALUES_MAX 4096
#define SHAPE_STEPS 256 /* that one shape costs */

struct visit {
    struct schema *s;
    struct shape *shape;
    struct part *part; /* of the schema at hand; NULL: none yet */
    const struct place *place;
    uint32_t depth;
};

void shape_init(struct shape *shape)
{
    *shape = (struct shape){ .types = TYPE_ALL,
                             .max_items = UINT64_MAX,
                             .max_length = UINT64_MAX,
                             .max_members = UINT64_MAX,
                             .low = -INFINITY,
                             .high = INFINITY };
}

bool shape_requires(const struct shape *shape, struct str name)
{
    for (uint32_t i = 0; i < shape->required_count; i++)
        if (str_eq(shape->required[i], name)) return true;
    return false;
}

/* ---- keywords ---- */

static struct part *part_of(struct visit *v)
{
    if (v->part) return v->part;
    if (v->shape->part_count == SHAPE_PARTS_MAX) {
        schema_unserved(v->s, v->place, "more than 16 schemas with properties meet in one value");
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
    if (value_token(value.raw, &r) == JSON_STRING) {
        if (source_text(v->s, value, &name) < 0) return v->s->b->rc;
        types = type_named(name);
    } else if (r.token == JSON_ARRAY) {
        while (source_next_item(v->s, &r, value.place, &index, &item)) {
            if (source_text(v->s, item, &name) < 0) return v->s->b->rc;
            if (!type_named(name)) return schema_wrong(v->s, item.place, sentence);
            types |= type_named(name);
        }
    }
    if (types == 0) return schema_wrong(v->s, value.place, sentence);
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
    if (!kept) return schema_no_memory(v->s);
    for (uint32_t i = 0; i < count; i++) {
        bool stays = !shape->has_values;
        for (uint32_t k = 0; !stays && k < shape->value_count; k++)
            stays = value_equals(v->s, value[i], shape->value[k]);
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
    if (!list) return schema_no_memory(v->s);
    if (value_token(value.raw, &r) != JSON_ARRAY)
        return schema_wrong(v->s, value.place, "this must be an array");
    while (source_next_item(v->s, &r, value.place, &count, &item)) {
        if (count > VALUES_MAX) return schema_unserved(v->s, value.place, "more than 4096 values");
        list[count - 1] = item.raw;
    }
    return v->s->b->rc < 0 ? v->s->b->rc : take_values(v, list, count);
}

static int take_properties(struct visit *v, struct source value)
{
    struct json_reader r;
    struct part *part = part_of(v);
    if (value_token(value.raw, &r) != JSON_OBJECT)
        return schema_wrong(v->s, value.place, "this must be an object");
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
    if (value_token(value.raw, &r) != JSON_ARRAY)
        return schema_wrong(v->s, value.place, "this must be an array");
    shape->said |= TYPE_OBJECT;
    while (source_next_item(v->s, &r, value.place, &index, &item)) {
        bool known = false;
        if (source_text(v->s, item, &name) < 0) return v->s->b->rc;
        for (uint32_t i = 0; i < shape->required_count && !known; i++)
            known = str_eq(shape->required[i], name);
        schema_steps(v->s, shape->required_count / 8);
        if (known) continue;
        if (shape->required_count == SHAPE_REQUIRED_MAX)
            return schema_unserved(v->s, value.place, "more than 512 names are required");
        shape->required[shape->required_count++] = name;
    }
    return v->s->b->rc;
}

static int take_items(struct visit *v, struct source value)
{
    struct json_reader r;
    v->shape->said |= TYPE_ARRAY;
    if (value_token(value.raw, &r) == JSON_ARRAY)
        return schema_unserved(v->s, value.place,
                               "an array of schemas is not supported; say prefixItems");
    if (v->shape->items.raw.len > 0)
        return schema_unserved(v->s, value.place, "items of two schemas meet in one value");
    v->shape->items = value;
    return 0;
}

static int take_prefix_items(struct visit *v, struct source value)
{
    struct json_reader r;
    v->shape->said |= TYPE_ARRAY;
    if (value_token(value.raw, &r) != JSON_ARRAY)
        return schema_wrong(v->s, value.place, "this must be an array");
    if (v->shape->prefix.raw.len > 0)
        return schema_unserved(v->s, value.place, "prefixItems of two schemas meet in one value");
    v->shape->prefix = value;
    return 0;
}

static int take_min(struct visit *v, struct source value, uint64_t *to)
{
    uint64_t n;
    if (source_count(v->s, value, &n) < 0) return v->s->b->rc;
    *to = max_u64(*to, n);
    return 0;
}

static int take_max(struct visit *v, struct source value, uint64_t *to)
{
    uint64_t n;
    if (source_count(v->s, value, &n) < 0) return v->s->b->rc;
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
        return schema_unserved(v->s, value.place, "two patterns meet in one value");
    v->shape->pattern = value;
    return 0;
}

static int take_format(struct visit *v, struct source value)
{
    v->shape->said |= TYPE_STRING;
    if (v->shape->format.raw.len > 0)
        return schema_unserved(v->s, value.place, "two formats meet in one value");
    v->shape->format = value;
    return 0;
}

static int number_of(struct visit *v, struct source value, double *ret)
{
    struct json_reader r;
    v->shape->said |= TYPE_INTEGER | TYPE_NUMBER;
    if (value_token(value.raw, &r) != JSON_NUMBER || json_f64(&r, ret) < 0)
        return schema_wrong(v->s, value.place, "this must be a number");
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
    if (value_token(value.raw, &r) != JSON_ARRAY)
        return schema_wrong(v->s, value.place, "this must be an array");
    while (source_next_item(v->s, &r, value.place, &index, &item))
        if (shape_collect(v->s, v->shape, item, v->depth + 1) < 0) break;
    return v->s->b->rc;
}

static int take_group(struct visit *v, struct source value, bool one)
{
    struct json_reader r;
    if (value_token(value.raw, &r) != JSON_ARRAY || json_next(&r) == JSON_ARRAY_END)
        return schema_wrong(v->s, value.place, "this must be an array of at least one schema");
    if (v->shape->group_count == SHAPE_GROUPS_MAX)
        return schema_unserved(v->s, value.place, "more than 8 anyOf and oneOf meet in one value");
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

static int take_ref(struct visit *v, struct source value)
{
    struct source target;
    if (source_reference(v->s, value, &target) < 0) return v->s->b->rc;
    return shape_collect(v->s, v->shape, target, v->depth + 1);
}

static int take_false_only(struct visit *v, struct source value)
{
    if (str_eq(value.raw, STR("false"))) return 0;
    return schema_unserved(v->s, value.place, "this keyword is not supported");
}

static int take_id(struct visit *v, struct source value)
{
    if (!v->place->up) return 0;
    return schema_unserved(v->s, value.place, "$id is supported at the root only");
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

int shape_collect(struct schema *s, struct shape *shape, struct source source, uint32_t depth)
{
    struct json_reader r;
    struct visit v = { .s = s, .shape = shape, .place = source.place, .depth = depth };
    struct str name;
    struct source value;
    if (depth > SCHEMA_DEPTH_MAX)
        return schema_fail(
            s, -E2BIG, source.place,
            "more than 32 $ref and allOf lead to one value, or they run in a circle");
    if (schema_steps(s, SHAPE_STEPS) < 0) return s->b->rc;
    enum json_token t = value_token(source.raw, &r);
    if (t == JSON_TRUE) return 0;
    if (t == JSON_FALSE) {
        shape->never = true;
        return 0;
    }
    if (t != JSON_OBJECT)
        return schema_wrong(s, source.place, "a schema is an object, true or false");
    while (source_next_member(s, &r, source.place, &name, &value)) {
        const struct keyword *k = find_keyword(name);
        bool ours = k || str_starts(name, STR("x-"));
        if (!ours) return schema_unserved(s, value.place, "this keyword is not supported");
        if (k && k->take && k->take(&v, value) < 0) return s->b->rc;
    }
    return s->b->rc;
}
