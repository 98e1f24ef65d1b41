/* json_path.c - finds values of a JSON text by paths.
 *
 * Each value is found by a new walk over the text, without a tree: the texts are small, and a caller
 * that needs many members of one object walks them with json_path_each_member. */
#include "base/core/json_path.h"

#include "base/core/json.h"
#include "base/core/own.h"

#define NAME_BYTES_MAX 64 /* of one member name in a path; paths are ours */

static int member(struct str json, struct str name, struct str *ret)
{
    char text[NAME_BYTES_MAX];
    struct json_reader r;
    must(name.len < sizeof text);
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    json_reader_init(&r, json);
    if (json_next(&r) != JSON_OBJECT) return r.token == JSON_ERROR ? -EINVAL : -ENOENT;
    while (json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, text)) return json_raw_value(&r, ret);
        json_skip(&r);
    }
    return r.token == JSON_OBJECT_END ? -ENOENT : -EINVAL;
}

int json_path(struct str json, const char *path, struct str *ret)
{
    struct str rest = str_from(path), value = json;
    while (rest.len > 0) {
        int rc = member(value, str_cut(&rest, '.'), &value);
        if (rc < 0) return rc;
    }
    value = str_trim(value);
    if (str_eq(value, STR("null"))) return -ENOENT;
    *ret = value;
    return 0;
}

/* Moves the reader to the value at path. */
static int read_at(struct str json, const char *path, struct json_reader *r)
{
    struct str value;
    int rc = json_path(json, path, &value);
    if (rc < 0) return rc;
    json_reader_init(r, value);
    return json_next(r) == JSON_ERROR ? -EINVAL : 0;
}

int json_path_text(struct str json, const char *path, struct buf *out)
{
    struct json_reader r;
    int rc = read_at(json, path, &r);
    return rc < 0 ? rc : json_text(&r, out);
}

int json_path_f64(struct str json, const char *path, double *ret)
{
    struct json_reader r;
    int rc = read_at(json, path, &r);
    return rc < 0 ? rc : json_f64(&r, ret);
}

int json_path_u64(struct str json, const char *path, uint64_t *ret)
{
    struct json_reader r;
    int rc = read_at(json, path, &r);
    return rc < 0 ? rc : json_u64(&r, ret);
}

int json_path_bool(struct str json, const char *path, bool *ret)
{
    struct json_reader r;
    int rc = read_at(json, path, &r);
    return rc < 0 ? rc : json_bool(&r, ret);
}

/* Returns true if the list has another item. It reads ahead on a copy of the reader, because
 * json_raw_value has to read the item itself. */
static bool list_has_more(const struct json_reader *r)
{
    struct json_reader ahead = *r;
    enum json_token t = json_next(&ahead);
    return t != JSON_ARRAY_END && t != JSON_ERROR;
}

int json_path_each(struct str json, const char *path, int (*fn)(void *ctx, struct str item),
                   void *ctx)
{
    struct json_reader r;
    int rc = read_at(json, path, &r);
    if (rc < 0) return rc;
    if (r.token != JSON_ARRAY) return -EINVAL;
    while (list_has_more(&r)) {
        struct str item;
        rc = json_raw_value(&r, &item);
        if (rc == 0) rc = fn(ctx, item);
        if (rc != 0) return rc;
    }
    return json_next(&r) == JSON_ARRAY_END ? 0 : -EINVAL;
}

int json_path_each_member(struct str json, const char *path,
                          int (*fn)(void *ctx, struct str name, struct str value), void *ctx)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    struct json_reader r;
    int rc = read_at(json, path, &r);
    if (rc < 0) return rc;
    if (r.token != JSON_OBJECT) return -EINVAL;
    while (json_next(&r) == JSON_KEY) {
        struct str value;
        buf_clear(&name);
        rc = json_text(&r, &name);
        if (rc == 0) rc = json_raw_value(&r, &value);
        if (rc == 0) rc = fn(ctx, buf_view(&name), value);
        if (rc != 0) return rc;
    }
    return r.token == JSON_OBJECT_END ? 0 : -EINVAL;
}
