/* pick.h - single values out of a JSON reply, by path.
 *
 * Layer:    cli (base/core)
 * Paths:    member names joined by dots: "engine.running"; no indices (pick_each walks a list)
 * Absent:   a missing member and null are the same here: -ENOENT; something else than JSON or of
 *           another type is -EINVAL
 * Lifetime: results point into the text
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

int pick(struct str json, const char *path, struct str *ret); /* the value's bytes */
int pick_text(struct str json, const char *path, struct buf *out);
int pick_f64(struct str json, const char *path, double *ret);
int pick_u64(struct str json, const char *path, uint64_t *ret);
int pick_bool(struct str json, const char *path, bool *ret);

/* Calls fn for each item of the list at path (the whole text when path is ""). What fn returns
 * other than 0 ends the walk and is returned. */
int pick_each(struct str json, const char *path, int (*fn)(void *ctx, struct str item), void *ctx);

/* The same over an object's members; `name` is unescaped and lives for the call. */
int pick_each_member(struct str json, const char *path,
                     int (*fn)(void *ctx, struct str name, struct str value), void *ctx);
