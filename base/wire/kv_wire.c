/* kv_wire.c - encodes and decodes the messages of KV transfer, and the binary head before the pages.
 *
 * The response to a read is bytes and not JSON: pages are megabytes, and both sides hold them in the
 * same layout. */
#include "base/wire/kv_wire.h"

#include "base/core/bits.h"

#define TENANT_BYTES_MAX 128 /* as in generate.c */

static const char magic[8] = { 'm', 'u', 's', 't', 'e', 'r', 'K', 'V' };

static const struct field read_rows[] = {
    FIELD_AS("v", struct kv_read_request, ids, FIELD_VERSION),
    FIELD_ARRAY("ids", struct kv_read_request, ids, id_count, FIELD_IDS, GENERATE_IDS_MAX,
                .required = true, .min = 1),
    FIELD(struct kv_read_request, tenant, FIELD_STR, .max = TENANT_BYTES_MAX),
    FIELD(struct kv_read_request, from, FIELD_U32, .max = GENERATE_IDS_MAX),
};
static const struct field_set read_set = FIELD_SET(struct kv_read_request, read_rows);

static const struct field fetch_rows[] = {
    FIELD_AS("v", struct kv_fetch_request, ids, FIELD_VERSION),
    FIELD_ARRAY("ids", struct kv_fetch_request, ids, id_count, FIELD_IDS, GENERATE_IDS_MAX,
                .required = true, .min = 1),
    FIELD(struct kv_fetch_request, tenant, FIELD_STR, .max = TENANT_BYTES_MAX),
    FIELD(struct kv_fetch_request, host, FIELD_STR, .required = true, .min = 1,
          .max = GENERATE_HOST_BYTES_MAX),
    FIELD(struct kv_fetch_request, port, FIELD_U32, .required = true, .min = 1, .max = UINT16_MAX),
    FIELD(struct kv_fetch_request, ticket, FIELD_STR, .max = GENERATE_TICKET_BYTES_MAX),
    FIELD(struct kv_fetch_request, key, FIELD_STR, .max = GENERATE_KEY_HEX),
    FIELD(struct kv_fetch_request, tls, FIELD_BOOL),
};
static const struct field_set fetch_set = FIELD_SET(struct kv_fetch_request, fetch_rows);

static const struct field reply_rows[] = {
    FIELD_AS("v", struct kv_fetch_reply, tokens, FIELD_VERSION),
    FIELD(struct kv_fetch_reply, tokens, FIELD_U32, .required = true, .max = GENERATE_IDS_MAX),
    FIELD(struct kv_fetch_reply, pulled, FIELD_U32, .required = true, .max = GENERATE_IDS_MAX),
};
static const struct field_set reply_set = FIELD_SET(struct kv_fetch_reply, reply_rows);

int kv_read_request_encode(const struct kv_read_request *req, struct buf *out)
{
    return fields_encode(&read_set, req, out);
}

int kv_read_request_decode(struct str text, struct arena *arena, struct kv_read_request *ret,
                           struct err *err)
{
    return fields_decode(&read_set, text, arena, ret, "kv read", err);
}

int kv_fetch_request_encode(const struct kv_fetch_request *req, struct buf *out)
{
    return fields_encode(&fetch_set, req, out);
}

int kv_fetch_request_decode(struct str text, struct arena *arena, struct kv_fetch_request *ret,
                            struct err *err)
{
    return fields_decode(&fetch_set, text, arena, ret, "kv fetch", err);
}

int kv_fetch_reply_encode(const struct kv_fetch_reply *reply, struct buf *out)
{
    return fields_encode(&reply_set, reply, out);
}

int kv_fetch_reply_decode(struct str text, struct arena *arena, struct kv_fetch_reply *ret,
                          struct err *err)
{
    struct kv_fetch_reply reply;
    int rc = fields_decode(&reply_set, text, arena, &reply, "kv fetch reply", err);
    if (rc < 0) return rc;
    if (reply.pulled > reply.tokens)
        return err_set(err, -EINVAL, "kv fetch reply: %u tokens pulled, but only %u are there",
                       reply.pulled, reply.tokens);
    *ret = reply;
    return 0;
}

