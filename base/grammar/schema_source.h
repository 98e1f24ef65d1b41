/* schema_source.h - reads the text of a JSON Schema, and names the place of a fault in it.
 *
 * Layer:    base/grammar, private
 * Lifetime: places and texts live in the builder's arena; raw values point into the schema's text
 * Errors:   the builder's, sticky: the first sentence is kept and begins with the JSON pointer (RFC 6901)
 * Rules:    what is read counts steps; GRAMMAR_STEPS_MAX of them end compiling with -E2BIG
 */
#pragma once
#include "base/core/json.h"
#include "base/core/map.h"
#include "base/grammar/expr.h"

/* Of $ref and allOf that lead to one value; of anyOf and oneOf that nest. */
#define SCHEMA_DEPTH_MAX 32
#define SCHEMA_POINTER_BYTES 256

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

struct todo;

/* A schema that is being turned into rules. */
struct schema {
    struct builder *b;
    struct str root;
    struct json_rules json;
    struct map rules; /* address of a schema -> rule */
    struct todo *first, **last;
    uint32_t any_key_rest; /* rule: the rest of a member's name; 0: not made yet */
};

/* ---- places and messages ---- */

const struct place *place_inside(struct schema *s, const struct place *up, struct str key);
void place_put(const struct place *p, struct buf *out); /* as a JSON pointer behind # */

/* Each keeps its failure in the builder and returns the builder's error: `rc`, -EINVAL, -ENOTSUP, -E2BIG. */
int schema_fail(struct schema *s, int rc, const struct place *place, const char *sentence);
int schema_wrong(struct schema *s, const struct place *place, const char *sentence);
int schema_unserved(struct schema *s, const struct place *place, const char *sentence);
int schema_no_memory(struct schema *s);
int schema_steps(struct schema *s, uint32_t count);

/* ---- values ---- */

/* Puts the reader on a value, and returns its first token. */
enum json_token value_token(struct str raw, struct json_reader *r);
uint32_t value_type(struct str raw); /* an enum type; 0: not JSON */

/* Returns the text of a value without blanks, and with strings written one way. */
int value_canonical(struct schema *s, struct str raw, struct str *ret);

/* Returns true if both values are surely equal; numbers count by value. */
bool value_equals(struct schema *s, struct str a, struct str z);

int source_text(struct schema *s, struct source v, struct str *ret);
int source_count(struct schema *s, struct source v, uint64_t *ret);

/* Reads the next member of an object; false at its end. The reader stands behind the opening bracket. */
bool source_next_member(struct schema *s, struct json_reader *r, const struct place *up,
                        struct str *ret_name, struct source *ret);

/* Reads the next item of an array; false at its end. */
bool source_next_item(struct schema *s, struct json_reader *r, const struct place *up,
                      uint32_t *index, struct source *ret);

/* Finds a member of an object by its name; false: it has none, or is no object. */
bool source_member(struct schema *s, struct source object, struct str name, struct source *ret);

/* Finds what a $ref names. Only references into this schema (#/...) are supported. */
int source_reference(struct schema *s, struct source value, struct source *ret);
