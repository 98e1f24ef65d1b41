/* json_slice.h - reads values out of JSON that is known to be well-formed, as slices of its bytes.
 *
 * Layer: base/wire (base/core)
 * Use:   bodies that one pass has checked, and that are then read in another order than they stand. Texts stay
 *        escaped
 */
#pragma once
#include "base/core/json.h"

bool slice_is_a(struct str raw, char first); /* kind of value, by its first byte */
bool slice_is_text(struct str raw);

/* Returns what stands between the quotes of a string, still escaped. */
struct str slice_inside(struct str raw);

/* Returns true for the string `word`. */
bool slice_says(struct str raw, const char *word);

/* Finds the values of some of an object's members; null is absent (data NULL). `raw` may be anything: what is not
 * an object has no members. Of a name that stands there twice the last counts. */
void slice_members(struct str raw, const char *const *names, struct str *ret, size_t count);

/* slice_items begins to read the items of an array, slice_next reads one; what is not an array has none. */
struct json_reader slice_items(struct str raw);
bool slice_next(struct json_reader *r, struct str *ret);
