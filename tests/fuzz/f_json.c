/* f_json.c - checks the JSON reader and writer against each other: accepted text is written out again
 * by the writer and read back, token by token the same. */
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "tests/fuzz/fuzz.h"

/* Writes the current token. Returns false when it is the text's end or an error. */
static bool copy_token(struct json_reader *r, struct json_writer *w, struct buf *text)
{
    double v;
    buf_clear(text);
    switch (r->token) {
    case JSON_OBJECT:
        json_object(w);
        return true;
    case JSON_OBJECT_END:
        json_object_end(w);
        return true;
    case JSON_ARRAY:
        json_array(w);
        return true;
    case JSON_ARRAY_END:
        json_array_end(w);
        return true;
    case JSON_KEY:
        must(json_text(r, text) == 0);
        json_key_str(w, buf_view(text));
        return true;
    case JSON_STRING:
        must(json_text(r, text) == 0);
        must(str_utf8_valid(buf_view(text)));
        json_put_str(w, buf_view(text));
        return true;
    case JSON_NUMBER:
        if (json_f64(r, &v) == 0)
            json_put_f64(w, v);
        else
            json_put_raw(w, r->raw); /* beyond a double */
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        json_put_bool(w, r->token == JSON_TRUE);
        return true;
    case JSON_NULL:
        json_put_null(w);
        return true;
    case JSON_ERROR:
    case JSON_END:
    case JSON_TOKEN_COUNT:
        break;
    }
    return false;
}

static void same_value(struct json_reader *a, struct json_reader *b, struct buf *x, struct buf *y)
{
    double v = 0, w = 0;
    buf_clear(x);
    buf_clear(y);
    if (json_text(a, x) == 0) must(json_text(b, y) == 0 && str_eq(buf_view(x), buf_view(y)));

    CLEANUP(arena_fini) struct arena arena = { .bytes_max = SIZE_MAX };
    struct str copy;
    if (json_text_arena(a, &arena, &copy) == 0) must(str_eq(copy, buf_view(x)));
    if (json_f64(a, &v) == 0) must(json_f64(b, &w) == 0 && memcmp(&v, &w, sizeof v) == 0);
}

const struct fuzz_cost fuzz_cost = { 20000, 400 };

void fuzz_one(const uint8_t *data, size_t len)
{
    CLEANUP(buf_fini) struct buf copy = { 0 };
    CLEANUP(buf_fini) struct buf x = { 0 };
    CLEANUP(buf_fini) struct buf y = { 0 };
    struct json_reader r, back;
    struct json_writer w;
    struct str text = str_of(data, len);

    json_writer_init(&w, &copy);
    json_reader_init(&r, text);
    do {
        json_next(&r);
        must(r.pos <= len && r.depth <= JSON_DEPTH_MAX);
    } while (copy_token(&r, &w, &x));
    if (r.token == JSON_ERROR) {
        must(r.problem && json_next(&r) == JSON_ERROR);
        return;
    }

    json_reader_init(&r, text);
    json_reader_init(&back, buf_view(&copy));
    do {
        must(json_next(&r) == json_next(&back));
        same_value(&r, &back, &x, &y);
    } while (r.token != JSON_END);

    struct str raw;
    json_reader_init(&r, text);
    must(json_raw_value(&r, &raw) == 0 && json_next(&r) == JSON_END);
}
