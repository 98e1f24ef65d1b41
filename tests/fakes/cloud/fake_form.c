/* fake_form.c - checks requests against what an API documents. */
#include "tests/fakes/cloud/fake_form.h"

#include "base/core/json.h"
#include "base/core/own.h"

#include <stdio.h>

static int refuse(char why[FORM_WHY_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(char why[FORM_WHY_BYTES], const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, FORM_WHY_BYTES, format, ap);
    va_end(ap);
    return -EINVAL;
}

static const struct form_field *find(const struct form_field *fields, struct str name)
{
    for (; fields->name; fields++)
        if (str_eq(name, str_from(fields->name))) return fields;
    return NULL;
}

static bool is_whole(struct str raw)
{
    int64_t n;
    return str_to_i64(raw, &n) == 0;
}

static bool is_text(struct str raw)
{
    return raw.len >= 2 && raw.data[0] == '"';
}

/* True if each item of a list, or each value of a map, is of the type. */
static bool all_are(struct str raw, enum form_type type)
{
    struct json_reader r;
    struct str item;
    json_reader_init(&r, raw);
    enum json_token end = type == FORM_MAP ? JSON_OBJECT_END : JSON_ARRAY_END;
    if (json_next(&r) != (type == FORM_MAP ? JSON_OBJECT : JSON_ARRAY)) return false;
    if (type == FORM_MAP) {
        while (json_next(&r) == JSON_KEY)
            if (json_raw_value(&r, &item) < 0 || !is_text(item)) return false;
        return r.token == end;
    }
    while (json_next(&r) != end) {
        if (r.token == JSON_ERROR) return false;
        bool text = r.token == JSON_STRING;
        bool whole = r.token == JSON_NUMBER && is_whole(r.raw);
        if (type == FORM_TEXTS && !text) return false;
        if (type == FORM_WHOLES && !whole) return false;
        if (type == FORM_WHOLES_OR_TEXTS && !text && !whole) return false;
    }
    return true;
}

static bool is_number(struct str raw)
{
    double n;
    return str_to_f64(raw, &n) == 0;
}

static int check_list(struct str raw, const struct form_field *f, char why[FORM_WHY_BYTES])
{
    struct json_reader r;
    json_reader_init(&r, raw);
    if (json_next(&r) != JSON_ARRAY) return refuse(why, "%s: no list", f->name);
    while (json_next(&r) != JSON_ARRAY_END) {
        if (r.token != JSON_OBJECT) return refuse(why, "%s: an item is no object", f->name);
        size_t start = r.start;
        json_skip_rest(&r);
        if (r.token == JSON_ERROR) return refuse(why, "%s: no JSON", f->name);
        int rc = form_check(str_of(raw.data + start, r.pos - start), f->inner, why);
        if (rc < 0) return rc;
    }
    return 0;
}

static int check_value(struct str raw, const struct form_field *f, char why[FORM_WHY_BYTES])
{
    bool fine = false;
    switch (f->type) {
    case FORM_TEXT:
        fine = is_text(raw);
        break;
    case FORM_BOOL:
        fine = str_eq(raw, STR("true")) || str_eq(raw, STR("false"));
        break;
    case FORM_WHOLE:
        fine = is_whole(raw);
        break;
    case FORM_NUMBER:
        fine = is_number(raw);
        break;
    case FORM_WHOLE_OR_TEXT:
        fine = is_whole(raw) || is_text(raw);
        break;
    case FORM_MAP:
    case FORM_TEXTS:
    case FORM_WHOLES:
    case FORM_WHOLES_OR_TEXTS:
        fine = all_are(raw, f->type);
        break;
    case FORM_OBJECT:
        return form_check(raw, f->inner, why);
    case FORM_OBJECTS:
        return check_list(raw, f, why);
    case FORM_ANY:
        return 0;
    }
    return fine ? 0 : refuse(why, "%s: of another type", f->name);
}

int form_check(struct str json, const struct form_field *fields, char why[FORM_WHY_BYTES])
{
    struct json_reader r;
    uint64_t seen = 0;
    json_reader_init(&r, json);
    if (json_next(&r) != JSON_OBJECT) return refuse(why, "no object");
    while (json_next(&r) == JSON_KEY) {
        struct str name = r.raw, raw;
        const struct form_field *f = find(fields, name);
        if (!f) return refuse(why, STR_FMT ": there is no such member", STR_ARG(name));
        if (json_raw_value(&r, &raw) < 0) return refuse(why, "%s: no JSON", f->name);
        int rc = check_value(str_trim(raw), f, why);
        if (rc < 0) return rc;
        seen |= (uint64_t)1 << (f - fields);
    }
    if (r.token != JSON_OBJECT_END) return refuse(why, "no JSON");
    for (const struct form_field *f = fields; f->name; f++)
        if (f->required && !(seen >> (f - fields) & 1))
            return refuse(why, "%s: is missing", f->name);
    return 0;
}

/* ---- targets ---- */

int form_target(struct str url, struct str base, struct form_target *ret)
{
    size_t host = str_find(url, STR("://"));
    struct str rest = url;
    if (host != SIZE_MAX) {
        rest = str_of(url.data + host + 3, url.len - host - 3);
        size_t path = str_find(rest, STR("/"));
        if (path == SIZE_MAX) return -EINVAL;
        rest = str_of(rest.data + path, rest.len - path);
    }
    if (!str_starts(rest, base)) return -EINVAL;
    rest = str_of(rest.data + base.len, rest.len - base.len);
    ret->path = str_cut(&rest, '?');
    ret->query = rest;
    return 0;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static struct str decode(struct arena *arena, struct str text)
{
    char *out = arena_alloc(arena, text.len + 1);
    size_t len = 0;
    must(out);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool escaped = c == '%' && i + 2 < text.len && digit(text.data[i + 1]) >= 0 &&
                       digit(text.data[i + 2]) >= 0;
        if (escaped) c = (char)(digit(text.data[i + 1]) * 16 + digit(text.data[i + 2]));
        out[len++] = !escaped && c == '+' ? ' ' : c;
        i += escaped ? 2 : 0;
    }
    return str_of(out, len);
}

struct str form_query(struct arena *arena, struct str query, const char *name)
{
    while (query.len > 0) {
        struct str value = str_cut(&query, '&'), key = str_cut(&value, '=');
        if (str_eq(decode(arena, key), str_from(name))) return decode(arena, value);
    }
    return (struct str){ 0 };
}

int form_query_check(struct str query, const char *const *names, char why[FORM_WHY_BYTES])
{
    while (query.len > 0) {
        struct str value = str_cut(&query, '&'), key = str_cut(&value, '=');
        const char *const *name = names;
        while (*name && !str_eq(key, str_from(*name)))
            name++;
        if (!*name) return refuse(why, STR_FMT ": there is no such parameter", STR_ARG(key));
    }
    return 0;
}

struct str form_header(const struct web_ask *ask, const char *name)
{
    for (uint32_t i = 0; i < ask->header_count; i++)
        if (str_eq_nocase(ask->header[i].name, str_from(name))) return ask->header[i].value;
    return (struct str){ 0 };
}
