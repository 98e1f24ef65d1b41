/* kv_wire.h - defines KV transfer between engines: the requests, and the head of a response.
 *
 * Layer:    base/wire (base/core)
 * Path:     POST /internal/kv/read and /internal/kv/pull of an engine
 * Lifetime: decoded strings and ids live in the arena; a head borrows nothing
 *
 * The response to a read is a head and, behind it, pages as they lie in the owner's memory: the
 * tokens [first, first + tokens) of the requested ids. Pages before `whole_from` come without K and V of the layers
 * with a sliding window, which nothing behind the owner's prefix needs. Zero tokens is a valid response. The head describes
 * model and layout of the pages, because only an engine with the same model and layout can use them.
 */
#pragma once
#include "base/core/hash.h"
#include "base/wire/generate.h"

#define KV_READ_BYTES_MAX ((size_t)8 << 20) /* of pages in one response, unless a page is larger */
#define KV_FETCHES_MAX 16 /* fetches of an engine at once, of KV_READ_BYTES_MAX each in memory */
#define KV_FETCH_US_MAX 10000000 /* longest fetch; pages that came by then are kept */
#define KV_NUMERICS_BYTES 64
#define KV_HEAD_VERSION 2 /* raised when pages or head are laid out in another way */
#define KV_HEAD_BYTES (8 + 9 * 4 + SHA256_HEX + KV_NUMERICS_BYTES)

struct kv_read_request {
    const uint32_t *ids;
    uint32_t id_count;
    struct str tenant; /* as in generate.h */
    uint32_t from;     /* first token wanted; the reader has earlier pages already */
};

struct kv_fetch_request {
    const uint32_t *ids;
    uint32_t id_count;
    struct str tenant;
    struct str host; /* engine that may hold the pages */
    uint32_t port;
    struct str ticket, key; /* as kv_ticket and kv_key of generate.h */
    bool tls;               /* the engine speaks TLS there */
};

struct kv_fetch_reply {
    uint32_t tokens; /* leading ids with KV in the cache now */
    uint32_t pulled; /* the part of them that this call transferred */
};

int kv_read_request_encode(const struct kv_read_request *req, struct buf *out);
int kv_read_request_decode(struct str text, struct arena *arena, struct kv_read_request *ret,
                           struct err *err);
int kv_fetch_request_encode(const struct kv_fetch_request *req, struct buf *out);
int kv_fetch_request_decode(struct str text, struct arena *arena, struct kv_fetch_request *ret,
                            struct err *err);
int kv_fetch_reply_encode(const struct kv_fetch_reply *reply, struct buf *out);
int kv_fetch_reply_decode(struct str text, struct arena *arena, struct kv_fetch_reply *ret,
                          struct err *err);

/* Describes the pages of a response. On the wire it is "musterKV", then version, kv_type, layers, kv_heads,
 * head_dim, page_tokens, first, tokens and whole_from, each 32 bits, little-endian; the digest as hexadecimal
 * digits; numerics, padded with NUL. */
struct kv_head {
    uint32_t kv_type; /* enum kv_type of the engines: how elements are stored */
    uint32_t layers, kv_heads, head_dim, page_tokens;
    uint32_t first, tokens; /* multiples of page_tokens, as whole_from */
    uint32_t whole_from;    /* from first to first + tokens; first where no layer has a window */
    char digest[SHA256_HEX + 1];      /* of weights and tokenizer */
    char numerics[KV_NUMERICS_BYTES]; /* engines with equal numerics compute equal bytes */
};

void kv_head_encode(const struct kv_head *head, uint8_t ret[KV_HEAD_BYTES]);

/* Reads the head at the beginning of `bytes`. -EINVAL with a sentence if there is no valid one. */
int kv_head_decode(struct str bytes, struct kv_head *ret, struct err *err);
