/* f_tokenizer.c - encodes and decodes any bytes: they come back unchanged, and plain text gives no
 * control token. Reads any bundle with a correct checksum: it is accepted or refused with a sentence.
 *
 * The input's first byte selects (bit 7: the rest is a bundle's body; bit 6: a kind; else: a pre-tokenizer). */
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

/* ---- the other kinds, with rules of many sorts ---- */

static const char *const pieces[] = {
    "<s>",
    "<unk>",
    "\xE2\x96\x81",
    "a",
    "b",
    "ab",
    "aa",
    "\xE2\x96\x81"
    "a",
    "\xE2\x96\x81"
    "ab",
    "\xC3\xA9",
    "e",
    "##a",
    "##ab",
    "##e",
    "\xE6\x88\x91",
    "1",
    "\xE2\x96\x81\xE2\x96\x81",
    ".",
    "<m>",
    "aaaa",
    "b\xE2\x96\x81"
    "a",
    " ",
};
#define UNKNOWN_PIECE 1

static const struct setup {
    const char *kind;
    uint32_t flags;
    bool gguf;
    struct text_rule normal[2], cut[2], decode[2];
} setups[] = {
    { .kind = "llama", .gguf = true },
    { .kind = "t5", .gguf = true },
    { .kind = "bert", .gguf = true },
    { .kind = "bpe",
      .flags = VOCAB_BYTE_FALLBACK | VOCAB_FUSE_UNKNOWN,
      .normal = { { .kind = RULE_NFC }, { .kind = RULE_STRIP, .flags = RULE_LEFT } },
      .cut = { { .kind = RULE_METASPACE,
                 .flags = RULE_FIRST | RULE_SPLIT,
                 .a = STR("\xE2\x96\x81") } },
      .decode = { { .kind = RULE_DROP_FIRST } } },
    { .kind = "bpe",
      .flags = VOCAB_WHOLE_WORDS,
      .normal = { { .kind = RULE_NFKD }, { .kind = RULE_STRIP_ACCENTS } },
      .cut = { { .kind = RULE_WORD_RUNS, .flags = RULE_INVERT, .behavior = BEHAVIOR_REMOVED },
               { .kind = RULE_DIGIT, .behavior = BEHAVIOR_CONTIGUOUS } },
      .decode = { { .kind = RULE_BLANK } } },
    { .kind = "bert",
      .normal = { { .kind = RULE_NFKC }, { .kind = RULE_LOWER } },
      .cut = { { .kind = RULE_WHITE, .behavior = BEHAVIOR_WITH_NEXT },
               { .kind = RULE_LITERAL, .behavior = BEHAVIOR_WITH_PREVIOUS, .a = STR("a") } },
      .decode = { { .kind = RULE_WORDPIECE, .flags = RULE_CLEAN_UP, .a = STR("##") } } },
    { .kind = "t5",
      .normal = { { .kind = RULE_NFD },
                  { .kind = RULE_REPLACE, .flags = RULE_RUNS, .a = STR(" ") } },
      .cut = { { .kind = RULE_PREFIX_BLANK }, { .kind = RULE_WORDS, .a = STR("gpt-4o") } } },
    { .kind = "wordlevel",
      .normal = { { .kind = RULE_COLLAPSE }, { .kind = RULE_PREPEND, .a = STR("a") } },
      .cut = { { .kind = RULE_PUNCTUATION }, { .kind = RULE_WORDS, .a = STR("stage-han-kana") } } },
};

static struct text_rules rules_of(const struct text_rule *list)
{
    size_t count = 0;
    while (count < 2 && list[count].kind)
        count++;
    return (struct text_rules){ list, count };
}

