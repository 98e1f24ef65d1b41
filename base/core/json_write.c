/* json_write.c - writes JSON; one bit a level says whether a comma is due.
 *
 * Strings may hold anything that a model or a client produced, so they are escaped and repaired here.
 * The structure comes from our own code, so a wrong nesting fails a must(). */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/json.h"

#include <math.h>
#include <stdio.h>

void json_writer_init(struct json_writer *w, struct buf *out)
{
    *w = (struct json_writer){ .out = out };
}

/* Writes the comma that is due before an item, and notes that the next item needs one. */
static void item(struct json_writer *w)
{
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->depth == 0) return;
    uint64_t bit = (uint64_t)1 << (w->depth - 1);
    if (w->has_item & bit) buf_byte(w->out, ',');
    w->has_item |= bit;
}

static void open_bracket(struct json_writer *w, char bracket)
{
    item(w);
    must(w->depth < JSON_DEPTH_MAX);
    w->has_item &= ~((uint64_t)1 << w->depth++);
    buf_byte(w->out, bracket);
}

static void close_bracket(struct json_writer *w, char bracket)
{
    must(w->depth > 0 && !w->after_key);
    w->depth--;
    buf_byte(w->out, bracket);
}

void json_object(struct json_writer *w)
{
    open_bracket(w, '{');
}

void json_object_end(struct json_writer *w)
{
    close_bracket(w, '}');
}

void json_array(struct json_writer *w)
{
    open_bracket(w, '[');
}

void json_array_end(struct json_writer *w)
{
    close_bracket(w, ']');
}

/* Counts the bytes at the start of `s` that may stand in a JSON string as they are. */
static size_t plain_run(struct str s)
{
    size_t i = json_plain(s);
    while (i < s.len && (uint8_t)s.data[i] >= 0x80) {
        uint32_t ignored;
        size_t n = utf8_decode(str_of(s.data + i, s.len - i), &ignored);
        if (n == 0) break;
        i += n;
        i += json_plain(str_of(s.data + i, s.len - i));
    }
    return i;
}

/* Escapes or replaces the character at the start of `s`; returns its length in `s`. */
static size_t put_special(struct buf *out, struct str s)
{
    static const char byte[] = "\"\\\b\f\n\r\t", name[] = "\"\\bfnrt";
    uint8_t c = (uint8_t)s.data[0];
    if (c >= 0x80) {
        buf_text(out, "\xef\xbf\xbd"); /* U+FFFD */
        return utf8_invalid(s);
    }
    const char *at = memchr(byte, c, sizeof byte - 1);
    if (at)
        buf_append(out, (char[2]){ '\\', name[at - byte] }, 2);
    else
        buf_printf(out, "\\u%04x", c);
    return 1;
}

static void put_quoted(struct buf *out, struct str s)
{
    if (buf_reserve(out, s.len + 2) < 0) return; /* the result is at least this long */
    buf_byte(out, '"');
    while (s.len) {
        size_t n = plain_run(s);
        if (n)
            buf_append(out, s.data, n);
        else
            n = put_special(out, s);
        s = str_of(s.data + n, s.len - n);
    }
    buf_byte(out, '"');
}

void json_key(struct json_writer *w, const char *name)
{
    json_key_str(w, str_from(name));
}

void json_key_str(struct json_writer *w, struct str name)
{
    must(w->depth > 0 && !w->after_key);
    item(w);
    w->after_key = true;
    struct buf *out = w->out;
    if (json_plain(name) < name.len) {
        put_quoted(out, name);
        buf_byte(out, ':');
    } else if (buf_reserve(out, name.len + 3) == 0) {
        char *to = out->data + out->len;
        *to++ = '"';
        if (name.len) memcpy(to, name.data, name.len);
        memcpy(to + name.len, "\":", 3);
        out->len += name.len + 3;
    }
}

void json_put_str(struct json_writer *w, struct str s)
{
    item(w);
    put_quoted(w->out, s);
}

void json_put_text(struct json_writer *w, const char *text)
{
    if (text)
        json_put_str(w, str_from(text));
    else
        json_put_null(w);
}

/* Writes a decimal number by hand: printf takes eight times as long, and a prompt is a hundred thousand ids. */
static void put_decimal(struct buf *out, bool negative, uint64_t magnitude)
{
    char text[21]; /* a sign and 20 digits */
    size_t at = sizeof text;
    do {
        text[--at] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude);
    if (negative) text[--at] = '-';
    buf_append(out, text + at, sizeof text - at);
}

void json_put_i64(struct json_writer *w, int64_t v)
{
    item(w);
    put_decimal(w->out, v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void json_put_u64(struct json_writer *w, uint64_t v)
{
    item(w);
    put_decimal(w->out, false, v);
}

#define WHOLE_MAX 1e15 /* %.15g writes whole numbers below it without an exponent */

void json_put_f64(struct json_writer *w, double v)
{
    if (!isfinite(v)) {
        json_put_null(w);
        return;
    }
    if (v == floor(v) && fabs(v) < WHOLE_MAX && !(v == 0 && signbit(v))) {
        json_put_i64(w, (int64_t)v);
        return;
    }
    /* Any decimal of up to 15 digits survives conversion to a double and back, so %.15g finds a
     * form shorter than 15 digits by itself; 17 digits always suffice. Subnormals have fewer
     * significant digits, so they start at 1. Near DBL_MAX a short form may round to infinity,
     * which str_to_f64 refuses. */
    char text[40]; /* 24 suffice; gcc's bound for %.*g is 38 */
    double back = 0;
    int digits = fpclassify(v) == FP_SUBNORMAL ? 1 : 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits, v);
    } while ((str_to_f64(str_from(text), &back) < 0 || back != v) && ++digits <= 17);
    item(w);
    buf_text(w->out, text);
}

void json_put_bool(struct json_writer *w, bool v)
{
    item(w);
    buf_text(w->out, v ? "true" : "false");
}

void json_put_null(struct json_writer *w)
{
    item(w);
    buf_text(w->out, "null");
}

void json_put_raw(struct json_writer *w, struct str json)
{
    item(w);
    buf_str(w->out, json);
}

void json_kv_str(struct json_writer *w, const char *name, struct str s)
{
    json_key(w, name);
    json_put_str(w, s);
}

void json_kv_text(struct json_writer *w, const char *name, const char *text)
{
    json_key(w, name);
    json_put_text(w, text);
}

void json_kv_i64(struct json_writer *w, const char *name, int64_t v)
{
    json_key(w, name);
    json_put_i64(w, v);
}

void json_kv_u64(struct json_writer *w, const char *name, uint64_t v)
{
    json_key(w, name);
    json_put_u64(w, v);
}

void json_kv_f64(struct json_writer *w, const char *name, double v)
{
    json_key(w, name);
    json_put_f64(w, v);
}

void json_kv_bool(struct json_writer *w, const char *name, bool v)
{
    json_key(w, name);
    json_put_bool(w, v);
}
