/* f_join.c - reads any text as what an agent and a controller say when it joins, and as a token's file; the first byte
 * selects which. What opens was sealed with the token, and only the sender of a request can read the reply to it. */
#include "base/core/own.h"
#include "base/io/auth/join.h"
#include "base/wire/launch.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define SECRET STR("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
#define NAME "i-0123456789ab"
#define ARENA_BYTES ((size_t)64 << 10)

const struct fuzz_cost fuzz_cost = { .flat = 3000000, .per_byte = 200 };

/* The agent whose request is in the corpus. */
static struct join agent(struct buf *seal)
{
    CLEANUP(buf_fini) struct buf file = { 0 };
    struct join_token token;
    struct join j;
    struct hpke_key seed;
    memset(&seed, 7, sizeof seed);
    must(join_token_print(SECRET, STR(NAME), &file) == 0);
    must(join_token_parse(buf_view(&file), &token) == 0);
    must(join_ask(&token, &seed, &j, seal) == 0);
    return j;
}

static void as_request(struct str text, struct arena *arena)
{
    CLEANUP(buf_fini) struct buf seal = { 0 };
    CLEANUP(buf_fini) struct buf again = { 0 };
    struct join_request r;
    struct hpke_key enc;
    struct join j;
    uint8_t bytes[JOIN_SEAL_BYTES_MAX];
    if (join_request_decode(text, arena, &r, NULL) < 0) return;
    must(join_request_encode(&r, &again) == 0);
    size_t len = r.seal.len / 2;
    if (len > sizeof bytes || hex_to(r.enc, enc.byte, sizeof enc.byte) < 0 ||
        hex_to(r.seal, bytes, len) < 0)
        return;
    if (join_hear(SECRET, r.instance, &enc, str_of(bytes, len), &j) < 0) return;
    struct join known = agent(&seal); /* nobody else has a token */
    must(str_eq(r.instance, STR(NAME)) && memcmp(&enc, &known.enc, sizeof enc) == 0);
    must(len == seal.len && memcmp(bytes, seal.data, len) == 0);
}

static void as_reply(struct str text, struct arena *arena)
{
    CLEANUP(buf_fini) struct buf seal = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct join_reply r;
    struct hpke_key nonce;
    uint8_t bytes[JOIN_SEAL_BYTES_MAX];
    if (join_reply_decode(text, arena, &r, NULL) < 0) return;
    size_t len = r.seal.len / 2;
    if (len > sizeof bytes || hex_to(r.nonce, nonce.byte, sizeof nonce.byte) < 0 ||
        hex_to(r.seal, bytes, len) < 0)
        return;
    struct join j = agent(&seal);
    int rc = join_read(&j, &nonce, str_of(bytes, len), &out);
    must(rc == 0 || rc == -EACCES || rc == -EBADMSG);
    if (rc == -EBADMSG) must(out.len == 0);
}

static void as_token(struct str text)
{
    struct join_token t;
    if (join_token_parse(text, &t) < 0) return;
    must(t.instance[0] && strlen(t.instance) <= CREDENTIALS_NAME_BYTES);
}

void fuzz_one(const uint8_t *data, size_t len)
{
    CLEANUP(arena_fini) struct arena arena;
    if (len == 0) return;
    struct str text = str_of(data + 1, len - 1);
    arena_init(&arena, ARENA_BYTES);
    if (data[0] == 'q') as_request(text, &arena);
    if (data[0] == 'r') as_reply(text, &arena);
    if (data[0] == 't') as_token(text);
}
