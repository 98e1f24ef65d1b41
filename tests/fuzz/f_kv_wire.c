/* f_kv_wire.c - reads any bytes as a message between engines about K and V, or as the head of a reply;
 * the first byte selects which. An accepted head is written as it came; an accepted message, encoded
 * and decoded, encodes the same again. */
#include "base/core/own.h"
#include "base/wire/kv_wire.h"
#include "tests/fuzz/fuzz.h"

#define ARENA_BYTES ((size_t)1 << 20)

#define GO_ROUND(name)                                                           \
    static void name##_round(struct str text, struct arena *arena)               \
    {                                                                            \
        CLEANUP(buf_fini) struct buf first = { 0 };                              \
        CLEANUP(buf_fini) struct buf second = { 0 };                             \
        struct name m;                                                           \
        if (name##_decode(text, arena, &m, NULL) < 0) return;                    \
        must(name##_encode(&m, &first) == 0);                                    \
        if (name##_decode(buf_view(&first), arena, &m, NULL) == -ENOMEM) return; \
        must(name##_encode(&m, &second) == 0);                                   \
        must(str_eq(buf_view(&first), buf_view(&second)));                       \
    }
GO_ROUND(kv_read_request)
GO_ROUND(kv_fetch_request)
GO_ROUND(kv_fetch_reply)

static void head_round(struct str bytes, struct arena *arena)
{
    (void)arena;
    struct kv_head head;
    uint8_t again[KV_HEAD_BYTES];
    if (kv_head_decode(bytes, &head, NULL) < 0) return;
    kv_head_encode(&head, again);
    must(memcmp(bytes.data, again, sizeof again) == 0);
}

/* Lists of numbers are read twice and written twice; "3e3," grows when it is written. */
const struct fuzz_cost fuzz_cost = { 40000, 400 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static void (*const rounds[])(struct str, struct arena *) = {
        kv_read_request_round,
        kv_fetch_request_round,
        kv_fetch_reply_round,
        head_round,
    };
    if (len == 0 || data[0] < '0' || data[0] > '3') return;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, ARENA_BYTES);
    rounds[data[0] - '0'](str_of(data + 1, len - 1), &arena);
}
