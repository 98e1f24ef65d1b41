/* msgpack.c - reads MessagePack by the first byte of each value; numbers and lengths are big-endian.
 *
 * The first byte says the kind, and for the longer forms how many bytes of a number or of a length
 * follow. Skipping a value counts the values that are still to come instead of descending into them, so
 * that arrays within arrays cost no stack. */
#include "base/core/msgpack.h"

#include <errno.h>

void msgpack_reader_init(struct msgpack_reader *r, struct str bytes)
{
    *r = (struct msgpack_reader){ .bytes = bytes };
}

static int fail(struct msgpack_reader *r)
{
    r->failed = true;
    return -EINVAL;
}

static size_t left(const struct msgpack_reader *r)
{
    return r->bytes.len - r->pos;
}

/* Reads an unsigned number of `size` bytes, most significant first. */
static bool number(struct msgpack_reader *r, size_t size, uint64_t *ret)
{
    if (left(r) < size) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < size; i++)
        v = v << 8 | (unsigned char)r->bytes.data[r->pos++];
    *ret = v;
    return true;
}

static bool take_bytes(struct msgpack_reader *r, uint64_t len, struct str *ret)
{
    if (left(r) < len) return false;
    *ret = str_of(r->bytes.data + r->pos, (size_t)len);
    r->pos += (size_t)len;
    return true;
}

static bool real(struct msgpack_reader *r, size_t size, double *ret)
{
    uint64_t bits;
    if (!number(r, size, &bits)) return false;
    if (size == sizeof(float)) {
        float narrow;
        uint32_t half = (uint32_t)bits;
        memcpy(&narrow, &half, sizeof narrow);
        *ret = (double)narrow;
    } else {
        memcpy(ret, &bits, sizeof *ret);
    }
    return true;
}

/* Widens a number of `size` bytes in two's complement. */
static void set_signed(struct msgpack_item *it, uint64_t bits, size_t size)
{
    uint64_t top = 1ULL << (8 * size - 1);
    int64_t v = (int64_t)((bits ^ top) - top);
    it->kind = v < 0 ? MSGPACK_INT : MSGPACK_UINT;
    if (v < 0)
        it->negative = v;
    else
        it->number = (uint64_t)v;
}

/* Counts of arrays and maps must fit into the bytes that are left: one byte a value at least. */
static bool counted(struct msgpack_reader *r, struct msgpack_item *it, enum msgpack_kind kind,
                    uint64_t count)
{
    uint64_t values = kind == MSGPACK_MAP ? 2 * count : count;
    if (values > left(r)) return false;
    it->kind = kind;
    it->count = (uint32_t)count;
    return true;
}

/* An extension has a byte for its type before its bytes. */
static bool extension(struct msgpack_reader *r, struct msgpack_item *it, uint64_t len)
{
    it->kind = MSGPACK_EXT;
    if (left(r) < 1) return false;
    r->pos++;
    return take_bytes(r, len, &it->bytes);
}

static bool text(struct msgpack_reader *r, struct msgpack_item *it, enum msgpack_kind kind,
                 uint64_t len)
{
    it->kind = kind;
    return take_bytes(r, len, &it->bytes);
}

/* Reads the forms from 0xc0 to 0xdf. */
static bool long_form(struct msgpack_reader *r, unsigned char head, struct msgpack_item *it)
{
    static const unsigned char length_bytes[] = { 1, 2, 4 };
    uint64_t n;
    switch (head) {
    case 0xc0:
        it->kind = MSGPACK_NIL;
        return true;
    case 0xc2:
    case 0xc3:
        it->kind = MSGPACK_BOOL;
        it->truth = head == 0xc3;
        return true;
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return number(r, length_bytes[head - 0xc4], &n) && text(r, it, MSGPACK_BIN, n);
    case 0xc7:
    case 0xc8:
    case 0xc9:
        return number(r, length_bytes[head - 0xc7], &n) && extension(r, it, n);
    case 0xca:
    case 0xcb:
        it->kind = MSGPACK_FLOAT;
        return real(r, head == 0xca ? 4 : 8, &it->real);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        it->kind = MSGPACK_UINT;
        return number(r, (size_t)1 << (head - 0xcc), &it->number);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        if (!number(r, (size_t)1 << (head - 0xd0), &n)) return false;
        set_signed(it, n, (size_t)1 << (head - 0xd0));
        return true;
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return extension(r, it, (uint64_t)1 << (head - 0xd4));
    case 0xd9:
    case 0xda:
    case 0xdb:
        return number(r, length_bytes[head - 0xd9], &n) && text(r, it, MSGPACK_STR, n);
    case 0xdc:
    case 0xdd:
        return number(r, head == 0xdc ? 2 : 4, &n) && counted(r, it, MSGPACK_ARRAY, n);
    case 0xde:
    case 0xdf:
        return number(r, head == 0xde ? 2 : 4, &n) && counted(r, it, MSGPACK_MAP, n);
    default:
        return false; /* 0xc1 is never used */
    }
}

static bool value(struct msgpack_reader *r, unsigned char head, struct msgpack_item *it)
{
    if (head < 0x80 || head >= 0xe0) {
        set_signed(it, head, 1);
        return true;
    }
    if (head < 0x90) return counted(r, it, MSGPACK_MAP, head & 0x0f);
    if (head < 0xa0) return counted(r, it, MSGPACK_ARRAY, head & 0x0f);
    if (head < 0xc0) return text(r, it, MSGPACK_STR, head & 0x1f);
    return long_form(r, head, it);
}

int msgpack_next(struct msgpack_reader *r, struct msgpack_item *ret)
{
    struct msgpack_item it = { .kind = MSGPACK_NIL };
    if (r->failed || left(r) < 1) return fail(r);
    unsigned char head = (unsigned char)r->bytes.data[r->pos++];
    if (!value(r, head, &it)) return fail(r);
    *ret = it;
    return 0;
}

int msgpack_skip(struct msgpack_reader *r)
{
    uint64_t due = 1; /* at most one for each byte, as counts are checked */
    while (due > 0) {
        struct msgpack_item it;
        if (msgpack_next(r, &it) < 0) return -EINVAL;
        due--;
        if (it.kind == MSGPACK_ARRAY) due += it.count;
        if (it.kind == MSGPACK_MAP) due += 2 * (uint64_t)it.count;
        if (due > left(r)) return fail(r);
    }
    return 0;
}

int msgpack_raw(struct msgpack_reader *r, struct str *ret)
{
    size_t from = r->pos;
    if (msgpack_skip(r) < 0) return -EINVAL;
    *ret = str_of(r->bytes.data + from, r->pos - from);
    return 0;
}
