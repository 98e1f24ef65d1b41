/* schema_shape.h - holds all restrictions that schemas put on one value.
 *
 * Layer:    base/grammar, private
 * Lifetime: a shape is its holder's memory, some 10 KiB; lists and sources in it are the builder's
 * Rules:    (1) properties of merged schemas keep their owners (struct part), because additionalProperties
 *               speaks of its own schema's properties only
 *           (2) anyOf and oneOf are kept as groups: each branch is collected into its own copy of the shape
 */
#pragma once
#include "base/grammar/schema_source.h"

#define SHAPE_PARTS_MAX 16
#define SHAPE_GROUPS_MAX 8
#define SHAPE_REQUIRED_MAX 512

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

/* All restrictions that meet in one value. */
struct shape {
    uint32_t types;
    uint32_t said; /* types that a keyword other than `type` speaks of */
    bool typed, never;
    struct part part[SHAPE_PARTS_MAX];
    uint32_t part_count;
    struct str required[SHAPE_REQUIRED_MAX];
    uint32_t required_count;
    struct source items, prefix;
    uint64_t min_items, max_items, min_length, max_length, min_members, max_members;
    struct source pattern, format;
    struct str *value; /* raw, of enum and const */
    uint32_t value_count;
    bool has_values;
    double low, high; /* infinite: no bound */
    bool low_open, high_open;
    struct group group[SHAPE_GROUPS_MAX];
    uint32_t group_count;
    const struct place *members_place; /* of minProperties or maxProperties */
    const struct place *length_place;  /* of minLength or maxLength */
};

void shape_init(struct shape *shape); /* no restriction */
bool shape_requires(const struct shape *shape, struct str name);

/* Adds all that a schema says to the shape. `depth`: $ref and allOf on the way to it, 0 for the first. A keyword
 * that is not supported is refused. */
int shape_collect(struct schema *s, struct shape *shape, struct source source, uint32_t depth);
