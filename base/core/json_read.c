/* json_read.c - reads JSON token by token; the state is one byte, a depth and one bit a level.
 *
 *     VALUE ──{──► FIRST_KEY ─key:─► VALUE ──scalar──► AFTER ──,──► KEY or VALUE
 *       │                                               │
 *       └──[──► FIRST_VALUE ...                         └──} or ]──► AFTER, or TAIL at depth 0
 *
 * Nothing recurses and nothing is copied: a token is a slice of the text. A string is checked
 * whole (UTF-8, escapes, surrogate pairs) when it is read, so later code may trust its slices. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/work.h"

#include <math.h>

_Static_assert(JSON_DEPTH_MAX == 64 && JSON_KEYS_MAX == 1024, "sentences name them");

enum expect {
    EXPECT_VALUE,
    EXPECT_FIRST_VALUE, /* a value or ] */
    EXPECT_FIRST_KEY,   /* a key or } */
    EXPECT_KEY,
    EXPECT_AFTER, /* a comma or the closing bracket */
    EXPECT_TAIL,  /* nothing but blanks */
};

void json_reader_init(struct json_reader *r, struct str text)
{
    if (!text.data) text = STR(""); /* so that pointers into it are pointers into something */
    *r = (struct json_reader){ .text = text, .expect = EXPECT_VALUE, .token = JSON_NULL };
}

static enum json_token fail(struct json_reader *r, const char *problem)
{
    r->problem = problem;
    r->start = r->pos;
    r->raw = (struct str){ 0 };
    return r->token = JSON_ERROR;
}

static enum json_token beyond(struct json_reader *r, const char *problem)
{
    r->beyond = true;
    return fail(r, problem);
}

static char peek(const struct json_reader *r)
{
    /* Outside of strings a NUL is never legal, so it can stand for the end. */
    return r->pos < r->text.len ? r->text.data[r->pos] : 0;
}

static void skip_blanks(struct json_reader *r)
{
    while (r->pos < r->text.len) {
        char c = r->text.data[r->pos];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
        r->pos++;
    }
}

static enum json_token token_is(struct json_reader *r, enum json_token token)
{
    r->raw = str_of(r->text.data + r->start, r->pos - r->start);
    return r->token = token;
}

static void after_value(struct json_reader *r)
{
    r->expect = r->depth ? EXPECT_AFTER : EXPECT_TAIL;
}

/* Returns the value of the four hexadecimal digits at the start of `s`; -1 if they are not digits. */
static int hex4(struct str s)
{
    if (s.len < 4) return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s.data[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        v = v << 4 | digit;
    }
    return v;
}

/* Decodes the escape at the start of `s` (its backslash first) into out[4]. Returns the bytes read, 0
 * when it is malformed; *ret_len is the number of bytes written. */
static size_t escape(struct str s, char out[4], size_t *ret_len)
{
    static const char value[256] = { ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                     ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t' };
    if (s.len < 2) return 0;
    const char plain = value[(unsigned char)s.data[1]];
    if (plain) {
        out[0] = plain;
        *ret_len = 1;
        return 2;
    }
    if (s.data[1] != 'u') return 0;
    int unit = hex4(str_of(s.data + 2, s.len - 2));
    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff)) return 0;
    if (unit < 0xd800 || unit > 0xdbff) {
        *ret_len = utf8_encode((uint32_t)unit, out);
        return 6;
    }
    if (s.len < 12 || s.data[6] != '\\' || s.data[7] != 'u') return 0;
    int low = hex4(str_of(s.data + 8, s.len - 8));
    if (low < 0xdc00 || low > 0xdfff) return 0;
    *ret_len =
        utf8_encode(0x10000 + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00), out);
    return 12;
}

#define EACH_BYTE UINT64_C(0x0101010101010101)
#define HIGH_BITS (0x80 * EACH_BYTE)

/* Sets the high bit of the lowest byte of `w` that is not plain, and perhaps of bytes above it: a borrow
 * only goes upwards. A byte that equals c is 0 in w ^ c, and subtracting 1 from it borrows, as
 * subtracting 0x20 from a control character does. */
