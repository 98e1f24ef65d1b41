/* json_path.h - reads values out of a JSON text by the path of their members.
 *
 * Layer:  base/core (libc)
 * Paths:  member names joined by dots: "engine.running"; no indices (json_path_each walks a list), and no
 *         names with a dot (json_path_each_member walks an object). A missing member and null are the
 *         same: -ENOENT; text that is not JSON, or a value of another type, is -EINVAL
 * Life:   results point into the text
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/str.h"

int json_path(struct str json, const char *path, struct str *ret); /* the value's bytes */
int json_path_text(struct str json, const char *path, struct buf *out);
int json_path_f64(struct str json, const char *path, double *ret);
int json_path_u64(struct str json, const char *path, uint64_t *ret);
int json_path_bool(struct str json, const char *path, bool *ret);

/* Calls fn for each item of the list at path (the whole text when path is ""). A result of fn other than
 * 0 ends the walk and is returned. */
int json_path_each(struct str json, const char *path, int (*fn)(void *ctx, struct str item),
                   void *ctx);

/* The same over an object's members; `name` is unescaped and lives for the call. */
int json_path_each_member(struct str json, const char *path,
                          int (*fn)(void *ctx, struct str name, struct str value), void *ctx);
