/* field.c - decodes and encodes every message between our processes.
 *
 * A table states which members a message can have, and their bounds. Decoders written by hand were
 * rejected because every message would repeat the same five checks, and one of them would be
 * forgotten somewhere.
 *
 * Members are read and written by memcpy at their offset: a `const T *` may not be stored through
 * a `void *` lvalue.
 *
 * Arrays are read twice, first to count (on a copy of the reader, which is a small struct), then
 * to fill: memory from an arena cannot grow. */
#include "base/wire/field.h"

#include "base/core/block_key.h"
#include "base/wire/sampling.h"

#include <math.h>

_Static_assert(sizeof(enum field_type) == sizeof(uint32_t), "FIELD_ENUM reads members as uint32_t");

struct decode {
    struct json_reader *r;
    struct arena *arena;
    struct err *err;
};

/* Decodes and encodes one type of field. `ret` and `in` are the struct that holds the member; `at` is one item. */
struct kind {
    int (*decode)(struct decode *d, const struct field *f, char *ret);
    void (*encode)(const struct field *f, const char *in, struct json_writer *w);
    /* for arrays: */
    int (*decode_item)(struct decode *d, const struct field *f, char *at);
    void (*encode_item)(const struct field *f, const char *at, struct json_writer *w);
    size_t item_bytes; /* 0: the row says it */
};
static const struct kind kinds[FIELD_TYPE_COUNT];

static int decode_object(struct decode *d, const struct field_set *set, char *ret);

/* Sets the sentence of a refused token: "f: 12 is outside 0..10", or what else is wrong with it. */
static int refuse(struct decode *d, const struct field *f, int rc, const char *wanted)
{
    const struct json_reader *r = d->r;
    if (rc == -ENOMEM)
        return err_set(d->err, rc, "%s: too large for the memory it may use", f->name);
    if (r->token == JSON_ERROR) return json_fail(r, d->err, f->name);
    if (rc != -ERANGE) return err_set(d->err, -EINVAL, "%s: must be %s", f->name, wanted);
    if (f->max > 0)
        return err_set(d->err, -EINVAL, "%s: %.*s is outside %.15g..%.15g", f->name,
                       (int)min_size(r->raw.len, 32), r->raw.data, f->min, f->max);
    return err_set(d->err, -EINVAL, "%s: out of range", f->name);
}

static bool in_range(const struct field *f, double v)
{
    return f->max <= 0 || (v >= f->min && v <= f->max);
}

/* Reads a whole number within the row's bounds and at most `most`. */
static int whole_number(struct decode *d, const struct field *f, uint64_t most, uint64_t *ret)
{
    int rc = json_u64(d->r, ret);
    if (rc == 0 && (*ret > most || !in_range(f, (double)*ret))) rc = -ERANGE;
    return rc < 0 ? refuse(d, f, rc, "a whole number") : 0;
}

static int decode_u32(struct decode *d, const struct field *f, char *ret)
{
    uint64_t v = 0;
    int rc = whole_number(d, f, UINT32_MAX, &v);
    if (rc == 0) memcpy(ret + f->offset, &(uint32_t){ (uint32_t)v }, sizeof(uint32_t));
    return rc;
}

static int decode_u64(struct decode *d, const struct field *f, char *ret)
{
    uint64_t v = 0;
    int rc = whole_number(d, f, UINT64_MAX, &v);
    if (rc == 0) memcpy(ret + f->offset, &v, sizeof v);
    return rc;
}

static int decode_i64(struct decode *d, const struct field *f, char *ret)
{
    int64_t v = 0;
    int rc = json_i64(d->r, &v);
    if (rc == 0 && !in_range(f, (double)v)) rc = -ERANGE;
    if (rc < 0) return refuse(d, f, rc, "a whole number");
    memcpy(ret + f->offset, &v, sizeof v);
    return 0;
}

static int decode_f64(struct decode *d, const struct field *f, char *ret)
{
    double v = 0;
    int rc = json_f64(d->r, &v);
    if (rc == 0 && !in_range(f, v)) rc = -ERANGE;
    if (rc < 0) return refuse(d, f, rc, "a number");
    memcpy(ret + f->offset, &v, sizeof v);
    return 0;
}

