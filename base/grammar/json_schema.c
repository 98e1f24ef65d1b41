/* json_schema.c - turns a JSON Schema into rules, and refuses what it cannot turn.
 *
 *     schema ──► collect: itself, its $ref, its allOf ──► shape ──► one branch for each anyOf / oneOf
 *                (schema_shape.c, schema_source.c)          └──► one expression for each type
 *                                                                (schema_scalar.c, schema_structured.c)
 *
 * A schema becomes a rule at its first use, by its place in the text, so recursion through $ref is recursion of
 * rules.
 *
 * The texts described are valid; not every valid text is described. A schema without `type` gets the types that
 * its keywords speak of. */
#include "base/core/work.h"
#include "base/grammar/schema_expr.h"

#include <stdlib.h>

#define BRANCHES_MAX 256

/* A rule whose body is still to be made of these schemas. */
struct todo {
    uint32_t rule;
    struct source *source;
    uint32_t count;
    struct todo *next;
};

/* ---- rules ---- */

static int add_todo(struct schema *s, uint32_t rule, const struct source *source, uint32_t count)
{
    struct todo *t = arena_alloc(&s->b->arena, sizeof *t);
    struct source *copy = arena_array(&s->b->arena, count, sizeof *copy);
    if (!t || !copy) return schema_no_memory(s);
    memcpy(copy, source, count * sizeof *copy);
    *t = (struct todo){ .rule = rule, .source = copy, .count = count };
    *s->last = t;
    s->last = &t->next;
    return 0;
}

const struct expr *schema_value_expr(struct schema *s, const struct source *source, uint32_t count)
{
    bool is_new = true;
    uint64_t key = count == 1 ? (uint64_t)(uintptr_t)source->raw.data : 0;
    uint32_t made = 0, *rule = count == 1 ? map_put(&s->rules, &key, &is_new) : &made;
    if (count == 0) return json_part(s->b, &s->json, JSON_PART_VALUE);
    if (!rule) {
        schema_no_memory(s);
        return expr_nothing(s->b);
    }
    if (is_new) {
        *rule = rule_add(s->b, (struct str){ 0 });
        if (add_todo(s, *rule, source, count) < 0) return expr_nothing(s->b);
    }
    return expr_call(s->b, *rule);
}

/* ---- values and branches ---- */

static const struct expr *values_expr(struct schema *s, const struct shape *shape,
                                      const struct place *place)
{
    struct str *text = arena_array(&s->b->arena, (size_t)shape->value_count + 1, sizeof *text);
    uint32_t count = 0;
    if (!text) {
        schema_no_memory(s);
        return expr_nothing(s->b);
    }
    for (uint32_t i = 0; i < shape->value_count; i++) {
        uint32_t type = value_type(shape->value[i]);
        if (!(shape->types & type)) continue;
        if (shape->said & type) {
            schema_unserved(
                s, place,
                "enum or const beside other restrictions of the same type is not supported");
            return expr_nothing(s->b);
        }
        if (value_canonical(s, shape->value[i], &text[count]) < 0) return expr_nothing(s->b);
        count++;
    }
    return count > 0 ? expr_strings(s->b, text, count) : expr_nothing(s->b);
}

static uint32_t types_written(const struct shape *shape)
{
    uint32_t types = 0;
    for (uint32_t i = 0; shape->has_values && i < shape->value_count; i++)
        types |= shape->types & value_type(shape->value[i]);
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
    if (types & TYPE_OBJECT) expr_push(b, &items, schema_object_expr(s, shape));
    if (types & TYPE_ARRAY) expr_push(b, &items, schema_array_expr(s, shape));
    if (types & TYPE_STRING) expr_push(b, &items, schema_string_expr(s, shape));
    if (types & (TYPE_NUMBER | TYPE_INTEGER))
        expr_push(b, &items, schema_number_expr(s, shape, types, place));
    if (types & TYPE_BOOLEAN)
        expr_push(b, &items, EXPR_ALT_OF(b, expr_text(b, "true"), expr_text(b, "false")));
    if (types & TYPE_NULL) expr_push(b, &items, expr_text(b, "null"));
    return b->rc == 0 && items.count > 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
}

static bool values_meet(struct schema *s, const struct shape *a, const struct shape *z)
{
    if (!a->has_values || !z->has_values) return true;
    for (uint32_t i = 0; i < a->value_count; i++)
        for (uint32_t k = 0; k < z->value_count; k++) {
            if (schema_steps(s, 8) < 0 || value_equals(s, a->value[i], z->value[k])) return true;
        }
    return false;
}

/* Returns true if a required property tells the objects of both shapes apart: its values never meet. */
static bool tag_parts(struct schema *s, const struct shape *a, const struct shape *z)
{
    bool parted = false;
    struct shape *of = calloc(2, sizeof *of);
    const struct shape *both[2] = { a, z };
    if (!of) schema_no_memory(s);
    for (uint32_t i = 0; of && i < a->required_count && !parted && s->b->rc == 0; i++) {
        uint32_t found = 0;
        if (!shape_requires(z, a->required[i])) continue;
        for (uint32_t side = 0; side < 2; side++) {
            shape_init(&of[side]);
            for (uint32_t k = 0; k < both[side]->part_count; k++) {
                struct source own;
                const struct part *p = &both[side]->part[k];
                if (!source_member(s, p->properties, a->required[i], &own)) continue;
                shape_collect(s, &of[side], own, 0);
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
        schema_no_memory(s);
        return expr_nothing(b);
    }
    value_token(group.list.raw, &r);
    while (source_next_item(s, &r, group.list.place, &index, &item)) {
        struct shape *one = index <= BRANCHES_MAX ? arena_alloc(&b->arena, sizeof *one) : NULL;
        if (!one) {
            builder_fail(b, -E2BIG, "the schema has more branches than are supported");
            break;
        }
        *one = *shape;
        one->group_count--;
        if (shape_collect(s, one, item, 0) < 0) break;
        for (uint32_t i = 0; group.one && i + 1 < index && b->rc == 0; i++)
            if (!are_parted(s, branch[i], one) || !are_parted(s, one, branch[i]))
                schema_unserved(
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
    if (depth > SCHEMA_DEPTH_MAX) {
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
        schema_no_memory(s);
        return;
    }
    shape_init(shape);
    for (uint32_t i = 0; i < t->count; i++)
        if (shape_collect(s, shape, t->source[i], 0) < 0) return;
    const struct expr *body = shape_expr(s, shape, t->source[0].place, 0);
    rule_set(s->b, t->rule, body);
}

const struct expr *json_schema_expr(struct builder *b, struct str text)
{
    struct json_reader r;
    struct str trimmed;
    struct schema s = { .b = b };
    s.last = &s.first;
    json_reader_init(&r, text);
    if (json_raw_value(&r, &trimmed) < 0 || json_next(&r) != JSON_END)
        return builder_fail(b, -EINVAL, "the schema is not valid JSON: %s at byte %zu",
                            r.problem ? r.problem : "more than one value", r.pos);
    s.root = trimmed;
    map_init(&s.rules, sizeof(uint64_t), sizeof(uint32_t), GRAMMAR_RULES_MAX, MAP_OWN);
    work_add(text.len * 4);
    const struct source root = { s.root, place_inside(&s, NULL, (struct str){ 0 }) };
    const struct expr *value = schema_value_expr(&s, &root, 1);
    for (const struct todo *t = s.first; t && b->rc == 0; t = t->next)
        make_rule(&s, t);
    map_fini(&s.rules);
    return value;
}

void json_schema_build(struct builder *b, struct str text)
{
    rule_set(b, 0, json_schema_expr(b, text));
}