static struct vocab *build_kind(const struct setup *s)
{
    char names[256][8];
    struct str tokens[COUNT_OF(pieces) + 256];
    uint8_t types[COUNT_OF(tokens)], added[COUNT_OF(tokens)] = { 0 };
    double scores[COUNT_OF(tokens)];
    static const uint32_t merges[] = { 3, 4, 3, 3, 2, 3, 2, 5, 6, 6, 2, 2 };
    size_t count = 0;
    for (; count < COUNT_OF(pieces); count++) {
        tokens[count] = str_from(pieces[count]);
        types[count] = TOKEN_NORMAL;
        scores[count] = -(double)(count * 7 % 11);
    }
    types[0] = TOKEN_CONTROL;
    types[UNKNOWN_PIECE] = TOKEN_UNKNOWN;
    types[18] = TOKEN_USER_DEFINED; /* <m> */
    added[18] = TOKEN_LSTRIP | TOKEN_RSTRIP | TOKEN_NORMALIZED;
    for (unsigned byte = 0; byte < 256; byte++, count++) {
        static const char digits[] = "0123456789ABCDEF";
        memcpy(names[byte], (char[]){ '<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>' },
               6);
        tokens[count] = str_of(names[byte], 6);
        types[count] = TOKEN_BYTE;
        scores[count] = 0;
    }
    struct vocab_parts parts = { .kind = str_from(s->kind),
                                 .tokens = tokens,
                                 .token_count = count,
                                 .types = types,
                                 .type_count = count,
                                 .added = added,
                                 .added_count = count,
                                 .scores = scores,
                                 .score_count = count,
                                 .special = VOCAB_SPECIAL_NONE,
                                 .flags = s->flags,
                                 .normal = rules_of(s->normal),
                                 .cut = rules_of(s->cut),
                                 .decode = rules_of(s->decode) };
    struct vocab_gguf_rules storage;
    const struct vocab_gguf_switches switches = { .add_space_prefix = true,
                                                  .remove_extra_whitespaces = true };
    parts.special.unk = UNKNOWN_PIECE;
    if (s->gguf) vocab_rules_of_gguf(&parts, &switches, &storage);
    if (str_eq(parts.kind, STR("bert")) && !s->gguf) parts.continuing = STR("##");
    if (str_eq(parts.kind, STR("bpe"))) parts.merge_ids = merges;
    if (parts.merge_ids) parts.merge_count = COUNT_OF(merges) / 2;
    struct vocab *v = NULL;
    struct err err = { 0 };
    if (vocab_build(&parts, &v, &err) < 0) must(!err.text[0]);
    return v;
}

/* A user's text gives no control token, and a stream of its ids is UTF-8. SentencePiece's BPE with byte fallback
 * gives every text back that has none of its blanks' marks and no user-defined token. */
static void check_kind(const struct vocab *v, struct str text, bool exact)
{
    CLEANUP(ids_fini) struct ids plain = { 0 };
    CLEANUP(ids_fini) struct ids special = { 0 };
    CLEANUP(buf_fini) struct buf back = { 0 };
    struct detok d;
    must(tokenizer_encode(v, text, false, &plain, NULL) == 0);
    must(tokenizer_encode(v, text, true, &special, NULL) == 0);
    detok_init(&d, v, false);
    for (size_t i = 0; i < plain.count; i++) {
        must(vocab_type(v, plain.data[i]) != TOKEN_CONTROL);
        must(detok_push(&d, plain.data[i], &back) == 0);
    }
    must(detok_flush(&d, &back) == 0);
    must(str_utf8_valid(buf_view(&back)));
    if (!exact || str_find(text, STR("\xE2\x96\x81")) != SIZE_MAX ||
        str_find(text, STR("<m>")) != SIZE_MAX)
        return;
    buf_clear(&back);
    must(detok_bytes(v, plain.data, plain.count, false, &back) == 0);
    must(str_eq(buf_view(&back), text));
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
    if (bundle_decode(buf_view(&bytes), NULL, &b, &err) < 0)
        must(err.text[0] != '\0');
    else if (str_eq(vocab_kind(b.vocab), STR("gpt2")) && vocab_pre(b.vocab).len > 0)
        check_text(b.vocab, STR("a<|end|> \xC3\xBC\n12"));
    else
        check_kind(b.vocab, STR("a<m> \xC3\xBC\n12 aab"), false);
}

const struct fuzz_cost fuzz_cost = { 200000, 3000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static struct vocab *vocabs[64], *kinds[COUNT_OF(setups)];
    if (len == 0) return;
    if (data[0] & 0x80) {
        if (len > 1) check_bundle(data + 1, len - 1);
        return;
    }
    if (data[0] & 0x40) {
        size_t kind = data[0] % COUNT_OF(kinds);
        if (!kinds[kind]) kinds[kind] = build_kind(&setups[kind]);
        check_kind(kinds[kind], str_of(data + 1, len - 1), kind == 0);
        return;
    }
    size_t pre = data[0] % COUNT_OF(vocabs);
    if (!vocab_pre_name(pre)) pre = 0;
    if (!vocabs[pre]) vocabs[pre] = build(vocab_pre_name(pre)); /* kept for the next input */
    check_text(vocabs[pre], str_of(data + 1, len - 1));
}