static int decode_bool(struct decode *d, const struct field *f, char *ret)
{
    bool v = false;
    int rc = json_bool(d->r, &v);
    if (rc < 0) return refuse(d, f, rc, "true or false");
    memcpy(ret + f->offset, &v, sizeof v);
    if (f->present_offset) memcpy(ret + f->present_offset, &(bool){ true }, sizeof(bool));
    return 0;
}

/* Copies the current string, unescaped, into the arena. */
static int text_of(struct decode *d, const struct field *f, double bytes_min, double bytes_max,
                   struct str *ret)
{
    const struct json_reader *r = d->r;
    if (r->token != JSON_STRING) return refuse(d, f, -EINVAL, "a string");
    struct str text;
    int rc = json_text_arena(r, d->arena, &text);
    if (rc < 0) return refuse(d, f, rc, "a string");
    if ((double)text.len < bytes_min || (double)text.len > bytes_max)
        return err_set(d->err, -EINVAL, "%s: %zu bytes are outside %.15g..%.15g", f->name, text.len,
                       bytes_min, bytes_max);
    if (!f->nul && text.len && memchr(text.data, 0, text.len))
        return err_set(d->err, -EINVAL, "%s: holds a NUL", f->name);
    *ret = text;
    return 0;
}

static int decode_str(struct decode *d, const struct field *f, char *ret)
{
    struct str text;
    int rc = text_of(d, f, f->min, f->max, &text);
    if (rc == 0) memcpy(ret + f->offset, &text, sizeof text);
    return rc;
}

static int decode_enum(struct decode *d, const struct field *f, char *ret)
{
    if (d->r->token != JSON_STRING) return refuse(d, f, -EINVAL, "a name");
    for (uint32_t i = 0; i < (uint32_t)f->max; i++) {
        if (d->r->escaped || !str_eq(d->r->raw, str_from(f->names[i]))) continue;
        memcpy(ret + f->offset, &i, sizeof i);
        return 0;
    }
    return err_set(d->err, -EINVAL, "%s: unknown name \"%.*s\"", f->name,
                   (int)min_size(d->r->raw.len, 32), d->r->raw.data);
}

static int decode_hex64(struct decode *d, const struct field *f, char *ret)
{
    uint8_t bytes[8];
    if (d->r->token != JSON_STRING || d->r->escaped || hex_to(d->r->raw, bytes, sizeof bytes) < 0)
        return refuse(d, f, -EINVAL, "16 hexadecimal digits");
    uint64_t v = __builtin_bswap64(load_u64(bytes)); /* most significant digit first */
    memcpy(ret + f->offset, &v, sizeof v);
    return 0;
}

/* Counts the items of an array; the current token is its opening bracket. */
static int count_items(struct decode *d, const struct field *f, uint32_t *ret)
{
    if (d->r->token != JSON_ARRAY) return refuse(d, f, -EINVAL, "an array");
    struct json_reader ahead = *d->r;
    uint32_t inside = ahead.depth, count = 0;
    for (;;) {
        enum json_token t = json_skip(&ahead);
        if (t == JSON_ERROR) return json_fail(&ahead, d->err, f->name);
        if (ahead.depth < inside) break;
        if ((double)++count > f->max)
            return err_set(d->err, -EINVAL, "%s: more than %.15g items", f->name, f->max);
    }
    *ret = count;
    return 0;
}

static int decode_struct_item(struct decode *d, const struct field *f, char *at)
{
    return decode_object(d, f->of, at);
}

static int decode_str_item(struct decode *d, const struct field *f, char *at)
{
    struct str text;
    int rc = text_of(d, f, 0, (double)f->each_bytes_max, &text);
    if (rc == 0) memcpy(at, &text, sizeof text);
    return rc;
}

