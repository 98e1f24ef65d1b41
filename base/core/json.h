/* json.h - reads and writes strict JSON (RFC 8259): a pull reader that copies nothing, a writer over struct buf.
 *
 * Layer:  base/core (libc)
 * Reader: walks borrowed text. Every refusal (bad syntax, bad UTF-8, a bad escape, a lone surrogate,
 *         too many levels or keys, text behind the end) is JSON_ERROR, sticky, with a sentence and
 *         an offset. It holds no memory but the struct.
 * Writer: puts commas and colons itself; strings are escaped, invalid UTF-8 becomes U+FFFD;
 *         NaN and infinities become null. Check w->out->rc once at the end.
 *
 *     struct json_reader r;
 *     json_reader_init(&r, text);
 *     if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the request");
 *     while (json_next(&r) == JSON_KEY) {
 *         if (json_key_is(&r, "stream")) json_next(&r), rc = json_bool(&r, &req->stream);
 *         else json_skip(&r);               // skips the value behind the key
 *     }
 *     if (r.token != JSON_OBJECT_END) return json_fail(...);
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"

#define JSON_DEPTH_MAX 64
#define JSON_KEYS_MAX 1024 /* of one object; bounds the tables that readers fill from it */

enum json_token {
    JSON_ERROR,
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_KEY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL,
    JSON_END, /* the whole text was one value and has ended */
    JSON_TOKEN_COUNT
};

struct json_reader {
    struct str text;
    size_t pos;
    enum json_token token; /* the current one */
    struct str raw;        /* its bytes: for KEY and STRING without the quotes, still escaped */
    size_t start;          /* offset of the current token (the opening bracket or quote) */
    bool escaped;          /* raw holds at least one backslash */
    uint8_t expect;        /* private: what may come next (enum expect) */
    uint32_t depth;
    uint64_t in_object;            /* bit d: level d is an object */
    uint32_t keys[JSON_DEPTH_MAX]; /* keys read so far in the object at each level */
    uint32_t keys_max;   /* of one object; 0: JSON_KEYS_MAX. Set it behind json_reader_init */
    const char *problem; /* static sentence once token is JSON_ERROR */
    bool beyond;         /* the error is a bound: too many levels or keys */
};

void json_reader_init(struct json_reader *r, struct str text);
enum json_token json_next(struct json_reader *r);

/* json_skip skips the value that comes next. json_skip_rest skips the rest of the value that starts
 * with the current token. Both return the token on which they stopped: the value's last. */
enum json_token json_skip(struct json_reader *r);
enum json_token json_skip_rest(struct json_reader *r);

/* Reads the whole value that comes next and returns its bytes (not copied), brackets and quotes
 * included. -EINVAL when it is not well-formed. */
int json_raw_value(struct json_reader *r, struct str *ret);

bool json_key_is(const struct json_reader *r,
                 const char *name); /* current KEY, unescaped compare */

/* Convert the current token to a C value; -EINVAL when it is of another type, -ERANGE when it does
 * not fit. Whole numbers written as 1.0 or 1e3 count as integers too. */
int json_text(const struct json_reader *r, struct buf *out); /* appends the unescaped text */
int json_text_arena(const struct json_reader *r, struct arena *a, struct str *ret); /* a copy */
int json_i64(const struct json_reader *r, int64_t *ret);
int json_u64(const struct json_reader *r, uint64_t *ret);
int json_f64(const struct json_reader *r, double *ret);
int json_bool(const struct json_reader *r, bool *ret);

/* Sets err to "what: problem at byte N" and returns -EINVAL. */
int json_fail(const struct json_reader *r, struct err *err, const char *what);

/* Returns true if the byte stands for itself in a string: ASCII, no control, quote or backslash. */
static inline bool json_is_plain(char c)
{
    return c >= 0x20 && c != '"' && c != '\\' && (unsigned char)c < 0x80;
}

/* Counts the plain bytes at the start of `s`, eight at a time. */
size_t json_plain(struct str s);

/* Unescape a raw slice of a string: into `out`; to `to`, with room for raw.len bytes because unescaping
 * never lengthens; or into an arena. json_unescape_to returns the bytes written. -EINVAL and SIZE_MAX
 * mean a malformed escape, which slices from a reader never have. */
int json_unescape(struct str raw, struct buf *out);
size_t json_unescape_to(struct str raw, char *to);
int json_unescape_arena(struct str raw, struct arena *a, struct str *ret);

struct json_writer {
    struct buf *out;
    uint64_t has_item; /* bit d: level d has an item already */
    uint32_t depth;
    bool after_key;
};

void json_writer_init(struct json_writer *w, struct buf *out);
void json_object(struct json_writer *w);
void json_object_end(struct json_writer *w);
void json_array(struct json_writer *w);
void json_array_end(struct json_writer *w);
void json_key(struct json_writer *w, const char *name);
void json_key_str(struct json_writer *w, struct str name);
void json_put_str(struct json_writer *w, struct str s);
void json_put_text(struct json_writer *w, const char *text); /* NULL becomes null */
void json_put_i64(struct json_writer *w, int64_t v);
void json_put_u64(struct json_writer *w, uint64_t v);
void json_put_f64(struct json_writer *w, double v); /* shortest form that reads back equal */
void json_put_bool(struct json_writer *w, bool v);
void json_put_null(struct json_writer *w);
void json_put_raw(struct json_writer *w, struct str json); /* trusted, well-formed */

/* These write a key and its value. */
void json_kv_str(struct json_writer *w, const char *name, struct str s);
void json_kv_text(struct json_writer *w, const char *name, const char *text);
void json_kv_i64(struct json_writer *w, const char *name, int64_t v);
void json_kv_u64(struct json_writer *w, const char *name, uint64_t v);
void json_kv_f64(struct json_writer *w, const char *name, double v);
void json_kv_bool(struct json_writer *w, const char *name, bool v);
