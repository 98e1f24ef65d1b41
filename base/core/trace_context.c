/* trace_context.c - parses traceparent and tracestate strictly, and draws, prints and samples traces.
 *
 *     traceparent: 00-<trace id, 32 hex>-<span id, 16 hex>-<flags, 2 hex>
 *     tracestate:  key=value,tenant@system=value, ...
 *
 * A traceparent of a higher version is read by its first 55 bytes, as the specification asks. The ratio
 * compares the last eight bytes of the trace id with a threshold: those bytes are random in ids of level 1
 * generators of any vendor, and the first are a date in some of them. */
#include "base/core/trace_context.h"

#include "base/core/bits.h"

#include <errno.h>

#define MEMBER_LONG 128 /* above it a member goes first when the list is too long */
#define KEY_BYTES_MAX 256
#define TENANT_BYTES_MAX 241
#define SYSTEM_BYTES_MAX 14
#define VALUE_BYTES_MAX 256

/* ---- traceparent ---- */

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1; /* upper case is malformed here */
}

static bool hex_read(struct str text, uint8_t *ret)
{
    for (size_t i = 0; i < text.len / 2; i++) {
        int high = digit_of(text.data[2 * i]), low = digit_of(text.data[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

int trace_parent_read(struct str header, struct trace_context *ret)
{
    struct trace_context c = { .sampled = false };
    uint8_t version, flags;
    struct str h = str_trim(header);
    if (h.len < TRACE_PARENT_BYTES || h.data[2] != '-' || h.data[35] != '-' || h.data[52] != '-')
        return -EINVAL;
    if (!hex_read(str_of(h.data, 2), &version) || version == 0xff) return -EINVAL;
    bool longer = h.len > TRACE_PARENT_BYTES;
    if (longer && (version == 0 || h.data[TRACE_PARENT_BYTES] != '-')) return -EINVAL;
    if (!hex_read(str_of(h.data + 3, TRACE_ID_HEX), c.trace_id) ||
        !hex_read(str_of(h.data + 36, SPAN_ID_HEX), c.span_id) ||
        !hex_read(str_of(h.data + 53, 2), &flags))
        return -EINVAL;
    if (is_zero(c.trace_id, TRACE_ID_BYTES) || is_zero(c.span_id, SPAN_ID_BYTES)) return -EINVAL;
    c.sampled = flags & 1;
    *ret = c;
    return 0;
}

void trace_hex(const uint8_t *bytes, size_t count, char *ret)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        ret[2 * i] = digits[bytes[i] >> 4];
        ret[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret[2 * count] = '\0';
}

void trace_parent_print(const struct trace_context *c, char ret[TRACE_PARENT_BYTES + 1])
{
    memcpy(ret, "00-", 3);
    trace_hex(c->trace_id, TRACE_ID_BYTES, ret + 3);
    ret[35] = '-';
    trace_hex(c->span_id, SPAN_ID_BYTES, ret + 36);
    memcpy(ret + 52, c->sampled ? "-01" : "-00", 4);
}

/* ---- tracestate ---- */

static bool is_key_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '*' ||
           c == '/';
}

static bool is_key_part(struct str s, size_t bytes_max, bool letter_first)
{
    if (s.len == 0 || s.len > bytes_max) return false;
    bool letter = s.data[0] >= 'a' && s.data[0] <= 'z';
    bool digit = s.data[0] >= '0' && s.data[0] <= '9';
    if (!letter && (letter_first || !digit)) return false;
    for (size_t i = 0; i < s.len; i++)
        if (!is_key_byte(s.data[i])) return false;
    return true;
}

/* A simple key begins with a letter; of tenant@system the tenant may begin with a digit. */
static bool is_key(struct str key)
{
    size_t at = str_find(key, STR("@"));
    if (at == SIZE_MAX) return is_key_part(key, KEY_BYTES_MAX, true);
    struct str tenant = str_of(key.data, at), system = str_of(key.data + at + 1, key.len - at - 1);
    return is_key_part(tenant, TENANT_BYTES_MAX, false) &&
           is_key_part(system, SYSTEM_BYTES_MAX, true);
}

static bool is_value(struct str value)
{
    if (value.len == 0 || value.len > VALUE_BYTES_MAX) return false;
    for (size_t i = 0; i < value.len; i++) {
        char c = value.data[i];
        if (c < 0x20 || c > 0x7e || c == ',' || c == '=') return false;
    }
    return value.data[value.len - 1] != ' ';
}

struct members {
    struct str one[TRACE_STATE_MEMBERS_MAX], key[TRACE_STATE_MEMBERS_MAX];
    uint32_t count;
    size_t bytes; /* with the commas between them */
};

static int member_add(struct members *m, struct str member)
{
    struct str value = member, key = str_cut(&value, '=');
    if (m->count == TRACE_STATE_MEMBERS_MAX || !is_key(key) || !is_value(value)) return -EINVAL;
    for (uint32_t i = 0; i < m->count; i++)
        if (str_eq(m->key[i], key)) return -EINVAL;
    m->bytes += member.len + (m->count > 0);
    m->key[m->count] = key;
    m->one[m->count++] = member;
    return 0;
}

static void member_drop(struct members *m, uint32_t at)
{
    m->bytes -= m->one[at].len + (m->count > 1);
    m->count--;
    for (uint32_t i = at; i < m->count; i++)
        m->one[i] = m->one[i + 1];
}

static void shorten(struct members *m)
{
    for (uint32_t i = m->count; i-- > 0 && m->bytes > TRACE_STATE_BYTES_MAX;)
        if (m->one[i].len > MEMBER_LONG) member_drop(m, i);
    while (m->bytes > TRACE_STATE_BYTES_MAX)
        member_drop(m, m->count - 1);
}

int trace_state_join(const struct str *headers, uint32_t count, char ret[TRACE_STATE_BYTES_MAX + 1])
{
    struct members m = { .count = 0 };
    for (uint32_t i = 0; i < count; i++) {
        struct str rest = headers[i];
        while (rest.len > 0) {
            struct str member = str_trim(str_cut(&rest, ','));
            /* An empty member is allowed. */
            int rc = member.len > 0 ? member_add(&m, member) : 0;
            if (rc < 0) return rc;
        }
    }
    shorten(&m);
    size_t at = 0;
    for (uint32_t i = 0; i < m.count; i++) {
        if (i > 0) ret[at++] = ',';
        memcpy(ret + at, m.one[i].data, m.one[i].len);
        at += m.one[i].len;
    }
    ret[at] = '\0';
    return 0;
}

/* ---- ids ---- */

void trace_id_draw(struct rng *rng, uint8_t ret[TRACE_ID_BYTES])
{
    do {
        store_u64(ret, rng_u64(rng));
        store_u64(ret + 8, rng_u64(rng));
    } while (is_zero(ret, TRACE_ID_BYTES));
}

void span_id_draw(struct rng *rng, uint8_t ret[SPAN_ID_BYTES])
{
    do {
        store_u64(ret, rng_u64(rng));
    } while (is_zero(ret, SPAN_ID_BYTES));
}

/* ---- sampling ---- */

#define PARENT_BASED "parentbased_"
#define TWO_TO_64 18446744073709551616.0

int trace_sampler_make(struct str name, double ratio, struct trace_sampler *ret, struct err *err)
{
    struct trace_sampler s = { .parent_based = str_starts(name, STR(PARENT_BASED)) };
    struct str root = name;
    if (s.parent_based)
        root = str_of(name.data + strlen(PARENT_BASED), name.len - strlen(PARENT_BASED));
    if (!(ratio >= 0 && ratio <= 1))
        return err_set(err, -EINVAL, "the ratio %g is not within 0 and 1", ratio);
    if (str_eq(root, STR("always_on"))) {
        s.ratio = 1;
    } else if (str_eq(root, STR("traceidratio"))) {
        s.ratio = ratio;
    } else if (!str_eq(root, STR("always_off"))) {
        return err_set(err, -EINVAL,
                       "no sampler '" STR_FMT "'; there are always_on, always_off, traceidratio, "
                       "each also with " PARENT_BASED " before it",
                       STR_ARG(name));
    }
    *ret = s;
    return 0;
}

bool trace_sampler_takes(const struct trace_sampler *s, const struct trace_context *parent,
                         const uint8_t trace_id[TRACE_ID_BYTES])
{
    if (s->parent_based && parent) return parent->sampled;
    if (s->ratio >= 1) return true;
    uint64_t random = 0;
    for (size_t i = TRACE_ID_BYTES - 8; i < TRACE_ID_BYTES; i++)
        random = random << 8 | trace_id[i];
    return (double)random < s->ratio * TWO_TO_64;
}

static void save(struct trace_budget *b, int64_t now_us)
{
    double more = b->per_s * (double)max_i64(now_us - b->at_us, 0) * 1e-6;
    b->saved = b->at_us == 0 || b->saved + more > b->per_s ? b->per_s : b->saved + more;
    b->at_us = now_us;
}

bool trace_budget_take(struct trace_budget *b, uint32_t spans, int64_t now_us)
{
    save(b, now_us);
    if (b->saved < spans) return false;
    b->saved -= spans;
    return true;
}

void trace_budget_owe(struct trace_budget *b, uint32_t spans)
{
    b->saved -= spans;
}
