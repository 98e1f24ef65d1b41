/* msgpack.h - reads MessagePack: a pull reader over borrowed bytes that copies nothing.
 *
 * Layer:  base/core (libc)
 * Reader: every refusal (a value that is cut, a reserved byte, a count that the rest of the bytes cannot
 *         hold) is -EINVAL, sticky. It holds no memory but the struct.
 * Bounds: a value takes at least one byte, and a count is checked against the bytes that are left, so
 *         that a loop over `count` values ends within the bytes. Nothing here recurses
 *
 *     struct msgpack_reader r;
 *     struct msgpack_item list;
 *     msgpack_reader_init(&r, bytes);
 *     if (msgpack_next(&r, &list) < 0 || list.kind != MSGPACK_ARRAY) return -EINVAL;
 *     for (uint32_t i = 0; i < list.count; i++)
 *         if (msgpack_next(&r, &one) < 0) return -EINVAL;
 */
#pragma once
#include "base/core/str.h"

enum msgpack_kind {
    MSGPACK_NIL,
    MSGPACK_BOOL,
    MSGPACK_UINT, /* not negative, whatever its form */
    MSGPACK_INT,  /* negative */
    MSGPACK_FLOAT,
    MSGPACK_STR, /* any bytes: the format promises UTF-8, a peer may break that */
    MSGPACK_BIN,
    MSGPACK_ARRAY, /* `count` values follow */
    MSGPACK_MAP,   /* `count` pairs follow, a key and a value each */
    MSGPACK_EXT,
};

struct msgpack_item {
    enum msgpack_kind kind;
    bool truth;
    uint64_t number;  /* UINT */
    int64_t negative; /* INT */
    double real;      /* FLOAT */
    struct str bytes; /* STR, BIN, EXT: into the reader's bytes */
    uint32_t count;   /* ARRAY, MAP */
};

struct msgpack_reader {
    struct str bytes;
    size_t pos;
    bool failed;
};

void msgpack_reader_init(struct msgpack_reader *r, struct str bytes);

/* Reads the head of the next value; *ret is written only on success. -EINVAL. */
int msgpack_next(struct msgpack_reader *r, struct msgpack_item *ret);

/* Skips the whole value that comes next, with all that is in it. -EINVAL. */
int msgpack_skip(struct msgpack_reader *r);

/* Skips the whole value that comes next and returns its bytes in *ret. -EINVAL. */
int msgpack_raw(struct msgpack_reader *r, struct str *ret);

static inline bool msgpack_at_end(const struct msgpack_reader *r)
{
    return r->pos == r->bytes.len;
}