static int decode_id_item(struct decode *d, const struct field *f, char *at)
{
    uint64_t id;
    if (json_u64(d->r, &id) < 0 || id > UINT32_MAX)
        return err_set(d->err, -EINVAL, "%s: holds what is no token id", f->name);
    memcpy(at, &(uint32_t){ (uint32_t)id }, sizeof(uint32_t));
    return 0;
}

static int decode_key_item(struct decode *d, const struct field *f, char *at)
{
    struct block_key key;
    if (d->r->token != JSON_STRING || block_key_parse(d->r->raw, &key) < 0)
        return err_set(d->err, -EINVAL, "%s: holds what is no block key", f->name);
    memcpy(at, &key, sizeof key);
    return 0;
}

static size_t item_bytes(const struct field *f)
{
    return f->type == FIELD_LIST ? f->of->size : kinds[f->type].item_bytes;
}

static int decode_array(struct decode *d, const struct field *f, char *ret)
{
    uint32_t count = 0;
    int rc = count_items(d, f, &count);
    if (rc < 0) return rc;
    if (count < f->min && count == 0)
        return err_set(d->err, -EINVAL, "%s: may not be empty", f->name);
    if (count < f->min) return err_set(d->err, -EINVAL, "%s: fewer than %g items", f->name, f->min);
    size_t each = item_bytes(f);
    char *items = arena_array(d->arena, count, each);
    if (!items) return refuse(d, f, -ENOMEM, "");
    for (uint32_t i = 0; i < count; i++) {
        json_next(d->r);
        rc = kinds[f->type].decode_item(d, f, items + i * each);
        if (rc < 0)
            return f->type == FIELD_LIST ? err_prefix(d->err, rc, "%s[%u]", f->name, i) : rc;
    }
    json_next(d->r); /* the closing bracket, as count_items has found */
    memcpy(ret + f->offset, &items, sizeof items);
    memcpy(ret + f->count_offset, &count, sizeof count);
    return 0;
}

#define COUNT_MAX (1u << 24) /* a float holds every whole number up to it */

static int decode_counts(struct decode *d, const struct field *f, char *ret)
{
    uint32_t count = 0, whole;
    int rc = count_items(d, f, &count);
    if (rc < 0) return rc;
    if (count < f->max) return err_set(d->err, -EINVAL, "%s: fewer than %g items", f->name, f->max);
    for (uint32_t i = 0; i < count; i++) {
        json_next(d->r);
        rc = decode_id_item(d, f, (char *)&whole);
        if (rc == 0 && whole > COUNT_MAX) rc = refuse(d, f, -ERANGE, "at most 2^24");
        if (rc < 0) return rc;
        float value = (float)whole;
        memcpy(ret + f->offset + i * sizeof value, &value, sizeof value);
    }
    json_next(d->r); /* the closing bracket */
    return 0;
}

static int decode_nested(struct decode *d, const struct field *f, char *ret)
{
    int rc = decode_object(d, f->of, ret + f->offset);
    if (rc < 0) return err_prefix(d->err, rc, "%s", f->name);
    bool present = true;
    if (f->present_offset) memcpy(ret + f->present_offset, &present, sizeof present);
    return 0;
}

static const char token_digits[64] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#define TOKEN_CHAR_BITS 6
#define VALUE_FLOAT_CHARS 6 /* of 32 bits; the first four of the 36 are zero */
#define FIELD_VALUE_CHARS (FIELD_TOKEN_CHARS + VALUE_FLOAT_CHARS)

/* One more than the value of a digit; 0 for other characters. */
// clang-format off
static const uint8_t digit_value[256] = {
    ['A'] = 1, ['B'] = 2, ['C'] = 3, ['D'] = 4, ['E'] = 5, ['F'] = 6, ['G'] = 7, ['H'] = 8,
    ['I'] = 9, ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};
// clang-format on

