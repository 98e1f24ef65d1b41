/* json_fields.h - reads the members of a JSON object that is known by name, with errors that give their path.
 *
 * Layer:  base/text, private to the reader of tokenizer.json
 * Rules:  a member that is not in the list is refused: it might have an effect
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/err.h"
#include "base/core/json.h"

#define JSON_PATH_MAX 160

/* Where a value stands: "pre_tokenizer.pretokenizers[1]"; and the memory for its texts. */
struct json_place {
    char path[JSON_PATH_MAX];
    struct arena *arena;
};

/* Appends ".name" or "[index]" to a path (cut where it is too long). */
struct json_place json_member(const struct json_place *at, const char *name);
struct json_place json_item(const struct json_place *at, size_t index);

/* Sets err to "path: sentence" and returns rc. */
int json_bad(const struct json_place *at, int rc, struct err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

struct json_field {
    const char *name;
    struct str raw; /* the value's bytes; empty: the member is missing, or null */
};

/* Reads an object into `fields`. -EINVAL: no object, a name twice; -ENOTSUP: a name that is not there. */
int json_fields(const struct json_place *at, struct str object, struct json_field *fields,
                size_t count, struct err *err);

/* Reads the member "type" of an object. -EINVAL if there is none. */
int json_type(const struct json_place *at, struct str object, struct str *ret, struct err *err);

/* Convert a raw value; a missing one leaves *ret as it is. -EINVAL for another type. */
int json_field_bool(const struct json_place *at, const struct json_field *f, bool *ret,
                    struct err *err);
int json_field_u32(const struct json_place *at, const struct json_field *f, uint32_t *ret,
                   struct err *err);
int json_field_text(const struct json_place *at, const struct json_field *f, struct str *ret,
                    struct err *err);

/* Calls fn for each item of an array; a result other than 0 ends the walk and is returned. */
typedef int (*json_item_fn)(void *ctx, const struct json_place *at, struct str raw,
                            struct err *err);
int json_items(const struct json_place *at, const struct json_field *f, json_item_fn fn, void *ctx,
               struct err *err);
