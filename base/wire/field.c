/* field.c - one decoder and one encoder for every message between our processes.
 *
 * A table says more than code that walks keys by hand: what can come, in which bounds. The hand-
 * written form was rejected because every message would repeat the same five checks, and one of
 * them would be forgotten in one place.
 *
 * Members are read and written by memcpy at their offset: a `const T *` may not be stored through
 * a `void *` lvalue.
 *
 * Arrays are walked twice, first to count (on a copy of the reader, which is a small struct), then
 * to fill: an arena cannot grow what it has handed out. */
#include "base/wire/field.h"

#include "base/core/block_key.h"

#include <math.h>

_Static_assert(sizeof(enum field_type) == sizeof(uint32_t), "FIELD_ENUM reads members as uint32_t");

struct decode {
    struct json_reader *r;
    struct arena *arena;
    struct err *err;
};

static int decode_object(struct decode *d, const struct field_set *set, char *ret);

/* "f: 12 is out of range", or what else the reader's current token suffers from. */
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

static int decode_number(struct decode *d, const struct field *f, char *at)
{
    uint64_t u = 0;
    int64_t i = 0;
    double v = 0;
    int rc;
    if (f->type == FIELD_F64) {
        rc = json_f64(d->r, &v);
        if (rc == 0 && !in_range(f, v)) rc = -ERANGE;
        if (rc < 0) return refuse(d, f, rc, "a number");
        memcpy(at, &v, sizeof v);
    } else if (f->type == FIELD_I64) {
        rc = json_i64(d->r, &i);
        if (rc == 0 && !in_range(f, (double)i)) rc = -ERANGE;
        if (rc < 0) return refuse(d, f, rc, "a whole number");
        memcpy(at, &i, sizeof i);
    } else {
        rc = json_u64(d->r, &u);
        if (rc == 0 && !in_range(f, (double)u)) rc = -ERANGE;
        if (rc == 0 && f->type == FIELD_U32 && u > UINT32_MAX) rc = -ERANGE;
        if (rc < 0) return refuse(d, f, rc, "a whole number");
        uint32_t narrow = (uint32_t)u;
        if (f->type == FIELD_U32)
            memcpy(at, &narrow, sizeof narrow);
        else
            memcpy(at, &u, sizeof u);
    }
    return 0;
}

/* The current string, unescaped into the arena. */
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

static int decode_enum(struct decode *d, const struct field *f, char *at)
{
    if (d->r->token != JSON_STRING) return refuse(d, f, -EINVAL, "a name");
    for (uint32_t i = 0; i < (uint32_t)f->max; i++) {
        if (d->r->escaped || !str_eq(d->r->raw, str_from(f->names[i]))) continue;
        memcpy(at, &i, sizeof i);
        return 0;
    }
    return err_set(d->err, -EINVAL, "%s: unknown name \"%.*s\"", f->name,
                   (int)min_size(d->r->raw.len, 32), d->r->raw.data);
}

static int decode_hex64(struct decode *d, const struct field *f, char *at)
{
    uint8_t bytes[8];
    if (d->r->token != JSON_STRING || d->r->escaped || hex_to(d->r->raw, bytes, sizeof bytes) < 0)
        return refuse(d, f, -EINVAL, "16 hexadecimal digits");
    uint64_t v = __builtin_bswap64(load_u64(bytes)); /* most significant digit first */
    memcpy(at, &v, sizeof v);
    return 0;
}

/* Items of the array whose opening bracket is the current token. */
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

static size_t item_bytes(const struct field *f)
{
    if (f->type == FIELD_LIST) return f->of->size;
    if (f->type == FIELD_STRS) return sizeof(struct str);
    if (f->type == FIELD_IDS) return sizeof(uint32_t);
    return sizeof(struct block_key);
}

static int decode_item(struct decode *d, const struct field *f, char *at)
{
    json_next(d->r);
    if (f->type == FIELD_LIST) return decode_object(d, f->of, at);
    if (f->type == FIELD_STRS) {
        struct str text;
        int rc = text_of(d, f, 0, (double)f->each_bytes_max, &text);
        if (rc == 0) memcpy(at, &text, sizeof text);
        return rc;
    }
    if (f->type == FIELD_IDS) {
        uint64_t id;
        int rc = json_u64(d->r, &id);
        if (rc == 0 && id > UINT32_MAX) rc = -ERANGE;
        if (rc < 0) return err_set(d->err, -EINVAL, "%s: holds what is no token id", f->name);
        uint32_t narrow = (uint32_t)id;
        memcpy(at, &narrow, sizeof narrow);
        return 0;
    }
    struct block_key key;
    if (d->r->token != JSON_STRING || block_key_parse(d->r->raw, &key) < 0)
        return err_set(d->err, -EINVAL, "%s: holds what is no block key", f->name);
    memcpy(at, &key, sizeof key);
    return 0;
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
        rc = decode_item(d, f, items + i * each);
        if (rc < 0)
            return f->type == FIELD_LIST ? err_prefix(d->err, rc, "%s[%u]", f->name, i) : rc;
    }
    json_next(d->r); /* the closing bracket: count_items has been here */
    memcpy(ret + f->offset, &items, sizeof items);
    memcpy(ret + f->count_offset, &count, sizeof count);
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

static int check_version(struct decode *d)
{
    uint64_t v = 0;
    if (json_u64(d->r, &v) == 0 && v == WIRE_VERSION) return 0;
    return err_set(
        d->err, -EPROTO,
        "speaks protocol version %.*s and this Muster speaks %d: run the same release on "
        "both sides",
        (int)min_size(d->r->raw.len, 16), d->r->raw.data, WIRE_VERSION);
}

