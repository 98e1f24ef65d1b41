/* schema_structured.c - writes arrays and objects of a shape.
 *
 * Members come in the order of `properties`, further members behind them: any order would need a rule for each
 * set of names written so far. A schema with properties and without additionalProperties gets no further ones. All of
 * prefixItems is written. */
#include "base/core/bits.h"
#include "base/grammar/schema_expr.h"

#include <stdlib.h>

#define PROPERTIES_MAX 1024
#define NAME_BYTES_MAX 256 /* of a property, where other names are allowed */

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
    uint32_t low = (uint32_t)min_u64(min, GRAMMAR_REPEAT_MAX + 1), high = schema_repeat_bound(max);
    if (behind) return expr_repeat(b, more, low, high);
    if (high == 0) return low == 0 ? expr_empty(b) : expr_nothing(b);
    uint32_t high_more = high == EXPR_FOREVER ? EXPR_FOREVER : high - 1;
    const struct expr *list =
        EXPR_SEQ_OF(b, item, expr_repeat(b, more, low > 0 ? low - 1 : 0, high_more));
    return low > 0 ? list : expr_optional(b, list);
}

const struct expr *schema_array_expr(struct schema *s, const struct shape *shape)
{
    struct builder *b = s->b;
    struct json_reader r;
    struct source item;
    struct expr_items items = { 0 };
    uint32_t index = 0;
    uint64_t min = shape->min_items, max = shape->max_items;
    bool said = shape->items.raw.len > 0, has_prefix = shape->prefix.raw.len > 0;
    if (min > max) return expr_nothing(b);
    if (has_prefix) value_token(shape->prefix.raw, &r);
    while (has_prefix && index < max &&
           source_next_item(s, &r, shape->prefix.place, &index, &item)) {
        if (index > 1) expr_push(b, &items, comma(s));
        expr_push(b, &items, schema_value_expr(s, &item, 1));
    }
    uint64_t rest_min = min > index ? min - index : 0;
    uint64_t rest_max = has_prefix && !said ? rest_min : max == UINT64_MAX ? max : max - index;
    const struct expr *one =
        said ? schema_value_expr(s, &shape->items, 1) : json_part(b, &s->json, JSON_PART_VALUE);
    if (rest_max > 0) expr_push(b, &items, item_list(s, one, index > 0, rest_min, rest_max));
    expr_push(b, &items, json_part(b, &s->json, JSON_PART_SPACE));
    if (b->rc < 0) return expr_nothing(b);
    return brackets(s, "[", expr_of(b, EXPR_SEQ, &items), "]");
}

/* ---- properties ---- */

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
    struct source source[SHAPE_PARTS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < shape->part_count; i++) {
        const struct part *p = &shape->part[i];
        struct source own;
        if (found && i == from)
            source[count++] = *found;
        else if (p->properties.raw.len > 0 && source_member(s, p->properties, name, &own))
            source[count++] = own;
        else if (p->extra == EXTRA_NONE)
            return NULL;
        else if (p->extra == EXTRA_SCHEMA)
            source[count++] = p->other;
    }
    return EXPR_SEQ_OF(s->b, json_literal(s->b, name), expr_text(s->b, ":"),
                       json_part(s->b, &s->json, JSON_PART_SPACE),
                       schema_value_expr(s, source, count));
}

static int add_property(struct schema *s, const struct shape *shape, struct str name, uint32_t from,
                        const struct source *found, struct members *m)
{
    schema_steps(s, 4 + (m->count + shape->required_count) / 8);
    for (uint32_t i = 0; i < m->count; i++)
        if (str_eq(m->property[i].name, name)) return 0;
    if (m->count == PROPERTIES_MAX) {
        builder_fail(s->b, -E2BIG, "the schema has an object of more than %d properties",
                     PROPERTIES_MAX);
        return s->b->rc;
    }
    bool required = shape_requires(shape, name);
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
    if (!m->property) return schema_no_memory(s);
    for (uint32_t i = 0; i < shape->part_count; i++) {
        if (value_token(shape->part[i].properties.raw, &r) != JSON_OBJECT) continue;
        while (source_next_member(s, &r, shape->part[i].properties.place, &name, &value))
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
    if (!next || schema_steps(s, 4 + count) < 0) {
        if (!next) schema_no_memory(s);
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
    struct source source[SHAPE_PARTS_MAX];
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
        schema_no_memory(s);
        return NULL;
    }
    for (uint32_t i = 0; i < m->count; i++) {
        name[i] = m->property[i].name;
        if (name[i].len > NAME_BYTES_MAX || !str_utf8_valid(name[i])) {
            schema_unserved(
                s, shape->part[0].properties.place,
                "a name of more than 256 bytes beside additionalProperties is not supported");
            return NULL;
        }
    }
    qsort(name, m->count, sizeof *name, compare_names);
    const struct expr *text = m->count > 0 ? other_names(s, name, m->count, 0) : any_rest(s);
    return EXPR_SEQ_OF(b, schema_quoted(b, text), expr_text(b, ":"),
                       json_part(b, &s->json, JSON_PART_SPACE),
                       schema_value_expr(s, source, count));
}

/* ---- objects ---- */

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

const struct expr *schema_object_expr(struct schema *s, const struct shape *shape)
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
        schema_unserved(
            s, shape->members_place,
            "a bound on the count of members is supported only where required and properties "
            "satisfy it anyway");
        return expr_nothing(b);
    }
    return brackets(s, "{", member_chain(s, &m, further), "}");
}