bool field_tokens(struct str chars, uint32_t *ret)
{
    const unsigned char *from = (const unsigned char *)chars.data;
    unsigned bad = 0;
    for (size_t i = 0; i < chars.len / FIELD_TOKEN_CHARS; i++, from += FIELD_TOKEN_CHARS) {
        unsigned a = digit_value[from[0]] - 1u, b = digit_value[from[1]] - 1u;
        unsigned c = digit_value[from[2]] - 1u, e = digit_value[from[3]] - 1u;
        bad |= a | b | c | e;
        ret[i] = a << 3 * TOKEN_CHAR_BITS | b << 2 * TOKEN_CHAR_BITS | c << TOKEN_CHAR_BITS | e;
    }
    return bad <= 63;
}

static int decode_tokens(struct decode *d, const struct field *f, char *ret)
{
    if (d->r->token != JSON_STRING) return refuse(d, f, -EINVAL, "a string of token ids");
    size_t chars = d->r->raw.len, count = chars / FIELD_TOKEN_CHARS;
    if (chars % FIELD_TOKEN_CHARS != 0)
        return err_set(d->err, -EINVAL, "%s: %zu characters are no token ids", f->name, chars);
    if ((double)count < f->min) return err_set(d->err, -EINVAL, "%s: may not be empty", f->name);
    if ((double)count > f->max)
        return err_set(d->err, -EINVAL, "%s: more than %.15g items", f->name, f->max);
    uint32_t *ids = arena_array(d->arena, count, sizeof *ids), narrow = (uint32_t)count;
    if (!ids) return refuse(d, f, -ENOMEM, "");
    if (!field_tokens(d->r->raw, ids))
        return err_set(d->err, -EINVAL, "%s: holds what is no token id", f->name);
    memcpy(ret + f->offset, &ids, sizeof ids);
    memcpy(ret + f->count_offset, &narrow, sizeof narrow);
    return 0;
}

/* Reads ten characters; false if they are no id and finite float. */
static bool read_value(const unsigned char *from, struct token_value *ret)
{
    uint64_t all = 0;
    for (int c = 0; c < FIELD_VALUE_CHARS; c++) {
        unsigned digit = digit_value[from[c]] - 1u;
        if (digit > 63) return false;
        all = all << TOKEN_CHAR_BITS | digit;
    }
    const uint64_t bits = all & (((uint64_t)1 << VALUE_FLOAT_CHARS * TOKEN_CHAR_BITS) - 1);
    const uint32_t narrow = (uint32_t)bits;
    memcpy(&ret->value, &narrow, sizeof narrow);
    ret->id = (uint32_t)(all >> VALUE_FLOAT_CHARS * TOKEN_CHAR_BITS);
    return bits <= UINT32_MAX && isfinite(ret->value);
}

static int decode_values(struct decode *d, const struct field *f, char *ret)
{
    if (d->r->token != JSON_STRING) return refuse(d, f, -EINVAL, "a string of token values");
    const struct str raw = d->r->raw;
    const size_t count = raw.len / FIELD_VALUE_CHARS;
    if (raw.len % FIELD_VALUE_CHARS != 0)
        return err_set(d->err, -EINVAL, "%s: %zu characters are no values", f->name, raw.len);
    if ((double)count > f->max)
        return err_set(d->err, -EINVAL, "%s: more than %.15g items", f->name, f->max);
    struct token_value *values = arena_array(d->arena, count, sizeof *values);
    if (!values) return refuse(d, f, -ENOMEM, "");
    for (size_t i = 0; i < count; i++)
        if (!read_value((const unsigned char *)raw.data + i * FIELD_VALUE_CHARS, &values[i]))
            return err_set(d->err, -EINVAL, "%s: item %zu is no id and number", f->name, i);
    const uint32_t narrow = (uint32_t)count;
    memcpy(ret + f->offset, &values, sizeof values);
    memcpy(ret + f->count_offset, &narrow, sizeof narrow);
    return 0;
}

static uint64_t version_of(const struct field *f)
{
    return f->max > 0 ? (uint64_t)f->max : WIRE_VERSION;
}

static int decode_version(struct decode *d, const struct field *f, char *ret)
{
    (void)ret;
    uint64_t v = 0;
    if (json_u64(d->r, &v) == 0 && v == version_of(f)) return 0;
    return err_set(
        d->err, -EPROTO,
        "speaks protocol version %.*s and this Muster speaks %llu: run the same release on "
        "both sides",
        (int)min_size(d->r->raw.len, 16), d->r->raw.data, (unsigned long long)version_of(f));
}