/* The value of `f` is the reader's current token; it is not null. */
static int decode_value(struct decode *d, const struct field *f, char *ret)
{
    char *at = ret + f->offset;
    struct str text;
    bool yes;
    int rc;
    switch (f->type) {
    case FIELD_VERSION:
        return check_version(d);
    case FIELD_U32:
    case FIELD_U64:
    case FIELD_I64:
    case FIELD_F64:
        return decode_number(d, f, at);
    case FIELD_BOOL:
        rc = json_bool(d->r, &yes);
        if (rc < 0) return refuse(d, f, rc, "true or false");
        memcpy(at, &yes, sizeof yes);
        if (f->present_offset) memcpy(ret + f->present_offset, &(bool){ true }, sizeof(bool));
        return 0;
    case FIELD_HEX64:
        return decode_hex64(d, f, at);
    case FIELD_STR:
        rc = text_of(d, f, f->min, f->max, &text);
        if (rc == 0) memcpy(at, &text, sizeof text);
        return rc;
    case FIELD_ENUM:
        return decode_enum(d, f, at);
    case FIELD_OBJECT:
        return decode_nested(d, f, ret);
    case FIELD_LIST:
    case FIELD_STRS:
    case FIELD_IDS:
    case FIELD_KEYS:
        return decode_array(d, f, ret);
    case FIELD_TYPE_COUNT:
        break;
    }
    must(f->type < FIELD_TYPE_COUNT); /* fails: no table has such a row */
    return -EINVAL;
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

/* The current token is what should be the object's opening bracket. */
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
        int rc = decode_value(d, &set->field[i], ret);
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

/* As much of `s` as the decoder takes: the writer puts three bytes (U+FFFD) for what is torn, and a
 * name that was cut inside a character would come out longer than its row allows. */
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

static void encode_items(const struct field *f, const char *items, uint32_t count,
                         struct json_writer *w)
{
    size_t each = item_bytes(f);
    json_key(w, f->name);
    json_array(w);
    for (uint32_t i = 0; i < count; i++) {
        const char *at = items + i * each;
        struct str text;
        struct block_key key;
        char hex[BLOCK_KEY_HEX + 1];
        if (f->type == FIELD_LIST) {
            encode_object(f->of, at, w);
        } else if (f->type == FIELD_STRS) {
            memcpy(&text, at, sizeof text);
            json_put_str(w, text_within(text, (double)f->each_bytes_max));
        } else if (f->type == FIELD_IDS) {
            json_put_u64(w, load_u32(at));
        } else {
            memcpy(&key, at, sizeof key);
            block_key_hex(key, hex);
            json_put_text(w, hex);
        }
    }
    json_array_end(w);
}

static void encode_number(const struct field *f, const char *at, struct json_writer *w)
{
    double v;
    int64_t i;
    char hex[17];
    if (f->type == FIELD_F64) {
        memcpy(&v, at, sizeof v);
        if (isfinite(v)) json_kv_f64(w, f->name, v);
    } else if (f->type == FIELD_I64) {
        memcpy(&i, at, sizeof i);
        json_kv_i64(w, f->name, i);
    } else if (f->type == FIELD_U32) {
        json_kv_u64(w, f->name, load_u32(at));
    } else if (f->type == FIELD_U64) {
        json_kv_u64(w, f->name, load_u64(at));
    } else {
        uint64_t v64 = __builtin_bswap64(load_u64(at)); /* most significant digit first */
        hex_from((const uint8_t *)&v64, sizeof v64, hex);
        json_kv_text(w, f->name, hex);
    }
}

static bool flag_at(const char *in, size_t offset)
{
    bool yes;
    memcpy(&yes, in + offset, sizeof yes);
    return yes;
}

static void encode_field(const struct field *f, const char *in, struct json_writer *w)
{
    const char *at = in + f->offset, *items;
    struct str text;
    switch (f->type) {
    case FIELD_VERSION:
        json_kv_u64(w, f->name, WIRE_VERSION);
        return;
    case FIELD_U32:
    case FIELD_U64:
    case FIELD_I64:
    case FIELD_F64:
    case FIELD_HEX64:
        encode_number(f, at, w);
        return;
    case FIELD_BOOL:
        if (f->present_offset && !flag_at(in, f->present_offset)) return;
        json_kv_bool(w, f->name, flag_at(in, f->offset));
        return;
    case FIELD_STR:
        memcpy(&text, at, sizeof text);
        if (text.len) json_kv_str(w, f->name, text_within(text, f->max));
        return;
    case FIELD_ENUM:
        must(load_u32(at) < (uint32_t)f->max);
        json_kv_text(w, f->name, f->names[load_u32(at)]);
        return;
    case FIELD_OBJECT:
        if (f->present_offset && !flag_at(in, f->present_offset)) return;
        json_key(w, f->name);
        encode_object(f->of, at, w);
        return;
    case FIELD_LIST:
    case FIELD_STRS:
    case FIELD_IDS:
    case FIELD_KEYS:
        memcpy(&items, at, sizeof items);
        if (load_u32(in + f->count_offset))
            encode_items(f, items, load_u32(in + f->count_offset), w);
        return;
    case FIELD_TYPE_COUNT:
        break;
    }
    must(f->type < FIELD_TYPE_COUNT); /* fails: no table has such a row */
}

static void encode_object(const struct field_set *set, const char *in, struct json_writer *w)
{
    json_object(w);
    for (uint32_t i = 0; i < set->count; i++)
        encode_field(&set->field[i], in, w);
    json_object_end(w);
}

int fields_encode(const struct field_set *set, const void *in, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    encode_object(set, in, &w);
    return out->rc;
}