static uint64_t not_plain(uint64_t w)
{
    uint64_t quote = w ^ ('"' * EACH_BYTE), slash = w ^ ('\\' * EACH_BYTE);
    uint64_t below = (quote - EACH_BYTE) | (slash - EACH_BYTE) | (w - 0x20 * EACH_BYTE);
    return (below | w) & HIGH_BITS;
}

size_t json_plain(struct str s)
{
    size_t at = 0;
    for (; at + 8 <= s.len; at += 8) {
        uint64_t found = not_plain(load_u64(s.data + at));
        if (found) return at + (size_t)__builtin_ctzll(found) / 8;
    }
    while (at < s.len && json_is_plain(s.data[at]))
        at++;
    return at;
}

/* Moves pos over the plain bytes of a string, which are most of most texts. */
static void skip_plain(struct json_reader *r)
{
    r->pos += json_plain(str_of(r->text.data + r->pos, r->text.len - r->pos));
}

/* Reads a string; pos is at its opening quote. False after fail(). */
static bool scan_string(struct json_reader *r)
{
    size_t from = ++r->pos;
    r->escaped = false;
    for (skip_plain(r); r->pos < r->text.len; skip_plain(r)) {
        struct str rest = str_of(r->text.data + r->pos, r->text.len - r->pos);
        uint8_t c = (uint8_t)rest.data[0];
        size_t n = 0, ignored_len;
        uint32_t ignored;
        char out[4];
        if (c == '"') {
            r->raw = str_of(r->text.data + from, r->pos - from);
            r->pos++;
            return true;
        }
        if (c < 0x20) return fail(r, "a control character must be escaped"), false;
        if (c == '\\') {
            r->escaped = true;
            n = escape(rest, out, &ignored_len);
            if (n == 0) return fail(r, "a malformed escape or a lone surrogate"), false;
        } else {
            n = utf8_decode(rest, &ignored);
            if (n == 0) return fail(r, "malformed UTF-8"), false;
        }
        r->pos += n;
    }
    return fail(r, "a string that does not end"), false;
}

static bool scan_digits(struct json_reader *r)
{
    size_t from = r->pos;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->pos++;
    return r->pos > from;
}

static enum json_token scan_number(struct json_reader *r)
{
    if (peek(r) == '-') r->pos++;
    bool zero = peek(r) == '0';
    size_t from = r->pos;
    if (!scan_digits(r)) return fail(r, "a malformed number");
    if (zero && r->pos > from + 1) return fail(r, "a number may not start with 0");
    if (peek(r) == '.') {
        r->pos++;
        if (!scan_digits(r)) return fail(r, "a malformed number");
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        r->pos++;
        if (peek(r) == '+' || peek(r) == '-') r->pos++;
        if (!scan_digits(r)) return fail(r, "a malformed number");
    }
    after_value(r);
    return token_is(r, JSON_NUMBER);
}

static enum json_token scan_word(struct json_reader *r)
{
    static const struct {
        struct str word;
        enum json_token token;
    } words[] = {
        { { "true", 4 }, JSON_TRUE },
        { { "false", 5 }, JSON_FALSE },
        { { "null", 4 }, JSON_NULL },
    };
    struct str rest = str_of(r->text.data + r->pos, r->text.len - r->pos);
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if (!str_starts(rest, words[i].word)) continue;
        r->pos += words[i].word.len;
        after_value(r);
        return token_is(r, words[i].token);
    }
    return fail(r, r->pos < r->text.len ? "not a JSON value" : "the text ends too early");
}

static enum json_token open_bracket(struct json_reader *r, bool object)
{
    if (r->depth == JSON_DEPTH_MAX) return beyond(r, "nested deeper than 64 levels");
    r->keys[r->depth] = 0;
    uint64_t bit = (uint64_t)1 << r->depth++;
    r->in_object = object ? r->in_object | bit : r->in_object & ~bit;
    r->expect = object ? EXPECT_FIRST_KEY : EXPECT_FIRST_VALUE;
    r->pos++;
    return token_is(r, object ? JSON_OBJECT : JSON_ARRAY);
}