static int check_required(struct decode *d, const struct field_set *set, uint64_t seen)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct field *f = &set->field[i];
        if ((f->required || f->type == FIELD_VERSION) && !(seen >> i & 1))
            return err_set(d->err, -EINVAL, "\"%s\" is missing", f->name);
    }
    return 0;
}

/* Decodes an object; the current token should be its opening bracket. */
static int decode_object(struct decode *d, const struct field_set *set, char *ret)
{
    struct json_reader *r = d->r;
    must(set->count <= FIELDS_MAX);
    if (r->token == JSON_ERROR) return json_fail(r, d->err, "JSON");
    if (r->token != JSON_OBJECT) return err_set(d->err, -EINVAL, "must be an object");
    uint64_t seen = 0;
    while (json_next(r) == JSON_KEY) {
        uint32_t i = 0;
        while (i < set->count && !json_key_is(r, set->field[i].name))
            i++;
        if (i == set->count) {
            json_skip(r);
            continue;
        }
        if (seen >> i & 1)
            return err_set(d->err, -EINVAL, "\"%s\" stands there twice", set->field[i].name);
        if (json_next(r) == JSON_NULL) continue;
        int rc = kinds[set->field[i].type].decode(d, &set->field[i], ret);
        if (rc < 0) return rc;
        seen |= (uint64_t)1 << i;
    }
    if (r->token != JSON_OBJECT_END) return json_fail(r, d->err, "JSON");
    return check_required(d, set, seen);
}

int fields_decode(const struct field_set *set, struct str text, struct arena *arena, void *ret,
                  const char *what, struct err *err)
{
    struct json_reader r;
    struct decode d = { .r = &r, .arena = arena, .err = err };
    char *scratch = arena_alloc(arena, set->size);
    if (!scratch) return err_set(err, -ENOMEM, "%s: no memory", what);
    json_reader_init(&r, text);
    json_next(&r);
    int rc = decode_object(&d, set, scratch);
    if (rc == 0 && json_next(&r) != JSON_END) rc = json_fail(&r, err, "JSON");
    if (rc < 0) return err_prefix(err, rc, "%s", what);
    memcpy(ret, scratch, set->size);
    return 0;
}

static void encode_object(const struct field_set *set, const char *in, struct json_writer *w);

/* Cuts `s` to the length that the decoder accepts. The writer replaces an incomplete character by three
 * bytes (U+FFFD), so a name that was cut inside one would come out longer than its row allows. */
static struct str text_within(struct str s, double bytes_max)
{
    if (3 * (double)s.len <= bytes_max || str_utf8_valid(s)) return s;
    size_t at = 0, written = 0;
    while (at < s.len) {
        uint32_t ignored;
        struct str rest = str_of(s.data + at, s.len - at);
        size_t whole = utf8_decode(rest, &ignored), out = whole ? whole : 3;
        if ((double)(written + out) > bytes_max) break;
        written += out;
        at += whole ? whole : utf8_invalid(rest);
    }
    return str_of(s.data, at);
}

static bool flag_at(const char *in, size_t offset)
{
    bool yes;
    memcpy(&yes, in + offset, sizeof yes);
    return yes;
}

static void encode_version(const struct field *f, const char *in, struct json_writer *w)
{
    (void)in;
    json_kv_u64(w, f->name, version_of(f));
}

static void encode_u32(const struct field *f, const char *in, struct json_writer *w)
{
    json_kv_u64(w, f->name, load_u32(in + f->offset));
}

static void encode_u64(const struct field *f, const char *in, struct json_writer *w)
{
    json_kv_u64(w, f->name, load_u64(in + f->offset));
}

static void encode_i64(const struct field *f, const char *in, struct json_writer *w)
{
    json_kv_i64(w, f->name, (int64_t)load_u64(in + f->offset));
}

