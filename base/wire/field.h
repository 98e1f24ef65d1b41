/* field.h - structs to JSON and back by one table a struct: names, types, bounds.
 *
 * Layer:    base/wire (base/core)
 * Lifetime: decoded strings and lists live in the arena; decode copies what it keeps
 * Rules:    (1) unknown keys are ignored, so that an older peer understands a newer one
 *           (2) a key twice, a missing required key, a wrong type and a number or a length
 *               outside its bounds refuse the whole message, with the path of the field
 *           (3) null means absent, and what is absent stays { 0 }: where zero and absent differ,
 *               the struct has a present flag (FIELD_OBJECT) or a count
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/json.h"

#define WIRE_VERSION 1 /* "v" of every message; raised when a peer must not guess */
#define FIELDS_MAX 64  /* fields in one table */

enum field_type {
    FIELD_VERSION, /* "v": no member; must equal WIRE_VERSION */
    FIELD_U32,     /* uint32_t */
    FIELD_U64,     /* uint64_t; `max` 0 leaves it unbounded */
    FIELD_I64,     /* int64_t */
    FIELD_F64,     /* double, finite */
    FIELD_BOOL,    /* bool */
    FIELD_HEX64,   /* uint64_t as 16 hexadecimal digits: ids that other languages would round */
    FIELD_STR,     /* struct str of min..max bytes; no NUL inside */
    FIELD_ENUM,    /* uint32_t-sized enum by name */
    FIELD_OBJECT,  /* nested struct; present_offset, where given, names its bool */
    FIELD_LIST,    /* array of structs: pointer and uint32_t count */
    FIELD_STRS,    /* array of struct str (each 0..max_each bytes): pointer and count */
    FIELD_IDS,     /* array of uint32_t: pointer and count */
    FIELD_KEYS,    /* array of struct block_key, hexadecimal: pointer and count */
    FIELD_TYPE_COUNT
};

struct field_set;

struct field {
    const char *name;
    enum field_type type;
    bool required;
    size_t offset;
    double min, max;            /* numbers: value; strings: bytes; lists: at most max items */
    const char *const *names;   /* FIELD_ENUM: max + 1 names */
    const struct field_set *of; /* FIELD_OBJECT, FIELD_LIST */
    size_t count_offset;        /* lists */
    size_t present_offset;      /* FIELD_OBJECT; FIELD_ALWAYS: it has no flag */
    uint32_t max_each;          /* FIELD_STRS: bytes of one */
};

#define FIELD_ALWAYS SIZE_MAX

struct field_set {
    const struct field *field;
    uint32_t count;
    size_t size; /* of the struct */
};

/* Decodes the object that is the whole of `text` into `ret` (left as it was on failure). */
int fields_decode(const struct field_set *set, struct str text, struct arena *arena, void *ret,
                  const char *what, struct err *err);

/* Writes `in` as one object. Empty strings, lists and absent objects are left out. */
void fields_encode(const struct field_set *set, const void *in, struct json_writer *w);