static enum json_token close_bracket(struct json_reader *r, bool object)
{
    r->depth--;
    r->pos++;
    after_value(r);
    return token_is(r, object ? JSON_OBJECT_END : JSON_ARRAY_END);
}

static enum json_token scan_value(struct json_reader *r)
{
    char c = peek(r);
    if (c == '{' || c == '[') return open_bracket(r, c == '{');
    if (c == '"') {
        if (!scan_string(r)) return JSON_ERROR;
        after_value(r);
        return r->token = JSON_STRING;
    }
    if (c == '-' || (c >= '0' && c <= '9')) return scan_number(r);
    return scan_word(r);
}

static enum json_token scan_key(struct json_reader *r)
{
    if (peek(r) != '"') return fail(r, "expected a key in quotes");
    const uint32_t keys_max = r->keys_max ? r->keys_max : JSON_KEYS_MAX;
    if (r->keys[r->depth - 1]++ == keys_max)
        return beyond(r, r->keys_max ? "an object of too many keys"
                                     : "an object of more than 1024 keys");
    if (!scan_string(r)) return JSON_ERROR;
    skip_blanks(r);
    if (peek(r) != ':') return fail(r, "expected a colon behind the key");
    r->pos++;
    r->expect = EXPECT_VALUE;
    return r->token = JSON_KEY;
}

static enum json_token next(struct json_reader *r)
{
    skip_blanks(r);
    bool in_object = r->depth && (r->in_object >> (r->depth - 1) & 1);
    if (r->expect == EXPECT_AFTER && peek(r) == ',') {
        r->pos++;
        r->expect = in_object ? EXPECT_KEY : EXPECT_VALUE;
        skip_blanks(r);
    }
    r->start = r->pos;
    r->escaped = false;
    switch ((enum expect)r->expect) {
    case EXPECT_VALUE:
        return scan_value(r);
    case EXPECT_FIRST_VALUE:
        return peek(r) == ']' ? close_bracket(r, false) : scan_value(r);
    case EXPECT_FIRST_KEY:
        return peek(r) == '}' ? close_bracket(r, true) : scan_key(r);
    case EXPECT_KEY:
        return scan_key(r);
    case EXPECT_AFTER:
        if (peek(r) == (in_object ? '}' : ']')) return close_bracket(r, in_object);
        return fail(r, in_object ? "expected a comma or }" : "expected a comma or ]");
    case EXPECT_TAIL:
        break;
    }
    if (r->pos < r->text.len) return fail(r, "text behind the end of the value");
    return token_is(r, JSON_END);
}

enum json_token json_next(struct json_reader *r)
{
    if (r->token == JSON_ERROR) return JSON_ERROR;
    size_t from = r->pos;
    enum json_token token = next(r);
    work_add(1 + r->pos - from);
    return token;
}

enum json_token json_skip(struct json_reader *r)
{
    json_next(r);
    return json_skip_rest(r);
}

enum json_token json_skip_rest(struct json_reader *r)
{
    if (r->token != JSON_OBJECT && r->token != JSON_ARRAY) return r->token;
    uint32_t inside = r->depth;
    while (r->depth >= inside)
        if (json_next(r) == JSON_ERROR) return JSON_ERROR;
    return r->token;
}

int json_raw_value(struct json_reader *r, struct str *ret)
{
    enum json_token first = json_next(r);
    size_t start = r->start;
    if (first == JSON_ERROR || first == JSON_KEY || first == JSON_END || first == JSON_ARRAY_END ||
        first == JSON_OBJECT_END)
        return -EINVAL;
    if (json_skip_rest(r) == JSON_ERROR) return -EINVAL;
    *ret = str_of(r->text.data + start, r->pos - start);
    return 0;
}

bool json_key_is(const struct json_reader *r, const char *name)
{
    if (r->token != JSON_KEY) return false;
    struct str rest = r->raw, want = str_from(name);
    if (!r->escaped) return str_eq(rest, want);
    while (rest.len) {
        char out[4] = { rest.data[0] };
        size_t len = 1;
        size_t n = rest.data[0] == '\\' ? escape(rest, out, &len) : 1;
        if (n == 0 || !str_starts(want, str_of(out, len))) return false;
        rest = str_of(rest.data + n, rest.len - n);
        want = str_of(want.data + len, want.len - len);
    }
    return want.len == 0;
}

