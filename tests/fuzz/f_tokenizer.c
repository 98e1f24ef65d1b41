/* f_tokenizer.c - encodes and decodes any bytes: they come back unchanged, and plain text gives no
 * control token. Reads any bundle with a correct checksum: it is accepted or refused with a sentence.
 *
 * The input's first byte selects (bit 7: the rest is a bundle's body; else: the pre-tokenizer). */
#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/text/bundle.h"
#include "base/text/detok.h"
#include "base/text/tokenizer.h"
#include "base/text/vocab.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#define CONTROL_COUNT 3

/* Builds a vocabulary of control tokens, all bytes, and merges of letters and of the markers' bytes. */
static struct vocab *build(const char *pre)
{
    static const char *const markers[CONTROL_COUNT] = { "<|end|>", "<|", "<a>" };
    static const char *const merges[] = { "a a", "aa aa", "< |", "e n", "en d", "| >", "a b" };
    char text[CONTROL_COUNT + 256 + COUNT_OF(merges)][16];
    struct str tokens[COUNT_OF(text)], merge[COUNT_OF(merges)];
    uint8_t types[COUNT_OF(text)];
    size_t count = 0;
    for (size_t i = 0; i < CONTROL_COUNT; i++) {
        tokens[count] = str_from(markers[i]);
        types[count++] = TOKEN_CONTROL;
    }
    for (unsigned b = 0; b < 256; b++) {
        char byte = (char)b;
        tokens[count] = byte_alphabet_encode(str_of(&byte, 1), text[count]);
        types[count++] = TOKEN_NORMAL;
    }
    for (size_t i = 0; i < COUNT_OF(merges); i++) {
        merge[i] = str_from(merges[i]);
        struct str rest = merge[i];
        struct str left = str_cut(&rest, ' ');
        memcpy(text[count], left.data, left.len);
        memcpy(text[count] + left.len, rest.data, rest.len);
        tokens[count] = str_of(text[count], left.len + rest.len);
        if (str_eq(tokens[count], STR("<|"))) continue; /* a merge into a control token */
        types[count++] = TOKEN_NORMAL;
    }
    struct vocab_parts parts = { .kind = STR("gpt2"),
                                 .pre = str_from(pre),
                                 .tokens = tokens,
                                 .token_count = count,
                                 .types = types,
                                 .type_count = count,
                                 .merges = merge,
                                 .merge_count = COUNT_OF(merges),
                                 .special = VOCAB_SPECIAL_NONE };
    struct vocab *v = NULL;
    struct err err = { 0 };
    must(vocab_build(&parts, &v, &err) == 0);
    return v;
}

static void check_text(const struct vocab *v, struct str text)
{
    CLEANUP(ids_fini) struct ids plain = { 0 };
    CLEANUP(ids_fini) struct ids special = { 0 };
    CLEANUP(ids_fini) struct ids inside = { 0 };
    CLEANUP(buf_fini) struct buf back = { 0 };
    CLEANUP(text_spans_fini) struct text_spans all = { 0 };
    must(text_spans_add(&all, 0, text.len) == 0);
    must(tokenizer_encode(v, text, false, &plain, NULL) == 0);
    must(tokenizer_encode(v, text, true, &special, NULL) == 0);
    must(tokenizer_encode_spans(v, text, &all, &inside, NULL) == 0);
    must(inside.count == plain.count);
    for (size_t i = 0; i < plain.count; i++) {
        must(plain.data[i] >= CONTROL_COUNT);
        must(plain.data[i] == inside.data[i]);
    }
    must(detok_bytes(v, special.data, special.count, false, &back) == 0);
    must(str_eq(buf_view(&back), text));
    buf_clear(&back);
    struct detok d;
    detok_init(&d, v, false);
    for (size_t i = 0; i < plain.count; i++)
        must(detok_push(&d, plain.data[i], &back) == 0);
    must(detok_flush(&d, &back) == 0);
    must(str_utf8_valid(buf_view(&back)));
    if (str_utf8_valid(text)) must(str_eq(buf_view(&back), text));
}

static void check_bundle(const uint8_t *body, size_t len)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    CLEANUP(bundle_fini) struct bundle b = { 0 };
    struct err err = { 0 };
    uint8_t digest[SHA256_BYTES];
    buf_append(&bytes, body, len);
    sha256(bytes.data, bytes.len, digest);
    buf_append(&bytes, digest, sizeof digest);
    if (bundle_decode(buf_view(&bytes), NULL, &b, &err) == 0)
        check_text(b.vocab, STR("a<|end|> \xC3\xBC\n12"));
    else
        must(err.text[0] != '\0');
}

const struct fuzz_cost fuzz_cost = { 200000, 3000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static struct vocab *vocabs[32];
    if (len == 0) return;
    if (data[0] & 0x80) {
        if (len > 1) check_bundle(data + 1, len - 1);
        return;
    }
    size_t pre = data[0] % COUNT_OF(vocabs);
    if (!vocab_pre_name(pre)) pre = 0;
    if (!vocabs[pre]) vocabs[pre] = build(vocab_pre_name(pre)); /* kept for the next input */
    check_text(vocabs[pre], str_of(data + 1, len - 1));
}
