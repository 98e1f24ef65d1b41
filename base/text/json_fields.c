/* json_fields.c - splits an object into raw values, which their readers then convert. */
#include "base/text/json_fields.h"

#include <stdio.h>
#include <string.h>

#define KEYS_MAX (4u << 20) /* of an object within a value that is only passed over */

struct json_place json_member(const struct json_place *at, const char *name)
{
    struct json_place made = { .arena = at->arena };
    snprintf(made.path, sizeof made.path, "%.90s%s%.60s", at->path, at->path[0] ? "." : "", name);
    return made;
}

struct json_place json_item(const struct json_place *at, size_t index)
{
    struct json_place made = { .arena = at->arena };
    snprintf(made.path, sizeof made.path, "%.120s[%zu]", at->path, index);
    return made;
}

int json_bad(const struct json_place *at, int rc, struct err *err, const char *format, ...)
{
    char sentence[200];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return err_set(err, rc, "%s: %s", at->path[0] ? at->path : "the file", sentence);
}

static int take(const struct json_place *at, struct json_reader *r, struct json_field *fields,
                size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!json_key_is(r, fields[i].name)) continue;
        const struct json_place here = json_member(at, fields[i].name);
        if (fields[i].raw.data) return json_bad(&here, -EINVAL, err, "is there twice");
        if (json_raw_value(r, &fields[i].raw) < 0) return json_fail(r, err, here.path);
        return 0;
    }
    return json_bad(at, -ENOTSUP, err, "member \"%.*s\" is not supported",
                    (int)(r->raw.len < 64 ? r->raw.len : 64), r->raw.data);
}

int json_fields(const struct json_place *at, struct str object, struct json_field *fields,
                size_t count, struct err *err)
{
    struct json_reader r;
    for (size_t i = 0; i < count; i++)
        fields[i].raw = (struct str){ 0 };
    if (object.len == 0) return json_bad(at, -EINVAL, err, "an object is missing");
    json_reader_init(&r, object);
    r.keys_max = KEYS_MAX;
    if (json_next(&r) != JSON_OBJECT) return json_bad(at, -EINVAL, err, "is no object");
    while (json_next(&r) == JSON_KEY) {
        int rc = take(at, &r, fields, count, err);
        if (rc < 0) return rc;
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, at->path[0] ? at->path : "the file");
    for (size_t i = 0; i < count; i++)
        if (str_eq(fields[i].raw, STR("null"))) fields[i].raw.len = 0;
    return 0;
}

static int convert(const struct json_field *f, struct json_reader *r)
{
    json_reader_init(r, f->raw);
    r->keys_max = KEYS_MAX;
    return json_next(r) == JSON_ERROR ? -EINVAL : 0;
}

static int wrong(const struct json_place *at, const struct json_field *f, const char *want,
                 struct err *err)
{
    const struct json_place here = json_member(at, f->name);
    return json_bad(&here, -EINVAL, err, "want %s", want);
}

int json_field_bool(const struct json_place *at, const struct json_field *f, bool *ret,
                    struct err *err)
{
    struct json_reader r;
    if (f->raw.len == 0) return 0;
    if (convert(f, &r) < 0 || json_bool(&r, ret) < 0) return wrong(at, f, "true or false", err);
    return 0;
}

int json_field_u32(const struct json_place *at, const struct json_field *f, uint32_t *ret,
                   struct err *err)
{
    struct json_reader r;
    uint64_t value;
    if (f->raw.len == 0) return 0;
    if (convert(f, &r) < 0 || json_u64(&r, &value) < 0 || value > UINT32_MAX)
        return wrong(at, f, "a whole number below 2^32", err);
    *ret = (uint32_t)value;
    return 0;
}

int json_field_text(const struct json_place *at, const struct json_field *f, struct str *ret,
                    struct err *err)
{
    struct json_reader r;
    if (f->raw.len == 0) return 0;
    int rc = convert(f, &r) < 0 || r.token != JSON_STRING ? -EINVAL
                                                          : json_text_arena(&r, at->arena, ret);
    if (rc == -EINVAL) return wrong(at, f, "a text", err);
    return rc < 0 ? err_set(err, rc, "no memory for the tokenizer") : 0;
}

int json_items(const struct json_place *at, const struct json_field *f, json_item_fn fn, void *ctx,
               struct err *err)
{
    const struct json_place list = json_member(at, f->name);
    struct json_reader r;
    struct str raw;
    if (f->raw.len == 0) return 0;
    if (convert(f, &r) < 0 || r.token != JSON_ARRAY) return wrong(at, f, "a list", err);
    for (size_t i = 0;; i++) {
        if (json_next(&r) == JSON_ARRAY_END) return 0;
        size_t start = r.start;
        if (r.token == JSON_ERROR || json_skip_rest(&r) == JSON_ERROR)
            return json_fail(&r, err, list.path);
        raw = str_of(f->raw.data + start, r.pos - start);
        const struct json_place here = json_item(&list, i);
        int rc = fn(ctx, &here, raw, err);
        if (rc != 0) return rc;
    }
}

int json_type(const struct json_place *at, struct str object, struct str *ret, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, object);
    r.keys_max = KEYS_MAX;
    if (json_next(&r) != JSON_OBJECT) return json_bad(at, -EINVAL, err, "is no object");
    while (json_next(&r) == JSON_KEY) {
        struct json_field type = { .name = "type" };
        if (!json_key_is(&r, "type")) {
            json_skip(&r);
            continue;
        }
        if (json_raw_value(&r, &type.raw) < 0) return json_fail(&r, err, at->path);
        return json_field_text(at, &type, ret, err);
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, at->path);
    return json_bad(at, -EINVAL, err, "has no type");
}
