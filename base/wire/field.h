/* field.h - converts structs to JSON and back by one table for each struct: names, types, bounds.
 *
 * Layer:    base/wire (base/core)
 * Lifetime: decoded strings and lists live in the arena; decode copies what it keeps
 * Rules:    (1) unknown keys are ignored, so that an older peer understands a newer one
 *           (2) the whole message is refused, with the path of the field, for a repeated key, a
 *               missing required key, a wrong type, and a number or length outside its bounds
 *           (3) null means absent, and an absent member stays { 0 }: where zero and absent differ,
 *               the struct has a present flag or a count
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/core/json.h"

#define WIRE_VERSION 1 /* "v" of every message; raised when a peer must not guess */
#define FIELDS_MAX 64  /* fields in one table */

enum field_type {
    FIELD_VERSION, /* "v": no member; must be present and equal WIRE_VERSION, or `max` if set */
    FIELD_U32,     /* uint32_t */
    FIELD_U64,     /* uint64_t */
    FIELD_I64,     /* int64_t */
    FIELD_F64,     /* double, finite */
    FIELD_BOOL,    /* bool */
    FIELD_HEX64,   /* uint64_t as 16 hexadecimal digits: ids that other languages would round */
    FIELD_STR,     /* struct str; no NUL inside, unless the row allows it */
    FIELD_ENUM,    /* an enum, by its name */
    FIELD_OBJECT,  /* nested struct */
    FIELD_LIST,    /* array of structs: pointer and uint32_t count, as in the next types */
    FIELD_STRS,    /* array of struct str */
    FIELD_IDS,     /* array of uint32_t */
    FIELD_TOKENS,  /* array of uint32_t below 2^24, as a string of four base64 characters each:
                      takes a tenth of the work of decimal digits */
    FIELD_VALUES, /* array of struct token_value, as a string of ten base64 characters each: four of the
                      id, below 2^24, six of the float's bits */
    FIELD_KEYS,   /* array of struct block_key, hexadecimal */
    FIELD_COUNTS, /* exactly `max` floats in the struct itself, whole numbers up to 2^24 */
    FIELD_TYPE_COUNT
};

struct field_set;

struct field {
    const char *name;
    enum field_type type;
    bool required;
    size_t offset;
    double min, max;            /* numbers: value (max 0: what the type holds); FIELD_STR: bytes;
                                   arrays: items; FIELD_ENUM: max is the number of names */
    size_t each_bytes_max;      /* FIELD_STRS: of one string */
    bool nul;                   /* FIELD_STR, FIELD_STRS: NUL is allowed: for text of models and
                                   clients, which no code reads as a C string */
    const char *const *names;   /* FIELD_ENUM */
    const struct field_set *of; /* FIELD_OBJECT, FIELD_LIST */
    size_t count_offset;        /* arrays: of the count */
    size_t present_offset;      /* FIELD_OBJECT, FIELD_BOOL: of the present flag; 0: no flag, always
                                   written */
};

struct field_set {
    const struct field *field;
    uint32_t count;
    size_t size; /* of the struct */
};

/* These macros write the rows of a table. The JSON key is the member's name, or `key` where they differ. */
#define FIELD_AS(key, T, member, kind, ...)                                   \
    {                                                                         \
        .name = key, .type = kind, .offset = offsetof(T, member), __VA_ARGS__ \
    }
#define FIELD(T, member, kind, ...) FIELD_AS(#member, T, member, kind, __VA_ARGS__)
#define FIELD_ARRAY(key, T, member, counter, kind, most, ...) \
    FIELD_AS(key, T, member, kind, .count_offset = offsetof(T, counter), .max = (most), __VA_ARGS__)
#define FIELD_SET(T, rows)                                        \
    {                                                             \
        .field = rows, .count = COUNT_OF(rows), .size = sizeof(T) \
    }
#define FIELD_POSITIVE .max = 1e18 /* of FIELD_F64: 0 or more */

/* Decodes `text`, which holds one object and nothing else, into `ret` (unchanged on failure). */
int fields_decode(const struct field_set *set, struct str text, struct arena *arena, void *ret,
                  const char *what, struct err *err);

/* Appends `in` as one object. Empty strings and arrays, absent objects and numbers that are not
 * finite are left out. Returns out->rc. */
int fields_encode(const struct field_set *set, const void *in, struct buf *out);

/* Decodes a string of FIELD_TOKENS into ret, one id for each FIELD_TOKEN_CHARS characters. The length must
 * be a multiple of that. False if a character is not base64. */
#define FIELD_TOKEN_CHARS 4
bool field_tokens(struct str chars, uint32_t *ret);