static void encode_f64(const struct field *f, const char *in, struct json_writer *w)
{
    double v;
    memcpy(&v, in + f->offset, sizeof v);
    if (isfinite(v)) json_kv_f64(w, f->name, v);
}

static void encode_bool(const struct field *f, const char *in, struct json_writer *w)
{
    if (f->present_offset && !flag_at(in, f->present_offset)) return;
    json_kv_bool(w, f->name, flag_at(in, f->offset));
}

static void encode_hex64(const struct field *f, const char *in, struct json_writer *w)
{
    char hex[17];
    uint64_t v = __builtin_bswap64(load_u64(in + f->offset)); /* most significant digit first */
    hex_from((const uint8_t *)&v, sizeof v, hex);
    json_kv_text(w, f->name, hex);
}

static void encode_str(const struct field *f, const char *in, struct json_writer *w)
{
    struct str text;
    memcpy(&text, in + f->offset, sizeof text);
    if (text.len) json_kv_str(w, f->name, text_within(text, f->max));
}

static void encode_enum(const struct field *f, const char *in, struct json_writer *w)
{
    uint32_t v = load_u32(in + f->offset);
    must(v < (uint32_t)f->max);
    json_kv_text(w, f->name, f->names[v]);
}

static void encode_nested(const struct field *f, const char *in, struct json_writer *w)
{
    if (f->present_offset && !flag_at(in, f->present_offset)) return;
    json_key(w, f->name);
    encode_object(f->of, in + f->offset, w);
}

static void encode_struct_item(const struct field *f, const char *at, struct json_writer *w)
{
    encode_object(f->of, at, w);
}

static void encode_str_item(const struct field *f, const char *at, struct json_writer *w)
{
    struct str text;
    memcpy(&text, at, sizeof text);
    json_put_str(w, text_within(text, (double)f->each_bytes_max));
}

static void encode_id_item(const struct field *f, const char *at, struct json_writer *w)
{
    (void)f;
    json_put_u64(w, load_u32(at));
}

static void encode_key_item(const struct field *f, const char *at, struct json_writer *w)
{
    (void)f;
    struct block_key key;
    char hex[BLOCK_KEY_HEX + 1];
    memcpy(&key, at, sizeof key);
    block_key_hex(key, hex);
    json_put_text(w, hex);
}

static void encode_tokens(const struct field *f, const char *in, struct json_writer *w)
{
    uint32_t count = load_u32(in + f->count_offset);
    struct buf *out = w->out;
    const char *ids;
    memcpy(&ids, in + f->offset, sizeof ids);
    if (count == 0) return;
    json_key(w, f->name);
    json_put_raw(w, STR("\""));
    if (buf_reserve(out, (size_t)count * FIELD_TOKEN_CHARS + 1) < 0) return;
    char *to = out->data + out->len;
    for (uint32_t i = 0; i < count; i++, to += FIELD_TOKEN_CHARS) {
        uint32_t id = load_u32(ids + (size_t)i * sizeof id);
        must(id < 1u << FIELD_TOKEN_CHARS * TOKEN_CHAR_BITS);
        to[0] = token_digits[id >> 3 * TOKEN_CHAR_BITS];
        to[1] = token_digits[id >> 2 * TOKEN_CHAR_BITS & 63];
        to[2] = token_digits[id >> TOKEN_CHAR_BITS & 63];
        to[3] = token_digits[id & 63];
    }
    out->len += (size_t)count * FIELD_TOKEN_CHARS;
    buf_byte(out, '"');
}

static void encode_array(const struct field *f, const char *in, struct json_writer *w)
{
    uint32_t count = load_u32(in + f->count_offset);
    size_t each = item_bytes(f);
    const char *items;
    memcpy(&items, in + f->offset, sizeof items);
    if (count == 0) return;
    json_key(w, f->name);
    json_array(w);
    for (uint32_t i = 0; i < count; i++)
        kinds[f->type].encode_item(f, items + i * each, w);
    json_array_end(w);
}

