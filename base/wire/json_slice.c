/* json_slice.c - finds members and items of well-formed JSON. */
#include "base/wire/json_slice.h"

bool slice_is_a(struct str raw, char first)
{
    return raw.len > 0 && raw.data[0] == first;
}

bool slice_is_text(struct str raw)
{
    return slice_is_a(raw, '"');
}

struct str slice_inside(struct str raw)
{
    return str_of(raw.data + 1, raw.len - 2);
}

bool slice_says(struct str raw, const char *word)
{
    return slice_is_text(raw) && str_eq(slice_inside(raw), str_from(word));
}

void slice_members(struct str raw, const char *const *names, struct str *ret, size_t count)
{
    struct json_reader r;
    memset(ret, 0, count * sizeof *ret);
    if (!slice_is_a(raw, '{')) return;
    json_reader_init(&r, raw);
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        struct str value, *to = NULL;
        for (size_t i = 0; i < count && !to; i++)
            if (json_key_is(&r, names[i])) to = &ret[i];
        if (json_raw_value(&r, &value) < 0) return;
        if (to) *to = str_eq(value, STR("null")) ? (struct str){ 0 } : value;
    }
}

struct json_reader slice_items(struct str raw)
{
    struct json_reader r;
    json_reader_init(&r, slice_is_a(raw, '[') ? raw : STR("[]"));
    json_next(&r);
    return r;
}

bool slice_next(struct json_reader *r, struct str *ret)
{
    enum json_token t = json_next(r);
    if (t == JSON_ARRAY_END || t == JSON_ERROR) return false;
    size_t start = r->start;
    json_skip_rest(r);
    *ret = str_of(r->text.data + start, r->pos - start);
    return true;
}
