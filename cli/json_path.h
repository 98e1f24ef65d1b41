/* json_path.h - single values out of a JSON reply, by path.
 *
 * Layer:    cli (base/core)
 * Paths:    member names joined by dots: "engine.running"; no indices (json_path_each walks a list)
 * Absent:   a missing member and null are the same here: -ENOENT; something else than JSON or of
 *           another type is -EINVAL
 * Lifetime: results point into the text
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

int json_path(struct str json, const char *path, struct str *ret); /* the value's bytes */
int json_path_text(struct str json, const char *path, struct buf *out);
int json_path_f64(struct str json, const char *path, double *ret);
int json_path_u64(struct str json, const char *path, uint64_t *ret);
int json_path_bool(struct str json, const char *path, bool *ret);

/* Calls fn for each item of the list at path (the whole text when path is ""). What fn returns
 * other than 0 ends the walk and is returned. */
int json_path_each(struct str json, const char *path, int (*fn)(void *ctx, struct str item),
                   void *ctx);

/* The same over an object's members; `name` is unescaped and lives for the call. */
int json_path_each_member(struct str json, const char *path,
                          int (*fn)(void *ctx, struct str name, struct str value), void *ctx);