int json_unescape(struct str raw, struct buf *out)
{
    while (raw.len) {
        const char *slash = memchr(raw.data, '\\', raw.len);
        size_t plain = slash ? (size_t)(slash - raw.data) : raw.len;
        buf_append(out, raw.data, plain);
        raw = str_of(raw.data + plain, raw.len - plain);
        if (raw.len == 0) break;
        char bytes[4];
        size_t len = 0;
        size_t n = escape(raw, bytes, &len);
        if (n == 0) return -EINVAL;
        buf_append(out, bytes, len);
        raw = str_of(raw.data + n, raw.len - n);
    }
    return out->rc;
}

int json_text(const struct json_reader *r, struct buf *out)
{
    if (r->token != JSON_STRING && r->token != JSON_KEY) return -EINVAL;
    return r->escaped ? json_unescape(r->raw, out) : buf_str(out, r->raw);
}

size_t json_unescape_to(struct str raw, char *to)
{
    size_t len = 0;
    while (raw.len) {
        const char *slash = memchr(raw.data, '\\', raw.len);
        size_t n = slash ? (size_t)(slash - raw.data) : raw.len, written = n;
        if (n > 0)
            memcpy(to + len, raw.data, n);
        else
            n = escape(raw, to + len, &written);
        if (n == 0) return SIZE_MAX;
        len += written;
        raw = str_of(raw.data + n, raw.len - n);
    }
    return len;
}

int json_unescape_arena(struct str raw, struct arena *a, struct str *ret)
{
    char *copy = arena_alloc(a, raw.len + 1);
    if (!copy) return -ENOMEM;
    size_t len = json_unescape_to(raw, copy);
    if (len == SIZE_MAX) return -EINVAL;
    *ret = str_of(copy, len);
    return 0;
}

int json_text_arena(const struct json_reader *r, struct arena *a, struct str *ret)
{
    if (r->token != JSON_STRING && r->token != JSON_KEY) return -EINVAL;
    return json_unescape_arena(r->raw, a, ret);
}

/* Reads a number with a point or an exponent as a whole number of magnitude below `limit`. */
static int whole(struct str raw, double limit, double *ret)
{
    double v;
    int rc = str_to_f64(raw, &v);
    if (rc < 0) return rc;
    if (v != floor(v)) return -EINVAL;
    if (fabs(v) >= limit) return -ERANGE;
    *ret = v;
    return 0;
}

int json_i64(const struct json_reader *r, int64_t *ret)
{
    if (r->token != JSON_NUMBER) return -EINVAL;
    int rc = str_to_i64(r->raw, ret);
    if (rc != -EINVAL) return rc;
    double v;
    rc = whole(r->raw, 0x1p63, &v);
    if (rc == 0) *ret = (int64_t)v;
    return rc;
}

int json_u64(const struct json_reader *r, uint64_t *ret)
{
    if (r->token != JSON_NUMBER) return -EINVAL;
    int rc = str_to_u64(r->raw, ret);
    if (rc != -EINVAL) return rc;
    double v;
    rc = whole(r->raw, 0x1p64, &v);
    if (rc < 0) return rc;
    if (v < 0) return -ERANGE;
    *ret = (uint64_t)v;
    return 0;
}

int json_f64(const struct json_reader *r, double *ret)
{
    return r->token == JSON_NUMBER ? str_to_f64(r->raw, ret) : -EINVAL;
}

int json_bool(const struct json_reader *r, bool *ret)
{
    if (r->token != JSON_TRUE && r->token != JSON_FALSE) return -EINVAL;
    *ret = r->token == JSON_TRUE;
    return 0;
}

int json_fail(const struct json_reader *r, struct err *err, const char *what)
{
    const char *problem = r->problem ? r->problem : "not the value that belongs here";
    return err_set(err, -EINVAL, "%s: %s at byte %zu", what, problem, r->start);
}