/* ---- the head --------------------------------------------------------------------------------- */

/* Lists the numbers of a head in their order on the wire, behind the version. */
#define NUMBERS 8
static void numbers_of(struct kv_head *h, uint32_t *ret[NUMBERS])
{
    uint32_t *const all[NUMBERS] = { &h->kv_type,     &h->layers, &h->kv_heads, &h->head_dim,
                                     &h->page_tokens, &h->first,  &h->tokens,   &h->whole_from };
    memcpy(ret, all, sizeof all);
}

void kv_head_encode(const struct kv_head *head, uint8_t ret[KV_HEAD_BYTES])
{
    struct kv_head h = *head;
    uint32_t *number[NUMBERS];
    numbers_of(&h, number);
    memcpy(ret, magic, sizeof magic);
    uint8_t *at = ret + sizeof magic;
    store_u32(at, KV_HEAD_VERSION);
    at += 4;
    for (size_t i = 0; i < NUMBERS; i++, at += 4)
        store_u32(at, *number[i]);
    memcpy(at, h.digest, SHA256_HEX);
    memset(at + SHA256_HEX, 0, KV_NUMERICS_BYTES);
    memcpy(at + SHA256_HEX, h.numerics, strnlen(h.numerics, KV_NUMERICS_BYTES - 1));
}

static bool is_hex(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    }
    return true;
}

/* Returns true if `text` is printable ASCII, padded to `size` with at least one NUL. */
static bool is_padded(const char *text, size_t size)
{
    size_t len = strnlen(text, size);
    for (size_t i = 0; i < len; i++) {
        if (text[i] < ' ' || text[i] > '~') return false;
    }
    for (size_t i = len; i < size; i++) {
        if (text[i] != '\0') return false;
    }
    return len < size;
}

int kv_head_decode(struct str bytes, struct kv_head *ret, struct err *err)
{
    struct kv_head h = { 0 };
    uint32_t *number[NUMBERS];
    const char *at = bytes.data;
    if (bytes.len < KV_HEAD_BYTES || memcmp(at, magic, sizeof magic) != 0)
        return err_set(err, -EINVAL, "kv head: %zu bytes that are none", bytes.len);
    at += sizeof magic;
    uint32_t version = load_u32(at);
    if (version != KV_HEAD_VERSION)
        return err_set(err, -EINVAL, "kv head: version %u, not %d", version, KV_HEAD_VERSION);
    at += 4;
    numbers_of(&h, number);
    for (size_t i = 0; i < NUMBERS; i++, at += 4)
        *number[i] = load_u32(at);
    if (!is_hex(at, SHA256_HEX))
        return err_set(err, -EINVAL, "kv head: the digest is not hexadecimal");
    memcpy(h.digest, at, SHA256_HEX);
    at += SHA256_HEX;
    if (!is_padded(at, KV_NUMERICS_BYTES))
        return err_set(err, -EINVAL, "kv head: numerics is no text");
    memcpy(h.numerics, at, KV_NUMERICS_BYTES);
    if (h.first > GENERATE_IDS_MAX || h.tokens > GENERATE_IDS_MAX)
        return err_set(err, -EINVAL, "kv head: tokens %u and %u more; at most %u are possible",
                       h.first, h.tokens, GENERATE_IDS_MAX);
    if (h.page_tokens == 0 || h.first % h.page_tokens || h.tokens % h.page_tokens)
        return err_set(err, -EINVAL, "kv head: tokens %u and %u more are no whole pages of %u",
                       h.first, h.tokens, h.page_tokens);
    if (h.whole_from < h.first || h.whole_from > h.first + h.tokens || h.whole_from % h.page_tokens)
        return err_set(err, -EINVAL, "kv head: pages are whole from token %u on, of %u and %u more",
                       h.whole_from, h.first, h.tokens);
    *ret = h;
    return 0;
}