static void encode_values(const struct field *f, const char *in, struct json_writer *w)
{
    uint32_t count = load_u32(in + f->count_offset);
    struct buf *out = w->out;
    const struct token_value *values;
    memcpy(&values, in + f->offset, sizeof values);
    if (count == 0) return;
    json_key(w, f->name);
    json_put_raw(w, STR("\""));
    if (buf_reserve(out, (size_t)count * FIELD_VALUE_CHARS + 1) < 0) return;
    char *to = out->data + out->len;
    for (uint32_t i = 0; i < count; i++, to += FIELD_VALUE_CHARS) {
        uint32_t bits;
        must(values[i].id < 1u << FIELD_TOKEN_CHARS * TOKEN_CHAR_BITS);
        memcpy(&bits, &values[i].value, sizeof bits);
        for (int c = 0; c < FIELD_TOKEN_CHARS; c++)
            to[c] = token_digits[values[i].id >> (3 - c) * TOKEN_CHAR_BITS & 63];
        for (int c = 0; c < VALUE_FLOAT_CHARS; c++)
            to[FIELD_TOKEN_CHARS + c] = token_digits[bits >> (5 - c) * TOKEN_CHAR_BITS & 63];
    }
    out->len += (size_t)count * FIELD_VALUE_CHARS;
    buf_byte(out, '"');
}

static void encode_counts(const struct field *f, const char *in, struct json_writer *w)
{
    json_key(w, f->name);
    json_array(w);
    for (uint32_t i = 0; i < (uint32_t)f->max; i++) {
        float value;
        memcpy(&value, in + f->offset + i * sizeof value, sizeof value);
        json_put_u64(w, value > 0 ? min_u64((uint64_t)value, COUNT_MAX) : 0);
    }
    json_array_end(w);
}

static void encode_object(const struct field_set *set, const char *in, struct json_writer *w)
{
    json_object(w);
    for (uint32_t i = 0; i < set->count; i++)
        kinds[set->field[i].type].encode(&set->field[i], in, w);
    json_object_end(w);
}

int fields_encode(const struct field_set *set, const void *in, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    encode_object(set, in, &w);
    return out->rc;
}

// clang-format off
static const struct kind kinds[FIELD_TYPE_COUNT] = {
    [FIELD_VERSION] = { decode_version, encode_version, NULL, NULL, 0 },
    [FIELD_U32]     = { decode_u32,     encode_u32,     NULL, NULL, 0 },
    [FIELD_U64]     = { decode_u64,     encode_u64,     NULL, NULL, 0 },
    [FIELD_I64]     = { decode_i64,     encode_i64,     NULL, NULL, 0 },
    [FIELD_F64]     = { decode_f64,     encode_f64,     NULL, NULL, 0 },
    [FIELD_BOOL]    = { decode_bool,    encode_bool,    NULL, NULL, 0 },
    [FIELD_HEX64]   = { decode_hex64,   encode_hex64,   NULL, NULL, 0 },
    [FIELD_STR]     = { decode_str,     encode_str,     NULL, NULL, 0 },
    [FIELD_ENUM]    = { decode_enum,    encode_enum,    NULL, NULL, 0 },
    [FIELD_OBJECT]  = { decode_nested,  encode_nested,  NULL, NULL, 0 },
    [FIELD_LIST]    = { decode_array,   encode_array,   decode_struct_item, encode_struct_item, 0 },
    [FIELD_STRS]    = { decode_array,   encode_array,   decode_str_item,    encode_str_item,    sizeof(struct str) },
    [FIELD_IDS]     = { decode_array,   encode_array,   decode_id_item,     encode_id_item,     sizeof(uint32_t) },
    [FIELD_TOKENS]  = { decode_tokens,  encode_tokens,  NULL, NULL, sizeof(uint32_t) },
    [FIELD_VALUES]  = { decode_values,  encode_values,  NULL, NULL, sizeof(struct token_value) },
    [FIELD_COUNTS]  = { decode_counts,  encode_counts,  NULL, NULL, 0 },
    [FIELD_KEYS]    = { decode_array,   encode_array,   decode_key_item,    encode_key_item,    sizeof(struct block_key) },
};
// clang-format on
